//! HELLO: who the peer is and which protocol version both speak.
//!
//! The dialer sends HELLO first. The acceptor sends its own only after it has heard the dialer's,
//! so whatever the dialer sends after hearing it finds a peer that knows the version. The acceptor
//! in turn holds everything else back until the dialer's first frame that is not HELLO (the dialer
//! sends a PING at once): so no frame can overtake the HELLO it depends on, and none need be held.

use std::fmt;

/// Versions this crate speaks.
pub const PROTOCOL_VERSIONS: VersionRange = VersionRange { min: 1, max: 1 };

/// Feature bit: repairs for lost datagrams, [`crate::fec`]. What they look like on the wire is not
/// part of the protocol's version but of this bit.
pub const FEATURE_FEC: u64 = 1;

/// Feature bit: flows may carry records instead of the application's bytes, [`crate::Payload`]. What
/// the records are is the gateways' affair, and a peer that offers this bit knows them.
pub const FEATURE_REDUCTION: u64 = 2;

/// Feature bit: flows may be [`crate::Payload::Warming`].
pub const FEATURE_WARMING: u64 = 4;

/// Feature bit: flows may carry items of the gateways' optimisers instead of the application's bytes. What the
/// items are is the gateways' affair, and a peer that offers this bit knows them. The bits before, 8 and 16, were of items
/// that knew nothing of writes, and of SMB1.
pub const FEATURE_OPTIMISERS: u64 = 64;

/// Feature bit: flows may be [`crate::Payload::Measuring`].
pub const FEATURE_MEASURING: u64 = 32;

/// Feature bit: in a flow that is [`crate::Payload::Warming`] the acceptor begins with the hashes of what it has copies of, and the
/// opener may leave that out. What both look like is the gateways' affair.
pub const FEATURE_COPIES: u64 = 128;

/// Feature bit: credit may be asked back with RECLAIM, and is given back with RETURNED.
pub const FEATURE_RECLAIM: u64 = 256;

/// Feature bit: OPEN may say at which level both directions are compressed.
pub const FEATURE_LEVELS: u64 = 512;

/// Feature bit: a record may name bytes that its reader has sent itself. What it looks like is the gateways' affair.
pub const FEATURE_ECHOES: u64 = 1024;

/// An inclusive range of protocol versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    /// Oldest version spoken.
    pub min: u16,
    /// Newest version spoken.
    pub max: u16,
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "{}", self.min)
        } else {
            write!(f, "{} to {}", self.min, self.max)
        }
    }
}

/// No version in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no common protocol version: we speak {ours}, the peer speaks {theirs}")]
pub struct VersionMismatch {
    /// Our range.
    pub ours: VersionRange,
    /// The peer's range.
    pub theirs: VersionRange,
}

impl VersionRange {
    /// The newest version both ranges hold.
    ///
    /// # Errors
    /// When the ranges do not overlap; the error names both.
    pub fn negotiate(self, theirs: VersionRange) -> Result<u16, VersionMismatch> {
        let version = self.max.min(theirs.max);
        if version >= self.min && version >= theirs.min {
            Ok(version)
        } else {
            Err(VersionMismatch { ours: self, theirs })
        }
    }
}

/// What a gateway says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Protocol versions spoken, normally [`PROTOCOL_VERSIONS`].
    pub versions: VersionRange,
    /// Random per process: a changed instance of a known site means that the peer restarted.
    pub instance: u128,
    /// The gateway's site name, at most 64 bytes (a longer one is cut), no control characters.
    pub site: String,
    /// Optional features offered, one bit each; bits unknown to the other side are ignored.
    pub features: u64,
}

/// What both sides agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// The version spoken from now on.
    pub version: u16,
    /// Features both offered.
    pub features: u64,
    /// The peer's own words.
    pub peer: Hello,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(min: u16, max: u16) -> VersionRange {
        VersionRange { min, max }
    }

    #[test]
    fn versions_one_apart_meet_at_the_newest_both_know() {
        assert_eq!(range(1, 1).negotiate(range(0, 2)), Ok(1));
        assert_eq!(range(0, 2).negotiate(range(1, 1)), Ok(1));
        assert_eq!(range(1, 3).negotiate(range(2, 5)), Ok(3));
    }

    #[test]
    fn versions_without_overlap_name_both_ranges() {
        let text = match range(1, 1).negotiate(range(2, 4)) {
            Err(mismatch) => mismatch.to_string(),
            Ok(version) => format!("negotiated {version}"),
        };
        assert_eq!(
            text,
            "no common protocol version: we speak 1, the peer speaks 2 to 4"
        );
        assert!(range(2, 4).negotiate(range(0, 1)).is_err());
    }
}
