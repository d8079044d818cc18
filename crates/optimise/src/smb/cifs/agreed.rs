//! What client and server of an SMB1 connection agreed. It says whether reading ahead is possible at all.

use super::super::smb1::connect::{
    CAPABILITY_LARGE_FILES, CAPABILITY_LARGE_READ, NT_LANMAN, NT_LM, NegotiateRequest,
    NegotiateResponse, SIGNATURES_REQUIRED, SessionSetupRequest,
};
use super::super::smb1::header::{Header, first_block};
use crate::reason::Reason;

/// What every server that allows long reads gives at once (MS-SMB 2.2.4.2.1 leaves the most to the server).
const READ_BYTES_MAX: u32 = 61_440;

/// What Linux calls itself, in the place of a LAN manager (MS-CIFS 2.2.4.53.1; fs/smb/client/cifspdu.h).
const LINUX: &[u8] = b"CIFS VFS Client for Linux";

/// See the module.
#[derive(Debug)]
pub struct Agreed {
    requests_max: usize,
    server: u32,
    client: u32,
    takes_up_files: bool,
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
            takes_up_files: false,
        })
    }

    /// A client says what it can do.
    pub fn handle_setup(&mut self, setup: &SessionSetupRequest) {
        self.client = setup.capabilities;
        self.takes_up_files |= is_linux(&setup.security);
    }

    /// Whether a client takes up its files by their names after a lost connection, and does not look at what CLOSE says: it must hear
    /// of each write from the server.
    #[must_use]
    pub fn takes_up_files(&self) -> bool {
        self.takes_up_files
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

/// Names lie behind the security token, in bytes or in UTF-16.
fn is_linux(security: &[u8]) -> bool {
    let mut bytes = security.windows(LINUX.len());
    let mut wide = security.windows(2 * LINUX.len());
    bytes.any(|name| name == LINUX)
        || wide.any(|name| name.chunks(2).eq(LINUX.iter().map(|letter| [*letter, 0])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_is_known_by_its_name() {
        let wide: Vec<u8> = LINUX.iter().flat_map(|letter| [*letter, 0]).collect();
        for name in [LINUX, &wide] {
            assert!(is_linux(&[&[7; 33], name, &[0; 2]].concat()));
            assert!(!is_linux(&name[1..]));
        }
        assert!(!is_linux(b"Windows 2002 Service Pack 3 2600"));
    }
}
