//! The sampler with AVX2: 32 positions at a time. Tested against the portable way in `sampler.rs`.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_cmpgt_epi32, _mm256_loadu_si256,
    _mm256_movemask_epi8, _mm256_mullo_epi32, _mm256_or_si256, _mm256_set1_epi32,
    _mm256_setzero_si256,
};

use super::{FACTOR_HIGH, FACTOR_LOW};

/// Positions of one step.
const STEP: usize = 32;
/// Bytes one step reads: the last load begins at position 7.
const REACH: usize = STEP + 7;

/// Proof that the processor has AVX2.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    /// Looks at positions from 0 as far as whole steps go, at most to `end`; returns how far.
    pub(super) fn samples(
        self,
        bound: i32,
        input: &[u8],
        end: usize,
        samples: &mut Vec<u32>,
    ) -> usize {
        // SAFETY: `self` exists only where AVX2 was detected.
        unsafe { samples_avx2(bound, input, end, samples) }
    }
}

#[target_feature(enable = "avx2")]
fn samples_avx2(bound: i32, input: &[u8], end: usize, samples: &mut Vec<u32>) -> usize {
    let mut at = 0;
    while at + STEP <= end {
        let Some(window) = input.get(at..at + REACH) else {
            break;
        };
        push_all(samples, at as u32, step(bound, window));
        at += STEP;
    }
    at
}

/// Appends `start` plus the number of every bit in `mask`. Two steps in five have a bit, a branch the processor cannot foresee; only
/// one in eleven has a second.
#[inline]
fn push_all(samples: &mut Vec<u32>, start: u32, mut mask: u32) {
    let count = samples.len();
    samples.reserve(1);
    if let Some(room) = samples.spare_capacity_mut().first_mut() {
        room.write(start + mask.trailing_zeros());
        // SAFETY: the next element was written just now.
        unsafe { samples.set_len(count + usize::from(mask != 0)) };
    }
    mask &= mask.wrapping_sub(1);
    while mask != 0 {
        samples.push(start + mask.trailing_zeros());
        mask &= mask - 1;
    }
}

/// Bit `i` says whether position `i` is a sample. Offset `j` of four looks at positions j, j+4, ..., one in each 32-bit lane;
/// its verdict goes to byte `j` of the lane, so the four together are bytes in the order of positions.
#[target_feature(enable = "avx2")]
fn step(bound: i32, window: &[u8]) -> u32 {
    assert!(window.len() >= REACH, "the last load ends inside");
    let low = _mm256_set1_epi32(FACTOR_LOW.cast_signed());
    let high = _mm256_set1_epi32(FACTOR_HIGH.cast_signed());
    let bound = _mm256_set1_epi32(bound);
    let mut verdicts = _mm256_setzero_si256();
    for offset in 0..4 {
        let first = _mm256_mullo_epi32(load(window, offset), low);
        let second = _mm256_mullo_epi32(load(window, offset + 4), high);
        let sampled = _mm256_cmpgt_epi32(_mm256_add_epi32(first, second), bound);
        let place = _mm256_set1_epi32((0xFF_u32 << (8 * offset)).cast_signed());
        verdicts = _mm256_or_si256(verdicts, _mm256_and_si256(sampled, place));
    }
    _mm256_movemask_epi8(verdicts).cast_unsigned()
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(window: &[u8], offset: usize) -> __m256i {
    debug_assert!(offset + 32 <= window.len());
    // SAFETY: `step` has checked that 32 bytes follow every offset up to 7; the load needs no alignment.
    unsafe { _mm256_loadu_si256(window.as_ptr().add(offset).cast()) }
}
