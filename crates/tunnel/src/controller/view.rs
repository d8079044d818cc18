//! What a controller shows of its path.

use super::{Controller, Phase};

const CLIMB: &str = "climb";

/// Figures of the moment, for traces and status.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathView {
    /// Name of the phase.
    pub phase: &'static str,
    /// Estimate of the path's rate, bytes of UDP payload per second.
    pub rate: f64,
    /// Least round trip, ns.
    pub base_rtt_ns: u64,
    /// Waiting in queues, s.
    pub queue: f64,
    /// Round trips vary by this without load, s.
    pub jitter: f64,
    /// Share lost without load.
    pub loss: f64,
    /// Share lost lately, whatever the cause; `None` while nothing is known of it.
    pub loss_seen: Option<f64>,
    /// What tells more of the rate, sent at once, bytes; `None` where that is known, or is found in another way.
    pub train_bytes: Option<u64>,
}

impl PathView {
    /// Whether the rate is still being found: it is the most that has arrived so far, and may be far below the link's.
    #[must_use]
    pub fn is_climbing(&self) -> bool {
        self.phase == CLIMB
    }

    /// Whether the rate, or what is lost at it, is still being found.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_climbing() || self.loss_seen.is_none()
    }
}

impl Controller {
    /// Figures of the moment.
    #[must_use]
    pub fn view(&self) -> PathView {
        PathView {
            phase: match &self.phase {
                Phase::Climb(_) => CLIMB,
                Phase::Drain(_) => "drain",
                Phase::Cruise(_) => "cruise",
                Phase::Up => "up",
                Phase::Down => "down",
                Phase::Yield(_) => "yield",
                Phase::Compete(_) => "compete",
            },
            rate: self.rate(),
            base_rtt_ns: self.delay.base_ns(),
            queue: self.delay.queue(),
            jitter: self.delay.jitter(),
            loss: self.loss.base(),
            loss_seen: self.loss_seen(),
            train_bytes: self.train_bytes(),
        }
    }

    /// [`PathView::loss_seen`] alone.
    #[must_use]
    pub fn loss_seen(&self) -> Option<f64> {
        self.loss.seen()
    }
}
