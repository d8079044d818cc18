//! The one event vocabulary: logs, metrics, the status screen and tests read it.
//!
//! No metric exists that is not an event.

use std::net::SocketAddr;

use serde::Serialize;

/// Why a flow goes the way it goes. The codes are stable: operators script on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Everything the rule asked for is done.
    Optimised,
    /// A rule says direct, or switches transport off.
    Rule,
    /// The operator switched `bypass` on.
    Bypass,
    /// No peer serves the destination.
    NoPeer,
    /// The peer is not reachable at the moment.
    PeerDown,
    /// The peer refuses this destination (`[accept] destinations`).
    PeerPolicy,
    /// Replies do not come back through the far gateway.
    AsymmetricReturn,
    /// A bound is reached (`tunnel.flows_max` here or there).
    Overload,
    /// The gateway is shutting down.
    Draining,
}

/// Who ended a flow and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowEnd {
    /// Both directions ended cleanly.
    Closed,
    /// The client reset it.
    ResetByClient,
    /// The server reset it.
    ResetByServer,
    /// The tunnel was lost for longer than `resume_max`.
    PeerLost,
    /// The peer restarted.
    PeerRestarted,
    /// An operator asked (`farhaul reset`).
    ResetByOperator,
    /// The far side could not connect.
    Refused,
    /// Internal or protocol error.
    Failed,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// A connection goes through the tunnel.
    FlowOpened {
        /// Number in `flows`, unique in this process.
        flow: u64,
        /// Peer's name.
        peer: String,
        /// Client.
        client: SocketAddr,
        /// Server, as address or `host:port`.
        destination: String,
        /// Rule that matched.
        rule: String,
    },
    /// A flow ended.
    FlowEnded {
        /// Number in `flows`.
        flow: u64,
        /// Peer's name.
        peer: String,
        /// How.
        end: FlowEnd,
        /// Payload bytes from the near application into the tunnel.
        sent_bytes: u64,
        /// Payload bytes from the tunnel to the near application.
        received_bytes: u64,
    },
    /// A connection was sent direct.
    WentDirect {
        /// Client.
        client: SocketAddr,
        /// Server.
        destination: String,
        /// Why.
        reason: Reason,
    },
    /// A connection was refused or left unanswered, as the server would have.
    OpenFailed {
        /// Client.
        client: SocketAddr,
        /// Server.
        destination: String,
        /// What the far side saw.
        refusal: String,
    },
    /// The tunnel to a peer stands.
    PeerUp {
        /// Peer's name.
        peer: String,
        /// Its UDP address.
        address: SocketAddr,
    },
    /// Nothing was heard from a peer for `tunnel.dead_after`.
    PeerDown {
        /// Peer's name.
        peer: String,
        /// What was noticed.
        why: String,
    },
    /// A peer came back as another process; its flows were reset.
    PeerRestarted {
        /// Peer's name.
        peer: String,
        /// Flows reset.
        flows: u64,
    },
    /// A handshake with an unknown key or version was turned away.
    PeerRejected {
        /// Where it came from.
        address: SocketAddr,
        /// Why.
        why: String,
    },
    /// Configuration was reloaded.
    Reloaded,
    /// A reload was refused; the old configuration keeps running.
    ReloadRefused {
        /// File, line, column and remedy.
        error: String,
    },
    /// Bypass switched.
    BypassSet {
        /// On or off.
        on: bool,
    },
    /// The gateway serves.
    Started {
        /// Site name.
        site: String,
    },
    /// The gateway drains.
    Draining {
        /// Flows still open.
        flows: u64,
    },
    /// The gateway is done.
    Stopped,
    /// Something an operator should know and that has no event of its own.
    Trouble {
        /// Part of the gateway.
        part: String,
        /// What happened, where, what to do.
        what: String,
    },
}
