//! The rate that was achieved, over the last second and the busiest one.

const SLOT_NS: u64 = 100_000_000;
/// Slots in a second.
const SLOTS: usize = 10;

/// Adds up what was sent in slots of a tenth of a second.
#[derive(Debug, Clone, Default)]
pub(super) struct RateMeter {
    /// Number of the slot being filled: time / [`SLOT_NS`].
    slot: u64,
    filling_bytes: u64,
    /// The slots before it, a ring.
    full_bytes: [u64; SLOTS],
    busiest_bytes: u64,
}

impl RateMeter {
    /// Counts bytes sent at `now_ns`.
    pub(super) fn record(&mut self, now_ns: u64, bytes: u64) {
        self.advance(now_ns);
        self.filling_bytes += bytes;
    }

    /// Bits per second over the last ten full slots.
    pub(super) fn last_bit_per_s(&mut self, now_ns: u64) -> u64 {
        self.advance(now_ns);
        self.full_bytes.iter().sum::<u64>() * 8
    }

    /// Bits per second over the busiest ten slots in a row.
    pub(super) fn busiest_bit_per_s(&mut self, now_ns: u64) -> u64 {
        self.advance(now_ns);
        self.busiest_bytes * 8
    }

    fn advance(&mut self, now_ns: u64) {
        let slot = now_ns / SLOT_NS;
        // Ten empty slots look like a hundred.
        let steps = slot.saturating_sub(self.slot).min(SLOTS as u64 + 1);
        for _ in 0..steps {
            self.full_bytes.rotate_left(1);
            if let Some(last) = self.full_bytes.last_mut() {
                *last = std::mem::take(&mut self.filling_bytes);
            }
            self.busiest_bytes = self.busiest_bytes.max(self.full_bytes.iter().sum());
        }
        self.slot = self.slot.max(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_stream_reads_its_rate_and_a_pause_reads_zero() {
        let mut meter = RateMeter::default();
        let start_ns = 77 * SLOT_NS;
        // 1000 bytes each millisecond: 8 Mbit/s.
        for packet in 0..1500 {
            meter.record(start_ns + packet * 1_000_000, 1000);
        }
        let end_ns = start_ns + 1_500_000_000;
        assert_eq!(meter.last_bit_per_s(end_ns), 8_000_000);
        assert_eq!(meter.busiest_bit_per_s(end_ns), 8_000_000);
        assert_eq!(meter.last_bit_per_s(end_ns + 5_000_000_000), 0);
        assert_eq!(meter.busiest_bit_per_s(end_ns + 5_000_000_000), 8_000_000);
    }
}
