//! When repairs are made: at the end of every burst of protected datagrams, and within a long one
//! whenever half a window has gone by.
//!
//! What waits for the datagrams of a burst waits for the last of them, so a repair is early enough
//! at its end; made there it covers the burst as a whole, which takes the fewest repairs. Where
//! other datagrams follow, repairs are strewn among them: losses come in bursts.

use super::WINDOW_DATAGRAMS_MAX;
use super::adaptation::{Adaptation, Observation, Stretch};
use super::encoder::Encoder;
use super::wire::Repair;

/// Datagrams of a long burst after which repairs are made.
const STRETCH_DATAGRAMS: usize = WINDOW_DATAGRAMS_MAX / 2;
/// Other datagrams between two repairs, so that a burst of losses does not take several of them.
const GAP_DATAGRAMS: usize = 2;
/// From this loss on a small frame gets two copies.
const LOSS_OF_TWO_COPIES: f64 = 0.03;
/// From this loss on a datagram that is sent while the link is idle gets three: of the end of a transfer over a long fast path two
/// hundred packets are missing, and one that is lost each time costs a round trip and a quarter.
const LOSS_OF_THREE_COPIES: f64 = 0.08;

/// The sender's side as a whole: what is sent, what is repaired, and how much.
#[derive(Debug, Default)]
pub struct Protection {
    encoder: Encoder,
    adaptation: Adaptation,
    /// The burst that is being sent: its datagrams, as far as repairs can cover them.
    burst: usize,
    /// Of these, what no repair covers yet, and the stretch of the same burst before.
    fresh: Stretch,
    before: Stretch,
    /// Datagrams the repairs that are due cover, and how many are due.
    covered: usize,
    due: usize,
    /// Datagrams sent that no repair has followed yet.
    gap: usize,
    made: u64,
}

impl Protection {
    /// A datagram was sent, with so many bytes to protect. One without any ends a burst.
    pub fn handle_sent(&mut self, datagram: &[u8], protected_bytes: usize) {
        self.adaptation.sent(datagram.len(), protected_bytes);
        if !self.adaptation.is_on() {
            (self.burst, self.due) = (0, 0);
            (self.fresh, self.before) = (Stretch::default(), Stretch::default());
            return;
        }
        // Gaps are not saved up while nothing is due.
        self.gap = if self.due > 0 { self.gap + 1 } else { 0 };
        if protected_bytes == 0 {
            self.end_burst();
            return;
        }
        let rows = self.encoder.push(datagram);
        if rows == 0 {
            return;
        }
        // Repairs that are still due cover what they were meant for, and what has followed.
        self.covered += 1;
        self.burst += 1;
        self.fresh.datagrams += 1;
        self.fresh.rows += rows;
        self.fresh.rows_of_one = self.fresh.rows_of_one.max(rows);
        if self.fresh.datagrams >= STRETCH_DATAGRAMS {
            self.plan();
        }
    }

    /// Nothing follows at once: what was sent is repaired now.
    pub fn handle_pause(&mut self) {
        self.end_burst();
        self.gap = self.due * GAP_DATAGRAMS;
    }

    fn end_burst(&mut self) {
        self.plan();
        (self.burst, self.before) = (0, Stretch::default());
    }

    /// Decides on the repairs of the burst so far, or of as much of it as the window holds.
    fn plan(&mut self) {
        if self.fresh.datagrams == 0 {
            return;
        }
        // A burst that goes on is covered from its beginning: later repairs help out earlier ones.
        self.covered = self.burst.min(WINDOW_DATAGRAMS_MAX);
        let repair_bytes = self.encoder.repair_bytes(self.covered);
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.repairs = self.adaptation.plan(self.before, fresh, repair_bytes);
        self.due += fresh.repairs;
        self.gap = self.gap.max(GAP_DATAGRAMS);
        self.before = fresh;
    }

    /// The next repair to be sent, if one is due and can be afforded.
    pub fn poll_repair(&mut self) -> Option<Repair> {
        if self.due == 0 || self.gap < GAP_DATAGRAMS {
            return None;
        }
        self.due -= 1;
        self.gap -= GAP_DATAGRAMS;
        let covered = self.covered.min(WINDOW_DATAGRAMS_MAX);
        let repair = self.encoder.repair(covered)?;
        if !self.adaptation.spend(repair.message_bytes()) {
            self.due = 0;
            return None;
        }
        self.made += 1;
        Some(repair)
    }

    /// How many copies a small frame gets instead of repairs, each of so many bytes; they are paid
    /// from the same budget. Where one in thirty is lost, one copy is not enough: whoever waits for
    /// a frame in vain holds up what follows for a round trip.
    pub fn pay_for_copies(&mut self, copy_bytes: usize) -> usize {
        (0..self.copies_wanted())
            .take_while(|_| self.adaptation.spend_on_copy(copy_bytes))
            .count()
    }

    /// How many copies a datagram gets that is sent while the link is idle, 0 to 3: they need not pay.
    #[must_use]
    pub fn copies_while_idle(&self) -> usize {
        match self.copies_wanted() {
            2 if self.adaptation.loss() >= LOSS_OF_THREE_COPIES => 3,
            wanted => wanted,
        }
    }

    /// How many copies the loss of the path asks for, 0 to 2, whatever they cost.
    fn copies_wanted(&self) -> usize {
        match self.adaptation.repeats() {
            false => 0,
            true if self.adaptation.loss() < LOSS_OF_TWO_COPIES => 1,
            true => 2,
        }
    }

    /// Takes the counters of now; see [`Adaptation::observe`].
    pub fn observe(&mut self, now: Observation) {
        self.adaptation.observe(now);
    }

    /// What is known of the path, and what follows from it.
    #[must_use]
    pub fn adaptation(&self) -> &Adaptation {
        &self.adaptation
    }

    /// Repairs made so far.
    #[must_use]
    pub fn repairs(&self) -> u64 {
        self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes while the link is idle and one packet in `one_of` is lost.
    fn copies_at_loss(one_of: u64) -> usize {
        let mut protection = Protection::default();
        for step in 0..100 {
            let sent = step * 500;
            protection.observe(Observation {
                now_ns: step * 100_000_000,
                sent,
                lost: sent / one_of,
                acknowledged: sent - sent / one_of,
                rtt_ns: 50_000_000,
                ..Observation::default()
            });
        }
        protection.copies_while_idle()
    }

    #[test]
    fn the_more_is_lost_the_more_copies_go_while_the_link_is_idle() {
        assert_eq!([10_000, 100, 25, 10].map(copies_at_loss), [0, 1, 2, 3]);
    }
}
