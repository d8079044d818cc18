//! Packets sent one after another at one pace, and what became of them.
//!
//! A rate is measured over a cohort and not over a round trip: what was sent at 1.25 of the
//! estimate must not be mixed with what was sent at .75 of it.

use std::collections::VecDeque;

/// Why these packets were sent at their pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Searching for the rate, doubling.
    Climb,
    /// Searching for it with a train far above what has arrived.
    Leap,
    /// Gives back what such a train may have queued.
    Rest,
    /// At the estimate, less what the queue asks for.
    Cruise,
    /// Above the estimate: is there more?
    Up,
    /// Below it: gives the queue back, and shows what is lost without load.
    Down,
    /// Emptying the queue.
    Drain,
    /// Sharing with traffic that fills the queue.
    Compete,
}

/// How a packet was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) purpose: Purpose,
    /// Bytes per second that were meant.
    pub(super) pace: f64,
    /// The application, and not the pace, set the rate.
    pub(super) is_limited: bool,
}

/// What is learnt of a cohort once packets sent after it have arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) purpose: Purpose,
    /// Bytes that arrived per second.
    pub(super) rate: f64,
    /// Bytes that were sent per second.
    pub(super) sent_rate: f64,
    pub(super) sent_packets: f64,
    /// Bytes per second that were meant.
    pub(super) pace: f64,
    /// Time in which they were sent, s.
    pub(super) sent_span: f64,
    /// Share of the bytes that did not arrive.
    pub(super) missing: f64,
    /// Least round trip at the cohort's beginning and at its end.
    pub(super) rtt_ns: (u64, u64),
    /// The application, and not the pace, set the rate.
    pub(super) is_limited: bool,
    /// One acknowledgement came for all that arrived: how fast it did is not known.
    pub(super) is_lump: bool,
    /// The application had nothing to send shortly before.
    pub(super) is_burst: bool,
    pub(super) arrived: Arrived,
}

/// What came between a cohort's first acknowledgement and its last.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Arrived {
    bytes: f64,
    /// From the one acknowledgement to the other, s.
    acked_span: f64,
    /// From when the one's newest packet was sent to when the other's was, s.
    sent_span: f64,
}

impl Arrived {
    /// Bytes per second, where so much of the time, s, is the path's jitter. Of the times the longer one counts: acknowledgements may
    /// come in lumps, packets may leave in bursts.
    fn rate(self, jitter: f64) -> f64 {
        let span = (self.acked_span - jitter).max(self.sent_span);
        self.bytes / span.max(1e-6)
    }
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    acked_ns: u64,
    sent_ns: u64,
    bytes: f64,
}

#[derive(Debug, Clone)]
struct Cohort {
    purpose: Purpose,
    /// Bytes per second that were meant.
    pace: f64,
    first_pn: u64,
    sent_packets: u64,
    sent_bytes: f64,
    sent_ns: (u64, u64),
    acked_bytes: f64,
    first: Option<Mark>,
    last: Option<Mark>,
    /// What the acknowledgement before the last one said.
    before: Option<Mark>,
    rtt_ns: (u64, u64),
    is_limited: bool,
    /// The application had nothing to send shortly before.
    is_burst: bool,
}

/// The cohorts on their way, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Cohorts {
    on_way: VecDeque<Cohort>,
    /// When there was nothing to send, the last time.
    limited_ns: Option<u64>,
}

/// Who had nothing to send within so much time sends bursts and waits for answers, ns.
const BURSTS_NS: u64 = 1_000_000_000;

/// More are never open: a sender that hears nothing makes no new ones.
const COHORTS_MAX: usize = 4096;

impl Cohorts {
    /// Packets sent from now on belong to a new cohort.
    pub(super) fn begin(&mut self, next_pn: u64, purpose: Purpose, pace: f64) {
        if self
            .on_way
            .back()
            .is_some_and(|last| last.sent_packets == 0)
        {
            self.on_way.pop_back();
        }
        if self.on_way.len() >= COHORTS_MAX {
            self.on_way.pop_front();
        }
        self.on_way.push_back(Cohort {
            purpose,
            pace,
            first_pn: next_pn,
            sent_packets: 0,
            sent_bytes: 0.0,
            sent_ns: (0, 0),
            acked_bytes: 0.0,
            first: None,
            last: None,
            before: None,
            rtt_ns: (u64::MAX, u64::MAX),
            is_limited: false,
            is_burst: false,
        });
    }

    /// Packets and time the open cohort has so far.
    pub(super) fn open(&self) -> (u64, u64) {
        self.on_way.back().map_or((0, 0), |cohort| {
            (cohort.sent_packets, cohort.sent_ns.1 - cohort.sent_ns.0)
        })
    }

    pub(super) fn handle_sent(&mut self, now_ns: u64, bytes: f64) {
        let Some(cohort) = self.on_way.back_mut() else {
            return;
        };
        if cohort.sent_packets == 0 {
            cohort.sent_ns.0 = now_ns;
            cohort.is_burst = self
                .limited_ns
                .is_some_and(|at_ns| now_ns < at_ns + BURSTS_NS);
        }
        cohort.sent_ns.1 = now_ns;
        cohort.sent_packets += 1;
        cohort.sent_bytes += bytes;
    }

    pub(super) fn handle_acked(&mut self, now_ns: u64, pn: u64, sent_ns: u64, bytes: f64) {
        let Some(cohort) = self.of(pn) else { return };
        cohort.acked_bytes += bytes;
        let mark = Mark {
            acked_ns: now_ns,
            sent_ns,
            bytes: cohort.acked_bytes,
        };
        match &mut cohort.first {
            // Packets that the first acknowledgement covers arrived before it.
            Some(first) if first.acked_ns == now_ns => *first = mark,
            Some(_) => {
                if cohort.last.is_some_and(|last| last.acked_ns != now_ns) {
                    cohort.before = cohort.last;
                }
                cohort.last = Some(mark);
            }
            None => cohort.first = Some(mark),
        }
    }

    /// A round trip measured with packet `pn`. Says what that was sent for, and how closely.
    pub(super) fn handle_rtt(&mut self, pn: u64, rtt_ns: u64) -> Option<Sent> {
        let cohort = self.of(pn)?;
        let half = cohort.sent_packets / 2;
        match pn < cohort.first_pn + half {
            true => cohort.rtt_ns.0 = cohort.rtt_ns.0.min(rtt_ns),
            false => cohort.rtt_ns.1 = cohort.rtt_ns.1.min(rtt_ns),
        }
        Some(Sent {
            purpose: cohort.purpose,
            pace: cohort.pace,
            is_limited: cohort.is_limited,
        })
    }

    /// The sender has nothing to send.
    pub(super) fn handle_limited(&mut self, now_ns: u64) {
        self.limited_ns = Some(now_ns);
        if let Some(cohort) = self.on_way.back_mut() {
            cohort.is_limited = true;
        }
    }

    /// The next cohort that is complete: a packet sent after it has arrived.
    pub(super) fn poll(&mut self, largest_acked_pn: u64) -> Option<Sample> {
        let next = self.on_way.get(1)?;
        if largest_acked_pn < next.first_pn {
            return None;
        }
        let next_ns = next.first.map(|mark| mark.acked_ns);
        self.on_way.pop_front().map(|cohort| cohort.sample(next_ns))
    }

    fn of(&mut self, pn: u64) -> Option<&mut Cohort> {
        let after = self.on_way.partition_point(|cohort| cohort.first_pn <= pn);
        self.on_way.get_mut(after.checked_sub(1)?)
    }
}

impl Sample {
    /// About how long it took to arrive, s.
    pub(super) fn span(&self, mtu_bytes: f64) -> f64 {
        self.sent_packets * mtu_bytes / self.rate.max(1.0)
    }

    /// What it was at most where so much of the time in which it arrived, s, may be the path's jitter.
    pub(super) fn rate_within(&self, jitter: f64) -> f64 {
        self.arrived.rate(jitter).min(self.sent_rate)
    }

    /// The rate as the growth of the round trip tells it. What arrives slower than it was sent waits
    /// ever longer; a late acknowledgement makes no packet wait, and the least round trips of either
    /// half hardly know of it. `grain`: what small packets are faster by than large ones, s.
    pub(super) fn rate_by_delay(&self, grain: f64) -> Option<f64> {
        let (from_ns, to_ns) = self.rtt_ns;
        if from_ns == u64::MAX || to_ns == u64::MAX || self.sent_span <= 0.0 {
            return None;
        }
        let growth = to_ns.saturating_sub(from_ns) as f64 / 1e9 + grain;
        let kept = (1.0 - growth / (0.5 * self.sent_span)).max(0.0);
        let sent_rate = self.sent_rate.min(self.pace);
        Some(sent_rate * kept * (1.0 - self.missing))
    }

    /// What it was at least where one acknowledgement came for all: who was sent last has waited for no longer than its round trip
    /// says, and `doubt`, s.
    pub(super) fn rate_at_least(&self, base_ns: u64, doubt: f64) -> f64 {
        if self.rtt_ns.1 == u64::MAX {
            return 0.0;
        }
        let waited = self.rtt_ns.1.saturating_sub(base_ns) as f64 / 1e9;
        let arrived_bytes = self.sent_rate * self.sent_span * (1.0 - self.missing);
        arrived_bytes / (self.sent_span + 2.0 * waited + doubt)
    }

    /// The same of a train that was sent far above a link's rate, whose queue was empty.
    pub(super) fn rate_by_growth(&self) -> Option<f64> {
        let (from_ns, to_ns) = self.rtt_ns;
        if from_ns == u64::MAX || to_ns == u64::MAX || self.sent_span <= 0.0 {
            return None;
        }
        let growth = to_ns.saturating_sub(from_ns) as f64 / 1e9;
        let arrived_span = self.sent_span + 2.0 * growth;
        Some(self.sent_rate * self.sent_span / arrived_span * (1.0 - self.missing))
    }
}

impl Cohort {
    /// When the last packet was acknowledged. That of a train may have waited for the first packet
    /// after it, which comes much later: the one before tells more.
    fn end(&self, next_ns: Option<u64>) -> Option<Mark> {
        let has_waited = self.purpose == Purpose::Leap
            && self.last.is_some_and(|last| Some(last.acked_ns) == next_ns);
        self.before.filter(|_| has_waited).or(self.last)
    }

    fn sample(&self, next_ns: Option<u64>) -> Sample {
        let span = |(from, to): (u64, u64)| to.saturating_sub(from) as f64 / 1e9;
        let last_bytes = self.sent_bytes / self.sent_packets.max(1) as f64;
        let send_span = span(self.sent_ns);
        let sent_rate = if send_span > 0.0 {
            (self.sent_bytes - last_bytes) / send_span
        } else {
            0.0
        };
        let arrived = match (self.first, self.end(next_ns)) {
            (Some(first), Some(last)) => Arrived {
                bytes: last.bytes - first.bytes,
                acked_span: span((first.acked_ns, last.acked_ns)),
                sent_span: span((first.sent_ns, last.sent_ns)),
            },
            _ => Arrived::default(),
        };
        let rate = arrived.rate(0.0);
        // Nothing arrives faster than it was sent; where one acknowledgement came for most of a cohort the rest looks so.
        // Of packets that left at one moment it is not known how fast they were sent.
        let rate = match self.sent_packets > 2 && sent_rate > 0.0 {
            true => rate.min(sent_rate),
            false => rate,
        };
        let missing = (1.0 - self.acked_bytes / self.sent_bytes.max(1.0)).clamp(0.0, 1.0);
        Sample {
            purpose: self.purpose,
            rate,
            sent_rate,
            sent_packets: self.sent_packets as f64,
            pace: self.pace,
            sent_span: send_span,
            is_lump: self.first.is_some() && self.last.is_none(),
            missing,
            is_burst: self.is_burst,
            arrived,
            rtt_ns: self.rtt_ns,
            // A window and not the pace sets the rate where a link is shared.
            is_limited: self.is_limited
                || (self.purpose != Purpose::Compete && sent_rate < 0.9 * self.pace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred packets of 1000 bytes in 20 ms, of which the second half waited so long.
    fn train(waited_ms: u64, missing: f64) -> Sample {
        Sample {
            purpose: Purpose::Leap,
            rate: 0.0,
            sent_rate: 5e6,
            sent_packets: 100.0,
            pace: 5e6,
            sent_span: 0.02,
            missing,
            rtt_ns: (200_000_000, 200_000_000 + waited_ms * 1_000_000),
            is_limited: false,
            is_lump: false,
            is_burst: false,
            arrived: Arrived::default(),
        }
    }

    #[test]
    fn a_train_that_a_link_made_longer_tells_the_links_rate() {
        // At a sixth of the rate it takes 120 ms, and what was sent after 10 ms has waited for 50.
        let rate = train(50, 0.0).rate_by_growth().unwrap();
        assert!((rate - 5e6 / 6.0).abs() < 1.0, "{rate}");
        let rate = train(0, 0.1).rate_by_growth().unwrap();
        assert!((rate - 4.5e6).abs() < 1.0, "{rate}");
        let mut unknown = train(50, 0.0);
        unknown.rtt_ns.1 = u64::MAX;
        assert_eq!(unknown.rate_by_growth(), None);
    }
}
