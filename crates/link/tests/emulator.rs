//! The emulator in virtual time: what goes in at which nanosecond comes out
//! at which, and how often each impairment strikes.

use farhaul_link::{DirectionProfile, Emulator, LinkProfile, Output, Packet, Probability, Stats};
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// A packet that knows its number and how often it was corrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Numbered {
    number: u64,
    bytes: usize,
    flips: u32,
}

impl Packet for Numbered {
    fn frame_bytes(&self) -> usize {
        self.bytes
    }
    fn corrupt(&mut self, _bit: u64) {
        self.flips += 1;
    }
}

fn packet(number: u64, bytes: usize) -> Numbered {
    Numbered {
        number,
        bytes,
        flips: 0,
    }
}

fn direction(text: &str) -> DirectionProfile {
    LinkProfile::parse(text).expect(text).forward
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Arrival {
    number: u64,
    due_ns: u64,
    flips: u32,
}

/// Takes everything due by `now_ns`; returns the time of the next event.
fn drain(
    emulator: &mut Emulator<Numbered>,
    now_ns: u64,
    arrivals: &mut Vec<Arrival>,
) -> Option<u64> {
    loop {
        match emulator.poll_output(now_ns) {
            Output::Deliver { packet, due_ns } => {
                assert!(due_ns <= now_ns);
                arrivals.push(Arrival {
                    number: packet.number,
                    due_ns,
                    flips: packet.flips,
                });
            }
            Output::Timeout(at_ns) => {
                assert!(at_ns > now_ns, "a time-out in the past would spin");
                return Some(at_ns);
            }
            Output::Idle => return None,
        }
    }
}

/// Sends packets of `bytes` every `gap_ns`, jumping from event to event, and
/// then waits until nothing is held.
fn run(
    profile: DirectionProfile,
    seed: u64,
    packets: u64,
    bytes: usize,
    gap_ns: u64,
) -> (Vec<Arrival>, Stats) {
    let mut emulator = Emulator::new(profile, seed);
    let mut arrivals = Vec::new();
    let mut wake = None;
    for number in 0..packets {
        let now_ns = number * gap_ns;
        while let Some(at_ns) = wake.filter(|at_ns| *at_ns <= now_ns) {
            wake = drain(&mut emulator, at_ns, &mut arrivals);
        }
        emulator.handle_packet(now_ns, packet(number, bytes));
        wake = drain(&mut emulator, now_ns, &mut arrivals);
    }
    while let Some(at_ns) = wake {
        wake = drain(&mut emulator, at_ns, &mut arrivals);
    }
    (arrivals, *emulator.stats())
}

fn numbers(arrivals: &[Arrival]) -> Vec<u64> {
    arrivals.iter().map(|arrival| arrival.number).collect()
}

#[test]
fn an_hour_at_oc1_sends_exactly_an_hour_of_bits() {
    // Offered twice the rate for an hour of virtual time, with frames whose
    // sending time is no whole number of nanoseconds.
    let profile = direction("oc1 queue 10p");
    let gap_ns = 1514 * 8 * S / (2 * 51_840_000);
    let packets = 3600 * S / gap_ns / 20;
    let mut emulator = Emulator::new(profile, 1);
    let mut arrivals = Vec::new();
    // Twenty at once keeps the test fast and the transmitter always busy.
    for round in 0..packets {
        for number in 0..20 {
            emulator.handle_packet(round * 20 * gap_ns, packet(number, 1514));
        }
        drain(&mut emulator, round * 20 * gap_ns, &mut arrivals);
    }
    drain(&mut emulator, 3600 * S, &mut arrivals);
    let last_ns = arrivals.last().unwrap().due_ns;
    let exact_ns = arrivals.len() as u128 * 1514 * 8 * u128::from(S) / 51_840_000;
    assert_eq!(u128::from(last_ns), exact_ns);
    assert!(last_ns > 3599 * S);
}

#[test]
fn a_packet_takes_its_sending_time_and_the_delay() {
    let (arrivals, _) = run(direction("t1 delay 100ms"), 1, 1, 1442, 0);
    assert_eq!(arrivals[0].due_ns, 100 * MS + 1442 * 8 * S / 1_544_000);
}

#[test]
fn a_full_second_of_delay_holds_a_full_second_of_packets() {
    // 100,000 packets in flight: nothing may be dropped for lack of room.
    let (arrivals, stats) = run(
        direction("gigabit delay 1s queue 10p"),
        1,
        200_000,
        1250,
        10_000,
    );
    assert_eq!(arrivals.len(), 200_000);
    assert_eq!(stats.drops.total(), 0);
    assert!(stats.line_packets_max >= 100_000);
    assert!(
        arrivals
            .iter()
            .all(|arrival| arrival.due_ns == (arrival.number + 1) * 10_000 + S)
    );
}

#[test]
fn short_packets_fill_a_long_link_without_drops() {
    let (arrivals, stats) = run(
        direction("oc3 delay 250ms"),
        1,
        500_000,
        60,
        60 * 8 * S / 155_520_000,
    );
    assert_eq!((arrivals.len(), stats.drops.total()), (500_000, 0));
}

#[test]
fn jitter_keeps_the_order() {
    for shape in ["uniform", "normal", "pareto"] {
        let profile = direction(&format!("delay 50ms 20ms distribution {shape}"));
        let (arrivals, stats) = run(profile, 1, 20_000, 100, MS);
        assert!(
            arrivals.is_sorted_by_key(|arrival| arrival.number),
            "{shape}"
        );
        assert_eq!(stats.reordered, 0);
        let delays: Vec<u64> = arrivals.iter().map(|a| a.due_ns - a.number * MS).collect();
        assert!(delays.iter().max().unwrap() - delays.iter().min().unwrap() > 10 * MS);
    }
}

#[test]
fn jitter_overtakes_where_it_is_asked_to() {
    let profile = direction("delay 50ms 20ms reorder jitter");
    let (arrivals, stats) = run(profile, 1, 20_000, 100, MS);
    assert_eq!(arrivals.len(), 20_000);
    assert!(stats.reordered > 10_000);
    let mean_ns = arrivals
        .iter()
        .map(|a| a.due_ns - a.number * MS)
        .sum::<u64>()
        / 20_000;
    assert!(mean_ns.abs_diff(50 * MS) < MS / 2);
    assert!(arrivals.is_sorted_by_key(|arrival| arrival.due_ns));
}

#[test]
fn same_seed_same_fate() {
    let text = "rate 8mbit delay 20ms 5ms loss 2% duplicate 1% corrupt 1% reorder 1%";
    let once = run(direction(text), 42, 20_000, 1000, MS);
    assert_eq!(once, run(direction(text), 42, 20_000, 1000, MS));
    assert_ne!(once.0, run(direction(text), 43, 20_000, 1000, MS).0);
}

#[test]
fn impairments_do_not_disturb_each_other() {
    let lost = |text: &str| {
        let arrivals = run(direction(text), 7, 20_000, 100, MS).0;
        let mut arrived = numbers(&arrivals);
        arrived.sort_unstable();
        arrived.dedup();
        arrived
    };
    let alone = lost("delay 10ms loss 3%");
    assert_eq!(alone, lost("delay 10ms 5ms distribution normal loss 3%"));
    assert_eq!(
        alone,
        lost("delay 10ms loss 3% duplicate 10% corrupt 5% reorder 10%")
    );
    assert_eq!(alone, lost("rate 100mbit delay 10ms loss 3%"));

    let corrupted = |text: &str| {
        let arrivals = run(direction(text), 7, 20_000, 100, MS).0;
        let mut hit: Vec<u64> = arrivals
            .iter()
            .filter(|a| a.flips > 0)
            .map(|a| a.number)
            .collect();
        hit.sort_unstable();
        hit
    };
    let alone = corrupted("delay 10ms corrupt 3%");
    let with_loss = corrupted("delay 10ms corrupt 3% loss 50%");
    assert!(with_loss.len() < alone.len());
    assert!(with_loss.iter().all(|number| alone.contains(number)));
}

#[test]
fn more_loss_loses_more_of_the_same_packets() {
    let arrived = |text: &str| numbers(&run(direction(text), 9, 50_000, 100, MS).0);
    let little = arrived("loss 1%");
    assert!(
        arrived("loss 5%")
            .iter()
            .all(|number| little.binary_search(number).is_ok())
    );
}

#[test]
fn loss_uses_the_rate_but_the_queue_comes_first() {
    // Everything is lost on the wire, yet the transmitter is busy with it:
    // of 100 packets at once, one is sent, 10 wait, 89 find the queue full.
    let (arrivals, stats) = run(direction("rate 8mbit queue 10p loss 100%"), 1, 100, 1000, 0);
    assert!(arrivals.is_empty());
    assert_eq!((stats.drops.loss, stats.drops.queue), (11, 89));
}

#[test]
fn the_queue_keeps_its_bound_in_every_unit() {
    // 1000-byte frames at 8 Mbit/s take 1 ms each.
    for (limit, waiting) in [
        ("10p", 10),
        ("10000b", 10),
        ("10999b", 10),
        ("10ms", 10),
        ("9999us", 9),
    ] {
        let (arrivals, stats) = run(
            direction(&format!("rate 8mbit queue {limit}")),
            1,
            100,
            1000,
            0,
        );
        assert_eq!(arrivals.len(), waiting + 1, "{limit}");
        assert_eq!(stats.drops.queue, 99 - waiting as u64, "{limit}");
        assert_eq!(stats.queue_bytes_max, waiting as u64 * 1000, "{limit}");
        assert_eq!(stats.queue_ns_max, waiting as u64 * MS, "{limit}");
    }
    // 100 ms of the rate, but never less than 50 full-size frames.
    let auto = |rate: &str| run(direction(rate), 1, 3000, 1514, 0).1.queue_bytes_max;
    assert_eq!(auto("rate 80mbit"), 1_000_000 / 1514 * 1514);
    assert_eq!(auto("rate 64kbit"), 50 * 1514);
}

#[test]
fn too_long_packets_are_dropped_by_the_mtu() {
    let (arrivals, stats) = run(direction("mtu 1500"), 1, 3, 1514, MS);
    assert_eq!((arrivals.len(), stats.drops.mtu), (3, 0));
    let (arrivals, stats) = run(direction("mtu 1500"), 1, 3, 1515, MS);
    assert_eq!((arrivals.len(), stats.drops.mtu), (0, 3));
}

#[test]
fn framing_counts_against_the_rate() {
    for (framing, bytes) in [
        ("ethernet", 1514),
        ("wire", 1538),
        ("ip", 1500),
        ("hdlc", 1507),
        ("atm", 1696),
        ("100", 1614),
    ] {
        let profile = direction(&format!("rate 1mbit framing {framing}"));
        let (arrivals, _) = run(profile, 1, 1, 1514, 0);
        assert_eq!(arrivals[0].due_ns, bytes * 8 * 1000, "{framing}");
    }
}

/// Whether `hits` of `n` fit the probability within four standard deviations.
fn assert_share(hits: u64, n: u64, probability: f64) {
    let expected = n as f64 * probability;
    let sigma = (expected * (1.0 - probability)).sqrt();
    assert!(
        (hits as f64 - expected).abs() < 4.0 * sigma,
        "{hits} of {n}, expected {expected}"
    );
}

#[test]
fn shares_are_what_the_profile_says() {
    let n = 200_000;
    let profile = direction("delay 10ms loss 1% duplicate 2% corrupt 3% reorder 4% 5ms");
    let (arrivals, stats) = run(profile, 5, n, 100, MS);
    assert_share(stats.drops.loss, n, 0.01);
    assert_share(stats.duplicated, n - stats.drops.loss, 0.02);
    assert_share(stats.corrupted, n - stats.drops.loss, 0.03);
    assert_share(stats.reordered, n - stats.drops.loss, 0.04);
    assert_eq!(
        arrivals.len() as u64,
        n - stats.drops.loss + stats.duplicated
    );
    assert_eq!(stats.packets_out, arrivals.len() as u64);
}

#[test]
fn a_copy_comes_right_behind_its_original() {
    let (arrivals, _) = run(direction("delay 10ms duplicate 100%"), 1, 3, 100, MS);
    assert_eq!(numbers(&arrivals), [0, 0, 1, 1, 2, 2]);
}

#[test]
fn a_leap_overtakes_what_is_in_flight_and_a_hold_is_overtaken() {
    let (arrivals, stats) = run(direction("delay 10ms reorder 10%"), 1, 1000, 100, MS);
    for arrival in &arrivals {
        let delay_ns = arrival.due_ns - arrival.number * MS;
        assert!(delay_ns == 0 || delay_ns == 10 * MS);
    }
    let leaps = arrivals
        .iter()
        .filter(|a| a.due_ns == a.number * MS)
        .count() as u64;
    assert_eq!(leaps, stats.reordered);
    let (arrivals, stats) = run(direction("delay 10ms reorder 10% 3ms"), 1, 1000, 100, MS);
    let held = arrivals
        .iter()
        .filter(|a| a.due_ns == a.number * MS + 13 * MS)
        .count() as u64;
    assert_eq!(held, stats.reordered);
    assert!(held > 50);
}

#[test]
fn a_caller_that_is_late_loses_nothing_and_one_that_never_comes_is_bounded() {
    // Full-size frames at exactly 1 Gbit/s, nobody takes them.
    let gap_ns = 1514 * 8;
    let offer = |duration_ns: u64| {
        let mut emulator = Emulator::new(direction("gigabit"), 1);
        for number in 0..duration_ns / gap_ns {
            emulator.handle_packet(number * gap_ns, packet(number, 1514));
        }
        *emulator.stats()
    };
    assert_eq!(offer(400 * MS).drops.total(), 0);
    let stats = offer(3 * S);
    assert!(stats.drops.line > 0 && stats.line_packets < 2 * S / gap_ns);
}

#[test]
fn without_a_rate_the_line_has_a_bound_of_its_own() {
    let (arrivals, stats) = run(direction("delay 1s in-flight 100"), 1, 150, 100, 0);
    assert_eq!((arrivals.len(), stats.drops.line), (100, 50));
}

#[test]
fn a_new_rate_takes_effect_at_once() {
    // 1000-byte frames: 1 s each at 8 kbit/s, 1 ms each at 8 Mbit/s.
    let mut emulator = Emulator::new(direction("rate 8kbit"), 1);
    let mut arrivals = Vec::new();
    for number in 0..3 {
        emulator.handle_packet(0, packet(number, 1000));
    }
    drain(&mut emulator, 500 * MS, &mut arrivals);
    assert!(arrivals.is_empty());
    emulator.handle_profile(500 * MS, direction("rate 8mbit delay 7ms"));
    let wake = drain(&mut emulator, 500 * MS, &mut arrivals);
    // Half of the first frame is left: 0.5 ms, then 1 ms each, then 7 ms.
    assert_eq!(wake, Some(507 * MS + MS / 2));
    drain(&mut emulator, S, &mut arrivals);
    let due: Vec<u64> = arrivals.iter().map(|arrival| arrival.due_ns).collect();
    assert_eq!(due, [507_500_000, 508_500_000, 509_500_000]);
}

#[test]
fn lifting_the_rate_empties_the_queue_and_setting_one_fills_it() {
    let mut emulator = Emulator::new(direction("rate 8kbit"), 1);
    let mut arrivals = Vec::new();
    for number in 0..3 {
        emulator.handle_packet(0, packet(number, 1000));
    }
    emulator.handle_profile(100, direction("delay 1ms"));
    drain(&mut emulator, 100, &mut arrivals);
    assert_eq!(
        (
            emulator.stats().queue_packets,
            emulator.stats().line_packets
        ),
        (0, 3)
    );
    emulator.handle_profile(200, direction("rate 8mbit"));
    emulator.handle_packet(2 * MS, packet(3, 1000));
    emulator.handle_packet(2 * MS, packet(4, 1000));
    assert_eq!(
        (
            emulator.stats().queue_packets,
            emulator.stats().sending_packets
        ),
        (1, 1)
    );
    drain(&mut emulator, S, &mut arrivals);
    assert_eq!(numbers(&arrivals), [0, 1, 2, 3, 4]);
    let due: Vec<u64> = arrivals.iter().map(|arrival| arrival.due_ns).collect();
    assert_eq!(due, [MS + 100, MS + 100, MS + 100, 3 * MS, 4 * MS]);
}

#[test]
fn packets_in_flight_are_kept_and_stay_ahead() {
    let mut emulator = Emulator::new(direction("delay 100ms"), 1);
    let mut arrivals = Vec::new();
    emulator.handle_packet(0, packet(0, 1000));
    emulator.handle_profile(10 * MS, direction("delay 1ms loss 100%"));
    emulator.handle_packet(20 * MS, packet(1, 1000));
    emulator.handle_profile(30 * MS, direction("delay 1ms"));
    emulator.handle_packet(40 * MS, packet(2, 1000));
    drain(&mut emulator, S, &mut arrivals);
    assert_eq!(numbers(&arrivals), [0, 2]);
    assert_eq!(
        (arrivals[0].due_ns, arrivals[1].due_ns),
        (100 * MS, 100 * MS)
    );
}

#[test]
fn a_slower_profile_does_not_drop_for_what_the_faster_one_left_in_flight() {
    let mut emulator = Emulator::new(direction("gigabit delay 100ms"), 1);
    for number in 0..600 {
        emulator.handle_packet(number * 20_000, packet(number, 1514));
    }
    emulator.handle_profile(12 * MS, direction("ds0 delay 100ms"));
    emulator.handle_packet(12 * MS, packet(600, 1514));
    let mut arrivals = Vec::new();
    drain(&mut emulator, 10 * S, &mut arrivals);
    assert_eq!((arrivals.len(), emulator.stats().drops.total()), (601, 0));
}

#[test]
fn a_clock_that_runs_backwards_stands_still() {
    let mut emulator = Emulator::new(direction("delay 1ms"), 1);
    let mut arrivals = Vec::new();
    emulator.handle_packet(10 * MS, packet(0, 100));
    emulator.handle_packet(0, packet(1, 100));
    drain(&mut emulator, 11 * MS, &mut arrivals);
    emulator.handle_profile(5 * MS, direction("delay 2ms"));
    assert_eq!(emulator.poll_output(0), Output::Idle);
    let due: Vec<u64> = arrivals.iter().map(|arrival| arrival.due_ns).collect();
    assert_eq!(due, [11 * MS, 11 * MS]);
}

#[test]
fn arrivals_told_late_cost_no_rate() {
    // 1000-byte frames at 8 Mbit/s, one each millisecond: exactly the rate.
    // The driver sleeps for 20 ms and then tells what came meanwhile, having
    // looked for what is due in between.
    let mut emulator = Emulator::new(direction("rate 8mbit delay 3ms queue 2p"), 1);
    let mut arrivals = Vec::new();
    for round in 0..50 {
        let now_ns = (round + 1) * 20 * MS;
        drain(&mut emulator, now_ns, &mut arrivals);
        for number in round * 20..(round + 1) * 20 {
            emulator.handle_packet(number * MS, packet(number, 1000));
        }
    }
    drain(&mut emulator, 10 * S, &mut arrivals);
    assert_eq!(arrivals.len(), 1000);
    for arrival in arrivals {
        assert_eq!(arrival.due_ns, arrival.number * MS + 4 * MS);
    }
}

#[test]
fn extreme_values_do_not_overflow() {
    let mut emulator = Emulator::new(
        DirectionProfile {
            delay_ns: u64::MAX,
            jitter_ns: u64::MAX,
            ..direction("rate 1bit")
        },
        1,
    );
    emulator.handle_packet(u64::MAX - 1, packet(0, usize::MAX));
    emulator.handle_packet(u64::MAX, packet(1, usize::MAX));
    emulator.handle_profile(u64::MAX, direction("rate unlimited"));
    let mut arrivals = 0;
    while let Output::Deliver { .. } = emulator.poll_output(u64::MAX) {
        arrivals += 1;
    }
    // The second is over what the line may hold.
    assert_eq!((arrivals, emulator.stats().drops.line), (1, 1));
}

#[test]
fn a_policer_drops_what_exceeds_its_rate_and_delays_nothing() {
    // 8 Mbit/s offered to a policer of 4 on a line of 80: half passes, and
    // what passes waits for nothing but the packet before it.
    let profile = direction("rate 80mbit delay 10ms policer 4mbit 3kb");
    let (arrivals, stats) = run(profile, 1, 1000, 1000, MS);
    assert_eq!(stats.drops.policer, stats.drops.total());
    assert!((500..=503).contains(&arrivals.len()), "{}", arrivals.len());
    assert_eq!(stats.queue_ns_max, 0);
}

#[test]
fn a_policer_can_be_set_and_lifted() {
    let mut emulator = Emulator::new(direction("delay 1ms"), 1);
    for (at, words) in ["delay 1ms policer 8kbit 1000b", "delay 1ms"]
        .iter()
        .enumerate()
    {
        emulator.handle_profile(at as u64, direction(words));
        for number in 0..10 {
            emulator.handle_packet(at as u64, packet(number, 1000));
        }
    }
    assert_eq!(emulator.stats().drops.policer, 9);
}

/// One thing done to an emulator.
#[derive(Debug, Clone)]
enum Operation {
    Packet { after_ns: u64, bytes: usize },
    Profile(usize),
    Poll { after_ns: u64 },
}

const PROFILES: [&str; 8] = [
    "rate 1mbit queue 3p delay 1ms",
    "rate 100mbit delay 5ms 2ms loss 20% duplicate 20% corrupt 10%",
    "delay 3ms in-flight 4",
    "rate 10mbit framing atm queue 2ms mtu 1000 reorder 20%",
    "rate 10mbit queue 4kb delay 1ms 1ms distribution pareto reorder jitter",
    "loss gemodel 20% 40% 90% 1% delay 2ms reorder 10% 1ms",
    "rate 10mbit policer 5mbit 4kb queue 5p delay 1ms",
    "unlimited",
];

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (0..2 * MS, 1..3000usize).prop_map(|(after_ns, bytes)| Operation::Packet { after_ns, bytes }),
        1 => (0..PROFILES.len()).prop_map(Operation::Profile),
        2 => (0..20 * MS).prop_map(|after_ns| Operation::Poll { after_ns }),
    ]
}

proptest! {
    /// Every packet is delivered, held, or counted as dropped with a cause.
    #[test]
    fn no_packet_vanishes(operations in prop::collection::vec(operation(), 1..200), seed: u64) {
        let mut emulator = Emulator::new(direction(PROFILES[0]), seed);
        let mut arrivals = Vec::new();
        let (mut now_ns, mut sent) = (0, 0);
        for operation in operations {
            match operation {
                Operation::Packet { after_ns, bytes } => {
                    now_ns += after_ns;
                    emulator.handle_packet(now_ns, packet(sent, bytes));
                    sent += 1;
                }
                Operation::Profile(index) => {
                    emulator.handle_profile(now_ns, direction(PROFILES[index]));
                }
                Operation::Poll { after_ns } => {
                    now_ns += after_ns;
                    drain(&mut emulator, now_ns, &mut arrivals);
                }
            }
            let stats = emulator.stats();
            prop_assert_eq!(stats.packets_in, sent);
            prop_assert_eq!(stats.packets_out, arrivals.len() as u64);
            let held = stats.queue_packets + stats.sending_packets + stats.line_packets;
            prop_assert_eq!(
                stats.packets_in + stats.duplicated,
                stats.packets_out + stats.drops.total() + held
            );
        }
        drain(&mut emulator, now_ns + 100 * S, &mut arrivals);
        prop_assert!(arrivals.is_sorted_by_key(|arrival| arrival.due_ns));
        prop_assert_eq!(emulator.poll_output(now_ns + 100 * S), Output::Idle);
    }

    /// Waking at exactly the announced times delivers at exactly the due
    /// times: a driver that obeys is never late.
    #[test]
    fn time_outs_are_never_late(packets in prop::collection::vec((0..3 * MS, 1..2000usize), 1..100), index in 0..PROFILES.len(), seed: u64) {
        let mut emulator = Emulator::new(direction(PROFILES[index]), seed);
        let mut now_ns = 0;
        let mut wake: Option<u64> = None;
        let mut pending = packets.into_iter().enumerate().peekable();
        let mut next_ns = pending.peek().map(|(_, (gap_ns, _))| *gap_ns);
        while next_ns.is_some() || wake.is_some() {
            now_ns = next_ns.unwrap_or(u64::MAX).min(wake.unwrap_or(u64::MAX)).max(now_ns);
            if next_ns == Some(now_ns) {
                if let Some((number, (_, bytes))) = pending.next() {
                    emulator.handle_packet(now_ns, packet(number as u64, bytes));
                }
                next_ns = pending.peek().map(|(_, (gap_ns, _))| now_ns + gap_ns);
            }
            wake = loop {
                match emulator.poll_output(now_ns) {
                    Output::Deliver { due_ns, .. } => prop_assert_eq!(due_ns, now_ns),
                    Output::Timeout(at_ns) => {
                        prop_assert!(at_ns > now_ns);
                        break Some(at_ns);
                    }
                    Output::Idle => break None,
                }
            };
        }
    }
}

#[test]
fn probability_of_a_profile_reads_back() {
    let loss = direction("loss 0.05%").loss;
    assert_eq!(
        loss,
        farhaul_link::Loss::Bernoulli(Probability::from_percent(0.05).unwrap())
    );
}
