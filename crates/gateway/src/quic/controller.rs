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

use super::flight::Watched;
use crate::lock::lock;

/// Packets leave in trains of at most this much time: longer ones fill short queues.
const TRAIN: Duration = Duration::from_millis(1);
const TRAIN_BYTES_MAX: f64 = 65_536.0;
/// How often figures are published.
const PUBLISH: Duration = Duration::from_millis(10);

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

    fn exchange(&mut self, now: Instant) {
        if self.shared.has_settings.swap(false, Ordering::Acquire)
            && let Some(settings) = lock(&self.shared.settings).take()
        {
            self.model.configure(self.ns(now), settings);
        }
        if now.saturating_duration_since(self.published) >= PUBLISH {
            self.published = now;
            *lock(&self.shared.found) = (Some(self.model.view()), self.model.memory());
        }
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
        self.exchange(now);
        self.model.handle_ack_end(self.ns(now), app_limited);
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
