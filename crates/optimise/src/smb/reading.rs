//! What to read ahead, and when to stop: the same for every dialect.
//!
//! It decides. The session of a dialect sends what it wants read, says how much of that it may want, and tells what came
//! of it.

use bytes::Bytes;

use super::ahead::{Pace, Run};
use super::files::{Files, OpenFile, Part};
use super::message::{Ahead, Message};
use super::rows::Row;
use super::smb2::open::FileId;
use super::thrift::Thrift;
use super::window::Window;
use crate::output::Outbox;
use crate::settings::Settings;
use crate::stats::Stats;

/// A read of ours, for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnRead {
    /// The run.
    pub run: u32,
    /// What is read.
    pub part: Part,
}

/// See the module.
#[derive(Debug)]
pub struct Reading {
    /// What is open.
    pub files: Files,
    /// How far ahead.
    pub window: Window,
    /// What may be in vain.
    thrift: Thrift,
    /// The client's messages that may have changed something; counted as the near half does.
    pub changes: u32,
    /// Nothing is read ahead any more.
    pub is_quiet: bool,
    /// So many reads of ours the server takes now.
    pub allowance: u32,
    /// The longest that it takes.
    pub read_bytes_max: u32,
    ahead_bytes_max: u64,
    next_run: u32,
    orders: Vec<OwnRead>,
}

impl Reading {
    /// Of a connection of which nothing has passed.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            files: Files::default(),
            window: Window::new(settings),
            thrift: Thrift::default(),
            changes: 0,
            is_quiet: false,
            allowance: 0,
            read_bytes_max: 0,
            ahead_bytes_max: settings.ahead_bytes_max,
            next_run: 1,
            orders: Vec::new(),
        }
    }

    /// The link turned out to be another: there may be room for more.
    pub fn handle_link(&mut self, settings: &Settings, out: &mut Outbox, stats: &mut Stats) {
        self.window.handle_link(settings);
        self.ahead_bytes_max = settings.ahead_bytes_max;
        let files = self.files.iter();
        let running: Vec<FileId> = files
            .filter_map(|(id, file)| file.run.as_ref().map(|_| *id))
            .collect();
        for id in running {
            self.fill(id, out, stats);
        }
    }

    /// What is to be read now; each counts for what was allowed.
    pub fn take_orders(&mut self) -> Vec<OwnRead> {
        std::mem::take(&mut self.orders)
    }

    /// Whether a run answers this read, perhaps after it is led on; a run that the client has left ends.
    pub fn is_covered(&mut self, part: &Part, out: &mut Outbox, stats: &mut Stats) -> bool {
        let Some(run) = self.files.of_part(part).and_then(|file| file.run.as_ref()) else {
            return false;
        };
        let end = part.end();
        if part.offset < run.used {
            // Read again: the near half has given it away.
            return false;
        }
        if !run.covers(part.offset, end) && part.offset <= run.asked_to() {
            self.lead_on(part.file, end, out, stats);
        }
        let file = self.files.get(part.file);
        let Some(file) = file.filter(|file| file.run.is_some()) else {
            return false;
        };
        if file
            .run
            .as_ref()
            .is_some_and(|run| run.covers(part.offset, end) || run.is_coming_to(part.offset))
        {
            file.sequence.next_offset = end;
            return true;
        }
        self.end_runs(|id, _| id == part.file, out, stats);
        false
    }

    /// A file was opened ahead of the client, which will read all of it.
    pub fn begin(&mut self, id: FileId, out: &mut Outbox, stats: &mut Stats) {
        self.start(id, 0, true, Pace::Full);
        self.fill(id, out, stats);
    }

    /// A read went to the server: is it worth to go on where it ends? `begin` is asked last, and may refuse.
    pub fn consider(
        &mut self,
        part: &Part,
        is_changing: bool,
        begin: impl FnOnce() -> bool,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        stats.reads_forwarded += 1;
        let may_read = !self.is_quiet && self.allowance > 0;
        let Some(file) = self.files.of_part(part) else {
            return;
        };
        self.thrift.handle_read(part.length.into());
        for row in file.handle_asked(part) {
            self.window.handle_watched(&row);
        }
        let row = file.watched();
        let end = part.end();
        let is_worth = row.reads >= self.window.patience(&row) && end <= file.size_bytes;
        let is_safe = file.protection.protects() && !file.is_broken && !is_changing;
        if is_worth
            && is_safe
            && may_read
            && let Some(pace) = self.thrift.allow(&row, self.unjudged_bytes(part.file))
            && begin()
        {
            // It reads on behind where it has been, and not there any more.
            self.end_runs(|id, _| id == part.file, out, stats);
            self.start(part.file, end, part.offset == 0, pace);
            self.fill(part.file, out, stats);
        }
    }

    /// A read of the client's was answered with so many bytes. Fewer than asked, they tell where the file ends, and the
    /// client that asks for what follows need not wait for that. A server that gives less than there is tells nothing.
    pub fn handle_passed_read(
        &mut self,
        (part, changes): (&Part, u32),
        got_bytes: u32,
        is_changing: bool,
        begin: impl FnOnce() -> bool,
        out: &mut Outbox,
    ) {
        let is_short = got_bytes < part.length && got_bytes > 0;
        let is_same = changes == self.changes && !is_changing && !self.is_quiet;
        let end = part.offset.saturating_add(got_bytes.into());
        let file = self.files.get(part.file);
        let is_safe = file.is_some_and(|file| {
            let is_end = end >= file.size_bytes;
            is_end && file.protection.protects() && !file.is_broken && file.run.is_none()
        });
        if !(is_short && is_same && is_safe && begin()) {
            return;
        }
        self.start(part.file, end, part.offset == 0, Pace::Full);
        let file = self.files.get(part.file);
        if let Some(run) = file.and_then(|file| file.run.as_mut()) {
            run.is_whole = true;
            let (run, offset) = (run.id, end);
            self.announce(part.file, out);
            out.message(Message::End { run, offset }.encode());
        }
    }

    /// The client writes: the file is as long, if that goes well.
    pub fn handle_write(&mut self, part: &Part) {
        if let Some(file) = self.files.of_part(part) {
            file.size_bytes = file.size_bytes.max(part.end());
        }
    }

    /// The client was given what the near half had.
    pub fn handle_used(&mut self, run: u32, upto: u64, out: &mut Outbox, stats: &mut Stats) {
        let Some((id, file)) = self.files.of_run(run) else {
            return;
        };
        file.sequence.next_offset = file.sequence.next_offset.max(upto);
        if let Some(run) = &mut file.run {
            let bytes = run.handle_used(upto);
            self.window.handle_used(bytes, run.is_from_beginning);
            self.thrift.handle_read(bytes);
        }
        self.fill(id, out, stats);
    }

    /// The near half has a client that wants more of a run than was announced, and lets it wait.
    pub fn handle_want(&mut self, run: u32, upto: u64, out: &mut Outbox, stats: &mut Stats) {
        if let Some((id, _)) = self.files.of_run(run) {
            self.lead_on(id, upto, out, stats);
        }
    }

    /// The near half could not use a run.
    pub fn handle_refused(&mut self, run: u32, out: &mut Outbox, stats: &mut Stats) {
        self.end_runs(|_, file| file.is_running(run), out, stats);
    }

    /// The server answered a read of ours: with these bytes, or with an error.
    pub fn handle_read(
        &mut self,
        read: &OwnRead,
        bytes: Option<Bytes>,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        let (run, id) = (read.run, read.part.file);
        let got_bytes = bytes.as_ref().map_or(0, Bytes::len) as u64;
        stats.ahead_bytes += got_bytes;
        let file = self.files.get(id).filter(|file| file.is_running(run));
        let Some((size_bytes, current)) = file.and_then(OpenFile::with_run) else {
            stats.wasted_bytes += got_bytes;
            self.thrift.handle_wasted(got_bytes);
            return;
        };
        let offset = read.part.offset;
        let end = offset.saturating_add(got_bytes);
        let is_short = got_bytes < u64::from(read.part.length);
        current.fetched_bytes = current.fetched_bytes.saturating_add(got_bytes);
        // There is more, which the server does not give at once.
        let is_less = is_short && end < *size_bytes;
        let Some(bytes) = bytes.filter(|_| !is_less) else {
            // The client shall meet the error itself, when it asks.
            return self.give_up(id, out, stats);
        };
        current.in_flight -= 1;
        if !bytes.is_empty() {
            // It may have grown since it was opened.
            *size_bytes = end.max(*size_bytes);
        }
        current.is_whole |= is_short;
        if !bytes.is_empty() {
            out.message(Message::Data { run, offset, bytes }.encode());
        }
        if is_short {
            self.announce(id, out);
            out.message(Message::End { run, offset: end }.encode());
        }
        self.fill(id, out, stats);
    }

    /// Ends the runs for which it is asked: the near half forgets them, and what was not used was in vain.
    pub fn end_runs(
        &mut self,
        ends: impl Fn(FileId, &OpenFile) -> bool,
        out: &mut Outbox,
        stats: &mut Stats,
    ) {
        for run in self.files.end_runs(ends) {
            out.message(Message::Drop { run: run.id }.encode());
            let wasted_bytes = run.wasted_bytes();
            stats.wasted_bytes += wasted_bytes;
            self.thrift.handle_wasted(wasted_bytes);
            let asked_bytes = u64::from(run.asked.max(1)).saturating_mul(run.block_bytes);
            let row = Row {
                reads: run.reads_in_row(),
                read_bytes: asked_bytes.saturating_add(run.given_bytes),
                vain_bytes: wasted_bytes,
            };
            self.window.handle_left(row, run.pace);
        }
    }

    /// A file was closed. Its run has been ended.
    pub fn forget(&mut self, id: FileId) {
        if let Some(file) = self.files.remove(id) {
            self.window.handle_watched(&file.watched());
        }
    }

    /// What is ahead in other files of clients that need not want it.
    fn unjudged_bytes(&self, but: FileId) -> u64 {
        let others = self.files.iter().filter(|(id, _)| **id != but);
        let runs = others.filter_map(|(_, file)| file.run.as_ref());
        let careful = runs.filter(|run| run.pace != Pace::Full);
        careful.map(Run::unused_bytes).sum()
    }

    fn lead_on(&mut self, id: FileId, upto: u64, out: &mut Outbox, stats: &mut Stats) {
        if let Some(run) = self.files.get(id).and_then(|file| file.run.as_mut()) {
            run.wanted = run.wanted.max(upto);
            self.fill(id, out, stats);
        }
    }

    /// Nothing is read ahead of a file any more.
    pub fn give_up(&mut self, id: FileId, out: &mut Outbox, stats: &mut Stats) {
        self.end_runs(|other, _| other == id, out, stats);
        if let Some(file) = self.files.get(id) {
            file.is_broken = true;
        }
    }

    fn start(&mut self, id: FileId, from: u64, is_from_beginning: bool, pace: Pace) {
        if let Some(file) = self.files.get(id) {
            file.was_told = true;
            file.run = Some(Run {
                is_from_beginning,
                pace,
                block_bytes: file.watched().block_bytes(),
                asked: std::mem::take(&mut file.sequence.reads),
                ..Run::new(self.next_run, from)
            });
            self.next_run = self.next_run.wrapping_add(1);
        }
    }

    /// Reads on as far as the client wants, window and server allow. What is waited for is not ahead of anybody, however much it is.
    /// A run that cannot be led to where it is waited for ends: its reads then go to the server.
    fn fill(&mut self, id: FileId, out: &mut Outbox, stats: &mut Stats) {
        let total_bytes: u64 = self.files.runs().map(Run::unused_bytes).sum();
        let mut room_bytes = self.ahead_bytes_max.saturating_sub(total_bytes);
        let most_bytes = self.window.chunk_bytes().min(self.read_bytes_max.into());
        let most_bytes = most_bytes.max(1);
        while !self.is_quiet && self.allowance > 0 {
            let Some(file) = self.files.get(id) else {
                break;
            };
            let is_from_beginning = file.run.as_ref().is_some_and(|run| run.is_from_beginning);
            let window_bytes = self.window.bytes(file.read_bytes, is_from_beginning);
            let (session, tree, size_bytes) = (file.session, file.tree, file.size_bytes);
            let run = file
                .run
                .as_mut()
                .filter(|run| run.wants_more(window_bytes, size_bytes))
                .filter(|run| room_bytes >= most_bytes || run.next < run.wanted);
            let Some(run) = run else {
                break;
            };
            run.in_flight += 1;
            let chunk_bytes = run.chunk_bytes(most_bytes, window_bytes);
            let part = Part {
                session,
                tree,
                file: id,
                offset: run.take_chunk(chunk_bytes),
                // At most 64 KiB.
                length: chunk_bytes as u32,
            };
            self.orders.push(OwnRead { run: run.id, part });
            self.allowance -= 1;
            room_bytes = room_bytes.saturating_sub(chunk_bytes);
            stats.reads_made += 1;
        }
        self.announce(id, out);
        self.end_runs(|other, file| other == id && file.is_stuck(), out, stats);
    }

    /// Tells the near half how far the run goes, if that is news.
    fn announce(&mut self, id: FileId, out: &mut Outbox) {
        let changes = self.changes;
        let Some(file) = self.files.get(id) else {
            return;
        };
        let (session, tree, firmness) = (file.session, file.tree, file.protection.firmness());
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
                firmness,
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

#[cfg(test)]
mod tests {
    use super::super::files::Protection;
    use super::*;

    /// Of a file that has no end the server gives what it is asked for.
    #[test]
    fn invariant_6_a_file_of_any_size_can_be_told() {
        let mut reading = Reading::new(&Settings::of_link(6_480_000, 200_000_000));
        (reading.allowance, reading.read_bytes_max) = (8, 65_536);
        let (out, stats) = (&mut Outbox::default(), &mut Stats::default());
        let id = FileId::RELATED;
        let protection = Protection::by_oplock(9, false);
        let mut file = OpenFile::new(1, 2, u64::MAX, protection);
        file.sequence.next_offset = u64::MAX - 100_000;
        reading.files.insert(id, file);
        let part = Part {
            session: 1,
            tree: 2,
            file: id,
            offset: u64::MAX - 100_000,
            length: 4096,
        };
        reading.consider(&part, false, || true, out, stats);
        let bytes = Bytes::from(vec![0; 65_536]);
        for read in reading.take_orders() {
            reading.handle_read(&read, Some(bytes.clone()), out, stats);
        }
        assert_eq!((stats.reads_made, stats.ahead_bytes), (0, 0));
    }

    /// Three reads of 8 MiB wait at the near half, and the server is faster than the link: nothing of that is in vain.
    #[test]
    fn however_much_is_waited_for_is_read() {
        let mut reading = Reading::new(&Settings::of_link(6_480_000, 200_000_000));
        (reading.allowance, reading.read_bytes_max) = (1_000, 65_536);
        let (out, stats) = (&mut Outbox::default(), &mut Stats::default());
        let id = FileId::RELATED;
        let protection = Protection::by_oplock(9, false);
        reading
            .files
            .insert(id, OpenFile::new(1, 2, 64 << 20, protection));
        reading.begin(id, out, stats);
        reading.handle_want(1, 24 << 20, out, stats);
        let bytes = Bytes::from(vec![0; 65_536]);
        for read in reading.take_orders() {
            reading.handle_read(&read, Some(bytes.clone()), out, stats);
        }
        assert_eq!((stats.ahead_bytes, stats.wasted_bytes), (24 << 20, 0));
        // The window is another matter.
        assert!(reading.take_orders().is_empty());
        reading.handle_used(1, 24 << 20, out, stats);
        assert!(!reading.take_orders().is_empty());
    }
}
