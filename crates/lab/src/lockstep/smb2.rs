//! SMB 2.1, as much of it as copies a file (MS-SMB2).

use super::Session;
use super::connection::Connection;
use super::error::LockstepError;
use super::fields::{Out, bytes_at, u8_at, u16_at, u32_at, u64_at, wide};

const NEGOTIATE: u16 = 0;
const SESSION_SETUP: u16 = 1;
const TREE_CONNECT: u16 = 3;
const CREATE: u16 = 5;
const CLOSE: u16 = 6;
const READ: u16 = 8;
const WRITE: u16 = 9;
const OPLOCK_BREAK: u16 = 18;

const HEADER_BYTES: usize = 64;
const DIALECT: u16 = 0x0210;
/// Asked for with each request, as Windows does.
const CREDITS: u16 = 31;
const STATUS_PENDING: u32 = 0x0000_0103;
const STATUS_MORE_PROCESSING: u32 = 0xc000_0016;
/// As Windows clients ask for files (MS-SMB2 2.2.13).
const OPLOCK_NONE: u8 = 0;
const OPLOCK_LEASE: u8 = 0xff;
/// To read, to keep open and to write.
const LEASE_STATE: u32 = 7;
const LEASE_KEY: &[u8; 16] = b"lease of a file ";
/// StructureSize of a lease's break (MS-SMB2 2.2.23.2), and of its acknowledgment (2.2.24.2).
const LEASE_BREAK: u16 = 44;
const LEASE_ACKNOWLEDGMENT: u16 = 36;
/// Nobody asked for it.
const ID_NONE: u64 = u64::MAX;
const ACCESS_READ: u32 = 0x0012_0089;
const ACCESS_WRITE: u32 = 0x0012_019f;
const SHARE_READ: u32 = 1;
const SHARE_ALL: u32 = 7;
const DISPOSITION_OPEN: u32 = 1;
const DISPOSITION_OVERWRITE_IF: u32 = 5;
const OPTION_NO_FOLDER: u32 = 0x40;

/// A share with at most one open file.
pub(super) struct Smb2 {
    connection: Connection,
    next_id: u64,
    session: u64,
    tree: u32,
    file: [u8; 16],
    has_leases: bool,
}

impl Smb2 {
    /// Agrees on the dialect, logs in as nobody and goes to a share.
    pub(super) fn begin(
        connection: Connection,
        path: &str,
        has_leases: bool,
    ) -> Result<Self, LockstepError> {
        let mut smb = Self {
            connection,
            next_id: 0,
            session: 0,
            tree: 0,
            file: [0; 16],
            has_leases,
        };
        smb.negotiate()?;
        smb.log_in()?;
        smb.go_to(path)?;
        Ok(smb)
    }

    fn header(&mut self, command: u16) -> Out {
        let mut out = Out::default();
        // MS-SMB2 2.2.1.2.
        out.bytes(b"\xfeSMB").u16(HEADER_BYTES as u16);
        out.u16(u16::from(command != NEGOTIATE)).u32(0);
        out.u16(command)
            .u16(CREDITS)
            .u32(0)
            .u32(0)
            .u64(self.next_id);
        out.u32(0xfeff).u32(self.tree).u64(self.session).zeros(16);
        out
    }

    /// Sends a request and waits for its answer, of this status.
    fn ask(
        &mut self,
        what: &'static str,
        request: &Out,
        expected: u32,
    ) -> Result<Vec<u8>, LockstepError> {
        let id = self.next_id;
        self.next_id += 1;
        self.connection.send(&request.0)?;
        loop {
            let answer = self.connection.receive()?;
            if bytes_at(&answer, 0, 4)? != b"\xfeSMB" {
                return Err(LockstepError::Malformed("no SMB2"));
            }
            let status = u32_at(&answer, 8)?;
            if u64_at(&answer, 24)? == ID_NONE && self.has_leases {
                self.give_back(&answer)?;
            }
            // What nobody asked for, or not yet: a break of an oplock, "wait".
            if u64_at(&answer, 24)? != id || status == STATUS_PENDING {
                continue;
            }
            if status != expected {
                return Err(LockstepError::Refused { what, status });
            }
            return Ok(answer);
        }
    }

    /// Leaves of a lease what the server says, if it waits for that. Its answer is nobody's.
    fn give_back(&mut self, told: &[u8]) -> Result<(), LockstepError> {
        let is_lease = u16_at(told, HEADER_BYTES)? == LEASE_BREAK;
        if !is_lease || u32_at(told, HEADER_BYTES + 4)? & 1 == 0 {
            return Ok(());
        }
        let key = bytes_at(told, HEADER_BYTES + 8, 16)?.to_vec();
        let left = u32_at(told, HEADER_BYTES + 28)?;
        let mut out = self.header(OPLOCK_BREAK);
        out.u16(LEASE_ACKNOWLEDGMENT).zeros(6);
        out.bytes(&key).u32(left).u64(0);
        self.next_id += 1;
        self.connection.send(&out.0)
    }

    fn negotiate(&mut self) -> Result<(), LockstepError> {
        let mut out = self.header(NEGOTIATE);
        out.u16(36).u16(1).u16(1).u16(0).u32(0);
        out.bytes(b"farhaul lockstep").u64(0).u16(DIALECT);
        let answer = self.ask("agreeing on SMB 2.1", &out, 0)?;
        match u16_at(&answer, HEADER_BYTES + 4)? {
            DIALECT => Ok(()),
            _ => Err(LockstepError::Malformed("another dialect than SMB 2.1")),
        }
    }

    fn log_in(&mut self) -> Result<(), LockstepError> {
        let answer = self.session_setup(&ntlm_hello(), STATUS_MORE_PROCESSING)?;
        self.session = u64_at(&answer, 40)?;
        self.session_setup(&ntlm_nobody(), 0).map(drop)
    }

    fn session_setup(&mut self, token: &[u8], expected: u32) -> Result<Vec<u8>, LockstepError> {
        let mut out = self.header(SESSION_SETUP);
        out.u16(25).u8(0).u8(1).u32(0).u32(0);
        out.u16(HEADER_BYTES as u16 + 24).u16(token.len() as u16);
        out.u64(0).bytes(token);
        self.ask("logging in as nobody", &out, expected)
    }

    fn go_to(&mut self, path: &str) -> Result<(), LockstepError> {
        let path = wide(path);
        let mut out = self.header(TREE_CONNECT);
        out.u16(9).u16(0).u16(HEADER_BYTES as u16 + 8);
        out.u16(path.len() as u16).bytes(&path);
        let answer = self.ask("going to the share", &out, 0)?;
        self.tree = u32_at(&answer, 36)?;
        Ok(())
    }

    /// MS-SMB2 2.2.13; the answer of 2.2.14.
    fn create_file(
        &mut self,
        name: &str,
        (access, share, disposition): (u32, u32, u32),
    ) -> Result<Vec<u8>, LockstepError> {
        let name = wide(name);
        let (oplock, share, contexts) = match self.has_leases {
            true => (OPLOCK_LEASE, SHARE_ALL, lease()),
            false => (OPLOCK_NONE, share, Vec::new()),
        };
        let name_at = HEADER_BYTES + 56;
        let contexts_at = (name_at + name.len()).next_multiple_of(8);
        let mut out = self.header(CREATE);
        out.u16(57).u8(0).u8(oplock).u32(2).u64(0).u64(0);
        out.u32(access).u32(0).u32(share).u32(disposition);
        out.u32(OPTION_NO_FOLDER).u16(name_at as u16);
        out.u16(name.len() as u16);
        match contexts.is_empty() {
            true => out.u32(0).u32(0).bytes(&name),
            false => out
                .u32(contexts_at as u32)
                .u32(contexts.len() as u32)
                .bytes(&name)
                .zeros(contexts_at - name_at - name.len())
                .bytes(&contexts),
        };
        let answer = self.ask("opening the file", &out, 0)?;
        let file = bytes_at(&answer, HEADER_BYTES + 64, 16)?;
        self.file.copy_from_slice(file);
        Ok(answer)
    }
}

impl Session for Smb2 {
    fn open(&mut self, name: &str) -> Result<u64, LockstepError> {
        let how = (ACCESS_READ, SHARE_READ, DISPOSITION_OPEN);
        let answer = self.create_file(name, how)?;
        u64_at(&answer, HEADER_BYTES + 48)
    }

    fn create(&mut self, name: &str) -> Result<(), LockstepError> {
        let how = (ACCESS_WRITE, 0, DISPOSITION_OVERWRITE_IF);
        self.create_file(name, how).map(drop)
    }

    fn read_block(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>, LockstepError> {
        let mut out = self.header(READ);
        out.u16(49).u8(0x50).u8(0).u32(bytes as u32).u64(offset);
        let file = self.file;
        out.bytes(&file).zeros(16).u8(0);
        let answer = self.ask("reading", &out, 0)?;
        let at = usize::from(u8_at(&answer, HEADER_BYTES + 2)?);
        let length = u32_at(&answer, HEADER_BYTES + 4)? as usize;
        bytes_at(&answer, at, length).map(<[u8]>::to_vec)
    }

    fn write_block(&mut self, offset: u64, block: &[u8]) -> Result<(), LockstepError> {
        let mut out = self.header(WRITE);
        out.u16(49).u16(HEADER_BYTES as u16 + 48);
        out.u32(block.len() as u32).u64(offset);
        let file = self.file;
        out.bytes(&file).zeros(16).bytes(block);
        let answer = self.ask("writing", &out, 0)?;
        match u32_at(&answer, HEADER_BYTES + 4)? as usize == block.len() {
            true => Ok(()),
            false => Err(LockstepError::Malformed("a block that was written in part")),
        }
    }

    fn close(&mut self) -> Result<(), LockstepError> {
        let mut out = self.header(CLOSE);
        let file = self.file;
        out.u16(24).u16(0).u32(0).bytes(&file);
        self.ask("closing the file", &out, 0).map(drop)
    }
}

/// MS-SMB2 2.2.13.2 and 2.2.13.2.8.
fn lease() -> Vec<u8> {
    let mut out = Out::default();
    out.u32(0).u16(16).u16(4).u16(0).u16(24).u32(32);
    out.bytes(b"RqLs").zeros(4);
    out.bytes(LEASE_KEY).u32(LEASE_STATE).u32(0).u64(0);
    out.0
}

/// MS-NLMP 2.2.1.1: Unicode, a target name, NTLM.
const NTLM_FLAGS: u32 = 0x0000_0205;
/// MS-NLMP 2.2.2.5.
const NTLM_ANONYMOUS: u32 = 0x0000_0800;

fn ntlm_hello() -> Vec<u8> {
    let mut out = Out::default();
    out.bytes(b"NTLMSSP\0").u32(1).u32(NTLM_FLAGS).zeros(16);
    out.0
}

/// MS-NLMP 2.2.1.3 and 3.2.5.1.2: nobody has an LM response of one zero byte and no name.
fn ntlm_nobody() -> Vec<u8> {
    const PAYLOAD_AT: u32 = 64;
    let mut out = Out::default();
    out.bytes(b"NTLMSSP\0").u32(3);
    out.u16(1).u16(1).u32(PAYLOAD_AT);
    for _ in 0..5 {
        out.u16(0).u16(0).u32(PAYLOAD_AT + 1);
    }
    out.u32(NTLM_FLAGS | NTLM_ANONYMOUS).u8(0);
    out.0
}
