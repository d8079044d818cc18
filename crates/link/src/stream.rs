//! Random sub-streams: one generator per impairment, all from one seed.
//!
//! Each impairment draws a fixed number of times for every packet that
//! reaches the wire, whatever the others decide. Switching one on or off
//! therefore never changes which packets another one hits.

use rand_core::Rng;
use rand_pcg::Pcg64;

/// Which impairment a generator belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Loss = 1,
    Corrupt = 2,
    Duplicate = 3,
    Jitter = 4,
    Reorder = 5,
}

/// A seeded generator of one impairment.
#[derive(Debug, Clone)]
pub(crate) struct Stream(Pcg64);

impl Stream {
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Self {
        let stream = purpose as u64;
        let high = mix(seed ^ mix(stream));
        let low = mix(high ^ seed);
        let state = u128::from(high) << 64 | u128::from(low);
        Self(Pcg64::new(state, u128::from(stream)))
    }

    /// A uniform 64-bit number.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014), so that
/// neighbouring seeds give unrelated states.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_and_seeds_differ_and_repeat() {
        let first = |seed, purpose| Stream::new(seed, purpose).draw();
        assert_eq!(first(1, Purpose::Loss), first(1, Purpose::Loss));
        assert_ne!(first(1, Purpose::Loss), first(2, Purpose::Loss));
        assert_ne!(first(1, Purpose::Loss), first(1, Purpose::Corrupt));
    }
}
