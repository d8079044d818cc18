//! Round trips: the least one of the path, how much they vary, and the queue above them.

use std::collections::VecDeque;

/// How long a least round trip is believed; a longer route shows at the latest then.
const BASE_WINDOW_NS: u64 = 30_000_000_000;
const BASE_BUCKET_NS: u64 = 5_000_000_000;
/// Jitter is the smallest range of so many rounds: a probe widens the range of one or two.
const JITTER_ROUNDS: usize = 4;

/// A round with fewer says nothing about jitter.
const ROUND_SAMPLES_MIN: u32 = 6;
/// Who sends little makes rounds of few packets. So many together tell of less jitter, where that is so: what once was told would stay
/// for ever. Of fewer some would be close together by accident.
const POOL_SAMPLES_MIN: u32 = 24;

/// Least value of recent time, in buckets.
#[derive(Debug, Clone)]
struct Least {
    buckets: VecDeque<(u64, u64)>,
    bucket_ns: u64,
    window_ns: u64,
}

impl Least {
    fn new(bucket_ns: u64, window_ns: u64) -> Self {
        Least {
            buckets: VecDeque::new(),
            bucket_ns,
            window_ns,
        }
    }

    fn update(&mut self, now_ns: u64, value: u64) {
        match self.buckets.back_mut() {
            Some((from_ns, least)) if now_ns.saturating_sub(*from_ns) < self.bucket_ns => {
                *least = (*least).min(value);
            }
            _ => self.buckets.push_back((now_ns, value)),
        }
        while self.buckets.len() > 1
            && self
                .buckets
                .front()
                .is_some_and(|(from_ns, _)| now_ns.saturating_sub(*from_ns) > self.window_ns)
        {
            self.buckets.pop_front();
        }
    }

    fn get(&self) -> Option<u64> {
        self.buckets.iter().map(|(_, least)| *least).min()
    }
}

/// While the rate is being found packets are few, and one in so many is acknowledged late for no reason of the path's:
const LATE_ONE_IN: u32 = 5;
/// its receiver waited for a second one (RFC 9000 section 13.2.2), and the word of that was lost. So many at most are left out.
const LATE_MAX: usize = 4;

/// Round trips of one round.
#[derive(Debug, Clone)]
struct Round {
    least_ns: u64,
    /// The largest, in descending order.
    largest_ns: [u64; LATE_MAX + 1],
    seen: u32,
}

impl Round {
    fn new() -> Self {
        Round {
            least_ns: u64::MAX,
            largest_ns: [0; LATE_MAX + 1],
            seen: 0,
        }
    }

    fn add(&mut self, rtt_ns: u64) {
        self.least_ns = self.least_ns.min(rtt_ns);
        self.seen += 1;
        let mut next_ns = rtt_ns;
        for kept_ns in &mut self.largest_ns {
            let larger_ns = next_ns.max(*kept_ns);
            next_ns = next_ns.min(*kept_ns);
            *kept_ns = larger_ns;
        }
    }

    /// Of several rounds no more than the least and the largest are asked for.
    fn merge(&mut self, other: &Round) {
        self.least_ns = self.least_ns.min(other.least_ns);
        self.seen = self.seen.saturating_add(other.seen);
        for (kept_ns, rtt_ns) in self.largest_ns.iter_mut().zip(other.largest_ns) {
            *kept_ns = rtt_ns.max(*kept_ns);
        }
    }

    /// From the least to the largest, if there are enough to tell.
    fn range_ns(&self, is_climbing: bool) -> Option<u64> {
        let late = match is_climbing {
            true => ((self.seen / LATE_ONE_IN) as usize).min(LATE_MAX),
            false => 0,
        };
        let largest_ns = self.largest_ns.get(late)?;
        (self.seen >= ROUND_SAMPLES_MIN).then(|| largest_ns.saturating_sub(self.least_ns))
    }
}

/// What round trips say about the path.
#[derive(Debug, Clone)]
pub(super) struct Delay {
    base: Least,
    recent: Least,
    /// The current round.
    round: Round,
    /// Those of few packets.
    pool: Round,
    ranges_ns: VecDeque<u64>,
    latest_ns: u64,
    /// What round trips do not fall below although nothing waits: the route has become longer, or
    /// jitter keeps a dense stream of packets from ever meeting the least delay.
    floor_ns: u64,
    is_frozen: bool,
}

impl Delay {
    pub(super) fn new() -> Self {
        Delay {
            base: Least::new(BASE_BUCKET_NS, BASE_WINDOW_NS),
            recent: Least::new(10_000_000, 20_000_000),
            round: Round::new(),
            pool: Round::new(),
            ranges_ns: VecDeque::new(),
            latest_ns: 0,
            floor_ns: 0,
            is_frozen: false,
        }
    }

    /// `is_strained`: we may have made a queue ourselves, and on purpose. That is no jitter, nor is
    /// what others do with a queue they hold.
    pub(super) fn handle_rtt(&mut self, now_ns: u64, rtt_ns: u64, is_strained: bool) {
        self.latest_ns = rtt_ns;
        if !self.is_frozen || self.base.get().is_none_or(|base| rtt_ns < base) {
            self.base.update(now_ns, rtt_ns);
        }
        self.recent.update(now_ns, rtt_ns);
        if is_strained || self.is_frozen {
            return;
        }
        self.round.add(rtt_ns);
    }

    /// A round trip has passed; short enough rounds hide jitter, so `window_ns` smooths as well.
    pub(super) fn handle_round(&mut self, window_ns: u64, is_climbing: bool) {
        self.recent.bucket_ns = (window_ns / 4).max(5_000_000);
        self.recent.window_ns = self.recent.bucket_ns * 2;
        let seen_ns = self.recent_ns();
        self.floor_ns -= self.floor_ns.saturating_sub(seen_ns) / 8;
        let round = std::mem::replace(&mut self.round, Round::new());
        let range_ns = round.range_ns(is_climbing);
        let range_ns = range_ns.or_else(|| self.pooled_ns(&round));
        if let Some(range_ns) = range_ns {
            self.pool = Round::new();
            self.ranges_ns.push_back(range_ns);
            if self.ranges_ns.len() > JITTER_ROUNDS {
                self.ranges_ns.pop_front();
            }
        }
    }

    /// What rounds of few packets tell together. Never of more jitter: packets here and there are acknowledged late for no reason of
    /// the path's.
    fn pooled_ns(&mut self, round: &Round) -> Option<u64> {
        self.pool.merge(round);
        if self.pool.seen < POOL_SAMPLES_MIN {
            return None;
        }
        let pool = std::mem::replace(&mut self.pool, Round::new());
        let range_ns = pool.range_ns(false);
        range_ns.filter(|range_ns| *range_ns < self.jitter_ns())
    }

    /// While others hold the queue, a least round trip that has grown old is still the best known.
    pub(super) fn freeze(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
    }

    /// What is seen now is not a queue.
    pub(super) fn rebase(&mut self) {
        self.floor_ns = self.recent_ns();
    }

    /// What was taken for a longer route was a queue.
    pub(super) fn forget_floor(&mut self) {
        self.floor_ns = 0;
    }

    pub(super) fn is_known(&self) -> bool {
        self.latest_ns > 0
    }

    /// Least round trip of the path, ns.
    pub(super) fn base_ns(&self) -> u64 {
        self.base.get().unwrap_or(100_000_000).max(self.floor_ns)
    }

    /// Least round trip of the last moments, ns.
    pub(super) fn recent_ns(&self) -> u64 {
        self.recent.get().unwrap_or(100_000_000)
    }

    /// Least round trip of the path, s.
    pub(super) fn base(&self) -> f64 {
        self.base_ns() as f64 / 1e9
    }

    /// Waiting in queues, s.
    pub(super) fn queue(&self) -> f64 {
        self.recent_ns().saturating_sub(self.base_ns()) as f64 / 1e9
    }

    /// Whether a round with enough packets has passed.
    pub(super) fn is_jitter_known(&self) -> bool {
        !self.ranges_ns.is_empty()
    }

    /// How much round trips vary without load, s.
    pub(super) fn jitter(&self) -> f64 {
        self.jitter_ns() as f64 / 1e9
    }

    /// The same in ns; 0 while it is not known.
    fn jitter_ns(&self) -> u64 {
        self.ranges_ns.iter().min().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jitter_of(rtts_ms: &[u64], is_climbing: bool) -> f64 {
        let mut delay = Delay::new();
        for (at, rtt_ms) in rtts_ms.iter().enumerate() {
            delay.handle_rtt(at as u64, rtt_ms * 1_000_000, false);
        }
        delay.handle_round(100_000_000, is_climbing);
        delay.jitter()
    }

    /// A queue at the beginning was taken for jitter; what follows are packets here and there.
    #[test]
    fn jitter_is_told_anew_by_rounds_of_few_packets() {
        let mut delay = Delay::new();
        let mut round = |rtts_ms: &[u64]| {
            for rtt_ms in rtts_ms {
                delay.handle_rtt(0, rtt_ms * 1_000_000, false);
            }
            delay.handle_round(100_000_000, false);
            delay.jitter()
        };
        assert_eq!(round(&[1, 2, 3]), 0.0, "too few to tell");
        assert_eq!(round(&[1, 50, 100, 200, 300, 331]), 0.33);
        for _ in 0..7 {
            assert_eq!(round(&[8, 15, 16]), 0.33);
        }
        assert_eq!(round(&[8, 15, 16]), 0.008);
        // And never of more.
        for _ in 0..20 {
            assert_eq!(round(&[5, 30, 55]), 0.008);
        }
        // A round that is whole tells by itself.
        assert_eq!(round(&[8, 9, 8, 9, 8, 9]), 0.001);
        for _ in 0..4 {
            round(&[8, 15]);
            round(&[8, 9, 30, 9, 28, 9]);
        }
        assert_eq!(round(&[8]), 0.022);
    }

    #[test]
    fn one_in_five_is_late_for_its_own_reasons_while_the_rate_is_found() {
        let rtts_ms = [101, 145, 102, 100, 103, 101, 126, 102, 104, 100];
        assert_eq!(jitter_of(&rtts_ms, true), 0.004);
        assert_eq!(jitter_of(&rtts_ms, false), 0.045);
        // Of five of ten it is the path's.
        let rtts_ms = [101, 145, 130, 100, 103, 140, 126, 102, 121, 100];
        assert_eq!(jitter_of(&rtts_ms, true), 0.03);
        assert_eq!(jitter_of(&rtts_ms[..5], true), 0.0, "too few to tell");
    }
}
