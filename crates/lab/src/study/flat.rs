//! Whether a throughput has become flat: a client that waits for every block goes on as it does, and nothing is learnt
//! by waiting for the rest of its file.

use crate::lockstep::BLOCK_BYTES;

/// Neighbouring times are alike within this share,
const ALIKE: f64 = 0.02;
/// or within a block with its headers: how many end in a time is chance.
const BLOCK_ON_WIRE_BYTES: f64 = BLOCK_BYTES as f64 * 1.15;
/// So many in a row: two are alike by chance, if one looks often.
const TIMES: usize = 3;

/// Watches how many bytes have moved.
#[derive(Debug)]
pub(super) struct Flat {
    /// Not before.
    after_s: f64,
    seen: Vec<(f64, u64)>,
}

impl Flat {
    pub(super) fn new(after_s: f64) -> Self {
        Self {
            after_s,
            seen: Vec::new(),
        }
    }

    /// So many bytes had moved at this time; whether that is enough to know the throughput: the last three quarters of the
    /// least time are alike. The first is the beginning's.
    pub(super) fn is_reached(&mut self, at_s: f64, bytes: u64) -> bool {
        self.seen.push((at_s, bytes));
        if at_s < self.after_s {
            return false;
        }
        let time_s = self.after_s / (TIMES + 1) as f64;
        let ends = (0..=TIMES).map(|back| self.at(at_s - back as f64 * time_s));
        let Some(ends) = ends.collect::<Option<Vec<u64>>>() else {
            return false;
        };
        let moved = || ends.iter().zip(ends.iter().skip(1));
        let moved = || moved().map(|(later, earlier)| later.saturating_sub(*earlier) as f64);
        let (least, most) = (
            moved().fold(f64::INFINITY, f64::min),
            moved().fold(0.0, f64::max),
        );
        least > 0.0 && most - least <= BLOCK_ON_WIRE_BYTES.max(ALIKE * most)
    }

    /// Bytes at a time, of what was last seen before it.
    fn at(&self, at_s: f64) -> Option<u64> {
        let until = self.seen.partition_point(|(seen_s, _)| *seen_s <= at_s);
        let (_, bytes) = self.seen.get(until.checked_sub(1)?)?;
        Some(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When it is reached for this many bytes a tenth of a second.
    fn reached_s(rate: impl Fn(f64) -> u64) -> Option<f64> {
        let mut flat = Flat::new(60.0);
        let mut bytes = 0;
        (0..6_000).map(|tick| f64::from(tick) / 10.0).find(|at_s| {
            bytes += rate(*at_s);
            flat.is_reached(*at_s, bytes)
        })
    }

    #[test]
    fn a_steady_rate_is_known_after_the_least_time_and_a_growing_one_later() {
        assert_eq!(reached_s(|_| 500_000), Some(60.0));
        assert_eq!(reached_s(|_| 0), None, "nothing moves");
        let settled = reached_s(|at_s| 200_000 + 4_000 * (at_s as u64).min(100));
        assert!(settled.is_some_and(|at_s| at_s > 120.0), "{settled:?}");
        let grows = reached_s(|at_s| 1_000 * (1 + (at_s * at_s) as u64));
        assert_eq!(grows, None, "it only grows");
    }

    /// A block each 1.15 s or so, which comes at once.
    #[test]
    fn blocks_that_come_one_by_one_are_a_steady_rate() {
        for period in [5, 7, 10, 11, 12, 23] {
            let block = |at_s: f64| match (at_s * 10.0).round() as u64 % period {
                0 => 65_000,
                _ => 0,
            };
            assert_eq!(reached_s(block), Some(60.0), "{period}");
        }
    }

    /// Two thirds of this that are alike come along soon.
    #[test]
    fn a_rate_that_goes_up_and_down_is_not_flat() {
        let waves = |at_s: f64| (300_000.0 * (1.0 + 0.5 * (at_s / 5.0).sin())) as u64;
        assert_eq!(reached_s(waves), None);
    }
}
