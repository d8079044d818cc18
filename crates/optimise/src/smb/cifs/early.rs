//! Breaks that overtake the answer to the NT_CREATE_ANDX whose oplock they take back. The other part of `far`; what is left of the
//! file is kept as in SMB2 (`smb/early`).
//!
//! Only that answer tells whether the oplock is the client's or borrowed for it, and of a borrowed one the client shall not hear.
//! So while an open that borrows is at the server, a break of a file that nobody knows waits here: the answer to its open is
//! right behind it.

use std::collections::VecDeque;

use bytes::Bytes;

use super::super::early::Early;
use super::super::smb2::breaks::{Break, OplockBreak};
use super::super::smb2::open::FileId;
use super::far::FarCifs;
use crate::output::Outbox;
use crate::stats::Stats;

/// So many wait; more are passed on, and what they are of is taken for broken.
const UNTOLD_MAX: usize = 32;
/// Breaks are not longer: what is may be anything.
const BREAK_BYTES_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub struct EarlyBreaks {
    /// What is left of files that are not known yet.
    left: Early,
    /// What the client may have to be told.
    untold: VecDeque<(FileId, Bytes)>,
}

impl FarCifs {
    /// A break of a file that is not known. Whether the client is not to hear of it yet.
    pub(super) fn keep_early_break(&mut self, told: OplockBreak, packet: &[u8]) -> bool {
        if !self.multiplex.has_opens() {
            return false;
        }
        let OplockBreak { file, .. } = told;
        self.early.left.handle_break(&Break::Oplock(told));
        let is_short = packet.len() <= BREAK_BYTES_MAX;
        let has_room = is_short && self.early.untold.len() < UNTOLD_MAX;
        let waits = has_room && self.multiplex.is_borrowing() && !self.openers.contains_key(&file);
        if waits {
            let packet = Bytes::copy_from_slice(packet);
            self.early.untold.push_back((file, packet));
        }
        waits
    }

    /// A file was opened; what was borrowed for it may be to be given back already.
    pub(super) fn take_early_break(
        &mut self,
        file: FileId,
        is_lent: bool,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        let early = &mut self.early;
        early.left.lower(file, &mut self.reading.files);
        if is_lent && early.left.has(file) {
            early.untold.retain(|(other, _)| *other != file);
            self.handle_recalled(file, out, stats);
        }
    }

    /// The client has been answered: tells it of breaks that are its own, as is all that is left when nothing is borrowed any more.
    pub(super) fn tell_early_breaks(&mut self, out: &mut Outbox) {
        // Nothing gets into the middle of an answer that passes in pieces.
        if self.early.left.is_empty() || self.has_server_rest() {
            return;
        }
        let is_borrowing = self.multiplex.is_borrowing();
        for (file, packet) in std::mem::take(&mut self.early.untold) {
            match is_borrowing && !self.openers.contains_key(&file) {
                true => self.early.untold.push_back((file, packet)),
                false => out.peer(packet),
            }
        }
        if !self.multiplex.has_opens() {
            self.early.left = Early::default();
        }
    }
}
