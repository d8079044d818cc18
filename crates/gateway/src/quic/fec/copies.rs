//! What was lost and is sent again while nothing new is there to be sent: it goes more than once.
//!
//! The link is idle then, somebody waits for the end of a transfer, and a packet that is lost a second time costs another round trip
//! and a quarter. Of 230 packets that are missing at the end, where one in ten is lost, one in two thousand is missing still after
//! two copies, and nearly always one was after a single sending. A copy is the datagram as it was: QUIC drops what it has.

use std::collections::VecDeque;

use super::channel::PAUSE;

/// Of the path's rate copies have what is left beside everything else up to this share: they meet no queue, and make none.
const SHARE_OF_ALL: f64 = 0.9;
/// But this at least.
const SHARE_MIN: f64 = 0.25;
/// What may wait; more is lost at once only where the path is down.
const WAITING_BYTES_MAX: usize = 4 << 20;
/// What can be saved up, bytes, where the rate is too low for one datagram in a pause.
const SAVED_BYTES_MIN: f64 = 3_000.0;

/// Datagrams that go again.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// And how often.
    waiting: VecDeque<(Vec<u8>, usize)>,
    waiting_bytes: usize,
    saved_bytes: f64,
    /// How many have still to be looked at before the next pause: two copies of one shall not be lost together.
    due: usize,
}

impl Copies {
    /// A datagram was sent that shall go so many times more.
    pub(super) fn push(&mut self, datagram: &[u8], times: usize) {
        if times > 0 && self.waiting_bytes + datagram.len() <= WAITING_BYTES_MAX {
            self.waiting_bytes += datagram.len();
            self.waiting.push_back((datagram.to_vec(), times));
        }
    }

    /// A pause has gone by on a path of this rate, in which so much else was sent.
    pub(super) fn handle_pause(&mut self, rate_bytes_s: u64, else_bytes: u64) {
        let path_bytes = rate_bytes_s as f64 * PAUSE.as_secs_f64();
        let left_bytes = path_bytes * SHARE_OF_ALL - else_bytes as f64;
        let earned_bytes = left_bytes.max(path_bytes * SHARE_MIN);
        let saved_bytes_max = SAVED_BYTES_MIN.max(2.0 * earned_bytes);
        self.saved_bytes = (self.saved_bytes + earned_bytes).min(saved_bytes_max);
        self.due = self.waiting.len();
    }

    /// The next copy that may go before the next pause.
    pub(super) fn poll(&mut self) -> Option<Vec<u8>> {
        let next_bytes = self.waiting.front()?.0.len();
        if self.due == 0 || self.saved_bytes < next_bytes as f64 {
            return None;
        }
        self.due -= 1;
        self.saved_bytes -= next_bytes as f64;
        let (datagram, times) = self.waiting.pop_front()?;
        match times {
            0 | 1 => self.waiting_bytes -= next_bytes,
            _ => self.waiting.push_back((datagram.clone(), times - 1)),
        }
        Some(datagram)
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polled(copies: &mut Copies) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| copies.poll()).collect()
    }

    #[test]
    fn each_goes_as_often_as_was_asked_and_once_in_a_pause() {
        let mut copies = Copies::default();
        let datagrams = [[1; 100], [2; 100], [3; 100]];
        for (times, datagram) in datagrams.iter().enumerate() {
            copies.push(datagram, times);
        }
        assert!(polled(&mut copies).is_empty(), "a pause comes first");
        copies.handle_pause(1_000_000, 0);
        assert_eq!(polled(&mut copies), [[2; 100], [3; 100]]);
        copies.handle_pause(1_000_000, 0);
        assert_eq!(polled(&mut copies), [[3; 100]]);
        copies.handle_pause(1_000_000, 0);
        assert!(polled(&mut copies).is_empty() && copies.is_empty());
    }

    #[test]
    fn copies_take_what_is_left_of_the_rate_and_a_quarter_at_least() {
        let links = [(0.0, 0.9), (0.5, 0.4), (1.0, 0.25)];
        for (rate_bytes_s, (else_share, most)) in [50_000_u64, 193_000, 6_480_000]
            .into_iter()
            .flat_map(|rate| links.map(|link| (rate, link)))
        {
            let mut copies = Copies::default();
            for _ in 0..2000 {
                copies.push(&[0; 1400], 3);
            }
            let mut bytes = 0;
            for _ in 0..100 {
                copies.handle_pause(
                    rate_bytes_s,
                    (else_share * rate_bytes_s as f64 / 100.0) as u64,
                );
                bytes += polled(&mut copies).concat().len();
            }
            // A second.
            let share = bytes as f64 / rate_bytes_s as f64;
            let few = 1400.0 / rate_bytes_s as f64;
            assert!(
                (most - few - 0.01..=most).contains(&share),
                "{rate_bytes_s} {else_share}: {share}"
            );
        }
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut copies = Copies::default();
        for _ in 0..10_000 {
            copies.push(&[0; 1400], 2);
        }
        assert!(copies.waiting_bytes <= WAITING_BYTES_MAX);
        let counted: usize = copies
            .waiting
            .iter()
            .map(|(datagram, _)| datagram.len())
            .sum();
        assert_eq!(counted, copies.waiting_bytes);
        while !copies.is_empty() {
            copies.handle_pause(100_000_000, 0);
            polled(&mut copies);
        }
        assert_eq!(copies.waiting_bytes, 0);
    }
}
