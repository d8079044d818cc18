//! A file server that speaks SMB2 and is strict: who uses a message id it has not granted ends the test.

use std::collections::{BTreeMap, BTreeSet};

use farhaul_optimise::smb::netbios::{PREFIX_BYTES, Packets, Piece, packet};
use farhaul_optimise::smb::smb2::breaks::{Break, OplockBreak};
use farhaul_optimise::smb::smb2::connect::{
    CAPABILITY_LARGE_MTU, DIALECT_202, NegotiateResponse, SHARE_DISK, SessionSetupResponse,
    TreeConnectResponse,
};
use farhaul_optimise::smb::smb2::header::{
    Command, FLAG_RESPONSE, FLAG_SIGNED, Header, MESSAGE_ID_NONE, messages,
};
use farhaul_optimise::smb::smb2::open::{
    CloseRequest, CloseResponse, CreateRequest, CreateResponse, FileFacts, FileId, OPLOCK_BATCH,
    OPLOCK_EXCLUSIVE, OPLOCK_II, OPLOCK_NONE, SHARE_WRITE,
};
use farhaul_optimise::smb::smb2::transfer::{
    ErrorResponse, ReadRequest, ReadResponse, STATUS_END_OF_FILE, STATUS_OK, WriteRequest,
    WriteResponse, emit_empty,
};

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
    /// Answers to SESSION_SETUP are signed, as Samba does.
    pub signs_setup: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            dialect: 0x0210,
            session_flags: 0,
            security_mode: 1,
            grants_oplocks: true,
            credits_max: 512,
            signs_setup: true,
        }
    }
}

#[derive(Debug)]
struct Open {
    name: String,
    oplock: u8,
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

#[derive(Debug)]
pub struct Server {
    pub terms: Terms,
    /// Every version of every file.
    pub files: BTreeMap<String, Vec<Vec<u8>>>,
    opens: BTreeMap<u64, Open>,
    next_open: u64,
    packets: Packets,
    granted: u64,
    used: BTreeSet<u64>,
    pub used_ids: u64,
    pub reads: u64,
    /// Versions that clients learn of by breaks to nothing, in the order of the breaks.
    pub broken_versions: Vec<usize>,
    output: Vec<u8>,
}

impl Server {
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            files: BTreeMap::new(),
            opens: BTreeMap::new(),
            next_open: 1,
            packets: Packets::default(),
            granted: 1,
            used: BTreeSet::new(),
            used_ids: 0,
            reads: 0,
            broken_versions: Vec::new(),
            output: Vec::new(),
        }
    }

    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    pub fn version(&self, name: &str) -> usize {
        self.files[name].len() - 1
    }

    pub fn handle(&mut self, bytes: &[u8]) {
        self.packets.push(bytes);
        let mut rest = Vec::new();
        while let Some(piece) = self
            .packets
            .poll()
            .expect("a client that frames its messages")
        {
            match piece {
                Piece::Message(whole) => self.request(&whole[PREFIX_BYTES..]),
                Piece::Beginning(head) => rest.extend_from_slice(&head),
                Piece::Rest(more) => rest.extend_from_slice(&more),
                Piece::Service(_) => (),
            }
        }
        assert!(rest.is_empty(), "this server reads no long packets");
    }

    fn request(&mut self, whole: &[u8]) {
        for (start, end) in messages(whole).expect("messages") {
            let message = &whole[start..end];
            let header = Header::parse(message).expect("a header");
            if header.command == Command::Cancel {
                continue;
            }
            let charge = header.ids_taken();
            for id in header.message_id..header.message_id + charge {
                assert!(
                    id < self.granted,
                    "id {id} was never granted ({})",
                    self.granted
                );
                assert!(self.used.insert(id), "id {id} is used twice");
            }
            self.used_ids += charge;
            let held = self.granted - self.used_ids;
            let granted =
                u64::from(header.credits).min(self.terms.credits_max.saturating_sub(held));
            let granted = granted.max(u64::from(held == 0));
            self.granted += granted;
            self.answer(&header, message, granted as u16);
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
                share: SHARE_DISK,
                flags: 0,
                capabilities: 0,
                access: 0x1f_01ff,
            }
            .emit(&mut body),
            Command::Create => self
                .open(&CreateRequest::parse(message).unwrap())
                .emit(&mut body),
            Command::Close => {
                let close = CloseRequest::parse(message).unwrap();
                let open = self
                    .opens
                    .remove(&close.file.volatile)
                    .expect("an open file");
                open.break_due
                    .into_iter()
                    .flatten()
                    .for_each(|write| self.write(&write));
                let facts = FileFacts::default();
                CloseResponse { flags: 0, facts }.emit(&mut body);
            }
            Command::Read => status = self.read(&ReadRequest::parse(message).unwrap(), &mut body),
            Command::Write => self.write_own(&WriteRequest::parse(message).unwrap(), &mut body),
            Command::OplockBreak => {
                let answer = self.acknowledged(&Break::parse(message).unwrap());
                answer.emit(&mut body);
            }
            Command::Echo | Command::Flush => emit_empty(&mut body),
            other => panic!("{other:?} is not modelled"),
        }
        let mut answer = Vec::new();
        let session = match header.command {
            Command::SessionSetup => SESSION,
            _ => header.session,
        };
        let scope = match header.command {
            Command::TreeConnect => farhaul_optimise::smb::smb2::header::Scope::Sync {
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

    fn negotiated(&self) -> NegotiateResponse {
        let is_large = self.terms.dialect > DIALECT_202;
        NegotiateResponse {
            security_mode: self.terms.security_mode,
            dialect: self.terms.dialect,
            server: [7; 16],
            capabilities: if is_large { CAPABILITY_LARGE_MTU } else { 0 },
            transact_bytes_max: 1 << 20,
            read_bytes_max: if is_large { 1 << 20 } else { 65_536 },
            write_bytes_max: 1 << 20,
            time: 1,
            started: 0,
            token: vec![1, 2, 3],
            contexts: Vec::new(),
        }
    }

    fn open(&mut self, create: &CreateRequest) -> CreateResponse {
        let name = String::from_utf8(create.name.clone()).unwrap();
        let id = self.next_open;
        self.next_open += 1;
        let is_alone = !self.opens.values().any(|open| open.name == name);
        let oplock = match (self.terms.grants_oplocks, create.oplock) {
            (true, OPLOCK_BATCH | OPLOCK_EXCLUSIVE) if !is_alone => OPLOCK_II,
            (true, asked) => asked,
            (false, _) => OPLOCK_NONE,
        };
        let open = Open {
            name: name.clone(),
            oplock,
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
            contexts: Vec::new(),
        }
    }

    fn read(&mut self, read: &ReadRequest, body: &mut Vec<u8>) -> u32 {
        self.reads += 1;
        let Some(open) = self.opens.get(&read.file.volatile) else {
            ErrorResponse::default().emit(body);
            return 0xc000_0128; // STATUS_FILE_CLOSED
        };
        let content = self.files[&open.name].last().unwrap();
        let from = (read.offset as usize).min(content.len());
        let to = (from + read.length as usize).min(content.len());
        if from == to {
            ErrorResponse::default().emit(body);
            return STATUS_END_OF_FILE;
        }
        let data = &content[from..to];
        ReadResponse { remaining: 0, data }.emit(body);
        STATUS_OK
    }

    fn write_own(&mut self, write: &WriteRequest<'_>, body: &mut Vec<u8>) {
        let id = write.file.volatile;
        let name = self.opens[&id].name.clone();
        let change = OtherWrite {
            name,
            offset: write.offset as usize,
            bytes: write.data.to_vec(),
        };
        self.apply(&change, Some(id));
        let count = write.data.len() as u32;
        WriteResponse {
            count,
            remaining: 0,
        }
        .emit(body);
    }

    /// Somebody else wants to write: whoever may keep the file is told first.
    pub fn write(&mut self, write: &OtherWrite) {
        let mut others = self.opens.values().filter(|open| open.name == write.name);
        if others.any(|open| open.denies_writers) {
            return;
        }
        let mut broken = None;
        for (id, open) in self
            .opens
            .iter_mut()
            .filter(|(_, open)| open.name == write.name)
        {
            if let Some(due) = &mut open.break_due {
                due.push(write.clone());
                return;
            }
            if [OPLOCK_BATCH, OPLOCK_EXCLUSIVE].contains(&open.oplock) {
                open.oplock = OPLOCK_II;
                open.break_due = Some(vec![write.clone()]);
                broken = Some(*id);
            }
        }
        match broken {
            Some(id) => self.tell(id, OPLOCK_II),
            None => self.apply(write, None),
        }
    }

    fn apply(&mut self, write: &OtherWrite, by: Option<u64>) {
        let versions = self.files.get_mut(&write.name).unwrap();
        let mut content = versions.last().unwrap().clone();
        let end = write.offset + write.bytes.len();
        content.resize(content.len().max(end), 0);
        content[write.offset..end].copy_from_slice(&write.bytes);
        versions.push(content);
        let version = versions.len() - 1;
        let keeps = |(id, open): &(&u64, &mut Open)| {
            open.name == write.name && open.oplock == OPLOCK_II && Some(**id) != by
        };
        let mut told = Vec::new();
        for (id, open) in self.opens.iter_mut().filter(keeps) {
            open.oplock = OPLOCK_NONE;
            told.push(*id);
        }
        for id in told {
            self.broken_versions.push(version);
            self.tell(id, OPLOCK_NONE);
        }
    }

    fn tell(&mut self, id: u64, oplock: u8) {
        let mut message = Vec::new();
        Header {
            flags: FLAG_RESPONSE,
            ..Header::request(Command::OplockBreak, MESSAGE_ID_NONE, 0, 0)
        }
        .emit(&mut message);
        let file = file_id(id);
        Break::Oplock(OplockBreak { oplock, file }).emit(&mut message);
        self.output.extend_from_slice(&packet(&message));
    }

    fn acknowledged(&mut self, acknowledged: &Break) -> Break {
        let Break::Oplock(oplock) = acknowledged else {
            panic!("no leases here");
        };
        let due = self.opens.get_mut(&oplock.file.volatile).and_then(|open| {
            open.oplock = open.oplock.min(oplock.oplock);
            open.break_due.take()
        });
        due.into_iter()
            .flatten()
            .for_each(|write| self.write(&write));
        *acknowledged
    }
}

fn file_id(id: u64) -> FileId {
    FileId {
        persistent: id + 1000,
        volatile: id,
    }
}
