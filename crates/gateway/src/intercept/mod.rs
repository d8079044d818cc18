//! Transparent interception: connections are taken from the wire without
//! either end knowing.
//!
//! A client's SYN towards a peer's network is held (NFQUEUE) while the
//! gateway decides. [`Taken::Attempt`] asks; the [`Verdict`] says what the
//! client shall see. Only a SYN judged [`Verdict::Proxy`] reaches our
//! listener (TPROXY), so a refused destination stays refused and an
//! unreachable one stays a time-out.

//!
//! Files in the order of a SYN's way: `rules` (nftables hands it to us),
//! `nfqueue`, `packet`, `judge` with its table `hold`, then `listener` or
//! `answer`. `lease` and `guard` see to it that nothing of this outlives us,
//! `delivery` and `keeper` that it is whole while we live.

mod answer;
mod delivery;
pub mod guard;
mod hold;
mod judge;
mod keeper;
mod lease;
mod listener;
mod nfqueue;
mod packet;
mod poll;
mod rules;
mod start;
mod stats;
pub(crate) mod time_wait;
mod xtables;

use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio::sync::oneshot;

pub(crate) use answer::address_towards;
pub use guard::GuardProgram;
pub use keeper::Health;
pub use lease::{BEAT_INTERVAL, Lease};
pub use listener::{arm_reset, disarm_reset, prepare};
pub use start::{InterceptError, Interceptor, interfaces_known};
pub use stats::InterceptStats;

/// A connection attempt seen on a LAN interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attempt {
    /// The client.
    pub client: SocketAddr,
    /// Where it wants to go.
    pub destination: SocketAddr,
    /// DSCP of the SYN (RFC 2474), 0-63.
    pub dscp: u8,
}

/// What becomes of an attempt. A dropped answer counts as [`Verdict::Direct`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Complete the handshake here; [`Taken::Connection`] follows.
    Proxy,
    /// Let it pass untouched.
    Direct,
    /// Answer with RST, as the server did.
    Refused,
    /// Answer with ICMP host unreachable (RFC 792, RFC 4443).
    HostUnreachable,
    /// Answer with ICMP network unreachable.
    NetworkUnreachable,
    /// Stay silent; the client runs into its own time-out.
    Silent,
}

/// What interception hands to the gateway.
#[derive(Debug)]
pub enum Taken {
    /// A held SYN. Retransmissions of it are not reported again while the
    /// answer is pending.
    Attempt {
        /// Who wants to go where.
        attempt: Attempt,
        /// The decision.
        verdict: oneshot::Sender<Verdict>,
    },
    /// The handshake of a proxied attempt has completed.
    Connection {
        /// As in the attempt.
        attempt: Attempt,
        /// The client's side.
        stream: TcpStream,
    },
}
