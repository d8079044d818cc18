//! The held SYNs and the recent decisions: who waits, and what was said.
//!
//! Knows nothing of sockets. A packet handed in gets one of four answers; every
//! packet taken into the table leaves it exactly once. Both tables are bounded.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::packet::Syn;
use super::{Attempt, Verdict};

/// SYNs held at once; beyond it connections go direct.
pub(super) const PENDING_MAX: usize = 16_384;
/// Decisions remembered; the oldest make room.
const DECIDED_MAX: usize = 16_384;
/// How long a SYN retransmission repeats the answer of the first: beyond
/// Linux's last but one retransmission (31 s after the first).
const DECIDED_AGE_MAX: Duration = Duration::from_secs(40);

/// The two ends of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ends {
    pub client: SocketAddr,
    pub destination: SocketAddr,
}

impl From<&Syn> for Ends {
    fn from(syn: &Syn) -> Ends {
        Ends {
            client: syn.client,
            destination: syn.destination,
        }
    }
}

/// A SYN in the kernel's queue, waiting for its verdict.
#[derive(Debug)]
pub(super) struct Held {
    /// Number in the kernel's queue.
    pub packet_id: u32,
    /// fwmark it came with.
    pub mark: u32,
    /// What it says.
    pub syn: Syn,
    /// Tells this attempt from an earlier one of the same ends.
    pub serial: u64,
}

/// What to do with a SYN that has arrived.
#[derive(Debug)]
pub(super) enum Arrival {
    /// Held; ask for a verdict under this serial.
    Ask(u64),
    /// Held in place of an earlier copy, which is to be dropped.
    Replaces {
        /// The earlier copy.
        packet_id: u32,
    },
    /// Decided a moment ago.
    Decided(Verdict),
    /// Not held: the table is full.
    Full,
}

#[derive(Debug, Clone, Copy)]
struct Decision {
    isn: u32,
    verdict: Verdict,
    dscp: u8,
    at: Instant,
}

/// Pending and decided attempts.
#[derive(Debug, Default)]
pub(super) struct Hold {
    pending: HashMap<Ends, Held>,
    decided: HashMap<Ends, Decision>,
    /// Keys of `decided` by age; may name a key twice, the later one counts.
    ages: VecDeque<(Instant, Ends)>,
    next_serial: u64,
}

impl Hold {
    /// A SYN has arrived as packet `packet_id` with `mark`.
    pub fn arrive(&mut self, now: Instant, packet_id: u32, mark: u32, syn: &Syn) -> Arrival {
        let ends = Ends::from(syn);
        if let Some(held) = self.pending.get_mut(&ends) {
            // The newest copy is kept: its timestamp gives the client the
            // fresher round-trip sample. Another sequence number is the
            // client's next try from the same port: same question.
            let earlier = std::mem::replace(&mut held.packet_id, packet_id);
            held.mark = mark;
            held.syn = syn.clone();
            return Arrival::Replaces { packet_id: earlier };
        }
        if let Some(decision) = self.decided.get(&ends)
            && decision.isn == syn.isn
            && now.duration_since(decision.at) < DECIDED_AGE_MAX
        {
            return Arrival::Decided(decision.verdict);
        }
        if self.pending.len() >= PENDING_MAX {
            return Arrival::Full;
        }
        self.next_serial += 1;
        let held = Held {
            packet_id,
            mark,
            syn: syn.clone(),
            serial: self.next_serial,
        };
        self.pending.insert(ends, held);
        Arrival::Ask(self.next_serial)
    }

    /// The answer to serial `serial`; `None` if that attempt is held no more.
    pub fn decide(
        &mut self,
        now: Instant,
        ends: Ends,
        serial: u64,
        verdict: Verdict,
    ) -> Option<Held> {
        if self.pending.get(&ends)?.serial != serial {
            return None;
        }
        let held = self.pending.remove(&ends)?;
        // A refusal is final for this SYN; silence may end when the server
        // comes up, so a retransmission asks again.
        if matches!(verdict, Verdict::Proxy | Verdict::Direct) {
            self.remember(now, ends, held.syn.isn, held.syn.dscp, verdict);
        }
        Some(held)
    }

    fn remember(&mut self, now: Instant, ends: Ends, isn: u32, dscp: u8, verdict: Verdict) {
        let decision = Decision {
            isn,
            verdict,
            dscp,
            at: now,
        };
        self.decided.insert(ends, decision);
        self.ages.push_back((now, ends));
        while self.ages.len() > DECIDED_MAX {
            self.forget_oldest();
        }
    }

    /// The attempt behind a connection our listener has accepted.
    pub fn attempt(&self, ends: Ends) -> Attempt {
        Attempt {
            client: ends.client,
            destination: ends.destination,
            dscp: self.decided.get(&ends).map_or(0, |decision| decision.dscp),
        }
    }

    /// Forgets decisions that are too old.
    pub fn expire(&mut self, now: Instant) {
        while self
            .ages
            .front()
            .is_some_and(|(at, _)| now.duration_since(*at) >= DECIDED_AGE_MAX)
        {
            self.forget_oldest();
        }
    }

    /// Empties the table of held SYNs.
    pub fn release_all(&mut self) -> Vec<Held> {
        self.pending.drain().map(|(_, held)| held).collect()
    }

    fn forget_oldest(&mut self) {
        if let Some((at, ends)) = self.ages.pop_front()
            && self.decided.get(&ends).is_some_and(|d| d.at == at)
        {
            self.decided.remove(&ends);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intercept::packet::tests::syn_packet;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn syn(port: u16, isn: u32) -> Syn {
        let client = SocketAddr::from(([10, 1, 0, 2], port));
        let destination = SocketAddr::from(([10, 2, 0, 2], 80));
        Syn::parse(&syn_packet(client, destination, isn, 46, b"", 0)).unwrap()
    }

    #[test]
    fn a_retransmission_is_asked_once_and_the_newest_copy_is_kept() {
        let mut hold = Hold::default();
        let now = Instant::now();
        let first = syn(1, 100);
        let Arrival::Ask(serial) = hold.arrive(now, 1, 0, &first) else {
            panic!("first SYN must be asked about")
        };
        assert!(matches!(
            hold.arrive(now, 2, 0, &first),
            Arrival::Replaces { packet_id: 1 }
        ));
        let ends = Ends::from(&first);
        assert!(hold.decide(now, ends, serial + 1, Verdict::Proxy).is_none());
        let held = hold.decide(now, ends, serial, Verdict::Proxy).unwrap();
        assert_eq!(held.packet_id, 2);
        assert!(hold.decide(now, ends, serial, Verdict::Proxy).is_none());
        assert_eq!(hold.attempt(ends).dscp, 46);
        // Its retransmission repeats the answer; a new connection asks anew.
        assert!(matches!(
            hold.arrive(now, 3, 0, &first),
            Arrival::Decided(Verdict::Proxy)
        ));
        assert!(matches!(
            hold.arrive(now, 4, 0, &syn(1, 101)),
            Arrival::Ask(_)
        ));
    }

    #[test]
    fn silence_is_asked_about_again_and_decisions_age() {
        let mut hold = Hold::default();
        let now = Instant::now();
        for (verdict, again) in [(Verdict::Silent, true), (Verdict::Direct, false)] {
            let syn = syn(2, 1);
            let Arrival::Ask(serial) = hold.arrive(now, 1, 0, &syn) else {
                panic!("not asked")
            };
            hold.decide(now, Ends::from(&syn), serial, verdict).unwrap();
            let asked = matches!(hold.arrive(now, 2, 0, &syn), Arrival::Ask(_));
            assert_eq!(asked, again);
            hold.release_all();
        }
        let later = now + DECIDED_AGE_MAX;
        hold.expire(later);
        assert!(hold.decided.is_empty() && hold.ages.is_empty());
        assert!(matches!(
            hold.arrive(later, 3, 0, &syn(2, 1)),
            Arrival::Ask(_)
        ));
    }

    #[test]
    fn both_tables_are_bounded() {
        let mut hold = Hold::default();
        let now = Instant::now();
        let mut full = 0;
        for n in 0..PENDING_MAX as u32 + 100 {
            let syn = syn((n & 0xffff) as u16, n);
            match hold.arrive(now, n, 0, &syn) {
                Arrival::Full => full += 1,
                Arrival::Ask(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((full, hold.pending.len()), (100, PENDING_MAX));
        hold.release_all();
        for n in 0..DECIDED_MAX as u32 * 2 {
            let syn = syn((n % 20_000) as u16, n);
            if let Arrival::Ask(serial) = hold.arrive(now, n, 0, &syn) {
                hold.decide(now, Ends::from(&syn), serial, Verdict::Direct);
            }
        }
        assert!(hold.decided.len() <= DECIDED_MAX && hold.ages.len() <= DECIDED_MAX);
    }

    proptest! {
        /// Whatever the order of arrivals, answers and expiry: each packet id
        /// taken into the table comes out exactly once.
        #[test]
        fn every_held_packet_leaves_once(
            steps in proptest::collection::vec((0u8..4, 1u16..5, 0u32..3, 0u64..200), 1..200),
        ) {
            let mut hold = Hold::default();
            let mut now = Instant::now();
            let (mut inside, mut asked) = (HashSet::new(), HashMap::new());
            for (packet_id, (action, port, isn, wait)) in (0u32..).zip(steps) {
                let syn = syn(port, isn);
                let ends = Ends::from(&syn);
                let left = match action {
                    0 | 1 => match hold.arrive(now, packet_id, 0, &syn) {
                        Arrival::Ask(serial) => {
                            inside.insert(packet_id);
                            asked.insert(ends, serial);
                            vec![]
                        }
                        Arrival::Replaces { packet_id: earlier } => {
                            inside.insert(packet_id);
                            vec![earlier]
                        }
                        Arrival::Decided(_) | Arrival::Full => vec![],
                    },
                    2 => {
                        let serial = asked.get(&ends).copied().unwrap_or(0);
                        let verdict = [Verdict::Proxy, Verdict::Silent][isn as usize % 2];
                        hold.decide(now, ends, serial, verdict).map(|h| h.packet_id).into_iter().collect()
                    }
                    _ => {
                        now += Duration::from_secs(wait);
                        hold.expire(now);
                        vec![]
                    }
                };
                for packet_id in left {
                    prop_assert!(inside.remove(&packet_id));
                }
            }
            for held in hold.release_all() {
                prop_assert!(inside.remove(&held.packet_id));
            }
            prop_assert!(inside.is_empty());
        }
    }
}
