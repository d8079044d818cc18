//! Where nothing comes at all: of UDP, of anything.

use super::{Fault, Finding, Way, loss, mbit};
use crate::probe::observe::{FlowWay, Outage};
use crate::probe::path_check::LINE_BIT_PER_S_MIN;
use crate::probe::report::Observations;
use crate::probe::tcp_test::{Sample, StreamEnd};

/// Why no test shows what the circuit can do.
pub(super) fn why_nothing(seen: &Observations) -> String {
    let path = seen.path.as_ref().filter(|path| path.is_too_slow());
    if let Some(rate) = path.and_then(|path| path.slow_line_bit_per_s) {
        let kbit = |rate: u64| format!("{:.1} kbit/s", rate as f64 / 1e3);
        let (rate, least) = (kbit(rate), kbit(LINE_BIT_PER_S_MIN));
        return format!(
            "the circuit carries about {rate}, and below {least} it is too slow for this test"
        );
    }
    let loaded = [("up", &seen.tcp_up), ("down", &seen.tcp_down)];
    let carried = loaded.into_iter().filter_map(|(name, loaded)| {
        let rate = loaded.as_ref()?.way()?.steady_bit_per_s?;
        (rate > 0.0).then(|| format!("{} {name}", mbit(rate)))
    });
    let carried: Vec<String> = carried.collect();
    match carried.is_empty() {
        true => "TCP brought no data in the time it had".to_owned(),
        false => format!(
            "one TCP stream carried {}, and no datagram shows what the circuit could",
            carried.join(", ")
        ),
    }
}

/// A circuit that was away for a while; what else it loses is judged without that.
pub(super) fn outage(way: &Way<'_>) -> Option<Finding> {
    let outage = way.outage?;
    let (name, datagrams) = (way.name(), outage.datagrams);
    let (at_least, test) = match outage.is_over {
        true => ("", "in the middle of the test"),
        false => (" at least", "until the test ended"),
    };
    let seconds = format!("{:.1} s{at_least}", outage.longest_us as f64 / 1e6);
    let mut evidence = vec![format!(
        "{datagrams} datagrams did not arrive {name} meanwhile"
    )];
    if let Some(quiet) = &way.quiet {
        let (judged, lost) = (quiet.judged(), quiet.lost);
        evidence.push(format!(
            "of {judged} small ones {lost} were lost at other times"
        ));
    }
    evidence.push(way.got_of());
    Some(Finding {
        fault: Fault::Outage,
        direction: Some(way.direction),
        sentence: format!(
            "The circuit was interrupted {name}: nothing arrived for {seconds} {test}"
        ),
        evidence,
        remedy: REMEDY.to_owned(),
        expected_bit_per_s: None,
    })
}

const REMEDY: &str = "look for what went down at that time (interfaces, routes, radio, power of every section), and test again: other figures of this test may have suffered";

/// The first outage of even flows; or of full ones, if it took longer than a queue cuts such
/// a flow.
pub(super) fn first_outage(
    even: [Option<&FlowWay>; 2],
    full: [Option<&FlowWay>; 2],
) -> Option<Outage> {
    /// Of a flood or of trains.
    const LONG_US: u64 = 500_000;
    let of = |way: &FlowWay| way.outage();
    let even = even.into_iter().flatten().filter_map(of);
    let full = full.into_iter().flatten().filter_map(of);
    even.chain(full.filter(|outage| outage.longest_us >= LONG_US))
        .next()
}

/// A circuit that was away while TCP was tested: nothing arrived, and echoes were
/// missing. A loss that makes TCP wait as long is named itself.
pub(super) fn stalled_tcp(way: &Way<'_>) -> Option<Finding> {
    const STALL_S_MIN: f64 = 1.0;
    const ROUND_TRIPS_MIN: f64 = 6.0;
    /// Of the echoes that were due meanwhile.
    const MISSING_MIN: f64 = 0.5;
    let (loaded, stream) = (way.loaded?, way.tcp()?.streams.first()?);
    let test_ms = loaded.test.plan.duration_ms;
    let stall_s = longest_stall_ns(&stream.receiver, test_ms) as f64 / 1e9;
    let test_s = test_ms as f64 / 1e3;
    let latency = &loaded.latency;
    let missing = latency.sent.saturating_sub(latency.received) as f64;
    let missing_s = test_s * missing / (latency.sent as f64).max(1.0);
    let is_long = stall_s >= STALL_S_MIN.max(ROUND_TRIPS_MIN * way.idle_rtt_us / 1e6);
    if !is_long || missing_s < MISSING_MIN * stall_s || loss::random(way).is_some() {
        return None;
    }
    let name = way.name();
    Some(Finding {
        fault: Fault::Outage,
        direction: Some(way.direction),
        sentence: format!(
            "The circuit was interrupted while TCP carried data {name}: nothing arrived for {stall_s:.1} s"
        ),
        evidence: vec![
            format!(
                "{missing} of {} echoes did not come back meanwhile",
                latency.sent
            ),
            way.got_of(),
        ],
        remedy: REMEDY.to_owned(),
        expected_bit_per_s: None,
    })
}

/// How long a receiver's count stood still at most, from its first byte on, while its
/// sender sent.
fn longest_stall_ns(receiver: &StreamEnd, test_ms: u64) -> u64 {
    let end_ns = test_ms
        .saturating_mul(1_000_000)
        .saturating_add(receiver.start_ns);
    let is_within = |sample: &&Sample| sample.bytes > 0 && sample.at_ns <= end_ns;
    let mut longest_ns = 0;
    let mut since: Option<&Sample> = None;
    for sample in receiver.samples.iter().filter(is_within) {
        let before = *since.get_or_insert(sample);
        if sample.bytes > before.bytes {
            since = Some(sample);
        }
        longest_ns = longest_ns.max(sample.at_ns.saturating_sub(before.at_ns));
    }
    longest_ns
}

/// What was lost in one place, too short for an outage.
pub(super) fn moment(way: &Way<'_>) -> Option<String> {
    let quiet = way
        .quiet
        .as_ref()
        .filter(|quiet| quiet.is_lost_in_stretches())?;
    let (lost, judged, places) = (quiet.lost, quiet.judged(), quiet.count.loss_events);
    Some(format!(
        "{lost} of {judged} small datagrams {} were lost in {places} places: the circuit, or a host's interface, was away for a moment",
        way.name()
    ))
}

/// Whether nothing of any UDP test arrived, be it only at the host.
pub(super) fn is_blocked(flows: &[Option<&FlowWay>]) -> bool {
    let has_arrived = |way: &&FlowWay| way.count.received > 0 || way.count.dropped_by_host > 0;
    let mut seen = flows.iter().flatten().peekable();
    seen.peek().is_some() && !seen.any(has_arrived)
}

/// TCP shows that the circuit is there.
pub(super) fn udp_blocked(way: &Way<'_>) -> Option<Finding> {
    let sent = way.blocked_datagrams?;
    let carried = mbit(way.goodput_bit_per_s().filter(|rate| *rate > 0.0)?);
    let (name, (_, receiver)) = (way.name(), way.ends());
    let come = if receiver == "client" {
        "come back"
    } else {
        "arrive"
    };
    Some(Finding {
        fault: Fault::UdpBlocked,
        direction: Some(way.direction),
        sentence: format!(
            "UDP does not {come}, while one TCP stream carried {carried} {name}: a firewall drops it"
        ),
        evidence: vec![
            format!("none of {sent} datagrams arrived {name}"),
            "loss, queues and policers of this direction are not known without UDP".to_owned(),
        ],
        remedy: format!(
            "let UDP between both hosts through the {receiver}'s firewall (input, replies included) and those on the way; farhaul probe serve --udp-ports FIRST-LAST keeps to these ports"
        ),
        expected_bit_per_s: None,
    })
}
