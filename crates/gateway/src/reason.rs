//! Why a flow goes the way it goes: one list for the log, the status, the metrics and the screen.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a flow goes the way it goes. The codes are stable: operators script on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// The path to the peer does not carry the datagrams that QUIC needs.
    PathTooNarrow,
    /// The peer refuses this destination (`[accept] destinations`).
    PeerPolicy,
    /// Replies do not come back through the far gateway.
    AsymmetricReturn,
    /// The far gateway could not connect as the client; its log says why.
    PeerTrouble,
    /// A bound is reached (`tunnel.flows_max` here or there).
    Overload,
    /// The gateway is shutting down.
    Draining,
    /// It speaks SMB and signs what it says.
    SmbSigned,
    /// It speaks SMB and encrypts what it says.
    SmbEncrypted,
    /// It speaks SMB of a dialect that is not accelerated.
    SmbDialect,
    /// It begins like SMB and does not go on so.
    SmbMalformed,
    /// It speaks SMB and has more open at once than is followed.
    SmbFull,
}

impl Reason {
    /// Every reason, in the order of the enum.
    pub const ALL: [Reason; 16] = [
        Reason::Optimised,
        Reason::Rule,
        Reason::Bypass,
        Reason::NoPeer,
        Reason::PeerDown,
        Reason::PathTooNarrow,
        Reason::PeerPolicy,
        Reason::AsymmetricReturn,
        Reason::PeerTrouble,
        Reason::Overload,
        Reason::Draining,
        Reason::SmbSigned,
        Reason::SmbEncrypted,
        Reason::SmbDialect,
        Reason::SmbMalformed,
        Reason::SmbFull,
    ];

    /// Why a flow in the tunnel gets less than it could; `None` where there was nothing to be had.
    pub fn of_optimiser(why: farhaul_optimise::Reason) -> Option<Self> {
        use farhaul_optimise::Reason as Why;
        match why {
            Why::SmbSigned => Some(Reason::SmbSigned),
            Why::SmbEncrypted => Some(Reason::SmbEncrypted),
            Why::SmbDialect => Some(Reason::SmbDialect),
            Why::SmbMalformed => Some(Reason::SmbMalformed),
            Why::SmbFull => Some(Reason::SmbFull),
            Why::UnknownProtocol
            | Why::ServerFirst
            | Why::DetectLate
            | Why::NoGain
            | Why::Operator
            | Why::Halves => None,
        }
    }

    /// Whether a connection goes direct for it.
    pub fn is_direct(self) -> bool {
        !matches!(
            self,
            Reason::Optimised
                | Reason::SmbSigned
                | Reason::SmbEncrypted
                | Reason::SmbDialect
                | Reason::SmbMalformed
                | Reason::SmbFull
        )
    }

    /// The stable code, as in JSON and metrics.
    pub fn code(self) -> &'static str {
        match self {
            Reason::Optimised => "optimised",
            Reason::Rule => "rule",
            Reason::Bypass => "bypass",
            Reason::NoPeer => "no-peer",
            Reason::PeerDown => "peer-down",
            Reason::PathTooNarrow => "path-too-narrow",
            Reason::PeerPolicy => "peer-policy",
            Reason::AsymmetricReturn => "asymmetric-return",
            Reason::PeerTrouble => "peer-trouble",
            Reason::Overload => "overload",
            Reason::Draining => "draining",
            Reason::SmbSigned => "smb-signed",
            Reason::SmbEncrypted => "smb-encrypted",
            Reason::SmbDialect => "smb-dialect",
            Reason::SmbMalformed => "smb-malformed",
            Reason::SmbFull => "smb-full",
        }
    }

    /// What the code means, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Reason::Optimised => "everything its rule asks for is done",
            Reason::Rule => "a rule sends it direct",
            Reason::Bypass => "bypass is on",
            Reason::NoPeer => "no peer serves the destination",
            Reason::PeerDown => "the peer is not reachable",
            Reason::PathTooNarrow => "datagrams of 1200 bytes do not reach the peer",
            Reason::PeerPolicy => "the peer does not accept this destination",
            Reason::AsymmetricReturn => "replies do not come back through the far gateway",
            Reason::PeerTrouble => "the far gateway could not connect as the client",
            Reason::Overload => "a bound is reached",
            Reason::Draining => "a gateway is shutting down",
            Reason::SmbSigned => "its messages are signed; nothing is read ahead",
            Reason::SmbEncrypted => "its messages are encrypted; nothing is read ahead",
            Reason::SmbDialect => "its dialect of SMB is not accelerated; nothing is read ahead",
            Reason::SmbMalformed => "it begins like SMB and does not go on so",
            Reason::SmbFull => "it has more open at once than is followed",
        }
    }

    /// What an operator can do about it; `None` where nothing is wrong.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Reason::Optimised | Reason::Draining | Reason::SmbMalformed | Reason::SmbFull => None,
            Reason::Rule => {
                Some("if it should be accelerated, change the rule named in `farhaul flows`")
            }
            Reason::Bypass => Some("run `farhaul bypass off`"),
            Reason::NoPeer => Some("add the destination to a peer's `networks`"),
            Reason::PeerDown => {
                Some("run `farhaul doctor`; check the address, the key and UDP on the way")
            }
            Reason::PathTooNarrow => {
                Some("find the link on the way whose MTU is below 1228 (IPv6: 1248), and raise it")
            }
            Reason::PeerPolicy => {
                Some("add the destination to `[accept] destinations` at the far gateway")
            }
            Reason::AsymmetricReturn => Some(
                "route the far site's replies through its gateway, or set `client_address = \"gateway\"` there",
            ),
            Reason::PeerTrouble => Some("see the far gateway's log for what it could not do"),
            Reason::SmbSigned | Reason::SmbEncrypted => Some(
                "transport and reduction work all the same; without the session's key nothing more can be had",
            ),
            Reason::SmbDialect => {
                Some("let client and server agree on SMB 2 or 3, without compression")
            }
            Reason::Overload => Some(
                "raise `tunnel.flows_max` on both gateways, or find what opens so many connections",
            ),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}
