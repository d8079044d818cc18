//! Requests of the far half's own at a server of SMB2: they take ids and credits. The other part of `far`.

use bytes::Bytes;

use super::far::FarSmb;
use super::files::Part;
use super::netbios::{PREFIX_BYTES, Piece, packet};
use super::pending::{Purpose, Request};
use super::reading::{OwnRead, Reading};
use super::smb2::header::{Command, Header, messages};
use super::smb2::transfer::{
    ReadRequest, ReadResponse, STATUS_END_OF_FILE, STATUS_OK, STATUS_PENDING,
};
use crate::output::Outbox;
use crate::reason::Reason;
use crate::stats::Stats;

impl FarSmb {
    /// Lets it be decided what to read ahead, and reads that.
    pub(super) fn read_on<T>(
        &mut self,
        out: &mut Outbox,
        decide: impl FnOnce(&mut Reading, &mut Outbox) -> T,
    ) -> T {
        self.reading.allowance = self.credits.available();
        let decided = decide(&mut self.reading, out);
        self.send_orders(out);
        decided
    }

    /// A read went to the server.
    pub(super) fn consider(&mut self, part: &Part, out: &mut Outbox, stats: &mut Stats) {
        let is_changing = self.pending.has_changes();
        self.reading.allowance = self.credits.available();
        let ids = &mut self.ids;
        self.reading
            .consider(part, is_changing, || ids.begin(), out, stats);
        self.send_orders(out);
    }

    /// A read of the client's was answered.
    pub(super) fn handle_passed_read(
        &mut self,
        part: &Part,
        changes: u32,
        message: &[u8],
        out: &mut Outbox,
    ) {
        let Ok(response) = ReadResponse::parse(message) else {
            return;
        };
        let got_bytes = u32::try_from(response.data.len()).unwrap_or(u32::MAX);
        let is_changing = self.pending.has_changes();
        let ids = &mut self.ids;
        let asked = (part, changes);
        self.reading
            .handle_passed_read(asked, got_bytes, is_changing, || ids.begin(), out);
    }

    /// The server answered a request of ours.
    pub(super) fn handle_own(
        &mut self,
        header: &Header,
        message: &Bytes,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> Result<(), Reason> {
        if header.is_signed() {
            return Err(Reason::SmbSigned);
        }
        if let Some(request) = self.pending.get(header.message_id) {
            self.credits
                .handle_own_grant(header.credits, &mut request.asked);
        }
        if header.status == STATUS_PENDING {
            self.handle_announced(header, out);
            return Ok(());
        }
        let request = self.pending.remove(header.message_id);
        if request.as_ref().is_some_and(Request::is_taken) {
            self.credits.handle_own_end();
        }
        let read = match request.map(|request| request.purpose) {
            Some(Purpose::Own(read)) => read,
            Some(Purpose::Behind(file, length, charge)) => {
                let written = (file, length, charge);
                return self.handle_written(header, message, written, out, stats);
            }
            Some(Purpose::OpenAhead) => {
                return self.handle_opened_ahead(header, message, out, stats);
            }
            Some(Purpose::Question(asked)) => {
                self.handle_told(header, asked, message, out);
                return Ok(());
            }
            Some(Purpose::OwnClose(file)) => {
                self.handle_own_closed(file);
                return Ok(());
            }
            _ => return Ok(()),
        };
        let bytes = match header.status {
            STATUS_OK => {
                let response = ReadResponse::parse(message).map_err(|_| Reason::SmbMalformed)?;
                Some(message.slice_ref(response.data))
            }
            STATUS_END_OF_FILE => Some(Bytes::new()),
            _ => None,
        };
        if bytes
            .as_ref()
            .is_some_and(|bytes| bytes.len() > read.part.length as usize)
        {
            return Err(Reason::SmbMalformed);
        }
        self.read_on(out, |reading, out| {
            reading.handle_read(&read, bytes, out, stats);
        });
        Ok(())
    }

    /// Whether a request of the client's must wait: it takes credits that the client has lent us.
    pub(super) fn lacks_credits(&self, piece: &Piece) -> bool {
        // What is at the server brings some back.
        if !self.credits.is_borrowing() || self.pending.is_empty() {
            return false;
        }
        let (Piece::Beginning(packet) | Piece::Message(packet)) = piece else {
            return false;
        };
        let message = packet.get(PREFIX_BYTES..).unwrap_or_default();
        let headers = messages(message).unwrap_or_default().into_iter();
        let headers =
            headers.filter_map(|(start, end)| Header::parse(message.get(start..end)?).ok());
        let charge = headers
            .filter(|header| header.command != Command::Cancel)
            .map(|header| header.ids_taken())
            .sum();
        self.credits.lacks(charge)
    }

    fn send_orders(&mut self, out: &mut Outbox) {
        for read in self.reading.take_orders() {
            // Not more than were allowed.
            self.credits.take(false);
            self.send_read(read, out);
        }
    }

    fn send_read(&mut self, read: OwnRead, out: &mut Outbox) {
        let part = &read.part;
        let message_id = self.ids.take(1);
        let asked = self.credits.ask(1, self.credits_wanted());
        let header = Header {
            credit_charge: self.connection.charge(),
            credits: asked.by_client.saturating_add(asked.by_us),
            ..Header::request(Command::Read, message_id, part.session, part.tree)
        };
        let mut message = Vec::new();
        header.emit(&mut message);
        ReadRequest {
            flags: 0,
            length: part.length,
            offset: part.offset,
            file: part.file,
            length_min: 0,
            channel: 0,
            remaining: 0,
        }
        .emit(&mut message);
        self.send_own(packet(&message), out);
        let request = Request {
            client_id: message_id,
            command: Command::Read,
            tree: Some(part.tree),
            file: Some(part.file),
            asked,
            is_change: false,
            purpose: Purpose::Own(read),
        };
        // Bounded by the credits that were spent.
        let _ = self.pending.insert(message_id, request);
    }
}
