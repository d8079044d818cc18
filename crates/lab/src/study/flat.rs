//! Whether a throughput has become flat: a client that waits for every block goes on as it does, and nothing is learnt
//! by waiting for the rest of its file.

/// Two neighbouring times are alike within this share.
const ALIKE: f64 = 0.02;

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

    /// So many bytes had moved at this time; whether that is enough to know the throughput: the last third of the
    /// least time is like the third before.
    pub(super) fn is_reached(&mut self, at_s: f64, bytes: u64) -> bool {
        self.seen.push((at_s, bytes));
        if at_s < self.after_s {
            return false;
        }
        let third_s = self.after_s / 3.0;
        let (Some(before), Some(middle)) = (self.at(at_s - 2.0 * third_s), self.at(at_s - third_s))
        else {
            return false;
        };
        let (earlier, later) = (middle.saturating_sub(before), bytes.saturating_sub(middle));
        let most = earlier.max(later) as f64;
        most > 0.0 && earlier.abs_diff(later) as f64 <= ALIKE * most
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
        let mut flat = Flat::new(30.0);
        let mut bytes = 0;
        (0..6_000).map(|tick| f64::from(tick) / 10.0).find(|at_s| {
            bytes += rate(*at_s);
            flat.is_reached(*at_s, bytes)
        })
    }

    #[test]
    fn a_steady_rate_is_known_after_the_least_time_and_a_growing_one_later() {
        assert_eq!(reached_s(|_| 1_000), Some(30.0));
        assert_eq!(reached_s(|_| 0), None, "nothing moves");
        let settled = reached_s(|at_s| if at_s < 50.0 { 10 + at_s as u64 } else { 1_000 });
        assert!(settled.is_some_and(|at_s| at_s > 60.0), "{settled:?}");
        assert_eq!(
            reached_s(|at_s| 1 + (at_s * at_s) as u64),
            None,
            "it only grows"
        );
    }
}
