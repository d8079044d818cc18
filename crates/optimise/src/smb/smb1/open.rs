//! NT_CREATE_ANDX, CLOSE, FLUSH, and oplock breaks, which are LOCKING_ANDX.

use super::super::bytes_le::Put;
use super::super::error::WireError;
use super::header::{Block, HEADER_BYTES, chain_end, emit_block};

/// NT_CREATE_REQUEST_OPLOCK: an exclusive oplock is asked for.
pub const ASKS_OPLOCK: u32 = 0x2;
/// NT_CREATE_REQUEST_OPBATCH: a batch oplock is.
pub const ASKS_BATCH: u32 = 0x4;
/// Levels of an answer (MS-CIFS 2.2.4.64.2).
pub const OPLOCK_NONE: u8 = 0;
/// Exclusive.
pub const OPLOCK_EXCLUSIVE: u8 = 1;
/// Batch.
pub const OPLOCK_BATCH: u8 = 2;
/// Level II.
pub const OPLOCK_II: u8 = 3;
/// LOCKING_ANDX_OPLOCK_RELEASE: not about byte ranges.
pub const LOCK_OPLOCK_RELEASE: u8 = 0x02;
/// What is left after a break (MS-CIFS 2.2.4.32.1): nothing.
pub const LEFT_NONE: u8 = 0;
/// Or level II.
pub const LEFT_II: u8 = 1;

/// Flags and oplock of the first block, from the message's first byte.
const FLAGS_AT: usize = HEADER_BYTES + 1 + 7;
const OPLOCK_AT: usize = HEADER_BYTES + 1 + 4;

/// MS-CIFS 2.2.4.64.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NtCreateRequest {
    /// `ASKS_*` and others.
    pub flags: u32,
    /// DesiredAccess.
    pub access: u32,
    /// ShareAccess.
    pub share: u32,
    /// CreateDisposition.
    pub disposition: u32,
    /// CreateOptions.
    pub options: u32,
    /// The name as it lies in the message, padding included.
    pub name: Vec<u8>,
}

impl NtCreateRequest {
    /// Reads the command.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(block: &Block<'_>) -> Result<Self, WireError> {
        let mut reader = block.chained(&[24])?;
        reader.u8()?;
        reader.u16()?;
        let flags = reader.u32()?;
        reader.u32()?;
        let access = reader.u32()?;
        reader.u64()?;
        reader.u32()?;
        Ok(Self {
            flags,
            access,
            share: reader.u32()?,
            disposition: reader.u32()?,
            options: reader.u32()?,
            name: block.bytes.to_vec(),
        })
    }

    /// Appends the command.
    pub fn emit(&self, message: &mut Vec<u8>) {
        let mut words = chain_end();
        words.put_8(0);
        words.put_16(self.name.len() as u16);
        words.put_32(self.flags);
        words.put_32(0);
        words.put_32(self.access);
        words.put_64(0);
        words.put_32(0);
        words.put_32(self.share);
        words.put_32(self.disposition);
        words.put_32(self.options);
        words.put_32(2);
        words.put_8(0);
        emit_block(&words, &self.name, message);
    }
}

/// MS-CIFS 2.2.4.64.2. Extended answers have more words, and some servers more than they count (MS-SMB 2.2.4.9.2); what
/// is read lies before those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NtCreateResponse {
    /// `OPLOCK_*`.
    pub oplock: u8,
    /// What the file is called from here on.
    pub file: u16,
    /// EndOfFile.
    pub size_bytes: u64,
    /// ResourceType: 0 a file on a disk.
    pub resource: u16,
    /// Directory.
    pub is_directory: bool,
}

impl NtCreateResponse {
    /// Reads the command.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(block: &Block<'_>) -> Result<Self, WireError> {
        let mut reader = block.chained(&[34, 42, 50])?;
        let (oplock, file) = (reader.u8()?, reader.u16()?);
        // What was done, four times, attributes, space.
        reader.take(4 + 32 + 4 + 8)?;
        let (size_bytes, resource) = (reader.u64()?, reader.u16()?);
        reader.u16()?;
        Ok(Self {
            oplock,
            file,
            size_bytes,
            resource,
            is_directory: reader.u8()? != 0,
        })
    }

    /// Appends the command.
    pub fn emit(&self, message: &mut Vec<u8>) {
        let mut words = chain_end();
        words.put_8(self.oplock);
        words.put_16(self.file);
        words.put_32(1);
        words.put_bytes(&[0; 32 + 4]);
        words.put_64(self.size_bytes);
        words.put_64(self.size_bytes);
        words.put_16(self.resource);
        words.put_16(0);
        words.put_8(self.is_directory.into());
        emit_block(&words, &[], message);
    }
}

/// Writes other flags into the NT_CREATE_ANDX request that begins at `start`.
pub fn set_create_flags(packet: &mut [u8], start: usize, flags: u32) {
    let at = start + FLAGS_AT;
    if let Some(place) = packet.get_mut(at..at + 4) {
        place.copy_from_slice(&flags.to_le_bytes());
    }
}

/// Writes another oplock into the answer to NT_CREATE_ANDX that begins at `start`.
pub fn set_create_oplock(packet: &mut [u8], start: usize, oplock: u8) {
    if let Some(place) = packet.get_mut(start + OPLOCK_AT) {
        *place = oplock;
    }
}

/// MS-CIFS 2.2.4.5.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseRequest {
    /// Which file.
    pub file: u16,
    /// LastTimeModified.
    pub modified: u32,
}

impl CloseRequest {
    /// Reads the command.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(block: &Block<'_>) -> Result<Self, WireError> {
        let mut reader = block.reader(&[3])?;
        let (file, modified) = (reader.u16()?, reader.u32()?);
        Ok(Self { file, modified })
    }

    /// Appends the command.
    pub fn emit(&self, message: &mut Vec<u8>) {
        let mut words = Vec::new();
        words.put_16(self.file);
        words.put_32(self.modified);
        emit_block(&words, &[], message);
    }
}

/// MS-CIFS 2.2.4.6.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushRequest {
    /// Which file; all ones: all of them.
    pub file: u16,
}

impl FlushRequest {
    /// Reads the command.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(block: &Block<'_>) -> Result<Self, WireError> {
        let file = block.reader(&[1])?.u16()?;
        Ok(Self { file })
    }

    /// Appends the command.
    pub fn emit(&self, message: &mut Vec<u8>) {
        emit_block(&self.file.to_le_bytes(), &[], message);
    }
}

/// MS-CIFS 2.2.4.32.1: byte-range locks of a client, an oplock break of a server, its acknowledgment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockingRequest {
    /// Which file.
    pub file: u16,
    /// `LOCK_*`.
    pub kind: u8,
    /// `LEFT_*`, where it is a break.
    pub left: u8,
    /// How many ranges are released.
    pub unlocks: u16,
    /// How many are taken.
    pub locks: u16,
    /// The ranges.
    pub ranges: Vec<u8>,
}

impl LockingRequest {
    /// Reads the command.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(block: &Block<'_>) -> Result<Self, WireError> {
        let mut reader = block.chained(&[8])?;
        let (file, kind, left) = (reader.u16()?, reader.u8()?, reader.u8()?);
        reader.u32()?;
        Ok(Self {
            file,
            kind,
            left,
            unlocks: reader.u16()?,
            locks: reader.u16()?,
            ranges: block.bytes.to_vec(),
        })
    }

    /// Appends the command.
    pub fn emit(&self, message: &mut Vec<u8>) {
        let mut words = chain_end();
        words.put_16(self.file);
        words.put_8(self.kind);
        words.put_8(self.left);
        words.put_32(0);
        words.put_16(self.unlocks);
        words.put_16(self.locks);
        emit_block(&words, &self.ranges, message);
    }

    /// An oplock that is taken back, or given back.
    #[must_use]
    pub fn release(file: u16, left: u8) -> Self {
        Self {
            file,
            kind: LOCK_OPLOCK_RELEASE,
            left,
            unlocks: 0,
            locks: 0,
            ranges: Vec::new(),
        }
    }

    /// Whether it is about an oplock.
    #[must_use]
    pub fn is_release(&self) -> bool {
        self.kind & LOCK_OPLOCK_RELEASE != 0
    }

    /// Whether it is about byte ranges. Where it is not, it has no answer.
    #[must_use]
    pub fn has_ranges(&self) -> bool {
        self.locks > 0 || self.unlocks > 0
    }
}
