//! Which writes the near half may answer, and what becomes of them next to the server. The other part of `far`.
//!
//! A file's writes may be answered early while nobody else can read it without a break before: the far half has borrowed
//! an exclusive oplock, or a client of SMB1 has one, or a batch oplock. Who asks for an oplock or a lease in SMB2 and wants
//! to take up its file again after a lost connection repeats what was not answered, and nothing else; who does not want to
//! is Linux, which takes it up all the same, by its name, and does not look at what CLOSE says (fs/smb/client/file.c). The server does what it
//! is asked in any order, and the client believes its writes done: so whatever the client asks next waits until they
//! are, but for other writes to other places; and so does the client's end, for a server may drop what it has begun. A
//! write that failed after it was answered makes every later request fail that moves the file's bytes, and its FLUSH and
//! CLOSE; what would change the file is not done (`refused`).

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};

use super::asked::written;
use super::credits::Few;
use super::far::FarSmb;
use super::files::{Files, OpenFile, Part};
use super::message::{Message, Room};
use super::netbios::{PREFIX_BYTES, Piece};
use super::pending::{Purpose, Request};
use super::refused::for_good;
use super::smb2::header::{Command, Header, set_credits, set_message_id};
use super::smb2::open::{CreateRequest, FileId, OPTIONS_WITHOUT_DELAY, WRITES_ANYWHERE};
use super::smb2::transfer::{STATUS_DISK_FULL, STATUS_OK, WriteHead, WriteResponse};
use crate::output::Outbox;
use crate::reason::Reason;
use crate::stats::Stats;

/// Credits that the near half may have for writes.
const ROOM_CREDITS: u32 = 256;
/// Writes on their way, and files with a failed one.
const ENTRIES_MAX: usize = 8192;

/// What the far half knows of writes.
#[derive(Debug, Default)]
pub struct Writing {
    /// Whose writes the near half answers.
    files: BTreeSet<FileId>,
    /// Writes that the near half answers, by the client's id, until they come; and whether we pay.
    announced: BTreeMap<u64, (FileId, bool)>,
    /// Those at the server, by our id.
    at_server: BTreeMap<u64, Part>,
    /// The last of those, unless another request of the client's has come since.
    newest: Option<u64>,
    /// What the server said of one that the client believes done.
    failed: BTreeMap<FileId, u32>,
    /// Ours for writes that are at the server.
    working_credits: u32,
    /// Done, and the near half does not know.
    settled_bytes: u32,
    has_news: bool,
    /// A file was opened to be written to.
    is_expected: bool,
}

impl Writing {
    /// The near half answers the write with this id.
    ///
    /// # Errors
    /// When there are more than it may answer.
    pub fn announce(&mut self, id: u64, file: FileId, is_paid: bool) -> Result<(), Reason> {
        self.announced.insert(id, (file, is_paid));
        match self.announced.len() > ENTRIES_MAX {
            true => Err(Reason::Halves),
            false => Ok(()),
        }
    }

    /// The client opens a file.
    pub fn handle_opening(&mut self, create: &CreateRequest) {
        self.is_expected |= create.access & WRITES_ANYWHERE != 0;
    }

    /// The client closes it; the near half has seen that.
    pub fn forbid(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    /// The near half is told so, or was.
    pub fn forbid_all(&mut self) {
        self.files.clear();
    }

    /// It shall answer no more of any file. It may have seen why, but before it was told of the file.
    pub fn withdraw_all(&mut self, out: &mut Outbox) {
        for file in std::mem::take(&mut self.files) {
            out.message(Message::Unwritable { file }.encode());
        }
    }

    /// Whether writes of this file that were answered may not be at the server yet.
    #[must_use]
    pub fn is_busy(&self, file: FileId) -> bool {
        let is_announced = self.announced.values().any(|(other, _)| *other == file);
        is_announced || self.at_server.values().any(|write| write.file == file)
    }

    /// The error that a request of this file's must end with. None of its requests comes behind its CLOSE.
    pub fn failure_of(&mut self, file: FileId, is_close: bool) -> Option<u32> {
        match is_close {
            true => self.failed.remove(&file),
            false => self.failed.get(&file).copied(),
        }
    }

    /// Whether one of its writes has failed that the client believes done.
    #[must_use]
    pub fn has_failed(&self, file: FileId) -> bool {
        self.failed.contains_key(&file)
    }

    /// The error that what is about several of them must end with.
    pub fn failure_among(&self, is_meant: impl Fn(FileId) -> bool) -> Option<u32> {
        let mut failed = self.failed.iter();
        failed
            .find(|(file, _)| is_meant(**file))
            .map(|(_, status)| *status)
    }

    /// It is open no more, or its name is another's now.
    pub fn forget(&mut self, file: FileId) {
        self.files.remove(&file);
        self.failed.remove(&file);
    }

    /// The near half may answer this file's writes.
    pub fn allow(&mut self, file: FileId, session: u64, tree: u32, out: &mut Outbox) {
        self.files.insert(file);
        self.has_news = true;
        out.message(
            Message::Writable {
                session,
                tree,
                file,
            }
            .encode(),
        );
    }

    /// It shall answer no more of them.
    pub fn withdraw(&mut self, file: FileId, out: &mut Outbox) {
        if self.files.remove(&file) {
            out.message(Message::Unwritable { file }.encode());
        }
    }

    /// Something was taken from what protects files.
    pub fn review(&mut self, files: &mut Files, out: &mut Outbox) {
        let keeps = |file: &OpenFile| file.protection.keeps_writes();
        let named: Vec<FileId> = self.files.iter().copied().collect();
        for id in named {
            if !files.get(id).is_some_and(|file| keeps(file)) {
                self.withdraw(id, out);
            }
        }
    }

    /// Whether a request must wait for writes that the client believes done; `write`: it is nothing but that.
    #[must_use]
    pub fn delays(&self, write: Option<&Part>, files: &Files) -> bool {
        if self.at_server.is_empty() {
            return false;
        }
        let Some(write) = write else {
            return true;
        };
        let is_far_from = |other: &Part| write.offset >= other.end() || other.offset >= write.end();
        // Two opens of one lease may be of the same file.
        let is_firm_here = files.is_firm(write.file);
        let mut others = self.at_server.values();
        !others.all(|other| match other.file == write.file {
            true => is_far_from(other),
            false => is_firm_here && files.is_firm(other.file),
        })
    }

    /// Whether the near half answers the write with this id; and whether we pay.
    pub fn take_announced(&mut self, id: u64) -> Option<bool> {
        self.announced.remove(&id).map(|(_, is_paid)| is_paid)
    }

    /// The client's next request.
    pub fn handle_next(&mut self) {
        self.newest = None;
    }

    /// A write that the client believes done goes to the server.
    pub fn handle_sent(&mut self, id: u64, part: Part) {
        self.at_server.insert(id, part);
        self.newest = Some(id);
    }

    /// Whether the client's end must wait for writes that it believes done: not for one that it has not said the whole of.
    #[must_use]
    pub fn delays_end(&self, is_in_request: bool) -> bool {
        let unfinished = self.newest.filter(|_| is_in_request);
        self.at_server.keys().any(|id| Some(*id) != unfinished)
    }

    /// The server answered it: so much is written.
    ///
    /// # Errors
    /// When more has failed than is followed.
    pub fn handle_written(
        &mut self,
        (id, file, length): (u64, FileId, u32),
        (status, count): (u32, Option<u32>),
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let status = match (status, count) {
            (STATUS_OK, Some(count)) if count >= length => STATUS_OK,
            // What a server says that has no room for the rest.
            (STATUS_OK, _) => STATUS_DISK_FULL,
            (status, _) => status,
        };
        self.at_server.remove(&id);
        self.settled_bytes = self.settled_bytes.saturating_add(length);
        if status == STATUS_OK {
            return Ok(());
        }
        stats.writes_failed += 1;
        self.failed.entry(file).or_insert(for_good(status));
        if self.failed.len() > ENTRIES_MAX {
            return Err(Reason::SmbFull);
        }
        self.withdraw(file, out);
        Ok(())
    }

    /// What the near half should know of them by now.
    pub fn take_news(&mut self, credits: u32, given: u64) -> Option<Room> {
        let bytes = std::mem::take(&mut self.settled_bytes);
        let has_news = std::mem::take(&mut self.has_news);
        (has_news || credits > 0 || bytes > 0).then_some(Room {
            credits,
            bytes,
            given,
        })
    }
}

/// Whether the writes of such an open file may be answered early: they need not be on the disk at once.
#[must_use]
pub fn may_be_late(access: u32, options: u32) -> bool {
    access & WRITES_ANYWHERE != 0 && options & OPTIONS_WITHOUT_DELAY == 0
}

impl FarSmb {
    /// Credits to have in reserve.
    pub(super) fn credits_wanted(&self) -> u32 {
        let missing = match self.writing.is_expected {
            true => self.room_missing(),
            false => 0,
        };
        self.reading.window.credits() + missing + self.opening.credits()
    }

    fn room_missing(&self) -> u32 {
        let has = self.credits.room() + self.writing.working_credits;
        ROOM_CREDITS.saturating_sub(has)
    }

    /// A file was opened: tells the near half if it may answer writes of it.
    pub(super) fn consider_writing(&mut self, id: FileId, asked: &CreateRequest, out: &mut Outbox) {
        let Some(file) = self.reading.files.get(id) else {
            return;
        };
        let keeps_writes = file.protection.keeps_writes();
        let (session, tree) = (file.session, file.tree);
        let is_plain = may_be_late(asked.access, asked.options);
        let is_lent = self.lent.has(id);
        let is_safe = keeps_writes && is_plain && is_lent && !self.reading.is_quiet;
        if is_safe && self.ids.begin() {
            file.was_told = true;
            self.writing.allow(id, session, tree, out);
        }
    }

    /// Something was taken from what protects files.
    pub(super) fn review_writing(&mut self, out: &mut Outbox) {
        self.writing.review(&mut self.reading.files, out);
    }

    /// Tells the near half what is done, and gives it what credits there are.
    pub(super) fn offer(&mut self, out: &mut Outbox) {
        // Reading ahead must not come to a halt for it.
        let kept = self.reading.window.credits();
        let spare = self.credits.spare().saturating_sub(kept);
        let mut credits = match self.writing.files.is_empty() {
            true => 0,
            false => spare.min(self.room_missing()),
        };
        if !self.credits.spend(credits) {
            credits = 0;
        }
        let given = self.credits.given();
        if let Some(room) = self.writing.take_news(credits, given) {
            out.message(Message::Room(room).encode());
        }
    }

    /// Whether a request of the client's must wait for writes that it believes done.
    pub(super) fn must_wait(&self, piece: &Piece) -> bool {
        let (Piece::Beginning(packet) | Piece::Message(packet)) = piece else {
            return false;
        };
        let write = lone_write(packet).and_then(|(header, write)| written(&header, &write));
        self.writing.delays(write.as_ref(), &self.reading.files)
    }

    /// Whether the near half answers this one.
    pub(super) fn take_behind(&mut self, packet: &Bytes) -> Option<Announced> {
        if self.writing.announced.is_empty() {
            return None;
        }
        let (header, write) = lone_write(packet)?;
        let is_paid = self.writing.take_announced(header.message_id)?;
        Some(Announced {
            header,
            write,
            is_paid,
        })
    }

    /// Hands a write to the server that the near half answers.
    pub(super) fn write_behind(
        &mut self,
        packet: &Bytes,
        announced: &Announced,
        out: &mut Outbox,
    ) -> Result<(), Reason> {
        let Announced {
            header,
            write,
            is_paid,
        } = announced;
        let ids = header.ids_taken();
        // Two bytes on the wire.
        let charge = ids as u32;
        if *is_paid {
            self.credits
                .spend_room(charge)
                .map_err(|Few| Reason::Halves)?;
        } else {
            self.credits.handle_request(ids);
        }
        self.writing.working_credits += charge;
        let id = self.ids.take(ids);
        let asked = self.credits.ask(ids as u16, self.credits_wanted());
        let request = Request {
            client_id: header.message_id,
            command: Command::Write,
            tree: header.tree(),
            file: Some(write.file),
            asked,
            is_change: true,
            purpose: Purpose::Behind(write.file, write.length, charge),
        };
        self.pending
            .insert(id, request)
            .map_err(|_| Reason::SmbFull)?;
        let part = written(header, write).ok_or(Reason::Halves)?;
        self.writing.handle_sent(id, part);
        let mut edited = BytesMut::from(&**packet);
        set_message_id(&mut edited, PREFIX_BYTES, id);
        let credits = asked.by_client.saturating_add(asked.by_us);
        set_credits(&mut edited, PREFIX_BYTES, credits);
        out.local(edited.freeze());
        Ok(())
    }

    /// The server answered a write that the client believes done.
    pub(super) fn handle_written(
        &mut self,
        header: &Header,
        message: &[u8],
        (file, length, charge): (FileId, u32, u32),
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let count = WriteResponse::parse(message).map(|answer| answer.count);
        let writing = &mut self.writing;
        writing.working_credits = writing.working_credits.saturating_sub(charge);
        let write = (header.message_id, file, length);
        let answer = (header.status, count.ok());
        writing.handle_written(write, answer, out, stats)?;
        if self.writing.has_failed(file) {
            // Its reads are the server's, which ends them with the error.
            self.reading.give_up(file, out, stats);
        }
        Ok(())
    }
}

/// A write that the near half answers.
#[derive(Debug)]
pub(super) struct Announced {
    header: Header,
    write: WriteHead,
    is_paid: bool,
}

fn lone_write(packet: &Bytes) -> Option<(Header, WriteHead)> {
    let message = packet.get(PREFIX_BYTES..)?;
    let header = Header::parse(message).ok()?;
    let is_lone =
        header.command == Command::Write && header.next_bytes == 0 && !header.is_related();
    let write = WriteHead::parse(message).ok().filter(|_| is_lone)?;
    Some((header, write))
}
