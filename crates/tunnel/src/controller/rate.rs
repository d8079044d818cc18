//! The path's rate: the most that arrived in recent cycles.

use std::collections::VecDeque;

/// A cycle has one probe upwards, so the rate was confirmed so many times before it is given up.
const CYCLES: u64 = 3;

/// Maximum filter over probing cycles, bytes per second.
#[derive(Debug, Clone, Default)]
pub(super) struct RateFilter {
    /// Best of each cycle.
    best: VecDeque<(u64, f64)>,
    cycle: u64,
}

impl RateFilter {
    pub(super) fn get(&self) -> Option<f64> {
        self.best.iter().map(|(_, rate)| *rate).reduce(f64::max)
    }

    pub(super) fn update(&mut self, rate: f64) {
        match self.best.back_mut() {
            Some((cycle, best)) if *cycle == self.cycle => *best = best.max(rate),
            _ => self.best.push_back((self.cycle, rate)),
        }
        // Old cycles go only when newer ones have said something.
        while self.best.len() > 1
            && self
                .best
                .front()
                .is_some_and(|(cycle, _)| cycle + CYCLES <= self.cycle)
        {
            self.best.pop_front();
        }
    }

    pub(super) fn next_cycle(&mut self) {
        self.cycle += 1;
    }

    /// What was known is wrong.
    pub(super) fn set(&mut self, rate: f64) {
        self.best.clear();
        self.best.push_back((self.cycle, rate));
    }
}
