//! Closes files that were opened ahead of the client: those that nobody took, and those whose CLOSE the near half has
//! answered. The other part of `far`, beside `opening`.
//!
//! A file that may still be taken is closed only when the near half has said that it will not be (FORGET, FENCE, FENCED).
//! A change of the client's needs no such question: the near half takes nothing behind it that was offered before.

use bytes::Bytes;

use super::effect::{Effect, effects};
use super::far::FarSmb;
use super::message::Message;
use super::netbios::{PREFIX_BYTES, Piece, packet};
use super::offered::plain;
use super::opening::Held;
use super::pending::Purpose;
use super::smb2::header::{Command, FLAG_ASYNC, Header, Scope};
use super::smb2::open::{CloseRequest, FileId};
use super::smb2::transfer::emit_empty;
use crate::output::Outbox;
use crate::reason::Reason;
use crate::stats::Stats;

/// Announced CLOSE of a connection that have not come.
const SHUT_MAX: usize = 4096;

impl FarSmb {
    /// When something was held for too long.
    pub(super) fn held_due_ns(&self) -> Option<u64> {
        self.opening.held.values().map(|held| held.due_ns).min()
    }

    /// What nobody took in time is taken back.
    pub(super) fn expire(&mut self, out: &mut Outbox, stats: &mut Stats) {
        let now_ns = self.now_ns;
        let held = self.opening.held.iter();
        let due: Vec<FileId> = held
            .filter(|(_, held)| held.due_ns <= now_ns)
            .map(|(file, _)| *file)
            .collect();
        if due.is_empty() {
            return;
        }
        for file in due {
            self.take_back(file, out);
            self.reading.end_runs(|id, _| id == file, out, stats);
            self.lent.ask_fence(file, now_ns, out);
        }
    }

    /// The near half is to answer nothing of a file any more.
    pub(super) fn take_back(&mut self, file: FileId, out: &mut Outbox) {
        let held = self.opening.held.remove(&file);
        let was_taken = self.opening.taken.remove(&file);
        if held.is_some() || was_taken {
            out.message(Message::Forget { file }.encode());
        }
        if let Some(held) = held {
            // Nobody came in time, or somebody else came first: opening on would cost the next one a round trip, too.
            self.opening.handle_wasted();
            self.opening.leaving.insert(file, held);
        }
    }

    /// The near half has forgotten a file: if it was not taken before, it never will be.
    pub(super) fn close_untaken(&mut self, file: FileId, out: &mut Outbox, stats: &mut Stats) {
        if let Some(held) = self.opening.leaving.remove(&file) {
            self.drop_held(file, &held, out, stats);
        }
    }

    /// The near half will not take a file.
    pub(super) fn handle_released(&mut self, file: FileId, out: &mut Outbox, stats: &mut Stats) {
        let held = self.opening.held.remove(&file);
        if held.is_some() {
            // The client asks for it in another way: what was read of it has crossed in vain.
            self.opening.handle_wasted();
            self.opening.doubts.handle_released();
        }
        let held = held.or_else(|| self.opening.leaving.remove(&file));
        if let Some(held) = held {
            self.drop_held(file, &held, out, stats);
        }
    }

    /// The near half answers the CLOSE that follows.
    pub(super) fn handle_shut(&mut self, file: FileId) -> Result<(), Reason> {
        self.opening.shut.insert(file);
        match self.opening.shut.len() > SHUT_MAX {
            true => Err(Reason::Halves),
            false => Ok(()),
        }
    }

    /// A CLOSE that the near half has answered is ours: true.
    pub(super) fn is_shut(&mut self, packet: &Bytes, out: &mut Outbox, stats: &mut Stats) -> bool {
        if self.opening.shut.is_empty() {
            return false;
        }
        let close = plain(packet).filter(|(header, _)| header.command == Command::Close);
        let close = close.and_then(|(header, message)| {
            let file = CloseRequest::parse(&message).ok()?.file;
            Some((file, header.session, header.tree()?))
        });
        let Some((file, session, tree)) = close.filter(|(file, ..)| self.opening.shut.remove(file))
        else {
            return false;
        };
        self.close_own(file, (session, tree), out, stats);
        true
    }

    /// The client closes a file itself.
    pub(super) fn note_close(&mut self, file: FileId) {
        self.opening.taken.remove(&file);
        self.opening.folders.handle_closed(file);
    }

    /// Whether a packet of the client's must wait until what was opened ahead is closed: it may rename or delete what is
    /// open. Begins to close it.
    pub(super) fn waits_for_closing(
        &mut self,
        piece: &Piece,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> bool {
        let (Piece::Beginning(packet) | Piece::Message(packet)) = piece else {
            return false;
        };
        let opening = &self.opening;
        let is_idle =
            opening.held.is_empty() && opening.leaving.is_empty() && opening.asked.is_empty();
        if is_idle && opening.owed.is_empty() && opening.closing == 0 {
            return false;
        }
        let found = effects(packet.get(PREFIX_BYTES..).unwrap_or_default());
        let is_change = found
            .iter()
            .any(|effect| !matches!(effect, Effect::Closes(_)));
        if !is_change {
            return false;
        }
        let asked = self.opening.asked.iter_mut();
        let cancelled = asked.filter_map(|(id, ahead)| Some((*id, ahead.spurn()?, ahead.session)));
        for (id, async_id, session) in cancelled.collect::<Vec<_>>() {
            self.cancel((id, async_id), session, out);
        }
        let held = std::mem::take(&mut self.opening.held);
        let leaving = std::mem::take(&mut self.opening.leaving);
        for (file, held) in held.into_iter().chain(leaving) {
            self.drop_held(file, &held, out, stats);
        }
        let opening = &self.opening;
        !opening.asked.is_empty() || !opening.owed.is_empty() || opening.closing > 0
    }

    /// A CREATE of ours waits, as one does for an oplock that somebody is to give back. That may be ours, of a file to which the
    /// client writes: the write would wait for this answer, and the answer for the write, until the server gives up after 35 s.
    pub(super) fn handle_announced(&mut self, header: &Header, out: &mut Outbox) {
        let Scope::Async { id } = header.scope else {
            return;
        };
        let ahead = self.opening.asked.get_mut(&header.message_id);
        if let Some((id, session)) =
            ahead.and_then(|ahead| Some((ahead.handle_announced(id)?, ahead.session)))
        {
            self.cancel((header.message_id, id), session, out);
        }
    }

    /// Takes back a request of ours (MS-SMB2 3.2.4.24): it takes no credit, and what is answered is the request.
    fn cancel(&mut self, (message_id, async_id): (u64, u64), session: u64, out: &mut Outbox) {
        let mut message = Vec::new();
        Header {
            flags: FLAG_ASYNC,
            scope: Scope::Async { id: async_id },
            ..Header::request(Command::Cancel, message_id, session, 0)
        }
        .emit(&mut message);
        emit_empty(&mut message);
        self.send_own(packet(&message), out);
    }

    fn drop_held(&mut self, file: FileId, held: &Held, out: &mut Outbox, stats: &mut Stats) {
        stats.opens_wasted += 1;
        self.close_own(file, (held.session, held.tree), out, stats);
    }

    /// Closes a file in our own name, as soon as there is a credit.
    pub(super) fn close_own(
        &mut self,
        file: FileId,
        (session, tree): (u64, u32),
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        self.opening.taken.remove(&file);
        self.guarded()
            .handle_effect(Effect::Closes(file), out, stats);
        self.opening.owed.push_back((file, session, tree));
        self.close_on(out);
    }

    /// Closes what is to be closed, as far as there are credits.
    pub(super) fn close_on(&mut self, out: &mut Outbox) {
        while let Some((file, session, tree)) = self.opening.owed.front().copied() {
            let purpose = Purpose::OwnClose(file);
            let close = CloseRequest { flags: 0, file };
            let body = |message: &mut Vec<u8>| close.emit(message);
            if self
                .ask_own(Command::Close, (session, tree), purpose, body, out)
                .is_none()
            {
                return;
            }
            self.opening.owed.pop_front();
            self.opening.closing += 1;
        }
    }

    /// The server has closed a file of ours.
    pub(super) fn handle_own_closed(&mut self, file: FileId) {
        self.opening.closing = self.opening.closing.saturating_sub(1);
        self.lent.handle_closed(file);
    }
}
