//! The header of every SMB1 message (MS-CIFS 2.2.3.1), its words and bytes, and what is chained behind it.

use super::super::bytes_le::{Put, Reader, narrow};
use super::super::error::WireError;

/// The header's length; offsets inside a message count from its first byte.
pub const HEADER_BYTES: usize = 32;
/// First bytes of a message.
pub const MARK: [u8; 4] = [0xff, b'S', b'M', b'B'];
/// SMB_FLAGS_REPLY: a server's.
pub const FLAG_RESPONSE: u8 = 0x80;
/// SMB_FLAGS2_SMB_SECURITY_SIGNATURE: signed, or able to sign.
pub const FLAG2_SIGNED: u16 = 0x0004;
/// SMB_FLAGS2_NT_STATUS: errors are NT's.
pub const FLAG2_NT_STATUS: u16 = 0x4000;
/// SMB_FLAGS2_UNICODE: text is in UTF-16.
const FLAG2_WIDE: u16 = 0x8000;
/// Nothing is chained behind.
pub const ANDX_NONE: u8 = 0xff;
/// The multiplex id of an oplock break, which answers nothing.
pub const MULTIPLEX_NONE: u16 = 0xffff;

/// SMB_COM_CLOSE.
pub const CLOSE: u8 = 0x04;
/// SMB_COM_FLUSH.
pub const FLUSH: u8 = 0x05;
/// SMB_COM_PROCESS_EXIT: what the process had open is closed.
pub const PROCESS_EXIT: u8 = 0x11;
/// SMB_COM_LOCKING_ANDX.
pub const LOCKING_ANDX: u8 = 0x24;
/// SMB_COM_TRANSACTION.
pub const TRANSACTION: u8 = 0x25;
/// SMB_COM_ECHO.
pub const ECHO: u8 = 0x2b;
/// SMB_COM_OPEN_ANDX.
pub const OPEN_ANDX: u8 = 0x2d;
/// SMB_COM_READ_ANDX.
pub const READ_ANDX: u8 = 0x2e;
/// SMB_COM_WRITE_ANDX.
pub const WRITE_ANDX: u8 = 0x2f;
/// SMB_COM_CLOSE_AND_TREE_DISC: reserved; who knows it leaves the share.
pub const CLOSE_AND_TREE_DISC: u8 = 0x31;
/// SMB_COM_TRANSACTION2.
pub const TRANSACTION2: u8 = 0x32;
/// SMB_COM_TREE_DISCONNECT.
pub const TREE_DISCONNECT: u8 = 0x71;
/// SMB_COM_NEGOTIATE.
pub const NEGOTIATE: u8 = 0x72;
/// SMB_COM_SESSION_SETUP_ANDX.
pub const SESSION_SETUP_ANDX: u8 = 0x73;
/// SMB_COM_LOGOFF_ANDX.
pub const LOGOFF_ANDX: u8 = 0x74;
/// SMB_COM_TREE_CONNECT_ANDX.
pub const TREE_CONNECT_ANDX: u8 = 0x75;
/// SMB_COM_NT_TRANSACT.
pub const NT_TRANSACT: u8 = 0xa0;
/// SMB_COM_NT_CREATE_ANDX.
pub const NT_CREATE_ANDX: u8 = 0xa2;
/// SMB_COM_NT_CANCEL: it has no answer.
pub const NT_CANCEL: u8 = 0xa4;
/// SMB_COM_READ_RAW and SMB_COM_WRITE_RAW: packets without a header follow (MS-CIFS 2.2.4.22, 2.2.4.25).
const RAW: [u8; 2] = [0x1a, 0x1d];

/// Commands that another can be chained to (MS-CIFS 2.2.3.4).
const CHAINING: [u8; 8] = [
    LOCKING_ANDX,
    OPEN_ANDX,
    READ_ANDX,
    WRITE_ANDX,
    SESSION_SETUP_ANDX,
    LOGOFF_ANDX,
    TREE_CONNECT_ANDX,
    NT_CREATE_ANDX,
];
/// Longer chains make no sense.
const BLOCKS_MAX: usize = 32;

const MULTIPLEX_AT: usize = 30;

/// The header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it is, of the first block.
    pub command: u8,
    /// NT status, or class and code.
    pub status: u32,
    /// `FLAG_*`.
    pub flags: u8,
    /// `FLAG2_*`.
    pub flags2: u16,
    /// Of the client's process, upper half.
    pub process_high: u16,
    /// Zero where not signed.
    pub signature: [u8; 8],
    /// The connected share.
    pub tree: u16,
    /// Of the client's process, lower half; locks are its own.
    pub process: u16,
    /// The session.
    pub user: u16,
    /// Which request.
    pub multiplex: u16,
}

impl Header {
    /// Reads the header at the beginning of a message.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(message: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, 0);
        if reader.array::<4>()? != MARK {
            return Err(WireError::Mark);
        }
        let (command, status) = (reader.u8()?, reader.u32()?);
        let (flags, flags2, process_high) = (reader.u8()?, reader.u16()?, reader.u16()?);
        let signature = reader.array()?;
        reader.u16()?;
        Ok(Self {
            command,
            status,
            flags,
            flags2,
            process_high,
            signature,
            tree: reader.u16()?,
            process: reader.u16()?,
            user: reader.u16()?,
            multiplex: reader.u16()?,
        })
    }

    /// Appends it.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_bytes(&MARK);
        message.put_8(self.command);
        message.put_32(self.status);
        message.put_8(self.flags);
        message.put_16(self.flags2);
        message.put_16(self.process_high);
        message.put_bytes(&self.signature);
        message.put_16(0);
        message.put_16(self.tree);
        message.put_16(self.process);
        message.put_16(self.user);
        message.put_16(self.multiplex);
    }

    /// The header of the answer to this request.
    #[must_use]
    pub fn response(&self, status: u32) -> Self {
        Self {
            status,
            flags: self.flags | FLAG_RESPONSE,
            flags2: self.flags2 & !FLAG2_SIGNED,
            signature: [0; 8],
            ..*self
        }
    }

    /// The header of another request in the name of who made this one.
    #[must_use]
    pub fn request(&self, command: u8, multiplex: u16) -> Self {
        Self {
            command,
            status: 0,
            flags: self.flags & !FLAG_RESPONSE,
            flags2: self.flags2 & !FLAG2_SIGNED,
            signature: [0; 8],
            multiplex,
            ..*self
        }
    }

    /// Whether it is a server's.
    #[must_use]
    pub fn is_response(&self) -> bool {
        self.flags & FLAG_RESPONSE != 0
    }

    /// Whether it carries a signature; clients that could sign set the flag alone.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.flags2 & FLAG2_SIGNED != 0 && self.signature != [0; 8]
    }

    /// Whether its text is in UTF-16.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.flags2 & FLAG2_WIDE != 0
    }

    /// Whether packets that are no messages follow.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        RAW.contains(&self.command)
    }

    /// Whether the other's process has sent it.
    #[must_use]
    pub fn has_process_of(&self, other: &Self) -> bool {
        (self.process, self.process_high) == (other.process, other.process_high)
    }

    /// Whether several messages may answer it: data in parts, echoes (MS-CIFS 2.2.4.33, 2.2.4.39).
    #[must_use]
    pub fn has_many_answers(&self) -> bool {
        [TRANSACTION, TRANSACTION2, NT_TRANSACT, ECHO].contains(&self.command)
    }
}

/// Whether packets that are no messages follow this one.
#[must_use]
pub fn is_raw(message: &[u8]) -> bool {
    Header::parse(message).is_ok_and(|header| header.is_raw())
}

/// One command of a message: its words and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'a> {
    /// What it is.
    pub command: u8,
    /// Where its words begin in the message.
    pub words_at: usize,
    /// SMB_Parameters.
    pub words: &'a [u8],
    /// SMB_Data, as far as it is there.
    pub bytes: &'a [u8],
}

impl<'a> Block<'a> {
    fn parse(message: &'a [u8], command: u8, at: usize) -> Result<Self, WireError> {
        let mut reader = Reader::new(message, at);
        let words_bytes = 2 * usize::from(reader.u8()?);
        let words = reader.take(words_bytes)?;
        let length = usize::from(reader.u16()?);
        let behind = message.get(at + 3 + words_bytes..).unwrap_or_default();
        let bytes = behind.get(..length).unwrap_or(behind);
        Ok(Self {
            command,
            words_at: at + 1,
            words,
            bytes,
        })
    }

    /// Where the next command of the message begins, and which it is.
    fn next(&self) -> Option<(u8, usize)> {
        let [command, _, low, high, ..] = self.words else {
            return None;
        };
        let is_last = *command == ANDX_NONE || !CHAINING.contains(&self.command);
        (!is_last).then(|| (*command, usize::from(u16::from_le_bytes([*low, *high]))))
    }

    /// Reads the words, whose count must be one of these.
    pub(super) fn reader(&self, counts: &[usize]) -> Result<Reader<'a>, WireError> {
        match counts.contains(&(self.words.len() / 2)) {
            true => Ok(Reader::new(self.words, 0)),
            false => Err(WireError::Count),
        }
    }

    /// The same behind the words that chain.
    pub(super) fn chained(&self, counts: &[usize]) -> Result<Reader<'a>, WireError> {
        let mut reader = self.reader(counts)?;
        reader.u32()?;
        Ok(reader)
    }
}

/// The commands of a message, first to last; at least one.
///
/// # Errors
/// When words reach beyond the message or a chain does not go forward.
pub fn blocks(message: &[u8]) -> Result<Vec<Block<'_>>, WireError> {
    let mut found = Vec::new();
    let mut next = Some((Header::parse(message)?.command, HEADER_BYTES));
    let mut last_at = 0;
    while let Some((command, at)) = next {
        if at <= last_at {
            return Err(WireError::Compound);
        }
        if found.len() >= BLOCKS_MAX {
            return Err(WireError::Long);
        }
        last_at = at;
        let block = Block::parse(message, command, at)?;
        next = block.next();
        found.push(block);
    }
    Ok(found)
}

/// The first command of a message.
///
/// # Errors
/// When it is none.
pub fn first_block(message: &[u8]) -> Result<Block<'_>, WireError> {
    Block::parse(message, Header::parse(message)?.command, HEADER_BYTES)
}

/// The command of a message that has no other.
///
/// # Errors
/// When it is none, or one of several.
pub fn lone_block(message: &[u8]) -> Result<Block<'_>, WireError> {
    let block = first_block(message)?;
    match block.next() {
        None => Ok(block),
        Some(_) => Err(WireError::Compound),
    }
}

/// Appends words and bytes of a command.
pub fn emit_block(words: &[u8], bytes: &[u8], message: &mut Vec<u8>) {
    debug_assert!(words.len().is_multiple_of(2));
    message.put_8(narrow(words.len() / 2));
    message.put_bytes(words);
    // Modulo 65536 where reads and writes are longer (MS-SMB 2.2.4.2.2).
    message.put_16((bytes.len() & 0xffff) as u16);
    message.put_bytes(bytes);
}

/// The words of the end of a chain.
#[must_use]
pub fn chain_end() -> Vec<u8> {
    vec![ANDX_NONE, 0, 0, 0]
}

/// Writes another multiplex id into the message that begins at `start`.
pub fn set_multiplex(packet: &mut [u8], start: usize, multiplex: u16) {
    set_word(packet, start + MULTIPLEX_AT, multiplex);
}

/// Writes another word: an id, or the FID of a file. Nothing where the packet is shorter.
pub fn set_word(packet: &mut [u8], at: usize, word: u16) {
    if let Some(place) = packet.get_mut(at..at + 2) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}
