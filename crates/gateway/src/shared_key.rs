//! Two gateways with one private key, as a machine and its clone have.
//!
//! To us they are one peer, and a peer is one process: whichever dials ends the other's tunnel, and that one dials again
//! a second later. A peer that restarts, however often, never comes back as the process it was before; one that gets
//! another address stays the process it is.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::session::{RESTARTED, SessionEnd};

/// So many changes from one process to another, within so long, are no accident.
const CHANGES_MIN: usize = 3;
const WITHIN: Duration = Duration::from_secs(60);
/// Processes remembered; more clones than that are told from restarts only now and then.
const REMEMBERED_MAX: usize = 8;
/// It is said once in so long.
const TOLD_EVERY: Duration = Duration::from_secs(600);

/// A process of the peer, and where it was when it took the place of the one before.
#[derive(Debug, Clone, Copy)]
struct Taker {
    at: Instant,
    instance: u128,
    address: SocketAddr,
}

/// Who was the peer lately, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Takers {
    lately: VecDeque<Taker>,
    told: Option<Instant>,
}

impl Takers {
    /// A tunnel to this process stands.
    pub(crate) fn stands(&mut self, now: Instant, instance: u128, address: SocketAddr) {
        if let Some(last) = self
            .lately
            .back_mut()
            .filter(|last| last.instance == instance)
        {
            last.address = address;
            return;
        }
        if self.lately.len() >= REMEMBERED_MAX {
            self.lately.pop_front();
        }
        self.lately.push_back(Taker {
            at: now,
            instance,
            address,
        });
    }

    /// Where two gateways are that use the same key, if they do.
    pub(crate) fn both(&self, now: Instant) -> Option<[SocketAddr; 2]> {
        let before = self.lately.iter();
        let changes = before
            .clone()
            .zip(before.skip(1))
            .filter(|(before, after)| {
                now.saturating_duration_since(after.at) < WITHIN && before.address != after.address
            });
        let (before, last) = changes.clone().next_back()?;
        let has_returned = self
            .lately
            .iter()
            .filter(|taker| taker.instance == last.instance)
            .count()
            > 1;
        (changes.count() >= CHANGES_MIN && has_returned).then_some([before.address, last.address])
    }

    /// As [`Takers::both`], where it has not been said for a while.
    pub(crate) fn news(&mut self, now: Instant) -> Option<[SocketAddr; 2]> {
        let both = self.both(now)?;
        let is_told = |told| now.saturating_duration_since(told) < TOLD_EVERY;
        if self.told.is_some_and(is_told) {
            return None;
        }
        self.told = Some(now);
        Some(both)
    }
}

/// What is wrong, and what to do.
pub(crate) fn advice(peer: &str, addresses: &[String]) -> String {
    format!(
        "two gateways use the key of {peer} and end each other's tunnels, from {}: give one of them a key of its own \
         (`farhaul keygen --out NEW.key` there, named by its site.key) and a [[peer]] block of its own here",
        addresses.join(" and ")
    )
}

/// How often a peer has said of us lately that we have restarted.
///
/// That is what it says to our earlier process, and never to us, unless another process with our key has dialled it
/// after we did. Once may be a new process of ours, started before we have ended; again and again it is another
/// gateway.
#[derive(Debug, Default)]
pub(crate) struct Disowned {
    lately: VecDeque<Instant>,
    told: Option<Instant>,
}

impl Disowned {
    /// A tunnel has ended.
    pub(crate) fn ended(&mut self, now: Instant, end: Option<&SessionEnd>) {
        if !end.is_some_and(is_replaced) {
            return;
        }
        if self.lately.len() >= CHANGES_MIN {
            self.lately.pop_front();
        }
        self.lately.push_back(now);
    }

    /// Whether another gateway uses our key, as it seems.
    pub(crate) fn is_key_shared(&self, now: Instant) -> bool {
        let is_recent = |at: &&Instant| now.saturating_duration_since(**at) < WITHIN;
        self.lately.iter().filter(is_recent).count() >= CHANGES_MIN
    }

    /// As [`Disowned::is_key_shared`], where it has not been said for a while.
    pub(crate) fn is_news(&mut self, now: Instant) -> bool {
        let is_told = |told| now.saturating_duration_since(told) < TOLD_EVERY;
        let is_news = self.is_key_shared(now) && !self.told.is_some_and(is_told);
        if is_news {
            self.told = Some(now);
        }
        is_news
    }
}

fn is_replaced(end: &SessionEnd) -> bool {
    matches!(end, SessionEnd::PeerClosed(why) if why == RESTARTED)
}

/// What was noticed of an end. The peer's own word would read as if it were the peer that has restarted.
pub(crate) fn noticed(end: &SessionEnd) -> String {
    match is_replaced(end) {
        true => {
            "it has ended the tunnel, as another process with this gateway's key has dialled it"
                .to_owned()
        }
        false => end.to_string(),
    }
}

/// What is wrong where our own key is used by another gateway, and what to do.
pub(crate) fn own_advice(peer: &str) -> String {
    format!(
        "peer {peer} ends our tunnels again and again, saying that this gateway has restarted, which it has not: most \
         likely another gateway uses this one's private key, such as a clone of this machine; give one of the two a \
         key of its own (`farhaul keygen --out NEW.key`, named by its site.key) and a [[peer]] block of its own at \
         {peer}, where `farhaul status` shows the addresses of both"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [u8; 4] = [10, 0, 0, 1];
    const B: [u8; 4] = [10, 0, 0, 2];
    const C: [u8; 4] = [10, 0, 0, 3];

    fn at(address: [u8; 4]) -> SocketAddr {
        SocketAddr::from((address, 4433))
    }

    /// What is found when the last of them stands, one each so many seconds.
    fn found(every_s: u64, takers: &[(u128, [u8; 4])]) -> Option<[SocketAddr; 2]> {
        let start = Instant::now();
        let mut all = Takers::default();
        let mut now = start;
        for (number, (instance, address)) in takers.iter().enumerate() {
            now = start + Duration::from_secs(every_s * number as u64);
            all.stands(now, *instance, at(*address));
        }
        all.both(now)
    }

    #[test]
    fn clones_that_take_turns_are_found() {
        assert_eq!(found(1, &[(1, A), (2, B), (1, A)]), None, "too few");
        let turns = [(1, A), (2, B), (1, A), (2, B)];
        assert_eq!(found(1, &turns), Some([at(A), at(B)]));
        assert_eq!(found(30, &turns), None, "too slow");
        assert_eq!(
            found(1, &[(1, A), (2, B), (3, C), (1, A)]),
            Some([at(C), at(A)])
        );
    }

    #[test]
    fn restarts_and_moves_are_none() {
        let restarts = [
            (1, A),
            (2, A),
            (3, A),
            (4, A),
            (5, A),
            (6, A),
            (7, A),
            (8, A),
            (9, A),
        ];
        assert_eq!(found(1, &restarts), None);
        assert_eq!(
            found(1, &[(1, A), (2, B), (3, A), (4, B), (5, A)]),
            None,
            "each start elsewhere"
        );
        assert_eq!(
            found(1, &[(1, A), (1, B), (1, A), (1, B), (1, C)]),
            None,
            "moves"
        );
        assert_eq!(
            found(1, &[(1, A), (2, A), (1, A), (2, A), (1, A)]),
            None,
            "one address"
        );
    }

    #[test]
    fn it_is_said_once_and_ends() {
        let start = Instant::now();
        let mut all = Takers::default();
        let mut said = Vec::new();
        for second in 0..1201_u64 {
            let now = start + Duration::from_secs(second);
            let (instance, address) = [(1, A), (2, B)][usize::from(second % 2 == 1)];
            all.stands(now, instance, at(address));
            said.extend(all.news(now).map(|_| second));
        }
        assert_eq!(said, [3, 603]);
        let later = start + Duration::from_secs(1200);
        assert!(all.both(later + Duration::from_secs(50)).is_some());
        assert_eq!(all.both(later + Duration::from_secs(60)), None);
        assert!(all.lately.len() <= REMEMBERED_MAX);
    }

    #[test]
    fn a_key_of_ours_that_another_gateway_uses_is_found() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let replaced = SessionEnd::PeerClosed(RESTARTED.into());
        let mut all = Disowned::default();
        for (second, end) in [
            (0, Some(&replaced)),
            (1, Some(&SessionEnd::PeerClosed("closing".into()))),
            (2, Some(&SessionEnd::PeerRestarted)),
            (3, None),
            (4, Some(&replaced)),
        ] {
            all.ended(at(second), end);
            assert!(!all.is_key_shared(at(second)), "{second}");
        }
        all.ended(at(30), Some(&replaced));
        assert!(all.is_news(at(30)));
        assert!(!all.is_news(at(31)), "said twice");
        assert!(all.is_key_shared(at(59)));
        assert!(!all.is_key_shared(at(61)), "no more than two in a minute");
        for second in 61..700 {
            all.ended(at(second), Some(&replaced));
            assert_eq!(all.is_news(at(second)), second == 630, "{second}");
        }
        assert!(all.lately.len() <= CHANGES_MIN);
    }

    #[test]
    fn an_end_is_told_as_it_concerns_us() {
        let told = noticed(&SessionEnd::PeerClosed(RESTARTED.into()));
        assert!(told.contains("another process with this gateway's key"));
        let other = SessionEnd::PeerClosed("closing".into());
        assert_eq!(noticed(&other), other.to_string());
    }
}
