//! The clocks: the model lives in monotonic time, the kernel stamps arriving
//! frames in real time.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A stamp older than this is taken as nonsense (a step of the real-time
/// clock, for example) and the frame as having arrived now.
const STAMP_AGE_MAX_NS: u64 = 500_000_000;

/// Reads the system's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clock;

/// Both clocks at (nearly) the same instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instant {
    pub(super) monotonic_ns: u64,
    pub(super) real_ns: u64,
}

impl Clock {
    pub(super) fn monotonic_ns(&self) -> u64 {
        nanoseconds(clock_gettime(ClockId::Monotonic))
    }

    /// Real time is read first: what passes between the two makes a stamp seem newer, and its frame
    /// leave late. The other way round it would leave early, by as long as we were held up.
    pub(super) fn read(&self) -> Instant {
        let real_ns = nanoseconds(clock_gettime(ClockId::Realtime));
        Instant {
            monotonic_ns: self.monotonic_ns(),
            real_ns,
        }
    }
}

impl Instant {
    /// Monotonic time of a real-time stamp taken just before this instant.
    pub(super) fn monotonic_of(&self, stamp_real_ns: Option<u64>) -> u64 {
        let age_ns = stamp_real_ns
            .and_then(|stamp| self.real_ns.checked_sub(stamp))
            .filter(|age| *age <= STAMP_AGE_MAX_NS)
            .unwrap_or(0);
        self.monotonic_ns.saturating_sub(age_ns)
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    // Neither clock is before 1970 on a machine that runs this.
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_believed_unless_they_are_old_or_in_the_future() {
        let now = Instant {
            monotonic_ns: 10_000_000_000,
            real_ns: 1_700_000_000_000_000_000,
        };
        let stamp = |age: i64| now.monotonic_of(Some(now.real_ns.saturating_add_signed(-age)));
        assert_eq!(stamp(30_000), 9_999_970_000);
        assert_eq!(stamp(0), 10_000_000_000);
        assert_eq!(stamp(-5), 10_000_000_000);
        assert_eq!(stamp(3_600_000_000_000), 10_000_000_000);
        assert_eq!(now.monotonic_of(None), 10_000_000_000);
    }
}
