//! How far ahead of a client to read: one product of rate and round trip at first, more while it is used, less when it was in vain.
//!
//! And when to begin: a read that is answered here saves a round trip, one in vain costs what the link takes for it. What the rows of
//! the connection so far have told of that is in `rows`. Of who has read so many blocks in a row one in so many leaves the row with the
//! next (Laplace's rule of succession); so where a block takes many round trips many are waited for, but for a file that is read
//! from its beginning, as whole files are.
//!
//! All of that is for who is taken to want the whole file: who reads it from its beginning in blocks as programs that copy do, or a
//! short one. Anybody else gets a few blocks, as many as `thrift` allows, and more when those were used: programs with a file of
//! records look at its head first, too.
//!
//! Where packets are lost that would take too long: what is used tells of progress in order, and that stands still behind each hole.
//! Who reads on there, in a file that was read from its beginning, is taken to want all of it.

use super::ahead::Pace;
use super::rows::{Row, Rows};
use crate::settings::Settings;

/// What one read fetches, at most; more would take several credits (MS-SMB2 3.1.5.2).
const CHUNK_BYTES_MAX: u64 = 64 << 10;
/// And at least.
const CHUNK_BYTES_MIN: u64 = 16 << 10;
/// Who reads less at once does not copy,
const COPY_BLOCK_BYTES_MIN: u64 = 16 << 10;
/// but may want all of a file that is not longer.
const SHORT_FILE_BYTES_MAX: u64 = 1 << 20;
/// Less at once is read as so much.
const BLOCK_BYTES_MIN: u64 = 4096;
/// Blocks ahead of who need not want what follows, in a file that is read from its beginning or from elsewhere.
const FIRST_BLOCKS: u64 = 4;
const BLOCKS_ELSEWHERE: u64 = 2;
/// Reads in a row that are asked for before reading ahead, where a block takes much longer than a round trip.
const ROW_MAX: u32 = 32;

/// A row of reads, as a file knows it while nothing is read ahead.
#[derive(Debug, Clone, Copy, Default)]
pub struct Watched {
    /// So many reads.
    pub reads: u32,
    /// It began at the file's beginning.
    pub is_first: bool,
    /// Bytes of one.
    pub read_bytes: u32,
    /// How much of the file is behind it.
    pub rest_bytes: u64,
}

impl Watched {
    /// What the client reads at once.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.read_bytes).max(BLOCK_BYTES_MIN)
    }

    /// What it has read.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.reads) * u64::from(self.read_bytes)
    }

    /// How far ahead it would be read if much may be in vain.
    #[must_use]
    pub fn pace(&self) -> Pace {
        let is_copy = self.block_bytes() >= COPY_BLOCK_BYTES_MIN;
        if self.is_first && (is_copy || self.rest_bytes <= SHORT_FILE_BYTES_MAX) {
            return Pace::Full;
        }
        let blocks = match self.is_first {
            true => FIRST_BLOCKS,
            false => BLOCKS_ELSEWHERE,
        };
        Pace::Careful {
            first_bytes: self.block_bytes() * blocks,
            is_likely: self.is_first || is_copy,
        }
    }
}

/// Of one connection.
#[derive(Debug)]
pub struct Window {
    bdp_bytes: u64,
    trip_bytes: u64,
    start_bytes: u64,
    full_bytes: u64,
    limit_bytes: u64,
    chunk_bytes: u64,
    bytes: u64,
    used_bytes: u64,
    rows: Rows,
    is_quick: bool,
    is_lossy: bool,
}

impl Window {
    /// For this link.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let chunk_bytes = chunk_bytes(settings.bdp_bytes);
        let limit_bytes = limit_bytes(settings, chunk_bytes);
        Self {
            bdp_bytes: settings.bdp_bytes,
            trip_bytes: settings.trip_bytes,
            start_bytes: settings.start_bytes,
            full_bytes: settings.full_bytes,
            limit_bytes,
            chunk_bytes,
            bytes: settings.bdp_bytes.clamp(chunk_bytes, limit_bytes),
            used_bytes: 0,
            rows: Rows::default(),
            is_quick: settings.is_quick,
            is_lossy: settings.is_lossy,
        }
    }

    /// The link turned out to be another, or to be shared with others.
    pub fn handle_link(&mut self, settings: &Settings) {
        let is_believed = self.is_believed();
        self.bdp_bytes = settings.bdp_bytes;
        self.trip_bytes = settings.trip_bytes;
        self.start_bytes = settings.start_bytes;
        self.full_bytes = settings.full_bytes;
        self.chunk_bytes = chunk_bytes(settings.bdp_bytes);
        self.limit_bytes = limit_bytes(settings, self.chunk_bytes);
        self.is_quick = settings.is_quick;
        self.is_lossy = settings.is_lossy;
        if is_believed {
            self.bytes = self
                .bytes
                .max(settings.bdp_bytes)
                .clamp(self.chunk_bytes, self.limit_bytes);
        }
    }

    /// How much may be on its way or unused for a client that reads so much at once, of a file that it reads from its beginning
    /// or from elsewhere.
    #[must_use]
    pub fn bytes(&self, read_bytes: u32, is_from_beginning: bool) -> u64 {
        let bytes = match is_from_beginning && self.is_believed() {
            true => self.bytes.max(self.start_bytes),
            false => self.bytes,
        };
        // What it is reading at the moment is not ahead of it.
        let current_bytes = match bytes >= self.bdp_bytes {
            true => read_bytes.into(),
            false => 0,
        };
        bytes
            .saturating_add(current_bytes)
            .min(self.cap(read_bytes))
    }

    /// Whether a file that others want could be let go in time: the near half hears of that behind a block of the client's
    /// or two.
    #[must_use]
    pub fn is_quick(&self) -> bool {
        self.is_quick
    }

    /// What one read fetches.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// So many reads in a row make this one a sequence.
    #[must_use]
    pub fn patience(&self, row: &Watched) -> u32 {
        let block_bytes = self.chunk_bytes.min(row.block_bytes());
        let worth = (block_bytes / self.trip_bytes.max(1)).min(ROW_MAX.into()) as u32;
        match row.is_first {
            true => self.rows.best(),
            false => self.rows.best().max(worth),
        }
    }

    /// Credits that reading so far ahead takes.
    #[must_use]
    pub fn credits(&self) -> u32 {
        let reads = self.cap(CHUNK_BYTES_MAX as u32) / self.chunk_bytes;
        u32::try_from(reads + 2).unwrap_or(u32::MAX)
    }

    /// So much was asked for that had been read ahead, of a file that is read from its beginning or from elsewhere.
    pub fn handle_used(&mut self, bytes: u64, is_from_beginning: bool) {
        if bytes > 0 && self.is_lossy && is_from_beginning && self.is_believed() {
            self.bytes = self.bytes.max(self.full_bytes).min(self.limit_bytes);
        }
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        // More than a product is ahead only where that is not enough.
        let enough_bytes = self.bytes.min(self.bdp_bytes);
        if self.used_bytes >= enough_bytes.max(self.chunk_bytes) {
            self.used_bytes = 0;
            self.rows = Rows::default();
            self.bytes = self.bytes.saturating_mul(2).min(self.limit_bytes);
        }
    }

    /// A row ended, and with it a run that was as far ahead as this.
    pub fn handle_left(&mut self, row: Row, pace: Pace) {
        if row.vain_bytes > 0 {
            self.used_bytes = 0;
        }
        if row.vain_bytes > 0 && pace == Pace::Full {
            self.bytes = (self.bytes.min(self.cap(0)) / 2).max(self.chunk_bytes);
        }
        self.rows.handle_row(row, self.trip_bytes);
    }

    /// A row ended before anything was read ahead.
    pub fn handle_watched(&mut self, row: &Watched) {
        if row.reads == 0 {
            return;
        }
        let ahead_bytes = match row.pace() {
            Pace::Full => self.bytes,
            Pace::Careful { first_bytes, .. } => first_bytes,
        };
        let row = Row {
            reads: row.reads,
            read_bytes: row.row_bytes(),
            vain_bytes: ahead_bytes.min(row.rest_bytes),
        };
        self.rows.handle_row(row, self.trip_bytes);
    }

    /// Nothing was in vain lately, or more was used since.
    fn is_believed(&self) -> bool {
        self.rows.best() == 1 && self.bytes >= self.bdp_bytes.min(self.limit_bytes)
    }

    /// Still more would only wait in front of the link, and everything else of the connection behind it.
    fn cap(&self, read_bytes: u32) -> u64 {
        let block_bytes = self.chunk_bytes.max(read_bytes.into());
        self.full_bytes
            .saturating_add(self.chunk_bytes + 2 * block_bytes)
            .min(self.limit_bytes)
    }
}

/// More would lie too long before what somebody waits for.
fn limit_bytes(settings: &Settings, chunk_bytes: u64) -> u64 {
    settings
        .ahead_bytes_max
        .min(settings.queue_bytes_max)
        .max(chunk_bytes)
}

/// A quarter of what the link holds: small enough to begin to flow early.
fn chunk_bytes(bdp_bytes: u64) -> u64 {
    let quarter = (bdp_bytes / 4).min(CHUNK_BYTES_MAX);
    quarter
        .next_multiple_of(4096)
        .clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row that ended with so much in vain: that is much beside what its client read, as little as it asks for at once.
    fn left(window: &mut Window, reads: u32, vain_bytes: u64) {
        let row = Row {
            reads,
            read_bytes: u64::from(reads) * 4096,
            vain_bytes,
        };
        window.handle_left(row, Pace::Full);
    }

    /// What the client read in blocks of 64 KiB.
    fn row(reads: u32, is_first: bool) -> Watched {
        Watched {
            reads,
            is_first,
            read_bytes: 65_536,
            rest_bytes: 1 << 30,
        }
    }

    /// Records of 4 KiB, somewhere in a file, and what is behind them.
    fn records(reads: u32, rest_bytes: u64) -> Watched {
        Watched {
            read_bytes: 4_096,
            rest_bytes,
            ..row(reads, false)
        }
    }

    #[test]
    fn a_window_follows_what_is_used() {
        let mut window = Window::new(&Settings::of_link(6_480_000, 200_000_000));
        assert_eq!(window.bytes(65_536, false), 1_296_000 + 65_536);
        window.handle_used(1_296_000, false);
        window.handle_used(2_592_000, false);
        let full = window.bytes(65_536, false);
        assert_eq!(full, 2 * 1_296_000 + 3 * 65_536);
        // Nobody reads on.
        for reads in [1, 2, 1, 2, 4, 8, 1, 2, 4, 8] {
            left(&mut window, reads, 64_000_000);
        }
        assert_eq!(window.bytes(65_536, false), 65_536);
        assert_eq!(window.patience(&row(1, true)), 8);
        for _ in 0..10 {
            window.handle_used(window.bytes(65_536, false), false);
        }
        assert_eq!(window.bytes(65_536, false), full);
        assert_eq!(window.patience(&row(1, true)), 1);
    }

    /// Records of 4 KiB in rows of a few; the first of them are in vain.
    #[test]
    fn who_was_read_ahead_in_vain_is_again_when_that_had_been_worth_it() {
        let patience = |rtt_ns, rows: &[u32]| {
            let mut window = Window::new(&Settings::of_link(193_000, rtt_ns));
            for patience in [1, 2, 4] {
                assert_eq!(window.patience(&row(1, true)), patience);
                left(&mut window, patience, 40_000);
            }
            assert_eq!(window.patience(&row(1, true)), 8);
            for reads in rows {
                window.handle_watched(&records(*reads, 1 << 30));
            }
            window.patience(&records(1, 1 << 30))
        };
        assert_eq!(patience(60_000_000, &[7, 3, 5, 6, 2, 7]), 1);
        assert_eq!(patience(60_000_000, &[2, 1, 1, 2, 3, 2]), 8);
        // Where they began nobody sees.
        assert_eq!(patience(60_000_000, &[0; 100]), 8);
        // A round trip is 200 bytes, and no row is as long as that would take.
        assert_eq!(patience(1_000_000, &[7, 3, 5, 6, 2, 7]), 21);
    }

    /// A program that looks at the head of a file of records is no copy, but for a short file.
    #[test]
    fn who_reads_little_at_once_is_read_ahead_with_care() {
        let pace = |read_bytes, is_first, rest_bytes| {
            let row = Watched {
                reads: 1,
                is_first,
                read_bytes,
                rest_bytes,
            };
            match row.pace() {
                Pace::Full => None,
                Pace::Careful {
                    first_bytes,
                    is_likely,
                } => Some((first_bytes, is_likely)),
            }
        };
        assert_eq!(pace(61_440, true, 1 << 30), None);
        assert_eq!(pace(512, true, 1 << 20), None);
        assert_eq!(pace(512, true, 1 << 30), Some((16_384, true)));
        assert_eq!(pace(4_096, false, 1 << 20), Some((8_192, false)));
        assert_eq!(pace(61_440, false, 1 << 30), Some((122_880, true)));
    }

    /// What does not reach beyond the end of the file is not in vain.
    #[test]
    fn who_closes_short_files_that_it_has_read_whole_is_read_ahead() {
        let mut window = Window::new(&Settings::of_link(193_000, 60_000_000));
        for reads in [1, 2, 4] {
            left(&mut window, reads, 65_536);
        }
        assert_eq!(window.patience(&row(1, true)), 8);
        for _ in 0..8 {
            window.handle_watched(&records(3, 0));
        }
        assert_eq!(window.patience(&row(1, true)), 1);
    }

    #[test]
    fn where_packets_are_lost_who_reads_on_gets_all_the_window() {
        let link = Settings::of_link(6_480_000, 500_000_000);
        let bdp = link.bdp_bytes;
        let mut window = Window::new(&link.with_loss(0.1));
        assert!((3 * bdp..4 * bdp).contains(&window.bytes(65_536, true)));
        assert!(window.bytes(65_536, false) < 2 * bdp);
        // Records here and there, two in a row.
        window.handle_used(65_536, false);
        assert!(window.bytes(65_536, false) < 2 * bdp);
        window.handle_used(65_536, true);
        assert!(window.bytes(65_536, true) > 7 * bdp);
        // In vain: then only what was used is believed.
        for reads in [1, 1, 1, 1, 1] {
            left(&mut window, reads, 1 << 20);
        }
        window.handle_used(65_536, true);
        assert!(window.bytes(65_536, true) < bdp);
        let mut without = Window::new(&link);
        without.handle_used(65_536, true);
        assert!(without.bytes(65_536, true) < 2 * bdp);
    }

    /// A tunnel finds a higher rate only where there is more to send than the rate it knows.
    #[test]
    fn who_reads_from_the_beginning_gets_more_while_the_rate_is_being_found() {
        let link = Settings::of_link(2_000_000, 500_000_000);
        let mut window = Window::new(&link.while_new());
        let twice = 2 * link.bdp_bytes + 65_536;
        assert_eq!(window.bytes(65_536, true), twice);
        assert!(window.bytes(65_536, false) < twice);
        window.handle_link(&Settings::of_link(4_000_000, 500_000_000).while_new());
        assert_eq!(window.bytes(65_536, true), 2 * twice - 65_536);
        window.handle_link(&link);
        assert!(window.bytes(65_536, true) < 2 * twice - 65_536);
    }

    /// The second of its trains, where the first few packets are all that is known; but not more than a slow link carries soon.
    #[test]
    fn a_train_is_there_when_it_can_go() {
        let bytes = |rate| {
            let link = Settings::of_link(rate, 500_000_000);
            Window::new(&link.while_new()).bytes(61_440, true)
        };
        assert!(bytes(100_000) >= 300_000);
        assert!(bytes(300_000) >= 600_000, "{}", bytes(300_000));
        assert!(bytes(20_000) <= 60_000);
    }

    /// All of them together, with large blocks, too: whoever wants a file waits until the word of that has come through.
    #[test]
    fn many_who_share_a_link_read_little_ahead() {
        let rate = 193_000;
        for flows in [1, 8, 24, 100] {
            let mut window = Window::new(&Settings::of_link(rate, 500_000_000));
            window.handle_used(10_000_000, false);
            window.handle_link(&Settings::of_link(rate / flows, 500_000_000));
            for read_bytes in [61_440, 8 << 20] {
                assert!(
                    window.bytes(read_bytes, false) * flows <= rate * 9,
                    "{flows}"
                );
            }
            assert_eq!(window.is_quick(), flows < 100);
        }
    }

    /// As a near half says that knows no end of offsets.
    #[test]
    fn invariant_6_any_use_can_be_told() {
        let mut window = Window::new(&Settings::of_link(6_480_000, 200_000_000));
        window.handle_used(1, false);
        window.handle_used(u64::MAX, false);
        assert_eq!(window.patience(&row(1, true)), 1);
    }

    #[test]
    fn a_slow_link_is_not_filled_for_seconds() {
        let window = Window::new(&Settings::of_link(193_000, 500_000_000));
        assert_eq!(window.chunk_bytes(), 24_576);
        assert!(window.cap(65_536) < 193_000 * 2);
    }
}
