//! What is done with SMB1: the far half's session, and what both halves must see alike.
//!
//! The far half needs no ids of its own for what the client asks: requests pass as they came. It takes multiplex ids for
//! its own reads that the client does not use at the time, and where the client then uses one of them, that request waits
//! until ours is answered.
//!
//! | file | what |
//! |---|---|
//! | `far`, `answers` | passes messages on, and follows what is open |
//! | `multiplex` | which ids are taken, and by whom |
//! | `agreed` | what was negotiated |
//! | `asked` | reads that a half may answer |
//! | `effect` | what a client's message means for what was read ahead |

pub mod agreed;
mod answers;
pub mod asked;
pub mod effect;
mod far;
mod multiplex;

pub use far::FarCifs;

use super::smb1::header::MARK;
use super::smb2::open::FileId;

/// Whether a message is of SMB1.
#[must_use]
pub fn is_cifs(message: &[u8]) -> bool {
    message.starts_with(&MARK)
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
