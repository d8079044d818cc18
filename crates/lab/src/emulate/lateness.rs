//! How late frames leave: a histogram of constant size and relative precision.

/// Steps per power of two: values are kept to 1/16.
const STEPS: u64 = 16;
const STEP_BITS: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = ((64 - STEP_BITS as usize) + 1) * STEPS as usize;

/// Counts durations in nanoseconds.
#[derive(Debug, Clone)]
pub struct Lateness {
    counts: Box<[u64; BUCKETS]>,
    count: u64,
    max_ns: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            count: 0,
            max_ns: 0,
        }
    }
}

impl Lateness {
    /// Counts one duration.
    pub fn record(&mut self, late_ns: u64) {
        if let Some(count) = self.counts.get_mut(bucket(late_ns)) {
            *count += 1;
        }
        self.count += 1;
        self.max_ns = self.max_ns.max(late_ns);
    }

    /// The longest, exactly; 0 where none was counted.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The duration that `share` (0 to 1) of all are no longer than, at most
    /// 1/16 too long; 0 where none was counted.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let wanted = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_ns(index).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.count = 0;
        self.max_ns = 0;
    }
}

/// Values below [`STEPS`] have a bucket each; above, each power of two has
/// [`STEPS`] of them.
fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let power = value.ilog2() - STEP_BITS;
    ((u64::from(power) + 1) * STEPS + ((value >> power) & (STEPS - 1))) as usize
}

/// Largest value of a bucket.
fn upper_ns(index: usize) -> u64 {
    let index = index as u64;
    if index < STEPS {
        return index;
    }
    let power = (index / STEPS - 1) as u32;
    let first = u128::from(STEPS + index % STEPS) << power;
    u64::try_from(first + (1u128 << power) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_a_bucket_that_is_no_wider_than_a_sixteenth() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let upper = upper_ns(bucket(value));
                assert!(upper >= value, "{value} above its bucket's {upper}");
                assert!(upper - value <= value / 16, "{value} far below {upper}");
                assert!(bucket(value) < BUCKETS);
            }
        }
    }

    #[test]
    fn quantiles_of_a_known_sample() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile_ns(0.99), 0);
        for value in 1..=1000u64 {
            lateness.record(value * 1000);
        }
        assert_eq!(lateness.max_ns(), 1_000_000);
        for (share, exact) in [(0.5, 500_000u64), (0.99, 990_000), (1.0, 1_000_000)] {
            let read = lateness.quantile_ns(share);
            assert!(
                read >= exact && read <= exact + exact / 16,
                "{share}: {read}"
            );
        }
        lateness.clear();
        assert_eq!((lateness.max_ns(), lateness.quantile_ns(0.5)), (0, 0));
    }
}
