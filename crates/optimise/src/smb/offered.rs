//! Files that the far half has opened ahead of the client: opened, asked about and closed here. The other part of `near`.
//!
//! What the client is given is what the server answered, of an open file that becomes the client's own: under a batch
//! oplock, so nobody has opened, changed, renamed or deleted it since. The client's CLOSE is answered here, too: whom the
//! open file is in the way meanwhile waits for the oplock, and with it for the CLOSE (MS-SMB2 3.3.4.6).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::effect::Effect;
use super::message::Message;
use super::near::NearSmb;
use super::netbios::{PREFIX_BYTES, packet};
use super::smb2::header::{Command, HEADER_BYTES, Header};
use super::smb2::open::{
    CloseRequest, CloseResponse, CreateRequest, CreateResponse, FileFacts, FileId,
};
use super::smb2::query::QueryInfoRequest;
use super::smb2::transfer::STATUS_OK;
use crate::output::Outbox;
use crate::reason::Reason;
use crate::stats::Stats;

/// Files at a time; more than a far half offers.
const OFFERS_MAX: usize = 1024;
/// Answers kept for one file.
const TOLD_MAX: usize = 8;

/// One file.
#[derive(Debug)]
struct Offer {
    session: u64,
    tree: u32,
    asked: CreateRequest,
    answer: Bytes,
    /// Body of a QUERY_INFO, and the server's answer.
    told: Vec<(Bytes, Bytes)>,
    /// It is the client's.
    is_taken: bool,
}

/// All of a connection.
#[derive(Debug, Default)]
pub struct Offered {
    files: BTreeMap<FileId, Offer>,
}

impl Offered {
    /// The far half has asked something of one of the files.
    pub fn handle_told(&mut self, asked: &Bytes, answer: Bytes) {
        let file = QueryInfoRequest::parse(asked).map(|info| info.file);
        let offer = file.ok().and_then(|file| self.files.get_mut(&file));
        if let Some(offer) = offer.filter(|offer| offer.told.len() < TOLD_MAX) {
            offer.told.push((body(asked), answer));
        }
    }

    /// The far half cannot answer for this file any more.
    pub fn forget(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    /// Nobody knows whether they are still as they were: those that are not the client's yet are released.
    pub fn distrust(&mut self) -> Vec<FileId> {
        let untaken = self.files.iter().filter(|(_, offer)| !offer.is_taken);
        let released = untaken.map(|(file, _)| *file).collect();
        self.files.retain(|_, offer| offer.is_taken);
        self.files.values_mut().for_each(|offer| offer.told.clear());
        released
    }

    /// The server has ended.
    pub fn forget_all(&mut self) {
        self.files.clear();
    }

    /// The client did something to files. The far half, when it comes to see that, closes what was not taken.
    pub fn handle_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Closes(file) => self.forget(file),
            Effect::Changes(_) | Effect::Replaces => {
                self.files.retain(|_, offer| offer.is_taken);
                self.files.values_mut().for_each(|offer| offer.told.clear());
            }
            Effect::Everything => self.files.clear(),
        }
    }

    /// An offer that nobody has taken, by the name of the file.
    fn of_name(&self, (session, tree): (u64, u32), name: &[u8]) -> Option<FileId> {
        let is_it = |offer: &Offer| {
            !offer.is_taken
                && (offer.session, offer.tree) == (session, tree)
                && offer.asked.name == name
        };
        let mut offers = self.files.iter();
        offers
            .find(|(_, offer)| is_it(offer))
            .map(|(file, _)| *file)
    }

    /// A file of this session and tree that the client was given here.
    fn taken(&mut self, header: &Header, file: FileId) -> Option<&mut Offer> {
        let offer = self.files.get_mut(&file)?;
        let is_its =
            offer.is_taken && (Some(offer.tree), offer.session) == (header.tree(), header.session);
        is_its.then_some(offer)
    }
}

impl NearSmb {
    /// The far half has opened a file ahead of the client.
    pub(super) fn handle_offer(
        &mut self,
        changes: u32,
        asked: &Bytes,
        answer: Bytes,
        out: &mut Outbox,
    ) -> Result<(), Reason> {
        let header = Header::parse(asked).map_err(|_| Reason::Halves)?;
        let create = CreateRequest::parse(asked).map_err(|_| Reason::Halves)?;
        let opened = CreateResponse::parse(&answer).map_err(|_| Reason::Halves)?;
        let file = opened.file;
        // A change passed that the far half had not seen: it closes the file when it does.
        if changes != self.changes {
            return Ok(());
        }
        if self.offered.files.len() >= OFFERS_MAX || !self.is_sure {
            out.message(Message::Released { file }.encode());
            return Ok(());
        }
        let offer = Offer {
            session: header.session,
            tree: header.tree().ok_or(Reason::Halves)?,
            asked: create,
            answer,
            told: Vec::new(),
            is_taken: false,
        };
        self.offered.files.insert(file, offer);
        Ok(())
    }

    /// Answers what is asked of files opened ahead. False: it is not for us.
    pub(super) fn try_offered(
        &mut self,
        packet: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> bool {
        if self.offered.files.is_empty() || !self.is_heard || !self.is_sure {
            return false;
        }
        let Some((header, message)) = plain(packet) else {
            return false;
        };
        match header.command {
            Command::Create => self.try_open(&header, &message, out, stats),
            Command::QueryInfo => self.try_info(&header, &message, out),
            Command::Close => self.try_close(&header, &message, packet, out),
            _ => false,
        }
    }

    /// The far half has not passed a CREATE on, because it had offered the file.
    pub(super) fn handle_your_open(
        &mut self,
        packet: Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let (header, message) = plain(&packet).ok_or(Reason::Halves)?;
        if header.command != Command::Create {
            return Err(Reason::Halves);
        }
        self.behind.handle_returned(header.ids_taken());
        if !self.try_open(&header, &message, out, stats) {
            self.pass_again(packet, out);
        }
        Ok(())
    }

    /// A file that is asked for as it was offered is given; one that is asked for otherwise must not be in the way.
    fn try_open(
        &mut self,
        header: &Header,
        message: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> bool {
        let (Ok(asked), Some(tree)) = (CreateRequest::parse(message), header.tree()) else {
            return false;
        };
        let Some(file) = self.offered.of_name((header.session, tree), &asked.name) else {
            return false;
        };
        let offer = self
            .offered
            .files
            .get_mut(&file)
            .filter(|offer| offer.asked == asked);
        let Some(offer) = offer else {
            self.offered.forget(file);
            out.message(Message::Released { file }.encode());
            return false;
        };
        offer.is_taken = true;
        let answer = std::mem::take(&mut offer.answer);
        stats.opens_answered += 1;
        out.message(Message::Taken { file }.encode());
        self.say(header, &answer, out);
        true
    }

    fn try_info(&mut self, header: &Header, message: &Bytes, out: &mut Outbox) -> bool {
        let file = QueryInfoRequest::parse(message).map(|info| info.file);
        let Some(offer) = file.ok().and_then(|file| self.offered.taken(header, file)) else {
            return false;
        };
        let asked = body(message);
        let known = offer.told.iter().position(|(told, _)| *told == asked);
        // Who asks again wants to know whether it is still so.
        let Some((_, answer)) = known.map(|at| offer.told.swap_remove(at)) else {
            return false;
        };
        self.say(header, &answer, out);
        true
    }

    fn try_close(
        &mut self,
        header: &Header,
        message: &Bytes,
        packet: &Bytes,
        out: &mut Outbox,
    ) -> bool {
        let close = CloseRequest::parse(message)
            .ok()
            .filter(|close| close.flags == 0);
        let Some(file) = close.map(|close| close.file) else {
            return false;
        };
        if self.offered.taken(header, file).is_none() {
            return false;
        }
        self.handle_effect(Effect::Closes(file), out);
        out.message(Message::Shut { file }.encode());
        out.peer(packet.clone());
        let mut answer = vec![0; HEADER_BYTES];
        let facts = FileFacts::default();
        CloseResponse { flags: 0, facts }.emit(&mut answer);
        self.say(header, &answer.into(), out);
        true
    }

    /// The body of an answer of the server's, as the answer to this request: with as many credits as it took.
    fn say(&mut self, header: &Header, answer: &Bytes, out: &mut Outbox) {
        let mut message = Vec::with_capacity(answer.len());
        let credits = header.credit_charge.max(1);
        header.response(STATUS_OK, credits).emit(&mut message);
        message.extend_from_slice(answer.get(HEADER_BYTES..).unwrap_or_default());
        self.answers.push_back(packet(&message));
        self.answer(out);
    }
}

/// A request that stands alone, without its prefix.
pub(super) fn plain(packet: &Bytes) -> Option<(Header, Bytes)> {
    if packet.len() < PREFIX_BYTES + HEADER_BYTES {
        return None;
    }
    let message = packet.slice(PREFIX_BYTES..);
    let header = Header::parse(&message).ok()?;
    let is_plain = header.next_bytes == 0
        && !header.is_response()
        && !header.is_related()
        && !header.is_signed()
        && header.tree().is_some();
    is_plain.then_some((header, message))
}

fn body(message: &Bytes) -> Bytes {
    message.slice(HEADER_BYTES.min(message.len())..)
}
