//! How far two stretches of bytes agree, from the front and from the back.
//!
//! Blocks are compared with `==`, which is the C library's `memcmp` with the vector instructions of the processor: no code of our
//! own would be faster, and none of it is unsafe.

/// Compared at once while everything agrees.
const BLOCK: usize = 512;
/// Compared at once near the end, a cache line of each.
const LINE: usize = 64;
/// Compared at once at the very end.
const STEP: usize = 8;

/// Bytes that agree from the front.
pub(crate) fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let max = left.len().min(right.len());
    let (left, right) = (
        left.get(..max).unwrap_or_default(),
        right.get(..max).unwrap_or_default(),
    );
    // Most often it is short.
    let mut done = same_words(left, right, LINE);
    if done < LINE.min(max / STEP * STEP) {
        return done;
    }
    done += same_blocks::<BLOCK>(from(left, done), from(right, done));
    done += same_blocks::<LINE>(from(left, done), from(right, done));
    let words = same_words(from(left, done), from(right, done), usize::MAX);
    if words < (max - done) / STEP * STEP {
        return done + words;
    }
    done += words;
    let (left, right) = (from(left, done), from(right, done));
    done + left.iter().zip(right).take_while(|(a, b)| a == b).count()
}

fn from(bytes: &[u8], start: usize) -> &[u8] {
    bytes.get(start..).unwrap_or_default()
}

/// Bytes that agree from the front of so many, looked at in words; of what is behind the last whole word none.
fn same_words(left: &[u8], right: &[u8], max: usize) -> usize {
    let mut done = 0;
    let pairs = left
        .as_chunks::<STEP>()
        .0
        .iter()
        .zip(right.as_chunks::<STEP>().0);
    for (a, b) in pairs.take(max / STEP) {
        let different = word(a) ^ word(b);
        if different != 0 {
            return done + (different.trailing_zeros() / 8) as usize;
        }
        done += STEP;
    }
    done
}

/// Bytes that agree from the front, in whole blocks.
fn same_blocks<const BYTES: usize>(left: &[u8], right: &[u8]) -> usize {
    let pairs = left
        .as_chunks::<BYTES>()
        .0
        .iter()
        .zip(right.as_chunks::<BYTES>().0);
    pairs.take_while(|(a, b)| a == b).count() * BYTES
}

/// Bytes that agree from the back.
pub(crate) fn common_suffix(left: &[u8], right: &[u8]) -> usize {
    let mut done = 0;
    for (a, b) in left.rchunks_exact(STEP).zip(right.rchunks_exact(STEP)) {
        let different = word(a) ^ word(b);
        if different != 0 {
            return done + (different.leading_zeros() / 8) as usize;
        }
        done += STEP;
    }
    let left = left.get(..left.len() - done).unwrap_or_default();
    let right = right.get(..right.len() - done).unwrap_or_default();
    let pairs = left.iter().rev().zip(right.iter().rev());
    done + pairs.take_while(|(a, b)| a == b).count()
}

/// How many bytes from the front are `byte`.
pub(crate) fn run_of(byte: u8, bytes: &[u8]) -> usize {
    let pattern = [byte; BLOCK];
    let mut done = 0;
    for block in bytes.chunks(BLOCK) {
        let same = common_prefix(block, &pattern);
        done += same;
        if same < block.len() {
            break;
        }
    }
    done
}

/// How many bytes from the back are `byte`.
pub(crate) fn run_back_of(byte: u8, bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rev()
        .take_while(|&&other| other == byte)
        .count()
}

fn word(bytes: &[u8]) -> u64 {
    <[u8; 8]>::try_from(bytes).map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agreement_is_counted_to_the_byte(same in 0usize..1700, more in 0usize..40, less in 0usize..40, byte: u8) {
            let text: Vec<u8> = (0..same + more).map(|at| (at * 31 % 251) as u8).collect();
            let mut other = text[..same + more.min(less)].to_vec();
            if let Some(first) = other.get_mut(same) {
                *first ^= 0x40;
            }
            let expected = same.min(other.len());
            prop_assert_eq!(common_prefix(&text, &other), expected);
            let mirrored = |bytes: &[u8]| -> Vec<u8> { bytes.iter().rev().copied().collect() };
            prop_assert_eq!(common_suffix(&mirrored(&text), &mirrored(&other)), expected);
            let mut run = vec![byte; same];
            run.extend(vec![!byte; more]);
            prop_assert_eq!(run_of(byte, &run), same);
            prop_assert_eq!(run_back_of(byte, &mirrored(&run)), same);
        }
    }
}
