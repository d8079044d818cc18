//! The far half's session of SMB1: passes messages on as they are, reads ahead in between, and follows what is open.
//!
//! Until the first run everything can go opaque at any time. From then on what cannot be understood passes as it is, and
//! nothing is read ahead over it; what is signed ends the connection, for a signature counts our requests, too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use super::super::asked::AskedRead;
use super::super::effect::Effect;
use super::super::files::OpenFile;
use super::super::guarded::Guarded;
use super::super::lent::Lent;
use super::super::message::Message;
use super::super::netbios::{PREFIX_BYTES, Packets, Piece};
use super::super::reading::Reading;
use super::super::smb1::connect::SessionSetupRequest;
use super::super::smb1::header::{
    CLOSE_AND_TREE_DISC, FLUSH, Header, LOCKING_ANDX, LOGOFF_ANDX, NT_CANCEL, NT_CREATE_ANDX,
    NT_TRANSACT, PROCESS_EXIT, READ_ANDX, SESSION_SETUP_ANDX, TRANSACTION2, TREE_CONNECT_ANDX,
    TREE_DISCONNECT, blocks, first_block, lone_block,
};
use super::super::smb1::open::{FlushRequest, LockingRequest, NtCreateRequest};
use super::super::smb1::transfer::ReadRequest;
use super::super::smb2::open::{FileId, SHARE_WRITE};
use super::super::writing::{Writing, may_be_late};
use super::agreed::Agreed;
use super::asked::lone_write;
use super::early::EarlyBreaks;
use super::effect::{effects, has_locks};
use super::multiplex::{Multiplex, Purpose, Request};
use super::numbers::is_open;
use super::{file_id, is_write, part_of};
use crate::output::Outbox;
use crate::reason::Reason;
use crate::settings::Settings;
use crate::stats::Stats;

/// A close waits so long at most for answers to the client's own reads.
const READS_NS_MAX: u64 = 5_000_000_000;

/// See the module.
#[derive(Debug)]
pub struct FarCifs {
    pub(super) client: Packets,
    pub(super) server: Packets,
    /// What the client asks next, and must wait.
    pub(super) held: Option<Bytes>,
    /// Until when it waits for answers to the client's own reads.
    held_until_ns: Option<u64>,
    /// What we ask while a packet of the client's is passed on in pieces.
    pub(super) later: VecDeque<Bytes>,
    has_client_ended: bool,
    pub(super) agreed: Agreed,
    pub(super) multiplex: Multiplex,
    pub(in crate::smb) reading: Reading,
    pub(super) writing: Writing,
    /// Writes of the client's; the near half counts them, too.
    writes: u64,
    pub(in crate::smb) lent: Lent,
    pub(super) early: EarlyBreaks,
    /// Multiplex ids of oplocks given back.
    pub(super) silent: VecDeque<u16>,
    /// Shares that are folders.
    disks: BTreeSet<u16>,
    pub(super) now_ns: u64,
    /// How the client opened each file: ours is read in its name, under its locks.
    pub(super) openers: BTreeMap<FileId, Header>,
    /// Something was read ahead: the near half may hold something, and the server may owe us something.
    pub(super) has_begun: bool,
    /// Packets without a header may pass: nothing is looked into any more.
    is_blind: bool,
}

impl FarCifs {
    /// For a connection on which the server has just chosen this dialect; with what has come of both sides since.
    #[must_use]
    pub fn new(settings: &Settings, agreed: Agreed, client: Packets, server: Packets) -> Self {
        let mut reading = Reading::new(settings);
        reading.read_bytes_max = agreed.read_bytes_max();
        Self {
            client,
            server,
            held: None,
            held_until_ns: None,
            later: VecDeque::new(),
            has_client_ended: false,
            agreed,
            multiplex: Multiplex::default(),
            reading,
            writing: Writing::default(),
            writes: 0,
            lent: Lent::default(),
            early: EarlyBreaks::default(),
            silent: VecDeque::new(),
            disks: BTreeSet::new(),
            now_ns: 0,
            openers: BTreeMap::new(),
            has_begun: false,
            is_blind: false,
        }
    }

    pub(crate) fn handle_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// When the near half should have answered, or a close has waited long enough for reads of the client's.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        [self.lent.due_ns(), self.held_until_ns]
            .into_iter()
            .flatten()
            .min()
    }

    /// That time has come.
    pub(crate) fn handle_due(&mut self, out: &mut Outbox, stats: &mut Stats) -> Result<(), Reason> {
        let lent_due_ns = self.lent.due_ns();
        if lent_due_ns.is_some_and(|due_ns| due_ns <= self.now_ns) {
            out.cut(Reason::Halves);
            return Ok(());
        }
        self.go_on(out, stats)
    }

    pub(crate) fn handle_link(&mut self, settings: &Settings, out: &mut Outbox, stats: &mut Stats) {
        self.read_on(out, |reading, out| {
            reading.handle_link(settings, out, stats);
        });
    }

    /// What the client asked and waits for the server.
    pub(crate) fn held_bytes(&self) -> usize {
        self.client.held_bytes()
    }

    pub(crate) fn handle_client(
        &mut self,
        bytes: &[u8],
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        self.client.push(bytes);
        self.go_on(out, stats)
    }

    /// Does what the client asks, as far as it need not wait.
    pub(crate) fn go_on(&mut self, out: &mut Outbox, stats: &mut Stats) -> Result<(), Reason> {
        while !self.is_blind {
            let piece = match self.held.take() {
                Some(packet) => Some(Piece::Message(packet)),
                None => self.client.poll().map_err(|_| Reason::SmbMalformed)?,
            };
            match piece {
                None => break,
                Some(Piece::Service(bytes)) => out.local(bytes),
                Some(Piece::Rest(bytes)) => {
                    out.local(bytes);
                    self.send_later(out);
                }
                Some(Piece::Beginning(packet) | Piece::Message(packet)) => {
                    if self.must_wait(&packet) || self.waits_for_reads(&packet) {
                        self.end_what_closes(&packet, out, stats);
                        self.held = Some(packet);
                        return Ok(());
                    }
                    self.held_until_ns = None;
                    self.handle_request(packet, out, stats)?;
                }
            }
        }
        if self.is_blind {
            out.local(self.client.take_held());
        }
        if self.has_client_ended && !self.writing.delays_end(self.client.has_rest()) {
            out.local(self.client.take_held());
            out.local_end();
        }
        Ok(())
    }

    pub(crate) fn handle_server(
        &mut self,
        bytes: &[u8],
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        self.server.push(bytes);
        self.hear(out, stats)
    }

    /// What the server has said.
    pub(crate) fn hear(&mut self, out: &mut Outbox, stats: &mut Stats) -> Result<(), Reason> {
        while !self.is_blind {
            match self.server.poll().map_err(|_| Reason::SmbMalformed)? {
                None => return Ok(()),
                Some(Piece::Service(bytes) | Piece::Rest(bytes)) => out.peer(bytes),
                Some(Piece::Beginning(packet) | Piece::Message(packet)) => {
                    self.handle_response(packet, out, stats)?;
                }
            }
        }
        out.peer(self.server.take_held());
        Ok(())
    }

    pub(crate) fn handle_client_end(
        &mut self,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        self.reading.is_quiet = true;
        self.has_client_ended = true;
        self.go_on(out, stats)
    }

    pub(crate) fn handle_server_end(&mut self, out: &mut Outbox) -> Result<(), Reason> {
        self.reading.is_quiet = true;
        out.peer(self.server.take_held());
        Ok(())
    }

    pub(crate) fn handle_message(
        &mut self,
        payload: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        match Message::decode(payload).map_err(|_| Reason::Halves)? {
            Message::Used { run, upto } => self.read_on(out, |reading, out| {
                reading.handle_used(run, upto, out, stats);
            }),
            Message::Want { run, upto } => self.read_on(out, |reading, out| {
                reading.handle_want(run, upto, out, stats);
            }),
            Message::Refused { run } => self.reading.handle_refused(run, out, stats),
            Message::Stop { reason } => return self.stop(reason, out, stats),
            Message::Fenced { number } => self.handle_fenced(number, out),
            Message::Behind { is_paid, id, file } => {
                return self.writing.announce(id, file, is_paid);
            }
            _ => return Err(Reason::Halves),
        }
        Ok(())
    }

    /// Nothing more is read ahead; opaque, if that is possible.
    pub(crate) fn stop(
        &mut self,
        reason: Reason,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        if !self.has_begun {
            return Err(reason);
        }
        self.guarded().stop(reason, out, stats);
        Ok(())
    }

    /// Hands over what is held, if messages could pass as they are.
    pub(crate) fn surrender(&mut self, out: &mut Outbox) -> Result<(), Reason> {
        if self.has_begun {
            return Err(Reason::Halves);
        }
        out.local(self.held.take().unwrap_or_default());
        out.local(self.client.take_held());
        out.peer(self.server.take_held());
        Ok(())
    }

    pub(super) fn guarded(&mut self) -> Guarded<'_> {
        Guarded {
            reading: &mut self.reading,
            writing: &mut self.writing,
            lent: &mut self.lent,
        }
    }

    /// Whether a request must wait for answers to ours: it uses one's id, there would be too many, what follows it has
    /// no header, it closes what we read, or the client believes writes done that are not.
    fn must_wait(&self, packet: &[u8]) -> bool {
        let message = packet.get(PREFIX_BYTES..).unwrap_or_default();
        if self.multiplex.own() == 0 {
            return false;
        }
        let Ok(header) = Header::parse(message) else {
            return true;
        };
        let is_full = self.multiplex.all() >= self.agreed.requests_max();
        let write = lone_write(message).map(|(_, part, _)| part);
        is_full
            || header.is_raw()
            || self.multiplex.is_own(header.multiplex)
            || self.closes_under_own(message)
            || self.writing.delays(write.as_ref(), &self.reading.files)
    }

    /// Whether it takes away a file, or what that belongs to, while a request of ours is about it. There are
    /// servers that do not bear it: Samba 4.17 fails in close_file_smb, and the connection with it.
    fn closes_under_own(&self, message: &[u8]) -> bool {
        effects(message).iter().any(|effect| match effect {
            Effect::Closes(file) => self.multiplex.is_own_at(*file),
            Effect::Everything => true,
            Effect::Changes(_) | Effect::Replaces => false,
        })
    }

    /// Whether it closes a file that the client itself reads, and how long that has waited if so. Who stops at the end of a file may have
    /// reads beyond it under way; directly such a server has mostly answered these when it sees the close. Everybody else on the
    /// connection waits as well, so it has an end.
    fn waits_for_reads(&mut self, packet: &[u8]) -> bool {
        let effects = effects(packet.get(PREFIX_BYTES..).unwrap_or_default());
        let is_read = |effect: &Effect| match effect {
            Effect::Closes(file) => self.multiplex.is_read_at(*file),
            _ => false,
        };
        if !effects.iter().any(is_read) {
            return false;
        }
        let until_ns = self.now_ns.saturating_add(READS_NS_MAX);
        *self.held_until_ns.get_or_insert(until_ns) > self.now_ns
    }

    /// No more is read for a request that waits for what is being read.
    fn end_what_closes(&mut self, packet: &[u8], out: &mut Outbox, stats: &mut Stats) {
        for effect in effects(packet.get(PREFIX_BYTES..).unwrap_or_default()) {
            match effect {
                Effect::Closes(file) => self.reading.end_runs(|id, _| id == file, out, stats),
                Effect::Everything => self.reading.end_runs(|_, _| true, out, stats),
                Effect::Changes(_) | Effect::Replaces => (),
            }
        }
    }

    fn handle_request(
        &mut self,
        packet: Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        self.writing.handle_next();
        let message = packet.slice(PREFIX_BYTES..);
        for effect in effects(&message) {
            self.guarded().handle_effect(effect, out, stats);
            if has_locks(&message) {
                self.leave_alone(effect);
            }
        }
        // As the near half does, whatever else it is.
        let nth = self.writes;
        self.writes += u64::from(is_write(&message));
        let Ok(header) = Header::parse(&message) else {
            out.local(packet);
            return self.bear(Reason::SmbMalformed);
        };
        if let Some((_, part, _)) = lone_write(&message) {
            self.reading.handle_write(&part);
        }
        if header.is_signed() && header.command != SESSION_SETUP_ANDX {
            out.local(packet);
            return Err(Reason::SmbSigned);
        }
        if header.is_raw() {
            out.local(packet);
            // A break of an oplock that the client knows nothing of could not be found in there.
            let is_lent = !self.lent.is_empty() || self.multiplex.is_borrowing();
            self.is_blind = self.has_begun && !is_lent;
            return match self.is_blind {
                true => Ok(()),
                false => Err(Reason::SmbDialect),
            };
        }
        self.handle_released(&message, out, stats);
        if is_write(&message) && self.writing.take_announced(nth).is_some() {
            return self.write_behind(&packet, out);
        }
        let read = AskedRead::of(&packet);
        if let Some(read) = &read
            && self.read_on(out, |reading, out| {
                reading.is_covered(&read.part, out, stats)
            })
        {
            out.message(Message::Yours { packet }.encode());
            return Ok(());
        }
        let is_known = blocks(&message).is_ok();
        let lends = self.lends(&header, &message);
        self.follow(&header, &message, lends.is_some());
        out.local(match lends {
            Some(flags) => self.lend(&packet, flags),
            None => self.refuse(packet),
        });
        if let Some(read) = read {
            self.consider(&read.part, out, stats);
        }
        match is_known {
            true => Ok(()),
            false => self.bear(Reason::SmbMalformed),
        }
    }

    /// A lock is a process's, and what is read ahead an open file's: another process would be given what is locked.
    fn leave_alone(&mut self, effect: Effect) {
        if let Effect::Changes(Some(id)) = effect
            && let Some(file) = self.reading.files.get(id)
        {
            file.is_broken = true;
        }
    }

    /// What is not understood ends reading ahead only where that can still go without a trace.
    fn bear(&self, reason: Reason) -> Result<(), Reason> {
        match self.has_begun {
            true => Ok(()),
            false => Err(reason),
        }
    }

    /// Notes what the answer to a request will be needed for.
    fn follow(&mut self, header: &Header, message: &Bytes, is_lent: bool) {
        let has_answer = match header.command {
            NT_CANCEL => false,
            LOCKING_ANDX => !lone_release(message),
            _ => true,
        };
        if !has_answer {
            return;
        }
        let effects = effects(message);
        let closes = |effect: &Effect| matches!(effect, Effect::Closes(_));
        let of_effects = effects.iter().find_map(|effect| match effect {
            Effect::Changes(file) => *file,
            Effect::Closes(file) => Some(*file),
            Effect::Replaces | Effect::Everything => None,
        });
        let request = Request {
            purpose: self.purpose(header, message, is_lent),
            is_change: !effects.iter().all(closes),
            file: of_effects.or_else(|| read_or_flushed(header, message)),
            closes: effects.iter().find_map(|effect| match effect {
                Effect::Closes(file) => Some(*file),
                _ => None,
            }),
        };
        self.multiplex.insert(header.multiplex, request);
    }

    fn purpose(&mut self, header: &Header, message: &Bytes, is_lent: bool) -> Purpose {
        let Ok(first) = first_block(message) else {
            return Purpose::Pass;
        };
        match header.command {
            SESSION_SETUP_ANDX => {
                if let Ok(setup) = SessionSetupRequest::parse(&first) {
                    self.agreed.handle_setup(&setup);
                }
                // A share may be connected in the same message.
                Purpose::Tree
            }
            TREE_CONNECT_ANDX => Purpose::Tree,
            CLOSE_AND_TREE_DISC | TREE_DISCONNECT | LOGOFF_ANDX | PROCESS_EXIT => {
                Purpose::Leave(*header)
            }
            TRANSACTION2 | NT_TRANSACT if is_open(&first) => Purpose::Open,
            NT_CREATE_ANDX => {
                NtCreateRequest::parse(&first).map_or(Purpose::Pass, |create| Purpose::Create {
                    asked: *header,
                    are_writers_denied: create.share & SHARE_WRITE == 0,
                    may_be_late: may_be_late(create.access, create.options),
                    is_lent,
                })
            }
            // In a chain servers give less.
            READ_ANDX if lone_block(message).is_ok() => {
                ReadRequest::parse(&first).map_or(Purpose::Pass, |read| {
                    let part = part_of(header, read.file, read.offset, read.length);
                    match self.is_disk(header.tree) {
                        true => Purpose::Read(part, self.reading.changes),
                        // Of a pipe, which may take its time.
                        false => Purpose::Pass,
                    }
                })
            }
            _ => Purpose::Pass,
        }
    }

    /// The client gives up an oplock, or more of it than was taken.
    fn handle_released(&mut self, message: &[u8], out: &mut Outbox, stats: &mut Stats) {
        for block in blocks(message).unwrap_or_default() {
            let locking = LockingRequest::parse(&block).ok();
            let locking = locking.filter(|it| block.command == LOCKING_ANDX && it.is_release());
            if let Some(locking) = locking {
                self.handle_left(&locking);
                self.review_writing(out);
                let keeps = |file: &OpenFile| file.protection.protects();
                self.reading.end_runs(|_, file| !keeps(file), out, stats);
            }
        }
    }

    /// A file was opened.
    pub(super) fn note_opener(&mut self, id: FileId, asked: &Header) {
        self.openers.insert(id, *asked);
    }

    /// Or is so no more.
    pub(super) fn forget(&mut self, id: FileId) {
        self.writing.forget(id);
        self.reading.forget(id);
        self.lent.handle_closed(id);
        self.openers.remove(&id);
    }

    /// A share was connected.
    pub(super) fn handle_tree(&mut self, tree: u16, is_disk: bool) {
        match is_disk {
            true => self.disks.insert(tree),
            false => self.disks.remove(&tree),
        };
    }

    pub(super) fn is_disk(&self, tree: u16) -> bool {
        self.disks.contains(&tree)
    }
}

/// The file that is read or flushed.
fn read_or_flushed(header: &Header, message: &[u8]) -> Option<FileId> {
    let block = first_block(message).ok()?;
    let file = match header.command {
        READ_ANDX => ReadRequest::parse(&block).ok()?.file,
        FLUSH => FlushRequest::parse(&block).ok()?.file,
        _ => return None,
    };
    Some(file_id(file))
}

/// Whether it gives back an oplock and asks for nothing: it has no answer (MS-CIFS 2.2.4.32.1).
fn lone_release(message: &[u8]) -> bool {
    let locking = lone_block(message).and_then(|block| LockingRequest::parse(&block));
    locking.is_ok_and(|locking| locking.is_release() && !locking.has_ranges())
}
