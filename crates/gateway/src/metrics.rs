//! Counters made from events, and their Prometheus text.
//!
//! One `match` over [`Event`] decides what is counted, so no counter exists
//! that is not an event. Gauges, and the byte counts the tunnel keeps anyway,
//! are read from [`Status`] when somebody asks. Names follow the Prometheus
//! conventions: base units, `_total` for counters, ratios from 0 to 1.

mod optimiser;
mod reduction;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::admin::status::{PeerState, PeerStatus, Status};
use crate::event::{Event, REFUSAL_CODES, Reason};
use farhaul_tunnel::fec::CorrectionState;

/// Most label combinations kept. Labels come from the configuration and from
/// enums, so this is reached only by a defect.
const SERIES_MAX: usize = 10_000;

/// A family: its name, type and help text.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family {
        name,
        kind: "counter",
        help,
    }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family {
        name,
        kind: "gauge",
        help,
    }
}

const FLOWS_OPENED: Family = counter(
    "farhaul_flows_opened_total",
    "Connections that went through the tunnel.",
);
const FLOWS_ENDED: Family = counter("farhaul_flows_ended_total", "Flows that ended, by how.");
const RECOGNISED: Family = counter(
    "farhaul_flows_recognised_total",
    "Flows whose protocol is accelerated, by protocol.",
);
const NOT_OPTIMISED: Family = counter(
    "farhaul_flows_not_optimised_total",
    "Flows of a known protocol that could not be accelerated, by reason.",
);
const WRITES_LOST: Family = counter(
    "farhaul_writes_lost_bytes_total",
    "Bytes that a client was told are written, and that may not be at the server: its connection broke before.",
);
const DIRECT: Family = counter(
    "farhaul_connections_direct_total",
    "Connections sent direct, by reason.",
);
const OPENS_FAILED: Family = counter(
    "farhaul_opens_failed_total",
    "Connections that could not be opened, by what the far side saw.",
);
const PEER_UPS: Family = counter(
    "farhaul_peer_ups_total",
    "Times the tunnel to a peer came up.",
);
const PEER_DOWNS: Family = counter(
    "farhaul_peer_downs_total",
    "Times a peer was declared gone.",
);
const PEER_DRAINS: Family = counter(
    "farhaul_peer_drains_total",
    "Times a peer said that it shuts down.",
);
const PEER_RESTARTS: Family = counter(
    "farhaul_peer_restarts_total",
    "Times a peer came back as another process.",
);
const CORRECTION_CHANGES: Family = counter(
    "farhaul_peer_correction_changes_total",
    "Times repairs for a peer began, ceased or became too dear, by what they changed to.",
);
const PEERS_REJECTED: Family = counter(
    "farhaul_peers_rejected_total",
    "Handshakes with an unknown key or version turned away.",
);
const RELOADS: Family = counter("farhaul_reloads_total", "Configuration reloads, by result.");
const BYPASS_CHANGES: Family =
    counter("farhaul_bypass_changes_total", "Times bypass was switched.");
const INTERCEPT_CHANGES: Family = counter(
    "farhaul_intercept_changes_total",
    "Times transparent interception was switched, by direction.",
);
const LIFECYCLE: Family = counter(
    "farhaul_lifecycle_total",
    "Steps in the life of this process.",
);
const FULL: Family = counter(
    "farhaul_full_total",
    "Times a bound was reached, by its configuration name.",
);
const HANDSHAKES_FAILED: Family = counter(
    "farhaul_handshakes_failed_total",
    "Clients of explicit listeners that did not finish their handshake.",
);
const LOG_DROPPED: Family = counter("farhaul_log_lines_dropped_total", "Log lines lost.");
const TROUBLE: Family = counter(
    "farhaul_trouble_total",
    "Troubles reported, by part of the gateway.",
);

/// Every counter family, in the order they are printed.
const COUNTERS: [&Family; 21] = [
    &FLOWS_OPENED,
    &FLOWS_ENDED,
    &RECOGNISED,
    &NOT_OPTIMISED,
    &WRITES_LOST,
    &DIRECT,
    &OPENS_FAILED,
    &PEER_UPS,
    &PEER_DOWNS,
    &PEER_DRAINS,
    &PEER_RESTARTS,
    &CORRECTION_CHANGES,
    &PEERS_REJECTED,
    &RELOADS,
    &BYPASS_CHANGES,
    &INTERCEPT_CHANGES,
    &LIFECYCLE,
    &FULL,
    &HANDSHAKES_FAILED,
    &LOG_DROPPED,
    &TROUBLE,
];

/// Labels of one series, in the order they are printed.
type Labels = Vec<(&'static str, String)>;

/// The counters of one gateway.
#[derive(Debug)]
pub struct Metrics {
    series: Mutex<BTreeMap<(&'static str, Labels), u64>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

impl Metrics {
    /// All counters at zero. Series whose labels are known beforehand exist
    /// from the start, so that rates over them are right from the first event.
    pub fn new() -> Metrics {
        let metrics = Metrics {
            series: Mutex::new(BTreeMap::new()),
        };
        for reason in Reason::ALL.into_iter().filter(|reason| reason.is_direct()) {
            metrics.add(&DIRECT, &[("reason", reason.code())], 0);
        }
        for reason in REFUSAL_CODES {
            metrics.add(&OPENS_FAILED, &[("reason", reason)], 0);
        }
        for family in [&PEERS_REJECTED, &BYPASS_CHANGES, &LOG_DROPPED] {
            metrics.add(family, &[], 0);
        }
        for result in ["ok", "refused"] {
            metrics.add(&RELOADS, &[("result", result)], 0);
        }
        metrics
    }

    /// Counts an event: the one place where an event becomes a metric.
    pub fn count(&self, event: &Event) {
        match event {
            Event::FlowOpened { peer, .. } => self.add(&FLOWS_OPENED, &[("peer", peer)], 1),
            Event::FlowEnded { peer, end, .. } => {
                self.add(&FLOWS_ENDED, &[("peer", peer), ("end", end.code())], 1);
            }
            Event::Recognised { peer, protocol, .. } => {
                self.add(&RECOGNISED, &[("peer", peer), ("protocol", protocol)], 1);
            }
            Event::NotOptimised { peer, reason, .. } => {
                self.add(&NOT_OPTIMISED, &[("peer", peer), ("reason", reason)], 1);
            }
            Event::WritesLost { peer, bytes, .. } => {
                self.add(&WRITES_LOST, &[("peer", peer)], *bytes);
            }
            Event::WentDirect { reason, .. } => self.add(&DIRECT, &[("reason", reason.code())], 1),
            Event::OpenFailed { refusal, .. } => {
                self.add(&OPENS_FAILED, &[("reason", refusal)], 1);
            }
            Event::PeerUp { peer, .. } => self.add(&PEER_UPS, &[("peer", peer)], 1),
            Event::PeerDown { peer, .. } => self.add(&PEER_DOWNS, &[("peer", peer)], 1),
            Event::PeerDraining { peer } => self.add(&PEER_DRAINS, &[("peer", peer)], 1),
            Event::PeerRestarted { peer, .. } => self.add(&PEER_RESTARTS, &[("peer", peer)], 1),
            Event::Correcting {
                peer, on, too_dear, ..
            } => {
                let to = match (on, too_dear) {
                    (true, _) => "on",
                    (false, true) => CorrectionState::TooDear.code(),
                    (false, false) => "off",
                };
                self.add(&CORRECTION_CHANGES, &[("peer", peer), ("to", to)], 1);
            }
            Event::PeerRejected { .. } => self.add(&PEERS_REJECTED, &[], 1),
            Event::Reloaded => self.add(&RELOADS, &[("result", "ok")], 1),
            Event::ReloadRefused { .. } => self.add(&RELOADS, &[("result", "refused")], 1),
            Event::BypassSet { .. } => self.add(&BYPASS_CHANGES, &[], 1),
            Event::Intercepting { on, .. } => {
                let to = if *on { "on" } else { "off" };
                self.add(&INTERCEPT_CHANGES, &[("to", to)], 1);
            }
            Event::Started { .. } => self.add(&LIFECYCLE, &[("step", "started")], 1),
            Event::Draining { .. } => self.add(&LIFECYCLE, &[("step", "draining")], 1),
            Event::Stopped => self.add(&LIFECYCLE, &[("step", "stopped")], 1),
            Event::Full { bound } => self.add(&FULL, &[("bound", bound)], 1),
            Event::HandshakeFailed { listener, .. } => {
                self.add(&HANDSHAKES_FAILED, &[("listener", listener)], 1);
            }
            Event::LogDropped { lines } => self.add(&LOG_DROPPED, &[], *lines),
            Event::Trouble { part, .. } => self.add(&TROUBLE, &[("part", part)], 1),
        }
    }

    /// Everything in the Prometheus text format, version 0.0.4.
    pub fn render(&self, status: &Status) -> String {
        let mut text = String::with_capacity(8192);
        let series = self.lock();
        for family in COUNTERS {
            let rows: Vec<_> = series
                .range((family.name, Labels::new())..)
                .take_while(|((name, _), _)| *name == family.name)
                .map(|((_, labels), value)| (labels.clone(), *value as f64))
                .collect();
            write_family(&mut text, family, &rows);
        }
        drop(series);
        write_status(&mut text, status);
        text
    }

    fn add(&self, family: &'static Family, labels: &[(&'static str, &str)], amount: u64) {
        let labels: Labels = labels
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        let mut series = self.lock();
        let key = (family.name, labels);
        if let Some(value) = series.get_mut(&key) {
            *value += amount;
        } else if series.len() < SERIES_MAX {
            series.insert(key, amount);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(&'static str, Labels), u64>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gauges and the tunnel's own byte counts.
fn write_status(text: &mut String, status: &Status) {
    let flag = |on: bool| if on { 1.0 } else { 0.0 };
    let info = vec![
        ("site", status.site.clone()),
        ("version", status.version.clone()),
        ("protocol", status.protocol.clone()),
    ];
    write_family(
        text,
        &gauge("farhaul_build_info", "Always 1; what is running."),
        &[(info, 1.0)],
    );
    let plain: [(Family, f64); 4] = [
        (
            gauge("farhaul_uptime_seconds", "Time since start."),
            status.uptime_s as f64,
        ),
        (
            gauge("farhaul_bypass", "1 while the operator's bypass is on."),
            flag(status.bypass),
        ),
        (
            gauge("farhaul_draining", "1 while the gateway shuts down."),
            flag(status.draining),
        ),
        (
            gauge(
                "farhaul_intercepting",
                "1 while connections are taken transparently.",
            ),
            flag(status.intercept.active),
        ),
    ];
    for (family, value) in plain {
        write_family(text, &family, &[(Vec::new(), value)]);
    }
    let flows = &status.flows;
    let rows = [
        ("optimised", flows.optimised),
        ("partly", flows.partly),
        ("direct", flows.direct),
    ]
    .map(|(state, count)| (vec![("state", state.to_owned())], count as f64));
    write_family(
        text,
        &gauge("farhaul_flows", "Flows held now, by state."),
        &rows,
    );
    write_peers(text, status);
}

/// A family with a value for each peer, or for some.
type PeerFamily = (Family, fn(&PeerStatus) -> Option<f64>);

fn write_peers(text: &mut String, status: &Status) {
    let families: [PeerFamily; 8] = [
        (
            gauge(
                "farhaul_peer_up",
                "1 while new connections may use the tunnel to the peer.",
            ),
            |p| Some(if p.state == PeerState::Up { 1.0 } else { 0.0 }),
        ),
        (
            gauge(
                "farhaul_peer_rtt_seconds",
                "Smoothed round-trip time to the peer.",
            ),
            |p| p.rtt_ms.map(|ms| ms / 1000.0),
        ),
        (
            gauge(
                "farhaul_peer_lost_ratio",
                "Share of packets sent to the peer that were lost during about a minute.",
            ),
            |p| p.lost_ratio,
        ),
        (
            gauge("farhaul_peer_flows", "Flows through the peer now."),
            |p| Some(p.flows as f64),
        ),
        (
            counter(
                "farhaul_peer_payload_sent_bytes_total",
                "Application bytes taken for the peer.",
            ),
            |p| Some(p.payload_sent_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_payload_received_bytes_total",
                "Application bytes delivered from the peer.",
            ),
            |p| Some(p.payload_received_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_wire_sent_bytes_total",
                "UDP payload bytes sent to the peer.",
            ),
            |p| Some(p.wire_sent_bytes as f64),
        ),
        (
            counter(
                "farhaul_peer_wire_received_bytes_total",
                "UDP payload bytes received from the peer.",
            ),
            |p| Some(p.wire_received_bytes as f64),
        ),
    ];
    for (family, read) in families
        .into_iter()
        .chain(repair_families())
        .chain(reduction::families())
        .chain(optimiser::families())
    {
        let rows: Vec<_> = status
            .peers
            .iter()
            .filter_map(|peer| Some((vec![("peer", peer.name.clone())], read(peer)?)))
            .collect();
        write_family(text, &family, &rows);
    }
}

/// What error correction does for each peer.
fn repair_families() -> [PeerFamily; 5] {
    [
        (
            counter(
                "farhaul_peer_repairs_sent_total",
                "Repairs sent for datagrams lost on the way to the peer.",
            ),
            |p| Some(p.repairs_sent as f64),
        ),
        (
            counter(
                "farhaul_peer_recovered_datagrams_total",
                "Datagrams of the peer that were lost and recovered here.",
            ),
            |p| Some(p.datagrams_recovered as f64),
        ),
        (
            gauge(
                "farhaul_peer_loss_before_repair_ratio",
                "Share of datagrams lost on the way to the peer before repair.",
            ),
            |p| p.loss_before_repair_ratio,
        ),
        (
            gauge(
                "farhaul_peer_repair_ratio",
                "Share of repairs in the bytes sent to the peer, recently.",
            ),
            |p| p.repair_ratio,
        ),
        (
            gauge(
                "farhaul_peer_correction_too_dear",
                "Whether no repairs are made because losses come in bursts too long for what they may cost.",
            ),
            |p| {
                let state = p.error_correction.as_deref()?;
                Some(f64::from(u8::from(
                    state == CorrectionState::TooDear.code(),
                )))
            },
        ),
    ]
}

fn write_family(text: &mut String, family: &Family, rows: &[(Labels, f64)]) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP {} {}", family.name, family.help);
    let _ = writeln!(text, "# TYPE {} {}", family.name, family.kind);
    for (labels, value) in rows {
        text.push_str(family.name);
        for (index, (name, label)) in labels.iter().enumerate() {
            text.push(if index == 0 { '{' } else { ',' });
            let _ = write!(text, "{name}=\"");
            escape_into(text, label);
            text.push('"');
        }
        if !labels.is_empty() {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }
}

/// Escapes a label value as the text format asks.
fn escape_into(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}
