//! Circuits, or a protocol, of which nothing comes.

use super::*;
use crate::probe::datagram_count::Silence;
use crate::probe::observe::StreamPair;
use crate::probe::tcp_test::{Sample, StreamEnd};

/// Nothing of UDP arrives down, and so no echo.
fn udp_blocked_down(seen: &mut Observations) {
    let silent = |flow: &mut Option<FlowResult>| {
        let down = flow.as_mut().unwrap().down.as_mut().unwrap();
        *down = way(down.sent, down.sent, FlowCount::default());
    };
    for flow in [
        &mut seen.trains,
        &mut seen.flood_down,
        &mut seen.quiet_down,
        &mut seen.both_loaded,
    ] {
        silent(flow);
    }
    seen.idle = Some(Latency {
        sent: 25,
        ..Latency::default()
    });
    seen.control_rtt_us = Some(40_000);
    let path = seen.path.as_mut().unwrap();
    (path.up_mtu_bytes, path.down_mtu_bytes) = (None, None);
}

#[test]
fn udp_that_does_not_come_back_is_named_beside_what_tcp_carries() {
    let mut seen = clean();
    udp_blocked_down(&mut seen);
    let verdict = diagnose(&seen);
    assert_eq!(verdict.faults(), [Fault::UdpBlocked]);
    let sentence = &verdict.sentence;
    assert!(sentence.contains("UDP does not come back"), "{sentence}");
    assert!(sentence.contains("48.0 Mbit/s down"), "{sentence}");
    // The other direction is judged as ever.
    assert!(verdict.bdp_up_bytes.is_some() && verdict.bdp_down_bytes.is_none());
    assert!(verdict.is_grounded(&seen));
}

#[test]
fn what_tcp_carried_is_not_denied_where_no_datagram_passed_either_way() {
    let mut seen = clean();
    (seen.trains, seen.idle) = (None, None);
    let verdict = diagnose(&seen);
    assert_eq!(verdict.faults(), []);
    let sentence = &verdict.sentence;
    assert!(
        sentence.contains("48.0 Mbit/s up, 48.0 Mbit/s down"),
        "{sentence}"
    );
}

#[test]
fn a_circuit_too_slow_for_the_test_is_called_so() {
    let seen = Observations {
        path: Some(PathFacts {
            slow_line_bit_per_s: Some(9600),
            ..clean().path.unwrap()
        }),
        ..Observations::default()
    };
    let verdict = diagnose(&seen);
    assert!(verdict.sentence.contains("about 9.6 kbit/s"), "{verdict:?}");
    assert!(verdict.sentence.contains("too slow"), "{verdict:?}");
    assert!(!verdict.is_grounded(&seen));
}

/// What is found where `lost` of 60 000 did not come, and there was such a silence.
fn lost_with(lost: u64, silence: Silence) -> (Verdict, String) {
    let mut seen = clean();
    let count = FlowCount {
        loss_events: 400,
        silence: Some(silence),
        ..FlowCount::default()
    };
    seen.quiet_up = flow(Direction::Up, way(60_000, lost, count));
    let words = crate::probe::link_words::of(&seen).unwrap();
    (diagnose(&seen), words)
}

#[test]
fn an_outage_is_no_loss_and_loss_beside_it_is() {
    let silence = Silence {
        datagrams_min: 1500,
        datagrams: 15_000,
        longest_us: 6_000_000,
        silent_from: None,
    };
    let (verdict, words) = lost_with(15_000, silence);
    assert_eq!(verdict.faults(), [Fault::Outage]);
    assert!(verdict.sentence.contains("for 6.0 s in"), "{verdict:?}");
    assert!(!words.contains("loss"), "{words}");
    let (verdict, words) = lost_with(15_450, silence);
    assert_eq!(verdict.faults(), [Fault::Outage, Fault::Loss]);
    // 450 of 45 000.
    assert!(words.contains("loss 1%"), "{words}");
    // What the receiving host dropped is nobody's outage.
    let (verdict, _) = lost_with(1, silence);
    assert_eq!(verdict.faults(), []);
}

#[test]
fn an_outage_the_test_ended_with_lasted_at_least_so_long() {
    let silence = |silent_from| Silence {
        datagrams_min: 1500,
        silent_from: Some(silent_from),
        ..Silence::default()
    };
    let (verdict, words) = lost_with(15_000, silence(45_000));
    assert_eq!(verdict.faults(), [Fault::Outage]);
    let sentence = &verdict.sentence;
    assert!(sentence.contains("for 1.0 s at least until"), "{sentence}");
    assert!(!words.contains("loss"), "{words}");
    // A sender that sent less than planned was heard to its end but for two.
    let (verdict, _) = lost_with(2, silence(59_998));
    assert_eq!(verdict.faults(), [Fault::Loss]);
}

#[test]
fn a_moment_without_anything_is_no_loss_and_no_half_duplex() {
    let in_one_place = FlowCount {
        loss_events: 1,
        ..FlowCount::default()
    };
    let mut seen = clean();
    seen.quiet_up = flow(Direction::Up, way(60_000, 550, in_one_place.clone()));
    let both = seen.both_loaded.as_mut().unwrap();
    both.up = Some(way(867, 136, in_one_place.clone()));
    both.down = Some(way(867, 121, in_one_place));
    let verdict = diagnose(&seen);
    assert_eq!(verdict.faults(), []);
    let is_told = |note: &String| note.contains("550 of 60000") && note.contains("a moment");
    assert!(verdict.notes.iter().any(is_told), "{verdict:?}");
}

#[test]
fn an_outage_shows_in_any_flow() {
    let silence = |longest_us| Silence {
        datagrams_min: 10,
        datagrams: 90,
        longest_us,
        silent_from: None,
    };
    let found = |longest_us| {
        changed(|seen| {
            let trains = seen.trains.as_mut().unwrap().down.as_mut().unwrap();
            trains.lost = 90;
            trains.count.silence = Some(silence(longest_us));
        })
    };
    assert_eq!(found(600_000).faults(), [Fault::Outage]);
    assert_eq!(found(300_000).faults(), [], "a queue may take as much");
}

/// TCP up stood still for `still_ms` of its 5 s, in which so many of 100 echoes came.
fn stalled(still_ms: u64, echoes: u64) -> Verdict {
    let sample = |at_ms: u64, bytes| Sample {
        at_ns: at_ms * 1_000_000,
        bytes,
        ..Sample::default()
    };
    let mut samples: Vec<Sample> = (0..20).map(|n| sample(n * 50, n * 1000)).collect();
    samples.extend((0..=still_ms / 50).map(|n| sample(950 + n * 50, 19_000)));
    samples.push(sample(1000 + still_ms, 20_000));
    let receiver = StreamEnd {
        samples,
        ..StreamEnd::default()
    };
    changed(|seen| {
        let loaded = seen.tcp_up.as_mut().unwrap();
        (loaded.latency.sent, loaded.latency.received) = (100, echoes);
        loaded.test.up.as_mut().unwrap().streams = vec![StreamPair {
            sender: StreamEnd::default(),
            receiver,
        }];
    })
}

#[test]
fn tcp_that_stood_still_while_echoes_were_missing_met_an_outage() {
    let verdict = stalled(3000, 40);
    assert_eq!(verdict.faults(), [Fault::Outage]);
    assert!(verdict.sentence.contains("for 3."), "{verdict:?}");
    // It came back after the test, when nobody sent echoes any more.
    assert_eq!(stalled(6500, 50).faults(), [Fault::Outage]);
    assert_eq!(stalled(500, 90).faults(), [], "a time-out of TCP's own");
    assert_eq!(stalled(3000, 95).faults(), [], "the circuit was there");
}
