//! A decoder that has not got what the encoder believes it has: frames of flows that were cut, and bytes that its store has lost.
#![allow(clippy::unwrap_used)]

use farhaul_reduce::*;

const MEMORY_BYTES: usize = 8 << 20;

struct Pair {
    encoder: Encoder,
    decoder: Decoder,
    compressor: Compressor,
}

/// A frame, and what it stands for.
struct Sent {
    place: LogPlace,
    frame: Vec<u8>,
    input: Vec<u8>,
}

impl Pair {
    fn new() -> Self {
        let settings = Settings::of_memory(MEMORY_BYTES);
        Self {
            encoder: Encoder::new(settings),
            decoder: Decoder::new(settings),
            compressor: Compressor::new(),
        }
    }

    /// One frame; `codec` is null, or the frame is compressed.
    fn encode(&mut self, flow: u64, input: &[u8], codec: Codec) -> Sent {
        self.encoder.encode(flow, input);
        self.encoder.flush();
        let plain = self.encoder.poll_frame().unwrap();
        assert_eq!(plain.length, input.len());
        assert!(self.encoder.poll_frame().is_none());
        let mut frame = Vec::new();
        plain.seal(codec, &mut self.compressor, &mut frame);
        Sent {
            place: plain.place.unwrap(),
            frame,
            input: input.to_vec(),
        }
    }

    /// `None` if it was released; else what is not there.
    fn decode(&mut self, sent: &Sent) -> Option<(u64, u64)> {
        let mut output = Vec::new();
        match self.decoder.decode(&sent.frame, &mut output).unwrap() {
            Decoded::Released => {
                assert!(output == sent.input);
                None
            }
            Decoded::Missing { position, bytes } => Some((position, bytes)),
            other => panic!("{other:?}"),
        }
    }

    /// What the encoder does when it hears that a frame could not be read.
    fn tell_missing(&mut self, sent: &Sent, absent: (u64, u64)) {
        let frame = (sent.place.position, sent.input.len() as u64);
        self.encoder.handle_missing(frame, absent);
    }

    /// An encoder that believes the other end to have this, which it has not.
    fn believe(&mut self, input: &[u8]) {
        self.encode(1, input, Codec::Null);
        self.encoder.handle_held(self.encoder.position());
    }
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// Flows that are cut before any of their frames arrive take addresses all the same.
#[test]
fn a_frame_is_read_however_much_before_it_was_sent_to_nobody() {
    let mut pair = Pair::new();
    let first = pair.encode(1, b"what comes first, and once more later", Codec::Null);
    assert_eq!(pair.decode(&first), None);
    for nth in 0..3 * (MEMORY_BYTES >> 18) as u64 {
        let cut = pair.encode(2 + nth, &noise(nth, 1 << 18), Codec::Null);
        pair.encoder.forget(cut.place.position, 1 << 18);
        pair.encoder.handle_held(pair.encoder.position());
    }
    for nth in 0..3 {
        let sent = pair.encode(1000, &noise(1000, 5000), Codec::Null);
        assert_eq!(pair.decode(&sent), None, "{nth}");
        pair.encoder.handle_held(pair.encoder.position());
        assert_eq!(sent.frame.len() < 100, nth > 0, "and it is remembered");
    }
}

/// Each frame says it once more, and the frames under way when the first is missed refer to it by then.
#[test]
fn what_is_missing_is_said_anew_although_it_was_repeated_meanwhile() {
    let mut pair = Pair::new();
    let lost = noise(1, 3000);
    pair.believe(&lost);
    let block = |nth: u64| [noise(100 + nth, 20_000), lost.clone()].concat();
    let under_way: Vec<Sent> = (0..4)
        .map(|nth| pair.encode(5, &block(nth), Codec::Null))
        .collect();
    let absent = pair.decode(&under_way[0]).unwrap();
    pair.tell_missing(&under_way[0], absent);
    let next = pair.encode(5, &block(9), Codec::Null);
    assert!(next.frame.len() > next.input.len(), "{}", next.frame.len());
    assert_eq!(pair.decode(&next), None);
    pair.encoder.handle_held(pair.encoder.position());
    let after = pair.encode(5, &block(9), Codec::Null);
    assert!(after.frame.len() < 100, "{}", after.frame.len());
    assert_eq!(pair.decode(&after), None);
}

#[test]
fn what_is_new_in_a_frame_that_was_said_once_more_is_there_for_the_frames_after_it() {
    for codec in [Codec::Null, Codec::Zstd(3)] {
        let mut pair = Pair::new();
        let lost = noise(1, 3000);
        pair.believe(&lost);
        let new = noise(2, 20_000);
        let first = pair.encode(5, &[&lost[..], &new].concat(), codec);
        let second = pair.encode(5, &new, codec);
        assert!(second.frame.len() < 100);
        assert!(pair.decode(&first).is_some() && pair.decode(&second).is_some());
        assert_eq!(pair.decoder.learn(&first.frame, &new), Ok(false));
        assert_eq!(pair.decoder.learn(&first.frame, &first.input), Ok(true));
        assert_eq!(pair.decode(&second), None);
    }
}

#[test]
fn nothing_is_learned_of_frames_whose_tokens_stand_for_something_else() {
    let mut pair = Pair::new();
    pair.believe(&noise(1, 3000));
    let sent = pair.encode(5, &[noise(1, 3000), noise(2, 500)].concat(), Codec::Null);
    let mut learned = 0;
    for at in 0..sent.frame.len() {
        for bit in 0..8 {
            let mut mutant = sent.frame.clone();
            mutant[at] ^= 1 << bit;
            let mut decoder = Decoder::new(Settings::of_memory(MEMORY_BYTES));
            learned += usize::from(decoder.learn(&mutant, &sent.input) == Ok(true));
        }
    }
    // Those whose literals or places are others; what they take is told by the hash of whatever refers to it.
    assert!(learned < sent.frame.len() * 8, "{learned}");
}
