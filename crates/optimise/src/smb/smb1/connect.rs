//! What SMB1 agrees before a file is opened: NEGOTIATE and SESSION_SETUP_ANDX.

use super::super::bytes_le::{Put, Reader};
use super::super::error::WireError;
use super::header::{Block, chain_end, emit_block};

/// The dialect of Windows NT and everything after it.
pub const NT_LM: &[u8] = b"NT LM 0.12";
/// The same, as Samba calls it where it is offered first.
pub const NT_LANMAN: &[u8] = b"NT LANMAN 1.0";
/// NEGOTIATE_SECURITY_SIGNATURES_REQUIRED.
pub const SIGNATURES_REQUIRED: u8 = 8;
/// CAP_LARGE_FILES: offsets of 64 bits.
pub const CAPABILITY_LARGE_FILES: u32 = 0x8;
/// CAP_STATUS32: errors are NT's.
pub const CAPABILITY_NT_STATUS: u32 = 0x40;
/// CAP_LEVEL_II_OPLOCKS.
pub const CAPABILITY_LEVEL_II: u32 = 0x80;
/// CAP_LARGE_READX: answers to READ_ANDX may be longer than the buffer (MS-SMB 2.2.4.5.2.1).
pub const CAPABILITY_LARGE_READ: u32 = 0x4000;
/// CAP_LARGE_WRITEX.
pub const CAPABILITY_LARGE_WRITE: u32 = 0x8000;

/// Begins each name of a dialect.
const DIALECT: u8 = 2;

/// MS-CIFS 2.2.4.52.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NegotiateRequest {
    /// What the client speaks.
    pub dialects: Vec<Vec<u8>>,
}

impl NegotiateRequest {
    /// Reads the command.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(block: &Block<'_>) -> Result<Self, WireError> {
        block.reader(&[0])?;
        let mut dialects = Vec::new();
        let mut rest = block.bytes;
        while let [DIALECT, behind @ ..] = rest {
            let end = behind.iter().position(|byte| *byte == 0);
            let (dialect, behind) = behind.split_at(end.ok_or(WireError::Short)?);
            dialects.push(dialect.to_vec());
            rest = behind.get(1..).unwrap_or_default();
        }
        match rest.is_empty() {
            true => Ok(Self { dialects }),
            false => Err(WireError::Count),
        }
    }

    /// Appends the command.
    pub fn emit(&self, message: &mut Vec<u8>) {
        let mut bytes = Vec::new();
        for dialect in &self.dialects {
            bytes.put_8(DIALECT);
            bytes.put_bytes(dialect);
            bytes.put_8(0);
        }
        emit_block(&[], &bytes, message);
    }
}

/// MS-CIFS 2.2.4.52.2, of the dialect NT LM 0.12.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NegotiateResponse {
    /// Which of the client's dialects.
    pub dialect: u16,
    /// `SIGNATURES_REQUIRED` and others.
    pub security_mode: u8,
    /// MaxMpxCount: requests at the same time.
    pub requests_max: u16,
    /// MaxBufferSize.
    pub buffer_bytes_max: u32,
    /// `CAPABILITY_*`.
    pub capabilities: u32,
    /// Challenge, domain, or security token.
    pub security: Vec<u8>,
}

impl NegotiateResponse {
    /// Reads the command.
    ///
    /// # Errors
    /// When it is none, or of an older dialect.
    pub fn parse(block: &Block<'_>) -> Result<Self, WireError> {
        let mut reader = block.reader(&[17])?;
        let (dialect, security_mode) = (reader.u16()?, reader.u8()?);
        let requests_max = reader.u16()?;
        reader.u16()?;
        let buffer_bytes_max = reader.u32()?;
        reader.u64()?;
        Ok(Self {
            dialect,
            security_mode,
            requests_max,
            buffer_bytes_max,
            capabilities: reader.u32()?,
            security: block.bytes.to_vec(),
        })
    }

    /// Appends the command.
    pub fn emit(&self, message: &mut Vec<u8>) {
        let mut words = Vec::new();
        words.put_16(self.dialect);
        words.put_8(self.security_mode);
        words.put_16(self.requests_max);
        words.put_16(1);
        words.put_32(self.buffer_bytes_max);
        words.put_64(0);
        words.put_32(self.capabilities);
        words.put_bytes(&[0; 11]);
        emit_block(&words, &self.security, message);
    }
}

/// MS-CIFS 2.2.4.53.1, MS-SMB 2.2.4.6.1: what the client can do. The rest is between it and the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSetupRequest {
    /// MaxBufferSize.
    pub buffer_bytes_max: u16,
    /// `CAPABILITY_*`.
    pub capabilities: u32,
    /// The security token, and names.
    pub security: Vec<u8>,
}

impl SessionSetupRequest {
    /// Reads the command.
    ///
    /// # Errors
    /// When it is none, or of a dialect without capabilities.
    pub fn parse(block: &Block<'_>) -> Result<Self, WireError> {
        let mut reader = block.chained(&[12, 13])?;
        let buffer_bytes_max = reader.u16()?;
        // Capabilities are the last.
        let capabilities = Reader::new(block.words, block.words.len() - 4).u32()?;
        Ok(Self {
            buffer_bytes_max,
            capabilities,
            security: block.bytes.to_vec(),
        })
    }

    /// Appends the command, with a security token.
    pub fn emit(&self, message: &mut Vec<u8>) {
        let mut words = chain_end();
        words.put_16(self.buffer_bytes_max);
        words.put_16(50);
        words.put_16(1);
        words.put_32(0);
        words.put_16(self.security.len() as u16);
        words.put_32(0);
        words.put_32(self.capabilities);
        emit_block(&words, &self.security, message);
    }
}
