//! Content-defined chunks for comparison: FastCDC (Xia et al. 2016), normalised, 2 to 64 KiB, 8 KiB on average.

use std::collections::HashSet;

use farhaul_reduce::Codec;

use crate::passes::compress;

const BYTES_MIN: usize = 2 << 10;
const BYTES_NORMAL: usize = 8 << 10;
const BYTES_MAX: usize = 64 << 10;
/// Two bits harder before the normal size, two easier after it.
const MASK_BEFORE: u64 = 0x0000_D930_0353_7000;
const MASK_AFTER: u64 = 0x0000_D900_0353_0000;
/// What a chunk that is known costs: a hash that names it.
const REFERENCE_BYTES: usize = 20;

/// What is known, by the hash of the chunk.
#[derive(Default)]
pub struct Chunks {
    known: HashSet<u128>,
}

impl Chunks {
    /// Passes `input` and returns what it costs on the wire and how many bytes of it were new.
    pub fn pass(&mut self, input: &[u8], codec: Codec) -> (u64, u64) {
        let gear = gear();
        let (mut new, mut wire, mut start) = (Vec::new(), 0, 0);
        while start < input.len() {
            let chunk = &input[start..start + cut(&gear, &input[start..])];
            start += chunk.len();
            wire += REFERENCE_BYTES as u64;
            if self.known.insert(twox_hash::XxHash3_128::oneshot(chunk)) {
                new.extend_from_slice(chunk);
            }
        }
        wire += compress(&new, codec).0 as u64;
        (wire, new.len() as u64)
    }
}

fn cut(gear: &[u64; 256], input: &[u8]) -> usize {
    let mut hash = 0u64;
    let max = input.len().min(BYTES_MAX);
    for (at, &byte) in input[..max].iter().enumerate().skip(BYTES_MIN) {
        hash = (hash << 1).wrapping_add(gear[usize::from(byte)]);
        let mask = if at < BYTES_NORMAL {
            MASK_BEFORE
        } else {
            MASK_AFTER
        };
        if hash & mask == 0 {
            return at + 1;
        }
    }
    max
}

fn gear() -> [u64; 256] {
    let mut noise = crate::source::Noise::new(256);
    std::array::from_fn(|_| noise.next())
}
