//! After how many reads in a row it is worth to read ahead.
//!
//! Each row that a client leaves tells that of every number, whatever was done: where reading ahead had begun after so many, each read
//! behind them would have saved a round trip, and what was ahead where the row ends was in vain. So who was read ahead in vain
//! is watched, and read ahead again when its rows are longer. Where more would be in vain than may be (`thrift`), only some rows could
//! be read ahead, and the number is best that makes the most of those.

use super::thrift::Thrift;

/// Numbers to choose from.
const READS: [u32; 4] = [1, 2, 4, 8];
/// What the latest row counts, beside all before.
const LATEST: f64 = 0.125;

/// A row of reads that ended.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// So many reads.
    pub reads: u32,
    /// Bytes of all of them.
    pub read_bytes: u64,
    /// What would have been in vain, had reading ahead begun in it.
    pub vain_bytes: u64,
}

/// Of one connection.
#[derive(Debug, Default)]
pub struct Rows {
    /// Of each number: what it saves a row, in bytes that the link carries in the meantime, less those in vain; and those.
    of_number: [(f64, f64); READS.len()],
    /// What is read in a row.
    read_bytes: f64,
}

impl Rows {
    /// A row ended, where a round trip is worth so many bytes.
    pub fn handle_row(&mut self, row: Row, trip_bytes: u64) {
        let tell = |told: &mut f64, of_row: f64| *told += (of_row - *told) * LATEST;
        for (after, (gain, vain)) in READS.into_iter().zip(&mut self.of_number) {
            let saved = row.reads.checked_sub(after);
            let of_row = saved.map_or((0.0, 0.0), |saved| {
                let vain_bytes = row.vain_bytes as f64;
                (
                    f64::from(saved) * trip_bytes as f64 - vain_bytes,
                    vain_bytes,
                )
            });
            tell(gain, of_row.0);
            tell(vain, of_row.1);
        }
        tell(&mut self.read_bytes, row.read_bytes as f64);
    }

    /// The number that saves most; of equal ones the smallest.
    #[must_use]
    pub fn best(&self) -> u32 {
        let may_bytes = Thrift::SHARE * self.read_bytes;
        let gains = self.of_number.map(|(gain, vain)| match gain > 0.0 {
            true => gain * (may_bytes / vain.max(1.0)).min(1.0),
            false => gain,
        });
        let mut best = (READS[0], gains[0]);
        for (after, gain) in READS.into_iter().zip(gains) {
            if gain > best.1 {
                best = (after, gain);
            }
        }
        best.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best_of(rows: &[u32], trip_bytes: u64, vain_bytes: u64, block_bytes: u64) -> u32 {
        let mut told = Rows::default();
        for reads in rows.iter().cycle().take(40) {
            let row = Row {
                reads: *reads,
                read_bytes: u64::from(*reads) * block_bytes,
                vain_bytes,
            };
            told.handle_row(row, trip_bytes);
        }
        told.best()
    }

    #[test]
    fn it_is_the_number_that_most_rows_leave_behind() {
        const MUCH: u64 = 1 << 20;
        assert_eq!(Rows::default().best(), 1);
        assert_eq!(best_of(&[1, 2, 3, 4, 5, 6, 7], 11_580, 16_384, MUCH), 1);
        // A link so short that nothing is saved.
        assert_eq!(best_of(&[1, 2, 3, 4, 5, 6, 7], 965, 16_384, MUCH), 8);
        // Pairs, and long rows among them.
        assert_eq!(best_of(&[1, 1, 1, 1, 1, 30], 10_000, 65_536, MUCH), 2);
        assert_eq!(best_of(&[3, 3, 3, 3, 3, 20], 10_000, 65_536, MUCH), 4);
        assert_eq!(best_of(&[1, 3, 7], 10_000, 1_000_000, MUCH), 8);
    }

    /// Two blocks in vain for each row that is read ahead are more than may be: those with more to save are chosen.
    #[test]
    fn where_little_may_be_in_vain_it_is_spent_where_it_saves_most() {
        let rows = [1, 1, 4, 1, 8, 1, 1, 3, 1, 6];
        assert_eq!(best_of(&rows, 400_000, 8_192, 1 << 20), 1);
        assert_eq!(best_of(&rows, 400_000, 8_192, 4_096), 2);
    }

    #[test]
    fn invariant_6_rows_and_links_of_any_size_can_be_told() {
        let mut rows = Rows::default();
        let row = Row {
            reads: u32::MAX,
            read_bytes: u64::MAX,
            vain_bytes: 0,
        };
        rows.handle_row(row, u64::MAX);
        let row = Row {
            vain_bytes: u64::MAX,
            ..row
        };
        rows.handle_row(row, u64::MAX);
        assert_eq!(rows.best(), 1);
    }
}
