//! What small pairs cost on the wire: a change of a twentieth is a change somebody should see.
#![allow(clippy::unwrap_used)]

mod source;

use farhaul_reduce::{Codec, Compressor, Decoded, Decoder, Encoder, Settings};
use source::{Noise, dump, log, noise, text};

/// Wire bytes of each of the inputs, sent one after the other.
fn wire_bytes(codec: Codec, inputs: &[&[u8]]) -> Vec<usize> {
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
            frame.seal(codec, &mut compressor, &mut bytes);
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

/// Two versions, and what the first, the second and the second once more cost.
struct Case {
    name: &'static str,
    codec: Codec,
    versions: [Vec<u8>; 2],
    costs: [usize; 3],
}

fn cases() -> Vec<Case> {
    let case = |name, codec, versions, costs| Case {
        name,
        codec,
        versions,
        costs,
    };
    let with_edits = |first: Vec<u8>| {
        let second = edited(&first);
        [first, second]
    };
    let image = [noise(2, 1_000_000), vec![0; 3_000_000], noise(3, 1_000_000)].concat();
    // A fortieth is rotated away, and as much has come.
    let logs = || [log(0, 3_000_000), log(600, 3_000_000)];
    let dumps = || [dump(0, 3_000_000), dump(77, 3_000_000)];
    let (null, zstd) = (Codec::Null, Codec::Zstd(3));
    vec![
        case(
            "noise",
            null,
            with_edits(noise(1, 3_000_000)),
            [3_000_352, 1839, 40],
        ),
        case("image", null, with_edits(image), [2_000_242, 2907, 76]),
        case(
            "text",
            zstd,
            with_edits(text(1, 3_000_000)),
            [989_035, 1004, 40],
        ),
        case("logs", null, logs(), [3_000_352, 69_484, 40]),
        case("logs", zstd, logs(), [645_421, 14_855, 40]),
        case("dump", null, dumps(), [3_000_352, 29_394, 40]),
        case("dump", zstd, dumps(), [750_160, 14_176, 40]),
    ]
}

#[test]
fn wire_bytes_of_small_pairs() {
    let mut report = String::new();
    for case in cases() {
        let [first, second] = &case.versions;
        let seen = wire_bytes(case.codec, &[first, second, second]);
        let is_close = |(seen, cost): (&usize, usize)| seen.abs_diff(cost) <= cost / 20;
        if !seen.iter().zip(case.costs).all(is_close) {
            report += &format!(
                "{} {:?}: {seen:?}, it was {:?}\n",
                case.name, case.codec, case.costs
            );
        }
    }
    assert!(report.is_empty(), "\n{report}");
}
