//! Bytes that look like noise, as what is compressed or encrypted does. Only what is long can repeat in them: whoever sends such bytes
//! again sends a file again. So far fewer of their positions are looked at and remembered, and data that nobody has seen and nothing
//! can shorten costs little more than being copied.

/// Bytes that are judged together.
pub(crate) const NOISE_BYTES: usize = PICKED * STRIDE;
/// So many of them are looked at,
const PICKED: usize = 1024;
/// one in so many: odd, so that every byte of a number in a table has its turn.
const STRIDE: usize = 31;
/// After so many most other bytes have shown what they are.
const PICKED_FIRST: usize = 128;

/// The counts of the 256 values, squared and added, of so many bytes of noise: on average.
const fn squares_of(picked: usize) -> usize {
    picked + picked * (picked - 1) / 256
}

/// An eighth more is seven times the deviation.
const SQUARES_MAX: usize = squares_of(PICKED) + squares_of(PICKED) / 8;
/// Of few bytes it varies more; of text it is five times as much.
const SQUARES_FIRST_MAX: usize = 2 * squares_of(PICKED_FIRST);

/// How often each value came.
struct Tally {
    counts: [u16; 256],
    squares: usize,
}

impl Tally {
    fn add<'a>(&mut self, bytes: impl Iterator<Item = &'a u8>) {
        for &byte in bytes {
            if let Some(count) = self.counts.get_mut(usize::from(byte)) {
                // From one square to the next.
                self.squares += 2 * usize::from(*count) + 1;
                *count += 1;
            }
        }
    }
}

/// Whether [`NOISE_BYTES`] look like noise.
pub(crate) fn is_noise(bytes: &[u8]) -> bool {
    let mut tally = Tally {
        counts: [0; 256],
        squares: 0,
    };
    let Some((first, rest)) = bytes.split_at_checked(PICKED_FIRST * STRIDE) else {
        return false;
    };
    tally.add(first.iter().step_by(STRIDE));
    if tally.squares > SQUARES_FIRST_MAX {
        return false;
    }
    tally.add(rest.iter().step_by(STRIDE));
    tally.squares <= SQUARES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..NOISE_BYTES).map(|_| next()).collect()
    }

    #[test]
    fn noise_is_told_from_everything_else() {
        let found = (0..1000).filter(|&seed| is_noise(&noise(seed))).count();
        assert!(found >= 990, "{found} of 1000");
        let digits: Vec<u8> = noise(1).iter().map(|byte| b'0' + byte % 10).collect();
        let letters: Vec<u8> = noise(1).iter().map(|byte| byte & 0x7F).collect();
        // A table whose numbers have noise in every byte but the highest.
        let mut numbers = noise(1);
        numbers
            .iter_mut()
            .skip(3)
            .step_by(4)
            .for_each(|byte| *byte = 0);
        let mut half = noise(1);
        half[NOISE_BYTES / 2..].fill(7);
        let mut tail = noise(1);
        tail[NOISE_BYTES - 3000..].fill(0);
        for other in [digits, letters, numbers, half, tail, vec![0; NOISE_BYTES]] {
            assert!(!is_noise(&other));
        }
        assert!(!is_noise(&[]), "nothing is no noise");
    }
}
