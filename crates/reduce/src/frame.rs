//! Frames: the unit that is checked, acknowledged and sent again. The table is in the crate's documentation.

use twox_hash::xxhash3_128;

use crate::codec::{Codec, Compressor};
use crate::copy::append;
use crate::error::FrameError;
use crate::varint;

/// Most bytes of input that one frame stands for.
pub const FRAME_INPUT_BYTES_MAX: usize = 4 << 20;
/// Most bytes of tokens and literals in one frame, before compression.
pub const FRAME_PLAIN_BYTES_MAX: usize = 512 << 10;

const FLAG_COMPRESSED: u8 = 1;
const FLAG_TOKENS: u8 = 2;
const FLAG_LEARNED: u8 = 4;
const FLAG_BARE: u8 = 8;
const FLAGS: u8 = FLAG_COMPRESSED | FLAG_TOKENS | FLAG_LEARNED | FLAG_BARE;

/// Where a frame's bytes go in the log of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPlace {
    /// Virtual position of its first byte.
    pub position: u64,
    /// Address of its first literal.
    pub address: u64,
}

/// A frame before compression: what the encoder makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plain {
    /// The flow it belongs to; the tunnel knows, so it is not written.
    pub flow: u64,
    /// Where it goes in the log; `None` if it is not remembered.
    pub place: Option<LogPlace>,
    /// Bytes of input it stands for.
    pub length: usize,
    /// How many of the payload's bytes are tokens.
    pub token_bytes: usize,
    /// Literals, then tokens.
    pub payload: Vec<u8>,
    /// Hash of the input.
    pub hash: u128,
}

impl Plain {
    /// A frame that is these bytes, refers to nothing and is not remembered. At most half of [`FRAME_PLAIN_BYTES_MAX`].
    pub fn literal(flow: u64, bytes: &[u8], hash_key: u64) -> Self {
        Self {
            flow,
            place: None,
            length: bytes.len(),
            token_bytes: 0,
            payload: bytes.to_vec(),
            hash: xxhash3_128::Hasher::oneshot_with_seed(hash_key, bytes),
        }
    }

    /// Appends the frame as it is sent to `bytes`, its payload compressed if that makes it shorter.
    pub fn seal(&self, codec: Codec, compressor: &mut Compressor, bytes: &mut Vec<u8>) {
        match compressor.compress(codec, &self.payload) {
            Some(compressed) => self.put(FLAG_COMPRESSED, compressed, bytes),
            None => self.put(0, &self.payload, bytes),
        }
    }

    /// Appends the frame without its literals, for a decoder that has the bytes it stands for from elsewhere
    /// ([`crate::Decoder::decode_bare`]). A frame that is not remembered has no use for that.
    pub fn seal_bare(&self, bytes: &mut Vec<u8>) {
        let literal_bytes = self.payload.len().saturating_sub(self.token_bytes);
        let tokens = self.payload.get(literal_bytes..).unwrap_or_default();
        self.put(FLAG_BARE, tokens, bytes);
    }

    fn put(&self, mut flags: u8, payload: &[u8], bytes: &mut Vec<u8>) {
        let mut set = |flag: u8, is_set: bool| flags |= if is_set { flag } else { 0 };
        set(FLAG_TOKENS, self.token_bytes > 0);
        set(FLAG_LEARNED, self.place.is_some());
        bytes.reserve(payload.len() + 64);
        bytes.push(flags);
        varint::put(bytes, self.length as u64);
        if let Some(place) = self.place {
            varint::put(bytes, place.position);
            varint::put(bytes, place.address);
        }
        if self.token_bytes > 0 {
            varint::put(bytes, self.token_bytes as u64);
        }
        if flags & FLAG_COMPRESSED != 0 {
            varint::put(bytes, self.payload.len() as u64);
        }
        varint::put(bytes, payload.len() as u64);
        bytes.extend_from_slice(&self.hash.to_le_bytes());
        append(bytes, payload);
    }
}

/// A frame that was received: a view of its bytes with every number checked, nothing decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View<'a> {
    pub(crate) place: Option<LogPlace>,
    pub(crate) length: usize,
    pub(crate) token_bytes: usize,
    /// Bytes of the payload when decompressed.
    pub(crate) plain_bytes: usize,
    pub(crate) is_compressed: bool,
    /// Its literals are elsewhere.
    pub(crate) is_bare: bool,
    pub(crate) hash: u128,
    pub(crate) payload: &'a [u8],
}

/// Where a frame goes in the log, and the bytes of input it stands for.
pub fn place_of(frame: &[u8]) -> Result<(Option<LogPlace>, usize), FrameError> {
    View::read(frame).map(|view| (view.place, view.length))
}

impl<'a> View<'a> {
    /// Reads one whole frame.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let (&flags, mut rest) = bytes.split_first().ok_or(FrameError::Truncated)?;
        if flags & !FLAGS != 0 {
            return Err(FrameError::Flags(flags));
        }
        let has = |flag: u8| flags & flag != 0;
        let rest = &mut rest;
        let length = number_up_to(rest, FRAME_INPUT_BYTES_MAX)?;
        let place = if has(FLAG_LEARNED) {
            Some(read_place(rest, length)?)
        } else {
            None
        };
        let token_bytes = if has(FLAG_TOKENS) {
            number_up_to(rest, FRAME_PLAIN_BYTES_MAX)?
        } else {
            0
        };
        let unpacked = if has(FLAG_COMPRESSED) {
            Some(number_up_to(rest, FRAME_PLAIN_BYTES_MAX)?)
        } else {
            None
        };
        let payload_bytes = number_up_to(rest, FRAME_PLAIN_BYTES_MAX)?;
        let hash = read_hash(rest)?;
        let plain_bytes = unpacked.unwrap_or(payload_bytes);
        match rest.len().checked_sub(payload_bytes) {
            None => return Err(FrameError::Truncated),
            Some(0) => (),
            Some(more) => return Err(FrameError::Trailing(more)),
        }
        if token_bytes > plain_bytes
            || plain_bytes - token_bytes > length
            || has(FLAG_TOKENS) != (token_bytes > 0)
            || length == 0
        {
            return Err(FrameError::Length);
        }
        let is_bare = has(FLAG_BARE);
        let is_right = match is_bare {
            true => plain_bytes == token_bytes && place.is_some() && !has(FLAG_COMPRESSED),
            false => token_bytes > 0 || plain_bytes == length,
        };
        if !is_right {
            return Err(FrameError::Length);
        }
        let is_compressed = has(FLAG_COMPRESSED);
        Ok(Self {
            place,
            length,
            token_bytes,
            plain_bytes,
            is_compressed,
            is_bare,
            hash,
            payload: rest,
        })
    }
}

/// Positions and addresses stay below this, so that sums of them never overflow.
const PLACE_MAX: u64 = 1 << 60;

fn read_place(rest: &mut &[u8], length: usize) -> Result<LogPlace, FrameError> {
    let position = varint::take(rest).ok_or(FrameError::Number)?;
    let address = varint::take(rest).ok_or(FrameError::Number)?;
    if position > PLACE_MAX - length as u64 || address > PLACE_MAX {
        return Err(FrameError::Place);
    }
    Ok(LogPlace { position, address })
}

fn read_hash(rest: &mut &[u8]) -> Result<u128, FrameError> {
    let (hash, after) = rest
        .split_first_chunk::<16>()
        .ok_or(FrameError::Truncated)?;
    *rest = after;
    Ok(u128::from_le_bytes(*hash))
}

fn number_up_to(rest: &mut &[u8], max: usize) -> Result<usize, FrameError> {
    let value = varint::take(rest).ok_or(FrameError::Number)?;
    usize::try_from(value)
        .ok()
        .filter(|&value| value <= max)
        .ok_or(FrameError::TooLong(value))
}
