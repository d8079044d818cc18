//! One run of reading ahead: from where to where, what of it the client has been given.

use super::message::TO_END;
use super::smb2::transfer::OFFSETS_END;

/// A run of one open file.
#[derive(Debug)]
pub struct Run {
    /// Its number; never used again in the connection.
    pub id: u32,
    /// First byte.
    pub from: u64,
    /// Nothing lies before it that the client has not read.
    pub is_from_beginning: bool,
    /// So many reads of the client's in a row led to it.
    pub asked: u32,
    /// Where the next read of ours begins.
    pub next: u64,
    /// The server said where the file ends.
    pub is_whole: bool,
    /// So far the client wants it, whatever the window.
    pub wanted: u64,
    /// Reads of ours at the server.
    pub in_flight: u32,
    /// Before here the client has been given everything, or has passed over it.
    pub used: u64,
    /// Bytes that the server gave us for it.
    pub fetched_bytes: u64,
    /// Of those, given to the client.
    pub given_bytes: u64,
    /// So many times it was given something.
    pub uses: u32,
    /// What the near half was told.
    pub announced: Option<u64>,
}

impl Run {
    /// A run of which nothing has been read.
    #[must_use]
    pub fn new(id: u32, from: u64) -> Self {
        Self {
            id,
            from,
            is_from_beginning: false,
            asked: 0,
            next: from,
            is_whole: false,
            wanted: from,
            in_flight: 0,
            used: from,
            fetched_bytes: 0,
            given_bytes: 0,
            uses: 0,
            announced: None,
        }
    }

    /// On its way to the client or waiting for it there.
    #[must_use]
    pub fn unused_bytes(&self) -> u64 {
        self.next.saturating_sub(self.used)
    }

    /// Behind the last byte that will come, in the near half's words.
    #[must_use]
    pub fn to(&self) -> u64 {
        match self.is_whole {
            true => TO_END,
            false => self.next,
        }
    }

    /// Whether the near half can answer this request and has not been asked for it before.
    #[must_use]
    pub fn covers(&self, offset: u64, end: u64) -> bool {
        offset >= self.used && end <= self.to() && end < OFFSETS_END
    }

    /// Whether it will get beyond here: a long request can wait at the near half until it has.
    #[must_use]
    pub fn is_coming_to(&self, offset: u64) -> bool {
        offset >= self.used && offset <= self.next && self.in_flight > 0
    }

    /// Whether to read on. The server says where the file ends only when it is asked for more than there is: so the
    /// last read reaches beyond the size that is known.
    #[must_use]
    pub fn wants_more(&self, window_bytes: u64, size_bytes: u64) -> bool {
        let is_wanted = self.unused_bytes() < window_bytes || self.next < self.wanted;
        // A server may say of any size that it has it.
        let has_more = self.next <= size_bytes && self.next < OFFSETS_END;
        is_wanted && !self.is_whole && has_more
    }

    /// A read of ours from `next` on; returns its offset.
    pub fn take_chunk(&mut self, chunk_bytes: u64) -> u64 {
        let offset = self.next;
        self.next = offset.saturating_add(chunk_bytes);
        offset
    }

    /// The client was given what lies before; returns how much that was.
    pub fn handle_used(&mut self, upto: u64) -> u64 {
        let bytes = upto.saturating_sub(self.used);
        self.used = self.used.max(upto);
        self.given_bytes = self.given_bytes.saturating_add(bytes);
        self.uses = self.uses.saturating_add(1);
        bytes
    }

    /// The client's reads in a row, if it ends here. What was read ahead before the first of them counts as begun behind it.
    #[must_use]
    pub fn reads_in_row(&self) -> u32 {
        self.asked.max(1).saturating_add(self.uses)
    }

    /// What was read in vain if the run ends here.
    #[must_use]
    pub fn wasted_bytes(&self) -> u64 {
        self.fetched_bytes.saturating_sub(self.given_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invariant_6_any_use_can_be_told() {
        let mut run = Run::new(1, 0);
        assert_eq!(run.handle_used(1), 1);
        assert_eq!(run.handle_used(u64::MAX), u64::MAX - 1);
        let mut other = Run::new(2, u64::MAX - 1);
        other.given_bytes = u64::MAX;
        assert_eq!(other.handle_used(u64::MAX), 1);
    }

    #[test]
    fn a_run_covers_no_more_than_files_have() {
        let mut run = Run::new(1, 0);
        run.is_whole = true;
        assert!(run.covers(5, OFFSETS_END - 1) && !run.covers(5, OFFSETS_END));
        let mut endless = Run::new(2, OFFSETS_END - 1);
        assert!(endless.wants_more(65_536, u64::MAX));
        endless.take_chunk(65_536);
        assert!(!endless.wants_more(u64::MAX, u64::MAX));
    }
}
