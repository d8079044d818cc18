//! The half that faces the client: answers reads out of what the far half has read ahead, and passes everything else.
//!
//! It decides nothing about files. What it must see by itself is what the client does to them: a run ends here the
//! moment a message passes that may change what it holds.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::asked::AskedRead;
use super::behind::Behind;
use super::cifs;
use super::effect::{Effect, effects, leaves_writes_to_server};
use super::kept::{Answer, Kept};
use super::message::{Ahead, Message};
use super::netbios::{PREFIX_BYTES, Packets, Piece, prefix};
use super::offered::Offered;
use super::smb1;
use super::smb2::header::{MARK_COMPRESSED, MARK_ENCRYPTED, messages};
use crate::output::Outbox;
use crate::reason::Reason;
use crate::settings::{KEPT_BYTES_MAX, Settings};
use crate::stats::Stats;

/// Reads that wait for what is on its way; a client with more outstanding has the others passed on.
const WAITING_MAX: usize = 512;

/// See the module.
#[derive(Debug)]
pub struct NearSmb {
    pub(super) packets: Packets,
    runs: BTreeMap<u32, Kept>,
    waiting: VecDeque<Bytes>,
    /// The far half could be heard a moment ago: what it has not broken is whole.
    pub(super) is_heard: bool,
    /// And it has not been silent for so long that somebody may have been given a file that is still to be dropped here.
    pub(super) is_sure: bool,
    /// Messages that may have changed something.
    pub(super) changes: u32,
    server: Boundary,
    /// Answers that wait until the server's packet is whole.
    pub(super) answers: VecDeque<Bytes>,
    pub(super) behind: Behind,
    pub(super) offered: Offered,
    pub(super) is_stopped: bool,
    /// Packets without a header may pass: nothing is looked into any more.
    is_blind: bool,
    has_client_ended: bool,
}

impl NearSmb {
    /// For a connection of which nothing has passed.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            packets: Packets::default(),
            runs: BTreeMap::new(),
            waiting: VecDeque::new(),
            is_heard: true,
            is_sure: true,
            changes: 0,
            server: Boundary::default(),
            answers: VecDeque::new(),
            behind: Behind::new(&settings),
            offered: Offered::default(),
            is_stopped: false,
            is_blind: false,
            has_client_ended: false,
        }
    }

    pub(crate) fn handle_client(
        &mut self,
        bytes: &[u8],
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        self.packets.push(bytes);
        while !self.is_blind {
            let piece = self.packets.poll().map_err(|_| Reason::SmbMalformed)?;
            match piece {
                None => return Ok(()),
                Some(Piece::Service(bytes)) => out.peer(bytes),
                Some(Piece::Rest(bytes)) => {
                    out.peer(bytes);
                    self.handle_rest(out, stats);
                }
                Some(Piece::Beginning(packet)) => self.handle_request(packet, out, stats)?,
                Some(Piece::Message(packet)) => match AskedRead::of(&packet) {
                    Some(read) => self.handle_read(packet, &read, out, stats),
                    None if self.try_offered(&packet, out, stats) => (),
                    None => self.handle_request(packet, out, stats)?,
                },
            }
        }
        out.peer(self.packets.take_held());
        Ok(())
    }

    pub(crate) fn handle_client_end(&mut self, out: &mut Outbox) -> Result<(), Reason> {
        for packet in std::mem::take(&mut self.waiting) {
            self.peer(packet, out);
        }
        self.has_client_ended = true;
        out.peer(self.packets.take_held());
        out.peer_end();
        Ok(())
    }

    /// Bytes of the server. They are the client's as they are.
    pub(crate) fn handle_server(&mut self, bytes: &[u8], out: &mut Outbox) -> Result<(), Reason> {
        out.local(Bytes::copy_from_slice(bytes));
        self.server.pass(bytes).map_err(|()| Reason::SmbMalformed)?;
        self.answer(out);
        Ok(())
    }

    pub(crate) fn handle_server_end(&mut self, _out: &mut Outbox) -> Result<(), Reason> {
        self.runs.clear();
        self.waiting.clear();
        self.behind.forget();
        self.offered.forget_all();
        Ok(())
    }

    pub(crate) fn handle_message(
        &mut self,
        payload: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        match Message::decode(payload).map_err(|_| Reason::Halves)? {
            Message::Ahead(ahead) => self.handle_ahead(ahead, out),
            Message::More { run, to } => {
                if let Some(kept) = self.runs.get_mut(&run) {
                    kept.handle_more(to);
                }
            }
            Message::Data { run, offset, bytes } => {
                self.handle_data(run, offset, bytes, out, stats)
            }
            Message::End { run, offset } => {
                if let Some(kept) = self.runs.get_mut(&run) {
                    kept.handle_end(offset);
                }
                self.look_again(out, stats);
            }
            Message::Drop { run } => {
                if self.runs.remove(&run).is_some() {
                    self.pass_waiting(out);
                }
            }
            Message::Yours { packet } => self.handle_yours(packet, out, stats)?,
            Message::Quiet { reason } => {
                self.behind.forbid_all();
                out.gave_up(reason);
            }
            Message::Writable {
                session,
                tree,
                file,
            } => self.behind.allow(file, session, tree),
            Message::Unwritable { file } => self.behind.forbid(file),
            Message::Room(room) => self.handle_room(room, out, stats),
            Message::Offer {
                changes,
                asked,
                answer,
            } => self.handle_offer(changes, &asked, answer, out)?,
            Message::Told { asked, answer } => self.offered.handle_told(&asked, answer),
            Message::Forget { file } => self.offered.forget(file),
            Message::Fence { number } => out.message(Message::Fenced { number }.encode()),
            Message::Used { .. }
            | Message::Refused { .. }
            | Message::Want { .. }
            | Message::Stop { .. }
            | Message::Behind { .. }
            | Message::Taken { .. }
            | Message::Released { .. }
            | Message::Shut { .. }
            | Message::Fenced { .. } => return Err(Reason::Halves),
        }
        Ok(())
    }

    /// Whether the other half can be heard at present, and what it said before counts.
    pub(crate) fn handle_hearing(
        &mut self,
        (is_heard, is_sure): (bool, bool),
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        if std::mem::replace(&mut self.is_sure, is_sure) && !is_sure {
            self.distrust(out);
        }
        let was_heard = std::mem::replace(&mut self.is_heard, is_heard);
        let is_back = is_heard && !was_heard;
        if is_back {
            self.look_again(out, stats);
            self.release(out, stats);
        }
    }

    /// The link turned out to be another.
    pub(crate) fn handle_link(&mut self, settings: &Settings) {
        self.behind.handle_link(settings);
    }

    /// Reading ahead stops; it is the far half that knows what else can stop.
    pub(crate) fn give_up(&mut self, reason: Reason, out: &mut Outbox) {
        if !self.is_stopped {
            self.is_stopped = true;
            out.message(Message::Stop { reason }.encode());
        }
    }

    /// Hands over what is held.
    pub(crate) fn surrender(&mut self, out: &mut Outbox) -> Result<(), Reason> {
        self.runs.clear();
        self.pass_waiting(out);
        out.peer(self.packets.take_held());
        Ok(())
    }

    /// The server may have given the files to others, and the far half could not say so: it waits 25 s at most, and 5 s behind
    /// a silence as this one.
    fn distrust(&mut self, out: &mut Outbox) {
        for run in std::mem::take(&mut self.runs).into_keys() {
            out.message(Message::Refused { run }.encode());
        }
        for file in self.offered.distrust() {
            out.message(Message::Released { file }.encode());
        }
        self.pass_waiting(out);
    }

    fn handle_ahead(&mut self, ahead: Ahead, out: &mut Outbox) {
        // A change passed that the far half had not seen when it decided to read.
        if ahead.changes == self.changes && self.is_sure {
            self.runs.insert(ahead.run, Kept::new(ahead));
        } else {
            out.message(Message::Refused { run: ahead.run }.encode());
        }
    }

    fn handle_data(
        &mut self,
        run: u32,
        offset: u64,
        bytes: Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        let kept_bytes: u64 = self.runs.values().map(Kept::kept_bytes).sum();
        let Some(kept) = self.runs.get_mut(&run) else {
            return;
        };
        if kept_bytes + bytes.len() as u64 > KEPT_BYTES_MAX {
            return self.refuse(run, out);
        }
        kept.handle_data(offset, bytes);
        self.look_again(out, stats);
    }

    /// The far half has not passed a request on, because a run covers it.
    fn handle_yours(
        &mut self,
        packet: Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let Some(read) = AskedRead::of(&packet) else {
            return self.handle_your_open(packet, out, stats);
        };
        let run = self.run_of(&read);
        self.behind.handle_returned(read.ids_taken());
        if !self.try_read(&packet, &read, out, stats) {
            if let Some(run) = run {
                self.refuse(run, out);
            }
            self.pass_again(packet, out);
        }
        Ok(())
    }

    /// The run is of no use. The far half learns it before it sees the requests again.
    fn refuse(&mut self, run: u32, out: &mut Outbox) {
        self.runs.remove(&run);
        out.message(Message::Refused { run }.encode());
        self.pass_waiting(out);
    }

    fn handle_read(
        &mut self,
        packet: Bytes,
        read: &AskedRead,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        if !self.try_read(&packet, read, out, stats) {
            stats.reads_forwarded += 1;
            self.peer(packet, out);
        }
    }

    /// Answers a read or lets it wait. False: it is not for us.
    fn try_read(
        &mut self,
        packet: &Bytes,
        read: &AskedRead,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> bool {
        let part = &read.part;
        let run = self.run_of(read);
        let Some((run, kept)) = run.and_then(|run| Some((run, self.runs.get_mut(&run)?))) else {
            return false;
        };
        if !self.is_heard {
            // A break may be on its way, and the link is down.
            let has_room = self.waiting.len() < WAITING_MAX;
            has_room.then(|| self.waiting.push_back(packet.clone()));
            return has_room;
        }
        let bytes = match kept.answer(part.offset, part.length) {
            Answer::Elsewhere => return false,
            Answer::Wait | Answer::Beyond if self.waiting.len() >= WAITING_MAX => return false,
            answer @ (Answer::Wait | Answer::Beyond) => {
                let upto = part.end();
                if answer == Answer::Beyond && kept.want(upto) {
                    out.message(Message::Want { run, upto }.encode());
                }
                kept.handle_waiting(part.offset);
                self.waiting.push_back(packet.clone());
                return true;
            }
            Answer::EndOfFile => None,
            // MS-SMB2 3.3.5.12: less than the least wanted is no success.
            Answer::Bytes(bytes) if bytes.len() < read.length_min as usize => None,
            Answer::Bytes(bytes) => Some(bytes),
        };
        let upto = part.offset + bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        stats.reads_answered += 1;
        stats.answered_bytes += upto - part.offset;
        self.answers.push_back(read.answer(bytes.as_deref()));
        out.message(Message::Used { run, upto }.encode());
        self.answer(out);
        true
    }

    fn run_of(&self, read: &AskedRead) -> Option<u32> {
        let part = &read.part;
        let fits = |kept: &&Kept| {
            let ahead = &kept.ahead;
            ahead.file == part.file && ahead.session == part.session && ahead.tree == part.tree
        };
        self.runs.values().find(fits).map(|kept| kept.ahead.run)
    }

    /// Something arrived: who waited may not need to any more.
    fn look_again(&mut self, out: &mut Outbox, stats: &mut Stats) {
        for packet in std::mem::take(&mut self.waiting) {
            let Some(read) = AskedRead::of(&packet) else {
                continue;
            };
            if !self.try_read(&packet, &read, out, stats) {
                self.pass_again(packet, out);
            }
        }
    }

    /// Reads that wait for a run that is gone go to the server; those of other runs wait on.
    fn pass_waiting(&mut self, out: &mut Outbox) {
        for packet in std::mem::take(&mut self.waiting) {
            let run = AskedRead::of(&packet).and_then(|read| self.run_of(&read));
            if run.is_some() {
                self.waiting.push_back(packet);
            } else {
                self.pass_again(packet, out);
            }
        }
    }

    /// A read that should have been answered here goes to the server.
    pub(super) fn pass_again(&mut self, packet: Bytes, out: &mut Outbox) {
        match self.has_client_ended {
            false => self.peer(packet, out),
            // Our direction has ended: the client would wait for ever.
            true => out.cut(Reason::Halves),
        }
    }

    /// Passes a request on, after what it makes worthless is forgotten.
    pub(super) fn pass(&mut self, packet: Bytes, out: &mut Outbox) -> Result<(), Reason> {
        let message = packet.get(PREFIX_BYTES..).unwrap_or_default();
        let kind = message.first_chunk::<4>().copied().unwrap_or_default();
        if [MARK_ENCRYPTED, MARK_COMPRESSED].contains(&kind) {
            // For the far half to decide.
            out.peer(packet);
            return Ok(());
        }
        // Of SMB1 the far half bears what it does not understand, if it must.
        let is_cifs = cifs::is_cifs(message);
        let is_known = is_cifs || messages(message).is_ok();
        self.is_blind = is_cifs && smb1::header::is_raw(message);
        for effect in effects(message) {
            self.handle_effect(effect, out);
        }
        if leaves_writes_to_server(message) {
            // What others may not write to is the server's to say, and what is safe if the connection is lost.
            self.behind.forbid_all();
        }
        if self.cancels_waiting(message) {
            // It is answered soon, and need not be asked for any more.
            return Ok(());
        }
        self.peer(packet, out);
        match is_known {
            true => Ok(()),
            false => Err(Reason::SmbMalformed),
        }
    }

    fn cancels_waiting(&self, message: &[u8]) -> bool {
        let mut waiting = self.waiting.iter().filter_map(AskedRead::of);
        waiting.any(|read| read.is_cancelled_by(message))
    }

    pub(super) fn handle_effect(&mut self, effect: Effect, out: &mut Outbox) {
        self.offered.handle_effect(effect);
        match effect {
            Effect::Closes(file) => self.behind.forbid(file),
            Effect::Everything => self.behind.forbid_all(),
            Effect::Changes(_) | Effect::Replaces => (),
        }
        if !matches!(effect, Effect::Closes(_)) {
            self.changes = self.changes.wrapping_add(1);
        }
        let is_spared = |ahead: &Ahead| effect.spares(ahead.file, ahead.firmness);
        self.runs.retain(|_, kept| is_spared(&kept.ahead));
        self.pass_waiting(out);
    }

    /// A request for the server.
    fn peer(&mut self, packet: Bytes, out: &mut Outbox) {
        let message = packet.get(PREFIX_BYTES..).unwrap_or_default();
        self.behind.handle_spent(message);
        out.peer(packet);
    }

    pub(super) fn answer(&mut self, out: &mut Outbox) {
        if self.server.is_between() {
            self.answers.drain(..).for_each(|answer| out.local(answer));
        }
    }
}

/// Knows whether the server's stream is between two packets.
#[derive(Debug, Default)]
struct Boundary {
    prefix: Vec<u8>,
    rest_bytes: usize,
}

impl Boundary {
    fn pass(&mut self, mut bytes: &[u8]) -> Result<(), ()> {
        while !bytes.is_empty() {
            if self.rest_bytes == 0 {
                let missing = PREFIX_BYTES - self.prefix.len();
                let (head, behind) = bytes.split_at(missing.min(bytes.len()));
                self.prefix.extend_from_slice(head);
                bytes = behind;
                if self.prefix.len() == PREFIX_BYTES {
                    let length = prefix(&self.prefix).map_err(|_| ())?;
                    self.rest_bytes = length.map_or(0, |(_, length)| length);
                    self.prefix.clear();
                }
            }
            let length = self.rest_bytes.min(bytes.len());
            self.rest_bytes -= length;
            bytes = bytes.get(length..).unwrap_or_default();
        }
        Ok(())
    }

    fn is_between(&self) -> bool {
        self.rest_bytes == 0 && self.prefix.is_empty()
    }
}
