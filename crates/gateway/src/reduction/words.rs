//! What waits to be said by the encoder's side: words of the log first, then what is given up, then what was asked for again.
//!
//! Each kind has a queue of its own. What the peer makes us say is counted; what is given up lies together where it can, for a
//! flow that is cut gives up thousands of records at once, and no peer can help that.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::message::Message;

/// Answers that wait for a peer that asks and does not read; more are a broken peer.
const ANSWERS_MAX: usize = 16_384;
/// Stretches that wait to be given up; a peer that counts so many gaps begins anew, too.
const SKIPS_MAX: usize = 16_384;

/// A record, or the next part of one, once more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Again {
    pub(super) flow: u64,
    pub(super) record: u64,
    pub(super) bytes: Bytes,
    /// Nothing of the record comes behind it.
    pub(super) is_last: bool,
}

#[derive(Debug, Default)]
pub(super) struct Words {
    messages: VecDeque<Message>,
    /// Of which epoch positions are given up,
    epoch: u32,
    /// and which: by start, where they end.
    skips: BTreeMap<u64, u64>,
    agains: VecDeque<Again>,
}

impl Words {
    pub(super) fn extend(&mut self, messages: impl IntoIterator<Item = Message>) {
        self.messages.extend(messages);
    }

    /// These positions may never come. False if too many such stretches wait.
    #[must_use]
    pub(super) fn skip(&mut self, epoch: u32, position: u64, bytes: u64) -> bool {
        if epoch != self.epoch {
            // Of a log that is no more nobody counts anything.
            self.epoch = epoch;
            self.skips.clear();
        }
        let (mut start, mut end) = (position, position.saturating_add(bytes));
        let before = self.skips.range(..=start).next_back();
        if let Some((&known, &known_end)) = before.filter(|(_, known_end)| **known_end >= start) {
            (start, end) = (known, end.max(known_end));
        }
        while let Some((&known, &known_end)) = self.skips.range(start..=end).next() {
            self.skips.remove(&known);
            end = end.max(known_end);
        }
        self.skips.insert(start, end);
        self.skips.len() <= SKIPS_MAX
    }

    /// Nothing is given up any more: the log began anew.
    pub(super) fn forget_skips(&mut self) {
        self.skips.clear();
    }

    pub(super) fn again(&mut self, flow: u64, record: u64, bytes: Bytes) {
        self.agains.push_back(Again {
            flow,
            record,
            bytes,
            is_last: true,
        });
    }

    /// Whether the peer makes us answer more than it reads.
    pub(super) fn is_flooded(&self) -> bool {
        self.messages.len() + self.agains.len() > ANSWERS_MAX
    }

    /// What must not wait.
    pub(super) fn poll_message(&mut self) -> Option<Message> {
        if let Some(message) = self.messages.pop_front() {
            return Some(message);
        }
        let (position, end) = self.skips.pop_first()?;
        Some(Message::Skip {
            epoch: self.epoch,
            position,
            bytes: end - position,
        })
    }

    /// Whether something is to be said again.
    pub(super) fn has_again(&self) -> bool {
        !self.agains.is_empty()
    }

    /// What is to be said again next, at most so many bytes of it.
    pub(super) fn poll_again(&mut self, bytes_max: usize) -> Option<Again> {
        let next = self.agains.front_mut()?;
        if next.bytes.len() <= bytes_max.max(1) {
            return self.agains.pop_front();
        }
        Some(Again {
            bytes: next.bytes.split_to(bytes_max.max(1)),
            is_last: false,
            ..*next
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skips(words: &mut Words) -> Vec<(u32, u64, u64)> {
        let all = std::iter::from_fn(|| words.poll_message());
        let skips = all.map(|message| match message {
            Message::Skip {
                epoch,
                position,
                bytes,
            } => (epoch, position, bytes),
            other => panic!("{other:?}"),
        });
        skips.collect()
    }

    #[test]
    fn what_lies_together_is_given_up_in_one_word() {
        let mut words = Words::default();
        for (position, bytes) in [(100, 50), (300, 10), (150, 50), (90, 10), (305, 20)] {
            assert!(words.skip(1, position, bytes));
        }
        assert_eq!(skips(&mut words), [(1, 90, 110), (1, 300, 25)]);
        assert!(words.skip(1, 0, 500) && words.skip(1, 100, 10));
        assert_eq!(skips(&mut words), [(1, 0, 500)]);
    }

    #[test]
    fn of_a_log_that_is_no_more_nothing_is_given_up() {
        let mut words = Words::default();
        assert!(words.skip(1, 100, 50) && words.skip(2, 7, 1));
        assert_eq!(skips(&mut words), [(2, 7, 1)]);
    }

    #[test]
    fn invariant_5_what_is_given_up_in_shreds_is_counted_and_no_flood() {
        let mut words = Words::default();
        let few = (0..SKIPS_MAX as u64).all(|nth| words.skip(1, nth * 10, 5));
        assert!(few && !words.skip(1, 10 * SKIPS_MAX as u64, 5));
        assert!(!words.is_flooded());
    }

    #[test]
    fn a_record_is_said_again_in_parts() {
        let mut words = Words::default();
        words.again(7, 3, Bytes::from_static(b"abcde"));
        words.again(8, 0, Bytes::from_static(b"fg"));
        let mut parts = Vec::new();
        while let Some(part) = words.poll_again(2) {
            parts.push((part.flow, part.record, part.bytes.to_vec(), part.is_last));
        }
        let expected = [
            (7, 3, b"ab".to_vec(), false),
            (7, 3, b"cd".to_vec(), false),
            (7, 3, b"e".to_vec(), true),
            (8, 0, b"fg".to_vec(), true),
        ];
        assert_eq!(parts, expected);
    }
}
