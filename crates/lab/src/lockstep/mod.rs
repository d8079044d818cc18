//! A file client that waits for every block, as Windows XP's did: one connection, one request of 61,440 bytes under
//! way, over SMB1 or SMB2, as nobody.
//!
//! It is what a protocol optimiser has to help, and it does nothing else: no signing, no retry, no second request.

mod connection;
mod error;
mod fields;
mod random;
mod smb1;
mod smb2;

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use connection::Connection;
pub use error::LockstepError;
pub(crate) use random::places;
pub use random::{RECORD_BYTES, records};

/// What Windows XP asks for at once.
pub const BLOCK_BYTES: usize = 61_440;

/// Which SMB it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// NT LM 0.12.
    Smb1,
    /// 2.1.
    Smb2,
    /// 2.1, with leases in the place of oplocks, and with nothing against others who use the file meanwhile.
    Smb2Leases,
}

/// Where the file is.
#[derive(Debug, Clone)]
pub struct Remote {
    /// The server.
    pub server: SocketAddr,
    /// Its share.
    pub share: String,
    /// The file's name in it.
    pub name: String,
}

/// What both dialects do.
trait Session {
    /// Opens a file to read it; its size.
    fn open(&mut self, name: &str) -> Result<u64, LockstepError>;
    /// Opens a file to write it from its beginning.
    fn create(&mut self, name: &str) -> Result<(), LockstepError>;
    fn read_block(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>, LockstepError>;
    fn write_block(&mut self, offset: u64, block: &[u8]) -> Result<(), LockstepError>;
    fn close(&mut self) -> Result<(), LockstepError>;
}

fn session(
    dialect: Dialect,
    remote: &Remote,
    stop: &Arc<AtomicBool>,
) -> Result<Box<dyn Session>, LockstepError> {
    let connection = Connection::open(remote.server, Arc::clone(stop))?;
    let path = format!("\\\\{}\\{}", remote.server.ip(), remote.share);
    Ok(match dialect {
        Dialect::Smb1 => Box::new(smb1::Smb1::begin(connection, &path)?),
        Dialect::Smb2 => Box::new(smb2::Smb2::begin(connection, &path, false)?),
        Dialect::Smb2Leases => Box::new(smb2::Smb2::begin(connection, &path, true)?),
    })
}

/// Copies a file from the server; the bytes of it. `stop` ends it early with an error, and leaves what has come.
pub fn get(
    dialect: Dialect,
    remote: &Remote,
    into: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<u64, LockstepError> {
    let mut session = session(dialect, remote, stop)?;
    let size = session.open(&remote.name)?;
    let mut file =
        File::create(into).map_err(|error| LockstepError::io("making the copy", error))?;
    let mut offset = 0;
    while offset < size {
        let block = session.read_block(offset, BLOCK_BYTES)?;
        if block.is_empty() {
            return Err(LockstepError::Malformed("an empty block before the end"));
        }
        file.write_all(&block)
            .map_err(|error| LockstepError::io("writing the copy", error))?;
        offset += block.len() as u64;
    }
    session.close()?;
    Ok(offset)
}

/// Reads records of a file here and there, and writes them down in the order in which they came; the bytes of them.
pub fn jump(
    dialect: Dialect,
    remote: &Remote,
    into: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<u64, LockstepError> {
    let mut session = session(dialect, remote, stop)?;
    let size = session.open(&remote.name)?;
    let mut file =
        File::create(into).map_err(|error| LockstepError::io("making the copy", error))?;
    let mut bytes = 0;
    for offset in places(size) {
        let record = session.read_block(offset, RECORD_BYTES as usize)?;
        if record.len() as u64 != RECORD_BYTES {
            return Err(LockstepError::Malformed("a part of a record"));
        }
        file.write_all(&record)
            .map_err(|error| LockstepError::io("writing the copy", error))?;
        bytes += RECORD_BYTES;
    }
    session.close()?;
    Ok(bytes)
}

/// Copies a file to the server; the bytes of it, all of which are there then.
pub fn put(
    dialect: Dialect,
    remote: &Remote,
    from: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<u64, LockstepError> {
    let reading = |error| LockstepError::io("reading the file to send", error);
    let mut file = File::open(from).map_err(reading)?;
    let mut session = session(dialect, remote, stop)?;
    session.create(&remote.name)?;
    let mut offset = 0;
    loop {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        let mut part = (&mut file).take(BLOCK_BYTES as u64);
        part.read_to_end(&mut block).map_err(reading)?;
        if block.is_empty() {
            break;
        }
        session.write_block(offset, &block)?;
        offset += block.len() as u64;
    }
    session.close()?;
    Ok(offset)
}

/// Opens a file, reads its first blocks and closes it, time after time.
pub fn peek(
    dialect: Dialect,
    remote: &Remote,
    blocks: u64,
    times: usize,
    stop: &Arc<AtomicBool>,
) -> Result<(), LockstepError> {
    let mut session = session(dialect, remote, stop)?;
    for _ in 0..times {
        session.open(&remote.name)?;
        for block in 0..blocks {
            session.read_block(block * BLOCK_BYTES as u64, BLOCK_BYTES)?;
        }
        session.close()?;
    }
    Ok(())
}
