//! What a client's messages mean for what was read ahead. Both halves ask, and see the same.

use super::bytes_le::Reader;
use super::cifs;
use super::files::Firmness;
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

/// FSCTL_LMR_REQUEST_RESILIENCY (MS-SMB2 2.2.31.3).
const REQUEST_RESILIENCY: u32 = 0x0014_01d4;

/// What a message does to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Bytes of this open file change, or of one that is not known; whoever else has it open may notice.
    Changes(Option<FileId>),
    /// A file's bytes are gone, of which nobody here knows whether it is open, or as what.
    Replaces,
    /// Nobody reads through this open file any more.
    Closes(FileId),
    /// A session or share comes or goes.
    Everything,
}

impl Effect {
    /// Whether what is read ahead of a file stays true, where it is as firm as this. Both halves must decide alike: what one keeps and
    /// the other drops is asked for in vain.
    #[must_use]
    pub fn spares(self, file: FileId, firmness: Firmness) -> bool {
        match self {
            Self::Changes(changed) => firmness >= Firmness::Writes && changed != Some(file),
            Self::Replaces => firmness == Firmness::Opens,
            Self::Closes(closed) => closed != file,
            Self::Everything => false,
        }
    }
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
            (!is_harmless).then_some(Effect::Replaces)
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

fn may_change(message: &[u8]) -> bool {
    !control(message).is_some_and(|code| CONTROLS_THAT_ONLY_ASK.contains(&code))
}

/// MS-SMB2 2.2.31: the control's code is in the second field.
fn control(message: &[u8]) -> Option<u32> {
    Reader::new(message, HEADER_BYTES + 4).u32().ok()
}

/// Whether behind a packet writes are the server's to answer: one of its messages locks or unlocks ranges of a file, or asks that a
/// file outlives the connection. Who takes it up again repeats only what was not answered.
#[must_use]
pub fn leaves_writes_to_server(packet: &[u8]) -> bool {
    if cifs::is_cifs(packet) {
        return cifs::effect::has_locks(packet);
    }
    let places = messages(packet).unwrap_or_default();
    places.into_iter().any(|(start, end)| {
        let message = packet.get(start..end).unwrap_or_default();
        match Header::parse(message).map(|header| header.command) {
            Ok(Command::Lock) => true,
            Ok(Command::Ioctl) => control(message) == Some(REQUEST_RESILIENCY),
            _ => false,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn control(code: u32) -> Vec<u8> {
        let mut message = Vec::new();
        Header::request(Command::Ioctl, 4, 5, 6).emit(&mut message);
        message.extend([57, 0, 0, 0]);
        message.extend(code.to_le_bytes());
        message.resize(message.len() + 48, 7);
        message
    }

    #[test]
    fn who_can_take_up_a_file_again_hears_of_each_write_from_the_server() {
        assert!(leaves_writes_to_server(&control(REQUEST_RESILIENCY)));
        for code in CONTROLS_THAT_ONLY_ASK {
            assert!(!leaves_writes_to_server(&control(code)));
            assert!(effects(&control(code)).is_empty());
        }
    }

    /// FILE_SUPERSEDE, FILE_OPEN, FILE_CREATE, FILE_OPEN_IF, FILE_OVERWRITE, FILE_OVERWRITE_IF.
    #[test]
    fn who_opens_a_file_may_empty_it() {
        let opened = |disposition| {
            let create = CreateRequest {
                oplock: 0,
                impersonation: 2,
                access: 1,
                attributes: 0,
                share: 1,
                disposition,
                options: 0,
                name: vec![b'f', 0],
                contexts: Vec::new(),
            };
            let mut message = Vec::new();
            Header::request(Command::Create, 4, 5, 6).emit(&mut message);
            create.emit(0, &mut message);
            effects(&message)
        };
        for disposition in 0..6 {
            let empties = [0, 4, 5].contains(&disposition);
            let expected: &[Effect] = if empties { &[Effect::Replaces] } else { &[] };
            assert_eq!(opened(disposition), expected, "{disposition}");
        }
    }
}
