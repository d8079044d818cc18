//! Invariant 10: wire bytes change only with a protocol version and golden bytes.
#![allow(clippy::unwrap_used)]

use farhaul_reduce::{Codec, Compressor, Decoded, Decoder, Encoder, Settings};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 400 bytes without repetition.
fn text() -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(&mut next).take(400).collect()
}

fn frames() -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(Settings {
        hash_key: 9,
        ..Settings::of_memory(4 << 20)
    });
    let mut input = text();
    encoder.encode(1, b"hello");
    encoder.flush();
    encoder.encode(1, &input);
    encoder.flush();
    input.extend([0; 3000]);
    encoder.encode(1, &input);
    encoder.flush();
    encoder.encode(1, &b"words and words and words and words, ".repeat(3));
    encoder.flush();
    encoder.encode(1, &input);
    encoder.flush();
    let mut compressor = Compressor::new();
    let mut sealed = Vec::new();
    while let Some(frame) = encoder.poll_frame() {
        let mut bytes = Vec::new();
        frame.seal(Codec::Zstd(3), &mut compressor, &mut bytes);
        sealed.push(bytes);
    }
    sealed
}

#[test]
fn invariant_10_frames_have_these_bytes() {
    let frames = frames();
    let raw = "04050000059e446b36eeed435623f82f8eeb8392f068656c6c6f";
    assert_eq!(hex(&frames[0]), raw);
    // 400 bytes from 400 before, kept again, then 3000 zeros.
    let tokens = "06c81a950395030909d5b4b7b1d1470565d6aa733e5a167de500c20c9f0600e15d00";
    assert_eq!(hex(&frames[2]), tokens);
    // 3400 bytes from 3511 before.
    let copy = "06c81acc1e94070505d5b4b7b1d1470565d6aa733e5a167de500a06aed36";
    assert_eq!(hex(&frames[4]), copy);
}

/// What zstd makes of a payload may change with its version; that it is read may not.
#[test]
fn invariant_10_this_compressed_frame_is_read() {
    let frame = "056fdd1d95036f21c8b1c29af8642cb3e70e2b691f7caaca28b52ffd0000c5000058776f7264732061\
        6e64202c0400902a0060f069df2e0509";
    let digits: Vec<u8> = frame
        .bytes()
        .filter(|byte| byte.is_ascii_hexdigit())
        .collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
    let mut decoder = Decoder::new(Settings {
        hash_key: 9,
        ..Settings::of_memory(4 << 20)
    });
    let mut output = Vec::new();
    assert_eq!(decoder.decode(&bytes, &mut output), Ok(Decoded::Released));
    assert_eq!(output, b"words and words and words and words, ".repeat(3));
}

#[test]
fn golden_frames_are_read() {
    let mut decoder = Decoder::new(Settings {
        hash_key: 9,
        ..Settings::of_memory(4 << 20)
    });
    let mut output = Vec::new();
    for frame in frames() {
        assert_eq!(decoder.decode(&frame, &mut output), Ok(Decoded::Released));
    }
    assert_eq!(output.len(), 5 + 400 + 3400 + 111 + 3400);
    let mut other = Decoder::new(Settings {
        hash_key: 8,
        ..Settings::of_memory(4 << 20)
    });
    let first = &frames()[0];
    assert_eq!(
        other.decode(first, &mut output),
        Ok(Decoded::Mismatched),
        "another key"
    );
}
