//! After how many reads in a row it is worth to read ahead.
//!
//! Each row that a client leaves tells that of every number, whatever was done: where reading ahead had begun after so many, each read
//! behind them would have saved a round trip, and what was ahead where the row ends was in vain. So who was read ahead in vain
//! is watched, and read ahead again when its rows are longer.

/// Numbers to choose from.
const READS: [u32; 4] = [1, 2, 4, 8];
/// What the latest row counts, beside all before.
const LATEST: f64 = 0.125;

/// Of one connection.
#[derive(Debug, Default)]
pub struct Rows {
    /// Of each number: what it saves a row, in bytes that the link carries in the meantime.
    gains: [f64; READS.len()],
}

impl Rows {
    /// A row of so many reads ended, where a round trip is worth so many bytes and so many would have been in vain.
    pub fn handle_row(&mut self, reads: u32, trip_bytes: u64, vain_bytes: u64) {
        for (after, gain) in READS.into_iter().zip(&mut self.gains) {
            let of_row = match reads.checked_sub(after) {
                Some(saved) => f64::from(saved) * trip_bytes as f64 - vain_bytes as f64,
                None => 0.0,
            };
            *gain += (of_row - *gain) * LATEST;
        }
    }

    /// The number that saves most; of equal ones the smallest.
    #[must_use]
    pub fn best(&self) -> u32 {
        let mut best = (READS[0], self.gains[0]);
        for (after, gain) in READS.into_iter().zip(self.gains) {
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

    fn best_of(rows: &[u32], trip_bytes: u64, vain_bytes: u64) -> u32 {
        let mut told = Rows::default();
        for reads in rows.iter().cycle().take(40) {
            told.handle_row(*reads, trip_bytes, vain_bytes);
        }
        told.best()
    }

    #[test]
    fn it_is_the_number_that_most_rows_leave_behind() {
        assert_eq!(Rows::default().best(), 1);
        assert_eq!(best_of(&[1, 2, 3, 4, 5, 6, 7], 11_580, 16_384), 1);
        // A link so short that nothing is saved.
        assert_eq!(best_of(&[1, 2, 3, 4, 5, 6, 7], 965, 16_384), 8);
        // Pairs, and long rows among them.
        assert_eq!(best_of(&[1, 1, 1, 1, 1, 30], 10_000, 65_536), 2);
        assert_eq!(best_of(&[3, 3, 3, 3, 3, 20], 10_000, 65_536), 4);
        assert_eq!(best_of(&[1, 3, 7], 10_000, 1_000_000), 8);
    }

    #[test]
    fn invariant_6_rows_and_links_of_any_size_can_be_told() {
        let mut rows = Rows::default();
        rows.handle_row(u32::MAX, u64::MAX, 0);
        rows.handle_row(u32::MAX, u64::MAX, u64::MAX);
        assert_eq!(rows.best(), 1);
    }
}
