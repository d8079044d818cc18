//! What the encoder wants of a log that is longer than its memory.
//!
//! One position in 8192 of what passed stays known ("anchors"). Where one comes again and its segment is not at hand, the encoder asks for
//! it and for those behind it; what comes back is known as densely as what never left.

use super::{Encoder, slice};
use crate::index::{Index, WINDOW_BYTES};
use crate::log::{Found, NOWHERE, ReadAt, SEGMENT_BYTES};
use crate::segments::{BlockLengths, Written};

impl Encoder {
    /// Which segments that are not at hand hold what `input` may repeat, and, over `ahead_bytes`, what may come after it. Nothing is
    /// certain before they are at hand, and none of them is referred to before: [`Encoder::recall`].
    pub fn look(&self, input: &[u8], ahead_bytes: u64) -> Vec<ReadAt> {
        let mut reads = Reads::default();
        let Some(anchors) = self.anchors.as_ref().filter(|_| self.log.is_any_away()) else {
            return reads.0;
        };
        let mut positions = Vec::new();
        self.sampler.anchors(input, &mut positions);
        let near = self.log.end();
        let found: Vec<(u64, u64)> = positions
            .into_iter()
            .filter_map(|at| {
                let fingerprint = fingerprint_at(anchors, input, at as usize)?;
                Some((u64::from(at), anchors.find(fingerprint, near)?))
            })
            .collect();
        if let Some(&(at, source)) = found.first() {
            reads.add(self.log.away_at(source.saturating_sub(at), at), false);
        }
        for &(_, source) in &found {
            if let (Found::Away(segment), _) = self.log.read(source, NOWHERE) {
                reads.add(vec![(segment, source)], false);
            }
        }
        if let Some(&(at, source)) = found.last() {
            let rest = input.len() as u64 - at;
            reads.add(self.log.away_at(source, rest), false);
            reads.add(self.log.away_at(source + rest, ahead_bytes), true);
        }
        reads.0
    }

    /// Puts a segment in that [`Encoder::look`] named: from now on it is referred to, so the other end must hold as much of it. False
    /// if there is no room, or it is at hand already.
    pub fn recall(&mut self, read: &ReadAt, bytes: &[u8], lengths: &BlockLengths) -> bool {
        if !self.log.recall(read.segment, bytes, lengths) {
            return false;
        }
        self.stats.recalled += 1;
        let is_new = self.log.stretches(read.segment, read.position);
        for (position, offset, length) in is_new {
            self.learn(position, slice(bytes, offset, offset + length));
        }
        true
    }

    /// Remembers the anchors of a segment for which room was reserved, and which is not put in.
    pub fn anchor(&mut self, number: u64, bytes: &[u8], lengths: &BlockLengths) {
        let near = self.log.end();
        let Some(anchors) = &mut self.anchors else {
            return;
        };
        let mut positions = Vec::new();
        for &(from, to) in Written::of(lengths).ranges() {
            let part = slice(bytes, from as usize, to as usize);
            positions.clear();
            self.sampler.anchors(part, &mut positions);
            for &at in &positions {
                let position = number * SEGMENT_BYTES as u64 + u64::from(from + at);
                let Some(fingerprint) = fingerprint_at(anchors, part, at as usize) else {
                    break;
                };
                insert_if_newer(anchors, fingerprint, position, near);
            }
        }
    }

    /// Numbers of the segments these positions are in.
    pub fn segments_at(&self, position: u64, bytes: u64) -> Vec<u64> {
        let segments = self.log.segments_at(position, bytes);
        segments.into_iter().map(|(number, _)| number).collect()
    }
}

/// Remembers the position, unless a newer one of the same content is known.
pub(super) fn insert_if_newer(index: &mut Index, fingerprint: u64, position: u64, near: u64) {
    let known = index.find(fingerprint, near);
    if known.is_none_or(|known| known < position) {
        index.insert(fingerprint, position);
    }
}

fn fingerprint_at(index: &Index, bytes: &[u8], at: usize) -> Option<u64> {
    let window = bytes.get(at..at + WINDOW_BYTES)?;
    Some(index.fingerprint(window))
}

/// Segments to be read, each once.
#[derive(Default)]
pub(super) struct Reads(pub(super) Vec<ReadAt>);

impl Reads {
    pub(super) fn add(&mut self, segments: Vec<(u64, u64)>, is_ahead: bool) {
        for (segment, position) in segments {
            if self.0.iter().all(|known| known.segment != segment) {
                self.0.push(ReadAt {
                    segment,
                    position,
                    is_ahead,
                });
            }
        }
    }
}
