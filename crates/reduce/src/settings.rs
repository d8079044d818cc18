//! What an owner decides about an encoder and a decoder.

use crate::frame::{FRAME_INPUT_BYTES_MAX, FRAME_PLAIN_BYTES_MAX};

/// What a large block of memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Looked up anywhere.
    Index,
    /// Written and mostly read in order.
    Log,
}

/// Kept bytes for which there is room for one stretch of the virtual log.
pub(crate) const BYTES_PER_EXTENT: usize = 256;
/// Beside a disk there is room for so many stretches (16 MiB), however small the memory: they tell what is on disk, too.
const DISK_EXTENTS: usize = 1 << 20;
/// For so many bytes of disk one byte of anchors: 8 bytes for each 8 KiB, and some places of the index stay empty.
pub const DISK_PER_ANCHORS: usize = 900;

/// Called with a large block of memory before it is first touched, for example to ask for huge pages.
pub type Advise = fn(what: Memory, start: *const u8, bytes: usize);

/// Sizes and keys. Both ends of a direction must have the same `hash_key`; everything else is each end's own affair.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Kept bytes at hand.
    pub memory_bytes: usize,
    /// The encoder's index. A ninth of the memory remembers every sample of it.
    pub index_bytes: usize,
    /// The encoder's index of what is no longer in memory, 8 bytes for 8 KiB; 0 if its owner does not have it either.
    pub anchor_bytes: usize,
    /// The decoder's index of what may be sent back ([`crate::Decoder::echoes`]), at most 8 bytes for 512; 0 if nobody asks.
    pub echo_bytes: usize,
    /// Stretches of the virtual log that are remembered, 16 bytes each.
    pub extents_max: usize,
    /// Input one frame may stand for, at most [`FRAME_INPUT_BYTES_MAX`].
    pub frame_input_bytes: usize,
    /// Literals after which a frame ends.
    pub frame_literal_bytes: usize,
    /// Makes the encoder's index unforeseeable.
    pub seed: u64,
    /// Key of the hash over every reconstructed frame.
    pub hash_key: u64,
    /// Told of the large blocks of memory before they are touched.
    pub advise: Advise,
}

impl Settings {
    /// With `memory_bytes` of kept bytes and everything else in proportion.
    pub fn of_memory(memory_bytes: usize) -> Self {
        Self {
            memory_bytes,
            index_bytes: memory_bytes / 9,
            anchor_bytes: 0,
            echo_bytes: 0,
            extents_max: (memory_bytes / BYTES_PER_EXTENT).max(4096),
            frame_input_bytes: FRAME_INPUT_BYTES_MAX,
            frame_literal_bytes: FRAME_PLAIN_BYTES_MAX / 2,
            seed: 0x51_7C_C1_B7_27_22_0A_95,
            hash_key: 0,
            advise: |_, _, _| (),
        }
    }

    /// With `memory_bytes` of kept bytes at hand and `disk_bytes` on disk, of which the memory is a part. Anchors and the
    /// map of what is on disk come on top of the memory, or a large disk would want a large memory.
    pub fn of_memory_and_disk(memory_bytes: usize, disk_bytes: usize) -> Self {
        let settings = Self::of_memory(memory_bytes);
        let extents = (disk_bytes / BYTES_PER_EXTENT).min(DISK_EXTENTS);
        Self {
            anchor_bytes: disk_bytes / DISK_PER_ANCHORS,
            extents_max: settings.extents_max.max(extents),
            ..settings
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_a_map_of_its_own_size_beside_a_small_memory() {
        let extents = |memory, disk| Settings::of_memory_and_disk(memory, disk).extents_max;
        assert_eq!(extents(32 << 20, 0), 131_072);
        assert_eq!(extents(32 << 20, 128 << 20), 524_288);
        assert_eq!(extents(32 << 20, 1 << 40), 1 << 20, "16 MiB at most");
        assert_eq!(extents(1 << 30, 1 << 40), 4 << 20, "as without a disk");
    }
}
