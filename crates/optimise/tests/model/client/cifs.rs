//! The client in SMB1, as Windows XP speaks it: few multiplex ids, each used again at once.

use farhaul_optimise::smb::netbios::packet;
use farhaul_optimise::smb::smb1::connect::{
    CAPABILITY_LARGE_FILES, CAPABILITY_LARGE_READ, CAPABILITY_LARGE_WRITE, CAPABILITY_LEVEL_II,
    CAPABILITY_NT_STATUS, NT_LM, NegotiateRequest, SessionSetupRequest,
};
use farhaul_optimise::smb::smb1::header::{
    CLOSE, FLAG2_NT_STATUS, FLAG2_SIGNED, Header, LOCKING_ANDX, NEGOTIATE, NT_CREATE_ANDX,
    READ_ANDX, SESSION_SETUP_ANDX, TREE_CONNECT_ANDX, WRITE_ANDX, chain_end, emit_block,
    first_block,
};
use farhaul_optimise::smb::smb1::open as levels;
use farhaul_optimise::smb::smb1::open::{
    ASKS_BATCH, ASKS_OPLOCK, CloseRequest, LEFT_II, LEFT_NONE, LockingRequest, NtCreateRequest,
    NtCreateResponse,
};
use farhaul_optimise::smb::smb1::transfer::{ReadHead, ReadRequest, emit_write_request};
use farhaul_optimise::smb::smb2::breaks::{Break, OplockBreak};
use farhaul_optimise::smb::smb2::header::Command;
use farhaul_optimise::smb::smb2::open::{
    CreateRequest, FileId, OPLOCK_BATCH, OPLOCK_EXCLUSIVE, OPLOCK_II, OPLOCK_NONE,
};
use farhaul_optimise::smb::smb2::transfer::{STATUS_OK, WriteRequest};

use super::super::server::cifs::INVALID_HANDLE;
use super::{Client, Sent, Server};

pub const CAPABILITIES: u32 = CAPABILITY_LARGE_FILES
    | CAPABILITY_LARGE_READ
    | CAPABILITY_LARGE_WRITE
    | CAPABILITY_LEVEL_II
    | CAPABILITY_NT_STATUS;

/// XP's ids are its table's places, so far apart.
const ID_STEP: u16 = 64;
const PROCESS: u16 = 0xfeff;

impl Client {
    pub(super) fn cifs_greet(&mut self) {
        match self.greeting {
            1 => {
                let names: [&[u8]; 3] = [b"LANMAN1.0", NT_LM, b"SMB 2.002"];
                let dialects = names.map(<[u8]>::to_vec).to_vec();
                let negotiate = NegotiateRequest { dialects };
                self.cifs_send(Command::Negotiate, NEGOTIATE, |message| {
                    negotiate.emit(message);
                });
                // The same id that SMB2 begins with.
                self.next_id = 1;
                self.credits = 0;
            }
            2 => {
                let setup = SessionSetupRequest {
                    buffer_bytes_max: 4356,
                    capabilities: self.manners.capabilities,
                    security: [&[9; 40], self.manners.name].concat(),
                };
                self.cifs_send(Command::SessionSetup, SESSION_SETUP_ANDX, |message| {
                    setup.emit(message);
                });
            }
            _ => {
                let words = [chain_end(), vec![0, 0, 1, 0]].concat();
                let name = b"\0\\\\s\\files\0?????\0";
                self.cifs_send(Command::TreeConnect, TREE_CONNECT_ANDX, |message| {
                    emit_block(&words, name, message);
                });
            }
        }
    }

    pub(super) fn cifs_open(&mut self, create: &CreateRequest) {
        let flags = match create.oplock {
            OPLOCK_NONE => 0,
            OPLOCK_BATCH => ASKS_OPLOCK | ASKS_BATCH,
            _ => ASKS_OPLOCK,
        };
        let create = NtCreateRequest {
            flags,
            access: create.access,
            share: create.share,
            disposition: create.disposition,
            options: create.options,
            name: create.name.clone(),
        };
        self.cifs_send(Command::Create, NT_CREATE_ANDX, |message| {
            create.emit(message);
        });
    }

    pub(super) fn cifs_close(&mut self, file: FileId) {
        let close = CloseRequest {
            file: file.volatile as u16,
            modified: 0,
        };
        self.cifs_send(Command::Close, CLOSE, |message| close.emit(message));
    }

    pub(super) fn cifs_read(&mut self, file: FileId, offset: u64, length: u32) -> u64 {
        let read = ReadRequest {
            file: file.volatile as u16,
            offset,
            length,
            length_min: (length & 0xffff) as u16,
            remaining: 0,
        };
        let id = self.cifs_send(Command::Read, READ_ANDX, |message| read.emit(message));
        self.sent.get_mut(&id).unwrap().read = Some((offset, length));
        id
    }

    pub(super) fn cifs_write(&mut self, write: &WriteRequest<'_>) -> u64 {
        let (file, mode) = (write.file.volatile as u16, write.flags as u16);
        self.cifs_send(Command::Write, WRITE_ANDX, |message| {
            emit_write_request(file, write.offset, mode, write.data, message);
        })
    }

    /// Nobody answers that.
    pub(super) fn cifs_release(&mut self, left: &OplockBreak) {
        let kept = match left.oplock {
            OPLOCK_II => LEFT_II,
            _ => LEFT_NONE,
        };
        let release = LockingRequest::release(left.file.volatile as u16, kept);
        let id = self.cifs_send(Command::OplockBreak, LOCKING_ANDX, |message| {
            release.emit(message);
        });
        self.sent.remove(&id);
    }

    pub(super) fn cifs_answer(&mut self, now_ns: u64, message: &[u8], server: &Server) {
        let header = Header::parse(message).unwrap();
        let block = first_block(message).unwrap();
        if !header.is_response() {
            let told = LockingRequest::parse(&block).unwrap();
            let oplock = match told.left {
                LEFT_II => OPLOCK_II,
                _ => OPLOCK_NONE,
            };
            let file = file_id(told.file);
            return self.broken(&Break::Oplock(OplockBreak { oplock, file }), server);
        }
        let sent = self.sent.remove(&header.multiplex.into());
        let sent = sent.unwrap_or_else(|| panic!("nobody asked {}", header.multiplex));
        match sent.command {
            Command::Negotiate => {
                self.cifs = Some((0, 0));
                // No credits here.
                self.credits = 1 << 32;
            }
            Command::SessionSetup => self.cifs = Some((header.user, 0)),
            Command::TreeConnect => self.cifs = Some((header.user, header.tree)),
            Command::Create => {
                assert_eq!(header.status, STATUS_OK);
                let opened = NtCreateResponse::parse(&block).unwrap();
                let oplock = match opened.oplock {
                    levels::OPLOCK_BATCH => OPLOCK_BATCH,
                    levels::OPLOCK_EXCLUSIVE => OPLOCK_EXCLUSIVE,
                    levels::OPLOCK_II => OPLOCK_II,
                    _ => OPLOCK_NONE,
                };
                self.opened(file_id(opened.file), oplock, server);
            }
            // It closed the file without waiting for that.
            Command::Read if self.is_deserted && header.status == INVALID_HANDLE => (),
            Command::Read => {
                assert_eq!(header.status, STATUS_OK);
                let data = ReadHead::parse(&block).unwrap().data(message).unwrap();
                self.check(now_ns, data, &sent, server);
            }
            command => self.done(now_ns, command, header.status, sent, server),
        }
    }

    pub(super) fn cifs_send(
        &mut self,
        command: Command,
        code: u8,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> u64 {
        let mut places = (0..).map(|place: u64| place * u64::from(ID_STEP));
        let id = places.find(|id| !self.sent.contains_key(id)).unwrap();
        let (user, tree) = self.cifs.unwrap_or_default();
        let is_signed = code == TREE_CONNECT_ANDX && self.manners.signs_tree;
        let mut message = Vec::new();
        Header {
            command: code,
            status: 0,
            flags: 0x18,
            // As XP does, which could sign.
            flags2: FLAG2_NT_STATUS | FLAG2_SIGNED,
            process_high: 0,
            signature: if is_signed { [7; 8] } else { [0; 8] },
            tree,
            process: PROCESS,
            user,
            multiplex: id as u16,
        }
        .emit(&mut message);
        body(&mut message);
        self.output.extend_from_slice(&packet(&message));
        let sent = Sent {
            command,
            read: None,
            write: None,
            floor: 0,
            writes: self.writes,
            has_seen_breaks: self.breaks_seen > 0,
        };
        assert!(self.sent.insert(id, sent).is_none());
        id
    }
}

fn file_id(file: u16) -> FileId {
    FileId {
        persistent: 0,
        volatile: file.into(),
    }
}
