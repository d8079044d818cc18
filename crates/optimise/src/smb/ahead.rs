//! One run of reading ahead: from where to where, what of it the client has been given.

use super::message::TO_END;
use super::smb2::transfer::OFFSETS_END;

/// How far ahead of its client a run gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As far as the window reaches.
    Full,
    /// So far at first, and further when more than that has been used.
    Careful {
        /// How far at first.
        first_bytes: u64,
        /// The client is likely to want what follows.
        is_likely: bool,
    },
}

/// A run of one open file.
#[derive(Debug)]
pub struct Run {
    /// Its number; never used again in the connection.
    pub id: u32,
    /// First byte.
    pub from: u64,
    /// Nothing lies before it that the client has not read.
    pub is_from_beginning: bool,
    /// How far ahead it gets.
    pub pace: Pace,
    /// What the client reads at once.
    pub block_bytes: u64,
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
            pace: Pace::Full,
            block_bytes: 0,
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
        offset >= self.used && offset <= self.asked_to() && self.in_flight > 0
    }

    /// Where it will end as far as it is asked for by now: a client may have more requests under way than the server takes of ours.
    #[must_use]
    pub fn asked_to(&self) -> u64 {
        self.next.max(self.wanted)
    }

    /// How much may be ahead, where the window is this.
    #[must_use]
    pub fn reach_bytes(&self, window_bytes: u64) -> u64 {
        let Pace::Careful {
            first_bytes,
            is_likely,
        } = self.pace
        else {
            return window_bytes;
        };
        let more_bytes = match is_likely {
            true => self.given_bytes.saturating_mul(3),
            // Short rows end before that.
            false => self
                .given_bytes
                .saturating_sub(first_bytes.saturating_mul(4)),
        };
        first_bytes.saturating_add(more_bytes).min(window_bytes)
    }

    /// What the next read of ours fetches: not more than may be ahead, where that is little, but all that is waited for.
    #[must_use]
    pub fn chunk_bytes(&self, chunk_bytes: u64, window_bytes: u64) -> u64 {
        let reach_bytes = self.reach_bytes(window_bytes);
        if self.pace == Pace::Full || reach_bytes >= chunk_bytes.saturating_mul(4) {
            return chunk_bytes;
        }
        let ahead_bytes = reach_bytes.saturating_sub(self.unused_bytes());
        let waited_bytes = self.wanted.saturating_sub(self.next);
        ahead_bytes.max(waited_bytes).clamp(1, chunk_bytes)
    }

    /// Whether to read on. The server says where the file ends only when it is asked for more than there is: so the
    /// last read reaches beyond the size that is known.
    #[must_use]
    pub fn wants_more(&self, window_bytes: u64, size_bytes: u64) -> bool {
        let reach_bytes = self.reach_bytes(window_bytes);
        let is_wanted = self.unused_bytes() < reach_bytes || self.next < self.wanted;
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
    fn a_careful_run_gets_further_when_it_is_used() {
        let run = |is_likely| {
            let mut run = Run::new(1, 0);
            run.pace = Pace::Careful {
                first_bytes: 8_192,
                is_likely,
            };
            run
        };
        let reach = |run: &mut Run, upto| {
            run.next = upto;
            run.handle_used(upto);
            run.reach_bytes(1 << 20)
        };
        let mut unlikely = run(false);
        let reached = [0, 8_192, 32_768, 65_536, 4 << 20].map(|upto| reach(&mut unlikely, upto));
        assert_eq!(reached, [8_192, 8_192, 8_192, 40_960, 1 << 20]);
        let mut likely = run(true);
        let reached = [0, 8_192, 32_768].map(|upto| reach(&mut likely, upto));
        assert_eq!(reached, [8_192, 32_768, 106_496]);
        // What was passed over was not used; what is waited for is read at once.
        let mut run = run(false);
        assert_eq!(run.chunk_bytes(65_536, 1 << 20), 8_192);
        run.wanted = 1 << 20;
        assert_eq!(run.chunk_bytes(65_536, 1 << 20), 65_536);
        // Who has used much is not asked about in small pieces.
        run.wanted = 0;
        run.next = 1 << 20;
        run.handle_used(1 << 20);
        assert_eq!(run.chunk_bytes(65_536, 1 << 20), 65_536);
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
