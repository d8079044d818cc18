//! How a log and the disk go together: under which names a log's segments are kept, and which of an earlier log it begins with.
//!
//! An epoch of a log may begin with segments that both ends have on disk ("seeds"). They are its first segments, in the order of their
//! numbers, and are put in from the newest to the oldest: first at the decoder, which says how many are ready, then at the encoder. Behind
//! them come the epoch's own segments, which are kept under new numbers. Only as many are put in as the memory holds; the others stay
//! on disk until they are wanted ([`super::recalls`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use farhaul_reduce::{BlockLengths, SEGMENT_BLOCKS, Segments};

use super::recalls::{Far, Recall};

use crate::store::{Catalog, Key};

/// What a disk holds.
pub(super) type SharedCatalog = Arc<Mutex<Catalog>>;

/// Numbers of segments are below this: 2^60 bytes in all.
pub(super) const NUMBER_MAX: u64 = 1 << 40;

/// Names of an epoch's own segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shelf {
    /// Store of the gateway whose encoder it is.
    pub(super) log: u128,
    /// Drawn at random for the epoch.
    pub(super) epoch: u64,
    /// Number of the first segment behind the seeds.
    pub(super) base: u64,
    /// How many segments of earlier epochs come first.
    pub(super) seeds: u64,
}

impl Shelf {
    /// The name on disk of one of the log's segments, if it is the epoch's own.
    pub(super) fn key(&self, segment: u64) -> Option<Key> {
        let number = segment.checked_sub(self.seeds)?.checked_add(self.base)?;
        let log = self.log;
        Some(Key { log, number })
    }
}

/// A segment to be put into a log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seed {
    /// Of which epoch.
    epoch: u64,
    /// Its place in the log.
    pub(super) segment: u64,
    pub(super) key: Key,
    /// No more of it than this.
    pub(super) lengths: BlockLengths,
    /// It stays on disk.
    pub(super) is_away: bool,
}

/// Segments that a log begins with, and how far they are put in.
#[derive(Debug, Default)]
pub(super) struct Seeds {
    epoch: u64,
    all: Vec<(Key, BlockLengths)>,
    done: usize,
    /// So many may be put in.
    ready: usize,
    /// So many there is memory for; the others stay on disk.
    near_max: usize,
    bytes: u64,
}

impl Seeds {
    /// These, in the order of their numbers; the first `ready` from the end may be put in.
    pub(super) fn new(
        epoch: u64,
        all: Vec<(Key, BlockLengths)>,
        ready: usize,
        near_max: usize,
    ) -> Self {
        Self {
            epoch,
            all,
            done: 0,
            ready,
            near_max,
            bytes: 0,
        }
    }

    pub(super) fn set_ready(&mut self, ready: usize) {
        self.ready = self.ready.max(ready);
    }

    /// So many may be referred to: when all are in that there is memory for, the others, too, which are on disk.
    pub(super) fn usable(&self) -> usize {
        match self.done >= self.near_max {
            true => self.all.len(),
            false => self.done,
        }
    }

    /// The name on disk of one that may be referred to.
    pub(super) fn key(&self, segment: u64) -> Option<Key> {
        let nth = usize::try_from(segment).ok()?;
        let (key, _) = self.all.get(nth)?;
        (self.all.len() - nth <= self.ready).then_some(*key)
    }

    /// Bytes that were put in.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next to put in.
    pub(super) fn next(&self) -> Option<Seed> {
        if self.done >= self.ready {
            return None;
        }
        let nth = self.all.len().checked_sub(self.done + 1)?;
        let &(key, lengths) = self.all.get(nth)?;
        Some(Seed {
            epoch: self.epoch,
            segment: nth as u64,
            key,
            lengths,
            is_away: self.done >= self.near_max,
        })
    }

    /// One is put in, or cannot be; false if it is not the next of this epoch.
    pub(super) fn pass(&mut self, seed: &Seed, lengths: &BlockLengths) -> bool {
        let is_next = self
            .next()
            .is_some_and(|next| (next.epoch, next.segment) == (seed.epoch, seed.segment));
        if is_next {
            self.done += 1;
        }
        if is_next && !seed.is_away {
            self.bytes += lengths.iter().map(|&length| u64::from(length)).sum::<u64>();
        }
        is_next
    }
}

/// What the other end says it has on disk.
#[derive(Debug, Default)]
pub(super) struct Offer {
    /// It has a disk.
    pub(super) is_there: bool,
    /// What both have, by number.
    pub(super) agreed: BTreeMap<u64, BlockLengths>,
    /// After the greatest number it has.
    pub(super) next: u64,
    /// All it has of our log.
    pub(super) far: Far,
}

/// No more than either says.
pub(super) fn both(a: &BlockLengths, b: &BlockLengths) -> BlockLengths {
    let mut least = [0; SEGMENT_BLOCKS];
    for (least, (a, b)) in least.iter_mut().zip(a.iter().zip(b)) {
        *least = *a.min(b);
    }
    least
}

/// A half as the thread sees it that keeps its segments on disk.
pub(super) trait Half {
    /// Names of the segments, if they are kept.
    fn shelf(&self) -> Option<Shelf>;
    /// The segments at hand.
    fn segments(&mut self) -> Option<Segments<'_>>;
    /// What is to be put in next.
    fn next_seed(&self) -> Option<Seed>;
    /// Puts it in, as far as `lengths` says; nothing if the epoch is another meanwhile.
    fn put_seed(&mut self, seed: &Seed, bytes: &[u8], lengths: &BlockLengths);
    /// What is to be read back next.
    fn next_recall(&mut self) -> Option<Recall>;
    /// Puts it in, as far as `lengths` says; nothing if the epoch is another meanwhile.
    fn put_recall(&mut self, recall: &Recall, bytes: &[u8], lengths: &BlockLengths);
    /// There is a disk.
    fn set_catalog(&mut self, catalog: SharedCatalog);
    /// What is on it.
    fn catalog(&self) -> Option<&SharedCatalog>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_go_in_from_the_newest_on_as_they_are_ready() {
        let key = |number| Key { log: 1, number };
        let mut seeds = Seeds::new(7, vec![(key(3), [9; 16]), (key(8), [5; 16])], 0, 9);
        assert!(seeds.next().is_none());
        seeds.set_ready(1);
        let first = seeds.next().unwrap();
        assert_eq!((first.segment, first.key), (1, key(8)));
        let stale = Seed { epoch: 6, ..first };
        assert!(!seeds.pass(&stale, &[5; 16]));
        assert!(seeds.pass(&first, &[5; 16]));
        assert!(!seeds.pass(&first, &[5; 16]), "once");
        assert!(seeds.next().is_none());
        seeds.set_ready(10);
        assert_eq!(seeds.next().unwrap().segment, 0);
        assert_eq!((seeds.usable(), seeds.bytes()), (1, 80));
    }

    #[test]
    fn what_there_is_no_memory_for_stays_on_disk() {
        let key = |number| Key { log: 1, number };
        let all = (0..4).map(|number| (key(number), [9; 16])).collect();
        let mut seeds = Seeds::new(7, all, 3, 2);
        let mut is_away = Vec::new();
        while let Some(seed) = seeds.next() {
            is_away.push((seed.segment, seed.is_away));
            seeds.pass(&seed, &seed.lengths);
        }
        assert_eq!(is_away, [(3, false), (2, false), (1, true)]);
        assert_eq!((seeds.usable(), seeds.bytes()), (4, 2 * 16 * 9));
        assert_eq!((seeds.key(1), seeds.key(0)), (Some(key(1)), None));
    }

    #[test]
    fn own_segments_have_new_numbers() {
        let shelf = Shelf {
            log: 1,
            epoch: 2,
            base: 100,
            seeds: 3,
        };
        assert_eq!(shelf.key(2), None);
        assert_eq!(
            shelf.key(5),
            Some(Key {
                log: 1,
                number: 102
            })
        );
    }
}
