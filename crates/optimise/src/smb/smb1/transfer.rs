//! READ_ANDX, WRITE_ANDX, and the answer that is an error.

use super::super::bytes_le::{Put, slice_at};
use super::super::error::WireError;
use super::header::{Block, HEADER_BYTES, Header, chain_end, emit_block};

/// Words of an answer to READ_ANDX, bytes.
const READ_WORDS_BYTES: usize = 24;
/// Words of WRITE_ANDX, bytes.
const WRITE_WORDS_BYTES: usize = 28;
/// Available, of an answer about a file.
const AVAILABLE_NONE: u16 = 0xffff;

/// MS-CIFS 2.2.4.42.1, MS-SMB 2.2.4.2.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    /// Which file.
    pub file: u16,
    /// From where.
    pub offset: u64,
    /// How much, both halves: the upper is in what was the timeout, and all ones there are a timeout still.
    pub length: u32,
    /// MinCountOfBytesToReturn, of use for pipes.
    pub length_min: u16,
    /// Remaining.
    pub remaining: u16,
}

impl ReadRequest {
    /// Reads the command.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(block: &Block<'_>) -> Result<Self, WireError> {
        let mut reader = block.chained(&[10, 12])?;
        let (file, offset_low) = (reader.u16()?, reader.u32()?);
        let (length_low, length_min) = (reader.u16()?, reader.u16()?);
        let (length_high, remaining) = (reader.u32()?, reader.u16()?);
        let offset_high = match block.words.len() {
            24 => reader.u32()?,
            _ => 0,
        };
        let length_high = match length_high {
            u32::MAX => 0,
            high => high & 0xffff,
        };
        Ok(Self {
            file,
            offset: u64::from(offset_high) << 32 | u64::from(offset_low),
            length: length_high << 16 | u32::from(length_low),
            length_min,
            remaining,
        })
    }

    /// Appends the command.
    pub fn emit(&self, message: &mut Vec<u8>) {
        let mut words = chain_end();
        words.put_16(self.file);
        words.put_32((self.offset & 0xffff_ffff) as u32);
        words.put_16((self.length & 0xffff) as u16);
        words.put_16(self.length_min);
        words.put_32(self.length >> 16);
        words.put_16(self.remaining);
        words.put_32((self.offset >> 32) as u32);
        emit_block(&words, &[], message);
    }
}

/// Where the data of an answer to READ_ANDX is: its length and its offset (MS-CIFS 2.2.4.42.2, MS-SMB 2.2.4.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadHead {
    /// How much was read.
    pub length: u32,
    /// From the message's first byte.
    pub data_at: u16,
}

impl ReadHead {
    /// Reads the command.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(block: &Block<'_>) -> Result<Self, WireError> {
        let mut reader = block.chained(&[12])?;
        // Available, compaction, reserved.
        reader.take(6)?;
        let (length_low, data_at) = (reader.u16()?, reader.u16()?);
        let length = u32::from(reader.u16()?) << 16 | u32::from(length_low);
        Ok(Self { length, data_at })
    }

    /// The data.
    ///
    /// # Errors
    /// When it lies beyond the message's end.
    pub fn data<'a>(&self, message: &'a [u8]) -> Result<&'a [u8], WireError> {
        slice_at(message, self.data_at.into(), self.length as usize)
    }
}

/// Appends an answer to READ_ANDX; header and nothing else must lie before it.
pub fn emit_read_response(data: &[u8], message: &mut Vec<u8>) {
    // Word count, words, byte count, one byte of padding.
    let data_at = HEADER_BYTES + 1 + READ_WORDS_BYTES + 2 + 1;
    let mut words = chain_end();
    words.put_16(AVAILABLE_NONE);
    words.put_32(0);
    words.put_16((data.len() & 0xffff) as u16);
    words.put_16(data_at as u16);
    words.put_16((data.len() >> 16) as u16);
    words.put_64(0);
    emit_padded(&words, data, message);
}

/// MS-CIFS 2.2.4.43.1, MS-SMB 2.2.4.3.1, without what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteHead {
    /// Which file.
    pub file: u16,
    /// To where.
    pub offset: u64,
    /// 1: write-through; others are of pipes.
    pub mode: u16,
    /// How much.
    pub length: u32,
    /// Where it is, from the message's first byte.
    pub data_at: u16,
}

impl WriteHead {
    /// Reads the command.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(block: &Block<'_>) -> Result<Self, WireError> {
        let mut reader = block.chained(&[12, 14])?;
        let (file, offset_low) = (reader.u16()?, reader.u32()?);
        reader.u32()?;
        let mode = reader.u16()?;
        reader.u16()?;
        let (length_high, length_low) = (reader.u16()?, reader.u16()?);
        let data_at = reader.u16()?;
        let offset_high = match block.words.len() {
            WRITE_WORDS_BYTES => reader.u32()?,
            _ => 0,
        };
        Ok(Self {
            file,
            offset: u64::from(offset_high) << 32 | u64::from(offset_low),
            mode,
            length: u32::from(length_high) << 16 | u32::from(length_low),
            data_at,
        })
    }

    /// What is written.
    ///
    /// # Errors
    /// When it lies beyond the message's end.
    pub fn data<'a>(&self, message: &'a [u8]) -> Result<&'a [u8], WireError> {
        slice_at(message, self.data_at.into(), self.length as usize)
    }
}

/// Appends a WRITE_ANDX; header and nothing else must lie before it.
pub fn emit_write_request(file: u16, offset: u64, mode: u16, data: &[u8], message: &mut Vec<u8>) {
    let data_at = HEADER_BYTES + 1 + WRITE_WORDS_BYTES + 2 + 1;
    let mut words = chain_end();
    words.put_16(file);
    words.put_32((offset & 0xffff_ffff) as u32);
    words.put_32(0);
    words.put_16(mode);
    words.put_16(0);
    words.put_16((data.len() >> 16) as u16);
    words.put_16((data.len() & 0xffff) as u16);
    words.put_16(data_at as u16);
    words.put_32((offset >> 32) as u32);
    emit_padded(&words, data, message);
}

/// MS-CIFS 2.2.4.43.2, MS-SMB 2.2.4.3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteResponse {
    /// How much was written.
    pub count: u32,
}

impl WriteResponse {
    /// Reads the command.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(block: &Block<'_>) -> Result<Self, WireError> {
        let mut reader = block.chained(&[6])?;
        let count_low = reader.u16()?;
        reader.u16()?;
        let count = u32::from(reader.u16()?) << 16 | u32::from(count_low);
        Ok(Self { count })
    }

    /// Appends the command.
    pub fn emit(&self, message: &mut Vec<u8>) {
        let mut words = chain_end();
        words.put_16((self.count & 0xffff) as u16);
        words.put_16(AVAILABLE_NONE);
        words.put_16((self.count >> 16) as u16);
        words.put_16(0);
        emit_block(&words, &[], message);
    }
}

/// The answer to a request that failed (MS-CIFS 2.2.3.1): nothing but a header.
#[must_use]
pub fn error(answer: &Header, status: u32) -> Vec<u8> {
    let mut message = Vec::new();
    Header { status, ..*answer }.emit(&mut message);
    emit_block(&[], &[], &mut message);
    message
}

/// Data behind one byte of padding, without a copy of it in between.
fn emit_padded(words: &[u8], data: &[u8], message: &mut Vec<u8>) {
    message.reserve(words.len() + data.len() + 4);
    emit_block(words, &[0], message);
    // The count lies before the byte of padding.
    let at = message.len() - 3;
    let count = ((data.len() + 1) & 0xffff) as u16;
    if let Some(place) = message.get_mut(at..at + 2) {
        place.copy_from_slice(&count.to_le_bytes());
    }
    message.put_bytes(data);
}
