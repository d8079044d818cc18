//! Redundancy elimination and compression of byte streams between two gateways. Pure: bytes in, bytes out.
//!
//! Both ends remember what passed in one direction, in a log of virtual positions ([`Encoder`] gives them, [`Decoder`] follows).
//! What is in the log already is sent as a reference, runs of one byte as such, everything else as literals, and those are
//! compressed at the level that moves the most ([`Levels`]). How and why: `docs/design/reduction.md`.
//!
//! # A frame
//! Numbers are of seven bits a byte, lowest first, in their shortest form.
//!
//! | field | bytes | there | meaning |
//! |---|---|---|---|
//! | flags | 1 | always | 1 compressed, 2 has tokens, 4 remembered, 8 bare; the others are zero |
//! | length | 1-4 | always | bytes of input it stands for, at most 4 MiB |
//! | position | 1-9 | remembered | virtual position of its first byte |
//! | address | 1-9 | remembered | address of the first byte it keeps |
//! | token bytes | 1-3 | has tokens | how much of the payload's end is tokens |
//! | plain bytes | 1-3 | compressed | length of the payload before compression, at most 512 KiB |
//! | payload bytes | 1-3 | always | length of the payload as it follows |
//! | hash | 16 | always | keyed XXH3-128 of the input, little-endian |
//! | payload | | always | literals, then tokens; compressed together as one zstd frame. A bare frame has tokens only, not compressed: its reader has the bytes it stands for from elsewhere |
//!
//! # A token
//!
//! | field | bytes | meaning | effect | side effect |
//! |---|---|---|---|---|
//! | literals | 1-4 | so many literals come first | they are output | they are kept |
//! | kind | 1-4 | four times the length of what follows, plus 0 for a copy, 1 for a run, 2 for a copy that is kept again | | |
//! | distance | 1-9 | copies: signed distance (0, -1, 1, -2, ... as 0, 1, 2, 3, ...) from where the last token's source would go on | the bytes there are output; they may reach into this output | a copy: the virtual log repeats them, nothing is kept; kept again: they are kept as literals are |
//! | byte | 1 | runs: this byte | it is output so often | nothing is kept |
//!
//! The first token's distance is from the frame's own position. Literals that no token counts are the frame's end.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod ahead;
mod codec;
mod copy;
mod decoder;
mod echo;
mod encoder;
mod error;
mod extend;
mod extents;
mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod index;
mod level;
mod log;
mod noise;
mod prefetch;
mod reach;
mod run;
mod sampler;
mod segments;
mod settings;
mod stats;
mod stream;
mod token;
mod varint;

pub use codec::{Codec, Compressor};
pub use decoder::{Decoded, Decoder};
pub use echo::Echo;
pub use encoder::Encoder;
pub use error::FrameError;
pub use frame::{FRAME_INPUT_BYTES_MAX, FRAME_PLAIN_BYTES_MAX, LogPlace, Plain, place_of};
pub use level::{Levels, TRIAL_EVERY};
pub use log::{ReadAt, SEGMENT_BYTES};
pub use sampler::{Sampler, Sampling};
pub use segments::{BLOCK_BYTES, BlockLengths, SEGMENT_BLOCKS, Segments};
pub use settings::{Advise, DISK_PER_ANCHORS, Memory, Settings};
pub use stats::{DecoderStats, EncoderStats};
