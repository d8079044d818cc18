//! What is asked of an open file with a failed write that its client believes done. The other part of `far`.
//!
//! The client would not have asked for it, had it known: to rename the file over the one it was to replace, to cut it, to write on.
//! So the server is to refuse it, and the client hears the write's error. The request keeps its ids and credits, and its
//! place in a compound; it only names a file that nobody has open.

use super::effect::{Effect, changes, file_at};
use super::far::FarSmb;
use super::smb2::header::{Command, FLAG_RELATED, HEADER_BYTES, Header, set_flags, set_scope};
use super::smb2::open::{FileId, set_file};
use super::smb2::transfer::STATUS_OK;

/// No server gives this number; all ones would be the file of the message before.
const NOBODYS: FileId = FileId {
    persistent: u64::MAX - 1,
    volatile: u64::MAX - 1,
};
/// STATUS_FILE_CLOSED: what a server says of such a file (MS-SMB2 3.3.5).
const STATUS_FILE_CLOSED: u32 = 0xc000_0128;

/// The messages of a packet, while they are looked at one after the other.
#[derive(Debug, Default)]
pub(super) struct Compound {
    /// Whose the messages are that say nothing of it themselves.
    session: u64,
    tree: u32,
    /// One was refused: what is related to it has to say for itself what it is about.
    is_apart: bool,
}

impl FarSmb {
    /// Lets a message that begins at `start` be refused, if it must not be done; and what is about the same file
    /// behind one that is.
    pub(super) fn refuse(
        &self,
        compound: &mut Compound,
        (header, message): (&Header, &[u8]),
        file: Option<FileId>,
        edited: &mut [u8],
        start: usize,
    ) {
        if !header.is_related() {
            let tree = header.tree().unwrap_or_default();
            (compound.session, compound.tree) = (header.session, tree);
        }
        let is_change = matches!(
            changes(header.command, message, file),
            Some(Effect::Changes(_))
        );
        let is_refused = is_change && file.is_some_and(|file| self.writing.has_failed(file));
        compound.is_apart |= is_refused;
        // What follows that is about another file.
        compound.is_apart &= header.command != Command::Create;
        let (Some(file), true) = (file, compound.is_apart) else {
            return;
        };
        let named = if is_refused { NOBODYS } else { file };
        if let Some(at) = file_at(header.command) {
            set_file(edited, start + HEADER_BYTES + at, named);
        }
        if header.is_related() {
            set_flags(edited, start, header.flags & !FLAG_RELATED);
            set_scope(edited, start, compound.session, compound.tree);
        }
    }
}

/// What clients take for a reason to ask once more, most of them after they have set up a session or a share anew:
/// STATUS_INSUFFICIENT_RESOURCES, STATUS_NO_MEMORY, STATUS_IO_TIMEOUT, STATUS_NETWORK_BUSY, STATUS_NETWORK_NAME_DELETED,
/// STATUS_REQUEST_NOT_ACCEPTED, STATUS_USER_SESSION_DELETED, STATUS_INSUFF_SERVER_RESOURCES, STATUS_CONNECTION_DISCONNECTED,
/// STATUS_CONNECTION_RESET, STATUS_RETRY, STATUS_NETWORK_SESSION_EXPIRED, STATUS_SERVER_UNAVAILABLE, STATUS_FILE_NOT_AVAILABLE.
const STATUSES_FOR_NOW: [u32; 14] = [
    0xc000_009a,
    0xc000_0017,
    0xc000_00b5,
    0xc000_00bf,
    0xc000_00c9,
    0xc000_00d0,
    0xc000_0203,
    0xc000_0205,
    0xc000_020c,
    0xc000_020d,
    0xc000_022d,
    0xc000_035c,
    0xc000_0466,
    0xc000_0467,
];
/// STATUS_UNEXPECTED_IO_ERROR.
const STATUS_LOST: u32 = 0xc000_00e9;
/// The severity of errors (MS-ERREF 2.3); SMB's own codes of old, as STATUS_SMB_BAD_UID, have none.
const SEVERITY_ERROR: u32 = 3;

/// The error of a write that its client believes done. Nobody can repeat that write: whoever is told to ask once more would
/// be told so for ever.
pub(super) fn for_good(status: u32) -> u32 {
    let is_error = status >> 30 == SEVERITY_ERROR;
    match is_error && !STATUSES_FOR_NOW.contains(&status) {
        true => status,
        false => STATUS_LOST,
    }
}

/// Whether an answer is to be the error of a write: the server has done what was asked, or has refused it as it was meant to.
pub(super) fn gives_way(status: u32) -> bool {
    [STATUS_OK, STATUS_FILE_CLOSED].contains(&status)
}
