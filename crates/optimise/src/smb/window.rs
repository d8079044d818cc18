//! How far ahead of a client to read: one product of rate and round trip at first, more while it is used, less when it was in vain.
//!
//! And when to begin: a read that is answered here saves a round trip, one in vain costs what the link takes for it. What the rows of
//! the connection so far have told of that is in `rows`. Of who has read so many blocks in a row one in so many leaves the row with the
//! next (Laplace's rule of succession); so where a block takes many round trips many are waited for, but for a file that is read
//! from its beginning, as whole files are.
//!
//! Where packets are lost that would take too long: what is used tells of progress in order, and that stands still behind each hole.
//! Who reads on there, in a file that was read from its beginning, is taken to want all of it.

use super::rows::Rows;
use crate::settings::Settings;

/// What one read fetches, at most; more would take several credits (MS-SMB2 3.1.5.2).
const CHUNK_BYTES_MAX: u64 = 64 << 10;
/// And at least.
const CHUNK_BYTES_MIN: u64 = 16 << 10;
/// Reads in a row that are asked for before reading ahead, where a block takes much longer than a round trip.
const ROW_MAX: u64 = 32;

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

    /// So many reads in a row make a sequence, in a file that is read from its beginning or from elsewhere.
    #[must_use]
    pub fn patience(&self, is_from_beginning: bool) -> u32 {
        let worth = (self.chunk_bytes / self.trip_bytes.max(1)).min(ROW_MAX) as u32;
        match is_from_beginning {
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

    /// A row of so many reads ended, and of what had been read ahead so much was in vain.
    pub fn handle_left(&mut self, reads: u32, wasted_bytes: u64) {
        if wasted_bytes > 0 {
            self.used_bytes = 0;
            self.bytes = (self.bytes.min(self.cap(0)) / 2).max(self.chunk_bytes);
        }
        self.rows.handle_row(reads, self.trip_bytes, wasted_bytes);
    }

    /// A row of so many reads ended before anything was read ahead, with so much of the file behind it.
    pub fn handle_watched(&mut self, reads: u32, rest_bytes: u64) {
        if reads > 0 {
            let vain_bytes = self.bytes.min(rest_bytes);
            self.rows.handle_row(reads, self.trip_bytes, vain_bytes);
        }
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
            window.handle_left(reads, 64_000_000);
        }
        assert_eq!(window.bytes(65_536, false), 65_536);
        assert_eq!(window.patience(true), 8);
        for _ in 0..10 {
            window.handle_used(window.bytes(65_536, false), false);
        }
        assert_eq!(window.bytes(65_536, false), full);
        assert_eq!(window.patience(true), 1);
    }

    /// Records of 4 KiB in rows of a few; the first of them are in vain.
    #[test]
    fn who_was_read_ahead_in_vain_is_again_when_that_had_been_worth_it() {
        let patience = |rtt_ns, rows: &[u32]| {
            let mut window = Window::new(&Settings::of_link(193_000, rtt_ns));
            for patience in [1, 2, 4] {
                assert_eq!(window.patience(true), patience);
                window.handle_left(patience, 40_000);
            }
            assert_eq!(window.patience(true), 8);
            for reads in rows {
                window.handle_watched(*reads, 1_000_000);
            }
            window.patience(false)
        };
        assert_eq!(patience(60_000_000, &[7, 3, 5, 6, 2, 7]), 1);
        assert_eq!(patience(60_000_000, &[2, 1, 1, 2, 3, 2]), 8);
        // Where they began nobody sees.
        assert_eq!(patience(60_000_000, &[0; 100]), 8);
        // A round trip is 200 bytes, and no row is as long as that would take.
        assert_eq!(patience(1_000_000, &[7, 3, 5, 6, 2, 7]), 32);
    }

    /// What does not reach beyond the end of the file is not in vain.
    #[test]
    fn who_closes_short_files_that_it_has_read_whole_is_read_ahead() {
        let mut window = Window::new(&Settings::of_link(193_000, 60_000_000));
        for reads in [1, 2, 4] {
            window.handle_left(reads, 65_536);
        }
        assert_eq!(window.patience(true), 8);
        for _ in 0..8 {
            window.handle_watched(3, 0);
        }
        assert_eq!(window.patience(true), 1);
    }

    #[test]
    fn where_packets_are_lost_who_reads_on_gets_all_the_window() {
        let link = Settings::of_link(6_480_000, 500_000_000);
        let bdp = link.bdp_bytes;
        let mut window = Window::new(&link.with_loss(0.1));
        assert!((2 * bdp..3 * bdp).contains(&window.bytes(65_536, true)));
        assert!(window.bytes(65_536, false) < 2 * bdp);
        // Records here and there, two in a row.
        window.handle_used(65_536, false);
        assert!(window.bytes(65_536, false) < 2 * bdp);
        window.handle_used(65_536, true);
        assert!(window.bytes(65_536, true) > 7 * bdp);
        // In vain: then only what was used is believed.
        for reads in [1, 1, 1, 1, 1] {
            window.handle_left(reads, 1 << 20);
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
        assert_eq!(window.patience(true), 1);
    }

    #[test]
    fn a_slow_link_is_not_filled_for_seconds() {
        let window = Window::new(&Settings::of_link(193_000, 500_000_000));
        assert_eq!(window.chunk_bytes(), 24_576);
        assert!(window.cap(65_536) < 193_000 * 2);
    }
}
