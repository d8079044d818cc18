//! Runs of one byte: images are full of them, and no sample falls into one.

use crate::extend::{run_back_of, run_of};

/// Shorter runs are literals.
const RUN_BYTES_MIN: usize = 256;
/// A run is looked for at every so many bytes.
const STEP: usize = 64;

/// Where the first long run in `bytes` begins, and of what byte it is.
pub(crate) fn find_run(bytes: &[u8]) -> Option<(usize, u8)> {
    let mut at = 0;
    while let Some(window) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*window);
        if word == word.rotate_left(8) {
            let byte = word as u8;
            let before = run_back_of(byte, bytes.get(..at).unwrap_or_default());
            let after = run_of(byte, bytes.get(at..).unwrap_or_default());
            if before + after >= RUN_BYTES_MIN {
                return Some((at - before, byte));
            }
            at += after.next_multiple_of(STEP);
        } else {
            at += STEP;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_runs_are_found() {
        let mut text: Vec<u8> = (0..700u32).map(|at| (at * 7 % 251) as u8).collect();
        assert_eq!(find_run(&text), None);
        text[100..200].fill(9);
        assert_eq!(find_run(&text), None, "a hundred are too few");
        text[300..300 + RUN_BYTES_MIN].fill(5);
        assert_eq!(find_run(&text), Some((300, 5)));
        assert_eq!(find_run(&[0; 1000]), Some((0, 0)));
        assert_eq!(find_run(&[]), None);
    }
}
