//! READ, WRITE, FLUSH, and the answer that is an error.

use super::super::bytes_le::{Put, Reader, narrow, slice_at};
use super::super::error::WireError;
use super::header::{HEADER_BYTES, STATUS_AT, write};
use super::open::FileId;

/// STATUS_SUCCESS.
pub const STATUS_OK: u32 = 0;
/// STATUS_PENDING: the answer comes later, under an asynchronous id.
pub const STATUS_PENDING: u32 = 0x0000_0103;
/// STATUS_DISK_FULL.
pub const STATUS_DISK_FULL: u32 = 0xc000_007f;
/// STATUS_BUFFER_OVERFLOW: a warning, with data.
pub const STATUS_BUFFER_OVERFLOW: u32 = 0x8000_0005;
/// STATUS_END_OF_FILE.
pub const STATUS_END_OF_FILE: u32 = 0xc000_0011;
/// STATUS_MORE_PROCESSING_REQUIRED: a session is being set up.
pub const STATUS_MORE_PROCESSING: u32 = 0xc000_0016;

/// What Windows and Samba take for the end of the longest file; writes beyond it they refuse.
pub const FILE_BYTES_MAX: u64 = 0xfff_ffff_0000;
/// Offsets have a sign (MS-FSA 2.1.5.3): a server refuses to read from there on, whatever the file.
pub const OFFSETS_END: u64 = 1 << 63;

/// Bytes of an answer before the data it carries.
pub const READ_RESPONSE_BYTES: usize = 16;

/// An answer that is an error, with a header and no data (MS-SMB2 2.2.2).
pub const ERROR_MESSAGE_BYTES: usize = HEADER_BYTES + 9;

/// MS-SMB2 2.2.19.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    /// Flags of 3.0.2 and later; reserved before.
    pub flags: u8,
    /// How much.
    pub length: u32,
    /// From where.
    pub offset: u64,
    /// Which file.
    pub file: FileId,
    /// With less it is an error.
    pub length_min: u32,
    /// Where the data goes, other than into the answer: RDMA.
    pub channel: u32,
    /// RemainingBytes.
    pub remaining: u32,
}

impl ReadRequest {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(49)?;
        reader.u8()?;
        let (flags, length, offset) = (reader.u8()?, reader.u32()?, reader.u64()?);
        let file = FileId::parse(&mut reader)?;
        let (length_min, channel, remaining) = (reader.u32()?, reader.u32()?, reader.u32()?);
        reader.u32()?;
        Ok(Self {
            flags,
            length,
            offset,
            file,
            length_min,
            channel,
            remaining,
        })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(49);
        // 2.2.19 Padding: where the client would like the data to begin in the answer.
        message.put_8(narrow(HEADER_BYTES + READ_RESPONSE_BYTES));
        message.put_8(self.flags);
        message.put_32(self.length);
        message.put_64(self.offset);
        self.file.emit(message);
        message.put_32(self.length_min);
        message.put_32(self.channel);
        message.put_32(self.remaining);
        message.put_32(0);
        message.put_8(0);
    }
}

/// MS-SMB2 2.2.20.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadResponse<'a> {
    /// DataRemaining.
    pub remaining: u32,
    /// What was read.
    pub data: &'a [u8],
}

impl<'a> ReadResponse<'a> {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(17)?;
        let data_at = reader.u8()?;
        reader.u8()?;
        let (data_bytes, remaining) = (reader.u32()?, reader.u32()?);
        reader.u32()?;
        let data = slice_at(message, data_at.into(), data_bytes as usize)?;
        Ok(Self { remaining, data })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(17);
        message.put_8(narrow(HEADER_BYTES + READ_RESPONSE_BYTES));
        message.put_8(0);
        message.put_32(narrow(self.data.len()));
        message.put_32(self.remaining);
        message.put_32(0);
        message.put_bytes(self.data);
    }
}

/// MS-SMB2 2.2.21.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRequest<'a> {
    /// To where.
    pub offset: u64,
    /// Which file.
    pub file: FileId,
    /// Where the data comes from, other than this message: RDMA.
    pub channel: u32,
    /// RemainingBytes.
    pub remaining: u32,
    /// 1: write-through.
    pub flags: u32,
    /// What.
    pub data: &'a [u8],
}

impl<'a> WriteRequest<'a> {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(49)?;
        let (data_at, data_bytes, offset) = (reader.u16()?, reader.u32()?, reader.u64()?);
        let file = FileId::parse(&mut reader)?;
        let (channel, remaining) = (reader.u32()?, reader.u32()?);
        reader.u32()?;
        Ok(Self {
            offset,
            file,
            channel,
            remaining,
            flags: reader.u32()?,
            data: slice_at(message, data_at.into(), data_bytes as usize)?,
        })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(49);
        message.put_16(narrow(HEADER_BYTES + 48));
        message.put_32(narrow(self.data.len()));
        message.put_64(self.offset);
        self.file.emit(message);
        message.put_32(self.channel);
        message.put_32(self.remaining);
        message.put_32(0);
        message.put_32(self.flags);
        message.put_bytes(self.data);
    }
}

/// A write without what is written: its beginning is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteHead {
    /// To where.
    pub offset: u64,
    /// How much.
    pub length: u32,
    /// Which file.
    pub file: FileId,
    /// 1: write-through.
    pub flags: u32,
    /// Where the data comes from, other than this message.
    pub channel: u32,
    /// Behind the message's last byte, where it is as long as it says.
    pub message_bytes: usize,
}

impl WriteHead {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(49)?;
        let (data_at, length, offset) = (reader.u16()?, reader.u32()?, reader.u64()?);
        let file = FileId::parse(&mut reader)?;
        let channel = reader.u32()?;
        reader.take(8)?;
        let flags = reader.u32()?;
        Ok(Self {
            offset,
            length,
            file,
            flags,
            channel,
            message_bytes: usize::from(data_at).saturating_add(length as usize),
        })
    }

    /// Whether nothing but bytes is to be written, in a message of this length.
    #[must_use]
    pub fn is_plain(&self, message_bytes: usize) -> bool {
        let end = self.offset.checked_add(self.length.into());
        let has_place = end.is_some_and(|end| end <= FILE_BYTES_MAX);
        let is_whole = self.message_bytes <= message_bytes;
        self.flags == 0 && self.channel == 0 && self.length > 0 && has_place && is_whole
    }
}

/// MS-SMB2 2.2.22.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteResponse {
    /// How much was written.
    pub count: u32,
    /// Remaining.
    pub remaining: u32,
}

impl WriteResponse {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(17)?;
        reader.u16()?;
        let (count, remaining) = (reader.u32()?, reader.u32()?);
        reader.u32()?;
        Ok(Self { count, remaining })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(17);
        message.put_16(0);
        message.put_32(self.count);
        message.put_32(self.remaining);
        message.put_32(0);
    }
}

/// MS-SMB2 2.2.17.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushRequest {
    /// Which file.
    pub file: FileId,
}

impl FlushRequest {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(24)?;
        reader.take(6)?;
        let file = FileId::parse(&mut reader)?;
        Ok(Self { file })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(24);
        message.put_bytes(&[0; 6]);
        self.file.emit(message);
    }
}

/// Makes the answer that lies in `message` an error. What is left of its body means nothing.
pub fn set_error(message: &mut [u8], status: u32) {
    write(message, STATUS_AT, &status.to_le_bytes());
    if let Some(body) = message.get_mut(HEADER_BYTES..) {
        body.fill(0);
    }
    write(message, HEADER_BYTES, &9u16.to_le_bytes());
}

/// Body of an answer that carries nothing: FLUSH, ECHO, LOGOFF, TREE_DISCONNECT (MS-SMB2 2.2.18 and others).
pub fn emit_empty(message: &mut Vec<u8>) {
    message.put_16(4);
    message.put_16(0);
}

/// MS-SMB2 2.2.2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorResponse {
    /// What the status needs.
    pub data: Vec<u8>,
}

impl ErrorResponse {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(9)?;
        reader.u16()?;
        let data_bytes = reader.u32()?;
        let data = reader.take(data_bytes as usize)?.to_vec();
        Ok(Self { data })
    }

    /// Appends the body. One byte follows even where there is no data.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(9);
        message.put_16(0);
        message.put_32(narrow(self.data.len()));
        message.put_bytes(&self.data);
        if self.data.is_empty() {
            message.put_8(0);
        }
    }
}
