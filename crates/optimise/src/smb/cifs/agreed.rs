//! What client and server of an SMB1 connection agreed. It says whether reading ahead is possible at all.

use super::super::smb1::connect::{
    CAPABILITY_LARGE_FILES, CAPABILITY_LARGE_READ, NT_LANMAN, NT_LM, NegotiateRequest,
    NegotiateResponse, SIGNATURES_REQUIRED, SessionSetupRequest,
};
use super::super::smb1::header::{Header, first_block};
use crate::reason::Reason;

/// What every server that allows long reads gives at once (MS-SMB 2.2.4.2.1 leaves the most to the server).
const READ_BYTES_MAX: u32 = 61_440;

/// See the module.
#[derive(Debug)]
pub struct Agreed {
    requests_max: usize,
    server: u32,
    client: u32,
}

impl Agreed {
    /// The server chose a dialect.
    ///
    /// # Errors
    /// When it is one whose files cannot be read ahead, or its messages are signed.
    pub fn of(asked: &[u8], answered: &[u8]) -> Result<Self, Reason> {
        let header = Header::parse(answered).map_err(|_| Reason::SmbMalformed)?;
        let request = first_block(asked).and_then(|block| NegotiateRequest::parse(&block));
        let response = first_block(answered).and_then(|block| NegotiateResponse::parse(&block));
        let (Ok(request), Ok(response)) = (request, response) else {
            return Err(Reason::SmbDialect);
        };
        let chosen = request.dialects.get(usize::from(response.dialect));
        let is_nt = chosen.is_some_and(|chosen| chosen == NT_LM || chosen == NT_LANMAN);
        if header.status != 0 || !is_nt {
            return Err(Reason::SmbDialect);
        }
        if response.security_mode & SIGNATURES_REQUIRED != 0 || header.is_signed() {
            return Err(Reason::SmbSigned);
        }
        Ok(Self {
            requests_max: response.requests_max.into(),
            server: response.capabilities,
            client: 0,
        })
    }

    /// A client says what it can do.
    pub fn handle_setup(&mut self, setup: &SessionSetupRequest) {
        self.client = setup.capabilities;
    }

    /// Whether files may be read ahead. Without long reads clients turn to raw ones, whose packets have no header
    /// and cannot be told apart.
    #[must_use]
    pub fn can_read_ahead(&self) -> bool {
        let both = self.server & self.client;
        both & CAPABILITY_LARGE_READ != 0 && self.server & CAPABILITY_LARGE_FILES != 0
    }

    /// The longest read of ours.
    #[must_use]
    pub fn read_bytes_max(&self) -> u32 {
        READ_BYTES_MAX
    }

    /// So many requests the server takes at a time.
    #[must_use]
    pub fn requests_max(&self) -> usize {
        self.requests_max
    }
}
