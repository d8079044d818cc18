//! Time of a test: the monotonic clock, so that nobody who sets the clock
//! disturbs a measurement, and what the kernel's packet stamps mean in it.

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

/// When a packet came, from the kernel's stamp in wall-clock time. A stamp that
/// lies in the future, or before the socket was opened, was made before the clock
/// was set: the packet counts as come now. Old ones are true: a program short of
/// processor time reads seconds late.
pub(crate) fn arrival_ns(stamp_wall_ns: Option<u64>, opened_ns: u64) -> u64 {
    let (now, wall) = both_clocks(nanoseconds);
    let age_ns = stamp_wall_ns.and_then(|stamp| wall.checked_sub(stamp));
    let at_ns = age_ns.and_then(|age| now.checked_sub(age));
    at_ns.filter(|at| *at >= opened_ns).unwrap_or(now)
}

/// The monotonic and the wall clock at one moment. A thread that has to wait for a
/// processor between two readings would date a packet wrongly for as long: it reads
/// again, and at worst dates it late, for the earliest is what all others are held
/// against.
fn both_clocks(mut read: impl FnMut(ClockId) -> u64) -> (u64, u64) {
    const APART_NS_MAX: u64 = 20_000;
    const READINGS: usize = 3;
    let mut both = || {
        let before = read(ClockId::Monotonic);
        let wall = read(ClockId::Realtime);
        let now = read(ClockId::Monotonic);
        (now.saturating_sub(before), (now, wall))
    };
    let mut best = both();
    for _ in 1..READINGS {
        if best.0 > APART_NS_MAX {
            best = best.min(both());
        }
    }
    best.1
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

    #[test]
    fn a_stamp_of_another_clock_counts_as_now() {
        let (before, opened) = (now_ns(), now_ns().saturating_sub(60_000_000_000));
        let wall = nanoseconds(ClockId::Realtime);
        for odd in [None, Some(0), Some(wall + 3_600_000_000_000)] {
            assert!(arrival_ns(odd, opened) >= before);
        }
        let late = arrival_ns(Some(wall - 1_000_000_000), before);
        assert!(late >= before, "older than the socket");
    }

    #[test]
    fn a_thread_held_up_between_two_clocks_dates_nothing_back() {
        const HELD_UP_NS: u64 = 10_000_000;
        const AHEAD_NS: u64 = 1 << 60;
        // Held up before one of the readings, or before each of them.
        for held_up in [&[0][..], &[1], &[2], &[1, 2], &[1, 4], &[1, 2, 4, 5, 7, 8]] {
            let (mut monotonic, mut nth) = (5_000_000, 0);
            let (now, wall) = both_clocks(|clock| {
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
            let late_ns = now.checked_sub(wall - AHEAD_NS);
            let most_ns = if held_up.len() > 2 { HELD_UP_NS } else { 50 };
            assert!(
                late_ns.is_some_and(|late_ns| late_ns <= most_ns),
                "{held_up:?}: {late_ns:?}"
            );
        }
    }

    #[test]
    fn a_stamp_is_true_however_late_it_is_read() {
        let before = now_ns();
        let opened = before.saturating_sub(60_000_000_000);
        let wall = nanoseconds(ClockId::Realtime);
        for late_ns in [1_000_000, 10_000_000_000] {
            assert!(arrival_ns(Some(wall - late_ns), opened) <= now_ns() - late_ns);
        }
    }
}
