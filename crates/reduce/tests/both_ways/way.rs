//! One direction of two: an encoder, a decoder, and what is under way between them and back.

use std::collections::{BTreeMap, VecDeque};

use farhaul_reduce::*;

use super::away::{Disk, both};

const MEMORY_BYTES: usize = 4 << 20;
const AHEAD_BYTES: u64 = 1 << 20;
/// A frame may wait for so many segments.
const RECALLS_MAX: usize = 8;
/// Segments that a log begins with.
const RESERVED_MAX: u64 = 16;

/// A stretch of what a record stands for.
#[derive(Debug, Clone)]
pub enum Part {
    /// Its reader has said it, here; what that is, is not on the way.
    Said(u64, Vec<u8>),
    Other(Vec<u8>),
}

/// Under way.
struct Record {
    frame: Vec<u8>,
    /// Bare: epoch of the other direction, and what it stands for in its words.
    name: Option<(u64, Vec<Part>)>,
    input: Vec<u8>,
    position: u64,
}

/// What the encoder remembers of a record until it is read.
#[derive(Clone, Copy)]
struct Kept {
    position: u64,
    bytes: u64,
    is_asked: bool,
}

/// What the decoder's end says.
enum Word {
    Read(u64, u64),
    Held(u64),
    Missing(u64, u64, (u64, u64)),
}

/// What happened to either direction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub released: usize,
    pub named: usize,
    pub missed: usize,
    pub learned: usize,
    pub away: usize,
    pub harmed: usize,
    pub begun: usize,
}

pub struct Way {
    pub encoder: Encoder,
    pub decoder: Decoder,
    pub epoch: u64,
    /// The decoder has taken what nobody has sent: its log may be another.
    pub is_harmed: bool,
    pub counts: Counts,
    key: u64,
    compressor: Compressor,
    disks: [Disk; 2],
    under_way: BTreeMap<u64, VecDeque<Record>>,
    /// What is said once more is waited for.
    awaited: BTreeMap<u64, Record>,
    kept: BTreeMap<u64, VecDeque<Kept>>,
    words: VecDeque<Word>,
    /// What the decoder need not wait for: up to here, and stretches behind it.
    held: u64,
    beyond: BTreeMap<u64, u64>,
}

fn settings(key: u64) -> Settings {
    Settings {
        hash_key: key,
        anchor_bytes: 64 << 10,
        echo_bytes: MEMORY_BYTES / 64,
        frame_input_bytes: 50_000,
        frame_literal_bytes: 8192,
        ..Settings::of_memory(MEMORY_BYTES)
    }
}

impl Way {
    pub fn new(key: u64) -> Self {
        let mut way = Self {
            encoder: Encoder::new(settings(key)),
            decoder: Decoder::new(settings(key)),
            epoch: 1,
            is_harmed: false,
            counts: Counts::default(),
            key,
            compressor: Compressor::new(),
            disks: Default::default(),
            under_way: BTreeMap::new(),
            awaited: BTreeMap::new(),
            kept: BTreeMap::new(),
            words: VecDeque::new(),
            held: 0,
            beyond: BTreeMap::new(),
        };
        way.begin();
        way
    }

    /// New logs, with room for what is on both disks.
    fn begin(&mut self) {
        let end = self.disks.iter().flat_map(|disk| disk.keys()).max();
        let reserved = end.map_or(0, |last| last + 1).min(RESERVED_MAX);
        for disk in &mut self.disks {
            disk.retain(|number, _| *number < reserved);
        }
        self.encoder = Encoder::new(settings(self.key));
        self.decoder = Decoder::new(settings(self.key));
        for mut segments in [self.encoder.segments(), self.decoder.segments()] {
            segments.reserve(reserved);
            segments.watch();
        }
        for number in 0..reserved {
            let [near, far] = &self.disks;
            let Some((near, far)) = near.get(&number).zip(far.get(&number)) else {
                continue;
            };
            match number % 2 {
                0 => self.encoder.anchor(number, &near.0, &both(near, far)),
                _ => {
                    self.decoder.seed(number, &far.0, &far.1);
                    self.encoder.seed(number, &near.0, &both(near, far));
                }
            }
        }
        self.held = self.encoder.position();
        self.encoder.handle_held(self.held);
        self.beyond.clear();
    }

    /// Either end has forgotten everything, or what it has on disk is all that is left.
    pub fn begin_anew(&mut self, with_disks: bool) {
        if !with_disks || self.is_harmed {
            self.disks = Default::default();
            self.is_harmed = false;
        }
        self.drop_flows();
        self.epoch += 1;
        self.counts.begun += 1;
        self.begin();
    }

    /// The tunnel has ended and another one begins: what was under way never comes.
    pub fn break_off(&mut self) {
        self.drop_flows();
        let end = self.encoder.position();
        let held = self.held.min(end);
        self.encoder.forget(held, end - held);
        self.encoder.handle_held(end);
        self.held = end;
        self.beyond.clear();
    }

    fn drop_flows(&mut self) {
        self.under_way.clear();
        self.awaited.clear();
        self.kept.clear();
        self.words.clear();
    }

    /// Flows of which something is under way or waited for.
    pub fn flows(&self) -> Vec<u64> {
        let flows = self.under_way.keys().chain(self.awaited.keys());
        flows.copied().collect()
    }

    /// Frames of these bytes, and what each stands for.
    pub fn encode(&mut self, flow: u64, input: &[u8]) -> Vec<(Plain, Vec<u8>)> {
        let reads = self.encoder.look(input, AHEAD_BYTES);
        self.put_in(reads);
        let reads = self.encoder.look_closely(flow, input);
        self.put_in(reads);
        self.encoder.encode(flow, input);
        self.encoder.flush();
        let mut rest = input;
        let mut frames = Vec::new();
        while let Some(frame) = self.encoder.poll_frame() {
            let (part, after) = rest.split_at(frame.length);
            rest = after;
            frames.push((frame, part.to_vec()));
        }
        assert!(rest.is_empty(), "every byte is in a frame");
        frames
    }

    fn put_in(&mut self, reads: Vec<ReadAt>) {
        for read in reads {
            let [near, far] = &self.disks;
            if let Some((near, far)) = near.get(&read.segment).zip(far.get(&read.segment)) {
                self.encoder.recall(&read, &near.0, &both(near, far));
            }
        }
    }

    /// Puts a frame on its way, bare if there is a name for it.
    pub fn seal(
        &mut self,
        flow: u64,
        (plain, input): (Plain, Vec<u8>),
        codec: Codec,
        name: Option<(u64, Vec<Part>)>,
    ) {
        let mut frame = Vec::new();
        match name {
            Some(_) => plain.seal_bare(&mut frame),
            None => plain.seal(codec, &mut self.compressor, &mut frame),
        }
        let position = plain.place.unwrap().position;
        self.kept.entry(flow).or_default().push_back(Kept {
            position,
            bytes: input.len() as u64,
            is_asked: false,
        });
        let record = Record {
            frame,
            name,
            input,
            position,
        };
        self.under_way.entry(flow).or_default().push_back(record);
        self.encoder.recycle(plain);
    }

    /// The name of a flow's next record, if it has one; nothing while the flow waits.
    pub fn next_name(&self, flow: u64) -> Option<Option<(u64, Vec<Part>)>> {
        let next = self.under_way.get(&flow)?.front()?;
        (!self.awaited.contains_key(&flow)).then(|| next.name.clone())
    }

    /// The next record of a flow is read; what came out of it.
    pub fn deliver(&mut self, flow: u64, copy: Option<&[u8]>) -> Option<Vec<u8>> {
        let waiting = self.under_way.get_mut(&flow)?;
        let record = waiting.pop_front()?;
        if waiting.is_empty() {
            self.under_way.remove(&flow);
        }
        let mut output = Vec::new();
        let decoded = self.decode(&record.frame, copy, &mut output);
        let bytes = record.input.len() as u64;
        let absent = match decoded {
            Ok(Decoded::Released) => {
                assert!(output == record.input, "a wrong byte");
                self.counts.released += 1;
                self.counts.named += usize::from(copy.is_some());
                self.hold(record.position, bytes);
                self.words.push_back(Word::Read(flow, record.position));
                return Some(output);
            }
            Ok(
                Decoded::Missing { position, bytes }
                | Decoded::Away {
                    position, bytes, ..
                },
            ) => (position, bytes),
            Ok(Decoded::Mismatched) if copy.is_some() => (0, 0),
            other => {
                assert!(self.is_harmed, "{other:?}: the logs differ");
                assert!(output.is_empty());
                self.begin_anew(false);
                return None;
            }
        };
        assert!(output.is_empty(), "a byte of what cannot be read");
        self.counts.missed += 1;
        self.words
            .push_back(Word::Missing(flow, record.position, absent));
        self.hold(record.position, bytes);
        self.awaited.insert(flow, record);
        None
    }

    /// Decodes, with what it needs from disk.
    fn decode(
        &mut self,
        frame: &[u8],
        copy: Option<&[u8]>,
        output: &mut Vec<u8>,
    ) -> Result<Decoded, FrameError> {
        let mut recalls = 0;
        loop {
            let decoded = match copy {
                Some(copy) => self.decoder.decode_bare(frame, copy, output),
                None => self.decoder.decode(frame, output),
            };
            let Ok(Decoded::Away { segment, .. }) = decoded else {
                return decoded;
            };
            self.counts.away += 1;
            recalls += 1;
            let kept = self.disks[1].get(&segment);
            let is_back = kept.is_some_and(|kept| self.decoder.recall(segment, &kept.0, &kept.1));
            if !is_back || recalls > RECALLS_MAX {
                return decoded;
            }
        }
    }

    /// The decoder need not wait for these positions any more.
    fn hold(&mut self, position: u64, bytes: u64) {
        let end = self.beyond.entry(position).or_default();
        *end = (*end).max(position + bytes);
        let before = self.held;
        while let Some(first) = self.beyond.first_entry()
            && *first.key() <= self.held
        {
            self.held = self.held.max(first.remove());
        }
        if self.held > before {
            self.words.push_back(Word::Held(self.held));
        }
    }

    /// The encoder's end hears the next word; what it says again the other learns, unless that is lost. False if there is none.
    pub fn hear(&mut self, is_learned: bool) -> bool {
        match self.words.pop_front() {
            Some(Word::Held(position)) => self.encoder.handle_held(position),
            Some(Word::Read(flow, position)) => self.handle_read(flow, position),
            Some(Word::Missing(flow, position, absent)) => {
                self.handle_missing((flow, position), absent);
                self.answer((flow, position), is_learned);
            }
            None => return false,
        }
        true
    }

    fn handle_read(&mut self, flow: u64, position: u64) {
        let Some(kept) = self.kept.get_mut(&flow) else {
            return;
        };
        while let Some(first) = kept.front().copied()
            && first.position <= position
        {
            kept.pop_front();
            if !first.is_asked {
                self.encoder.handle_read(first.position, first.bytes);
            }
        }
    }

    fn handle_missing(&mut self, (flow, position): (u64, u64), absent: (u64, u64)) {
        let kept = self.kept.get_mut(&flow).into_iter().flatten();
        let Some(kept) = kept.into_iter().find(|kept| kept.position == position) else {
            return;
        };
        kept.is_asked = true;
        let frame_at = (kept.position, kept.bytes);
        for segment in self.encoder.segments_at(absent.0, absent.1) {
            self.disks[1].remove(&segment);
        }
        self.encoder.handle_missing(frame_at, absent);
    }

    /// What was asked for comes, and the flow goes on.
    fn answer(&mut self, (flow, position): (u64, u64), is_learned: bool) {
        let awaited = self.awaited.get(&flow);
        if awaited.is_none_or(|record| record.position != position) {
            return;
        }
        let Some(record) = self.awaited.remove(&flow) else {
            return;
        };
        if is_learned {
            let learned = self.decoder.learn(&record.frame, &record.input);
            assert_eq!(learned, Ok(true));
            self.counts.learned += 1;
        }
        self.words.push_back(Word::Read(flow, record.position));
    }

    /// Nobody reads a flow any more: what is under way of it, and what has not been told, is forgotten.
    pub fn cut(&mut self, flow: u64) {
        self.under_way.remove(&flow);
        self.awaited.remove(&flow);
        for kept in self.kept.remove(&flow).into_iter().flatten() {
            self.encoder.forget(kept.position, kept.bytes);
            self.hold(kept.position, kept.bytes);
        }
    }

    /// The next frame of a flow is read with a bit changed before it comes, or with a copy that is none. Whatever it is taken for, what
    /// comes out of it has its hash.
    pub fn harm(&mut self, flow: u64, how: u8, at: usize) {
        let Some(record) = self.under_way.get(&flow).and_then(VecDeque::front) else {
            return;
        };
        let (mut frame, right) = (record.frame.clone(), record.input.clone());
        let mut copy = right.clone();
        let is_frame = match how % 4 {
            0 => {
                frame.truncate(at % frame.len());
                true
            }
            // Mostly of the head: the rest only changes what the hash is of.
            1 => {
                let near = frame.len().min(if how & 4 == 0 { 16 } else { 4096 });
                frame[at % near] ^= 1 << (how >> 5);
                true
            }
            // A frame that is not bare has no copy.
            _ if record.name.is_none() => return,
            2 => {
                let last = copy.len() - 1;
                copy[at % (last + 1)] ^= 1;
                false
            }
            _ => {
                copy.truncate(at % copy.len());
                false
            }
        };
        self.counts.harmed += 1;
        let copies = [Some(&copy[..]), None];
        for copy in copies.into_iter().take(1 + usize::from(is_frame)) {
            let mut output = Vec::new();
            let decoded = self.decode(&frame, copy, &mut output);
            match decoded {
                Ok(Decoded::Released) => assert!(output == right, "a wrong byte"),
                _ => assert!(output.is_empty()),
            }
            // It may be remembered elsewhere now.
            self.is_harmed |= decoded == Ok(Decoded::Released);
        }
    }

    /// What a frame does not stand for is not learned.
    pub fn learn_wrong(&mut self, flow: u64, at: usize) {
        let Some(record) = self.under_way.get(&flow).and_then(VecDeque::front) else {
            return;
        };
        let mut wrong = record.input.clone();
        let last = wrong.len() - 1;
        wrong[at % (last + 1)] ^= 1;
        for wrong in [&wrong[..], &record.input[..last], &[]] {
            let learned = self.decoder.learn(&record.frame, wrong);
            assert_ne!(learned, Ok(true), "something else was learned");
        }
    }

    /// What was written goes to the disks.
    pub fn save(&mut self) {
        let ends = [self.encoder.segments(), self.decoder.segments()];
        for (mut segments, disk) in ends.into_iter().zip(&mut self.disks) {
            for number in segments.take_changed() {
                let mut bytes = Vec::new();
                if let Some(lengths) = segments.copy(number, &mut bytes) {
                    disk.insert(number, (bytes, lengths));
                }
            }
        }
    }

    pub fn lose_segment(&mut self, disk: usize, number: u64) {
        self.disks[disk].remove(&(number % RESERVED_MAX));
    }

    pub fn shorten(&mut self, disk: usize, number: u64, at: usize) {
        if let Some((_, lengths)) = self.disks[disk].get_mut(&(number % RESERVED_MAX)) {
            let length = &mut lengths[at % SEGMENT_BLOCKS];
            *length = (*length).min(at as u32 % 65_536);
        }
    }

    /// What either end has grows with nothing that is sent.
    pub fn assert_bounded(&self) {
        let stats = self.encoder.stats();
        let settings = settings(self.key);
        assert!(stats.extents <= settings.extents_max as u64, "{stats:?}");
        let index_bytes = settings.index_bytes + settings.anchor_bytes + 4096;
        assert!(stats.index_bytes <= index_bytes as u64, "{stats:?}");
    }
}
