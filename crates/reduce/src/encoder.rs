//! The encoder: from a stream's bytes to frames of tokens and literals.
//!
//! Input is looked at in blocks of 2 KiB, noise in larger ones. The samples of a block are hashed and looked up together, so that the
//! processor waits for the index once and not thirty times; what the index knows is compared with the log and extended in both
//! directions as far as the bytes agree. Where a match ends the next one is expected right behind the difference, which is what an edit in place looks like.

mod closely;
mod matching;
mod recall;

use std::collections::VecDeque;

use twox_hash::xxhash3_128;

use self::matching::Match;
use crate::ahead::{Ahead, BLOCK_BYTES, NOISE_BLOCK_BYTES};
use crate::copy::append;
use crate::extend::run_of;
use crate::frame::{FRAME_INPUT_BYTES_MAX, FRAME_PLAIN_BYTES_MAX, LogPlace, Plain};
use crate::index::Index;
use crate::log::{Log, SEGMENT_BYTES};
use crate::reach::Reach;
use crate::run::find_run;
use crate::sampler::{Sampler, Sampling};
use crate::segments::{BlockLengths, Segments};
use crate::settings::Settings;
use crate::stats::EncoderStats;
use crate::token::{Known, Token, Writer};

/// Tokens after which a frame ends.
const TOKEN_BYTES_MAX: usize = 64 << 10;
/// Payload buffers that are kept for the next frames.
const ROOMS_MAX: usize = 16;
/// A shorter match is kept again. Otherwise the log would be in shreds, and reading a shred takes as long as comparing half a
/// kilobyte.
const AGAIN_BYTES_MAX: u64 = 512;
/// Samples looked up together behind a long match: as a rule it goes on soon, and what it goes over was looked up in vain.
const FIRST_BLOCK_BYTES: usize = 256;
/// So many bytes alike may be the beginning of a run.
const RUN_SIGN_BYTES: usize = 16;
/// How far behind a difference the match is expected again.
const RESUME_AFTER: [usize; 2] = [16, 128];
/// And for how long it must go on there.
const RESUME_BYTES: usize = 32;
/// So many literals after a match nothing is expected any more.
const EXPECTED_BYTES_MAX: usize = 64 << 10;

/// A frame that is being filled.
struct Open {
    flow: u64,
    place: LogPlace,
    tokens: Writer,
    literals: Vec<u8>,
    /// Literals since the last token.
    run: usize,
    length: usize,
    hash: xxhash3_128::Hasher,
}

/// A frame that is neither held nor read, and the segments it needs should it be sent again.
struct Unheld {
    start: u64,
    end: u64,
    segments: Vec<u64>,
}

/// One direction's encoder.
pub struct Encoder {
    settings: Settings,
    log: Log,
    index: Index,
    /// Where few samples were last, of a log that is longer than the memory.
    anchors: Option<Index>,
    reach: Reach,
    sampler: Sampler,
    open: Option<Open>,
    /// Where the last match of the current flow would go on, and the log's hint for it.
    expected: Option<(u64, usize)>,
    /// The last match, if nothing came since.
    going_on: Option<Kept>,
    frames: VecDeque<Plain>,
    /// Frames that are neither held nor read, nor given up.
    unheld: VecDeque<Unheld>,
    /// Memory of frames that were sent.
    rooms: Vec<Vec<u8>>,
    token_room: Vec<u8>,
    ahead: Ahead,
    /// How much is looked up together next.
    block_bytes: usize,
    stats: EncoderStats,
}

impl Encoder {
    /// One that knows nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self::with_sampler(settings, Sampler::new())
    }

    /// The same with a sampler of the caller's choice.
    pub fn with_sampler(mut settings: Settings, sampler: Sampler) -> Self {
        settings.frame_input_bytes = settings
            .frame_input_bytes
            .clamp(BLOCK_BYTES, FRAME_INPUT_BYTES_MAX);
        let literals_max = FRAME_PLAIN_BYTES_MAX - TOKEN_BYTES_MAX - 2 * NOISE_BLOCK_BYTES;
        settings.frame_literal_bytes = settings
            .frame_literal_bytes
            .clamp(BLOCK_BYTES, literals_max);
        let anchors = (settings.anchor_bytes > 0)
            .then(|| Index::new(settings.anchor_bytes, settings.seed, settings.advise));
        Self {
            settings,
            anchors,
            log: Log::new(settings.memory_bytes, settings.extents_max, settings.advise),
            index: Index::new(settings.index_bytes, settings.seed, settings.advise),
            reach: Reach::default(),
            sampler,
            open: None,
            expected: None,
            going_on: None,
            frames: VecDeque::new(),
            unheld: VecDeque::new(),
            rooms: Vec::new(),
            token_room: Vec::new(),
            ahead: Ahead::default(),
            block_bytes: NOISE_BLOCK_BYTES,
            stats: EncoderStats::default(),
        }
    }

    /// How many positions are looked at from now on ([`crate::Levels::sampling`]). Before it is told: [`Sampling::Dense`].
    pub fn set_sampling(&mut self, sampling: Sampling) {
        self.sampler = self.sampler.at(sampling);
    }

    /// Takes bytes of a flow. Frames come from [`Encoder::poll_frame`]; the last one stays open until it is full, another flow's
    /// bytes come, or [`Encoder::flush`].
    pub fn encode(&mut self, flow: u64, input: &[u8]) {
        if self.open.as_ref().is_some_and(|open| open.flow != flow) {
            self.flush();
            self.expected = None;
        }
        self.stats.input_bytes += input.len() as u64;
        self.ahead.clear();
        let mut at = 0;
        while at < input.len() {
            let mut open = self.open.take().unwrap_or_else(|| self.new_frame(flow));
            let room = self.settings.frame_input_bytes - open.length;
            let end = input.len().min(at + room);
            let done = self.encode_part(&mut open, input, at, end);
            open.hash.write(input.get(at..done).unwrap_or_default());
            open.length += done - at;
            at = done;
            let is_full = self.is_full(&open);
            self.open = Some(open);
            if is_full {
                self.flush();
            }
        }
    }

    /// Ends the open frame: what was encoded so far can be sent.
    pub fn flush(&mut self) {
        let Some(open) = self.open.take().filter(|open| open.length > 0) else {
            return;
        };
        let tokens = open.tokens.finish();
        let token_bytes = tokens.len();
        let mut payload = open.literals;
        self.stats.frames += 1;
        self.stats.token_bytes += token_bytes as u64;
        self.stats.literal_bytes += payload.len() as u64;
        payload.extend_from_slice(&tokens);
        self.token_room = tokens;
        self.reach
            .handle_sent(open.place.position, self.log.end(), open.flow);
        self.unheld.push_back(Unheld {
            start: open.place.position,
            end: self.log.end(),
            segments: self.log.take_pinned(),
        });
        let hash = open.hash.finish_128();
        let place = Some(open.place);
        self.frames.push_back(Plain {
            flow: open.flow,
            place,
            length: open.length,
            token_bytes,
            payload,
            hash,
        });
    }

    /// The next finished frame.
    pub fn poll_frame(&mut self) -> Option<Plain> {
        self.frames.pop_front()
    }

    /// Takes a frame's memory back that was sent: the next frames are made in it.
    pub fn recycle(&mut self, frame: Plain) {
        if self.rooms.len() < ROOMS_MAX {
            self.rooms.push(frame.payload);
        }
    }

    /// The other end holds everything below this virtual position: any flow may refer to it, and it need not be sent again.
    pub fn handle_held(&mut self, position: u64) {
        let position = position.min(self.log.end());
        self.reach.handle_held(position);
        let held = self.unheld.partition_point(|frame| frame.end <= position);
        for frame in self.unheld.drain(..held) {
            self.log.unpin(&frame.segments);
        }
    }

    /// The other end has read the frames of these positions: any flow may refer to them, and they need not be sent again, whatever is
    /// missing below.
    pub fn handle_read(&mut self, position: u64, bytes: u64) {
        let end = position.saturating_add(bytes).min(self.log.end());
        self.reach.handle_read(position, end);
        self.release(position, end);
    }

    /// Frames between these positions will not be sent again from the log. One that is not read holds back what is held, so
    /// whatever is read behind it must leave nothing here.
    fn release(&mut self, position: u64, end: u64) {
        let first = self.unheld.partition_point(|frame| frame.start < position);
        let behind = self.unheld.partition_point(|frame| frame.end <= end);
        for frame in self.unheld.drain(first..behind.max(first)) {
            self.log.unpin(&frame.segments);
        }
    }

    /// Whether there is room for more that the other end does not hold. While there is none, input should wait: what is encoded
    /// all the same may be lost to a peer that misses something.
    pub fn has_room(&self) -> bool {
        !self.log.is_half_pinned()
    }

    /// The other end cannot read the frame at `frame`, for what is at `absent` is not there (both a virtual position, and bytes).
    /// Nothing refers to those bytes any more, wherever else they stand, or each frame that repeats them would be missing in its
    /// turn; nor to the frame's own place. Its owner says once more what it stands for.
    pub fn handle_missing(&mut self, frame: (u64, u64), absent: (u64, u64)) {
        let absent_bytes = absent.1.min(FRAME_INPUT_BYTES_MAX as u64);
        self.log.lose(absent.0, absent_bytes);
        self.forget(absent.0, absent_bytes);
        self.forget(frame.0, frame.1);
        self.stats.missed += 1;
    }

    /// Nothing refers to these positions any more: the other end does not hold them, and will not.
    pub fn forget(&mut self, position: u64, bytes: u64) {
        let end = position.saturating_add(bytes);
        self.reach.forget(position, end);
        self.log.forget(position, bytes);
        self.release(position, end);
        self.expected = None;
    }

    /// The segments of its log.
    pub fn segments(&mut self) -> Segments<'_> {
        Segments(&mut self.log)
    }

    /// Puts a segment where room was reserved for it: from now on it is referred to, so the other end must hold all of it.
    pub fn seed(&mut self, number: u64, bytes: &[u8], lengths: &BlockLengths) {
        let written = self.log.seed(number, bytes, lengths);
        let position = number * SEGMENT_BYTES as u64;
        for &(from, to) in written.ranges() {
            let part = slice(bytes, from as usize, to as usize);
            self.learn(position + u64::from(from), part);
        }
    }

    /// Remembers the samples of bytes that are in the log already.
    fn learn(&mut self, position: u64, bytes: &[u8]) {
        let mut ahead = Ahead::default();
        let sampler = self.sampler.at(Sampling::Dense);
        let near = self.log.end();
        let mut at = 0;
        while at < bytes.len() {
            let range = (at, bytes.len());
            ahead.look_up(sampler, &self.index, bytes, range, near);
            for sample in ahead.samples() {
                let position = position + sample.at as u64;
                // What passed since is newer.
                if sample.found.is_none_or(|found| found < position) {
                    self.index.insert(sample.fingerprint, position);
                }
                if let Some(anchors) = self.anchors.as_mut().filter(|_| sample.is_anchor) {
                    recall::insert_if_newer(anchors, sample.fingerprint, position, near);
                }
            }
            at = ahead.end();
        }
    }

    /// The virtual position after everything encoded so far.
    pub fn position(&self) -> u64 {
        self.log.end()
    }

    /// Counters since the beginning, and the sizes of now.
    pub fn stats(&self) -> EncoderStats {
        EncoderStats {
            index_bytes: (self.index.bytes() + self.anchors.as_ref().map_or(0, Index::bytes))
                as u64,
            extents: self.log.extents() as u64,
            unheld_frames: self.unheld.len() as u64,
            unkept_bytes: self.log.unkept_bytes(),
            returned_bytes: self.log.returned_bytes(),
            ..self.stats
        }
    }

    fn new_frame(&mut self, flow: u64) -> Open {
        let mut literals = self.rooms.pop().unwrap_or_default();
        literals.clear();
        let place = LogPlace {
            position: self.log.end(),
            address: self.log.address(),
        };
        Open {
            flow,
            place,
            tokens: Writer::new(place.position, std::mem::take(&mut self.token_room)),
            literals,
            run: 0,
            length: 0,
            hash: xxhash3_128::Hasher::with_seed(self.settings.hash_key),
        }
    }

    fn is_full(&self, open: &Open) -> bool {
        open.length >= self.settings.frame_input_bytes
            || open.literals.len() >= self.settings.frame_literal_bytes
            || open.tokens.len() >= TOKEN_BYTES_MAX - 64
    }

    /// Encodes `input` from `at` until `end`, or until the frame is full; returns how far. What lies beyond `end` is looked at,
    /// not encoded.
    fn encode_part(&mut self, open: &mut Open, input: &[u8], mut at: usize, end: usize) -> usize {
        let start_length = open.length;
        let start = at;
        while at < end {
            let before = at;
            at = self.resume(open, input, at, end);
            if at == before {
                at = self.encode_block(open, input, at, end);
            }
            open.length = start_length + (at - start);
            if self.is_full(open) {
                break;
            }
        }
        open.length = start_length;
        at
    }

    /// Tries whether the last match goes on, here or behind a short difference.
    fn resume(&mut self, open: &mut Open, input: &[u8], at: usize, end: usize) -> usize {
        let Some(expected) = self.expected else {
            return at;
        };
        let min = if self.going_on.is_some() {
            1
        } else {
            RESUME_BYTES
        };
        match self.resumed(open.flow, expected, slice(input, at, end), min) {
            Some((skip, found)) => self.take_match(open, input, at, at + skip, found),
            None => at,
        }
    }

    /// Looks for what is known in the next block; returns how far it got.
    fn encode_block(&mut self, open: &mut Open, input: &[u8], at: usize, end: usize) -> usize {
        if at >= self.ahead.end() {
            let block_bytes = self.next_block_bytes(input, at);
            self.look_ahead(input, (at, end.min(at + block_bytes)));
        }
        self.walk(open, input, at, end).unwrap_or_else(|| {
            let block_end = self.ahead.end().min(end);
            self.literals(open, slice(input, at, block_end));
            block_end
        })
    }

    /// How much is looked up together at `at`: little behind a long match, and more each time. A run is found only where much is
    /// looked at.
    fn next_block_bytes(&mut self, input: &[u8], at: usize) -> usize {
        let block_bytes = self.block_bytes;
        self.block_bytes = (block_bytes * 2).min(NOISE_BLOCK_BYTES);
        let next = slice(input, at, at + RUN_SIGN_BYTES);
        let first = next.first();
        match first.is_some_and(|&byte| run_of(byte, next) == next.len()) {
            true => NOISE_BLOCK_BYTES,
            false => block_bytes,
        }
    }

    /// Finds the samples of the next block and remembers them: whether they are sent as literals or by reference, their positions are
    /// certain.
    fn look_ahead(&mut self, input: &[u8], range: (usize, usize)) {
        self.ahead
            .exchange(self.sampler, &mut self.index, &self.log, input, range);
        let Some(anchors) = &mut self.anchors else {
            return;
        };
        for sample in self
            .ahead
            .samples()
            .iter()
            .filter(|sample| sample.is_anchor)
        {
            anchors.insert(
                sample.fingerprint,
                self.log.end() + (sample.at - range.0) as u64,
            );
        }
    }

    /// Goes through a block's candidates; at the first match returns where it ends.
    fn walk(&mut self, open: &mut Open, input: &[u8], at: usize, end: usize) -> Option<usize> {
        while let Some(candidate) = self.ahead.next_from(at, &self.log) {
            if let Some(gap) = candidate.gap_from(at)
                && let Some(done) = self.take_run(open, input, at, gap, end)
            {
                return Some(done);
            }
            let found = candidate.found.and_then(|source| {
                let source = (source, candidate.hint);
                let found =
                    self.confirm(open.flow, source, slice(input, at, end), candidate.at - at);
                self.stats.false_finds += u64::from(found.is_none());
                found
            });
            if let Some(found) = found {
                return Some(self.take_match(open, input, at, candidate.at, found));
            }
        }
        None
    }

    /// Literals up to `start`, then the match that begins there, lengthened to the front as far as it goes.
    fn take_match(
        &mut self,
        open: &mut Open,
        input: &[u8],
        at: usize,
        start: usize,
        mut found: Match,
    ) -> usize {
        let is_shredded = found.is_shredded();
        if is_shredded {
            // Runs are runs again, and what is between them is kept again: what comes next refers to that.
            match find_run(slice(input, start, start + found.forward)) {
                Some((0, _)) => return self.take_known_run(open, input, (at, start), &found),
                Some((offset, _)) => found.forward = offset,
                None => (),
            }
        }
        let new = slice(input, at, start);
        let going_on = self.going_on.filter(|_| new.is_empty());
        open.literals.extend_from_slice(new);
        open.run += new.len();
        let run_start = open.literals.len() - open.run;
        let back = self.extend_back(
            open.flow,
            found.source,
            found.hint,
            slice(&open.literals, run_start, open.literals.len()),
        );
        open.literals.truncate(open.literals.len() - back);
        let source = found.source - back as u64;
        let bytes = (found.forward + back) as u64;
        let literals = (open.run - back) as u64;
        let end = start + found.forward;
        if bytes >= AGAIN_BYTES_MAX {
            self.block_bytes = FIRST_BLOCK_BYTES;
        }
        let kept = match going_on {
            _ if is_shredded => Kept::Again,
            Some(kept) if back == 0 && kept == Kept::Before => kept,
            _ if bytes < AGAIN_BYTES_MAX => Kept::Again,
            _ => Kept::Before,
        };
        let (known, hint) = match kept {
            Kept::Again => {
                self.log.append(slice(input, at, end));
                self.log.note_again(source, bytes, found.hint);
                (Known::Again { source, bytes }, found.hint)
            }
            Kept::Before => {
                self.log.append(new);
                self.log.take_back(back as u64);
                let hint = self.log.append_copy(source, bytes, found.hint);
                (Known::Copy { source, bytes }, hint)
            }
        };
        open.tokens.push(Token { literals, known });
        open.run = 0;
        self.reach
            .note_origin(self.log.end() - bytes, bytes, source);
        self.expected = Some((source + bytes, hint));
        self.going_on = Some(kept);
        self.stats.matches += 1;
        self.stats.matches_found += u64::from(found.by_index);
        self.stats.known_bytes += bytes;
        end
    }

    /// Literals up to `start`, then the run that begins there, as far as it was found in the log.
    fn take_known_run(
        &mut self,
        open: &mut Open,
        input: &[u8],
        (at, start): (usize, usize),
        found: &Match,
    ) -> usize {
        let end = start + found.forward;
        let done = self
            .take_run(open, input, at, start..end, end)
            .unwrap_or(start);
        self.expected = Some((found.source + (done - start) as u64, found.hint));
        done
    }

    /// If there is a run in `gap`: literals up to it, then the run.
    fn take_run(
        &mut self,
        open: &mut Open,
        input: &[u8],
        at: usize,
        gap: std::ops::Range<usize>,
        end: usize,
    ) -> Option<usize> {
        let (offset, byte) = find_run(slice(input, gap.start, gap.end))?;
        let start = gap.start + offset;
        let bytes = run_of(byte, slice(input, start, end));
        self.literals(open, slice(input, at, start));
        open.tokens.push(Token {
            literals: open.run as u64,
            known: Known::Run {
                byte,
                bytes: bytes as u64,
            },
        });
        open.run = 0;
        self.log.append_run(byte, bytes as u64);
        self.expected = self
            .expected
            .map(|(source, hint)| (source + bytes as u64, hint));
        self.going_on = None;
        self.stats.run_bytes += bytes as u64;
        Some(start + bytes)
    }

    fn literals(&mut self, open: &mut Open, bytes: &[u8]) {
        self.log.append(bytes);
        append(&mut open.literals, bytes);
        open.run += bytes.len();
        // A match that ended long ago says nothing any more.
        self.expected = self
            .expected
            .filter(|_| open.run < EXPECTED_BYTES_MAX)
            .map(|(source, hint)| (source + bytes.len() as u64, hint));
        self.going_on = self.going_on.filter(|_| bytes.is_empty());
    }
}

/// Where the bytes of a match are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Where they were.
    Before,
    /// Once more, behind the literals.
    Again,
}

/// The part of `bytes` from `start` to `end` that exists.
fn slice(bytes: &[u8], start: usize, end: usize) -> &[u8] {
    bytes.get(start..end.min(bytes.len())).unwrap_or_default()
}
