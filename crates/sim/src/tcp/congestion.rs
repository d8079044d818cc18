//! The congestion window: slow start, congestion avoidance as Reno and as
//! CUBIC do it, and what a loss costs.

use super::profile::{Growth, Profile};
use crate::engine::seconds;

/// RFC 9438, 4.6 and 5.1.
const CUBIC_BETA: f64 = 0.7;
const CUBIC_C: f64 = 0.4;

/// Congestion window and slow-start threshold.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) bytes: u64,
    pub(crate) ssthresh_bytes: u64,
    /// Growth not yet worth a byte, or a segment.
    credit: f64,
    cubic: Cubic,
}

/// What CUBIC remembers, in segments.
#[derive(Debug, Clone, Copy, Default)]
struct Cubic {
    max: f64,
    epoch_ns: Option<u64>,
    k_s: f64,
    reno_estimate: f64,
}

impl Window {
    pub(crate) fn new(profile: &Profile, mss: u64) -> Self {
        Self {
            bytes: u64::from(profile.initial_window_segments) * mss,
            ssthresh_bytes: profile.initial_ssthresh_bytes,
            credit: 0.0,
            cubic: Cubic::default(),
        }
    }

    /// `acked` new bytes were acknowledged by one acknowledgement.
    pub(crate) fn grow(&mut self, profile: &Profile, mss: u64, acked: u64, at: At) {
        let grown = if self.bytes <= self.ssthresh_bytes {
            self.bytes + slow_start_bytes(profile, mss, acked)
        } else {
            match profile.growth {
                Growth::Reno => self.reno(profile, mss, acked),
                Growth::Cubic => self.cubic(mss, acked, at),
            }
        };
        self.bytes = grown.min(profile.window_bytes_max);
    }

    /// One segment per round trip: for each acknowledgement its share, by
    /// acknowledgements or by bytes.
    fn reno(&mut self, profile: &Profile, mss: u64, acked: u64) -> u64 {
        if profile.byte_counting_segments == 0 {
            return self.bytes + (mss * mss / self.bytes).max(1);
        }
        self.credit += acked as f64;
        if self.credit < self.bytes as f64 {
            return self.bytes;
        }
        self.credit -= self.bytes as f64;
        self.bytes + mss
    }

    fn cubic(&mut self, mss: u64, acked: u64, at: At) -> u64 {
        let segments = self.bytes as f64 / mss as f64;
        let acked = acked as f64 / mss as f64;
        let cubic = &mut self.cubic;
        let epoch_ns = *cubic.epoch_ns.get_or_insert_with(|| {
            cubic.max = cubic.max.max(segments);
            cubic.k_s = libm::cbrt((cubic.max - segments) / CUBIC_C);
            cubic.reno_estimate = segments;
            at.now_ns
        });
        let elapsed_s = seconds(at.now_ns.saturating_sub(epoch_ns));
        let curve = |t_s: f64| {
            let from_k = t_s - cubic.k_s;
            CUBIC_C * from_k * from_k * from_k + cubic.max
        };
        let share = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
        cubic.reno_estimate += share * acked / segments;
        let grown = if curve(elapsed_s) < cubic.reno_estimate {
            cubic.reno_estimate.max(segments) - segments
        } else {
            let ahead = curve(elapsed_s + seconds(at.srtt_ns));
            (ahead.clamp(segments, 1.5 * segments) - segments) * acked / segments
        };
        self.credit += grown * mss as f64;
        let whole = self.credit as u64;
        self.credit -= whole as f64;
        self.bytes + whole
    }

    /// A loss: the threshold becomes what is believed to fit.
    pub(crate) fn reduce(&mut self, profile: &Profile, mss: u64, flight: u64) {
        let kept = match profile.growth {
            // Whole segments, as both stacks compute it (RFC 5681, 3.2).
            Growth::Reno => flight / 2 / mss * mss,
            Growth::Cubic => {
                let segments = self.bytes as f64 / mss as f64;
                let is_shrinking = segments < self.cubic.max;
                let factor = if is_shrinking {
                    (1.0 + CUBIC_BETA) / 2.0
                } else {
                    1.0
                };
                self.cubic.max = segments * factor;
                (self.bytes.min(flight.max(mss)) as f64 * CUBIC_BETA) as u64
            }
        };
        self.cubic.epoch_ns = None;
        self.credit = 0.0;
        self.ssthresh_bytes = kept.max(2 * mss);
    }

    /// Starts anew from the initial window after idleness.
    pub(crate) fn restart(&mut self, profile: &Profile, mss: u64) {
        let initial = u64::from(profile.initial_window_segments) * mss;
        self.bytes = self.bytes.min(initial);
        self.cubic.epoch_ns = None;
    }
}

/// When an acknowledgement came, and how long round trips are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    pub(crate) now_ns: u64,
    pub(crate) srtt_ns: u64,
}

fn slow_start_bytes(profile: &Profile, mss: u64, acked: u64) -> u64 {
    match profile.byte_counting_segments {
        0 => mss,
        limit => acked.min(mss.saturating_mul(u64::from(limit))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::NS_PER_S;

    const MSS: u64 = 1000;

    fn at(now_s: f64) -> At {
        At {
            now_ns: (now_s * 1e9) as u64,
            srtt_ns: NS_PER_S / 10,
        }
    }

    #[test]
    fn slow_start_counts_acknowledgements_or_bytes() {
        let grown = |profile: &Profile, acked| {
            let mut window = Window::new(profile, MSS);
            let before = window.bytes;
            window.grow(profile, MSS, acked, at(0.0));
            window.bytes - before
        };
        assert_eq!(grown(&Profile::BSD44, 2 * MSS), MSS);
        assert_eq!(grown(&Profile::MODERN, 2 * MSS), 2 * MSS);
        assert_eq!(grown(&Profile::MODERN, 5 * MSS), 2 * MSS);
        assert_eq!(grown(&Profile::LINUX_RENO, 5 * MSS), 5 * MSS);
    }

    #[test]
    fn reno_adds_a_segment_per_round_trip() {
        for profile in [Profile::BSD44, Profile::LINUX_RENO] {
            let mut window = Window::new(&profile, MSS);
            window.bytes = 10 * MSS;
            window.ssthresh_bytes = 5 * MSS;
            for _ in 0..10 {
                window.grow(&profile, MSS, MSS, at(0.0));
            }
            assert!(
                (window.bytes as i64 - 11 * MSS as i64).abs() <= 50,
                "{}",
                window.bytes
            );
            window.reduce(&profile, MSS, 11 * MSS);
            assert_eq!(window.ssthresh_bytes, 5 * MSS);
        }
    }

    #[test]
    fn cubic_is_back_at_its_maximum_after_k_seconds() {
        let profile = Profile::MODERN;
        let mut window = Window::new(&profile, MSS);
        window.bytes = 1000 * MSS;
        window.reduce(&profile, MSS, 1000 * MSS);
        window.bytes = window.ssthresh_bytes;
        assert_eq!(window.bytes, 700 * MSS);
        window.bytes += 1; // in congestion avoidance
        let k_s = (300.0f64 / 0.4).cbrt();
        let mut now_s = 0.0;
        while now_s < k_s {
            for _ in 0..window.bytes / MSS / 10 {
                window.grow(&profile, MSS, 10 * MSS, at(now_s));
            }
            now_s += 0.1;
        }
        let segments = window.bytes as f64 / MSS as f64;
        assert!((segments - 1000.0).abs() < 20.0, "{segments}");
    }
}
