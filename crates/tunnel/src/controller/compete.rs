//! Sharing a link with traffic that fills its queue: as one CUBIC connection would (RFC 9438).

use super::loss::LossModel;

/// What a window is cut to: a little less than CUBIC cuts (RFC 9438, section 4.6: 0.7) makes up for
/// our looks and for our packets' leaving in bursts, of which a full queue takes the end.
const BETA: f64 = 0.75;
/// How fast it grows back (section 4.1).
const C: f64 = 0.4;
/// Growth of the Reno-friendly estimate per window acknowledged, in packets (section 4.3).
const FRIENDLY: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// How long the link is shared before we look whether the others are still there.
const LOOK_NS: u64 = 10_000_000_000;
/// Whoever made us compete has been growing for a while: so do we, as if for so long.
const HEAD_START_NS: u64 = 5_000_000_000;

/// A queue of this part of what it was has become shorter.
const EASED: f64 = 0.75;

#[derive(Debug, Clone)]
pub(super) struct Compete {
    mtu_bytes: f64,
    /// All windows in packets.
    window: f64,
    window_max: f64,
    friendly: f64,
    /// When growth began, and how long it takes back to `window_max`.
    epoch_ns: u64,
    k: f64,
    /// Losses of packets before this one belong to a cut that was made.
    cut_pn: u64,
    /// Losses that the path may cause by itself before one counts.
    allowance: f64,
    look_ns: u64,
    /// There was a cut since the last look.
    has_cut: bool,
    /// Queue at the last cut, s, and whether it has become shorter since then, or losses have been
    /// let pass because it has not.
    queue: f64,
    has_eased: bool,
}

impl Compete {
    /// Goes on with what is on its way now.
    pub(super) fn new(now_ns: u64, window_bytes: f64, mtu_bytes: f64) -> Self {
        let window = window_bytes / mtu_bytes;
        let grown = C * (HEAD_START_NS as f64 / 1e9).powi(3);
        Compete {
            mtu_bytes,
            window,
            window_max: window - grown,
            friendly: window,
            epoch_ns: now_ns.saturating_sub(HEAD_START_NS),
            k: 0.0,
            cut_pn: 0,
            allowance: 1.0,
            look_ns: now_ns + LOOK_NS,
            has_cut: false,
            queue: 0.0,
            has_eased: true,
        }
    }

    /// Back after looking: nothing grew in the meantime.
    pub(super) fn resume(&mut self, now_ns: u64, paused_ns: u64) {
        self.epoch_ns += paused_ns;
        self.look_ns = now_ns + LOOK_NS;
        self.has_cut = false;
    }

    pub(super) fn has_cut(&self) -> bool {
        self.has_cut
    }

    pub(super) fn is_look_due(&self, now_ns: u64) -> bool {
        now_ns >= self.look_ns
    }

    /// A round trip has passed.
    pub(super) fn handle_round(&mut self, now_ns: u64, rtt: f64, queue: f64, loss: &LossModel) {
        self.has_eased |= queue < EASED * self.queue;
        // What the path loses by itself in a round is no reason to make room.
        self.allowance = 2.0 * loss.base() * self.window;
        self.friendly += FRIENDLY;
        let t = now_ns.saturating_sub(self.epoch_ns) as f64 / 1e9 + rtt;
        let target = C * (t - self.k).powi(3) + self.window_max;
        let target = target.clamp(self.window, 1.5 * self.window);
        self.window = target.max(self.friendly);
    }

    pub(super) fn handle_lost(&mut self, now_ns: u64, pn: u64, next_pn: u64, queue: f64) {
        if self.allowance >= 1.0 {
            self.allowance -= 1.0;
            return;
        }
        if pn < self.cut_pn {
            return;
        }
        if !self.has_eased {
            // We made room and nobody else did: it is their turn, once.
            self.has_eased = true;
            self.cut_pn = next_pn;
            return;
        }
        self.queue = queue;
        self.has_eased = false;
        self.cut(now_ns, pn, next_pn);
    }

    pub(super) fn cut(&mut self, now_ns: u64, pn: u64, next_pn: u64) {
        if pn < self.cut_pn {
            return;
        }
        self.cut_pn = next_pn;
        self.has_cut = true;
        // Fast convergence (section 4.7).
        self.window_max = match self.window < self.window_max {
            true => self.window * (1.0 + BETA) / 2.0,
            false => self.window,
        };
        self.window = (self.window * BETA).max(2.0);
        self.friendly = self.window;
        self.k = ((self.window_max - self.window).max(0.0) / C).cbrt();
        self.epoch_ns = now_ns;
    }

    pub(super) fn window_bytes(&self) -> f64 {
        self.window.max(4.0) * self.mtu_bytes
    }

    /// A little faster than the window allows, so that acknowledgements set the pace.
    pub(super) fn pace(&self, rtt: f64) -> f64 {
        1.1 * self.window_bytes() / rtt.max(1e-4)
    }
}
