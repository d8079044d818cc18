//! Hands the tunnel's congestion controller ([`farhaul_tunnel::Controller`]) to the QUIC stack.
//!
//! The stack makes a controller for every new path before anybody knows which peer is at its end.
//! What the operator said about that peer's link therefore arrives later, through [`PathHandle`],
//! which also shows what the controller has found.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_tunnel::{Controller as Model, PathMemory, PathSettings, PathView};
use noq::congestion::{Controller, ControllerFactory, ControllerMetrics};
use noq_proto::RttEstimator;
use tokio::sync::watch;

use super::flight::Watched;
use crate::lock::lock;

/// Packets leave in trains of at most this much time: longer ones fill short queues.
const TRAIN: Duration = Duration::from_millis(1);
const TRAIN_BYTES_MAX: f64 = 65_536.0;
/// How often figures are published,
const PUBLISH: Duration = Duration::from_millis(10);
/// and at once where somebody may have waited for them.
const RISEN: f64 = 1.125;
const LOST_MORE: f64 = 0.02;

/// What says how far ahead a path must be fed: what it carries, and what of that must be sent again.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reach {
    /// Bytes per second.
    pub rate_bytes_s: u64,
    /// Share of packets lost.
    pub loss: f64,
}

impl Reach {
    fn of(model: &Model) -> Self {
        Self {
            rate_bytes_s: model.rate() as u64,
            loss: model.loss_seen().unwrap_or(0.0),
        }
    }

    /// Whether it is more by enough to matter.
    fn exceeds(self, other: Self) -> bool {
        self.rate_bytes_s as f64 > RISEN * other.rate_bytes_s as f64
            || self.loss > LOST_MORE + other.loss
    }
}

/// Makes controllers for new paths.
#[derive(Debug, Default)]
pub struct ModelFactory;

impl ControllerFactory for ModelFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Adapter {
            model: Model::new(PathSettings::default(), current_mtu),
            shared: Arc::default(),
            epoch: now,
            published: now,
        })
    }
}

#[derive(Debug, Default)]
struct Shared {
    settings: Mutex<Option<PathSettings>>,
    has_settings: AtomicBool,
    found: Mutex<(Option<PathView>, Option<PathMemory>)>,
    /// About that of `found`: changed when that has become more.
    reach: watch::Sender<Reach>,
}

/// The controller of one tunnel, seen from outside the stack.
#[derive(Debug, Clone)]
pub struct PathHandle(Arc<Shared>);

impl PathHandle {
    /// The controller of a connection's path.
    pub fn of(connection: &noq::Connection) -> Option<Self> {
        let state = connection.congestion_state(noq::PathId::ZERO)?;
        let watched = state.into_any().downcast::<Watched>().ok()?;
        let adapter = watched.into_inner().into_any().downcast::<Adapter>().ok()?;
        Some(Self(adapter.shared))
    }

    /// Tells it what is known of the path; it acts on that with the next acknowledgement.
    pub fn configure(&self, settings: PathSettings) {
        *lock(&self.0.settings) = Some(settings);
        self.0.has_settings.store(true, Ordering::Release);
    }

    /// What it has found, some milliseconds old.
    pub fn view(&self) -> Option<PathView> {
        lock(&self.0.found).0
    }

    /// Waits until it has found more than this, by enough to matter.
    pub async fn exceeded(&self, known: Reach) {
        let mut reach = self.0.reach.subscribe();
        // Its sender is ours, too.
        let _ = reach.wait_for(|reach| reach.exceeds(known)).await;
    }

    /// What the next tunnel to the same peer should know.
    pub fn memory(&self) -> Option<PathMemory> {
        lock(&self.0.found).1
    }
}

#[derive(Debug)]
struct Adapter {
    model: Model,
    shared: Arc<Shared>,
    epoch: Instant,
    published: Instant,
}

impl Adapter {
    fn ns(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.epoch);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn take_settings(&mut self, now: Instant) {
        if self.shared.has_settings.swap(false, Ordering::Acquire)
            && let Some(settings) = lock(&self.shared.settings).take()
        {
            self.model.configure(self.ns(now), settings);
        }
    }

    fn publish(&mut self, now: Instant) {
        let reach = Reach::of(&self.model);
        let has_risen = reach.exceeds(*self.shared.reach.borrow());
        if !has_risen && now.saturating_duration_since(self.published) < PUBLISH {
            return;
        }
        self.published = now;
        *lock(&self.shared.found) = (Some(self.model.view()), self.model.memory());
        // Less wakes nobody.
        self.shared.reach.send_if_modified(|noted| {
            let has_fallen = noted.exceeds(reach);
            if has_risen || has_fallen {
                *noted = reach;
            }
            has_risen
        });
    }
}

impl Controller for Adapter {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.model.handle_sent(self.ns(now), pn, u64::from(bytes));
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        _app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        self.model
            .handle_acked(self.ns(now), pn, self.ns(sent), bytes);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        _in_flight: u64,
        app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        self.take_settings(now);
        self.model.handle_ack_end(self.ns(now), app_limited);
        self.publish(now);
    }

    fn on_packet_lost(&mut self, _lost_bytes: u16, pn: u64, now: Instant) {
        self.model.handle_lost(self.ns(now), pn);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        _sent: Instant,
        _is_persistent_congestion: bool,
        is_ecn: bool,
        _lost_bytes: u64,
        largest_lost_pn: u64,
    ) {
        // Losses were told one by one.
        if is_ecn {
            self.model
                .handle_congestion_mark(self.ns(now), largest_lost_pn);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.model.handle_mtu(new_mtu);
    }

    fn window(&self) -> u64 {
        self.model.window_bytes()
    }

    fn metrics(&self) -> ControllerMetrics {
        let pace = self.model.pace();
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.model.window_bytes();
        metrics.pacing_rate = Some(pace as u64);
        metrics.send_quantum = Some((pace * TRAIN.as_secs_f64()).min(TRAIN_BYTES_MAX) as u64);
        metrics.bandwidth_estimate = Some((self.model.rate() * 8.0) as u64);
        metrics
    }

    /// A path to another address of the same peer starts from what is known of this one.
    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            model: self.model.clone(),
            shared: self.shared.clone(),
            epoch: self.epoch,
            published: self.published,
        })
    }

    fn initial_window(&self) -> u64 {
        self.model.window_bytes()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MTU_BYTES: u16 = 1472;
    const RTT: Duration = Duration::from_millis(100);

    fn adapter(start: Instant) -> Adapter {
        let controller = Arc::new(ModelFactory).build(start, MTU_BYTES);
        *controller.into_any().downcast().unwrap()
    }

    /// Packets a millisecond apart, each acknowledged after a round trip: the next `packets` of them.
    fn carry(adapter: &mut Adapter, start: Instant, packets: std::ops::Range<u64>) {
        for pn in packets.clone() {
            let sent = start + Duration::from_millis(pn);
            adapter.on_packet_sent(sent, MTU_BYTES, pn);
        }
        for pn in packets {
            let sent = start + Duration::from_millis(pn);
            let (sent_ns, acked_ns) = (adapter.ns(sent), adapter.ns(sent + RTT));
            adapter
                .model
                .handle_acked(acked_ns, pn, sent_ns, MTU_BYTES.into());
            adapter.on_end_acks(sent + RTT, 0, false, Some(pn));
        }
    }

    async fn is_woken(path: &PathHandle, known: Reach) -> bool {
        tokio::time::timeout(Duration::ZERO, path.exceeded(known))
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn who_waits_for_a_faster_link_is_woken_once() {
        let start = Instant::now();
        let mut adapter = adapter(start);
        let path = PathHandle(adapter.shared.clone());
        let known = Reach {
            rate_bytes_s: 100_000,
            loss: 0.0,
        };
        assert!(!is_woken(&path, known).await, "nothing is known");
        carry(&mut adapter, start, 0..200);
        assert!(is_woken(&path, known).await);
        let now = Reach::of(&adapter.model);
        assert!(now.rate_bytes_s > 1_000_000, "{now:?}");
        assert!(!is_woken(&path, now).await, "that is known");
    }

    #[test]
    fn a_link_that_loses_more_must_be_fed_further_ahead() {
        let reach = |rate_bytes_s, loss| Reach { rate_bytes_s, loss };
        assert!(reach(1_000, 0.1).exceeds(reach(1_000, 0.0)));
        assert!(reach(1_200, 0.0).exceeds(reach(1_000, 0.0)));
        assert!(!reach(1_100, 0.01).exceeds(reach(1_000, 0.0)));
        assert!(!reach(500, 0.0).exceeds(reach(1_000, 0.1)));
    }
}
