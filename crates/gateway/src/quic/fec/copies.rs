//! What was lost and is sent again while nothing new is there to be sent: it goes more than once.
//!
//! The link is idle then, somebody waits for the end of a transfer, and a packet that is lost a second time costs another round trip
//! and a quarter. Of 230 packets that are missing at the end, where one in ten is lost, one is missing still after two copies in one
//! transfer of five, after three in one of forty, and nearly always one was after a single sending. A copy is the datagram as it was:
//! QUIC drops what it has, and what is older than the last 128 it has heard of, so the newest goes first, and what others have left
//! behind no more.

use std::collections::VecDeque;

use super::channel::PAUSE;

/// Of the path's rate copies have what is left beside everything else up to this share: they meet no queue, and make none.
const SHARE_OF_ALL: f64 = 0.9;
/// But this at least.
const SHARE_MIN: f64 = 0.25;
/// What can be saved up, bytes, where the rate is too low for one datagram in a pause.
const SAVED_BYTES_MIN: f64 = 3_000.0;
/// Datagrams after which a copy is too old for QUIC at the other end (128 packets: noq-proto, after RFC 4303), less some that are not
/// counted here.
const NEWER_MAX: u64 = 110;

/// Datagrams that go again.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// Those of which no copy has gone, oldest first, and those of which one has.
    new: VecDeque<Copy>,
    again: VecDeque<Copy>,
    /// The same that came since the last pause: two of one datagram shall not be lost together.
    next: VecDeque<Copy>,
    saved_bytes: f64,
    /// How many have come.
    count: u64,
}

#[derive(Debug)]
struct Copy {
    datagram: Vec<u8>,
    /// How often it shall go.
    times: usize,
    /// Whether it has gone once.
    has_gone: bool,
    /// How many came before it.
    number: u64,
}

impl Copies {
    /// A datagram was sent that shall go so many times more.
    pub(super) fn push(&mut self, datagram: &[u8], times: usize) {
        if times > 0 {
            self.next.push_back(Copy {
                datagram: datagram.to_vec(),
                times,
                has_gone: false,
                number: self.count,
            });
        }
        self.count += 1;
        // Where the path is down everything is lost at once.
        let oldest = self.oldest();
        if self.next.front().is_some_and(|copy| copy.number < oldest) {
            self.next.pop_front();
        }
    }

    /// The number of the oldest that the other end would take.
    fn oldest(&self) -> u64 {
        self.count.saturating_sub(NEWER_MAX)
    }

    /// A pause has gone by on a path of this rate, in which so much else was sent.
    pub(super) fn handle_pause(&mut self, rate_bytes_s: u64, else_bytes: u64) {
        let path_bytes = rate_bytes_s as f64 * PAUSE.as_secs_f64();
        let left_bytes = path_bytes * SHARE_OF_ALL - else_bytes as f64;
        let earned_bytes = left_bytes.max(path_bytes * SHARE_MIN);
        let saved_bytes_max = SAVED_BYTES_MIN.max(2.0 * earned_bytes);
        self.saved_bytes = (self.saved_bytes + earned_bytes).min(saved_bytes_max);
        for copy in self.next.drain(..) {
            match copy.has_gone {
                true => self.again.push_back(copy),
                false => self.new.push_back(copy),
            }
        }
        let oldest = self.oldest();
        self.new.retain(|copy| copy.number >= oldest);
        self.again.retain(|copy| copy.number >= oldest);
    }

    /// The next copy that may go before the next pause.
    pub(super) fn poll(&mut self) -> Option<Vec<u8>> {
        let copies = match self.new.is_empty() {
            true => &mut self.again,
            false => &mut self.new,
        };
        let bytes = copies.back()?.datagram.len();
        if self.saved_bytes < bytes as f64 {
            return None;
        }
        self.saved_bytes -= bytes as f64;
        let mut copy = copies.pop_back()?;
        if copy.times <= 1 {
            return Some(copy.datagram);
        }
        let datagram = copy.datagram.clone();
        copy.times -= 1;
        copy.has_gone = true;
        self.next.push_back(copy);
        Some(datagram)
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        let waiting = [&self.new, &self.again, &self.next];
        waiting.iter().all(|copies| copies.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes after another pause.
    fn pause(copies: &mut Copies, rate_bytes_s: u64, else_bytes: u64) -> Vec<Vec<u8>> {
        copies.handle_pause(rate_bytes_s, else_bytes);
        std::iter::from_fn(|| copies.poll()).collect()
    }

    #[test]
    fn each_goes_as_often_as_was_asked_and_once_in_a_pause() {
        let mut copies = Copies::default();
        let datagrams = [[1; 100], [2; 100], [3; 100]];
        for (times, datagram) in datagrams.iter().enumerate() {
            copies.push(datagram, times);
        }
        assert_eq!(copies.poll(), None, "a pause comes first");
        assert_eq!(pause(&mut copies, 1_000_000, 0), [[3; 100], [2; 100]]);
        assert_eq!(pause(&mut copies, 1_000_000, 0), [[3; 100]]);
        assert!(pause(&mut copies, 1_000_000, 0).is_empty() && copies.is_empty());
    }

    #[test]
    fn copies_take_what_is_left_of_the_rate_and_a_quarter_at_least() {
        let links = [(0.0, 0.9), (0.5, 0.4), (1.0, 0.25)];
        for (rate_bytes_s, (else_share, most)) in [50_000_u64, 193_000, 6_480_000]
            .into_iter()
            .flat_map(|rate| links.map(|link| (rate, link)))
        {
            let mut copies = Copies::default();
            let mut bytes = 0;
            // A second.
            for _ in 0..100 {
                for _ in 0..60 {
                    copies.push(&[0; 1400], 3);
                }
                let else_bytes = (else_share * rate_bytes_s as f64 / 100.0) as u64;
                bytes += pause(&mut copies, rate_bytes_s, else_bytes).concat().len();
            }
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
        let waiting = |copies: &Copies| copies.new.len() + copies.again.len() + copies.next.len();
        assert_eq!(waiting(&copies), NEWER_MAX as usize);
        pause(&mut copies, 100_000, 0);
        assert!(waiting(&copies) <= NEWER_MAX as usize);
        while !copies.is_empty() {
            pause(&mut copies, 100_000_000, 0);
        }
    }

    #[test]
    fn the_newest_go_first_and_what_is_too_old_no_more() {
        let mut copies = Copies::default();
        let mut gone = Vec::new();
        for number in 0..100_u8 {
            for _ in 0..10 {
                copies.push(&[number; 1000], 2);
            }
            // A tenth of them.
            let now = pause(&mut copies, 400_000, 1_000_000);
            gone.extend(now.iter().map(|copy| number - copy[0]));
        }
        assert!((90..=100).contains(&gone.len()), "{gone:?}");
        assert_eq!(gone, vec![0; gone.len()]);
        // Nothing comes any more: what is left goes, but for the old.
        let mut ages = Vec::new();
        while !copies.is_empty() {
            ages.extend(pause(&mut copies, 400_000, 0).iter().map(|it| 99 - it[0]));
        }
        assert!(
            ages.len() > 150 && ages.iter().all(|age| *age <= 10),
            "{ages:?}"
        );
    }
}
