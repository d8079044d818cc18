//! Destinations that answered lately. A client's connection to one of them is
//! accepted at once and its first request rides with the open: the WX's "fast
//! connection setup". All others wait for the far side's answer.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long an answer counts. A server that stops within this time turns a
/// refusal into a reset once, after which it is asked again.
const TRUST: Duration = Duration::from_secs(60);
/// Destinations remembered at most.
const ENTRIES_MAX: usize = 16_384;

/// Destinations and when they last answered.
#[derive(Debug, Default)]
pub struct KnownUp {
    answered: HashMap<SocketAddr, Instant>,
}

impl KnownUp {
    /// Whether `destination` answered within the last minute.
    pub fn contains(&self, now: Instant, destination: SocketAddr) -> bool {
        self.answered
            .get(&destination)
            .is_some_and(|at| now.saturating_duration_since(*at) < TRUST)
    }

    /// It answered.
    pub fn answered(&mut self, now: Instant, destination: SocketAddr) {
        if self.answered.len() >= ENTRIES_MAX && !self.answered.contains_key(&destination) {
            self.answered
                .retain(|_, at| now.saturating_duration_since(*at) < TRUST);
        }
        if self.answered.len() < ENTRIES_MAX {
            self.answered.insert(destination, now);
        }
    }

    /// It did not.
    pub fn failed(&mut self, destination: SocketAddr) {
        self.answered.remove(&destination);
    }

    /// Nothing is known any more, for example because the peer restarted.
    pub fn clear(&mut self) {
        self.answered.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 2, 0, 1], port))
    }

    #[test]
    fn an_answer_counts_for_a_minute_and_a_failure_ends_it() {
        let start = Instant::now();
        let mut known = KnownUp::default();
        known.answered(start, server(80));
        assert!(known.contains(start + Duration::from_secs(59), server(80)));
        assert!(!known.contains(start + Duration::from_secs(60), server(80)));
        assert!(!known.contains(start, server(81)));
        known.failed(server(80));
        assert!(!known.contains(start, server(80)));
    }

    #[test]
    fn invariant_5_the_table_is_bounded_and_makes_room_for_new_answers() {
        let start = Instant::now();
        let mut known = KnownUp::default();
        let many = (0..=u16::MAX).map(server);
        many.for_each(|destination| known.answered(start, destination));
        assert_eq!(known.answered.len(), ENTRIES_MAX);
        let later = start + TRUST;
        known.answered(later, SocketAddr::from(([10, 2, 0, 2], 1)));
        assert!(known.contains(later, SocketAddr::from(([10, 2, 0, 2], 1))));
    }
}
