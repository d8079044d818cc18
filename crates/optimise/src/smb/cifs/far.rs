//! The far half's session of SMB1: passes messages on as they are, reads ahead in between, and follows what is open.
//!
//! Until the first run everything can go opaque at any time. From then on what cannot be understood passes as it is, and
//! nothing is read ahead over it; what is signed ends the connection, for a signature counts our requests, too.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::super::asked::AskedRead;
use super::super::effect::Effect;
use super::super::files::{OpenFile, Part};
use super::super::message::Message;
use super::super::netbios::{PREFIX_BYTES, Packets, Piece, packet};
use super::super::reading::{OwnRead, Reading};
use super::super::smb1::connect::SessionSetupRequest;
use super::super::smb1::header::{
    Header, LOCKING_ANDX, NT_CANCEL, NT_CREATE_ANDX, READ_ANDX, SESSION_SETUP_ANDX, blocks,
    first_block, lone_block,
};
use super::super::smb1::open::{LockingRequest, NtCreateRequest};
use super::super::smb1::transfer::ReadRequest;
use super::super::smb2::open::{FileId, SHARE_WRITE};
use super::agreed::Agreed;
use super::effect::effects;
use super::multiplex::{Multiplex, Purpose, Request};
use super::{file_id, file_of};
use crate::output::Outbox;
use crate::reason::Reason;
use crate::settings::Settings;
use crate::stats::Stats;

/// Reads of ours at a time: a server is near.
const OWN_MAX: usize = 16;

/// See the module.
#[derive(Debug)]
pub struct FarCifs {
    client: Packets,
    server: Packets,
    /// What the client asks next, and must wait.
    held: Option<Bytes>,
    /// What we ask while a packet of the client's is passed on in pieces.
    later: VecDeque<Bytes>,
    has_client_ended: bool,
    agreed: Agreed,
    pub(super) multiplex: Multiplex,
    pub(super) reading: Reading,
    /// How the client opened each file: ours is read in its name, under its locks.
    openers: BTreeMap<FileId, Header>,
    /// Something was read ahead: the near half may hold something, and the server may owe us something.
    has_begun: bool,
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
            later: VecDeque::new(),
            has_client_ended: false,
            agreed,
            multiplex: Multiplex::default(),
            reading,
            openers: BTreeMap::new(),
            has_begun: false,
            is_blind: false,
        }
    }

    pub(crate) fn handle_link(&mut self, bdp_bytes: u64) {
        self.reading.window.handle_link(bdp_bytes);
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
                    if self.must_wait(&packet) {
                        self.held = Some(packet);
                        return Ok(());
                    }
                    self.handle_request(packet, out, stats)?;
                }
            }
        }
        if self.is_blind {
            out.local(self.client.take_held());
        }
        if self.has_client_ended {
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
        self.reading.is_quiet = true;
        self.reading.end_runs(|_, _| true, out, stats);
        out.message(Message::Quiet { reason }.encode());
        out.gave_up(reason);
        Ok(())
    }

    /// Hands over what is held, if messages could pass as they are.
    pub(crate) fn surrender(&mut self, out: &mut Outbox) -> Result<(), Reason> {
        if self.has_begun {
            return Err(Reason::Halves);
        }
        out.local(self.client.take_held());
        out.peer(self.server.take_held());
        Ok(())
    }

    /// Whether a request must wait for answers to ours: it uses one's id, there would be too many, or what follows
    /// it has no header.
    fn must_wait(&self, packet: &[u8]) -> bool {
        let message = packet.get(PREFIX_BYTES..).unwrap_or_default();
        let (Ok(header), true) = (Header::parse(message), self.multiplex.own() > 0) else {
            return false;
        };
        let is_full = self.multiplex.all() >= self.agreed.requests_max();
        is_full || header.is_raw() || self.multiplex.is_own(header.multiplex)
    }

    fn handle_request(
        &mut self,
        packet: Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let message = packet.slice(PREFIX_BYTES..);
        for effect in effects(&message) {
            self.handle_effect(effect, out, stats);
        }
        let Ok(header) = Header::parse(&message) else {
            out.local(packet);
            return self.bear(Reason::SmbMalformed);
        };
        if header.is_signed() && header.command != SESSION_SETUP_ANDX {
            out.local(packet);
            return Err(Reason::SmbSigned);
        }
        if header.is_raw() {
            out.local(packet);
            self.is_blind = self.has_begun;
            return self.bear(Reason::SmbDialect);
        }
        self.handle_released(&message, out, stats);
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
        self.follow(&header, &message);
        out.local(packet);
        if let Some(read) = read {
            self.consider(&read.part, out, stats);
        }
        match is_known {
            true => Ok(()),
            false => self.bear(Reason::SmbMalformed),
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
    fn follow(&mut self, header: &Header, message: &Bytes) {
        let has_answer = match header.command {
            NT_CANCEL => false,
            LOCKING_ANDX => !lone_release(message),
            _ => true,
        };
        if !has_answer {
            return;
        }
        let is_change = effects(message)
            .iter()
            .any(|effect| !matches!(effect, Effect::Closes(_)));
        let purpose = self.purpose(header, message);
        self.multiplex
            .insert(header.multiplex, Request { purpose, is_change });
    }

    fn purpose(&mut self, header: &Header, message: &Bytes) -> Purpose {
        let Ok(first) = first_block(message) else {
            return Purpose::Pass;
        };
        match header.command {
            SESSION_SETUP_ANDX => {
                if let Ok(setup) = SessionSetupRequest::parse(&first) {
                    self.agreed.handle_setup(&setup);
                }
                Purpose::Pass
            }
            NT_CREATE_ANDX => {
                NtCreateRequest::parse(&first).map_or(Purpose::Pass, |create| Purpose::Create {
                    asked: *header,
                    are_writers_denied: create.share & SHARE_WRITE == 0,
                })
            }
            READ_ANDX => ReadRequest::parse(&first).map_or(Purpose::Pass, |read| {
                let part = Part {
                    session: header.user.into(),
                    tree: header.tree.into(),
                    file: file_id(read.file),
                    offset: read.offset,
                    length: read.length,
                };
                Purpose::Read(part, self.reading.changes)
            }),
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
                let keeps = |file: &OpenFile| file.protection.protects();
                self.reading.end_runs(|_, file| !keeps(file), out, stats);
            }
        }
    }

    fn handle_effect(&mut self, effect: Effect, out: &mut Outbox, stats: &mut Stats) {
        let reading = &mut self.reading;
        match effect {
            Effect::Closes(id) => {
                reading.end_runs(|other, _| other == id, out, stats);
                self.forget(id);
            }
            Effect::Changes(changed) => {
                reading.changes = reading.changes.wrapping_add(1);
                let is_safe =
                    |id, file: &OpenFile| file.protection.is_firm() && Some(id) != changed;
                reading.end_runs(|id, file| !is_safe(id, file), out, stats);
            }
            Effect::Everything => {
                reading.changes = reading.changes.wrapping_add(1);
                reading.end_runs(|_, _| true, out, stats);
            }
        }
    }

    /// A file was opened.
    pub(super) fn open(&mut self, id: FileId, file: OpenFile, asked: &Header) {
        if self.reading.files.insert(id, file) {
            self.openers.insert(id, *asked);
        }
    }

    /// Or is so no more.
    pub(super) fn forget(&mut self, id: FileId) {
        self.reading.files.remove(id);
        self.openers.remove(&id);
    }

    /// Lets it be decided what to read ahead, and reads that.
    pub(super) fn read_on<T>(
        &mut self,
        out: &mut Outbox,
        decide: impl FnOnce(&mut Reading, &mut Outbox) -> T,
    ) -> T {
        self.reading.allowance = self.allowance();
        let decided = decide(&mut self.reading, out);
        self.send_orders(out);
        decided
    }

    /// A read went to the server.
    fn consider(&mut self, part: &Part, out: &mut Outbox, stats: &mut Stats) {
        let is_changing = self.multiplex.has_changes();
        self.reading.allowance = self.allowance();
        let has_begun = &mut self.has_begun;
        let begin = || {
            *has_begun = true;
            true
        };
        self.reading.consider(part, is_changing, begin, out, stats);
        self.send_orders(out);
    }

    /// A read of the client's was answered with so many bytes.
    pub(super) fn handle_passed_read(
        &mut self,
        part: &Part,
        changes: u32,
        got_bytes: u32,
        out: &mut Outbox,
    ) {
        if !self.agreed.can_read_ahead() {
            return;
        }
        let is_changing = self.multiplex.has_changes();
        let has_begun = &mut self.has_begun;
        let begin = || {
            *has_begun = true;
            true
        };
        let asked = (part, changes);
        self.reading
            .handle_passed_read(asked, got_bytes, is_changing, begin, out);
    }

    /// So many more reads of ours the server takes.
    fn allowance(&self) -> u32 {
        if !self.agreed.can_read_ahead() {
            return 0;
        }
        let free = self.agreed.requests_max().saturating_sub(1);
        let free = free.saturating_sub(self.multiplex.all());
        let ours = OWN_MAX.saturating_sub(self.multiplex.own());
        // At most sixteen.
        free.min(ours) as u32
    }

    fn send_orders(&mut self, out: &mut Outbox) {
        for read in self.reading.take_orders() {
            self.send_read(read, out);
        }
    }

    fn send_read(&mut self, read: OwnRead, out: &mut Outbox) {
        // There are fewer requests than ids.
        let Some(multiplex) = self.multiplex.take_id(read) else {
            return;
        };
        let part = &read.part;
        let Some(opener) = self.openers.get(&part.file) else {
            return;
        };
        let mut message = Vec::new();
        opener.request(READ_ANDX, multiplex).emit(&mut message);
        ReadRequest {
            file: file_of(part.file),
            offset: part.offset,
            length: part.length,
            length_min: 0,
            remaining: 0,
        }
        .emit(&mut message);
        self.send_own(packet(&message), out);
    }

    /// A request of ours. It never gets into the middle of one of the client's.
    fn send_own(&mut self, packet: Bytes, out: &mut Outbox) {
        self.later.push_back(packet);
        self.send_later(out);
    }

    fn send_later(&mut self, out: &mut Outbox) {
        if !self.client.has_rest() || self.held.is_some() {
            self.later.drain(..).for_each(|packet| out.local(packet));
        }
    }
}

/// Whether it gives back an oplock and asks for nothing: it has no answer (MS-CIFS 2.2.4.32.1).
fn lone_release(message: &[u8]) -> bool {
    let locking = lone_block(message).and_then(|block| LockingRequest::parse(&block));
    locking.is_ok_and(|locking| locking.is_release() && !locking.has_ranges())
}
