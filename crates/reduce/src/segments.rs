//! The segments of a log as its owner sees them, who may keep them elsewhere, too, and put them into another log later.
//!
//! A segment is looked at in blocks of 64 KiB. Of each block it counts how many bytes are there from its beginning on, without a
//! gap: frames of different flows arrive in any order, and some never do.

use crate::copy::append;
use crate::log::{Log, SEGMENT_BYTES};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Blocks of a segment.
pub const SEGMENT_BLOCKS: usize = SEGMENT_BYTES / BLOCK_BYTES;
/// How much of each block is there, from its beginning on.
pub type BlockLengths = [u32; SEGMENT_BLOCKS];

/// Gaps in one segment that are remembered; what comes beyond more of them counts as not there.
const RANGES_MAX: usize = 64;

/// What of a segment is there: ranges in order that do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Written {
    ranges: Vec<(u32, u32)>,
}

impl Written {
    /// These bytes are there.
    pub(crate) fn add(&mut self, start: u32, end: u32) {
        if let Some(last) = self.ranges.last_mut().filter(|last| last.1 == start) {
            last.1 = end;
            return;
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let after = self.ranges.partition_point(|range| range.0 <= end);
        if first >= after {
            if self.ranges.len() < RANGES_MAX && start < end {
                self.ranges.insert(first, (start, end));
            }
            return;
        }
        let touched = self.ranges.get(first..after).unwrap_or_default();
        let whole = touched.iter().fold((start, end), |whole, range| {
            (whole.0.min(range.0), whole.1.max(range.1))
        });
        self.ranges.splice(first..after, [whole]);
    }

    /// Nothing from `end` on is there.
    pub(crate) fn cut(&mut self, end: u32) {
        self.ranges.retain_mut(|range| {
            range.1 = range.1.min(end);
            range.0 < range.1
        });
    }

    /// Nothing from `start` to `end` is there any more.
    pub(crate) fn remove(&mut self, start: u32, end: u32) {
        let mut after = None;
        self.ranges.retain_mut(|range| {
            if start <= range.0 {
                range.0 = range.0.max(end.min(range.1));
            } else if start < range.1 {
                after = (end < range.1).then_some((end, range.1));
                range.1 = start;
            }
            range.0 < range.1
        });
        if let Some((start, end)) = after {
            self.add(start, end);
        }
    }

    pub(crate) fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }

    /// How much of each block is there without a gap.
    pub(crate) fn lengths(&self) -> BlockLengths {
        let mut lengths = [0; SEGMENT_BLOCKS];
        for (length, start) in lengths.iter_mut().zip((0u32..).step_by(BLOCK_BYTES)) {
            let range = self.ranges.iter().find(|range| range.1 > start);
            *length = range
                .filter(|range| range.0 <= start)
                .map_or(0, |range| (range.1 - start).min(BLOCK_BYTES as u32));
        }
        lengths
    }

    /// What these lengths say is there.
    pub(crate) fn of(lengths: &BlockLengths) -> Self {
        let mut written = Self::default();
        for (&length, start) in lengths.iter().zip((0u32..).step_by(BLOCK_BYTES)) {
            if length > 0 {
                written.add(start, start + length.min(BLOCK_BYTES as u32));
            }
        }
        written
    }
}

/// A log's segments by their numbers: the address of a segment's first byte is its number times [`SEGMENT_BYTES`].
pub struct Segments<'a>(pub(crate) &'a mut Log);

impl Segments<'_> {
    /// Of a log in which nothing is yet: its first `count` segments, and as many virtual positions, are for what is put in later.
    pub fn reserve(&mut self, count: u64) {
        self.0.reserve(count);
    }

    /// The number after the last segment of which something is there.
    pub fn end(&self) -> u64 {
        self.0.address().div_ceil(SEGMENT_BYTES as u64)
    }

    /// From now on [`Segments::take_changed`] tells what was written, and what is no longer at hand counts as being elsewhere.
    pub fn watch(&mut self) {
        self.0.watch();
    }

    /// Numbers of the segments that were written since this was asked last, each once.
    pub fn take_changed(&mut self) -> Vec<u64> {
        self.0.take_changed()
    }

    /// Whether a segment is at hand with every byte; `None` if it is not at hand.
    pub fn is_whole(&self, number: u64) -> Option<bool> {
        let (_, written) = self.0.segment_bytes(number)?;
        Some(written.ranges() == [(0, SEGMENT_BYTES as u32)])
    }

    /// Copies a segment, gaps and all, and says what of it is there; `None` if it is not at hand.
    pub fn copy(&self, number: u64, into: &mut Vec<u8>) -> Option<BlockLengths> {
        let (bytes, written) = self.0.segment_bytes(number)?;
        into.clear();
        append(into, bytes);
        Some(written.lengths())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_block_counts_up_to_its_first_gap() {
        let mut written = Written::default();
        written.add(0, 100);
        written.add(200, 70_000);
        written.add(131_073, 200_000);
        let mut lengths = [0; SEGMENT_BLOCKS];
        lengths[..4].copy_from_slice(&[100, 4464, 0, 3392]);
        assert_eq!(written.lengths(), lengths);
        written.add(100, 200);
        lengths[0] = 65_536;
        assert_eq!(written.lengths(), lengths);
        assert_eq!(Written::of(&lengths).lengths(), lengths);
    }

    #[test]
    fn what_is_removed_is_no_longer_there() {
        let mut written = Written::default();
        written.add(0, 100);
        written.add(200, 300);
        written.remove(40, 60);
        assert_eq!(written.ranges(), [(0, 40), (60, 100), (200, 300)]);
        written.remove(90, 210);
        assert_eq!(written.ranges(), [(0, 40), (60, 90), (210, 300)]);
        written.remove(0, 40);
        written.remove(290, 400);
        assert_eq!(written.ranges(), [(60, 90), (210, 290)]);
        written.remove(0, 1000);
        assert_eq!(written.ranges(), []);
    }

    #[test]
    fn invariant_5_gaps_of_a_segment_are_bounded() {
        let mut written = Written::default();
        for nth in 0..1000 {
            written.add(nth * 4, nth * 4 + 2);
        }
        assert_eq!(written.ranges().len(), RANGES_MAX);
    }

    proptest! {
        #[test]
        fn ranges_are_what_was_added(adds in proptest::collection::vec((0u32..400, 0u32..60), 0..40)) {
            let mut written = Written::default();
            let mut model = [false; 500];
            for (start, bytes) in adds {
                written.add(start, start + bytes);
                model[start as usize..(start + bytes) as usize].fill(true);
            }
            for (at, is_there) in model.into_iter().enumerate() {
                let at = at as u32;
                let found = written.ranges().iter().any(|range| (range.0..range.1).contains(&at));
                prop_assert_eq!(found, is_there, "{}", at);
            }
            for pair in written.ranges().windows(2) {
                prop_assert!(pair[0].1 < pair[1].0);
            }
        }
    }
}
