//! The half that faces the server: passes messages on, with other ids and credits where it must, and follows what is open.
//! What answers tell is in `answers`, what is read ahead is decided in `reading`, what protects it is `lent`.
//!
//! Until the first run or loan every message passes with the client's ids, so that everything can still go opaque. From then on
//! ids are ours, and what cannot be renumbered (signed, encrypted, malformed) ends the connection.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::answers::fail;
use super::asked::AskedRead;
use super::cifs::{is_cifs, is_write};
use super::connection::Connection;
use super::credits::{Asked, Credits};
use super::early::Early;
use super::effect::{Effect, effects, file_of};
use super::files::Part;
use super::guarded::Guarded;
use super::ids::Ids;
use super::lent::Lent;
use super::message::Message;
use super::netbios::{PREFIX_BYTES, Packets, Piece};
use super::noted::relate;
use super::opening::Opening;
use super::pending::{Lends, Pending, Purpose, Request};
use super::reading::Reading;
use super::refused::Compound;
use super::smb2::header::{
    Command, Header, MARK_COMPRESSED, MARK_ENCRYPTED, messages, set_credits, set_message_id,
};
use super::smb2::open::{
    FileId, OPLOCK_EXCLUSIVE, OPLOCK_NONE, set_oplock_asked, set_oplock_granted,
};
use super::smb2::transfer::ReadRequest;
use super::writing::Writing;
use crate::output::Outbox;
use crate::reason::Reason;
use crate::settings::Settings;
use crate::stats::Stats;

/// The message id of a CANCEL of what is answered: no request ever has it.
const CANCELLED_BEFORE: u64 = u64::MAX - 1;

/// See the module.
#[derive(Debug)]
pub struct FarSmb {
    client: Packets,
    server: Packets,
    /// What the client asks next, and must wait for writes that are at the server.
    held: Option<Piece>,
    /// What we ask while a packet of the client's is passed on in pieces.
    later: VecDeque<Bytes>,
    has_client_ended: bool,
    /// What a client asked that began in SMB1, and the answer, if that is of SMB1, too.
    cifs: (Option<Bytes>, Option<Bytes>),
    pub(super) connection: Connection,
    pub(super) ids: Ids,
    pub(super) credits: Credits,
    pub(super) pending: Pending,
    pub(super) lent: Lent,
    pub(super) early: Early,
    pub(super) writing: Writing,
    pub(super) reading: Reading,
    pub(super) opening: Opening,
    pub(super) now_ns: u64,
}

impl FarSmb {
    /// For a connection of which nothing has passed, and a near half that knows so much (`KNOWS_*`).
    #[must_use]
    pub fn new(settings: Settings, knows: u8) -> Self {
        Self {
            client: Packets::default(),
            server: Packets::of_server(),
            connection: Connection::default(),
            ids: Ids::new(),
            credits: Credits::new(),
            pending: Pending::default(),
            lent: Lent::default(),
            early: Early::default(),
            writing: Writing::default(),
            held: None,
            later: VecDeque::new(),
            has_client_ended: false,
            cifs: (None, None),
            reading: Reading::new(&settings),
            opening: Opening::new(knows),
            now_ns: 0,
        }
    }

    /// The time that holds until it is told again.
    pub(crate) fn handle_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// The link turned out to be another.
    pub(crate) fn handle_link(&mut self, settings: &Settings, out: &mut Outbox, stats: &mut Stats) {
        self.read_on(out, |reading, out| {
            reading.handle_link(settings, out, stats);
        });
    }

    /// When the near half should have answered, or something was held for too long.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        [self.lent.due_ns(), self.held_due_ns()]
            .into_iter()
            .flatten()
            .min()
    }

    /// That time has come.
    pub(crate) fn handle_due(&mut self, out: &mut Outbox, stats: &mut Stats) {
        match self
            .lent
            .due_ns()
            .is_some_and(|due_ns| due_ns <= self.now_ns)
        {
            true => out.cut(Reason::Halves),
            false => self.expire(out, stats),
        }
    }

    /// Whether something of the client's waits.
    pub(super) fn is_holding(&self) -> bool {
        self.held.is_some()
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

    /// What the client asked and waits for the server.
    pub(crate) fn held_bytes(&self) -> usize {
        self.client.held_bytes()
    }

    /// Does what the client asks, as far as it need not wait.
    pub(super) fn go_on(&mut self, out: &mut Outbox, stats: &mut Stats) -> Result<(), Reason> {
        loop {
            let held = self.held.take();
            let piece = match held {
                Some(piece) => Some(piece),
                None => self.client.poll().map_err(|_| Reason::SmbMalformed)?,
            };
            match piece {
                None => break,
                Some(Piece::Service(bytes)) => out.local(bytes),
                Some(Piece::Rest(bytes)) => {
                    out.local(bytes);
                    self.send_later(out);
                }
                Some(piece @ (Piece::Beginning(_) | Piece::Message(_)))
                    if self.waits_for_closing(&piece, out, stats)
                        || self.must_wait(&piece)
                        || self.lacks_credits(&piece) =>
                {
                    self.held = Some(piece);
                    return Ok(());
                }
                Some(Piece::Beginning(packet) | Piece::Message(packet)) => {
                    self.handle_request(packet, out, stats)?;
                }
            }
        }
        if self.has_client_ended && !self.writing.delays_end(self.client.has_rest()) {
            out.local(self.client.take_held());
            out.local_end();
        }
        Ok(())
    }

    /// A request of ours. It never gets into the middle of one of the client's.
    pub(super) fn send_own(&mut self, packet: Bytes, out: &mut Outbox) {
        self.later.push_back(packet);
        self.send_later(out);
    }

    fn send_later(&mut self, out: &mut Outbox) {
        if !self.client.has_rest() || self.held.is_some() {
            self.later.drain(..).for_each(|packet| out.local(packet));
        }
    }

    pub(crate) fn handle_server(
        &mut self,
        bytes: &[u8],
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        self.server.push(bytes);
        loop {
            match self.server.poll().map_err(|_| Reason::SmbMalformed)? {
                None => return Ok(()),
                Some(Piece::Service(bytes) | Piece::Rest(bytes)) => out.peer(bytes),
                Some(Piece::Beginning(packet) | Piece::Message(packet)) => {
                    self.handle_response(packet, out, stats)?;
                }
            }
        }
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
        let result = self.handle_decoded(payload, out, stats);
        self.close_on(out);
        self.open_on(out, stats);
        result
    }

    fn handle_decoded(
        &mut self,
        payload: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        match Message::decode(payload).map_err(|_| Reason::Halves)? {
            Message::Used { run, upto } => {
                self.read_on(out, |reading, out| {
                    reading.handle_used(run, upto, out, stats);
                });
                Ok(())
            }
            Message::Want { run, upto } => {
                self.read_on(out, |reading, out| {
                    reading.handle_want(run, upto, out, stats);
                });
                Ok(())
            }
            Message::Refused { run } => {
                self.reading.handle_refused(run, out, stats);
                Ok(())
            }
            Message::Stop { reason } => self.stop(reason, out, stats),
            Message::Fenced { number } => {
                self.handle_fenced(number, out, stats);
                Ok(())
            }
            Message::Taken { file } => self.handle_taken(file),
            Message::Released { file } => {
                self.handle_released(file, out, stats);
                Ok(())
            }
            Message::Shut { file } => self.handle_shut(file),
            Message::Behind { is_paid, id, file } => self.writing.announce(id, file, is_paid),
            _ => Err(Reason::Halves),
        }
    }

    pub(crate) fn give_up(&mut self, reason: Reason, out: &mut Outbox) -> Result<(), Reason> {
        self.stop(reason, out, &mut Stats::default())
    }

    /// Hands over what is held, if messages could pass as they are.
    pub(crate) fn surrender(&mut self, out: &mut Outbox) -> Result<(), Reason> {
        if !self.ids.is_clients() {
            return Err(Reason::Halves);
        }
        out.local(self.client.take_held());
        out.peer(self.server.take_held());
        Ok(())
    }

    /// What client and server said, if that agrees on SMB1; and what has come of both since.
    pub(super) fn take_cifs(&mut self) -> Option<Agreement> {
        let answered = self.cifs.1.take()?;
        let asked = self.cifs.0.take()?;
        let is_fresh = self.ids.is_clients() && self.held.is_none();
        is_fresh.then(|| Agreement {
            asked,
            answered,
            client: std::mem::take(&mut self.client),
            server: std::mem::take(&mut self.server),
        })
    }

    /// It has to go on without SMB1.
    pub(super) fn put_back(&mut self, client: Packets, server: Packets) {
        (self.client, self.server) = (client, server);
    }

    /// Nothing more is read ahead; opaque, if that is possible.
    fn stop(&mut self, reason: Reason, out: &mut Outbox, stats: &mut Stats) -> Result<(), Reason> {
        if self.ids.is_clients() {
            return Err(reason);
        }
        self.guarded().stop(reason, out, stats);
        Ok(())
    }

    pub(super) fn guarded(&mut self) -> Guarded<'_> {
        Guarded {
            reading: &mut self.reading,
            writing: &mut self.writing,
            lent: &mut self.lent,
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
        if let Some(reason) = unreadable(&message) {
            out.local(packet);
            return Err(reason);
        }
        if is_cifs(&message) {
            // Both halves count writes from the first that there can be.
            let is_early = is_write(&message);
            self.cifs.0.get_or_insert(message);
            out.local(packet);
            return match is_early {
                true => Err(Reason::SmbMalformed),
                false => self.handle_smb1_request(),
            };
        }
        let is_known = messages(&message).is_ok();
        if self.is_shut(&packet, out, stats) || self.is_opened(&packet, out) {
            return Ok(());
        }
        let found = effects(&message);
        let is_change = found
            .iter()
            .any(|effect| !matches!(effect, Effect::Closes(_)));
        for effect in found {
            if let Effect::Closes(file) = effect {
                self.note_close(file);
            }
            self.guarded().handle_effect(effect, out, stats);
        }
        self.handle_acknowledged(&message, out, stats);
        if let Some(written) = self.take_behind(&packet) {
            return self.write_behind(&packet, &written, out);
        }
        let read = AskedRead::of(&packet);
        if let Some(read) = &read
            && self.read_on(out, |reading, out| {
                reading.is_covered(&read.part, out, stats)
            })
        {
            let yours = Message::Yours { packet };
            out.message(yours.encode());
            return Ok(());
        }
        let passed = match is_known {
            true => self.pass(packet, is_change, out),
            false => {
                out.local(packet);
                Err(Reason::SmbMalformed)
            }
        };
        if let Some(read) = read {
            self.consider(&read.part, out, stats);
        }
        passed
    }

    /// A client that speaks SMB1 first asks for SMB2 in its dialects (MS-SMB2 3.2.4.2.2.1); whether it gets it,
    /// the answer tells.
    fn handle_smb1_request(&mut self) -> Result<(), Reason> {
        if !self.ids.is_clients() {
            return Err(Reason::SmbMalformed);
        }
        let negotiate = Header::request(Command::Negotiate, 0, 0, 0);
        self.credits.handle_request(1);
        self.ids.assign(&negotiate).map_err(|_| Reason::SmbFull)?;
        Ok(())
    }

    /// Passes requests on, renumbered.
    fn pass(&mut self, packet: Bytes, is_change: bool, out: &mut Outbox) -> Result<(), Reason> {
        let (edited, result) = self.translated(packet, is_change, out)?;
        out.local(edited);
        result
    }

    /// Requests of the client's as the server is to see them, nothing where it is not, and what is wrong with them.
    pub(super) fn translated(
        &mut self,
        packet: Bytes,
        is_change: bool,
        out: &mut Outbox,
    ) -> Result<(Bytes, Result<(), Reason>), Reason> {
        let places = messages(packet.get(PREFIX_BYTES..).unwrap_or_default());
        let places = places.map_err(|_| Reason::SmbMalformed)?;
        let mut edited = BytesMut::from(&*packet);
        let (mut result, mut file) = (Ok(()), None);
        let mut compound = Compound::default();
        for (nth, (start, end)) in places.iter().enumerate() {
            let message = packet.slice(PREFIX_BYTES + start..PREFIX_BYTES + end);
            let header = Header::parse(&message).map_err(|_| Reason::SmbMalformed)?;
            if header.is_signed() && !self.may_be_signed(&header) {
                result = Err(Reason::SmbSigned);
            }
            let at = PREFIX_BYTES + start;
            if header.command == Command::Cancel {
                match self.pending.id_of(&header) {
                    Some(id) => set_message_id(&mut edited, at, id),
                    // What it would cancel is answered; with its id it would cancel another request.
                    None if !self.ids.is_clients() && header.tree().is_some() => {
                        if places.len() == 1 {
                            return Ok((Bytes::new(), result));
                        }
                        // Nobody's: what else is in the packet is asked for.
                        set_message_id(&mut edited, at, CANCELLED_BEFORE);
                    }
                    None => (),
                }
                continue;
            }
            file = match header.command {
                Command::Create => None,
                command => file_of(command, &message)
                    .filter(|file| *file != FileId::RELATED)
                    .or(file),
            };
            self.refuse(&mut compound, (&header, &message), file, &mut edited, at);
            let mut purpose = self.purpose(&header, &message, out);
            let behind = places.get(nth + 1..).unwrap_or_default();
            relate(&mut purpose, file, &packet, behind);
            if matches!(purpose, Purpose::Create(_, Lends::Exclusive)) {
                set_oplock_asked(&mut edited, at, OPLOCK_EXCLUSIVE);
            }
            let id = self.ids.assign(&header).map_err(|_| Reason::SmbFull)?;
            let asked = self.ask(&header, places.len());
            let request = Request {
                client_id: header.message_id,
                command: header.command,
                tree: header.tree(),
                file,
                asked,
                is_change,
                purpose,
            };
            self.pending
                .insert(id, request)
                .map_err(|_| Reason::SmbFull)?;
            if id != header.message_id {
                set_message_id(&mut edited, at, id);
            }
            if asked.by_us > 0 {
                set_credits(&mut edited, at, asked.by_client.saturating_add(asked.by_us));
            }
        }
        Ok((edited.freeze(), result))
    }

    /// A session may be set up with signed messages as long as they pass as they are.
    fn may_be_signed(&self, header: &Header) -> bool {
        self.ids.is_clients() && header.command == Command::SessionSetup
    }

    fn ask(&mut self, header: &Header, messages: usize) -> Asked {
        self.credits.handle_request(header.ids_taken());
        let by_client = header.credits;
        let may_alter = self.connection.may_alter(header.session)
            && messages == 1
            && !header.is_signed()
            && header.command != Command::SessionSetup
            && !self.reading.is_quiet;
        match may_alter {
            true => self.credits.ask(by_client, self.credits_wanted()),
            false => Asked::alone(by_client),
        }
    }

    fn handle_response(
        &mut self,
        packet: Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let message = packet.slice(PREFIX_BYTES..);
        let old = is_cifs(&message).then_some(Reason::SmbDialect);
        if let Some(reason) = unreadable(&message).or(old) {
            out.peer(packet);
            self.cifs.1 = old.map(|_| message);
            return Err(reason);
        }
        let Ok(places) = messages(&message) else {
            out.peer(packet);
            return Err(Reason::SmbMalformed);
        };
        if let Ok(header) = Header::parse(&message)
            && places.len() == 1
            && self.pending.is_own(header.message_id)
        {
            self.handle_own(&header, &message, out, stats)?;
            self.offer(out);
            return self.settle(out, stats);
        }
        let mut edited = BytesMut::from(&*packet);
        let (mut result, mut is_ours) = (Ok(()), false);
        for (start, end) in places {
            let part = message.slice(start..end);
            let header = Header::parse(&part).map_err(|_| Reason::SmbMalformed)?;
            if header.is_signed() && !self.ids.is_clients() {
                return Err(Reason::SmbSigned);
            }
            let at = PREFIX_BYTES + start;
            let (answered, followed) = self.handle_answer(&header, &part, out, stats);
            if let Some((id, credits)) = answered.patch {
                set_message_id(&mut edited, at, id);
                set_credits(&mut edited, at, credits);
            }
            if answered.is_lent {
                set_oplock_granted(&mut edited, at, OPLOCK_NONE);
            }
            if let Some(status) = answered.fails {
                fail(&mut edited, at..PREFIX_BYTES + end, status);
            }
            is_ours |= answered.is_ours;
            result = result.and(followed);
        }
        self.offer(out);
        if !is_ours {
            out.peer(edited.freeze());
        }
        self.give_back(out);
        result?;
        self.settle(out, stats)
    }

    /// There may be credits, or something is done that others waited for.
    fn settle(&mut self, out: &mut Outbox, stats: &mut Stats) -> Result<(), Reason> {
        self.give_back(out);
        self.close_on(out);
        let result = self.go_on(out, stats);
        self.open_on(out, stats);
        result
    }
}

/// A NEGOTIATE of SMB1 and its answer, and the streams behind them.
pub(super) struct Agreement {
    pub(super) asked: Bytes,
    pub(super) answered: Bytes,
    pub(super) client: Packets,
    pub(super) server: Packets,
}

/// What a read asks for.
pub(super) fn part_of(header: &Header, read: &ReadRequest) -> Part {
    Part {
        session: header.session,
        tree: header.tree().unwrap_or_default(),
        file: read.file,
        offset: read.offset,
        length: read.length,
    }
}

/// What cannot be looked into.
fn unreadable(message: &[u8]) -> Option<Reason> {
    match message {
        _ if message.starts_with(&MARK_ENCRYPTED) => Some(Reason::SmbEncrypted),
        _ if message.starts_with(&MARK_COMPRESSED) => Some(Reason::SmbDialect),
        _ => None,
    }
}
