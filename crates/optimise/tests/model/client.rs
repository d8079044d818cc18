//! A client that does one step after the other and holds every byte against what a server could have said.

mod asking;
mod change;
mod cifs;
mod folder;
mod hearing;
mod odd;
mod step;

use std::collections::{BTreeMap, VecDeque};

use farhaul_optimise::smb::netbios::{PREFIX_BYTES, Packets, Piece};
use farhaul_optimise::smb::smb1;
use farhaul_optimise::smb::smb2::breaks::Break;
use farhaul_optimise::smb::smb2::header::{Command, messages};
use farhaul_optimise::smb::smb2::open::{
    CloseRequest, CreateRequest, DISPOSITION_OPEN, FileId, OPLOCK_NONE,
};

use self::asking::charge_of;
pub use self::step::{Manners, Step};
use super::plan::SHARE_ALL;
use super::server::Server;

/// FILE_READ_ATTRIBUTES, SYNCHRONIZE.
const ATTRIBUTES: u32 = 0x10_0080;

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
    owed: VecDeque<Break>,
    floor: usize,
    pub wakes_ns: u64,
    pub output: Vec<u8>,
    pub is_done: bool,
    pub first_read_ns: Option<u64>,
    pub last_read_ns: u64,
    pub read_bytes: u64,
    pub reads: u64,
    pub infos: u64,
    /// Of folders.
    pub names: usize,
    writings: VecDeque<(u64, Vec<u8>)>,
    /// When, where and what of writes that were answered well.
    pub written: Vec<(u64, u64, Vec<u8>)>,
    writes: usize,
    /// Of those, to files opened before.
    writes_before: usize,
    pub first_write_ns: Option<u64>,
    pub closed_ns: u64,
    is_deserted: bool,
    /// What went wrong, in the order of the answers.
    pub errors: Vec<(Command, u32)>,
}

impl Client {
    pub fn new(manners: Manners, steps: Vec<Step>) -> Self {
        Self {
            manners,
            cifs: None,
            packets: Packets::of_server(),
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
            names: 0,
            writings: VecDeque::new(),
            written: Vec::new(),
            writes: 0,
            writes_before: 0,
            first_write_ns: None,
            closed_ns: 0,
            is_deserted: false,
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
            match (left, self.cifs) {
                (Break::Oplock(left), Some(_)) => self.cifs_release(&left),
                _ => self.send(Command::OplockBreak, None, |message| left.emit(message)),
            }
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

    fn open(&mut self, name: String, share: u32, oplock: u8, server: &Server) {
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
            } => self.open(name, share, oplock, server),
            Step::Turn { name } => {
                assert_eq!(self.asked, OPLOCK_NONE);
                self.cifs_close(self.file.unwrap());
                self.open(name, SHARE_ALL, OPLOCK_NONE, server);
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
            Step::Desert { ranges } => {
                for (offset, length) in ranges {
                    self.read(now_ns, offset, length, server);
                }
                self.is_deserted = true;
                self.cifs_close(self.file.unwrap());
            }
            Step::Ask => self.ask(server),
            Step::Pause { ns } => self.wakes_ns = now_ns + ns,
            Step::Peek { name } => {
                let access = std::mem::replace(&mut self.manners.access, ATTRIBUTES);
                self.open(name, SHARE_ALL, OPLOCK_NONE, server);
                self.manners.access = access;
            }
            odd => self.odd_step(odd),
        }
    }

    /// The oldest version that a direct client could be shown from here on.
    fn floor(&self, server: &Server) -> usize {
        match self.oplock != OPLOCK_NONE || self.denies {
            true => self.floor,
            false => server.version(&self.name),
        }
    }
}
