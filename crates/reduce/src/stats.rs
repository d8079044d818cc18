//! Counters of encoder and decoder.

/// What an encoder did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncoderStats {
    /// Bytes taken from flows.
    pub input_bytes: u64,
    /// Bytes that were new.
    pub literal_bytes: u64,
    /// Bytes of tokens.
    pub token_bytes: u64,
    /// Bytes sent by reference.
    pub known_bytes: u64,
    /// Of those, bytes in segments that were put in: [`crate::Encoder::seed`], [`crate::Encoder::recall`].
    pub returned_bytes: u64,
    /// Bytes sent as runs.
    pub run_bytes: u64,
    /// Matches, also those that went on where another ended.
    pub matches: u64,
    /// Matches that the index found.
    pub matches_found: u64,
    /// Places the index named that held something else, or something out of reach.
    pub false_finds: u64,
    /// New bytes that were not remembered: nothing could go, for the other end held too little.
    pub unkept_bytes: u64,
    /// Frames the other end could not read.
    pub missed: u64,
    /// Segments that came back into memory.
    pub recalled: u64,
    /// Finished frames.
    pub frames: u64,
    /// Memory of the index.
    pub index_bytes: u64,
    /// Stretches of the virtual log.
    pub extents: u64,
    /// Frames under way: neither held at the other end nor read there, nor given up.
    pub unheld_frames: u64,
}

/// What a decoder did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecoderStats {
    /// Frames whose bytes were released.
    pub frames: u64,
    /// Bytes released.
    pub output_bytes: u64,
    /// Frames that refer to what is not here.
    pub missed: u64,
    /// Times a frame referred to a segment that may be elsewhere.
    pub away: u64,
    /// Frames whose reconstruction has another hash than the frame says.
    pub mismatched: u64,
    /// Frames that cannot be read.
    pub malformed: u64,
}
