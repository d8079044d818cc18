//! A log that is longer than the memory: what has left it is on two disks, and comes back. The disks lose, shorten and harm segments,
//! frames are lost, one end or both begin anew; whatever happens, no wrong byte comes out.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use farhaul_reduce::*;
use proptest::prelude::*;

const MEMORY_BYTES: usize = 8 << 20;
const AHEAD_BYTES: u64 = 2 << 20;
/// A frame may wait for so many segments.
const RECALLS_MAX: usize = 8;

type Disk = BTreeMap<u64, (Vec<u8>, BlockLengths)>;

struct World {
    encoder: Encoder,
    decoder: Decoder,
    disks: [Disk; 2],
    compressor: Compressor,
    missed: usize,
    away: usize,
    wire: usize,
}

fn settings() -> Settings {
    Settings {
        anchor_bytes: 1 << 20,
        ..Settings::of_memory(MEMORY_BYTES)
    }
}

fn both(a: &(Vec<u8>, BlockLengths), b: &(Vec<u8>, BlockLengths)) -> BlockLengths {
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
    fn new(disks: [Disk; 2], reserved: u64) -> Self {
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
    fn restart(&mut self) {
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
    fn save(&mut self) {
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
    fn recall(&mut self, input: &[u8]) {
        for read in self.encoder.look(input, AHEAD_BYTES) {
            let [near, far] = &self.disks;
            if let Some((near, far)) = near.get(&read.segment).zip(far.get(&read.segment)) {
                self.encoder.recall(&read, &near.0, &both(near, far));
            }
        }
    }

    /// The bytes of a frame, asked for again if need be.
    fn receive(&mut self, frame: &Plain, input: &[u8], out: &mut Vec<u8>) {
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
        self.encoder
            .handle_missing(frame.flow, place, frame.length, absent);
        self.wire += input.len();
        out.extend_from_slice(input);
    }

    /// Sends it; frames of which `is_lost` says so never arrive.
    fn send(&mut self, flow: u64, input: &[u8], is_lost: impl Fn(usize) -> bool) -> usize {
        let before = self.wire;
        for batch in input.chunks(300_000) {
            self.recall(batch);
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

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut s = seed;
    let mut next = || {
        s = s
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (s >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// 24 MB through a memory of 8 MiB.
fn full() -> (World, Vec<u8>) {
    let mut world = World::new(Default::default(), 0);
    let input = noise(1, 24_000_000);
    assert!(world.send(1, &input, |_| false) >= input.len());
    assert_eq!((world.missed, world.away), (0, 0));
    (world, input)
}

#[test]
fn what_left_the_memory_is_found_on_disk() {
    let (mut world, input) = full();
    let again = world.send(2, &input, |_| false);
    assert!(again < 40_000, "{again}");
    assert_eq!(world.missed, 0);
    assert!(world.encoder.stats().recalled >= 22);
    let mut edited = input;
    edited.splice(3_000_001..3_000_003, *b"hello");
    edited[9_000_000..9_000_100].fill(3);
    let edited = world.send(3, &edited, |_| false);
    assert!(edited < 45_000, "{edited}");
}

#[test]
fn without_a_disk_it_is_sent_again() {
    let (mut world, input) = full();
    world.disks = Default::default();
    let again = world.send(2, &input, |_| false);
    assert!(again > 15_000_000, "{again}");
    assert_eq!(world.missed, 0, "nobody referred to what was not there");
}

#[test]
fn what_the_other_disk_has_lost_meanwhile_is_asked_for() {
    let (mut world, input) = full();
    // Recalled here and referred to, but there it is gone.
    for read in world.encoder.look(&input[..300_000], AHEAD_BYTES) {
        let (bytes, lengths) = world.disks[0][&read.segment].clone();
        assert!(world.encoder.recall(&read, &bytes, &lengths));
    }
    world.disks[1].clear();
    world.send(2, &input[..300_000], |_| false);
    assert!(world.missed > 0 && world.away > 0);
    let missed = world.missed;
    world.send(3, &input[..300_000], |_| false);
    assert!(world.send(4, &input[..300_000], |_| false) < 1000);
    assert_eq!(world.missed, missed);
}

#[test]
fn after_a_restart_the_whole_disk_is_known() {
    let (mut world, input) = full();
    world.restart();
    let again = world.send(1, &input, |_| false);
    assert!(again < 80_000, "{again}");
    assert_eq!(world.missed, 0);
}

#[derive(Debug, Clone)]
enum Act {
    Send(u64, usize, usize, u8),
    Fresh(u64, usize),
    Lose(u64, usize, usize, usize),
    Drop(usize, u64),
    Shorten(usize, u64, usize, u32),
    Harm(u64, usize),
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    let part = || (0usize..6_000_000, 1usize..1_500_000);
    prop_oneof![
        6 => (0u64..4, part(), any::<u8>()).prop_map(|(flow, (start, len), edit)| Act::Send(flow, start, len, edit)),
        3 => (0u64..4, 1usize..6_000_000).prop_map(|(flow, len)| Act::Fresh(flow, len)),
        1 => (0u64..4, part(), 1usize..4).prop_map(|(flow, (start, len), nth)| Act::Lose(flow, start, len, nth)),
        2 => (0usize..2, 0u64..30).prop_map(|(disk, number)| Act::Drop(disk, number)),
        2 => (0usize..2, 0u64..30, 0usize..SEGMENT_BLOCKS, 0u32..65_536)
            .prop_map(|(disk, number, block, length)| Act::Shorten(disk, number, block, length)),
        1 => (0u64..30, 0usize..SEGMENT_BYTES).prop_map(|(number, at)| Act::Harm(number, at)),
        1 => Just(Act::Restart),
    ]
}

fn perform(world: &mut World, base: &[u8], fresh: &mut u64, act: Act) {
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn whatever_the_disks_lose_the_bytes_are_right(acts in proptest::collection::vec(act(), 1..16)) {
        let base = noise(77, 7_500_000);
        let mut world = World::new(Default::default(), 0);
        let mut fresh = 1000;
        world.send(1, &base, |_| false);
        for act in acts {
            perform(&mut world, &base, &mut fresh, act);
        }
    }
}
