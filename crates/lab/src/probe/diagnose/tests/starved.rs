//! Hosts that are short of processor time.

use super::*;

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
