//! Segments of what passed, on disk, so that a gateway that starts again knows what it knew.
//!
//! A store is one direction with one peer: a folder with a file `store`, which says whose it is, and files `segments-N` of 16 slots.
//! Either is made under another name and appears in full, so one that is shorter was cut by somebody.
//! A slot is a segment of 1 MiB and two places for its footer. A segment that grows is written to its own slot again, bytes that were there
//! before unchanged, and its footer goes to the other place; so a crash at any write leaves the older footer, which still holds.
//! Nothing is believed that was not hashed: a block that does not have the hash of its footer is not there.
//!
//! # A file of segments
//!
//! | bytes | what |
//! |---|---|
//! | 16 x 1 MiB | segments |
//! | 16 x 2 x 512 | footers: of each slot the place for even versions, then that for odd ones |
//!
//! # A footer
//! Numbers are little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `FHSEG` 0 0 and the version of this table, 1 |
//! | 16 | store: drawn at random, in the file `store`, too |
//! | 16 | log: the store of the gateway that sent the bytes |
//! | 8 | number of the segment in that log: its position is the number times 1 MiB |
//! | 8 | epoch: drawn at random by the sender whenever its log begins anew |
//! | 4 | version: of this slot's two footers the greater is the newer |
//! | 4 | zero |
//! | 16 x 4 | bytes of each block of 64 KiB that are there, from its beginning on |
//! | 16 x 16 | the first half of each block's BLAKE3, over these bytes |
//! | 96 | zero |
//! | 32 | BLAKE3 of the 480 bytes before |
//!
//! # The file `store`
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `FHSTORE` and the version of this table, 1 |
//! | 16 | store |
//! | 32 | BLAKE3 of what names machine and disk (`identity.rs`) |
//! | 32 | BLAKE3 of the 56 bytes before |
//!
//! Why it is so: `docs/design/segment-store.md`.

mod catalog;
mod clear;
mod embedded;
mod files;
mod footer;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod identity;
#[cfg(test)]
mod tests;
mod verify;

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use farhaul_reduce::BlockLengths;

use crate::regular;
pub use crate::regular::DANGLING;

#[cfg(test)]
pub(crate) use self::catalog::entry_bytes;
pub use self::catalog::{Catalog, Counts, Key, Listed};
pub use self::clear::clear_unused;
pub use self::embedded::{Embedded, Options};
pub use self::files::{Files, Folder};
pub(crate) use self::identity::place;
pub use self::verify::{Unreadable, Verified, verify};

/// Waits for a disk.
pub type Syncing = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// What is remembered of one direction on disk. Reads and writes block: it belongs to a thread of its own.
pub trait Store: Send {
    /// Writes what is new of a segment. It counts as there after the next [`Store::sync`].
    fn save(
        &mut self,
        key: Key,
        epoch: u64,
        bytes: &[u8],
        lengths: &BlockLengths,
    ) -> Result<(), StoreError>;

    /// What makes durable what was saved, in whatever thread. Nothing may be saved until [`Store::synced`] knows how it went; what is there
    /// can be read meanwhile.
    fn start_sync(&mut self) -> Syncing;

    /// What [`Store::start_sync`] gave was done.
    fn synced(&mut self, outcome: io::Result<()>) -> Result<(), StoreError>;

    /// Makes durable what was saved, and waits for it.
    fn sync(&mut self) -> Result<(), StoreError> {
        let syncing = self.start_sync();
        self.synced(syncing())
    }

    /// Reads a segment into `into`, as long as one, and says what of it is as it was written.
    fn load(&mut self, key: Key, into: &mut Vec<u8>) -> Result<BlockLengths, StoreError>;

    /// Forgets what is of other logs than this.
    fn retain(&mut self, log: u128) -> Result<(), StoreError>;

    /// Forgets everything.
    fn clear(&mut self) -> Result<(), StoreError>;

    /// What is there, for others to look at.
    fn catalog(&self) -> Arc<Mutex<Catalog>>;
}

/// Why a store does not do what it is asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system says no.
    #[error("{what} {}: {error}", .path.display())]
    Disk {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What it says.
        error: io::Error,
    },
    /// Another process has it.
    #[error("{} is in use by another gateway", .0.display())]
    InUse(PathBuf),
    /// There is no such segment.
    #[error("there is no segment {0} of this log")]
    Absent(u64),
    /// There is no room, and nothing that could go.
    #[error("the store has no room for a single segment")]
    NoRoom,
}

impl StoreError {
    /// What somebody can do about it, if that can be told.
    pub fn remedy(&self) -> Option<&'static str> {
        let error = match self {
            Self::InUse(_) => {
                return Some("stop that one, or give each a `store.disk.path` of its own");
            }
            Self::NoRoom => return Some("raise `store.disk.size`"),
            Self::Absent(_) => return None,
            Self::Disk { error, .. } => error,
        };
        match error.kind() {
            ErrorKind::ReadOnlyFilesystem => Some("make the file system writable"),
            ErrorKind::PermissionDenied => Some("let the gateway's user write there"),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some("make room there"),
            ErrorKind::AlreadyExists
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | regular::NOT_REGULAR => Some("remove what is in its place"),
            _ => None,
        }
    }
}
