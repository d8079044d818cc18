//! NEGOTIATE, SESSION_SETUP and TREE_CONNECT: what is agreed before a file is opened.

use super::super::bytes_le::{Put, Reader, narrow, slice_at};
use super::super::error::WireError;
use super::header::HEADER_BYTES;

/// Dialect 2.0.2.
pub const DIALECT_202: u16 = 0x0202;
/// Dialect 2.1.
pub const DIALECT_210: u16 = 0x0210;
/// Dialects from here on are 3.x.
pub const DIALECT_300: u16 = 0x0300;
/// 3.1.1, which has contexts.
pub const DIALECT_311: u16 = 0x0311;
/// The answer to SMB1's NEGOTIATE: any 2.x, to be negotiated again.
pub const DIALECT_WILDCARD: u16 = 0x02ff;
/// SMB2_NEGOTIATE_SIGNING_REQUIRED.
pub const SIGNING_REQUIRED: u16 = 2;
/// SMB2_GLOBAL_CAP_LARGE_MTU: requests of several credits.
pub const CAPABILITY_LARGE_MTU: u32 = 4;
/// SMB2_SESSION_FLAG_IS_GUEST.
pub const SESSION_GUEST: u16 = 1;
/// SMB2_SESSION_FLAG_IS_NULL: anonymous.
pub const SESSION_NULL: u16 = 2;
/// SMB2_SESSION_FLAG_ENCRYPT_DATA.
pub const SESSION_ENCRYPTED: u16 = 4;
/// SMB2_SHARE_TYPE_DISK.
pub const SHARE_DISK: u8 = 1;
/// SMB2_SHAREFLAG_ENCRYPT_DATA.
pub const SHARE_ENCRYPTED: u32 = 0x8000;

/// Begins every message of NTLM (MS-NLMP 2.2.1), also inside of SPNEGO.
const NTLM_MARK: &[u8] = b"NTLMSSP\0";
/// The fields of its last message that tell what lies where (MS-NLMP 2.2.1.3), up to the user's name.
const NTLM_FIELDS_BYTES: usize = 44;

/// Of 3.1.1 (MS-SMB2 2.2.3.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NegotiateContext {
    /// ContextType.
    pub kind: u16,
    /// Data.
    pub data: Vec<u8>,
}

/// MS-SMB2 2.2.3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NegotiateRequest {
    /// `SIGNING_*`.
    pub security_mode: u16,
    /// `CAPABILITY_*`.
    pub capabilities: u32,
    /// ClientGuid.
    pub client: [u8; 16],
    /// What the client speaks.
    pub dialects: Vec<u16>,
    /// Only with 3.1.1 among the dialects.
    pub contexts: Vec<NegotiateContext>,
}

impl NegotiateRequest {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(36)?;
        let count = reader.u16()?;
        let security_mode = reader.u16()?;
        reader.u16()?;
        let capabilities = reader.u32()?;
        let client = reader.array()?;
        let (contexts_at, contexts) = (reader.u32()?, reader.u16()?);
        reader.u16()?;
        let dialects: Result<Vec<u16>, WireError> = (0..count).map(|_| reader.u16()).collect();
        let dialects = dialects?;
        let contexts = match dialects.contains(&DIALECT_311) {
            true => parse_contexts(message, contexts_at as usize, contexts)?,
            false => Vec::new(),
        };
        Ok(Self {
            security_mode,
            capabilities,
            client,
            dialects,
            contexts,
        })
    }

    /// Appends the body; the message begins at `start`.
    pub fn emit(&self, start: usize, message: &mut Vec<u8>) {
        message.put_16(36);
        message.put_16(narrow(self.dialects.len()));
        message.put_16(self.security_mode);
        message.put_16(0);
        message.put_32(self.capabilities);
        message.put_bytes(&self.client);
        let behind = HEADER_BYTES + 36 + 2 * self.dialects.len();
        let contexts_at = match self.contexts.is_empty() {
            true => 0,
            false => behind.next_multiple_of(8),
        };
        message.put_32(narrow(contexts_at));
        message.put_16(narrow(self.contexts.len()));
        message.put_16(0);
        self.dialects
            .iter()
            .for_each(|dialect| message.put_16(*dialect));
        emit_contexts(&self.contexts, start, message);
    }
}

/// MS-SMB2 2.2.4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NegotiateResponse {
    /// `SIGNING_*`.
    pub security_mode: u16,
    /// What is spoken from here on.
    pub dialect: u16,
    /// ServerGuid.
    pub server: [u8; 16],
    /// `CAPABILITY_*`.
    pub capabilities: u32,
    /// MaxTransactSize.
    pub transact_bytes_max: u32,
    /// MaxReadSize.
    pub read_bytes_max: u32,
    /// MaxWriteSize.
    pub write_bytes_max: u32,
    /// SystemTime.
    pub time: u64,
    /// ServerStartTime.
    pub started: u64,
    /// The security token.
    pub token: Vec<u8>,
    /// Only in 3.1.1.
    pub contexts: Vec<NegotiateContext>,
}

impl NegotiateResponse {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(65)?;
        let security_mode = reader.u16()?;
        let dialect = reader.u16()?;
        let context_count = reader.u16()?;
        let server = reader.array()?;
        let capabilities = reader.u32()?;
        let (transact_bytes_max, read_bytes_max) = (reader.u32()?, reader.u32()?);
        let write_bytes_max = reader.u32()?;
        let (time, started) = (reader.u64()?, reader.u64()?);
        let (token_at, token_bytes) = (reader.u16()?, reader.u16()?);
        let contexts_at = reader.u32()?;
        let contexts = match dialect {
            DIALECT_311 => parse_contexts(message, contexts_at as usize, context_count)?,
            _ => Vec::new(),
        };
        Ok(Self {
            security_mode,
            dialect,
            server,
            capabilities,
            transact_bytes_max,
            read_bytes_max,
            write_bytes_max,
            time,
            started,
            token: slice_at(message, token_at.into(), token_bytes.into())?.to_vec(),
            contexts,
        })
    }

    /// Appends the body; the message begins at `start`.
    pub fn emit(&self, start: usize, message: &mut Vec<u8>) {
        let token_at = HEADER_BYTES + 64;
        let contexts_at = match self.contexts.is_empty() {
            true => 0,
            false => (token_at + self.token.len()).next_multiple_of(8),
        };
        message.put_16(65);
        message.put_16(self.security_mode);
        message.put_16(self.dialect);
        message.put_16(narrow(self.contexts.len()));
        message.put_bytes(&self.server);
        message.put_32(self.capabilities);
        message.put_32(self.transact_bytes_max);
        message.put_32(self.read_bytes_max);
        message.put_32(self.write_bytes_max);
        message.put_64(self.time);
        message.put_64(self.started);
        message.put_16(narrow(token_at));
        message.put_16(narrow(self.token.len()));
        message.put_32(narrow(contexts_at));
        message.put_bytes(&self.token);
        emit_contexts(&self.contexts, start, message);
    }
}

fn parse_contexts(
    message: &[u8],
    at: usize,
    count: u16,
) -> Result<Vec<NegotiateContext>, WireError> {
    let mut contexts = Vec::new();
    let mut start = at;
    for _ in 0..count {
        let mut reader = Reader::new(message, start);
        let (kind, length) = (reader.u16()?, usize::from(reader.u16()?));
        reader.u32()?;
        let data = reader.take(length)?.to_vec();
        contexts.push(NegotiateContext { kind, data });
        start = (start + 8 + length).next_multiple_of(8);
    }
    Ok(contexts)
}

fn emit_contexts(contexts: &[NegotiateContext], start: usize, message: &mut Vec<u8>) {
    for context in contexts {
        message.pad_8(start);
        message.put_16(context.kind);
        message.put_16(narrow(context.data.len()));
        message.put_32(0);
        message.put_bytes(&context.data);
    }
}

/// MS-SMB2 2.2.5.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSetupRequest {
    /// Binding to a session of another connection.
    pub flags: u8,
    /// `SIGNING_*`.
    pub security_mode: u8,
    /// Capabilities.
    pub capabilities: u32,
    /// Channel.
    pub channel: u32,
    /// PreviousSessionId.
    pub previous: u64,
    /// The security token.
    pub token: Vec<u8>,
}

impl SessionSetupRequest {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(25)?;
        let (flags, security_mode) = (reader.u8()?, reader.u8()?);
        let (capabilities, channel) = (reader.u32()?, reader.u32()?);
        let (token_at, token_bytes) = (reader.u16()?, reader.u16()?);
        Ok(Self {
            flags,
            security_mode,
            capabilities,
            channel,
            previous: reader.u64()?,
            token: slice_at(message, token_at.into(), token_bytes.into())?.to_vec(),
        })
    }

    /// Whether it says that the client is nobody: NTLM's last message without a name and without an answer to the
    /// server's challenge (MS-NLMP 2.2.1.3, 3.2.5.1.2). Such a session has no key.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        let message = self.ntlm();
        let length_at = |at| Reader::new(message, at).u16();
        let is_last = Reader::new(message, 8).u32() == Ok(3);
        // One byte of zero is as good as none.
        let has_no_answer = length_at(20) == Ok(0) && matches!(length_at(12), Ok(0 | 1));
        is_last && has_no_answer && length_at(36) == Ok(0)
    }

    /// The message of NTLM in the token.
    fn ntlm(&self) -> &[u8] {
        let mut marks = self.token.windows(NTLM_MARK.len());
        let starts = marks.position(|window| window == NTLM_MARK);
        starts
            .and_then(|start| self.token.get(start..))
            .unwrap_or_default()
    }

    /// What has to be known of it when it is answered: of the token only whether the client is nobody.
    #[must_use]
    pub fn noted(self) -> Self {
        let ntlm = self.ntlm();
        let token = ntlm.get(..NTLM_FIELDS_BYTES).unwrap_or(ntlm).to_vec();
        Self { token, ..self }
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(25);
        message.put_8(self.flags);
        message.put_8(self.security_mode);
        message.put_32(self.capabilities);
        message.put_32(self.channel);
        message.put_16(narrow(HEADER_BYTES + 24));
        message.put_16(narrow(self.token.len()));
        message.put_64(self.previous);
        message.put_bytes(&self.token);
    }
}

/// MS-SMB2 2.2.6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSetupResponse {
    /// `SESSION_*`.
    pub flags: u16,
    /// The security token.
    pub token: Vec<u8>,
}

impl SessionSetupResponse {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(9)?;
        let flags = reader.u16()?;
        let (token_at, token_bytes) = (reader.u16()?, reader.u16()?);
        let token = slice_at(message, token_at.into(), token_bytes.into())?.to_vec();
        Ok(Self { flags, token })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(9);
        message.put_16(self.flags);
        message.put_16(narrow(HEADER_BYTES + 8));
        message.put_16(narrow(self.token.len()));
        message.put_bytes(&self.token);
    }
}

/// MS-SMB2 2.2.9.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeConnectRequest {
    /// Of 3.1.1; reserved before.
    pub flags: u16,
    /// `\\server\share` in UTF-16.
    pub path: Vec<u8>,
}

impl TreeConnectRequest {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(9)?;
        let flags = reader.u16()?;
        let (path_at, path_bytes) = (reader.u16()?, reader.u16()?);
        let path = slice_at(message, path_at.into(), path_bytes.into())?.to_vec();
        Ok(Self { flags, path })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(9);
        message.put_16(self.flags);
        message.put_16(narrow(HEADER_BYTES + 8));
        message.put_16(narrow(self.path.len()));
        message.put_bytes(&self.path);
    }
}

/// MS-SMB2 2.2.10.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeConnectResponse {
    /// `SHARE_DISK`, a pipe or a printer.
    pub share: u8,
    /// `SHARE_*` flags.
    pub flags: u32,
    /// Capabilities.
    pub capabilities: u32,
    /// MaximalAccess.
    pub access: u32,
}

impl TreeConnectResponse {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(16)?;
        let share = reader.u8()?;
        reader.u8()?;
        Ok(Self {
            share,
            flags: reader.u32()?,
            capabilities: reader.u32()?,
            access: reader.u32()?,
        })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(16);
        message.put_8(self.share);
        message.put_8(0);
        message.put_32(self.flags);
        message.put_32(self.capabilities);
        message.put_32(self.access);
    }
}
