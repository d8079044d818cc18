//! Whether a peer that has moved has proved its new address.
//!
//! The QUIC stack asks for the proof itself and does not say what came of it;
//! where it has given up it never asks again (`quic/alias.rs`). All that shows
//! is the count of answers. One that came within the shortest time the stack
//! can have waited was in time; after that, or without one, it is made to ask
//! once more. That costs a datagram or two, and a controller that begins with
//! what the last one knew.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

/// The stack waits for three times a round trip and what an acknowledgement may be late by (RFC 9002
/// section 6.2.1; 25 ms by RFC 9000 section 18.2), and the variance besides.
const TIMES: u32 = 3;
const ACK_DELAY: Duration = Duration::from_millis(25);
/// Round trip and variance of a path about which nothing is known, 200 ms and four times half of it.
const UNKNOWN: Duration = Duration::from_millis(600);
/// The stack's patience with a first proof may be as short as this, and three round trips.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// A later one is waited for so long at first,
const NEXT_WAIT: Duration = Duration::from_secs(2);
/// and in the end.
const WAIT_MAX: Duration = Duration::from_secs(16);

/// What the stack shows at one look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Where it sends to.
    pub(super) address: SocketAddr,
    /// Answers received so far.
    pub(super) responses: u64,
    /// Round trip.
    pub(super) rtt: Duration,
}

/// Follows one peer.
#[derive(Debug, Default)]
pub(super) struct Proof {
    before: Option<(Instant, Seen)>,
    pending: Option<Pending>,
    /// Proofs in a row that were asked for again.
    renewals: u32,
}

#[derive(Debug)]
struct Pending {
    /// No later than the move.
    since: Instant,
    responses: u64,
    sure_within: Duration,
    wait: Duration,
}

impl Proof {
    /// Takes what is seen; says whether the proof must be asked for again.
    pub(super) fn look(&mut self, now: Instant, seen: Seen) -> bool {
        let before = self.before.replace((now, seen));
        if let Some((since, before)) = before
            && before.address != seen.address
        {
            self.pending = Some(self.moved(since, before, seen));
        }
        let Some(pending) = &self.pending else {
            return false;
        };
        let passed = now.saturating_duration_since(pending.since);
        if seen.responses > pending.responses && passed <= pending.sure_within {
            (self.pending, self.renewals) = (None, 0);
            return false;
        }
        if seen.responses == pending.responses && passed < pending.wait {
            return false;
        }
        self.pending = None;
        self.renewals = self.renewals.saturating_add(1);
        true
    }

    fn moved(&self, since: Instant, before: Seen, seen: Seen) -> Pending {
        let is_translated = before.address.ip() == seen.address.ip() && seen.address.is_ipv4();
        // The stack knows the round trip of another port, and of no other address.
        let round_trip = if is_translated { before.rtt } else { UNKNOWN };
        let first = FIRST_WAIT + before.rtt * TIMES;
        let next = NEXT_WAIT * 2_u32.saturating_pow(self.renewals.min(8).saturating_sub(1));
        Pending {
            since,
            responses: before.responses,
            sure_within: (round_trip + ACK_DELAY) * TIMES,
            wait: match self.renewals {
                0 => first,
                _ => (next + before.rtt * TIMES).min(WAIT_MAX),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Look {
        proof: Proof,
        start: Instant,
    }

    impl Look {
        fn new() -> Self {
            Self {
                proof: Proof::default(),
                start: Instant::now(),
            }
        }

        fn at(&mut self, ms: u64, address: &str, responses: u64) -> bool {
            let seen = Seen {
                address: address.parse().unwrap(),
                responses,
                rtt: Duration::from_millis(40),
            };
            self.proof
                .look(self.start + Duration::from_millis(ms), seen)
        }
    }

    const HOME: &str = "192.0.2.1:4433";
    const AWAY: &str = "192.0.2.1:1999";

    #[test]
    fn a_peer_that_stays_proves_nothing() {
        let mut look = Look::new();
        assert!((0..100).all(|step| !look.at(step * 1000, HOME, 0)));
    }

    #[test]
    fn a_proof_in_time_is_the_end_of_it() {
        let mut look = Look::new();
        look.at(0, HOME, 3);
        assert!(!look.at(50, AWAY, 3));
        assert!(!look.at(100, AWAY, 4));
        assert!((2..100).all(|step| !look.at(step * 100, AWAY, 4)));
    }

    #[test]
    fn a_proof_that_may_have_been_too_late_is_asked_for_again() {
        let mut look = Look::new();
        look.at(0, HOME, 0);
        assert!(!look.at(50, AWAY, 0));
        assert!(look.at(250, AWAY, 1));
        assert!(!look.at(300, AWAY, 1), "once");
        // The stack has followed, and is answered.
        assert!(!look.at(350, "[100::1]:1999", 1));
        assert!(!look.at(800, "[100::1]:1999", 2));
        assert!((1..100).all(|step| !look.at(step * 1000, "[100::1]:1999", 2)));
    }

    #[test]
    fn without_an_answer_it_is_asked_for_ever_more_rarely() {
        let mut look = Look::new();
        look.at(0, HOME, 0);
        let (mut at, mut renewed) = (AWAY.to_owned(), Vec::new());
        for step in 1..1200_u64 {
            if look.at(step * 50, &at, 0) {
                renewed.push(step * 50);
                at = format!("[100::{}]:1999", renewed.len());
            }
        }
        assert_eq!(renewed, [650, 2800, 6950, 15_100, 31_100, 47_100]);
    }
}
