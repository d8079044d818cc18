//! What lies in the socket after a pause of this process.
//!
//! A process that was stopped, or whose machine was, finds datagrams that came while it did not run. Taken in, they would be
//! acknowledged late by as much as the pause, and what acknowledges ours would seem to have been on its way for so long. The
//! QUIC stacks of both sides call a packet lost after 1.25 of their round trip, so a tunnel that then sends little stood still
//! for a minute and more after 40 s. Dropped they are what they would be had the line been cut: lost, and sent again.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;

/// Nobody looked for so long: the process did not run. A busy machine makes looks late by less.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// No socket holds more; what comes after that has come since.
const DROPPED_BYTES_MAX: usize = 64 << 20;

/// Looks of the sessions of an endpoint, and what they say of its socket.
#[derive(Debug, Default)]
pub struct Pauses(Mutex<Looks>);

#[derive(Debug, Default)]
struct Looks {
    sessions: usize,
    last: Option<Instant>,
    /// What is in the socket is from before a pause; so many bytes of it were dropped.
    dropped_bytes: Option<usize>,
}

impl Looks {
    /// Somebody looks, a session or the socket.
    fn look(&mut self, now: Instant) {
        let is_late = |last: Instant| now.saturating_duration_since(last) >= PAUSE_MIN;
        if self.sessions > 0 && self.last.is_some_and(is_late) {
            self.dropped_bytes = Some(0);
            // Seen once.
            self.last = Some(now);
        }
    }
}

/// A session that looks every 200 ms at least.
#[derive(Debug)]
pub(crate) struct Looking<'a>(&'a Pauses);

impl Pauses {
    /// From now on until it is dropped a session looks.
    pub(crate) fn begin(&self, now: Instant) -> Looking<'_> {
        let mut looks = lock(&self.0);
        looks.sessions += 1;
        if looks.sessions == 1 {
            looks.last = Some(now);
        }
        Looking(self)
    }

    /// Whether datagrams that were in the socket now, so many bytes, are to be dropped.
    pub(super) fn is_stale(&self, now: Instant, bytes: usize) -> bool {
        let mut looks = lock(&self.0);
        looks.look(now);
        let Some(dropped_bytes) = looks.dropped_bytes else {
            return false;
        };
        let sum_bytes = dropped_bytes.saturating_add(bytes);
        looks.dropped_bytes = (sum_bytes < DROPPED_BYTES_MAX).then_some(sum_bytes);
        true
    }

    /// There was nothing in the socket.
    pub(super) fn emptied(&self, now: Instant) {
        let mut looks = lock(&self.0);
        looks.look(now);
        looks.dropped_bytes = None;
    }
}

impl Looking<'_> {
    /// The process runs.
    pub(crate) fn look(&self, now: Instant) {
        let mut looks = lock(&self.0.0);
        looks.look(now);
        looks.last = Some(now);
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        lock(&self.0.0).sessions -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn what_came_during_a_pause_is_dropped_whoever_wakes_first() {
        for session_first in [true, false] {
            let (pauses, start) = (Pauses::default(), Instant::now());
            let looking = pauses.begin(start);
            looking.look(at(start, 200));
            assert!(!pauses.is_stale(at(start, 300), 1200));
            if session_first {
                looking.look(at(start, 40_000));
            }
            assert!(pauses.is_stale(at(start, 40_000), 1200));
            assert!(pauses.is_stale(at(start, 40_001), 1200));
            looking.look(at(start, 40_001));
            assert!(pauses.is_stale(at(start, 40_001), 1200));
            pauses.emptied(at(start, 40_002));
            assert!(!pauses.is_stale(at(start, 40_003), 1200));
        }
    }

    #[test]
    fn nothing_is_stale_while_nobody_looks() {
        let (pauses, start) = (Pauses::default(), Instant::now());
        assert!(!pauses.is_stale(at(start, 90_000), 1200));
        drop(pauses.begin(at(start, 90_000)));
        assert!(!pauses.is_stale(at(start, 200_000), 1200));
        let _looking = pauses.begin(at(start, 300_000));
        assert!(!pauses.is_stale(at(start, 300_100), 1200));
    }

    #[test]
    fn a_socket_that_is_never_empty_is_listened_to_again() {
        let (pauses, start) = (Pauses::default(), Instant::now());
        let looking = pauses.begin(start);
        looking.look(at(start, 5000));
        let dropped = (0..10_000).take_while(|_| pauses.is_stale(at(start, 5000), 65_536));
        assert_eq!(dropped.count(), DROPPED_BYTES_MAX / 65_536);
    }
}
