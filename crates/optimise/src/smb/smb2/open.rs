//! CREATE and CLOSE: a file's name, how others may use it meanwhile, and what the client may keep of it.

use super::super::bytes_le::{Put, Reader, narrow, slice_at};
use super::super::error::WireError;
use super::header::{HEADER_BYTES, write};

/// FILE_SHARE_WRITE: others may open it to write.
pub const SHARE_WRITE: u32 = 2;
/// FILE_READ_DATA, FILE_EXECUTE, MAXIMUM_ALLOWED, GENERIC_ALL, GENERIC_EXECUTE, GENERIC_READ: any of them may read.
pub const READS: u32 = 0x1 | 0x20 | 0x0200_0000 | 0x1000_0000 | 0x2000_0000 | 0x8000_0000;
/// FILE_WRITE_DATA, FILE_APPEND_DATA, MAXIMUM_ALLOWED, GENERIC_ALL, GENERIC_WRITE: any of them may write.
pub const WRITES: u32 = 0x2 | 0x4 | 0x0200_0000 | 0x1000_0000 | 0x4000_0000;
/// FILE_WRITE_DATA, GENERIC_ALL, GENERIC_WRITE: any of them writes wherever it likes.
pub const WRITES_ANYWHERE: u32 = 0x2 | 0x1000_0000 | 0x4000_0000;
/// FILE_WRITE_THROUGH, FILE_NO_INTERMEDIATE_BUFFERING: an answer says that it is on the disk.
pub const OPTIONS_WITHOUT_DELAY: u32 = 0x2 | 0x8;
/// FILE_COMPLETE_IF_OPLOCKED, FILE_OPEN_REQUIRING_OPLOCK.
pub const OPTIONS_ABOUT_OPLOCKS: u32 = 0x100 | 0x1_0000;
/// FILE_ATTRIBUTE_DIRECTORY.
pub const ATTRIBUTE_DIRECTORY: u32 = 0x10;
/// FILE_OPEN, the disposition that changes nothing.
pub const DISPOSITION_OPEN: u32 = 1;
/// SMB2_LEASE_READ_CACHING.
pub const LEASE_READ: u32 = 1;
/// SMB2_LEASE_FLAG_BREAK_IN_PROGRESS (MS-SMB2 2.2.14.2.10).
pub const LEASE_BREAK_IN_PROGRESS: u32 = 2;
/// SMB2_LEASE_WRITE_CACHING.
pub const LEASE_WRITE: u32 = 4;
/// SMB2_OPLOCK_LEVEL_NONE.
pub const OPLOCK_NONE: u8 = 0;
/// SMB2_OPLOCK_LEVEL_II: reads may be kept.
pub const OPLOCK_II: u8 = 1;
/// SMB2_OPLOCK_LEVEL_EXCLUSIVE.
pub const OPLOCK_EXCLUSIVE: u8 = 8;
/// SMB2_OPLOCK_LEVEL_BATCH.
pub const OPLOCK_BATCH: u8 = 9;
/// SMB2_OPLOCK_LEVEL_LEASE: see the context.
pub const OPLOCK_LEASE: u8 = 0xff;

/// Name of the context that asks for or grants a lease (MS-SMB2 2.2.13.2.8).
pub const CONTEXT_LEASE: &[u8] = b"RqLs";

/// Contexts with which a client takes up an open file again after its connection is gone (MS-SMB2 2.2.13.2.4, 2.2.13.2.12):
/// whatever else such a request says, the server does not do it (3.3.5.9.7, 3.3.5.9.12).
const CONTEXTS_RECONNECT: [&[u8]; 2] = [b"DHnC", b"DH2C"];

/// What the server calls an open file (MS-SMB2 2.2.14.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Survives a lost connection, if it is durable.
    pub persistent: u64,
    /// Of this connection.
    pub volatile: u64,
}

impl FileId {
    /// In a related message: the file of the message before.
    pub const RELATED: Self = Self {
        persistent: u64::MAX,
        volatile: u64::MAX,
    };

    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            persistent: reader.u64()?,
            volatile: reader.u64()?,
        })
    }

    pub(super) fn emit(self, message: &mut Vec<u8>) {
        message.put_64(self.persistent);
        message.put_64(self.volatile);
    }
}

/// MS-SMB2 2.2.13.2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateContext {
    /// Four bytes, or sixteen.
    pub name: Vec<u8>,
    /// What it says.
    pub data: Vec<u8>,
}

/// A lease, asked for or granted (MS-SMB2 2.2.13.2.8, 2.2.13.2.10, 2.2.14.2.10, 2.2.14.2.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Which file, in the client's words.
    pub key: [u8; 16],
    /// `LEASE_*`.
    pub state: u32,
    /// LeaseFlags.
    pub flags: u32,
    /// Only in version 2.
    pub parent: Option<([u8; 16], u16)>,
}

impl Lease {
    /// The lease among contexts.
    #[must_use]
    pub fn among(contexts: &[CreateContext]) -> Option<Self> {
        let context = contexts
            .iter()
            .find(|context| context.name == CONTEXT_LEASE)?;
        Self::parse(&context.data).ok()
    }

    fn parse(data: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(data, 0);
        let (key, state, flags) = (reader.array()?, reader.u32()?, reader.u32()?);
        reader.u64()?;
        let parent = match data.len() > 32 {
            true => Some((reader.array()?, reader.u16()?)),
            false => None,
        };
        Ok(Self {
            key,
            state,
            flags,
            parent,
        })
    }

    /// As a context.
    #[must_use]
    pub fn context(&self) -> CreateContext {
        let mut data = Vec::new();
        data.put_bytes(&self.key);
        data.put_32(self.state);
        data.put_32(self.flags);
        data.put_64(0);
        if let Some((key, epoch)) = self.parent {
            data.put_bytes(&key);
            data.put_16(epoch);
            data.put_16(0);
        }
        CreateContext {
            name: CONTEXT_LEASE.to_vec(),
            data,
        }
    }
}

/// MS-SMB2 2.2.13.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateRequest {
    /// `OPLOCK_*`.
    pub oplock: u8,
    /// ImpersonationLevel.
    pub impersonation: u32,
    /// DesiredAccess.
    pub access: u32,
    /// FileAttributes.
    pub attributes: u32,
    /// ShareAccess: what others may do meanwhile.
    pub share: u32,
    /// CreateDisposition.
    pub disposition: u32,
    /// CreateOptions.
    pub options: u32,
    /// In UTF-16.
    pub name: Vec<u8>,
    /// What else is asked.
    pub contexts: Vec<CreateContext>,
}

impl CreateRequest {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(57)?;
        reader.u8()?;
        let oplock = reader.u8()?;
        let impersonation = reader.u32()?;
        reader.take(16)?;
        let (access, attributes, share) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let (disposition, options) = (reader.u32()?, reader.u32()?);
        let (name_at, name_bytes) = (reader.u16()?, reader.u16()?);
        let (contexts_at, contexts_bytes) = (reader.u32()?, reader.u32()?);
        Ok(Self {
            oplock,
            impersonation,
            access,
            attributes,
            share,
            disposition,
            options,
            name: slice_at(message, name_at.into(), name_bytes.into())?.to_vec(),
            contexts: parse_contexts(message, contexts_at as usize, contexts_bytes as usize)?,
        })
    }

    /// Whether it takes up a file that is open.
    #[must_use]
    pub fn is_reconnect(&self) -> bool {
        CONTEXTS_RECONNECT.iter().any(|name| self.has_context(name))
    }

    /// What has to be known of it when it is answered: of its contexts that it takes up a file. A client can have thousands of
    /// requests at a server, each with contexts of hundreds of kilobytes.
    #[must_use]
    pub fn noted(self) -> Self {
        let kept = CONTEXTS_RECONNECT
            .iter()
            .filter(|name| self.has_context(name));
        let named = |name: &&[u8]| CreateContext {
            name: name.to_vec(),
            data: Vec::new(),
        };
        let contexts = kept.map(named).collect();
        Self { contexts, ..self }
    }

    fn has_context(&self, name: &[u8]) -> bool {
        self.contexts.iter().any(|context| context.name == name)
    }

    /// Appends the body; the message begins at `start`.
    pub fn emit(&self, start: usize, message: &mut Vec<u8>) {
        let name_at = HEADER_BYTES + 56;
        let contexts = chain(&self.contexts);
        let contexts_at = (name_at + self.name.len()).next_multiple_of(8);
        message.put_16(57);
        message.put_8(0);
        message.put_8(self.oplock);
        message.put_32(self.impersonation);
        message.put_bytes(&[0; 16]);
        message.put_32(self.access);
        message.put_32(self.attributes);
        message.put_32(self.share);
        message.put_32(self.disposition);
        message.put_32(self.options);
        message.put_16(narrow(name_at));
        message.put_16(narrow(self.name.len()));
        message.put_32(if contexts.is_empty() {
            0
        } else {
            narrow(contexts_at)
        });
        message.put_32(narrow(contexts.len()));
        message.put_bytes(&self.name);
        // 2.2.13: the buffer is never empty.
        message.pad_8(start);
        if self.name.is_empty() && contexts.is_empty() {
            message.put_64(0);
        }
        message.put_bytes(&contexts);
    }
}

/// Writes another RequestedOplockLevel into the request that begins at `start`.
pub fn set_oplock_asked(packet: &mut [u8], start: usize, oplock: u8) {
    write(packet, start + HEADER_BYTES + 3, &[oplock]);
}

/// Writes another OplockLevel into the answer that begins at `start`.
pub fn set_oplock_granted(packet: &mut [u8], start: usize, oplock: u8) {
    write(packet, start + HEADER_BYTES + 2, &[oplock]);
}

/// Writes another file's id where one is. Nothing where the packet is shorter.
pub fn set_file(packet: &mut [u8], at: usize, file: FileId) {
    write(packet, at, &file.persistent.to_le_bytes());
    write(packet, at + 8, &file.volatile.to_le_bytes());
}

/// Times and sizes of a file, as the server tells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileFacts {
    /// CreationTime, LastAccessTime, LastWriteTime, ChangeTime.
    pub times: [u64; 4],
    /// AllocationSize.
    pub allocated_bytes: u64,
    /// EndofFile.
    pub size_bytes: u64,
    /// FileAttributes.
    pub attributes: u32,
}

impl FileFacts {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            times: [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?],
            allocated_bytes: reader.u64()?,
            size_bytes: reader.u64()?,
            attributes: reader.u32()?,
        })
    }

    fn emit(&self, message: &mut Vec<u8>) {
        self.times.iter().for_each(|time| message.put_64(*time));
        message.put_64(self.allocated_bytes);
        message.put_64(self.size_bytes);
        message.put_32(self.attributes);
    }
}

/// MS-SMB2 2.2.14.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateResponse {
    /// `OPLOCK_*`, as granted.
    pub oplock: u8,
    /// Flags.
    pub flags: u8,
    /// CreateAction.
    pub action: u32,
    /// The file as it is.
    pub facts: FileFacts,
    /// What it is called from here on.
    pub file: FileId,
    /// What else is answered.
    pub contexts: Vec<CreateContext>,
}

impl CreateResponse {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(89)?;
        let (oplock, flags, action) = (reader.u8()?, reader.u8()?, reader.u32()?);
        let facts = FileFacts::parse(&mut reader)?;
        reader.u32()?;
        let file = FileId::parse(&mut reader)?;
        let (contexts_at, contexts_bytes) = (reader.u32()?, reader.u32()?);
        Ok(Self {
            oplock,
            flags,
            action,
            facts,
            file,
            contexts: parse_contexts(message, contexts_at as usize, contexts_bytes as usize)?,
        })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        let contexts = chain(&self.contexts);
        message.put_16(89);
        message.put_8(self.oplock);
        message.put_8(self.flags);
        message.put_32(self.action);
        self.facts.emit(message);
        message.put_32(0);
        self.file.emit(message);
        let contexts_at = HEADER_BYTES + 88;
        message.put_32(if contexts.is_empty() {
            0
        } else {
            narrow(contexts_at)
        });
        message.put_32(narrow(contexts.len()));
        message.put_bytes(&contexts);
    }
}

/// Contexts that follow each other by `Next` (MS-SMB2 2.2.13.2).
fn parse_contexts(
    message: &[u8],
    at: usize,
    length: usize,
) -> Result<Vec<CreateContext>, WireError> {
    let mut rest = slice_at(message, at, length)?;
    let mut contexts = Vec::new();
    while !rest.is_empty() {
        let mut reader = Reader::new(rest, 0);
        let next = reader.u32()? as usize;
        let (name_at, name_bytes) = (reader.u16()?, reader.u16()?);
        reader.u16()?;
        let (data_at, data_bytes) = (reader.u16()?, reader.u32()?);
        // What lies behind it is the next one's: many that hold all of the rest would fill our memory.
        let own = match next {
            0 => rest,
            _ => rest.get(..next).ok_or(WireError::Context)?,
        };
        contexts.push(CreateContext {
            name: slice_at(own, name_at.into(), name_bytes.into())?.to_vec(),
            data: slice_at(own, data_at.into(), data_bytes as usize)?.to_vec(),
        });
        if next == 0 {
            break;
        }
        if next < 16 || !next.is_multiple_of(8) {
            return Err(WireError::Context);
        }
        rest = rest.get(next..).ok_or(WireError::Context)?;
    }
    Ok(contexts)
}

fn chain(contexts: &[CreateContext]) -> Vec<u8> {
    let mut chain = Vec::new();
    for (nth, context) in contexts.iter().enumerate() {
        let data_at = (16 + context.name.len()).next_multiple_of(8);
        let length = match context.data.is_empty() {
            true => 16 + context.name.len(),
            false => data_at + context.data.len(),
        };
        let is_last = nth + 1 == contexts.len();
        chain.put_32(if is_last {
            0
        } else {
            narrow(length.next_multiple_of(8))
        });
        chain.put_16(16);
        chain.put_16(narrow(context.name.len()));
        chain.put_16(0);
        chain.put_16(if context.data.is_empty() {
            0
        } else {
            narrow(data_at)
        });
        chain.put_32(narrow(context.data.len()));
        chain.put_bytes(&context.name);
        if !context.data.is_empty() {
            chain.pad_8(0);
            chain.put_bytes(&context.data);
        }
        if !is_last {
            chain.pad_8(0);
        }
    }
    chain
}

/// MS-SMB2 2.2.15.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseRequest {
    /// 1: tell the file's facts.
    pub flags: u16,
    /// Which file.
    pub file: FileId,
}

impl CloseRequest {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(24)?;
        let flags = reader.u16()?;
        reader.u32()?;
        let file = FileId::parse(&mut reader)?;
        Ok(Self { flags, file })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(24);
        message.put_16(self.flags);
        message.put_32(0);
        self.file.emit(message);
    }
}

/// MS-SMB2 2.2.16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseResponse {
    /// As asked.
    pub flags: u16,
    /// The file as it was left.
    pub facts: FileFacts,
}

impl CloseResponse {
    /// Reads the body behind the header.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, HEADER_BYTES);
        reader.structure(60)?;
        let flags = reader.u16()?;
        reader.u32()?;
        let facts = FileFacts::parse(&mut reader)?;
        Ok(Self { flags, facts })
    }

    /// Appends the body.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_16(60);
        message.put_16(self.flags);
        message.put_32(0);
        self.facts.emit(message);
    }
}
