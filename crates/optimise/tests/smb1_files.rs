//! SMB1 said word by word, by a client and a server that do what those of the model do not: what becomes of the oplock of a file
//! that is opened while it is taken back, or
//! closed otherwise than by CLOSE.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use farhaul_optimise::smb::netbios::{PREFIX_BYTES, Packets, Piece, packet};
use farhaul_optimise::smb::smb1::connect::{
    CAPABILITY_LARGE_FILES, CAPABILITY_LARGE_READ, CAPABILITY_LARGE_WRITE, CAPABILITY_NT_STATUS,
    NT_LM, NegotiateRequest, NegotiateResponse, SessionSetupRequest,
};
use farhaul_optimise::smb::smb1::header::{
    CLOSE, CLOSE_AND_TREE_DISC, FLAG2_NT_STATUS, HEADER_BYTES, Header, LOCKING_ANDX, LOGOFF_ANDX,
    MULTIPLEX_NONE, NEGOTIATE, NT_CREATE_ANDX, NT_TRANSACT, OPEN_ANDX, PROCESS_EXIT, READ_ANDX,
    SESSION_SETUP_ANDX, TRANSACTION2, TREE_CONNECT_ANDX, TREE_DISCONNECT, WRITE_ANDX, chain_end,
    emit_block, first_block,
};
use farhaul_optimise::smb::smb1::open::{
    ASKS_BATCH, ASKS_OPLOCK, CloseRequest, LEFT_II, LEFT_NONE, LockingRequest, NtCreateRequest,
    NtCreateResponse, OPLOCK_BATCH, OPLOCK_EXCLUSIVE, OPLOCK_NONE,
};
use farhaul_optimise::smb::smb1::transfer::{ReadRequest, emit_read_response, emit_write_request};
use farhaul_optimise::smb::smb2::open::DISPOSITION_OPEN;
use farhaul_optimise::{Half, Output, Reason, Settings};

const NEAR: usize = 0;
const FAR: usize = 1;
const MS: u64 = 1_000_000;
const CAPABILITIES: u32 =
    CAPABILITY_LARGE_FILES | CAPABILITY_LARGE_READ | CAPABILITY_LARGE_WRITE | CAPABILITY_NT_STATUS;
const SHARE_ALL: u32 = 7;
const FILE_BYTES: u64 = 4_000_000;
const BLOCK: u32 = 61_440;
/// The client's own oplock, and none: one is borrowed.
const OWN: u32 = ASKS_OPLOCK | ASKS_BATCH;
const NONE: u32 = 0;
const WRITE_AND_CLOSE: u8 = 0x2c;
const OPEN: u8 = 0x02;
const DISK_FULL: u32 = 0xc000_007f;
const INVALID_HANDLE: u32 = 0xc000_0008;
const NETWORK_SESSION_EXPIRED: u32 = 0xc000_035c;

/// Client and server say what the test lets them say; between the halves everything arrives at once.
struct Wire {
    halves: [Half; 2],
    /// What each side has been told and has not looked at.
    heard: [Packets; 2],
    cut: Option<Reason>,
    /// Of the next request.
    asks: Header,
}

impl Wire {
    /// With a client that is connected to a share.
    fn new() -> Self {
        let settings = Settings::of_link(6_480_000, 200 * MS);
        let mut wire = Self {
            halves: [Half::near(settings), Half::far(settings)],
            heard: [Packets::default(), Packets::of_server()],
            cut: None,
            asks: Header {
                command: 0,
                status: 0,
                flags: 0x18,
                flags2: FLAG2_NT_STATUS,
                process_high: 0,
                signature: [0; 8],
                tree: 7,
                process: 0xfeff,
                user: 100,
                multiplex: 0,
            },
        };
        wire.connect();
        wire
    }

    fn connect(&mut self) {
        let dialects = vec![NT_LM.to_vec()];
        let negotiate = self.ask(NEGOTIATE, |it| NegotiateRequest { dialects }.emit(it));
        let agreed = NegotiateResponse {
            dialect: 0,
            security_mode: 1,
            requests_max: 50,
            buffer_bytes_max: 16_644,
            capabilities: CAPABILITIES,
            security: vec![0; 8],
        };
        self.answer(&negotiate, |it| agreed.emit(it));
        let setup = SessionSetupRequest {
            buffer_bytes_max: 4356,
            capabilities: CAPABILITIES,
            security: vec![9; 40],
        };
        let setup = self.ask(SESSION_SETUP_ANDX, |it| setup.emit(it));
        let words = [chain_end(), vec![0, 0]].concat();
        self.answer(&setup, |it| emit_block(&words, &[], it));
        let tree = self.ask(TREE_CONNECT_ANDX, |it| {
            emit_block(&words, b"\\\\s\\d\0", it)
        });
        self.answer(&tree, |it| emit_block(&words, b"A:\0", it));
        assert_eq!(self.told(NEAR).len(), 3);
    }

    /// The client asks, by the next of its ids.
    fn ask(&mut self, command: u8, body: impl FnOnce(&mut Vec<u8>)) -> Header {
        self.asks.multiplex += 1;
        self.asks.command = command;
        let asked = self.asks;
        let mut message = Vec::new();
        asked.emit(&mut message);
        body(&mut message);
        self.halves[NEAR].handle_local(0, packet(&message));
        self.carry();
        asked
    }

    fn answer(&mut self, asked: &Header, body: impl FnOnce(&mut Vec<u8>)) {
        self.answer_with(asked, 0, body);
    }

    fn answer_with(&mut self, asked: &Header, status: u32, body: impl FnOnce(&mut Vec<u8>)) {
        let mut message = Vec::new();
        asked.response(status).emit(&mut message);
        body(&mut message);
        self.say(&message);
    }

    fn say(&mut self, message: &[u8]) {
        self.halves[FAR].handle_local(0, packet(message));
        self.carry();
    }

    /// The server wants the oplock of a file back.
    fn break_to(&mut self, file: u16, left: u8) {
        let mut message = Vec::new();
        Header {
            flags: 0,
            multiplex: MULTIPLEX_NONE,
            process: 0xffff,
            ..self.asks.request(LOCKING_ANDX, MULTIPLEX_NONE)
        }
        .emit(&mut message);
        LockingRequest::release(file, left).emit(&mut message);
        self.say(&message);
    }

    fn carry(&mut self) {
        let mut is_moving = true;
        while is_moving {
            is_moving = self.drain(NEAR) | self.drain(FAR);
        }
    }

    fn drain(&mut self, half: usize) -> bool {
        let mut has_moved = false;
        loop {
            match self.halves[half].poll_output() {
                Output::Local(bytes) => self.heard[half].push(&bytes),
                Output::Peer(bytes) => {
                    self.halves[1 - half].handle_peer(0, bytes);
                    has_moved = true;
                }
                Output::Cut(reason) => self.cut = Some(reason),
                Output::Timeout(_) | Output::Idle => return has_moved,
                _ => (),
            }
        }
    }

    /// What has been said to the client (`NEAR`) or the server since this was last asked.
    fn told(&mut self, half: usize) -> Vec<(Header, Bytes)> {
        assert_eq!(self.cut, None);
        let mut told = Vec::new();
        while let Some(piece) = self.heard[half].poll().unwrap() {
            let Piece::Message(whole) = piece else {
                panic!("{piece:?}");
            };
            let message = whole.slice(PREFIX_BYTES..);
            told.push((Header::parse(&message).unwrap(), message));
        }
        told
    }

    /// Breaks that the client has been told, by their files, and how many answers it has had.
    fn client_heard(&mut self) -> (Vec<u16>, usize) {
        let told = self.told(NEAR);
        let breaks = told.iter().filter(|(header, _)| !header.is_response());
        let breaks: Vec<u16> = breaks.map(|(_, message)| locking(message).file).collect();
        let answers = told.len() - breaks.len();
        (breaks, answers)
    }

    /// Files whose oplocks the server has been given back, and reads that it has been asked.
    fn server_heard(&mut self) -> (Vec<u16>, usize) {
        let told = self.told(FAR);
        let of = |command| {
            let told = told.iter();
            told.filter(move |(header, _)| header.command == command)
        };
        let given_back = of(LOCKING_ANDX).map(|(_, message)| locking(message).file);
        (given_back.collect(), of(READ_ANDX).count())
    }

    fn ask_open(&mut self, flags: u32) -> Header {
        self.ask(NT_CREATE_ANDX, |it| create(flags).emit(it))
    }

    fn answer_open(&mut self, asked: &Header, file: u16, oplock: u8) {
        self.answer(asked, |it| opened(file, oplock).emit(it));
    }

    /// The client asks for what closes a file.
    fn ask_end(&mut self, end: End, file: u16) -> Header {
        match end {
            End::Close => self.ask(CLOSE, |it| close(file).emit(it)),
            End::WriteAndClose => {
                let words = [&file.to_le_bytes()[..], &[0; 10]].concat();
                self.ask(WRITE_AND_CLOSE, |it| emit_block(&words, &[0], it))
            }
            End::ReadAndClose => self.ask(READ_ANDX, |it| {
                chain(it, |it| read(file).emit(it), CLOSE);
                close(file).emit(it);
            }),
            End::Leave(command) => {
                let words = if command == LOGOFF_ANDX {
                    chain_end()
                } else {
                    Vec::new()
                };
                self.ask(command, |it| emit_block(&words, &[], it))
            }
        }
    }

    fn answer_end(&mut self, end: End, asked: &Header) {
        self.answer(asked, |it| match end {
            End::ReadAndClose => {
                chain(it, |it| emit_read_response(&[5; 10], it), CLOSE);
                emit_block(&[], &[], it);
            }
            End::WriteAndClose => emit_block(&[0, 0], &[], it),
            End::Leave(LOGOFF_ANDX) => emit_block(&chain_end(), &[], it),
            End::Close | End::Leave(_) => emit_block(&[], &[], it),
        });
    }

    /// The client opens a file otherwise, with an oplock of its own, and has this number.
    fn open_by(&mut self, command: u8, file: u16) {
        let file = file.to_le_bytes();
        let (mut asks, mut says, bytes) = match command {
            OPEN_ANDX => (vec![0; 30], vec![0; 30], Vec::new()),
            OPEN => (vec![0; 4], vec![0; 14], Vec::new()),
            // Parameters lie behind the words, their length, and a byte.
            TRANSACTION2 => (vec![0; 30], vec![0; 20], [&[0], &file[..]].concat()),
            _ => (vec![0; 38], vec![0; 36], [&[0, 1, 0], &file[..]].concat()),
        };
        let mut put = |at: usize, bytes: &[u8]| says[at..at + bytes.len()].copy_from_slice(bytes);
        match command {
            OPEN_ANDX => put(4, &file),
            OPEN => put(0, &file),
            TRANSACTION2 => {
                put(6, &[2]);
                put(8, &[HEADER_BYTES as u8 + 1 + 20 + 2 + 1]);
            }
            _ => {
                put(11, &[4]);
                put(15, &[HEADER_BYTES as u8 + 1 + 36 + 2 + 1]);
                // NT_TRANSACT_CREATE.
                asks[36] = 1;
            }
        }
        if command == OPEN_ANDX {
            asks[0] = 0xff;
            says[0] = 0xff;
        }
        let asked = self.ask(command, |it| emit_block(&asks, &[], it));
        self.answer(&asked, |it| emit_block(&says, &bytes, it));
        self.told(NEAR);
        self.told(FAR);
    }

    /// A write that the near half has answered, and the server refuses.
    fn fail_write(&mut self, file: u16) {
        self.ask(WRITE_ANDX, |it| {
            emit_write_request(file, 0, 0, &[1; 100], it)
        });
        assert_eq!(self.client_heard().1, 1, "not early");
        let (asked, _) = self.told(FAR).pop().unwrap();
        self.answer_with(&asked, DISK_FULL, |it| emit_block(&[], &[], it));
    }

    /// An open that nothing comes in between of.
    fn open(&mut self, flags: u32, file: u16) {
        let asked = self.ask_open(flags);
        let oplock = if flags == OWN {
            OPLOCK_BATCH
        } else {
            OPLOCK_EXCLUSIVE
        };
        self.answer_open(&asked, file, oplock);
        let told = self.told(NEAR);
        let seen = first_block(&told[0].1).and_then(|it| NtCreateResponse::parse(&it));
        let seen = seen.unwrap().oplock;
        assert_eq!(
            seen,
            if flags == OWN {
                OPLOCK_BATCH
            } else {
                OPLOCK_NONE
            }
        );
        self.told(FAR);
    }

    /// The client reads the beginning of a file, and whether the server is asked for more than that.
    fn is_read_ahead(&mut self, file: u16) -> bool {
        self.told(FAR);
        let asked = self.ask(READ_ANDX, |it| read(file).emit(it));
        let (_, reads) = self.server_heard();
        self.answer(&asked, |it| emit_read_response(&[5; BLOCK as usize], it));
        let (_, more) = self.server_heard();
        self.told(NEAR);
        reads + more > 1
    }
}

fn create(flags: u32) -> NtCreateRequest {
    NtCreateRequest {
        flags,
        access: 0x12_019f,
        share: SHARE_ALL,
        disposition: DISPOSITION_OPEN,
        options: 0,
        name: b"f\0".to_vec(),
    }
}

fn opened(file: u16, oplock: u8) -> NtCreateResponse {
    NtCreateResponse {
        oplock,
        file,
        size_bytes: FILE_BYTES,
        resource: 0,
        is_directory: false,
    }
}

fn locking(message: &[u8]) -> LockingRequest {
    LockingRequest::parse(&first_block(message).unwrap()).unwrap()
}

/// What closes a file.
#[derive(Debug, Clone, Copy)]
enum End {
    Close,
    WriteAndClose,
    ReadAndClose,
    /// A share, a session, a process.
    Leave(u8),
}

const ENDS: [End; 7] = [
    End::Close,
    End::WriteAndClose,
    End::ReadAndClose,
    End::Leave(TREE_DISCONNECT),
    End::Leave(CLOSE_AND_TREE_DISC),
    End::Leave(LOGOFF_ANDX),
    End::Leave(PROCESS_EXIT),
];

fn close(file: u16) -> CloseRequest {
    CloseRequest { file, modified: 0 }
}

fn read(file: u16) -> ReadRequest {
    ReadRequest {
        file,
        offset: 0,
        length: BLOCK,
        length_min: 0,
        remaining: 0,
    }
}

/// The first command of a message, and that another is behind it.
fn chain(message: &mut Vec<u8>, first: impl FnOnce(&mut Vec<u8>), next: u8) {
    first(message);
    let at = message.len() as u16;
    message[HEADER_BYTES + 1] = next;
    message[HEADER_BYTES + 3..HEADER_BYTES + 5].copy_from_slice(&at.to_le_bytes());
}

/// A server with several threads may tell of a break before it has answered the open. Of one that was borrowed the client
/// hears nothing.
#[test]
fn a_break_that_overtakes_the_answer_counts() {
    for (flags, left, is_ahead) in [
        (NONE, LEFT_NONE, false),
        (NONE, LEFT_II, false),
        (OWN, LEFT_NONE, false),
        (OWN, LEFT_II, true),
    ] {
        let mut wire = Wire::new();
        let is_own = flags == OWN;
        let asked = wire.ask_open(flags);
        wire.break_to(5, left);
        let told = if is_own { vec![5] } else { Vec::new() };
        assert_eq!(wire.client_heard(), (told, 0), "{flags} {left}");
        wire.told(FAR);
        wire.answer_open(
            &asked,
            5,
            if is_own {
                OPLOCK_BATCH
            } else {
                OPLOCK_EXCLUSIVE
            },
        );
        let (given_back, _) = wire.server_heard();
        assert_eq!(given_back.is_empty(), is_own, "{flags} {left}");
        assert_eq!(wire.client_heard(), (Vec::new(), 1));
        assert_eq!(wire.is_read_ahead(5), is_ahead, "{flags} {left}");
        // The next one is as any other, unless all that the server takes is asked of the first.
        wire.open(flags, 6);
        assert!(is_ahead || wire.is_read_ahead(6));
    }
}

/// Which of two opens a break is of, of which only one borrows, tells the answer.
#[test]
fn a_break_waits_for_the_answer_that_tells_whose_it_is() {
    let mut wire = Wire::new();
    let [own, borrowing] = [OWN, NONE].map(|flags| wire.ask_open(flags));
    wire.break_to(5, LEFT_II);
    wire.break_to(6, LEFT_II);
    assert_eq!(wire.client_heard(), (Vec::new(), 0));
    wire.told(FAR);
    // Behind the answer, in the order in which it can be understood.
    wire.answer_open(&own, 5, OPLOCK_BATCH);
    let told = wire.told(NEAR);
    let is_answer: Vec<bool> = told
        .iter()
        .map(|(header, _)| header.is_response())
        .collect();
    assert_eq!(is_answer, [true, false]);
    assert_eq!(locking(&told[1].1).file, 5);
    assert_eq!(wire.server_heard(), (Vec::new(), 0));
    wire.answer_open(&borrowing, 6, OPLOCK_EXCLUSIVE);
    assert_eq!(wire.client_heard(), (Vec::new(), 1));
    assert_eq!(wire.server_heard(), (vec![6], 0));
}

/// A break of what nothing that borrows turns out to be is the client's to hear.
#[test]
fn a_break_of_nothing_that_is_borrowed_is_told() {
    let mut wire = Wire::new();
    wire.open(OWN, 4);
    let asked = wire.ask_open(NONE);
    // Of a file that is known it is told at once: the open may wait for it.
    wire.break_to(4, LEFT_NONE);
    assert_eq!(wire.client_heard(), (vec![4], 0));
    wire.break_to(9, LEFT_NONE);
    assert_eq!(wire.client_heard(), (Vec::new(), 0));
    wire.answer_open(&asked, 5, OPLOCK_EXCLUSIVE);
    assert_eq!(wire.client_heard(), (vec![9], 1));
    assert!(wire.is_read_ahead(5));
}

/// However many a server tells of: what is opened then is trusted with nothing.
#[test]
fn no_more_breaks_are_kept_than_there_is_room_for() {
    let mut wire = Wire::new();
    let asked = wire.ask_open(NONE);
    (1000..1100).for_each(|file| wire.break_to(file, LEFT_NONE));
    let (told, _) = wire.client_heard();
    assert!((1..100).contains(&told.len()), "{}", told.len());
    wire.told(FAR);
    wire.answer_open(&asked, 5, OPLOCK_EXCLUSIVE);
    assert_eq!(wire.server_heard(), (vec![5], 0));
    let (rest, _) = wire.client_heard();
    assert_eq!(told.len() + rest.len(), 100);
    assert!(!wire.is_read_ahead(5));
}

/// Whatever closes a file, a break of its number is no more of what was borrowed for it.
#[test]
fn a_loan_ends_with_its_file() {
    for end in ENDS {
        let mut wire = Wire::new();
        wire.open(NONE, 5);
        let asked = wire.ask_end(end, 5);
        wire.answer_end(end, &asked);
        wire.told(NEAR);
        wire.break_to(5, LEFT_NONE);
        assert_eq!(wire.client_heard(), (vec![5], 0), "{end:?}");
    }
}

/// The file is open still, and somebody waits for it: whether that is told before the server refuses or behind.
#[test]
fn a_loan_outlives_what_was_to_close_its_file() {
    for (end, is_before) in ENDS.into_iter().flat_map(|end| [(end, true), (end, false)]) {
        let mut wire = Wire::new();
        wire.open(NONE, 5);
        let asked = wire.ask_end(end, 5);
        wire.told(FAR);
        if is_before {
            wire.break_to(5, LEFT_NONE);
        }
        wire.answer_with(&asked, NETWORK_SESSION_EXPIRED, |it| {
            emit_block(&[], &[], it)
        });
        if !is_before {
            wire.break_to(5, LEFT_NONE);
        }
        assert_eq!(wire.server_heard(), (vec![5], 0), "{end:?}");
        assert_eq!(wire.client_heard(), (Vec::new(), 1), "{end:?}");
        assert!(!wire.is_read_ahead(5), "{end:?}");
    }
}

/// What another process, session or share has open is not closed.
#[test]
fn who_leaves_closes_its_own_files() {
    type Change = fn(&mut Header);
    let others: [(u8, Change); 5] = [
        (TREE_DISCONNECT, |other| other.tree += 1),
        (CLOSE_AND_TREE_DISC, |other| other.tree += 1),
        (LOGOFF_ANDX, |other| other.user += 1),
        (PROCESS_EXIT, |other| other.process += 1),
        (PROCESS_EXIT, |other| other.user += 1),
    ];
    for (command, make_other) in others {
        let end = End::Leave(command);
        let mut wire = Wire::new();
        wire.open(NONE, 5);
        make_other(&mut wire.asks);
        let asked = wire.ask_end(end, 5);
        wire.answer_end(end, &asked);
        wire.told(NEAR);
        wire.told(FAR);
        wire.break_to(5, LEFT_NONE);
        assert_eq!(wire.client_heard(), (Vec::new(), 0), "{end:?}");
        assert_eq!(wire.server_heard(), (vec![5], 0), "{end:?}");
    }
}

/// However the file before has ended, also where nobody saw it: what has the number now is another one.
#[test]
fn who_is_given_a_number_again_hears_of_its_breaks() {
    for command in [OPEN_ANDX, OPEN, TRANSACTION2, NT_TRANSACT, NT_CREATE_ANDX] {
        let mut wire = Wire::new();
        wire.open(NONE, 5);
        match command {
            NT_CREATE_ANDX => wire.open(OWN, 5),
            command => wire.open_by(command, 5),
        }
        wire.break_to(5, LEFT_NONE);
        assert_eq!(wire.client_heard(), (vec![5], 0), "{command:#x}");
        assert_eq!(wire.server_heard(), (Vec::new(), 0), "{command:#x}");
    }
}

/// What is not followed is known: a break of it does not wait for an open that waits for it.
#[test]
fn a_break_of_what_is_opened_otherwise_is_told_at_once() {
    for command in [OPEN_ANDX, OPEN, TRANSACTION2, NT_TRANSACT] {
        let mut wire = Wire::new();
        wire.open_by(command, 5);
        wire.ask_open(NONE);
        wire.break_to(5, LEFT_NONE);
        assert_eq!(wire.client_heard(), (vec![5], 0), "{command:#x}");
    }
}

/// Behind an open in the same message CLOSE is of what that opens, and names nothing.
#[test]
fn what_is_closed_in_the_message_that_opens_it_is_not_read_ahead() {
    for is_closed in [false, true] {
        let mut wire = Wire::new();
        let asked = wire.ask(NT_CREATE_ANDX, |it| {
            chain(it, |it| create(OWN).emit(it), CLOSE);
            close(0xffff).emit(it);
        });
        let status = if is_closed {
            0
        } else {
            NETWORK_SESSION_EXPIRED
        };
        wire.answer_with(&asked, status, |it| {
            chain(it, |it| opened(5, OPLOCK_BATCH).emit(it), CLOSE);
            emit_block(&[], &[], it);
        });
        wire.told(NEAR);
        assert!(!wire.is_read_ahead(5));
    }
}

/// A server that is to refuse the first part of a message does not close the file behind it, and the client shall know
/// until it does.
#[test]
fn what_failed_is_told_until_the_file_is_closed() {
    let mut wire = Wire::new();
    wire.open(OWN, 5);
    wire.fail_write(5);
    let asked = wire.ask(WRITE_ANDX, |it| {
        chain(it, |it| emit_write_request(5, 100, 0, &[1; 100], it), CLOSE);
        close(5).emit(it);
    });
    wire.answer_with(&asked, INVALID_HANDLE, |it| emit_block(&[], &[], it));
    assert_eq!(wire.told(NEAR)[0].0.status, DISK_FULL);
    for expected in [DISK_FULL, 0] {
        let asked = wire.ask_end(End::Close, 5);
        wire.answer_end(End::Close, &asked);
        assert_eq!(wire.told(NEAR)[0].0.status, expected);
    }
}

#[test]
fn what_failed_is_told_to_who_leaves() {
    for end in ENDS {
        let mut wire = Wire::new();
        wire.open(OWN, 5);
        wire.fail_write(5);
        let asked = wire.ask_end(end, 5);
        wire.answer_end(end, &asked);
        assert_eq!(wire.told(NEAR)[0].0.status, DISK_FULL, "{end:?}");
    }
}
