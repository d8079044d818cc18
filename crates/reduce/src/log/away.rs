//! Segments that are not at hand: where they are needed, and how they come back.

use super::{Found, Log, NOWHERE, SEGMENT_BITS, SEGMENT_BYTES, Segment};
use crate::copy::copy;
use crate::extents::{Piece, Place};
use crate::segments::{BlockLengths, Written};

/// Pieces of the virtual log that are looked at around a position.
const PIECES_MAX: usize = 4096;
/// How far from a position a segment's bytes are looked for.
const REACH_BYTES: u64 = 16 * SEGMENT_BYTES as u64;
/// Whether a stretch is new is known by granules of so many bytes.
const GRANULE_BYTES: usize = 64;

/// A segment that is not at hand and would be of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadAt {
    /// Its number.
    pub segment: u64,
    /// A virtual position that is in it, and its use.
    pub position: u64,
    /// It is not needed yet, but will be if what comes goes on as it did then.
    pub is_ahead: bool,
}

impl Segment {
    /// From where to where something is there, around an offset; nothing if the offset itself is not.
    pub(super) fn around(&self, offset: usize) -> (usize, usize) {
        if !self.is_partial {
            return (0, SEGMENT_BYTES);
        }
        let holds = |range: &&(u32, u32)| (range.0 as usize..range.1 as usize).contains(&offset);
        let range = self.written.ranges().iter().find(holds);
        range.map_or((offset + 1, offset), |range| {
            (range.0 as usize, range.1 as usize)
        })
    }
}

/// What of a segment was found in the virtual log.
struct Stretches {
    number: u64,
    stretches: Vec<(u64, usize, usize)>,
    /// Granules that are in one of them, and how many are not.
    known: Vec<bool>,
    wanting: usize,
    /// Pieces that may still be looked at.
    budget: usize,
}

impl Stretches {
    fn new(number: u64) -> Self {
        let granules = SEGMENT_BYTES / GRANULE_BYTES;
        Self {
            number,
            stretches: Vec::new(),
            known: vec![false; granules],
            wanting: granules,
            budget: PIECES_MAX,
        }
    }

    fn is_wanting(&self) -> bool {
        self.wanting > 0 && self.budget > 0
    }

    /// Takes what is of the segment and new; returns how far it looked.
    fn take(&mut self, at: u64, piece: &Piece, bytes_max: u64) -> u64 {
        self.budget -= 1;
        let bytes = piece.bytes.min(bytes_max);
        let Place::Kept(address) = piece.place else {
            return bytes;
        };
        let offset = address % SEGMENT_BYTES as u64;
        let bytes = bytes.min(SEGMENT_BYTES as u64 - offset);
        if address >> SEGMENT_BITS == self.number {
            self.add(at, offset as usize, bytes as usize);
        }
        bytes
    }

    fn add(&mut self, position: u64, offset: usize, bytes: usize) {
        let last = (offset + bytes).saturating_sub(1) / GRANULE_BYTES;
        let granules = self.known.iter_mut().take(last + 1);
        let new = granules
            .skip(offset / GRANULE_BYTES)
            .filter(|known| !**known);
        let mut count = 0;
        for known in new {
            *known = true;
            count += 1;
        }
        self.wanting -= count;
        if count > 0 {
            self.stretches.push((position, offset, bytes));
        }
    }
}

impl Log {
    /// Nothing of what is kept at these positions is there any more, wherever else in the virtual log it stands.
    pub(crate) fn lose(&mut self, position: u64, bytes: u64) {
        let end = position.saturating_add(bytes).min(self.end());
        let (mut at, mut hint) = (position, NOWHERE);
        while at < end
            && let Some(piece) = self.extents.piece(at, hint)
        {
            let mut bytes = piece.bytes.min(end - at);
            if let Place::Kept(address) = piece.place {
                let from = address % SEGMENT_BYTES as u64;
                bytes = bytes.min(SEGMENT_BYTES as u64 - from);
                if let Some(segment) = self.segment_mut(address >> SEGMENT_BITS) {
                    segment.written.remove(from as u32, (from + bytes) as u32);
                    segment.is_partial = true;
                }
            }
            (at, hint) = (at + bytes, piece.nth);
        }
    }

    /// The number after the last segment.
    fn segments_end(&self) -> u64 {
        self.first + self.segments.len() as u64
    }

    fn is_at_hand(&self, number: u64) -> bool {
        self.segment(number)
            .is_some_and(|segment| segment.slot.is_some())
    }

    /// Whether anything was ever known that is not at hand.
    pub(crate) fn is_any_away(&self) -> bool {
        self.is_any_away && self.is_watched
    }

    pub(super) fn away(&self, number: u64) -> Found<'_> {
        match self.is_watched && number < self.segments_end() {
            true => Found::Away(number),
            false => Found::Missing,
        }
    }

    /// What is at a position of which nothing is known: perhaps a segment that is to be put in.
    pub(super) fn reserved_at(&self, position: u64) -> Found<'_> {
        let number = position >> SEGMENT_BITS;
        match number < self.reserved && !self.is_at_hand(number) {
            true => self.away(number),
            false => Found::Missing,
        }
    }

    /// The segments of these positions, each with the first of them that is in it; the same may come twice.
    pub(crate) fn segments_at(&self, position: u64, bytes: u64) -> Vec<(u64, u64)> {
        let mut segments: Vec<(u64, u64)> = Vec::new();
        let (mut at, end, mut hint) = (position, position.saturating_add(bytes), NOWHERE);
        for _ in 0..PIECES_MAX {
            let Some(piece) = self.extents.piece(at, hint).filter(|_| at < end) else {
                break;
            };
            hint = piece.nth;
            let address = match piece.place {
                Place::Kept(address) => Some(address),
                Place::Hole if at >> SEGMENT_BITS < self.reserved => Some(at),
                Place::Hole | Place::Run(_) => None,
            };
            let Some(address) = address else {
                at += piece.bytes;
                continue;
            };
            let number = address >> SEGMENT_BITS;
            if segments.last().is_none_or(|(last, _)| *last != number) {
                segments.push((number, at));
            }
            at += piece
                .bytes
                .min(SEGMENT_BYTES as u64 - address % SEGMENT_BYTES as u64);
        }
        segments
    }

    /// Those of them that are not at hand.
    pub(crate) fn away_at(&self, position: u64, bytes: u64) -> Vec<(u64, u64)> {
        let mut segments = self.segments_at(position, bytes);
        segments.retain(|(number, _)| !self.is_at_hand(*number));
        segments
    }

    /// Stretches of the virtual log that are in this segment, from `position` on and before it: position, offset, bytes. Each touches
    /// a granule of the segment that none before it does: a byte may be in two of them, and a few of a granule in none. What was kept
    /// together is together, but references to what was kept before lie between: as far as a file that was said several times.
    pub(crate) fn stretches(&self, number: u64, position: u64) -> Vec<(u64, usize, usize)> {
        let mut found = Stretches::new(number);
        let near = position.saturating_sub(SEGMENT_BYTES as u64);
        let (mut from, mut to) = (near, position.saturating_add(REACH_BYTES));
        while found.is_wanting() {
            self.search(&mut found, from, to);
            if from == 0 || position - from >= REACH_BYTES {
                break;
            }
            (from, to) = (from.saturating_sub(SEGMENT_BYTES as u64), from);
        }
        found.stretches
    }

    fn search(&self, found: &mut Stretches, from: u64, to: u64) {
        let (mut at, mut hint) = (from, NOWHERE);
        while found.is_wanting() && at < to {
            let Some(piece) = self.extents.piece(at, hint) else {
                break;
            };
            hint = piece.nth;
            at += found.take(at, &piece, to - at);
        }
    }

    /// Counts what of `bytes` from `address` on is in this segment, if it was put in.
    pub(super) fn count_returned(&mut self, number: u64, address: u64, bytes: u64) {
        let is_returned = |segment: &Segment| segment.is_returned;
        if !self.is_watched || !self.segment(number).is_some_and(is_returned) {
            return;
        }
        let start = address.max(number << SEGMENT_BITS);
        let end = (address + bytes).min((number + 1) << SEGMENT_BITS);
        self.returned_bytes += end - start;
    }

    /// Counts what was repeated from `source` on and kept again, as a whole by where it begins: it is short.
    pub(crate) fn note_again(&mut self, source: u64, bytes: u64, hint: usize) {
        // Without an owner that keeps segments none was put in.
        if self.is_watched
            && let Some(piece) = self.extents.piece(source, hint)
            && let Place::Kept(address) = piece.place
            && let Some(segment) = self.segment(address >> SEGMENT_BITS)
        {
            self.returned_bytes += if segment.is_returned { bytes } else { 0 };
        }
    }

    /// Bytes that were repeated from segments that were put in.
    pub(crate) fn returned_bytes(&self) -> u64 {
        self.returned_bytes
    }

    /// Puts a segment in that was at hand before, or for which room was reserved. False if it is there, or there is no room.
    pub(crate) fn recall(&mut self, number: u64, bytes: &[u8], lengths: &BlockLengths) -> bool {
        let written = Written::of(lengths);
        let is_useful = bytes.len() == SEGMENT_BYTES && !written.ranges().is_empty();
        let is_near = self.segments_end().saturating_sub(number) <= self.segments_max as u64;
        if !is_useful || !is_near || self.is_at_hand(number) || number >= self.segments_end() {
            return false;
        }
        let Some(slot) = self.free_slot(self.segments_end()) else {
            return false;
        };
        while self.first > number {
            // Those between were at hand once: what they get from now on is not all there was.
            self.segments.push_front(Segment {
                is_partial: true,
                ..Segment::default()
            });
            self.first -= 1;
        }
        let start = slot as usize * SEGMENT_BYTES;
        if let Some(room) = self.memory.get_mut(start..start + SEGMENT_BYTES) {
            copy(room, bytes);
        }
        if number < self.reserved {
            for &(from, to) in written.ranges() {
                let address = (number << SEGMENT_BITS) + u64::from(from);
                let place = (Place::Kept(address), u64::from(to - from));
                self.extents.fill(address, &[place]);
            }
        }
        let is_due = self.due.contains(&number);
        if let Some(segment) = self.segment_mut(number) {
            segment.slot = Some(slot);
            segment.is_due = is_due;
            (segment.is_recent, segment.is_returned) = (true, true);
            segment.is_partial = written.ranges() != [(0, SEGMENT_BYTES as u32)];
            segment.written = written;
        }
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Some(number);
        }
        true
    }
}
