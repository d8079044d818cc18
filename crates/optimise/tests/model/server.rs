//! A file server that speaks SMB2, or SMB1, and is strict: who uses a message id it has not granted ends the test.

mod change;
pub mod cifs;
mod credits;
pub mod folder;
mod greeting;
mod others;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farhaul_optimise::smb::netbios::{PREFIX_BYTES, Packets, Piece, packet};
use farhaul_optimise::smb::smb1;
use farhaul_optimise::smb::smb2::breaks::Break;
use farhaul_optimise::smb::smb2::connect::{SHARE_DISK, SessionSetupResponse, TreeConnectResponse};
use farhaul_optimise::smb::smb2::header::{
    Command, FLAG_ASYNC, FLAG_RESPONSE, FLAG_SIGNED, Header, Scope, messages,
};
use farhaul_optimise::smb::smb2::open::{
    CreateRequest, CreateResponse, FileFacts, FileId, LEASE_READ, Lease, OPLOCK_BATCH,
    OPLOCK_EXCLUSIVE, OPLOCK_II, OPLOCK_LEASE, OPLOCK_NONE, SHARE_WRITE,
};
use farhaul_optimise::smb::smb2::query::{QueryDirectoryRequest, QueryInfoRequest};
use farhaul_optimise::smb::smb2::transfer::{
    ErrorResponse, ReadRequest, ReadResponse, STATUS_DISK_FULL, STATUS_END_OF_FILE, STATUS_OK,
    STATUS_PENDING, WriteRequest, WriteResponse, emit_empty,
};

use self::change::STATUS_FILE_CLOSED;
use self::credits::LateRead;

/// Somebody else's lock is in the way.
pub const STATUS_FILE_LOCK_CONFLICT: u32 = 0xc000_0054;
pub const SESSION: u64 = 0x77;
pub const TREE: u32 = 5;

/// What it agrees to.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub dialect: u16,
    pub session_flags: u16,
    pub security_mode: u16,
    pub grants_oplocks: bool,
    pub credits_max: u64,
    /// From a time on no more than so many.
    pub credits_later: Option<(u64, u64)>,
    /// Answers to SESSION_SETUP are signed, as Samba does.
    pub signs_setup: bool,
    /// Writes take up to so long each, and overtake each other.
    pub write_ns_max: u64,
    /// Reads take so long.
    pub read_ns: u64,
    /// Of SMB1: each so many-th read takes so many ns longer, and others overtake it.
    pub slow_reads: Option<(u64, u64)>,
    /// Of SMB2: each so many-th CREATE for a batch oplock fails; 0: none.
    pub refuses_batch: u64,
    /// Of SMB2: the answer to CREATE is announced first, as where others must give back an oplock before.
    pub opens_late: bool,
    /// Of SMB2: who opens this file otherwise than alone waits for an oplock that nobody gives back.
    pub held_file: Option<&'static str>,
    /// Of SMB2: from then on somebody else has locked the bytes from here to there.
    pub locked: Option<(u64, usize, usize)>,
    /// No file gets longer, for this reason.
    pub file_bytes_max: usize,
    pub refusal: u32,
    /// Of SMB1: a file may be closed that is being read.
    pub bears_close: bool,
    /// The first CLOSE wants another session before.
    pub refuses_to_close: bool,
    /// Of SMB2: what the share is.
    pub share: u8,
    /// It speaks SMB1.
    pub is_cifs: bool,
    /// It grants level II for whatever oplock is asked.
    pub grants_ii: bool,
    /// Of SMB1: requests at a time, and what it can do.
    pub requests_max: usize,
    pub capabilities: u32,
    /// It gives the number of a file that was closed to the next that is opened.
    pub reuses_files: bool,
    /// Of SMB1: what a read gives at most.
    pub read_bytes_max: usize,
    /// Names in one answer.
    pub names_max: usize,
    /// Of SMB2: what was asked in one packet is answered in one.
    pub compounds: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            dialect: 0x0210,
            session_flags: 0,
            security_mode: 1,
            grants_oplocks: true,
            credits_max: 512,
            credits_later: None,
            signs_setup: true,
            write_ns_max: 0,
            read_ns: 0,
            slow_reads: None,
            refuses_batch: 0,
            opens_late: false,
            held_file: None,
            locked: None,
            file_bytes_max: usize::MAX,
            refusal: STATUS_DISK_FULL,
            bears_close: false,
            refuses_to_close: false,
            share: SHARE_DISK,
            is_cifs: false,
            grants_ii: false,
            requests_max: 50,
            capabilities: cifs::CAPABILITIES,
            reuses_files: false,
            read_bytes_max: usize::MAX,
            names_max: 100,
            compounds: false,
        }
    }
}

#[derive(Debug)]
struct Open {
    name: String,
    oplock: u8,
    lease: Option<Lease>,
    denies_writers: bool,
    break_due: Option<Vec<OtherWrite>>,
}

/// Somebody else writes.
#[derive(Debug, Clone)]
pub struct OtherWrite {
    pub name: String,
    pub offset: usize,
    pub bytes: Vec<u8>,
}

/// What a slow write answers.
#[derive(Debug, Clone, Copy)]
enum Asked {
    Modern(Header, u16),
    Cifs(smb1::header::Header),
}

/// A write that has not reached the disk.
#[derive(Debug)]
struct Slow {
    at_ns: u64,
    nth: usize,
    asked: Asked,
    open: u64,
    offset: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub struct Server {
    pub terms: Terms,
    pub now_ns: u64,
    slow: Vec<Slow>,
    /// Answers to reads: when, of which open file, and what.
    read: VecDeque<(u64, u64, Vec<u8>)>,
    late_reads: VecDeque<LateRead>,
    /// Somebody else writes to what is opened next, and the break of that overtakes the answer.
    pub overtakes: Option<OtherWrite>,
    /// Requests to open that wait for somebody else, and have been announced.
    held_opens: Vec<Header>,
    noise: u64,
    /// Which version each of the client's writes made, in the order in which they came.
    pub own_versions: Vec<Option<usize>>,
    /// What a file held when a client said that others may have it.
    pub let_go: Vec<(u64, Vec<u8>)>,
    long: Vec<u8>,
    /// Every version of every file.
    pub files: BTreeMap<String, Vec<Vec<u8>>>,
    /// Names in every folder, in the order in which it lists them.
    pub folders: BTreeMap<String, Vec<String>>,
    /// How far each open folder was listed.
    listed: BTreeMap<u64, usize>,
    /// Requests to open a file, and questions about one.
    pub creates: u64,
    /// For a batch oplock.
    pub batches: u64,
    pub infos: u64,
    opens: BTreeMap<u64, Open>,
    /// The file that the last message of a packet was about.
    chain: Option<u64>,
    next_open: u64,
    packets: Packets,
    granted: u64,
    used: BTreeSet<u64>,
    pub used_ids: u64,
    pub reads: u64,
    /// Versions that clients learn of by breaks to nothing, in the order of the breaks.
    pub broken_versions: Vec<usize>,
    output: Vec<u8>,
    /// Of its packets of several messages.
    pub longest_bytes: usize,
}

impl Server {
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            now_ns: 0,
            slow: Vec::new(),
            read: VecDeque::new(),
            late_reads: VecDeque::new(),
            overtakes: None,
            held_opens: Vec::new(),
            noise: 1,
            own_versions: Vec::new(),
            let_go: Vec::new(),
            long: Vec::new(),
            files: BTreeMap::new(),
            folders: BTreeMap::new(),
            listed: BTreeMap::new(),
            creates: 0,
            batches: 0,
            infos: 0,
            opens: BTreeMap::new(),
            chain: None,
            next_open: 1,
            packets: Packets::default(),
            granted: 1,
            used: BTreeSet::new(),
            used_ids: 0,
            reads: 0,
            broken_versions: Vec::new(),
            output: Vec::new(),
            longest_bytes: 0,
        }
    }

    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    pub fn version(&self, name: &str) -> usize {
        self.files[name].len() - 1
    }

    pub fn handle(&mut self, now_ns: u64, bytes: &[u8]) {
        self.now_ns = now_ns;
        self.packets.push(bytes);
        while let Some(piece) = self
            .packets
            .poll()
            .expect("a client that frames its messages")
        {
            match piece {
                Piece::Message(whole) => self.request(&whole[PREFIX_BYTES..]),
                Piece::Beginning(head) => self.long.extend_from_slice(&head),
                Piece::Rest(more) => self.long.extend_from_slice(&more),
                Piece::Service(_) => (),
            }
            if !self.packets.has_rest() && !self.long.is_empty() {
                let whole = std::mem::take(&mut self.long);
                self.request(&whole[PREFIX_BYTES..]);
            }
        }
    }

    /// When the next slow write or read is done.
    pub fn due_ns(&self) -> u64 {
        let read_ns = self.read.front().map_or(u64::MAX, |(at, ..)| *at);
        let late_ns = self.late_reads.front().map_or(u64::MAX, |(at, ..)| *at);
        self.written_ns().min(read_ns).min(late_ns)
    }

    fn written_ns(&self) -> u64 {
        let due = self.slow.iter().map(|slow| slow.at_ns).min();
        due.unwrap_or(u64::MAX)
    }

    /// Somebody else locks; writes that are due reach the disk.
    pub fn handle_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if self.terms.locked.is_some_and(|(at, ..)| at <= now_ns) {
            // A lock ends level II oplocks (MS-FSA 2.1.5.7).
            self.break_shared();
        }
        self.answer_late_reads();
        while self.read.front().is_some_and(|(at, ..)| *at <= now_ns) {
            let (_, _, answer) = self.read.pop_front().unwrap();
            self.output.extend_from_slice(&answer);
        }
        while self.written_ns() <= now_ns {
            let due_ns = self.written_ns();
            let at = self.slow.iter().position(|slow| slow.at_ns == due_ns);
            let slow = self.slow.remove(at.unwrap());
            let mut body = Vec::new();
            let status = self.write_own(slow.nth, (slow.open, slow.offset), &slow.bytes, &mut body);
            match slow.asked {
                Asked::Modern(header, credits) => {
                    self.say(&header, status, credits, FLAG_RESPONSE, &body);
                }
                Asked::Cifs(header) => self.cifs_written(&header, status, slow.bytes.len()),
            }
        }
    }

    fn request(&mut self, whole: &[u8]) {
        if whole.starts_with(&smb1::header::MARK) {
            return match self.terms.is_cifs {
                true => self.cifs_request(whole),
                false => self.answer_cifs_negotiate(),
            };
        }
        let said_bytes = self.output.len();
        let places = messages(whole).expect("messages");
        let is_compound = self.terms.compounds && places.len() > 1;
        for (start, end) in places {
            let message = &whole[start..end];
            let header = Header::parse(message).expect("a header");
            if header.command == Command::Cancel {
                self.cancel(&header);
                continue;
            }
            self.take_ids(&header);
            let credits = self.grant_at_once(&header);
            self.chain = self.chain.filter(|_| header.is_related());
            self.answer(&header, message, credits);
        }
        if is_compound {
            self.compound(said_bytes);
        }
    }

    fn answer(&mut self, header: &Header, message: &[u8], credits: u16) {
        let mut status = STATUS_OK;
        let mut body = Vec::new();
        let mut flags = FLAG_RESPONSE;
        match header.command {
            Command::Negotiate => self.negotiated().emit(0, &mut body),
            Command::SessionSetup => {
                if self.terms.signs_setup && self.terms.session_flags == 0 {
                    flags |= FLAG_SIGNED;
                }
                let (flags, token) = (self.terms.session_flags, Vec::new());
                SessionSetupResponse { flags, token }.emit(&mut body);
            }
            Command::TreeConnect => TreeConnectResponse {
                share: self.terms.share,
                flags: 0,
                capabilities: 0,
                access: 0x1f_01ff,
            }
            .emit(&mut body),
            Command::Create if self.holds(message) => return self.hold(header, credits),
            Command::Create => status = self.try_open(message, &mut body),
            Command::Close => status = self.try_close(message, &mut body),
            Command::Read => status = self.read(&ReadRequest::parse(message).unwrap(), &mut body),
            Command::Write => {
                let write = WriteRequest::parse(message).unwrap();
                let place = (write.file.volatile, write.offset as usize);
                let nth = self.own_versions.len();
                self.own_versions.push(None);
                if self.terms.write_ns_max > 0 && self.opens.contains_key(&place.0) {
                    return self.take_slow(Asked::Modern(*header, credits), nth, place, write.data);
                }
                status = self.write_own(nth, place, write.data, &mut body);
            }
            Command::OplockBreak => {
                let answer = self.acknowledged(&Break::parse(message).unwrap());
                answer.emit(&mut body);
            }
            Command::QueryDirectory => {
                status = self.list(&QueryDirectoryRequest::parse(message).unwrap(), &mut body);
            }
            Command::QueryInfo => {
                status = self.tell_info(&QueryInfoRequest::parse(message).unwrap(), &mut body);
            }
            Command::TreeDisconnect | Command::Logoff => {
                self.close_all();
                emit_empty(&mut body);
            }
            Command::Flush => {
                self.flush(message);
                emit_empty(&mut body);
            }
            Command::SetInfo => {
                status = self.set_info(message);
                match status {
                    STATUS_OK => body.extend([2, 0]),
                    _ => ErrorResponse::default().emit(&mut body),
                }
            }
            Command::Echo => emit_empty(&mut body),
            other => panic!("{other:?} is not modelled"),
        }
        self.finish(header, status, credits, flags, body);
    }

    fn close(&mut self, file: FileId) {
        let id = self.related(file);
        let mut slow = self.slow.iter();
        assert!(
            slow.all(|slow| slow.open != id),
            "closed before it was written"
        );
        let open = self.opens.remove(&id).expect("an open file");
        open.break_due
            .into_iter()
            .flatten()
            .for_each(|write| self.write(&write));
    }

    /// A share or the session is left.
    fn close_all(&mut self) {
        assert!(self.slow.is_empty(), "left before it was written");
        assert!(self.read.is_empty(), "left before it was read");
        for open in std::mem::take(&mut self.opens).into_values() {
            let due = open.break_due.into_iter().flatten();
            due.for_each(|write| self.write(&write));
        }
    }

    /// An announcement, which has the credits, and the answer behind it; both name a number in place of the share.
    fn say_late(&mut self, header: &Header, status: u32, credits: u16, body: &[u8]) {
        let (mut announced, flags) = (Vec::new(), FLAG_RESPONSE | FLAG_ASYNC);
        ErrorResponse::default().emit(&mut announced);
        let scope = Scope::Async { id: 33 };
        let header = Header { scope, ..*header };
        self.say(&header, STATUS_PENDING, credits, flags, &announced);
        self.say(&header, status, 0, flags, body);
    }

    fn say(&mut self, header: &Header, status: u32, credits: u16, flags: u32, body: &[u8]) {
        let mut answer = Vec::new();
        let session = match header.command {
            Command::SessionSetup => SESSION,
            _ => header.session,
        };
        let scope = match header.command {
            Command::TreeConnect => Scope::Sync {
                process: 0,
                tree: TREE,
            },
            _ => header.scope,
        };
        Header {
            flags,
            session,
            scope,
            ..header.response(status, credits)
        }
        .emit(&mut answer);
        answer.extend(body);
        self.output.extend_from_slice(&packet(&answer));
    }

    fn open(&mut self, create: &CreateRequest) -> CreateResponse {
        let name = String::from_utf8(create.name.clone()).unwrap();
        if self.folders.contains_key(&name) {
            return self.open_folder(&name);
        }
        self.creates += 1;
        let id = match self.terms.reuses_files {
            true => (1..).find(|id| !self.opens.contains_key(id)).unwrap(),
            false => self.next_open,
        };
        self.next_open += 1;
        let lease = Lease::among(&create.contexts);
        let (oplock, lease) = self.granted(&name, create.oplock, lease);
        let open = Open {
            name: name.clone(),
            oplock,
            lease,
            denies_writers: create.share & SHARE_WRITE == 0,
            break_due: None,
        };
        self.opens.insert(id, open);
        CreateResponse {
            oplock,
            flags: 0,
            action: 1,
            facts: FileFacts {
                size_bytes: self.files[&name].last().unwrap().len() as u64,
                ..FileFacts::default()
            },
            file: file_id(id),
            contexts: lease.iter().map(Lease::context).collect(),
        }
    }

    /// The oplock or the lease that who opens a file is given.
    fn granted(&self, name: &str, oplock: u8, lease: Option<Lease>) -> (u8, Option<Lease>) {
        let key = lease.map(|lease| lease.key);
        let is_other = |open: &Open| {
            open.name == name && (key.is_none() || open.lease.map(|lease| lease.key) != key)
        };
        let is_shared = self.terms.grants_ii || self.opens.values().any(is_other);
        let state = |asked: u32| if is_shared { asked & LEASE_READ } else { asked };
        match (self.terms.grants_oplocks, oplock) {
            (false, _) => (OPLOCK_NONE, None),
            (true, OPLOCK_LEASE) => {
                let granted = lease.map(|lease| Lease {
                    state: state(lease.state),
                    ..lease
                });
                (OPLOCK_LEASE, granted)
            }
            (true, OPLOCK_BATCH | OPLOCK_EXCLUSIVE) if is_shared => (OPLOCK_II, None),
            (true, asked) => (asked, None),
        }
    }

    fn read(&mut self, read: &ReadRequest, body: &mut Vec<u8>) -> u32 {
        self.reads += 1;
        let Some(open) = self.opens.get(&read.file.volatile) else {
            ErrorResponse::default().emit(body);
            return STATUS_FILE_CLOSED;
        };
        let content = self.files[&open.name].last().unwrap();
        let from = (read.offset as usize).min(content.len());
        let to = (from + read.length as usize).min(content.len());
        if from == to {
            ErrorResponse::default().emit(body);
            return STATUS_END_OF_FILE;
        }
        let meets = |(since_ns, first, end): (u64, usize, usize)| {
            since_ns <= self.now_ns && from < end && first < to
        };
        if self.terms.locked.is_some_and(meets) {
            ErrorResponse::default().emit(body);
            return STATUS_FILE_LOCK_CONFLICT;
        }
        let data = &content[from..to];
        ReadResponse { remaining: 0, data }.emit(body);
        STATUS_OK
    }

    fn take_slow(&mut self, asked: Asked, nth: usize, (open, offset): (u64, usize), data: &[u8]) {
        self.noise = self
            .noise
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(1);
        let takes_ns = (self.noise >> 33) % self.terms.write_ns_max;
        self.slow.push(Slow {
            at_ns: self.now_ns + takes_ns,
            nth,
            asked,
            open,
            offset,
            bytes: data.to_vec(),
        });
    }

    fn write_own(
        &mut self,
        nth: usize,
        (id, offset): (u64, usize),
        data: &[u8],
        body: &mut Vec<u8>,
    ) -> u32 {
        let Some(open) = self.opens.get(&id) else {
            ErrorResponse::default().emit(body);
            return STATUS_FILE_CLOSED;
        };
        let name = open.name.clone();
        if offset + data.len() > self.terms.file_bytes_max {
            ErrorResponse::default().emit(body);
            self.own_versions[nth] = Some(self.version(&name));
            return self.terms.refusal;
        }
        let change = OtherWrite {
            name: name.clone(),
            offset,
            bytes: data.to_vec(),
        };
        self.apply(&change, Some(id));
        self.own_versions[nth] = Some(self.version(&name));
        let count = data.len() as u32;
        WriteResponse {
            count,
            remaining: 0,
        }
        .emit(body);
        STATUS_OK
    }
}

fn file_id(id: u64) -> FileId {
    FileId {
        persistent: id + 1000,
        volatile: id,
    }
}
