//! An encoder and a decoder with a disk each, and what may happen to them. Any bytes can be made acts of it ([`operations`]).
#![allow(clippy::unwrap_used, dead_code)]

use std::collections::BTreeMap;

use farhaul_reduce::*;

const MEMORY_BYTES: usize = 8 << 20;
pub const AHEAD_BYTES: u64 = 2 << 20;
/// A frame may wait for so many segments.
const RECALLS_MAX: usize = 8;

pub type Disk = BTreeMap<u64, (Vec<u8>, BlockLengths)>;

pub struct World {
    pub encoder: Encoder,
    pub decoder: Decoder,
    pub disks: [Disk; 2],
    compressor: Compressor,
    pub missed: usize,
    pub away: usize,
    wire: usize,
}

pub fn settings() -> Settings {
    Settings {
        anchor_bytes: 1 << 20,
        ..Settings::of_memory(MEMORY_BYTES)
    }
}

pub fn both(a: &(Vec<u8>, BlockLengths), b: &(Vec<u8>, BlockLengths)) -> BlockLengths {
    let mut lengths = [0; SEGMENT_BLOCKS];
    for (nth, length) in lengths.iter_mut().enumerate() {
        let least = a.1[nth].min(b.1[nth]);
        let at = nth * BLOCK_BYTES;
        let range = at..at + least as usize;
        *length = if a.0[range.clone()] == b.0[range] {
            least
        } else {
            0
        };
    }
    lengths
}

impl World {
    /// With room for the segments on the disks, none of which is put in.
    pub fn new(disks: [Disk; 2], reserved: u64) -> Self {
        let mut world = Self {
            encoder: Encoder::new(settings()),
            decoder: Decoder::new(settings()),
            disks,
            compressor: Compressor::new(),
            missed: 0,
            away: 0,
            wire: 0,
        };
        for mut segments in [world.encoder.segments(), world.decoder.segments()] {
            segments.reserve(reserved);
            segments.watch();
        }
        world.encoder.handle_held(world.encoder.position());
        for number in 0..reserved {
            let [near, far] = &world.disks;
            if let Some((near, far)) = near.get(&number).zip(far.get(&number)) {
                world.encoder.anchor(number, &near.0, &both(near, far));
            }
        }
        world
    }

    /// Both ends begin anew, with what is on both disks.
    pub fn restart(&mut self) {
        let mut disks = std::mem::take(&mut self.disks);
        let end = disks.iter().flat_map(|disk| disk.keys()).max();
        let reserved = end.map_or(0, |last| last + 1).min(64);
        // New segments have these numbers from now on.
        disks
            .iter_mut()
            .for_each(|disk| disk.retain(|number, _| *number < reserved));
        let (missed, away, wire) = (self.missed, self.away, self.wire);
        *self = Self::new(disks, reserved);
        (self.missed, self.away, self.wire) = (missed, away, wire);
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

    /// Puts in what `input` may need and both disks have.
    pub fn recall(&mut self, flow: u64, input: &[u8]) {
        let reads = self.encoder.look(input, AHEAD_BYTES);
        self.put_in(reads);
        let reads = self.encoder.look_closely(flow, input);
        self.put_in(reads);
    }

    fn put_in(&mut self, reads: Vec<ReadAt>) {
        for read in reads {
            let [near, far] = &self.disks;
            if let Some((near, far)) = near.get(&read.segment).zip(far.get(&read.segment)) {
                self.encoder.recall(&read, &near.0, &both(near, far));
            }
        }
    }

    /// The bytes of a frame, asked for again if need be.
    pub fn receive(&mut self, frame: &Plain, input: &[u8], out: &mut Vec<u8>) {
        let mut bytes = Vec::new();
        frame.seal(Codec::Null, &mut self.compressor, &mut bytes);
        self.wire += bytes.len();
        let mut recalls = 0;
        let absent = loop {
            match self.decoder.decode(&bytes, out).unwrap() {
                Decoded::Released => return,
                Decoded::Away {
                    segment,
                    position,
                    bytes,
                } => {
                    self.away += 1;
                    recalls += 1;
                    let kept = self.disks[1].get(&segment);
                    let is_back =
                        kept.is_some_and(|kept| self.decoder.recall(segment, &kept.0, &kept.1));
                    if !is_back || recalls > RECALLS_MAX {
                        break (position, bytes);
                    }
                }
                Decoded::Missing { position, bytes } => break (position, bytes),
                Decoded::Mismatched => panic!("the disks hold nothing wrong"),
            }
        };
        self.missed += 1;
        let place = frame.place.unwrap();
        for segment in self.encoder.segments_at(absent.0, absent.1) {
            self.disks[1].remove(&segment);
        }
        let frame_at = (place.position, frame.length as u64);
        self.encoder.handle_missing(frame_at, absent);
        self.wire += input.len();
        out.extend_from_slice(input);
    }

    /// Sends it; frames of which `is_lost` says so never arrive.
    pub fn send(&mut self, flow: u64, input: &[u8], is_lost: impl Fn(usize) -> bool) -> usize {
        let before = self.wire;
        for batch in input.chunks(300_000) {
            self.recall(flow, batch);
            self.encoder.encode(flow, batch);
            self.encoder.flush();
            let mut rest = batch;
            let mut nth = 0;
            while let Some(frame) = self.encoder.poll_frame() {
                let (part, after) = rest.split_at(frame.length);
                rest = after;
                nth += 1;
                if is_lost(nth) {
                    // The flow is cut: what it would have brought is given up.
                    let place = frame.place.unwrap();
                    self.encoder.forget(place.position, frame.length as u64);
                    continue;
                }
                let mut out = Vec::new();
                self.receive(&frame, part, &mut out);
                assert!(out == part, "a wrong byte");
                self.encoder.recycle(frame);
            }
            self.encoder.handle_held(self.encoder.position());
            self.save();
        }
        self.wire - before
    }
}

pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut s = seed;
    let mut next = || {
        s = s
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (s >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[derive(Debug, Clone)]
pub enum Act {
    Send(u64, usize, usize, u8),
    Fresh(u64, usize),
    Lose(u64, usize, usize, usize),
    Drop(usize, u64),
    Shorten(usize, u64, usize, u32),
    Harm(u64, usize),
    Restart,
}

pub fn perform(world: &mut World, base: &[u8], fresh: &mut u64, act: Act) {
    match act {
        Act::Send(flow, start, len, edit) => {
            let mut input = base[start..start + len].to_vec();
            input[len / 2] ^= edit;
            world.send(flow, &input, |_| false);
        }
        Act::Fresh(flow, len) => {
            *fresh += 1;
            world.send(flow, &noise(*fresh, len), |_| false);
        }
        Act::Lose(flow, start, len, nth) => {
            world.send(flow, &base[start..start + len], |at| at == nth);
        }
        Act::Drop(disk, number) => {
            world.disks[disk].remove(&number);
        }
        Act::Shorten(disk, number, block, length) => {
            if let Some((_, lengths)) = world.disks[disk].get_mut(&number) {
                lengths[block] = lengths[block].min(length);
            }
        }
        Act::Harm(number, at) => {
            // The near disk's: a store says only what has its hash, and `both` compares.
            if let Some((bytes, _)) = world.disks[0].get_mut(&number) {
                bytes[at] ^= 1;
            }
        }
        Act::Restart => world.restart(),
    }
}

/// Acts after which a history ends.
const ACTS_MAX: usize = 24;
/// Bytes that are sent at once.
const SENT_BYTES_MAX: usize = 1_500_000;

/// Acts drawn from any bytes, ten for each.
pub fn operations(data: &[u8]) {
    static BASE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let base = BASE.get_or_init(|| noise(77, 7_500_000));
    let mut world = World::new(Default::default(), 0);
    let mut fresh = 1000;
    for act in data.as_chunks::<10>().0.iter().take(ACTS_MAX) {
        perform(&mut world, base, &mut fresh, act_of(act));
    }
}

fn act_of(bytes: &[u8; 10]) -> Act {
    let [kind, flow, a, b, c, d, e, f, g, h] = *bytes;
    let start = u32::from_le_bytes([a, b, c, 0]) as usize % 6_000_000;
    let len = 1 + u32::from_le_bytes([d, e, f, 0]) as usize % SENT_BYTES_MAX;
    let (flow, number) = (u64::from(flow % 4), u64::from(g % 30));
    let (disk, block) = (usize::from(g % 2), usize::from(h) % SEGMENT_BLOCKS);
    match kind % 16 {
        0..=6 => Act::Send(flow, start, len, h),
        7..=9 => Act::Fresh(flow, len),
        10 => Act::Lose(flow, start, len, usize::from(1 + h % 3)),
        11 => Act::Drop(disk, u64::from(h % 30)),
        12 => Act::Shorten(disk, number, block, u32::from_le_bytes([a, b, 0, 0])),
        13 => Act::Harm(number, start % SEGMENT_BYTES),
        _ => Act::Restart,
    }
}
