//! Where a client reads that jumps about: as a program with a large file of records does, its head first, then a few records in a
//! row here and there. The same places in every file of a size, and none twice, for what was fetched once may be known on the way.

use std::collections::BTreeSet;

/// What it reads at once.
pub const RECORD_BYTES: u64 = 4_096;
/// And so often, of a large file.
const RECORDS: u64 = 2_000;
/// It reads a quarter of a small one at most, so that there is somewhere to jump to.
const SHARE: u64 = 4;
/// Of ten jumps so many are for one record;
const ALONE_OF_TEN: u64 = 7;
/// behind the others so many come in a row at most.
const IN_A_ROW_MAX: u64 = 8;

/// How many records it reads of a file.
pub fn records(file_bytes: u64) -> u64 {
    (file_bytes / RECORD_BYTES / SHARE).clamp(1, RECORDS)
}

/// Where they begin, in its order.
pub(crate) fn places(file_bytes: u64) -> Vec<u64> {
    let all = (file_bytes / RECORD_BYTES).max(1);
    let mut noise = Noise(2006);
    let mut seen = BTreeSet::from([0]);
    let mut places = vec![0];
    while (places.len() as u64) < records(file_bytes) {
        let in_a_row = match noise.below(10) < ALONE_OF_TEN {
            true => 1,
            false => 2 + noise.below(IN_A_ROW_MAX - 1),
        };
        let from = noise.below(all);
        let left = records(file_bytes) - places.len() as u64;
        let row = (from..all).take(in_a_row.min(left) as usize);
        places.extend(row.take_while(|record| seen.insert(*record)));
    }
    places.iter().map(|record| record * RECORD_BYTES).collect()
}

/// Numbers that look random (splitmix64).
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_same_again_within_the_file_and_never_twice() {
        for file_bytes in [1, 4_096, 1 << 20, 100 << 20] {
            let places = places(file_bytes);
            assert_eq!(places, super::places(file_bytes));
            assert_eq!(places.len() as u64, records(file_bytes));
            let different: BTreeSet<_> = places.iter().collect();
            assert_eq!(different.len(), places.len(), "{file_bytes}");
            let last = places.iter().max().unwrap();
            assert!(*last == 0 || last + RECORD_BYTES <= file_bytes);
        }
        assert_eq!(records(100 << 20), 2_000);
    }

    /// Who jumps only never looks like one who reads on.
    #[test]
    fn some_records_follow_the_one_before_and_most_jumps_are_for_one() {
        let places = places(100 << 20);
        let follows = |pair: &&[u64]| pair[1] == pair[0] + RECORD_BYTES;
        let in_a_row = places.windows(2).filter(follows).count();
        assert!((800..1_300).contains(&in_a_row), "{in_a_row}");
    }
}
