//! The map of the virtual log: where the bytes of each virtual position are kept.
//!
//! Virtual positions are given in turn to every byte that passes, also to one that was sent by reference. What is kept of it is a
//! place: an address among the kept bytes, a run of one byte, or nothing (a hole: not here yet, or never to come).

/// Where a stretch of the virtual log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this address and the following ones.
    Kept(u64),
    /// Nowhere: it is a run of this byte.
    Run(u8),
    /// Not here.
    Hole,
}

impl Place {
    /// The place `bytes` further on.
    pub(crate) fn advanced(self, bytes: u64) -> Self {
        match self {
            Self::Kept(address) => Self::Kept(address + bytes),
            other => other,
        }
    }
}

/// Sixteen bytes: the place's kind is in the top bits of `place`.
#[derive(Debug, Clone, Copy)]
struct Extent {
    start: u64,
    place: u64,
}

const KIND_RUN: u64 = 1 << 62;
const KIND_HOLE: u64 = 2 << 62;

impl Extent {
    fn new(start: u64, place: Place) -> Self {
        let place = match place {
            Place::Kept(address) => address & (KIND_RUN - 1),
            Place::Run(byte) => KIND_RUN | u64::from(byte),
            Place::Hole => KIND_HOLE,
        };
        Self { start, place }
    }

    fn place(self) -> Place {
        match self.place {
            place if place & KIND_HOLE != 0 => Place::Hole,
            place if place & KIND_RUN != 0 => Place::Run(place as u8),
            address => Place::Kept(address),
        }
    }
}

/// A stretch of the virtual log that is kept in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) place: Place,
    pub(crate) bytes: u64,
    /// Number of the extent, a hint for the next look-up.
    pub(crate) nth: usize,
}

/// The start of one extent in so many is kept apart, so that a search touches few lines of memory.
const MARK_EVERY: usize = 16;

pub(crate) struct Extents {
    extents: Vec<Extent>,
    /// Starts of the extents 0, 16, 32, ...
    marks: Vec<u64>,
    end: u64,
    /// When there are more, the oldest quarter is forgotten.
    extents_max: usize,
}

impl Extents {
    pub(crate) fn new(extents_max: usize) -> Self {
        let extents_max = extents_max.max(16);
        Self {
            // A table that doubles would take up to twice as much; what is not used of this one takes nothing.
            extents: Vec::with_capacity(extents_max),
            marks: Vec::with_capacity(extents_max / MARK_EVERY + 1),
            end: 0,
            extents_max,
        }
    }

    /// The virtual position after the last one.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn len(&self) -> usize {
        self.extents.len()
    }

    /// What is known of `position` and the positions after it; `hint` is where to look first.
    pub(crate) fn piece(&self, position: u64, hint: usize) -> Option<Piece> {
        if position >= self.end {
            return None;
        }
        let nth = self.nth(position, hint)?;
        let extent = self.extents.get(nth)?;
        let end = self
            .extents
            .get(nth + 1)
            .map_or(self.end, |next| next.start);
        let place = extent.place().advanced(position - extent.start);
        Some(Piece {
            place,
            bytes: end - position,
            nth,
        })
    }

    /// The piece from `position` on, and where its extent starts.
    pub(crate) fn piece_around(&self, position: u64, hint: usize) -> Option<(Piece, u64)> {
        let piece = self.piece(position, hint)?;
        let start = self.extents.get(piece.nth)?.start;
        Some((piece, start))
    }

    fn nth(&self, position: u64, hint: usize) -> Option<usize> {
        let holds = |nth: usize| {
            let is_from = self
                .extents
                .get(nth)
                .is_some_and(|extent| extent.start <= position);
            is_from
                && self
                    .extents
                    .get(nth.wrapping_add(1))
                    .is_none_or(|next| next.start > position)
        };
        let near = [hint, hint.wrapping_add(1), hint.wrapping_sub(1)];
        if let Some(nth) = near.into_iter().find(|&nth| holds(nth)) {
            return Some(nth);
        }
        let marks = self.marks.partition_point(|&start| start <= position);
        let first = marks.checked_sub(1)? * MARK_EVERY;
        let last = self.extents.len().min(first + MARK_EVERY);
        let near = self.extents.get(first..last)?;
        (first + near.partition_point(|extent| extent.start <= position)).checked_sub(1)
    }

    /// Adds an extent at the end.
    fn add(&mut self, extent: Extent) {
        if self.extents.len().is_multiple_of(MARK_EVERY) {
            self.marks.push(extent.start);
        }
        self.extents.push(extent);
    }

    /// Makes the marks of the extents from `nth` on anew.
    fn mark_from(&mut self, nth: usize) {
        let first = nth / MARK_EVERY;
        self.marks.truncate(first);
        let starts = self.extents.iter().map(|extent| extent.start);
        self.marks
            .extend(starts.skip(first * MARK_EVERY).step_by(MARK_EVERY));
    }

    /// Adds a stretch at the end.
    pub(crate) fn push(&mut self, place: Place, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if !self.continues(place) {
            self.make_room(1);
            self.add(Extent::new(self.end, place));
        }
        self.end += bytes;
    }

    /// Whether `place` goes on where the last extent ends.
    fn continues(&self, place: Place) -> bool {
        let last = self.extents.last();
        last.is_some_and(|last| last.place().advanced(self.end - last.start) == place)
    }

    /// Forgets the oldest quarter if there is no room for so many more; false if they are more than that.
    fn make_room(&mut self, more: usize) -> bool {
        if self.extents.len() + more <= self.extents_max {
            return true;
        }
        let quarter = self.extents_max / 4;
        if more <= quarter {
            self.extents.drain(..quarter);
            self.mark_from(0);
        }
        more <= quarter
    }

    /// Takes the positions from `end` on back.
    pub(crate) fn truncate(&mut self, end: u64) {
        while self.extents.last().is_some_and(|last| last.start >= end) {
            self.extents.pop();
        }
        self.marks.truncate(self.extents.len().div_ceil(MARK_EVERY));
        self.end = self.end.min(end);
    }

    /// Makes a hole of `bytes` from `start` on.
    pub(crate) fn punch(&mut self, start: u64, bytes: u64) {
        let end = start.saturating_add(bytes).min(self.end);
        self.make_room(2);
        let start = start.max(self.extents.first().map_or(self.end, |first| first.start));
        let (Some(first), Some(after)) = (
            self.piece(start, 0),
            end.checked_sub(1).and_then(|last| self.piece(last, 0)),
        ) else {
            return;
        };
        if start >= end {
            return;
        }
        let mut put = Vec::with_capacity(3);
        if let Some(whole) = self
            .extents
            .get(first.nth)
            .filter(|whole| whole.start < start)
        {
            put.push(*whole);
        }
        put.push(Extent::new(start, Place::Hole));
        if after.bytes > 1 {
            put.push(Extent::new(end, after.place.advanced(1)));
        }
        self.extents.splice(first.nth..=after.nth, put);
        self.mark_from(first.nth);
    }

    /// Puts `pieces` where there is a hole now. Whatever is there and is no hole stays, and the hole does if they are too many.
    pub(crate) fn fill(&mut self, start: u64, pieces: &[(Place, u64)]) {
        if !self.make_room(pieces.len() + 2) {
            return;
        }
        let bytes: u64 = pieces.iter().map(|(_, bytes)| bytes).sum();
        let Some(hole) = self
            .piece(start, 0)
            .filter(|hole| hole.place == Place::Hole && hole.bytes >= bytes)
        else {
            return;
        };
        let Some(whole) = self.extents.get(hole.nth).copied() else {
            return;
        };
        let mut put = Vec::with_capacity(pieces.len() + 2);
        if whole.start < start {
            put.push(whole);
        }
        let mut at = start;
        for &(place, bytes) in pieces {
            put.push(Extent::new(at, place));
            at += bytes;
        }
        if hole.bytes > bytes {
            put.push(Extent::new(at, Place::Hole));
        }
        self.extents.splice(hole.nth..=hole.nth, put);
        self.mark_from(hole.nth);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place_of(extents: &Extents, position: u64) -> Option<Place> {
        extents.piece(position, 0).map(|piece| piece.place)
    }

    #[test]
    fn the_table_takes_no_more_than_what_may_be_remembered() {
        let mut extents = Extents::new(1000);
        for nth in 0..5000 {
            extents.push(Place::Kept(nth * 100), 10);
        }
        assert!(extents.len() <= 1000);
        assert!(extents.extents.capacity() <= 1000);
        assert!(extents.marks.capacity() <= 1000 / MARK_EVERY + 1);
    }

    #[test]
    fn what_goes_on_is_one_extent() {
        let mut extents = Extents::new(100);
        extents.push(Place::Kept(10), 5);
        extents.push(Place::Kept(15), 5);
        extents.push(Place::Run(3), 7);
        extents.push(Place::Run(3), 7);
        assert_eq!(extents.len(), 2);
        assert_eq!(
            extents.piece(7, 9),
            Some(Piece {
                place: Place::Kept(17),
                bytes: 3,
                nth: 0
            })
        );
        assert_eq!(extents.piece(12, 0).map(|piece| piece.bytes), Some(12));
        assert_eq!(extents.piece(24, 0), None);
    }

    #[test]
    fn a_hole_is_filled_once() {
        let mut extents = Extents::new(100);
        extents.push(Place::Kept(0), 10);
        extents.push(Place::Hole, 10);
        extents.push(Place::Kept(10), 10);
        extents.fill(12, &[(Place::Kept(50), 2), (Place::Run(1), 3)]);
        extents.fill(12, &[(Place::Kept(99), 2)]);
        let expected = [
            (11, Place::Hole),
            (13, Place::Kept(51)),
            (16, Place::Run(1)),
            (17, Place::Hole),
            (20, Place::Kept(10)),
        ];
        for (position, place) in expected {
            assert_eq!(place_of(&extents, position), Some(place), "{position}");
        }
    }

    #[test]
    fn more_extents_than_allowed_cost_the_oldest() {
        let mut extents = Extents::new(16);
        for nth in 0..17 {
            extents.push(Place::Kept(nth * 100), 1);
        }
        assert_eq!(extents.len(), 13);
        assert_eq!(place_of(&extents, 3), None);
        assert_eq!(place_of(&extents, 4), Some(Place::Kept(400)));
    }

    #[test]
    fn invariant_5_holes_that_are_filled_and_made_cost_the_oldest_too() {
        let mut extents = Extents::new(16);
        extents.push(Place::Hole, 10_000);
        for nth in 0..1000 {
            extents.fill(nth * 8, &[(Place::Kept(nth * 100), 1), (Place::Run(1), 1)]);
            extents.punch(nth * 8 + 1, 1);
            assert!(extents.len() <= 16, "{}", extents.len());
        }
        assert_eq!(place_of(&extents, 999 * 8), Some(Place::Kept(99_900)));
        extents.fill(9_000, &[(Place::Run(1), 1), (Place::Run(2), 1)].repeat(20));
        assert_eq!(place_of(&extents, 9_000), Some(Place::Hole), "too many");
    }

    proptest! {
        #[test]
        fn a_position_is_found_with_any_hint(lengths in proptest::collection::vec(1u64..9, 1..60), hint in 0usize..80, cut in 0u64..300, hole in (0u64..300, 0u64..100)) {
            let mut extents = Extents::new(1000);
            let mut model = Vec::new();
            for (nth, length) in lengths.iter().enumerate() {
                let start = nth as u64 * 1000;
                extents.push(Place::Kept(start), *length);
                model.extend((0..*length).map(|offset| Place::Kept(start + offset)));
            }
            extents.truncate(cut);
            model.truncate(cut as usize);
            extents.punch(hole.0, hole.1);
            for (_, place) in model.iter_mut().enumerate().filter(|(at, _)| (hole.0..hole.0 + hole.1).contains(&(*at as u64))) {
                *place = Place::Hole;
            }
            if hole.1 >= 20 && hole.0 + hole.1 <= model.len() as u64 {
                let pieces: Vec<_> = (0..20).map(|nth| (Place::Run(nth), 1)).collect();
                extents.fill(hole.0, &pieces);
                for (place, piece) in model.iter_mut().skip(hole.0 as usize).zip(pieces) {
                    *place = piece.0;
                }
            }
            prop_assert_eq!(extents.end(), model.len() as u64);
            for (position, place) in model.iter().enumerate() {
                prop_assert_eq!(extents.piece(position as u64, hint).map(|piece| piece.place), Some(*place));
            }
            prop_assert_eq!(extents.piece(model.len() as u64, hint), None);
        }
    }
}
