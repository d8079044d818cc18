//! The virtual log and the bytes that are kept of it: what both ends of a tunnel remember of one direction.
//!
//! Only bytes that were new are kept, one after the other, in segments of 1 MiB. Their addresses are the encoder's choice and the
//! decoder's as well, so a segment is the same at both ends and has one number. As many segments as there is memory for are at hand;
//! when a new one needs room, the one that was used longest ago goes (second chance); pinned
//! ones stay.

mod away;
mod slots;

use std::collections::VecDeque;

use crate::extents::{Extents, Place};
use crate::prefetch::prefetch;
use crate::segments::{BlockLengths, Written};
use crate::settings::{Advise, Memory};
use crate::stream::copy;

pub use self::away::ReadAt;

/// Kept bytes come and go in units of this.
pub const SEGMENT_BYTES: usize = 1 << SEGMENT_BITS;
const SEGMENT_BITS: u32 = 20;

/// Segments between the oldest and the newest that are known of, at hand or not: a terabyte.
const SEGMENTS_MAX: usize = 1 << 20;

/// What the processor fetches at once.
const LINE_BYTES: usize = 64;
/// A hint that says nothing.
pub(crate) const NOWHERE: usize = usize::MAX - 1;

/// What is known of a virtual position and those after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    Bytes(&'a [u8]),
    /// So often this byte.
    Run(u8, u64),
    /// It is in this segment, which is not at hand; the log's owner may have it.
    Away(u64),
    Missing,
}

#[derive(Debug, Default, Clone)]
struct Segment {
    slot: Option<u32>,
    pins: u32,
    is_recent: bool,
    /// What is encoded next refers to it, as far as that is known.
    is_due: bool,
    /// The round in which it was pinned last.
    round: u64,
    /// What of it is at hand.
    written: Written,
    is_changed: bool,
    /// What is not in `written` is not there, although something was once.
    is_partial: bool,
    /// It was put in by its owner.
    is_returned: bool,
}

pub(crate) struct Log {
    extents: Extents,
    memory: Vec<u8>,
    /// Number of the segment in each slot of the memory.
    slots: Vec<Option<u64>>,
    /// The slot looked at next when room is needed.
    hand: usize,
    /// From the oldest that is at hand to the newest.
    segments: VecDeque<Segment>,
    segments_max: usize,
    /// Number of the first of `segments`.
    first: u64,
    /// Segments at the beginning that are put in later, or never.
    reserved: u64,
    is_any_away: bool,
    /// The address after the last kept byte.
    address: u64,
    /// Segments written or repeated since this was asked last.
    touched: Vec<u64>,
    /// How often that was asked, from 1.
    round: u64,
    pinned: usize,
    /// The segments that are due.
    due: Vec<u64>,
    unkept_bytes: u64,
    /// Bytes that were repeated from segments that were put in.
    returned_bytes: u64,
    is_watched: bool,
    /// Segments written since somebody asked, if anybody does.
    changed: Vec<u64>,
}

impl Log {
    /// With room for `memory_bytes`, at least four segments.
    pub(crate) fn new(memory_bytes: usize, extents_max: usize, advise: Advise) -> Self {
        let slots = (memory_bytes / SEGMENT_BYTES).max(4);
        let memory = vec![0; slots * SEGMENT_BYTES];
        advise(Memory::Log, memory.as_ptr(), memory.len());
        Self {
            extents: Extents::new(extents_max),
            memory,
            slots: vec![None; slots],
            hand: 0,
            segments: VecDeque::new(),
            segments_max: SEGMENTS_MAX,
            first: 0,
            reserved: 0,
            is_any_away: false,
            address: 0,
            touched: Vec::new(),
            round: 1,
            pinned: 0,
            due: Vec::new(),
            unkept_bytes: 0,
            returned_bytes: 0,
            is_watched: false,
            changed: Vec::new(),
        }
    }

    /// The virtual position after the last one.
    pub(crate) fn end(&self) -> u64 {
        self.extents.end()
    }

    /// The address after the last kept byte.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// New bytes there was no room for, because everything is pinned.
    pub(crate) fn unkept_bytes(&self) -> u64 {
        self.unkept_bytes
    }

    pub(crate) fn extents(&self) -> usize {
        self.extents.len()
    }

    /// What is at `position`, as far as it is in one piece, and the hint for the position after it.
    pub(crate) fn read(&self, position: u64, hint: usize) -> (Found<'_>, usize) {
        let Some(piece) = self.extents.piece(position, hint) else {
            return (Found::Missing, hint);
        };
        let found = match piece.place {
            Place::Run(byte) => Found::Run(byte, piece.bytes),
            Place::Hole => self.reserved_at(position),
            Place::Kept(address) => self.kept(address, piece.bytes),
        };
        (found, piece.nth)
    }

    fn kept(&self, address: u64, bytes: u64) -> Found<'_> {
        let number = address >> SEGMENT_BITS;
        let offset = address as usize % SEGMENT_BYTES;
        let Some(segment) = self.segment(number) else {
            return self.away(number);
        };
        let Some(slot) = segment.slot else {
            return self.away(number);
        };
        let (_, end) = segment.around(offset);
        let bytes = bytes.min(end.saturating_sub(offset) as u64);
        let start = slot as usize * SEGMENT_BYTES + offset;
        self.memory
            .get(start..start + bytes as usize)
            .filter(|known| !known.is_empty())
            .map_or(Found::Missing, Found::Bytes)
    }

    /// What is at hand before `position` and from there on, as far as it is in one piece with it.
    pub(crate) fn around(&self, position: u64, hint: usize) -> Option<(&[u8], &[u8])> {
        let (piece, start) = self.extents.piece_around(position, hint)?;
        let Place::Kept(address) = piece.place else {
            return None;
        };
        let segment = self.segment(address >> SEGMENT_BITS)?;
        let offset = address as usize % SEGMENT_BYTES;
        let (from, to) = segment.around(offset);
        let before = (position - start).min(offset.checked_sub(from)? as u64) as usize;
        let after = piece.bytes.min(to.checked_sub(offset)? as u64) as usize;
        let at = segment.slot? as usize * SEGMENT_BYTES + offset;
        Some((
            self.memory.get(at - before..at)?,
            self.memory.get(at..at + after)?,
        ))
    }

    /// Asks for the bytes around `position` before they are compared; the hint for reading them.
    pub(crate) fn approach(&self, position: u64, hint: usize) -> usize {
        let Some(piece) = self.extents.piece(position, hint) else {
            return NOWHERE;
        };
        if let Place::Kept(address) = piece.place
            && let Some(slot) = self
                .segment(address >> SEGMENT_BITS)
                .and_then(|segment| segment.slot)
        {
            let start = slot as usize * SEGMENT_BYTES + address as usize % SEGMENT_BYTES;
            for at in [start, start + LINE_BYTES] {
                if let Some(byte) = self.memory.get(at) {
                    prefetch(byte);
                }
            }
        }
        piece.nth
    }

    /// The bytes just before `position`, as far as they are in one piece and at hand, at most `bytes_max`.
    pub(crate) fn read_back(&self, position: u64, hint: usize, bytes_max: usize) -> Found<'_> {
        let Some(last) = position.checked_sub(1) else {
            return Found::Missing;
        };
        let Some((piece, start)) = self.extents.piece_around(last, hint) else {
            return Found::Missing;
        };
        let bytes = (position - start).min(bytes_max as u64);
        match piece.place {
            Place::Run(byte) => Found::Run(byte, bytes),
            Place::Hole => Found::Missing,
            Place::Kept(address) => {
                let offset = address as usize % SEGMENT_BYTES;
                let segment = self.segment(address >> SEGMENT_BITS);
                let from = segment.map_or(0, |segment| segment.around(offset).0);
                let bytes = bytes.min((offset + 1).saturating_sub(from) as u64);
                self.kept(address + 1 - bytes, bytes)
            }
        }
    }

    /// Adds new bytes at the end and keeps them. Where there is no room because everything is pinned, they become a hole.
    pub(crate) fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = SEGMENT_BYTES - self.address as usize % SEGMENT_BYTES;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            let place = if self.keep(self.address, now) {
                Place::Kept(self.address)
            } else {
                self.unkept_bytes += now.len() as u64;
                Place::Hole
            };
            self.extents.push(place, now.len() as u64);
            self.address += now.len() as u64;
            bytes = later;
        }
    }

    /// Adds a run at the end; nothing is kept of it.
    pub(crate) fn append_run(&mut self, byte: u8, bytes: u64) {
        self.extents.push(Place::Run(byte), bytes);
    }

    /// Adds what is at `source` once more, and calls it used. Where `source` is not known, or reaches into what is being added
    /// and not known yet, the rest becomes a hole. Returns the hint for what follows the source.
    pub(crate) fn append_copy(&mut self, source: u64, bytes: u64, mut hint: usize) -> usize {
        let (mut at, end) = (source, source + bytes);
        while at < end {
            let Some(piece) = self.extents.piece(at, hint) else {
                self.extents.push(Place::Hole, end - at);
                return hint;
            };
            let now = piece.bytes.min(end - at);
            if let Place::Kept(address) = piece.place {
                self.touch(address, now);
            }
            let before = self.extents.len();
            self.extents.push(piece.place, now);
            // Forgetting the oldest moves the numbers of all others.
            hint = if self.extents.len() < before {
                NOWHERE
            } else {
                piece.nth
            };
            at += now;
        }
        hint
    }

    /// Takes `bytes` new bytes back that were appended last.
    pub(crate) fn take_back(&mut self, bytes: u64) {
        self.extents.truncate(self.end() - bytes);
        let end = self.address;
        self.address -= bytes;
        let first = self.address >> SEGMENT_BITS;
        for number in first..end.div_ceil(SEGMENT_BYTES as u64) {
            let rest = self.address.saturating_sub(number << SEGMENT_BITS);
            if let Some(segment) = self.segment_mut(number) {
                segment.written.cut(rest.min(SEGMENT_BYTES as u64) as u32);
            }
        }
    }

    /// Pins a segment until somebody says for how long, once a round.
    fn note(&mut self, number: u64) {
        let round = self.round;
        let Some(segment) = self
            .segment_mut(number)
            .filter(|segment| segment.round != round)
        else {
            return;
        };
        segment.round = round;
        segment.pins += 1;
        let is_first = segment.pins == 1;
        self.pinned += usize::from(is_first);
        self.touched.push(number);
    }

    /// The segments that were written or repeated since the last time: they are pinned until [`Log::unpin`].
    pub(crate) fn take_pinned(&mut self) -> Vec<u64> {
        self.round += 1;
        std::mem::take(&mut self.touched)
    }

    /// Takes one pin off each of these.
    pub(crate) fn unpin(&mut self, numbers: &[u64]) {
        for &number in numbers {
            if let Some(segment) = self.segment_mut(number).filter(|segment| segment.pins > 0) {
                segment.pins -= 1;
                self.pinned -= usize::from(
                    self.segment(number)
                        .is_some_and(|segment| segment.pins == 0),
                );
            }
        }
    }

    /// Whether half of the memory is pinned.
    pub(crate) fn is_half_pinned(&self) -> bool {
        self.pinned * 2 >= self.slots.len()
    }

    /// Forgets what is at these positions.
    pub(crate) fn forget(&mut self, position: u64, bytes: u64) {
        self.extents.punch(position, bytes);
    }

    /// Keeps new bytes at an address of the other end's choice and says where they are.
    pub(crate) fn keep_at(
        &mut self,
        mut address: u64,
        mut bytes: &[u8],
        places: &mut Vec<(Place, u64)>,
    ) {
        while !bytes.is_empty() {
            let room = SEGMENT_BYTES - address as usize % SEGMENT_BYTES;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            let place = if self.keep(address, now) {
                Place::Kept(address)
            } else {
                Place::Hole
            };
            places.push((place, now.len() as u64));
            address += now.len() as u64;
            bytes = later;
        }
    }

    /// Where the bytes at `source` are, as far as known; calls them used. Returns the hint for what follows.
    pub(crate) fn places(
        &mut self,
        source: u64,
        bytes: u64,
        mut hint: usize,
        places: &mut Vec<(Place, u64)>,
    ) -> usize {
        let (mut at, end) = (source, source + bytes);
        while at < end {
            let Some(piece) = self.extents.piece(at, hint) else {
                places.push((Place::Hole, end - at));
                return hint;
            };
            let now = piece.bytes.min(end - at);
            if let Place::Kept(address) = piece.place {
                self.touch(address, now);
            }
            places.push((piece.place, now));
            (at, hint) = (at + now, piece.nth);
        }
        hint
    }

    /// Says where the bytes from `position` on are. Positions in between that are not here yet are a hole; of positions that are
    /// known nothing changes.
    pub(crate) fn put(&mut self, position: u64, places: &[(Place, u64)]) {
        if position < self.end() {
            return self.extents.fill(position, places);
        }
        self.extents.push(Place::Hole, position - self.end());
        for &(place, bytes) in places {
            self.extents.push(place, bytes);
        }
    }

    /// Makes room at the beginning of an empty log for segments that are put in later.
    pub(crate) fn reserve(&mut self, count: u64) {
        if self.end() > 0 || self.address > 0 {
            return;
        }
        self.segments.resize(count as usize, Segment::default());
        self.address = count << SEGMENT_BITS;
        (self.reserved, self.is_any_away) = (count, count > 0);
        self.extents.push(Place::Hole, self.address);
    }

    pub(crate) fn watch(&mut self) {
        self.is_watched = true;
    }

    pub(crate) fn take_changed(&mut self) -> Vec<u64> {
        let changed = std::mem::take(&mut self.changed);
        for &number in &changed {
            if let Some(segment) = self.segment_mut(number) {
                segment.is_changed = false;
            }
        }
        changed
    }

    /// A segment that is at hand, and what of it is.
    pub(crate) fn segment_bytes(&self, number: u64) -> Option<(&[u8], &Written)> {
        let segment = self.segment(number)?;
        let start = segment.slot? as usize * SEGMENT_BYTES;
        let bytes = self.memory.get(start..start + SEGMENT_BYTES)?;
        Some((bytes, &segment.written))
    }

    /// Puts a segment where room was reserved for it, unless all memory is taken. What of it is there, or nothing.
    pub(crate) fn seed(&mut self, number: u64, bytes: &[u8], lengths: &BlockLengths) -> Written {
        if bytes.len() != SEGMENT_BYTES {
            return Written::default();
        }
        let Some(slot) = self.seed_slot(number) else {
            return Written::default();
        };
        let written = Written::of(lengths);
        let start = slot * SEGMENT_BYTES;
        if let Some(room) = self.memory.get_mut(start..start + SEGMENT_BYTES) {
            copy(room, bytes);
        }
        for &(from, to) in written.ranges() {
            let address = (number << SEGMENT_BITS) + u64::from(from);
            let bytes = u64::from(to - from);
            self.extents.fill(address, &[(Place::Kept(address), bytes)]);
        }
        if let Some(segment) = self.segment_mut(number) {
            (segment.slot, segment.is_returned) = (Some(slot as u32), true);
            segment.written = written.clone();
        }
        written
    }

    /// An empty slot for a segment that has none.
    fn seed_slot(&mut self, number: u64) -> Option<usize> {
        if self.segment(number)?.slot.is_some() {
            return None;
        }
        let here = self.slots.get(self.hand).copied().flatten();
        let slot = match here {
            None => self.hand,
            Some(_) => self.slots.iter().position(Option::is_none)?,
        };
        self.hand = (slot + 1) % self.slots.len();
        *self.slots.get_mut(slot)? = Some(number);
        Some(slot)
    }

    fn segment(&self, number: u64) -> Option<&Segment> {
        self.segments
            .get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn segment_mut(&mut self, number: u64) -> Option<&mut Segment> {
        self.segments
            .get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn touch(&mut self, address: u64, bytes: u64) {
        for number in address >> SEGMENT_BITS..=(address + bytes - 1) >> SEGMENT_BITS {
            if let Some(segment) = self.segment_mut(number) {
                segment.is_recent = true;
            }
            self.note(number);
            self.count_returned(number, address, bytes);
        }
    }

    /// Writes bytes of one segment to their address.
    fn keep(&mut self, address: u64, bytes: &[u8]) -> bool {
        let number = address >> SEGMENT_BITS;
        let Some(slot) = self.slot_for(number) else {
            return false;
        };
        let start = slot as usize * SEGMENT_BYTES + address as usize % SEGMENT_BYTES;
        let Some(room) = self.memory.get_mut(start..start + bytes.len()) else {
            return false;
        };
        copy(room, bytes);
        self.note(number);
        self.note_written(number, address as usize % SEGMENT_BYTES, bytes.len());
        true
    }

    fn note_written(&mut self, number: u64, start: usize, bytes: usize) {
        let is_watched = self.is_watched;
        let Some(segment) = self.segment_mut(number) else {
            return;
        };
        segment.written.add(start as u32, (start + bytes) as u32);
        if !is_watched || std::mem::replace(&mut segment.is_changed, true) {
            return;
        }
        self.changed.push(number);
        if self.changed.len() > 2 * self.slots.len() {
            // Nobody asks; what has gone meanwhile is of no use.
            let mut changed = std::mem::take(&mut self.changed);
            changed.retain(|&number| self.segment_bytes(number).is_some());
            self.changed = changed;
        }
    }
}
