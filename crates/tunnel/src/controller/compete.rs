//! Sharing a link with traffic that fills its queue: as one CUBIC connection would (RFC 9438).

use super::loss::LossModel;

const BETA: f64 = 0.7;
const C: f64 = 0.4;

#[derive(Debug, Clone)]
pub(super) struct Compete {
    window: f64,
    window_max: f64,
    epoch_ns: u64,
    /// Losses of packets before this one belong to a cut that was made.
    cut_pn: u64,
}

impl Compete {
    pub(super) fn new(now_ns: u64, window: f64) -> Self {
        Compete {
            window,
            window_max: window,
            epoch_ns: now_ns,
            cut_pn: 0,
        }
    }

    pub(super) fn handle_lost(&mut self, now_ns: u64, pn: u64, _bytes: f64, next_pn: u64, _loss: &LossModel) {
        self.cut(now_ns, pn, next_pn);
    }

    pub(super) fn handle_mark(&mut self, now_ns: u64, pn: u64, next_pn: u64) {
        self.cut(now_ns, pn, next_pn);
    }

    pub(super) fn handle_round(&mut self, _now_ns: u64) {}

    fn cut(&mut self, now_ns: u64, pn: u64, next_pn: u64) {
        if pn < self.cut_pn {
            return;
        }
        self.cut_pn = next_pn;
        self.window_max = self.window;
        self.window *= BETA;
        self.epoch_ns = now_ns;
    }

    fn window(&self, now_ns: u64, mtu_bytes: f64) -> f64 {
        let most = self.window_max / mtu_bytes;
        let k = (most * (1.0 - BETA) / C).cbrt();
        let t = now_ns.saturating_sub(self.epoch_ns) as f64 / 1e9;
        (C * (t - k).powi(3) + most) * mtu_bytes
    }

    pub(super) fn window_bytes(&self, mtu_bytes: f64) -> f64 {
        self.window.max(4.0 * mtu_bytes)
    }

    pub(super) fn pace(&self, now_ns: u64, rtt_ns: u64, mtu_bytes: f64) -> f64 {
        1.2 * self.window(now_ns, mtu_bytes).max(2.0 * mtu_bytes) / (rtt_ns.max(1) as f64 / 1e9)
    }
}
