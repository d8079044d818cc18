//! Oplocks of SMB1 that the far half holds for clients that ask for none. The other part of `far`; why, and how one is
//! given back, is in `lent`.

use bytes::{Bytes, BytesMut};

use super::super::lent::{is_of_stream, is_wanted};
use super::super::netbios::{PREFIX_BYTES, packet};
use super::super::smb1::header::{Header, LOCKING_ANDX, NT_CREATE_ANDX, lone_block};
use super::super::smb1::open::{
    ASKS_BATCH, ASKS_OPLOCK, LEFT_NONE, LockingRequest, NtCreateRequest, set_create_flags,
};
use super::super::smb2::open::FileId;
use super::far::FarCifs;
use super::file_of;
use crate::output::Outbox;
use crate::stats::Stats;

/// Multiplex ids of oplocks given back: nobody answers those, but a server that finds no such file.
const SILENT_MAX: usize = 64;

impl FarCifs {
    /// The flags of an open that asks for an oplock in the client's place, if it may.
    pub(super) fn lends(&self, header: &Header, message: &[u8]) -> Option<u32> {
        if header.command != NT_CREATE_ANDX || !self.is_disk(header.tree) {
            return None;
        }
        let block = lone_block(message).ok()?;
        let create = NtCreateRequest::parse(&block).ok()?;
        let asks = create.flags & (ASKS_OPLOCK | ASKS_BATCH) != 0;
        let is_wanted = is_wanted(asks, create.access, create.options);
        let is_wanted = is_wanted && !is_of_stream(&create.name, header.is_wide());
        let has_room = self.lent.has_room() && self.reading.files.has_room();
        let may = self.agreed.can_read_ahead()
            && has_room
            && self.reading.window.is_quick()
            && !self.reading.is_quiet;
        (is_wanted && may).then_some(create.flags | ASKS_OPLOCK)
    }

    /// An open with these flags in place of the client's.
    pub(super) fn lend(&mut self, packet: &[u8], flags: u32) -> Bytes {
        self.has_begun = true;
        let mut edited = BytesMut::from(packet);
        set_create_flags(&mut edited, PREFIX_BYTES, flags);
        edited.freeze()
    }

    /// The server wants one back. Somebody waits for it to be given.
    pub(super) fn handle_recalled(&mut self, file: FileId, out: &mut Outbox, stats: &mut Stats) {
        let now_ns = self.now_ns;
        if self.guarded().handle_recalled(file, now_ns, out, stats) {
            self.give_back(out);
        }
    }

    /// The near half has dropped everything that it was told to drop before it was asked.
    pub(super) fn handle_fenced(&mut self, number: u32, out: &mut Outbox) {
        if self.lent.handle_fenced(number).is_some() {
            self.give_back(out);
        }
    }

    /// Gives back what can be given back (MS-CIFS 2.2.4.32.1).
    pub(super) fn give_back(&mut self, out: &mut Outbox) {
        loop {
            let writing = &self.writing;
            let owed = self.lent.next_owed(|file| writing.is_busy(file));
            let Some((file, ..)) = owed else {
                return;
            };
            self.lent.handle_returned(file);
            let (Some(opener), Some(multiplex)) =
                (self.openers.get(&file), self.multiplex.free_id())
            else {
                continue;
            };
            let mut message = Vec::new();
            opener.request(LOCKING_ANDX, multiplex).emit(&mut message);
            LockingRequest::release(file_of(file), LEFT_NONE).emit(&mut message);
            self.silent.push_back(multiplex);
            if self.silent.len() > SILENT_MAX {
                self.silent.pop_front();
            }
            self.send_own(packet(&message), out);
        }
    }

    /// Whether an answer is to an oplock that we gave back.
    pub(super) fn is_silent(&mut self, multiplex: u16) -> bool {
        let known = self.silent.iter().position(|other| *other == multiplex);
        known.and_then(|at| self.silent.remove(at)).is_some()
    }
}
