//! What to read ahead, and when to stop. The other part of `far`.

use bytes::Bytes;

use super::ahead::Run;
use super::far::FarSmb;
use super::files::OpenFile;
use super::message::{Ahead, Message};
use super::netbios::packet;
use super::pending::{Purpose, Request};
use super::smb2::header::{Command, Header};
use super::smb2::open::FileId;
use super::smb2::transfer::{
    ReadRequest, ReadResponse, STATUS_END_OF_FILE, STATUS_OK, STATUS_PENDING,
};
use crate::output::Outbox;
use crate::reason::Reason;
use crate::stats::Stats;

impl FarSmb {
    /// Whether a run answers this read, perhaps after it is led on; a run that the client has left ends.
    pub(super) fn is_covered(
        &mut self,
        header: &Header,
        read: &ReadRequest,
        out: &mut Outbox,
        stats: &mut Stats,
    ) -> bool {
        let Some(run) = self
            .file_of(header, read)
            .and_then(|file| file.run.as_ref())
        else {
            return false;
        };
        let end = read.offset.saturating_add(read.length.into());
        if read.offset < run.used {
            // Read again: the near half has given it away.
            return false;
        }
        if !run.covers(read.offset, end) && read.offset <= run.next {
            self.lead_on(read.file, end, out, stats);
        }
        let file = self.files.get(read.file);
        let Some(file) = file.filter(|file| file.run.is_some()) else {
            return false;
        };
        if file
            .run
            .as_ref()
            .is_some_and(|run| run.covers(read.offset, end) || run.is_coming_to(read.offset))
        {
            file.next_offset = end;
            return true;
        }
        self.end_runs(|id, _| id == read.file, out, stats);
        false
    }

    /// A read went to the server: is it worth to go on where it ends?
    pub(super) fn consider(
        &mut self,
        header: &Header,
        read: &ReadRequest,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        stats.reads_forwarded += 1;
        let (patience, is_quiet) = (self.window.patience(), self.is_quiet);
        let is_changing = self.pending.has_changes();
        let Some(file) = self.file_of(header, read) else {
            return;
        };
        let end = read.offset.saturating_add(read.length.into());
        file.read_bytes = read.length;
        if file.run.is_some() {
            return;
        }
        file.reads_in_row = match read.offset == file.next_offset {
            true => file.reads_in_row.saturating_add(1),
            false => u32::from(read.offset == 0),
        };
        file.next_offset = end;
        let is_worth = file.reads_in_row >= patience && end <= file.size_bytes;
        let is_safe = file.protection.protects() && !file.is_broken && !is_changing;
        if is_worth && is_safe && !is_quiet && self.credits.spare() > 0 {
            self.start(read.file, end);
            self.fill(read.file, out, stats);
        }
    }

    /// A read of the client's was answered. Shorter than asked, it tells where the file ends, and the client that
    /// asks for what follows need not wait for that.
    pub(super) fn handle_passed_read(
        &mut self,
        read: &ReadRequest,
        changes: u32,
        message: &Bytes,
        out: &mut Outbox,
    ) {
        let Ok(response) = ReadResponse::parse(message) else {
            return;
        };
        let is_short = response.data.len() < read.length as usize && !response.data.is_empty();
        let is_same = changes == self.changes && !self.pending.has_changes() && !self.is_quiet;
        let end = read.offset.saturating_add(response.data.len() as u64);
        let file = self.files.get(read.file);
        let is_safe = file.is_some_and(|file| {
            file.protection.protects() && !file.is_broken && file.run.is_none()
        });
        if is_short && is_same && is_safe {
            self.start(read.file, end);
            if let Some(run) = self.files.get(read.file).and_then(|file| file.run.as_mut()) {
                run.is_whole = true;
                let (run, offset) = (run.id, end);
                self.announce(read.file, out);
                out.message(Message::End { run, offset }.encode());
            }
        }
    }

    /// The client was given what the near half had.
    pub(super) fn handle_used(&mut self, run: u32, upto: u64, out: &mut Outbox, stats: &mut Stats) {
        let Some((id, file)) = self.files.of_run(run) else {
            return;
        };
        let bytes = file.run.as_mut().map_or(0, |run| run.handle_used(upto));
        file.next_offset = file.next_offset.max(upto);
        self.window.handle_used(bytes);
        self.fill(id, out, stats);
    }

    /// The near half has a client that wants more of a run than was announced, and lets it wait.
    pub(super) fn handle_want(&mut self, run: u32, upto: u64, out: &mut Outbox, stats: &mut Stats) {
        if let Some((id, _)) = self.files.of_run(run) {
            self.lead_on(id, upto, out, stats);
        }
    }

    fn lead_on(&mut self, id: FileId, upto: u64, out: &mut Outbox, stats: &mut Stats) {
        if let Some(run) = self.files.get(id).and_then(|file| file.run.as_mut()) {
            run.wanted = run.wanted.max(upto);
            self.fill(id, out, stats);
        }
    }

    /// The near half could not use a run.
    pub(super) fn handle_refused(&mut self, run: u32, out: &mut Outbox, stats: &mut Stats) {
        self.end_runs(|_, file| file.is_running(run), out, stats);
    }

    /// The server answered a read of ours.
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
            return Ok(());
        }
        let request = self.pending.remove(header.message_id);
        let (id, run, read) = match request.map(|request| request.purpose) {
            Some(Purpose::Own(id, run, read)) => (id, run, read),
            Some(Purpose::Behind(file, length, charge)) => {
                let written = (file, length, charge);
                return self.handle_written(header, message, written, out, stats);
            }
            _ => return Ok(()),
        };
        let data = match header.status {
            STATUS_OK => {
                ReadResponse::parse(message)
                    .map_err(|_| Reason::SmbMalformed)?
                    .data
            }
            _ => &[],
        };
        if data.len() > read.length as usize {
            return Err(Reason::SmbMalformed);
        }
        stats.ahead_bytes += data.len() as u64;
        let file = self.files.get(id).filter(|file| file.is_running(run));
        let Some((size_bytes, current)) = file.and_then(OpenFile::with_run) else {
            stats.wasted_bytes += data.len() as u64;
            return Ok(());
        };
        if ![STATUS_OK, STATUS_END_OF_FILE].contains(&header.status) {
            // The client shall meet the error itself, when it asks.
            self.fail(id, out, stats);
            return Ok(());
        }
        current.in_flight -= 1;
        current.fetched_bytes += data.len() as u64;
        let (offset, end) = (read.offset, read.offset + data.len() as u64);
        // It may have grown since it was opened.
        *size_bytes = end.max(*size_bytes);
        if !data.is_empty() {
            let bytes = message.slice_ref(data);
            out.message(Message::Data { run, offset, bytes }.encode());
        }
        if data.len() < read.length as usize {
            current.is_whole = true;
            self.announce(id, out);
            out.message(Message::End { run, offset: end }.encode());
        }
        self.fill(id, out, stats);
        Ok(())
    }

    /// Ends the runs for which it is asked: the near half forgets them, and what was not used was in vain.
    pub(super) fn end_runs(
        &mut self,
        ends: impl Fn(FileId, &OpenFile) -> bool,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        for run in self.files.end_runs(ends) {
            out.message(Message::Drop { run: run.id }.encode());
            stats.wasted_bytes += run.wasted_bytes();
            self.window.handle_wasted(run.wasted_bytes());
        }
    }

    fn fail(&mut self, id: FileId, out: &mut Outbox, stats: &mut Stats) {
        self.end_runs(|other, _| other == id, out, stats);
        if let Some(file) = self.files.get(id) {
            file.is_broken = true;
        }
    }

    /// The file a read is of, if it was opened in the same session and share.
    fn file_of(&mut self, header: &Header, read: &ReadRequest) -> Option<&mut OpenFile> {
        let file = self.files.get(read.file)?;
        let is_its = file.session == header.session && Some(file.tree) == header.tree();
        is_its.then_some(file)
    }

    fn start(&mut self, id: FileId, from: u64) {
        if !self.ids.begin() {
            return;
        }
        if let Some(file) = self.files.get(id) {
            file.was_ahead = true;
            file.run = Some(Run::new(self.next_run, from));
            self.next_run = self.next_run.wrapping_add(1);
        }
    }

    /// Reads on as far as the client wants, window and credits allow. A run that cannot be led to where it is waited
    /// for ends: its reads then go to the server.
    fn fill(&mut self, id: FileId, out: &mut Outbox, stats: &mut Stats) {
        let total_bytes: u64 = self.files.runs().map(Run::unused_bytes).sum();
        let mut room_bytes = self.ahead_bytes_max.saturating_sub(total_bytes);
        let read_bytes_max = self.connection.read_bytes_max();
        let chunk_bytes = self.window.chunk_bytes().min(read_bytes_max.into()).max(1);
        while !self.is_quiet && room_bytes >= chunk_bytes {
            let Some(file) = self.files.get(id) else {
                break;
            };
            let window_bytes = self.window.bytes(file.read_bytes);
            let (session, tree, size_bytes) = (file.session, file.tree, file.size_bytes);
            let run = file
                .run
                .as_mut()
                .filter(|run| run.wants_more(window_bytes, size_bytes));
            let Some(run) = run.filter(|_| self.credits.spend(1)) else {
                break;
            };
            run.in_flight += 1;
            let run_id = run.id;
            let read = ReadRequest {
                flags: 0,
                // At most 64 KiB.
                length: chunk_bytes as u32,
                offset: run.take_chunk(chunk_bytes),
                file: id,
                length_min: 0,
                channel: 0,
                remaining: 0,
            };
            room_bytes -= chunk_bytes;
            stats.reads_made += 1;
            self.send(session, tree, run_id, read, out);
        }
        self.announce(id, out);
        self.end_runs(|other, file| other == id && file.is_stuck(), out, stats);
    }

    fn send(&mut self, session: u64, tree: u32, run: u32, read: ReadRequest, out: &mut Outbox) {
        let message_id = self.ids.take(1);
        let asked = self.credits.ask(1, self.credits_wanted());
        let header = Header {
            credit_charge: self.connection.charge(),
            credits: asked.by_client.saturating_add(asked.by_us),
            ..Header::request(Command::Read, message_id, session, tree)
        };
        let mut message = Vec::new();
        header.emit(&mut message);
        read.emit(&mut message);
        self.send_own(packet(&message), out);
        let request = Request {
            client_id: message_id,
            command: Command::Read,
            file: Some(read.file),
            asked,
            is_change: false,
            purpose: Purpose::Own(read.file, run, read),
        };
        // Bounded by the credits that were spent.
        let _ = self.pending.insert(message_id, request);
    }

    /// Tells the near half how far the run goes, if that is news.
    fn announce(&mut self, id: FileId, out: &mut Outbox) {
        let changes = self.changes;
        let Some(file) = self.files.get(id) else {
            return;
        };
        let (session, tree, is_firm) = (file.session, file.tree, file.protection.is_firm());
        let Some(run) = file.run.as_mut() else {
            return;
        };
        let to = run.to();
        let told = run.announced.replace(to);
        let message = match told {
            Some(before) if before == to => return,
            Some(_) => Message::More { run: run.id, to },
            None => Message::Ahead(Ahead {
                run: run.id,
                changes,
                is_firm,
                session,
                tree,
                file: id,
                from: run.from,
                to,
            }),
        };
        out.message(message.encode());
    }
}
