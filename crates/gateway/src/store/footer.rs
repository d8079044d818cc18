//! Footers: the table is in the module's documentation.

use farhaul_reduce::{BLOCK_BYTES, BlockLengths, SEGMENT_BLOCKS};

/// Bytes of a footer: what a disk writes at once.
pub(super) const FOOTER_BYTES: usize = 512;
const MAGIC: [u8; 8] = *b"FHSEG\0\0\x01";
const HASHED_BYTES: usize = FOOTER_BYTES - 32;

/// The first half of a block's BLAKE3.
pub(super) type BlockHash = [u8; 16];

/// What a footer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) store: u128,
    pub(super) log: u128,
    pub(super) number: u64,
    pub(super) epoch: u64,
    pub(super) version: u32,
    pub(super) lengths: BlockLengths,
    pub(super) hashes: [BlockHash; SEGMENT_BLOCKS],
}

/// The hash of a block's bytes as far as they are there.
pub(super) fn block_hash(bytes: &[u8]) -> BlockHash {
    half(blake3::hash(bytes))
}

/// Half of a hash: as much as nobody can find a second text for.
pub(super) fn half(hash: blake3::Hash) -> BlockHash {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

impl Footer {
    pub(super) fn bytes(&self) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.store.to_le_bytes());
        out.extend_from_slice(&self.log.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for length in self.lengths {
            out.extend_from_slice(&length.to_le_bytes());
        }
        for hash in self.hashes {
            out.extend_from_slice(&hash);
        }
        out.resize(HASHED_BYTES, 0);
        let hash = blake3::hash(&out);
        out.extend_from_slice(hash.as_bytes());
        let mut bytes = [0; FOOTER_BYTES];
        bytes.copy_from_slice(&out);
        bytes
    }

    /// What these bytes say, if they are a footer as it was written.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FOOTER_BYTES] = bytes.first_chunk()?;
        let (hashed, hash) = bytes.split_at(HASHED_BYTES);
        if !hashed.starts_with(&MAGIC) || blake3::hash(hashed).as_bytes() != hash {
            return None;
        }
        let mut rest = hashed.get(MAGIC.len()..)?;
        let footer = Self {
            store: u128::from_le_bytes(take(&mut rest)?),
            log: u128::from_le_bytes(take(&mut rest)?),
            number: u64::from_le_bytes(take(&mut rest)?),
            epoch: u64::from_le_bytes(take(&mut rest)?),
            version: u32::from_le_bytes(take(&mut rest)?),
            lengths: {
                let _: [u8; 4] = take(&mut rest)?;
                array(|| take(&mut rest).map(u32::from_le_bytes))?
            },
            hashes: array(|| take(&mut rest))?,
        };
        let mut lengths = footer.lengths.iter();
        let is_sane = lengths.all(|&length| length <= BLOCK_BYTES as u32);
        // Behind the last version there is none.
        (is_sane && footer.version < u32::MAX).then_some(footer)
    }

    /// Whether both speak of the same segment, of which one may be the older state.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.store, self.log, self.number, self.epoch)
            == (other.store, other.log, other.number, other.epoch)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (field, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*field)
}

fn array<T: Default + Copy>(mut next: impl FnMut() -> Option<T>) -> Option<[T; SEGMENT_BLOCKS]> {
    let mut all = [T::default(); SEGMENT_BLOCKS];
    for one in &mut all {
        *one = next()?;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn footer() -> Footer {
        let mut footer = Footer {
            store: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
            log: 0x0f1e_2d3c_4b5a_6978_8796_a5b4_c3d2_e1f0,
            number: 5,
            epoch: 6,
            version: 7,
            lengths: [BLOCK_BYTES as u32; SEGMENT_BLOCKS],
            hashes: [[0; 16]; SEGMENT_BLOCKS],
        };
        footer.lengths[15] = 3;
        footer.hashes[0] = block_hash(b"");
        footer.hashes[15] = block_hash(b"abc");
        footer
    }

    #[test]
    fn invariant_10_a_footer_has_its_golden_bytes() {
        let bytes = footer().bytes();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let golden = include_str!("footer.golden.txt");
        let golden: String = golden.split_whitespace().collect();
        assert_eq!(hex, golden);
        assert_eq!(Footer::read(&bytes), Some(footer()));
    }

    #[test]
    fn lengths_beyond_a_block_are_refused() {
        let mut footer = footer();
        footer.lengths[3] += 1;
        assert_eq!(Footer::read(&footer.bytes()), None);
    }

    #[test]
    fn a_version_with_none_behind_it_is_refused() {
        let mut footer = footer();
        footer.version = u32::MAX;
        assert_eq!(Footer::read(&footer.bytes()), None);
    }

    proptest! {
        #[test]
        fn invariant_6_no_changed_footer_is_believed(at in 0..FOOTER_BYTES, with in 1u8..) {
            let mut bytes = footer().bytes();
            bytes[at] ^= with;
            prop_assert_eq!(Footer::read(&bytes), None);
            prop_assert_eq!(Footer::read(&bytes[..at]), None);
        }

        #[test]
        fn invariant_6_no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert_eq!(Footer::read(&bytes), None);
        }
    }
}
