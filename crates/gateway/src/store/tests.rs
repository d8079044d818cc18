//! The store on files that forget what was not synced, that fail, and whose bytes change: no wrong byte, no panic, and what was
//! acknowledged as durable is there.

mod full_disk;
mod on_disk;
mod paper;

use std::collections::{BTreeMap, BTreeSet};

use farhaul_reduce::{BLOCK_BYTES, BlockLengths, SEGMENT_BLOCKS, SEGMENT_BYTES};
use proptest::prelude::*;

use self::paper::{Image, Paper, SECTOR_BYTES};
use super::embedded::{FILE_BYTES, FILE_SLOTS, FOOTERS_AT};
use super::verify::verify_files;
use super::*;

const LOG: u128 = 77;
const PLACE: [u8; 32] = [1; 32];

fn options(files: u64) -> Options {
    Options {
        size_bytes: files * FILE_BYTES,
        place: PLACE,
    }
}

fn open(paper: &Paper, files: u64) -> Embedded<Paper> {
    Embedded::open(paper.clone(), options(files)).unwrap()
}

/// The first bytes of a block.
fn block(number: u64, epoch: u64, nth: usize, length: u32) -> Vec<u8> {
    let start = number * 31 + epoch * 7 + nth as u64 * 13;
    (0..u64::from(length))
        .map(|at| (start + at * at / 7) as u8)
        .collect()
}

/// A segment of an epoch as far as it is there.
fn content(number: u64, epoch: u64, lengths: &BlockLengths) -> Vec<u8> {
    let mut bytes = vec![0; SEGMENT_BYTES];
    for (nth, (room, &length)) in bytes.chunks_mut(BLOCK_BYTES).zip(lengths).enumerate() {
        room[..length as usize].copy_from_slice(&block(number, epoch, nth, length));
    }
    bytes
}

fn lengths(of_each: u32) -> BlockLengths {
    [of_each; SEGMENT_BLOCKS]
}

fn key(number: u64) -> Key {
    Key { log: LOG, number }
}

fn save(store: &mut impl Store, number: u64, epoch: u64, lengths: &BlockLengths) -> bool {
    let bytes = content(number, epoch, lengths);
    store.save(key(number), epoch, &bytes, lengths).is_ok()
}

/// Loads all there is and compares; the lengths by number.
fn load_all(store: &mut impl Store, epochs: &[u64]) -> BTreeMap<u64, BlockLengths> {
    let catalog = store.catalog();
    let keys: Vec<Key> = catalog.lock().unwrap().entries.keys().copied().collect();
    let mut all = BTreeMap::new();
    let mut bytes = Vec::new();
    for key in keys {
        let lengths = store.load(key, &mut bytes).unwrap();
        let right = |epoch: u64| {
            let mut blocks = bytes.chunks(BLOCK_BYTES).zip(lengths).enumerate();
            blocks.all(|(nth, (found, length))| {
                found[..length as usize] == block(key.number, epoch, nth, length)
            })
        };
        assert!(
            epochs.iter().any(|&epoch| right(epoch)),
            "wrong bytes in segment {}",
            key.number
        );
        all.insert(key.number, lengths);
    }
    all
}

#[test]
fn what_was_synced_is_there_after_a_start() {
    let paper = Paper::default();
    let mut store = open(&paper, 2);
    save(&mut store, 3, 1, &lengths(100));
    assert_eq!(store.catalog().lock().unwrap().segments(), 0, "not yet");
    store.sync().unwrap();
    save(&mut store, 3, 1, &lengths(4000));
    save(&mut store, 4, 1, &lengths(BLOCK_BYTES as u32));
    store.sync().unwrap();
    let id = store.catalog().lock().unwrap().store();
    drop(store);
    let mut store = open(&paper, 2);
    assert_eq!(store.catalog().lock().unwrap().store(), id);
    let found = load_all(&mut store, &[1]);
    let right = BTreeMap::from([(3, lengths(4000)), (4, lengths(BLOCK_BYTES as u32))]);
    assert_eq!(found, right);
    let counts = store.catalog().lock().unwrap().counts();
    assert_eq!(
        (counts.bad_blocks, counts.failed, counts.foreign),
        (0, 0, 0)
    );
    let verified = verify_files(&paper).unwrap();
    let bytes = 16 * (4000 + BLOCK_BYTES as u64);
    assert_eq!(
        (verified.segments, verified.bytes, verified.bad_blocks),
        (2, bytes, 0)
    );
}

#[test]
fn the_oldest_go_when_there_is_no_room_and_the_store_shrinks_and_grows_without_losing_the_rest() {
    let paper = Paper::default();
    let mut store = open(&paper, 2);
    for number in 0..40 {
        assert!(save(&mut store, number, 1, &lengths(50)));
        store.sync().unwrap();
    }
    let numbers =
        |store: &mut Embedded<Paper>| -> Vec<u64> { load_all(store, &[1]).into_keys().collect() };
    assert_eq!(numbers(&mut store), (8..40).collect::<Vec<_>>());
    drop(store);
    let mut store = open(&paper, 1);
    assert_eq!(numbers(&mut store), (24..40).collect::<Vec<_>>());
    assert_eq!(paper.numbers().unwrap(), [0]);
    drop(store);
    let mut store = open(&paper, 3);
    for number in 40..60 {
        assert!(save(&mut store, number, 1, &lengths(50)));
    }
    store.sync().unwrap();
    assert_eq!(numbers(&mut store), (24..60).collect::<Vec<_>>());
    assert_eq!(verify_files(&paper).unwrap().bad_blocks, 0);
    assert!(Embedded::open(paper, options(0)).is_err());
}

#[test]
fn an_image_that_was_copied_is_not_taken_for_the_same_store() {
    let paper = Paper::default();
    let mut store = open(&paper, 1);
    save(&mut store, 1, 1, &lengths(50));
    store.sync().unwrap();
    let id = store.catalog().lock().unwrap().store();
    let elsewhere = Options {
        place: [2; 32],
        ..options(1)
    };
    let store = Embedded::open(paper.clone(), elsewhere).unwrap();
    let catalog = store.catalog();
    let catalog = catalog.lock().unwrap();
    assert_ne!(catalog.store(), id);
    assert_eq!((catalog.segments(), catalog.counts().foreign), (0, 1));
    let problem = catalog.counts().problem.unwrap();
    assert!(
        problem.contains("is of another machine or disk: "),
        "{problem}"
    );
}

#[test]
fn files_of_another_store_and_labels_of_another_version_count_for_nothing() {
    let paper = Paper::default();
    let mut store = open(&paper, 1);
    save(&mut store, 1, 1, &lengths(50));
    store.sync().unwrap();
    let swapped = paper.0.lock().unwrap().now.clone();
    let other = Paper::default();
    drop(open(&other, 1));
    let mut image = other.0.lock().unwrap().now.clone();
    (image.files, image.sectors) = (swapped.files, swapped.sectors);
    let mut store = open(&Paper::of(image), 1);
    assert!(load_all(&mut store, &[1]).is_empty());

    let mut image = paper.0.lock().unwrap().now.clone();
    image.label.as_mut().unwrap()[7] = 2;
    let mut store = open(&Paper::of(image), 1);
    assert!(load_all(&mut store, &[1]).is_empty());
    assert_eq!(store.catalog().lock().unwrap().counts().foreign, 1);
}

#[test]
fn a_full_disk_makes_the_store_smaller_and_no_error() {
    let paper = Paper::default();
    let mut store = open(&paper, 3);
    assert!(save(&mut store, 0, 1, &lengths(50)));
    paper.0.lock().unwrap().is_full = true;
    for number in 1..40 {
        assert!(save(&mut store, number, 1, &lengths(50)));
        store.sync().unwrap();
    }
    assert_eq!(load_all(&mut store, &[1]).len(), FILE_SLOTS as usize);
    let counts = store.catalog().lock().unwrap().counts();
    assert!(counts.full > 0 && counts.problem.is_some());
    let paper = Paper::default();
    paper.0.lock().unwrap().is_full = true;
    let mut store = open(&paper, 3);
    let nothing = store.save(key(1), 1, &content(1, 1, &lengths(50)), &lengths(50));
    assert!(matches!(nothing, Err(StoreError::NoRoom)));
}

#[test]
fn a_block_that_cannot_be_read_costs_itself_only() {
    let paper = Paper::default();
    let mut store = open(&paper, 1);
    save(&mut store, 0, 1, &lengths(50));
    store.sync().unwrap();
    paper
        .0
        .lock()
        .unwrap()
        .unreadable
        .insert((0, 3 * BLOCK_BYTES as u64));
    let mut expected = lengths(50);
    expected[3] = 0;
    assert_eq!(load_all(&mut store, &[1]), BTreeMap::from([(0, expected)]));
    assert_eq!(store.catalog().lock().unwrap().counts().bad_blocks, 1);
    paper.0.lock().unwrap().unreadable.insert((0, FOOTERS_AT));
    assert!(load_all(&mut open(&paper, 1), &[1]).is_empty());
    assert!(on_disk::counts(&store).problem.is_some());
    store.clear().unwrap();
    assert_eq!(on_disk::counts(&store).problem, None);
}

#[test]
fn a_segment_that_is_saved_twice_before_it_is_durable_is_durable_then() {
    let paper = Paper::default();
    let mut store = open(&paper, 1);
    save(&mut store, 0, 1, &lengths(50));
    store.sync().unwrap();
    for _ in 0..2 {
        save(&mut store, 0, 1, &lengths(100));
    }
    store.sync().unwrap();
    let right = BTreeMap::from([(0, lengths(100))]);
    assert_eq!(load_all(&mut store, &[1]), right);
}

#[test]
fn a_segment_that_grows_and_cannot_be_read_keeps_its_room() {
    let paper = Paper::default();
    let mut store = open(&paper, 1);
    let first = |length| std::array::from_fn(|nth| if nth == 0 { length } else { 0 });
    save(&mut store, 0, 1, &first(50));
    store.sync().unwrap();
    save(&mut store, 0, 1, &first(100));
    paper.0.lock().unwrap().unreadable.insert((0, 0));
    assert_eq!(
        load_all(&mut store, &[1]),
        BTreeMap::from([(0, lengths(0))])
    );
    paper.0.lock().unwrap().unreadable.clear();
    store.sync().unwrap();
    save(&mut store, 1, 1, &first(70));
    store.sync().unwrap();
    let right = BTreeMap::from([(0, first(100)), (1, first(70))]);
    assert_eq!(load_all(&mut store, &[1]), right);
}

#[test]
fn another_epoch_replaces_and_clearing_leaves_nothing() {
    let paper = Paper::default();
    let mut store = open(&paper, 1);
    save(&mut store, 5, 1, &lengths(900));
    store.sync().unwrap();
    save(&mut store, 5, 2, &lengths(40));
    store.sync().unwrap();
    assert_eq!(
        load_all(&mut store, &[2]),
        BTreeMap::from([(5, lengths(40))])
    );
    store.clear().unwrap();
    assert!(load_all(&mut store, &[]).is_empty());
    assert!(load_all(&mut open(&paper, 1), &[]).is_empty());
    assert!(save(&mut store, 6, 2, &lengths(40)));
    store.sync().unwrap();
    assert_eq!(load_all(&mut open(&paper, 1), &[2]).len(), 1);
}

#[test]
fn what_a_peer_has_given_up_is_forgotten_for_good() {
    let paper = Paper::default();
    let mut store = open(&paper, 1);
    let bytes = content(1, 1, &lengths(50));
    let named = |log, number| Key { log, number };
    for key in [named(1, 1), named(2, 1), named(9, 1), named(2, 2)] {
        store.save(key, 1, &bytes, &lengths(50)).unwrap();
    }
    store.sync().unwrap();
    // One that grows and one that is new, neither of them durable yet.
    for (key, bytes_of_each) in [(named(9, 1), 60), (named(1, 2), 50), (named(2, 2), 60)] {
        let lengths = lengths(bytes_of_each);
        let bytes = content(1, 1, &lengths);
        store.save(key, 1, &bytes, &lengths).unwrap();
    }
    store.retain(2).unwrap();
    store.sync().unwrap();
    let keys = |store: &Embedded<Paper>| -> Vec<Key> {
        let catalog = store.catalog();
        let catalog = catalog.lock().unwrap();
        catalog.entries.keys().copied().collect()
    };
    let kept = [named(2, 1), named(2, 2)];
    assert_eq!(keys(&store), kept);
    drop(store);
    let mut store = open(&paper, 1);
    assert_eq!(keys(&store), kept);
    assert_eq!(store.load(kept[1], &mut Vec::new()).unwrap(), lengths(60));
    let verified = verify_files(&paper).unwrap();
    assert_eq!((verified.segments, verified.bad_blocks), (2, 0));
    // Their room is free, each slot of it once.
    for number in 3..17 {
        let key = named(2, number);
        store.save(key, 1, &bytes, &lengths(50)).unwrap();
    }
    store.sync().unwrap();
    let catalog = store.catalog();
    let catalog = catalog.lock().unwrap();
    let slots: BTreeSet<u32> = catalog.entries.values().map(|entry| entry.slot).collect();
    assert_eq!((slots.len(), catalog.counts().evicted), (16, 0));
}

#[test]
fn a_file_that_could_not_be_removed_hides_nothing_that_comes_after() {
    let paper = Paper::default();
    let mut store = open(&paper, 1);
    for grown in [50, 60, 70] {
        save(&mut store, 1, 1, &lengths(grown));
        store.sync().unwrap();
    }
    let next = paper.acts();
    paper.0.lock().unwrap().failing.insert(next);
    assert!(store.clear().is_err());
    for number in 5..5 + u64::from(FILE_SLOTS) {
        assert!(save(&mut store, number, 2, &lengths(40)));
    }
    store.sync().unwrap();
    let found = load_all(&mut open(&paper, 1), &[2]);
    assert_eq!(found.len(), FILE_SLOTS as usize);
    assert_eq!(verify_files(&paper).unwrap().bad_blocks, 0);
}

#[test]
fn files_beyond_the_size_go_also_if_they_cannot_be_read() {
    let paper = Paper::default();
    let mut store = open(&paper, 2);
    for number in 0..20 {
        assert!(save(&mut store, number, 1, &lengths(50)));
    }
    store.sync().unwrap();
    paper.0.lock().unwrap().unreadable.insert((1, FOOTERS_AT));
    let mut store = open(&paper, 1);
    assert_eq!(paper.numbers().unwrap(), [0]);
    assert_eq!(load_all(&mut store, &[1]).len(), FILE_SLOTS as usize);
}

/// A numbers generator of the tests' own, so that a failure can be repeated.
fn coins(seed: u64) -> impl FnMut() -> bool {
    let mut state = seed;
    move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 63 == 1
    }
}

/// Slot, epoch and lengths of a segment.
type Known = (u32, u64, BlockLengths);

/// Segments that grow, are replaced and evicted; what was acknowledged after which act.
fn history(paper: &Paper) -> Vec<(usize, BTreeMap<u64, Known>)> {
    let mut store = open(paper, 1);
    let mut acknowledged = vec![(0, BTreeMap::new())];
    for step in 0..30u64 {
        for number in [step, step / 2, step / 3] {
            let mut lengths = [0; SEGMENT_BLOCKS];
            let blocks = 1 + step as usize % 3;
            lengths[..blocks].fill(100 + 40 * step as u32);
            save(&mut store, number, 1 + step / 20, &lengths);
        }
        store.sync().unwrap();
        let catalog = store.catalog();
        let catalog = catalog.lock().unwrap();
        let entries = catalog.entries.iter();
        let there = entries.map(|(key, entry)| {
            let footer = &entry.footer;
            (key.number, (entry.slot, footer.epoch, footer.lengths))
        });
        acknowledged.push((paper.acts(), there.collect()));
    }
    acknowledged
}

/// Whatever was acknowledged before the crash is there, unless it had made room, or was about to.
#[test]
fn a_crash_at_any_write_loses_nothing_acknowledged_and_gives_no_wrong_byte() {
    let paper = Paper::default();
    let acknowledged = history(&paper);
    let last = paper.acts();
    for cut in 0..=last {
        let after = acknowledged.partition_point(|(acts, _)| *acts <= cut);
        let (_, known) = &acknowledged[after - 1];
        let next = acknowledged.get(after).map(|(_, next)| next);
        let image = paper.crashed(cut, &mut coins(cut as u64));
        let mut store = open(&Paper::of(image), 1);
        let found = load_all(&mut store, &[1, 2]);
        for (number, known @ (slot, epoch, lengths)) in known {
            // One that made room meanwhile may have come back, to another slot.
            let next = next.map_or(Some(known), |next| next.get(number));
            if next.is_some_and(|next| (&next.0, &next.1) == (slot, epoch)) {
                let found = found.get(number).copied().unwrap_or_default();
                let mut both = found.iter().zip(lengths);
                let is_there = both.all(|(found, known)| found >= known);
                assert!(is_there, "cut {cut} segment {number}");
            }
        }
        // And it goes on from there.
        assert!(save(&mut store, 1000, 9, &lengths(10)));
        store.sync().unwrap();
    }
    println!("{last} acts, a crash after each");
}

/// Files with a history, always the same.
fn worn() -> Image {
    static IMAGE: std::sync::OnceLock<Image> = std::sync::OnceLock::new();
    let image = IMAGE.get_or_init(|| {
        let paper = Paper::default();
        history(&paper);
        Mutex::into_inner(Arc::into_inner(paper.0).unwrap())
            .unwrap()
            .now
    });
    image.clone()
}

/// A hundred changes each to a thousand stores, a tenth of them to footers: what can still be read is right, the damage is counted, and
/// the store goes on.
#[test]
fn invariant_6_a_hundred_thousand_changes_to_stores_give_no_wrong_byte() {
    let mut coins = coins(6);
    let mut number = |end: u64| (0..24).fold(0, |drawn, _| drawn * 2 + u64::from(coins())) % end;
    let places: Vec<(u32, u64)> = worn().sectors.keys().copied().collect();
    let footers_at = FOOTERS_AT / SECTOR_BYTES as u64;
    let footers: Vec<(u32, u64)> = places
        .iter()
        .filter(|place| place.1 >= footers_at)
        .copied()
        .collect();
    let (mut bad_blocks, mut lost) = (0, 0);
    let all = load_all(&mut open(&Paper::of(worn()), 1), &[1, 2]).len();
    for _ in 0..1000 {
        let mut image = worn();
        for nth in 0..100 {
            let of = if nth % 10 == 0 { &footers } else { &places };
            let place = of[number(of.len() as u64) as usize];
            let sector = image.sectors.get_mut(&place).unwrap();
            sector[number(SECTOR_BYTES as u64) as usize] ^= 1 << number(8);
        }
        let paper = Paper::of(image);
        let mut store = open(&paper, 1);
        lost += all - load_all(&mut store, &[1, 2]).len();
        bad_blocks += store.catalog().lock().unwrap().counts().bad_blocks;
        assert!(save(&mut store, 1000, 9, &lengths(10)));
        store.sync().unwrap();
    }
    println!(
        "{bad_blocks} blocks damaged, {lost} segments of {} lost",
        1000 * all
    );
    assert!(bad_blocks > 1000 && lost > 0 && lost < 1000 * all);
}

proptest! {
    #[test]
    fn invariant_6_whatever_happens_to_the_files_no_wrong_byte_is_read(
        changes in proptest::collection::vec((any::<u32>(), any::<prop::sample::Index>(), 0..SECTOR_BYTES, 1u8..), 1..60),
    ) {
        let mut image = worn();
        let places: Vec<(u32, u64)> = image.sectors.keys().copied().collect();
        let footers = FOOTERS_AT / SECTOR_BYTES as u64;
        for (which, place, at, with) in changes {
            let place = match which % 3 {
                // Footers are few, and what matters most.
                0 => *place.get(&places.iter().filter(|place| place.1 >= footers).copied().collect::<Vec<_>>()),
                _ => *place.get(&places),
            };
            if which % 7 == 0 {
                // A whole sector from elsewhere.
                let other = image.sectors[&places[which as usize % places.len()]].clone();
                image.sectors.insert(place, other);
            } else {
                image.sectors.get_mut(&place).unwrap()[at] ^= with;
            }
        }
        let paper = Paper::of(image);
        let mut store = open(&paper, 1);
        load_all(&mut store, &[1, 2]);
        prop_assert!(save(&mut store, 1000, 9, &lengths(10)));
        store.sync().unwrap();
        prop_assert!(load_all(&mut open(&paper, 1), &[1, 2, 9]).contains_key(&1000));
    }

    #[test]
    fn writes_and_syncs_that_fail_cost_what_they_were_for(failing in proptest::collection::btree_set(3usize..300, 1..30)) {
        let paper = Paper::default();
        paper.0.lock().unwrap().failing = failing;
        let mut store = open(&paper, 1);
        let mut known = BTreeMap::new();
        for step in 0..20u64 {
            for number in [step, step / 2] {
                save(&mut store, number, 1, &lengths(100 + step as u32));
            }
            if store.sync().is_ok() {
                let catalog = store.catalog();
                let catalog = catalog.lock().unwrap();
                known = catalog.entries.iter().map(|(key, entry)| (key.number, entry.footer.lengths)).collect();
            } else {
                // What had to make room is gone.
                let catalog = store.catalog();
                let catalog = catalog.lock().unwrap();
                known.retain(|number, _| catalog.entries.contains_key(&key(*number)));
            }
        }
        let catalog = store.catalog();
        let there: BTreeSet<u64> = catalog.lock().unwrap().entries.keys().map(|key| key.number).collect();
        known.retain(|number, _| there.contains(number));
        paper.0.lock().unwrap().failing.clear();
        let found = load_all(&mut open(&paper, 1), &[1]);
        for (number, lengths) in known {
            let found = found.get(&number).copied().unwrap_or_default();
            prop_assert!(found.iter().zip(&lengths).all(|(found, known)| found >= known), "segment {}", number);
        }
    }
}

#[test]
fn a_real_folder_holds_what_was_saved_and_is_locked() {
    let path = std::env::temp_dir().join(format!("farhaul-store-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let mut store = Embedded::open(Folder::open(&path).unwrap(), options(1)).unwrap();
    assert!(matches!(Folder::open(&path), Err(StoreError::InUse(_))));
    assert!(save(&mut store, 1, 1, &lengths(BLOCK_BYTES as u32)));
    store.sync().unwrap();
    drop(store);
    let mut store = Embedded::open(Folder::open(&path).unwrap(), options(1)).unwrap();
    assert_eq!(load_all(&mut store, &[1]).len(), 1);
    let verified = verify_files(&Folder::look(&path)).unwrap();
    assert_eq!((verified.segments, verified.bad_blocks), (1, 0));
    for stranger in ["segments-1", "segments-+0000001", "segments-00000001x"] {
        std::fs::write(path.join(stranger), b"not ours").unwrap();
    }
    assert_eq!(Folder::look(&path).numbers().unwrap(), [0]);
    std::fs::remove_dir_all(&path).unwrap();
}
