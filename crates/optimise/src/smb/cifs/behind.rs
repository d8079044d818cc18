//! What becomes, next to a server of SMB1, of writes that the near half has answered. The other part of `far`; the rules
//! are in `writing`.

use bytes::{Bytes, BytesMut};

use super::super::files::Part;
use super::super::message::Message;
use super::super::netbios::PREFIX_BYTES;
use super::super::smb1::header::{Header, first_block, set_multiplex};
use super::super::smb1::transfer::WriteResponse;
use super::super::smb2::open::FileId;
use super::asked::plain_write;
use super::far::FarCifs;
use super::multiplex::Own;
use crate::output::Outbox;
use crate::reason::Reason;
use crate::stats::Stats;

impl FarCifs {
    /// A file was opened: tells the near half if it may answer writes of it.
    pub(super) fn consider_writing(&mut self, id: FileId, may_be_late: bool, out: &mut Outbox) {
        let may_be_late = may_be_late && !self.agreed.takes_up_files();
        let is_possible = may_be_late && self.agreed.can_read_ahead() && !self.reading.is_quiet;
        let file = self.reading.files.get(id).filter(|_| is_possible);
        let Some(file) = file.filter(|file| file.protection.keeps_writes()) else {
            return;
        };
        let (session, tree) = (file.session, file.tree);
        file.was_told = true;
        self.has_begun = true;
        self.writing.allow(id, session, tree, out);
        self.tell_news(out);
    }

    /// Something was taken from what protects files.
    pub(super) fn review_writing(&mut self, out: &mut Outbox) {
        self.writing.review(&mut self.reading.files, out);
    }

    /// Hands a write to the server that the near half answers, under an id of ours: the client may use its own again.
    pub(super) fn write_behind(&mut self, packet: &Bytes, out: &mut Outbox) -> Result<(), Reason> {
        let message = packet.get(PREFIX_BYTES..).unwrap_or_default();
        let (_, part) = plain_write(message).ok_or(Reason::Halves)?;
        let multiplex = self.multiplex.take_id(Own::Write(part));
        let multiplex = multiplex.ok_or(Reason::SmbFull)?;
        self.writing.handle_sent(multiplex.into(), part);
        let mut edited = BytesMut::from(&**packet);
        set_multiplex(&mut edited, PREFIX_BYTES, multiplex);
        out.local(edited.freeze());
        Ok(())
    }

    /// The server answered a write that the client believes done.
    pub(super) fn handle_written(
        &mut self,
        part: &Part,
        header: &Header,
        message: &[u8],
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        let answer = first_block(message).and_then(|block| WriteResponse::parse(&block));
        let count = answer.ok().map(|answer| answer.count);
        let write = (header.multiplex.into(), part.file, part.length);
        let answer = (header.status, count);
        self.writing.handle_written(write, answer, out, stats)?;
        if self.writing.has_failed(part.file) {
            // Its reads are the server's, which ends them with the error.
            self.reading.give_up(part.file, out, stats);
        }
        self.tell_news(out);
        Ok(())
    }

    fn tell_news(&mut self, out: &mut Outbox) {
        // There are no credits in SMB1.
        if let Some(room) = self.writing.take_news(0, 0) {
            out.message(Message::Room(room).encode());
        }
    }
}
