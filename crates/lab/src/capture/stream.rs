//! One direction of a TCP connection, put together from what passed, and the messages in it.

use std::collections::BTreeMap;

/// Most that may wait for what is missing before it; a capture with larger holes is useless.
const HELD_BYTES_MAX: usize = 64 << 20;
/// As much of a message is kept as tells what it is: NetBIOS' four bytes, and the headers after them.
const HEAD_BYTES: usize = 4 + 96;

/// Puts segments in order.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    /// The sequence number that comes next, and what it is counted from the connection's beginning.
    next: Option<(u32, u64)>,
    held: BTreeMap<u64, Vec<u8>>,
    held_bytes: usize,
    /// Bytes that had passed before.
    pub(super) repeated_bytes: u64,
}

impl Assembler {
    /// A SYN of this sequence number passed.
    pub(super) fn begin(&mut self, sequence: u32) {
        self.next = Some((sequence.wrapping_add(1), 0));
    }

    /// Where a sequence number near the present lies, counted from the beginning.
    pub(super) fn place(&self, sequence: u32) -> Option<u64> {
        let (next, place) = self.next?;
        let ahead = i64::from(sequence.wrapping_sub(next).cast_signed());
        place.checked_add_signed(ahead)
    }

    /// A segment passed; `in_order` is handed what follows what it had.
    pub(super) fn take(&mut self, sequence: u32, payload: &[u8], mut in_order: impl FnMut(&[u8])) {
        let (Some(start), false) = (self.place(sequence), payload.is_empty()) else {
            return;
        };
        let next = self.next.map_or(0, |(_, place)| place);
        if start > next {
            if self.held_bytes + payload.len() <= HELD_BYTES_MAX {
                self.held_bytes += payload.len();
                let replaced = self.held.insert(start, payload.to_vec());
                let repeated = replaced.map_or(0, |bytes| bytes.len());
                self.held_bytes -= repeated;
                self.repeated_bytes += repeated as u64;
            }
            return;
        }
        self.pass(start, payload, &mut in_order);
        while let Some(entry) = self.held.first_entry() {
            let (start, now) = (*entry.key(), self.next.map_or(0, |(_, place)| place));
            if start > now {
                break;
            }
            let bytes = entry.remove();
            self.held_bytes -= bytes.len();
            self.pass(start, &bytes, &mut in_order);
        }
    }

    fn pass(&mut self, start: u64, payload: &[u8], in_order: &mut impl FnMut(&[u8])) {
        let Some((sequence, place)) = self.next else {
            return;
        };
        let known = usize::try_from(place - start).unwrap_or(usize::MAX);
        self.repeated_bytes += known.min(payload.len()) as u64;
        if let Some(fresh) = payload.get(known..).filter(|fresh| !fresh.is_empty()) {
            in_order(fresh);
            let moved = fresh.len();
            self.next = Some((sequence.wrapping_add(moved as u32), place + moved as u64));
        }
    }
}

/// A whole message with the beginning of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message<'a> {
    /// Behind NetBIOS' four bytes.
    pub(super) head: &'a [u8],
    /// When its first byte passed.
    pub(super) begun_ns: u64,
    /// When its last byte passed.
    pub(super) ended_ns: u64,
    /// Where it ends in its direction.
    pub(super) end: u64,
}

impl Message<'_> {
    /// When its first byte passed, and its last.
    pub(super) fn times(&self) -> (u64, u64) {
        (self.begun_ns, self.ended_ns)
    }
}

/// Finds messages by the length before each (RFC 1002 4.3.1, over TCP alone: MS-SMB2 2.1).
#[derive(Debug, Default)]
pub(super) struct Framer {
    head: Vec<u8>,
    /// Of the message at hand, behind its head.
    rest_bytes: usize,
    begun_ns: u64,
    place: u64,
}

impl Framer {
    /// Bytes passed; `each` is handed the messages that end in them.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        mut bytes: &[u8],
        mut each: impl FnMut(Message<'_>),
    ) {
        while !bytes.is_empty() {
            if self.head.is_empty() {
                self.begun_ns = now_ns;
            }
            let wanted = self.head_bytes().saturating_sub(self.head.len());
            let (more, rest) = bytes.split_at(wanted.min(bytes.len()));
            self.head.extend_from_slice(more);
            self.place += more.len() as u64;
            bytes = rest;
            if self.head.len() == 4 && !more.is_empty() {
                self.rest_bytes = self.length().saturating_sub(HEAD_BYTES - 4);
            }
            if self.head.len() < self.head_bytes() {
                continue;
            }
            let skipped = self.rest_bytes.min(bytes.len());
            bytes = bytes.split_at(skipped).1;
            self.rest_bytes -= skipped;
            self.place += skipped as u64;
            if self.rest_bytes == 0 {
                each(Message {
                    head: self.head.get(4..).unwrap_or_default(),
                    begun_ns: self.begun_ns,
                    ended_ns: now_ns,
                    end: self.place,
                });
                self.head.clear();
            }
        }
    }

    /// What the prefix says of the message's length.
    fn length(&self) -> usize {
        match self.head.as_slice() {
            [_, a, b, c, ..] => usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c),
            _ => 0,
        }
    }

    /// How much of the message is kept, prefix included.
    fn head_bytes(&self) -> usize {
        match self.head.len() {
            0..=3 => 4,
            _ => (4 + self.length()).min(HEAD_BYTES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(segments: &[(u32, &[u8])]) -> (Vec<u8>, u64) {
        let mut assembler = Assembler::default();
        assembler.begin(u32::MAX - 2);
        let mut bytes = Vec::new();
        for (sequence, payload) in segments {
            let sequence = (u32::MAX - 1).wrapping_add(*sequence);
            assembler.take(sequence, payload, |fresh| bytes.extend_from_slice(fresh));
        }
        (bytes, assembler.repeated_bytes)
    }

    #[test]
    fn segments_come_in_any_order_across_the_end_of_sequence_numbers() {
        assert_eq!(assembled(&[(0, b"ab"), (2, b"cd")]), (b"abcd".to_vec(), 0));
        assert_eq!(assembled(&[(2, b"cd"), (4, b"e"), (0, b"ab")]).0, b"abcde");
        assert_eq!(
            assembled(&[(0, b"abc"), (1, b"bcd")]),
            (b"abcd".to_vec(), 2)
        );
        assert_eq!(assembled(&[(0, b"ab"), (0, b"ab")]), (b"ab".to_vec(), 2));
        assert_eq!(assembled(&[(1, b"b")]).0, b"");
    }

    fn framed(pieces: &[&[u8]]) -> Vec<(Vec<u8>, u64, u64, u64)> {
        let mut framer = Framer::default();
        let mut found = Vec::new();
        for (now_ns, piece) in (0..).zip(pieces) {
            framer.take(now_ns, piece, |message| {
                let Message {
                    head,
                    begun_ns,
                    ended_ns,
                    end,
                } = message;
                found.push((head.to_vec(), begun_ns, ended_ns, end));
            });
        }
        found
    }

    #[test]
    fn messages_are_found_wherever_they_are_cut() {
        let mut long = vec![0, 0, 1, 0];
        long.extend([7; 256]);
        let stream = [
            &[0, 0, 0, 2, 1, 2, 0, 0, 0, 0],
            long.as_slice(),
            &[0, 0, 0, 1, 9],
        ]
        .concat();
        let whole = framed(&[&stream]);
        let expected = [
            (vec![1, 2], 6),
            (vec![], 10),
            (vec![7; 96], 270),
            (vec![9], 275),
        ];
        let found: Vec<_> = whole
            .iter()
            .map(|(head, _, _, end)| (head.clone(), *end))
            .collect();
        assert_eq!(found, expected);
        for cut in 1..stream.len() {
            let (left, right) = stream.split_at(cut);
            let again = framed(&[left, right]);
            let found: Vec<_> = again
                .iter()
                .map(|(head, _, _, end)| (head.clone(), *end))
                .collect();
            assert_eq!(found, expected, "cut at {cut}");
        }
        let parts = framed(&[&stream[..12], &stream[12..100], &stream[100..]]);
        assert_eq!((parts[2].1, parts[2].2), (0, 2), "begun and ended");
    }
}
