//! Open files: what protects their bytes from others, and how they are read.

use std::collections::BTreeMap;

use super::ahead::Run;
use super::smb2::open::{
    CreateRequest, CreateResponse, FileId, LEASE_BREAK_IN_PROGRESS, LEASE_READ, LEASE_WRITE, Lease,
    OPLOCK_BATCH, OPLOCK_EXCLUSIVE, OPLOCK_II, OPLOCK_LEASE, OPLOCK_NONE, SHARE_WRITE,
};
use super::window::Watched;

/// More than a client has open at a time; those beyond are not read ahead.
const FILES_MAX: usize = 4096;

/// Part of an open file, and in whose name it is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The session.
    pub session: u64,
    /// The share.
    pub tree: u32,
    /// Which file.
    pub file: FileId,
    /// First byte.
    pub offset: u64,
    /// How many.
    pub length: u32,
}

impl Part {
    /// Behind the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length.into())
    }
}

/// Which changes through the same connection cannot concern a file unnoticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Firmness {
    /// Any may.
    Nothing,
    /// Those of other files that are open cannot.
    Writes,
    /// Nor can files that are opened, and emptied by that.
    Opens,
}

impl Firmness {
    /// As the halves tell each other. There was 1 before there was 2: an older far half says it of whatever it keeps, and a near half
    /// that dropped such a run would be told for ever to answer out of it.
    #[must_use]
    pub fn of(told: u8) -> Self {
        match told {
            0 => Self::Nothing,
            1 => Self::Opens,
            _ => Self::Writes,
        }
    }

    /// See [`Self::of`].
    #[must_use]
    pub fn told(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Opens => 1,
            Self::Writes => 2,
        }
    }
}

/// What keeps others from changing a file unnoticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protection {
    oplock: u8,
    lease: Option<([u8; 16], u32)>,
    are_writers_denied: bool,
}

impl Protection {
    /// As granted (MS-SMB2 2.2.13, 2.2.14).
    #[must_use]
    pub fn of(asked: &CreateRequest, granted: &CreateResponse) -> Self {
        let is_its = |lease: &Lease| {
            // As it was before a break that its holders have not answered yet: it is less by now.
            let is_being_broken = lease.flags & LEASE_BREAK_IN_PROGRESS != 0;
            granted.oplock == OPLOCK_LEASE && !is_being_broken
        };
        let lease = Lease::among(&granted.contexts).filter(is_its);
        Self {
            oplock: granted.oplock,
            lease: lease.map(|lease| (lease.key, lease.state)),
            are_writers_denied: asked.share & SHARE_WRITE == 0 && !asked.is_reconnect(),
        }
    }

    /// By an oplock alone, in SMB2's words, or by how others may use the file meanwhile.
    #[must_use]
    pub fn by_oplock(oplock: u8, are_writers_denied: bool) -> Self {
        Self {
            oplock,
            lease: None,
            are_writers_denied,
        }
    }

    /// Of a file that anybody may change.
    #[must_use]
    pub fn none() -> Self {
        Self::by_oplock(OPLOCK_NONE, false)
    }

    /// Whether what was read may be kept until we hear otherwise. A share mode that denies writers is not enough: Samba 4.17 lets
    /// files be opened to be read and emptied by that.
    #[must_use]
    pub fn protects(&self) -> bool {
        let has_lease = self.lease.is_some_and(|(_, state)| state & LEASE_READ != 0);
        self.has_oplock() || has_lease
    }

    fn has_oplock(&self) -> bool {
        [OPLOCK_II, OPLOCK_EXCLUSIVE, OPLOCK_BATCH].contains(&self.oplock)
    }

    /// Whether the server can end that.
    fn may_be_recalled(&self) -> bool {
        let has_lease = self.lease.is_some_and(|(_, state)| state != 0);
        has_lease || self.has_oplock()
    }

    /// What the same client cannot do to it through another open file either, without a break before. A lease belongs to all opens of
    /// its key, and a level II oplock is broken after the fact.
    #[must_use]
    pub fn firmness(&self) -> Firmness {
        if [OPLOCK_EXCLUSIVE, OPLOCK_BATCH].contains(&self.oplock) {
            Firmness::Opens
        } else if self.are_writers_denied {
            Firmness::Writes
        } else {
            Firmness::Nothing
        }
    }

    /// Whether nobody else reads the file without a break before: its holder may keep what it writes for a while.
    #[must_use]
    pub fn keeps_writes(&self) -> bool {
        let has_lease = self
            .lease
            .is_some_and(|(_, state)| state & LEASE_WRITE != 0);
        has_lease || [OPLOCK_EXCLUSIVE, OPLOCK_BATCH].contains(&self.oplock)
    }
}

/// Where a client reads on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sequence {
    /// Where a read would be the next one.
    pub next_offset: u64,
    /// Reads so far that no run answered.
    pub reads: u32,
    /// It began at the file's beginning.
    pub is_first: bool,
}

impl Sequence {
    fn has_next(&self, part: &Part) -> bool {
        part.offset == self.next_offset && part.offset > 0
    }

    fn with(self, part: &Part) -> Self {
        Self {
            next_offset: part.end(),
            reads: self.reads.saturating_add(1),
            ..self
        }
    }

    fn is_look_at_head(&self) -> bool {
        self.is_first && self.reads <= 1
    }
}

/// One open file.
#[derive(Debug)]
pub struct OpenFile {
    /// Whose.
    pub session: u64,
    /// On which share.
    pub tree: u32,
    /// At least, if it was not cut by who has it open.
    pub size_bytes: u64,
    /// What keeps others from changing it.
    pub protection: Protection,
    /// Where the client reads on.
    pub sequence: Sequence,
    /// And where it did before it looked at the head.
    before_head: Option<Sequence>,
    /// How much the client asks for at once.
    pub read_bytes: u32,
    /// The near half was told of it: it may hold something of it, or answer writes.
    pub was_told: bool,
    /// The server failed us.
    pub is_broken: bool,
    /// What is read ahead.
    pub run: Option<Run>,
}

impl OpenFile {
    /// One of which nothing has been read.
    #[must_use]
    pub fn new(session: u64, tree: u32, size_bytes: u64, protection: Protection) -> Self {
        Self {
            session,
            tree,
            size_bytes,
            protection,
            sequence: Sequence::default(),
            before_head: None,
            read_bytes: 0,
            was_told: false,
            is_broken: false,
            run: None,
        }
    }

    /// Whether this run is the one it has.
    #[must_use]
    pub fn is_running(&self, run: u32) -> bool {
        self.run.as_ref().is_some_and(|other| other.id == run)
    }

    /// Its size and its run.
    pub fn with_run(&mut self) -> Option<(&mut u64, &mut Run)> {
        Some((&mut self.size_bytes, self.run.as_mut()?))
    }

    /// A read that no run answers. Returns the rows that it leaves, if it does: the one from the head, and the one before that.
    pub fn handle_asked(&mut self, part: &Part) -> impl Iterator<Item = Watched> + use<> {
        let (current, mut left) = (self.sequence, [None, None]);
        self.sequence = if part.offset == 0 {
            // Programs look at the head of what they read now and then, and go on where they were.
            if !current.is_look_at_head() {
                self.before_head = Some(current);
            }
            Sequence {
                reads: self.run.is_none().into(),
                is_first: true,
                next_offset: part.end(),
            }
        } else if current.has_next(part) {
            current.with(part)
        } else {
            match self.before_head.take() {
                Some(before) if before.has_next(part) => before.with(part),
                before => {
                    let is_look = before.is_some() && current.is_look_at_head();
                    let current = (!is_look).then_some(current);
                    left = [before, current].map(|row| row.map(|row| self.row_of(row)));
                    Sequence {
                        next_offset: part.end(),
                        ..Sequence::default()
                    }
                }
            }
        };
        self.read_bytes = part.length;
        left.into_iter().flatten()
    }

    /// The row so far.
    #[must_use]
    pub fn watched(&self) -> Watched {
        self.row_of(self.sequence)
    }

    fn row_of(&self, sequence: Sequence) -> Watched {
        Watched {
            reads: sequence.reads,
            is_first: sequence.is_first,
            read_bytes: self.read_bytes,
            rest_bytes: self.size_bytes.saturating_sub(sequence.next_offset),
        }
    }

    /// Somebody waits for what nobody fetches.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let run = self.run.as_ref();
        run.is_some_and(|run| run.to() < run.wanted && run.in_flight == 0)
    }
}

/// The open files of a connection.
#[derive(Debug, Default)]
pub struct Files {
    files: BTreeMap<FileId, OpenFile>,
}

impl Files {
    /// Whether there may be more of them.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.files.len() < FILES_MAX
    }

    /// Those of these sessions and shares are gone. They have no runs.
    pub fn handle_gone(&mut self, is_gone: impl Fn((u64, u32)) -> bool) {
        self.files
            .retain(|_, file| !is_gone((file.session, file.tree)));
    }

    /// A file was opened. False: there are too many.
    pub fn insert(&mut self, id: FileId, file: OpenFile) -> bool {
        let has_room = self.has_room();
        if has_room {
            self.files.insert(id, file);
        }
        has_room
    }

    /// Session and share of one.
    #[must_use]
    pub fn place_of(&self, id: FileId) -> Option<(u64, u32)> {
        let file = self.files.get(&id)?;
        Some((file.session, file.tree))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&FileId, &OpenFile)> {
        self.files.iter()
    }

    /// A file was closed.
    pub fn remove(&mut self, id: FileId) -> Option<OpenFile> {
        self.files.remove(&id)
    }

    /// One of them.
    pub fn get(&mut self, id: FileId) -> Option<&mut OpenFile> {
        self.files.get_mut(&id)
    }

    /// The file a read or write is of, if it was opened in the same session and share.
    pub fn of_part(&mut self, part: &Part) -> Option<&mut OpenFile> {
        let file = self.files.get_mut(&part.file)?;
        let is_its = file.session == part.session && file.tree == part.tree;
        is_its.then_some(file)
    }

    /// Whether no other open file of the same client can be the same one.
    #[must_use]
    pub fn is_firm(&self, id: FileId) -> bool {
        let file = self.files.get(&id);
        file.is_some_and(|file| file.protection.firmness() >= Firmness::Writes)
    }

    /// Whether the near half may hold something of a file that the server can take back.
    #[must_use]
    pub fn may_be_recalled(&self) -> bool {
        let mut files = self.files.values();
        files.any(|file| file.was_told && file.protection.may_be_recalled())
    }

    /// The file of a run.
    pub fn of_run(&mut self, run: u32) -> Option<(FileId, &mut OpenFile)> {
        let mut files = self.files.iter_mut();
        let (id, file) = files.find(|(_, file)| file.is_running(run))?;
        Some((*id, file))
    }

    /// Ends the runs of those files for which it is asked.
    pub fn end_runs(&mut self, ends: impl Fn(FileId, &OpenFile) -> bool) -> Vec<Run> {
        let ended = self.files.iter_mut().filter(|(id, file)| ends(**id, file));
        ended.filter_map(|(_, file)| file.run.take()).collect()
    }

    /// All runs.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.files.values().filter_map(|file| file.run.as_ref())
    }

    /// An oplock was broken: what is left of it. False if the file is not known.
    pub fn handle_oplock(&mut self, id: FileId, oplock: u8) -> bool {
        let Some(file) = self.files.get_mut(&id) else {
            return false;
        };
        // An acknowledgment may give up more, never less.
        let is_less = oplock < file.protection.oplock || oplock == OPLOCK_NONE;
        if is_less {
            file.protection.oplock = oplock;
        }
        true
    }

    /// A lease was broken: what is left of it. False if no file has it.
    pub fn handle_lease(&mut self, key: &[u8; 16], left: u32) -> bool {
        let mut is_known = false;
        for file in self.files.values_mut() {
            if let Some((its_key, state)) = &mut file.protection.lease
                && its_key == key
            {
                *state &= left;
                is_known = true;
            }
        }
        is_known
    }

    /// Whatever lease a file has is gone.
    pub fn handle_lease_end(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.protection.lease = None;
        }
    }

    /// Whether this file is under this lease.
    #[must_use]
    pub fn has_lease(file: &OpenFile, key: &[u8; 16]) -> bool {
        file.protection
            .lease
            .is_some_and(|(its_key, _)| its_key == *key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::smb2::open::{CreateContext, FileFacts};
    use super::*;

    /// What an older half says of a file that it keeps through everything must mean that still.
    #[test]
    fn invariant_10_one_is_as_firm_as_can_be() {
        for firmness in [Firmness::Nothing, Firmness::Writes, Firmness::Opens] {
            assert_eq!(Firmness::of(firmness.told()), firmness);
        }
        assert_eq!(Firmness::of(1), Firmness::Opens);
        // What a newer half may say is not more than is known.
        assert_eq!(Firmness::of(7), Firmness::Writes);
    }

    #[test]
    fn who_looks_at_the_head_goes_on_where_it_was() {
        let mut file = OpenFile::new(1, 2, 1 << 30, Protection::none());
        let mut asked = |offset| {
            let part = Part {
                session: 1,
                tree: 2,
                file: FileId::RELATED,
                offset,
                length: 4096,
            };
            let left = file.handle_asked(&part).map(|row| row.reads);
            let left: Vec<u32> = left.collect();
            (file.sequence.reads, file.sequence.is_first, left)
        };
        assert_eq!(asked(40_960), (0, false, vec![0]));
        assert_eq!(asked(45_056), (1, false, vec![]));
        assert_eq!(asked(0), (1, true, vec![]));
        assert_eq!(asked(0), (1, true, vec![]));
        assert_eq!(asked(49_152), (2, false, vec![]));
        assert_eq!(asked(0), (1, true, vec![]));
        // A look is no row.
        assert_eq!(asked(1 << 20), (0, false, vec![2]));
        assert_eq!(asked(0), (1, true, vec![]));
        // Who reads on from the head does so.
        assert_eq!(asked(4_096), (2, true, vec![]));
        assert_eq!(asked(8_192), (3, true, vec![]));
        // The row before the head was left as well as this one.
        assert_eq!(asked(1 << 20), (0, false, vec![0, 3]));
    }

    /// Who takes up a file after a lost connection has it as it was opened, whatever the request says of others.
    #[test]
    fn only_what_the_server_looks_at_denies_writers() {
        let protection = |context: &[u8], oplock| {
            let context = CreateContext {
                name: context.to_vec(),
                data: vec![0; 16],
            };
            let asked = CreateRequest {
                oplock,
                impersonation: 2,
                access: 1,
                attributes: 0,
                share: 1,
                disposition: 1,
                options: 0,
                name: Vec::new(),
                contexts: vec![context],
            };
            let granted = CreateResponse {
                oplock,
                flags: 0,
                action: 1,
                facts: FileFacts::default(),
                file: FileId::RELATED,
                contexts: Vec::new(),
            };
            Protection::of(&asked, &granted)
        };
        for opened in [b"DHnQ", b"DH2Q", b"AlSi"] {
            assert_eq!(protection(opened, OPLOCK_NONE).firmness(), Firmness::Writes);
        }
        for taken_up in [b"DHnC", b"DH2C"] {
            assert!(!protection(taken_up, OPLOCK_NONE).protects());
            assert!(protection(taken_up, OPLOCK_II).protects());
            let firmness = protection(taken_up, OPLOCK_II).firmness();
            assert_eq!(firmness, Firmness::Nothing);
        }
    }
}
