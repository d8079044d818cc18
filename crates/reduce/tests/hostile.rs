//! Invariants 2, 4 and 6: whatever arrives, no wrong byte leaves, nothing panics, and what is missing is asked for.
#![allow(clippy::unwrap_used)]

mod source;

use farhaul_reduce::{Codec, Compressor, Decoded, Decoder, Encoder, LogPlace, Settings};
use source::{Noise, text};

fn settings() -> Settings {
    Settings {
        hash_key: 77,
        ..Settings::of_memory(4 << 20)
    }
}

/// Frames of a conversation that uses every kind of token, and what each stands for.
fn conversation() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut encoder = Encoder::new(Settings {
        frame_literal_bytes: 4096,
        ..settings()
    });
    let mut compressor = Compressor::new();
    let mut first = text(1, 20_000);
    first.extend([7; 5000]);
    first.extend(text(2, 9000));
    let mut second = first.clone();
    second.splice(4000..4003, *b"an insertion");
    second[12_000] ^= 1;
    let mut frames = Vec::new();
    for (nth, input) in [first, second].iter().enumerate() {
        let mut at = 0;
        for part in input.chunks(3000) {
            encoder.encode(1, part);
            encoder.flush();
            while let Some(frame) = encoder.poll_frame() {
                let codec = if nth == 0 {
                    Codec::Zstd(1)
                } else {
                    Codec::Null
                };
                let mut bytes = Vec::new();
                frame.seal(codec, &mut compressor, &mut bytes);
                frames.push((bytes, input[at..at + frame.length].to_vec()));
                at += frame.length;
            }
        }
    }
    frames
}

fn mutate(noise: &mut Noise, frame: &mut Vec<u8>, donor: &[u8]) {
    for _ in 0..=noise.below(3) {
        let at = noise.below(frame.len() as u64) as usize;
        // Half of all changes hit the head, which is the part that is hard to get right.
        let at = if noise.below(2) == 0 { at % 12 } else { at };
        match noise.below(6) {
            0 => {
                let at = at % donor.len().min(frame.len());
                frame[at] = donor[at];
            }
            1 => frame.truncate(at.max(1)),
            2 => frame.insert(at.min(frame.len()), noise.next() as u8),
            3 => drop(frame.remove(at.min(frame.len() - 1))),
            _ => {
                let at = at.min(frame.len() - 1);
                frame[at] ^= 1 << noise.below(8);
            }
        }
        if frame.is_empty() {
            frame.push(0);
        }
    }
}

/// 100,000 changed frames among the true ones. What is released is what was sent, also from a log that changed frames got into.
#[test]
fn invariant_6_mutated_frames_release_no_wrong_byte() {
    let frames = conversation();
    let mut noise = Noise::new(3);
    let (mut mutants, mut refused, mut released) = (0u32, 0u32, 0u32);
    while mutants < 100_000 {
        let mut decoder = Decoder::new(settings());
        let mut lost = false;
        for (nth, (frame, input)) in frames.iter().enumerate() {
            for _ in 0..40 {
                let mut mutant = frame.clone();
                mutate(&mut noise, &mut mutant, &frames[(nth + 1) % frames.len()].0);
                let mut output = Vec::new();
                mutants += 1;
                match decoder.decode(&mutant, &mut output) {
                    Ok(Decoded::Released) => {
                        assert!(output == *input, "wrong bytes of frame {nth}");
                        lost |= mutant != *frame;
                        released += 1;
                    }
                    _ => {
                        assert!(output.is_empty());
                        refused += 1;
                    }
                }
            }
            let mut output = Vec::new();
            match decoder.decode(frame, &mut output) {
                Ok(Decoded::Released) => assert!(output == *input),
                // A mutant took a place in the log: that is told, never delivered.
                other => assert!(lost && output.is_empty(), "{other:?}"),
            }
        }
    }
    assert!(refused > 90_000, "{refused} refused, {released} released");
}

/// A frame that has not arrived.
struct Sent {
    flow: u64,
    place: LogPlace,
    bytes: Vec<u8>,
    input: Vec<u8>,
}

/// A pair, and what is between its ends.
struct World {
    noise: Noise,
    encoder: Encoder,
    decoder: Decoder,
    compressor: Compressor,
    on_the_way: Vec<Sent>,
    missed: u64,
    delivered: u64,
    lost_flows: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let large = Settings {
            memory_bytes: 24 << 20,
            ..settings()
        };
        Self {
            noise: Noise::new(seed),
            encoder: Encoder::new(large),
            decoder: Decoder::new(settings()),
            compressor: Compressor::new(),
            on_the_way: Vec::new(),
            missed: 0,
            delivered: 0,
            lost_flows: 0,
        }
    }

    fn send(&mut self, flow: u64, input: &[u8]) {
        self.encoder.encode(flow, input);
        self.encoder.flush();
        let mut at = 0;
        while let Some(frame) = self.encoder.poll_frame() {
            let codec = [Codec::Null, Codec::Zstd(-5)][self.noise.below(2) as usize];
            let mut bytes = Vec::new();
            frame.seal(codec, &mut self.compressor, &mut bytes);
            let input = input[at..at + frame.length].to_vec();
            at += frame.length;
            let place = frame.place.unwrap();
            self.on_the_way.push(Sent {
                flow,
                place,
                bytes,
                input,
            });
        }
    }

    /// Now and then the decoder starts anew, or a flow is cut off.
    fn disturb(&mut self) {
        match self.noise.below(30) {
            0 => self.decoder = Decoder::new(settings()),
            1 => {
                let cut = self.noise.below(4);
                self.on_the_way.retain(|sent| sent.flow != cut);
                self.lost_flows += 1;
            }
            _ => (),
        }
    }

    /// Any flow's first frame may be the next to arrive.
    fn deliver_one(&mut self) {
        let nth = self.noise.below(self.on_the_way.len() as u64) as usize;
        let flow = self.on_the_way[nth].flow;
        let first = self.on_the_way.iter().position(|sent| sent.flow == flow);
        let sent = self.on_the_way.remove(first.unwrap());
        let mut output = Vec::new();
        let decoded = self.decoder.decode(&sent.bytes, &mut output).unwrap();
        if let Decoded::Missing { position, bytes } = decoded {
            self.missed += 1;
            let frame = (sent.place.position, sent.input.len() as u64);
            self.encoder.handle_missing(frame, (position, bytes));
            if self.noise.below(2) == 0 {
                let learned = self.decoder.learn(&sent.bytes, &sent.input);
                assert_eq!(learned, Ok(true));
            }
            output.extend_from_slice(&sent.input);
        }
        assert!(output == sent.input, "wrong bytes");
        self.delivered += output.len() as u64;
    }

    fn step(&mut self, files: &[Vec<u8>]) {
        let file = &files[self.noise.below(files.len() as u64) as usize];
        let start = self.noise.below(file.len() as u64 / 2) as usize;
        let mut input = file[start..].to_vec();
        let at = self.noise.below(input.len() as u64) as usize;
        input[at] ^= 1;
        let flow = self.noise.below(4);
        self.send(flow, &input);
        self.disturb();
        let must = !self.encoder.has_room();
        let keep = if must || self.noise.below(3) == 0 {
            0
        } else {
            self.noise.below(6) as usize
        };
        while self.on_the_way.len() > keep {
            self.deliver_one();
        }
        if keep == 0 && (must || self.noise.below(2) == 0) {
            self.encoder.handle_held(self.encoder.position());
        }
    }
}

/// Operations on a pair: flows side by side, frames overtaking each other, a flow that is cut off, a decoder that starts anew, and
/// so little memory at its end that segments go all the time. What is missing is sent again as literals, and every byte is right.
#[test]
fn invariant_4_what_is_missing_is_sent_again() {
    let (mut missed, mut delivered, mut lost_flows) = (0, 0, 0);
    for seed in 0..40 {
        let mut world = World::new(seed);
        let length = |nth: u64| 40_000 + 300_000 * (nth as usize % 3);
        let files: Vec<Vec<u8>> = (0..6)
            .map(|nth| text(seed * 10 + nth, length(nth)))
            .collect();
        for _ in 0..60 {
            world.step(&files);
        }
        assert_eq!(world.encoder.stats().unkept_bytes, 0);
        let stats = world.decoder.stats();
        assert!(
            stats.mismatched == 0 && stats.malformed == 0,
            "seed {seed}: {stats:?}"
        );
        missed += world.missed;
        delivered += world.delivered;
        lost_flows += world.lost_flows;
    }
    let seen = format!("{missed} missed, {lost_flows} flows lost, {delivered} bytes");
    assert!(
        missed > 100 && lost_flows > 40 && delivered > 100_000_000,
        "{seen}"
    );
}
