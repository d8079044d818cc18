//! Segments that are copied out of one pair's logs and put into the next one's: what passed before is known again.
#![allow(clippy::unwrap_used)]

use farhaul_reduce::*;

const MEMORY_BYTES: usize = 8 << 20;

struct Pair {
    encoder: Encoder,
    decoder: Decoder,
    compressor: Compressor,
}

impl Pair {
    /// With room for so many segments of an earlier one.
    fn new(reserved: u64) -> Self {
        let settings = Settings::of_memory(MEMORY_BYTES);
        let mut pair = Self {
            encoder: Encoder::new(settings),
            decoder: Decoder::new(settings),
            compressor: Compressor::new(),
        };
        for mut segments in [pair.encoder.segments(), pair.decoder.segments()] {
            segments.reserve(reserved);
            segments.watch();
        }
        pair.encoder.handle_held(pair.encoder.position());
        pair
    }

    fn send(&mut self, flow: u64, input: &[u8]) -> usize {
        self.encoder.encode(flow, input);
        self.encoder.flush();
        let (mut out, mut wire) = (Vec::new(), 0);
        while let Some(frame) = self.encoder.poll_frame() {
            let mut bytes = Vec::new();
            frame.seal(Codec::Null, &mut self.compressor, &mut bytes);
            wire += bytes.len();
            assert_eq!(self.decoder.decode(&bytes, &mut out), Ok(Decoded::Released));
        }
        assert!(out == input);
        self.encoder.handle_held(self.encoder.position());
        wire
    }

    fn changed(&mut self) -> [Vec<(Vec<u8>, BlockLengths)>; 2] {
        [self.encoder.segments(), self.decoder.segments()].map(|mut segments| {
            let mut changed = segments.take_changed();
            changed.sort_unstable();
            let copied = changed.into_iter().map(|number| {
                let mut bytes = Vec::new();
                let lengths = segments.copy(number, &mut bytes).unwrap();
                (bytes, lengths)
            });
            copied.collect()
        })
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

fn valid(segment: &(Vec<u8>, BlockLengths)) -> Vec<&[u8]> {
    let blocks = segment.0.chunks(BLOCK_BYTES).zip(segment.1);
    blocks
        .map(|(block, length)| &block[..length as usize])
        .collect()
}

#[test]
fn both_ends_have_the_same_segments_and_a_new_pair_knows_them() {
    let mut first = Pair::new(0);
    let mut data = noise(1, 3_000_000);
    data.splice(2_000_000..2_000_000, vec![0; 300_000]);
    first.send(1, &data);
    // Matches that reach back into literals: what was taken back is not there.
    for cut in [0, 777, 99_999] {
        let mut edited = data[cut..cut + 50_000].to_vec();
        edited.splice(0..0, noise(cut as u64, 3000));
        first.send(2, &edited);
    }
    let [sent, received] = first.changed();
    assert_eq!(sent.len(), received.len());
    for (sent, received) in sent.iter().zip(&received) {
        assert_eq!(sent.1, received.1);
        assert!(valid(sent) == valid(received));
    }
    assert!(first.changed().iter().all(Vec::is_empty), "told once");

    let mut second = Pair::new(sent.len() as u64);
    assert_eq!(second.encoder.position(), (sent.len() << 20) as u64);
    // The newest first, as an owner would read them.
    for (number, (sent, received)) in sent.iter().zip(&received).enumerate().rev() {
        second.decoder.seed(number as u64, &received.0, &received.1);
        second.encoder.seed(number as u64, &sent.0, &sent.1);
    }
    let wire = second.send(1, &data);
    assert!(wire < 500, "{wire}");
    let fresh = noise(9, 100_000);
    assert!(second.send(2, &fresh) > 100_000);
    assert!(second.send(3, &fresh) < 100);
    let [sent, _] = second.changed();
    assert_eq!(sent.len(), 1, "what was put in is not news");
}

#[test]
fn what_is_not_put_in_yet_is_new() {
    let mut first = Pair::new(0);
    let data = noise(2, 2 << 20);
    first.send(1, &data);
    let [sent, received] = first.changed();
    let mut second = Pair::new(2);
    second.decoder.seed(1, &received[1].0, &received[1].1);
    second.encoder.seed(1, &sent[1].0, &sent[1].1);
    let wire = second.send(1, &data);
    assert!((1 << 20..(1 << 20) + 100_000).contains(&wire), "{wire}");
    // Later than what passed in the meantime, and of no use: it is found there.
    second.decoder.seed(0, &received[0].0, &received[0].1);
    second.encoder.seed(0, &sent[0].0, &sent[0].1);
    assert!(second.send(2, &data) < 100);
}

#[test]
fn a_full_memory_takes_no_more_and_says_nothing_wrong() {
    let mut pair = Pair::new(2);
    let data = noise(3, 20 << 20);
    for part in data.chunks(1 << 20) {
        pair.send(1, part);
    }
    let stale = (
        vec![7u8; SEGMENT_BYTES],
        [BLOCK_BYTES as u32; SEGMENT_BLOCKS],
    );
    pair.encoder.seed(0, &stale.0, &stale.1);
    pair.decoder.seed(1, &stale.0, &stale.1);
    pair.send(2, &data[19 << 20..]);
    pair.send(3, &noise(4, 100_000));
}

#[test]
fn segments_of_odd_sizes_are_refused() {
    let mut pair = Pair::new(1);
    pair.encoder.seed(0, &[1, 2, 3], &[9; SEGMENT_BLOCKS]);
    pair.decoder
        .seed(5, &vec![0; SEGMENT_BYTES], &[u32::MAX; SEGMENT_BLOCKS]);
    pair.decoder
        .seed(0, &vec![0; SEGMENT_BYTES], &[u32::MAX; SEGMENT_BLOCKS]);
    pair.send(1, &noise(5, 200_000));
}
