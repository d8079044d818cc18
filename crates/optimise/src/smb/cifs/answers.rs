//! What the server's answers and breaks tell of what is open. The other part of `far`.

use bytes::Bytes;

use super::super::files::{OpenFile, Protection};
use super::super::netbios::PREFIX_BYTES;
use super::super::reading::OwnRead;
use super::super::smb1::header::{Header, LOCKING_ANDX, SESSION_SETUP_ANDX, first_block};
use super::super::smb1::open::{
    LEFT_II, LockingRequest, NtCreateResponse, OPLOCK_BATCH, OPLOCK_EXCLUSIVE, OPLOCK_II,
};
use super::super::smb1::transfer::ReadHead;
use super::super::smb2;
use super::super::smb2::transfer::{STATUS_END_OF_FILE, STATUS_OK};
use super::far::FarCifs;
use super::file_id;
use super::multiplex::{Purpose, Request};
use crate::output::Outbox;
use crate::reason::Reason;
use crate::stats::Stats;

/// ResourceType of a file on a disk.
const RESOURCE_DISK: u16 = 0;

impl FarCifs {
    pub(super) fn handle_response(
        &mut self,
        packet: Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let message = packet.slice(PREFIX_BYTES..);
        let Ok(header) = Header::parse(&message) else {
            out.peer(packet);
            return Err(Reason::SmbMalformed);
        };
        if header.is_signed() && header.command != SESSION_SETUP_ANDX {
            out.peer(packet);
            return Err(Reason::SmbSigned);
        }
        if !header.is_response() {
            self.handle_break(&message, out, stats);
            out.peer(packet);
            return Ok(());
        }
        if let Some(read) = self.multiplex.take_own(header.multiplex) {
            self.handle_own(&read, &header, &message, out, stats)?;
            return self.go_on(out, stats);
        }
        if !is_interim(&header, &message)
            && let Some(request) = self.multiplex.remove(header.multiplex)
        {
            self.conclude(&request, &header, &message, out, stats);
        }
        out.peer(packet);
        self.go_on(out, stats)
    }

    /// The server answered a read of ours. The client shall meet an error itself, when it asks.
    fn handle_own(
        &mut self,
        read: &OwnRead,
        header: &Header,
        message: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let bytes = match header.status {
            STATUS_OK => {
                let head = first_block(message).and_then(|block| ReadHead::parse(&block));
                let data = head.and_then(|head| head.data(message));
                Some(message.slice_ref(data.map_err(|_| Reason::SmbMalformed)?))
            }
            STATUS_END_OF_FILE => Some(Bytes::new()),
            _ => None,
        };
        let got_bytes = bytes.as_ref().map_or(0, Bytes::len);
        if got_bytes > read.part.length as usize {
            return Err(Reason::SmbMalformed);
        }
        self.read_on(out, |reading, out| {
            reading.handle_read(read, bytes, out, stats);
        });
        Ok(())
    }

    /// A request of the client's is answered.
    fn conclude(
        &mut self,
        request: &Request,
        header: &Header,
        message: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        let Ok(block) = first_block(message) else {
            return;
        };
        if header.status != STATUS_OK || block.command != header.command {
            return;
        }
        match request.purpose {
            Purpose::Pass => (),
            Purpose::Create {
                asked,
                are_writers_denied,
            } => {
                if let Ok(opened) = NtCreateResponse::parse(&block) {
                    let id = file_id(opened.file);
                    // The number may have been another's.
                    self.reading.end_runs(|other, _| other == id, out, stats);
                    self.forget(id);
                    self.handle_opened(&asked, are_writers_denied, &opened);
                }
            }
            Purpose::Read(part, changes) => {
                if let Ok(head) = ReadHead::parse(&block) {
                    self.handle_passed_read(&part, changes, head.length, out);
                }
            }
        }
    }

    fn handle_opened(
        &mut self,
        asked: &Header,
        are_writers_denied: bool,
        opened: &NtCreateResponse,
    ) {
        if opened.resource != RESOURCE_DISK || opened.is_directory {
            return;
        }
        let protection = Protection::by_oplock(modern(opened.oplock), are_writers_denied);
        let (session, tree) = (asked.user.into(), asked.tree.into());
        let file = OpenFile::new(session, tree, opened.size_bytes, protection);
        self.open(file_id(opened.file), file, asked);
    }

    /// What was read ahead is dropped at the near half before the break reaches the client.
    fn handle_break(&mut self, message: &[u8], out: &mut Outbox, stats: &mut Stats) {
        stats.breaks += 1;
        let block = first_block(message);
        let locking = block.and_then(|block| LockingRequest::parse(&block));
        let is_lock = Header::parse(message).is_ok_and(|header| header.command == LOCKING_ANDX);
        let told = locking.ok().filter(|told| is_lock && told.is_release());
        let file = told.as_ref().map(|told| file_id(told.file));
        self.reading
            .end_runs(|id, _| file.is_none_or(|file| file == id), out, stats);
        if let Some(told) = told {
            self.handle_left(&told);
        }
    }

    /// So much is left of an oplock.
    pub(super) fn handle_left(&mut self, told: &LockingRequest) {
        let left = match told.left {
            LEFT_II => smb2::open::OPLOCK_II,
            _ => smb2::open::OPLOCK_NONE,
        };
        self.reading.files.handle_oplock(file_id(told.file), left);
    }
}

/// Whether more is asked for: the first answer to a transaction in several parts (MS-CIFS 2.2.4.46.2).
fn is_interim(header: &Header, message: &[u8]) -> bool {
    let is_empty = first_block(message).is_ok_and(|block| block.words.is_empty());
    header.has_many_answers() && header.status == STATUS_OK && is_empty
}

/// An oplock in SMB2's words.
fn modern(oplock: u8) -> u8 {
    match oplock {
        OPLOCK_EXCLUSIVE => smb2::open::OPLOCK_EXCLUSIVE,
        OPLOCK_BATCH => smb2::open::OPLOCK_BATCH,
        OPLOCK_II => smb2::open::OPLOCK_II,
        _ => smb2::open::OPLOCK_NONE,
    }
}
