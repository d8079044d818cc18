//! Which files an answer opens and closes. The other part of `far`.
//!
//! A number is free as soon as its file is closed, and what is known of that must not be taken for what is known of the next.
//! Not every end of a file can be seen, so whatever gives a number says that the one before is over.

use super::super::bytes_le::Reader;
use super::super::smb1::header::{
    Block, CLOSE, CLOSE_AND_TREE_DISC, Header, NT_CREATE_ANDX, NT_TRANSACT, OPEN_ANDX,
    PROCESS_EXIT, TRANSACTION2, TREE_DISCONNECT, blocks, first_block,
};
use super::super::smb2::open::FileId;
use super::super::smb2::transfer::STATUS_OK;
use super::answers::gives_way;
use super::effect::{nt_transaction_of, transaction2_of};
use super::far::FarCifs;
use super::file_id;
use super::multiplex::{Purpose, Request};
use crate::output::Outbox;
use crate::stats::Stats;

/// Of old: OPEN, CREATE, CREATE_TEMPORARY, CREATE_NEW, OPEN_PRINT_FILE. The number is the first word of their answers.
const OPENS_OF_OLD: [u8; 5] = [0x02, 0x03, 0x0e, 0x0f, 0xc0];
/// TRANS2_OPEN2 (MS-CIFS 2.2.6.1).
const OPEN2: u16 = 0x00;
/// NT_TRANSACT_CREATE (MS-CIFS 2.2.7.1).
const TRANSACT_CREATE: u16 = 0x01;

/// Whether a transaction opens a file. Its answer does not say of itself what it is.
#[must_use]
pub fn is_open(block: &Block<'_>) -> bool {
    match block.command {
        TRANSACTION2 => transaction2_of(block) == Some(OPEN2),
        NT_TRANSACT => nt_transaction_of(block) == Some(TRANSACT_CREATE),
        _ => false,
    }
}

/// Numbers that an answer gives, even if it ends with an error: what is chained behind an open may fail.
fn given(message: &[u8], is_open: bool) -> Vec<FileId> {
    // Of one that passes in pieces the first may be all that is there.
    let first = || first_block(message).into_iter().collect();
    let blocks = blocks(message).unwrap_or_else(|_| first());
    let numbers = blocks.iter();
    let numbers = numbers.filter_map(|block| number(message, block, is_open));
    numbers.map(file_id).collect()
}

fn number(message: &[u8], block: &Block<'_>, is_open: bool) -> Option<u16> {
    let word = |at: usize| Reader::new(block.words, at).u16().ok();
    match block.command {
        NT_CREATE_ANDX => word(5),
        OPEN_ANDX => word(4),
        // Parameters of an answer: how many bytes, and where; the number comes first,
        TRANSACTION2 if is_open => {
            let has_it = word(6)? >= 2;
            let at = has_it.then(|| word(8)).flatten()?;
            Reader::new(message, at.into()).u16().ok()
        }
        // or behind the oplock.
        NT_TRANSACT if is_open => {
            let long = |at: usize| Reader::new(block.words, at).u32().ok();
            let has_it = long(11)? >= 4;
            let at = has_it.then(|| long(15)).flatten()?;
            Reader::new(message, (at as usize).saturating_add(2))
                .u16()
                .ok()
        }
        command if OPENS_OF_OLD.contains(&command) => word(0),
        _ => None,
    }
}

/// Whether what was answered so is closed. Behind something that failed nothing is done, and what is refused for now
/// comes again.
#[must_use]
pub fn is_closed(header: &Header) -> bool {
    match header.command {
        CLOSE => gives_way(header.status),
        _ => header.status == STATUS_OK,
    }
}

/// Whether what is left by this had opened a file so.
#[must_use]
pub fn is_left(leaving: &Header, opener: &Header) -> bool {
    match leaving.command {
        TREE_DISCONNECT | CLOSE_AND_TREE_DISC => opener.tree == leaving.tree,
        PROCESS_EXIT => opener.user == leaving.user && opener.has_process_of(leaving),
        _ => opener.user == leaving.user,
    }
}

impl FarCifs {
    /// What an answer of the server's opens, and what it closes or leaves open.
    pub(super) fn handle_numbers(
        &mut self,
        request: &Request,
        header: &Header,
        message: &[u8],
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        let given = given(message, request.purpose == Purpose::Open);
        for file in &given {
            self.reading.end_runs(|id, _| id == *file, out, stats);
            self.writing.withdraw(*file, out);
            self.forget(*file);
            self.multiplex.handle_given(*file);
            self.note_opener(*file, header);
        }
        match (request.closes, given.as_slice()) {
            (None, _) => (),
            (Some(file), _) if !is_closed(header) => self.lent.handle_still_open(file),
            (Some(file), []) => self.forget(file),
            // Whatever it names, behind an open it is of what that has opened.
            (Some(file), given) => {
                self.lent.handle_still_open(file);
                given.iter().for_each(|file| self.forget(*file));
            }
        }
    }

    /// A share, a session or a process is left, and its files with it.
    pub(super) fn leave(&mut self, leaving: &Header, out: &mut Outbox, stats: &mut Stats) {
        if [TREE_DISCONNECT, CLOSE_AND_TREE_DISC].contains(&leaving.command) {
            self.handle_tree(leaving.tree, false);
        }
        let openers = self.openers.iter();
        let left = openers.filter(|(_, opener)| is_left(leaving, opener));
        let left: Vec<FileId> = left.map(|(file, _)| *file).collect();
        for file in left {
            self.reading.end_runs(|id, _| id == file, out, stats);
            self.forget(file);
        }
    }
}
