//! Why a flow is not, or no longer, optimised.

/// One code for the log, the status and the other half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The first bytes are of no protocol that an optimiser knows.
    UnknownProtocol,
    /// The server spoke first, as no protocol does that an optimiser knows.
    ServerFirst,
    /// The first bytes came too slowly to tell.
    DetectLate,
    /// The link is so short that nothing can be gained.
    NoGain,
    /// An operator said so.
    Operator,
    /// The two halves do not understand each other.
    Halves,
    /// A version of the protocol that is not optimised.
    SmbDialect,
    /// Messages are signed; they cannot be altered without the key.
    SmbSigned,
    /// Messages are encrypted.
    SmbEncrypted,
    /// Bytes that are no SMB.
    SmbMalformed,
    /// More at once than the tables hold.
    SmbFull,
}

impl Reason {
    /// All of them, in the order of their codes on the wire.
    pub const ALL: [Self; 11] = [
        Self::UnknownProtocol,
        Self::ServerFirst,
        Self::DetectLate,
        Self::NoGain,
        Self::Operator,
        Self::Halves,
        Self::SmbDialect,
        Self::SmbSigned,
        Self::SmbEncrypted,
        Self::SmbMalformed,
        Self::SmbFull,
    ];

    /// For the log and the status.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::UnknownProtocol => "unknown-protocol",
            Self::ServerFirst => "server-first",
            Self::DetectLate => "detect-late",
            Self::NoGain => "no-gain",
            Self::Operator => "operator",
            Self::Halves => "halves",
            Self::SmbDialect => "smb-dialect",
            Self::SmbSigned => "smb-signed",
            Self::SmbEncrypted => "smb-encrypted",
            Self::SmbMalformed => "smb-malformed",
            Self::SmbFull => "smb-full",
        }
    }

    /// For the other half. Golden.
    pub(crate) fn to_wire(self) -> u8 {
        // Eleven fit.
        Self::ALL
            .iter()
            .position(|other| *other == self)
            .unwrap_or(0) as u8
    }

    pub(crate) fn from_wire(byte: u8) -> Self {
        let known = Self::ALL.get(usize::from(byte)).copied();
        known.unwrap_or(Self::Halves)
    }
}
