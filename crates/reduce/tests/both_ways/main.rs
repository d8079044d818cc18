//! Two directions at once, with everything that a gateway asks of an encoder and a decoder: names for what goes back the way it came,
//! frames without literals, what could not be read and is learned, disks. Whatever happens on the way, no wrong byte comes out.
#![allow(clippy::unwrap_used)]

mod world;

use proptest::prelude::*;

use farhaul_reduce::*;
use world::*;

#[test]
fn what_goes_back_is_named_and_remembered_by_both_ends() {
    let mut world = World::new();
    let document = noise(1, 50_000);
    world.send(0, 1, &document, (Codec::Null, true));
    world.settle(0);
    world.send(1, 1, &document, (Codec::Null, true));
    world.settle(1);
    let counts = world.ways[1].counts;
    assert_eq!((counts.named, counts.missed), (counts.released, 0));
    // From then on it is known in this direction as well.
    let again = world.ways[1].encode(2, &document);
    let new_bytes: usize = again.iter().map(|(plain, _)| plain.payload.len()).sum();
    assert!(new_bytes < 100, "{new_bytes}");
}

#[test]
fn what_is_gone_at_the_other_end_is_asked_for_and_learned() {
    let mut world = World::new();
    let document = noise(1, 50_000);
    world.send(0, 1, &document, (Codec::Null, true));
    world.settle(0);
    world.send(1, 1, &document, (Codec::Null, true));
    // It was named, and then the log it is in began anew.
    world.ways[0].begin_anew(false);
    world.settle(1);
    let counts = world.ways[1].counts;
    assert!(counts.missed > 0 && counts.named == 0, "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn invariant_2_whatever_happens_both_ways_no_wrong_byte_comes_out(
        acts in proptest::collection::vec(any::<[u8; ACT_BYTES]>(), 1..40),
    ) {
        operations(&acts.concat());
    }
}

/// So that the acts above mean something.
#[test]
fn a_hundred_histories_have_something_of_everything() {
    let mut all = Counts::default();
    for seed in 0..100 {
        // The first bytes of similar seeds are similar.
        for counts in operations(&noise(seed, 64 + 40 * ACT_BYTES)[64..]) {
            all.released += counts.released;
            all.named += counts.named;
            all.missed += counts.missed;
            all.learned += counts.learned;
            all.away += counts.away;
            all.harmed += counts.harmed;
            all.begun += counts.begun;
        }
    }
    println!("{all:?}");
    let least = [
        all.named,
        all.missed,
        all.learned,
        all.away,
        all.harmed,
        all.begun,
    ];
    assert!(least.iter().all(|count| *count > 2), "{all:?}");
}
