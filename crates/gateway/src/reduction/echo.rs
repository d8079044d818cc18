//! Bytes that go back to where they came from: a document that was opened and is saved.
//!
//! The reader of such a record has sent them in the other direction, and has them in its log. So the record names them there, and
//! its frame is bare. What is named is put together and held against the frame's hash; if it is not that, or not there any more,
//! the record is asked for like any other.
//!
//! | field | bytes | meaning |
//! |---|---|---|
//! | epoch | 4 | of the reader's log |
//! | parts | 1 | how many |
//! | others | 4 | each part: so many bytes come first that the reader has not |
//! | position | 8 | where what follows is in its log |
//! | bytes | 4 | and how much of it |
//! | frame bytes | 3 | |
//! | frame | | bare |
//! | others | | those bytes; the last of them come behind the last part |

use bytes::{Buf, Bytes};
use farhaul_reduce::{Decoder, FRAME_INPUT_BYTES_MAX};

/// In a record.
const PARTS_MAX: usize = 255;
/// Bytes of one.
const PART_BYTES: usize = 16;

/// A stretch of the reader's log, and how many bytes come before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) others: u32,
    pub(super) position: u64,
    pub(super) bytes: u32,
}

/// What a frame stands for, in the words of what its reader has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Echoed {
    /// Of the reader's log.
    pub(super) epoch: u32,
    pub(super) parts: Vec<Part>,
    /// What it has not.
    pub(super) others: Bytes,
}

impl Echoed {
    /// What of these bytes the peer has sent, by our copy of its log. `None` if to say so, and the rest, takes more bytes than that.
    pub(super) fn of(
        epoch: u32,
        decoder: &Decoder,
        input: &[u8],
        most_bytes: usize,
    ) -> Option<Self> {
        let echoes = decoder.echoes(input);
        let known_bytes: usize = echoes.iter().map(|echo| echo.bytes).sum();
        let said_bytes = input.len() - known_bytes + echoes.len() * PART_BYTES;
        if echoes.len() > PARTS_MAX || said_bytes > most_bytes {
            return None;
        }
        let (mut parts, mut others, mut done) = (Vec::new(), Vec::new(), 0);
        for echo in echoes {
            let between = input.get(done..echo.at)?;
            others.extend_from_slice(between);
            parts.push(Part {
                others: between.len() as u32,
                position: echo.position,
                bytes: echo.bytes as u32,
            });
            done = echo.at + echo.bytes;
        }
        others.extend_from_slice(input.get(done..)?);
        Some(Self {
            epoch,
            parts,
            others: others.into(),
        })
    }

    /// What it stands for; `said` has our log's bytes from a position on.
    pub(super) fn whole(&self, said: impl Fn(u64, u64) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        let known_bytes: usize = self.parts.iter().map(|part| part.bytes as usize).sum();
        let all_bytes = known_bytes + self.others.len();
        if all_bytes > FRAME_INPUT_BYTES_MAX {
            return None;
        }
        let mut whole = Vec::with_capacity(all_bytes);
        let mut others = self.others.clone();
        for part in &self.parts {
            let first = part.others as usize;
            if first > others.len() {
                return None;
            }
            whole.extend_from_slice(&others.split_to(first));
            whole.extend(said(part.position, part.bytes.into())?);
        }
        whole.extend_from_slice(&others);
        Some(whole)
    }

    /// Appends it, and the frame that stands for the same.
    pub(super) fn put(&self, frame: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.epoch.to_be_bytes());
        out.push(self.parts.len() as u8);
        for part in &self.parts {
            out.extend_from_slice(&part.others.to_be_bytes());
            out.extend_from_slice(&part.position.to_be_bytes());
            out.extend_from_slice(&part.bytes.to_be_bytes());
        }
        let [_, length @ ..] = (frame.len() as u32).to_be_bytes();
        out.extend_from_slice(&length);
        out.extend_from_slice(frame);
        out.extend_from_slice(&self.others);
    }

    /// It, and the frame.
    pub(super) fn read(mut payload: Bytes) -> Option<(Self, Bytes)> {
        let epoch = payload.try_get_u32().ok()?;
        let count = payload.try_get_u8().ok()?;
        let mut parts = Vec::with_capacity(count.into());
        for _ in 0..count {
            parts.push(Part {
                others: payload.try_get_u32().ok()?,
                position: payload.try_get_u64().ok()?,
                bytes: payload.try_get_u32().ok()?,
            });
        }
        let frame_bytes = payload.try_get_uint(3).ok()? as usize;
        if frame_bytes == 0 || frame_bytes > payload.len() {
            return None;
        }
        let frame = payload.split_to(frame_bytes);
        let others = payload;
        Some((
            Self {
                epoch,
                parts,
                others,
            },
            frame,
        ))
    }
}
