//! What is agreed before a file is opened.

use farhaul_optimise::smb::smb2::connect::{CAPABILITY_LARGE_MTU, DIALECT_202, NegotiateResponse};
use farhaul_optimise::smb::smb2::header::{Command, Header};

use super::Server;

impl Server {
    pub(super) fn negotiated(&self) -> NegotiateResponse {
        let is_large = self.terms.dialect > DIALECT_202;
        NegotiateResponse {
            security_mode: self.terms.security_mode,
            dialect: self.terms.dialect,
            server: [7; 16],
            capabilities: if is_large { CAPABILITY_LARGE_MTU } else { 0 },
            transact_bytes_max: 1 << 20,
            read_bytes_max: if is_large { 1 << 20 } else { 65_536 },
            write_bytes_max: 1 << 20,
            time: 1,
            started: 0,
            token: vec![1, 2, 3],
            contexts: Vec::new(),
        }
    }

    /// A client that begins in SMB1 goes on in SMB2 (MS-SMB2 3.3.5.3.1).
    pub(super) fn answer_cifs_negotiate(&mut self) {
        assert!(self.used.insert(0), "negotiated twice");
        self.used_ids += 1;
        let negotiate = Header::request(Command::Negotiate, 0, 0, 0);
        let credits = self.grant(&negotiate);
        self.answer(&negotiate, &[], credits);
    }
}
