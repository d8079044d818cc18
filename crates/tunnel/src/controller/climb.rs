//! The start: two and a half times what arrived, until a queue forms or nothing more arrives.
//!
//! Over a long round trip that would take many seconds, and whatever was too much would be so for a
//! whole round trip. There the search leaps: a train of 20 ms at six times what arrived, a rest that
//! gives back what a full link has queued of it, and then no more than what is known to arrive.

use super::cohort::{Purpose, Sample, Sent};
use super::delay::Delay;
use super::{Controller, PathMemory, Phase, SHORT_QUEUE};

/// Packets of the first round trip. A tunnel stands for many connections, each of which would
/// start with ten (RFC 6928).
const FIRST_PACKETS: f64 = 32.0;
const GAIN: f64 = 2.5;
/// Rounds that bring nothing new before the rate is believed.
const FLAT_ROUNDS: u32 = 3;
/// Shorter round trips are taken for this at first: a burst of the first window fills any queue.
const FIRST_RTT_MIN: f64 = 0.02;
/// Round trips from which leaps are the faster way, s.
const LEAP_RTT_MIN: f64 = 0.15;
/// How much faster than what has arrived, and how long, s: on a link that is full already it makes
/// a queue of a tenth of a second.
const LEAP_GAIN: f64 = 6.0;
const LEAP_SPAN: f64 = 0.02;
/// What was sent at less than this part of its pace is no train but somebody's messages, however many of them: so often in a row.
const TRICKLE: f64 = 0.5;
const TRICKLES_MAX: u32 = 4;
/// A train of fewer packets measures nothing.
const LEAP_PACKETS_MIN: u64 = 10;
/// Nor does the first one say that it has met the link: while jitter is not known one of fewer packets may have been held up.
const TELLING_PACKETS_MIN: u64 = 30;
/// The first train goes as if the round trip were so long, s,
const LEAP_FIRST_RTT: f64 = 0.005;
/// and is of two connections' first ten packets (RFC 6928) and few more. On a T1 it waits a fifth of a second.
const LEAP_FIRST_PACKETS: f64 = 26.0;
/// Where a train was slowed and jitter forbids another, this much more than what arrives is tried: for a round trip.
const SLOWED_GAIN: f64 = 1.25;
/// A machine may be held up for so long, s, or its timer be late: by that a train was longer, perhaps.
const DOUBT: f64 = 0.003;
/// After a leap so much less than what arrives is sent for so long, s: what it has queued at most.
const REST_GAIN: f64 = 0.5;
const REST_SPAN: f64 = LEAP_SPAN * (LEAP_GAIN - 1.0) / (1.0 - REST_GAIN);
/// What is slowed and has not waited was dropped by a policer, this part of it or more. If it was
/// not, few acknowledgements have come in a lump.
const POLICED_MISSING: f64 = 0.2;
/// A train that arrives at less than this part of its pace has met the link's rate.
const LEAP_SLOWED: f64 = 0.8;
/// Packets are farther apart, s, and their round trips say how long their receiver waits and not what the path does.
const SPARSE: f64 = 0.01;
/// Two ways to tell a train's rate differ by this part where there is nothing but a link.
const ALIKE: f64 = 0.7;
/// A cohort waited for longer, s, or lost more than a policer's share: there is too much on the way.
const FLOODED: f64 = 0.05;
/// So many more cohorts that flood the path than such that do not, and it is full, although the
/// sender never keeps up with its pace: its machine is busy, or its application is not fast enough.
const FLOODS_MAX: u32 = 8;
/// Whoever has sent nothing for so long, s, begins anew: what went before measures nothing.
const PAUSE: f64 = 0.05;

/// What is sent at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stride {
    /// What is known to arrive, or by the gain more.
    Steady,
    /// A short train far above it.
    Leap,
    /// Less than it, until then.
    Rest(u64),
}

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
    /// Cohorts that flooded the path, less twice those that did not.
    floods: u32,
    /// A cohort of this round was as fast as it was meant to be.
    is_full: bool,
    stride: Stride,
    /// First packet after the last leap.
    leap_end_pn: u64,
    /// What became of it.
    leap: Leap,
    /// Trains in a row that were none.
    trickles: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leap {
    /// Not known yet.
    Sent,
    /// It arrived as it was sent.
    Whole,
    /// It arrived slower.
    Slowed,
}

impl Climb {
    pub(super) fn new(remembered: Option<PathMemory>) -> Self {
        Climb {
            stride: Stride::Steady,
            leap_end_pn: 0,
            leap: Leap::Whole,
            trickles: 0,
            remembered,
            gain: GAIN,
            best: 0.0,
            flat_rounds: 0,
            short: 0,
            queued: 0,
            floods: 0,
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

    /// Whether trains tell more in a round trip than a steady stream. Jitter stretches them.
    fn leaps(&self, delay: &Delay) -> bool {
        let is_new = self.gain == GAIN && self.jump(delay).is_none();
        is_new && delay.is_known() && delay.base() >= LEAP_RTT_MIN && !is_jittery(delay)
    }

    /// What a train has shown can be read only by who knows the jitter.
    fn may_leap(&self, delay: &Delay) -> bool {
        self.leaps(delay) && (self.leap == Leap::Whole || delay.is_jitter_known())
    }

    pub(super) fn purpose(&self) -> Purpose {
        match self.stride {
            Stride::Steady => Purpose::Climb,
            Stride::Leap => Purpose::Leap,
            Stride::Rest(_) => Purpose::Rest,
        }
    }

    /// `unbroken_packets`: sent since the application paused last.
    pub(super) fn pace(
        &self,
        rate: Option<f64>,
        delay: &Delay,
        mtu_bytes: f64,
        unbroken_packets: u64,
    ) -> f64 {
        // Somebody's message must not hold up another's until there is more than a train of them.
        let is_message = unbroken_packets < LEAP_PACKETS_MIN && self.leaps(delay);
        let rtt = match is_message {
            true => LEAP_FIRST_RTT,
            false => delay.base().max(FIRST_RTT_MIN),
        };
        let first = FIRST_PACKETS * mtu_bytes / rtt;
        let known = rate.unwrap_or(0.0);
        match self.stride {
            Stride::Leap => return leap_pace(known, mtu_bytes),
            Stride::Rest(_) => return first.max(REST_GAIN * known),
            Stride::Steady if self.leaps(delay) => return first.max(known),
            Stride::Steady => {}
        }
        let first = first.max(self.jump(delay).unwrap_or(0.0));
        let most = self
            .remembered
            .map_or(f64::MAX, |memory| memory.rate.max(first));
        let has_met_link = self.leap == Leap::Slowed && delay.base() >= LEAP_RTT_MIN;
        let gain = if has_met_link { SLOWED_GAIN } else { self.gain };
        let next = rate.unwrap_or(0.0) * gain;
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

/// Of a train, where so much is known to arrive.
fn leap_pace(known: f64, mtu_bytes: f64) -> f64 {
    (LEAP_GAIN * known).max(FIRST_PACKETS * mtu_bytes / LEAP_FIRST_RTT)
}

/// How long such a train is.
fn train_packets(known: f64, mtu_bytes: f64) -> f64 {
    (LEAP_GAIN * known * LEAP_SPAN / mtu_bytes).max(LEAP_FIRST_PACKETS)
}

/// Whether a train's round trips have grown as they do where it arrives slower than it was sent because of a link, not of a machine
/// that was held up: they tell the same rate.
fn is_alike(sample: &Sample) -> bool {
    let rate = sample.rate_by_growth();
    rate.is_some_and(|rate| (ALIKE..1.0 / ALIKE).contains(&(rate / sample.rate.max(1.0))))
}

/// Where round trips vary, one cohort proves nothing.
fn is_jittery(delay: &Delay) -> bool {
    delay.jitter() > 0.003f64.max(0.02 * delay.base())
}

impl Controller {
    /// Whether a packet that was sent so may have waited behind a train of ours, or for a second one: that its receiver waits for
    /// (RFC 9000 section 13.2.2), which is longer than anything else where few are sent.
    pub(super) fn is_strained(&self, sent: Option<Sent>) -> bool {
        let Some(sent) = sent else {
            return matches!(self.phase, Phase::Climb(_));
        };
        let is_sparse = sent.is_limited || sent.pace < self.mtu_bytes / SPARSE;
        match (sent.purpose, &self.phase) {
            (Purpose::Leap, _) => true,
            (Purpose::Rest, Phase::Climb(climb)) => is_sparse || climb.leap != Leap::Whole,
            (Purpose::Rest, _) => true,
            (Purpose::Climb, _) => is_sparse,
            _ => false,
        }
    }

    /// A packet is about to be sent, so long after the one before.
    pub(super) fn begin_climb(&mut self, pause: f64) {
        let Phase::Climb(climb) = &mut self.phase else {
            return;
        };
        if pause > PAUSE && self.is_limited && climb.leaps(&self.delay) {
            climb.stride = Stride::Leap;
            climb.trickles = 0;
            self.cut();
        }
    }

    /// Of the next train, bytes, where one tells something of the link.
    pub(super) fn train_bytes(&self) -> Option<u64> {
        match &self.phase {
            Phase::Climb(climb) if climb.may_leap(&self.delay) => {
                let known = self.rates.get().unwrap_or(0.0);
                Some((train_packets(known, self.mtu_bytes) * self.mtu_bytes) as u64)
            }
            _ => None,
        }
    }

    pub(super) fn advance_climb(&mut self, now_ns: u64) {
        let (packets, span_ns) = self.cohorts.open();
        let is_long = |span: f64, least| span_ns as f64 >= span * 1e9 && packets >= least;
        let known = self.rates.get().unwrap_or(0.0);
        let train = train_packets(known, self.mtu_bytes) as u64;
        let is_train = is_long(LEAP_SPAN, LEAP_PACKETS_MIN) || packets >= train;
        let least_bytes = TRICKLE * leap_pace(known, self.mtu_bytes) * span_ns as f64 / 1e9;
        let is_trickle = (packets as f64 * self.mtu_bytes) < least_bytes;
        let Phase::Climb(climb) = &mut self.phase else {
            return;
        };
        match climb.stride {
            Stride::Steady => {
                let is_answered = self
                    .largest_acked_pn
                    .is_some_and(|pn| pn >= climb.leap_end_pn);
                if is_answered && climb.may_leap(&self.delay) {
                    climb.stride = Stride::Leap;
                } else if !is_long(climb.span(&self.delay), 10) {
                    return;
                }
            }
            // The train begins with what comes behind them.
            Stride::Leap if is_train && is_trickle && climb.trickles < TRICKLES_MAX => {
                climb.trickles += 1;
            }
            Stride::Leap if is_train => {
                climb.trickles = 0;
                climb.leap_end_pn = self.next_pn;
                climb.leap = Leap::Sent;
                climb.stride = Stride::Rest(now_ns + (REST_SPAN * 1e9) as u64);
            }
            Stride::Rest(until_ns) if now_ns >= until_ns => climb.stride = Stride::Steady,
            Stride::Leap | Stride::Rest(_) => return,
        }
        self.cut();
    }

    /// More has arrived than was known to, unless it arrived in so short a time that a timer or a pause of a machine explains it.
    fn raise(&mut self, sample: &Sample, corrected: f64) {
        let Phase::Climb(climb) = &self.phase else {
            return;
        };
        let known = self.rates.get().unwrap_or(0.0);
        let least = 0.5 * climb.span(&self.delay).min(LEAP_SPAN);
        let span = sample.span(self.mtu_bytes);
        let is_short = sample.purpose == Purpose::Leap || climb.leaps(&self.delay);
        let believed = match is_short {
            true if sample.is_lump => sample.rate_at_least(self.delay.base_ns(), DOUBT),
            true => corrected * span / (span + DOUBT),
            false if span >= least => corrected,
            false => 0.0,
        };
        if believed > known {
            self.rates.set(believed);
        }
    }

    /// What became of a train: the link's rate, where that is less than the train's.
    pub(super) fn learn_leap(&mut self, now_ns: u64, sample: &Sample, corrected: f64) {
        if !matches!(self.phase, Phase::Climb(_)) {
            return;
        }
        let known = self.rates.get().unwrap_or(0.0);
        self.raise(sample, corrected);
        let has_met_link = self.has_met_link(sample, corrected);
        if has_met_link {
            // What was believed of fewer packets cannot be more.
            let most = corrected / (1.0 - sample.missing.min(POLICED_MISSING));
            self.rates.set(corrected.max(known.min(most)));
        }
        let is_slowed = self.is_slowed(sample);
        if let Phase::Climb(climb) = &mut self.phase {
            climb.is_full |= !sample.is_limited;
            climb.leap = if is_slowed { Leap::Slowed } else { Leap::Whole };
        }
        if has_met_link || self.is_at_max() {
            // The rest has given back what waited.
            self.rates.next_cycle();
            self.enter(Phase::Cruise(now_ns));
        }
    }

    /// Whether a cohort is a train that says something about the link. Whoever paused has sent none; and few packets may be held
    /// up, or lost, in a way that looks like a link's.
    fn is_telling(&self, sample: &Sample) -> bool {
        let least = match self.delay.is_jitter_known() {
            true => LEAP_PACKETS_MIN,
            false => TELLING_PACKETS_MIN,
        };
        sample.sent_packets >= least as f64
    }

    /// Whether a train was longer when it arrived than when it was sent, or a part of it was dropped.
    fn is_slowed(&self, sample: &Sample) -> bool {
        // What a lossy path has taken of a train did not make it longer.
        let whole = sample.sent_rate * (1.0 - sample.missing.min(POLICED_MISSING));
        // Nor has a machine that was held up, and that says nothing about the link.
        let is_links = sample.missing > POLICED_MISSING || is_alike(sample);
        self.is_telling(sample) && is_links && sample.rate < LEAP_SLOWED * whole
    }

    /// Whether a train was both slowed and delayed, as the link does it.
    fn has_met_link(&self, sample: &Sample, corrected: f64) -> bool {
        let packets = 2.0 * self.mtu_bytes / corrected.max(1.0);
        let limit = 0.005f64.max(packets).max(1.5 * self.delay.jitter());
        let last_ns = Some(sample.rtt_ns.1).filter(|rtt_ns| *rtt_ns != u64::MAX);
        let queue_ns = last_ns.map_or(0, |ns| ns.saturating_sub(self.delay.base_ns()));
        let is_delayed = queue_ns as f64 / 1e9 > limit;
        let is_slowed = sample.rate < LEAP_SLOWED * sample.sent_rate;
        let is_train = self.is_telling(sample) && !sample.is_limited;
        // A queue that overflows delays what follows no longer.
        let has_overflown = sample.missing > POLICED_MISSING && queue_ns as f64 / 1e9 > SHORT_QUEUE;
        is_train && is_slowed && is_delayed && (has_overflown || is_alike(sample))
    }

    pub(super) fn learn_climb(&mut self, now_ns: u64, sample: &Sample, corrected: f64) {
        if !matches!(self.phase, Phase::Climb(_)) {
            return;
        }
        if sample.rate > LEAP_SLOWED * sample.sent_rate && self.delay.queue() < SHORT_QUEUE {
            self.loss.handle_start(sample.missing, sample.sent_packets);
        }
        let known = self.rates.get().unwrap_or(0.0);
        self.raise(sample, corrected);
        // Few packets of somebody who pauses are slowed by any loss, and delayed by what others do.
        let is_full = !sample.is_limited && !sample.is_lump;
        let is_queued = is_full && self.is_queued(sample, corrected);
        let is_flood = self.is_flood(sample);
        let is_jittery = is_jittery(&self.delay);
        let shorts_max = if is_jittery { 8 } else { 3 };
        let is_slow = sample.rate < 0.7 * sample.sent_rate && sample.missing > POLICED_MISSING;
        let is_short = self.delay.is_jitter_known() && is_full && is_slow;
        let is_max = self.is_at_max();
        let Phase::Climb(climb) = &mut self.phase else {
            return;
        };
        climb.is_full |= is_full;
        climb.short = if is_short { climb.short + 1 } else { 0 };
        climb.queued = if is_queued { climb.queued + 1 } else { 0 };
        climb.floods = match is_flood {
            true => climb.floods + 1,
            false => climb.floods.saturating_sub(2),
        };
        let is_flooded = climb.floods >= FLOODS_MAX;
        // Where round trips vary, one cohort proves nothing.
        let is_queued = climb.queued > u32::from(is_jittery);
        if climb.short >= shorts_max && climb.leaps(&self.delay) {
            // A train passed that was shorter than a policer's patience.
            self.rates.set(self.latest.max(known / LEAP_GAIN));
        }
        let Phase::Climb(climb) = &self.phase else {
            return;
        };
        let is_policed = climb.short >= shorts_max;
        if is_queued || is_max || is_flooded || is_policed || climb.flat_rounds >= FLAT_ROUNDS {
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

    /// Whether so much arrived slower than it was sent that it cannot be an accident.
    fn is_flood(&self, sample: &Sample) -> bool {
        let limit = FLOODED
            .max(0.5 * self.delay.base())
            .max(1.5 * self.delay.jitter());
        let least_ns = sample.rtt_ns.0.min(sample.rtt_ns.1);
        let queue = least_ns.saturating_sub(self.delay.base_ns()) as f64 / 1e9;
        let has_waited = least_ns != u64::MAX && queue > limit;
        let is_much = sample.sent_packets >= LEAP_PACKETS_MIN as f64;
        is_much
            && sample.rate < 0.9 * sample.sent_rate
            && (has_waited || sample.missing > POLICED_MISSING)
    }

    /// Something became much faster: search as at the start, from where we are.
    pub(super) fn climb_again(&mut self) {
        let mut climb = Climb::new(None);
        climb.gain = 1.6;
        climb.best = self.rate();
        self.enter(Phase::Climb(climb));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU_BYTES: f64 = 1472.0;

    fn delay(rtt_ms: u64) -> Delay {
        let mut delay = Delay::new();
        delay.handle_rtt(1, rtt_ms * 1_000_000, false);
        delay
    }

    #[test]
    fn a_message_does_not_wait_as_a_bulk_transfer_would() {
        let climb = Climb::new(None);
        let far = delay(200);
        let pace = |packets| climb.pace(None, &far, MTU_BYTES, packets);
        // Four packets in less than ten milliseconds, and 32 in a round trip.
        assert!(pace(0) >= 4.0 * MTU_BYTES / 0.01, "{}", pace(0));
        assert_eq!(pace(LEAP_PACKETS_MIN), FIRST_PACKETS * MTU_BYTES / 0.2);
    }
}
