//! Segments that left the memory and are wanted again: which of them both ends have on disk, and which are being read.
//!
//! The encoder refers to nothing it has not read back, and reads back only what the peer said it has on disk, too ([`Far`]). The peer's
//! decoder reads it when a record refers to it. What the peer says may be out of date; then a record is asked for again.

use std::collections::{BTreeMap, VecDeque};

use farhaul_reduce::{BlockLengths, ReadAt};

use crate::store::{Key, Listed};

/// Segments that wait to be read.
const WAITING_MAX: usize = 256;
/// Segments of the peer that are remembered: a terabyte.
const FAR_MAX: usize = 1 << 20;

/// A segment to be read from disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recall {
    /// Of which epoch.
    pub(super) epoch: u64,
    pub(super) read: ReadAt,
    pub(super) key: Key,
    /// No more of it than this.
    pub(super) lengths: BlockLengths,
}

/// Segments that are being read from disk.
#[derive(Debug, Default)]
pub(super) struct Recalls {
    waiting: VecDeque<Recall>,
    /// The one that is being read.
    current: Option<u64>,
}

impl Recalls {
    pub(super) fn is_pending(&self, segment: u64) -> bool {
        let is_waiting = |recall: &Recall| recall.read.segment == segment;
        self.current == Some(segment) || self.waiting.iter().any(is_waiting)
    }

    /// Whether it will be read: what is needed now goes before what may be needed later.
    pub(super) fn ask(&mut self, recall: Recall) -> bool {
        if self.is_pending(recall.read.segment) {
            return true;
        }
        if self.waiting.len() >= WAITING_MAX {
            return false;
        }
        let before = match recall.read.is_ahead {
            true => self.waiting.len(),
            false => self
                .waiting
                .partition_point(|waiting| !waiting.read.is_ahead),
        };
        self.waiting.insert(before, recall);
        true
    }

    /// The next to read.
    pub(super) fn next(&mut self) -> Option<Recall> {
        let next = self.waiting.pop_front();
        self.current = next.map(|recall| recall.read.segment);
        next
    }

    /// The one that was read is no longer pending.
    pub(super) fn pass(&mut self) {
        self.current = None;
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.current = None;
    }
}

/// What the peer says it has on disk of our log.
#[derive(Debug, Default)]
pub(super) struct Far {
    /// It is of a version that reads back what a record refers to.
    pub(super) is_recalling: bool,
    /// Below this number the next may go at any time.
    from: u64,
    segments: BTreeMap<u64, Listed>,
}

impl Far {
    /// It has these, and nothing below `from` is to be relied on.
    pub(super) fn add(&mut self, from: u64, segments: &[Listed]) {
        self.from = from;
        self.segments
            .extend(segments.iter().map(|listed| (listed.number, *listed)));
        let kept = self.segments.split_off(&from);
        self.segments = kept;
        while self.segments.len() > FAR_MAX {
            self.segments.pop_first();
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<&Listed> {
        let listed = self.segments.get(&number);
        listed.filter(|_| self.is_recalling && number >= self.from)
    }

    /// All it has, as far as it is to be relied on.
    pub(super) fn all(&self) -> impl Iterator<Item = &Listed> {
        self.segments.values().filter(|_| self.is_recalling)
    }

    /// It has forgotten everything.
    pub(super) fn clear(&mut self) {
        self.segments.clear();
    }

    /// It has not what it said.
    pub(super) fn remove(&mut self, number: u64) {
        self.segments.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recall(segment: u64, is_ahead: bool) -> Recall {
        Recall {
            epoch: 1,
            read: ReadAt {
                segment,
                position: 0,
                is_ahead,
            },
            key: Key {
                log: 1,
                number: segment,
            },
            lengths: [1; 16],
        }
    }

    #[test]
    fn what_is_needed_now_is_read_first_and_once() {
        let mut recalls = Recalls::default();
        for (segment, is_ahead) in [(1, true), (2, false), (3, true), (4, false), (2, false)] {
            assert!(recalls.ask(recall(segment, is_ahead)));
        }
        let mut order = Vec::new();
        while let Some(next) = recalls.next() {
            assert!(recalls.is_pending(next.read.segment));
            order.push(next.read.segment);
        }
        assert_eq!(order, [2, 4, 1, 3]);
        recalls.pass();
        assert!(!recalls.is_pending(3));
    }

    #[test]
    fn invariant_5_what_waits_to_be_read_is_bounded() {
        let mut recalls = Recalls::default();
        let taken = (0..1000).filter(|&segment| recalls.ask(recall(segment, true)));
        assert_eq!(taken.count(), WAITING_MAX);
    }

    #[test]
    fn what_the_peer_gives_up_is_no_longer_known() {
        let listed = |number| Listed {
            number,
            whole: 1,
            root: [0; 16],
            tail: 0,
            tail_bytes: 0,
            tail_hash: [0; 16],
        };
        let mut far = Far::default();
        far.add(0, &[listed(1), listed(2), listed(3)]);
        assert!(far.get(2).is_none(), "an older version does not read back");
        far.is_recalling = true;
        far.add(2, &[listed(4)]);
        assert!(far.get(1).is_none() && far.get(2).is_some() && far.get(4).is_some());
        far.remove(2);
        assert!(far.get(2).is_none());
    }
}
