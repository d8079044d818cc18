//! The stock BBRv3, started anew after a quiet time.
//!
//! noq's BBRv3 takes what keep-alives deliver for what the path can carry: a
//! tunnel that was quiet for some seconds comes out of its next round-trip
//! probe at a few packets per round trip and needs minutes to recover
//! (measured: 10 MB in 4 s on a fresh tunnel, 0.2 MB in 8 s after 12 s of
//! quiet, also without loss). So what it has learnt is dropped when bulk
//! begins after a quiet time, as TCP drops its window (RFC 9293 section
//! 3.8.6.2.2, RFC 2861): slow start costs a few round trips.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noq::congestion::{Bbr3Config, Controller, ControllerFactory, ControllerMetrics};
use noq_proto::RttEstimator;

/// Without a backlog for this long, what was learnt is dropped. Shorter than
/// the interval of BBR's round-trip probes (5 s), which do the damage.
const QUIET: Duration = Duration::from_secs(2);

/// Makes controllers for new paths.
#[derive(Debug, Default)]
pub struct FreshStartFactory {
    bbr: Arc<Bbr3Config>,
}

impl ControllerFactory for FreshStartFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        Box::new(FreshStart {
            inner: self.bbr.clone().build(now, current_mtu),
            bbr: self.bbr.clone(),
            mtu_bytes: current_mtu,
            ack_frequency: None,
            busy: now,
        })
    }
}

#[derive(Debug)]
struct FreshStart {
    inner: Box<dyn Controller>,
    bbr: Arc<Bbr3Config>,
    mtu_bytes: u16,
    ack_frequency: Option<(u64, Duration)>,
    /// When there was last more to send than was let out; at first, when the
    /// path was new.
    busy: Instant,
}

impl FreshStart {
    fn note_backlog(&mut self, now: Instant) {
        if now.saturating_duration_since(self.busy) > QUIET {
            self.inner = self.bbr.clone().build(now, self.mtu_bytes);
            self.inner.on_mtu_update(self.mtu_bytes);
            if let Some((threshold, delay)) = self.ack_frequency {
                self.inner.on_ack_frequency_update(threshold, delay);
            }
        }
        self.busy = now;
    }
}

impl Controller for FreshStart {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
        self.inner.on_sent(now, bytes, largest_pn);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.inner.on_packet_sent(now, bytes, pn);
    }

    fn on_cwnd_limited(&mut self) {
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
        if !app_limited {
            self.note_backlog(now);
        }
        self.inner.on_ack(now, sent, bytes, pn, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
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
        self.inner.on_packet_lost(lost_bytes, pn, now);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.inner.on_spurious_congestion_event();
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu_bytes = new_mtu;
        self.inner.on_mtu_update(new_mtu);
    }

    fn on_ack_frequency_update(&mut self, threshold: u64, delay: Duration) {
        self.ack_frequency = Some((threshold, delay));
        self.inner.on_ack_frequency_update(threshold, delay);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            bbr: self.bbr.clone(),
            mtu_bytes: self.mtu_bytes,
            ack_frequency: self.ack_frequency,
            busy: self.busy,
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
