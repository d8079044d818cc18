//! Writes that the near half answers before the server has. The other part of `near`.
//!
//! It does that only for files that the far half has named, which are the client's alone; what the client asks behind
//! such a write reaches the server after it, and what the server says of it reaches the client at the latest when it
//! closes the file. An answer here means what it means at a server: the bytes are taken, not that they are safe.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::asked::AskedWrite;
use super::cifs;
use super::credits::PLENTY;
use super::message::{Message, Room};
use super::near::NearSmb;
use super::smb2::header::{Header, messages};
use super::smb2::open::FileId;
use crate::output::Outbox;
use crate::reason::Reason;
use crate::settings::Settings;
use crate::stats::Stats;

/// Files at a time; the writes of those beyond are the server's to answer.
const FILES_MAX: usize = 4096;
/// Writes at a time that the far half may not have seen: it follows no more than twice as many.
const WRITES_MAX: usize = 4096;

/// What the near half knows of writes.
#[derive(Debug)]
pub struct Behind {
    /// None of its client's writes is answered early.
    is_off: bool,
    /// Session and tree of the files.
    files: BTreeMap<FileId, (u64, u32)>,
    /// Credits that the far half keeps for writes answered here.
    room_credits: u32,
    /// Credits that the client was given by the server, at least.
    given: u64,
    /// Credits of the client's requests that were passed on.
    spent: u64,
    bytes_max: u64,
    /// Answered here, or to be answered as soon as less is under way, and not known to be at the server.
    unsettled_bytes: u64,
    /// How long each of those was, in their order.
    unsettled: VecDeque<u64>,
    /// Of the first, done.
    settled_bytes: u64,
    /// Answers that wait for that.
    late: VecDeque<Answer>,
    /// The answer to the write that passes in pieces.
    passing: Option<Answer>,
    /// Writes of SMB1 that were passed on; the far half counts them, too.
    cifs_writes: u64,
}

/// A packet, and how many bytes it says are written.
type Answer = (Bytes, u64);

impl Behind {
    /// Of a connection of which nothing has passed.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            is_off: false,
            files: BTreeMap::new(),
            room_credits: 0,
            given: 0,
            spent: 0,
            bytes_max: settings.behind_bytes_max,
            unsettled_bytes: 0,
            unsettled: VecDeque::new(),
            settled_bytes: 0,
            late: VecDeque::new(),
            passing: None,
            cifs_writes: 0,
        }
    }

    /// The link turned out to be another.
    pub fn handle_link(&mut self, settings: &Settings) {
        self.bytes_max = settings.behind_bytes_max;
    }

    /// Of writes whose answers wait.
    fn late_bytes(&self) -> u64 {
        self.late.iter().map(|(_, bytes)| bytes).sum()
    }

    fn passing_bytes(&self) -> u64 {
        self.passing.as_ref().map_or(0, |(_, bytes)| *bytes)
    }

    /// The far half has named a file, or does not any more.
    pub fn allow(&mut self, file: FileId, session: u64, tree: u32) {
        if self.files.len() < FILES_MAX && !self.is_off {
            self.files.insert(file, (session, tree));
        }
    }

    /// See [`Behind::allow`].
    pub fn forbid(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    /// No file is the client's alone any more.
    pub fn forbid_all(&mut self) {
        self.files.clear();
    }

    /// The server has ended: nobody will hear how the last writes ended.
    pub fn forget(&mut self) {
        self.files.clear();
        self.late.clear();
        self.passing = None;
        self.unsettled.clear();
        (self.unsettled_bytes, self.settled_bytes) = (0, 0);
    }

    /// A packet of the client's is passed on.
    pub fn handle_spent(&mut self, message: &[u8]) {
        self.cifs_writes += u64::from(cifs::is_write(message));
        for (start, end) in messages(message).unwrap_or_default() {
            let header = message.get(start..end).map(Header::parse);
            self.spent += header.map_or(0, |header| header.map_or(0, |header| header.ids_taken()));
        }
    }

    /// One of so many credits that was passed on was answered here after all.
    pub fn handle_returned(&mut self, charge: u64) {
        self.spent = self.spent.saturating_sub(charge);
    }

    fn handle_room(&mut self, room: Room) {
        self.room_credits = self.room_credits.saturating_add(room.credits);
        self.unsettled_bytes = self.unsettled_bytes.saturating_sub(room.bytes.into());
        self.given = self.given.max(room.given);
        self.settle(room.bytes.into());
    }

    /// Writes are done in any order; but those that the far half has not seen are the last, and no more of them than there
    /// would be were they done in theirs.
    fn settle(&mut self, bytes: u64) {
        self.settled_bytes += bytes;
        while let Some(first) = self.unsettled.front().copied()
            && first <= self.settled_bytes
        {
            self.settled_bytes -= first;
            self.unsettled.pop_front();
        }
    }

    /// With whose credits this write can be answered: ours, or the client's, who has plenty.
    fn payer(&mut self, charge: u64) -> Option<Payer> {
        if u64::from(self.room_credits) >= charge {
            // Not more than there are.
            self.room_credits -= charge as u32;
            return Some(Payer::Room);
        }
        // One credit is every connection's from the beginning.
        let left = (1 + self.given).saturating_sub(self.spent);
        (left >= charge + PLENTY as u64).then_some(Payer::Client)
    }
}

/// Who pays for a write with credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Payer {
    /// The far half: the client has as many as before.
    Room,
    /// The client: it is given none.
    Client,
}

impl NearSmb {
    /// Passes on what is not for us alone; a write that may be answered here is.
    pub(super) fn handle_request(
        &mut self,
        packet: Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let Some(write) = self.early(&packet) else {
            return self.pass(packet, out);
        };
        let charge = write.ids_taken();
        let Some(payer) = self.behind.payer(charge) else {
            return self.pass(packet, out);
        };
        out.message(
            Message::Behind {
                is_paid: payer == Payer::Room,
                id: write.id(self.behind.cifs_writes),
                file: write.part.file,
            }
            .encode(),
        );
        self.pass(packet, out)?;
        if payer == Payer::Room {
            self.behind.handle_returned(charge);
        }
        let bytes = u64::from(write.part.length);
        self.behind.unsettled_bytes += bytes;
        self.behind.unsettled.push_back(bytes);
        let answer = (write.answer(payer == Payer::Room), bytes);
        match self.packets.has_rest() {
            true => self.behind.passing = Some(answer),
            false => self.answer_late(answer, out, stats),
        }
        Ok(())
    }

    /// The rest of a packet has passed.
    pub(super) fn handle_rest(&mut self, out: &mut Outbox, stats: &mut Stats) {
        if !self.packets.has_rest()
            && let Some(answer) = self.behind.passing.take()
        {
            self.answer_late(answer, out, stats);
        }
    }

    /// Whatever the far half names: every write is the server's to answer.
    pub(crate) fn leave_writes(&mut self) {
        self.behind.is_off = true;
    }

    pub(super) fn handle_room(&mut self, room: Room, out: &mut Outbox, stats: &mut Stats) {
        self.behind.handle_room(room);
        self.release(out, stats);
    }

    /// Whether writes that have passed whole, answered or about to be, may not be at the server yet.
    pub(crate) fn owes(&self) -> bool {
        self.behind.unsettled_bytes > self.behind.passing_bytes()
    }

    /// Bytes of writes that the client believes done, and of which nobody has said here that they are at the server.
    pub(crate) fn owed_bytes(&self) -> u64 {
        let behind = &self.behind;
        let unanswered_bytes = behind.late_bytes() + behind.passing_bytes();
        behind.unsettled_bytes.saturating_sub(unanswered_bytes)
    }

    /// Gives out the answers for which there is room. While the link is down nobody knows whether the file is still
    /// the client's.
    pub(super) fn release(&mut self, out: &mut Outbox, stats: &mut Stats) {
        let mut waiting_bytes = self.behind.late_bytes();
        while self.is_heard
            && let Some(bytes) = self.behind.late.front().map(|(_, bytes)| *bytes)
        {
            let others_bytes = self.behind.unsettled_bytes.saturating_sub(waiting_bytes);
            if others_bytes > 0 && others_bytes + bytes > self.behind.bytes_max {
                break;
            }
            waiting_bytes -= bytes;
            let first = self.behind.late.pop_front();
            self.answers.extend(first.map(|(answer, _)| answer));
            stats.writes_answered += 1;
            stats.behind_bytes += bytes;
        }
        self.answer(out);
    }

    fn answer_late(&mut self, answer: Answer, out: &mut Outbox, stats: &mut Stats) {
        self.behind.late.push_back(answer);
        self.release(out, stats);
    }

    /// A write that stands alone, is nothing but bytes, and is of a file that is the client's alone.
    fn early(&self, packet: &Bytes) -> Option<AskedWrite> {
        let write = AskedWrite::of(packet)?;
        let part = &write.part;
        let its = self.behind.files.get(&part.file)?;
        let is_its = *its == (part.session, part.tree);
        let has_room = self.behind.unsettled.len() < WRITES_MAX;
        let is_known = self.is_heard && self.is_sure;
        (is_its && has_room && !self.is_stopped && is_known).then_some(write)
    }
}
