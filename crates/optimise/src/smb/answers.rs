//! What the server's answers and the client's acknowledgments tell of what is open. The other part of `far`.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::far::FarSmb;
use super::files::{Files, OpenFile, Protection};
use super::netbios::{PREFIX_BYTES, prefix_of};
use super::pending::{Lends, Purpose};
use super::refused::gives_way;
use super::smb2::breaks::Break;
use super::smb2::connect::{NegotiateResponse, SessionSetupResponse, TreeConnectResponse};
use super::smb2::header::{Command, Header, MESSAGE_ID_NONE, messages};
use super::smb2::open::{ATTRIBUTE_DIRECTORY, CreateRequest, CreateResponse};
use super::smb2::query::{QueryResponse, entries};
use super::smb2::transfer::{ERROR_MESSAGE_BYTES, STATUS_OK, STATUS_PENDING, set_error};
use crate::output::Outbox;
use crate::reason::Reason;
use crate::stats::Stats;

/// What becomes of an answer of the server's.
#[derive(Debug, Default)]
pub(super) struct Answered {
    /// Message id and credits, as the client is to see them.
    pub(super) patch: Option<(u64, u16)>,
    /// It tells of an oplock that the client did not ask for.
    pub(super) is_lent: bool,
    /// It is not for the client.
    pub(super) is_ours: bool,
    /// The client shall see this error instead.
    pub(super) fails: Option<u32>,
}

impl FarSmb {
    /// One message of the server's: which id and credits the client is to see, and what follows from it.
    pub(super) fn handle_answer(
        &mut self,
        header: &Header,
        message: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> (Answered, Result<(), Reason>) {
        if header.message_id == MESSAGE_ID_NONE {
            let is_ours = self.handle_break(message, out, stats);
            let answered = Answered {
                is_ours,
                ..Answered::default()
            };
            return (answered, Ok(()));
        }
        let is_last = header.status != STATUS_PENDING;
        let removed = is_last
            .then(|| self.pending.remove(header.message_id))
            .flatten();
        let is_alone = is_last && !self.pending.has_clients();
        let mut request = removed;
        let Some(request) = request
            .as_mut()
            .or_else(|| self.pending.get(header.message_id))
        else {
            // The answer to a NEGOTIATE of SMB1, or to nothing.
            return (Answered::default(), self.handle_negotiated(header, message));
        };
        let asked = &mut request.asked;
        let credits = self.credits.handle_grant(header.credits, asked, is_alone);
        let mut answered = Answered {
            patch: Some((request.client_id, credits)),
            ..Answered::default()
        };
        if !is_last {
            return (answered, Ok(()));
        }
        let purpose = std::mem::replace(&mut request.purpose, Purpose::Pass);
        let (command, file) = (request.command, request.file);
        let tree = header.tree().or(request.tree);
        let is_close = command == Command::Close;
        let file = file.filter(|_| is_close || meets_failures(command));
        let failure = match command {
            Command::TreeDisconnect => self.failure_of_all(header.session, tree),
            Command::Logoff => self.failure_of_all(header.session, None),
            // A CLOSE that is refused for now comes again.
            _ => file.and_then(|file| {
                let is_over = is_close && gives_way(header.status);
                self.writing.failure_of(file, is_over)
            }),
        };
        answered.fails = failure.filter(|_| gives_way(header.status));
        answered.is_lent =
            matches!(purpose, Purpose::Create(_, Lends::Exclusive)) && header.status == STATUS_OK;
        (
            answered,
            self.conclude((command, purpose, tree), header, message, out, stats),
        )
    }

    fn handle_negotiated(&mut self, header: &Header, message: &[u8]) -> Result<(), Reason> {
        if header.command != Command::Negotiate || header.status != STATUS_OK {
            return Ok(());
        }
        let response = NegotiateResponse::parse(message).map_err(|_| Reason::SmbMalformed)?;
        self.connection.handle_negotiated(&response)?;
        self.reading.read_bytes_max = self.connection.read_bytes_max();
        Ok(())
    }

    /// A request of the client's is answered.
    fn conclude(
        &mut self,
        asked: (Command, Purpose, Option<u32>),
        header: &Header,
        message: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let session = header.session;
        match asked {
            (Command::Logoff, ..) => {
                self.connection.handle_session_end(session);
                self.handle_gone(session, None, out, stats);
            }
            (_, Purpose::Close(file), _) if gives_way(header.status) => {
                self.lent.handle_closed(file);
            }
            (_, Purpose::Close(file), _) => {
                self.lent.handle_still_open(file);
                self.give_back(out);
            }
            (Command::TreeDisconnect, _, Some(tree)) => {
                self.handle_gone(session, Some(tree), out, stats);
                self.connection.handle_tree_end(session, tree);
            }
            _ if header.status != STATUS_OK => (),
            (Command::Negotiate, ..) => return self.handle_negotiated(header, message),
            (_, Purpose::Session(setup), _) => {
                let response = SessionSetupResponse::parse(message);
                let response = response.map_err(|_| Reason::SmbMalformed)?;
                return self.connection.handle_session(session, &setup, &response);
            }
            (Command::TreeConnect, _, Some(tree)) => {
                let response = TreeConnectResponse::parse(message);
                let response = response.map_err(|_| Reason::SmbMalformed)?;
                return self.connection.handle_tree(session, tree, &response);
            }
            (_, Purpose::Create(asked, lends), Some(tree)) => {
                self.handle_opened((session, tree), (&asked, lends), message, out, stats);
            }
            (_, Purpose::Listing(file, class, is_first), _) => {
                let listed = QueryResponse::parse(message);
                let listed = listed.map_or(Vec::new(), |listed| entries(class, listed.data));
                self.opening.folders.handle_listed(file, is_first, listed);
            }
            (_, Purpose::Read(part, changes), _) => {
                self.handle_passed_read(&part, changes, message, out);
            }
            _ => (),
        }
        Ok(())
    }

    /// What closes all files of a session, or of one of its shares, is the last that can tell of their errors.
    fn failure_of_all(&self, session: u64, tree: Option<u32>) -> Option<u32> {
        let files = &self.reading.files;
        self.writing.failure_among(|id| {
            let place = files.place_of(id);
            place.is_some_and(|of| of.0 == session && tree.is_none_or(|tree| tree == of.1))
        })
    }

    /// A session, or one of its shares, is gone with its files.
    fn handle_gone(
        &mut self,
        session: u64,
        tree: Option<u32>,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        let is_gone = |of: (u64, u32)| of.0 == session && tree.is_none_or(|tree| tree == of.1);
        let files = self.reading.files.iter();
        let gone = files.filter(|(_, file)| is_gone((file.session, file.tree)));
        for (id, _) in gone {
            self.writing.forget(*id);
        }
        self.lent.handle_gone(is_gone);
        self.opening.handle_gone(is_gone);
        self.reading
            .end_runs(|_, file| is_gone((file.session, file.tree)), out, stats);
        self.reading.files.handle_gone(is_gone);
    }

    fn handle_opened(
        &mut self,
        (session, tree): (u64, u32),
        (asked, lends): (&CreateRequest, Lends),
        message: &[u8],
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        let Ok(response) = CreateResponse::parse(message) else {
            return;
        };
        let file = response.file;
        self.writing.forget(file);
        let is_protected = match lends {
            Lends::Exclusive => self
                .lent
                .handle_granted(file, session, tree, response.oplock),
            Lends::Nothing => true,
        };
        let protection = match is_protected {
            true => Protection::of(asked, &response),
            false => Protection::none(),
        };
        let is_directory = response.facts.attributes & ATTRIBUTE_DIRECTORY != 0;
        if !self.connection.is_disk(session, tree) {
            return;
        }
        if is_directory {
            let path = (session, tree, asked.name.clone());
            return self.opening.folders.handle_opened(file, path);
        }
        let size_bytes = response.facts.size_bytes;
        let opened = OpenFile::new(session, tree, size_bytes, protection);
        let is_followed = self.reading.files.insert(file, opened);
        self.take_early_break(file, lends, out, stats);
        if is_followed {
            self.consider_writing(file, asked, out);
        }
    }

    /// What was read ahead is dropped at the near half before the break reaches it (MS-SMB2 3.2.5.19). Whether it is a
    /// break of an oplock that is ours.
    fn handle_break(&mut self, message: &[u8], out: &mut Outbox, stats: &mut Stats) -> bool {
        stats.breaks += 1;
        let told = Break::parse(message);
        let is_known = match told {
            Ok(Break::Oplock(told)) if self.lent.has(told.file) => {
                self.handle_recalled(told.file, out, stats);
                return true;
            }
            Ok(Break::Oplock(told)) => {
                self.reading.end_runs(|id, _| id == told.file, out, stats);
                self.reading.files.handle_oplock(told.file, told.oplock)
            }
            Ok(Break::Lease(told)) => {
                self.reading
                    .end_runs(|_, file| Files::has_lease(file, &told.key), out, stats);
                self.reading.files.handle_lease(&told.key, told.state)
            }
            _ => false,
        };
        if !is_known {
            self.reading.end_runs(|_, _| true, out, stats);
        }
        // A lease may have files that are known, and be that of one that is being opened.
        if let Ok(told) = &told
            && (!is_known || matches!(told, Break::Lease(_)))
        {
            self.note_early_break(told);
        }
        self.review_writing(out);
        false
    }

    /// The client may give up more of an oplock or lease than was taken (MS-SMB2 3.3.5.22).
    pub(super) fn handle_acknowledged(
        &mut self,
        packet: &[u8],
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        for (start, end) in messages(packet).unwrap_or_default() {
            let message = packet.get(start..end).unwrap_or_default();
            let command = Header::parse(message).map(|header| header.command);
            if command != Ok(Command::OplockBreak) {
                continue;
            }
            match Break::parse(message) {
                Ok(Break::Oplock(left)) => {
                    self.reading.files.handle_oplock(left.file, left.oplock);
                }
                Ok(Break::LeaseAcknowledgment(left)) => {
                    self.reading.files.handle_lease(&left.key, left.state);
                    self.note_early_break(&Break::LeaseAcknowledgment(left));
                }
                _ => (),
            }
            self.reading
                .end_runs(|_, file| !file.protection.protects(), out, stats);
            self.review_writing(out);
        }
    }
}

/// Whether a request ends with the error of a write that its client believes done.
fn meets_failures(command: Command) -> bool {
    use Command::{Flush, Ioctl, Lock, Read, SetInfo, Write};
    matches!(command, Read | Write | Flush | Lock | SetInfo | Ioctl)
}

/// Makes an answer that lies in a packet an error. The last may be shorter than errors are.
pub(super) fn fail(packet: &mut BytesMut, place: Range<usize>, status: u32) {
    let end = place.end.max(place.start + ERROR_MESSAGE_BYTES);
    let is_last = place.end == packet.len();
    if is_last && end > packet.len() {
        packet.resize(end, 0);
        let prefix = prefix_of(end - PREFIX_BYTES);
        packet
            .iter_mut()
            .zip(prefix)
            .for_each(|(old, new)| *old = new);
    }
    let end = if is_last { end } else { place.end };
    if let Some(answer) = packet.get_mut(place.start..end) {
        set_error(answer, status);
    }
}
