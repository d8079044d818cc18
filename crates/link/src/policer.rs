//! Policing: a token bucket that drops what exceeds it, and delays nothing.
//!
//! Providers sell a rate below that of the line in this way. Unlike a queue, a
//! policer shows no delay before it loses packets, and a sender that was quiet
//! may send a burst at the rate of the line.

use crate::rate::Rate;

/// Tokens are counted in billionths of a bit, so that a nanosecond of any
/// rate is a whole number of them.
const TOKENS_PER_BYTE: u128 = 8_000_000_000;

/// What a policer lets pass; it counts what the rate of the link counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Policer {
    /// Rate at which tokens come in.
    pub rate: Rate,
    /// Tokens it can hold: what may pass at once after a quiet time, bytes.
    pub burst_bytes: u64,
}

/// The running bucket of one direction: full at first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bucket {
    /// Tokens missing from a full bucket.
    missing: u128,
    at_ns: u64,
}

impl Bucket {
    /// Whether a packet that arrives at `now_ns` may pass.
    pub(crate) fn admits(&mut self, policer: Option<Policer>, now_ns: u64, bytes: u64) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.at_ns);
        self.at_ns = self.at_ns.max(now_ns);
        let Some(policer) = policer else {
            self.missing = 0;
            return true;
        };
        let gained = u128::from(elapsed_ns) * u128::from(policer.rate.bit_per_s());
        self.missing = self.missing.saturating_sub(gained);
        let missing = self.missing + u128::from(bytes) * TOKENS_PER_BYTE;
        let passes = missing <= u128::from(policer.burst_bytes) * TOKENS_PER_BYTE;
        if passes {
            self.missing = missing;
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICER: Option<Policer> = Some(Policer {
        rate: Rate::constant(8_000_000),
        burst_bytes: 10_000,
    });

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut bucket = Bucket::default();
        let at_once = (0..20).filter(|_| bucket.admits(POLICER, 0, 1000)).count();
        assert_eq!(at_once, 10);
        // A byte per microsecond: 1000 bytes every millisecond and no sooner.
        assert!(!bucket.admits(POLICER, 999_999, 1000));
        assert!(bucket.admits(POLICER, 1_000_000, 1000));
        assert!(!bucket.admits(POLICER, 1_000_001, 1000));
    }

    #[test]
    fn twice_the_rate_loses_every_second_packet() {
        let mut bucket = Bucket::default();
        let passed = (0..100_000u64)
            .filter(|nth| bucket.admits(POLICER, nth * 500_000, 1000))
            .count();
        assert!((50_000..=50_010).contains(&passed), "{passed}");
    }

    #[test]
    fn a_quiet_time_saves_up_one_burst_and_no_more() {
        let mut bucket = Bucket::default();
        let burst = |bucket: &mut Bucket, now_ns| {
            (0..100)
                .filter(|_| bucket.admits(POLICER, now_ns, 1000))
                .count()
        };
        assert_eq!(burst(&mut bucket, 0), 10);
        assert_eq!(burst(&mut bucket, 3_600_000_000_000), 10);
    }

    #[test]
    fn without_a_policer_everything_passes_and_nothing_is_owed() {
        let mut bucket = Bucket::default();
        assert!(bucket.admits(None, 0, u64::MAX));
        assert!(bucket.admits(POLICER, 0, 10_000));
    }
}
