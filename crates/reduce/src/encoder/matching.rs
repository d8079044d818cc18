//! What is found in the log, and how far it agrees.

use super::{Encoder, RESUME_AFTER, RESUME_BYTES, slice};
use crate::echo::copy_out;
use crate::extend::{common_prefix, common_suffix, run_back_of, run_of};
use crate::index::WINDOW_BYTES;
use crate::log::{Found, NOWHERE};
use crate::settings::BYTES_PER_EXTENT;

/// A match the index found is worth a token from this length on, unless it goes on from another.
const MATCH_BYTES_MIN: usize = 64;

/// Something known, found at a position of the input.
pub(super) struct Match {
    pub(super) source: u64,
    /// The log's hint for the source.
    pub(super) hint: usize,
    pub(super) forward: usize,
    /// Stretches of the log that it is read from.
    pub(super) pieces: usize,
    pub(super) by_index: bool,
}

impl Match {
    /// Whether a copy of it would leave the log in shreds: with a stretch for fewer bytes than there is room for one.
    pub(super) fn is_shredded(&self) -> bool {
        self.pieces > 2 && self.pieces * BYTES_PER_EXTENT > self.forward
    }
}

impl Encoder {
    /// So many bytes from this virtual position on once more, for who has been told by the other end that it holds them
    /// ([`crate::Decoder::echoes`]); `None` if not all of them are at hand.
    pub fn said(&self, position: u64, bytes: u64) -> Option<Vec<u8>> {
        copy_out(&self.log, position, bytes)
    }

    /// Compares what the index found for `offset` bytes into `input`; `None` if it is not worth a token.
    pub(super) fn confirm(
        &self,
        flow: u64,
        (source, hint): (u64, usize),
        input: &[u8],
        offset: usize,
    ) -> Option<Match> {
        let (before, after) = input.split_at_checked(offset)?;
        let origin = self.origin(flow, source, hint);
        let (source, hint) = origin.map_or((source, hint), |origin| (origin, NOWHERE));
        if self.is_short(source, hint, before, after) {
            return None;
        }
        let found = self.match_at(flow, source, hint, after);
        let is_enough = found.forward >= MATCH_BYTES_MIN
            || found.forward >= WINDOW_BYTES
                && found.forward + self.extend_back(flow, source, found.hint, before)
                    >= MATCH_BYTES_MIN;
        is_enough.then_some(Match {
            by_index: true,
            ..found
        })
    }

    /// How many bytes of `input` come first, and what of a match that would go on at `source` begins behind them: here it needs `min`
    /// bytes, behind a short difference more.
    pub(super) fn resumed(
        &self,
        flow: u64,
        (source, hint): (u64, usize),
        input: &[u8],
        min: usize,
    ) -> Option<(usize, Match)> {
        if self.is_over(source, hint, input, min) {
            return None;
        }
        let here = self.match_at(flow, source, hint, input);
        if here.forward >= min {
            return Some((0, here));
        }
        let behind = |skip: usize| {
            let rest = slice(input, skip, input.len());
            let there = self.match_at(flow, source + skip as u64, here.hint, rest);
            (there.forward >= RESUME_BYTES).then_some((skip, there))
        };
        RESUME_AFTER.into_iter().find_map(behind)
    }

    /// The place that what is at `source` refers to, where a flow may not refer to that itself, or it is not there any more.
    fn origin(&self, flow: u64, source: u64, hint: usize) -> Option<u64> {
        if !self.reach.has_origins(flow) {
            return None;
        }
        let end = self.log.end();
        match self.log.around(source, hint) {
            Some(_) => self.reach.origin(source, flow, end),
            None => self.reach.origin_of_undelivered(source, flow, end),
        }
    }

    /// Whether it is clear without much ado that what is at `source` agrees too little: every second place the index names does.
    fn is_short(&self, source: u64, hint: usize, before: &[u8], after: &[u8]) -> bool {
        let Some((known_before, known_after)) = self.log.around(source, hint) else {
            return false;
        };
        let known_after = slice(known_after, 0, MATCH_BYTES_MIN);
        let forward = common_prefix(known_after, slice(after, 0, MATCH_BYTES_MIN));
        if forward == known_after.len() || forward == after.len() {
            return false;
        }
        let most = known_before.len().min(MATCH_BYTES_MIN);
        let back = common_suffix(
            slice(known_before, known_before.len() - most, known_before.len()),
            before,
        );
        forward < WINDOW_BYTES || back < most && forward + back < MATCH_BYTES_MIN
    }

    /// Whether it is clear without much ado that a match goes on neither here, with `min` bytes, nor behind a difference.
    pub(super) fn is_over(&self, source: u64, hint: usize, bytes: &[u8], min: usize) -> bool {
        let Some((_, known)) = self.log.around(source, hint) else {
            return false;
        };
        let is_other = |skip: usize, count: usize| {
            let parts = (known.get(skip..skip + count), bytes.get(skip..skip + count));
            matches!(parts, (Some(known), Some(bytes)) if known != bytes)
        };
        is_other(0, min)
            && RESUME_AFTER
                .iter()
                .all(|&skip| is_other(skip, RESUME_BYTES))
    }

    /// How many of `bytes` are at `source`, as far as `flow` may refer to it.
    pub(super) fn match_at(&self, flow: u64, source: u64, hint: usize, bytes: &[u8]) -> Match {
        let reach = self.reach.end_from(source, flow, self.log.end());
        let max = bytes.len().min(reach.saturating_sub(source) as usize);
        let bytes = slice(bytes, 0, max);
        let (mut done, mut last, mut first) = (0, hint, None);
        while done < max {
            let rest = slice(bytes, done, max);
            let (found, nth) = self.log.read(source + done as u64, last);
            last = nth;
            first = first.or(Some(nth));
            let (same, whole) = match found {
                Found::Bytes(known) => (common_prefix(known, rest), known.len().min(rest.len())),
                Found::Run(byte, so_often) => {
                    let whole = rest.len().min(so_often as usize);
                    (run_of(byte, slice(rest, 0, whole)), whole)
                }
                Found::Away(_) | Found::Missing => (0, 1),
            };
            done += same;
            if same < whole {
                break;
            }
        }
        Match {
            source,
            hint: first.unwrap_or(hint),
            forward: done,
            pieces: first.map_or(0, |first| last.saturating_sub(first) + 1),
            by_index: false,
        }
    }

    /// How many of the last `bytes` are before `source`.
    pub(super) fn extend_back(&self, flow: u64, source: u64, hint: usize, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let rest = slice(bytes, 0, bytes.len() - done);
            let end = source - done as u64;
            let (same, whole) = match self.log.read_back(end, hint, rest.len()) {
                Found::Bytes(known) => (common_suffix(known, rest), known.len()),
                Found::Run(byte, so_often) => {
                    let tail = slice(rest, rest.len() - so_often as usize, rest.len());
                    (run_back_of(byte, tail), tail.len())
                }
                Found::Away(_) | Found::Missing => (0, 1),
            };
            done += same;
            if same < whole {
                break;
            }
        }
        self.reach.clip_back(source, done, flow)
    }
}
