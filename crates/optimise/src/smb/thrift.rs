//! What may be read in vain: of a connection at most about an eleventh of what its client reads.
//!
//! Of who jumps about nobody knows how far it will read on. A long round trip is worth many bytes, and reading on behind every
//! jump would gain most; but the server would read several times what its client asks for, and so would everybody else wait
//! for that on the link. So each byte that is read earns some, what was in vain is taken from that, and who has none left
//! reads without us until it has.

use super::ahead::Pace;
use super::window::Watched;

/// Of so many bytes that the client reads, one may be in vain;
const EARNED_OF: u64 = 11;
/// and so many before it has earned them: a block of most clients that copy.
const GRACE_BYTES: u64 = 64 << 10;
/// Nobody saves more than this for later, and nobody owes more.
const LEFT_BYTES_MAX: u64 = 1 << 20;

/// Of one connection.
#[derive(Debug, Default)]
pub struct Thrift {
    read_bytes: u64,
    wasted_bytes: u64,
}

impl Thrift {
    /// The share of what is read that may be in vain.
    pub const SHARE: f64 = 1.0 / EARNED_OF as f64;

    /// The client read so much.
    pub fn handle_read(&mut self, bytes: u64) {
        let saved_bytes = self.wasted_bytes.saturating_add(LEFT_BYTES_MAX);
        let read_bytes = self.read_bytes.saturating_add(bytes);
        self.read_bytes = read_bytes.min(saved_bytes.saturating_mul(EARNED_OF));
    }

    /// So much was in vain.
    pub fn handle_wasted(&mut self, bytes: u64) {
        let owed_bytes = self.may_bytes().saturating_add(LEFT_BYTES_MAX);
        self.wasted_bytes = self.wasted_bytes.saturating_add(bytes).min(owed_bytes);
    }

    fn may_bytes(&self) -> u64 {
        (self.read_bytes / EARNED_OF).max(GRACE_BYTES)
    }

    /// How far ahead of this row may be read: a few whole blocks at first, as many as may be in vain, or nothing, where so much is
    /// ahead elsewhere that nobody has used. A long row earns for itself, whatever the connection owes.
    #[must_use]
    pub fn allow(&self, row: &Watched, unjudged_bytes: u64) -> Option<Pace> {
        let Pace::Careful {
            first_bytes,
            is_likely,
        } = row.pace()
        else {
            return Some(Pace::Full);
        };
        let doubtful_bytes = self.wasted_bytes.saturating_add(unjudged_bytes);
        let left_bytes = self.may_bytes().saturating_sub(doubtful_bytes);
        let may_bytes = left_bytes.max(row.row_bytes() / EARNED_OF);
        let blocks = first_bytes.min(may_bytes) / row.block_bytes();
        (blocks > 0).then(|| Pace::Careful {
            first_bytes: blocks * row.block_bytes(),
            is_likely,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much may be ahead of a row of so many reads here and there.
    fn first_bytes(thrift: &Thrift, reads: u32, read_bytes: u32) -> u64 {
        first_bytes_beside(0, thrift, reads, read_bytes)
    }

    /// The same where so much is ahead elsewhere.
    fn first_bytes_beside(
        unjudged_bytes: u64,
        thrift: &Thrift,
        reads: u32,
        read_bytes: u32,
    ) -> u64 {
        let row = Watched {
            reads,
            read_bytes,
            rest_bytes: 1 << 30,
            ..Watched::default()
        };
        match thrift.allow(&row, unjudged_bytes) {
            Some(Pace::Careful { first_bytes, .. }) => first_bytes,
            Some(Pace::Full) => u64::MAX,
            None => 0,
        }
    }

    #[test]
    fn an_eleventh_may_be_in_vain() {
        let mut thrift = Thrift::default();
        let (mut read, mut wasted) = (0, 0);
        for _ in 0..2_000 {
            thrift.handle_read(4_096);
            read += 4_096;
            let bytes = first_bytes(&thrift, 1, 4_096);
            thrift.handle_wasted(bytes);
            wasted += bytes;
        }
        let may = read / 11;
        assert!((may - 8_192..=may).contains(&wasted), "{wasted} of {may}");
    }

    #[test]
    fn who_owes_is_read_ahead_in_long_rows_only() {
        let mut thrift = Thrift::default();
        thrift.handle_wasted(100 << 20);
        assert_eq!(first_bytes(&thrift, 10, 4_096), 0);
        assert_eq!(first_bytes(&thrift, 11, 4_096), 4_096);
        // What is owed is bounded, and paid.
        thrift.handle_read(13 << 20);
        assert_eq!(first_bytes(&thrift, 1, 4_096), 8_192);
    }

    /// Or many files at once would have so much each.
    #[test]
    fn what_is_ahead_elsewhere_may_be_in_vain_too() {
        let thrift = Thrift::default();
        let found = [0, 50_000, 60_000, 62_000, u64::MAX]
            .map(|unjudged_bytes| first_bytes_beside(unjudged_bytes, &thrift, 1, 4_096));
        assert_eq!(found, [8_192, 8_192, 4_096, 0, 0]);
        assert_eq!(first_bytes_beside(u64::MAX, &thrift, 11, 4_096), 4_096);
    }

    #[test]
    fn blocks_are_whole() {
        let thrift = Thrift::default();
        assert_eq!(first_bytes(&thrift, 1, 61_440), 61_440);
        assert_eq!(first_bytes(&thrift, 1, 65_537), 0);
        assert_eq!(first_bytes(&thrift, 1, 0), 8_192);
    }

    #[test]
    fn invariant_6_reads_of_any_size_can_be_told() {
        let mut thrift = Thrift::default();
        thrift.handle_read(u64::MAX);
        thrift.handle_wasted(u64::MAX);
        thrift.handle_wasted(u64::MAX);
        assert_eq!(
            first_bytes(&thrift, u32::MAX, u32::MAX),
            u64::from(u32::MAX) * 2
        );
    }
}
