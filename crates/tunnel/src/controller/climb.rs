//! The start: two and a half times what arrived, until a queue forms or nothing more arrives.

use super::cohort::Sample;
use super::delay::Delay;
use super::{Controller, PathMemory, Phase};

/// Packets of the first round trip. A tunnel stands for many connections, each of which would
/// start with ten (RFC 6928).
const FIRST_PACKETS: f64 = 32.0;
const GAIN: f64 = 2.5;
/// Rounds that bring nothing new before the rate is believed.
const FLAT_ROUNDS: u32 = 3;
/// Shorter round trips are taken for this at first: a burst of the first window fills any queue.
const FIRST_RTT_MIN: f64 = 0.02;

#[derive(Debug, Clone)]
pub(super) struct Climb {
    remembered: Option<PathMemory>,
    gain: f64,
    best: f64,
    flat_rounds: u32,
    /// Cohorts in a row of which much less arrived than was sent.
    short: u32,
    /// Cohorts in a row that were delayed and slowed down.
    queued: u32,
    /// A cohort of this round was as fast as it was meant to be.
    is_full: bool,
}

impl Climb {
    pub(super) fn new(remembered: Option<PathMemory>) -> Self {
        Climb {
            remembered,
            gain: GAIN,
            best: 0.0,
            flat_rounds: 0,
            short: 0,
            queued: 0,
            is_full: false,
        }
    }

    pub(super) fn remembered(&self) -> Option<PathMemory> {
        self.remembered
    }

    /// Seconds of a cohort.
    pub(super) fn span(&self, delay: &Delay) -> f64 {
        let rtt = delay.base();
        (rtt / 8.0)
            .clamp(0.005, 0.05)
            .max(1.5 * delay.jitter().min(rtt / 2.0))
    }

    /// A remembered rate is tried at half first (RFC 9959), and only on a path that looks the same.
    fn jump(&self, delay: &Delay) -> Option<f64> {
        let memory = self.remembered?;
        let ratio = delay.base_ns() as f64 / memory.rtt_ns.max(1) as f64;
        let is_alike = delay.is_known() && (0.5..1.5).contains(&ratio);
        is_alike.then_some(memory.rate / 2.0)
    }

    pub(super) fn pace(&self, rate: Option<f64>, delay: &Delay, mtu_bytes: f64) -> f64 {
        let rtt = (delay.base()).max(FIRST_RTT_MIN);
        let first = FIRST_PACKETS * mtu_bytes / rtt;
        let first = first.max(self.jump(delay).unwrap_or(0.0));
        let most = self
            .remembered
            .map_or(f64::MAX, |memory| memory.rate.max(first));
        let next = rate.unwrap_or(0.0) * self.gain;
        // Past the remembered rate only once that has been seen to arrive.
        let next = match rate.is_some_and(|rate| rate < 0.9 * most) {
            true => next.min(most),
            false => next,
        };
        first.max(next)
    }

    /// A round trip has passed. A round without a full cohort says nothing about the path.
    pub(super) fn handle_round(&mut self, rate: f64) {
        if rate > self.best * 1.2 {
            self.best = rate;
            self.flat_rounds = 0;
        } else if self.is_full {
            self.flat_rounds += 1;
        }
        self.is_full = false;
    }
}

impl Controller {
    pub(super) fn learn_climb(&mut self, now_ns: u64, sample: &Sample, corrected: f64) {
        if !matches!(self.phase, Phase::Climb(_)) {
            return;
        }
        let known = self.rates.get().unwrap_or(0.0);
        if corrected > known {
            self.rates.set(corrected);
        }
        let is_queued = self.is_queued(sample, corrected);
        let is_jittery = self.delay.jitter() > 0.003f64.max(0.02 * self.delay.base());
        let shorts_max = if is_jittery { 8 } else { 3 };
        let is_full = !sample.is_limited;
        let is_short =
            self.delay.is_jitter_known() && is_full && sample.rate < 0.7 * sample.sent_rate;
        let is_max = self.is_at_max();
        let Phase::Climb(climb) = &mut self.phase else {
            return;
        };
        climb.is_full |= is_full;
        climb.short = if is_short { climb.short + 1 } else { 0 };
        climb.queued = if is_queued { climb.queued + 1 } else { 0 };
        // Where round trips vary, one cohort proves nothing.
        let is_queued = climb.queued > u32::from(is_jittery);
        if is_queued || is_max || climb.flat_rounds >= FLAT_ROUNDS || climb.short >= shorts_max {
            let patience_ns = self.delay.recent_ns() * 4;
            self.rates.next_cycle();
            self.enter(Phase::Drain(now_ns + patience_ns));
        }
    }

    /// Whether a cohort was both delayed and slowed down; jitter alone only delays.
    fn is_queued(&self, sample: &Sample, corrected: f64) -> bool {
        let rtt = self.delay.base();
        let packets = 4.0 * self.mtu_bytes / corrected.max(1.0);
        let unknown = if self.delay.is_jitter_known() {
            0.0
        } else {
            rtt / 3.0
        };
        let limit = (rtt / 8.0)
            .clamp(0.008, 0.03)
            .max(packets)
            .max(1.5 * self.delay.jitter().min(rtt))
            .max(unknown);
        let least_ns = sample.rtt_ns.0.min(sample.rtt_ns.1);
        let queue = least_ns.saturating_sub(self.delay.base_ns()) as f64 / 1e9;
        let is_measured = sample.rtt_ns.0 != u64::MAX;
        is_measured && queue > limit && sample.rate < 0.9 * sample.sent_rate
    }

    /// Something became much faster: search as at the start, from where we are.
    pub(super) fn climb_again(&mut self) {
        let mut climb = Climb::new(None);
        climb.gain = 1.6;
        climb.best = self.rate();
        self.enter(Phase::Climb(climb));
    }
}
