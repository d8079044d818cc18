//! Up to which position a log is held, although its frames come in any order.

use std::collections::BTreeMap;

/// Stretches beyond a gap at most.
const AHEAD_MAX: usize = 65_536;

/// The position below which nothing is missing.
#[derive(Debug, Default)]
pub(super) struct Held {
    next: u64,
    /// Start and end of what is beyond a gap.
    ahead: BTreeMap<u64, u64>,
}

/// Too many gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooManyGaps;

impl Held {
    pub(super) fn new(next: u64) -> Self {
        Self {
            next,
            ahead: BTreeMap::new(),
        }
    }

    pub(super) fn position(&self) -> u64 {
        self.next
    }

    /// Nothing below this position need be waited for.
    pub(super) fn raise(&mut self, position: u64) {
        let bytes = position.saturating_sub(self.next);
        // Without a gap there cannot be too many.
        let _ = self.add(self.next, bytes);
    }

    /// These positions are here, or need not be waited for; true if that moved the position.
    pub(super) fn add(&mut self, start: u64, bytes: u64) -> Result<bool, TooManyGaps> {
        let end = start.saturating_add(bytes);
        if start > self.next {
            self.add_ahead(start, end);
            return match self.ahead.len() > AHEAD_MAX {
                true => Err(TooManyGaps),
                false => Ok(false),
            };
        }
        let before = self.next;
        self.next = self.next.max(end);
        while let Some(first) = self.ahead.first_entry()
            && *first.key() <= self.next
        {
            self.next = self.next.max(first.remove());
        }
        Ok(self.next > before)
    }

    /// Adds a stretch beyond a gap, as one with those it touches.
    fn add_ahead(&mut self, mut start: u64, mut end: u64) {
        let touched = self.ahead.range(..=start).next_back();
        if let Some((&before, &its_end)) = touched.filter(|(_, its_end)| **its_end >= start) {
            (start, end) = (before, end.max(its_end));
        }
        while let Some((&next, &its_end)) = self.ahead.range(start..=end).next() {
            end = end.max(its_end);
            self.ahead.remove(&next);
        }
        self.ahead.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_holds_the_position_until_it_is_closed() {
        let mut held = Held::new(100);
        assert_eq!(held.add(150, 10), Ok(false));
        assert_eq!(held.add(120, 30), Ok(false));
        assert_eq!(held.position(), 100);
        assert_eq!(held.add(90, 5), Ok(false));
        assert_eq!(held.add(100, 20), Ok(true));
        assert_eq!(held.position(), 160);
        assert_eq!(held.add(100, 20), Ok(false));
    }

    #[test]
    fn what_came_before_the_position_was_raised_still_counts() {
        let mut held = Held::new(100);
        assert_eq!(held.add(200, 10), Ok(false));
        held.raise(200);
        assert_eq!(held.position(), 210);
        held.raise(150);
        assert_eq!(held.position(), 210);
    }

    #[test]
    fn what_touches_is_one_stretch() {
        let mut held = Held::new(100);
        for nth in [5, 1, 2, 4, 3, 3, 9] {
            assert_eq!(held.add(100 + nth * 10, 10), Ok(false));
        }
        assert_eq!(held.ahead, BTreeMap::from([(110, 160), (190, 200)]));
        assert_eq!(held.add(115, 80), Ok(false));
        assert_eq!(held.ahead, BTreeMap::from([(110, 200)]));
        for nth in 0..70_000 {
            assert_eq!(held.add(200 + nth, 1), Ok(false), "records behind one gap");
        }
        assert_eq!(held.add(100, 10), Ok(true));
        assert_eq!(held.position(), 70_200);
    }

    #[test]
    fn invariant_5_gaps_are_bounded() {
        let mut held = Held::default();
        let worst = (0..70_000).map(|nth| held.add(10 + 2 * nth, 1));
        assert_eq!(
            worst.filter(|added| added.is_err()).count(),
            70_000 - 65_536
        );
    }
}
