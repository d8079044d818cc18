//! Requests at the server, by the id the server knows them by.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::credits::Asked;
use super::files::Part;
use super::reading::OwnRead;
use super::smb2::connect::SessionSetupRequest;
use super::smb2::header::{Command, Header};
use super::smb2::open::{CreateRequest, FileId};

/// A server's window is not larger.
const REQUESTS_MAX: usize = 8192;

/// What the answer will be needed for.
#[derive(Debug)]
pub enum Purpose {
    /// Nothing.
    Pass,
    /// To learn what protects a file.
    Create(Box<CreateRequest>, Lends),
    /// To learn when it is closed.
    Close(FileId),
    /// To learn whether a session signs.
    Session(Box<SessionSetupRequest>),
    /// A client's read; so many changes had been seen.
    Read(Part, u32),
    /// Our read, for a run.
    Own(OwnRead),
    /// An oplock that we gave back.
    OwnBreak,
    /// A client's write that the near half has answered: file, bytes, credits.
    Behind(FileId, u32, u32),
    /// A file that we open ahead of the client.
    OpenAhead,
    /// What we ask of one: the message.
    Question(Bytes),
    /// A file that we close: the client has not opened it, or believes it closed.
    OwnClose(FileId),
    /// What the client lists: an open folder, a class, and whether from the first name on.
    Listing(FileId, u8, bool),
}

/// Whether a request to open a file asks for an oplock in the client's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lends {
    /// It does, and the client shall not hear of it.
    Exclusive,
    /// It is as the client made it.
    Nothing,
}

/// One request.
#[derive(Debug)]
pub struct Request {
    /// How the client knows it.
    pub client_id: u64,
    /// What it asks.
    pub command: Command,
    /// The share it is about: an answer that was announced names its number there instead (MS-SMB2 2.2.1.1).
    pub tree: Option<u32>,
    /// The file it is about.
    pub file: Option<FileId>,
    /// Credits.
    pub asked: Asked,
    /// It may change files.
    pub is_change: bool,
    /// What the answer will be needed for.
    pub purpose: Purpose,
}

impl Request {
    /// Whether we took a credit for it.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.is_own() && !matches!(self.purpose, Purpose::Behind(..))
    }

    fn is_own(&self) -> bool {
        matches!(
            self.purpose,
            Purpose::Own(..)
                | Purpose::OwnBreak
                | Purpose::Behind(..)
                | Purpose::OpenAhead
                | Purpose::Question(..)
                | Purpose::OwnClose(..)
        )
    }
}

/// All of a connection.
#[derive(Debug, Default)]
pub struct Pending {
    requests: BTreeMap<u64, Request>,
    changes: usize,
}

/// There are more than a server allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl Pending {
    /// A request goes to the server.
    ///
    /// # Errors
    /// When there are too many.
    pub fn insert(&mut self, id: u64, request: Request) -> Result<(), Full> {
        if self.requests.len() >= REQUESTS_MAX {
            return Err(Full);
        }
        self.changes += usize::from(request.is_change);
        if let Some(before) = self.requests.insert(id, request) {
            self.changes -= usize::from(before.is_change);
        }
        Ok(())
    }

    /// One that is answered, but not for the last time.
    pub fn get(&mut self, id: u64) -> Option<&mut Request> {
        self.requests.get_mut(&id)
    }

    /// One that is answered.
    pub fn remove(&mut self, id: u64) -> Option<Request> {
        let request = self.requests.remove(&id)?;
        self.changes -= usize::from(request.is_change);
        Some(request)
    }

    /// Whether a request is ours.
    #[must_use]
    pub fn is_own(&self, id: u64) -> bool {
        self.requests.get(&id).is_some_and(Request::is_own)
    }

    /// How the server knows the client's request.
    #[must_use]
    pub fn id_of(&self, cancel: &Header) -> Option<u64> {
        let is_meant =
            |request: &Request| request.client_id == cancel.message_id && !request.is_own();
        let mut requests = self.requests.iter();
        requests
            .find(|(_, request)| is_meant(request))
            .map(|(id, _)| *id)
    }

    /// Whether something is at the server that may change files.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.changes > 0
    }

    /// Whether a file is being opened.
    #[must_use]
    pub fn has_opens(&self) -> bool {
        let mut requests = self.requests.values();
        requests.any(|request| request.command == Command::Create)
    }

    /// Whether nothing is at the server.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether something of the client's is at the server.
    #[must_use]
    pub fn has_clients(&self) -> bool {
        self.requests.values().any(|request| !request.is_own())
    }
}
