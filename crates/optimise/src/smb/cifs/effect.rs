//! What a client's messages of SMB1 mean for what was read ahead. Both halves ask, and see the same.

use super::super::bytes_le::Reader;
use super::super::effect::Effect;
use super::super::smb1::header::{
    Block, CLOSE, ECHO, FLUSH, LOCKING_ANDX, NEGOTIATE, NT_CANCEL, NT_CREATE_ANDX, NT_TRANSACT,
    OPEN_ANDX, READ_ANDX, TRANSACTION, TRANSACTION2, WRITE_ANDX, blocks,
};
use super::super::smb1::open::{CloseRequest, LockingRequest, NtCreateRequest};
use super::super::smb1::transfer::WriteHead;
use super::super::smb2::open::FileId;
use super::file_id;

/// FILE_SUPERSEDE, FILE_OVERWRITE, FILE_OVERWRITE_IF: what was in the file is gone.
const DISPOSITIONS_THAT_CHANGE: [u32; 3] = [0, 4, 5];
/// Commands of old that only ask, or are of directories: OPEN, READ, QUERY_INFORMATION, CHECK_DIRECTORY, SEEK,
/// QUERY_INFORMATION2, FIND_CLOSE2, QUERY_INFORMATION_DISK, SEARCH, FIND, FIND_UNIQUE, FIND_CLOSE, CREATE_DIRECTORY,
/// DELETE_DIRECTORY.
const THAT_ONLY_ASK: [u8; 14] = [
    0x02, 0x0a, 0x08, 0x10, 0x12, 0x23, 0x34, 0x80, 0x81, 0x82, 0x83, 0x84, 0x00, 0x01,
];
/// Of old, about an open file, which is the first word: WRITE, LOCK_BYTE_RANGE, UNLOCK_BYTE_RANGE, LOCK_AND_READ,
/// WRITE_AND_UNLOCK, SET_INFORMATION2.
const OF_FILES: [u8; 6] = [0x0b, 0x0c, 0x0d, 0x13, 0x14, 0x22];
/// SMB_COM_WRITE_AND_CLOSE.
const WRITE_AND_CLOSE: u8 = 0x2c;
/// About files by their names: CREATE, DELETE, RENAME, SET_INFORMATION, CREATE_TEMPORARY, CREATE_NEW, COPY, MOVE,
/// NT_RENAME.
const BY_NAME: [u8; 9] = [0x03, 0x06, 0x07, 0x09, 0x0e, 0x0f, 0x29, 0x2a, 0xa5];
/// TRANS2 FIND_FIRST2, FIND_NEXT2, QUERY_FS_INFORMATION, QUERY_PATH_INFORMATION, QUERY_FILE_INFORMATION,
/// FIND_NOTIFY_FIRST, FIND_NOTIFY_NEXT, CREATE_DIRECTORY, GET_DFS_REFERRAL (MS-CIFS 2.2.6).
const TRANSACTIONS2_THAT_ONLY_ASK: [u16; 9] =
    [0x01, 0x02, 0x03, 0x05, 0x07, 0x0b, 0x0c, 0x0d, 0x10];
/// TRANS2 SET_PATH_INFORMATION: by name.
const SET_PATH_INFORMATION: u16 = 0x06;
/// TRANS2 SET_FILE_INFORMATION: of an open file.
const SET_FILE_INFORMATION: u16 = 0x08;
/// NT_TRANSACT_NOTIFY_CHANGE, NT_TRANSACT_QUERY_SECURITY_DESC, NT_TRANSACT_GET_USER_QUOTA (MS-CIFS 2.2.7).
const NT_TRANSACTIONS_THAT_ONLY_ASK: [u16; 3] = [4, 6, 7];

/// Where commands that chain name their file, in their words.
const FILE_AT_CHAINED: usize = 4;

/// The effects of a message's commands, in their order. What cannot be read has every effect.
#[must_use]
pub fn effects(message: &[u8]) -> Vec<Effect> {
    let Ok(blocks) = blocks(message) else {
        return vec![Effect::Everything];
    };
    let found = blocks.iter().flat_map(|block| effect(message, block));
    found.collect()
}

/// Whether it locks or unlocks ranges of a file.
#[must_use]
pub fn has_locks(message: &[u8]) -> bool {
    let mut blocks = blocks(message).unwrap_or_default().into_iter();
    blocks.any(|block| {
        let locking = LockingRequest::parse(&block);
        let has_ranges = locking.is_ok_and(|locking| locking.has_ranges());
        (block.command == LOCKING_ANDX && has_ranges)
            || [0x0c, 0x0d, 0x13, 0x14].contains(&block.command)
    })
}

/// Where a message names open files that it changes, and which: all of it can be refused without a file being left open.
#[must_use]
pub fn changed_files(message: &[u8]) -> Vec<(usize, FileId)> {
    let blocks = blocks(message).unwrap_or_default();
    let places = blocks.iter().filter_map(changed_at);
    let file = |at: usize| Some((at, file_id(Reader::new(message, at).u16().ok()?)));
    places.filter_map(file).collect()
}

fn changed_at(block: &Block<'_>) -> Option<usize> {
    match block.command {
        WRITE_ANDX => Some(block.words_at + FILE_AT_CHAINED),
        LOCKING_ANDX => {
            let locking = LockingRequest::parse(block).ok()?;
            locking
                .has_ranges()
                .then_some(block.words_at + FILE_AT_CHAINED)
        }
        TRANSACTION2 => {
            let is_it = transaction2_of(block)? == SET_FILE_INFORMATION;
            is_it.then(|| parameters_at(block)).flatten()
        }
        command => OF_FILES.contains(&command).then_some(block.words_at),
    }
}

fn effect(message: &[u8], block: &Block<'_>) -> Vec<Effect> {
    let changes = |file: Option<u16>| match file {
        Some(file) => vec![Effect::Changes(Some(file_id(file)))],
        None => vec![Effect::Everything],
    };
    match block.command {
        // Before anything is open; what is agreed anew goes on in another dialect, or not at all.
        NEGOTIATE => Vec::new(),
        READ_ANDX | ECHO | FLUSH | NT_CANCEL | TRANSACTION => Vec::new(),
        WRITE_ANDX => changes(WriteHead::parse(block).ok().map(|write| write.file)),
        CLOSE => match CloseRequest::parse(block) {
            Ok(close) => vec![Effect::Closes(file_id(close.file))],
            Err(_) => vec![Effect::Everything],
        },
        LOCKING_ANDX => match LockingRequest::parse(block) {
            Ok(locking) if !locking.has_ranges() => Vec::new(),
            locking => changes(locking.ok().map(|locking| locking.file)),
        },
        NT_CREATE_ANDX => match NtCreateRequest::parse(block) {
            Ok(create) if !DISPOSITIONS_THAT_CHANGE.contains(&create.disposition) => Vec::new(),
            Ok(_) => vec![Effect::Replaces],
            Err(_) => vec![Effect::Everything],
        },
        OPEN_ANDX => vec![Effect::Replaces],
        TRANSACTION2 => transaction2(message, block),
        NT_TRANSACT => match nt_transaction_of(block) {
            Some(function) if NT_TRANSACTIONS_THAT_ONLY_ASK.contains(&function) => Vec::new(),
            _ => vec![Effect::Everything],
        },
        WRITE_AND_CLOSE => match first_word(block) {
            Some(file) => vec![
                Effect::Changes(Some(file_id(file))),
                Effect::Closes(file_id(file)),
            ],
            None => vec![Effect::Everything],
        },
        command if OF_FILES.contains(&command) => changes(first_word(block)),
        command if BY_NAME.contains(&command) => vec![Effect::Replaces],
        command if THAT_ONLY_ASK.contains(&command) => Vec::new(),
        _ => vec![Effect::Everything],
    }
}

/// What a request of a transaction does: the first word of its setup (MS-CIFS 2.2.4.46.1).
#[must_use]
pub fn transaction2_of(block: &Block<'_>) -> Option<u16> {
    Reader::new(block.words, 28).u16().ok()
}

/// The same of NT's (MS-CIFS 2.2.4.62.1).
#[must_use]
pub fn nt_transaction_of(block: &Block<'_>) -> Option<u16> {
    Reader::new(block.words, 36).u16().ok()
}

fn transaction2(message: &[u8], block: &Block<'_>) -> Vec<Effect> {
    match transaction2_of(block) {
        Some(function) if TRANSACTIONS2_THAT_ONLY_ASK.contains(&function) => Vec::new(),
        Some(SET_PATH_INFORMATION) => vec![Effect::Replaces],
        Some(SET_FILE_INFORMATION) => match parameter_file(message, block) {
            Some(file) => vec![Effect::Changes(Some(file))],
            None => vec![Effect::Everything],
        },
        _ => vec![Effect::Everything],
    }
}

/// The first of a transaction's parameters.
fn parameter_file(message: &[u8], block: &Block<'_>) -> Option<FileId> {
    let file = Reader::new(message, parameters_at(block)?).u16().ok()?;
    Some(file_id(file))
}

fn parameters_at(block: &Block<'_>) -> Option<usize> {
    let at = Reader::new(block.words, 20).u16().ok()?;
    Some(at.into())
}

fn first_word(block: &Block<'_>) -> Option<u16> {
    Reader::new(block.words, 0).u16().ok()
}
