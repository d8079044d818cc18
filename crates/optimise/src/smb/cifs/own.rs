//! Requests of the far half's own at a server of SMB1: they take multiplex ids. The other part of `far`.

use bytes::Bytes;

use super::super::files::Part;
use super::super::netbios::packet;
use super::super::reading::{OwnRead, Reading};
use super::super::smb1::header::READ_ANDX;
use super::super::smb1::transfer::ReadRequest;
use super::far::FarCifs;
use super::file_of;
use super::multiplex::Own;
use crate::output::Outbox;
use crate::stats::Stats;

/// Reads of ours at a time: a server is near.
const OWN_MAX: usize = 16;

/// From now on messages of ours are among the client's: SMB1 always lets that begin.
fn begin(has_begun: &mut bool) -> bool {
    *has_begun = true;
    true
}

impl FarCifs {
    /// Lets it be decided what to read ahead, and reads that.
    pub(super) fn read_on<T>(
        &mut self,
        out: &mut Outbox,
        decide: impl FnOnce(&mut Reading, &mut Outbox) -> T,
    ) -> T {
        self.reading.allowance = self.allowance();
        let decided = decide(&mut self.reading, out);
        self.send_orders(out);
        decided
    }

    /// A read went to the server.
    pub(super) fn consider(&mut self, part: &Part, out: &mut Outbox, stats: &mut Stats) {
        let is_changing = self.multiplex.has_changes();
        self.reading.allowance = self.allowance();
        let has_begun = &mut self.has_begun;
        let begin = || begin(has_begun);
        self.reading.consider(part, is_changing, begin, out, stats);
        self.send_orders(out);
    }

    /// A read of the client's was answered with so many bytes.
    pub(super) fn handle_passed_read(
        &mut self,
        part: &Part,
        changes: u32,
        got_bytes: u32,
        out: &mut Outbox,
    ) {
        // Of a longer one servers give what they like.
        let is_plain = part.length <= self.agreed.read_bytes_max();
        if !self.agreed.can_read_ahead() || !is_plain {
            return;
        }
        let is_changing = self.multiplex.has_changes();
        let has_begun = &mut self.has_begun;
        let begin = || begin(has_begun);
        let asked = (part, changes);
        self.reading
            .handle_passed_read(asked, got_bytes, is_changing, begin, out);
    }

    /// So many more reads of ours the server takes.
    fn allowance(&self) -> u32 {
        if !self.agreed.can_read_ahead() {
            return 0;
        }
        let free = self.agreed.requests_max().saturating_sub(1);
        let free = free.saturating_sub(self.multiplex.all());
        let ours = OWN_MAX.saturating_sub(self.multiplex.own());
        // At most sixteen.
        free.min(ours) as u32
    }

    fn send_orders(&mut self, out: &mut Outbox) {
        for read in self.reading.take_orders() {
            self.send_read(read, out);
        }
    }

    fn send_read(&mut self, read: OwnRead, out: &mut Outbox) {
        let part = &read.part;
        let Some(opener) = self.openers.get(&part.file) else {
            return;
        };
        // There are fewer requests than ids.
        let Some(multiplex) = self.multiplex.take_id(Own::Read(read)) else {
            return;
        };
        let mut message = Vec::new();
        opener.request(READ_ANDX, multiplex).emit(&mut message);
        ReadRequest {
            file: file_of(part.file),
            offset: part.offset,
            length: part.length,
            length_min: 0,
            remaining: 0,
        }
        .emit(&mut message);
        self.send_own(packet(&message), out);
    }

    /// Whether more is to come of an answer whose beginning is being passed on.
    pub(super) fn has_server_rest(&self) -> bool {
        self.server.has_rest()
    }

    /// A request of ours. It never gets into the middle of one of the client's.
    pub(super) fn send_own(&mut self, packet: Bytes, out: &mut Outbox) {
        self.later.push_back(packet);
        self.send_later(out);
    }

    pub(super) fn send_later(&mut self, out: &mut Outbox) {
        if !self.client.has_rest() || self.held.is_some() {
            self.later.drain(..).for_each(|packet| out.local(packet));
        }
    }
}
