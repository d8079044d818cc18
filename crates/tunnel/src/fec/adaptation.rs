//! How much is repaired: from the loss there is before repair, and never much.
//!
//! * The loss is that of the wire: what the transport still counts lost and what was recovered,
//!   over the last ten thousand packets. It is learnt only while the queue is short and was: loss
//!   that comes with delay is a full queue, and repairs would make it fuller.
//! * A burst of datagrams gets repairs for the mean loss and four standard deviations more, with
//!   the variance that losses in bursts of the usual length have. Below [`LOSS_OFF`] it gets none.
//! * Repairs may use a fifth of the bytes they protect and 27 bytes of 10,000 of all that is
//!   sent, so bulk loses at most that to them, whatever the bursts ask for.

/// Loss from which repairs are sent.
pub const LOSS_ON: f64 = 0.0008;
/// Loss below which they cease.
pub const LOSS_OFF: f64 = 0.0005;
/// Repairs are made for the mean loss and so many standard deviations more.
const DEVIATIONS: f64 = 4.0;
/// More loss than this is not planned for.
const LOSS_MAX: f64 = 0.25;
/// Repair bytes earned by each protected byte.
const EARNED_PROTECTED: f64 = 0.19;
/// Repair bytes earned by each byte sent, protected or not.
const EARNED_ANY: f64 = 0.0027;
/// Repair bytes earned by a second, so that single keystrokes can be repaired; what is earned by
/// other bytes counts towards it, or a slow link that is full would give a hundredth for this.
const EARNED_SECOND: f64 = 2_000.0;
/// What can be saved up, bytes: the repairs of some requests.
const SAVED_BYTES_MAX: f64 = 32_000.0;
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
/// Runs of losses from which their mean length is believed.
const RUNS_MIN: f64 = 8.0;
const RUNS_HALF_LIFE: f64 = 32.0;
/// The longest burst repairs are sized for, datagrams.
const BURST_MAX: f64 = 8.0;

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
    /// Round trip, nanoseconds.
    pub rtt_ns: u64,
}

/// Decides how many repairs are sent.
#[derive(Debug, Clone)]
pub struct Adaptation {
    last: Observation,
    sent: f64,
    lost: f64,
    missing: f64,
    runs: f64,
    /// Shortest round trip of this window and of the one before.
    rtt_ns: [u64; 2],
    rtt_window_ns: u64,
    /// Losses counted until then may be those of a full queue.
    queue_until_ns: u64,
    is_on: bool,
    is_congested: bool,
    saved_bytes: f64,
    /// Earned since the last observation.
    earned_lately: f64,
}

impl Default for Adaptation {
    fn default() -> Self {
        Adaptation {
            last: Observation::default(),
            sent: 0.0,
            lost: 0.0,
            missing: 0.0,
            runs: 0.0,
            rtt_ns: [u64::MAX; 2],
            rtt_window_ns: 0,
            queue_until_ns: 0,
            is_on: false,
            is_congested: false,
            saved_bytes: SAVED_BYTES_MAX / 2.0,
            earned_lately: 0.0,
        }
    }
}

impl Adaptation {
    /// Takes the counters of now; call it a few times per second.
    pub fn observe(&mut self, now: Observation) {
        let before = std::mem::replace(&mut self.last, now);
        let grown = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let sent = grown(now.sent, before.sent);
        let lost = grown(now.lost, before.lost) + grown(now.recovered, before.recovered);
        let seconds = grown(now.now_ns, before.now_ns) / 1e9;
        let by_second = (seconds * EARNED_SECOND - self.earned_lately).max(0.0);
        self.earned_lately = 0.0;
        self.save(by_second);
        self.note_runs(
            grown(now.missing, before.missing),
            grown(now.runs, before.runs),
        );
        if self.queue_ns(&now) > self.queue_ns_max() {
            // What is dropped now is missed a round trip later.
            self.queue_until_ns = now.now_ns.saturating_add(2 * now.rtt_ns) + LATENESS_NS;
        }
        if now.now_ns < self.queue_until_ns {
            self.is_congested = lost > 3.0 + 2.0 * self.loss() * sent;
        } else {
            self.is_congested = false;
            let half_lives = (sent / HALF_LIFE_PACKETS).max(seconds / HALF_LIFE_S);
            let kept = 0.5_f64.powf(half_lives);
            self.sent = self.sent * kept + sent;
            self.lost = self.lost * kept + lost.min(sent);
        }
        self.judge();
    }

    fn judge(&mut self) {
        let loss = self.loss();
        self.is_on = match self.is_on {
            true => loss >= LOSS_OFF,
            false => loss >= LOSS_ON && self.lost >= LOSSES_MIN,
        };
    }

    fn note_runs(&mut self, missing: f64, runs: f64) {
        let kept = 0.5_f64.powf(runs / RUNS_HALF_LIFE);
        self.missing = self.missing * kept + missing;
        self.runs = self.runs * kept + runs;
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
        self.is_on && !self.is_congested
    }

    /// Whether the path's loss asks for repairs, even while a full queue holds them back.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.is_on
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

    /// Mean length of a burst of losses, datagrams.
    #[must_use]
    pub fn burst(&self) -> f64 {
        if self.runs < RUNS_MIN {
            return 1.0;
        }
        (self.missing / self.runs).clamp(1.0, BURST_MAX)
    }

    /// How many repairs so many datagrams with so many rows should have.
    #[must_use]
    pub fn repairs(&self, datagrams: usize, rows: usize) -> usize {
        if !self.is_on() || datagrams == 0 {
            return 0;
        }
        let (count, loss) = (datagrams as f64, self.loss().min(LOSS_MAX));
        // Bursts of mean length b have 2 b - 1 times the variance of single losses.
        let variance = count * loss * (1.0 - loss) * (2.0 * self.burst() - 1.0);
        let lost = count * loss + DEVIATIONS * variance.sqrt() + (self.burst() - 1.0);
        let lost_rows = lost.min(count) * rows as f64 / count;
        // Some of the repairs are lost as well.
        (lost_rows / (1.0 - loss)).ceil() as usize
    }

    /// Bytes were sent; repairs may use a part of it.
    /// A datagram that bulk has filled up counts for what is protected in it.
    pub fn sent(&mut self, bytes: usize, protected_bytes: usize) {
        let earned = bytes as f64 * EARNED_ANY + protected_bytes as f64 * EARNED_PROTECTED;
        self.earned_lately += earned;
        self.save(earned);
    }

    fn save(&mut self, bytes: f64) {
        self.saved_bytes = (self.saved_bytes + bytes).min(SAVED_BYTES_MAX);
    }

    /// Pays for a repair of so many bytes; false when it cannot be afforded.
    pub fn spend(&mut self, bytes: usize) -> bool {
        let can_pay = self.saved_bytes >= bytes as f64;
        if can_pay {
            self.saved_bytes -= bytes as f64;
        }
        can_pay
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
        assert!((3..=4).contains(&adaptation.repairs(10, 20)));
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
        assert!(adaptation.is_wanted(), "it pauses only");
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
    fn repairs_cost_a_fifth_of_what_they_protect_and_little_of_the_rest() {
        let mut adaptation = Adaptation::default();
        while adaptation.spend(100) {}
        let mut spent = 0;
        for round in 0..10_000 {
            adaptation.sent(1000, if round % 10 == 0 { 1000 } else { 0 });
            if adaptation.spend(800) {
                spent += 800;
            }
        }
        let earned = 10_000_000.0 * EARNED_ANY + 1_000_000.0 * EARNED_PROTECTED;
        assert!(f64::from(spent) <= earned + 100.0);
        assert!(f64::from(spent) > earned * 0.99);
    }

    #[test]
    fn a_second_earns_nothing_on_a_link_that_is_full() {
        let mut adaptation = Adaptation::default();
        while adaptation.spend(100) {}
        let before = adaptation.saved_bytes;
        adaptation.sent(1_000_000, 0);
        let mut now = Observation {
            now_ns: 1000 * MS,
            ..adaptation.last
        };
        adaptation.observe(now);
        let earned = adaptation.saved_bytes - before;
        assert!((earned - 1e6 * EARNED_ANY).abs() < 1.0, "{earned}");
        now.now_ns += 1000 * MS;
        adaptation.observe(now);
        assert!((adaptation.saved_bytes - before - earned - EARNED_SECOND).abs() < 1.0);
    }

    #[test]
    fn counters_that_go_back_do_no_harm() {
        let mut adaptation = Adaptation::default();
        run(&mut adaptation, 0.01, 60);
        adaptation.observe(Observation::default());
        assert!(adaptation.loss().is_finite() && adaptation.repairs(1, 2) <= 4);
    }
}
