//! A queue that stands although we send less than the path delivers: whose is it?
//!
//! Yield: send seven tenths of what arrives for as long as that should need to empty the queue. It
//! empties: it was ours. Nothing changes and nothing is lost: there is no queue, the route has
//! become longer. It stays: somebody else fills it. Where far less arrives than even the test sends,
//! it can empty nothing: the link has lost most of its rate, and the next test begins from there.

use super::compete::Compete;
use super::{Controller, Phase, SHORT_QUEUE};

const YIELD_GAIN: f64 = 0.7;
/// The same while others are known to share the link: what we have is little, and must show.
const LOOK_GAIN: f64 = 0.5;
/// The rate is not cut further than this at once: what arrived last may be an accident.
const LEAST_STEP: f64 = 0.3;
/// A test that is bounded by that step, where less than this part of it arrived, sends nearly as much as arrives or more, and
/// empties nothing in its time.
const STEP: f64 = 0.9;
/// A test lasts so many times as long as the queue should need to empty.
const DRAIN_MARGIN: f64 = 1.25;
/// A queue that stands is more than this beyond twice the threshold, s.
const STANDING: f64 = 0.012;
/// Queue in thresholds above which nothing is probed.
pub(super) const PROBE_QUEUE: f64 = 1.5;
/// Yielding in vain so often means that somebody fills whatever we leave.
const YIELDS_IN_VAIN: u32 = 3;
/// While others are known to share the link, a queue that does not move when we yield is more
/// often them filling in than a longer route: so many looks in a row must say so.
const FLAT_LOOKS: u32 = 3;
/// The round trip of a longer route moves by less than this part of what it grew by, and the
/// threshold.
const FLAT: f64 = 0.05;
/// A route does not become longer again within this time.
const CREEPING_NS: u64 = 10_000_000_000;

#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    /// Since when the queue stands.
    since_ns: Option<u64>,
    in_vain: u32,
    /// Looks in a row in which the queue did not move.
    flat: u32,
    /// When a queue was last taken for a longer route, and the round trip when that was first done
    /// of several times in a row.
    rebased: Option<(u64, u64)>,
}

#[derive(Debug, Clone)]
pub(super) struct Yield {
    rate: f64,
    /// What was believed before.
    known: f64,
    /// Much less arrived than this test sends: it empties nothing, and shows whether that is so.
    is_step: bool,
    /// Queue at the beginning, s.
    queue: f64,
    /// When its effect is to be judged.
    until_ns: u64,
    /// Least and largest queue seen since the effect could be seen.
    from_ns: u64,
    range: Option<(f64, f64)>,
    since_ns: u64,
    /// What arrived before the first of several tests in a row.
    entry_rate: f64,
    /// First packet of the test, and how many since have been lost.
    first_pn: u64,
    lost: u64,
    /// What goes on if others are still there.
    shared: Option<Compete>,
}

impl Yield {
    pub(super) fn pace(&self) -> f64 {
        self.rate * gain(self.shared.as_ref())
    }

    pub(super) fn handle_lost(&mut self, pn: u64) {
        self.lost += u64::from(pn >= self.first_pn);
    }
}

fn gain(shared: Option<&Compete>) -> f64 {
    match shared {
        Some(_) => LOOK_GAIN,
        None => YIELD_GAIN,
    }
}

impl Controller {
    /// Called after every acknowledgement.
    pub(super) fn watch_queue(&mut self, now_ns: u64) {
        let queue = self.delay.queue();
        if let Phase::Yield(test) = &mut self.phase {
            if now_ns >= test.from_ns {
                let (least, largest) = test.range.unwrap_or((queue, queue));
                test.range = Some((least.min(queue), largest.max(queue)));
            }
            return;
        }
        if matches!(self.phase, Phase::Cruise(_)) && self.has_found_more() {
            return self.climb_again();
        }
        let is_steady = matches!(self.phase, Phase::Cruise(_) | Phase::Up | Phase::Down);
        // Less than this and there is a probe soon, which gives the queue back.
        if !is_steady || queue < PROBE_QUEUE * self.threshold() {
            self.standing.since_ns = None;
            return;
        }
        let since_ns = *self.standing.since_ns.get_or_insert(now_ns);
        // A longer queue cannot wait; a short one has been drained for a while by the pace.
        let patience = match queue > STANDING + 2.0 * self.threshold() {
            true => self.rtt().max(0.1),
            false => (4.0 * self.rtt()).max(1.0),
        };
        if now_ns.saturating_sub(since_ns) as f64 / 1e9 > patience {
            self.standing.since_ns = None;
            self.start_yield(now_ns);
        }
    }

    pub(super) fn start_yield(&mut self, now_ns: u64) {
        let shared = match &self.phase {
            Phase::Compete(compete) => Some(compete.clone()),
            Phase::Yield(test) => test.shared.clone(),
            _ => None,
        };
        let queue = self.delay.queue();
        let rtt_ns = self.delay.recent_ns();
        let known = self.rate();
        let sent = shared
            .as_ref()
            .map_or(known, |shared| shared.pace(self.rtt()).min(known));
        let least = LEAST_STEP * sent;
        let rate = match self.latest > 0.0 {
            true => self.latest.clamp(least, known),
            false => known,
        };
        let gain = gain(shared.as_ref());
        let is_step = self.latest > 0.0 && self.latest < STEP * least;
        let drain = match is_step {
            true => self.cohort_span(),
            false => queue / (1.0 - gain) * DRAIN_MARGIN,
        };
        let drain_ns = (drain * 1e9) as u64;
        let entry_rate = match &self.phase {
            Phase::Yield(test) => test.entry_rate.min(known),
            _ => rate,
        };
        let test = Yield {
            rate,
            known,
            is_step,
            entry_rate,
            queue,
            until_ns: now_ns + rtt_ns + drain_ns,
            from_ns: now_ns + rtt_ns,
            range: None,
            since_ns: now_ns,
            first_pn: self.next_pn,
            lost: 0,
            shared,
        };
        self.enter(Phase::Yield(test));
    }

    pub(super) fn advance_yield(&mut self, now_ns: u64) {
        let Phase::Yield(test) = &self.phase else {
            return;
        };
        let queue = self.delay.queue();
        if queue < self.threshold() {
            // What is gone before less was sent was no queue of ours: a gateway was held up, or an
            // acknowledgement was. Whoever took that for his own would cut his rate each time.
            let rate = match now_ns < test.from_ns && self.standing.in_vain == 0 {
                true => test.known,
                false => test.rate,
            };
            self.standing.in_vain = 0;
            self.delay.freeze(false);
            self.rates.set(rate);
            return self.enter(Phase::Cruise(now_ns));
        }
        if now_ns < test.until_ns {
            return;
        }
        if test.is_step {
            self.rates.set(test.rate);
            return self.start_yield(now_ns);
        }
        let is_flat = self.is_flat(test, queue) && !self.is_lossy(test);
        // Who has been cut has filled the queue, or others have.
        let has_cut = test.shared.as_ref().is_some_and(Compete::has_cut);
        self.standing.flat = match is_flat && !has_cut {
            true => self.standing.flat + 1,
            false => 0,
        };
        let may_compete = !self.settings.is_owned;
        if is_flat && test.shared.is_none() && may_compete && self.is_creeping(now_ns) {
            // It was no longer route the last time, either.
            self.delay.forget_floor();
            let rate = test.entry_rate;
            return self.compete(now_ns, rate);
        }
        if is_flat && (test.shared.is_none() || self.standing.flat >= FLAT_LOOKS) {
            return self.rebase(now_ns);
        }
        if let Some(mut compete) = test.shared.clone() {
            compete.resume(now_ns, now_ns - test.since_ns);
            return self.enter(Phase::Compete(compete));
        }
        self.standing.in_vain += 1;
        if may_compete && self.standing.in_vain >= YIELDS_IN_VAIN && queue > SHORT_QUEUE {
            let rate = test.entry_rate;
            return self.compete(now_ns, rate);
        }
        self.start_yield(now_ns);
    }

    /// Whether the queue did not move. Packets of our own make some noise, and jitter more.
    fn is_flat(&self, test: &Yield, queue: f64) -> bool {
        let noise = match self.delay.jitter() > 0.1 * test.queue {
            true => 0.5 * test.queue,
            false => FLAT * test.queue + self.threshold(),
        };
        let (least, largest) = test.range.unwrap_or((queue, queue));
        least > test.queue - noise && largest < test.queue + noise
    }

    /// Whether the path loses more than it does by itself, although we yield: the queue is full. A
    /// longer route loses nothing.
    fn is_lossy(&self, test: &Yield) -> bool {
        let packets = self.next_pn.saturating_sub(test.first_pn) as f64;
        let missing = test.lost as f64 / packets.max(1.0);
        self.loss.is_excess(missing, packets)
    }

    /// The route has become longer.
    fn rebase(&mut self, now_ns: u64) {
        let rtt_ns = self.delay.recent_ns();
        let first_ns = self.rebased(now_ns).unwrap_or(rtt_ns);
        self.standing.rebased = Some((now_ns, first_ns));
        self.standing.in_vain = 0;
        self.delay.freeze(false);
        self.delay.rebase();
        self.enter(Phase::Cruise(now_ns));
    }

    /// A route becomes longer once. What goes on growing is somebody's queue.
    fn is_creeping(&self, now_ns: u64) -> bool {
        let first_ns = self.rebased(now_ns).unwrap_or(u64::MAX);
        let grown_ns = self.delay.recent_ns().saturating_sub(first_ns);
        grown_ns as f64 / 1e9 > SHORT_QUEUE.max(1.5 * self.delay.jitter())
    }

    /// The round trip when a longer route was seen last, and not long ago.
    fn rebased(&self, now_ns: u64) -> Option<u64> {
        let (at_ns, first_ns) = self.standing.rebased?;
        (now_ns.saturating_sub(at_ns) < CREEPING_NS).then_some(first_ns)
    }

    /// Goes on as one of several, from this rate.
    fn compete(&mut self, now_ns: u64, rate: f64) {
        self.standing.in_vain = 0;
        self.standing.rebased = None;
        self.delay.freeze(true);
        let window = rate * self.rtt();
        self.enter(Phase::Compete(Compete::new(now_ns, window, self.mtu_bytes)));
    }
}
