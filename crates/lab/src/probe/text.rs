//! A report for people.

use std::fmt::Write as _;

use super::diagnose::{Verdict, mbit};
use super::iperf3::Iperf3Result;
use super::latency::Latency;
use super::observe::{FlowResult, TcpResult, TcpWay};
use super::report::{LoadedTcp, Report};
use super::steps;
use super::tcp_test::Direction;

/// As lines.
pub fn of(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "circuit to {}, {}", report.target, report.date);
    let seen = &report.observations;
    if let Some(idle) = &seen.idle {
        let _ = writeln!(text, "  idle round trip    {}", round_trips(idle));
    }
    if let Some(path) = &seen.path {
        let bytes = |mtu: Option<u32>| {
            mtu.map_or_else(|| "nothing".to_owned(), |mtu| format!("{mtu} bytes"))
        };
        let (up, down) = (bytes(path.up_mtu_bytes), bytes(path.down_mtu_bytes));
        let _ = writeln!(text, "  longest packet     {up} up, {down} down");
    }
    for (name, flow) in [
        ("trains", &seen.trains),
        ("flood up", &seen.flood_up),
        ("flood down", &seen.flood_down),
    ]
    .into_iter()
    .chain([
        ("quiet up", &seen.quiet_up),
        ("quiet down", &seen.quiet_down),
        ("both loaded", &seen.both_loaded),
    ]) {
        flow.iter()
            .for_each(|flow| flow_lines(&mut text, name, flow));
    }
    for (name, loaded) in [("TCP up", &seen.tcp_up), ("TCP down", &seen.tcp_down)] {
        loaded
            .iter()
            .for_each(|loaded| loaded_lines(&mut text, name, loaded));
    }
    seen.tcp
        .iter()
        .for_each(|result| tcp_lines(&mut text, result));
    for flow in &seen.flows {
        let name = match seen.flows.len() {
            1 => "UDP".to_owned(),
            _ => mbit(flow.plan.bit_per_s()),
        };
        flow_lines(&mut text, &name, flow);
    }
    steps::of(seen, &mut text);
    seen.iperf3
        .iter()
        .for_each(|result| iperf3_lines(&mut text, result));
    sweep_lines(&mut text, report);
    if let Some(made) = &seen.transactions {
        let (kept, new) = (made.on_one_connection_per_s, made.on_new_connections_per_s);
        let _ = writeln!(
            text,
            "  transactions       {kept:.1}/s on one connection, {new:.1}/s on new ones"
        );
    }
    rfc6349_lines(&mut text, report);
    match &report.verdict {
        Some(verdict) => verdict_lines(&mut text, verdict),
        None => seen.interference().iter().for_each(|note| {
            let _ = writeln!(text, "  note: {note}");
        }),
    }
    if let Some(words) = &report.link_profile {
        let _ = writeln!(text, "\nreplay: farhaul link run IF_A IF_B {words}");
    }
    text
}

fn rfc6349_lines(text: &mut String, report: &Report) {
    for figures in &report.rfc6349 {
        let number = |value: Option<f64>| {
            value.map_or_else(|| "?".to_owned(), |value| format!("{value:.2}"))
        };
        let _ = writeln!(
            text,
            "  RFC 6349 {:<9?} transfer time ratio {}, TCP efficiency {:.3} %, buffer delay {} %",
            figures.direction,
            number(figures.transfer_time_ratio),
            figures.tcp_efficiency_percent,
            number(figures.buffer_delay_percent)
        );
    }
}

fn round_trips(latency: &Latency) -> String {
    let ms =
        |us: Option<u64>| us.map_or_else(|| "?".to_owned(), |us| format!("{:.2}", us as f64 / 1e3));
    format!(
        "least {} median {} p95 {} ms, {} of {} came",
        ms(latency.min_us),
        ms(latency.p50_us),
        ms(latency.p95_us),
        latency.received,
        latency.sent
    )
}

fn rate(bit_per_s: Option<f64>) -> String {
    bit_per_s.map_or_else(|| "?".to_owned(), mbit)
}

fn flow_lines(text: &mut String, name: &str, flow: &FlowResult) {
    for (direction, way) in [("up", &flow.up), ("down", &flow.down)] {
        let Some(way) = way else { continue };
        let count = &way.count;
        let _ = writeln!(
            text,
            "  {:<18} {}, lost {} of {} ({:.3} %), out of order {}, twice {}, waited p50 {:.1} max {:.1} ms, jitter {:.2} ms",
            format!(
                "{} {direction}",
                name.trim_end_matches(" up").trim_end_matches(" down")
            ),
            rate(if name == "trains" {
                count.line_bit_per_s
            } else {
                count.steady_bit_per_s
            }),
            way.lost,
            way.sent,
            way.loss() * 100.0,
            count.reordered,
            count.duplicates,
            count.delays.p50_us as f64 / 1e3,
            count.delays.max_us as f64 / 1e3,
            count.jitter_us / 1e3
        );
    }
}

fn iperf3_lines(text: &mut String, result: &Iperf3Result) {
    for (direction, way) in [("up", &result.up), ("down", &result.down)] {
        let Some(way) = way else { continue };
        let fate = match result.plan.udp {
            true => format!("lost {} of {}", way.lost, way.packets),
            false => {
                let again = way.streams.iter().fold(0_i64, |sum, one| {
                    sum.saturating_add(one.sender.retransmits.max(0))
                });
                format!("{again} segments sent again")
            }
        };
        let _ = writeln!(
            text,
            "  {:<18} sent {}, received {}, {} streams, {fate}",
            format!("iperf3 {direction}"),
            rate(way.sent_bit_per_s),
            rate(way.received_bit_per_s),
            way.streams.len()
        );
    }
}

fn way_line(text: &mut String, name: &str, way: &TcpWay) {
    let figures = &way.figures;
    let _ = writeln!(
        text,
        "  {name:<18} {} ({} in the second half), {} again of {}, window {} bytes, limited by it {:.0} %, by the send buffer {:.0} %",
        rate(way.mean_bit_per_s),
        rate(way.steady_bit_per_s),
        figures.retransmitted_segments,
        figures.data_segments,
        figures.send_window_bytes,
        figures.receive_window_limited * 100.0,
        figures.send_buffer_limited * 100.0
    );
}

fn tcp_lines(text: &mut String, result: &TcpResult) {
    for (name, way) in [("TCP up", &result.up), ("TCP down", &result.down)] {
        let name = match result.plan.streams {
            1 => name.to_owned(),
            streams => format!("{name}, {streams} streams"),
        };
        way.iter().for_each(|way| way_line(text, &name, way));
    }
}

fn loaded_lines(text: &mut String, name: &str, loaded: &LoadedTcp) {
    let ways = [&loaded.test.up, &loaded.test.down];
    ways.into_iter()
        .flatten()
        .for_each(|way| way_line(text, name, way));
    let _ = writeln!(
        text,
        "    meanwhile        round trip {}",
        round_trips(&loaded.latency)
    );
}

fn sweep_lines(text: &mut String, report: &Report) {
    for step in &report.observations.sweep {
        let window = step.window_bytes.map_or_else(
            || "unlimited".to_owned(),
            |bytes| format!("{} KB", bytes >> 10),
        );
        let _ = writeln!(
            text,
            "  window {window:<11} {:<4} {} measured, {} by window / RTT, limited {:.0} % of the time",
            if step.direction == Direction::Down {
                "down"
            } else {
                "up"
            },
            rate(step.measured_bit_per_s),
            rate(step.predicted_bit_per_s),
            step.window_limited * 100.0
        );
    }
}

fn verdict_lines(text: &mut String, verdict: &Verdict) {
    let _ = writeln!(text, "\n{}", verdict.sentence);
    for finding in &verdict.findings {
        let _ = writeln!(text, "\n- {}", finding.sentence);
        for line in finding.evidence.iter().filter(|line| !line.is_empty()) {
            let _ = writeln!(text, "    seen:   {line}");
        }
        let _ = writeln!(text, "    change: {}", finding.remedy);
        if let Some(expected) = finding.expected_bit_per_s {
            let _ = writeln!(text, "    expect: {} of TCP payload", mbit(expected));
        }
    }
    for note in &verdict.notes {
        let _ = writeln!(text, "  note: {note}");
    }
}
