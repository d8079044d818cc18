//! Frames without their literals, for a decoder whose owner has the bytes already: the logs of both ends are the same afterwards, and a
//! copy that is none is found out.
#![allow(clippy::unwrap_used)]

mod source;

use farhaul_reduce::{Codec, Compressor, Decoded, Decoder, Encoder, FrameError, Plain, Settings};
use source::{Noise, noise, text};

fn settings() -> Settings {
    Settings {
        hash_key: 9,
        frame_literal_bytes: 8192,
        ..Settings::of_memory(8 << 20)
    }
}

/// Frames of bytes with literals, runs and references, and what each stands for.
fn frames(encoder: &mut Encoder, flow: u64, input: &[u8]) -> Vec<(Plain, Vec<u8>)> {
    encoder.encode(flow, input);
    encoder.flush();
    let mut rest = input;
    let frames = std::iter::from_fn(|| encoder.poll_frame()).map(|frame| {
        let (part, after) = rest.split_at(frame.length);
        rest = after;
        (frame, part.to_vec())
    });
    frames.collect()
}

fn bare(frame: &Plain) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.seal_bare(&mut bytes);
    bytes
}

/// Something of every kind, and an edited version.
fn versions() -> [Vec<u8>; 2] {
    let first = [text(1, 60_000), vec![0; 9000], noise(1, 90_000)].concat();
    let mut second = first.clone();
    second.splice(40_000..40_003, *b"an insertion");
    second[100_000] ^= 1;
    [first, second]
}

#[test]
fn both_logs_are_the_same_afterwards() {
    let (mut encoder, mut decoder) = (Encoder::new(settings()), Decoder::new(settings()));
    let mut wire_bytes = 0;
    for (flow, input) in versions().iter().enumerate() {
        for (frame, copy) in frames(&mut encoder, flow as u64, input) {
            let (bytes, mut output) = (bare(&frame), Vec::new());
            wire_bytes += bytes.len();
            let decoded = decoder.decode_bare(&bytes, &copy, &mut output);
            assert_eq!(decoded, Ok(Decoded::Released));
            assert!(output == copy);
        }
        encoder.handle_held(encoder.position());
    }
    assert!(wire_bytes < 3000, "{wire_bytes}");
    // What comes now refers to it.
    let mut again_bytes = 0;
    for (frame, part) in frames(&mut encoder, 5, &versions()[1]) {
        let (mut bytes, mut output) = (Vec::new(), Vec::new());
        frame.seal(Codec::Null, &mut Compressor::new(), &mut bytes);
        again_bytes += bytes.len();
        let decoded = decoder.decode(&bytes, &mut output);
        assert_eq!(decoded, Ok(Decoded::Released));
        assert!(output == part);
    }
    assert!(again_bytes < 200, "{again_bytes}");
}

#[test]
fn a_copy_that_is_none_is_found_out() {
    let mut encoder = Encoder::new(settings());
    let mut decoder = Decoder::new(settings());
    let [first, _] = versions();
    for (frame, copy) in frames(&mut encoder, 1, &first) {
        let (bytes, mut output) = (bare(&frame), Vec::new());
        let mut other = copy.clone();
        other[copy.len() / 2] ^= 1;
        for wrong in [&other[..], &copy[1..], &[]] {
            let decoded = decoder.decode_bare(&bytes, wrong, &mut output);
            // A run or a reference does not look at the copy.
            let is_right = decoded == Ok(Decoded::Released) && output == copy;
            assert!(is_right || decoded == Ok(Decoded::Mismatched) && output.is_empty());
            output.clear();
        }
        // One takes it for what it is not.
        assert_eq!(decoder.decode(&bytes, &mut output), Err(FrameError::Length));
        let mut whole = Vec::new();
        frame.seal(Codec::Null, &mut Compressor::new(), &mut whole);
        let decoded = decoder.decode_bare(&whole, &copy, &mut output);
        assert_eq!(decoded, Err(FrameError::Length));
        let decoded = decoder.decode_bare(&bytes, &copy, &mut output);
        assert_eq!(decoded, Ok(Decoded::Released));
    }
}

#[test]
fn invariant_6_changed_bare_frames_release_no_wrong_byte() {
    let mut dice = Noise::new(4);
    let mut encoder = Encoder::new(settings());
    let all: Vec<_> = versions()
        .iter()
        .enumerate()
        .flat_map(|(flow, input)| frames(&mut encoder, flow as u64, input))
        .collect();
    let mut released = 0;
    for _ in 0..40 {
        let mut decoder = Decoder::new(settings());
        for (frame, copy) in &all {
            for _ in 0..20 {
                let mut bytes = bare(frame);
                let at = dice.below(bytes.len() as u64) as usize;
                match dice.below(3) {
                    0 => bytes.truncate(at),
                    1 => bytes.insert(at, dice.next() as u8),
                    _ => bytes[at] ^= 1 << dice.below(8),
                }
                let mut output = Vec::new();
                match decoder.decode_bare(&bytes, copy, &mut output) {
                    Ok(Decoded::Released) => {
                        assert!(output == *copy);
                        released += 1;
                    }
                    _ => assert!(output.is_empty()),
                }
            }
            let mut output = Vec::new();
            let decoded = decoder.decode_bare(&bare(frame), copy, &mut output);
            assert!(output.is_empty() || output == *copy, "{decoded:?}");
        }
    }
    println!("{released} changed frames stood for the same");
}

#[test]
fn invariant_10_a_bare_frame_has_these_bytes() {
    let mut encoder = Encoder::new(settings());
    let all = frames(&mut encoder, 1, b"hello");
    let hex: String = bare(&all[0].0)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(hex, "0c050000009e446b36eeed435623f82f8eeb8392f0");
}
