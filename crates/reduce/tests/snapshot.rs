//! What small pairs cost on the wire: a change of a twentieth is a change somebody should see.
#![allow(clippy::unwrap_used)]

mod source;

use farhaul_reduce::{Codec, Compressor, Decoded, Decoder, Encoder, Settings};
use source::{Noise, noise, text};

/// Wire bytes of each of the inputs, sent one after the other.
fn wire_bytes(inputs: &[&[u8]]) -> Vec<usize> {
    let settings = Settings::of_memory(32 << 20);
    let (mut encoder, mut decoder) = (Encoder::new(settings), Decoder::new(settings));
    let mut compressor = Compressor::new();
    let mut costs = Vec::new();
    for (flow, input) in inputs.iter().enumerate() {
        let (mut cost, mut output) = (0, Vec::new());
        input
            .chunks(50_000)
            .for_each(|part| encoder.encode(flow as u64, part));
        encoder.flush();
        while let Some(frame) = encoder.poll_frame() {
            let mut bytes = Vec::new();
            frame.seal(Codec::Null, &mut compressor, &mut bytes);
            cost += bytes.len();
            assert_eq!(decoder.decode(&bytes, &mut output), Ok(Decoded::Released));
        }
        assert!(output == *input);
        encoder.handle_held(encoder.position());
        costs.push(cost);
    }
    costs
}

/// An edit every 20 kB or so: bytes changed, put in, taken out. Never at a boundary of anything.
fn edited(input: &[u8]) -> Vec<u8> {
    let mut noise = Noise::new(99);
    let mut output = Vec::new();
    let mut rest = input;
    while rest.len() > 50_000 {
        let (same, after) = rest.split_at(5000 + noise.below(30_001) as usize);
        output.extend_from_slice(same);
        match noise.below(3) {
            0 => output.extend_from_slice(b"something new"),
            1 => output.extend(after.iter().take(9).map(|byte| byte ^ 0x20)),
            _ => (),
        }
        rest = after.get(9..).unwrap_or_default();
    }
    output.extend_from_slice(rest);
    output
}

#[test]
fn wire_bytes_of_small_pairs() {
    let expected: [(&str, Vec<u8>, [usize; 3]); 3] = [
        ("text", text(1, 3_000_000), [3_000_352, 1839, 40]),
        ("noise", noise(1, 3_000_000), [3_000_352, 1839, 40]),
        (
            "image",
            [noise(2, 1_000_000), vec![0; 3_000_000], noise(3, 1_000_000)].concat(),
            [2_000_242, 2907, 76],
        ),
    ];
    let mut report = String::new();
    for (name, first, costs) in expected {
        let second = edited(&first);
        let seen = wire_bytes(&[&first, &second, &second]);
        for (nth, (seen_bytes, cost)) in seen.iter().zip(costs).enumerate() {
            let is_close = seen_bytes.abs_diff(cost) <= cost / 20;
            report += &if is_close {
                String::new()
            } else {
                format!("{name}, pass {nth}: {seen:?}, it was {costs:?}\n")
            };
        }
    }
    assert!(report.is_empty(), "\n{report}");
}
