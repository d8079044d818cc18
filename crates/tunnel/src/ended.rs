//! Which flow ids of the peer were seen, kept as ranges: a year of flows costs a few bytes. A seen
//! id without a live flow has ended, and frames that still arrive for it are ignored.

use std::collections::BTreeMap;

/// A set of `u64` stored as disjoint, non-touching inclusive ranges. Insertion and look-up are
/// O(log ranges).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FlowSet {
    ranges: BTreeMap<u64, u64>,
}

impl FlowSet {
    /// Adds `index`; false when it was in the set already.
    pub(crate) fn insert(&mut self, index: u64) -> bool {
        let below = self
            .ranges
            .range(..=index)
            .next_back()
            .map(|(a, b)| (*a, *b));
        if below.is_some_and(|(_, end)| end >= index) {
            return false;
        }
        let mut start = index;
        let mut end = index;
        if let Some((below_start, below_end)) = below
            && below_end.checked_add(1) == Some(index)
        {
            start = below_start;
        }
        if let Some(above_start) = index.checked_add(1)
            && let Some(above_end) = self.ranges.remove(&above_start)
        {
            end = above_end;
        }
        self.ranges.insert(start, end);
        true
    }

    /// Whether `index` is in the set.
    pub(crate) fn contains(&self, index: u64) -> bool {
        let below = self.ranges.range(..=index).next_back();
        below.is_some_and(|(_, end)| *end >= index)
    }

    /// The lowest number not in the set.
    pub(crate) fn first_absent(&self) -> u64 {
        self.ranges.get(&0).map_or(0, |end| end.saturating_add(1))
    }

    /// How many ranges are stored: what the set costs.
    pub(crate) fn range_count(&self) -> usize {
        self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn touching_numbers_become_one_range() {
        let mut set = FlowSet::default();
        for index in [3, 1, 0, 2, u64::MAX, u64::MAX - 1] {
            assert!(set.insert(index));
        }
        assert_eq!(set.range_count(), 2);
        assert_eq!(set.first_absent(), 4);
        assert!(!set.insert(2));
        assert!(!set.insert(u64::MAX));
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(numbers in prop::collection::vec(0u64..60, 0..200)) {
            let mut ranges = FlowSet::default();
            let mut plain = BTreeSet::new();
            for number in numbers {
                prop_assert_eq!(ranges.insert(number), plain.insert(number));
            }
            for number in 0..62 {
                prop_assert_eq!(ranges.contains(number), plain.contains(&number));
            }
            let runs = plain.iter().filter(|n| **n == 0 || !plain.contains(&(**n - 1))).count();
            prop_assert_eq!(ranges.range_count(), runs);
            let absent = (0..62).find(|n| !plain.contains(n));
            prop_assert_eq!(Some(ranges.first_absent()), absent);
        }
    }
}
