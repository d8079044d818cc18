//! A log that is longer than the memory: what has left it is on two disks, and comes back. The disks lose, shorten and harm segments,
//! frames are lost, one end or both begin anew; whatever happens, no wrong byte comes out.
#![allow(clippy::unwrap_used)]

mod world;

use proptest::prelude::*;

use farhaul_reduce::*;
use world::*;

/// 24 MB through a memory of 8 MiB.
fn full() -> (World, Vec<u8>) {
    let mut world = World::new(Default::default(), 0);
    let input = noise(1, 24_000_000);
    assert!(world.send(1, &input, |_| false) >= input.len());
    assert_eq!((world.missed, world.away), (0, 0));
    (world, input)
}

#[test]
fn what_left_the_memory_is_found_on_disk() {
    let (mut world, input) = full();
    let again = world.send(2, &input, |_| false);
    assert!(again < 40_000, "{again}");
    assert_eq!(world.missed, 0);
    assert!(world.encoder.stats().recalled >= 22);
    let mut edited = input;
    edited.splice(3_000_001..3_000_003, *b"hello");
    edited[9_000_000..9_000_100].fill(3);
    let edited = world.send(3, &edited, |_| false);
    assert!(edited < 45_000, "{edited}");
}

#[test]
fn what_came_back_is_counted_apart_from_what_never_left() {
    let (mut world, input) = full();
    world.send(2, &input[23_000_000..], |_| false);
    let near = world.encoder.stats();
    assert!(near.known_bytes > 990_000, "{near:?}");
    assert_eq!(near.returned_bytes, 0);
    world.send(2, &input[..2_000_000], |_| false);
    let far = world.encoder.stats();
    assert!(far.returned_bytes > 1_990_000, "{far:?}");
    assert!(far.known_bytes - near.known_bytes >= far.returned_bytes);
    // These are too short to be kept where they were.
    let pieces =
        (0..100).map(|nth| [&input[nth * 10_000..][..400], &noise(500 + nth as u64, 100)].concat());
    world.send(3, &pieces.collect::<Vec<_>>().concat(), |_| false);
    let short = world.encoder.stats();
    let known_bytes = short.known_bytes - far.known_bytes;
    assert!(known_bytes > 10_000, "{short:?}");
    assert_eq!(short.returned_bytes - far.returned_bytes, known_bytes);
}

/// A segment holds parts of several files; what referred to one of them before lies between them in the log.
#[test]
fn files_that_were_sent_in_part_before_are_found_whole() {
    for times in [0, 1, 5] {
        let mut world = World::new(Default::default(), 0);
        let file = |nth: u64| noise(100 + nth, 1_100_000);
        for nth in 0..16 {
            for _ in 0..times {
                world.send(1, &file(nth)[..500_000], |_| false);
            }
            world.send(1, &file(nth), |_| false);
        }
        for nth in 0..6 {
            // As far ahead as a gateway with much memory reads.
            for read in world.encoder.look(&file(nth)[..50_000], 4 << 20) {
                let (bytes, lengths) = world.disks[0][&read.segment].clone();
                world.encoder.recall(&read, &bytes, &lengths);
            }
            let again = world.send(2, &file(nth), |_| false);
            assert!(again < 5_000, "{times} times, file {nth}: {again}");
        }
        assert_eq!(world.missed, 0);
    }
}

/// Each version differs from an old file in a few hundred bytes, which no anchor names, and each is in another segment.
#[test]
fn short_pieces_without_anchor_are_found() {
    let mut world = World::new(Default::default(), 0);
    // Of noise few samples are taken: nothing of it is found in short pieces.
    let text = |seed, len| -> Vec<u8> {
        let digits = noise(seed, len).into_iter().map(|byte| b'a' + byte % 16);
        digits.collect()
    };
    let old = text(300, 200_000);
    let version = |nth: u64| [&old[..100_000], &text(301 + nth, 600), &old[100_000..]].concat();
    for nth in 0..24 {
        world.send(1, &noise(400 + nth, 1_100_000), |_| false);
        world.send(1, &version(nth), |_| false);
    }
    let again: usize = (0..12)
        .map(|nth| world.send(2, &version(nth), |_| false))
        .sum();
    assert!(again < 2_000, "{again}");
    assert_eq!(world.missed, 0);
}

#[test]
fn without_a_disk_it_is_sent_again() {
    let (mut world, input) = full();
    world.disks = Default::default();
    let again = world.send(2, &input, |_| false);
    assert!(again > 15_000_000, "{again}");
    assert_eq!(world.missed, 0, "nobody referred to what was not there");
}

#[test]
fn what_the_other_disk_has_lost_meanwhile_is_asked_for() {
    let (mut world, input) = full();
    // Recalled here and referred to, but there it is gone.
    for read in world.encoder.look(&input[..300_000], AHEAD_BYTES) {
        let (bytes, lengths) = world.disks[0][&read.segment].clone();
        assert!(world.encoder.recall(&read, &bytes, &lengths));
    }
    world.disks[1].clear();
    world.send(2, &input[..300_000], |_| false);
    assert!(world.missed > 0 && world.away > 0);
    let missed = world.missed;
    world.send(3, &input[..300_000], |_| false);
    assert!(world.send(4, &input[..300_000], |_| false) < 1000);
    assert_eq!(world.missed, missed);
}

#[test]
fn after_a_restart_the_whole_disk_is_known() {
    let (mut world, input) = full();
    world.restart();
    let again = world.send(1, &input, |_| false);
    assert!(again < 80_000, "{again}");
    assert_eq!(world.missed, 0);
}

fn act() -> impl Strategy<Value = Act> {
    let part = || (0usize..6_000_000, 1usize..1_500_000);
    prop_oneof![
        6 => (0u64..4, part(), any::<u8>()).prop_map(|(flow, (start, len), edit)| Act::Send(flow, start, len, edit)),
        3 => (0u64..4, 1usize..6_000_000).prop_map(|(flow, len)| Act::Fresh(flow, len)),
        1 => (0u64..4, part(), 1usize..4).prop_map(|(flow, (start, len), nth)| Act::Lose(flow, start, len, nth)),
        2 => (0usize..2, 0u64..30).prop_map(|(disk, number)| Act::Drop(disk, number)),
        2 => (0usize..2, 0u64..30, 0usize..SEGMENT_BLOCKS, 0u32..65_536)
            .prop_map(|(disk, number, block, length)| Act::Shorten(disk, number, block, length)),
        1 => (0u64..30, 0usize..SEGMENT_BYTES).prop_map(|(number, at)| Act::Harm(number, at)),
        1 => Just(Act::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]
    #[test]
    fn whatever_the_disks_lose_the_bytes_are_right(acts in proptest::collection::vec(act(), 1..16)) {
        let base = noise(77, 7_500_000);
        let mut world = World::new(Default::default(), 0);
        let mut fresh = 1000;
        world.send(1, &base, |_| false);
        for act in acts {
            perform(&mut world, &base, &mut fresh, act);
        }
    }
}

#[test]
fn what_a_fuzzer_may_draw_is_right() {
    for seed in 0..15 {
        operations(&noise(seed, 240));
    }
}
