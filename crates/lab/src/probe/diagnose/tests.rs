//! Constructed observations, and what must be made of them.

mod notes;
mod replay;
mod silence;
mod starved;
mod windows;

use super::*;
use crate::probe::datagram_flow::{Delays, FlowCount, FlowPlan};
use crate::probe::host::HostFacts;
use crate::probe::latency::Latency;
use crate::probe::observe::{FlowResult, FlowWay, TcpResult, TcpWay, WayFigures};
use crate::probe::path_check::{PathFacts, Rewriting};
use crate::probe::report::{LoadedTcp, Observations, Report};
use crate::probe::tcp_test::TcpPlan;

const CAPACITY: f64 = 50e6;

fn latency(us: u64) -> Latency {
    Latency {
        sent: 20,
        received: 20,
        min_us: Some(us),
        p50_us: Some(us),
        p95_us: Some(us),
        max_us: Some(us),
    }
}

fn host() -> HostFacts {
    HostFacts {
        receive_buffer_bytes: Some([4096, 131_072, 6_291_456]),
        send_buffer_bytes: Some([4096, 16_384, 4_194_304]),
        window_scaling: Some(true),
        ..HostFacts::default()
    }
}

fn flow(direction: Direction, way: FlowWay) -> Option<FlowResult> {
    let plan = FlowPlan {
        payload_bytes: 1472,
        ..FlowPlan::even(direction, 1472, CAPACITY, 1.0)
    };
    Some(FlowResult {
        plan,
        up: direction.has_up().then(|| way.clone()),
        down: direction.has_down().then_some(way),
        other_sessions: 0,
    })
}

fn way(sent: u64, lost: u64, count: FlowCount) -> FlowWay {
    let received = sent - lost;
    FlowWay {
        sent,
        lost,
        count: FlowCount { received, ..count },
    }
}

/// A flood that a queue of 100 ms delays and cuts.
fn flood(capacity: f64, queue_us: u64) -> FlowWay {
    way(
        6000,
        1200,
        FlowCount {
            steady_bit_per_s: Some(capacity),
            delays: Delays {
                p50_us: queue_us,
                p95_us: queue_us,
                max_us: queue_us,
            },
            ..FlowCount::default()
        },
    )
}

fn tcp(direction: Direction, rate: f64, figures: WayFigures) -> Option<LoadedTcp> {
    let way = Some(TcpWay {
        mean_bit_per_s: Some(rate),
        steady_bit_per_s: Some(rate),
        figures,
        streams: Vec::new(),
    });
    let (up, down) = match direction {
        Direction::Up => (way, None),
        _ => (None, way),
    };
    let test = TcpResult {
        plan: TcpPlan::new(direction, 5000),
        up,
        down,
        other_sessions: 0,
    };
    Some(LoadedTcp {
        test,
        latency: latency(90_000),
    })
}

fn figures() -> WayFigures {
    WayFigures {
        data_segments: 20_000,
        send_window_max_bytes: 3_000_000,
        send_window_steady_bytes: 3_000_000,
        send_window_bytes: 3_000_000,
        segment_bytes: 1448,
        min_rtt_us: 40_000,
        mean_rtt_us: 80_000.0,
        scales_windows: true,
        ..WayFigures::default()
    }
}

/// 50 Mbit/s, 40 ms, a queue of 100 ms, hosts as Linux has them.
fn clean() -> Observations {
    let line = FlowCount {
        line_bit_per_s: Some(CAPACITY * 1.02),
        train_whole: Some(30),
        ..FlowCount::default()
    };
    Observations {
        client_host: Some(host()),
        server_host: Some(host()),
        idle: Some(latency(40_000)),
        path: Some(PathFacts {
            interface_mtu_bytes: Some(1500),
            up_mtu_bytes: Some(1500),
            down_mtu_bytes: Some(1500),
            ..PathFacts::default()
        }),
        trains: flow(Direction::Both, way(240, 0, line)),
        flood_up: flow(Direction::Up, flood(CAPACITY, 100_000)),
        flood_down: flow(Direction::Down, flood(CAPACITY, 100_000)),
        quiet_up: flow(Direction::Up, way(60_000, 0, FlowCount::default())),
        quiet_down: flow(Direction::Down, way(60_000, 0, FlowCount::default())),
        both_loaded: flow(Direction::Both, way(4000, 0, FlowCount::default())),
        tcp_up: tcp(Direction::Up, CAPACITY * 0.96, figures()),
        tcp_down: tcp(Direction::Down, CAPACITY * 0.96, figures()),
        ..Observations::default()
    }
}

fn changed(change: impl FnOnce(&mut Observations)) -> Verdict {
    let mut seen = clean();
    change(&mut seen);
    let verdict = diagnose(&seen);
    let text = serde_json::to_string(&verdict).unwrap();
    assert!(!text.contains("NaN") && !text.contains("inf,"), "{text}");
    verdict
}

fn slow(seen: &mut Observations, change: impl FnOnce(&mut WayFigures)) {
    let mut slow = figures();
    change(&mut slow);
    seen.tcp_up = tcp(Direction::Up, CAPACITY * 0.3, slow);
}

#[test]
fn a_clean_circuit_has_no_fault() {
    let verdict = changed(|_| {});
    assert_eq!(verdict.faults(), []);
    assert!(
        verdict.sentence.starts_with("No fault found"),
        "{}",
        verdict.sentence
    );
    assert!(
        verdict.sentence.contains("48.0 Mbit/s of 49.2 Mbit/s up"),
        "{}",
        verdict.sentence
    );
    // 49.2 Mbit/s x 40 ms.
    assert!((240_000..250_000).contains(&verdict.bdp_up_bytes.unwrap()));
}

#[test]
fn slow_alone_is_no_fault_but_a_note() {
    let verdict = changed(|seen| slow(seen, |_| {}));
    assert_eq!(verdict.faults(), []);
    assert!(
        verdict
            .notes
            .iter()
            .any(|note| note.contains("still growing")),
        "{verdict:?}"
    );
}

#[test]
fn a_small_receive_window_is_named_with_what_it_allows() {
    let seen = |seen: &mut Observations| {
        slow(seen, |figures| {
            figures.receive_window_limited = 0.97;
            figures.send_window_steady_bytes = 65_536;
        });
    };
    let verdict = changed(seen);
    assert_eq!(verdict.faults(), [Fault::ReceiveWindow]);
    let finding = &verdict.findings[0];
    assert!(
        finding
            .sentence
            .contains("The server's receive window of 64.0 KB"),
        "{finding:?}"
    );
    // 65536 bytes / 40 ms.
    assert!(
        finding
            .evidence
            .iter()
            .any(|line| line.contains("13.1 Mbit/s")),
        "{finding:?}"
    );
    assert!((finding.expected_bit_per_s.unwrap() - 49.2e6).abs() < 0.1e6);
    // The memo's host: tcp_rmem ends below the circuit; then the sysctl is named.
    let verdict = changed(|observed| {
        seen(observed);
        observed.server_host.as_mut().unwrap().receive_buffer_bytes = Some([4096, 8192, 16_384]);
    });
    assert!(
        verdict.findings[0]
            .remedy
            .contains("on the server: sysctl -w net.ipv4.tcp_rmem=")
    );
    assert!(
        verdict
            .notes
            .iter()
            .any(|note| note.contains("tcp_rmem differs"))
    );
}

#[test]
fn a_circuit_carries_what_tcp_got_where_trains_tell_no_pace() {
    let mut seen = clean();
    seen.trains = flow(Direction::Both, way(240, 0, FlowCount::default()));
    seen.flood_up = flow(Direction::Up, flood(CAPACITY / 2.0, 0));
    let capacity = capacity_bit_per_s(&seen, Direction::Up).unwrap();
    assert!(capacity >= CAPACITY * 0.9, "{capacity}");
}

#[test]
fn a_window_that_another_fault_hides_is_named_too() {
    let verdict = changed(|seen| {
        slow(seen, |figures| figures.retransmitted = 0.01);
        seen.server_host.as_mut().unwrap().receive_buffer_bytes = Some([4096, 8192, 32_768]);
        seen.quiet_up = flow(Direction::Up, way(60_000, 600, FlowCount::default()));
    });
    assert_eq!(verdict.faults(), [Fault::ReceiveWindow, Fault::Loss]);
    assert!(verdict.sentence.contains("; also: "));
}

#[test]
fn missing_window_scaling_is_the_hosts_or_the_ways() {
    let unscaled = |figures: &mut WayFigures| {
        figures.scales_windows = false;
        figures.receive_window_limited = 0.9;
        figures.send_window_steady_bytes = 65_535;
    };
    let verdict = changed(|seen| {
        slow(seen, unscaled);
        seen.server_host.as_mut().unwrap().window_scaling = Some(false);
    });
    assert_eq!(verdict.faults(), [Fault::WindowScaling]);
    assert!(
        verdict.findings[0]
            .remedy
            .contains("on the server: sysctl -w net.ipv4.tcp_window_scaling=1")
    );
    let verdict = changed(|seen| slow(seen, unscaled));
    assert!(verdict.findings[0].evidence[0].contains("a box on the way"));
    // Where 64 KB are enough it is no fault.
    let verdict = changed(|seen| {
        seen.idle = Some(latency(2_000));
        slow(seen, |figures| figures.scales_windows = false);
    });
    assert_eq!(verdict.faults(), []);
}

#[test]
fn a_small_send_buffer_is_named() {
    let verdict = changed(|seen| slow(seen, |figures| figures.send_buffer_limited = 0.9));
    assert_eq!(verdict.faults(), [Fault::SendBuffer]);
    assert!(
        verdict.findings[0]
            .sentence
            .contains("client's send buffer")
    );
    let verdict = changed(|seen| {
        seen.server_host.as_mut().unwrap().send_buffer_bytes = Some([4096, 16_384, 65_536]);
    });
    assert_eq!(verdict.findings[0].direction, Some(Direction::Down));
}

#[test]
fn a_host_without_processor_time_is_not_a_small_window() {
    let verdict = changed(|seen| {
        slow(seen, |figures| {
            figures.receive_window_limited = 0.9;
            figures.send_window_steady_bytes = 100_000;
            (figures.receiver_busy, figures.receiver_starved) = (0.99, 0.8);
        });
    });
    assert_eq!(verdict.faults(), [Fault::CpuBound]);
    assert!(verdict.sentence.contains("server"));
}

#[test]
fn loss_needs_two_of_many() {
    let lost = |lost: u64| {
        changed(|seen| {
            seen.quiet_down = flow(Direction::Down, way(60_000, lost, FlowCount::default()))
        })
    };
    assert_eq!(lost(1).faults(), []);
    assert_eq!(lost(2).faults(), [Fault::Loss]);
    assert_eq!(lost(6).findings[0].direction, Some(Direction::Down));
}

#[test]
fn loss_only_with_both_directions_loaded_is_half_duplex() {
    let both = flow(Direction::Both, way(4000, 120, FlowCount::default()));
    let verdict = changed(|seen| seen.both_loaded = both.clone());
    assert_eq!(verdict.faults(), [Fault::DuplexMismatch]);
    // The same loss whatever is sent is loss of the wire.
    let verdict = changed(|seen| {
        seen.both_loaded = both;
        let quiet = way(60_000, 1800, FlowCount::default());
        (seen.quiet_up, seen.quiet_down) = (
            flow(Direction::Up, quiet.clone()),
            flow(Direction::Down, quiet),
        );
    });
    assert_eq!(verdict.faults(), [Fault::Loss]);
}

#[test]
fn one_lost_each_way_is_loss_where_few_datagrams_pass() {
    let lost = |of: u64, up: u64, down: u64| {
        changed(|seen| {
            let quiet = |lost| way(of, lost, FlowCount::default());
            seen.quiet_up = flow(Direction::Up, quiet(up));
            seen.quiet_down = flow(Direction::Down, quiet(down));
        })
    };
    let verdict = lost(25_000, 1, 1);
    assert_eq!(verdict.faults(), [Fault::Loss]);
    assert_eq!(verdict.findings[0].direction, None);
    assert!(
        verdict.sentence.contains("both ways"),
        "{}",
        verdict.sentence
    );
    assert_eq!(lost(25_000, 1, 0).faults(), []);
    // Of as many as a fast circuit carries two are too few.
    assert_eq!(lost(60_000, 1, 1).faults(), []);
    assert_eq!(lost(25_000, 2, 1).findings.len(), 1);
}

#[test]
fn a_short_queue_of_a_fast_line_makes_no_asymmetry() {
    // 19 of a train pass while it is being sent, of which the line carried
    // eight meanwhile; an uneven flood fills up six tenths of it.
    let verdict = changed(|seen| {
        seen.flood_up = flow(Direction::Up, flood(CAPACITY * 0.6, 900));
        let count = &mut seen.trains.as_mut().unwrap().up.as_mut().unwrap().count;
        (count.train_whole, count.train_held) = (Some(19), Some(11));
        slow(seen, |_| {});
    });
    assert_eq!(verdict.faults(), [Fault::ShallowBuffer]);
    // Not even where its trains came whole once.
    let verdict = changed(|seen| {
        seen.flood_up = flow(Direction::Up, flood(CAPACITY * 0.75, 100_000));
    });
    assert_eq!(verdict.faults(), []);
}

#[test]
fn a_policer_and_a_short_queue_are_told_apart_by_the_lines_pace() {
    let policed = changed(|seen| {
        seen.flood_up = flow(Direction::Up, flood(CAPACITY / 4.0, 300));
        seen.tcp_up = tcp(Direction::Up, CAPACITY / 5.0, figures());
    });
    assert_eq!(policed.faults(), [Fault::Policer, Fault::AsymmetricRate]);
    assert!(
        policed
            .sentence
            .contains("exceeds 12.5 Mbit/s up, on a line of 51.0 Mbit/s")
    );
    let short_queue = |seen: &mut Observations| {
        // An uneven flood fills half of the line.
        seen.flood_up = flow(Direction::Up, flood(CAPACITY / 2.0, 1_200));
        let trains = seen.trains.as_mut().unwrap();
        trains.up.as_mut().unwrap().count.train_whole = Some(7);
    };
    let shallow = changed(|seen| {
        short_queue(seen);
        slow(seen, |_| {});
    });
    assert_eq!(shallow.faults(), [Fault::ShallowBuffer]);
    // One that harms no stream is none.
    let harmless = changed(short_queue);
    assert_eq!(harmless.faults(), []);
}

#[test]
fn reordering_asymmetry_and_black_hole_are_named() {
    let count = FlowCount {
        reordered: 300,
        reorder_places_max: 9,
        ..FlowCount::default()
    };
    let verdict = changed(|seen| seen.quiet_up = flow(Direction::Up, way(60_000, 0, count)));
    assert_eq!(verdict.faults(), [Fault::Reordering]);
    let verdict = changed(|seen| {
        seen.flood_up = flow(Direction::Up, flood(CAPACITY / 5.0, 100_000));
        seen.tcp_up = tcp(Direction::Up, CAPACITY / 5.0 * 0.95, figures());
        let line = |rate| {
            Some(FlowCount {
                line_bit_per_s: Some(rate),
                ..FlowCount::default()
            })
        };
        seen.trains.as_mut().unwrap().up = line(CAPACITY / 5.0).map(|count| way(240, 0, count));
    });
    assert_eq!(verdict.faults(), [Fault::AsymmetricRate]);
    let verdict = changed(|seen| seen.path.as_mut().unwrap().up_mtu_bytes = Some(1400));
    assert_eq!(verdict.faults(), [Fault::MtuBlackHole]);
    assert!(
        verdict.findings[0]
            .remedy
            .contains("ip link set dev IF mtu 1400")
    );
}

#[test]
fn rewritten_marks_and_other_clients_are_notes() {
    let verdict = changed(|seen| {
        seen.path.as_mut().unwrap().up_rewritten = vec![Rewriting {
            sent: 0xb8,
            arrived: 0,
        }];
        seen.trains.as_mut().unwrap().other_sessions = 2;
    });
    assert_eq!(verdict.faults(), []);
    assert!(
        verdict
            .notes
            .iter()
            .any(|note| note.contains("DSCP 46 -> 0")),
        "{verdict:?}"
    );
    assert!(
        verdict
            .notes
            .iter()
            .any(|note| note.contains("2 other clients"))
    );
}

#[test]
fn nothing_seen_is_no_verdict_and_no_panic() {
    let verdict = diagnose(&Observations::default());
    assert_eq!(
        (verdict.faults(), verdict.tcp_capacity_up_bit_per_s),
        (vec![], None)
    );
}

#[test]
fn the_profile_says_what_was_seen() {
    let mut seen = clean();
    seen.quiet_up = flow(Direction::Up, way(60_000, 600, FlowCount::default()));
    seen.flood_down = flow(Direction::Down, flood(CAPACITY / 4.0, 300));
    seen.tcp_down = tcp(Direction::Down, CAPACITY / 5.0, figures());
    let words = crate::probe::link_words::of(&seen).unwrap();
    let profile = farhaul_link::LinkProfile::parse(&words).unwrap();
    assert_eq!(
        (profile.forward.delay_ns, profile.backward.delay_ns),
        (20_000_000, 20_000_000)
    );
    let rate = profile.forward.rate.unwrap().bit_per_s() as f64;
    // 1472 bytes of payload are 1514 of frame.
    assert!(
        (rate / (CAPACITY * 1514.0 / 1472.0) - 1.0).abs() < 0.001,
        "{words}"
    );
    assert!(words.contains("loss 1%"), "{words}");
    assert!(
        profile.backward.policer.is_some() && profile.forward.policer.is_none(),
        "{words}"
    );
}

#[test]
fn a_report_can_be_written_read_and_shown() {
    let mut report = Report::new("far\x1b[2J.example");
    report.observations = clean();
    report.verdict = Some(diagnose(&report.observations));
    let report = report.ended(Ok(()));
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    let shown = crate::probe::text::of(&report);
    assert!(
        shown.contains("No fault found") && !shown.contains('\x1b'),
        "{shown}"
    );
}
