//! What the admin API answers: plain values, the JSON that `--json` prints.
//!
//! The gateway fills them in, the command line and `/metrics` read them.
//! Fields are only ever added, so scripts keep working; a reader ignores
//! what it does not know.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::Reason;

/// The gateway at a glance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Site name.
    pub site: String,
    /// Program version.
    pub version: String,
    /// Peer protocol versions this gateway speaks, such as `1` or `1-2`.
    pub protocol: String,
    /// Process number.
    pub pid: u32,
    /// This gateway's public key, as peers write it in their configuration.
    pub key: String,
    /// UDP address of the tunnel.
    pub tunnel_address: String,
    /// Datagrams dropped unanswered because their sender does not know this
    /// gateway's key, since start.
    pub datagrams_turned_away: u64,
    /// Who dialled within the last minute with a key that no peer has, latest first.
    pub strangers: Vec<StrangerStatus>,
    /// Seconds since start.
    pub uptime_s: u64,
    /// The operator's bypass is on: new connections go direct.
    pub bypass: bool,
    /// Shutting down: new connections go direct, old ones may finish.
    pub draining: bool,
    /// Transparent interception.
    pub intercept: InterceptStatus,
    /// Every configured peer, in the order of the configuration.
    pub peers: Vec<PeerStatus>,
    /// Flows held now.
    pub flows: FlowCounts,
    /// Connections sent direct lately because the server's replies do not come
    /// back through the far gateway; 0 after ten minutes without one.
    pub asymmetric_returns: u64,
    /// What happened lately, oldest first, without what concerns only one
    /// connection.
    pub recent: Vec<Happened>,
    /// The one thing to fix next, if anything; see [`crate::admin::advice`].
    pub next: Option<String>,
}

/// Somebody who dialled with a key that no peer has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StrangerStatus {
    /// UDP address it came from.
    pub address: String,
    /// Its public key.
    pub key: String,
}

/// Transparent interception.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterceptStatus {
    /// `transparent` or `explicit`.
    pub mode: String,
    /// LAN interfaces whose connections are taken.
    pub interfaces: Vec<String>,
    /// The rules are installed and their lease is being renewed.
    pub active: bool,
    /// Why they are not, if they should be.
    pub problem: Option<String>,
    /// Why nobody would remove the rules if the gateway were killed.
    pub unguarded: Option<String>,
    /// Addresses of explicit listeners, such as `socks 127.0.0.1:1080`.
    pub listeners: Vec<String>,
}

/// State of the tunnel to a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerState {
    /// It stands; new connections use it.
    Up,
    /// It stands, and the peer shuts down: new connections go direct.
    Draining,
    /// It was lost or never stood; new connections go direct.
    #[default]
    Down,
    /// A handshake is under way; new connections go direct.
    Connecting,
}

/// One peer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerStatus {
    /// Name in the configuration.
    pub name: String,
    /// State of the tunnel.
    pub state: PeerState,
    /// Seconds in that state.
    pub since_s: u64,
    /// UDP address in use, or the configured one, or empty for a peer that
    /// dials us and has not yet.
    pub address: String,
    /// Its pinned public key.
    pub key: String,
    /// Its program version, once the tunnel has stood.
    pub version: Option<String>,
    /// Networks behind it, in CIDR form.
    pub networks: Vec<String>,
    /// Smoothed round-trip time in milliseconds.
    pub rtt_ms: Option<f64>,
    /// What the congestion controller knows of the way there, while the tunnel stands.
    pub path: Option<PathStatus>,
    /// Share of packets lost during about the last minute, 0 to 1; absent where none were sent.
    pub lost_ratio: Option<f64>,
    /// Largest UDP payload the path is known to carry, in bytes.
    pub datagram_bytes: Option<u16>,
    /// The latest tunnel has ended because the path no longer carried the
    /// datagrams that QUIC needs.
    pub path_too_narrow: bool,
    /// The peer's clock minus ours, in milliseconds, if it was told.
    pub clock_ahead_ms: Option<f64>,
    /// Application bytes taken towards the peer.
    pub payload_sent_bytes: u64,
    /// Application bytes delivered from the peer.
    pub payload_received_bytes: u64,
    /// UDP payload bytes sent.
    pub wire_sent_bytes: u64,
    /// UDP payload bytes received.
    pub wire_received_bytes: u64,
    /// Repairs sent for what was lost on the way to the peer.
    pub repairs_sent: u64,
    /// Datagrams of the peer that were lost and recovered here.
    pub datagrams_recovered: u64,
    /// Share of datagrams lost on the way to the peer before repair, 0 to 1;
    /// absent where the peer does not take repairs.
    pub loss_before_repair_ratio: Option<f64>,
    /// What is done about it: `on`, `off` (too little is lost) or `too-dear`
    /// (no repairs: losses come in bursts too long for what these may cost);
    /// absent where the peer does not take repairs.
    pub error_correction: Option<String>,
    /// Share of repairs in the bytes sent to the peer lately, 0 to 1.
    pub repair_ratio: Option<f64>,
    /// Redundancy elimination and compression; absent where the peer, or this gateway, has no memory for it.
    pub reduction: Option<ReductionStatus>,
    /// Protocol optimisers; absent where the peer has none.
    pub optimiser: Option<OptimiserStatus>,
    /// The last measurement of the path, also while it goes on (`farhaul probe peer`).
    pub measured: Option<MeasuredStatus>,
    /// Flows through this peer now.
    pub flows: u64,
    /// What went wrong last, if anything did.
    pub last_error: Option<String>,
    /// Addresses of two gateways that both use its key and end each other's tunnels; empty unless that was so within
    /// the last minute.
    pub key_shared_by: Vec<String>,
    /// Whether another gateway uses this gateway's own key, as it seems: within the last minute the peer has ended tunnels
    /// several times because another process with this key has dialled it.
    pub own_key_shared: bool,
}

/// What reduction does for a peer, since start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReductionStatus {
    /// Application bytes towards the peer that were reduced.
    pub in_bytes: u64,
    /// What was left of them.
    pub out_bytes: u64,
    /// Of `in_bytes`, those that were looked up.
    pub compared_bytes: u64,
    /// Of `compared_bytes`, those that need not be sent; the next three are parts of it.
    pub known_bytes: u64,
    /// The memory tier: what had passed before and was still in memory.
    pub known_memory_bytes: u64,
    /// The disk tier: what had passed before and was read from disk, after a restart or because it had left the memory.
    pub known_disk_bytes: u64,
    /// Runs of one byte, whether they had passed before or not.
    pub run_bytes: u64,
    /// What compression was given: what was not known, and what refers to the rest.
    pub new_bytes: u64,
    /// What it made of that.
    pub packed_bytes: u64,
    /// zstd's level for what is sent, 0 while it is not compressed; absent before anything new of 4 KiB and more was.
    pub level: Option<i32>,
    /// Application bytes from the peer that were restored.
    pub restored_bytes: u64,
    /// What they had been reduced to.
    pub received_bytes: u64,
    /// Records the peer asked for again.
    pub asked_again: u64,
    /// Records this gateway asked for again.
    pub missed: u64,
    /// Memory of what was sent.
    pub store_bytes: u64,
    /// Its index.
    pub index_bytes: u64,
    /// How often the store began anew.
    pub epoch: u32,
    /// Bytes that were read from disk into memory, both directions.
    pub warmed_bytes: u64,
    /// The disk; absent where none is configured.
    pub disk: Option<DiskStatus>,
}

/// A peer's part of the disk, both directions; counts are since start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskStatus {
    /// Bytes it may take.
    pub size_bytes: u64,
    /// Bytes it takes.
    pub used_bytes: u64,
    /// Bytes written.
    pub saved_bytes: u64,
    /// Segments of 1 MiB read.
    pub loaded_segments: u64,
    /// Segments that made room for newer ones.
    pub evicted_segments: u64,
    /// Blocks of 64 KiB that were not as they were written, and not used.
    pub bad_blocks: u64,
    /// Files that could not be used: cut short, unreadable, no files, removed while the gateway ran, or a damaged label.
    pub unusable_files: u64,
    /// Places of files of segments that something else takes: the store is so much smaller until they are removed.
    pub barred_files: u64,
    /// Reads, writes and reservations that failed.
    pub failed: u64,
    /// Segments that were written and are not durable: a power failure would take them.
    pub unsynced_segments: u64,
    /// Some are being made durable.
    pub syncing: bool,
    /// Groups of segments that were made durable.
    pub synced_groups: u64,
    /// What went wrong last.
    pub problem: Option<String>,
}

/// A file that is sent to a peer so that both gateways remember it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WarmingStatus {
    /// Its number in `flows`; 0 for a copy.
    pub flow: u64,
    /// It is not sent: a copy of what a peer will send is read.
    pub is_copy: bool,
    /// Peer's name.
    pub peer: String,
    /// The file.
    pub path: String,
    /// Its length when it was begun.
    pub file_bytes: u64,
    /// What of it has been sent, or read of a copy.
    pub sent_bytes: u64,
    /// What of it the peer has read from a copy of its own instead.
    pub copied_bytes: u64,
    /// What the peer could not make of what it was sent, because its copy has changed or it has forgotten something: that went once
    /// more, and is not remembered. Known at the end.
    pub repeated_bytes: u64,
    /// What the gateways can remember of one direction in memory.
    pub memory_bytes: u64,
    /// What the disk here keeps of that direction, and finds again when it has left the memory; 0 unless both gateways have one.
    pub disk_bytes: u64,
    /// How it ended: `sent`, `ready` for a copy, or what went wrong. Absent while it goes on.
    pub end: Option<String>,
}

/// What the path to a peer carries, measured through the tunnel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MeasuredStatus {
    /// Its number in `flows`.
    pub flow: u64,
    /// Peer's name.
    pub peer: String,
    /// When it was begun, RFC 3339 in UTC.
    pub time: String,
    /// Seconds of each direction.
    pub seconds: f64,
    /// From here to the peer.
    pub there: Option<MeasuredWay>,
    /// From the peer to here.
    pub back: Option<MeasuredWay>,
    /// Least round trip, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// What `peer.link` should say; absent where this measurement cannot tell.
    pub proposal: Option<String>,
    /// Why there is no proposal, or what to think of before it is used.
    pub note: Option<String>,
    /// How it ended: `measured`, or what went wrong. Absent while it goes on.
    pub end: Option<String>,
}

/// The way to a peer, as the congestion controller of this gateway sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathStatus {
    /// What it is doing, such as `climb`, `cruise` or `compete` (`docs/design/controller.md`).
    pub phase: String,
    /// Rate it has found, or was told, in bits of UDP payload per second.
    pub bit_per_s: f64,
    /// Least round trip, in milliseconds.
    pub least_rtt_ms: f64,
    /// What packets wait in queues, in milliseconds.
    pub queue_ms: f64,
    /// By how much round trips vary without load, in milliseconds.
    pub jitter_ms: f64,
    /// Share of packets that is lost without load, before repair.
    pub loss_ratio: f64,
}

/// One direction of a measured path.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MeasuredWay {
    /// What arrived in the second half of the time, bits of Ethernet frames per second.
    pub bit_per_s: f64,
    /// Share lost without load, before repair; absent where the sender has not told.
    pub loss_ratio: Option<f64>,
    /// What waited in queues at the end, in milliseconds; absent where the sender has not told.
    pub queue_ms: Option<f64>,
    /// What the sender's congestion controller was doing at the end, such as `cruise`.
    pub phase: String,
}

/// What protocol optimisers do for a peer, since start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OptimiserStatus {
    /// Reads of clients here that were sent on to the peer.
    pub reads_forwarded: u64,
    /// Reads of clients here that were answered without asking the peer.
    pub reads_answered: u64,
    /// Bytes of those.
    pub answered_bytes: u64,
    /// Reads made ahead of clients at the peer.
    pub reads_made: u64,
    /// Bytes of those.
    pub ahead_bytes: u64,
    /// Of those, bytes that nobody asked for.
    pub wasted_bytes: u64,
    /// Times a server here took back an oplock or lease.
    pub breaks: u64,
    /// Files that clients here were given without asking the peer.
    pub opens_answered: u64,
    /// Files opened ahead of clients at the peer.
    pub opens_made: u64,
    /// Of those, files that nobody asked for.
    pub opens_wasted: u64,
    /// Writes of clients here that were answered without asking the peer.
    pub writes_answered: u64,
    /// Bytes of those.
    pub behind_bytes: u64,
    /// Writes that were answered at the peer and refused by a server here; their clients hear of it before, or when,
    /// they close the file.
    pub writes_failed: u64,
    /// The round trip is so short that nothing could be gained: new flows go without.
    pub no_gain: bool,
}

/// Flows by state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowCounts {
    /// Everything their rule asks for is done.
    pub optimised: u64,
    /// Some of it is done.
    pub partly: u64,
    /// Relayed by the gateway outside the tunnel.
    pub direct: u64,
    /// Connections sent direct since start.
    pub direct_since_start: u64,
}

/// How much of what its rule asks for a flow gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowState {
    /// All of it.
    Optimised,
    /// It goes through the tunnel, but something was given up.
    Partly,
    /// It does not go through the tunnel.
    Direct,
}

/// One flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// Number, unique in this process; what `farhaul reset` takes.
    pub id: u64,
    /// Peer's name; empty for a direct flow.
    pub peer: String,
    /// Client address and port.
    pub client: String,
    /// Server, as address or `host:port`.
    pub destination: String,
    /// `near` where the client's connection ends here, `far` where the
    /// server's does.
    pub side: FlowSide,
    /// Rule that matched.
    pub rule: String,
    /// Scheduling class, such as `interactive`.
    pub class: String,
    /// What the flow counts as at present in the direction this gateway
    /// sends: `interactive` or `bulk` where the class is `auto`.
    #[serde(default)]
    pub class_now: String,
    /// How much it gets.
    pub state: FlowState,
    /// Why.
    pub reason: Reason,
    /// What it was found to speak, such as `smb`; empty where that is not known.
    #[serde(default)]
    pub protocol: String,
    /// Why the protocol is not accelerated, such as `no-gain`; empty where it is, or there is no optimiser.
    #[serde(default)]
    pub opaque_reason: String,
    /// Seconds since it was opened.
    pub age_s: u64,
    /// Seconds since a byte last moved.
    pub idle_s: u64,
    /// Payload bytes from the near application into the tunnel.
    pub sent_bytes: u64,
    /// Payload bytes from the tunnel to the near application.
    pub received_bytes: u64,
}

/// Which end of a flow this gateway is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowSide {
    /// The client's connection ends here.
    Near,
    /// The server's connection ends here.
    Far,
}

/// An event as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Happened {
    /// When, RFC 3339 in UTC with milliseconds.
    pub time: String,
    /// `debug`, `info`, `warn` or `error`.
    pub level: String,
    /// One sentence.
    pub text: String,
    /// The event's fields, as in a JSON log line.
    pub event: Value,
}

/// Answer to `flows`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flows {
    /// Flows held now.
    pub flows: Vec<FlowStatus>,
    /// Connections that lately went direct or could not be opened, oldest first.
    pub recent_direct: Vec<Happened>,
}
