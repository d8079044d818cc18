//! How much the QUIC stack may be given that it has not sent yet.
//!
//! What waits in the stack can no longer be put in another order, except by
//! its stream's priority. So it is given a few milliseconds' worth: enough
//! that it never runs dry between two looks of the pump. What it has sent and
//! keeps until it is acknowledged is another matter, and bounded by memory
//! only: with losses that is several windows.

use std::time::Duration;

/// Unsent bytes the stack is given, as time at its rate, beyond a burst.
const BACKLOG_MS: u64 = 8;

/// The stack's pacer sends as much at once: this long, or ten packets, but
/// never longer than `BURST_MS_MAX`.
const BURST_MS: u64 = 2;
const BURST_PACKETS: u64 = 10;
const BURST_MS_MAX: u64 = 10;

/// Whatever the rate, so many packets.
const BACKLOG_PACKETS_MIN: u64 = 4;

/// Of a thousand bytes in flight, those that are frames of ours; the rest is
/// QUIC's. Measured with 1472-byte datagrams, 1.5 Mbit/s to 1 Gbit/s: 976 to
/// 978. Too large a figure gives the stack a little more, too small a one
/// would starve it.
const FRAMES_PER_MILLE: u64 = 979;

/// What of a datagram is not payload of a stream, bytes: short header,
/// connection ID, packet number, tag, and the head of a stream frame.
const DATAGRAM_OVERHEAD_BYTES: u64 = 36;

/// Frames whose last byte is not acknowledged yet, as multiples of the window:
/// a hole keeps a whole frame. Measured needs are 3, 4 and 6 bandwidth-delay
/// products at 1, 5 and 10 % loss; a window is about two.
const HELD_WINDOWS: u64 = 4;
/// Before the window has grown.
const HELD_BYTES_MIN: u64 = 1 << 20;
/// The bound on memory, whatever the window: 4 x 1 Gbit/s x 0.5 s.
const HELD_BYTES_MAX: u64 = 256 << 20;

/// The path as the pump sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PathFigures {
    /// What the controller lets out, bytes per second; 0 when not known.
    pub(super) pacing_bytes_s: u64,
    /// What the path is thought to carry, bytes per second.
    pub(super) rate_bytes_s: u64,
    /// Congestion window, bytes.
    pub(super) window_bytes: u64,
    /// Largest datagram, bytes of UDP payload.
    pub(super) datagram_bytes: u64,
}

impl PathFigures {
    /// Reads them off the stack's.
    pub(super) fn new(stats: &noq::PathStats, pacing_bytes_s: u64) -> Self {
        let by_window = per_second(stats.cwnd, stats.rtt);
        let estimated = stats.bandwidth_estimate.map_or(0, |bits| bits / 8);
        let known = |rate: &u64| *rate > 0;
        let pick = |rates: [u64; 3]| rates.into_iter().find(known).unwrap_or(0);
        Self {
            pacing_bytes_s: pick([pacing_bytes_s, estimated, by_window]),
            rate_bytes_s: pick([estimated, pacing_bytes_s, by_window]),
            window_bytes: stats.cwnd,
            datagram_bytes: u64::from(stats.current_mtu),
        }
    }

    /// What of a frame fits into one packet, bytes.
    pub(super) fn packet_bytes(&self) -> u64 {
        self.datagram_bytes.saturating_sub(DATAGRAM_OVERHEAD_BYTES)
    }

    /// Time the link takes for one packet, ns; 0 where its rate is not known. Who has sent little
    /// has seen little of the rate, but what the controller lets out is some.
    pub(super) fn packet_ns(&self) -> u64 {
        let scaled = self.datagram_bytes.saturating_mul(1_000_000_000);
        let rate_bytes_s = self.rate_bytes_s.max(self.pacing_bytes_s);
        scaled.checked_div(rate_bytes_s).unwrap_or(0)
    }

    /// What the stack may hold unsent, bytes.
    pub(super) fn backlog_bytes(&self) -> u64 {
        let bytes_in = |time_ms: u64| self.pacing_bytes_s.saturating_mul(time_ms) / 1000;
        let burst_bytes = bytes_in(BURST_MS).max(BURST_PACKETS * self.datagram_bytes);
        let burst_bytes = burst_bytes.min(bytes_in(BURST_MS_MAX));
        let floor_bytes = BACKLOG_PACKETS_MIN * self.datagram_bytes;
        bytes_in(BACKLOG_MS)
            .saturating_add(burst_bytes)
            .max(floor_bytes)
    }

    /// What the stack may hold in all, sent or not, with `in_flight_bytes` on
    /// the wire; acknowledged parts of frames do not count.
    pub(super) fn taken_bytes_max(&self, in_flight_bytes: u64) -> u64 {
        let sent_bytes = in_flight_bytes.saturating_mul(FRAMES_PER_MILLE) / 1000;
        sent_bytes.saturating_add(self.backlog_bytes())
    }

    /// What frames may hold that are not acknowledged whole, bytes.
    pub(super) fn held_bytes_max(&self) -> u64 {
        self.window_bytes
            .saturating_mul(HELD_WINDOWS)
            .clamp(HELD_BYTES_MIN, HELD_BYTES_MAX)
    }

    /// How much the stack sends between two looks of the pump, bytes.
    pub(super) fn step_bytes(&self) -> u64 {
        (self.backlog_bytes() / 4).max(self.datagram_bytes).max(1)
    }
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000 / time.as_micros().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rate_bits: u64) -> PathFigures {
        PathFigures {
            pacing_bytes_s: rate_bits / 8,
            rate_bytes_s: rate_bits / 8,
            window_bytes: 2_000_000,
            datagram_bytes: 1472,
        }
    }

    #[test]
    fn the_backlog_is_some_milliseconds_and_more_than_a_burst() {
        for rate_bits in [
            1_544_000u64,
            10_000_000,
            51_840_000,
            155_520_000,
            1_000_000_000,
        ] {
            let path = path(rate_bits);
            let backlog_ms = path.backlog_bytes() as f64 * 8000.0 / rate_bits as f64;
            assert!((10.0..=18.0).contains(&backlog_ms) || rate_bits < 2_000_000);
            let burst_bytes = (path.pacing_bytes_s / 500).max(14_720);
            let burst_bytes = burst_bytes.min(path.pacing_bytes_s / 100);
            assert!(path.backlog_bytes() > burst_bytes + path.step_bytes());
        }
        assert_eq!(path(1_544_000).backlog_bytes(), 4 * 1472);
        assert_eq!(path(0).backlog_bytes(), 4 * 1472);
    }

    #[test]
    fn what_may_be_taken_follows_what_is_on_the_wire() {
        let path = path(51_840_000);
        let idle_bytes = path.taken_bytes_max(0);
        assert_eq!(idle_bytes, path.backlog_bytes());
        assert_eq!(path.taken_bytes_max(1_000_000) - idle_bytes, 979_000);
        assert!(path.taken_bytes_max(u64::MAX) > 1 << 50);
    }

    #[test]
    fn invariant_5_memory_for_unacknowledged_frames_is_bounded() {
        let held_bytes_max = |window_bytes| {
            let path = PathFigures {
                window_bytes,
                ..PathFigures::default()
            };
            path.held_bytes_max()
        };
        assert_eq!(held_bytes_max(0), 1 << 20);
        assert_eq!(held_bytes_max(2_000_000), 8_000_000);
        assert_eq!(held_bytes_max(u64::MAX), 256 << 20);
    }

    #[test]
    fn a_rate_is_found_with_any_controller() {
        let mut stats = noq::PathStats::default();
        stats.cwnd = 120_000;
        stats.rtt = Duration::from_millis(100);
        let rates = |stats: &noq::PathStats, pacing| {
            let path = PathFigures::new(stats, pacing);
            (path.pacing_bytes_s, path.rate_bytes_s)
        };
        assert_eq!(rates(&stats, 0), (1_200_000, 1_200_000));
        assert_eq!(rates(&stats, 5), (5, 5));
        stats.bandwidth_estimate = Some(80_000);
        assert_eq!(rates(&stats, 20_000), (20_000, 10_000));
        assert_eq!(rates(&stats, 0), (10_000, 10_000));
    }
}
