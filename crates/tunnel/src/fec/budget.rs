//! What repairs may cost, and how sure of success that makes them.
//!
//! Repairs may use a fifth of the bytes they protect and 27 bytes of 10,000 of all that is sent, so
//! bulk loses at most that to them, whatever losses ask for. Beside what is saved the budget
//! remembers what it has earned lately and what bursts of datagrams would have cost with each of
//! [`ODDS`](super::odds::ODDS): that says which of these can be afforded.

use super::odds::LEVELS;

/// Repair bytes earned by each protected byte.
const EARNED_PROTECTED: f64 = 0.19;
/// Repair bytes earned by each byte sent, protected or not.
const EARNED_ANY: f64 = 0.0027;
/// Repair bytes earned by a second, so that single keystrokes can be repaired; what is earned by
/// other bytes counts towards it, or a slow link that is full would give a hundredth for this.
const EARNED_SECOND: f64 = 2_000.0;
/// What can be saved up, bytes: the repairs of some requests.
const SAVED_BYTES_MAX: f64 = 32_000.0;
/// What was earned and wanted counts half after this, seconds: some dozens of requests.
const HALF_LIFE_S: f64 = 20.0;
/// Less than this says nothing of whether repairs can be afforded, seconds.
const TALLIED_S_MIN: f64 = 10.0;

/// Income, savings and wishes, in bytes.
#[derive(Debug, Clone)]
pub struct Budget {
    saved_bytes: f64,
    /// Earned since time was counted last.
    earned_lately: f64,
    earned_bytes: f64,
    /// What repairs with each of the odds would have cost, and copies of small frames.
    wanted_bytes: [f64; LEVELS],
    tallied_s: f64,
}

impl Default for Budget {
    fn default() -> Self {
        Budget {
            saved_bytes: SAVED_BYTES_MAX / 2.0,
            earned_lately: 0.0,
            earned_bytes: 0.0,
            wanted_bytes: [0.0; LEVELS],
            tallied_s: 0.0,
        }
    }
}

impl Budget {
    /// So much time has gone by.
    pub fn pass(&mut self, seconds: f64) {
        let by_second = (seconds * EARNED_SECOND - self.earned_lately).max(0.0);
        self.earn(by_second);
        self.earned_lately = 0.0;
        let kept = 0.5_f64.powf(seconds / HALF_LIFE_S);
        self.earned_bytes *= kept;
        self.wanted_bytes
            .iter_mut()
            .for_each(|bytes| *bytes *= kept);
        self.tallied_s += seconds;
    }

    /// Bytes were sent; repairs may use a part of it.
    /// A datagram that bulk has filled up counts for what is protected in it.
    pub fn handle_sent(&mut self, bytes: usize, protected_bytes: usize) {
        self.earn(bytes as f64 * EARNED_ANY + protected_bytes as f64 * EARNED_PROTECTED);
    }

    fn earn(&mut self, bytes: f64) {
        self.earned_lately += bytes;
        self.earned_bytes += bytes;
        self.saved_bytes = (self.saved_bytes + bytes).min(SAVED_BYTES_MAX);
    }

    /// Repairs would cost so much with each of the odds.
    pub fn want(&mut self, bytes: [usize; LEVELS]) {
        for (wanted, bytes) in self.wanted_bytes.iter_mut().zip(bytes) {
            *wanted += bytes as f64;
        }
    }

    /// Pays; false when it cannot be afforded.
    pub fn spend(&mut self, bytes: usize) -> bool {
        let can_pay = self.saved_bytes >= bytes as f64;
        if can_pay {
            self.saved_bytes -= bytes as f64;
        }
        can_pay
    }

    /// The best odds that can be afforded: their place in the list, or the last.
    pub fn level(&self) -> usize {
        let there_is = self.earned_bytes + self.saved_bytes;
        let can_pay = |bytes: &f64| *bytes <= there_is;
        self.wanted_bytes
            .iter()
            .position(can_pay)
            .unwrap_or(LEVELS - 1)
    }

    /// Whether what was earned and wanted is known for a while.
    pub fn is_tallied(&self) -> bool {
        self.tallied_s >= TALLIED_S_MIN
    }

    /// Whether even the last odds have cost more than was earned, for a while.
    pub fn is_short(&self) -> bool {
        let [.., least] = self.wanted_bytes;
        self.is_tallied() && least > self.earned_bytes
    }

    /// Forgets what was earned and wanted, not what is saved.
    pub fn forget(&mut self) {
        (self.earned_bytes, self.tallied_s) = (0.0, 0.0);
        self.wanted_bytes = [0.0; LEVELS];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs_cost_a_fifth_of_what_they_protect_and_little_of_the_rest() {
        let mut budget = Budget::default();
        while budget.spend(100) {}
        let mut spent = 0;
        for round in 0..10_000 {
            budget.handle_sent(1000, if round % 10 == 0 { 1000 } else { 0 });
            if budget.spend(800) {
                spent += 800;
            }
        }
        let earned = 10_000_000.0 * EARNED_ANY + 1_000_000.0 * EARNED_PROTECTED;
        assert!(f64::from(spent) <= earned + 100.0);
        assert!(f64::from(spent) > earned * 0.99);
    }

    #[test]
    fn a_second_earns_nothing_on_a_link_that_is_full() {
        let mut budget = Budget::default();
        while budget.spend(100) {}
        let before = budget.saved_bytes;
        budget.handle_sent(1_000_000, 0);
        budget.pass(1.0);
        let earned = budget.saved_bytes - before;
        assert!((earned - 1e6 * EARNED_ANY).abs() < 1.0, "{earned}");
        budget.pass(1.0);
        assert!((budget.saved_bytes - before - earned - EARNED_SECOND).abs() < 1.0);
    }

    #[test]
    fn the_best_odds_that_can_be_afforded_are_taken() {
        let mut budget = Budget::default();
        assert_eq!(budget.level(), 0, "nothing is known");
        let wanted = [30_000, 25_000, 21_000, 18_000, 15_000];
        for _ in 0..60 {
            budget.handle_sent(100_000, 110_000);
            budget.want(wanted);
            budget.pass(1.0);
        }
        assert_eq!(budget.level(), 2, "21.2 KB are earned each second");
        assert!(!budget.is_short());
        for _ in 0..200 {
            budget.handle_sent(100_000, 75_000);
            budget.want(wanted);
            budget.pass(1.0);
        }
        assert_eq!(budget.level(), LEVELS - 1);
        assert!(budget.is_short(), "14.5 KB are not enough for any");
        budget.forget();
        assert!(!budget.is_short());
    }

    #[test]
    fn one_request_that_costs_too_much_is_no_shortage() {
        let mut budget = Budget::default();
        budget.want([90_000; LEVELS]);
        budget.pass(0.1);
        assert!(!budget.is_short());
        for _ in 0..100 {
            budget.pass(1.0);
        }
        assert!(!budget.is_short(), "it has been forgotten");
    }
}
