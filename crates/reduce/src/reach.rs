//! What may be referred to: bytes the other end holds, and earlier bytes of the same flow, which arrive before the reference does.

use std::collections::VecDeque;

/// A frame the other end has not said it holds.
#[derive(Debug, Clone, Copy)]
struct Sent {
    start: u64,
    end: u64,
    flow: u64,
}

/// The boundary between what is held and what is under way.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    held: u64,
    sent: VecDeque<Sent>,
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
    fn a_frame_held_in_part_is_in_reach_in_part() {
        let mut reach = Reach::default();
        reach.handle_sent(0, 100, 1);
        reach.handle_held(40);
        assert_eq!(reach.end_from(10, 2, 100), 40);
        assert_eq!(reach.end_from(60, 2, 100).saturating_sub(60), 0);
    }
}
