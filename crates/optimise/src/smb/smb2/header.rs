//! The header of every SMB2 message (MS-SMB2 2.2.1), compounded messages, and the fields that a gateway writes anew.

use super::super::bytes_le::{Put, Reader};
use super::super::error::WireError;

/// The header's length; offsets inside a message count from its first byte.
pub const HEADER_BYTES: usize = 64;
/// First bytes of a message.
pub const MARK: [u8; 4] = [0xfe, b'S', b'M', b'B'];
/// First bytes of an encrypted one (MS-SMB2 2.2.41).
pub const MARK_ENCRYPTED: [u8; 4] = [0xfd, b'S', b'M', b'B'];
/// First bytes of a compressed one (MS-SMB2 2.2.42).
pub const MARK_COMPRESSED: [u8; 4] = [0xfc, b'S', b'M', b'B'];
/// A message that answers nothing: a break.
pub const MESSAGE_ID_NONE: u64 = u64::MAX;

/// SMB2_FLAGS_SERVER_TO_REDIR: a response.
pub const FLAG_RESPONSE: u32 = 1;
/// SMB2_FLAGS_ASYNC_COMMAND.
pub const FLAG_ASYNC: u32 = 2;
/// SMB2_FLAGS_RELATED_OPERATIONS.
pub const FLAG_RELATED: u32 = 4;
/// SMB2_FLAGS_SIGNED.
pub const FLAG_SIGNED: u32 = 8;
/// SMB2_FLAGS_DFS_OPERATIONS: the path begins at the root of a namespace.
pub const FLAG_DFS: u32 = 0x1000_0000;

/// Where the status lies.
pub(super) const STATUS_AT: usize = 8;
const CREDITS_AT: usize = 14;
const FLAGS_AT: usize = 16;
const MESSAGE_ID_AT: usize = 24;
/// Tree and session lie behind each other.
const TREE_AT: usize = 36;

/// What a message asks or answers (MS-SMB2 2.2.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the specification's names
pub enum Command {
    Negotiate,
    SessionSetup,
    Logoff,
    TreeConnect,
    TreeDisconnect,
    Create,
    Close,
    Flush,
    Read,
    Write,
    Lock,
    Ioctl,
    Cancel,
    Echo,
    QueryDirectory,
    ChangeNotify,
    QueryInfo,
    SetInfo,
    OplockBreak,
    Other(u16),
}

/// In the order of their codes.
const COMMANDS: [Command; 19] = [
    Command::Negotiate,
    Command::SessionSetup,
    Command::Logoff,
    Command::TreeConnect,
    Command::TreeDisconnect,
    Command::Create,
    Command::Close,
    Command::Flush,
    Command::Read,
    Command::Write,
    Command::Lock,
    Command::Ioctl,
    Command::Cancel,
    Command::Echo,
    Command::QueryDirectory,
    Command::ChangeNotify,
    Command::QueryInfo,
    Command::SetInfo,
    Command::OplockBreak,
];

impl From<u16> for Command {
    fn from(code: u16) -> Self {
        let known = COMMANDS.get(usize::from(code)).copied();
        known.unwrap_or(Self::Other(code))
    }
}

impl From<Command> for u16 {
    fn from(command: Command) -> Self {
        match command {
            Command::Other(code) => code,
            // Nineteen commands fit.
            known => COMMANDS
                .iter()
                .position(|other| *other == known)
                .unwrap_or(0) as u16,
        }
    }
}

/// What the eight bytes behind the message id are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Of a request, or a response that was not announced.
    Sync {
        /// Reserved; clients of old put their process there.
        process: u32,
        /// The connected share.
        tree: u32,
    },
    /// A response that was announced, or the cancelling of its request.
    Async {
        /// What the server named it.
        id: u64,
    },
}

/// The header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Credits the request takes; 0 in dialect 2.0.2.
    pub credit_charge: u16,
    /// Of a response its status, of a request the channel's sequence.
    pub status: u32,
    /// What it is.
    pub command: Command,
    /// Of a request the credits asked for, of a response those granted.
    pub credits: u16,
    /// `FLAG_*`.
    pub flags: u32,
    /// Distance to the next message of the packet, 0 in the last.
    pub next_bytes: u32,
    /// Which request.
    pub message_id: u64,
    /// Tree or asynchronous id.
    pub scope: Scope,
    /// The session.
    pub session: u64,
    /// Zero where not signed.
    pub signature: [u8; 16],
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
        reader.structure(HEADER_BYTES as u16)?;
        let credit_charge = reader.u16()?;
        let status = reader.u32()?;
        let command = reader.u16()?.into();
        let credits = reader.u16()?;
        let flags = reader.u32()?;
        let next_bytes = reader.u32()?;
        let message_id = reader.u64()?;
        let scope = match flags & FLAG_ASYNC {
            0 => Scope::Sync {
                process: reader.u32()?,
                tree: reader.u32()?,
            },
            _ => Scope::Async { id: reader.u64()? },
        };
        Ok(Self {
            credit_charge,
            status,
            command,
            credits,
            flags,
            next_bytes,
            message_id,
            scope,
            session: reader.u64()?,
            signature: reader.array()?,
        })
    }

    /// Appends it.
    pub fn emit(&self, message: &mut Vec<u8>) {
        message.put_bytes(&MARK);
        message.put_16(HEADER_BYTES as u16);
        message.put_16(self.credit_charge);
        message.put_32(self.status);
        message.put_16(self.command.into());
        message.put_16(self.credits);
        message.put_32(self.flags);
        message.put_32(self.next_bytes);
        message.put_64(self.message_id);
        match self.scope {
            Scope::Sync { process, tree } => {
                message.put_32(process);
                message.put_32(tree);
            }
            Scope::Async { id } => message.put_64(id),
        }
        message.put_64(self.session);
        message.put_bytes(&self.signature);
    }

    /// A request for the session and tree of an open file.
    #[must_use]
    pub fn request(command: Command, message_id: u64, session: u64, tree: u32) -> Self {
        Self {
            credit_charge: 0,
            status: 0,
            command,
            credits: 0,
            flags: 0,
            next_bytes: 0,
            message_id,
            scope: Scope::Sync { process: 0, tree },
            session,
            signature: [0; 16],
        }
    }

    /// The header of the answer to this request.
    #[must_use]
    pub fn response(&self, status: u32, credits: u16) -> Self {
        Self {
            status,
            credits,
            flags: FLAG_RESPONSE | (self.flags & FLAG_RELATED),
            next_bytes: 0,
            signature: [0; 16],
            ..*self
        }
    }

    /// Whether it is a server's.
    #[must_use]
    pub fn is_response(&self) -> bool {
        self.flags & FLAG_RESPONSE != 0
    }

    /// Whether it carries a signature.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.flags & FLAG_SIGNED != 0
    }

    /// Whether its path is one of DFS.
    #[must_use]
    pub fn is_dfs(&self) -> bool {
        self.flags & FLAG_DFS != 0
    }

    /// Whether it takes session, tree and file from the message before it.
    #[must_use]
    pub fn is_related(&self) -> bool {
        self.flags & FLAG_RELATED != 0
    }

    /// The tree, where there is one.
    #[must_use]
    pub fn tree(&self) -> Option<u32> {
        match self.scope {
            Scope::Sync { tree, .. } => Some(tree),
            Scope::Async { .. } => None,
        }
    }

    /// Message ids the request takes (MS-SMB2 3.3.5.2.3): one at least, none to cancel.
    #[must_use]
    pub fn ids_taken(&self) -> u64 {
        match self.command {
            Command::Cancel => 0,
            _ => u64::from(self.credit_charge.max(1)),
        }
    }
}

/// Where each message of a packet begins and ends (MS-SMB2 3.3.5.2.7). The prefix is not part of `packet`.
///
/// # Errors
/// When a header is none or the messages do not follow each other.
pub fn messages(packet: &[u8]) -> Result<Vec<(usize, usize)>, WireError> {
    let mut found = Vec::new();
    let mut start = 0;
    loop {
        let rest = packet.get(start..).ok_or(WireError::Compound)?;
        let next_bytes = Header::parse(rest)?.next_bytes as usize;
        if next_bytes == 0 {
            found.push((start, packet.len()));
            return Ok(found);
        }
        if next_bytes < HEADER_BYTES || !next_bytes.is_multiple_of(8) || next_bytes >= rest.len() {
            return Err(WireError::Compound);
        }
        found.push((start, start + next_bytes));
        start += next_bytes;
    }
}

/// Writes another message id into the message that begins at `start`.
pub fn set_message_id(packet: &mut [u8], start: usize, message_id: u64) {
    write(packet, start + MESSAGE_ID_AT, &message_id.to_le_bytes());
}

/// Writes other credits into the message that begins at `start`.
pub fn set_credits(packet: &mut [u8], start: usize, credits: u16) {
    write(packet, start + CREDITS_AT, &credits.to_le_bytes());
}

/// Writes other flags into the message that begins at `start`.
pub fn set_flags(packet: &mut [u8], start: usize, flags: u32) {
    write(packet, start + FLAGS_AT, &flags.to_le_bytes());
}

/// Writes session and tree into the message that begins at `start`.
pub fn set_scope(packet: &mut [u8], start: usize, session: u64, tree: u32) {
    write(packet, start + TREE_AT, &tree.to_le_bytes());
    write(packet, start + TREE_AT + 4, &session.to_le_bytes());
}

/// Writes fields anew.
pub(super) fn write(packet: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = packet.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}
