//! What QUIC does around a controller, in its smallest form, and what it is given to send: everything, or what a file server's
//! gateway has.

use std::collections::VecDeque;

use farhaul_tunnel::{Controller, PathSettings};

use super::DATAGRAM_BYTES;
use super::cubic::Cubic;

pub struct AckInfo<'a> {
    pub now_ns: u64,
    /// Everything that has arrived, in that order.
    pub log: &'a [u64],
}

pub enum Poll {
    Send(u64),
    Wait(u64),
}

/// Reads a file ahead: before `from_ns` there are small answers, one a round trip, then as much as `products` times what the path is
/// thought to carry in a round trip is on its way, and 128 KiB.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    pub from_ns: u64,
    pub products: f64,
    /// So long before there are messages, one every few milliseconds; before that one in a round trip.
    pub messages_ns: u64,
    /// So many packets in a row, two seconds before.
    pub train_packets: usize,
}

/// Before the file, and no longer than this.
const TRAIN_BEFORE_NS: u64 = 2_000_000_000;
const TRAIN_NS_MAX: u64 = 500_000_000;

/// From one to the next.
const MESSAGES_APART_NS: u64 = 8_000_000;

pub enum Control {
    Farhaul(Box<Controller>),
    Cubic(Cubic),
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Flying,
    Acked,
    Lost,
}

pub struct Sender {
    pub control: Control,
    /// Not everything at once.
    pub reading: Option<Reading>,
    /// So many packets, and the next ones when all of these have been acknowledged: a client that waits for each block.
    pub block_packets: Option<u64>,
    next_pn: u64,
    base_pn: u64,
    sent: VecDeque<(u64, State)>,
    in_flight: u64,
    log_at: usize,
    largest_acked: Option<u64>,
    srtt_ns: u64,
    tokens: f64,
    tokens_ns: u64,
    progress_ns: u64,
    /// No packet before this one flies.
    flying_pn: u64,
    pub lost: u64,
}

impl Sender {
    pub fn farhaul(settings: PathSettings) -> Self {
        let controller = Controller::new(settings, DATAGRAM_BYTES as u16);
        Self::new(Control::Farhaul(Box::new(controller)))
    }

    pub fn cubic() -> Self {
        Self::new(Control::Cubic(Cubic::new()))
    }

    pub fn controller(&self) -> Option<&Controller> {
        match &self.control {
            Control::Farhaul(controller) => Some(controller),
            Control::Cubic(_) => None,
        }
    }

    fn new(control: Control) -> Self {
        Sender {
            control,
            reading: None,
            block_packets: None,
            next_pn: 1,
            base_pn: 1,
            sent: VecDeque::new(),
            in_flight: 0,
            log_at: 0,
            largest_acked: None,
            srtt_ns: 200_000_000,
            tokens: 0.0,
            tokens_ns: 0,
            progress_ns: 0,
            flying_pn: 0,
            lost: 0,
        }
    }

    pub fn handle_ack(&mut self, ack: AckInfo<'_>) {
        let now_ns = ack.now_ns;
        let Some(news) = ack.log.get(self.log_at..) else {
            return;
        };
        if news.is_empty() {
            return;
        }
        self.log_at = ack.log.len();
        self.progress_ns = now_ns;
        let mut pns: Vec<u64> = news.to_vec();
        pns.sort_unstable();
        for pn in pns {
            self.acked(now_ns, pn);
        }
        self.detect_losses(now_ns);
        let is_limited = !self.has_more(now_ns);
        match &mut self.control {
            Control::Farhaul(controller) => {
                controller.handle_ack_end(now_ns, is_limited);
            }
            Control::Cubic(cubic) => cubic.handle_ack_end(now_ns, self.srtt_ns),
        }
    }

    fn acked(&mut self, now_ns: u64, pn: u64) {
        let Some(index) = pn.checked_sub(self.base_pn) else {
            return;
        };
        let Some((sent_ns, state)) = self.sent.get_mut(index as usize) else {
            return;
        };
        if *state == State::Flying {
            self.in_flight -= 1;
        }
        let was_lost = *state == State::Lost;
        *state = State::Acked;
        let sent_ns = *sent_ns;
        if self.largest_acked.is_none_or(|largest| pn > largest) {
            self.largest_acked = Some(pn);
            let rtt = now_ns - sent_ns;
            self.srtt_ns = if self.progress_ns == 0 {
                rtt
            } else {
                (self.srtt_ns * 7 + rtt) / 8
            };
        }
        match &mut self.control {
            Control::Farhaul(controller) if !was_lost => {
                controller.handle_acked(now_ns, pn, sent_ns, DATAGRAM_BYTES);
            }
            Control::Cubic(cubic) => cubic.handle_acked(now_ns - sent_ns),
            Control::Farhaul(_) => {}
        }
    }

    fn detect_losses(&mut self, now_ns: u64) {
        let Some(largest) = self.largest_acked else {
            return;
        };
        let late_ns = self.srtt_ns + self.srtt_ns / 4;
        let from = usize::try_from(self.flying_pn.saturating_sub(self.base_pn)).unwrap_or(0);
        let mut all_settled = true;
        for index in from..self.sent.len() {
            let pn = self.base_pn + index as u64;
            if pn >= largest {
                break;
            }
            let (sent_ns, state) = self.sent[index];
            if state != State::Flying {
                if all_settled {
                    self.flying_pn = pn + 1;
                }
                continue;
            }
            all_settled = false;
            if pn + 64 > largest && sent_ns + late_ns > now_ns {
                break;
            }
            self.sent[index].1 = State::Lost;
            self.in_flight -= 1;
            self.lost += 1;
            match &mut self.control {
                Control::Farhaul(controller) => controller.handle_lost(now_ns, pn),
                Control::Cubic(cubic) => cubic.handle_lost(now_ns, pn, self.next_pn),
            }
        }
        while self.sent.front().is_some_and(|(sent_ns, state)| {
            *state != State::Flying && now_ns > sent_ns + 4 * late_ns
        }) {
            self.sent.pop_front();
            self.base_pn += 1;
        }
    }

    /// Whether there is anything to be sent.
    fn has_more(&self, now_ns: u64) -> bool {
        if let Some(packets) = self.block_packets {
            return !(self.next_pn - 1).is_multiple_of(packets) || self.is_all_acked();
        }
        let (Some(reading), Control::Farhaul(controller)) = (self.reading, &self.control) else {
            return true;
        };
        if now_ns < reading.from_ns {
            let train_ns = reading.from_ns.saturating_sub(TRAIN_BEFORE_NS);
            if (train_ns..train_ns + TRAIN_NS_MAX).contains(&now_ns) {
                let newest_first = self.sent.iter().rev();
                let train = newest_first.take_while(|(sent_ns, _)| *sent_ns >= train_ns);
                return self.in_flight == 0 || train.count() < reading.train_packets;
            }
            let last_ns = self.sent.back().map_or(0, |(sent_ns, _)| *sent_ns);
            let is_talking = now_ns + reading.messages_ns >= reading.from_ns;
            return self.in_flight == 0 || (is_talking && now_ns >= last_ns + MESSAGES_APART_NS);
        }
        let product = controller.rate() * controller.view().base_rtt_ns as f64 / 1e9;
        let most = reading.products * product + 131_072.0;
        ((self.in_flight * DATAGRAM_BYTES) as f64) < most
    }

    fn is_all_acked(&self) -> bool {
        self.sent.iter().all(|(_, state)| *state == State::Acked)
    }

    pub fn poll(&mut self, now_ns: u64) -> Poll {
        if !self.has_more(now_ns) {
            return Poll::Wait(now_ns + 10_000_000);
        }
        let (pace, window) = match &self.control {
            Control::Farhaul(controller) => (Some(controller.pace()), controller.window_bytes()),
            Control::Cubic(cubic) => (None, cubic.window_bytes()),
        };
        if (self.in_flight + 1) * DATAGRAM_BYTES > window {
            let pto_ns = self.progress_ns + 3 * self.srtt_ns;
            if now_ns < pto_ns {
                return Poll::Wait(pto_ns);
            }
            self.progress_ns = now_ns;
            return self.send(now_ns);
        }
        let Some(pace) = pace else {
            return self.send(now_ns);
        };
        let mtu = DATAGRAM_BYTES as f64;
        let most = (pace * 0.010).max(mtu);
        let capacity = (pace * 0.002).clamp(10.0 * mtu, 256.0 * mtu).min(most);
        let passed = (now_ns - self.tokens_ns) as f64 / 1e9;
        self.tokens = (self.tokens + passed * pace).min(capacity);
        self.tokens_ns = now_ns;
        if self.tokens < mtu.min(capacity) - 0.01 {
            let wait = (mtu - self.tokens) / pace;
            return Poll::Wait(now_ns + (wait * 1e9) as u64 + 1);
        }
        self.tokens -= mtu;
        self.send(now_ns)
    }

    fn send(&mut self, now_ns: u64) -> Poll {
        let pn = self.next_pn;
        self.next_pn += 1;
        self.sent.push_back((now_ns, State::Flying));
        self.in_flight += 1;
        if let Control::Farhaul(controller) = &mut self.control {
            controller.handle_sent(now_ns, pn, DATAGRAM_BYTES);
        }
        Poll::Send(pn)
    }
}
