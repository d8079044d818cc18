//! How lower classes are kept alive under a flood of higher ones.
//!
//! While a class waits, it is owed a part of every byte that others send. Once that makes a turn, it
//! has one, whoever else waits; what it sends beyond its part is paid for out of what it is owed.
//! So a class that always has something to send gets at least its part, and one that gets more
//! anyway interrupts nobody.

use super::rank::{PerRank, Rank};

/// What `rank` gets at least while it has something to send, per cent of the bytes.
fn guaranteed_percent(rank: Rank) -> i64 {
    match rank {
        Rank::Control => 0,
        Rank::Interactive => 20,
        Rank::Bulk => 10,
        Rank::Background => 2,
    }
}

/// What each class is owed, hundredths of bytes.
#[derive(Debug, Default)]
pub(super) struct Shares {
    owed: PerRank<i64>,
}

impl Shares {
    /// The class whose turn it is: the highest that is owed a turn, or else the highest.
    pub(super) fn choose(
        &self,
        is_ready: impl Fn(Rank) -> bool,
        turn_bytes: usize,
    ) -> Option<Rank> {
        let turn = i64::try_from(turn_bytes)
            .unwrap_or(i64::MAX)
            .saturating_mul(100);
        let is_owed = |rank: &Rank| *self.owed.get(*rank) >= turn;
        let mut ready = Rank::ALL.into_iter().filter(|rank| is_ready(*rank));
        let first = ready.next()?;
        Some(ready.find(is_owed).unwrap_or(first))
    }

    /// `rank` has sent `cost_bytes`. Who has nothing to send saves nothing up.
    pub(super) fn charge(&mut self, rank: Rank, cost_bytes: i64, is_ready: impl Fn(Rank) -> bool) {
        for other in Rank::ALL {
            let percent = guaranteed_percent(other);
            let owed = self.owed.get_mut(other);
            if other == rank {
                let paid = cost_bytes.saturating_mul(100 - percent);
                *owed = owed.saturating_sub(paid).max(0);
            } else if is_ready(other) {
                *owed = owed.saturating_add(cost_bytes.saturating_mul(percent));
            } else {
                *owed = 0;
            }
        }
    }
}
