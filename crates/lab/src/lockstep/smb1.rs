//! NT LM 0.12, as much of it as copies a file (MS-CIFS, MS-SMB).

use super::Session;
use super::connection::Connection;
use super::error::LockstepError;
use super::fields::{Out, bytes_at, u8_at, u16_at, u32_at, u64_at, wide};

const NEGOTIATE: u8 = 0x72;
const SESSION_SETUP: u8 = 0x73;
const TREE_CONNECT: u8 = 0x75;
const CREATE: u8 = 0xa2;
const CLOSE: u8 = 0x04;
const READ: u8 = 0x2e;
const WRITE: u8 = 0x2f;

const HEADER_BYTES: usize = 32;
/// Where an answer's words begin, behind their count.
const WORDS_AT: usize = HEADER_BYTES + 1;
/// Unicode, NT status, long names (MS-CIFS 2.2.3.1).
const FLAGS2: u16 = 0xc001;
/// Unicode, 64-bit files, NT calls, NT status, level II oplocks, large reads and writes (MS-SMB 2.2.4.5.2.1).
const CAPABILITIES: u32 = 0x0000_c0dc;
/// No further command in the same message.
const NO_ANDX: u8 = 0xff;
/// Exclusive and batch (MS-CIFS 2.2.4.64.1).
const WANTS_OPLOCK: u32 = 0x06;
const ACCESS_READ: u32 = 0x0012_0089;
const ACCESS_WRITE: u32 = 0x0012_019f;
const SHARE_READ: u32 = 1;
const DISPOSITION_OPEN: u32 = 1;
const DISPOSITION_OVERWRITE_IF: u32 = 5;
const OPTION_NO_FOLDER: u32 = 0x40;

/// A share with at most one open file.
pub(super) struct Smb1 {
    connection: Connection,
    next_id: u16,
    user: u16,
    tree: u16,
    file: u16,
}

impl Smb1 {
    /// Agrees on the dialect, logs in as nobody and goes to a share.
    pub(super) fn begin(connection: Connection, path: &str) -> Result<Self, LockstepError> {
        let mut smb = Self {
            connection,
            next_id: 1,
            user: 0,
            tree: 0,
            file: 0,
        };
        smb.negotiate()?;
        smb.log_in()?;
        smb.go_to(path)?;
        Ok(smb)
    }

    /// Sends a request of words and bytes and waits for its answer.
    fn ask(
        &mut self,
        what: &'static str,
        command: u8,
        words: &Out,
        bytes: &[u8],
    ) -> Result<Vec<u8>, LockstepError> {
        let id = self.next_id;
        // 0xffff is the server's own.
        self.next_id = if id >= 0xfffe { 1 } else { id + 1 };
        let mut out = Out::default();
        out.bytes(b"\xffSMB")
            .u8(command)
            .u32(0)
            .u8(0x18)
            .u16(FLAGS2);
        out.u16(0)
            .zeros(10)
            .u16(self.tree)
            .u16(0xfeff)
            .u16(self.user)
            .u16(id);
        out.u8((words.0.len() / 2) as u8).bytes(&words.0);
        out.u16(bytes.len() as u16).bytes(bytes);
        self.connection.send(&out.0)?;
        loop {
            let answer = self.connection.receive()?;
            if bytes_at(&answer, 0, 4)? != b"\xffSMB" {
                return Err(LockstepError::Malformed("no SMB1"));
            }
            // A break of an oplock, which nobody asked for.
            if u16_at(&answer, 30)? != id || u8_at(&answer, 4)? != command {
                continue;
            }
            let status = u32_at(&answer, 5)?;
            if status != 0 {
                return Err(LockstepError::Refused { what, status });
            }
            return Ok(answer);
        }
    }

    fn negotiate(&mut self) -> Result<(), LockstepError> {
        let what = "agreeing on NT LM 0.12";
        let answer = self.ask(what, NEGOTIATE, &Out::default(), b"\x02NT LM 0.12\0")?;
        match u16_at(&answer, WORDS_AT)? {
            0 => Ok(()),
            _ => Err(LockstepError::Malformed("another dialect than NT LM 0.12")),
        }
    }

    /// MS-CIFS 2.2.4.53.
    fn log_in(&mut self) -> Result<(), LockstepError> {
        let mut words = andx();
        words.u16(0xffff).u16(1).u16(1).u32(0);
        words.u16(1).u16(0).u32(0).u32(CAPABILITIES);
        // The password of nobody is one zero byte; names begin at an even place, which that makes it.
        let mut bytes = Out::default();
        bytes
            .u8(0)
            .zeros(2 + 2)
            .bytes(&wide("Windows 5.1\0Farhaul\0"));
        let answer = self.ask("logging in as nobody", SESSION_SETUP, &words, &bytes.0)?;
        self.user = u16_at(&answer, 28)?;
        Ok(())
    }

    /// MS-CIFS 2.2.4.55.
    fn go_to(&mut self, path: &str) -> Result<(), LockstepError> {
        let mut words = andx();
        words.u16(0).u16(1);
        let mut bytes = Out::default();
        bytes.u8(0).bytes(&wide(path)).zeros(2).bytes(b"?????\0");
        let answer = self.ask("going to the share", TREE_CONNECT, &words, &bytes.0)?;
        self.tree = u16_at(&answer, 24)?;
        Ok(())
    }

    /// MS-CIFS 2.2.4.64.
    fn create_file(
        &mut self,
        name: &str,
        (access, share, disposition): (u32, u32, u32),
    ) -> Result<Vec<u8>, LockstepError> {
        let name = wide(name);
        let mut words = andx();
        words.u8(0).u16(name.len() as u16).u32(WANTS_OPLOCK).u32(0);
        words.u32(access).u64(0).u32(0).u32(share).u32(disposition);
        words.u32(OPTION_NO_FOLDER).u32(2).u8(0);
        // Names begin at an even place.
        let mut bytes = Out::default();
        bytes.u8(0).bytes(&name).zeros(2);
        let answer = self.ask("opening the file", CREATE, &words, &bytes.0)?;
        self.file = u16_at(&answer, WORDS_AT + 5)?;
        Ok(answer)
    }
}

/// Words of a request that no other follows in its message.
fn andx() -> Out {
    let mut words = Out::default();
    words.u8(NO_ANDX).u8(0).u16(0);
    words
}

impl Session for Smb1 {
    fn open(&mut self, name: &str) -> Result<u64, LockstepError> {
        let how = (ACCESS_READ, SHARE_READ, DISPOSITION_OPEN);
        let answer = self.create_file(name, how)?;
        // Behind AndX, oplock, file, action, four times, attributes and the space it takes.
        u64_at(&answer, WORDS_AT + 4 + 1 + 2 + 4 + 32 + 4 + 8)
    }

    fn create(&mut self, name: &str) -> Result<(), LockstepError> {
        let how = (ACCESS_WRITE, 0, DISPOSITION_OVERWRITE_IF);
        self.create_file(name, how).map(drop)
    }

    /// MS-SMB 2.2.4.2.
    fn read_block(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>, LockstepError> {
        let mut words = andx();
        words.u16(self.file).u32(offset as u32).u16(bytes as u16);
        words.u16(0).u32(0).u16(0).u32((offset >> 32) as u32);
        let answer = self.ask("reading", READ, &words, &[])?;
        let low = usize::from(u16_at(&answer, WORDS_AT + 10)?);
        let at = usize::from(u16_at(&answer, WORDS_AT + 12)?);
        let high = usize::from(u16_at(&answer, WORDS_AT + 14)?);
        bytes_at(&answer, at, high << 16 | low).map(<[u8]>::to_vec)
    }

    /// MS-SMB 2.2.4.3.
    fn write_block(&mut self, offset: u64, block: &[u8]) -> Result<(), LockstepError> {
        const DATA_AT: u16 = 64;
        let mut words = andx();
        words.u16(self.file).u32(offset as u32).u32(0).u16(0).u16(0);
        words.u16(0).u16(block.len() as u16).u16(DATA_AT);
        words.u32((offset >> 32) as u32);
        let mut bytes = vec![0];
        bytes.extend_from_slice(block);
        let answer = self.ask("writing", WRITE, &words, &bytes)?;
        match usize::from(u16_at(&answer, WORDS_AT + 4)?) == block.len() {
            true => Ok(()),
            false => Err(LockstepError::Malformed("a block that was written in part")),
        }
    }

    fn close(&mut self) -> Result<(), LockstepError> {
        let mut words = Out::default();
        words.u16(self.file).u32(0);
        self.ask("closing the file", CLOSE, &words, &[]).map(drop)
    }
}
