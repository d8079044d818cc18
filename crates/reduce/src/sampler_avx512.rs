//! The sampler with AVX-512: 64 positions at a time. Tested against the portable way in `sampler.rs`.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_cmpgt_epi32_mask, _mm512_loadu_si512, _mm512_mullo_epi32,
    _mm512_set1_epi32, _pdep_u64,
};

use super::{FACTOR_HIGH, FACTOR_LOW};

/// Positions of one step.
const STEP: usize = 64;
/// Bytes one step reads: the last load begins at position 7.
const REACH: usize = STEP + 7;
/// Samples of a step that are written without asking whether there are so many; one step in fifty has more.
const WRITTEN: usize = 3;
/// Every fourth bit.
const FOURTHS: u64 = 0x1111_1111_1111_1111;

/// Proof that the processor has AVX-512F and BMI2.
#[derive(Debug, Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        let is_there = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("bmi2");
        is_there.then_some(Self(()))
    }

    /// Looks at positions from 0 as far as whole steps go, at most to `end`; returns how far.
    pub(super) fn samples(
        self,
        bound: i32,
        input: &[u8],
        end: usize,
        samples: &mut Vec<u32>,
    ) -> usize {
        // SAFETY: `self` exists only where both were detected.
        unsafe { samples_avx512(bound, input, end, samples) }
    }
}

#[target_feature(enable = "avx512f,bmi2,bmi1,popcnt")]
fn samples_avx512(bound: i32, input: &[u8], end: usize, samples: &mut Vec<u32>) -> usize {
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

/// Appends `start` plus the number of every bit in `mask`. How many there are is a branch the processor cannot foresee, so the first
/// few are written in any case.
#[target_feature(enable = "bmi1,popcnt")]
#[inline]
fn push_all(samples: &mut Vec<u32>, start: u32, mut mask: u64) {
    let count = samples.len();
    let found = mask.count_ones() as usize;
    samples.reserve(WRITTEN);
    for room in samples.spare_capacity_mut().iter_mut().take(WRITTEN) {
        room.write(start + mask.trailing_zeros());
        mask &= mask.wrapping_sub(1);
    }
    // SAFETY: the next three elements were written just now.
    unsafe { samples.set_len(count + found.min(WRITTEN)) };
    while mask != 0 {
        samples.push(start + mask.trailing_zeros());
        mask &= mask - 1;
    }
}

/// Bit `i` says whether position `i` is a sample. Offset `j` of four looks at positions j, j+4, ..., one in each 32-bit lane;
/// its verdicts are every fourth bit from bit `j` on.
#[target_feature(enable = "avx512f,bmi2")]
#[inline]
fn step(bound: i32, window: &[u8]) -> u64 {
    assert!(window.len() >= REACH, "the last load ends inside");
    let low = _mm512_set1_epi32(FACTOR_LOW.cast_signed());
    let high = _mm512_set1_epi32(FACTOR_HIGH.cast_signed());
    let bound = _mm512_set1_epi32(bound);
    let mut verdicts = 0;
    for offset in 0..4 {
        let first = _mm512_mullo_epi32(load(window, offset), low);
        let second = _mm512_mullo_epi32(load(window, offset + 4), high);
        let sampled = _mm512_cmpgt_epi32_mask(_mm512_add_epi32(first, second), bound);
        verdicts |= _pdep_u64(u64::from(sampled), FOURTHS << offset);
    }
    verdicts
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(window: &[u8], offset: usize) -> __m512i {
    debug_assert!(offset + 64 <= window.len());
    // SAFETY: `step` has checked that 64 bytes follow every offset up to 7; the load needs no alignment.
    unsafe { _mm512_loadu_si512(window.as_ptr().add(offset).cast()) }
}
