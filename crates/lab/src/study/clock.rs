//! The wall clock, which captures go by, and whether somebody sets it during a copy.

use std::array;

use rustix::time::{ClockId, clock_gettime};

/// One of so many readings is not held up between the clocks.
const READS: usize = 5;

/// How far the wall clock is ahead of the one that nobody can set. Whoever makes them slower or faster does so to both, so that
/// this is always the same unless the clock is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ahead {
    ns: i64,
}

impl Ahead {
    /// As it is now.
    pub(super) fn now() -> Self {
        Self::of(array::from_fn(|_| {
            let before_ns = now_ns(ClockId::Monotonic);
            let wall_ns = now_ns(ClockId::Realtime);
            [before_ns, wall_ns, now_ns(ClockId::Monotonic)]
        }))
    }

    /// The wall clock between two readings of the other, of the two that are closest.
    fn of(reads: [[i64; 3]; READS]) -> Self {
        let closest = reads.iter().min_by_key(|[before, _, after]| after - before);
        let ns = closest.map_or(0, |[before, wall, after]| {
            wall - before - (after - before) / 2
        });
        Self { ns }
    }

    /// By how much the clock was set since then, in ms.
    pub(super) fn set_since_ms(self, then: Self) -> f64 {
        (self.ns - then.ns) as f64 / 1e6
    }
}

fn now_ns(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn the_reading_that_was_not_held_up_counts() {
        let ahead = |reads: [[i64; 3]; READS]| Ahead::of(reads).ns;
        let held_up = [20 * MS, 75 * MS, 60 * MS];
        let mut reads = [held_up; READS];
        reads[3] = [100 * MS, 121 * MS, 102 * MS];
        assert_eq!(ahead(reads), 20 * MS);
    }

    #[test]
    fn a_clock_that_is_set_either_way_is_seen_and_one_that_goes_on_is_not() {
        let at = |monotonic_ms: i64, wall_ms: i64| {
            Ahead::of([[monotonic_ms * MS, wall_ms * MS, monotonic_ms * MS]; READS])
        };
        let before = at(1_000, 50_000);
        for (wall_ms, set_ms) in [(110_000, 0.0), (110_003, 3.0), (106_400, -3_600.0)] {
            assert_eq!(at(61_000, wall_ms).set_since_ms(before), set_ms);
        }
    }

    /// Not the other way round, nor any other two clocks: within an hour, for somebody may set it just now.
    #[test]
    fn it_is_the_wall_clock_less_the_monotonic_one() {
        let wall = std::time::SystemTime::now();
        let wall = wall.duration_since(std::time::UNIX_EPOCH).unwrap();
        let up_ns = now_ns(ClockId::Monotonic);
        let off_ns = Ahead::now().ns - (wall.as_nanos() as i64 - up_ns);
        assert!(off_ns.abs() < 3_600_000 * MS, "{off_ns}");
    }
}
