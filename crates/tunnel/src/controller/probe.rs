//! The cycle: a short train above the rate, one below it, then a while at it.

use super::cohort::Sample;
use super::{Controller, Phase};

pub(super) const UP_GAIN: f64 = 1.25;
pub(super) const DOWN_GAIN: f64 = 0.75;
/// More than noise: the path has become faster.
const NEWS: f64 = 1.1;
/// Probes in a row that found more before the search starts anew.
const FINDS: u32 = 2;

#[derive(Debug, Clone, Default)]
pub(super) struct Probe {
    /// Estimate when the probe was sent, bytes per second.
    before: f64,
    /// First packet after the last Down.
    end_pn: u64,
    /// Probes in a row that found more.
    finds: u32,
    /// The next probe need not wait.
    is_urgent: bool,
    /// Marks are believed once a round trip: packets before this one are old news.
    marked_pn: u64,
}

impl Probe {
    pub(super) fn handle_mark(&mut self, pn: u64, next_pn: u64, react: impl FnOnce()) {
        if pn >= self.marked_pn {
            self.marked_pn = next_pn;
            react();
        }
    }
}

impl Controller {
    pub(super) fn is_probe_due(&self, now_ns: u64, since_ns: u64) -> bool {
        // The last probe's answer must be in.
        let is_answered = self
            .largest_acked_pn
            .is_some_and(|pn| pn >= self.probe.end_pn);
        if self.is_limited || self.is_at_max() || !is_answered {
            return false;
        }
        if self.delay.queue() > super::standing::PROBE_QUEUE * self.threshold() {
            return false;
        }
        let wait = (4.0 * self.cohort_span()).max(self.rtt());
        let passed = now_ns.saturating_sub(since_ns) as f64 / 1e9;
        self.probe.is_urgent || passed > wait
    }

    pub(super) fn enter_up(&mut self) {
        self.probe.is_urgent = false;
        self.probe.before = self.rate();
        self.rates.next_cycle();
        self.enter(Phase::Up);
    }

    pub(super) fn enter_down(&mut self) {
        self.probe.end_pn = self.next_pn;
        self.enter(Phase::Down);
    }

    pub(super) fn learn_up(&mut self, sample: &Sample, corrected: f64) {
        let grown_ns = sample.rtt_ns.1.saturating_sub(sample.rtt_ns.0);
        let is_queueing = grown_ns as f64 / 1e9 > 0.1 * self.cohort_span();
        if sample.is_limited || is_queueing || corrected < NEWS * self.probe.before {
            self.probe.finds = 0;
            return;
        }
        self.probe.finds += 1;
        self.probe.is_urgent = true;
    }

    pub(super) fn has_found_more(&mut self) -> bool {
        let is_found = self.probe.finds >= FINDS;
        if is_found {
            self.probe.finds = 0;
        }
        is_found
    }
}
