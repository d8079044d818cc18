//! What the circuit loses, when: always, at overload, when both directions
//! carry data; and what it brings out of order.

use super::{Fault, Finding, Way, mbit};
use crate::probe::observe::FlowWay;

/// One lost datagram may be an accident of the test; two of many are loss.
const LOST_MIN: u64 = 2;
const LOSS_MIN: f64 = 2e-5;

pub(super) fn random(way: &Way<'_>) -> Option<Finding> {
    let quiet = way.quiet.as_ref()?;
    let is_loss = quiet.lost >= LOST_MIN && quiet.loss() >= LOSS_MIN;
    if !is_loss || quiet.is_lost_in_stretches() {
        return None;
    }
    let loss = quiet.loss();
    let percent = loss * 100.0;
    let mut evidence = vec![counted(quiet, way.name())];
    evidence.extend(reno(way, loss));
    evidence.push(way.got_of());
    Some(Finding {
        fault: Fault::Loss,
        direction: Some(way.direction),
        sentence: format!(
            "The circuit loses {percent:.3} % of the packets {} however little is sent",
            way.name()
        ),
        evidence,
        remedy: REMEDY.to_owned(),
        expected_bit_per_s: way.tcp_capacity_bit_per_s(),
    })
}

/// On slow circuits too few datagrams pass in the time of a test for two of
/// them to be lost one way; one each way is as rare an accident.
pub(super) fn random_both_ways(up: &Way<'_>, down: &Way<'_>) -> Option<Finding> {
    let (quiet_up, quiet_down) = (up.quiet.as_ref()?, down.quiet.as_ref()?);
    if quiet_up.lost != 1 || quiet_down.lost != 1 {
        return None;
    }
    // The server's counts are foreign: their sum may be any.
    let judged = quiet_up.judged() as f64 + quiet_down.judged() as f64;
    let loss = 2.0 / judged.max(1.0);
    if loss < LOSS_MIN {
        return None;
    }
    let percent = loss * 100.0;
    Some(Finding {
        fault: Fault::Loss,
        direction: None,
        sentence: format!(
            "The circuit loses about {percent:.3} % of the packets both ways however little is sent"
        ),
        evidence: vec![
            counted(quiet_up, up.name()),
            counted(quiet_down, down.name()),
        ],
        remedy: REMEDY.to_owned(),
        expected_bit_per_s: up.tcp_capacity_bit_per_s(),
    })
}

const REMEDY: &str = "ask the provider for error counters of every section (optics, radio, cabling); until it is repaired, a gateway with error correction at each end hides it";

fn counted(quiet: &FlowWay, name: &str) -> String {
    format!(
        "{} of {} small datagrams lost {name} at 40 % of the circuit's rate or less, in {} places",
        quiet.lost,
        quiet.judged(),
        quiet.count.loss_events
    )
}

/// What the loss means for TCP, and what TCP saw of it.
fn reno(way: &Way<'_>, loss: f64) -> Vec<String> {
    let Some(figures) = way.tcp().map(|tcp| tcp.figures) else {
        return Vec::new();
    };
    // Mathis et al. 1997: Reno's rate under random loss.
    let rtt_s = way.idle_rtt_us.max(1.0) / 1e6;
    let reno = figures.segment_bytes as f64 * 8.0 / rtt_s * (1.5 / loss).sqrt();
    vec![
        format!("this loss allows a Reno stream about {}", mbit(reno)),
        format!(
            "TCP sent {} of {} segments again",
            figures.retransmitted_segments, figures.data_segments
        ),
    ]
}

pub(super) fn duplex_mismatch(way: &Way<'_>) -> Option<Finding> {
    const LOSS_MIN: f64 = 0.01;
    const TIMES_QUIET: f64 = 5.0;
    const TRAIN_WHOLE: f64 = 0.9;
    let (both, quiet) = (way.both.as_ref()?, way.quiet.as_ref()?);
    // Queues too short for an even flow's small unevenness lose as well.
    let sent = way.trains?;
    let whole = sent.count.received as f64 >= sent.sent as f64 * TRAIN_WHOLE;
    if !whole
        || !way.is_both_loaded
        || both.is_lost_in_stretches()
        || both.loss() < LOSS_MIN
        || both.loss() < quiet.loss() * TIMES_QUIET
    {
        return None;
    }
    Some(Finding {
        fault: Fault::DuplexMismatch,
        direction: Some(way.direction),
        sentence: format!(
            "Packets {} are lost when both directions carry data: an interface on the way is in half duplex",
            way.name()
        ),
        evidence: vec![
            format!("{:.2} % lost {} while both directions carried 70 % of their rate", both.loss() * 100.0, way.name()),
            format!("{:.3} % lost with the other direction quiet", quiet.loss() * 100.0),
        ],
        remedy: "set both ends of every Ethernet section alike: autonegotiation on both, or the same fixed speed and full duplex on both (ethtool IF; counters `late collisions`, `FCS errors`)".to_owned(),
        expected_bit_per_s: way.tcp_capacity_bit_per_s(),
    })
}

/// A flood that was cut without having waited.
fn cut_flood<'a>(way: &Way<'a>) -> Option<&'a FlowWay> {
    const LOSS_MIN: f64 = 0.05;
    const QUEUE_PACKETS_MAX: f64 = 20.0;
    let flood = way.flood.filter(|flood| flood.loss() >= LOSS_MIN)?;
    (way.queue_packets()? <= QUEUE_PACKETS_MAX).then_some(flood)
}

/// How much faster trains come than a flood.
fn line_by_capacity(way: &Way<'_>) -> Option<f64> {
    Some(way.line_bit_per_s? / way.capacity_bit_per_s.filter(|rate| *rate > 0.0)?)
}

/// Above it a token bucket, below it one line.
const POLICED_RATIO: f64 = 1.3;

pub(super) fn policer(way: &Way<'_>) -> Option<Finding> {
    let flood = cut_flood(way)?;
    if way.cuts_trains() || line_by_capacity(way)? < POLICED_RATIO {
        return None;
    }
    let (line, capacity) = (way.line_bit_per_s?, way.capacity_bit_per_s?);
    let shaped = capacity * way.frame_share()? * 0.98;
    Some(Finding {
        fault: Fault::Policer,
        direction: Some(way.direction),
        sentence: format!(
            "A policer drops what exceeds {} {}, on a line of {}",
            mbit(capacity),
            way.name(),
            mbit(line)
        ),
        evidence: vec![
            format!(
                "short trains come at {}, a flood of {:.1} s at {}",
                mbit(line),
                1.5,
                mbit(capacity)
            ),
            format!(
                "the flood lost {:.0} % and the rest did not wait: {:.1} ms in the median",
                flood.loss() * 100.0,
                flood.count.delays.p50_us as f64 / 1e3
            ),
            way.got_of(),
        ],
        remedy: format!(
            "shape before the policer: tc qdisc replace dev IF root tbf rate {:.0}kbit burst 16kb latency 50ms; or order a higher rate",
            shaped / 1e3
        ),
        expected_bit_per_s: way
            .tcp_capacity_bit_per_s()
            .map(|rate| (rate * 0.98).max(way.goodput_bit_per_s().unwrap_or(0.0))),
    })
}

pub(super) fn shallow_buffer(way: &Way<'_>) -> Option<Finding> {
    /// Streams that fill the circuit all the same are not harmed.
    const FULL_SHARE: f64 = 0.95;
    /// Of the circuit's content; TCP needs about as much queue for one stream.
    const BDP_SHARE: f64 = 0.5;
    let flood = cut_flood(way)?;
    let packets = way.queue_packets()?;
    let is_small = packets * way.payload_bytes < way.bdp_bytes()? * BDP_SHARE;
    if !way.cuts_trains() || !is_small || way.share()? >= FULL_SHARE {
        return None;
    }
    let content = way.bdp_bytes()? / way.payload_bytes;
    let content_kb = content * way.payload_bytes * way.frame_share()? / 1024.0;
    let queue = format!(
        "give the router's interface before that line a queue of about {content:.0} packets ({content_kb:.0} KB)"
    );
    Some(Finding {
        fault: Fault::ShallowBuffer,
        direction: Some(way.direction),
        sentence: format!(
            "The queue before the slowest line {} holds about {packets:.0} packets: bursts are lost long before the line is full",
            way.name()
        ),
        evidence: vec![
            format!(
                "a flood lost {:.0} % and the rest waited {:.1} ms in the median",
                flood.loss() * 100.0,
                flood.count.delays.p50_us as f64 / 1e3
            ),
            format!("the circuit holds {content:.0} packets"),
            way.got_of(),
        ],
        remedy: format!("{queue}; {}", pacing(way)),
        expected_bit_per_s: way.tcp_capacity_bit_per_s(),
    })
}

/// What the sender can do about a short queue, if it does not do so already.
fn pacing(way: &Way<'_>) -> String {
    const BBR: &str = "bbr";
    let (sender, _) = way.ends();
    match way.congestion_control() {
        Some(BBR) => format!("the {sender} paces already ({BBR}), nothing is left to set there"),
        _ => format!(
            "or, for most of that rate, pace the {sender}: sysctl -w net.core.default_qdisc=fq net.ipv4.tcp_congestion_control={BBR}"
        ),
    }
}

pub(super) fn reordering(way: &Way<'_>) -> Option<Finding> {
    const SHARE_MIN: f64 = 5e-4;
    const DATAGRAMS_MIN: u64 = 5;
    let quiet = way.quiet.as_ref()?;
    if quiet.count.reordered < DATAGRAMS_MIN || quiet.reordering() < SHARE_MIN {
        return None;
    }
    Some(Finding {
        fault: Fault::Reordering,
        direction: Some(way.direction),
        sentence: format!(
            "{:.2} % of the packets {} come out of order, by up to {} places",
            quiet.reordering() * 100.0,
            way.name(),
            quiet.count.reorder_places_max
        ),
        evidence: vec![
            format!("{} of {} small datagrams came after a later one", quiet.count.reordered, quiet.count.received),
            way.got_of(),
        ],
        remedy: "find parallel paths that share a flow packet by packet (bonding in mode balance-rr, per-packet load sharing) and let them share by flow".to_owned(),
        expected_bit_per_s: way.tcp_capacity_bit_per_s(),
    })
}
