//! Bytes to send, the same on every machine.
#![allow(dead_code, missing_docs)]

/// Numbers that look random (splitmix64).
pub struct Noise(u64);

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// One change, anywhere.
pub fn damage(noise: &mut Noise, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = noise.below(bytes.len() as u64) as usize;
    match noise.below(4) {
        0 => drop(bytes.remove(at)),
        1 => bytes.insert(at, noise.next() as u8),
        2 => bytes[at] = 0xff,
        _ => bytes[at] ^= 1 << noise.below(8),
    }
}

pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = Noise::new(seed);
    let words = std::iter::repeat_with(|| noise.next().to_le_bytes());
    words
        .take(bytes.div_ceil(8))
        .flatten()
        .take(bytes)
        .collect()
}
