//! Where fuzzers come in: what must hold for any bytes whatsoever. The tests below do it with true bytes that were changed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // a failure is what is looked for

use std::sync::OnceLock;

use twox_hash::xxhash3_128;

use crate::codec::{Codec, Compressor};
use crate::decoder::{Decoded, Decoder};
use crate::encoder::Encoder;
use crate::error::FrameError;
use crate::frame::View;
use crate::settings::Settings;
use crate::token::{Known, Reader, Token, Writer};

/// More than any frame stands for.
const TOKEN_BYTES_MAX: u64 = 1 << 40;

fn all(position: u64, bytes: &[u8]) -> Result<Vec<Token>, FrameError> {
    let mut reader = Reader::new(position, bytes);
    std::iter::from_fn(|| reader.next()).collect()
}

/// A position, then tokens: what can be read is written and read again, and is the same.
pub fn tokens(data: &[u8]) {
    let Some((head, bytes)) = data.split_first_chunk::<8>() else {
        return;
    };
    let position = u64::from_le_bytes(*head) >> 8;
    let Ok(read) = all(position, bytes) else {
        return;
    };
    let is_sane = |token: &Token| token.literals.max(token.known.bytes()) < TOKEN_BYTES_MAX;
    if !read.iter().all(is_sane) {
        return;
    }
    let mut writer = Writer::new(position, Vec::new());
    read.iter().for_each(|token| writer.push(*token));
    let written = writer.finish();
    assert!(written.len() <= bytes.len(), "longer than what was read");
    let again = all(position, &written).expect("what was written is read");
    assert_eq!(stretches(&again), stretches(&read));
}

/// What tokens do, stretch by stretch: those that go on are one.
fn stretches(tokens: &[Token]) -> Vec<(u64, u64, Known)> {
    let mut out: Vec<(u64, u64, Known)> = Vec::new();
    for token in tokens {
        let kind = match token.known {
            Known::Copy { .. } => 0,
            Known::Again { .. } => 1,
            Known::Run { .. } => 2,
        };
        let last = out.last_mut().filter(|_| token.literals == 0);
        match (last.map(|(_, kind, known)| (*kind, known)), token.known) {
            (
                Some((0, Known::Copy { source, bytes })),
                Known::Copy {
                    source: next,
                    bytes: more,
                },
            )
            | (
                Some((1, Known::Again { source, bytes })),
                Known::Again {
                    source: next,
                    bytes: more,
                },
            ) if *source + *bytes == next => *bytes += more,
            (
                Some((2, Known::Run { byte, bytes })),
                Known::Run {
                    byte: next,
                    bytes: more,
                },
            ) if *byte == next => *bytes += more,
            _ => out.push((token.literals, kind, token.known)),
        }
    }
    out
}

fn settings() -> Settings {
    Settings {
        hash_key: 77,
        frame_literal_bytes: 4096,
        ..Settings::of_memory(4 << 20)
    }
}

/// Frames of a short conversation with every kind of token, and what each stands for.
pub fn conversation() -> &'static [(Vec<u8>, Vec<u8>)] {
    static FRAMES: OnceLock<Vec<(Vec<u8>, Vec<u8>)>> = OnceLock::new();
    FRAMES.get_or_init(|| {
        let mut text: Vec<u8> = (0..9000u32).map(|at| (at * at / 7) as u8).collect();
        text.extend([7; 3000]);
        let mut edited = text.clone();
        edited.splice(4000..4003, *b"an insertion");
        edited[8500] ^= 1;
        let (mut encoder, mut compressor) = (Encoder::new(settings()), Compressor::new());
        let mut frames = Vec::new();
        for (input, codec) in [(text, Codec::Zstd(1)), (edited, Codec::Null)] {
            for part in input.chunks(3000) {
                encoder.encode(1, part);
                encoder.flush();
                let mut at = 0;
                while let Some(frame) = encoder.poll_frame() {
                    let mut bytes = Vec::new();
                    frame.seal(codec, &mut compressor, &mut bytes);
                    frames.push((bytes, part[at..at + frame.length].to_vec()));
                    at += frame.length;
                }
            }
        }
        frames
    })
}

/// A frame behind some true ones: what it releases has its hash, and what follows it is never wrong. As hardly any bytes have the
/// right hash, it is put right where they can be read otherwise.
pub fn frame(data: &[u8]) {
    let (last, before) = conversation().split_last().unwrap();
    let mut decoder = Decoder::new(settings());
    let mut output = Vec::new();
    for (frame, input) in before {
        output.clear();
        assert_eq!(decoder.decode(frame, &mut output), Ok(Decoded::Released));
        assert!(output == *input);
    }
    for frame in [Some(data.to_vec()), put_right(&mut decoder, data)] {
        let Some(frame) = frame else { continue };
        output.clear();
        if decoder.decode(&frame, &mut output) == Ok(Decoded::Released) {
            let view = View::read(&frame).unwrap();
            assert_eq!(output.len(), view.length);
            assert_eq!(hash(&output), view.hash);
        } else {
            assert!(output.is_empty());
        }
    }
    for (frame, input) in before.iter().rev().take(2).chain([last]) {
        output.clear();
        let decoded = decoder.decode(frame, &mut output);
        match decoded {
            Ok(Decoded::Released) => assert!(output == *input, "a wrong byte"),
            _ => assert!(output.is_empty()),
        }
    }
}

fn hash(bytes: &[u8]) -> u128 {
    xxhash3_128::Hasher::oneshot_with_seed(settings().hash_key, bytes)
}

/// The frame with the hash of what it stands for.
fn put_right(decoder: &mut Decoder, data: &[u8]) -> Option<Vec<u8>> {
    let made = decoder.made(data)?;
    let payload_bytes = View::read(data).ok()?.payload.len();
    let end = data.len() - payload_bytes;
    let mut frame = data.to_vec();
    frame[end - 16..end].copy_from_slice(&hash(&made).to_le_bytes());
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that can be repeated.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % end
        }

        /// One to four changes.
        fn change(&mut self, bytes: &mut Vec<u8>) {
            for _ in 0..=self.below(4) {
                let at = self.below(bytes.len().max(1));
                match self.below(5) {
                    0 if !bytes.is_empty() => bytes.truncate(at + 1),
                    1 => bytes.insert(at.min(bytes.len()), self.below(256) as u8),
                    2 if !bytes.is_empty() => drop(bytes.remove(at)),
                    _ if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                    _ => bytes.push(self.below(256) as u8),
                }
            }
        }
    }

    #[test]
    fn invariant_6_a_hundred_thousand_changed_tokens_are_read_or_refused() {
        let mut writer = Writer::new(1 << 20, Vec::new());
        for nth in 0..40u64 {
            let (source, bytes) = (nth * nth * 977, 1 + nth * 311 % 5000);
            let known = match nth % 3 {
                0 => Known::Copy { source, bytes },
                1 => Known::Again { source, bytes },
                _ => Known::Run {
                    byte: nth as u8,
                    bytes,
                },
            };
            writer.push(Token {
                literals: nth * 7 % 50,
                known,
            });
        }
        let position = (1u64 << 28).to_le_bytes();
        let right = [&position[..], &writer.finish()].concat();
        assert_eq!(all(1 << 20, &right[8..]).map(|tokens| tokens.len()), Ok(40));
        let mut dice = Dice(1);
        let mut read = 0;
        for _ in 0..100_000 {
            let mut changed = right.clone();
            dice.change(&mut changed);
            tokens(&changed);
            read += u32::from(changed.len() > 8 && all(1 << 20, &changed[8..]).is_ok());
        }
        println!("{read} of 100000 could be read");
        assert!((1000..99_000).contains(&read), "{read}");
    }

    #[test]
    fn invariant_6_changed_frames_with_the_right_hash_harm_nothing() {
        let mut dice = Dice(2);
        let frames = conversation();
        let mut decoder = Decoder::new(settings());
        let mut right = 0;
        for nth in 0..6000 {
            let mut changed = frames[nth % frames.len()].0.clone();
            dice.change(&mut changed);
            right += u32::from(decoder.made(&changed).is_some());
            frame(&changed);
        }
        println!("{right} of 6000 could be put right");
        assert!(right > 0);
    }
}
