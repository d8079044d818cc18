//! Oplocks that the far half holds for clients that ask for none, in every dialect. The other part of `far`, beside `reading`.
//!
//! A client that opens a file without an oplock shall see at once what others do to it;
//! nothing could be read ahead for it. So the far half asks for an exclusive oplock in the client's CREATE, and tells the
//! client that it has none. The server then lets nobody else open the file before the far half has given the oplock back
//! (MS-SMB2 3.3.4.6), and it does that only when the near half has said that it holds nothing of the file any more: what
//! the client is given is never older than what the server would have given it.

use std::collections::{BTreeMap, VecDeque};

use super::far::FarSmb;
use super::message::Message;
use super::netbios::packet;
use super::pending::{Purpose, Request};
use super::smb2::breaks::{Break, OplockBreak};
use super::smb2::header::{Command, Header};
use super::smb2::open::{
    CreateRequest, FileId, OPLOCK_BATCH, OPLOCK_EXCLUSIVE, OPLOCK_NONE, OPTIONS_ABOUT_OPLOCKS,
    READS, WRITES,
};
use crate::output::Outbox;
use crate::stats::Stats;

/// Loans of a connection.
const LOANS_MAX: usize = 4096;
/// A near half that has not answered in this time is not there; a server waits 35 s (MS-SMB2 3.3.2.1), Samba 32 s. One
/// that hears nothing trusts nothing long before,
const FENCE_NS: u64 = 25_000_000_000;
/// so of one that has not been heard for so long that it does so, too, no more is waited for than what it may have heard
/// later than us: clients give up an open after 20 s.
const SILENT_FENCE_NS: u64 = 5_000_000_000;

/// One oplock.
#[derive(Debug)]
struct Loan {
    session: u64,
    tree: u32,
    /// Still exclusive: a break is to be answered.
    is_exclusive: bool,
    /// The client closes the file.
    is_closing: bool,
}

/// The near half was asked whether it has dropped everything.
#[derive(Debug)]
struct Fence {
    number: u32,
    file: FileId,
    /// The server wants the oplock back.
    is_recalled: bool,
    due_ns: u64,
}

/// All of a connection.
#[derive(Debug, Default)]
pub struct Lent {
    loans: BTreeMap<FileId, Loan>,
    fences: VecDeque<Fence>,
    next_fence: u32,
    /// When no answer is waited for any more, for the near half cannot be heard.
    silent_due_ns: Option<u64>,
    /// To be given back as soon as there is a credit.
    owed: VecDeque<FileId>,
}

impl Lent {
    /// The server granted this to a request of ours. Whether nobody else can open the file unnoticed.
    pub fn handle_granted(&mut self, file: FileId, session: u64, tree: u32, oplock: u8) -> bool {
        let is_exclusive = [OPLOCK_EXCLUSIVE, OPLOCK_BATCH].contains(&oplock);
        let loan = Loan {
            session,
            tree,
            is_exclusive,
            is_closing: false,
        };
        if oplock != OPLOCK_NONE {
            self.loans.insert(file, loan);
        }
        is_exclusive
    }

    /// Whether this file's oplock is ours.
    #[must_use]
    pub fn has(&self, file: FileId) -> bool {
        self.loans.contains_key(&file)
    }

    /// The client asks to close it: the server takes back the oplock with the file.
    pub fn handle_closing(&mut self, file: FileId) {
        if let Some(loan) = self.loans.get_mut(&file) {
            loan.is_closing = true;
        }
    }

    /// The file is closed. Its number may be another file's by the time the near half has answered: that one's oplock stays.
    pub fn handle_closed(&mut self, file: FileId) {
        self.loans.remove(&file);
        self.owed.retain(|other| *other != file);
        for fence in self.fences.iter_mut().filter(|fence| fence.file == file) {
            fence.is_recalled = false;
        }
    }

    /// The server has not closed it: what is owed is owed on.
    pub fn handle_still_open(&mut self, file: FileId) {
        if let Some(loan) = self.loans.get_mut(&file) {
            loan.is_closing = false;
        }
    }

    /// Files of these sessions and shares are gone.
    pub fn handle_gone(&mut self, is_gone: impl Fn((u64, u32)) -> bool) {
        self.loans
            .retain(|_, loan| !is_gone((loan.session, loan.tree)));
    }

    /// When an answer of the near half is due for which somebody waits.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        let mut recalled = self.fences.iter().filter(|fence| fence.is_recalled);
        let due_ns = recalled.next()?.due_ns;
        Some(due_ns.min(self.silent_due_ns.unwrap_or(u64::MAX)))
    }

    /// Whether the near half has been silent for so long that it trusts nothing it was told before.
    pub fn handle_hearing(&mut self, is_lost: bool, now_ns: u64) {
        let silent_due_ns = self.silent_due_ns;
        let due_ns = || silent_due_ns.unwrap_or_else(|| now_ns.saturating_add(SILENT_FENCE_NS));
        self.silent_due_ns = is_lost.then(due_ns);
    }

    /// Whether there may be more of them.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.loans.len() < LOANS_MAX
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.loans.is_empty()
    }

    /// The server wants an oplock back. Where the near half may hold something of the file it is asked first; otherwise
    /// something is owed at once: true.
    pub fn handle_recalled(
        &mut self,
        file: FileId,
        is_held: bool,
        now_ns: u64,
        out: &mut Outbox,
    ) -> bool {
        let loan = self.loans.get_mut(&file);
        if !loan.is_some_and(|loan| std::mem::take(&mut loan.is_exclusive)) {
            return false;
        }
        if !is_held {
            self.owed.push_back(file);
            return true;
        }
        self.fence(file, true, now_ns, out);
        false
    }

    /// Asks the near half whether it has dropped everything of a file; the oplock stays.
    pub fn ask_fence(&mut self, file: FileId, now_ns: u64, out: &mut Outbox) {
        self.fence(file, false, now_ns, out);
    }

    fn fence(&mut self, file: FileId, is_recalled: bool, now_ns: u64, out: &mut Outbox) {
        let number = self.next_fence;
        self.next_fence = number.wrapping_add(1);
        self.fences.push_back(Fence {
            number,
            file,
            is_recalled,
            due_ns: now_ns.saturating_add(FENCE_NS),
        });
        out.message(Message::Fence { number }.encode());
    }

    /// The near half has dropped everything that it was told to drop before it was asked: of which file.
    pub fn handle_fenced(&mut self, number: u32) -> Option<FileId> {
        let first = self.fences.front();
        let is_first = first.is_some_and(|fence| fence.number == number);
        let fence = is_first.then(|| self.fences.pop_front()).flatten()?;
        self.owed.extend(fence.is_recalled.then_some(fence.file));
        Some(fence.file)
    }

    /// It is given back.
    pub fn handle_returned(&mut self, file: FileId) {
        self.owed.retain(|other| *other != file);
    }

    /// What can be given back: `is_busy` files wait.
    pub fn next_owed(&mut self, is_busy: impl Fn(FileId) -> bool) -> Option<(FileId, u64, u32)> {
        let loans = &self.loans;
        self.owed.retain(|file| loans.contains_key(file));
        let mut owed = self.owed.iter().map(|file| (*file, loans.get(file)));
        // One that is being closed is owed on if the server refuses that.
        owed.find_map(|(file, loan)| {
            let loan = loan.filter(|loan| !loan.is_closing && !is_busy(file))?;
            Some((file, loan.session, loan.tree))
        })
    }
}

/// Whether an open needs an oplock in the client's place: it `asks` for none, and bytes will move.
#[must_use]
pub fn is_wanted(asks: bool, access: u32, options: u32) -> bool {
    let moves = access & (READS | WRITES) != 0;
    !asks && moves && options & OPTIONS_ABOUT_OPLOCKS == 0
}

/// Whether a name is that of a file's stream (MS-FSCC 2.1.5). Samba knows those by their names: one that is renamed while
/// it is open still breaks the oplock of whoever then makes another of its old name, and such a CREATE ends with an error.
#[must_use]
pub fn is_of_stream(name: &[u8], is_wide: bool) -> bool {
    match is_wide {
        // Where they begin depends on padding; a character that looks so costs a loan.
        true => name.windows(2).any(|pair| pair == [b':', 0]),
        false => name.contains(&b':'),
    }
}

impl FarSmb {
    /// Whether to ask for an oplock in this request. From then on its connection cannot go opaque: breaks would reach a
    /// client that knows nothing of them.
    pub(super) fn may_lend(&self, header: &Header, create: &CreateRequest) -> bool {
        let is_plain = !header.is_signed() && !header.is_related() && header.next_bytes == 0;
        let is_disk = header
            .tree()
            .is_some_and(|tree| self.connection.is_disk(header.session, tree));
        let asks = create.oplock != OPLOCK_NONE;
        let is_wanted = is_wanted(asks, create.access, create.options);
        let has_room = self.lent.has_room() && self.reading.files.has_room();
        let has_room = has_room && self.credits.available() > 0 && self.reading.window.is_quick();
        // The oplock of a file that is taken up is the client's, whatever it says of that.
        let is_wanted = is_wanted && !is_of_stream(&create.name, true) && !create.is_reconnect();
        is_plain && is_disk && is_wanted && has_room && !self.reading.is_quiet
    }

    /// The server wants an oplock back. Somebody waits for it to be given.
    pub(super) fn handle_recalled(&mut self, file: FileId, out: &mut Outbox, stats: &mut Stats) {
        let now_ns = self.now_ns;
        self.take_back(file, out);
        if self.guarded().handle_recalled(file, now_ns, out, stats) {
            self.give_back(out);
        }
    }

    /// The near half has dropped everything that it was told to drop before it was asked.
    pub(super) fn handle_fenced(&mut self, number: u32, out: &mut Outbox, stats: &mut Stats) {
        if let Some(file) = self.lent.handle_fenced(number) {
            if self.opening.shut.contains(&file) {
                // Its CLOSE comes, and gives back the oplock with it.
                self.lent.handle_closing(file);
            }
            self.close_untaken(file, out, stats);
            self.give_back(out);
        }
    }

    /// Gives back what can be given back (MS-SMB2 2.2.24.1).
    pub(super) fn give_back(&mut self, out: &mut Outbox) {
        loop {
            let writing = &self.writing;
            let owed = self.lent.next_owed(|file| writing.is_busy(file));
            let Some((file, session, tree)) = owed else {
                return;
            };
            if !self.credits.take(true) {
                return;
            }
            self.lent.handle_returned(file);
            let message_id = self.ids.take(1);
            let asked = self.credits.ask(1, self.credits_wanted());
            let header = Header {
                credit_charge: self.connection.charge(),
                credits: asked.by_client.saturating_add(asked.by_us),
                ..Header::request(Command::OplockBreak, message_id, session, tree)
            };
            let mut message = Vec::new();
            header.emit(&mut message);
            let oplock = OPLOCK_NONE;
            Break::Oplock(OplockBreak { oplock, file }).emit(&mut message);
            self.send_own(packet(&message), out);
            let request = Request {
                client_id: message_id,
                command: Command::OplockBreak,
                tree: Some(tree),
                file: None,
                asked,
                is_change: false,
                purpose: Purpose::OwnBreak,
            };
            // Bounded by the credits that were spent.
            let _ = self.pending.insert(message_id, request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the server says of the CLOSE, it wants the oplock back or has it.
    #[test]
    fn what_is_wanted_back_while_it_is_being_closed_is_owed_on() {
        for is_refused in [false, true] {
            let (file, mut lent) = (FileId::RELATED, Lent::default());
            assert!(lent.handle_granted(file, 1, 2, OPLOCK_EXCLUSIVE));
            lent.handle_closing(file);
            assert!(lent.handle_recalled(file, false, 0, &mut Outbox::default()));
            assert_eq!(lent.next_owed(|_| false), None);
            match is_refused {
                true => lent.handle_still_open(file),
                false => lent.handle_closed(file),
            }
            let owed = is_refused.then_some((file, 1, 2));
            assert_eq!(lent.next_owed(|_| false), owed);
        }
    }

    #[test]
    fn names_of_streams_are_known() {
        let wide =
            |name: &str| -> Vec<u8> { name.encode_utf16().flat_map(u16::to_le_bytes).collect() };
        assert!(is_of_stream(&wide("d\\f:s"), true));
        assert!(is_of_stream(&[&[0], &*wide("f:s:$DATA")].concat(), true));
        assert!(!is_of_stream(&wide("d\\f \u{4e3a}"), true));
        assert!(is_of_stream(b"f:s\0", false) && !is_of_stream(b"f\0", false));
    }
}
