//! CUBIC as the kernel's TCP runs it (RFC 9438), the neighbour to share with.

use super::DATAGRAM_BYTES;

pub struct Cubic {
    window: f64,
    ssthresh: f64,
    most: f64,
    epoch_ns: Option<u64>,
    friendly: f64,
    cut_pn: u64,
    acked: u64,
    rtt_min_ns: u64,
    rtt_round: (u64, u64),
}

impl Cubic {
    pub fn new() -> Self {
        Cubic {
            window: 10.0,
            ssthresh: f64::MAX,
            most: 0.0,
            epoch_ns: None,
            friendly: 0.0,
            cut_pn: 0,
            acked: 0,
            rtt_min_ns: u64::MAX,
            rtt_round: (u64::MAX, 0),
        }
    }

    pub fn window_bytes(&self) -> u64 {
        self.window as u64 * DATAGRAM_BYTES
    }

    pub fn handle_acked(&mut self, rtt_ns: u64) {
        self.acked += 1;
        self.rtt_min_ns = self.rtt_min_ns.min(rtt_ns);
        // HyStart's delay test on eight packets of a round.
        if self.window < self.ssthresh {
            let (least, count) = self.rtt_round;
            self.rtt_round = (least.min(rtt_ns), count + 1);
            let limit = self.rtt_min_ns + (self.rtt_min_ns / 8).clamp(4_000_000, 16_000_000);
            if self.rtt_round.1 >= 8 {
                if self.rtt_round.0 > limit && self.window > 16.0 {
                    self.ssthresh = self.window;
                }
                self.rtt_round = (u64::MAX, 0);
            }
        }
    }

    pub fn handle_ack_end(&mut self, now_ns: u64, srtt_ns: u64) {
        let acked = self.acked as f64;
        self.acked = 0;
        if self.window < self.ssthresh {
            self.window += acked;
            return;
        }
        let epoch = *self.epoch_ns.get_or_insert_with(|| {
            self.friendly = self.window;
            self.most = self.most.max(self.window);
            now_ns
        });
        let k = ((self.most - self.window_at_epoch()).max(0.0) / 0.4).cbrt();
        let t = (now_ns - epoch + srtt_ns) as f64 / 1e9;
        let target = 0.4 * (t - k).powi(3) + self.most;
        self.friendly += acked * 3.0 * 0.3 / 1.7 / self.window;
        if target > self.window {
            let gain = ((target - self.window) / self.window).min(0.5);
            self.window += gain * acked;
        }
        self.window = self.window.max(self.friendly);
    }

    fn window_at_epoch(&self) -> f64 {
        self.most * 0.7
    }

    pub fn handle_lost(&mut self, _now_ns: u64, pn: u64, next_pn: u64) {
        if pn < self.cut_pn {
            return;
        }
        self.cut_pn = next_pn;
        self.most = if self.window < self.most {
            self.window * 0.85
        } else {
            self.window
        };
        self.window = (self.window * 0.7).max(2.0);
        self.ssthresh = self.window;
        self.epoch_ns = None;
    }
}
