//! How a client uses connections.

/// A client's way of using connections to one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Http {
    /// A connection for each request; the server closes it.
    V10,
    /// The same, four at a time for each client (Netscape's default).
    V10x4,
    /// An idle connection if there is one, otherwise a new one; closed when
    /// idle for long.
    V11,
    /// The same, and up to eight requests wait for their replies, which come
    /// in order.
    V11Pipelined,
    /// One connection for each host, replies interleaved.
    H2,
}

/// Requests under way on a pipelined connection.
const PIPELINE_DEPTH: u32 = 8;
/// RFC 9113, 6.5.2: at least this many streams should be allowed.
const H2_STREAMS: u32 = 100;
const PARALLEL: u32 = 4;

impl Http {
    /// All of them, with the names plans use.
    pub const NAMED: [(&'static str, Self); 5] = [
        ("1.0", Self::V10),
        ("1.0x4", Self::V10x4),
        ("1.1", Self::V11),
        ("1.1-pipelined", Self::V11Pipelined),
        ("h2", Self::H2),
    ];

    /// The name plans use.
    pub fn name(self) -> &'static str {
        let named = Self::NAMED.iter().find(|(_, http)| *http == self);
        named.map_or("", |(name, _)| name)
    }

    /// Requests a connection carries at the same time.
    pub(super) fn depth(self) -> u32 {
        match self {
            Self::V10 | Self::V10x4 | Self::V11 => 1,
            Self::V11Pipelined => PIPELINE_DEPTH,
            Self::H2 => H2_STREAMS,
        }
    }

    /// Whether a connection outlives a reply.
    pub(super) fn is_persistent(self) -> bool {
        !matches!(self, Self::V10 | Self::V10x4)
    }

    /// Whether replies of one connection are interleaved.
    pub(super) fn is_interleaved(self) -> bool {
        self == Self::H2
    }

    /// Connections to one host beyond which requests wait for the ones there are.
    pub(super) fn connections_per_host(self) -> usize {
        match self {
            Self::H2 => 1,
            _ => usize::MAX,
        }
    }

    /// Requests one client may have under way.
    pub(super) fn requests_per_client(self) -> u32 {
        match self {
            Self::V10x4 => PARALLEL,
            _ => u32::MAX,
        }
    }
}
