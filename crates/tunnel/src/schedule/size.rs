//! How large frames are: by time, so that nobody holds the link for long at any rate.

use crate::frame::FRAME_BYTES_HARD_MAX;
use crate::limits::{FRAME_BYTES_MIN, clamp_frame_bytes};

/// A frame of bulk takes the link for this long at most, milliseconds. At 155 Mbit/s that is
/// `FRAME_BYTES_HARD_MAX`.
const BULK_MS: u64 = 16;

/// On slow links that would be a packet or two, and headers of frames half a percent of the link. Only other bulk waits behind them.
const BULK_BYTES_MIN: usize = 16 << 10;

/// But no longer than this, milliseconds.
const BULK_MS_MAX: u64 = 64;

/// An interactive frame takes it for this long at most, milliseconds, as does any frame that is
/// sent while a higher class waits.
const SMALL_MS: u64 = 2;

/// No interactive frame is longer, bytes.
const SMALL_BYTES_MAX: usize = 16 << 10;

/// A frame of bulk while the rate is not known, bytes.
const BULK_BYTES_UNKNOWN: usize = 64 << 10;

/// The frame sizes of a tunnel at its present rate. Headers are included; one packet is always
/// allowed.
#[derive(Debug)]
pub(crate) struct FrameSizes {
    bytes_max: usize,
    packet_bytes: usize,
    rate_bytes_s: u64,
}

impl FrameSizes {
    pub(crate) fn new(bytes_max: usize) -> Self {
        FrameSizes {
            bytes_max,
            packet_bytes: FRAME_BYTES_MIN,
            rate_bytes_s: 0,
        }
    }

    pub(crate) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = clamp_frame_bytes(bytes_max);
    }

    pub(crate) fn set_rate(&mut self, rate_bytes_s: u64, packet_bytes: usize) {
        self.rate_bytes_s = rate_bytes_s;
        self.packet_bytes = clamp_frame_bytes(packet_bytes);
    }

    pub(crate) fn rate_bytes_s(&self) -> u64 {
        self.rate_bytes_s
    }

    /// A frame with the link for itself.
    pub(crate) fn bulk_bytes(&self) -> usize {
        match self.rate_bytes_s {
            0 => BULK_BYTES_UNKNOWN.min(self.bytes_max),
            _ => {
                let least_bytes = self.bytes_in(BULK_MS_MAX).min(BULK_BYTES_MIN);
                self.bytes_in(BULK_MS).max(least_bytes).min(self.bytes_max)
            }
        }
    }

    /// A frame that others wait behind, or that somebody waits for.
    pub(crate) fn small_bytes(&self) -> usize {
        let small_bytes = match self.rate_bytes_s {
            0 => SMALL_BYTES_MAX,
            _ => self.bytes_in(SMALL_MS).min(SMALL_BYTES_MAX),
        };
        small_bytes.min(self.bulk_bytes())
    }

    fn bytes_in(&self, time_ms: u64) -> usize {
        let bytes = self.rate_bytes_s.saturating_mul(time_ms) / 1000;
        let bytes = usize::try_from(bytes).unwrap_or(FRAME_BYTES_HARD_MAX);
        bytes.max(self.packet_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(rate_bits: u64) -> (usize, usize) {
        let mut sizes = FrameSizes::new(FRAME_BYTES_HARD_MAX);
        sizes.set_rate(rate_bits / 8, 1432);
        (sizes.bulk_bytes(), sizes.small_bytes())
    }

    #[test]
    fn frames_take_their_time_or_one_packet_or_the_hard_bound() {
        assert_eq!(sizes(64_000), (1432, 1432));
        assert_eq!(sizes(1_544_000), (12_352, 1432));
        assert_eq!(sizes(5_000_000), (16 << 10, 1432));
        assert_eq!(sizes(51_840_000), (103_680, 12_960));
        assert_eq!(sizes(155_520_000), (FRAME_BYTES_HARD_MAX, 16 << 10));
        assert_eq!(sizes(u64::MAX), (FRAME_BYTES_HARD_MAX, 16 << 10));
    }

    #[test]
    fn the_bound_given_holds_whatever_the_rate() {
        let mut sizes = FrameSizes::new(FRAME_BYTES_HARD_MAX);
        assert_eq!(
            (sizes.bulk_bytes(), sizes.small_bytes()),
            (64 << 10, 16 << 10)
        );
        sizes.set_bytes_max(4000);
        assert_eq!((sizes.bulk_bytes(), sizes.small_bytes()), (4000, 4000));
        sizes.set_rate(1 << 40, 1 << 30);
        assert_eq!((sizes.bulk_bytes(), sizes.small_bytes()), (4000, 4000));
    }
}
