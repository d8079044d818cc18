//! What was lost on the way to a peer during about the last minute.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What "recently" means, give or take [`APART`].
const SPAN: Duration = Duration::from_secs(60);
/// Between two readings that are kept.
const APART: Duration = Duration::from_secs(5);

/// Packets of one tunnel since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Packets {
    pub sent: u64,
    pub lost: u64,
}

/// Readings of the last minute; never more than a dozen and two.
#[derive(Debug, Default)]
pub(crate) struct RecentLoss {
    /// Which tunnel they are of.
    tunnel: usize,
    readings: VecDeque<(Instant, Packets)>,
}

impl RecentLoss {
    /// Whether it is time for another reading of this tunnel.
    pub fn is_due(&self, now: Instant, tunnel: usize) -> bool {
        let newest = self.readings.back().filter(|_| self.tunnel == tunnel);
        newest.is_none_or(|(at, _)| now.saturating_duration_since(*at) >= APART)
    }

    /// Keeps a reading.
    pub fn note(&mut self, now: Instant, tunnel: usize, packets: Packets) {
        if self.tunnel != tunnel {
            self.tunnel = tunnel;
            self.readings.clear();
        }
        self.readings.push_back((now, packets));
        // The oldest that is kept is at least that old.
        let is_old = |(at, _): &(Instant, Packets)| now.saturating_duration_since(*at) >= SPAN;
        while self.readings.get(1).is_some_and(is_old) {
            self.readings.pop_front();
        }
    }

    /// The share that was lost since then, if anything was sent.
    pub fn ratio(&self, tunnel: usize, now: Packets) -> Option<f64> {
        let oldest = self.readings.front().filter(|_| self.tunnel == tunnel);
        // One that has just begun has lost what it lost lately.
        let before = oldest.map(|(_, packets)| *packets).unwrap_or_default();
        let sent = now.sent.saturating_sub(before.sent);
        let lost = now.lost.saturating_sub(before.lost).min(sent);
        (sent > 0).then(|| lost as f64 / sent as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_a_while_ago_no_longer_counts() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let packets = |sent, lost| Packets { sent, lost };
        let mut loss = RecentLoss::default();
        assert_eq!(loss.ratio(1, packets(0, 0)), None);
        assert_eq!(loss.ratio(1, packets(10, 1)), Some(0.1));
        // Half of the first thousand is lost, then nothing any more.
        for second in (0..=300).step_by(5) {
            assert!(loss.is_due(at(second), 1));
            let lost = if second < 10 { second * 50 } else { 500 };
            loss.note(at(second), 1, packets(second * 100, lost));
            assert!(!loss.is_due(at(second + 4), 1));
            assert!(loss.readings.len() <= 14);
        }
        assert_eq!(loss.ratio(1, packets(30_000, 500)), Some(0.0));
        assert_eq!(loss.ratio(1, packets(36_000, 3_500)), Some(0.25));
        // Nothing was sent for a minute.
        for second in (305..=370).step_by(5) {
            loss.note(at(second), 1, packets(36_000, 3_500));
        }
        assert_eq!(loss.ratio(1, packets(36_000, 3_500)), None);
        // Another tunnel begins anew.
        assert!(loss.is_due(at(371), 2));
        loss.note(at(371), 2, packets(0, 0));
        assert_eq!(loss.ratio(2, packets(100, 50)), Some(0.5));
        assert_eq!(loss.readings.len(), 1);
    }
}
