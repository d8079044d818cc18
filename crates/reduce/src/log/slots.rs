//! Which segments the memory holds, and which goes when a new one needs room.

use super::{Log, Segment};

impl Log {
    /// The slot of a segment; a new segment gets one.
    pub(super) fn slot_for(&mut self, number: u64) -> Option<u32> {
        let end = self.first + self.segments.len() as u64;
        if number.saturating_sub(end) >= self.segments_max as u64 {
            // What lies between was sent to nobody who read it, and there is no room for its numbers.
            while !self.segments.is_empty() {
                self.forget_first()?;
            }
        }
        if self.segments.is_empty() {
            self.first = number;
        }
        while number.checked_sub(self.first)? >= self.segments.len() as u64 {
            if self.segments.len() >= self.segments_max {
                self.forget_first()?;
            }
            self.segments.push_back(Segment::default());
        }
        if let Some(slot) = self.segment(number)?.slot {
            return Some(slot);
        }
        let slot = self.free_slot(number)?;
        *self.slots.get_mut(slot as usize)? = Some(number);
        self.segment_mut(number)?.slot = Some(slot);
        Some(slot)
    }

    /// Makes the table of segments one shorter, also where its first is used again and again. `None` if that is pinned.
    fn forget_first(&mut self) -> Option<()> {
        let first = self.segments.front()?;
        match first.slot {
            Some(_) if first.pins > 0 => None,
            Some(slot) => {
                self.evict(self.first, slot as usize);
                Some(())
            }
            None => {
                self.segments.pop_front();
                self.first += 1;
                Some(())
            }
        }
    }

    /// A slot without segment, if need be after evicting one.
    pub(super) fn free_slot(&mut self, newcomer: u64) -> Option<u32> {
        let laps = 3 * self.slots.len();
        for step in 0..laps {
            let spares_due = step < laps - self.slots.len();
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let Some(number) = self.slots.get(slot).copied().flatten() else {
                return Some(slot as u32);
            };
            if number + 1 < newcomer && self.may_go(number, spares_due) {
                self.evict(number, slot);
                return Some(slot as u32);
            }
        }
        None
    }

    /// Whether a segment is neither pinned nor used since it was looked at last, nor spared because it will be used.
    fn may_go(&mut self, number: u64, spares_due: bool) -> bool {
        let Some(segment) = self.segment_mut(number) else {
            return true;
        };
        let may_go = segment.pins == 0 && !segment.is_recent && !(spares_due && segment.is_due);
        segment.is_recent = false;
        may_go
    }

    /// What is encoded next refers to these segments, and not to what was told before: as long as there is room elsewhere, they stay.
    pub(crate) fn set_due(&mut self, numbers: Vec<u64>) {
        let before = std::mem::replace(&mut self.due, numbers);
        self.mark_due(&before, false);
        let now = std::mem::take(&mut self.due);
        self.mark_due(&now, true);
        self.due = now;
    }

    fn mark_due(&mut self, numbers: &[u64], is_due: bool) {
        for &number in numbers {
            if let Some(segment) = self.segment_mut(number) {
                segment.is_due = is_due;
            }
        }
    }

    fn evict(&mut self, number: u64, slot: usize) {
        if let Some(segment) = self.segment_mut(number) {
            segment.slot = None;
            segment.written.clear();
            (segment.is_changed, segment.is_partial) = (false, true);
        }
        self.is_any_away = true;
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = None;
        }
        while self
            .segments
            .front()
            .is_some_and(|segment| segment.slot.is_none())
        {
            self.segments.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Found, NOWHERE, SEGMENT_BITS, SEGMENT_BYTES};

    fn log() -> Log {
        let mut log = Log::new(4 * SEGMENT_BYTES, 10_000, |_, _, _| ());
        log.watch();
        log
    }

    fn release(log: &mut Log) {
        let pinned = log.take_pinned();
        log.unpin(&pinned);
    }

    /// The other end says where what it sends belongs, and may come back to the first of it again and again.
    #[test]
    fn invariant_5_the_table_of_segments_is_bounded() {
        let mut log = log();
        log.segments_max = 8;
        for nth in 0..100u64 {
            let mut places = Vec::new();
            log.keep_at((nth * 3) << SEGMENT_BITS, b"0123456789", &mut places);
            log.put(log.end(), &places);
            log.places(0, 10, NOWHERE, &mut Vec::new());
            release(&mut log);
            assert!(log.segments.len() <= 8, "{}", log.segments.len());
        }
        let last = log.read(log.end() - 10, NOWHERE).0;
        assert_eq!(last, Found::Bytes(b"0123456789"));
        assert_eq!(log.read(0, NOWHERE).0, Found::Away(0));
    }

    /// The other end's addresses may be anywhere.
    #[test]
    fn invariant_5_the_table_is_bounded_however_far_an_address_is() {
        let mut log = log();
        for number in [0, 3, 1 << 21, 1 << 39] {
            log.keep_at(number << SEGMENT_BITS, b"0123456789", &mut Vec::new());
            release(&mut log);
            assert!(log.segments.len() <= 4, "{}", log.segments.len());
            assert_eq!(log.first + log.segments.len() as u64, number + 1);
        }
    }

    #[test]
    fn what_comes_late_into_a_segment_that_went_is_all_there_is_of_it() {
        let mut log = log();
        for nth in 0..8 {
            log.append(&vec![nth; SEGMENT_BYTES]);
            release(&mut log);
        }
        for number in [1, 2] {
            assert!(log.recall(number, &vec![1; SEGMENT_BYTES], &[65_536; 16]));
        }
        let late = (4 << SEGMENT_BITS) + 5000;
        log.keep_at(late, &[9; 100], &mut Vec::new());
        assert!(log.read(late - 10, NOWHERE).0 == Found::Missing);
        assert!(log.read(late, NOWHERE).0 == Found::Bytes(&[9; 100]));
        assert!(log.read(late + 100, NOWHERE).0 == Found::Missing);
    }
}
