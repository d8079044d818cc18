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

/// Whether an answer is to be the error of a write: the server has done what was asked, or has refused it as it was meant to.
pub(super) fn gives_way(status: u32) -> bool {
    [STATUS_OK, STATUS_FILE_CLOSED].contains(&status)
}
