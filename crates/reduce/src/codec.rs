//! Compression of what is new: zstd of any level, or none.

use zstd_safe::{CCtx, CParameter, DCtx};

/// How a frame's payload is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Codec {
    /// Not at all.
    Null,
    /// zstd at this level, -7 to 22; 0 counts as 1. Beyond 9 only where somebody asks for it.
    Zstd(i8),
}

/// Payloads shorter than this are not worth a try.
const PAYLOAD_BYTES_MIN: usize = 48;

/// Compresses payloads, one at a time, in memory that is used again.
pub struct Compressor {
    context: CCtx<'static>,
    level: Option<i8>,
    room: Vec<u8>,
}

impl Compressor {
    /// One that has compressed nothing yet.
    pub fn new() -> Self {
        Self {
            context: CCtx::create(),
            level: None,
            room: Vec::new(),
        }
    }

    /// The payload compressed; `None` if that does not make it at least a twentieth shorter.
    pub(crate) fn compress(&mut self, codec: Codec, payload: &[u8]) -> Option<&[u8]> {
        let Codec::Zstd(level) = codec else {
            return None;
        };
        if payload.len() < PAYLOAD_BYTES_MIN {
            return None;
        }
        self.set_level(level.clamp(-7, 22))?;
        let bytes_max = payload.len() - payload.len() / 20;
        // zstd is quickest where its output is sure to fit.
        let bound = zstd_safe::compress_bound(payload.len());
        if self.room.len() < bound {
            self.room.resize(bound, 0);
        }
        let written = self
            .context
            .compress2(self.room.as_mut_slice(), payload)
            .ok()?;
        self.room.get(..written).filter(|_| written <= bytes_max)
    }

    fn set_level(&mut self, level: i8) -> Option<()> {
        if self.level != Some(level) {
            let level_asked = i32::from(if level == 0 { 1 } else { level });
            self.context
                .set_parameter(CParameter::CompressionLevel(level_asked))
                .ok()?;
            // The frame says how long it is and has a hash of its own.
            self.context
                .set_parameter(CParameter::ContentSizeFlag(false))
                .ok()?;
            self.level = Some(level);
        }
        Some(())
    }
}

impl Default for Compressor {
    fn default() -> Self {
        Self::new()
    }
}

/// Decompresses payloads.
pub(crate) struct Decompressor {
    context: DCtx<'static>,
}

impl Decompressor {
    pub(crate) fn new() -> Self {
        Self {
            context: DCtx::create(),
        }
    }

    /// Decompresses exactly `plain_bytes` into `room`; `None` if it is not that.
    pub(crate) fn decompress(
        &mut self,
        payload: &[u8],
        plain_bytes: usize,
        room: &mut Vec<u8>,
    ) -> Option<()> {
        room.clear();
        room.resize(plain_bytes, 0);
        let written = self.context.decompress(room.as_mut_slice(), payload).ok()?;
        (written == plain_bytes).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_comes_back() {
        let payload = b"what is said twice is said once, in fewer words ".repeat(2000);
        let mut compressor = Compressor::new();
        let mut room = Vec::new();
        for level in -9..=12 {
            let compressed = compressor.compress(Codec::Zstd(level), &payload).unwrap();
            assert!(
                compressed.len() < payload.len() / 4,
                "level {level}: {}",
                compressed.len()
            );
            Decompressor::new()
                .decompress(compressed, payload.len(), &mut room)
                .unwrap();
            assert!(room == payload, "level {level}");
        }
        assert_eq!(compressor.compress(Codec::Null, &payload), None);
    }

    #[test]
    fn what_does_not_get_shorter_stays() {
        let mut state = 5u64;
        let mut noise = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        let payload: Vec<u8> = std::iter::repeat_with(&mut noise).take(10_000).collect();
        assert_eq!(Compressor::new().compress(Codec::Zstd(3), &payload), None);
    }
}
