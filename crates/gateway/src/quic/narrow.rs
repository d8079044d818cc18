//! Notices that a path has become too narrow for QUIC.
//!
//! QUIC needs datagrams of 1200 bytes (RFC 9000 section 14); a handshake
//! proves that the path carries them. Where it ceases to, pings and
//! acknowledgements still pass: the tunnel looks alive, and whatever is larger
//! is repeated for ever. No datagram is lost for its size alone as long as one
//! at least as large arrives, so what counts is a run of losses, of the size
//! that QUIC must be able to use, without such an arrival between them.
//!
//! Independent loss of 10 % makes such a run once in 10^10 lone datagrams; one
//! burst of losses is shorter than [`RUN_MIN`], and an outage is a time in
//! which nothing is declared lost, because nothing is acknowledged.

use std::time::{Duration, Instant};

/// Smallest UDP payload QUIC works with (RFC 9000 section 14).
pub const DATAGRAM_BYTES_MIN: u16 = 1200;
/// Smaller packets are lost by chance, and say nothing.
const LARGE_BYTES: u16 = 600;
/// So many losses in a row,
const LOSSES_MIN: u32 = 10;
/// over so long a time,
const RUN_MIN: Duration = Duration::from_secs(5);
/// with pauses no longer than this.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Losses of packets that a usable path carries, since the last arrival of
/// one as large.
#[derive(Debug, Clone, Default)]
pub(super) struct Losses {
    run: Option<Run>,
}

#[derive(Debug, Clone)]
struct Run {
    since: Instant,
    latest: Instant,
    count: u32,
    smallest_bytes: u16,
}

impl Losses {
    /// A packet was lost; says whether the path must be taken for too narrow.
    pub(super) fn lost(&mut self, now: Instant, bytes: u16) -> bool {
        if !(LARGE_BYTES..=DATAGRAM_BYTES_MIN).contains(&bytes) {
            return false;
        }
        let is_over = |run: &Run| now.saturating_duration_since(run.latest) > PAUSE_MAX;
        if self.run.as_ref().is_some_and(is_over) {
            self.run = None;
        }
        let run = self.run.get_or_insert(Run {
            since: now,
            latest: now,
            count: 0,
            smallest_bytes: bytes,
        });
        run.latest = now;
        run.count = run.count.saturating_add(1);
        run.smallest_bytes = run.smallest_bytes.min(bytes);
        run.count >= LOSSES_MIN && now.saturating_duration_since(run.since) >= RUN_MIN
    }

    /// A packet has arrived.
    pub(super) fn arrived(&mut self, bytes: u64) {
        let is_as_large = |run: &Run| bytes >= u64::from(run.smallest_bytes);
        if self.run.as_ref().is_some_and(is_as_large) {
            self.run = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn losses_of_full_datagrams_alone_make_a_path_too_narrow() {
        let (mut losses, start) = (Losses::default(), Instant::now());
        let mut noticed_ms = None;
        for step in 0..100 {
            let now = at(start, step * 100);
            if losses.lost(now, DATAGRAM_BYTES_MIN) {
                noticed_ms = noticed_ms.or(Some(step * 100));
            }
            losses.arrived(269);
        }
        assert_eq!(noticed_ms, Some(5000));
    }

    #[test]
    fn one_arrival_of_the_size_ends_the_suspicion() {
        let (mut losses, start) = (Losses::default(), Instant::now());
        for step in 0..1000 {
            assert!(!losses.lost(at(start, step * 100), 1190));
            if step % 40 == 39 {
                losses.arrived(1195);
            }
        }
    }

    #[test]
    fn what_proves_nothing_does_not_count() {
        let (mut losses, start) = (Losses::default(), Instant::now());
        for step in 0..1000 {
            // Above what must pass, small by chance, and now and then.
            assert!(!losses.lost(at(start, step * 100), 1472));
            assert!(!losses.lost(at(start, step * 100), 40));
        }
        for step in 0..1000 {
            assert!(!losses.lost(at(start, step * 6000), 1200));
        }
        // A burst, and another one long after.
        for step in 0..50 {
            assert!(!losses.lost(at(start, 9_000_000 + step), 1200));
        }
        assert!(!losses.lost(at(start, 9_900_000), 1200));
    }
}
