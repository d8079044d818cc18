//! The congestion controller on links in virtual time: fills them, keeps their queues short,
//! follows their changes and shares them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod path;

use farhaul_link::LinkProfile;
use farhaul_tunnel::{PathMemory, PathSettings};
use path::sender::Sender;
use path::{DATAGRAM_BYTES, HEADER_BYTES, World};

const S: u64 = 1_000_000_000;

fn link(words: &str) -> LinkProfile {
    words.parse().unwrap()
}

/// Datagram bytes per second that the link carries.
fn limit(link: &LinkProfile) -> f64 {
    let bits = link.forward.rate.unwrap().bit_per_s() as f64;
    let arrives = 1.0 - link.forward.loss.mean();
    bits / 8.0 * DATAGRAM_BYTES as f64 / (DATAGRAM_BYTES + HEADER_BYTES) as f64 * arrives
}

fn untold() -> PathSettings {
    PathSettings {
        header_bytes: HEADER_BYTES as u16,
        ..PathSettings::default()
    }
}

fn told(link: &LinkProfile) -> PathSettings {
    PathSettings {
        link_bits_per_s: link.forward.rate.map(farhaul_link::Rate::bit_per_s),
        is_owned: true,
        ..untold()
    }
}

/// Share of the limit and mean queue in ms between two times.
fn measure(world: &mut World, flow: usize, limit: f64, from_s: u64, to_s: u64) -> (f64, f64) {
    world.run_until(from_s * S);
    let before = world.received_bytes(flow);
    world.mean_queue();
    world.run_until(to_s * S);
    let bytes = (world.received_bytes(flow) - before) as f64;
    let share = bytes / (to_s - from_s) as f64 / limit;
    (share, world.mean_queue() * 1e3)
}

fn alone(words: &str, settings: impl Fn(&LinkProfile) -> PathSettings) -> (f64, f64) {
    let link = link(words);
    let mut world = World::new(&link, 3);
    let flow = world.add(Sender::farhaul(settings(&link)), 0, u64::MAX, 0);
    measure(&mut world, flow, limit(&link), 15, 40)
}

#[test]
fn an_unknown_link_is_filled_whatever_it_loses() {
    for words in [
        "rate 1.544mbit queue 100ms",
        "rate 1.544mbit delay 250ms loss 10% queue 100ms",
        "rate 51.84mbit delay 30ms loss 1% queue 100ms",
        "rate 51.84mbit delay 100ms loss bursts 5% 3 queue 100ms",
        "rate 51.84mbit delay 250ms loss 10% queue 100ms",
        "rate 155.52mbit delay 100ms loss 5% queue 100ms",
    ] {
        let (share, queue_ms) = alone(words, |_| untold());
        let queue_ms_max = if words.contains("1.544") { 40.0 } else { 15.0 };
        assert!(share > 0.96 && share < 1.02, "{words}: {share:.3}");
        assert!(queue_ms < queue_ms_max, "{words}: {queue_ms:.1} ms");
    }
}

#[test]
fn an_owned_link_is_filled_exactly() {
    for words in [
        "rate 1.544mbit delay 100ms loss 5% queue 100ms",
        "rate 51.84mbit delay 100ms loss 1% queue 100ms",
        "rate 155.52mbit delay 250ms loss 10% queue 100ms",
    ] {
        let (share, queue_ms) = alone(words, told);
        assert!(share > 0.985 && share < 1.02, "{words}: {share:.3}");
        let packet_ms = if words.contains("1.544") { 7.9 } else { 0.3 };
        assert!(queue_ms < 5.0 + packet_ms, "{words}: {queue_ms:.1} ms");
    }
}

#[test]
fn a_shallow_queue_and_jitter_cost_little() {
    for (words, least) in [
        ("rate 51.84mbit delay 100ms loss 1% queue 5ms", 0.93),
        ("rate 51.84mbit delay 30ms 6ms queue 100ms", 0.95),
        ("rate 51.84mbit delay 100ms 20ms loss 1% queue 100ms", 0.93),
    ] {
        let (share, _) = alone(words, |_| untold());
        assert!(share > least, "{words}: {share:.3}");
    }
}

/// A client of a file server that asks for 60 KiB and waits for them, behind a sender.
fn waits_for_blocks(mut sender: Sender) -> Sender {
    sender.block_packets = Some(45);
    sender
}

/// Every burst that jitter made longer looked like a slower link, and nothing came that could have said otherwise: down to .6 of
/// CUBIC's pace, with a fifth of the link believed.
#[test]
fn who_waits_for_each_block_keeps_the_pace_where_packets_overtake() {
    for (words, least) in [
        ("rate 10mbit delay 30ms jitter 10ms", 0.97),
        ("rate 20mbit delay 15ms jitter 5ms", 0.95),
        ("rate 1.544mbit delay 30ms jitter 10ms", 0.95),
    ] {
        let link = link(words);
        for seed in 1..=8 {
            let received = |sender: Sender| {
                let mut world = World::new(&link, seed);
                let flow = world.add(waits_for_blocks(sender), 0, u64::MAX, 0);
                world.run_until(60 * S);
                world.received_bytes(flow) as f64
            };
            let share = received(Sender::farhaul(untold())) / received(Sender::cubic());
            assert!(share > least, "{words}, seed {seed}: {share:.3} of CUBIC");
        }
    }
}

#[test]
fn a_change_of_rate_is_followed() {
    let (fast, slow) = (
        link("rate 51.84mbit delay 30ms queue 100ms"),
        link("rate 20mbit delay 30ms queue 100ms"),
    );
    let mut world = World::new(&fast, 3);
    let flow = world.add(Sender::farhaul(untold()), 0, u64::MAX, 0);
    world.run_until(20 * S);
    world.set_link(&slow);
    let (share, queue_ms) = measure(&mut world, flow, limit(&slow), 23, 30);
    assert!(share > 0.95, "slower: {share:.3}");
    assert!(queue_ms < 15.0, "slower: {queue_ms:.1} ms");
    world.set_link(&fast);
    let (share, _) = measure(&mut world, flow, limit(&fast), 33, 40);
    assert!(share > 0.95, "faster again: {share:.3}");
}

/// What is left is far less than one test of a standing queue yields.
#[test]
fn a_link_that_loses_most_of_its_rate_is_not_taken_for_a_shared_one() {
    for (delay_ms, rate_mbit, loss, found_s) in [
        (30, 20, "0%", 3),
        (30, 20, "1%", 3),
        (5, 20, "1%", 3),
        (100, 20, "1%", 4),
        (30, 5, "1%", 6),
    ] {
        let of = |mbit: u64| {
            let words = format!("rate {mbit}mbit delay {delay_ms}ms loss {loss} queue 250kb");
            link(&words)
        };
        let runs = (1..=4).flat_map(|seed| [(seed, untold()), (seed, told(&of(300)))]);
        for (seed, settings) in runs {
            let mut world = World::new(&of(300), seed);
            let flow = world.add(Sender::farhaul(settings), 0, u64::MAX, 0);
            world.run_until(10 * S);
            let slow = of(rate_mbit);
            world.set_link(&slow);
            let limit = limit(&slow);
            let (share, queue_ms) = measure(&mut world, flow, limit, 10 + found_s, 25);
            let what = format!("{rate_mbit} Mbit/s, {delay_ms} ms, {loss}, {seed}, {settings:?}");
            assert!(share > 0.95, "{what}: {share:.3}");
            assert!(queue_ms < 20.0, "{what}: {queue_ms:.1} ms");
        }
    }
}

#[test]
fn a_longer_route_is_not_a_queue() {
    let near = link("rate 51.84mbit delay 30ms queue 100ms");
    let mut world = World::new(&near, 3);
    let flow = world.add(Sender::farhaul(untold()), 0, u64::MAX, 0);
    world.run_until(20 * S);
    world.set_link(&link("rate 51.84mbit delay 100ms queue 100ms"));
    let (share, _) = measure(&mut world, flow, limit(&near), 23, 30);
    assert!(share > 0.9, "{share:.3}");
}

#[test]
fn an_outage_is_no_news_about_the_path() {
    for words in [
        "rate 51.84mbit delay 30ms queue 100ms",
        "rate 1.544mbit delay 100ms loss 1% queue 100ms",
    ] {
        let link = link(words);
        let mut world = World::new(&link, 3);
        let flow = world.add(Sender::farhaul(untold()), 0, u64::MAX, 0);
        world.run_until(10 * S);
        world.set_link(&self::link(&format!("{words} loss 100%")));
        world.run_until(15 * S);
        world.set_link(&link);
        let (share, _) = measure(&mut world, flow, limit(&link), 17, 22);
        assert!(share > 0.9, "{words}: {share:.3}");
    }
}

#[test]
fn two_tunnels_share_a_link() {
    let link = link("rate 51.84mbit delay 30ms queue 100ms");
    let mut world = World::new(&link, 3);
    let first = world.add(Sender::farhaul(untold()), 0, u64::MAX, 0);
    let second = world.add(Sender::farhaul(untold()), 10 * S, u64::MAX, 0);
    world.run_until(60 * S);
    let before = [first, second].map(|flow| world.received_bytes(flow));
    world.run_until(120 * S);
    let a = (world.received_bytes(first) - before[0]) as f64;
    let b = (world.received_bytes(second) - before[1]) as f64;
    let jain = (a + b).powi(2) / (2.0 * (a * a + b * b));
    assert!(jain > 0.95, "{jain:.3}");
}

#[test]
fn cubic_is_not_starved_whoever_comes_first() {
    for (queue, ours_s, theirs_s) in [
        ("100ms", 0, 10),
        ("100ms", 10, 0),
        ("300ms", 0, 10),
        ("300ms", 10, 0),
    ] {
        let link = link(&format!("rate 51.84mbit delay 30ms queue {queue}"));
        let mut world = World::new(&link, 3);
        let ours = world.add(Sender::farhaul(untold()), ours_s * S, u64::MAX, 0);
        let theirs = world.add(Sender::cubic(), theirs_s * S, u64::MAX, 0);
        world.run_until(20 * S);
        let before = [ours, theirs].map(|flow| world.received_bytes(flow));
        world.run_until(120 * S);
        let ours = (world.received_bytes(ours) - before[0]) as f64;
        let theirs = (world.received_bytes(theirs) - before[1]) as f64;
        let share = ours / (ours + theirs);
        assert!(
            (0.35..0.65).contains(&share),
            "queue {queue}, we start at {ours_s} s: {share:.2}"
        );
    }
}

#[test]
fn a_link_that_is_left_again_is_filled_again() {
    let link = link("rate 51.84mbit delay 30ms queue 300ms");
    let mut world = World::new(&link, 3);
    let ours = world.add(Sender::farhaul(untold()), 0, u64::MAX, 0);
    world.add(Sender::cubic(), 10 * S, 60 * S, 0);
    let (share, queue_ms) = measure(&mut world, ours, limit(&link), 75, 100);
    assert!(share > 0.95, "{share:.3}");
    assert!(queue_ms < 15.0, "{queue_ms:.1} ms");
}

#[test]
fn a_long_link_is_found_in_a_few_round_trips() {
    for words in [
        "rate 155.52mbit delay 250ms queue 100ms",
        "rate 155.52mbit delay 250ms loss 5% queue 100ms",
        "rate 51.84mbit delay 250ms loss 1% queue 100ms",
    ] {
        let link = link(words);
        let mut world = World::new(&link, 3);
        let flow = world.add(Sender::farhaul(untold()), 0, u64::MAX, 0);
        let (share, _) = measure(&mut world, flow, limit(&link), 4, 8);
        assert!(share > 0.9, "{words}: {share:.3}");
    }
}

#[test]
fn a_remembered_path_is_filled_at_once() {
    let link = link("rate 51.84mbit delay 250ms queue 100ms");
    let remembered = PathMemory {
        rate: limit(&link),
        rtt_ns: 500_000_000,
    };
    let arrived = |settings: PathSettings| {
        let mut world = World::new(&link, 3);
        let flow = world.add(Sender::farhaul(settings), 0, u64::MAX, 0);
        world.run_until(5 * S);
        world.received_bytes(flow) as f64 / limit(&link)
    };
    let anew = arrived(untold());
    let again = arrived(PathSettings {
        remembered: Some(remembered),
        ..untold()
    });
    // A quarter second to the far end, half a second until the round trip is known, half a second at
    // half the rate: 4.0 s of 5 s is the most.
    assert!(again > 3.6, "{again:.2} s of the rate in 5 s");
    // A new path is found in two round trips, which leaves a remembered one little to save.
    assert!(again > anew + 0.05, "{again:.2} s of the rate, {anew:.2} s");
}

#[test]
fn gateways_that_are_held_up_keep_their_share_of_a_link() {
    // Held up for three eighths of the time, and the pacer makes up for 10 ms of a pause.
    for words in [
        "rate 10mbit delay 20ms queue 100ms",
        "rate 51.84mbit delay 20ms queue 100ms",
        "rate 51.84mbit delay 100ms loss 1% queue 100ms",
    ] {
        let link = link(words);
        let mut world = World::new(&link, 3);
        let flow = world.add(Sender::farhaul(untold()), 0, u64::MAX, 0);
        world.run_until(5 * S);
        world.keep_busy();
        let (share, queue_ms) = measure(&mut world, flow, limit(&link), 10, 60);
        assert!(share > 0.5, "{words}: {share:.3}");
        assert!(queue_ms < 50.0, "{words}: {queue_ms:.1} ms");
    }
}

#[test]
fn a_start_on_a_machine_that_is_held_up_ends() {
    for words in [
        "rate 10mbit delay 20ms queue 100ms",
        "rate 51.84mbit delay 20ms queue 100ms",
    ] {
        let link = link(words);
        let mut world = World::new(&link, 3);
        world.keep_busy();
        let flow = world.add(Sender::farhaul(untold()), 0, u64::MAX, 0);
        world.run_until(10 * S);
        let before = world.drops();
        let (share, queue_ms) = measure(&mut world, flow, limit(&link), 10, 40);
        assert!(share > 0.4, "{words}: {share:.3}");
        assert!(queue_ms < 20.0, "{words}: {queue_ms:.1} ms");
        assert!(world.drops() - before < 100, "{words}: {}", world.drops());
    }
}

/// A train that a machine stretched or pressed together, and round trips that are long because a receiver waited for a second packet,
/// were taken for the link's: what followed was sent at two and a half times the link's rate for a round trip.
#[test]
fn a_file_that_is_read_from_far_away_does_not_flood_a_link_that_loses_packets() {
    let link = link("rate 51.84mbit delay 250ms loss 10% queue 100ms");
    let limit = limit(&link) * 0.9;
    for (busy_ms, lost_s) in [(0.0, 2.2), (2.0, 2.4), (4.0, 3.3)] {
        for seed in 1..=6 {
            let mut world = World::new(&link, seed);
            let flow = path::read_ahead(&mut world, busy_ms, 6 * S);
            world.run_until(6 * S);
            let before = world.received_bytes(flow);
            world.run_until(18 * S);
            let got_s = (world.received_bytes(flow) - before) as f64 / limit;
            let what = format!(
                "{busy_ms} ms, {seed}: {} drops, {got_s:.2} s of 12",
                world.drops()
            );
            // They were up to 3500, and sent again as much later.
            assert!(world.drops() < 500, "{what}");
            assert!(got_s > 12.0 - lost_s, "{what}");
        }
    }
}

/// Of a file that is read from the sixth second on over a far and fast link: how many seconds of its rate arrive in the first four.
fn of_four_s(seed: u64, read: impl FnOnce(&mut World) -> usize) -> f64 {
    let link = link("rate 51.84mbit delay 250ms queue 100ms");
    let mut world = World::new(&link, seed);
    let flow = read(&mut world);
    world.run_until(6 * S);
    let before = world.received_bytes(flow);
    world.run_until(10 * S);
    (world.received_bytes(flow) - before) as f64 / limit(&link)
}

/// The last of them were taken for the first packets of a train, which then was none: the next one went half a second later.
#[test]
fn a_file_behind_messages_is_not_looked_for_a_round_trip_later() {
    let got_s = |messages_ns, seed| {
        of_four_s(seed, |world| {
            path::read_behind_messages(world, 6 * S, messages_ns)
        })
    };
    for seed in 1..=3 {
        let without = got_s(0, seed);
        // 2.75, where one message was before.
        assert!(without > 2.9, "{without:.2} s of 4");
        for messages_ms in (20..=200).step_by(3) {
            let with = got_s(messages_ms * 1_000_000, seed);
            assert!(
                with > without - 0.1,
                "{messages_ms} ms, {seed}: {with:.2} s of 4, {without:.2} s without"
            );
        }
    }
}

/// What a tunnel sends by itself when it has come up: 26 packets, and 14 behind them that make their receiver acknowledge them at once.
#[test]
fn a_link_that_has_carried_a_train_is_found_a_round_trip_sooner() {
    let got_s =
        |packets, seed| of_four_s(seed, |world| path::read_behind_train(world, 6 * S, packets));
    for seed in 1..=3 {
        let (without, with) = (got_s(0, seed), got_s(40, seed));
        assert!(
            with > without + 0.4,
            "{with:.2} s of 4, {without:.2} without"
        );
    }
}
