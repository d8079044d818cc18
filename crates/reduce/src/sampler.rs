//! Which positions of a stream are looked at: about one in 64 or 128, chosen by content.
//!
//! A position is a sample when the hash of the eight bytes that begin there is among the highest 64th or 128th. The choice depends on those
//! bytes only, so the same content has the same samples wherever it stands. Runs of one byte have none (`no_run_is_sampled`): they
//! would have as many samples as bytes. [`crate::run`] sees to runs.

#[cfg(target_arch = "x86_64")]
#[path = "sampler_avx2.rs"]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[path = "sampler_avx512.rs"]
mod avx512;

/// Bytes that decide whether a position is a sample.
pub(crate) const SAMPLE_BYTES: usize = 8;

const FACTOR_LOW: u32 = 0x9E37_79B1;
const FACTOR_HIGH: u32 = 0xD6E8_FEB9;
/// As signed numbers, one hash in 64 is greater: 2^31 - 2^26 - 1.
const GREATEST_UNSAMPLED: i32 = 0x7BFF_FFFF;
/// One hash in 128 is greater: 2^31 - 2^25 - 1.
const GREATEST_SPARSE: i32 = 0x7DFF_FFFF;
/// One hash in 512 is greater: 2^31 - 2^23 - 1.
const GREATEST_OF_MOST: i32 = 0x7F7F_FFFF;
/// One hash in 8192 is greater: 2^31 - 2^19 - 1.
const GREATEST_UNANCHORED: i32 = 0x7FF7_FFFF;

/// How many positions are looked at. The samples of fewer are among those of more, so what one way remembers the other finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// One in 64: finds the most.
    Dense,
    /// One in 128: a fifth to a third quicker through what is new, and misses some of what is short.
    Sparse,
}

impl Sampling {
    fn bound(self) -> i32 {
        match self {
            Self::Dense => GREATEST_UNSAMPLED,
            Self::Sparse => GREATEST_SPARSE,
        }
    }
}

/// Finds samples with the instructions this processor has.
#[derive(Debug, Clone, Copy)]
pub struct Sampler {
    sampling: Sampling,
    #[cfg(target_arch = "x86_64")]
    avx2: Option<avx2::Avx2>,
    #[cfg(target_arch = "x86_64")]
    avx512: Option<avx512::Avx512>,
}

impl Sampler {
    /// With the fastest way this processor offers.
    pub fn new() -> Self {
        Self {
            sampling: Sampling::Dense,
            #[cfg(target_arch = "x86_64")]
            avx2: avx2::Avx2::detect(),
            #[cfg(target_arch = "x86_64")]
            avx512: avx512::Avx512::detect(),
        }
    }

    /// Without any special instruction.
    pub fn portable() -> Self {
        Self {
            sampling: Sampling::Dense,
            #[cfg(target_arch = "x86_64")]
            avx2: None,
            #[cfg(target_arch = "x86_64")]
            avx512: None,
        }
    }

    /// Without what not every processor of today has.
    #[cfg(test)]
    fn narrow() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            avx512: None,
            ..Self::new()
        }
    }

    /// The same with other samples.
    #[must_use]
    pub fn at(self, sampling: Sampling) -> Self {
        Self { sampling, ..self }
    }

    /// Appends to `samples` every sampled position of `input` below `end`, ascending. The bytes beyond `end` are looked at
    /// where a position near `end` needs them; positions with fewer than eight bytes left are no samples.
    pub fn samples(&self, input: &[u8], end: usize, samples: &mut Vec<u32>) {
        self.above(self.sampling.bound(), input, end, samples);
    }

    /// The same for few samples, one position in 512.
    pub fn few_samples(&self, input: &[u8], end: usize, samples: &mut Vec<u32>) {
        self.above(GREATEST_OF_MOST, input, end, samples);
    }

    /// The same for anchors: samples, but one position in 8192.
    pub fn anchors(&self, input: &[u8], anchors: &mut Vec<u32>) {
        self.above(GREATEST_UNANCHORED, input, input.len(), anchors);
    }

    fn above(&self, bound: i32, input: &[u8], end: usize, samples: &mut Vec<u32>) {
        let end = end.min(input.len().saturating_sub(SAMPLE_BYTES - 1));
        #[cfg(target_arch = "x86_64")]
        let done = match (self.avx512, self.avx2) {
            (Some(avx512), _) => avx512.samples(bound, input, end, samples),
            (None, Some(avx2)) => avx2.samples(bound, input, end, samples),
            (None, None) => 0,
        };
        #[cfg(not(target_arch = "x86_64"))]
        let done = 0;
        portable(bound, input, (done, end), samples);
    }
}

impl Default for Sampler {
    fn default() -> Self {
        Self::new()
    }
}

fn portable(bound: i32, input: &[u8], (start, end): (usize, usize), samples: &mut Vec<u32>) {
    let windows = input.get(start..).unwrap_or_default().windows(SAMPLE_BYTES);
    for (at, window) in windows.take(end.saturating_sub(start)).enumerate() {
        if hash(window).is_some_and(|hash| hash > bound) {
            samples.push((start + at) as u32);
        }
    }
}

/// Whether the position where `window` begins is an anchor.
pub(crate) fn is_anchor(window: &[u8]) -> bool {
    hash(window).is_some_and(|hash| hash > GREATEST_UNANCHORED)
}

fn hash(window: &[u8]) -> Option<i32> {
    let word = u64::from_le_bytes(*window.first_chunk::<SAMPLE_BYTES>()?);
    let low = (word as u32).wrapping_mul(FACTOR_LOW);
    let high = ((word >> 32) as u32).wrapping_mul(FACTOR_HIGH);
    Some(low.wrapping_add(high).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_run_is_sampled() {
        for byte in 0..=255u8 {
            assert!(
                hash(&[byte; SAMPLE_BYTES]).unwrap() <= GREATEST_UNSAMPLED,
                "{byte}"
            );
        }
    }

    #[test]
    fn one_position_in_64_or_128_of_noise_is_a_sample() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .take(1 << 20)
        .collect();
        for (sampling, one_in) in [(Sampling::Dense, 64), (Sampling::Sparse, 128)] {
            let mut samples = Vec::new();
            let sampler = Sampler::new().at(sampling);
            sampler.samples(&noise, noise.len(), &mut samples);
            let expected = noise.len() / one_in;
            let is_near = samples.len().abs_diff(expected) < expected / 20;
            assert!(is_near, "{sampling:?}: {}", samples.len());
        }
    }

    proptest! {
        #[test]
        fn all_ways_find_the_same(
            input in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..3000),
            end in 0usize..3100,
            offset in 0usize..70,
        ) {
            let input = input.get(offset..).unwrap_or_default();
            let ways = [Sampler::new(), Sampler::narrow(), Sampler::portable()];
            let of = |find: &dyn Fn(Sampler, &mut Vec<u32>)| {
                ways.map(|way| {
                    let mut found = Vec::new();
                    find(way, &mut found);
                    found
                })
            };
            let [wide, narrow, dense] = of(&|way, found| way.samples(input, end, found));
            prop_assert_eq!(&wide, &dense);
            prop_assert_eq!(&narrow, &dense);
            let [wide, narrow, sparse] = of(&|way, found| way.at(Sampling::Sparse).samples(input, end, found));
            prop_assert_eq!(&wide, &sparse);
            prop_assert_eq!(&narrow, &sparse);
            prop_assert!(sparse.iter().all(|at| dense.contains(at)));
            let [wide, narrow, few] = of(&|way, found| way.few_samples(input, end, found));
            prop_assert_eq!(&wide, &few);
            prop_assert_eq!(&narrow, &few);
            prop_assert!(few.iter().all(|at| sparse.contains(at)));
            let [wide, narrow, anchors] = of(&|way, found| way.anchors(input, found));
            prop_assert_eq!(&wide, &anchors);
            prop_assert_eq!(&narrow, &anchors);
            let is_known = |at: &&u32| (**at as usize) < end;
            prop_assert!(anchors.iter().filter(is_known).all(|at| few.contains(at)));
            prop_assert!(anchors.iter().all(|&at| is_anchor(&input[at as usize..])));
        }

        #[test]
        fn a_step_with_many_samples_loses_none(repeats in 1usize..40, gap in 0usize..9) {
            // Samples close to each other: eight bytes that are one, again and again.
            let sampled = (0u64..).map(u64::to_le_bytes).find(|bytes| hash(bytes).is_some_and(|hash| hash > GREATEST_UNSAMPLED));
            let input: Vec<u8> = std::iter::repeat_n([&sampled.unwrap()[..], &vec![7; gap]].concat(), repeats).flatten().collect();
            let (mut wide, mut plain) = (Vec::new(), Vec::new());
            Sampler::new().samples(&input, input.len(), &mut wide);
            Sampler::portable().samples(&input, input.len(), &mut plain);
            prop_assert!(plain.len() >= repeats);
            prop_assert_eq!(wide, plain);
        }
    }
}
