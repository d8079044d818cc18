//! How a tunnel ends: what its flows and the operator are told.

use std::fmt;

use farhaul_tunnel::ResetCode;

/// What a gateway tells the earlier of a peer's two processes.
pub(crate) const RESTARTED: &str = "peer restarted";

/// Why a tunnel is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEnd {
    /// Silent for longer than flows are kept.
    Lost,
    /// The peer's process is another one now.
    PeerRestarted,
    /// The peer said good-bye.
    PeerClosed(String),
    /// We said good-bye.
    Closed,
    /// The path no longer carries the datagrams that QUIC needs.
    Narrow,
    /// The peer knows another key than ours.
    KeyRefused,
    /// The peer broke the protocol or speaks another version.
    Protocol(String),
}

impl SessionEnd {
    /// What the flows of the tunnel are told.
    pub fn reset_code(&self) -> ResetCode {
        match self {
            SessionEnd::Lost => ResetCode::TunnelLost,
            SessionEnd::PeerRestarted => ResetCode::PeerRestarted,
            SessionEnd::PeerClosed(_) | SessionEnd::Narrow | SessionEnd::KeyRefused => {
                ResetCode::TunnelLost
            }
            SessionEnd::Closed => ResetCode::Admin,
            SessionEnd::Protocol(_) => ResetCode::Protocol,
        }
    }
}

/// For operators: what was noticed.
impl fmt::Display for SessionEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionEnd::Lost => f.write_str("silent for longer than connections are kept"),
            SessionEnd::PeerRestarted => f.write_str("it has restarted"),
            SessionEnd::PeerClosed(why) => write!(f, "it said good-bye ({why})"),
            SessionEnd::Closed => f.write_str("closed by this gateway"),
            SessionEnd::Narrow => f.write_str(
                "datagrams of 1200 bytes do not pass any more, and QUIC needs them; some link on \
                 the way has an MTU below 1228 (IPv6: 1248)",
            ),
            SessionEnd::KeyRefused => f.write_str(
                "it does not accept this gateway's key, which its [[peer]] block for this site must \
                 name",
            ),
            SessionEnd::Protocol(what) => write!(f, "protocol error: {what}"),
        }
    }
}
