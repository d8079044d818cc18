//! SMB: files on a server. The wire formats, and the two halves that read ahead and write behind.
//!
//! | file | what |
//! |---|---|
//! | `netbios` | packets under every dialect |
//! | `smb1/`, `smb2/` | messages; they decide nothing |
//! | `effect`, `guarded` | what a client's message means for what was read ahead, and what ends it |
//! | `message` | what the halves tell each other |
//! | `asked` | what a half may answer, and the answers |
//! | `near`, `kept` | answers the client from what was read ahead |
//! | `offered` | opens files for the client that the far half has opened ahead of it, asks of them and closes them |
//! | `session` | which of the two below faces the server |
//! | `cifs/` | the far half of SMB1 |
//! | `far`, `noted`, `own`, `answers`, `pending`, `connection`, `files` | that of SMB2 and SMB3: passes messages on, translated where need be, and follows what is open |
//! | `behind` | answers writes before the server has |
//! | `writing` | which, and what is done with them next to the server |
//! | `refused` | lets the server refuse what must not be done behind one that failed |
//! | `reading`, `ahead` | decides what to read ahead next to the server |
//! | `folder`, `opening`, `shutting`, `doubts` | opens the next files of a folder ahead of the client that copies it |
//! | `lent` | the oplocks that protect what is read ahead for clients that ask for none |
//! | `early` | breaks that overtake the answer to the CREATE |
//! | `ids`, `credits`, `window`, `rows`, `thrift` | message ids, credits, how far ahead, when to begin, and what may be in vain |

mod ahead;
mod answers;
mod asked;
mod behind;
mod bytes_le;
mod cifs;
mod connection;
mod credits;
mod doubts;
mod early;
mod effect;
mod error;
mod far;
mod files;
mod folder;
mod guarded;
mod ids;
mod kept;
mod lent;
pub(crate) mod message;
mod near;
pub mod netbios;
mod noted;
mod offered;
mod opening;
mod own;
mod pending;
mod reading;
mod refused;
mod rows;
mod session;
mod shutting;
pub mod smb1;
pub mod smb2;
mod thrift;
mod window;
mod writing;

pub use error::WireError;
pub use near::NearSmb;
pub use session::Far;

/// Whether a client that begins like this speaks SMB; `None` while it is too early to tell.
#[must_use]
pub fn looks_like(client: &[u8]) -> Option<bool> {
    const SESSION_REQUEST: u8 = 0x81;
    let kind = *client.first()?;
    if kind == SESSION_REQUEST {
        // RFC 1002 4.3.2: two encoded names of 34 bytes. It is followed by SMB.
        let is_whole = client.len() >= netbios::PREFIX_BYTES;
        return is_whole.then(|| client.starts_with(&[SESSION_REQUEST, 0, 0, 68]));
    }
    if kind != 0 {
        return Some(false);
    }
    // The length is no mark: what follows it is.
    let mark = client.get(netbios::PREFIX_BYTES..)?;
    let marks = [smb2::header::MARK, smb1::header::MARK];
    let fits = |known: &[u8; 4]| mark.iter().zip(known).all(|(seen, wanted)| seen == wanted);
    match (marks.iter().any(fits), mark.len() >= 4) {
        (false, _) => Some(false),
        (true, true) => Some(true),
        (true, false) => None,
    }
}
