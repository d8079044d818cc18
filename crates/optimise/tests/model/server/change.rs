//! What opens and closes a file, and changes an open one otherwise than by writing to it.

use farhaul_optimise::smb::smb1;
use farhaul_optimise::smb::smb1::header::{Block, emit_block};
use farhaul_optimise::smb::smb2::header::HEADER_BYTES;
use farhaul_optimise::smb::smb2::open::{
    CloseRequest, CloseResponse, CreateRequest, FileFacts, FileId,
};
use farhaul_optimise::smb::smb2::transfer::{ErrorResponse, STATUS_OK};

use super::Server;
use super::cifs::INVALID_HANDLE;

pub(super) const STATUS_FILE_CLOSED: u32 = 0xc000_0128;
/// The client is to show once more who it is.
pub(super) const STATUS_NETWORK_SESSION_EXPIRED: u32 = 0xc000_035c;
/// Somebody else has it open.
pub(super) const STATUS_SHARING_VIOLATION: u32 = 0xc000_0043;

impl Server {
    pub(super) fn try_open(&mut self, message: &[u8], body: &mut Vec<u8>) -> u32 {
        let create = CreateRequest::parse(message).unwrap();
        if self.refuses(&create) {
            ErrorResponse::default().emit(body);
            return STATUS_SHARING_VIOLATION;
        }
        self.open(&create).emit(body);
        if let Some(write) = self.overtakes.take() {
            self.write(&write);
        }
        STATUS_OK
    }

    pub(super) fn try_close(&mut self, message: &[u8], body: &mut Vec<u8>) -> u32 {
        if std::mem::take(&mut self.terms.refuses_to_close) {
            ErrorResponse::default().emit(body);
            return STATUS_NETWORK_SESSION_EXPIRED;
        }
        self.close(CloseRequest::parse(message).unwrap().file);
        let facts = FileFacts::default();
        CloseResponse { flags: 0, facts }.emit(body);
        STATUS_OK
    }

    /// What a message that names no file is about: the file of the one before it in its packet.
    pub(super) fn related(&mut self, file: FileId) -> u64 {
        if file != FileId::RELATED {
            self.chain = Some(file.volatile);
        }
        self.chain.unwrap_or(self.next_open - 1)
    }

    /// FLUSH.
    pub(super) fn flush(&mut self, message: &[u8]) {
        let file = file_at(message, 8);
        self.related(file);
    }

    /// The file's end, at the end of the message (MS-SMB2 2.2.39).
    pub(super) fn set_info(&mut self, message: &[u8]) -> u32 {
        let open = self.related(file_at(message, 16));
        let end = message[HEADER_BYTES + 32..HEADER_BYTES + 40].try_into();
        match self.set_end(open, u64::from_le_bytes(end.unwrap())) {
            true => STATUS_OK,
            false => STATUS_FILE_CLOSED,
        }
    }

    /// TRANS2_SET_FILE_INFORMATION (MS-CIFS 2.2.6.9.1).
    pub(super) fn cifs_set_info(
        &mut self,
        header: &smb1::header::Header,
        message: &[u8],
        block: &Block<'_>,
    ) {
        let word = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (parameters_at, data_at) = (word(block.words, 20), usize::from(word(block.words, 24)));
        let file = word(message, parameters_at.into());
        let end = message[data_at..data_at + 8].try_into().unwrap();
        match self.set_end(file.into(), u64::from_le_bytes(end)) {
            true => self.cifs_say(header, |message| emit_block(&[0; 20], &[], message)),
            false => self.cifs_fail(header, INVALID_HANDLE),
        }
    }

    fn set_end(&mut self, open: u64, end: u64) -> bool {
        let Some(open) = self.opens.get(&open) else {
            return false;
        };
        let versions = self.files.get_mut(&open.name).unwrap();
        let mut content = versions.last().unwrap().clone();
        content.resize(end as usize, 0);
        versions.push(content);
        true
    }
}

fn file_at(message: &[u8], at: usize) -> FileId {
    let half = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().unwrap());
    FileId {
        persistent: half(HEADER_BYTES + at),
        volatile: half(HEADER_BYTES + at + 8),
    }
}
