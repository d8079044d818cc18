//! What the server's answers and breaks tell of what is open. The other part of `far`.

use bytes::{Bytes, BytesMut};

use super::super::files::{OpenFile, Protection};
use super::super::netbios::{self, PREFIX_BYTES};
use super::super::reading::OwnRead;
use super::super::smb1::header::{
    FLUSH, Header, LOCKING_ANDX, SESSION_SETUP_ANDX, TREE_CONNECT_ANDX, blocks, first_block,
};
use super::super::smb1::open::{
    LEFT_II, LockingRequest, NtCreateResponse, OPLOCK_BATCH, OPLOCK_EXCLUSIVE, OPLOCK_II,
    OPLOCK_NONE, set_create_oplock,
};
use super::super::smb1::transfer::{ReadHead, error};
use super::super::smb2;
use super::super::smb2::breaks::OplockBreak;
use super::super::smb2::transfer::{STATUS_END_OF_FILE, STATUS_OK};
use super::far::FarCifs;
use super::file_id;
use super::multiplex::{Own, Purpose, Request};
use super::numbers::{is_closed, is_left};
use crate::output::Outbox;
use crate::reason::Reason;
use crate::stats::Stats;

/// What a share that is a folder says of itself (MS-CIFS 2.2.4.55.2).
const SERVICE_DISK: &[u8] = b"A:";
/// FID of FLUSH for all files.
const FILES_ALL: u16 = 0xffff;
/// What a server says of a request that it was meant to refuse (`refused`).
const STATUS_INVALID_HANDLE: u32 = 0xc000_0008;
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
            if !self.handle_break(&packet, out, stats) {
                out.peer(packet);
            }
            return Ok(());
        }
        match self.multiplex.take_own(header.multiplex) {
            Some(Own::Read(read)) => self.handle_own(&read, &header, &message, out, stats)?,
            Some(Own::Write(part)) => self.handle_written(&part, &header, &message, out, stats)?,
            None => self.handle_answer(packet, &header, out, stats),
        }
        self.give_back(out);
        self.go_on(out, stats)
    }

    /// An answer to the client; an error instead where a write has failed that it believes done.
    fn handle_answer(
        &mut self,
        packet: Bytes,
        header: &Header,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        let message = packet.slice(PREFIX_BYTES..);
        let request = match is_interim(header, &message) {
            true => None,
            false => self.multiplex.remove(header.multiplex),
        };
        let Some(request) = request else {
            if !self.is_silent(header.multiplex) {
                out.peer(packet);
            }
            return;
        };
        let failure = self.failure_of(&request, header);
        self.conclude(&request, header, &message, out, stats);
        // Of one that passes in pieces more follows.
        let fails = gives_way(header.status) && !self.has_server_rest();
        match failure.filter(|_| fails) {
            Some(status) => out.peer(netbios::packet(&error(header, status))),
            None if request.is_lent() && header.status == STATUS_OK => {
                let mut edited = BytesMut::from(&*packet);
                set_create_oplock(&mut edited, PREFIX_BYTES, OPLOCK_NONE);
                out.peer(edited.freeze());
            }
            None => out.peer(packet),
        }
        self.tell_early_breaks(out);
    }

    /// The error that an answer must be because of writes that the client believes done.
    fn failure_of(&mut self, request: &Request, header: &Header) -> Option<u32> {
        let openers = &self.openers;
        let among = |is_meant: &dyn Fn(&Header) -> bool| {
            let is_meant = |file| openers.get(&file).is_some_and(is_meant);
            self.writing.failure_among(is_meant)
        };
        match request.purpose {
            // Of all that the process has open (MS-CIFS 2.2.4.6).
            _ if header.command == FLUSH && request.file == Some(file_id(FILES_ALL)) => {
                among(&|opener| opener.has_process_of(header))
            }
            // What closes files is the last that can tell.
            Purpose::Leave(leaving) => among(&|opener| is_left(&leaving, opener)),
            _ => {
                let file = request.file?;
                let is_over = request.closes.is_some() && is_closed(header);
                self.writing.failure_of(file, is_over)
            }
        }
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
        self.handle_numbers(request, header, message, out, stats);
        let Ok(block) = first_block(message) else {
            return;
        };
        if header.status != STATUS_OK || block.command != header.command {
            return;
        }
        match request.purpose {
            Purpose::Pass | Purpose::Open => (),
            Purpose::Leave(leaving) => self.leave(&leaving, out, stats),
            Purpose::Tree => {
                let trees = blocks(message).unwrap_or_default().into_iter();
                for tree in trees.filter(|block| block.command == TREE_CONNECT_ANDX) {
                    self.handle_tree(header.tree, tree.bytes.starts_with(SERVICE_DISK));
                }
            }
            Purpose::Create {
                asked,
                are_writers_denied,
                may_be_late,
                is_lent,
            } => {
                // What is closed in the same message is not.
                let opened = NtCreateResponse::parse(&block).ok();
                if let Some(opened) = opened.filter(|_| request.closes.is_none()) {
                    let id = file_id(opened.file);
                    self.handle_opened((&asked, is_lent), are_writers_denied, &opened);
                    self.take_early_break(id, is_lent, out, stats);
                    self.consider_writing(id, may_be_late, out);
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
        (asked, is_lent): (&Header, bool),
        are_writers_denied: bool,
        opened: &NtCreateResponse,
    ) {
        let id = file_id(opened.file);
        let (session, tree) = (asked.user.into(), asked.tree.into());
        let granted = modern(opened.oplock);
        let is_weak = is_lent && !self.lent.handle_granted(id, session, tree, granted);
        let oplock = match is_weak {
            // Level II: for a client that did not ask for it, it protects too little.
            true => smb2::open::OPLOCK_NONE,
            false => granted,
        };
        self.note_opener(id, asked);
        if opened.resource != RESOURCE_DISK || opened.is_directory {
            return;
        }
        let protection = Protection::by_oplock(oplock, are_writers_denied);
        let file = OpenFile::new(session, tree, opened.size_bytes, protection);
        self.reading.files.insert(id, file);
    }

    /// What was read ahead is dropped at the near half before the break reaches the client. Whether it is of an oplock
    /// that is ours, or may be.
    fn handle_break(&mut self, packet: &[u8], out: &mut Outbox, stats: &mut Stats) -> bool {
        stats.breaks += 1;
        let message = packet.get(PREFIX_BYTES..).unwrap_or_default();
        let block = first_block(message);
        let locking = block.and_then(|block| LockingRequest::parse(&block));
        let is_lock = Header::parse(message).is_ok_and(|header| header.command == LOCKING_ANDX);
        let told = locking.ok().filter(|told| is_lock && told.is_release());
        let file = told.as_ref().map(|told| file_id(told.file));
        if let Some(file) = file.filter(|file| self.lent.has(*file)) {
            self.handle_recalled(file, out, stats);
            return true;
        }
        self.reading
            .end_runs(|id, _| file.is_none_or(|file| file == id), out, stats);
        let told = told.map(|told| left_by(&told));
        let is_unknown =
            |told: &OplockBreak| !self.reading.files.handle_oplock(told.file, told.oplock);
        let unknown = told.filter(is_unknown);
        let waits = unknown.is_some_and(|told| self.keep_early_break(told, packet));
        self.review_writing(out);
        waits
    }

    /// So much is left of an oplock.
    pub(super) fn handle_left(&mut self, told: &LockingRequest) {
        let told = left_by(told);
        self.reading.files.handle_oplock(told.file, told.oplock);
    }
}

/// Whether more is asked for: the first answer to a transaction in several parts (MS-CIFS 2.2.4.46.2).
fn is_interim(header: &Header, message: &[u8]) -> bool {
    let is_empty = first_block(message).is_ok_and(|block| block.words.is_empty());
    header.has_many_answers() && header.status == STATUS_OK && is_empty
}

/// As of SMB2 (`smb/refused`): the server has done what was asked, or has refused it as it was meant to.
pub(super) fn gives_way(status: u32) -> bool {
    [STATUS_OK, STATUS_INVALID_HANDLE].contains(&status)
}

/// A break, or what a client gives up, in SMB2's words.
fn left_by(told: &LockingRequest) -> OplockBreak {
    let oplock = match told.left {
        LEFT_II => smb2::open::OPLOCK_II,
        _ => smb2::open::OPLOCK_NONE,
    };
    let file = file_id(told.file);
    OplockBreak { oplock, file }
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
