//! The receiving half: what arrived in order, what out of it, and when that
//! is said.

use super::retransmit_timer::RetransmitTimer;
use super::scoreboard::Scoreboard;
use super::segment::{SackBlocks, Segment};

/// Receiving half of one end.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    /// Next byte expected; 0 before the SYN.
    next: u64,
    early: Scoreboard,
    /// The range that the latest segment out of order is in.
    latest: Option<(u64, u64)>,
    fin_at: Option<u64>,
    /// Received and not yet acknowledged.
    unsaid_bytes: u64,
    quick_acks: u32,
    ack_at_ns: Option<u64>,
    ack_now: bool,
    /// Timestamp to be echoed.
    echo_ns: u64,
}

/// What a segment brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Arrival {
    /// New bytes in order.
    pub(crate) bytes: u64,
    /// The other end's last byte is in.
    pub(crate) is_last: bool,
}

impl Receiver {
    pub(crate) fn new(quick_acks: u32) -> Self {
        Self {
            next: 0,
            early: Scoreboard::default(),
            latest: None,
            fin_at: None,
            unsaid_bytes: 0,
            quick_acks,
            ack_at_ns: None,
            ack_now: false,
            echo_ns: 0,
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.fin_at.is_some_and(|fin| fin < self.next)
    }

    /// The other end's SYN.
    pub(crate) fn synchronise(&mut self, segment: &Segment) {
        self.next = self.next.max(1);
        self.echo_ns = segment.timestamp_ns;
    }

    /// An acknowledgement is owed at once.
    pub(crate) fn demand_ack(&mut self) {
        self.ack_now = true;
    }

    pub(crate) fn owes_ack(&self) -> bool {
        self.ack_now
    }

    pub(crate) fn ack_at_ns(&self) -> Option<u64> {
        self.ack_at_ns
    }

    /// The time an acknowledgement waited for has come.
    pub(crate) fn handle_timeout(&mut self, now_ns: u64) {
        if self.ack_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.ack_at_ns = None;
            self.ack_now = true;
        }
    }

    /// An acknowledgement is leaving, by itself or with data.
    pub(crate) fn said(&mut self) {
        self.ack_now = false;
        self.ack_at_ns = None;
        self.unsaid_bytes = 0;
    }

    /// The timestamp to echo in what leaves now.
    pub(crate) fn echo_ns(&self) -> u64 {
        self.echo_ns
    }

    /// The ranges to report, the latest first (RFC 2018).
    pub(crate) fn sack_blocks(&self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        if let Some((start, end)) = self.latest {
            blocks.push(start, end);
        }
        for (start, end) in self.early.iter() {
            if Some((start, end)) != self.latest {
                blocks.push(start, end);
            }
        }
        blocks
    }

    /// Data, or the end of it.
    pub(crate) fn handle_data(
        &mut self,
        now_ns: u64,
        segment: &Segment,
        mss: u64,
        timer: &RetransmitTimer,
    ) -> Arrival {
        if segment.length() == 0 {
            return Arrival::default();
        }
        if segment.is_fin {
            self.fin_at = Some(segment.end() - 1);
        }
        if segment.seq > self.next {
            self.latest = Some(self.early.insert(segment.seq, segment.end()));
            self.ack_now = true;
            return Arrival::default();
        }
        if segment.end() <= self.next {
            self.ack_now = true; // a copy: its sender missed our acknowledgement
            return Arrival::default();
        }
        // RFC 7323, 4.3: the echo answers the oldest segment not acknowledged yet.
        if self.unsaid_bytes == 0 {
            self.echo_ns = segment.timestamp_ns;
        }
        let was_short = !self.early.is_empty();
        let before = self.next;
        self.next = self.early.take_from(segment.end());
        self.latest = self.latest.filter(|(start, _)| *start > self.next);
        let is_last = self.is_finished();
        let arrived = self.next - before;
        self.acknowledge(now_ns, arrived, was_short || is_last, mss, timer);
        Arrival {
            bytes: arrived - u64::from(is_last),
            is_last,
        }
    }

    /// Every second full segment at once, anything else a little later
    /// (RFC 5681, 4.2).
    fn acknowledge(
        &mut self,
        now_ns: u64,
        arrived: u64,
        at_once: bool,
        mss: u64,
        timer: &RetransmitTimer,
    ) {
        self.unsaid_bytes += arrived;
        let is_quick = self.quick_acks > 0;
        self.quick_acks = self.quick_acks.saturating_sub(1);
        if at_once || is_quick || self.unsaid_bytes >= 2 * mss {
            self.ack_now = true;
        } else if self.ack_at_ns.is_none() {
            self.ack_at_ns = Some(timer.delayed_ack_ns(now_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::NS_PER_MS;
    use crate::tcp::Clock;

    fn data(seq: u64, payload_bytes: u32, is_fin: bool) -> Segment {
        Segment {
            seq,
            payload_bytes,
            is_fin,
            ..Segment::default()
        }
    }

    fn receiver() -> (Receiver, RetransmitTimer) {
        let mut receiver = Receiver::new(0);
        receiver.synchronise(&Segment::default());
        (receiver, RetransmitTimer::new(Clock::Ticks, 0))
    }

    #[test]
    fn every_second_segment_is_acknowledged_at_once_and_others_at_the_tick() {
        let (mut receiver, timer) = receiver();
        receiver.handle_data(1, &data(1, 1000, false), 1000, &timer);
        assert!(!receiver.owes_ack());
        assert_eq!(receiver.ack_at_ns(), Some(200 * NS_PER_MS));
        receiver.handle_data(2, &data(1001, 1000, false), 1000, &timer);
        assert!(receiver.owes_ack());
        receiver.said();
        receiver.handle_data(3, &data(2001, 10, false), 1000, &timer);
        receiver.handle_timeout(200 * NS_PER_MS);
        assert!(receiver.owes_ack());
    }

    #[test]
    fn a_hole_is_reported_and_filled() {
        let (mut receiver, timer) = receiver();
        let mut hand_in = |segment: Segment| receiver.handle_data(1, &segment, 1000, &timer);
        assert_eq!(hand_in(data(1001, 1000, false)), Arrival::default());
        assert_eq!(hand_in(data(3001, 0, true)), Arrival::default());
        assert_eq!(hand_in(data(1, 1000, false)).bytes, 2000);
        let last = hand_in(data(2001, 1000, false));
        assert_eq!((last.bytes, last.is_last), (1000, true));
        assert_eq!((receiver.next(), receiver.is_finished()), (3002, true));
        assert!(receiver.sack_blocks().is_empty());
    }

    #[test]
    fn the_latest_range_is_reported_first() {
        let (mut receiver, timer) = receiver();
        for seq in [2001, 6001, 4001] {
            receiver.handle_data(1, &data(seq, 1000, false), 1000, &timer);
        }
        let blocks: Vec<_> = receiver.sack_blocks().iter().collect();
        assert_eq!(blocks, [(4001, 5001), (2001, 3001), (6001, 7001)]);
    }
}
