//! One flow: the words for it, and its two directions.

mod receive;
mod send;
mod state;

pub(crate) use receive::ReceiveHalf;
pub(crate) use send::{Piece, SendHalf};
pub(crate) use state::{Flow, Stage};

use bytes::Bytes;
use core::net::SocketAddr;
use std::fmt;

/// A flow, numbered by the side that opened it: even ids are the dialer's, odd the acceptor's.
/// Ids of one side are used in order, without gaps, and never twice within one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u64);

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FlowId {
    /// The side that opened, or would open, this flow.
    #[must_use]
    pub fn opener(self) -> Side {
        if self.0.is_multiple_of(2) {
            Side::Dialer
        } else {
            Side::Acceptor
        }
    }

    /// The `index`-th flow of `side`.
    pub(crate) fn new(side: Side, index: u64) -> FlowId {
        let parity = u64::from(side == Side::Acceptor);
        FlowId(index.saturating_mul(2).saturating_add(parity))
    }

    /// Which flow of its opener this is, from 0.
    pub(crate) fn index(self) -> u64 {
        self.0 / 2
    }
}

/// Which end of the connection a gateway is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The gateway that dialled; it says hello first.
    Dialer,
    /// The gateway that was dialled.
    Acceptor,
}

/// Where the far gateway shall connect to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// An address and port. Flow label and scope of an IPv6 address are not carried.
    Address(SocketAddr),
    /// A name the far gateway resolves.
    Host {
        /// The name: 1 to 255 bytes, no control characters or blanks.
        name: String,
        /// TCP port.
        port: u16,
    },
}

/// What a flow is, in the scheduler's eyes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Class {
    /// Find out by watching.
    #[default]
    Auto,
    /// Before everything else: the gateways' own.
    Control,
    /// A person waits for it.
    Interactive,
    /// Throughput matters.
    Bulk,
    /// Only when nothing else wants the link.
    Background,
}

/// Whether repairs are sent for a flow's frames (see [`crate::fec`]), in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Correction {
    /// While the flow counts as interactive: its beginning, and whatever a person waits for.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Always.
    On,
}

/// What a flow's bytes are, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Payload {
    /// The application's bytes.
    #[default]
    Plain,
    /// Records that stand for the application's bytes.
    Records {
        /// They may refer to what passed before.
        eliminated: bool,
        /// What is new in them may be compressed.
        compressed: bool,
        /// At this level of zstd, -7 to 22, and no other. Reaches only a peer that offered
        /// [`FEATURE_LEVELS`](crate::FEATURE_LEVELS); any other chooses its own.
        level: Option<i8>,
    },
    /// What the gateways tell each other of their records. Nothing is connected to; there is one such flow in a
    /// tunnel, opened by the dialer.
    Channel,
    /// Records that no application waits for: the far gateway reads and remembers them.
    Warming,
    /// What the gateways send each other to measure the path. Nothing is connected to, and what it says is the
    /// gateways' affair.
    Measuring,
}

/// What the opener asks of the far gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRequest {
    /// The client as the opening gateway saw it.
    pub client: SocketAddr,
    /// Where to connect to.
    pub target: Target,
    /// Whether the server shall see the client's own address and port.
    pub keep_client_address: bool,
    /// Scheduling class.
    pub class: Class,
    /// The client's DSCP, 0 to 63.
    pub dscp: u8,
    /// Error correction; reaches only a peer that offered [`FEATURE_FEC`](crate::FEATURE_FEC).
    pub correction: Correction,
    /// What is carried, in records or plainly, are items of the gateways' optimisers; only with a peer that offered
    /// [`FEATURE_OPTIMISERS`](crate::FEATURE_OPTIMISERS).
    pub items: bool,
    /// What the bytes are; not plain only with a peer that offered [`FEATURE_REDUCTION`](crate::FEATURE_REDUCTION).
    pub payload: Payload,
}

/// Why the far gateway did not connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The server refused (RST).
    Refused,
    /// ICMP host unreachable.
    HostUnreachable,
    /// ICMP network unreachable, or no route.
    NetworkUnreachable,
    /// No answer within the connect time.
    TimedOut,
    /// The far gateway's policy forbids the destination.
    Policy,
    /// The name does not resolve.
    NameNotFound,
    /// The server's replies do not come back through the far gateway.
    AsymmetricReturn,
    /// The far gateway has no room.
    Overload,
    /// The far gateway failed by itself (no descriptor, no port).
    Internal,
    /// The far gateway is being stopped and takes nothing new.
    Draining,
    /// A code of a later version.
    Other(u8),
}

/// Why a flow was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResetCode {
    /// The application's own connection was reset (RST seen).
    Application,
    /// The peer restarted and knows nothing of the flow.
    PeerRestarted,
    /// No room.
    Overload,
    /// The peer broke the protocol.
    Protocol,
    /// Nothing moved for too long.
    IdleTimeout,
    /// An operator cut it.
    Admin,
    /// The application's connection stopped answering (time-out, unreachable).
    Unreachable,
    /// The tunnel was lost for longer than flows are kept.
    TunnelLost,
    /// The gateway failed by itself.
    Internal,
    /// A code of a later version.
    Other(u8),
}

/// What reading a flow gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The next bytes in order; never empty.
    Data(Bytes),
    /// Nothing yet: an `Event::Readable` follows.
    Blocked,
    /// The peer finished and every byte has been read.
    End,
    /// The flow is gone: its last event said why. Never a clean end.
    Gone,
}

/// Counters of one flow, bytes unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowStats {
    /// What the flow counts as in the direction this side sends; never `Auto` for a live flow.
    pub class: Class,
    /// Payload handed out for sending.
    pub sent_bytes: u64,
    /// Payload received, in order or not.
    pub received_bytes: u64,
    /// Payload the application has read.
    pub read_bytes: u64,
    /// Written and not yet handed out.
    pub send_buffered_bytes: u64,
    /// Received and not yet read, with [`FRAME_COST_BYTES`](crate::FRAME_COST_BYTES) per frame.
    pub receive_buffered_bytes: u64,
    /// Frames that wait for an earlier one (count).
    pub out_of_order_frames: u64,
    /// Credit left to send.
    pub send_credit_bytes: u64,
    /// Present receive window.
    pub receive_window_bytes: u64,
    /// What of it the flow has without having taken it of what windows may grow by.
    pub receive_base_bytes: u64,
}
