//! Bytes that go back the way they came: found in the copy of the other end's log, and really there in that log.
#![allow(clippy::unwrap_used)]

mod source;

use farhaul_reduce::{Codec, Compressor, Decoded, Decoder, Echo, Encoder, Settings};
use proptest::prelude::*;
use source::{noise, text};

/// Both ends of one direction.
struct Ends {
    encoder: Encoder,
    decoder: Decoder,
}

impl Ends {
    fn new(memory_bytes: usize, echo_bytes: usize) -> Self {
        let settings = Settings {
            hash_key: 9,
            echo_bytes,
            ..Settings::of_memory(memory_bytes)
        };
        Self {
            encoder: Encoder::new(settings),
            decoder: Decoder::new(settings),
        }
    }

    fn send(&mut self, flow: u64, input: &[u8]) {
        self.encoder.encode(flow, input);
        self.encoder.flush();
        while let Some(frame) = self.encoder.poll_frame() {
            let (mut bytes, mut output) = (Vec::new(), Vec::new());
            frame.seal(Codec::Null, &mut Compressor::new(), &mut bytes);
            let decoded = self.decoder.decode(&bytes, &mut output);
            assert_eq!(decoded, Ok(Decoded::Released));
        }
        self.encoder.handle_held(self.encoder.position());
    }

    /// What is found of bytes that go back; all of it must be where it is said to be.
    fn found(&self, input: &[u8]) -> Vec<Echo> {
        let found = self.decoder.echoes(input);
        let mut done = 0;
        for echo in &found {
            assert!(echo.at >= done, "{found:?}");
            done = echo.at + echo.bytes;
            let said = self.encoder.said(echo.position, echo.bytes as u64);
            assert_eq!(said.as_deref(), Some(&input[echo.at..done]));
        }
        found
    }

    fn found_bytes(&self, input: &[u8]) -> usize {
        self.found(input).iter().map(|echo| echo.bytes).sum()
    }
}

#[test]
fn what_was_received_is_found_when_it_is_sent_back() {
    let mut ends = Ends::new(8 << 20, 128 << 10);
    let document = [text(1, 300_000), vec![0; 9000], noise(1, 300_000)].concat();
    ends.send(1, &document);
    let whole = ends.found(&document);
    assert_eq!(
        whole.iter().map(|echo| echo.bytes).sum::<usize>(),
        document.len()
    );
    // In blocks of another length, and with something before and behind it.
    for block in document.chunks(16_384) {
        assert_eq!(ends.found_bytes(block), block.len());
    }
    let framed = [noise(2, 100), document.clone(), noise(3, 100)].concat();
    let found_bytes = ends.found_bytes(&framed);
    assert!((document.len()..document.len() + 8).contains(&found_bytes));
    // And edited.
    let mut edited = document.clone();
    edited.splice(200_000..200_003, *b"an insertion");
    assert!(ends.found_bytes(&edited) > document.len() - 2000);
}

#[test]
fn what_came_by_reference_is_found_where_it_was_new() {
    let mut ends = Ends::new(8 << 20, 128 << 10);
    let document = noise(4, 200_000);
    ends.send(1, &document);
    ends.send(2, &[noise(5, 5000), document.clone()].concat());
    assert_eq!(ends.found_bytes(&document), document.len());
}

#[test]
fn nothing_is_found_of_what_never_came_or_where_nobody_asks() {
    let mut ends = Ends::new(8 << 20, 128 << 10);
    ends.send(1, &noise(6, 200_000));
    assert_eq!(ends.found(&noise(7, 200_000)), []);
    assert_eq!(ends.found(&[]), []);
    let mut silent = Ends::new(8 << 20, 0);
    silent.send(1, &noise(6, 200_000));
    assert_eq!(silent.found(&noise(6, 200_000)), []);
}

/// Both ends forget the oldest, at about the same time: what is still found at one is as a rule still at the other.
#[test]
fn invariant_5_what_left_the_memory_is_not_found() {
    let mut ends = Ends::new(4 << 20, 64 << 10);
    let first = noise(8, 300_000);
    ends.send(1, &first);
    for nth in 0..8 {
        ends.send(2, &noise(10 + nth, 1 << 20));
    }
    assert_eq!(ends.found(&first), []);
    assert_eq!(ends.encoder.said(0, 1000), None);
    assert_eq!(ends.encoder.said(u64::MAX, 1), None);
}

proptest! {
    #[test]
    fn whatever_is_found_is_there(
        pieces in proptest::collection::vec((0usize..6, 0usize..40_000, 1usize..30_000), 1..8),
        edits in proptest::collection::vec((0usize..100_000, any::<u8>()), 0..20),
    ) {
        let sources: Vec<Vec<u8>> = (0..6).map(|seed| match seed % 3 {
            0 => noise(seed, 60_000),
            1 => text(seed, 60_000),
            _ => vec![seed as u8; 60_000],
        }).collect();
        let mut ends = Ends::new(4 << 20, 64 << 10);
        for (flow, source) in sources.iter().take(4).enumerate() {
            ends.send(flow as u64, source);
        }
        let mut input: Vec<u8> = pieces
            .iter()
            .flat_map(|(source, from, bytes)| sources[*source][*from..(*from + *bytes).min(60_000)].to_vec())
            .collect();
        let length = input.len();
        for (at, byte) in edits {
            input[at % length] = byte;
        }
        ends.found(&input);
    }
}
