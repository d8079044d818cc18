//! What can go wrong between the client and a server.

use std::io;

/// Why a file was not copied.
#[derive(Debug, thiserror::Error)]
pub enum LockstepError {
    /// The connection, or a local file.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The server said no.
    #[error("{what}: the server answered 0x{status:08x}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// MS-ERREF 2.3.1.
        status: u32,
    },
    /// What the server said makes no sense.
    #[error("the server's answer: {0}")]
    Malformed(&'static str),
    /// It was told to stop.
    #[error("stopped")]
    Stopped,
}

impl LockstepError {
    pub(super) fn io(what: &'static str, source: io::Error) -> Self {
        Self::Io { what, source }
    }
}
