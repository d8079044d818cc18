//! What a client asks of the server.

use farhaul_optimise::smb::netbios::packet;
use farhaul_optimise::smb::smb2::connect::{
    NegotiateRequest, SessionSetupRequest, TreeConnectRequest,
};
use farhaul_optimise::smb::smb2::header::{Command, FLAG_DFS, FLAG_SIGNED, Header};
use farhaul_optimise::smb::smb2::open::{
    CreateContext, LEASE_READ, LEASE_WRITE, Lease, OPLOCK_LEASE,
};
use farhaul_optimise::smb::smb2::transfer::{ReadRequest, WriteRequest};

use super::super::server::{SESSION, TREE};
use super::{Client, Sent, Server};

/// Of its lease: it has one file open at a time.
pub(super) const LEASE_KEY: [u8; 16] = [0x4b; 16];
/// SMB2_LEASE_HANDLE_CACHING.
const LEASE_HANDLE: u32 = 2;

impl Client {
    pub(super) fn greet(&mut self) -> bool {
        self.greeting += 1;
        if self.cifs.is_some() || (self.manners.begins_in_cifs && self.greeting == 1) {
            self.cifs_greet();
            return true;
        }
        match self.greeting {
            1 => {
                let negotiate = NegotiateRequest {
                    security_mode: self.manners.security_mode,
                    capabilities: 0,
                    client: [3; 16],
                    dialects: vec![0x0202, 0x0210],
                    contexts: Vec::new(),
                };
                self.send(Command::Negotiate, None, |message| {
                    negotiate.emit(0, message)
                });
            }
            2 => {
                let setup = SessionSetupRequest {
                    flags: 0,
                    security_mode: self.manners.security_mode as u8,
                    capabilities: 0,
                    channel: 0,
                    previous: 0,
                    token: if self.manners.is_anonymous {
                        nobody()
                    } else {
                        vec![9; 40]
                    },
                };
                self.send(Command::SessionSetup, None, |message| setup.emit(message));
            }
            _ => {
                let path = b"\\\\s\\files".to_vec();
                let tree = TreeConnectRequest { flags: 0, path };
                self.send(Command::TreeConnect, None, |message| tree.emit(message));
            }
        }
        true
    }

    pub(super) fn read(&mut self, now_ns: u64, offset: u64, length: u32, server: &Server) {
        self.first_read_ns.get_or_insert(now_ns);
        let read = ReadRequest {
            flags: 0,
            length,
            offset,
            file: self.file.unwrap(),
            length_min: 0,
            channel: 0,
            remaining: 0,
        };
        self.reads += 1;
        let floor = self.floor(server);
        let id = match self.cifs {
            Some(_) => self.cifs_read(read.file, offset, length),
            None => {
                self.send(Command::Read, Some((offset, length)), |message| {
                    read.emit(message)
                });
                self.next_id - 1
            }
        };
        self.sent.get_mut(&id).unwrap().floor = floor;
    }

    pub(super) fn contexts(&self) -> Vec<CreateContext> {
        let durable = CreateContext {
            name: b"DHnQ".to_vec(),
            data: vec![0; 16],
        };
        let lease = Lease {
            key: LEASE_KEY,
            state: LEASE_READ | LEASE_HANDLE | LEASE_WRITE,
            flags: 0,
            parent: None,
        };
        let durable = self.manners.is_durable.then_some(durable);
        let lease = (self.asked == OPLOCK_LEASE).then(|| lease.context());
        durable.into_iter().chain(lease).collect()
    }

    pub(super) fn write(&mut self, now_ns: u64, offset: u64, bytes: Vec<u8>) {
        self.first_write_ns.get_or_insert(now_ns);
        let write = WriteRequest {
            offset,
            file: self.file.unwrap(),
            channel: 0,
            remaining: 0,
            flags: self.manners.write_flags,
            data: &bytes,
        };
        let first_id = match self.cifs {
            Some(_) => self.cifs_write(&write),
            None => {
                self.charge = charge_of(bytes.len()).min(self.credits) as u16;
                let first_id = self.next_id;
                self.send(Command::Write, None, |message| write.emit(message));
                first_id
            }
        };
        self.sent.get_mut(&first_id).unwrap().write = Some((offset, bytes));
    }

    pub(super) fn send(
        &mut self,
        command: Command,
        read: Option<(u64, u32)>,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let id = self.next_id;
        let large = self.manners.has_large_requests && self.greeting > 1;
        let is_tree = command == Command::TreeConnect;
        let header = Header {
            credit_charge: u16::from(large) * self.charge,
            credits: self.manners.asks,
            flags: match command {
                Command::TreeConnect if self.manners.signs_tree => FLAG_SIGNED,
                Command::Create if self.manners.is_dfs => FLAG_DFS,
                _ => 0,
            },
            ..Header::request(
                command,
                id,
                if self.greeting > 2 { SESSION } else { 0 },
                if self.greeting == 3 && !is_tree {
                    TREE
                } else {
                    0
                },
            )
        };
        let charge = match large {
            true => self.charge,
            false => 1,
        };
        self.charge = 1;
        self.next_id += u64::from(charge);
        self.credits -= i64::from(charge);
        assert!(self.credits >= 0, "without credit");
        let mut message = Vec::new();
        header.emit(&mut message);
        body(&mut message);
        self.output.extend_from_slice(&packet(&message));
        let floor = 0;
        let writes = self.writes;
        let sent = Sent {
            command,
            read,
            write: None,
            floor,
            writes,
            has_seen_breaks: self.breaks_seen > 0,
        };
        assert!(self.sent.insert(id, sent).is_none());
    }
}

/// Credits of a request that moves so many bytes (MS-SMB2 3.1.5.2).
pub(super) fn charge_of(bytes: usize) -> i64 {
    bytes.div_ceil(65_536).max(1) as i64
}

/// NTLM's last message, of nobody, in something that stands for SPNEGO.
fn nobody() -> Vec<u8> {
    let mut token = vec![0xa1, 0x50];
    token.extend_from_slice(b"NTLMSSP\0\x03\0\0\0");
    token.extend([0; 60]);
    token
}
