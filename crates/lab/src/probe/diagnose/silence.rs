//! Where nothing comes at all: of UDP, of anything.

use super::{Fault, Finding, Way, mbit};
use crate::probe::observe::FlowWay;
use crate::probe::path_check::LINE_BIT_PER_S_MIN;
use crate::probe::report::{LoadedTcp, Observations};

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
        let rate = goodput_bit_per_s(loaded.as_ref()?)?;
        Some(format!("{} {name}", mbit(rate)))
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

fn goodput_bit_per_s(loaded: &LoadedTcp) -> Option<f64> {
    let test = &loaded.test;
    let rate = test.up.as_ref().or(test.down.as_ref())?.steady_bit_per_s?;
    Some(rate).filter(|rate| *rate > 0.0)
}

/// A circuit that was away for a while; what else it loses is judged without that.
pub(super) fn outage(way: &Way<'_>) -> Option<Finding> {
    let (outage, quiet) = (way.outage?, way.quiet.as_ref()?);
    let (name, datagrams) = (way.name(), outage.datagrams);
    let (at_least, test) = match outage.is_over {
        true => ("", "in the middle of the test"),
        false => (" at least", "until the test ended"),
    };
    let seconds = format!("{:.1} s{at_least}", outage.longest_us as f64 / 1e6);
    Some(Finding {
        fault: Fault::Outage,
        direction: Some(way.direction),
        sentence: format!(
            "The circuit was interrupted {name}: nothing arrived for {seconds} {test}"
        ),
        evidence: vec![
            format!("{datagrams} small datagrams did not arrive {name} meanwhile"),
            format!("at other times {} of {} were lost", quiet.lost, quiet.judged()),
            way.got_of(),
        ],
        remedy: "look for what went down at that time (interfaces, routes, radio, power of every section), and test again: other figures of this test may have suffered".to_owned(),
        expected_bit_per_s: None,
    })
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
