//! Small frames that somebody waits for go two or three times while the path loses packets.
//!
//! Error correction beneath QUIC replaces datagrams, and on a busy link a keystroke travels in a
//! full one: its repair is as long as a hundred keystrokes, which a slow link cannot afford. The
//! frame itself is small. A copy takes a stream of its own, so nothing waits for it, and the peer
//! ignores whichever comes later (as it does after a resumed connection).

use std::collections::VecDeque;

use farhaul_tunnel::{Class, Transmit};

/// A longer frame is repaired beneath QUIC, where parts of it can be replaced.
const FRAME_BYTES_MAX: usize = 256;
/// What a copy costs beside its bytes: the stream frame's header.
const OVERHEAD_BYTES: usize = 16;
/// The copy is to miss what befalls the first: so many packets of the link, and so long, lie between.
const GAP_PACKETS: u64 = 2;
const GAP_NS_MIN: u64 = 3_000_000;
/// More than this are never due at once.
const DUE_MAX: usize = 256;

/// Copies to be sent, soonest first.
#[derive(Debug, Default)]
pub(super) struct Repeats(VecDeque<(u64, Transmit)>);

impl Repeats {
    /// Whether the frame is one to send twice.
    pub(super) fn suits(frame: &Transmit) -> bool {
        frame.is_protected && frame.priority != i32::MAX && frame.frame_bytes() <= FRAME_BYTES_MAX
    }

    /// What the copy of a frame costs, bytes.
    pub(super) fn cost_bytes(frame: &Transmit) -> usize {
        frame.frame_bytes() + OVERHEAD_BYTES
    }

    /// Sends it again soon, so many times. The link takes `packet_ns` for one packet.
    pub(super) fn add(&mut self, now_ns: u64, packet_ns: u64, copies: usize, frame: &Transmit) {
        let gap_ns = packet_ns.saturating_mul(GAP_PACKETS).max(GAP_NS_MIN);
        for number in 1..=copies as u64 {
            if self.0.len() < DUE_MAX {
                let due_ns = now_ns.saturating_add(gap_ns.saturating_mul(number));
                let place = self.0.partition_point(|(other_ns, _)| *other_ns <= due_ns);
                self.0.insert(place, (due_ns, frame.clone()));
            }
        }
    }

    /// The next copy that is due and whose lane is free, as `is_free` says. One that comes when its lane is taken is left out: a
    /// copy is worth neither waiting nor a frame that is half written, which given up ends the tunnel.
    pub(super) fn poll(
        &mut self,
        now_ns: u64,
        is_free: impl Fn(Class) -> bool,
    ) -> Option<Transmit> {
        while self.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            let (_, frame) = self.0.pop_front()?;
            if is_free(frame.class) {
                return Some(frame);
            }
        }
        None
    }

    /// When the next one is due.
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.0.front().map(|(due_ns, _)| *due_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use farhaul_tunnel::Correction;

    fn frame(bytes: usize) -> Transmit {
        Transmit {
            chunks: vec![Bytes::from(vec![7; bytes])],
            priority: 5,
            class: Class::Interactive,
            flow: None,
            dscp: 0,
            is_protected: true,
            correction: Correction::Auto,
        }
    }

    fn any(_: Class) -> bool {
        true
    }

    #[test]
    fn a_copy_is_due_two_packets_later_and_never_at_once() {
        let mut repeats = Repeats::default();
        repeats.add(1_000, 8_000_000, 2, &frame(80));
        repeats.add(2_000, 8_000_000, 1, &frame(81));
        assert_eq!(repeats.due_ns(), Some(16_001_000));
        assert_eq!(repeats.poll(16_000_999, any), None);
        assert_eq!(repeats.poll(16_001_000, any), Some(frame(80)));
        assert_eq!(
            repeats.poll(16_001_000, any),
            None,
            "the next one is not due"
        );
        assert_eq!(repeats.poll(u64::MAX, any), Some(frame(81)));
        assert_eq!(repeats.due_ns(), Some(32_001_000), "the second copy");
        assert_eq!(repeats.poll(u64::MAX, any), Some(frame(80)));
        assert_eq!(repeats.due_ns(), None);
        repeats.add(0, 0, 1, &frame(80));
        assert_eq!(repeats.due_ns(), Some(GAP_NS_MIN), "on a fast link");
    }

    #[test]
    fn a_copy_is_left_out_while_its_lane_is_taken() {
        let mut repeats = Repeats::default();
        let mut bulk = frame(90);
        bulk.class = Class::Bulk;
        repeats.add(0, 0, 1, &bulk);
        repeats.add(1, 0, 1, &frame(80));
        let is_free = |class| class == Class::Interactive;
        assert_eq!(repeats.poll(u64::MAX, is_free), Some(frame(80)));
        assert_eq!(repeats.due_ns(), None, "no copy waits for a lane");
        repeats.add(2, 0, 1, &bulk);
        assert_eq!(repeats.poll(u64::MAX, any), Some(bulk));
    }

    #[test]
    fn only_small_protected_data_goes_twice() {
        assert!(Repeats::suits(&frame(FRAME_BYTES_MAX)));
        assert!(!Repeats::suits(&frame(FRAME_BYTES_MAX + 1)));
        let mut bulk = frame(80);
        bulk.is_protected = false;
        assert!(!Repeats::suits(&bulk));
        let mut control = frame(80);
        control.priority = i32::MAX;
        assert!(!Repeats::suits(&control));
    }

    #[test]
    fn what_is_due_is_bounded() {
        let mut repeats = Repeats::default();
        for now_ns in 0..10 * DUE_MAX as u64 {
            repeats.add(now_ns, 0, 1, &frame(80));
        }
        assert_eq!(repeats.0.len(), DUE_MAX);
    }
}
