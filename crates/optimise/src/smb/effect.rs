//! What a client's messages mean for what was read ahead. Both halves ask, and see the same.

use super::bytes_le::Reader;
use super::cifs;
use super::smb2::header::{Command, HEADER_BYTES, Header, messages};
use super::smb2::open::{CloseRequest, CreateRequest, FileId};
use super::smb2::transfer::WriteHead;

/// FILE_SUPERSEDE, FILE_OVERWRITE, FILE_OVERWRITE_IF: what was in the file is gone.
const DISPOSITIONS_THAT_CHANGE: [u32; 3] = [0, 4, 5];
/// FSCTL_PIPE_TRANSCEIVE, FSCTL_DFS_GET_REFERRALS, FSCTL_VALIDATE_NEGOTIATE_INFO,
/// FSCTL_QUERY_NETWORK_INTERFACE_INFO, FSCTL_SRV_REQUEST_RESUME_KEY, FSCTL_CREATE_OR_GET_OBJECT_ID:
/// the controls that change no file's bytes (MS-SMB2 2.2.31, MS-FSCC 2.3).
const CONTROLS_THAT_ONLY_ASK: [u32; 6] = [
    0x0011_c017,
    0x0006_0194,
    0x0014_0204,
    0x0014_01fc,
    0x0014_0078,
    0x0009_00c0,
];

/// What a message does to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Bytes of this open file change, or of one that is not known; whoever else has it open may notice.
    Changes(Option<FileId>),
    /// Nobody reads through this open file any more.
    Closes(FileId),
    /// A session or share comes or goes.
    Everything,
}

/// The effects of a packet's messages, in their order. What cannot be read has every effect.
#[must_use]
pub fn effects(packet: &[u8]) -> Vec<Effect> {
    if cifs::is_cifs(packet) {
        return cifs::effect::effects(packet);
    }
    let Ok(places) = messages(packet) else {
        return vec![Effect::Everything];
    };
    let mut last_file = None;
    let mut found = Vec::new();
    for (start, end) in places {
        let message = packet.get(start..end).unwrap_or_default();
        let Ok(header) = Header::parse(message) else {
            continue;
        };
        let file = file_of(header.command, message).filter(|file| *file != FileId::RELATED);
        last_file = match header.command {
            // What is related to it is about a file that has no name yet.
            Command::Create => None,
            _ => file.or(last_file),
        };
        found.extend(changes(header.command, message, last_file));
    }
    found
}

/// The effect of one message, which is about this file.
pub fn changes(command: Command, message: &[u8], file: Option<FileId>) -> Option<Effect> {
    match command {
        Command::Write | Command::SetInfo | Command::Lock => Some(Effect::Changes(file)),
        Command::Ioctl => may_change(message).then_some(Effect::Changes(file)),
        Command::Create => {
            let create = CreateRequest::parse(message);
            let is_harmless =
                create.is_ok_and(|create| !DISPOSITIONS_THAT_CHANGE.contains(&create.disposition));
            (!is_harmless).then_some(Effect::Changes(None))
        }
        Command::Close => file.map(Effect::Closes),
        Command::Negotiate
        | Command::SessionSetup
        | Command::Logoff
        | Command::TreeConnect
        | Command::TreeDisconnect
        | Command::Other(_) => Some(Effect::Everything),
        Command::Read
        | Command::Flush
        | Command::Cancel
        | Command::Echo
        | Command::QueryDirectory
        | Command::ChangeNotify
        | Command::QueryInfo
        | Command::OplockBreak => None,
    }
}

/// MS-SMB2 2.2.31: the control's code is in the second field.
fn may_change(message: &[u8]) -> bool {
    let code = Reader::new(message, HEADER_BYTES + 4).u32();
    !code.is_ok_and(|code| CONTROLS_THAT_ONLY_ASK.contains(&code))
}

/// Whether one of a packet's messages locks or unlocks ranges of a file.
#[must_use]
pub fn has_locks(packet: &[u8]) -> bool {
    if cifs::is_cifs(packet) {
        return cifs::effect::has_locks(packet);
    }
    let places = messages(packet).unwrap_or_default();
    places.into_iter().any(|(start, end)| {
        let header = packet.get(start..end).map(Header::parse);
        header.is_some_and(|header| header.is_ok_and(|header| header.command == Command::Lock))
    })
}

/// The file a request is about, where it names one.
pub fn file_of(command: Command, message: &[u8]) -> Option<FileId> {
    match command {
        Command::Write => Some(WriteHead::parse(message).ok()?.file),
        Command::Close => Some(CloseRequest::parse(message).ok()?.file),
        command => {
            let mut reader = Reader::new(message, HEADER_BYTES + file_at(command)?);
            let (persistent, volatile) = (reader.u64().ok()?, reader.u64().ok()?);
            Some(FileId {
                persistent,
                volatile,
            })
        }
    }
}

/// Where a request names its file, behind the header (MS-SMB2 2.2.15 to 2.2.39).
pub fn file_at(command: Command) -> Option<usize> {
    match command {
        Command::Read | Command::Write | Command::SetInfo => Some(16),
        Command::Close
        | Command::Flush
        | Command::Lock
        | Command::Ioctl
        | Command::QueryDirectory
        | Command::ChangeNotify => Some(8),
        Command::QueryInfo => Some(24),
        _ => None,
    }
}
