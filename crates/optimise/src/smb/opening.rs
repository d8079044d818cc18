//! The next files of a folder, opened, asked about and read ahead of a client that copies one after the other. The other
//! part of `far`; how they are closed again is in `shutting`.
//!
//! What is asked of the server is what the client asked it of the files before: the same CREATE with another name, the
//! same QUERY_INFO, in the client's session and share. Only a batch oplock protects what the near half is told, so without
//! one the file is closed again, and only a client that asks for no oplock and opens to read can be served so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};

use super::doubts::Doubts;
use super::far::FarSmb;
use super::files::{OpenFile, Protection};
use super::folder::Folders;
use super::message::Message;
use super::netbios::packet;
use super::offered::plain;
use super::pending::{Purpose, Request};
use super::smb2::header::{Command, HEADER_BYTES, Header};
use super::smb2::open::{
    ATTRIBUTE_DIRECTORY, CreateRequest, CreateResponse, DISPOSITION_OPEN, FileId, OPLOCK_BATCH,
    OPLOCK_NONE, READS, SHARE_WRITE, set_oplock_granted,
};
use super::smb2::query::{INFO_FILE, QueryInfoRequest, set_info_file};
use super::smb2::transfer::STATUS_OK;
use crate::item::KNOWS_OFFERED_FILES;
use crate::output::Outbox;
use crate::reason::Reason;
use crate::stats::Stats;

/// Files opened for nobody yet.
const HANDLES_MAX: usize = 128;
/// And no longer than this.
const HELD_NS: u64 = 5_000_000_000;
/// What an open file costs on the link beside its bytes.
const OFFER_BYTES: u64 = 768;
/// Different questions that a client asks of each file.
const QUESTIONS_MAX: usize = 3;
/// None of them is longer, but for padding.
const QUESTION_BYTES_MAX: usize = 256;
/// A longer answer to one is not sent ahead; none is asked for that takes more than one credit.
const TOLD_BYTES_MAX: usize = 4096;
const OUTPUT_BYTES_MAX: u32 = 65_536;
/// Credits that one file takes at most at a time: its questions, and a read.
const CREDITS_EACH: u32 = QUESTIONS_MAX as u32 + 1;
/// Credits to have in reserve while files are opened ahead.
const CREDITS: u32 = 64;
/// Files opened in a row before the next ones are opened ahead: at first, and after it was in vain often.
const PATIENCE_MIN: u32 = 2;
const PATIENCE_MAX: u32 = 16;
/// FILE_READ_DATA, FILE_READ_EA, FILE_EXECUTE, FILE_READ_ATTRIBUTES, READ_CONTROL, SYNCHRONIZE, GENERIC_EXECUTE,
/// GENERIC_READ: what changes nothing.
const ACCESS_TO_READ: u32 =
    0x1 | 0x8 | 0x20 | 0x80 | 0x2_0000 | 0x10_0000 | 0x2000_0000 | 0x8000_0000;
/// FILE_SEQUENTIAL_ONLY, both FILE_SYNCHRONOUS_IO, FILE_NON_DIRECTORY_FILE, FILE_RANDOM_ACCESS.
const OPTIONS_TO_READ: u32 = 0x4 | 0x10 | 0x20 | 0x40 | 0x800;

/// A file that the server was asked for.
#[derive(Debug)]
pub struct OpenedAhead {
    /// What was asked, as the client would have.
    create: CreateRequest,
    /// The message, as the client would have sent it.
    asked: Bytes,
    pub(super) session: u64,
    tree: u32,
    size_bytes: u64,
    /// The client asked for it meanwhile.
    waiting: Option<Bytes>,
    is_unwanted: bool,
    /// AsyncId, since the server has said that the answer comes later (MS-SMB2 2.2.1.1).
    async_id: Option<u64>,
}

impl OpenedAhead {
    /// It is to be closed as soon as it is open. By which AsyncId it is to be cancelled, if it is to be waited for.
    pub(super) fn spurn(&mut self) -> Option<u64> {
        self.is_unwanted = true;
        self.async_id.take()
    }

    /// The server has said that it is to be waited for. The same, if it is unwanted by now.
    pub(super) fn handle_announced(&mut self, async_id: u64) -> Option<u64> {
        self.async_id = Some(async_id);
        self.async_id.take_if(|_| self.is_unwanted)
    }
}

/// A file that was offered to the near half, and not taken.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) create: CreateRequest,
    pub(super) session: u64,
    pub(super) tree: u32,
    size_bytes: u64,
    pub(super) due_ns: u64,
}

/// All of a connection.
#[derive(Debug)]
pub struct Opening {
    is_known: bool,
    pub(super) folders: Folders,
    /// The last CREATE of the client's that could be answered ahead.
    model: Option<CreateRequest>,
    /// What the client asks of its files, whole messages.
    questions: Vec<Bytes>,
    pub(super) patience: u32,
    pub(super) doubts: Doubts,
    /// CREATE at the server, by message id.
    pub(super) asked: BTreeMap<u64, OpenedAhead>,
    pub(super) held: BTreeMap<FileId, Held>,
    /// The client's, and answered for by the near half.
    pub(super) taken: BTreeSet<FileId>,
    /// The near half was told to forget them; whether they were taken shows when it says that it has.
    pub(super) leaving: BTreeMap<FileId, Held>,
    /// The near half has answered the CLOSE that follows.
    pub(super) shut: BTreeSet<FileId>,
    /// To be closed as soon as there is a credit.
    pub(super) owed: VecDeque<(FileId, u64, u32)>,
    /// CLOSE at the server.
    pub(super) closing: usize,
}

impl Opening {
    /// For a near half that knows so much.
    #[must_use]
    pub fn new(knows: u8) -> Self {
        Self {
            is_known: knows & KNOWS_OFFERED_FILES != 0,
            folders: Folders::default(),
            model: None,
            questions: Vec::new(),
            patience: PATIENCE_MIN,
            doubts: Doubts::default(),
            asked: BTreeMap::new(),
            held: BTreeMap::new(),
            taken: BTreeSet::new(),
            leaving: BTreeMap::new(),
            shut: BTreeSet::new(),
            owed: VecDeque::new(),
            closing: 0,
        }
    }

    /// Credits to have in reserve.
    #[must_use]
    pub fn credits(&self) -> u32 {
        match self.model {
            Some(_) if self.is_known => CREDITS,
            _ => 0,
        }
    }

    /// Opened, or to be, and not the client's yet.
    fn ahead_bytes(&self) -> u64 {
        let asked = self.asked.values().map(|ahead| ahead.size_bytes);
        let held = self.held.values().map(|held| held.size_bytes);
        asked.chain(held).map(|bytes| bytes + OFFER_BYTES).sum()
    }

    /// It was in vain: more is asked for the next time. Whether it begins anew with that.
    pub(super) fn handle_wasted(&mut self) -> bool {
        let is_anew = self.folders.handle_wasted();
        if is_anew {
            self.patience = (self.patience * 2).min(PATIENCE_MAX);
        }
        is_anew
    }

    /// The server did not open a file, or nothing protects it: in this share.
    fn handle_failed(&mut self, unprotected: Option<(u64, u32)>) {
        if self.doubts.handle_failed()
            && self.handle_wasted()
            && let Some(place) = unprotected
        {
            self.doubts.handle_unprotected(place);
        }
    }

    /// Sessions or shares are gone.
    pub(super) fn handle_gone(&mut self, is_gone: impl Fn((u64, u32)) -> bool) {
        self.folders.handle_gone(&is_gone);
        self.doubts.handle_gone(is_gone);
    }

    /// Whether a file was opened ahead, or is being.
    fn has(&self, session: u64, tree: u32, name: &[u8]) -> bool {
        let is_it =
            |of: (u64, u32), create: &CreateRequest| of == (session, tree) && create.name == name;
        let mut asked = self.asked.values();
        let mut held = self.held.values().chain(self.leaving.values());
        asked.any(|ahead| is_it((ahead.session, ahead.tree), &ahead.create))
            || held.any(|held| is_it((held.session, held.tree), &held.create))
    }

    /// The client opens a file: through the server, or here.
    fn handle_file(&mut self, session: u64, tree: u32, create: &CreateRequest) {
        let is_left_alone = self.doubts.forbids((session, tree));
        if !self.is_known || !is_to_read(create) || is_left_alone {
            return;
        }
        let in_row = self.folders.handle_file(session, tree, &create.name);
        if in_row > 0 {
            self.model = Some(create.clone());
        }
        if in_row >= PATIENCE_MAX && !self.doubts.is_wary() {
            self.patience = PATIENCE_MIN;
        }
    }

    /// A question of the client's about an open file. Whether it is new.
    fn learn(&mut self, header: &Header, message: &Bytes) -> bool {
        let Ok(info) = QueryInfoRequest::parse(message) else {
            return false;
        };
        let is_plain = info.kind == INFO_FILE
            && info.input_bytes == 0
            && info.output_bytes_max <= OUTPUT_BYTES_MAX
            && message.len() <= QUESTION_BYTES_MAX
            && header.next_bytes == 0;
        let mut question = BytesMut::from(&**message);
        set_info_file(&mut question, FileId::RELATED);
        let question = question.freeze();
        let body = |message: &Bytes| message.get(HEADER_BYTES..).map(<[u8]>::to_vec);
        let is_old = self
            .questions
            .iter()
            .any(|old| body(old) == body(&question));
        let is_new = is_plain && !is_old && self.questions.len() < QUESTIONS_MAX;
        if is_new {
            self.questions.push(question);
        }
        is_new
    }
}

/// Whether a CREATE can be repeated for another file, and answered by the near half.
fn is_to_read(create: &CreateRequest) -> bool {
    create.oplock == OPLOCK_NONE
        && create.contexts.is_empty()
        && create.disposition == DISPOSITION_OPEN
        && create.access & READS != 0
        && create.access & !ACCESS_TO_READ == 0
        && create.options & !OPTIONS_TO_READ == 0
}

impl FarSmb {
    /// The client opens something through the server.
    pub(super) fn note_open(&mut self, header: &Header, create: &CreateRequest) {
        if let Some(tree) = header.tree()
            && self.connection.is_disk(header.session, tree)
            // Ours would say a path that is none without the flag.
            && !header.is_dfs()
        {
            self.opening.handle_file(header.session, tree, create);
        }
    }

    /// The client asks something of a file.
    pub(super) fn note_question(&mut self, header: &Header, message: &Bytes, out: &mut Outbox) {
        let info = QueryInfoRequest::parse(message);
        let is_file = info.is_ok_and(|info| self.reading.files.get(info.file).is_some());
        if self.opening.model.is_none() || !is_file || !self.opening.learn(header, message) {
            return;
        }
        let held: Vec<_> = self
            .opening
            .held
            .iter()
            .map(|(file, held)| (*file, held.session, held.tree))
            .collect();
        if let Some(question) = self.opening.questions.last().cloned() {
            for place in held {
                self.ask_ahead(&question, place, out);
            }
        }
    }

    /// A file that was opened ahead, or is being, is not opened again: true.
    pub(super) fn is_opened(&mut self, packet: &Bytes, out: &mut Outbox) -> bool {
        if self.opening.held.is_empty() && self.opening.asked.is_empty() {
            return false;
        }
        let Some((header, message)) =
            plain(packet).filter(|(header, _)| header.command == Command::Create)
        else {
            return false;
        };
        let (Ok(create), Some(tree)) = (CreateRequest::parse(&message), header.tree()) else {
            return false;
        };
        let place = (header.session, tree);
        let mut held = self.opening.held.values();
        if held.any(|held| (held.session, held.tree) == place && held.create == create) {
            let packet = packet.clone();
            out.message(Message::Yours { packet }.encode());
            return true;
        }
        let mut asked = self.opening.asked.values_mut();
        let asked = asked.find(|ahead| {
            (ahead.session, ahead.tree) == place
                && ahead.create == create
                && ahead.waiting.is_none()
        });
        match asked.filter(|ahead| !ahead.is_unwanted) {
            Some(ahead) => {
                ahead.waiting = Some(packet.clone());
                // Should it go to the server after all, there are credits for it.
                self.credits.handle_request(header.ids_taken());
                true
            }
            None => false,
        }
    }

    /// The near half has given the client a file.
    pub(super) fn handle_taken(&mut self, file: FileId) -> Result<(), Reason> {
        let opening = &mut self.opening;
        let held = match opening.held.remove(&file) {
            Some(held) => {
                opening.taken.insert(file);
                held
            }
            None => opening.leaving.remove(&file).ok_or(Reason::Halves)?,
        };
        opening.doubts.handle_taken();
        opening.handle_file(held.session, held.tree, &held.create);
        Ok(())
    }

    /// Opens what comes next, as far as link, server and client allow.
    pub(super) fn open_on(&mut self, out: &mut Outbox, stats: &mut Stats) {
        while self.may_open() && self.ids.begin() {
            let Some(((session, tree, name), size_bytes)) =
                self.opening.folders.next(self.opening.patience)
            else {
                return;
            };
            // It has begun anew: our own CREATE would break our oplock.
            if self.opening.has(session, tree, &name) {
                continue;
            }
            let Some(model) = self.opening.model.clone() else {
                return;
            };
            let create = CreateRequest { name, ..model };
            stats.opens_made += 1;
            self.open_ahead(create, (session, tree), size_bytes, out);
        }
    }

    fn may_open(&self) -> bool {
        let opening = &self.opening;
        let files = opening.asked.len() + opening.held.len() + opening.leaving.len();
        let credits = (opening.asked.len() as u32 + 1) * CREDITS_EACH;
        // Two of the smallest at least.
        let bytes_max = self.reading.window.bytes(OUTPUT_BYTES_MAX, false);
        let files_max = match opening.doubts.is_wary() {
            true => 1,
            false => HANDLES_MAX,
        };
        opening.model.is_some()
            && files < files_max
            && opening.ahead_bytes() < bytes_max
            && self.credits.available() >= credits
            && self.lent.has_room()
            && self.reading.window.is_quick()
            && !self.reading.is_quiet
            && !self.is_holding()
            && !self.pending.has_changes()
    }

    fn open_ahead(
        &mut self,
        create: CreateRequest,
        (session, tree): (u64, u32),
        size_bytes: u64,
        out: &mut Outbox,
    ) {
        let mut asked = Vec::new();
        Header::request(Command::Create, 0, session, tree).emit(&mut asked);
        create.emit(0, &mut asked);
        let with_oplock = CreateRequest {
            oplock: OPLOCK_BATCH,
            ..create.clone()
        };
        let ahead = OpenedAhead {
            create,
            asked: asked.into(),
            session,
            tree,
            size_bytes,
            waiting: None,
            is_unwanted: false,
            async_id: None,
        };
        let purpose = Purpose::OpenAhead;
        let body = |message: &mut Vec<u8>| with_oplock.emit(0, message);
        if let Some(id) = self.ask_own(Command::Create, (session, tree), purpose, body, out) {
            self.opening.asked.insert(id, ahead);
        }
    }

    /// Asks the server something in our own name. None: there is no credit.
    pub(super) fn ask_own(
        &mut self,
        command: Command,
        (session, tree): (u64, u32),
        purpose: Purpose,
        body: impl FnOnce(&mut Vec<u8>),
        out: &mut Outbox,
    ) -> Option<u64> {
        if !self.credits.take(command == Command::Close) {
            return None;
        }
        let message_id = self.ids.take(1);
        let asked = self.credits.ask(1, self.credits_wanted());
        let header = Header {
            credit_charge: self.connection.charge(),
            credits: asked.by_client.saturating_add(asked.by_us),
            ..Header::request(command, message_id, session, tree)
        };
        let mut message = Vec::new();
        header.emit(&mut message);
        body(&mut message);
        self.send_own(packet(&message), out);
        let request = Request {
            client_id: message_id,
            command,
            tree: Some(tree),
            file: None,
            asked,
            is_change: false,
            purpose,
        };
        // Bounded by the credits that were spent.
        let _ = self.pending.insert(message_id, request);
        Some(message_id)
    }

    /// The server answered a CREATE of ours.
    pub(super) fn handle_opened_ahead(
        &mut self,
        header: &Header,
        message: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let Some(ahead) = self.opening.asked.remove(&header.message_id) else {
            return Ok(());
        };
        let opened = match header.status {
            STATUS_OK => Some(CreateResponse::parse(message).map_err(|_| Reason::SmbMalformed)?),
            _ => None,
        };
        let Some(opened) = opened else {
            // The client shall meet the error itself, when it asks.
            stats.opens_wasted += 1;
            self.opening.handle_failed(None);
            return self.pass_waiting(ahead.waiting, out);
        };
        let (file, place) = (opened.file, (ahead.session, ahead.tree));
        self.lent
            .handle_granted(file, ahead.session, ahead.tree, opened.oplock);
        let is_file = opened.facts.attributes & ATTRIBUTE_DIRECTORY == 0;
        let has_batch = opened.oplock == OPLOCK_BATCH && opened.contexts.is_empty();
        let is_safe = has_batch && !self.early.has(file);
        let is_wanted = !ahead.is_unwanted && !self.reading.is_quiet;
        if !is_wanted || !is_file || !is_safe {
            stats.opens_wasted += 1;
            if is_wanted {
                self.opening.handle_failed((!has_batch).then_some(place));
            } else {
                self.opening.handle_wasted();
            }
            self.close_own(file, place, out, stats);
            return self.pass_waiting(ahead.waiting, out);
        }
        self.opening.doubts.handle_granted(place);
        self.offer_file(ahead, &opened, message, out, stats);
        Ok(())
    }

    fn offer_file(
        &mut self,
        ahead: OpenedAhead,
        opened: &CreateResponse,
        message: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        let file = opened.file;
        let (session, tree) = (ahead.session, ahead.tree);
        let protection = Protection::by_oplock(OPLOCK_BATCH, ahead.create.share & SHARE_WRITE == 0);
        let size_bytes = opened.facts.size_bytes;
        let mut known = OpenFile::new(session, tree, size_bytes, protection);
        known.was_told = true;
        if !self.reading.files.insert(file, known) {
            stats.opens_wasted += 1;
            self.opening.handle_wasted();
            self.close_own(file, (session, tree), out, stats);
            let _ = self.pass_waiting(ahead.waiting, out);
            return;
        }
        let mut answer = BytesMut::from(&**message);
        set_oplock_granted(&mut answer, 0, OPLOCK_NONE);
        let offer = Message::Offer {
            changes: self.reading.changes,
            asked: ahead.asked,
            answer: answer.freeze(),
        };
        out.message(offer.encode());
        let held = Held {
            create: ahead.create,
            session,
            tree,
            size_bytes,
            due_ns: self.now_ns.saturating_add(HELD_NS),
        };
        self.opening.held.insert(file, held);
        for question in self.opening.questions.clone() {
            self.ask_ahead(&question, (file, session, tree), out);
        }
        if size_bytes > 0 {
            self.read_on(out, |reading, out| reading.begin(file, out, stats));
        }
        if let Some(packet) = ahead.waiting {
            self.credits.handle_returned(&packet);
            out.message(Message::Yours { packet }.encode());
        }
    }

    /// Asks of a file what the client asked of others.
    fn ask_ahead(
        &mut self,
        question: &Bytes,
        (file, session, tree): (FileId, u64, u32),
        out: &mut Outbox,
    ) {
        let mut asked = BytesMut::from(&**question);
        set_info_file(&mut asked, file);
        let asked = asked.freeze();
        let purpose = Purpose::Question(asked.clone());
        let body = |message: &mut Vec<u8>| {
            message.extend_from_slice(asked.get(HEADER_BYTES..).unwrap_or_default());
        };
        self.ask_own(Command::QueryInfo, (session, tree), purpose, body, out);
    }

    /// The server answered a question of ours.
    pub(super) fn handle_told(
        &mut self,
        header: &Header,
        asked: Bytes,
        message: &Bytes,
        out: &mut Outbox,
    ) {
        let file = QueryInfoRequest::parse(&asked).map(|info| info.file);
        let is_ours = file.is_ok_and(|file| {
            self.opening.held.contains_key(&file) || self.opening.taken.contains(&file)
        });
        if header.status == STATUS_OK && is_ours && message.len() <= TOLD_BYTES_MAX {
            let answer = message.clone();
            out.message(Message::Told { asked, answer }.encode());
        }
    }

    /// The client's own CREATE goes to the server after all.
    fn pass_waiting(&mut self, waiting: Option<Bytes>, out: &mut Outbox) -> Result<(), Reason> {
        match waiting {
            Some(packet) => {
                self.credits.handle_returned(&packet);
                let (edited, result) = self.translated(packet, false, out)?;
                self.send_own(edited, out);
                result
            }
            None => Ok(()),
        }
    }
}
