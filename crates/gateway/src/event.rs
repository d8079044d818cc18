//! The one event vocabulary: logs, metrics, the status screen and tests read it.
//!
//! No metric exists that is not an event. [`Event`] is plain data; what is
//! done with one ([`crate::log`], [`crate::metrics`]) is decided in
//! [`crate::events`], the only place that receives them.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::config::meaning::Level;
pub use crate::reason::Reason;
use farhaul_tunnel::Refusal;

/// Who ended a flow and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// One of the gateways had no room for what nobody read.
    Overload,
    /// A gateway could not read something, and the other one did not say it once more.
    NotRepeated,
    /// Internal or protocol error.
    Failed,
}

impl FlowEnd {
    /// The stable code, as in JSON and metrics.
    pub fn code(self) -> &'static str {
        match self {
            FlowEnd::Closed => "closed",
            FlowEnd::ResetByClient => "reset-by-client",
            FlowEnd::ResetByServer => "reset-by-server",
            FlowEnd::PeerLost => "peer-lost",
            FlowEnd::PeerRestarted => "peer-restarted",
            FlowEnd::ResetByOperator => "reset-by-operator",
            FlowEnd::Refused => "refused",
            FlowEnd::Overload => "overload",
            FlowEnd::NotRepeated => "not-repeated",
            FlowEnd::Failed => "failed",
        }
    }
}

impl fmt::Display for FlowEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

/// Every code of [`refusal_code`].
pub const REFUSAL_CODES: [&str; 11] = [
    "refused",
    "host-unreachable",
    "network-unreachable",
    "timed-out",
    "name-not-found",
    "policy",
    "asymmetric-return",
    "overload",
    "internal",
    "draining",
    "other",
];

/// The stable code of why a connection could not be opened.
pub fn refusal_code(why: Refusal) -> &'static str {
    match why {
        Refusal::Refused => "refused",
        Refusal::HostUnreachable => "host-unreachable",
        Refusal::NetworkUnreachable => "network-unreachable",
        Refusal::TimedOut => "timed-out",
        Refusal::NameNotFound => "name-not-found",
        Refusal::Policy => "policy",
        Refusal::AsymmetricReturn => "asymmetric-return",
        Refusal::Overload => "overload",
        Refusal::Internal => "internal",
        Refusal::Draining => "draining",
        Refusal::Other(_) => "other",
    }
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
    /// A flow's protocol is one that is accelerated.
    Recognised {
        /// Number in `flows`.
        flow: u64,
        /// Peer's name.
        peer: String,
        /// Such as `smb`.
        protocol: &'static str,
    },
    /// A flow's protocol is known, and cannot or can no longer be accelerated.
    NotOptimised {
        /// Number in `flows`.
        flow: u64,
        /// Peer's name.
        peer: String,
        /// Why.
        reason: &'static str,
    },
    /// A connection broke whose client was told that something is written which may not be at the server.
    WritesLost {
        /// Number in `flows`.
        flow: u64,
        /// Peer's name.
        peer: String,
        /// Client.
        client: SocketAddr,
        /// Server, as address or `host:port`.
        destination: String,
        /// How much, at most.
        bytes: u64,
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
        /// What the far side saw; see [`refusal_code`].
        refusal: &'static str,
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
    /// A peer shuts down: new flows go direct, those it has may finish.
    PeerDraining {
        /// Peer's name.
        peer: String,
    },
    /// A peer came back as another process; its flows were reset.
    PeerRestarted {
        /// Peer's name.
        peer: String,
        /// Flows reset.
        flows: u64,
    },
    /// Repairs for what is lost on the way to a peer began, ceased, or are too dear.
    Correcting {
        /// Peer's name.
        peer: String,
        /// Whether they are sent from now on.
        on: bool,
        /// None are sent because losses come in bursts too long for what repairs may cost.
        too_dear: bool,
        /// Loss before repair, in millionths.
        loss_ppm: u32,
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
    /// Interception ended because others removed its rules and they cannot be
    /// put back, or it is back.
    Intercepting {
        /// Whether connections are taken from now on.
        on: bool,
        /// Why it changed.
        why: String,
    },
    /// A bound was reached; the counter for "full" (architecture, invariant 5).
    Full {
        /// Configuration name of the bound, such as `tunnel.flows_max`.
        bound: &'static str,
    },
    /// A client of an explicit listener did not finish its handshake.
    HandshakeFailed {
        /// `socks`, `connect` or `forward`.
        listener: &'static str,
        /// Client.
        client: SocketAddr,
        /// What was wrong with it.
        why: String,
    },
    /// Log lines were lost because standard error did not take them in time,
    /// or because one kind of event came too often.
    LogDropped {
        /// How many since the last line of this kind.
        lines: u64,
    },
    /// Something an operator should know and that has no event of its own.
    Trouble {
        /// Part of the gateway.
        part: String,
        /// What happened, where, what to do.
        what: String,
    },
}

impl Event {
    /// How much attention it deserves.
    pub fn level(&self) -> Level {
        match self {
            Event::FlowOpened { .. }
            | Event::FlowEnded { .. }
            | Event::Recognised { .. }
            | Event::NotOptimised { .. }
            | Event::WentDirect { .. }
            | Event::OpenFailed { .. }
            | Event::HandshakeFailed { .. } => Level::Debug,
            Event::PeerUp { .. }
            | Event::Correcting { .. }
            | Event::PeerDraining { .. }
            | Event::Reloaded
            | Event::BypassSet { .. }
            | Event::Started { .. }
            | Event::Draining { .. }
            | Event::Intercepting { on: true, .. }
            | Event::Stopped => Level::Info,
            Event::PeerDown { .. }
            | Event::PeerRestarted { .. }
            | Event::PeerRejected { .. }
            | Event::WritesLost { .. }
            | Event::Intercepting { on: false, .. }
            | Event::Full { .. }
            | Event::LogDropped { .. }
            | Event::Trouble { .. } => Level::Warn,
            Event::ReloadRefused { .. } => Level::Error,
        }
    }

    /// Whether it concerns one connection only: such events come by the
    /// thousand and are kept apart from those an operator wants to see.
    pub fn is_per_connection(&self) -> bool {
        self.level() == Level::Debug
    }
}

/// One sentence for people, without a full stop. Text from outside is not
/// escaped here; [`crate::log`] does that for the whole line.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::FlowOpened {
                flow,
                peer,
                client,
                destination,
                rule,
            } => {
                write!(
                    f,
                    "flow {flow} from {client} to {destination} through {peer} ({rule})"
                )
            }
            Event::FlowEnded {
                flow,
                peer,
                end,
                sent_bytes,
                received_bytes,
            } => write!(
                f,
                "flow {flow} through {peer} ended: {end}, {sent_bytes} bytes sent, {received_bytes} received"
            ),
            Event::Recognised {
                flow,
                peer,
                protocol,
            } => write!(f, "flow {flow} through {peer} speaks {protocol}"),
            Event::NotOptimised { flow, peer, reason } => {
                write!(f, "flow {flow} through {peer} is not accelerated: {reason}")
            }
            Event::WentDirect {
                client,
                destination,
                reason,
            } => {
                write!(
                    f,
                    "{client} to {destination} went direct: {}",
                    reason.meaning()
                )
            }
            Event::OpenFailed {
                client,
                destination,
                refusal,
            } => {
                write!(f, "{client} could not reach {destination}: {refusal}")
            }
            Event::HandshakeFailed {
                listener,
                client,
                why,
            } => {
                write!(f, "{listener} handshake with {client} failed: {why}")
            }
            other => other.fmt_gateway(f),
        }
    }
}

impl Event {
    /// Events that an operator wants to see, most of them of the gateway or a peer.
    fn fmt_gateway(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::PeerUp { peer, address } => write!(f, "peer {peer} is up at {address}"),
            Event::PeerDown { peer, why } => write!(f, "peer {peer} is down: {why}"),
            Event::PeerDraining { peer } => write!(f, "peer {peer} is shutting down"),
            Event::PeerRestarted { peer, flows } => {
                write!(f, "peer {peer} restarted; {flows} flows were reset")
            }
            Event::Correcting {
                peer,
                on,
                too_dear,
                loss_ppm,
            } => {
                let percent = f64::from(*loss_ppm) / 1e4;
                let state = if *on { "on" } else { "off" };
                let why = match too_dear {
                    true => ", in bursts too long for what repairs may cost",
                    false => "",
                };
                write!(
                    f,
                    "error correction to {peer} {state}: {percent:.2} % is lost on the way{why}"
                )
            }
            Event::PeerRejected { address, why } => {
                write!(f, "turned away a handshake from {address}: {why}")
            }
            Event::Reloaded => f.write_str("configuration reloaded"),
            Event::ReloadRefused { error } => {
                write!(
                    f,
                    "reload refused, the old configuration keeps running: {error}"
                )
            }
            Event::BypassSet { on: true } => f.write_str("bypass on: new connections go direct"),
            Event::BypassSet { on: false } => f.write_str("bypass off"),
            Event::Started { site } => write!(f, "gateway {site} serves"),
            Event::Draining { flows } => write!(f, "draining: {flows} flows still open"),
            Event::Stopped => f.write_str("stopped"),
            Event::Intercepting { on: true, why } => write!(f, "interception on: {why}"),
            Event::Intercepting { on: false, why } => write!(f, "interception off: {why}"),
            Event::WritesLost {
                flow,
                peer,
                client,
                destination,
                bytes,
            } => write!(
                f,
                "flow {flow} through {peer} broke with up to {bytes} bytes on their way that {client} was told \
                 {destination} has: files that it was writing may lack them"
            ),
            Event::Full { bound } => write!(f, "{bound} is reached"),
            Event::LogDropped { lines } => write!(f, "{lines} log lines were dropped"),
            Event::Trouble { part, what } => write!(f, "{part}: {what}"),
            Event::FlowOpened { .. }
            | Event::FlowEnded { .. }
            | Event::Recognised { .. }
            | Event::NotOptimised { .. }
            | Event::WentDirect { .. }
            | Event::OpenFailed { .. }
            | Event::HandshakeFailed { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_in_text_and_json_are_the_same() {
        for reason in Reason::ALL {
            let json = serde_json::to_string(&reason).unwrap();
            assert_eq!(json, format!("\"{}\"", reason.code()));
            assert_eq!(serde_json::from_str::<Reason>(&json).unwrap(), reason);
        }
        for end in [
            FlowEnd::Closed,
            FlowEnd::ResetByClient,
            FlowEnd::ResetByServer,
            FlowEnd::PeerLost,
            FlowEnd::PeerRestarted,
            FlowEnd::ResetByOperator,
            FlowEnd::Refused,
            FlowEnd::Overload,
            FlowEnd::NotRepeated,
            FlowEnd::Failed,
        ] {
            assert_eq!(
                serde_json::to_string(&end).unwrap(),
                format!("\"{}\"", end.code())
            );
        }
    }

    #[test]
    fn every_refusal_has_a_code_of_its_own() {
        let codes = [
            Refusal::Refused,
            Refusal::HostUnreachable,
            Refusal::NetworkUnreachable,
            Refusal::TimedOut,
            Refusal::NameNotFound,
            Refusal::Policy,
            Refusal::AsymmetricReturn,
            Refusal::Overload,
            Refusal::Internal,
            Refusal::Draining,
            Refusal::Other(200),
        ]
        .map(refusal_code);
        assert_eq!(codes, REFUSAL_CODES);
        let distinct: std::collections::BTreeSet<_> = codes.into_iter().collect();
        assert_eq!(distinct.len(), codes.len());
    }

    #[test]
    fn every_reason_that_is_a_fault_has_a_remedy() {
        let silent: Vec<_> = Reason::ALL
            .into_iter()
            .filter(|r| r.remedy().is_none())
            .collect();
        let none = [
            Reason::Optimised,
            Reason::Draining,
            Reason::SmbMalformed,
            Reason::SmbFull,
        ];
        assert_eq!(silent, none);
    }
}
