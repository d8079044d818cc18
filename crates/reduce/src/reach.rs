//! What may be referred to: bytes the other end holds, and earlier bytes of the same flow, which arrive before the reference does.

use std::collections::{BTreeMap, VecDeque};

/// A frame the other end has not said it holds.
#[derive(Debug, Clone, Copy)]
struct Sent {
    start: u64,
    end: u64,
    flow: u64,
}

/// A stretch that was sent by reference, and to what.
#[derive(Debug, Clone, Copy)]
struct Origin {
    start: u64,
    bytes: u64,
    source: u64,
}

/// So many references that are under way are remembered, and as many that were never delivered.
const ORIGINS_MAX: usize = 16_384;
/// So many references that refer to each other are followed.
const ORIGIN_STEPS: usize = 8;

/// The boundary between what is held and what is under way.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    held: u64,
    sent: VecDeque<Sent>,
    origins: VecDeque<Origin>,
    /// Of what was forgotten, by start: bytes and source. The index may still name it.
    undelivered: BTreeMap<u64, (u64, u64)>,
}

impl Reach {
    /// A frame was finished; frames are so in the order of their positions.
    pub(crate) fn handle_sent(&mut self, start: u64, end: u64, flow: u64) {
        if let Some(last) = self
            .sent
            .back_mut()
            .filter(|last| last.flow == flow && last.end == start)
        {
            last.end = end;
            return;
        }
        self.sent.push_back(Sent { start, end, flow });
    }

    /// The other end holds everything below `position`.
    pub(crate) fn handle_held(&mut self, position: u64) {
        self.held = self.held.max(position);
        while self.sent.front().is_some_and(|sent| sent.end <= self.held) {
            self.sent.pop_front();
        }
        let is_held = |origin: &Origin| origin.start + origin.bytes <= self.held;
        while self.origins.front().is_some_and(is_held) {
            self.origins.pop_front();
        }
    }

    /// The other end holds everything from `start` to `end`, whatever is missing below.
    pub(crate) fn handle_read(&mut self, start: u64, end: u64) {
        let mut nth = self.sent.partition_point(|sent| sent.end <= start);
        while let Some(sent) = self.sent.get(nth).copied().filter(|sent| sent.start < end) {
            self.sent.remove(nth);
            let before = Sent { end: start, ..sent };
            let behind = Sent { start: end, ..sent };
            for rest in [before, behind]
                .into_iter()
                .filter(|rest| rest.start < rest.end)
            {
                self.sent.insert(nth, rest);
                nth += 1;
            }
        }
    }

    /// `bytes` from `start` on were sent as a reference to `source`. So is the newest place of that content, and out of other flows' reach
    /// while it is under way.
    pub(crate) fn note_origin(&mut self, start: u64, bytes: u64, source: u64) {
        if self.origins.len() >= ORIGINS_MAX {
            self.origins.pop_front();
        }
        self.origins.push_back(Origin {
            start,
            bytes,
            source,
        });
    }

    /// What is between these positions will never be delivered.
    pub(crate) fn forget(&mut self, start: u64, end: u64) {
        let first = self.origins.partition_point(|origin| origin.start < start);
        let gone = self.origins.iter().skip(first);
        for origin in gone.take_while(|origin| origin.start < end) {
            let what = (origin.bytes, origin.source);
            self.undelivered.insert(origin.start, what);
            if self.undelivered.len() > ORIGINS_MAX {
                self.undelivered.pop_first();
            }
        }
    }

    /// Where `flow` may refer to for what was at `position` before it was forgotten.
    pub(crate) fn origin_of_undelivered(&self, position: u64, flow: u64, end: u64) -> Option<u64> {
        let mut at = self.source_of_undelivered(position)?;
        for _ in 0..ORIGIN_STEPS {
            match self.source_of_undelivered(at) {
                Some(before) => at = before,
                None => return (self.end_from(at, flow, end) > at).then_some(at),
            }
        }
        None
    }

    fn source_of_undelivered(&self, position: u64) -> Option<u64> {
        let (start, (bytes, source)) = self.undelivered.range(..=position).next_back()?;
        let offset = position - start;
        (offset < *bytes).then_some(source + offset)
    }

    /// Whether what the index names may be out of the reach of `flow`, or not there any more.
    pub(crate) fn has_origins(&self, flow: u64) -> bool {
        !self.is_only(flow) || !self.undelivered.is_empty()
    }

    /// Where `flow` may refer to for what is at `position`, which is out of its reach.
    pub(crate) fn origin(&self, position: u64, flow: u64, end: u64) -> Option<u64> {
        if self.is_only(flow) {
            return None;
        }
        let mut at = position;
        for _ in 0..ORIGIN_STEPS {
            if self.end_from(at, flow, end) > at {
                return (at != position).then_some(at);
            }
            let after = self.origins.partition_point(|origin| origin.start <= at);
            let origin = self.origins.get(after.checked_sub(1)?)?;
            let offset = at - origin.start;
            if offset >= origin.bytes {
                return None;
            }
            at = origin.source + offset;
        }
        None
    }

    /// Whether nothing of another flow is under way, as when there is one flow at a time.
    fn is_only(&self, flow: u64) -> bool {
        self.sent.len() <= 1 && self.sent.front().is_none_or(|sent| sent.flow == flow)
    }

    /// Up to where `flow` may refer from `position` on; `end` is the end of the log, and what was not sent yet is of this flow.
    pub(crate) fn end_from(&self, position: u64, flow: u64, end: u64) -> u64 {
        if self.is_only(flow) {
            return end;
        }
        let after = self.sent.partition_point(|sent| sent.end <= position);
        let foreign = self.sent.iter().skip(after).find(|sent| sent.flow != flow);
        let Some(foreign) = foreign else {
            return end;
        };
        // Of a frame that is held in part the rest is under way.
        foreign.start.max(self.held.min(foreign.end)).min(end)
    }

    /// Of `bytes` before `position`, how many `flow` may refer to.
    pub(crate) fn clip_back(&self, position: u64, bytes: usize, flow: u64) -> usize {
        if self.is_only(flow) {
            return bytes;
        }
        let start = position - bytes as u64;
        let until = self.sent.partition_point(|sent| sent.start < position);
        let foreign = self
            .sent
            .iter()
            .take(until)
            .rev()
            .find(|sent| sent.flow != flow && sent.end > self.held);
        let first = foreign.map_or(start, |foreign| foreign.end.clamp(start, position));
        (position - first) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_bytes_under_way_are_out_of_reach() {
        let mut reach = Reach::default();
        reach.handle_sent(0, 100, 1);
        reach.handle_sent(100, 200, 2);
        reach.handle_sent(200, 300, 1);
        assert_eq!(reach.end_from(10, 1, 350), 100);
        assert_eq!(reach.end_from(10, 2, 350), 0, "nothing of it");
        assert_eq!(reach.end_from(210, 1, 350), 350);
        assert_eq!(reach.clip_back(210, 50, 1), 10);
        assert_eq!(reach.clip_back(150, 80, 2), 50);
        reach.handle_held(200);
        assert_eq!(reach.end_from(10, 1, 350), 350);
        assert_eq!(reach.end_from(10, 2, 350), 200);
        assert_eq!(reach.clip_back(210, 50, 1), 50);
    }

    #[test]
    fn what_was_read_behind_a_gap_is_in_reach() {
        let mut reach = Reach::default();
        reach.handle_sent(0, 100, 1);
        reach.handle_sent(100, 300, 2);
        reach.handle_sent(300, 400, 1);
        reach.handle_read(150, 200);
        assert_eq!(reach.end_from(110, 3, 500), 100, "not read");
        assert_eq!(reach.end_from(150, 3, 500), 200);
        assert_eq!(reach.clip_back(190, 80, 3), 40);
        reach.handle_read(100, 150);
        reach.handle_read(200, 400);
        assert_eq!(reach.end_from(100, 3, 500), 500);
        assert_eq!(
            reach.end_from(10, 3, 500),
            0,
            "the first is still under way"
        );
        reach.handle_held(100);
        assert_eq!(reach.end_from(10, 3, 500), 500);
    }

    #[test]
    fn a_reference_under_way_stands_for_what_it_refers_to() {
        let mut reach = Reach::default();
        reach.handle_held(1000);
        reach.handle_sent(1000, 1500, 1);
        reach.note_origin(1000, 500, 200);
        reach.handle_sent(1500, 1600, 2);
        reach.note_origin(1500, 100, 1300);
        assert_eq!(reach.origin(1350, 3, 1600), Some(550));
        assert_eq!(
            reach.origin(1510, 3, 1600),
            Some(510),
            "of a reference to one"
        );
        assert_eq!(reach.origin(1350, 1, 1600), None, "its own");
        assert_eq!(reach.origin(50, 3, 1600), None, "it is in reach");
        reach.handle_held(1600);
        assert!(reach.origins.is_empty());
    }

    #[test]
    fn what_was_never_delivered_stands_for_what_it_referred_to() {
        let mut reach = Reach::default();
        reach.handle_held(1000);
        reach.handle_sent(1000, 1500, 1);
        reach.note_origin(1000, 500, 200);
        reach.handle_sent(1500, 1600, 1);
        reach.note_origin(1500, 100, 1300);
        reach.forget(1000, 1600);
        reach.handle_held(1600);
        assert_eq!(reach.origin_of_undelivered(1350, 2, 1700), Some(550));
        assert_eq!(reach.origin_of_undelivered(1510, 2, 1700), Some(510));
        assert_eq!(reach.origin_of_undelivered(1650, 2, 1700), None);
        assert_eq!(reach.origin_of_undelivered(900, 2, 1700), None);
    }

    #[test]
    fn a_frame_held_in_part_is_in_reach_in_part() {
        let mut reach = Reach::default();
        reach.handle_sent(0, 100, 1);
        reach.handle_held(40);
        assert_eq!(reach.end_from(10, 2, 100), 40);
        assert_eq!(reach.end_from(60, 2, 100).saturating_sub(60), 0);
    }
}
