//! Writes past the caches what is not read again soon: a line of memory that is written whole need not be read first.
#![allow(unsafe_code)]

use crate::copy;

/// Less is copied as usual: lines at both ends are not whole, and what comes in small pieces is often read again.
const STREAM_BYTES_MIN: usize = 4096;
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Copies `bytes` to the beginning of `into`, as far as there is room.
pub(crate) fn copy(into: &mut [u8], bytes: &[u8]) {
    let now = into.len().min(bytes.len());
    let (Some(into), Some(bytes)) = (into.get_mut(..now), bytes.get(..now)) else {
        return;
    };
    #[cfg(target_arch = "x86_64")]
    if now >= STREAM_BYTES_MIN {
        let front = into.as_ptr().align_offset(LINE_BYTES).min(now);
        let lines = (now - front) / LINE_BYTES * LINE_BYTES;
        let (into_front, into) = into.split_at_mut(front);
        let (into_lines, into_back) = into.split_at_mut(lines);
        let (front, bytes) = bytes.split_at(front);
        let (lines, back) = bytes.split_at(lines);
        into_front.copy_from_slice(front);
        copy_lines(into_lines, lines);
        into_back.copy_from_slice(back);
        return;
    }
    copy::copy(into, bytes);
}

/// Copies whole lines; `into` begins where one does.
#[cfg(target_arch = "x86_64")]
fn copy_lines(into: &mut [u8], bytes: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    let (into, _) = into.as_chunks_mut::<LINE_BYTES>();
    let (lines, _) = bytes.as_chunks::<LINE_BYTES>();
    for (into, line) in into.iter_mut().zip(lines) {
        let (from, to) = (
            line.as_ptr().cast::<__m128i>(),
            into.as_mut_ptr().cast::<__m128i>(),
        );
        for nth in 0..LINE_BYTES / size_of::<__m128i>() {
            // SAFETY: SSE2 is part of x86-64; both are lines of 64 bytes, and the caller begins where one does.
            unsafe { _mm_stream_si128(to.add(nth), _mm_loadu_si128(from.add(nth))) };
        }
    }
    // SAFETY: SSE2 is part of x86-64. Another thread that is told of the bytes shall see them: such writes are not in order.
    unsafe { _mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_to_every_place_in_a_line() {
        let bytes: Vec<u8> = (0..3 * STREAM_BYTES_MIN)
            .map(|at| (at % 251) as u8)
            .collect();
        for start in 0..70 {
            for length in [0, 1, STREAM_BYTES_MIN - 1, STREAM_BYTES_MIN, 4223, 9000] {
                let mut into = vec![255; start + length + 100];
                let from = &bytes[start % 7..][..length];
                copy(&mut into[start..start + length], from);
                assert!(into[..start].iter().all(|&byte| byte == 255));
                assert_eq!(into[start..start + length], *from);
                assert!(into[start + length..].iter().all(|&byte| byte == 255));
            }
        }
        let mut short = [0; 5];
        copy(&mut short, &bytes);
        assert_eq!(short, bytes[..5]);
    }
}
