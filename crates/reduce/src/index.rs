//! Where content was seen last: from the hash of 48 bytes to the virtual position of their newest occurrence.
//!
//! A table of fixed size. A hash belongs to one bucket of eight entries, one cache line, newest first; what is pushed out at its
//! end is forgotten. An entry is a virtual position modulo 2^44 and 20 bits of the hash, so a stranger's entry is taken for a
//! match once in 130,000 buckets. Nothing here is trusted: the encoder compares the bytes.

use crate::prefetch::prefetch;
use crate::settings::{Advise, Memory};

/// Bytes a fingerprint covers, and so the shortest match.
pub(crate) const WINDOW_BYTES: usize = 48;

const ENTRIES: usize = 8;
const POSITION_BITS: u32 = 44;
const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;

pub(crate) struct Index {
    words: Vec<u64>,
    /// Words before the first that begins a cache line.
    skip: usize,
    buckets: u64,
    seed: u64,
}

impl Index {
    /// A table of about `bytes`, whose hashes nobody can foresee who does not know `seed`.
    pub(crate) fn new(bytes: usize, seed: u64, advise: Advise) -> Self {
        let buckets = (bytes / (ENTRIES * 8)).max(1);
        let words = vec![0u64; (buckets + 1) * ENTRIES];
        let all = words.len();
        let skip = words.as_ptr().align_offset(64).min(ENTRIES);
        advise(Memory::Index, words.as_ptr().cast(), all * 8);
        debug_assert!(skip + buckets * ENTRIES <= all);
        Self {
            words,
            skip,
            buckets: buckets as u64,
            seed,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.words.len() * 8
    }

    /// The fingerprint of the first [`WINDOW_BYTES`] of `window`.
    pub(crate) fn fingerprint(&self, window: &[u8]) -> u64 {
        let Some(bytes) = window.first_chunk::<WINDOW_BYTES>() else {
            return 1 << POSITION_BITS;
        };
        let (words, _) = bytes.as_chunks::<8>();
        let word = |nth: usize| words.get(nth).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let first = fold(word(0) ^ self.seed, word(1) ^ 0xA076_1D64_78BD_642F);
        let second = fold(
            word(2) ^ 0xE703_7ED1_A0B4_28DB,
            word(3) ^ self.seed.rotate_left(32),
        );
        let third = fold(
            word(4) ^ 0x1D8E_4E27_C47D_124F,
            word(5) ^ self.seed.rotate_left(16),
        );
        let mixed = fold(
            first ^ third ^ 0x8EBC_6AF0_9C88_C6E3,
            second ^ 0x5899_65CC_7537_4CC3,
        );
        // The tag of an empty entry is nobody's.
        mixed | u64::from(mixed <= POSITION_MASK) << POSITION_BITS
    }

    /// Where the content with this fingerprint may have been last; `near` is the current virtual position.
    pub(crate) fn find(&self, fingerprint: u64, near: u64) -> Option<u64> {
        let bucket = self
            .words
            .get(self.range(fingerprint))?
            .first_chunk::<ENTRIES>()?;
        let entry = bucket.get(first_of(bucket, fingerprint)?)?;
        let back = near.wrapping_sub(entry & POSITION_MASK) & POSITION_MASK;
        near.checked_sub(back)
    }

    /// Remembers that the content with this fingerprint is at `position`; the older place is forgotten.
    pub(crate) fn insert(&mut self, fingerprint: u64, position: u64) {
        let range = self.range(fingerprint);
        let bucket = self.words.get_mut(range);
        let Some(bucket) = bucket.and_then(<[u64]>::first_chunk_mut::<ENTRIES>) else {
            return;
        };
        match first_of(bucket, fingerprint) {
            Some(nth) => bucket.copy_within(0..nth, 1),
            // Of a length known here this is a few moves; it happens most.
            None => bucket.copy_within(0..ENTRIES - 1, 1),
        }
        bucket[0] = fingerprint & !POSITION_MASK | position & POSITION_MASK;
    }

    /// Remembers that the content with this fingerprint is at `position`, and says where it may have been before.
    #[inline]
    pub(crate) fn exchange(&mut self, fingerprint: u64, position: u64) -> Option<u64> {
        let range = self.range(fingerprint);
        let bucket = self.words.get_mut(range)?.first_chunk_mut::<ENTRIES>()?;
        let nth = first_of(bucket, fingerprint);
        let entry = nth.and_then(|nth| bucket.get(nth).copied());
        match nth {
            Some(nth) => bucket.copy_within(0..nth, 1),
            None => bucket.copy_within(0..ENTRIES - 1, 1),
        }
        bucket[0] = fingerprint & !POSITION_MASK | position & POSITION_MASK;
        let back = position.wrapping_sub(entry?) & POSITION_MASK;
        position.checked_sub(back)
    }

    /// Asks for the bucket of a fingerprint.
    pub(crate) fn prefetch(&self, fingerprint: u64) {
        if let Some(word) = self.words.get(self.range(fingerprint).start) {
            prefetch(word);
        }
    }

    fn range(&self, fingerprint: u64) -> std::ops::Range<usize> {
        // The low half chooses the bucket, the tag is of the high bits.
        let bucket = (u64::from(fingerprint as u32) * self.buckets) >> 32;
        let start = self.skip + bucket as usize * ENTRIES;
        start..start + ENTRIES
    }
}

/// The first entry with the fingerprint's tag. All are looked at: that is quicker than a branch the processor cannot foresee.
fn first_of(bucket: &[u64; ENTRIES], fingerprint: u64) -> Option<usize> {
    let tag = fingerprint >> POSITION_BITS;
    let same = bucket.iter().enumerate().fold(0u32, |same, (nth, &entry)| {
        same | u32::from(entry >> POSITION_BITS == tag) << nth
    });
    (same != 0).then(|| same.trailing_zeros() as usize)
}

/// Folds the product of two words into one.
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        Index::new(4096, 7, |_, _, _| ())
    }

    #[test]
    fn the_newest_place_is_found() {
        let mut index = index();
        let fingerprint = index.fingerprint(&[3; WINDOW_BYTES]);
        assert_eq!(index.find(fingerprint, 100), None);
        index.insert(fingerprint, 5);
        index.insert(fingerprint, 70);
        assert_eq!(index.find(fingerprint, 100), Some(70));
        assert_eq!(index.find(fingerprint ^ 1 << 63, 100), None, "another tag");
    }

    #[test]
    fn an_exchange_is_a_look_up_and_an_insertion() {
        let (mut index, mut model) = (index(), index());
        for nth in 0..2000u64 {
            let fingerprint = index.fingerprint(&[(nth * nth % 97) as u8; WINDOW_BYTES]);
            let known = model.find(fingerprint, nth);
            model.insert(fingerprint, nth);
            assert_eq!(index.exchange(fingerprint, nth), known, "{nth}");
        }
        assert!(index.words[index.skip..].starts_with(&model.words[model.skip..][..4096 / 8]));
    }

    #[test]
    fn a_bucket_forgets_its_oldest() {
        let mut index = index();
        let of_tag = |tag: u64| tag << POSITION_BITS;
        for tag in 1..=9 {
            index.insert(of_tag(tag), tag * 10);
        }
        assert_eq!(index.find(of_tag(1), 1000), None);
        assert_eq!(index.find(of_tag(2), 1000), Some(20));
        assert_eq!(index.find(of_tag(9), 1000), Some(90));
    }

    #[test]
    fn positions_beyond_the_entry_are_told_from_nearness() {
        let mut index = index();
        let position = (5 << POSITION_BITS) + 17;
        index.insert(1 << 63, position);
        assert_eq!(index.find(1 << 63, position + 1000), Some(position));
        assert_eq!(index.find(1 << 63, 16), None, "before the beginning");
    }
}
