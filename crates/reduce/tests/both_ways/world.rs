//! Two ends that send to each other, with a disk at either, and what may happen on the way: frames wait, overtake those of other flows,
//! are harmed or never come; flows are cut, tunnels break, logs begin anew, what was kept goes. What one has received it sends back by
//! name, and what could not be read is said again and learned. The rules are those of a gateway, in the fewest words. Any bytes can be
//! made acts of it ([`operations`]).
#![allow(clippy::unwrap_used, dead_code)]

use std::sync::OnceLock;

use farhaul_reduce::*;

#[path = "../away/world.rs"]
mod away;
#[path = "way.rs"]
mod way;

pub use self::away::noise;
pub use self::way::{Counts, Part, Way};

/// Acts after which a history ends.
const ACTS_MAX: usize = 40;
/// Bytes of an act.
pub const ACT_BYTES: usize = 8;
/// What is sent of it is at most so long.
const SENT_BYTES_MAX: usize = 60_000;
/// More than the memory.
const FLOOD_BYTES: usize = 4_500_000;
/// What was received last can be sent back.
const RECEIVED_MAX: usize = 6;

/// Bytes of every kind that repeat themselves now and then.
fn base() -> &'static [u8] {
    static BASE: OnceLock<Vec<u8>> = OnceLock::new();
    BASE.get_or_init(|| {
        let words: Vec<u8> = noise(5, 20_000)
            .into_iter()
            .flat_map(|byte| format!("word{} ", usize::from(byte) * 7919).into_bytes())
            .collect();
        let mut base = [&noise(3, 120_000)[..], &[0; 9000], &words, &[7; 70_000]].concat();
        base.extend_from_within(20_000..90_000);
        base.extend(noise(4, 60_000));
        base
    })
}

/// As [`noise`], in less time.
fn words(seed: u64, bytes: usize) -> Vec<u8> {
    let mut word = seed;
    let mut next = || {
        word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 29)).to_le_bytes()
    };
    (0..bytes / 8).flat_map(|_| next()).collect()
}

pub struct World {
    /// From this end and to it.
    pub ways: [Way; 2],
    /// What came out of either, newest last.
    received: [Vec<Vec<u8>>; 2],
    fresh: u64,
}

impl World {
    pub fn new() -> Self {
        Self {
            ways: [Way::new(0), Way::new(1)],
            received: Default::default(),
            fresh: 1000,
        }
    }

    /// A flow sends these bytes; with `by_name` those that the other end has sent are named.
    pub fn send(&mut self, nth: usize, flow: u64, input: &[u8], (codec, by_name): (Codec, bool)) {
        if !self.ways[nth].encoder.has_room() {
            self.settle(nth);
        }
        let records = self.ways[nth].encode(flow, input);
        for (plain, input) in records {
            let named = by_name.then(|| self.name(nth, &input)).flatten();
            self.ways[nth].seal(flow, (plain, input), codec, named);
        }
    }

    /// These bytes in the words of what the other end has sent, and what it has not.
    fn name(&self, nth: usize, input: &[u8]) -> Option<(u64, Vec<Part>)> {
        let back = &self.ways[1 - nth];
        let echoes = back.decoder.echoes(input);
        let (mut parts, mut done) = (Vec::new(), 0);
        for echo in echoes {
            assert!(echo.at >= done && echo.bytes > 0, "in their order");
            parts.push(Part::Other(input[done..echo.at].to_vec()));
            done = echo.at + echo.bytes;
            let known = input[echo.at..done].to_vec();
            parts.push(Part::Said(echo.position, known));
        }
        parts.push(Part::Other(input[done..].to_vec()));
        (done > 0).then_some((back.epoch, parts))
    }

    /// What a name stands for, by the log of the end that reads it.
    fn whole(&self, nth: usize, (epoch, parts): &(u64, Vec<Part>)) -> Option<Vec<u8>> {
        let back = &self.ways[1 - nth];
        if *epoch != back.epoch {
            return None;
        }
        let mut whole = Vec::new();
        for part in parts {
            match part {
                Part::Other(bytes) => whole.extend_from_slice(bytes),
                Part::Said(position, known) => {
                    let said = back.encoder.said(*position, known.len() as u64)?;
                    assert!(back.is_harmed || said == *known, "it was said otherwise");
                    whole.extend(said);
                }
            }
        }
        Some(whole)
    }

    /// The next record of a flow is read, if it is not waited for.
    pub fn deliver(&mut self, nth: usize, flow: u64) {
        let Some(name) = self.ways[nth].next_name(flow) else {
            return;
        };
        let copy = name.map(|name| self.whole(nth, &name).unwrap_or_default());
        if let Some(bytes) = self.ways[nth].deliver(flow, copy.as_deref()) {
            let received = &mut self.received[nth];
            received.push(bytes);
            if received.len() > RECEIVED_MAX {
                received.remove(0);
            }
        }
    }

    /// Everything under way arrives, and every word about it.
    pub fn settle(&mut self, nth: usize) {
        while let Some(flow) = self.ways[nth].flows().first().copied() {
            while self.ways[nth].next_name(flow).is_some() {
                self.deliver(nth, flow);
            }
            while self.ways[nth].hear(true) {}
        }
        while self.ways[nth].hear(true) {}
        self.ways[nth].save();
    }

    /// Something that was received goes back, with a byte changed and more around it.
    fn send_back(&mut self, nth: usize, flow: u64, act: Act) {
        let received = &self.received[1 - nth];
        let Some(bytes) = received.get(act.c as usize % received.len().max(1)) else {
            return;
        };
        let mut input = [&base()[..usize::from(act.d)], bytes].concat();
        let at = act.start() % input.len();
        input[at] ^= act.e & 1;
        self.send(nth, flow, &input, (Codec::Null, true));
    }

    pub fn perform(&mut self, act: Act) {
        let nth = usize::from(act.kind & 1);
        let flow = u64::from(act.flow % 4);
        let codec = match act.e % 4 {
            0 => Codec::Zstd(1),
            _ => Codec::Null,
        };
        match act.kind >> 1 & 31 {
            0..=6 => {
                let from = act.start() % (base().len() - SENT_BYTES_MAX);
                let mut input = base()[from..][..act.length()].to_vec();
                let at = input.len() / 2;
                input[at] ^= act.e & 2;
                self.send(nth, flow, &input, (codec, true));
            }
            7..=9 => {
                self.fresh += 1;
                let input = noise(self.fresh, act.length());
                self.send(nth, flow, &input, (codec, true));
            }
            10..=13 => self.send_back(nth, flow, act),
            14..=18 => (0..4 + act.c % 16).for_each(|at| self.deliver(nth, u64::from(at % 4))),
            19..=20 => (0..=act.c % 8).for_each(|_| {
                self.ways[nth].hear(act.e & 1 == 0);
            }),
            21 => self.flood(nth, flow),
            22 => self.settle(nth),
            23 => self.ways[nth].cut(flow),
            24..=25 => self.ways[nth].harm(flow, act.e, act.start()),
            26 => self.ways[nth].learn_wrong(flow, act.start()),
            27 => self.ways.iter_mut().for_each(Way::break_off),
            28 => self.ways[nth].begin_anew(act.e & 1 == 1),
            29 => self.ways[nth].lose_segment(usize::from(act.c & 1), act.d.into()),
            30 => self.ways[nth].shorten(usize::from(act.c & 1), act.d.into(), act.start()),
            _ => self.ways[nth].save(),
        }
        self.ways.iter().for_each(Way::assert_bounded);
    }

    /// So much that what was in memory goes.
    fn flood(&mut self, nth: usize, flow: u64) {
        self.fresh += 1;
        for part in words(self.fresh, FLOOD_BYTES).chunks(500_000) {
            self.send(nth, flow, part, (Codec::Null, false));
            self.settle(nth);
        }
    }
}

/// What an act is made of.
#[derive(Debug, Clone, Copy)]
pub struct Act {
    kind: u8,
    flow: u8,
    start: [u8; 2],
    length: u8,
    c: u8,
    d: u8,
    e: u8,
}

impl Act {
    fn of([kind, flow, a, b, length, c, d, e]: [u8; ACT_BYTES]) -> Self {
        Self {
            kind,
            flow,
            start: [a, b],
            length,
            c,
            d,
            e,
        }
    }

    fn start(&self) -> usize {
        usize::from(u16::from_le_bytes(self.start)) * 7
    }

    fn length(&self) -> usize {
        1 + usize::from(self.length).pow(2) * SENT_BYTES_MAX / (256 * 256)
    }
}

/// Acts drawn from any bytes, and everything that is still under way then; what happened.
pub fn operations(data: &[u8]) -> [Counts; 2] {
    let mut world = World::new();
    for act in data.as_chunks::<ACT_BYTES>().0.iter().take(ACTS_MAX) {
        world.perform(Act::of(*act));
    }
    [0, 1].map(|nth| {
        world.settle(nth);
        world.ways[nth].counts
    })
}
