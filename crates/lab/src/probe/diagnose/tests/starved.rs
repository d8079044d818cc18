//! Hosts that are short of processor time.

use super::*;
use crate::probe::datagram_count::Got;

/// What a server with 2 % of a processor shows: TCP is slow, its thread always
/// wants to run, and what it had not read when the test ended was not lost.
fn starved(seen: &mut Observations) {
    slow(seen, |figures| {
        (figures.receiver_busy, figures.receiver_starved) = (0.99, 0.97);
        figures.receive_window_limited = 0.9;
    });
    let unread = |sent: u64, read: u64, dropped: u64, pace: Option<f64>| {
        let count = FlowCount {
            received: read,
            dropped_by_host: dropped,
            read_until: Some(read + dropped),
            offered_bit_per_s: pace,
            ..FlowCount::default()
        };
        FlowWay::from((sent, count))
    };
    seen.quiet_up = flow(Direction::Up, unread(60_000, 21_000, 17_000, None));
    let both = seen.both_loaded.as_mut().unwrap();
    both.up = Some(unread(4000, 1500, 0, Some(CAPACITY)));
}

#[test]
fn what_a_starved_reader_left_unread_is_not_lost() {
    let verdict = changed(starved);
    assert_eq!(verdict.faults(), [Fault::CpuBound]);
    assert!(verdict.sentence.contains("server"), "{}", verdict.sentence);
    // What was lost before it stopped reading is.
    let verdict = changed(|seen| {
        starved(seen);
        seen.quiet_up.as_mut().unwrap().up.as_mut().unwrap().lost = 380;
    });
    assert_eq!(verdict.faults(), [Fault::Loss, Fault::CpuBound]);
}

#[test]
fn bursts_of_a_starved_sender_are_no_half_duplex_and_no_lower_rate() {
    let bursts = FlowCount {
        offered_bit_per_s: Some(CAPACITY * 0.3),
        ..FlowCount::default()
    };
    let verdict = changed(|seen| {
        let both = seen.both_loaded.as_mut().unwrap();
        (both.up, both.down) = (
            Some(way(4000, 120, FlowCount::default())),
            Some(way(1600, 200, bursts.clone())),
        );
        let cut = seen.flood_down.as_mut().unwrap().down.as_mut().unwrap();
        cut.count.offered_bit_per_s = Some(CAPACITY * 0.4);
        cut.count.steady_bit_per_s = Some(CAPACITY * 0.35);
        slow(seen, |figures| figures.receiver_busy = 0.95);
    });
    assert_eq!(verdict.faults(), [Fault::CpuBound]);
    let is_told = |note: &String| note.contains("too busy to load both");
    assert!(verdict.notes.iter().any(is_told), "{verdict:?}");
    // The same loss where both directions were loaded.
    let verdict = changed(|seen| {
        let both = seen.both_loaded.as_mut().unwrap();
        both.down = Some(way(
            4000,
            200,
            FlowCount {
                offered_bit_per_s: Some(CAPACITY),
                ..bursts
            },
        ));
    });
    assert_eq!(verdict.faults(), [Fault::DuplexMismatch]);
}

#[test]
fn a_sender_that_waits_for_a_processor_makes_no_asymmetry() {
    // Its trains come as slowly as they were sent, and its flood is none.
    let starved = |seen: &mut Observations, p50_us: u64| {
        let even = |sent: u64, rate: f64| {
            let mut count = FlowCount {
                steady_bit_per_s: Some(rate),
                offered_bit_per_s: Some(rate),
                line_bit_per_s: Some(rate * 1.7),
                train_whole: Some(30),
                ..FlowCount::default()
            };
            count.delays.p50_us = p50_us;
            way(sent, 0, count)
        };
        let trains = seen.trains.as_mut().unwrap();
        trains.plan.train_datagrams = 30;
        trains.up = Some(even(240, CAPACITY / 7.0));
        seen.flood_up = flow(Direction::Up, even(1500, CAPACITY / 7.0));
    };
    let verdict = changed(|seen| starved(seen, 700));
    assert_eq!(verdict.faults(), []);
    assert!(
        verdict
            .notes
            .iter()
            .any(|note| note.contains("nothing filled the circuit up"))
    );
    assert!(verdict.tcp_capacity_up_bit_per_s.unwrap() >= CAPACITY * 0.95);
    // Trains that wait for each other are the line's: 29 of 1472 bytes take 28 ms.
    let verdict = changed(|seen| {
        starved(seen, 14_000);
        seen.tcp_up = tcp(Direction::Up, CAPACITY / 5.0, figures());
    });
    assert_eq!(verdict.faults(), [Fault::AsymmetricRate]);
}

#[test]
fn a_flood_whose_reader_was_late_does_not_hide_what_tcp_carried() {
    let verdict = changed(|seen| {
        seen.flood_up = flow(Direction::Up, flood(CAPACITY * 0.15, 100_000));
    });
    assert!(verdict.tcp_capacity_up_bit_per_s.unwrap() >= CAPACITY * 0.95);
    assert_eq!(verdict.faults(), []);
}

/// What comes of a flood of a second and a half through a token bucket of 40 kB,
/// from a sender that pauses at one third of it and then sends all that is due.
fn policed(rate_bit_per_s: f64, pause_ms: u64) -> FlowWay {
    const BUCKET_BITS: f64 = 320e3;
    let plan = FlowPlan::even(Direction::Up, 1472, CAPACITY * 1.25, 1.5);
    let (pause_from_ns, pause_ns) = (500_000_000, pause_ms * 1_000_000);
    let datagram_bits = f64::from(plan.payload_bytes) * 8.0;
    let (mut tokens, mut last_ns) = (BUCKET_BITS, 0);
    let mut got = Vec::new();
    for sequence in 0..plan.datagrams() as u32 {
        let due_ns = u64::from(sequence / plan.train_datagrams) * plan.gap_ns;
        let is_paused = (pause_from_ns..pause_from_ns + pause_ns).contains(&due_ns);
        let sent_ns = if is_paused {
            pause_from_ns + pause_ns
        } else {
            due_ns
        };
        let more = (sent_ns - last_ns) as f64 * rate_bit_per_s / 1e9;
        tokens = (tokens + more).min(BUCKET_BITS);
        last_ns = sent_ns;
        if tokens >= datagram_bits {
            tokens -= datagram_bits;
            got.push(Got {
                sequence,
                dropped: 0,
                sent_ns,
                at_ns: sent_ns + 20_000_000,
            });
        }
    }
    FlowWay::from((plan.datagrams(), FlowCount::of(&plan, &got, 0, false)))
}

#[test]
fn a_sender_that_pauses_before_a_policer_makes_no_asymmetry() {
    let rate = CAPACITY / 4.0;
    let verdict = |up: FlowWay, down: FlowWay| {
        changed(|seen| {
            seen.flood_up = flow(Direction::Up, up);
            seen.flood_down = flow(Direction::Down, down);
            seen.tcp_up = tcp(Direction::Up, rate * 0.3, figures());
            seen.tcp_down = tcp(Direction::Down, rate * 0.3, figures());
        })
    };
    let steady = |way: &FlowWay| way.count.steady_bit_per_s.unwrap();
    let (even, held_up) = (policed(rate, 0), policed(rate, 400));
    assert_eq!(even.count.sender_paused, Some(0.0));
    assert!(steady(&even) >= steady(&held_up) * 1.3, "{held_up:?}");
    let policers = [Fault::Policer];
    assert_eq!(verdict(even.clone(), even.clone()).faults(), policers);
    assert_eq!(verdict(held_up.clone(), even.clone()).faults(), policers);
    assert_eq!(verdict(even.clone(), held_up).faults(), policers);
    // Rates that do differ are told, a pause or not.
    let both = [Fault::Policer, Fault::AsymmetricRate];
    assert_eq!(verdict(policed(rate / 2.0, 0), even.clone()).faults(), both);
    assert_eq!(verdict(policed(rate / 2.0, 400), even).faults(), both);
}

#[test]
fn a_flood_that_falls_short_of_the_line_leaves_the_rate_behind_a_policer_open() {
    let even = policed(CAPACITY / 4.0, 0);
    let mut short = even.clone();
    // Half the line is sent, and most of it lost: the line is no rate of it.
    short.count.offered_bit_per_s = Some(CAPACITY / 2.0);
    let verdict = changed(|seen| {
        seen.flood_up = flow(Direction::Up, even);
        seen.flood_down = flow(Direction::Down, short);
        seen.tcp_up = tcp(Direction::Up, CAPACITY / 5.0, figures());
        seen.tcp_down = tcp(Direction::Down, CAPACITY / 5.0, figures());
    });
    assert_eq!(verdict.faults(), [Fault::Policer]);
}
