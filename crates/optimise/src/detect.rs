//! What a connection speaks, by its first bytes. Nothing is consumed: who asks keeps the bytes.

use crate::reason::Reason;
use crate::smb;

/// Protocols with an optimiser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// SMB1, SMB2, SMB3: which one is agreed later.
    Smb,
}

impl Protocol {
    /// For the log and the status.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Smb => "smb",
        }
    }

    pub(crate) fn to_wire(self) -> u8 {
        match self {
            Self::Smb => 1,
        }
    }

    pub(crate) fn from_wire(byte: u8) -> Option<Self> {
        (byte == 1).then_some(Self::Smb)
    }
}

/// What the first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A protocol with an optimiser.
    Is(Protocol),
    /// None of them.
    Not(Reason),
    /// Too few bytes to tell.
    More,
}

/// Looks at the first bytes of both directions, as far as they are known.
#[must_use]
pub fn detect(client: &[u8], server: &[u8]) -> Verdict {
    if !server.is_empty() {
        // Of those we know it is always the client that begins.
        return Verdict::Not(Reason::ServerFirst);
    }
    match smb::looks_like(client) {
        Some(true) => Verdict::Is(Protocol::Smb),
        Some(false) => Verdict::Not(Reason::UnknownProtocol),
        None => Verdict::More,
    }
}
