//! Recovers datagrams that were lost.

use super::gf256::add_multiple;
use super::kept::Kept;
use super::system::{Equation, System, Unknown};
use super::wire::{Repair, Report};
use super::{KEPT_DATAGRAMS, Name, ROW_BYTES, UNKNOWN_ROWS_MAX, coefficient, row_of};
use std::collections::VecDeque;

/// Recovered datagrams that wait to be taken, and those whose late arrival is noticed.
const RECOVERED_MAX: usize = 64;

/// What a receiver has counted since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Datagrams that repairs have named, each once.
    pub named: u64,
    /// Of these, not there when they were named first.
    pub missing: u64,
    /// Runs of missing ones next to each other.
    pub runs: u64,
    /// Datagrams recovered.
    pub recovered: u64,
    /// Of these, came by themselves afterwards.
    pub late: u64,
    /// Repairs received.
    pub repairs: u64,
    /// Repairs that said nothing new, as when nothing is missing.
    pub needless: u64,
    /// Repairs over too many missing datagrams.
    pub hopeless: u64,
    /// Datagrams put together that do not bear their name: the peer's sums are wrong.
    pub wrong: u64,
}

/// The receiver's side: hand it every datagram and every repair, drain what it recovers.
#[derive(Debug, Default)]
pub struct Decoder {
    kept: Kept,
    system: System,
    recovered: VecDeque<Vec<u8>>,
    /// Names recovered lately.
    lately: VecDeque<Name>,
    /// Number of the newest datagram that was counted, and whether it was missing.
    counted: Option<(u16, bool)>,
    tally: Tally,
}

impl Decoder {
    /// A datagram has arrived.
    pub fn handle_datagram(&mut self, datagram: &[u8]) {
        let Some(name) = Name::of(datagram) else {
            return;
        };
        if self.lately.contains(&name) {
            self.tally.late += 1;
            self.lately.retain(|recovered| *recovered != name);
            return;
        }
        if !self.system.is_empty() && self.system.mentions(name) {
            for row in 0..name.rows() {
                let unknown = Unknown { name, row };
                self.system.learn(unknown, row_of(datagram, row));
            }
            self.kept.push(name, datagram);
            self.collect();
        } else {
            self.kept.push(name, datagram);
        }
    }

    /// A repair has arrived.
    pub fn handle_repair(&mut self, repair: &Repair) {
        self.tally.repairs += 1;
        self.count(repair);
        let mut sum = repair.sum.clone();
        sum.resize(ROW_BYTES, 0);
        let mut terms = Vec::new();
        let mut number = repair.first;
        for name in &repair.names {
            let kept = self.kept.get(*name);
            for row in 0..name.rows() {
                let factor = coefficient(repair.x, number, row);
                match kept {
                    Some(datagram) => add_multiple(&mut sum, row_of(datagram, row), factor),
                    None => terms.push((Unknown { name: *name, row }, factor)),
                }
            }
            number = number.wrapping_add(1);
        }
        if terms.len() > UNKNOWN_ROWS_MAX / 2 {
            self.tally.hopeless += 1;
            return;
        }
        let now = self.kept.total();
        if self.system.insert(Equation::new(terms, sum, now)) {
            self.system
                .forget(now.saturating_sub(KEPT_DATAGRAMS as u64));
            self.collect();
        } else {
            self.tally.needless += 1;
        }
    }

    /// The next datagram that was recovered.
    pub fn poll_recovered(&mut self) -> Option<Vec<u8>> {
        self.recovered.pop_front()
    }

    /// Whether a datagram waits to be taken.
    #[must_use]
    pub fn has_recovered(&self) -> bool {
        !self.recovered.is_empty()
    }

    /// What was counted.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The counters as a report carries them.
    #[must_use]
    pub fn report(&self, sequence: u32, protects: bool) -> Report {
        // Counters wrap around on the wire.
        let wrapped = |count: u64| (count & u64::from(u32::MAX)) as u32;
        Report {
            sequence,
            protects,
            named: wrapped(self.tally.named),
            missing: wrapped(self.tally.missing),
            runs: wrapped(self.tally.runs),
            recovered: wrapped(self.tally.recovered),
            late: wrapped(self.tally.late),
            repairs: wrapped(self.tally.repairs),
        }
    }

    /// Repairs that wait for others; at most [`super::EQUATIONS_MAX`].
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.system.len()
    }

    /// The peer does not send repairs any more: frees the memory.
    pub fn rest(&mut self) {
        self.kept.clear();
        self.system = System::default();
        self.counted = None;
    }

    fn collect(&mut self) {
        while let Some((name, datagram)) = self.system.solved() {
            if Name::of(&datagram) != Some(name) {
                self.tally.wrong += 1;
                continue;
            }
            self.tally.recovered += 1;
            self.kept.push(name, &datagram);
            if self.lately.len() >= RECOVERED_MAX {
                self.lately.pop_front();
            }
            self.lately.push_back(name);
            if self.recovered.len() < RECOVERED_MAX {
                self.recovered.push_back(datagram);
            }
        }
    }

    /// Counts the datagrams that no earlier repair has named.
    fn count(&mut self, repair: &Repair) {
        let mut number = repair.first;
        for name in &repair.names {
            let is_new = match self.counted {
                None => true,
                // Ahead by less than half the circle.
                Some((newest, _)) => (1..0x8000).contains(&number.wrapping_sub(newest)),
            };
            if is_new {
                let is_missing = self.kept.get(*name).is_none();
                let follows = matches!(self.counted, Some((before, true))
                    if before.wrapping_add(1) == number);
                self.tally.named += 1;
                self.tally.missing += u64::from(is_missing);
                self.tally.runs += u64::from(is_missing && !follows);
                self.counted = Some((number, is_missing));
            }
            number = number.wrapping_add(1);
        }
    }
}
