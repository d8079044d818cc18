//! Multiplex ids: which the client uses, and which are free for requests of ours.

use std::collections::{BTreeMap, VecDeque};

use super::super::files::Part;
use super::super::reading::OwnRead;
use super::super::smb1::header::{Header, MULTIPLEX_NONE};
use super::super::smb2::open::FileId;

/// The client's last ids: some have several answers.
const RECENT_MAX: usize = 1024;

/// What the answer to a request of the client's will be needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Nothing.
    Pass,
    /// To learn what protects a file.
    Create {
        /// How.
        asked: Header,
        /// Nobody else may write to it.
        are_writers_denied: bool,
        /// Its writes need not be on the disk at once.
        may_be_late: bool,
        /// An oplock is asked for in the client's place.
        is_lent: bool,
    },
    /// To learn which number a transaction gives to a file.
    Open,
    /// To know what is closed with a share, a session or a process.
    Leave(Header),
    /// To learn what a share is.
    Tree,
    /// A read; so many changes had been seen.
    Read(Part, u32),
}

/// A request of the client's.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// What the answer will be needed for.
    pub purpose: Purpose,
    /// It may change files.
    pub is_change: bool,
    /// The file it is about.
    pub file: Option<FileId>,
    /// The file that it closes, alone or behind something else.
    pub closes: Option<FileId>,
}

impl Request {
    /// Whether it asks for an oplock that the client shall not hear of.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        matches!(self.purpose, Purpose::Create { is_lent: true, .. })
    }
}

/// A request of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// A read, for a run.
    Read(OwnRead),
    /// A client's write that the near half has answered.
    Write(Part),
}

/// All of a connection. There cannot be more than ids, of 16 bits.
#[derive(Debug, Default)]
pub struct Multiplex {
    clients: BTreeMap<u16, Request>,
    own: BTreeMap<u16, Own>,
    recent: VecDeque<u16>,
    next: u16,
    changes: usize,
}

impl Multiplex {
    /// A request of the client's goes to the server. One that uses an id again takes the place of the one before.
    pub fn insert(&mut self, id: u16, request: Request) {
        self.changes += usize::from(request.is_change);
        if let Some(before) = self.clients.insert(id, request) {
            self.changes -= usize::from(before.is_change);
        }
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(id);
    }

    /// It is answered.
    pub fn remove(&mut self, id: u16) -> Option<Request> {
        let request = self.clients.remove(&id)?;
        self.changes -= usize::from(request.is_change);
        Some(request)
    }

    /// The server has given a number to another file: what was to close the one before has.
    pub fn handle_given(&mut self, file: FileId) {
        let requests = self.clients.values_mut();
        requests
            .filter(|request| request.closes == Some(file))
            .for_each(|request| request.closes = None);
    }

    /// An id for a request of ours, if one is free.
    pub fn take_id(&mut self, request: Own) -> Option<u16> {
        let free = self.free_id()?;
        self.own.insert(free, request);
        Some(free)
    }

    /// An id that nobody uses and that is not used again soon.
    pub fn free_id(&mut self) -> Option<u16> {
        let free = (0..=u16::MAX).find_map(|step| {
            // From the top: clients begin at the bottom.
            let id = MULTIPLEX_NONE.wrapping_sub(self.next.wrapping_add(step));
            let is_taken = id == MULTIPLEX_NONE
                || id == 0
                || self.own.contains_key(&id)
                || self.clients.contains_key(&id)
                || self.recent.contains(&id);
            (!is_taken).then_some(id)
        })?;
        self.next = MULTIPLEX_NONE.wrapping_sub(free).wrapping_add(1);
        Some(free)
    }

    /// A request of ours is answered.
    pub fn take_own(&mut self, id: u16) -> Option<Own> {
        self.own.remove(&id)
    }

    /// Whether ours has this id.
    #[must_use]
    pub fn is_own(&self, id: u16) -> bool {
        self.own.contains_key(&id)
    }

    /// Whether one of ours is about this file.
    #[must_use]
    pub fn is_own_at(&self, file: FileId) -> bool {
        let is_at = |own: &Own| match own {
            Own::Read(read) => read.part.file == file,
            Own::Write(part) => part.file == file,
        };
        self.own.values().any(is_at)
    }

    /// Whether a read of the client's is.
    #[must_use]
    pub fn is_read_at(&self, file: FileId) -> bool {
        let is_at = |request: &Request| match &request.purpose {
            Purpose::Read(part, _) => part.file == file,
            _ => false,
        };
        self.clients.values().any(is_at)
    }

    /// Whether a file is being opened,
    #[must_use]
    pub fn has_opens(&self) -> bool {
        let is_open = |request: &Request| matches!(request.purpose, Purpose::Create { .. });
        self.clients.values().any(is_open)
    }

    /// or one with an oplock that the client did not ask for.
    #[must_use]
    pub fn is_borrowing(&self) -> bool {
        self.clients.values().any(Request::is_lent)
    }

    /// Requests of ours.
    #[must_use]
    pub fn own(&self) -> usize {
        self.own.len()
    }

    /// All requests at the server.
    #[must_use]
    pub fn all(&self) -> usize {
        self.own.len() + self.clients.len()
    }

    /// Whether something is at the server that may change files.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        let is_write = |own: &Own| matches!(own, Own::Write(_));
        self.changes > 0 || self.own.values().any(is_write)
    }
}
