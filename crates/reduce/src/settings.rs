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
            extents_max: (memory_bytes / BYTES_PER_EXTENT).max(4096),
            frame_input_bytes: FRAME_INPUT_BYTES_MAX,
            frame_literal_bytes: FRAME_PLAIN_BYTES_MAX / 2,
            seed: 0x51_7C_C1_B7_27_22_0A_95,
            hash_key: 0,
            advise: |_, _, _| (),
        }
    }
}
