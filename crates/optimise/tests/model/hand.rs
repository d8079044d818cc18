//! Two halves whose link is carried by hand: what is on its way stays there until it is wanted.

use bytes::Bytes;
use farhaul_optimise::smb::netbios::packet;
use farhaul_optimise::smb::smb2::connect::{
    NegotiateRequest, SessionSetupRequest, TreeConnectRequest,
};
use farhaul_optimise::smb::smb2::header::{Command, Header};
use farhaul_optimise::smb::smb2::open::{
    CloseRequest, CreateContext, CreateRequest, DISPOSITION_OPEN, FileId, Lease, OPLOCK_LEASE,
};
use farhaul_optimise::smb::smb2::transfer::{ReadRequest, WriteRequest};
use farhaul_optimise::{Half, Output, Reason, Settings};

use super::server::{OtherWrite, SESSION, Server, TREE, Terms};

pub const NEAR: usize = 0;
pub const FAR: usize = 1;

pub struct Hand {
    pub halves: [Half; 2],
    pub server: Server,
    pub now_ns: u64,
    /// For each half.
    on_way: [Vec<Bytes>; 2],
    /// And whether the other half's end follows.
    end_on_way: [bool; 2],
    /// The server was told that the client sends no more.
    pub has_told_end: bool,
    /// What the client was given.
    pub answers: Vec<u8>,
    pub cut: Option<Reason>,
    next_id: u64,
}

impl Hand {
    /// A client that is connected to a share with the file `f`, in SMB 2.1.
    pub fn new(settings: Settings, content: Vec<u8>) -> Self {
        Self::with(Half::near(settings), settings, content)
    }

    /// The same with this near half.
    pub fn with(near: Half, settings: Settings, content: Vec<u8>) -> Self {
        let mut server = Server::new(Terms::default());
        server.files.insert("f".to_owned(), vec![content]);
        let mut hand = Self {
            halves: [near, Half::far(settings)],
            server,
            now_ns: 0,
            on_way: [Vec::new(), Vec::new()],
            end_on_way: [false; 2],
            has_told_end: false,
            answers: Vec::new(),
            cut: None,
            next_id: 0,
        };
        let negotiate = NegotiateRequest {
            security_mode: 1,
            capabilities: 0,
            client: [3; 16],
            dialects: vec![0x0210],
            contexts: Vec::new(),
        };
        hand.ask(Command::Negotiate, |message| negotiate.emit(0, message));
        hand.carry_all();
        let setup = SessionSetupRequest {
            flags: 0,
            security_mode: 1,
            capabilities: 0,
            channel: 0,
            previous: 0,
            token: vec![9; 40],
        };
        hand.ask(Command::SessionSetup, |message| setup.emit(message));
        hand.carry_all();
        hand.connect_tree();
        hand.carry_all();
        hand
    }

    pub fn connect_tree(&mut self) {
        let path = b"\\\\s\\files".to_vec();
        let tree = TreeConnectRequest { flags: 0, path };
        self.ask(Command::TreeConnect, |message| tree.emit(message));
    }

    /// The file `f`, to read and to write.
    pub fn open(&mut self, oplock: u8) {
        self.open_with(oplock, Vec::new());
    }

    /// The same under a lease that other opens of the client's may have, too.
    pub fn open_leased(&mut self, key: [u8; 16], state: u32) {
        let lease = Lease {
            key,
            state,
            flags: 0,
            parent: None,
        };
        self.open_with(OPLOCK_LEASE, vec![lease.context()]);
    }

    fn open_with(&mut self, oplock: u8, contexts: Vec<CreateContext>) {
        let create = CreateRequest {
            oplock,
            impersonation: 2,
            access: 0x12_019f,
            attributes: 0,
            share: 7,
            disposition: DISPOSITION_OPEN,
            options: 0,
            name: b"f".to_vec(),
            contexts,
        };
        self.ask(Command::Create, |message| create.emit(0, message));
    }

    pub fn read(&mut self, file: FileId, offset: u64, length: u32) {
        let read = ReadRequest {
            flags: 0,
            length,
            offset,
            file,
            length_min: 0,
            channel: 0,
            remaining: 0,
        };
        self.ask(Command::Read, |message| read.emit(message));
    }

    pub fn close(&mut self, file: FileId) {
        let close = CloseRequest { flags: 0, file };
        self.ask(Command::Close, |message| close.emit(message));
    }

    /// Whether the near half has answered it at once.
    pub fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> bool {
        let write = written(file, offset, data);
        let before = self.answers.len();
        self.ask(Command::Write, |message| write.emit(message));
        self.answers.len() > before
    }

    /// Somebody else wants to write.
    pub fn other_writes(&mut self, offset: usize, bytes: Vec<u8>) {
        let name = "f".to_owned();
        self.server.now_ns = self.now_ns;
        self.server.write(&OtherWrite {
            name,
            offset,
            bytes,
        });
        self.hear_server();
    }

    /// What is on its way to this half arrives.
    pub fn carry(&mut self, half: usize) {
        for bytes in std::mem::take(&mut self.on_way[half]) {
            self.halves[half].handle_peer(self.now_ns, bytes);
            self.drain(half);
        }
        if std::mem::take(&mut self.end_on_way[half]) {
            self.halves[half].handle_peer_end();
            self.drain(half);
        }
    }

    /// Until nothing is on its way.
    pub fn carry_all(&mut self) {
        while !self.on_way.iter().all(Vec::is_empty) || self.end_on_way.contains(&true) {
            self.carry(FAR);
            self.carry(NEAR);
        }
    }

    /// So much time passes, and the far half is told when it wanted to be.
    pub fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        self.halves[FAR].handle_timeout(self.now_ns);
        self.drain(FAR);
    }

    /// So much time passes at the server.
    pub fn server_goes_on(&mut self, ns: u64) {
        self.now_ns += ns;
        self.server.handle_time(self.now_ns);
        self.hear_server();
    }

    /// The application at this half sends no more.
    pub fn end(&mut self, half: usize) {
        self.halves[half].handle_local_end();
        self.drain(half);
    }

    /// The client ends in the middle of a write.
    pub fn end_in_write(&mut self, file: FileId, offset: u64, data: &[u8]) {
        let whole = self.message(Command::Write, |message| {
            written(file, offset, data).emit(message);
        });
        let part = Bytes::copy_from_slice(&whole[..whole.len() - 1]);
        self.halves[NEAR].handle_local(self.now_ns, part);
        self.drain(NEAR);
        self.end(NEAR);
    }

    /// What both halves are told of the link.
    pub fn hearing(&mut self, is_heard: bool, is_sure: bool) {
        for half in [NEAR, FAR] {
            self.halves[half].handle_hearing(self.now_ns, is_heard, is_sure);
            self.drain(half);
        }
    }

    fn ask(&mut self, command: Command, body: impl FnOnce(&mut Vec<u8>)) {
        let asked = self.message(command, body);
        self.halves[NEAR].handle_local(self.now_ns, asked);
        self.drain(NEAR);
    }

    fn message(&mut self, command: Command, body: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let is_greeting = [Command::Negotiate, Command::SessionSetup].contains(&command);
        let session = if is_greeting { 0 } else { SESSION };
        let is_tree = is_greeting || command == Command::TreeConnect;
        let mut message = Vec::new();
        Header {
            credit_charge: 1,
            credits: 32,
            ..Header::request(
                command,
                self.next_id,
                session,
                if is_tree { 0 } else { TREE },
            )
        }
        .emit(&mut message);
        body(&mut message);
        self.next_id += 1;
        packet(&message)
    }

    fn hear_server(&mut self) {
        let said = self.server.take_output();
        if !said.is_empty() {
            self.halves[FAR].handle_local(self.now_ns, said.into());
            self.drain(FAR);
        }
    }

    fn drain(&mut self, half: usize) {
        loop {
            match self.halves[half].poll_output() {
                Output::Local(bytes) if half == NEAR => self.answers.extend_from_slice(&bytes),
                Output::Local(bytes) => {
                    self.server.handle(self.now_ns, &bytes);
                    self.hear_server();
                }
                Output::Peer(bytes) => self.on_way[1 - half].push(bytes),
                Output::Cut(reason) => self.cut = Some(reason),
                Output::LocalEnd => self.has_told_end |= half == FAR,
                Output::PeerEnd => self.end_on_way[1 - half] = true,
                Output::Event(_) => (),
                Output::Timeout(_) | Output::Idle => return,
            }
        }
    }
}

fn written(file: FileId, offset: u64, data: &[u8]) -> WriteRequest<'_> {
    WriteRequest {
        offset,
        file,
        channel: 0,
        remaining: 0,
        flags: 0,
        data,
    }
}

/// The first file that such a server opens.
pub fn first_file() -> FileId {
    nth_file(1)
}

/// And those behind it.
pub fn nth_file(nth: u64) -> FileId {
    FileId {
        persistent: 1000 + nth,
        volatile: nth,
    }
}
