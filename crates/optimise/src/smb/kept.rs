//! What the near half keeps of a run until the client asks for it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};

use super::message::Ahead;
use super::smb2::transfer::OFFSETS_END;

/// What lies so far behind the last byte given, and before all that is waited for, the client has skipped.
const LAG_BYTES_MAX: u64 = 1 << 20;

/// What can be said of a request for part of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// These bytes; fewer than asked for only at the end of the file.
    Bytes(Bytes),
    /// The file ends before.
    EndOfFile,
    /// It is on its way.
    Wait,
    /// It goes on where the run ends so far.
    Beyond,
    /// Not part of the run, or given already.
    Elsewhere,
}

/// One run of a file.
#[derive(Debug)]
pub struct Kept {
    /// What it is.
    pub ahead: Ahead,
    /// The far half has been told that so much is waited for.
    wanted: u64,
    /// The end of the file, once the server said so.
    end: Option<u64>,
    /// Not yet asked for, by offset.
    pieces: BTreeMap<u64, Bytes>,
    /// Asked for and no longer here: offset to offset, none touching another.
    given: BTreeMap<u64, u64>,
    /// Asked for and still to come: where those requests begin. A server answers reads in any order.
    waited: BTreeSet<u64>,
    kept_bytes: u64,
}

impl Kept {
    /// A run of which nothing has arrived.
    #[must_use]
    pub fn new(ahead: Ahead) -> Self {
        Self {
            ahead,
            wanted: ahead.to,
            end: None,
            pieces: BTreeMap::new(),
            given: BTreeMap::new(),
            waited: BTreeSet::new(),
            kept_bytes: 0,
        }
    }

    /// The run goes on to there.
    pub fn handle_more(&mut self, to: u64) {
        self.ahead.to = self.ahead.to.max(to);
    }

    /// Some of it arrived.
    pub fn handle_data(&mut self, offset: u64, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        self.kept_bytes += bytes.len() as u64;
        if let Some(before) = self.pieces.insert(offset, bytes) {
            self.kept_bytes -= before.len() as u64;
        }
    }

    /// The server said that the file ends here, or before.
    pub fn handle_end(&mut self, offset: u64) {
        self.end = Some(self.end.map_or(offset, |end| end.min(offset)));
    }

    /// Somebody waits for what lies before; true if that is news to the far half.
    pub fn want(&mut self, upto: u64) -> bool {
        let is_news = upto > self.wanted;
        self.wanted = self.wanted.max(upto);
        is_news
    }

    /// A request that begins here waits until it can be answered.
    pub fn handle_waiting(&mut self, offset: u64) {
        self.waited.insert(offset);
    }

    /// Arrived and not asked for.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// What to answer to a request. Bytes are given out once.
    pub fn answer(&mut self, offset: u64, length: u32) -> Answer {
        // Who asks again does not wait any more, or says so anew.
        self.waited.remove(&offset);
        // What no file has is the server's to refuse: it says so in another way than of a file that has ended.
        let wanted_end = offset.saturating_add(length.into());
        if wanted_end >= OFFSETS_END {
            return Answer::Elsewhere;
        }
        let expected = self.ahead.to.max(self.wanted);
        if offset < self.ahead.from || offset > expected || length == 0 {
            return Answer::Elsewhere;
        }
        if wanted_end > self.ahead.to {
            return Answer::Beyond;
        }
        if self.end.is_some_and(|end| offset >= end) {
            return Answer::EndOfFile;
        }
        let end = self.end.map_or(wanted_end, |end| end.min(wanted_end));
        if self.was_given(offset, end) {
            return Answer::Elsewhere;
        }
        match self.copy(offset, end) {
            Some(bytes) => {
                self.give(offset, end);
                Answer::Bytes(bytes)
            }
            None => Answer::Wait,
        }
    }

    fn was_given(&self, from: u64, to: u64) -> bool {
        let before = self.given.range(..to).next_back();
        before.is_some_and(|(_, end)| *end > from)
    }

    fn copy(&self, from: u64, to: u64) -> Option<Bytes> {
        let mut at = from;
        let mut parts = Vec::new();
        while at < to {
            let (start, piece) = self.pieces.range(..=at).next_back()?;
            let skipped = usize::try_from(at - start).ok()?;
            let rest = piece.get(skipped..).filter(|rest| !rest.is_empty())?;
            let length = (rest.len() as u64).min(to - at);
            parts.push(piece.slice(skipped..skipped + length as usize));
            at += length;
        }
        Some(joined(parts))
    }

    fn give(&mut self, from: u64, to: u64) {
        self.forget(from, to);
        let (mut start, mut end) = (from, to);
        if let Some((before, before_end)) = self.given.range(..=from).next_back()
            && *before_end >= from
        {
            (start, end) = (*before, end.max(*before_end));
        }
        if let Some(after_end) = self.given.remove(&end) {
            end = after_end;
        }
        self.given.insert(start, end);
        let waited = self.waited.first().copied().unwrap_or(u64::MAX);
        let lagging = end.saturating_sub(LAG_BYTES_MAX).min(waited);
        if lagging > self.ahead.from {
            self.ahead.from = lagging;
            self.forget(0, lagging);
            self.given.retain(|_, end| *end > lagging);
        }
    }

    /// Takes what lies between out of the pieces.
    fn forget(&mut self, from: u64, to: u64) {
        let first = self
            .pieces
            .range(..=from)
            .next_back()
            .map_or(from, |(start, _)| *start);
        let touched: Vec<u64> = self
            .pieces
            .range(first..to)
            .map(|(start, _)| *start)
            .collect();
        for start in touched {
            let Some(piece) = self.pieces.remove(&start) else {
                continue;
            };
            self.kept_bytes -= piece.len() as u64;
            let length = piece.len() as u64;
            let before = from.saturating_sub(start).min(length);
            let after = to.saturating_sub(start).min(length);
            self.handle_data(start, piece.slice(..before as usize));
            self.handle_data(start + after, piece.slice(after as usize..));
        }
    }
}

fn joined(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.pop().unwrap_or_default();
    }
    let mut all = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| all.extend_from_slice(part));
    all.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb::files::Firmness;
    use crate::smb::message::TO_END;
    use crate::smb::smb2::open::FileId;

    fn run(from: u64, to: u64) -> Kept {
        Kept::new(Ahead {
            run: 1,
            changes: 0,
            firmness: Firmness::Nothing,
            session: 1,
            tree: 1,
            file: FileId::RELATED,
            from,
            to,
        })
    }

    fn bytes(from: u64, to: u64) -> Bytes {
        (from..to).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn bytes_are_given_once_and_in_any_order() {
        let mut kept = run(100, 400);
        assert_eq!(kept.answer(100, 100), Answer::Wait);
        kept.handle_data(200, bytes(200, 300));
        assert_eq!(kept.answer(150, 100), Answer::Wait, "half of it is missing");
        assert_eq!(kept.answer(220, 30), Answer::Bytes(bytes(220, 250)));
        kept.handle_data(100, bytes(100, 200));
        assert_eq!(kept.answer(100, 120), Answer::Bytes(bytes(100, 220)));
        assert_eq!(kept.answer(100, 10), Answer::Elsewhere, "given");
        assert_eq!(
            kept.answer(240, 20),
            Answer::Elsewhere,
            "half of it was given"
        );
        assert_eq!(kept.kept_bytes(), 50);
        assert_eq!(kept.answer(250, 50), Answer::Bytes(bytes(250, 300)));
        assert_eq!(kept.kept_bytes(), 0);
        assert_eq!(kept.given.len(), 1);
        assert_eq!(kept.answer(390, 20), Answer::Beyond);
        assert!(kept.want(410) && !kept.want(410));
        assert_eq!(
            kept.answer(410, 20),
            Answer::Beyond,
            "behind one that waits"
        );
        assert_eq!(kept.answer(420, 20), Answer::Elsewhere, "beyond the run");
        assert_eq!(kept.answer(90, 20), Answer::Elsewhere, "before the run");
    }

    #[test]
    fn the_end_of_the_file_is_the_servers() {
        let mut kept = run(0, TO_END);
        kept.handle_data(0, bytes(0, 130));
        assert_eq!(
            kept.answer(100, 100),
            Answer::Wait,
            "nobody said that it ends"
        );
        kept.handle_end(164);
        kept.handle_end(130);
        assert_eq!(kept.answer(100, 100), Answer::Bytes(bytes(100, 130)));
        assert_eq!(kept.answer(130, 1), Answer::EndOfFile);
        assert_eq!(kept.answer(u64::MAX, 1), Answer::Elsewhere);
    }

    #[test]
    fn what_no_file_has_is_the_servers_to_refuse() {
        let mut kept = run(0, TO_END);
        kept.handle_end(130);
        assert_eq!(kept.answer(OFFSETS_END - 9, 8), Answer::EndOfFile);
        assert_eq!(kept.answer(OFFSETS_END - 8, 8), Answer::Elsewhere);
        assert_eq!(kept.answer(0xffff_ffff_ffff_fff0, 8), Answer::Elsewhere);
    }

    /// A client with many requests under way is given what has come, and waits for what the server is slow to say.
    #[test]
    fn what_is_waited_for_is_not_skipped() {
        let mut kept = run(0, 4 << 20);
        assert_eq!(kept.answer(1000, 1000), Answer::Wait);
        kept.handle_waiting(1000);
        kept.handle_data(2000, bytes(2000, 3000));
        kept.handle_data(2 << 20, bytes(0, 1000));
        assert!(matches!(kept.answer(2 << 20, 1000), Answer::Bytes(_)));
        assert!(matches!(kept.answer(2000, 500), Answer::Bytes(_)));
        kept.handle_data(1000, bytes(1000, 2000));
        assert_eq!(kept.answer(1000, 1000), Answer::Bytes(bytes(1000, 2000)));
        // Nobody waits any more.
        kept.handle_data(3 << 20, bytes(0, 1000));
        assert!(matches!(kept.answer(3 << 20, 1000), Answer::Bytes(_)));
        assert_eq!(kept.kept_bytes(), 0);
        assert_eq!(kept.answer(2500, 10), Answer::Elsewhere);
    }

    #[test]
    fn what_was_skipped_is_not_kept_for_ever() {
        let mut kept = run(0, 4 << 20);
        kept.handle_data(0, bytes(0, 1000));
        kept.handle_data(2 << 20, bytes(0, 1000));
        assert!(matches!(kept.answer(2 << 20, 1000), Answer::Bytes(_)));
        assert_eq!(kept.kept_bytes(), 0);
        assert_eq!(kept.answer(0, 10), Answer::Elsewhere);
    }
}
