//! The frames on the wire, version 1.
//!
//! A frame is one byte of type and its fields to the end of the stream. Integers marked `v` are
//! variable-length integers of RFC 9000 section 16; others are big-endian of the size stated.
//!
//! | type | frame | fields | effect |
//! |---|---|---|---|
//! | 01 | HELLO | magic "FHAU", version min 2, version max 2, instance 16, features 8, initial window v, flows max v, site (length 1, UTF-8), anything | negotiates the version; bytes after the site are for later versions and ignored |
//! | 02 | PING | nonce 8, sent 8 | answered with PONG |
//! | 03 | PONG | nonce 8, sent 8 (as received) | measures the round trip |
//! | 10 | OPEN | flow v, flags 1 (bit 0: keep client address; bits 1-2: error correction, 0 auto, 1 off, 2 on, not 0 only if both offered it; bits 3-5: payload, 0 plain, 1 records that refer, 2 records that are compressed, 3 both, 4 the channel, 5 records to be remembered, 6 a measurement of the path, 1 to 5 only if both offered reduction, 5 only if both offered warming, 6 only if both offered measuring; bit 6: items of optimisers, only if both offered them; bit 7: there is a level, only with payload 2 or 3 and if both offered levels), class 1, dscp 1, level 1 (signed, -7 to 22) if bit 7, client address, target | frame 0 of the opener's direction |
//! | 11 | DATA | flow v, number v (from 1), payload (not empty) | |
//! | 12 | END | flow v, number v, bytes v (payload of the whole direction), payload | last numbered frame: half close |
//! | 13 | RESET | flow v, code 1 | both directions are over, unread data is dropped |
//! | 14 | ANSWER | flow v, verdict 1 (0 accepted, else why refused) | frame 0 of the other direction |
//! | 15 | CREDIT | flow v, limit v | the receiver of this frame may have sent `limit` bytes, what it has given back included |
//! | 16 | RECLAIM | flow v, keep v | the receiver of this frame gives back all its credit but `keep` bytes, and answers with RETURNED; only if both offered it |
//! | 17 | RETURNED | flow v, returned v | the sender of this frame has given back `returned` bytes of credit in all, which count as sent |
//! | 80 | DRAIN | anything | the sender shuts down: open no more flows here; those that stand go on |
//! | 81 | FILLER | anything | skipped; sent to find the link's rate while nobody has anything to send |
//! | 82-ff | optional | anything | skipped when unknown, as 80 and 81 are |
//!
//! An address is 4, four bytes, port 2; or 6, sixteen bytes, port 2. A target is an address, or
//! 1, length 1, name, port 2. Unknown types below 80 are an error. Golden bytes of every frame are
//! in `tests/golden.rs`; they change only with a protocol version (invariant 10).

mod repr;
mod wire;

pub use repr::{Frame, HelloFrame};
pub(crate) use repr::{data_header, request_problem, site_for_wire};

/// No frame is longer than this, header included, bytes.
pub const FRAME_BYTES_HARD_MAX: usize = 256 * 1024;

/// Read as any other optional frame.
pub(crate) const FILLER: u8 = 0x81;

/// Types from here on are skipped by those who do not know them.
pub const OPTIONAL_TYPE_MIN: u8 = 0x80;

/// Room to leave for the header of a data frame: type, three varints; bytes.
pub(crate) const DATA_HEADER_BYTES_MAX: usize = 1 + 3 * 8;
