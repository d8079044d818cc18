//! What a connection has on the wire, overheard from the calls to its
//! congestion controller.
//!
//! The QUIC stack says what it has taken, but not how much of that it has
//! sent. Its congestion controller is told of every packet that leaves, is
//! acknowledged or is lost; [`Watched`] stands around any controller and keeps
//! count. What is taken, unacknowledged and not on the wire is waiting to be
//! sent: that is what the gateway keeps small (`session/pump.rs`).

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use noq::congestion::{Controller, ControllerFactory, ControllerMetrics};
use noq_proto::RttEstimator;
use tokio::sync::Notify;

use super::narrow::Losses;
use super::schedule::Schedule;

/// The figures of one path. Written under the connection's lock, read by
/// anyone at any time; each by itself is exact, together they may be a packet
/// apart.
#[derive(Debug)]
pub struct Flight {
    in_flight_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    sent_packets: AtomicU64,
    acknowledged_packets: AtomicU64,
    pacing_bytes_s: AtomicU64,
    /// Share of the rate that QUIC does not get, in millionths.
    reserved_ppm: AtomicU32,
    /// Count of `sent_bytes` at which the waiter is woken.
    wake_at_bytes: AtomicU64,
    /// Count of `sent_bytes` up to which a full window holds nothing back.
    lent_until_bytes: AtomicU64,
    is_narrow: AtomicBool,
    moved: Notify,
}

impl Default for Flight {
    fn default() -> Self {
        Self {
            in_flight_bytes: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            sent_packets: AtomicU64::new(0),
            acknowledged_packets: AtomicU64::new(0),
            pacing_bytes_s: AtomicU64::new(0),
            reserved_ppm: AtomicU32::new(0),
            wake_at_bytes: AtomicU64::new(u64::MAX),
            lent_until_bytes: AtomicU64::new(0),
            is_narrow: AtomicBool::new(false),
            moved: Notify::new(),
        }
    }
}

impl Flight {
    /// The figures of the connection's path, if its controller is watched.
    pub fn of(connection: &noq::Connection) -> Option<Arc<Flight>> {
        let controller = connection.congestion_state(noq::PathId::ZERO)?;
        let watched = controller.into_any().downcast::<Watched>().ok()?;
        Some(watched.flight)
    }

    /// Sent, neither acknowledged nor taken for lost; bytes of UDP payload.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes.load(Ordering::Relaxed)
    }

    /// Sent so far, bytes of UDP payload.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// The controller's rate, bytes per second; 0 when it has none.
    pub fn pacing_bytes_s(&self) -> u64 {
        self.pacing_bytes_s.load(Ordering::Relaxed)
    }

    /// Packets that ask for an acknowledgement, sent so far.
    pub fn sent_packets(&self) -> u64 {
        self.sent_packets.load(Ordering::Relaxed)
    }

    /// Packets acknowledged so far.
    pub fn acknowledged_packets(&self) -> u64 {
        self.acknowledged_packets.load(Ordering::Relaxed)
    }

    /// Whether the path no longer carries the datagrams that QUIC needs.
    pub fn is_narrow(&self) -> bool {
        self.is_narrow.load(Ordering::Relaxed)
    }

    /// Wakes the waiter once this much was sent in all; false when it was
    /// already, and nobody will be woken.
    pub fn wake_at(&self, sent_bytes: u64) -> bool {
        self.wake_at_bytes.store(sent_bytes, Ordering::SeqCst);
        self.sent_bytes.load(Ordering::SeqCst) < sent_bytes
    }

    /// Waits until what [`Flight::wake_at`] asked for was sent, or everything
    /// sent has been answered. One waiter.
    pub async fn moved(&self) {
        self.moved.notified().await;
    }

    /// From now on this share of the controller's rate, 0 to 1, is for what is
    /// sent beside QUIC: repairs come out of the same rate.
    pub fn reserve(&self, share: f64) {
        let ppm = (share.clamp(0.0, 0.5) * 1e6) as u32;
        self.reserved_ppm.store(ppm, Ordering::Relaxed);
    }

    /// So many bytes may be sent although the window is full.
    ///
    /// What a link that was cut has swallowed fills the window until something is answered, and a
    /// stack with a full window sends nothing: no ping that would find the link healed, no
    /// acknowledgement, and no answer to a peer that asks whether the path to a new address is
    /// ours (RFC 9000 section 8.2). Only its retransmission timer is left, and that has backed off.
    pub fn lend(&self, bytes: u64) {
        let until_bytes = self.sent_bytes().saturating_add(bytes);
        self.lent_until_bytes.store(until_bytes, Ordering::Relaxed);
    }

    /// The window of a controller that has one of so many bytes, with what is lent.
    fn window(&self, bytes: u64) -> u64 {
        let lent_until_bytes = self.lent_until_bytes.load(Ordering::Relaxed);
        match lent_until_bytes.saturating_sub(self.sent_bytes()) {
            0 => bytes,
            lent_bytes => bytes.max(self.in_flight_bytes().saturating_add(lent_bytes)),
        }
    }

    /// What of a rate is left for QUIC.
    fn left_of(&self, rate_bytes_s: u64) -> u64 {
        let reserved_ppm = self.reserved_ppm.load(Ordering::Relaxed);
        let share = f64::from(reserved_ppm) / 1e6;
        rate_bytes_s - (rate_bytes_s as f64 * share) as u64
    }

    fn sent(&self, bytes: u64) {
        self.in_flight_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.sent_packets.fetch_add(1, Ordering::Relaxed);
        let sent_bytes = self.sent_bytes.fetch_add(bytes, Ordering::SeqCst) + bytes;
        if sent_bytes >= self.wake_at_bytes.load(Ordering::SeqCst) {
            self.wake_at_bytes.store(u64::MAX, Ordering::SeqCst);
            self.moved.notify_one();
        }
    }

    fn gone(&self, bytes: u64) {
        let left = |in_flight: u64| Some(in_flight.saturating_sub(bytes));
        let _ = self
            .in_flight_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }

    /// What the stack itself counts; corrects what went unsaid, such as lost
    /// probes and packets of a path that is no more.
    fn settled(&self, in_flight_bytes: u64) {
        self.in_flight_bytes
            .store(in_flight_bytes, Ordering::Relaxed);
        if in_flight_bytes == 0 {
            self.moved.notify_one();
        }
    }
}

/// Makes controllers that are watched.
#[derive(Debug)]
pub struct WatchedFactory<F>(Arc<F>);

impl<F> WatchedFactory<F> {
    /// Watches what `inner` makes.
    pub fn new(inner: F) -> Self {
        Self(Arc::new(inner))
    }
}

impl<F: ControllerFactory> ControllerFactory for WatchedFactory<F> {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Watched {
            inner: self.0.clone().build(now, current_mtu),
            flight: Arc::default(),
            losses: Losses::default(),
            schedule: Schedule::default(),
        })
    }
}

/// Any controller, overheard.
#[derive(Debug)]
pub struct Watched {
    inner: Box<dyn Controller>,
    flight: Arc<Flight>,
    losses: Losses,
    schedule: Schedule,
}

impl Watched {
    /// The controller itself.
    pub fn into_inner(self) -> Box<dyn Controller> {
        self.inner
    }
}

impl Controller for Watched {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
        self.inner.on_sent(now, bytes, largest_pn);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.flight.sent(u64::from(bytes));
        let rate_bytes_s = self.flight.pacing_bytes_s();
        self.schedule
            .handle_sent(now, u64::from(bytes), rate_bytes_s);
        self.inner.on_packet_sent(now, bytes, pn);
    }

    fn on_cwnd_limited(&mut self) {
        self.schedule.handle_held_back();
        self.inner.on_cwnd_limited();
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.flight.gone(bytes);
        self.flight
            .acknowledged_packets
            .fetch_add(1, Ordering::Relaxed);
        self.losses.arrived(bytes);
        self.inner.on_ack(now, sent, bytes, pn, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.flight.settled(in_flight);
        if app_limited {
            self.schedule.handle_held_back();
        }
        self.inner
            .on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        is_ecn: bool,
        lost_bytes: u64,
        largest_lost_pn: u64,
    ) {
        self.inner.on_congestion_event(
            now,
            sent,
            is_persistent_congestion,
            is_ecn,
            lost_bytes,
            largest_lost_pn,
        );
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        self.flight.gone(u64::from(lost_bytes));
        if self.losses.lost(now, lost_bytes) {
            self.flight.is_narrow.store(true, Ordering::Relaxed);
        }
        self.inner.on_packet_lost(lost_bytes, pn, now);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.inner.on_spurious_congestion_event();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn on_ack_frequency_update(&mut self, threshold: u64, delay: Duration) {
        self.inner.on_ack_frequency_update(threshold, delay);
    }

    fn window(&self) -> u64 {
        self.flight.window(self.inner.window())
    }

    /// Asked by the stack before every packet that is paced.
    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.inner.metrics();
        let pacing_bytes_s = metrics.pacing_rate.map(|rate| self.flight.left_of(rate));
        self.flight
            .pacing_bytes_s
            .store(pacing_bytes_s.unwrap_or(0), Ordering::Relaxed);
        metrics.pacing_rate = pacing_bytes_s.map(|rate| self.schedule.ask_bytes_s(rate));
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            flight: self.flight.clone(),
            losses: self.losses.clone(),
            schedule: self.schedule.clone(),
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noq::congestion::CubicConfig;

    fn watched() -> (Box<dyn Controller>, Arc<Flight>) {
        let factory = Arc::new(WatchedFactory::new(CubicConfig::default()));
        let controller = factory.build(Instant::now(), 1200);
        let watched = controller.clone_box().into_any().downcast::<Watched>();
        (controller, watched.unwrap().flight)
    }

    #[test]
    fn packets_are_counted_from_sending_to_acknowledgement_or_loss() {
        let (mut controller, flight) = watched();
        let now = Instant::now();
        for pn in 0..10 {
            controller.on_packet_sent(now, 1000, pn);
        }
        assert_eq!(
            (flight.sent_bytes(), flight.in_flight_bytes()),
            (10_000, 10_000)
        );
        controller.on_packet_lost(1000, 3, now);
        assert_eq!(flight.in_flight_bytes(), 9000);
        controller.on_end_acks(now, 4000, false, Some(5));
        assert_eq!(
            (flight.sent_bytes(), flight.in_flight_bytes()),
            (10_000, 4000)
        );
        controller.on_packet_lost(9000, 6, now);
        assert_eq!(flight.in_flight_bytes(), 0);
    }

    #[test]
    fn what_is_lent_is_sent_beyond_a_full_window_once() {
        let (mut controller, flight) = watched();
        let (now, window) = (Instant::now(), controller.window());
        let mut pn = 0;
        while flight.in_flight_bytes() < window {
            controller.on_packet_sent(now, 1000, pn);
            pn += 1;
        }
        assert_eq!(controller.window(), window);
        flight.lend(1500);
        assert_eq!(controller.window(), flight.in_flight_bytes() + 1500);
        controller.on_packet_sent(now, 1000, pn);
        assert_eq!(controller.window(), flight.in_flight_bytes() + 500);
        controller.on_packet_sent(now, 1000, pn + 1);
        assert_eq!(controller.window(), window);
    }

    #[tokio::test]
    async fn the_waiter_is_woken_when_enough_was_sent_and_never_missed() {
        let (mut controller, flight) = watched();
        let now = Instant::now();
        assert!(flight.wake_at(2000));
        controller.on_packet_sent(now, 1500, 0);
        let early = tokio::time::timeout(Duration::from_millis(10), flight.moved()).await;
        assert!(early.is_err());
        controller.on_packet_sent(now, 1500, 1);
        flight.moved().await;
        assert!(!flight.wake_at(3000), "that was sent already");
        controller.on_end_acks(now, 0, true, Some(1));
        flight.moved().await;
    }

    #[test]
    fn what_is_reserved_is_taken_from_the_rate() {
        let flight = Flight::default();
        assert_eq!(flight.left_of(10_000_000), 10_000_000);
        flight.reserve(0.02);
        assert_eq!(flight.left_of(10_000_000), 9_800_000);
        assert_eq!(flight.left_of(150_000), 147_000, "of slow links, too");
        flight.reserve(7.0);
        assert_eq!(flight.left_of(10_000_000), 5_000_000, "half at most");
    }

    #[test]
    fn the_rate_is_the_controllers() {
        let (controller, flight) = watched();
        assert_eq!(flight.pacing_bytes_s(), 0);
        assert_eq!(controller.metrics().congestion_window, controller.window());
        let inner = controller
            .into_any()
            .downcast::<Watched>()
            .unwrap()
            .into_inner();
        assert!(inner.window() > 0);
    }
}
