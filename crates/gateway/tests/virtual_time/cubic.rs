//! A TCP flow to share a link with: CUBIC as of RFC 9438 with selective
//! acknowledgements, one segment each, as fast as its window lets it. It stands
//! for a kernel's in virtual time; the live measurement has the real one.
//!
//! Left out: slow start's early exit (HyStart), delayed acknowledgements,
//! pacing, receive windows.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::network::{Datagram, HEADERS_BYTES, Network, Way};

/// A full Ethernet frame, and what of it is payload: less Ethernet 14, IPv4 20
/// (RFC 791), TCP 20 (RFC 9293) and timestamps 12 (RFC 7323).
const FRAME_BYTES: usize = 1514;
const PAYLOAD_BYTES: u64 = 1448;
const ACK_FRAME_BYTES: usize = 78;
/// Segments in the first flight (RFC 6928).
const WINDOW_INITIAL: f64 = 10.0;
/// A segment with so many acknowledged behind it is lost (RFC 6675).
const REORDERING: u64 = 3;
/// RFC 9438 sections 4.1 and 4.6, segments per s^3 and a factor.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
const TIMEOUT_MIN: Duration = Duration::from_millis(200);

/// Payload that has arrived, new or not.
#[derive(Debug, Default)]
pub struct Arrived(AtomicU64);

impl Arrived {
    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Starts a flow over the link.
pub fn start(network: &Arc<Network>) -> Arc<Arrived> {
    let from = SocketAddr::from(([10, 1, 0, 200], 5001));
    let to = SocketAddr::from(([10, 2, 0, 200], 5001));
    network.attach(from, Way::Forward, 0);
    network.attach(to, Way::Backward, 0);
    let arrived = Arc::new(Arrived::default());
    tokio::spawn(receive(network.clone(), to, from, arrived.clone()));
    tokio::spawn(send(network.clone(), from, to));
    arrived
}

/// A frame of this length that carries a number.
fn frame(from: SocketAddr, to: SocketAddr, frame_bytes: usize, number: u64) -> Datagram {
    let mut contents = vec![0; frame_bytes - HEADERS_BYTES];
    contents[..8].copy_from_slice(&number.to_le_bytes());
    Datagram {
        from,
        to,
        ecn: None,
        contents: contents.into(),
    }
}

fn number(contents: &Bytes) -> u64 {
    let bytes = contents.get(..8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

/// The next numbers that arrive at a host.
async fn numbers(network: &Network, host: SocketAddr) -> Vec<u64> {
    poll_fn(|cx| {
        let arrived = network.receive(host, usize::MAX, cx.waker());
        match arrived.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(arrived.iter().map(|one| number(&one.contents)).collect()),
        }
    })
    .await
}

async fn receive(network: Arc<Network>, at: SocketAddr, from: SocketAddr, arrived: Arc<Arrived>) {
    loop {
        for number in numbers(&network, at).await {
            arrived.0.fetch_add(PAYLOAD_BYTES, Ordering::Relaxed);
            network.send(frame(at, from, ACK_FRAME_BYTES, number));
        }
    }
}

async fn send(network: Arc<Network>, at: SocketAddr, to: SocketAddr) {
    let mut sender = Sender::new();
    loop {
        while sender.may_send() {
            let number = sender.sent(Instant::now());
            network.send(frame(at, to, FRAME_BYTES, number));
        }
        tokio::select! {
            acknowledged = numbers(&network, at) => {
                for number in acknowledged {
                    sender.acknowledged(Instant::now(), number);
                }
            }
            () = sleep_until(sender.deadline) => sender.timed_out(Instant::now()),
        }
    }
}

/// What is sent is always new: a retransmission takes the same room, and the
/// link does not look inside.
struct Sender {
    next: u64,
    in_flight: BTreeMap<u64, Instant>,
    window: f64,
    threshold: f64,
    /// Window before the last reduction, and when that was.
    before: f64,
    reduced: Instant,
    /// Losses of segments up to here belong to the last reduction.
    recovery: u64,
    /// What Reno would have by now (RFC 9438 section 4.3).
    reno: f64,
    rtt: Option<Duration>,
    deadline: Instant,
}

impl Sender {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            next: 0,
            in_flight: BTreeMap::new(),
            window: WINDOW_INITIAL,
            threshold: f64::INFINITY,
            before: 0.0,
            reduced: now,
            recovery: 0,
            reno: 0.0,
            rtt: None,
            deadline: now + Duration::from_secs(1),
        }
    }

    fn may_send(&self) -> bool {
        (self.in_flight.len() as f64) < self.window
    }

    fn sent(&mut self, now: Instant) -> u64 {
        self.in_flight.insert(self.next, now);
        self.next += 1;
        self.next - 1
    }

    fn acknowledged(&mut self, now: Instant, number: u64) {
        let Some(sent) = self.in_flight.remove(&number) else {
            return;
        };
        let sample = now - sent;
        let rtt = self.rtt.map_or(sample, |rtt| (rtt * 7 + sample) / 8);
        self.rtt = Some(rtt);
        self.deadline = now + (rtt * 2).max(TIMEOUT_MIN);
        if number >= self.recovery {
            self.grow(now, rtt.as_secs_f64());
        }
        let lost = self.in_flight.range(..number.saturating_sub(REORDERING));
        let lost: Vec<u64> = lost.map(|(number, _)| *number).collect();
        for number in lost {
            self.in_flight.remove(&number);
            self.lost(now, number);
        }
    }

    fn grow(&mut self, now: Instant, rtt_s: f64) {
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        // RFC 9438 section 4.2: the curve's way back to the old window and on.
        let k = ((self.before - self.threshold).max(0.0) / C).cbrt();
        let t = (now - self.reduced).as_secs_f64() + rtt_s - k;
        let target = (C * t.powi(3) + self.before).clamp(self.window, 1.5 * self.window);
        self.window += (target - self.window) / self.window;
        self.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) / self.window;
        self.window = self.window.max(self.reno);
    }

    fn lost(&mut self, now: Instant, number: u64) {
        if number < self.recovery {
            return;
        }
        // RFC 9438 section 4.7: leave room to newcomers.
        let is_below = self.window < self.before;
        let share = if is_below { (1.0 + BETA) / 2.0 } else { 1.0 };
        self.before = self.window * share;
        self.window = (self.window * BETA).max(2.0);
        self.threshold = self.window;
        self.reno = self.window;
        self.reduced = now;
        self.recovery = self.next;
    }

    fn timed_out(&mut self, now: Instant) {
        self.threshold = (self.window / 2.0).max(2.0);
        self.before = self.window;
        self.window = 1.0;
        self.reno = 1.0;
        self.reduced = now;
        self.recovery = self.next;
        self.in_flight.clear();
        self.deadline = now + Duration::from_secs(1);
    }
}
