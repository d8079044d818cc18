//! Time of a test: the monotonic clock, so that nobody who sets the clock
//! disturbs a measurement, and what the kernel's packet stamps mean in it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of this machine's monotonic clock.
pub(crate) fn now_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// What the kernel's stamps of one socket mean: they are wall-clock time, which
/// somebody may set while packets wait to be read.
#[derive(Debug)]
pub(crate) struct Stamps(Mutex<Known>);

#[derive(Debug, Clone, Copy)]
struct Known {
    /// No stamp made before this is understood: the socket's opening, or when the
    /// wall clock was last seen to have been set.
    since_ns: u64,
    /// How far the wall clock is ahead of the monotonic one, at the last look.
    ahead_ns: i128,
    /// How much that may be wrong.
    apart_ns: u64,
}

/// Both clocks at one moment, as far as the thread was not held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Both {
    apart_ns: u64,
    now_ns: u64,
    wall_ns: u64,
}

impl Both {
    fn ahead_ns(&self) -> i128 {
        i128::from(self.wall_ns) - i128::from(self.now_ns)
    }
}

impl Stamps {
    /// Of a socket that is opened now.
    pub(crate) fn new() -> Self {
        let both = both_clocks(nanoseconds);
        Self(Mutex::new(Known {
            since_ns: both.now_ns,
            ahead_ns: both.ahead_ns(),
            apart_ns: both.apart_ns,
        }))
    }

    /// When a packet came. A stamp that lies in the future, or before the socket
    /// was opened, or before the clock was set, is another clock's: the packet
    /// counts as come now. Old ones are true: a program short of processor time
    /// reads seconds late.
    pub(crate) fn arrival_ns(&self, stamp_wall_ns: Option<u64>) -> u64 {
        self.dated(stamp_wall_ns, both_clocks(nanoseconds))
    }

    fn dated(&self, stamp_wall_ns: Option<u64>, both: Both) -> u64 {
        /// More than any clock is slewed between two packets.
        const SET_NS_MIN: u64 = 5_000_000;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let moved_ns = (both.ahead_ns() - known.ahead_ns).unsigned_abs();
        if moved_ns > u128::from(SET_NS_MIN + both.apart_ns + known.apart_ns) {
            known.since_ns = both.now_ns;
        }
        (known.ahead_ns, known.apart_ns) = (both.ahead_ns(), both.apart_ns);
        let age_ns = stamp_wall_ns.and_then(|stamp| both.wall_ns.checked_sub(stamp));
        let at_ns = age_ns.and_then(|age| both.now_ns.checked_sub(age));
        at_ns
            .filter(|at| *at >= known.since_ns)
            .unwrap_or(both.now_ns)
    }
}

/// The monotonic and the wall clock at one moment. A thread that has to wait for a
/// processor between two readings would date a packet wrongly for as long: it reads
/// again, and at worst dates it late, for the earliest is what all others are held
/// against.
fn both_clocks(mut read: impl FnMut(ClockId) -> u64) -> Both {
    const APART_NS_MAX: u64 = 20_000;
    const READINGS: usize = 3;
    let mut both = || {
        let before = read(ClockId::Monotonic);
        let wall_ns = read(ClockId::Realtime);
        let now_ns = read(ClockId::Monotonic);
        Both {
            apart_ns: now_ns.saturating_sub(before),
            now_ns,
            wall_ns,
        }
    };
    let mut best = both();
    for _ in 1..READINGS {
        if best.apart_ns > APART_NS_MAX {
            best = best.min(both());
        }
    }
    best
}

/// Sleeps until a time; the kernel's 50 us of slack are taken away by
/// [`precise`].
pub(crate) fn sleep_until(at_ns: u64) {
    let now = now_ns();
    if at_ns > now {
        std::thread::sleep(Duration::from_nanos(at_ns - now));
    }
}

/// Makes the calling thread's timers as exact as the kernel can.
pub(crate) fn precise() {
    // Best effort: without it packets leave some tens of microseconds later.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a socket that has been open for a minute.
    fn stamps() -> Stamps {
        let stamps = Stamps::new();
        stamps.0.lock().unwrap().since_ns -= 60_000_000_000;
        stamps
    }

    #[test]
    fn a_stamp_of_another_clock_counts_as_now() {
        let (stamps, before) = (stamps(), now_ns());
        let wall = nanoseconds(ClockId::Realtime);
        let before_the_socket = wall - 61_000_000_000;
        for odd in [
            None,
            Some(0),
            Some(wall + 3_600_000_000_000),
            Some(before_the_socket),
        ] {
            assert!(stamps.arrival_ns(odd) >= before);
        }
    }

    #[test]
    fn stamps_from_before_the_clock_was_set_count_as_now_and_later_ones_are_true() {
        const SECOND_NS: u64 = 1_000_000_000;
        for forward in [true, false] {
            let (stamps, start) = (stamps(), now_ns());
            let both = |after_ns: u64, is_set: bool| {
                let wall_ns = nanoseconds(ClockId::Realtime) / SECOND_NS * SECOND_NS;
                let moved_ns = match (is_set, forward) {
                    (false, _) => 0,
                    (true, true) => SECOND_NS.cast_signed(),
                    (true, false) => -SECOND_NS.cast_signed(),
                };
                Both {
                    apart_ns: 100,
                    now_ns: start + after_ns,
                    wall_ns: (wall_ns + after_ns).saturating_add_signed(moved_ns),
                }
            };
            let first = both(0, false);
            stamps.0.lock().unwrap().ahead_ns = first.ahead_ns();
            assert_eq!(
                stamps.dated(Some(first.wall_ns - 1000), first),
                start - 1000
            );
            // Two were waiting when the clock was set.
            let (late, later) = (both(3_000_000, true), both(4_000_000, true));
            for read in [late, later] {
                let queued = first.wall_ns + 2_000_000;
                assert_eq!(stamps.dated(Some(queued), read), read.now_ns, "{forward}");
            }
            let last = both(9_000_000, true);
            let at_ns = stamps.dated(Some(last.wall_ns - 1000), last);
            assert_eq!(at_ns, last.now_ns - 1000, "{forward}");
        }
    }

    #[test]
    fn a_thread_held_up_between_two_clocks_dates_nothing_back() {
        const HELD_UP_NS: u64 = 10_000_000;
        const AHEAD_NS: u64 = 1 << 60;
        // Held up before one of the readings, or before each of them.
        for held_up in [&[0][..], &[1], &[2], &[1, 2], &[1, 4], &[1, 2, 4, 5, 7, 8]] {
            let (mut monotonic, mut nth) = (5_000_000, 0);
            let both = both_clocks(|clock| {
                monotonic += if held_up.contains(&nth) {
                    HELD_UP_NS
                } else {
                    50
                };
                nth += 1;
                monotonic
                    + if clock == ClockId::Realtime {
                        AHEAD_NS
                    } else {
                        0
                    }
            });
            let late_ns = both.now_ns.checked_sub(both.wall_ns - AHEAD_NS);
            let most_ns = if held_up.len() > 2 { HELD_UP_NS } else { 50 };
            assert!(
                late_ns.is_some_and(|late_ns| late_ns <= most_ns),
                "{held_up:?}: {late_ns:?}"
            );
        }
    }

    #[test]
    fn a_stamp_is_true_however_late_it_is_read() {
        let stamps = stamps();
        let wall = nanoseconds(ClockId::Realtime);
        for late_ns in [1_000_000, 10_000_000_000] {
            assert!(stamps.arrival_ns(Some(wall - late_ns)) <= now_ns() - late_ns);
        }
    }
}
