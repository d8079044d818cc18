//! One direction of a circuit as a state machine.

use crate::corrupt::CorruptProcess;
use crate::delay::DelayProcess;
use crate::duplicate::DuplicateProcess;
use crate::line::Line;
use crate::loss::LossProcess;
use crate::packet::Packet;
use crate::policer::Bucket;
use crate::profile::DirectionProfile;
use crate::queue::{Queue, Waiting};
use crate::rate::{Departure, Rate};
use crate::reorder::{ReorderProcess, Turn};
use crate::stats::Stats;

/// What the emulator wants next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<P> {
    /// A packet arrives; ask again.
    Deliver {
        /// The packet.
        packet: P,
        /// When it was due, at or before `now_ns`: the difference is the
        /// caller's lateness.
        due_ns: u64,
    },
    /// Nothing before this time, which lies after `now_ns`; poll then.
    /// It may turn out that there is nothing yet: then there is a later one.
    Timeout(u64),
    /// Nothing is held: the next event is a packet handed in.
    Idle,
}

/// The packet on the transmitter.
#[derive(Debug, Clone)]
struct Sending<P> {
    waiting: Waiting<P>,
    rate: Rate,
}

/// One direction of a circuit.
///
/// The clock is the caller's: any origin, nanoseconds. Time that runs
/// backwards is taken as standing still, except for arrivals: a driver that
/// woke up late may tell a packet's true time after the fact. The same
/// profile, seed and calls give the same outputs.
#[derive(Debug, Clone)]
pub struct Emulator<P: Packet> {
    profile: DirectionProfile,
    now_ns: u64,
    /// When the latest packet arrived: none arrives before another told earlier.
    arrival_ns: u64,
    bucket: Bucket,
    queue: Queue<P>,
    sending: Option<Sending<P>>,
    /// When the transmitter is, or last was, free.
    free: Departure,
    line: Line<P>,
    /// Latest arrival of a packet in its turn: the next one keeps behind it.
    last_due_ns: u64,
    loss: LossProcess,
    corrupt: CorruptProcess,
    duplicate: DuplicateProcess,
    delay: DelayProcess,
    reorder: ReorderProcess,
    stats: Stats,
}

impl<P: Packet> Emulator<P> {
    /// An idle direction. Every random decision follows from `seed`.
    pub fn new(profile: DirectionProfile, seed: u64) -> Self {
        Self {
            now_ns: 0,
            arrival_ns: 0,
            bucket: Bucket::default(),
            queue: Queue::new(),
            sending: None,
            free: Departure::default(),
            line: Line::new(&profile),
            last_due_ns: 0,
            loss: LossProcess::new(seed),
            corrupt: CorruptProcess::new(seed),
            duplicate: DuplicateProcess::new(seed),
            delay: DelayProcess::new(seed),
            reorder: ReorderProcess::new(seed),
            stats: Stats::default(),
            profile,
        }
    }

    /// The settings in force.
    pub fn profile(&self) -> &DirectionProfile {
        &self.profile
    }

    /// Counters, as of the last call.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// A packet that arrived at `now_ns` enters. Where that lies before the
    /// time of an earlier call, the packet is sent as if it had been told in
    /// time, as far as the transmitter was free: being told late costs no rate.
    pub fn handle_packet(&mut self, now_ns: u64, packet: P) {
        self.advance(now_ns);
        self.arrival_ns = self.arrival_ns.max(now_ns);
        let frame_bytes = packet.frame_bytes() as u64;
        self.stats.packets_in += 1;
        self.stats.bytes_in = self.stats.bytes_in.saturating_add(frame_bytes);
        let network_bytes = frame_bytes.saturating_sub(packet.header_bytes() as u64);
        if self
            .profile
            .mtu_bytes
            .is_some_and(|mtu| network_bytes > u64::from(mtu))
        {
            self.stats.drops.mtu += 1;
            return;
        }
        let wire_bytes = self.wire_bytes(&packet);
        let policer = self.profile.policer;
        if !self.bucket.admits(policer, self.arrival_ns, wire_bytes) {
            self.stats.drops.policer += 1;
            return;
        }
        let waiting = Waiting { packet, wire_bytes };
        match self.profile.rate {
            None => self.propagate(self.arrival_ns, waiting),
            Some(rate) if self.sending.is_none() => self.send(self.arrival_ns, rate, waiting),
            Some(rate) => self.enqueue(rate, waiting),
        }
        self.update_held(self.now_ns);
    }

    /// New settings, from now on. Packets that wait are sent at the new rate,
    /// the one being sent finishes at it; packets in flight arrive when they
    /// would have, and those sent from now on stay behind them unless the new
    /// settings let packets overtake. Packets over a smaller limit are kept.
    pub fn handle_profile(&mut self, now_ns: u64, profile: DirectionProfile) {
        self.advance(now_ns);
        let reframed = profile.framing != self.profile.framing;
        self.profile = profile;
        self.line.set_profile(&self.profile);
        if reframed {
            let framing = self.profile.framing;
            self.queue
                .measure(|packet| framing.wire_bytes(packet.frame_bytes(), packet.header_bytes()));
        }
        match (self.sending.as_mut(), self.profile.rate) {
            (Some(sending), Some(rate)) => {
                self.free = self.free.change_rate(self.now_ns, sending.rate, rate);
                sending.rate = rate;
            }
            (_, None) => self.flush(),
            (None, Some(_)) => {}
        }
        self.update_held(self.now_ns);
    }

    /// What happens next. Call until it answers `Timeout` or `Idle`.
    pub fn poll_output(&mut self, now_ns: u64) -> Output<P> {
        self.advance(now_ns);
        let output = match self.line.pop(self.now_ns) {
            Some((due_ns, packet)) => {
                self.stats.packets_out += 1;
                self.stats.bytes_out = self
                    .stats
                    .bytes_out
                    .saturating_add(packet.frame_bytes() as u64);
                Output::Deliver { packet, due_ns }
            }
            None => self.next_event_ns().map_or(Output::Idle, Output::Timeout),
        };
        self.update_held(self.now_ns);
        output
    }

    /// When something can arrive at the earliest. The end of a transmission
    /// needs no wake-up of its own: its packet propagates first, and the
    /// times are exact however late they are computed.
    fn next_event_ns(&self) -> Option<u64> {
        let sent_ns = self
            .sending
            .as_ref()
            .map(|_| self.free.at_ns.saturating_add(self.profile.delay_min_ns()));
        match (sent_ns, self.line.next_due_ns()) {
            (Some(sent_ns), Some(due_ns)) => Some(sent_ns.min(due_ns)),
            (one, other) => one.or(other),
        }
    }

    fn wire_bytes(&self, packet: &P) -> u64 {
        self.profile
            .framing
            .wire_bytes(packet.frame_bytes(), packet.header_bytes())
    }

    /// Does everything that the transmitter finished by `now_ns`.
    fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        while self.free.at_ns <= self.now_ns {
            let Some(sent) = self.sending.take() else {
                break;
            };
            let departure_ns = self.free.at_ns;
            self.propagate(departure_ns, sent.waiting);
            if let Some(next) = self.queue.pop() {
                self.send(departure_ns, sent.rate, next);
            }
        }
    }

    /// Sends what waits without limit, after the rate was lifted.
    fn flush(&mut self) {
        if let Some(sent) = self.sending.take() {
            self.propagate(self.now_ns, sent.waiting);
        }
        while let Some(waiting) = self.queue.pop() {
            self.propagate(self.now_ns, waiting);
        }
        self.free = Departure::default();
    }

    fn send(&mut self, start_ns: u64, rate: Rate, waiting: Waiting<P>) {
        self.free = self.free.send(start_ns, rate, waiting.wire_bytes);
        self.sending = Some(Sending { waiting, rate });
    }

    fn enqueue(&mut self, rate: Rate, waiting: Waiting<P>) {
        let busy_ns = self.free.at_ns.saturating_sub(self.now_ns);
        let frame_bytes = waiting.packet.frame_bytes() as u64;
        if !self
            .queue
            .admits(self.profile.queue, rate, busy_ns, frame_bytes)
        {
            self.stats.drops.queue += 1;
            return;
        }
        let wait_ns = self.queue.wait_ns(rate, busy_ns);
        self.queue.push(waiting);
        self.stats.queue_ns_max = self.stats.queue_ns_max.max(wait_ns);
        self.stats.queue_bytes_max = self.stats.queue_bytes_max.max(self.queue.frame_bytes());
    }

    /// The wire: every impairment draws for every packet, then they apply.
    fn propagate(&mut self, departure_ns: u64, waiting: Waiting<P>) {
        let Waiting {
            mut packet,
            wire_bytes,
        } = waiting;
        let profile = &self.profile;
        let lost = self.loss.step(profile.loss);
        let flipped = self.corrupt.step(profile.corrupt);
        let twice = self.duplicate.step(profile.duplicate);
        let delay_ns = self
            .delay
            .step(profile.delay_ns, profile.jitter_ns, profile.distribution);
        let turn = self.reorder.step(profile.reorder);
        if lost {
            self.stats.drops.loss += 1;
            return;
        }
        if !self.line.admits(wire_bytes) {
            self.stats.drops.line += 1;
            return;
        }
        if let Some(bit) = flipped {
            packet.corrupt(bit);
            self.stats.corrupted += 1;
        }
        let due_ns = self.arrival_ns(departure_ns, delay_ns, turn);
        if twice && self.line.admits(wire_bytes.saturating_mul(2)) {
            self.line.insert(due_ns, wire_bytes, packet.clone());
            self.stats.duplicated += 1;
        }
        self.line.insert(due_ns, wire_bytes, packet);
        self.stats.line_packets_max = self.stats.line_packets_max.max(self.line.len());
    }

    fn arrival_ns(&mut self, departure_ns: u64, delay_ns: u64, turn: Turn) -> u64 {
        let own_ns = departure_ns.saturating_add(delay_ns);
        match turn {
            Turn::InOrder => {
                self.last_due_ns = self.last_due_ns.max(own_ns);
                self.last_due_ns
            }
            Turn::Free => {
                if own_ns < self.last_due_ns {
                    self.stats.reordered += 1;
                }
                self.last_due_ns = self.last_due_ns.max(own_ns);
                own_ns
            }
            Turn::Leap => {
                self.stats.reordered += 1;
                departure_ns
            }
            Turn::HoldBack(extra_ns) => {
                self.stats.reordered += 1;
                own_ns.saturating_add(extra_ns)
            }
        }
    }

    fn update_held(&mut self, now_ns: u64) {
        self.stats.queue_packets = self.queue.len();
        self.stats.queue_bytes = self.queue.frame_bytes();
        self.stats.sending_packets = u64::from(self.sending.is_some());
        self.stats.line_packets = self.line.len();
        self.stats.queue_ns = match &self.sending {
            Some(sending) => self
                .queue
                .wait_ns(sending.rate, self.free.at_ns.saturating_sub(now_ns)),
            None => 0,
        };
    }
}
