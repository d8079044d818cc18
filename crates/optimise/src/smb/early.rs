//! Breaks that overtake the answer to the CREATE whose oplock or lease they take back. A server of SMB2 with several threads may
//! send them so, and the file's number, or the lease, is not known here before that answer. The other part of `far`;
//! what counts is kept for SMB1 as well (`cifs/early`).

use std::collections::BTreeMap;

use super::far::FarSmb;
use super::files::Files;
use super::pending::Lends;
use super::smb2::breaks::Break;
use super::smb2::open::{FileId, OPLOCK_NONE};
use crate::output::Outbox;
use crate::stats::Stats;

/// So many are told apart; with more, whatever is opened next is taken for broken.
const BREAKS_MAX: usize = 64;

/// What is left of what is not known yet. It counts until nothing is being opened any more.
#[derive(Debug, Default)]
pub struct Early {
    oplocks: BTreeMap<FileId, u8>,
    leases: BTreeMap<[u8; 16], u32>,
    has_others: bool,
}

impl Early {
    /// A break of what nobody has here, or of a lease, which what is being opened may have as well; or its acknowledgment.
    pub fn handle_break(&mut self, told: &Break) {
        if self.oplocks.len() + self.leases.len() >= BREAKS_MAX {
            self.has_others = true;
            return;
        }
        match told {
            Break::Oplock(told) => {
                self.oplocks.insert(told.file, told.oplock);
            }
            Break::Lease(told) => self.handle_left(told.key, told.state),
            Break::LeaseAcknowledgment(left) => self.handle_left(left.key, left.state),
        }
    }

    fn handle_left(&mut self, key: [u8; 16], state: u32) {
        *self.leases.entry(key).or_insert(state) &= state;
    }

    /// Whether the oplock of a file that was opened just now may be gone already.
    #[must_use]
    pub fn has(&self, file: FileId) -> bool {
        self.has_others || self.oplocks.contains_key(&file)
    }

    /// Takes from the file that was opened just now what it has lost.
    pub fn lower(&self, file: FileId, files: &mut Files) {
        if let Some(oplock) = self.oplocks.get(&file) {
            files.handle_oplock(file, *oplock);
        }
        for (key, state) in &self.leases {
            files.handle_lease(key, *state);
        }
        if self.has_others {
            files.handle_oplock(file, OPLOCK_NONE);
            files.handle_lease_end(file);
        }
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.oplocks.is_empty() && self.leases.is_empty() && !self.has_others
    }
}

impl FarSmb {
    /// What a server or client says of an oplock or lease while something is being opened; it is passed on as it is.
    pub(super) fn note_early_break(&mut self, told: &Break) {
        if self.pending.has_opens() {
            self.early.handle_break(told);
        }
    }

    /// A file was opened; what was lent for it may be to be given back already.
    pub(super) fn take_early_break(
        &mut self,
        file: FileId,
        lends: Lends,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        if self.early.is_empty() {
            return;
        }
        self.early.lower(file, &mut self.reading.files);
        if lends == Lends::Exclusive && self.early.has(file) {
            self.handle_recalled(file, out, stats);
        }
        if !self.pending.has_opens() {
            self.early = Early::default();
        }
    }
}
