//! What the other end has received out of order: disjoint ranges in order.
//! The receiver keeps its own in it, the sender what it was told of them.

/// Disjoint, ordered ranges of sequence numbers, ends exclusive. There are
/// never more than fit between the lowest and the highest byte of a window.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scoreboard {
    ranges: Vec<(u64, u64)>,
    bytes: u64,
}

impl Scoreboard {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes in all ranges.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }

    /// Adds a range and returns the one it became part of.
    pub(crate) fn insert(&mut self, start: u64, end: u64) -> (u64, u64) {
        if start >= end {
            return (start, start);
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let last = self.ranges.partition_point(|range| range.0 <= end);
        let touched = self.ranges.get(first..last).unwrap_or_default();
        let merged = (
            touched.first().map_or(start, |range| range.0.min(start)),
            touched.last().map_or(end, |range| range.1.max(end)),
        );
        let known: u64 = touched.iter().map(|(start, end)| end - start).sum();
        self.bytes += (merged.1 - merged.0) - known;
        self.ranges.splice(first..last, [merged]);
        merged
    }

    /// Forgets everything below `seq`.
    pub(crate) fn trim(&mut self, seq: u64) {
        let gone = self.ranges.partition_point(|range| range.1 <= seq);
        let gone_bytes: u64 = self
            .ranges
            .drain(..gone)
            .map(|(start, end)| end - start)
            .sum();
        self.bytes -= gone_bytes;
        if let Some(first) = self.ranges.first_mut()
            && first.0 < seq
        {
            self.bytes -= seq - first.0;
            first.0 = seq;
        }
    }

    /// The end of the range that holds `seq`, or `seq` itself.
    pub(crate) fn skip(&self, seq: u64) -> u64 {
        let at = self.ranges.partition_point(|range| range.1 <= seq);
        match self.ranges.get(at) {
            Some((start, end)) if *start <= seq => *end,
            _ => seq,
        }
    }

    /// Takes out the range that begins at or below `seq`, if it reaches beyond.
    pub(crate) fn take_from(&mut self, seq: u64) -> u64 {
        let end = self.skip(seq);
        self.trim(end);
        end
    }

    /// The first hole in `from..to`: from its start to where it ends.
    pub(crate) fn hole(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let start = self.skip(from);
        if start >= to {
            return None;
        }
        let at = self.ranges.partition_point(|range| range.0 <= start);
        let end = self.ranges.get(at).map_or(to, |range| range.0.min(to));
        Some((start, end))
    }

    /// Bytes missing in `from..to`.
    pub(crate) fn missing_bytes(&self, from: u64, to: u64) -> u64 {
        let mut missing = to.saturating_sub(from);
        for (start, end) in &self.ranges {
            let (start, end) = ((*start).max(from), (*end).min(to));
            missing -= end.saturating_sub(start);
        }
        missing
    }

    /// What is missing below this was lost: more than `above_bytes` arrived
    /// above it (RFC 6675, IsLost). 0 when nothing counts as lost.
    pub(crate) fn lost_below(&self, above_bytes: u64) -> u64 {
        let mut seen = 0;
        for (start, end) in self.ranges.iter().rev() {
            seen += end - start;
            if seen > above_bytes {
                return *start;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn board(ranges: &[(u64, u64)]) -> Scoreboard {
        let mut board = Scoreboard::default();
        for (start, end) in ranges {
            board.insert(*start, *end);
        }
        board
    }

    #[test]
    fn holes_are_found_and_counted() {
        let board = board(&[(10, 20), (30, 40), (50, 60)]);
        assert_eq!(board.hole(5, 60), Some((5, 10)));
        assert_eq!(board.hole(10, 60), Some((20, 30)));
        assert_eq!(board.hole(35, 45), Some((40, 45)));
        assert_eq!(board.hole(50, 60), None);
        assert_eq!(board.missing_bytes(0, 60), 30);
        assert_eq!(board.missing_bytes(35, 55), 10);
        assert_eq!(board.lost_below(9), 50);
        assert_eq!(board.lost_below(10), 30);
        assert_eq!(board.lost_below(30), 0);
    }

    proptest! {
        #[test]
        fn it_knows_what_a_set_of_bytes_knows(
            inserts in prop::collection::vec((0u64..200, 1u64..30), 0..40),
            trim in 0u64..200,
        ) {
            let mut board = Scoreboard::default();
            let mut bytes = std::collections::BTreeSet::new();
            for (start, length) in inserts {
                board.insert(start, start + length);
                bytes.extend(start..start + length);
            }
            board.trim(trim);
            bytes.retain(|byte| *byte >= trim);
            prop_assert_eq!(board.bytes(), bytes.len() as u64);
            prop_assert_eq!(board.missing_bytes(0, 300), 300 - bytes.len() as u64);
            let mut last_end = None;
            for (start, end) in board.iter() {
                prop_assert!(start < end && last_end.is_none_or(|last| last < start));
                prop_assert!((start..end).all(|byte| bytes.contains(&byte)));
                last_end = Some(end);
            }
            for seq in 0..240 {
                let expected = (seq..).find(|byte| !bytes.contains(byte)).unwrap();
                prop_assert_eq!(board.skip(seq), expected);
            }
        }
    }
}
