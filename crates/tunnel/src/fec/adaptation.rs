//! How much is repaired: from the loss there is before repair, and never much.
//!
//! * The loss is that of the wire: what the transport still counts lost and what was recovered,
//!   over the last ten thousand packets. It is learnt only while the queue is short and was: loss
//!   that comes with delay is a full queue, and repairs would make it fuller. Nor is it learnt of
//!   what was sent while nothing was answered: a link that was down is no lossy one.
//! * A burst of datagrams gets repairs for as many losses as are exceeded once in some hundreds of
//!   bursts, for losses in runs of the usual length ([`odds`](super::odds)). Below [`LOSS_OFF`] it
//!   gets none.
//! * How seldom that is depends on what can be afforded ([`budget`](super::budget)). Where runs are
//!   so long that even the last odds cannot be, repairs would cost much and help few: none are
//!   made, and it is tried again after a minute, later after more. How long runs are is known from
//!   repairs alone, so a try begins as if losses were independent.

use super::budget::Budget;
use super::odds::{LEVELS, most_lost};

/// Loss from which repairs are sent.
pub const LOSS_ON: f64 = 0.0008;
/// Loss below which they cease.
pub const LOSS_OFF: f64 = 0.0005;
/// More loss than this is not planned for.
const LOSS_MAX: f64 = 0.25;
/// Packets after which an observation counts half: some losses at the thresholds.
const HALF_LIFE_PACKETS: f64 = 12_000.0;
/// On a slow link after this.
const HALF_LIFE_S: f64 = 20.0;
/// Losses that must be remembered before repairs begin: one stray loss is none.
const LOSSES_MIN: f64 = 2.0;
/// Round trips this much above the shortest mean a queue, nanoseconds.
const QUEUE_NS_MIN: u64 = 25_000_000;
/// A transport takes a packet for lost up to this long after two round trips, nanoseconds.
const LATENESS_NS: u64 = 200_000_000;
/// The shortest round trip is forgotten after one to two of these, nanoseconds.
const RTT_WINDOW_NS: u64 = 15_000_000_000;
/// Longer than this and than four round trips without an answer is an outage, nanoseconds.
const OUTAGE_NS_MIN: u64 = 1_000_000_000;
/// Runs of losses from which their mean length is believed.
const RUNS_MIN: f64 = 8.0;
const RUNS_HALF_LIFE: f64 = 32.0;
/// The longest run repairs are sized for, datagrams.
const BURST_MAX: f64 = 8.0;
/// Runs shorter than this are those of independent losses.
const BURST_LONG: f64 = 1.5;
/// Until the first try, and the longest time until another, nanoseconds.
const REST_NS_MIN: u64 = 60_000_000_000;
const REST_NS_MAX: u64 = 4 * REST_NS_MIN;

/// What is done about the losses of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CorrectionState {
    /// Too little is lost.
    #[default]
    Off,
    /// Repairs are made.
    On,
    /// None are made, or for a try only: losses come in runs too long for what repairs may cost.
    TooDear,
}

impl CorrectionState {
    /// One word.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            CorrectionState::Off => "off",
            CorrectionState::On => "on",
            CorrectionState::TooDear => "too-dear",
        }
    }
}

/// Cumulative counters of a tunnel's sending side at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observation {
    /// The moment, nanoseconds.
    pub now_ns: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets the transport counts lost, that is after repair.
    pub lost: u64,
    /// Datagrams the peer has recovered and that did not come late.
    pub recovered: u64,
    /// Datagrams missing when a repair named them.
    pub missing: u64,
    /// Runs of these.
    pub runs: u64,
    /// Packets the peer has acknowledged.
    pub acknowledged: u64,
    /// Sent, neither acknowledged nor taken for lost, bytes.
    pub in_flight_bytes: u64,
    /// Round trip, nanoseconds.
    pub rtt_ns: u64,
}

/// What is known of runs of losses, older ones less and less.
#[derive(Debug, Clone, Copy, Default)]
struct Runs {
    missing: f64,
    runs: f64,
    /// Datagrams that repairs have covered, and in how many bursts these were sent.
    covered: f64,
    bursts: f64,
}

/// Repairs are too dear: none until then, then a try.
#[derive(Debug, Clone, Copy)]
struct Rest {
    until_ns: u64,
    rest_ns: u64,
}

/// Decides how many repairs are sent.
#[derive(Debug, Clone)]
pub struct Adaptation {
    /// None yet: what was lost before, while both sides shook hands, is nobody's business.
    is_begun: bool,
    last: Observation,
    sent: f64,
    lost: f64,
    runs: Runs,
    /// Shortest round trip of this window and of the one before.
    rtt_ns: [u64; 2],
    rtt_window_ns: u64,
    /// Losses counted until then may be those of a full queue or of a link that was down.
    ignored_until_ns: u64,
    /// When the peer answered last, or had nothing to answer.
    answered_ns: u64,
    is_on: bool,
    is_congested: bool,
    rest: Option<Rest>,
    budget: Budget,
    /// Which odds can be afforded.
    level: usize,
}

impl Default for Adaptation {
    fn default() -> Self {
        Adaptation {
            is_begun: false,
            last: Observation::default(),
            sent: 0.0,
            lost: 0.0,
            runs: Runs::default(),
            rtt_ns: [u64::MAX; 2],
            rtt_window_ns: 0,
            ignored_until_ns: 0,
            answered_ns: 0,
            is_on: false,
            is_congested: false,
            rest: None,
            budget: Budget::default(),
            level: 0,
        }
    }
}

impl Adaptation {
    /// Takes the counters of now; call it a few times per second.
    pub fn observe(&mut self, now: Observation) {
        if !std::mem::replace(&mut self.is_begun, true) {
            (self.last, self.answered_ns) = (now, now.now_ns);
            return;
        }
        let was_down = self.is_down(&now);
        let before = std::mem::replace(&mut self.last, now);
        let grown = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let sent = grown(now.sent, before.sent);
        let lost = grown(now.lost, before.lost) + grown(now.recovered, before.recovered);
        let seconds = grown(now.now_ns, before.now_ns) / 1e9;
        self.budget.pass(seconds);
        if was_down || self.queue_ns(&now) > self.queue_ns_max() {
            // What is dropped now is missed a round trip later.
            self.ignored_until_ns = now.now_ns.saturating_add(2 * now.rtt_ns) + LATENESS_NS;
        }
        if now.now_ns < self.ignored_until_ns {
            self.is_congested = lost > 3.0 + 2.0 * self.loss() * sent;
        } else {
            self.is_congested = false;
            let half_lives = (sent / HALF_LIFE_PACKETS).max(seconds / HALF_LIFE_S);
            let kept = 0.5_f64.powf(half_lives);
            self.sent = self.sent * kept + sent;
            self.lost = self.lost * kept + lost.min(sent);
            self.note_runs(
                grown(now.missing, before.missing),
                grown(now.runs, before.runs),
            );
        }
        self.judge(now.now_ns);
    }

    /// Whether nothing of what was sent has been answered for long, until now.
    fn is_down(&mut self, now: &Observation) -> bool {
        let outage_ns = OUTAGE_NS_MIN.max(now.rtt_ns.saturating_mul(4));
        let was_down = now.now_ns.saturating_sub(self.answered_ns) > outage_ns;
        let is_answered = now.acknowledged != self.last.acknowledged;
        if is_answered || self.last.in_flight_bytes == 0 {
            self.answered_ns = now.now_ns;
        }
        was_down && self.last.in_flight_bytes > 0
    }

    fn judge(&mut self, now_ns: u64) {
        let loss = self.loss();
        self.is_on = match self.is_on {
            true => loss >= LOSS_OFF,
            false => loss >= LOSS_ON && self.lost >= LOSSES_MIN,
        };
        self.level = self.budget.level();
        let is_short = self.burst() >= BURST_LONG && self.budget.is_short();
        match self.rest {
            _ if !self.is_on => self.rest = None,
            Some(rest) if now_ns < rest.until_ns => {}
            Some(rest) if is_short => {
                self.rest(now_ns, rest.rest_ns.saturating_mul(2).min(REST_NS_MAX));
            }
            // The try has shown that runs are short, or cheap enough, or that there are few.
            Some(rest) if self.has_shown(now_ns.saturating_sub(rest.until_ns)) => self.rest = None,
            None if is_short => self.rest(now_ns, REST_NS_MIN),
            _ => {}
        }
    }

    fn has_shown(&self, tried_ns: u64) -> bool {
        self.runs.is_known() && self.budget.is_tallied() || tried_ns > REST_NS_MIN
    }

    /// No repairs for so long, and then a try that knows nothing of before.
    fn rest(&mut self, now_ns: u64, rest_ns: u64) {
        let until_ns = now_ns.saturating_add(rest_ns);
        self.rest = Some(Rest { until_ns, rest_ns });
        self.runs = Runs::default();
        self.budget.forget();
    }

    fn note_runs(&mut self, missing: f64, runs: f64) {
        let was_known = self.runs.is_known();
        self.runs.note(missing, runs);
        if self.runs.is_known() && !was_known {
            // What was wanted before was for runs of another length.
            self.budget.forget();
        }
    }

    /// How much longer the round trip is than the shortest known, nanoseconds.
    fn queue_ns(&mut self, now: &Observation) -> u64 {
        if now.rtt_ns == 0 {
            return 0;
        }
        if now.now_ns.saturating_sub(self.rtt_window_ns) > RTT_WINDOW_NS {
            self.rtt_window_ns = now.now_ns;
            self.rtt_ns = [now.rtt_ns, self.rtt_ns[0]];
        }
        let [this, before] = &mut self.rtt_ns;
        *this = now.rtt_ns.min(*this);
        now.rtt_ns - *this.min(before)
    }

    fn queue_ns_max(&self) -> u64 {
        let [this, before] = self.rtt_ns;
        QUEUE_NS_MIN.max(this.min(before) / 8)
    }

    /// Whether repairs are sent.
    #[must_use]
    pub fn is_on(&self) -> bool {
        let rests = |rest: Rest| self.last.now_ns < rest.until_ns;
        self.repeats() && !self.rest.is_some_and(rests)
    }

    /// Whether small frames are sent again: that is cheap however long runs are.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.is_on && !self.is_congested
    }

    /// What the path's loss asks for, even while a full queue holds repairs back.
    #[must_use]
    pub fn state(&self) -> CorrectionState {
        match self.rest {
            _ if !self.is_on => CorrectionState::Off,
            Some(_) => CorrectionState::TooDear,
            None => CorrectionState::On,
        }
    }

    /// Loss on the wire before repair, 0 to 1.
    #[must_use]
    pub fn loss(&self) -> f64 {
        if self.sent > 0.0 {
            self.lost / self.sent
        } else {
            0.0
        }
    }

    /// Mean length of a run of losses, datagrams.
    #[must_use]
    pub fn burst(&self) -> f64 {
        self.runs.mean_length()
    }

    /// How many repairs so many datagrams with so many rows should have, with each of the odds.
    fn repairs_at(&self, datagrams: usize, rows: usize) -> [usize; LEVELS] {
        let (count, loss) = (datagrams.max(1) as f64, self.loss().min(LOSS_MAX));
        most_lost(datagrams, loss, self.burst()).map(|lost| {
            let lost_rows = lost as f64 * rows as f64 / count;
            // Some of the repairs are lost as well.
            (lost_rows / (1.0 - loss)).ceil() as usize
        })
    }

    /// How many repairs so many datagrams with so many rows should have.
    #[must_use]
    pub fn repairs(&self, datagrams: usize, rows: usize) -> usize {
        match self.is_on() {
            true => self.affordable(self.repairs_at(datagrams, rows)),
            false => 0,
        }
    }

    /// Plans repairs for a burst of datagrams that has gone on: for all of it, less what was
    /// planned before, but one datagram's at least. Each costs so many bytes.
    pub(super) fn plan(&mut self, before: Stretch, new: Stretch, repair_bytes: usize) -> usize {
        if !self.is_on() {
            return 0;
        }
        let whole = self.repairs_at(before.datagrams + new.datagrams, before.rows + new.rows);
        let more = whole.map(|repairs| repairs.saturating_sub(before.repairs).max(new.rows_of_one));
        self.budget.want(more.map(|repairs| repairs * repair_bytes));
        self.runs.cover(new.datagrams, before.datagrams == 0);
        self.affordable(more)
    }

    fn affordable(&self, repairs: [usize; LEVELS]) -> usize {
        repairs.get(self.level).copied().unwrap_or(0)
    }

    /// Bytes were sent; repairs may use a part of it.
    /// A datagram that bulk has filled up counts for what is protected in it.
    pub fn sent(&mut self, bytes: usize, protected_bytes: usize) {
        self.budget.handle_sent(bytes, protected_bytes);
    }

    /// Pays for a repair of so many bytes; false when it cannot be afforded.
    pub fn spend(&mut self, bytes: usize) -> bool {
        self.budget.spend(bytes)
    }

    /// Pays for one copy of a small frame.
    pub(super) fn spend_on_copy(&mut self, bytes: usize) -> bool {
        self.budget.want([bytes; LEVELS]);
        self.budget.spend(bytes)
    }
}

/// Protected datagrams next to each other, and the repairs planned for them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stretch {
    pub datagrams: usize,
    pub rows: usize,
    /// Rows of a datagram at most: fewer repairs could not replace it.
    pub rows_of_one: usize,
    pub repairs: usize,
}

impl Runs {
    fn note(&mut self, missing: f64, runs: f64) {
        let kept = 0.5_f64.powf(runs / RUNS_HALF_LIFE);
        self.missing = self.missing * kept + missing;
        self.runs = self.runs * kept + runs;
        self.covered *= kept;
        self.bursts *= kept;
    }

    /// So many datagrams more are covered, of the same burst or of a new one.
    fn cover(&mut self, datagrams: usize, is_new: bool) {
        self.covered += datagrams as f64;
        self.bursts += f64::from(u8::from(is_new));
    }

    fn is_known(&self) -> bool {
        self.runs >= RUNS_MIN
    }

    /// Of a run that began before a burst of datagrams or goes on after it only a part is seen:
    /// of c datagrams in b bursts with a share p missing, p b runs begin with a burst and
    /// p (c - b) / length within.
    fn mean_length(&self) -> f64 {
        if !self.is_known() {
            return 1.0;
        }
        let seen = self.missing / self.runs;
        let (within, begun) = (
            self.covered - self.bursts,
            self.covered / seen - self.bursts,
        );
        // Of short bursts that says little.
        let length = match begun > 0.0 && within > begun && within >= 3.0 * self.bursts {
            true => within / begun,
            false => seen,
        };
        length.clamp(1.0, BURST_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Feeds ten seconds of 1000 packets each with this loss and round trip.
    fn run(adaptation: &mut Adaptation, loss: f64, rtt_ms: u64) {
        let mut now = adaptation.last;
        let mut owed = 0.0;
        for _ in 0..100 {
            owed += 100.0 * loss;
            now.now_ns += 100 * MS;
            now.sent += 100;
            now.lost += owed as u64;
            now.rtt_ns = rtt_ms * MS;
            owed -= owed.trunc();
            adaptation.observe(now);
        }
    }

    #[test]
    fn it_learns_the_loss_and_forgets_it() {
        let mut adaptation = Adaptation::default();
        run(&mut adaptation, 0.0, 60);
        assert!(!adaptation.is_on());
        assert_eq!(adaptation.repairs(10, 20), 0);
        run(&mut adaptation, 0.01, 60);
        assert!(adaptation.is_on());
        assert!((0.003..0.0101).contains(&adaptation.loss()));
        assert!((3..=5).contains(&adaptation.repairs(10, 20)));
        for _ in 0..6 {
            run(&mut adaptation, 0.0, 60);
        }
        assert!(!adaptation.is_on());
    }

    #[test]
    fn what_is_between_the_thresholds_changes_nothing() {
        let mut adaptation = Adaptation::default();
        for _ in 0..4 {
            run(&mut adaptation, 0.00065, 60);
        }
        assert!(!adaptation.is_on());
        for _ in 0..4 {
            run(&mut adaptation, 0.002, 60);
        }
        assert!(adaptation.is_on());
        for _ in 0..10 {
            run(&mut adaptation, 0.00065, 60);
        }
        assert!(adaptation.is_on());
    }

    #[test]
    fn one_stray_loss_is_none() {
        let mut adaptation = Adaptation::default();
        adaptation.observe(Observation::default());
        adaptation.observe(Observation {
            now_ns: 1,
            sent: 100,
            lost: 1,
            rtt_ns: 60 * MS,
            ..Observation::default()
        });
        assert!(!adaptation.is_on());
    }

    #[test]
    fn loss_with_delay_is_congestion() {
        let mut adaptation = Adaptation::default();
        run(&mut adaptation, 0.0, 60);
        run(&mut adaptation, 0.05, 160);
        assert!(!adaptation.is_on());
        assert_eq!(adaptation.loss(), 0.0);
        run(&mut adaptation, 0.01, 62);
        assert!(adaptation.is_on());
        run(&mut adaptation, 0.10, 160);
        assert!(!adaptation.is_on(), "much more loss, and delay with it");
        assert_eq!(adaptation.state(), CorrectionState::On, "it pauses only");
        run(&mut adaptation, 0.01, 62);
        assert!(adaptation.is_on());
    }

    #[test]
    fn drops_that_are_missed_after_the_queue_has_drained_are_congestion_too() {
        let mut adaptation = Adaptation::default();
        run(&mut adaptation, 0.0, 60);
        let mut now = adaptation.last;
        for (lost, rtt_ms) in [(0, 160), (0, 160), (500, 70), (300, 60), (0, 60)] {
            now.now_ns += 100 * MS;
            now.sent += 1000;
            now.lost += lost;
            now.rtt_ns = rtt_ms * MS;
            adaptation.observe(now);
        }
        run(&mut adaptation, 0.0, 60);
        assert!(!adaptation.is_on());
        assert_eq!(adaptation.loss(), 0.0);
    }

    #[test]
    fn a_longer_route_is_no_queue_for_long() {
        let mut adaptation = Adaptation::default();
        run(&mut adaptation, 0.0, 60);
        for _ in 0..4 {
            run(&mut adaptation, 0.01, 200);
        }
        assert!(adaptation.is_on());
    }

    #[test]
    fn recovered_datagrams_were_lost() {
        let mut adaptation = Adaptation::default();
        adaptation.observe(Observation::default());
        adaptation.observe(Observation {
            now_ns: 1,
            sent: 1000,
            lost: 10,
            recovered: 10,
            rtt_ns: 60 * MS,
            ..Observation::default()
        });
        assert!((adaptation.loss() - 0.02).abs() < 1e-9);
    }

    #[test]
    fn bursts_ask_for_more() {
        let mut adaptation = Adaptation::default();
        run(&mut adaptation, 0.01, 60);
        let single = adaptation.repairs(20, 40);
        let mut now = adaptation.last;
        (now.missing, now.runs) = (60, 20);
        adaptation.observe(now);
        assert!((adaptation.burst() - 3.0).abs() < 1e-9);
        assert!(adaptation.repairs(20, 40) > single + single / 2);
    }

    #[test]
    fn of_runs_that_are_cut_off_the_whole_length_is_known() {
        // Bursts of seven and of 46 datagrams; runs of three begin once in 300.
        let mut runs = Runs::default();
        let (share, length) = (0.01, 3.0);
        for _ in 0..1000 {
            for datagrams in [7.0, 46.0] {
                runs.cover(datagrams as usize, true);
                let begun = share + (datagrams - 1.0) * share / length;
                runs.note(datagrams * share, begun);
            }
        }
        // 53 datagrams in two bursts: 2 + 51 / 3 runs begin where 53 are missing.
        assert!((runs.missing / runs.runs - 53.0 / 19.0).abs() < 0.05);
        assert!((runs.mean_length() - 3.0).abs() < 0.05, "{runs:?}");
    }

    /// A second of 4000 packets, two requests of 46 datagrams among them; one packet in a hundred
    /// is lost, in runs of this length, and seen where repairs are made.
    fn second(adaptation: &mut Adaptation, length: u64) {
        for tenth in 0..10 {
            let is_on = adaptation.is_on();
            adaptation.sent(400 * 1400, 0);
            if tenth % 5 == 0 {
                let request = Stretch {
                    datagrams: 46,
                    rows: 92,
                    rows_of_one: 2,
                    repairs: 0,
                };
                adaptation.sent(46 * 1400, 46 * 1400);
                let repairs = adaptation.plan(Stretch::default(), request, 1000);
                assert_eq!(repairs > 0, is_on);
                for _ in 0..repairs {
                    adaptation.spend(1000);
                }
            }
            let mut now = adaptation.last;
            now.now_ns += 100 * MS;
            now.sent += 400;
            now.lost += 4;
            now.rtt_ns = 60 * MS;
            if is_on && tenth == 5 {
                now.missing += length;
                now.runs += 1;
            }
            adaptation.observe(now);
        }
    }

    fn seconds(adaptation: &mut Adaptation, count: usize, length: u64) -> usize {
        let mut on = 0;
        for _ in 0..count {
            second(adaptation, length);
            on += usize::from(adaptation.is_on());
        }
        on
    }

    #[test]
    fn repairs_of_long_runs_that_cost_too_much_are_not_made() {
        let mut adaptation = Adaptation::default();
        seconds(&mut adaptation, 60, 5);
        assert_eq!(adaptation.state(), CorrectionState::TooDear);
        assert!(!adaptation.is_on());
        assert_eq!(adaptation.repairs(46, 92), 0);
        assert!(
            adaptation.repeats() && adaptation.spend_on_copy(100),
            "copies are cheap"
        );
        let on = seconds(&mut adaptation, 1200, 5);
        assert!((20..200).contains(&on), "{on} s of tries in twenty minutes");
        assert_eq!(adaptation.state(), CorrectionState::TooDear);
    }

    #[test]
    fn a_path_whose_losses_become_independent_is_repaired_again() {
        let mut adaptation = Adaptation::default();
        seconds(&mut adaptation, 60, 5);
        assert_eq!(adaptation.state(), CorrectionState::TooDear);
        seconds(&mut adaptation, 120, 1);
        assert_eq!(adaptation.state(), CorrectionState::On);
        assert_eq!(seconds(&mut adaptation, 120, 1), 120);
    }

    #[test]
    fn independent_losses_are_repaired_as_far_as_can_be_paid() {
        let mut adaptation = Adaptation::default();
        seconds(&mut adaptation, 30, 1);
        // Nothing but requests, and many.
        for _ in 0..100 {
            for _ in 0..10 {
                adaptation.sent(7 * 1400, 7 * 1400);
                let request = Stretch {
                    datagrams: 7,
                    rows: 14,
                    rows_of_one: 2,
                    repairs: 0,
                };
                let repairs = adaptation.plan(Stretch::default(), request, 1400);
                for _ in 0..repairs {
                    adaptation.spend(1400);
                }
            }
            run_for_a_second(&mut adaptation);
        }
        assert!(adaptation.budget.is_short());
        assert_eq!(adaptation.state(), CorrectionState::On);
    }

    fn run_for_a_second(adaptation: &mut Adaptation) {
        let mut now = adaptation.last;
        now.now_ns += 1000 * MS;
        now.sent += 100;
        now.lost += 5;
        adaptation.observe(now);
    }

    /// What a link that is cut swallows, and what is asked for again until it is back.
    fn cut(adaptation: &mut Adaptation, seconds: u64, in_flight: u64) {
        let mut now = adaptation.last;
        now.in_flight_bytes = in_flight * 1400;
        for tenth in 0..10 * seconds {
            now.now_ns += 100 * MS;
            now.sent += u64::from(tenth % 10 == 0);
            adaptation.observe(now);
        }
        // The first acknowledgement tells what is lost, some of it a round trip later.
        for lost in [in_flight, seconds, 0] {
            now.now_ns += 100 * MS;
            (now.lost, now.missing, now.runs) = (now.lost + lost, now.missing + 64, now.runs + 1);
            (now.acknowledged, now.in_flight_bytes) = (now.acknowledged + 1, 0);
            adaptation.observe(now);
        }
    }

    #[test]
    fn what_is_lost_while_the_link_is_down_is_no_loss() {
        let mut adaptation = Adaptation::default();
        run(&mut adaptation, 0.0, 60);
        cut(&mut adaptation, 10, 500);
        assert_eq!(adaptation.loss(), 0.0);
        run(&mut adaptation, 0.0, 60);
        assert_eq!(
            (adaptation.loss(), adaptation.state()),
            (0.0, CorrectionState::Off)
        );
        run(&mut adaptation, 0.01, 60);
        assert_eq!(
            adaptation.state(),
            CorrectionState::On,
            "the next loss is one"
        );
        let (loss, burst) = (adaptation.loss(), adaptation.burst());
        cut(&mut adaptation, 3, 500);
        assert!(adaptation.loss() <= loss, "time passes");
        assert_eq!(adaptation.burst(), burst, "nor is it a long run");
    }

    #[test]
    fn what_was_lost_before_it_began_is_no_loss() {
        let mut adaptation = Adaptation::default();
        adaptation.observe(Observation {
            now_ns: 1,
            sent: 18,
            lost: 5,
            rtt_ns: 60 * MS,
            ..Observation::default()
        });
        assert_eq!(adaptation.loss(), 0.0);
        assert!(!adaptation.is_on());
    }

    #[test]
    fn a_pause_is_no_outage() {
        let mut adaptation = Adaptation::default();
        run(&mut adaptation, 0.0, 60);
        let mut now = adaptation.last;
        now.now_ns += 60_000 * MS;
        adaptation.observe(now);
        (now.now_ns, now.sent, now.lost) = (now.now_ns + 100 * MS, now.sent + 100, 10);
        (now.in_flight_bytes, now.acknowledged) = (1400, 90);
        adaptation.observe(now);
        assert!(adaptation.loss() > 0.0);
    }

    #[test]
    fn counters_that_go_back_do_no_harm() {
        let mut adaptation = Adaptation::default();
        run(&mut adaptation, 0.01, 60);
        adaptation.observe(Observation::default());
        assert!(adaptation.loss().is_finite() && adaptation.repairs(1, 2) <= 4);
    }
}
