//! The congestion controller: fills a link whatever it loses, and keeps its queue short.
//!
//! It models the path instead of reacting to losses: how fast it delivers ([`RateFilter`]), its
//! least round trip and its jitter ([`Delay`]), and what it loses without load ([`LossModel`]). It
//! sends at the rate less what the queue asks for, and asks now and then, with a short train of
//! packets above the rate, whether there is more.
//!
//! ```text
//! Climb ──────► Drain ──► Cruise ──► Up ──► Down ─┐
//! doubling                  ▲ ▲                   │
//!                           │ └───────────────────┘
//!                    queue stands
//!                           ▼
//!                         Yield ── three times in vain ──► Compete
//! ```
//!
//! The contract is that of every pure machine: `handle_*` with the time, then read
//! [`Controller::pace`] and [`Controller::window_bytes`]. Bytes are UDP payload throughout.

mod climb;
mod cohort;
mod compete;
mod delay;
mod loss;
mod probe;
mod rate;
mod standing;
mod view;

use self::climb::Climb;
use self::cohort::{Cohorts, Purpose, Sample};
use self::compete::Compete;
use self::delay::Delay;
use self::loss::LossModel;
use self::rate::RateFilter;
use self::standing::Standing;
pub use self::view::PathView;

/// What the operator or an earlier connection said about the path.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PathSettings {
    /// Rate of the link, bits of Ethernet frames per second (without preamble and FCS).
    pub link_bits_per_s: Option<u64>,
    /// Nobody else uses the link: start at its rate, never compete.
    pub is_owned: bool,
    /// What an earlier connection to the same peer found.
    pub remembered: Option<PathMemory>,
    /// Ethernet, IP and UDP headers of a datagram, bytes.
    pub header_bytes: u16,
}

/// What outlives a connection (RFC 9959).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathMemory {
    /// Bytes of UDP payload per second.
    pub rate: f64,
    /// Least round trip, ns.
    pub rtt_ns: u64,
}

#[derive(Debug, Clone)]
enum Phase {
    Climb(Climb),
    /// Gives back what climbing put in the queue; until when at the latest.
    Drain(u64),
    /// Since when.
    Cruise(u64),
    Up,
    Down,
    Yield(standing::Yield),
    Compete(Compete),
}

/// See the module's page.
#[derive(Debug, Clone)]
pub struct Controller {
    settings: PathSettings,
    mtu_bytes: f64,
    delay: Delay,
    loss: LossModel,
    cohorts: Cohorts,
    rates: RateFilter,
    phase: Phase,
    standing: Standing,
    probe: probe::Probe,
    next_pn: u64,
    largest_acked_pn: Option<u64>,
    round_end_pn: u64,
    /// Packet number and round trip of the newest packet of the acknowledgement being handled.
    batch: Option<(u64, u64)>,
    /// When the newest packet was sent.
    sent_ns: u64,
    /// When the first packet since the last acknowledgement was sent.
    waiting_since_ns: Option<u64>,
    /// Rate of the newest cohort that was not limited by the application, bytes per second, and
    /// what counts as the latest rate.
    newest: f64,
    latest: f64,
    is_limited: bool,
    /// Packets sent since there was nothing left to send.
    unbroken_packets: u64,
    /// Datagrams have become smaller: the path swallowed the larger ones for a while.
    has_shrunk: bool,
    pace: f64,
}

/// Part of the estimate that is sent at most where a link's rate had to be found out: a packet may
/// always wait, or the link waits whenever a timer is late or the estimate is low.
const CRUISE_GAIN_MAX: f64 = 1.02;
/// The same where it was told: clocks differ, and what goes beside bulk needs a little.
const TOLD_GAIN: f64 = 0.999;
/// A real machine is never on time to the millisecond: so much queue, s, is no reason to slow down,
const LATE: f64 = 0.003;
/// nor is this part of the jitter: where gateways are held up, or the path does it, all of them are later.
const LATE_OF_JITTER: f64 = 0.14;
/// Part of the threshold that is no reason, either, as far as lateness explains it.
const IDLE_OF_THRESHOLD: f64 = 0.2;
/// Part of the rate that is kept when load turns out to cost others, or a router says so.
const GIVE_WAY_GAIN: f64 = 0.85;
/// A queue that is shorter, s, may be the jitter of a probe: what is lost meanwhile is the path's.
const SHORT_QUEUE: f64 = 0.022;
/// A cohort of fewer packets on a path that loses many is easily an accident: the better of two
/// counts.
const SMALL_COHORT_PACKETS: f64 = 40.0;
/// A cohort has as many at least, unless its phase ends.
const COHORT_PACKETS_MIN: u64 = 20;
/// What some packets that arrived in less, s, seem to have arrived at is the step of a timer.
const MEASURED: f64 = 0.001;
/// Round trips that vary by more, s: not every acknowledgement comes when it could.
const UNEVEN: f64 = 0.0005;
/// What the two ways to tell a rate differ by where packets are few and nothing is wrong.
const DISAGREE: f64 = 1.15;
/// Jitter is the least of several rounds' ranges: a burst may take this much of it longer to arrive.
const LONGER_OF_JITTER: f64 = 1.5;
/// This part of the rate at which a burst was sent is all of it.
const AS_SENT: f64 = 0.98;
/// A queue is never drained faster than by sending this part of the rate.
const GAIN_MIN: f64 = 0.5;

impl Controller {
    /// A controller for a path of which nothing has been seen yet. Datagrams have `mtu_bytes`.
    #[must_use]
    pub fn new(settings: PathSettings, mtu_bytes: u16) -> Self {
        let mut controller = Controller {
            settings,
            mtu_bytes: f64::from(mtu_bytes),
            delay: Delay::new(),
            loss: LossModel::default(),
            cohorts: Cohorts::default(),
            rates: RateFilter::default(),
            phase: Phase::Cruise(0),
            standing: Standing::default(),
            probe: probe::Probe::default(),
            next_pn: 0,
            largest_acked_pn: None,
            round_end_pn: 0,
            batch: None,
            sent_ns: 0,
            waiting_since_ns: None,
            newest: 0.0,
            latest: 0.0,
            is_limited: true,
            unbroken_packets: 0,
            has_shrunk: false,
            pace: 0.0,
        };
        controller.configure(0, settings);
        controller
    }

    /// Something else is known about the path. What was found out by measuring stays.
    pub fn configure(&mut self, now_ns: u64, settings: PathSettings) {
        self.settings = settings;
        let is_new = self.rates.get().is_none() || matches!(self.phase, Phase::Climb(_));
        match self.rate_max() {
            Some(rate) if settings.is_owned => {
                self.rates.set(rate);
                self.enter(Phase::Cruise(now_ns));
            }
            _ if is_new => self.enter(Phase::Climb(Climb::new(settings.remembered))),
            _ => self.steer(),
        }
    }

    /// A packet was sent.
    pub fn handle_sent(&mut self, now_ns: u64, pn: u64, bytes: u64) {
        if self.next_pn == 0 {
            self.cohorts.begin(pn, self.purpose(), self.pace);
        }
        self.begin_climb(now_ns.saturating_sub(self.sent_ns) as f64 / 1e9);
        self.sent_ns = now_ns;
        self.next_pn = self.next_pn.max(pn + 1);
        self.unbroken_packets += 1;
        self.waiting_since_ns.get_or_insert(now_ns);
        self.cohorts.handle_sent(now_ns, bytes as f64);
        self.advance(now_ns);
    }

    /// A packet was acknowledged; [`Controller::handle_ack_end`] follows.
    pub fn handle_acked(&mut self, now_ns: u64, pn: u64, sent_ns: u64, bytes: u64) {
        self.cohorts.handle_acked(now_ns, pn, sent_ns, bytes as f64);
        // Only the newest packet's round trip is free of the receiver's waiting.
        if self.largest_acked_pn.is_none_or(|largest| pn > largest) {
            self.largest_acked_pn = Some(pn);
            self.batch = Some((pn, now_ns.saturating_sub(sent_ns)));
        }
    }

    /// One acknowledgement has been handled. `is_limited`: there is nothing left to send.
    pub fn handle_ack_end(&mut self, now_ns: u64, is_limited: bool) {
        self.is_limited = is_limited;
        let waited_ns = self
            .waiting_since_ns
            .take()
            .map(|at| now_ns.saturating_sub(at));
        let was_down = waited_ns.is_some_and(|waited_ns| waited_ns > self.outage_ns());
        if was_down | std::mem::take(&mut self.has_shrunk) {
            return self.resume(now_ns);
        }
        if is_limited {
            self.cohorts.handle_limited(now_ns);
            self.unbroken_packets = 0;
        }
        if let Some((pn, rtt_ns)) = self.batch.take() {
            let sent = self.cohorts.handle_rtt(pn, rtt_ns);
            // While a queue is tested it moves, whoever's it is.
            let is_testing = matches!(self.phase, Phase::Yield(_));
            let is_strained = is_testing || self.is_strained(sent);
            self.delay.handle_rtt(now_ns, rtt_ns, is_strained);
        }
        let Some(largest_pn) = self.largest_acked_pn else {
            return;
        };
        if largest_pn >= self.round_end_pn {
            self.round_end_pn = self.next_pn;
            self.handle_round(now_ns);
        }
        while let Some(sample) = self.cohorts.poll(largest_pn) {
            self.learn(now_ns, &sample);
        }
        self.watch_queue(now_ns);
        self.advance(now_ns);
    }

    /// A packet was declared lost.
    pub fn handle_lost(&mut self, now_ns: u64, pn: u64) {
        match &mut self.phase {
            Phase::Compete(compete) => {
                let queue = self.delay.queue();
                compete.handle_lost(now_ns, pn, self.next_pn, queue);
            }
            Phase::Yield(test) => test.handle_lost(pn),
            _ => {}
        }
    }

    /// A router marked packets instead of dropping them (RFC 3168): a queue that it finds too long.
    pub fn handle_congestion_mark(&mut self, now_ns: u64, pn: u64) {
        if let Phase::Compete(compete) = &mut self.phase {
            compete.cut(now_ns, pn, self.next_pn);
        } else if let Some(rate) = self.rates.get() {
            self.probe
                .handle_mark(pn, self.next_pn, || self.rates.set(rate * GIVE_WAY_GAIN));
        }
    }

    /// Datagrams have another size now.
    pub fn handle_mtu(&mut self, mtu_bytes: u16) {
        let before = self.rate_max();
        self.has_shrunk |= f64::from(mtu_bytes) < self.mtu_bytes;
        self.mtu_bytes = f64::from(mtu_bytes);
        // A rate that was taken from the operator counts frames, and the share of headers changed.
        if let (Some(before), Some(after), Some(rate)) = (before, self.rate_max(), self.rates.get())
            && rate >= before * 0.999
        {
            self.rates.set(after);
        }
        self.steer();
    }

    /// Bytes of UDP payload to be sent per second.
    #[must_use]
    pub fn pace(&self) -> f64 {
        self.pace
    }

    /// Bytes that may be on their way.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        let slack = 64.0 * self.mtu_bytes;
        let rate = self.rate();
        let bytes = match &self.phase {
            Phase::Climb(_) => 4.0 * self.pace.max(rate) * self.rtt(),
            Phase::Compete(compete) => return compete.window_bytes() as u64,
            _ => rate * (2.0 * self.delay.base() + 3.0 * self.delay.jitter()),
        };
        (bytes + slack + rate * 0.01) as u64
    }

    /// What a later connection to the same peer should know.
    #[must_use]
    pub fn memory(&self) -> Option<PathMemory> {
        if matches!(self.phase, Phase::Climb(_)) || !self.delay.is_known() {
            return None;
        }
        Some(PathMemory {
            rate: self.rates.get()?,
            rtt_ns: self.delay.base_ns(),
        })
    }

    /// The link's rate in bytes of UDP payload, if the operator gave it.
    fn rate_max(&self) -> Option<f64> {
        let bits = self.settings.link_bits_per_s? as f64;
        let header = f64::from(self.settings.header_bytes);
        Some(bits / 8.0 * self.mtu_bytes / (self.mtu_bytes + header))
    }

    /// Estimate of the path's rate, bytes of UDP payload per second; the pace before there is one.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let rate = self.rates.get().unwrap_or(self.pace);
        rate.max(self.rate_min())
    }

    /// Two packets a round trip go whatever was found out: less, and a mistake would last, for the
    /// cohort that could correct it would never be full.
    fn rate_min(&self) -> f64 {
        2.0 * self.mtu_bytes / self.rtt().max(0.1)
    }

    fn is_at_max(&self) -> bool {
        self.rate_max()
            .is_some_and(|max| self.rate() >= 0.985 * max)
    }

    /// Queue that is not worth a reaction, s.
    fn threshold(&self) -> f64 {
        let packets = 2.0 * self.mtu_bytes / self.rate().max(1.0);
        let rtt = self.delay.base();
        (0.005f64)
            .max(packets)
            .max(0.05 * rtt)
            .max(0.7 * self.delay.jitter())
    }

    /// How long a cohort is, s: long enough to measure, short enough not to fill a queue.
    fn cohort_span(&self) -> f64 {
        let packets = 20.0 * self.mtu_bytes / self.rate().max(1.0);
        let rtt = self.delay.base();
        rtt.clamp(0.02, 0.1)
            .max(packets)
            .max(4.0 * self.delay.jitter().min(0.2))
    }

    fn rtt(&self) -> f64 {
        self.delay.recent_ns() as f64 / 1e9
    }

    /// Longer without an acknowledgement and the link was down.
    fn outage_ns(&self) -> u64 {
        (4 * self.delay.base_ns()).max(1_000_000_000)
    }

    /// The link was down, or down for large packets. What was on its way says nothing about the
    /// path; what was known before probably still holds, and is tried as by a new tunnel.
    fn resume(&mut self, now_ns: u64) {
        self.batch = None;
        self.cohorts = Cohorts::default();
        self.loss.forget_cruise();
        let memory = self.memory().or(match &self.phase {
            Phase::Climb(climb) => climb.remembered(),
            _ => None,
        });
        if self.settings.is_owned && self.rate_max().is_some() {
            return self.enter(Phase::Cruise(now_ns));
        }
        self.rates = RateFilter::default();
        self.enter(Phase::Climb(Climb::new(memory)));
    }

    fn handle_round(&mut self, now_ns: u64) {
        let window_ns = (self.cohort_span() * 1e9) as u64;
        let (rtt, queue) = (self.rtt(), self.delay.queue());
        let is_climbing = matches!(self.phase, Phase::Climb(_));
        self.delay.handle_round(window_ns, is_climbing);
        if let Phase::Climb(climb) = &mut self.phase {
            let rate = self.rates.get().unwrap_or(0.0);
            climb.handle_round(rate);
        }
        if let Phase::Compete(compete) = &mut self.phase {
            compete.handle_round(now_ns, rtt, queue, &self.loss);
        }
    }

    /// What a complete cohort says.
    fn learn(&mut self, now_ns: u64, sample: &Sample) {
        let corrected = self.rate_of(sample) / (1.0 - sample.missing.min(self.loss.base()));
        let is_queue_short = self.delay.queue() < SHORT_QUEUE.max(self.threshold());
        if !sample.is_limited && !sample.is_lump {
            let is_doubtful = sample.sent_packets < SMALL_COHORT_PACKETS || self.is_uneven();
            self.latest = match is_doubtful {
                true => corrected.max(self.newest),
                false => corrected,
            };
            self.newest = corrected;
        }
        match sample.purpose {
            Purpose::Climb => self.learn_climb(now_ns, sample, corrected),
            Purpose::Leap => self.learn_leap(now_ns, sample, corrected),
            Purpose::Up => self.hear_up(sample, corrected),
            Purpose::Down => {
                self.hear_down(sample);
                if is_queue_short {
                    self.loss.handle_below(sample.missing, sample.sent_packets);
                }
            }
            Purpose::Cruise => {
                self.learn_rate(sample, corrected);
                let is_empty = self.delay.queue() < self.threshold();
                self.loss
                    .handle_cruise(sample.missing, sample.sent_packets, is_empty);
            }
            Purpose::Drain | Purpose::Rest => return,
            Purpose::Compete => {}
        }
        if matches!(self.phase, Phase::Cruise(_)) && self.loss.has_excess() {
            self.give_way();
        }
    }

    /// Where acknowledgements come unevenly, the time they took makes every cohort look slower than it
    /// was, and the estimate would go down and down although nothing waits and nothing is lost.
    fn rate_of(&self, sample: &Sample) -> f64 {
        if !matches!(sample.purpose, Purpose::Up | Purpose::Cruise) {
            return sample.rate;
        }
        let rate = match sample.is_burst {
            true => self.rate_of_burst(sample),
            false => sample.rate,
        };
        if self.waited(sample) > 0.5 * self.threshold() || !self.is_uneven() {
            return rate;
        }
        sample
            .rate_by_delay(self.mtu_bytes / self.rate().max(1.0))
            .filter(|by_delay| *by_delay > DISAGREE * rate)
            .unwrap_or(rate)
    }

    /// Who sends a block and waits has no full cohorts above the rate that would say it again: what jitter may have made longer is
    /// no news of a slower link, nor is what arrived as fast as it was sent.
    fn rate_of_burst(&self, sample: &Sample) -> f64 {
        let known = self.rates.get().unwrap_or(0.0);
        let most = sample.rate_within(LONGER_OF_JITTER * self.delay.jitter());
        let is_as_sent = most >= AS_SENT * sample.sent_rate;
        let kept = if is_as_sent { known } else { most.min(known) };
        sample.rate.max(kept)
    }

    /// How long who waited least of a cohort has waited, s.
    fn waited(&self, sample: &Sample) -> f64 {
        let least_ns = sample.rtt_ns.0.min(sample.rtt_ns.1);
        least_ns.saturating_sub(self.delay.base_ns()) as f64 / 1e9
    }

    /// Rounds of few packets, of which the jitter cannot be told, are no reason for trust.
    fn is_uneven(&self) -> bool {
        !self.delay.is_jitter_known() || self.delay.jitter() > UNEVEN
    }

    fn learn_rate(&mut self, sample: &Sample, corrected: f64) {
        let known = self.rates.get().unwrap_or(0.0);
        // A probe that became due has cut a cohort short: what is left of it tells nothing, unless
        // packets are few because the rate is taken for less than it is.
        let is_whole = sample.sent_packets >= COHORT_PACKETS_MIN as f64;
        let is_more = corrected > known && (is_whole || sample.span(self.mtu_bytes) >= MEASURED);
        let is_news = (is_whole && !sample.is_limited && !sample.is_lump) || is_more;
        if is_news && !self.is_at_max() {
            let max = self.rate_max().unwrap_or(f64::MAX);
            self.rates.update(corrected.min(max));
        }
    }

    /// Load loses more than the path does: somebody else needs room, or there is less of it.
    fn give_way(&mut self) {
        self.loss.forget_cruise();
        // A longer route loses nothing: what was taken for one may have been a queue, and a full one.
        self.delay.forget_floor();
        let rate = self.rate();
        // Never at one stroke: what arrived last may be an accident.
        self.rates
            .set((self.latest.min(rate) * GIVE_WAY_GAIN).max(0.5 * rate));
    }

    /// Purpose of what is sent now.
    fn purpose(&self) -> Purpose {
        match &self.phase {
            Phase::Climb(climb) => climb.purpose(),
            Phase::Drain(_) | Phase::Yield(_) => Purpose::Drain,
            Phase::Cruise(_) => Purpose::Cruise,
            Phase::Up => Purpose::Up,
            Phase::Down => Purpose::Down,
            Phase::Compete(_) => Purpose::Compete,
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.cut();
    }

    /// The phase goes on, with a new cohort.
    fn cut(&mut self) {
        self.steer();
        self.cohorts.begin(self.next_pn, self.purpose(), self.pace);
    }

    /// Moves on to what is due.
    fn advance(&mut self, now_ns: u64) {
        let (packets, span_ns) = self.cohorts.open();
        let is_long = |span: f64, least: u64| span_ns as f64 >= span * 1e9 && packets >= least;
        let span = self.cohort_span();
        match &self.phase {
            Phase::Climb(_) => self.advance_climb(now_ns),
            Phase::Drain(until_ns)
                if now_ns >= *until_ns || self.delay.queue() < self.threshold() =>
            {
                self.enter(Phase::Cruise(now_ns));
            }
            Phase::Up if is_long(span, COHORT_PACKETS_MIN) => self.enter_down(),
            Phase::Down if is_long(span, probe::DOWN_PACKETS_MIN) || self.has_drained() => {
                self.enter(Phase::Cruise(now_ns));
            }
            Phase::Cruise(since_ns) => {
                let since_ns = *since_ns;
                if self.is_probe_due(now_ns, since_ns) {
                    self.enter_up();
                } else if is_long(span, COHORT_PACKETS_MIN) {
                    self.cut();
                }
            }
            Phase::Compete(compete) if compete.is_look_due(now_ns) => self.start_yield(now_ns),
            Phase::Compete(_) if is_long(span, COHORT_PACKETS_MIN) => self.cut(),
            Phase::Yield(_) => self.advance_yield(now_ns),
            _ => {}
        }
        self.steer();
    }

    /// Sets the pace.
    fn steer(&mut self) {
        let rate = self.rates.get();
        let pace = match &self.phase {
            Phase::Climb(climb) => {
                climb.pace(rate, &self.delay, self.mtu_bytes, self.unbroken_packets)
            }
            Phase::Drain(_) => self.rate() * 0.5,
            Phase::Cruise(_) => self.rate() * self.cruise_gain(),
            Phase::Up => self.rate() * probe::UP_GAIN,
            Phase::Down => self.rate() * probe::DOWN_GAIN,
            Phase::Yield(test) => test.pace(),
            Phase::Compete(compete) => compete.pace(self.rtt()),
        };
        let max = self.rate_max().unwrap_or(f64::MAX);
        self.pace = pace.min(max).max(self.rate_min());
    }

    fn cruise_gain(&self) -> f64 {
        // A packet's own time is no queue.
        let packet = self.mtu_bytes / self.rate().max(1.0);
        let late = LATE.max(LATE_OF_JITTER * self.delay.jitter());
        let slack = (IDLE_OF_THRESHOLD * self.threshold()).min(late);
        let excess = self.delay.queue() - packet - slack;
        let time = (2.0 * self.rtt()).max(0.2);
        let most = match self.is_at_max() {
            true => TOLD_GAIN,
            false => CRUISE_GAIN_MAX,
        };
        (1.0 - excess / time).min(most).max(GAIN_MIN)
    }
}
