//! Frames in any order, any interleaving of what applications do: nothing lost, nothing hangs.

mod world;

use farhaul_tunnel::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use world::{Random, World, pressed_limits, small_limits, tight_limits};

/// One thing that happens. Flows, frames and sizes are chosen by numbers taken modulo what exists.
#[derive(Debug, Clone)]
enum Operation {
    Open {
        side: usize,
        class: Class,
    },
    Write {
        side: usize,
        flow: usize,
        length: usize,
    },
    Finish {
        side: usize,
        flow: usize,
    },
    Reset {
        side: usize,
        flow: usize,
    },
    Answer {
        side: usize,
        flow: usize,
        refuse: bool,
    },
    Read {
        side: usize,
        flow: usize,
        length: usize,
    },
    Transmit {
        side: usize,
        frames: usize,
        urgent: bool,
    },
    Deliver {
        side: usize,
        index: usize,
    },
    Wait {
        time_ns: u64,
    },
    Ping {
        side: usize,
    },
    FrameSize {
        side: usize,
        length: usize,
    },
    Rate {
        side: usize,
        rate_bytes_s: u64,
    },
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![
        Just(Class::Auto),
        Just(Class::Control),
        Just(Class::Interactive),
        Just(Class::Bulk),
        Just(Class::Background),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let side = || 0usize..2;
    let flow = || 0usize..12;
    prop_oneof![
        2 => (side(), class()).prop_map(|(side, class)| Operation::Open { side, class }),
        8 => (side(), flow(), 1usize..30_000)
            .prop_map(|(side, flow, length)| Operation::Write { side, flow, length }),
        2 => (side(), flow(), 1usize..4)
            .prop_map(|(side, flow, length)| Operation::Write { side, flow, length }),
        2 => (side(), flow()).prop_map(|(side, flow)| Operation::Finish { side, flow }),
        1 => (side(), flow()).prop_map(|(side, flow)| Operation::Reset { side, flow }),
        3 => (side(), flow(), prop::bool::weighted(0.15))
            .prop_map(|(side, flow, refuse)| Operation::Answer { side, flow, refuse }),
        8 => (side(), flow(), 1usize..20_000)
            .prop_map(|(side, flow, length)| Operation::Read { side, flow, length }),
        10 => (side(), 1usize..8, prop::bool::weighted(0.3))
            .prop_map(|(side, frames, urgent)| Operation::Transmit { side, frames, urgent }),
        16 => (side(), 0usize..1000).prop_map(|(side, index)| Operation::Deliver { side, index }),
        1 => (0u64..500_000_000).prop_map(|time_ns| Operation::Wait { time_ns }),
        1 => (1_500_000_000u64..3_000_000_000).prop_map(|time_ns| Operation::Wait { time_ns }),
        1 => side().prop_map(|side| Operation::Ping { side }),
        1 => (side(), 1000usize..3000)
            .prop_map(|(side, length)| Operation::FrameSize { side, length }),
        1 => (side(), prop_oneof![Just(0), 1u64..1 << 20, Just(u64::MAX)])
            .prop_map(|(side, rate_bytes_s)| Operation::Rate { side, rate_bytes_s }),
    ]
}

fn apply(world: &mut World, operation: &Operation) {
    let pick = |world: &World, flow: usize| {
        let count = world.flows.len();
        world.flows.keys().nth(flow % count.max(1)).copied()
    };
    match *operation {
        Operation::Open { side, class } => {
            world.open_as(side, class);
        }
        Operation::Write { side, flow, length } => {
            if let Some(id) = pick(world, flow) {
                world.write(side, id, length);
            }
        }
        Operation::Finish { side, flow } => {
            if let Some(id) = pick(world, flow) {
                world.finish(side, id);
            }
        }
        Operation::Reset { side, flow } => {
            if let Some(id) = pick(world, flow) {
                world.reset(side, id, ResetCode::Application);
            }
        }
        Operation::Answer { side, flow, refuse } => {
            if let Some(id) = pick(world, flow) {
                world.answer(side, id, refuse.then_some(Refusal::HostUnreachable));
            }
        }
        Operation::Read { side, flow, length } => {
            if let Some(id) = pick(world, flow) {
                world.read(side, id, length);
            }
        }
        Operation::Transmit {
            side,
            frames,
            urgent,
        } => {
            for _ in 0..frames {
                match urgent {
                    true => world.transmit_urgent(side),
                    false => world.transmit(side),
                };
            }
        }
        Operation::Deliver { side, index } => {
            world.deliver(side, index);
        }
        Operation::Wait { time_ns } => world.now_ns += time_ns,
        Operation::Ping { side } => {
            world.muxes[side].ping();
        }
        Operation::FrameSize { side, length } => world.muxes[side].set_frame_bytes_max(length),
        Operation::Rate { side, rate_bytes_s } => world.muxes[side].set_rate(rate_bytes_s, 1432),
    }
    for side in 0..2 {
        world.events(side);
    }
    world.check_bounds();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Also shrinks to the shortest list of operations that breaks a promise.
    #[test]
    fn invariant_2_any_operations_in_any_order_deliver_every_byte(
        operations in prop::collection::vec(operation(), 0..400),
        seed: u64,
        limits in prop_oneof![Just(small_limits()), Just(tight_limits()), Just(pressed_limits())],
        features in prop_oneof![1 => Just(0), 3 => Just(FEATURE_RECLAIM)],
    ) {
        let mut world = World::offering(features, limits);
        for operation in &operations {
            apply(&mut world, operation);
        }
        world.settle(&mut Random(seed));
        world.check_all_done();
    }
}

/// Moves whole transfers, both ways at once, choosing at random what happens next.
fn transfer(seed: u64, flow_count: usize, bytes_max: usize) -> World {
    let mut random = Random(seed);
    let mut world = World::new(small_limits());
    let mut left = Vec::new();
    for _ in 0..flow_count {
        let class = [
            Class::Auto,
            Class::Interactive,
            Class::Bulk,
            Class::Background,
        ][random.below(4)];
        let id = world.open_as(random.below(2), class).unwrap_or(FlowId(0));
        left.push((id, [random.below(bytes_max), random.below(bytes_max)]));
    }
    for _ in 0..2_000_000 {
        let side = random.below(2);
        let entry = random.below(left.len());
        let (id, amounts) = &mut left[entry];
        match random.below(8) {
            0 => world.answer(side, *id, None),
            1 | 2 => {
                let length = amounts[side].min(1 + random.below(9000));
                amounts[side] -= world.write(side, *id, length);
                if amounts[side] == 0 && random.below(4) == 0 {
                    world.finish(side, *id);
                }
            }
            3 | 4 => {
                world.read(side, *id, 1 + random.below(9000));
            }
            5 => {
                world.transmit(side);
            }
            _ => {
                world.deliver(side, random.below(1 << 20));
            }
        }
        world.now_ns += 10_000;
        world.events(side);
        let is_done = |track: &world::Track| track.gone == [true, true];
        if world.flows.values().all(is_done) {
            break;
        }
    }
    world.check_bounds();
    world
}

#[test]
fn transfers_arrive_in_order_and_whole_whatever_the_order_of_frames() {
    for seed in 0..20 {
        let mut world = transfer(seed, 6, 150_000);
        for track in world.flows.values() {
            assert!(!track.cut);
            assert_eq!(
                track.gone,
                [true, true],
                "seed {seed}: unfinished {track:?}"
            );
        }
        world.settle(&mut Random(seed));
        world.check_all_done();
        let sent: u64 = world.muxes.iter().map(|mux| mux.stats().sent_bytes).sum();
        let received: u64 = world
            .muxes
            .iter()
            .map(|mux| mux.stats().received_bytes)
            .sum();
        assert_eq!(sent, received);
        assert!(sent > 100_000, "the test moved only {sent} bytes");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let frames = |world: &World| world.muxes.iter().map(Mux::stats).collect::<Vec<_>>();
    assert_eq!(
        frames(&transfer(7, 5, 60_000)),
        frames(&transfer(7, 5, 60_000))
    );
}

#[test]
fn the_operations_reach_every_kind_of_event_and_bound() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let lists = prop::collection::vec(operation(), 200..400);
    let mut reached = std::collections::BTreeMap::new();
    let mut count = |name: &'static str, times: usize| *reached.entry(name).or_insert(0) += times;
    for round in 0..100 {
        let operations = lists.new_tree(&mut runner).map(|tree| tree.current());
        let mut world = match round % 2 {
            0 => World::offering(0, tight_limits()),
            _ => World::new(pressed_limits()),
        };
        for operation in operations.iter().flatten() {
            apply(&mut world, operation);
        }
        world.settle(&mut Random(1));
        world.check_all_done();
        let tracks = || world.flows.values();
        count("pongs", world.pongs.iter().sum());
        count("writable", world.writable.len());
        count(
            "refused",
            tracks().filter(|track| track.refused.is_some()).count(),
        );
        count(
            "reset",
            tracks().filter(|track| track.reset.is_some()).count(),
        );
        count(
            "ended",
            tracks()
                .filter(|track| !track.cut && track.gone == [true; 2])
                .count(),
        );
        let stats = world.muxes.iter().map(Mux::stats);
        count(
            "refused for overload",
            stats
                .clone()
                .map(|stats| stats.refused_overload as usize)
                .sum(),
        );
        count(
            "asked for credit",
            stats
                .clone()
                .map(|stats| stats.reclaims_sent as usize)
                .sum(),
        );
        count(
            "credit that came back",
            stats
                .clone()
                .map(|stats| stats.credit_returned_bytes as usize)
                .sum(),
        );
        count(
            "reset for overload",
            stats.map(|stats| stats.reset_overload as usize).sum(),
        );
    }
    println!("{reached:?}");
    assert_eq!(reached.len(), 9);
    assert!(reached.values().all(|times| *times > 0), "{reached:?}");
}
