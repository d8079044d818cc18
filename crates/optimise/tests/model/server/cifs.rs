//! The server in SMB1.

use farhaul_optimise::smb::netbios::packet;
use farhaul_optimise::smb::smb1::connect::{
    CAPABILITY_LARGE_FILES, CAPABILITY_LARGE_READ, CAPABILITY_LARGE_WRITE, CAPABILITY_LEVEL_II,
    CAPABILITY_NT_STATUS, NT_LM, NegotiateRequest, NegotiateResponse,
};
use farhaul_optimise::smb::smb1::header::{
    CLOSE, FLAG2_NT_STATUS, FLUSH, Header, LOCKING_ANDX, LOGOFF_ANDX, MULTIPLEX_NONE, NEGOTIATE,
    NT_CANCEL, NT_CREATE_ANDX, READ_ANDX, SESSION_SETUP_ANDX, TRANSACTION2, TREE_CONNECT_ANDX,
    TREE_DISCONNECT, WRITE_ANDX, chain_end, emit_block, lone_block,
};
use farhaul_optimise::smb::smb1::open as levels;
use farhaul_optimise::smb::smb1::open::{
    ASKS_BATCH, ASKS_OPLOCK, CloseRequest, LEFT_II, LEFT_NONE, LockingRequest, NtCreateRequest,
    NtCreateResponse,
};
use farhaul_optimise::smb::smb1::transfer::{
    ReadRequest, WriteHead, WriteResponse, emit_read_response, error,
};
use farhaul_optimise::smb::smb2::breaks::{Break, OplockBreak};
use farhaul_optimise::smb::smb2::open::{
    CreateRequest, FileId, OPLOCK_BATCH, OPLOCK_EXCLUSIVE, OPLOCK_II, OPLOCK_NONE,
};
use farhaul_optimise::smb::smb2::transfer::STATUS_OK;

use super::change::STATUS_NETWORK_SESSION_EXPIRED;
use super::{Asked, Server};

pub const CAPABILITIES: u32 = CAPABILITY_LARGE_FILES
    | CAPABILITY_LARGE_READ
    | CAPABILITY_LARGE_WRITE
    | CAPABILITY_LEVEL_II
    | CAPABILITY_NT_STATUS;

const USER: u16 = 100;
const TREE: u16 = 7;
/// STATUS_INVALID_HANDLE.
pub const INVALID_HANDLE: u32 = 0xc000_0008;

impl Server {
    pub(super) fn cifs_request(&mut self, message: &[u8]) {
        let Ok(header) = Header::parse(message) else {
            return;
        };
        let block = lone_block(message).expect("one command");
        let of_slow = |asked: &Asked| match asked {
            Asked::Cifs(slow) => slow.multiplex == header.multiplex,
            Asked::Modern(..) => false,
        };
        assert!(
            !self.slow.iter().any(|slow| of_slow(&slow.asked)),
            "id {} is used twice",
            header.multiplex
        );
        assert!(self.slow.len() < self.terms.requests_max, "too many");
        let is_greeting =
            [NEGOTIATE, SESSION_SETUP_ANDX, TREE_CONNECT_ANDX].contains(&header.command);
        assert!(is_greeting || (header.user, header.tree) == (USER, TREE));
        match header.command {
            NEGOTIATE => self.cifs_negotiate(&header, &NegotiateRequest::parse(&block).unwrap()),
            SESSION_SETUP_ANDX => {
                let header = Header {
                    user: USER,
                    ..header
                };
                let words = [chain_end(), vec![0, 0]].concat();
                self.cifs_say(&header, |message| emit_block(&words, &[], message));
            }
            TREE_CONNECT_ANDX => {
                let header = Header {
                    tree: TREE,
                    ..header
                };
                let words = [chain_end(), vec![0, 0]].concat();
                self.cifs_say(&header, |message| emit_block(&words, b"A:\0", message));
            }
            NT_CREATE_ANDX => {
                let opened = self.cifs_open(&NtCreateRequest::parse(&block).unwrap());
                self.cifs_say(&header, |message| opened.emit(message));
            }
            READ_ANDX => self.cifs_read(&header, &ReadRequest::parse(&block).unwrap()),
            WRITE_ANDX => {
                let write = WriteHead::parse(&block).unwrap();
                self.cifs_write(&header, &write, write.data(message).unwrap());
            }
            CLOSE => self.cifs_try_close(&header, CloseRequest::parse(&block).unwrap().file),
            TRANSACTION2 => self.cifs_set_info(&header, message, &block),
            FLUSH => self.cifs_say(&header, |message| emit_block(&[], &[], message)),
            LOCKING_ANDX => match LockingRequest::parse(&block).unwrap() {
                told if told.has_ranges() => {
                    self.cifs_say(&header, |message| emit_block(&chain_end(), &[], message));
                }
                told => self.cifs_released(&told),
            },
            TREE_DISCONNECT => {
                self.close_all();
                self.cifs_say(&header, |message| emit_block(&[], &[], message));
            }
            LOGOFF_ANDX => {
                self.close_all();
                self.cifs_say(&header, |message| emit_block(&chain_end(), &[], message));
            }
            NT_CANCEL => (),
            other => panic!("{other:#x} is not modelled"),
        }
    }

    fn cifs_negotiate(&mut self, header: &Header, asked: &NegotiateRequest) {
        let mut dialects = asked.dialects.iter();
        let response = NegotiateResponse {
            dialect: dialects.position(|dialect| dialect == NT_LM).unwrap() as u16,
            security_mode: self.terms.security_mode as u8,
            requests_max: self.terms.requests_max as u16,
            buffer_bytes_max: 16_644,
            capabilities: self.terms.capabilities,
            security: vec![0; 8],
        };
        self.cifs_say(header, |message| response.emit(message));
    }

    /// A write has reached the disk, or has not.
    pub(super) fn cifs_written(&mut self, header: &Header, status: u32, length: usize) {
        let count = length as u32;
        match status {
            STATUS_OK => self.cifs_say(header, |message| WriteResponse { count }.emit(message)),
            status => self.cifs_fail(header, status),
        }
    }

    pub(super) fn cifs_tell(&mut self, id: u64, oplock: u8) {
        let mut message = Vec::new();
        Header {
            command: LOCKING_ANDX,
            status: 0,
            flags: 0,
            flags2: FLAG2_NT_STATUS,
            process_high: 0,
            signature: [0; 8],
            tree: TREE,
            process: 0xffff,
            user: 0,
            multiplex: MULTIPLEX_NONE,
        }
        .emit(&mut message);
        let left = match oplock {
            OPLOCK_II => LEFT_II,
            _ => LEFT_NONE,
        };
        LockingRequest::release(id as u16, left).emit(&mut message);
        self.output.extend_from_slice(&packet(&message));
    }

    fn cifs_open(&mut self, create: &NtCreateRequest) -> NtCreateResponse {
        let oplock = match create.flags {
            flags if flags & ASKS_OPLOCK != 0 && self.terms.grants_ii => OPLOCK_II,
            flags if flags & ASKS_BATCH != 0 => OPLOCK_BATCH,
            flags if flags & ASKS_OPLOCK != 0 => OPLOCK_EXCLUSIVE,
            _ => OPLOCK_NONE,
        };
        let opened = self.open(&CreateRequest {
            oplock,
            impersonation: 2,
            access: create.access,
            attributes: 0,
            share: create.share,
            disposition: create.disposition,
            options: create.options,
            name: create.name.clone(),
            contexts: Vec::new(),
        });
        NtCreateResponse {
            oplock: match opened.oplock {
                OPLOCK_BATCH => levels::OPLOCK_BATCH,
                OPLOCK_EXCLUSIVE => levels::OPLOCK_EXCLUSIVE,
                OPLOCK_II => levels::OPLOCK_II,
                _ => levels::OPLOCK_NONE,
            },
            file: opened.file.volatile as u16,
            size_bytes: opened.facts.size_bytes,
            resource: 0,
            is_directory: false,
        }
    }

    fn cifs_read(&mut self, header: &Header, read: &ReadRequest) {
        self.reads += 1;
        let Some(open) = self.opens.get(&read.file.into()) else {
            return self.cifs_fail(header, INVALID_HANDLE);
        };
        let content = self.files[&open.name].last().unwrap();
        let from = (read.offset as usize).min(content.len());
        let length = (read.length as usize).min(self.terms.read_bytes_max);
        let to = (from + length).min(content.len());
        let mut message = Vec::new();
        header.response(STATUS_OK).emit(&mut message);
        emit_read_response(&content[from..to], &mut message);
        let slow_reads = self.terms.slow_reads;
        let is_slow = |(nth, _): &(u64, u64)| self.reads.is_multiple_of(*nth);
        let more_ns = slow_reads.filter(is_slow).map_or(0, |(_, ns)| ns);
        let at_ns = self.now_ns + self.terms.read_ns + more_ns;
        let place = self.read.partition_point(|(other, ..)| *other <= at_ns);
        let answer = packet(&message).to_vec();
        self.read.insert(place, (at_ns, read.file.into(), answer));
        self.handle_time(self.now_ns);
    }

    fn cifs_write(&mut self, header: &Header, write: &WriteHead, data: &[u8]) {
        let place = (u64::from(write.file), write.offset as usize);
        let nth = self.own_versions.len();
        self.own_versions.push(None);
        if !self.opens.contains_key(&place.0) {
            return self.cifs_fail(header, INVALID_HANDLE);
        }
        if self.terms.write_ns_max > 0 {
            return self.take_slow(Asked::Cifs(*header), nth, place, data);
        }
        let status = self.write_own(nth, place, data, &mut Vec::new());
        self.cifs_written(header, status, data.len());
    }

    fn cifs_try_close(&mut self, header: &Header, file: u16) {
        if std::mem::take(&mut self.terms.refuses_to_close) {
            return self.cifs_fail(header, STATUS_NETWORK_SESSION_EXPIRED);
        }
        self.cifs_close(file);
        self.cifs_say(header, |message| emit_block(&[], &[], message));
    }

    fn cifs_close(&mut self, file: u16) {
        let id = u64::from(file);
        let mut slow = self.slow.iter();
        assert!(
            slow.all(|slow| slow.open != id),
            "closed before it was written"
        );
        assert!(
            self.terms.bears_close || self.read.iter().all(|(_, open, _)| *open != id),
            "closed before it was read"
        );
        let open = self.opens.remove(&id).expect("an open file");
        let due = open.break_due.into_iter().flatten();
        due.for_each(|write| self.write(&write));
    }

    fn cifs_released(&mut self, told: &LockingRequest) {
        assert!(told.is_release() && !told.has_ranges());
        let oplock = match told.left {
            LEFT_II => OPLOCK_II,
            _ => OPLOCK_NONE,
        };
        let file = FileId {
            persistent: 0,
            volatile: told.file.into(),
        };
        self.acknowledged(&Break::Oplock(OplockBreak { oplock, file }));
    }

    pub(super) fn cifs_say(&mut self, asked: &Header, body: impl FnOnce(&mut Vec<u8>)) {
        let mut message = Vec::new();
        asked.response(STATUS_OK).emit(&mut message);
        body(&mut message);
        self.output.extend_from_slice(&packet(&message));
    }

    pub(super) fn cifs_fail(&mut self, asked: &Header, status: u32) {
        let answer = error(&asked.response(status), status);
        self.output.extend_from_slice(&packet(&answer));
    }
}
