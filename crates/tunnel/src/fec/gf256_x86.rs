//! Sums of multiples with the byte shuffles of x86-64, chosen when the program runs. The only
//! unsafe code of this crate; `gf256`'s tests hold it against the portable sum.
#![allow(unsafe_code)]

use super::gf256::Products;
use std::arch::x86_64::*;

/// Adds the products to `sum`, as far as both reach; false where the processor cannot.
pub(super) fn add_multiple(sum: &mut [u8], source: &[u8], products: &Products) -> bool {
    let length = sum.len().min(source.len());
    let (Some(sum), Some(source)) = (sum.get_mut(..length), source.get(..length)) else {
        return false;
    };
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        unsafe { add_avx2(sum, source, products) };
    } else if is_x86_feature_detected!("ssse3") {
        // SAFETY: the processor has SSSE3.
        unsafe { add_ssse3(sum, source, products) };
    } else {
        return false;
    }
    true
}

fn add_rest(sum: &mut [u8], source: &[u8], products: &Products) {
    for (sum, byte) in sum.iter_mut().zip(source) {
        let low = products.low.get(usize::from(byte & 15)).unwrap_or(&0);
        let high = products.high.get(usize::from(byte >> 4)).unwrap_or(&0);
        *sum ^= low ^ high;
    }
}

#[target_feature(enable = "avx2")]
fn add_avx2(sum: &mut [u8], source: &[u8], products: &Products) {
    let halves = _mm256_set1_epi8(15);
    // SAFETY: both tables are 16 bytes long; unaligned loads.
    let (low, high) = unsafe {
        (
            _mm256_broadcastsi128_si256(_mm_loadu_si128(products.low.as_ptr().cast())),
            _mm256_broadcastsi128_si256(_mm_loadu_si128(products.high.as_ptr().cast())),
        )
    };
    let mut sums = sum.chunks_exact_mut(32);
    let mut sources = source.chunks_exact(32);
    for (sum, source) in sums.by_ref().zip(sources.by_ref()) {
        // SAFETY: both chunks are 32 bytes long; unaligned loads and store.
        unsafe {
            let bytes = _mm256_loadu_si256(source.as_ptr().cast());
            let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, halves));
            let upper = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), halves);
            let of_high = _mm256_shuffle_epi8(high, upper);
            let before = _mm256_loadu_si256(sum.as_ptr().cast());
            let product = _mm256_xor_si256(of_low, of_high);
            _mm256_storeu_si256(sum.as_mut_ptr().cast(), _mm256_xor_si256(before, product));
        }
    }
    add_rest(sums.into_remainder(), sources.remainder(), products);
}

#[target_feature(enable = "ssse3")]
fn add_ssse3(sum: &mut [u8], source: &[u8], products: &Products) {
    let halves = _mm_set1_epi8(15);
    // SAFETY: both tables are 16 bytes long; unaligned loads.
    let (low, high) = unsafe {
        (
            _mm_loadu_si128(products.low.as_ptr().cast()),
            _mm_loadu_si128(products.high.as_ptr().cast()),
        )
    };
    let mut sums = sum.chunks_exact_mut(16);
    let mut sources = source.chunks_exact(16);
    for (sum, source) in sums.by_ref().zip(sources.by_ref()) {
        // SAFETY: both chunks are 16 bytes long; unaligned loads and store.
        unsafe {
            let bytes = _mm_loadu_si128(source.as_ptr().cast());
            let of_low = _mm_shuffle_epi8(low, _mm_and_si128(bytes, halves));
            let upper = _mm_and_si128(_mm_srli_epi64::<4>(bytes), halves);
            let of_high = _mm_shuffle_epi8(high, upper);
            let before = _mm_loadu_si128(sum.as_ptr().cast());
            let product = _mm_xor_si128(of_low, of_high);
            _mm_storeu_si128(sum.as_mut_ptr().cast(), _mm_xor_si128(before, product));
        }
    }
    add_rest(sums.into_remainder(), sources.remainder(), products);
}

#[cfg(test)]
mod tests {
    use super::super::gf256::{add_multiple_portable, products_of};
    use super::*;

    /// The narrower unit is chosen only on old processors, so it is tested here.
    #[test]
    fn sixteen_at_a_time_is_the_portable_sum_too() {
        if !is_x86_feature_detected!("ssse3") {
            println!("this processor has no SSSE3");
            return;
        }
        let source: Vec<u8> = (0..200u8).collect();
        for length in [0, 1, 15, 16, 17, 64, 200] {
            for factor in [0, 1, 3, 255] {
                let (mut fast, mut slow) = (vec![9; length], vec![9; length]);
                // SAFETY: SSSE3 was found above.
                unsafe { add_ssse3(&mut fast, &source[..length], products_of(factor)) };
                add_multiple_portable(&mut slow, &source[..length], factor);
                assert_eq!(fast, slow);
            }
        }
    }
}
