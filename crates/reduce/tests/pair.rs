//! An encoder and a decoder that hear everything the other says.
#![allow(clippy::unwrap_used)]

use farhaul_reduce::*;
use proptest::prelude::*;

struct Pair {
    encoder: Encoder,
    decoder: Decoder,
    compressor: Compressor,
    wire: usize,
}

impl Pair {
    fn new() -> Self {
        Self::of_memory(16 << 20)
    }

    fn of_memory(bytes: usize) -> Self {
        let settings = Settings::of_memory(bytes);
        Self {
            encoder: Encoder::new(settings),
            decoder: Decoder::new(settings),
            compressor: Compressor::new(),
            wire: 0,
        }
    }
    fn send(&mut self, flow: u64, input: &[u8], chunk: usize, codec: Codec) -> usize {
        let before = self.wire;
        let mut out = Vec::new();
        for part in input.chunks(chunk) {
            self.encoder.encode(flow, part);
        }
        self.encoder.flush();
        while let Some(frame) = self.encoder.poll_frame() {
            let mut bytes = Vec::new();
            frame.seal(codec, &mut self.compressor, &mut bytes);
            self.encoder.recycle(frame);
            self.wire += bytes.len();
            assert_eq!(self.decoder.decode(&bytes, &mut out), Ok(Decoded::Released));
        }
        assert!(out == input);
        self.encoder.handle_held(self.encoder.position());
        self.wire - before
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut s = seed;
    (0..len)
        .map(|_| {
            s = s
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (s >> 56) as u8
        })
        .collect()
}

#[test]
fn second_pass_costs_little() {
    let mut pair = Pair::new();
    let mut data = noise(1, 3_000_000);
    data[1_000_000..1_500_000].fill(0);
    assert!(pair.send(1, &data, 65536, Codec::Null) < 2_510_000);
    let again = pair.send(2, &data, 65536, Codec::Null);
    assert!(again < 200, "{again}");
    data.splice(100_001..100_003, *b"hello");
    data[700_000] ^= 1;
    let edited = pair.send(3, &data, 10_000, Codec::Null);
    assert!(edited < 1500, "{edited}");
    let again = pair.send(4, &data, 1 << 20, Codec::Zstd(1));
    assert!(again < 300, "{again}");
}

/// Words in an order of their own: no noise, and hardly two long stretches alike.
fn text(seed: u64, words: usize) -> Vec<u8> {
    let of_word = |byte: u8| format!("{:x} word{} ", byte, usize::from(byte) * 7919);
    noise(seed, words)
        .into_iter()
        .flat_map(|byte| of_word(byte).into_bytes())
        .collect()
}

#[test]
fn what_was_remembered_by_many_samples_is_found_by_few_and_the_reverse() {
    for (first, second) in [
        (Sampling::Dense, Sampling::Sparse),
        (Sampling::Sparse, Sampling::Dense),
    ] {
        let mut pair = Pair::new();
        let mut data = text(9, 100_000);
        pair.encoder.set_sampling(first);
        pair.send(1, &data, 65536, Codec::Null);
        pair.encoder.set_sampling(second);
        data.splice(300_001..300_003, *b"hello");
        data.rotate_left(500_000);
        let edited = pair.send(2, &data, 10_000, Codec::Null);
        assert!(edited < 3000, "{first:?}, {second:?}: {edited}");
    }
}

#[test]
fn what_comes_twice_in_one_block_is_found_both_times() {
    let mut pair = Pair::new();
    let (known, new) = (noise(5, 600), noise(6, 200));
    pair.send(1, &known, 65536, Codec::Null);
    let twice = [&known[..], &new, &known].concat();
    let wire = pair.send(2, &twice, 65536, Codec::Null);
    assert!(wire < new.len() + 100, "{wire}");
}

proptest! {
    #[test]
    fn anything_comes_back(parts in proptest::collection::vec((0u64..3, 0usize..40_000, 1usize..9000, 1usize..50_000, 0u8..5), 1..40)) {
        let mut pair = Pair::new();
        let base = noise(2, 60_000);
        let zeros = vec![0u8; 60_000];
        let periodic: Vec<u8> = (0..60_000).map(|at| (at % 777 % 256) as u8).collect();
        for (flow, start, len, chunk, kind) in parts {
            let source = match kind { 0 => &zeros, 1 => &periodic, _ => &base };
            let mut data = source[start..start + len].to_vec();
            if kind == 2 { data[len / 2] ^= 55; }
            pair.send(flow, &data, chunk, if kind == 3 { Codec::Zstd(3) } else { Codec::Null });
        }
    }
}

/// Zeros as a protocol carries them: in messages of any length, each with a header that says where its bytes belong.
fn zeros_in_messages(bytes: usize) -> Vec<u8> {
    let mut stream = Vec::with_capacity(bytes + (64 << 10));
    let lengths = noise(3, bytes / 1000 + 64);
    let mut offset = 0u64;
    for length in lengths {
        let length = 1448 * (1 + u32::from(length) % 45);
        stream.extend_from_slice(&[2]);
        stream.extend_from_slice(&(length + 13).to_be_bytes());
        stream.extend_from_slice(&[3, 0, 0, 0, 1]);
        stream.extend_from_slice(&offset.to_be_bytes());
        stream.resize(stream.len() + length as usize, 0);
        offset += u64::from(length);
        if stream.len() >= bytes {
            break;
        }
    }
    stream
}

#[test]
fn what_is_repeated_in_pieces_does_not_shred_the_log() {
    let mut pair = Pair::of_memory(128 << 20);
    let data = noise(7, 1_000_000);
    pair.send(1, &data, 65536, Codec::Null);
    let messages = zeros_in_messages(60_000_000);
    let wire = pair.send(2, &messages, 450_000, Codec::Null);
    assert!(wire < messages.len() / 400, "{wire}");
    let extents = pair.encoder.stats().extents as usize;
    assert!(extents < messages.len() / 256, "{extents}");
    // So what was there before is still known.
    let again = pair.send(3, &data, 65536, Codec::Null);
    assert!(again < 200, "{again}");
}

/// One frame that nobody reads holds back what is held. Behind it, small frames are read for hours.
#[test]
fn invariant_5_frames_that_were_read_or_given_up_leave_nothing_behind() {
    let mut encoder = Encoder::new(Settings::of_memory(16 << 20));
    let send = |encoder: &mut Encoder, flow: u64, input: &[u8]| {
        let position = encoder.position();
        encoder.encode(flow, input);
        encoder.flush();
        while let Some(frame) = encoder.poll_frame() {
            encoder.recycle(frame);
        }
        (position, encoder.position() - position)
    };
    let first = send(&mut encoder, 1, &noise(1, 1000));
    for nth in 0..20_000 {
        let (position, bytes) = send(&mut encoder, 2, &noise(nth, 100));
        match nth % 2 {
            0 => encoder.handle_read(position, bytes),
            _ => encoder.forget(position, bytes),
        }
    }
    assert_eq!(encoder.stats().unheld_frames, 1);
    assert!(encoder.has_room());
    let second = send(&mut encoder, 3, &noise(1, 1000));
    assert_eq!(encoder.stats().unheld_frames, 2);
    encoder.handle_read(first.0, first.1);
    encoder.handle_held(second.0);
    assert_eq!(encoder.stats().unheld_frames, 1);
    encoder.handle_held(encoder.position());
    assert_eq!(encoder.stats().unheld_frames, 0);
}
