//! What is done with SMB1: the far half's session, and what both halves must see alike.
//!
//! The far half needs no ids of its own for what the client asks: requests pass as they came, but for an oplock that it
//! asks for in a client's place. It takes multiplex ids for
//! its own reads that the client does not use at the time, and where the client then uses one of them, that request waits
//! until ours is answered.
//!
//! | file | what |
//! |---|---|
//! | `far`, `answers` | passes messages on, and follows what is open |
//! | `own` | reads of its own |
//! | `multiplex` | which ids are taken, and by whom |
//! | `agreed` | what was negotiated |
//! | `asked` | reads and writes that a half may answer |
//! | `lending` | oplocks that it holds for clients that ask for none |
//! | `numbers` | which files an answer opens and closes |
//! | `early` | breaks that overtake the answer to the open |
//! | `behind` | what becomes of writes that were answered |
//! | `refused` | lets the server refuse what must not be done behind one that failed |
//! | `effect` | what a client's message means for what was read ahead |

pub mod agreed;
mod answers;
pub mod asked;
mod behind;
mod early;
pub mod effect;
mod far;
mod lending;
mod multiplex;
mod numbers;
mod own;
mod refused;

pub use far::FarCifs;

use super::files::Part;
use super::smb1::header::{Header, MARK, WRITE_ANDX};
use super::smb2::open::FileId;

/// Whether a message is of SMB1.
#[must_use]
pub fn is_cifs(message: &[u8]) -> bool {
    message.starts_with(&MARK)
}

/// Whether it begins with a write that both halves count.
#[must_use]
pub fn is_write(message: &[u8]) -> bool {
    const COMMAND_AT: usize = MARK.len();
    is_cifs(message) && message.get(COMMAND_AT) == Some(&WRITE_ANDX)
}

/// An open file of SMB1, which has no more than 16 bits, in SMB2's words.
#[must_use]
pub fn file_id(file: u16) -> FileId {
    FileId {
        persistent: 0,
        volatile: file.into(),
    }
}

/// And back.
#[must_use]
pub fn file_of(id: FileId) -> u16 {
    (id.volatile & 0xffff) as u16
}

/// What a read or write is about.
fn part_of(header: &Header, file: u16, offset: u64, length: u32) -> Part {
    Part {
        session: header.user.into(),
        tree: header.tree.into(),
        file: file_id(file),
        offset,
        length,
    }
}
