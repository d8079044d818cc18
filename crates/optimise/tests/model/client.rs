//! A client that does one step after the other and holds every byte against what a server could have said.

mod cifs;
mod folder;
mod odd;

use std::collections::{BTreeMap, VecDeque};

use farhaul_optimise::smb::netbios::{PREFIX_BYTES, Packets, Piece, packet};
use farhaul_optimise::smb::smb1;
use farhaul_optimise::smb::smb2::breaks::{Break, OplockBreak};
use farhaul_optimise::smb::smb2::connect::{
    NegotiateRequest, SessionSetupRequest, TreeConnectRequest,
};
use farhaul_optimise::smb::smb2::header::{
    Command, FLAG_SIGNED, Header, MESSAGE_ID_NONE, Scope, messages,
};
use farhaul_optimise::smb::smb2::open::{
    CloseRequest, CreateContext, CreateRequest, CreateResponse, DISPOSITION_OPEN, FileId,
    OPLOCK_II, OPLOCK_NONE,
};
use farhaul_optimise::smb::smb2::query::STATUS_NO_MORE_FILES;
use farhaul_optimise::smb::smb2::transfer::{
    ErrorResponse, ReadRequest, ReadResponse, STATUS_END_OF_FILE, STATUS_OK, STATUS_PENDING,
    WriteRequest,
};

use super::server::{SESSION, STATUS_FILE_LOCK_CONFLICT, Server, TREE};

/// What it does next, when everything before is done.
#[derive(Debug, Clone)]
pub enum Step {
    Open {
        name: String,
        share: u32,
        oplock: u8,
    },
    /// From the first byte to the end, which the server tells.
    ReadAll {
        block: u32,
        outstanding: usize,
    },
    /// Ranges, so many at the same time.
    Read {
        ranges: Vec<(u64, u32)>,
        outstanding: usize,
    },
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// From an offset on, in blocks, so many at the same time.
    WriteAll {
        offset: u64,
        bytes: Vec<u8>,
        block: u32,
        outstanding: usize,
    },
    /// Opens a file or a folder and closes it in the same packet.
    Glance {
        name: String,
    },
    /// Of SMB1: locks some bytes behind every file's end, and writes back all files.
    Lock,
    FlushAll,
    /// Of SMB1: a write that is cut short, which nobody answers.
    Stutter,
    /// Leaves the share.
    Leave,
    /// All names of the open folder.
    List,
    /// What the server says of the open file.
    Ask,
    Close,
    Pause {
        ns: u64,
    },
}

#[derive(Debug)]
struct Sent {
    command: Command,
    read: Option<(u64, u32)>,
    write: Option<(u64, Vec<u8>)>,
    /// The oldest version that may be seen.
    floor: usize,
    /// Writes that were answered before.
    writes: usize,
    /// The client had been told of an oplock's end.
    has_seen_breaks: bool,
}

/// What has been agreed with whom.
#[derive(Debug, Clone, Copy)]
pub struct Manners {
    pub has_large_requests: bool,
    /// Credits asked for with each request.
    pub asks: u16,
    /// SecurityMode of NEGOTIATE.
    pub security_mode: u16,
    /// Signs TREE_CONNECT, as 3.1.1 does.
    pub signs_tree: bool,
    /// Says that it is nobody.
    pub is_anonymous: bool,
    /// Flags of its writes.
    pub write_flags: u32,
    /// DesiredAccess, and CreateOptions.
    pub access: u32,
    pub options: u32,
    /// Wants to take up its files again after a lost connection.
    pub is_durable: bool,
    /// Begins in SMB1, and stays with it if the server does.
    pub begins_in_cifs: bool,
    /// What it can do in SMB1.
    pub capabilities: u32,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            has_large_requests: true,
            asks: 1,
            security_mode: 1,
            signs_tree: false,
            is_anonymous: false,
            write_flags: 0,
            access: 0x12_019f,
            options: 0,
            is_durable: false,
            begins_in_cifs: false,
            capabilities: cifs::CAPABILITIES,
        }
    }
}

#[derive(Debug)]
pub struct Client {
    manners: Manners,
    /// Of SMB1: session and share, once the server has answered in it.
    cifs: Option<(u16, u16)>,
    packets: Packets,
    next_id: u64,
    pub credits: i64,
    /// Of the next request.
    charge: u16,
    sent: BTreeMap<u64, Sent>,
    greeting: usize,
    steps: VecDeque<Step>,
    ranges: VecDeque<(u64, u32)>,
    reading: Option<(u64, u32)>,
    outstanding: usize,
    file: Option<FileId>,
    name: String,
    asked: u8,
    /// Others could not change the file: by their share mode, or unnoticed.
    oplock: u8,
    denies: bool,
    breaks_seen: usize,
    /// Acknowledgments that wait for a credit.
    owed: VecDeque<OplockBreak>,
    floor: usize,
    pub wakes_ns: u64,
    pub output: Vec<u8>,
    pub is_done: bool,
    pub first_read_ns: Option<u64>,
    pub last_read_ns: u64,
    pub read_bytes: u64,
    pub reads: u64,
    pub infos: u64,
    writings: VecDeque<(u64, Vec<u8>)>,
    /// When, where and what of writes that were answered well.
    pub written: Vec<(u64, u64, Vec<u8>)>,
    writes: usize,
    /// Of those, to files opened before.
    writes_before: usize,
    pub first_write_ns: Option<u64>,
    pub closed_ns: u64,
    /// What went wrong, in the order of the answers.
    pub errors: Vec<(Command, u32)>,
}

impl Client {
    pub fn new(manners: Manners, steps: Vec<Step>) -> Self {
        Self {
            manners,
            cifs: None,
            packets: Packets::default(),
            next_id: 0,
            credits: 1,
            charge: 1,
            sent: BTreeMap::new(),
            greeting: 0,
            steps: steps.into(),
            ranges: VecDeque::new(),
            reading: None,
            outstanding: 0,
            file: None,
            name: String::new(),
            asked: OPLOCK_NONE,
            oplock: OPLOCK_NONE,
            denies: false,
            breaks_seen: 0,
            owed: VecDeque::new(),
            floor: 0,
            wakes_ns: 0,
            output: Vec::new(),
            is_done: false,
            first_read_ns: None,
            last_read_ns: 0,
            read_bytes: 0,
            reads: 0,
            infos: 0,
            writings: VecDeque::new(),
            written: Vec::new(),
            writes: 0,
            writes_before: 0,
            first_write_ns: None,
            closed_ns: 0,
            errors: Vec::new(),
        }
    }

    pub fn handle(&mut self, now_ns: u64, bytes: &[u8], server: &Server) {
        self.packets.push(bytes);
        while let Some(piece) = self
            .packets
            .poll()
            .expect("a server that frames its messages")
        {
            let Piece::Message(whole) = piece else {
                panic!("{piece:?}");
            };
            if whole[PREFIX_BYTES..].starts_with(&smb1::header::MARK) {
                self.cifs_answer(now_ns, &whole[PREFIX_BYTES..], server);
                continue;
            }
            for (start, end) in messages(&whole[PREFIX_BYTES..]).expect("messages") {
                self.answer(
                    now_ns,
                    &whole[PREFIX_BYTES + start..PREFIX_BYTES + end],
                    server,
                );
            }
        }
        self.go_on(now_ns, server);
    }

    /// Sends whatever can be sent.
    pub fn go_on(&mut self, now_ns: u64, server: &Server) {
        while now_ns >= self.wakes_ns && self.next(now_ns, server) {}
        self.is_done = self.steps.is_empty()
            && self.sent.is_empty()
            && self.ranges.is_empty()
            && self.writings.is_empty()
            && self.reading.is_none()
            && self.greeting == 3
            && now_ns >= self.wakes_ns;
    }

    fn next(&mut self, now_ns: u64, server: &Server) -> bool {
        if self.greeting < 3 {
            return self.sent.is_empty() && self.greet();
        }
        if self.credits > 0
            && let Some(left) = self.owed.pop_front()
        {
            if self.cifs.is_some() {
                self.cifs_release(&left);
                return true;
            }
            self.send(Command::OplockBreak, None, |message| {
                Break::Oplock(left).emit(message);
            });
            return true;
        }
        if self.sent.len() < self.outstanding.max(1)
            && self.credits > 0
            && let Some((offset, length)) = self.next_range()
        {
            self.read(now_ns, offset, length, server);
            return true;
        }
        if self.sent.len() < self.outstanding.max(1)
            && let Some((offset, bytes)) = self.writings.pop_front()
        {
            if self.credits < charge_of(bytes.len()) && !self.sent.is_empty() {
                self.writings.push_front((offset, bytes));
                return false;
            }
            self.write(now_ns, offset, bytes);
            return true;
        }
        if !self.sent.is_empty() || !self.ranges.is_empty() || self.reading.is_some() {
            return false;
        }
        let Some(step) = self.steps.pop_front() else {
            return false;
        };
        self.step(now_ns, step, server);
        true
    }

    fn next_range(&mut self) -> Option<(u64, u32)> {
        if let Some((offset, block)) = self.reading {
            self.reading = Some((offset + u64::from(block), block));
            return Some((offset, block));
        }
        self.ranges.pop_front()
    }

    fn step(&mut self, now_ns: u64, step: Step, server: &Server) {
        self.outstanding = 1;
        match step {
            Step::Open {
                name,
                share,
                oplock,
            } => {
                self.denies = share & 2 == 0;
                self.asked = oplock;
                let create = CreateRequest {
                    oplock,
                    impersonation: 2,
                    access: self.manners.access,
                    attributes: 0,
                    share,
                    disposition: DISPOSITION_OPEN,
                    options: self.manners.options,
                    name: name.clone().into_bytes(),
                    contexts: self.contexts(),
                };
                self.floor = match server.folders.contains_key(&name) {
                    true => 0,
                    false => server.version(&name),
                };
                self.name = name;
                self.writes_before = self.writes;
                match self.cifs {
                    Some(_) => self.cifs_open(&create),
                    None => self.send(Command::Create, None, |message| create.emit(0, message)),
                }
            }
            Step::ReadAll { block, outstanding } => {
                self.outstanding = outstanding;
                self.reading = Some((0, block));
            }
            Step::Read {
                ranges,
                outstanding,
            } => {
                self.outstanding = outstanding;
                self.ranges = ranges.into();
            }
            Step::Write { offset, bytes } => {
                self.writings.push_back((offset, bytes));
            }
            Step::WriteAll {
                offset,
                bytes,
                block,
                outstanding,
            } => {
                self.outstanding = outstanding;
                let places = (offset..).step_by(block as usize);
                let blocks = bytes.chunks(block as usize).map(<[u8]>::to_vec);
                self.writings = places.zip(blocks).collect();
            }
            Step::Close => {
                let file = self.file.unwrap();
                let close = CloseRequest { flags: 0, file };
                match self.cifs {
                    Some(_) => self.cifs_close(file),
                    None => self.send(Command::Close, None, |message| close.emit(message)),
                }
            }
            Step::Ask => self.ask(server),
            Step::Pause { ns } => self.wakes_ns = now_ns + ns,
            odd => self.odd_step(odd),
        }
    }

    fn greet(&mut self) -> bool {
        self.greeting += 1;
        if self.cifs.is_some() || (self.manners.begins_in_cifs && self.greeting == 1) {
            self.cifs_greet();
            return true;
        }
        match self.greeting {
            1 => {
                let negotiate = NegotiateRequest {
                    security_mode: self.manners.security_mode,
                    capabilities: 0,
                    client: [3; 16],
                    dialects: vec![0x0202, 0x0210],
                    contexts: Vec::new(),
                };
                self.send(Command::Negotiate, None, |message| {
                    negotiate.emit(0, message)
                });
            }
            2 => {
                let setup = SessionSetupRequest {
                    flags: 0,
                    security_mode: self.manners.security_mode as u8,
                    capabilities: 0,
                    channel: 0,
                    previous: 0,
                    token: if self.manners.is_anonymous {
                        nobody()
                    } else {
                        vec![9; 40]
                    },
                };
                self.send(Command::SessionSetup, None, |message| setup.emit(message));
            }
            _ => {
                let path = b"\\\\s\\files".to_vec();
                let tree = TreeConnectRequest { flags: 0, path };
                self.send(Command::TreeConnect, None, |message| tree.emit(message));
            }
        }
        true
    }

    /// The oldest version that a direct client could be shown from here on.
    fn floor(&self, server: &Server) -> usize {
        match self.oplock != OPLOCK_NONE || self.denies {
            true => self.floor,
            false => server.version(&self.name),
        }
    }

    fn read(&mut self, now_ns: u64, offset: u64, length: u32, server: &Server) {
        self.first_read_ns.get_or_insert(now_ns);
        let read = ReadRequest {
            flags: 0,
            length,
            offset,
            file: self.file.unwrap(),
            length_min: 0,
            channel: 0,
            remaining: 0,
        };
        self.reads += 1;
        let floor = self.floor(server);
        let id = match self.cifs {
            Some(_) => self.cifs_read(read.file, offset, length),
            None => {
                self.send(Command::Read, Some((offset, length)), |message| {
                    read.emit(message)
                });
                self.next_id - 1
            }
        };
        self.sent.get_mut(&id).unwrap().floor = floor;
    }

    fn contexts(&self) -> Vec<CreateContext> {
        let name = b"DHnQ".to_vec();
        let data = vec![0; 16];
        let asked = CreateContext { name, data };
        self.manners
            .is_durable
            .then_some(asked)
            .into_iter()
            .collect()
    }

    fn write(&mut self, now_ns: u64, offset: u64, bytes: Vec<u8>) {
        self.first_write_ns.get_or_insert(now_ns);
        let write = WriteRequest {
            offset,
            file: self.file.unwrap(),
            channel: 0,
            remaining: 0,
            flags: self.manners.write_flags,
            data: &bytes,
        };
        let first_id = match self.cifs {
            Some(_) => self.cifs_write(&write),
            None => {
                self.charge = charge_of(bytes.len()).min(self.credits) as u16;
                let first_id = self.next_id;
                self.send(Command::Write, None, |message| write.emit(message));
                first_id
            }
        };
        self.sent.get_mut(&first_id).unwrap().write = Some((offset, bytes));
    }

    fn send(
        &mut self,
        command: Command,
        read: Option<(u64, u32)>,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let id = self.next_id;
        let large = self.manners.has_large_requests && self.greeting > 1;
        let is_tree = command == Command::TreeConnect;
        let header = Header {
            credit_charge: u16::from(large) * self.charge,
            credits: self.manners.asks,
            flags: if is_tree && self.manners.signs_tree {
                FLAG_SIGNED
            } else {
                0
            },
            ..Header::request(
                command,
                id,
                if self.greeting > 2 { SESSION } else { 0 },
                if self.greeting == 3 && !is_tree {
                    TREE
                } else {
                    0
                },
            )
        };
        let charge = match large {
            true => self.charge,
            false => 1,
        };
        self.charge = 1;
        self.next_id += u64::from(charge);
        self.credits -= i64::from(charge);
        assert!(self.credits >= 0, "without credit");
        let mut message = Vec::new();
        header.emit(&mut message);
        body(&mut message);
        self.output.extend_from_slice(&packet(&message));
        let floor = 0;
        let writes = self.writes;
        let sent = Sent {
            command,
            read,
            write: None,
            floor,
            writes,
            has_seen_breaks: self.breaks_seen > 0,
        };
        assert!(self.sent.insert(id, sent).is_none());
    }

    fn answer(&mut self, now_ns: u64, message: &[u8], server: &Server) {
        let header = Header::parse(message).unwrap();
        if header.message_id == MESSAGE_ID_NONE {
            return self.broken(&Break::parse(message).unwrap(), server);
        }
        if header.status == STATUS_PENDING {
            self.credits += i64::from(header.credits);
            return assert!(self.sent.contains_key(&header.message_id));
        }
        let sent = self.sent.remove(&header.message_id);
        let sent = sent.unwrap_or_else(|| panic!("nobody asked {}", header.message_id));
        assert_eq!(sent.command, header.command);
        self.credits += i64::from(header.credits);
        assert!(
            self.credits > 0 || !self.sent.is_empty(),
            "stuck without credit"
        );
        match header.command {
            Command::Create => {
                assert_eq!(header.status, STATUS_OK);
                let opened = CreateResponse::parse(message).unwrap();
                self.opened(opened.file, opened.oplock, server);
            }
            Command::Read => {
                let data = match header.status {
                    STATUS_FILE_LOCK_CONFLICT => {
                        return self.errors.push((Command::Read, header.status));
                    }
                    STATUS_OK => ReadResponse::parse(message).unwrap().data,
                    STATUS_END_OF_FILE => &[],
                    other => panic!("status {other:#x}"),
                };
                self.check(now_ns, data, &sent, server);
            }
            Command::TreeConnect => {
                assert!(matches!(header.scope, Scope::Sync { tree: TREE, .. }));
            }
            Command::QueryDirectory if header.status == STATUS_OK => self.list(),
            Command::QueryDirectory => assert_eq!(header.status, STATUS_NO_MORE_FILES),
            Command::QueryInfo => self.told(message, &sent, server),
            command => {
                if header.status != STATUS_OK {
                    ErrorResponse::parse(message).expect("a whole error");
                }
                self.done(now_ns, command, header.status, sent, server);
            }
        }
    }

    fn opened(&mut self, file: FileId, oplock: u8, server: &Server) {
        self.file = Some(file);
        assert!(
            self.asked != OPLOCK_NONE || oplock == OPLOCK_NONE,
            "never asked for"
        );
        self.oplock = oplock;
        self.floor = self.floor.max(self.seen_floor(server));
    }

    /// A write, or anything without bytes.
    fn done(&mut self, now_ns: u64, command: Command, status: u32, sent: Sent, server: &Server) {
        if status != STATUS_OK {
            self.errors.push((command, status));
        }
        let Some((offset, bytes)) = sent.write else {
            self.closed_ns = now_ns;
            return;
        };
        self.writes += 1;
        self.floor = server.version(&self.name);
        if status == STATUS_OK {
            self.written.push((now_ns, offset, bytes));
        }
    }

    fn seen_floor(&self, server: &Server) -> usize {
        let seen = server
            .broken_versions
            .get(..self.breaks_seen)
            .unwrap_or_default();
        seen.iter().copied().max().unwrap_or(0)
    }

    fn broken(&mut self, told: &Break, server: &Server) {
        let Break::Oplock(told) = *told else {
            panic!("no leases here");
        };
        if Some(told.file) != self.file {
            // Closed meanwhile.
            self.breaks_seen += usize::from(told.oplock == OPLOCK_NONE);
            return;
        }
        assert_ne!(self.asked, OPLOCK_NONE, "of an oplock never asked for");
        match told.oplock {
            OPLOCK_II => {
                self.oplock = OPLOCK_II;
                self.owed.push_back(told);
            }
            _ => {
                self.breaks_seen += 1;
                self.oplock = OPLOCK_NONE;
                self.floor = self.floor.max(self.seen_floor(server));
            }
        }
    }

    /// Whole, and as one of the versions that a direct client could have been shown.
    fn check(&mut self, now_ns: u64, data: &[u8], sent: &Sent, server: &Server) {
        let (offset, length) = sent.read.unwrap();
        let part = |content: &Vec<u8>| {
            let from = (offset as usize).min(content.len());
            let to = (from + length as usize).min(content.len());
            content[from..to].to_vec()
        };
        if let Some((_, first, end)) = server.terms.locked
            && sent.has_seen_breaks
        {
            let to = offset as usize + data.len();
            assert!(
                to <= first || end <= offset as usize,
                "bytes that are locked"
            );
        }
        let versions = &server.files[&self.name];
        // What it wrote before is done.
        let own = server.own_versions.iter().take(sent.writes);
        let own = own.skip(self.writes_before);
        let own = own.map(|version| version.expect("read before it was written"));
        let floor = own.max().unwrap_or(0).max(sent.floor);
        let is_full = data.len() == server.terms.read_bytes_max;
        let is_true = versions.iter().skip(floor).any(|content| {
            let part = part(content);
            part == data || (is_full && part.starts_with(data))
        });
        assert!(
            is_true,
            "{} bytes at {offset} are of no version from {} of {}",
            data.len(),
            sent.floor,
            versions.len()
        );
        self.last_read_ns = now_ns;
        self.read_bytes += data.len() as u64;
        if data.len() < length as usize {
            self.reading = None;
        }
    }
}

/// Credits of a request that moves so many bytes (MS-SMB2 3.1.5.2).
fn charge_of(bytes: usize) -> i64 {
    bytes.div_ceil(65_536).max(1) as i64
}

/// NTLM's last message, of nobody, in something that stands for SPNEGO.
fn nobody() -> Vec<u8> {
    let mut token = vec![0xa1, 0x50];
    token.extend_from_slice(b"NTLMSSP\0\x03\0\0\0");
    token.extend([0; 60]);
    token
}
