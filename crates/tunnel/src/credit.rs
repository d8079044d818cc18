//! Credit: how many bytes of a flow may be on their way or unread.
//!
//! Credit is an absolute count per flow and direction, starting at 0: the receiver says "you may
//! have sent up to N". It never falls. A sender that gives credit back counts it as spent and says
//! how much that was in all, so both counts only rise, and their frames may come in any order, late
//! or twice (`docs/design/reclaim.md`). Here the credit given out is kept without what came back.
//!
//! A data frame costs its payload plus [`FRAME_COST_BYTES`], so that credit
//! bounds memory even when every frame holds one byte. An END without payload costs nothing, so a
//! flow without credit can still be closed.
//!
//! A window that was read within twelve round trips becomes what would be read in twelve, up to
//! eightfold at once: it may be credit that the sender waits for, not the reader. Two round trips
//! would do without loss; but what lies behind a hole is not read, and at 10 % loss the last hole
//! of a window takes some seven round trips to fill. Measured at 250 ms one-way and 10 % loss: eight
//! round trips' worth carries .95 of what the link does, twelve .98, sixteen .985. A window too large
//! costs nothing as long as the reader keeps up, and a reader that is slow gets no more.
//!
//! The same is judged by what arrives when credit runs short and what could be read was read:
//! behind a hole nothing is read for round trips, and growth must not wait for that. It is the pace
//! at which data comes while it comes (`arrivals.rs`), for who waits for credit sends nothing.

use crate::arrivals::{Arrivals, Pace};
use crate::budget::{Budget, Pool};

/// What a frame costs besides its payload, bytes; about what keeping it in a map costs.
pub const FRAME_COST_BYTES: u64 = 128;

/// A window granted in steps of at most this, bytes, so that big windows do not come in gulps.
const GRANT_STEP_BYTES_MAX: u64 = 512 * 1024;

/// A window read within this many round trips is too small.
const GROW_ROUND_TRIPS: u64 = 12;

/// A window grows by at most this factor at once: at first only a burst was read.
const GROW_FACTOR_MAX: u64 = 8;

/// In a flow's first round trip the pace is that of a tunnel that looks for its link's rate: it may be this many times as fast in
/// the next.
const FIRST_ROUND_FACTOR: u64 = 4;

/// A flow that has brought less than this part of its base needs no larger window.
const GROW_PART_MIN: u64 = 8;

/// What may be unread before anything was read, as a part of the base.
const UNREAD_PART: u64 = 16;

/// The part of the pool that is free which a flow may take within its first round trip: nobody knows
/// yet whether its reader will keep up.
const FIRST_ROUND_PART: u64 = 4;

/// A grown window that lasts longer than this many round trips is too large, if others need it.
const SHRINK_ROUND_TRIPS: u64 = 32;

/// The cost of a frame with `payload_bytes` of payload.
pub(crate) fn cost_bytes(payload_bytes: usize) -> u64 {
    if payload_bytes == 0 {
        0
    } else {
        (payload_bytes as u64).saturating_add(FRAME_COST_BYTES)
    }
}

/// What [`GROW_ROUND_TRIPS`] bring at this pace.
fn aim_bytes(pace: &Pace, rtt_ns: u64) -> u64 {
    let aim_ns = u128::from(rtt_ns.saturating_mul(GROW_ROUND_TRIPS));
    let aim = u128::from(pace.bytes) * aim_ns / u128::from(pace.elapsed_ns.max(1));
    u64::try_from(aim).unwrap_or(u64::MAX)
}

/// The receiver's side of a flow's credit.
#[derive(Debug)]
pub(crate) struct Grant {
    max_bytes: u64,
    /// The part of the window that is out of the reserve: the initial window, unless that is pressed.
    base_bytes: u64,
    /// The part that is out of the pool.
    taken_bytes: u64,
    /// To what that is to shrink as credit given out is used up.
    taken_bytes_max: u64,
    /// Credit given out, without what came back.
    granted_bytes: u64,
    /// What came back.
    returned_bytes: u64,
    consumed_bytes: u64,
    /// When, and at which count, the window now being consumed began.
    mark: Option<(u64, u64)>,
    arrivals: Arrivals,
}

impl Grant {
    pub(crate) fn new(max_bytes: u64, budget: &mut Budget) -> Self {
        let base_bytes = budget.reserve.begin();
        Grant {
            max_bytes,
            base_bytes,
            taken_bytes: 0,
            taken_bytes_max: u64::MAX,
            granted_bytes: base_bytes,
            returned_bytes: 0,
            consumed_bytes: 0,
            mark: None,
            arrivals: Arrivals::default(),
        }
    }

    /// How much may have come, without what was given back.
    pub(crate) fn granted_bytes(&self) -> u64 {
        self.granted_bytes
    }

    pub(crate) fn returned_bytes(&self) -> u64 {
        self.returned_bytes
    }

    pub(crate) fn window_bytes(&self) -> u64 {
        self.base_bytes.saturating_add(self.taken_bytes)
    }

    pub(crate) fn base_bytes(&self) -> u64 {
        self.base_bytes
    }

    /// What may be on its way or unread at present; never more than the window.
    fn exposed_bytes(&self) -> u64 {
        self.granted_bytes.saturating_sub(self.consumed_bytes)
    }

    /// The reader took `cost_bytes`. True when the sender should be told of new credit.
    pub(crate) fn consume(
        &mut self,
        now_ns: u64,
        cost_bytes: u64,
        rtt_ns: u64,
        budget: &mut Budget,
    ) -> bool {
        let (mark_ns, mark_bytes) = *self.mark.get_or_insert((now_ns, self.consumed_bytes));
        self.consumed_bytes = self.consumed_bytes.saturating_add(cost_bytes);
        if self.consumed_bytes.saturating_sub(mark_bytes) >= self.window_bytes() {
            self.adjust(now_ns.saturating_sub(mark_ns), rtt_ns, &mut budget.pool);
            self.mark = Some((now_ns, self.consumed_bytes));
        }
        self.settle(budget);
        self.is_due()
    }

    /// Whether enough new credit has gathered for the sender to be told.
    fn is_due(&self) -> bool {
        let new_bytes = self.limit_bytes().saturating_sub(self.granted_bytes);
        new_bytes >= (self.window_bytes() / 4).clamp(1, GRANT_STEP_BYTES_MAX)
    }

    /// The window becomes what it should be. What it loses was not given out: credit never goes
    /// back by itself, so a window shrinks only as what was given out is used up.
    fn settle(&mut self, budget: &mut Budget) {
        let spare_bytes = self.window_bytes().saturating_sub(self.exposed_bytes());
        let surplus_bytes = self.taken_bytes.saturating_sub(self.taken_bytes_max);
        let surplus_bytes = surplus_bytes.min(spare_bytes);
        self.taken_bytes -= surplus_bytes;
        budget.pool.give_back(surplus_bytes);
        let goal_bytes = budget.reserve.goal_bytes(self.base_bytes);
        let least_bytes = self.base_bytes.saturating_sub(spare_bytes - surplus_bytes);
        let most_bytes = self.max_bytes.saturating_sub(self.taken_bytes);
        let base_bytes = goal_bytes.clamp(least_bytes, most_bytes.max(self.base_bytes));
        self.set_base(base_bytes, budget);
    }

    fn set_base(&mut self, base_bytes: u64, budget: &mut Budget) {
        budget.reserve.resize(self.base_bytes, base_bytes);
        self.base_bytes = base_bytes;
    }

    /// The sender has given back `returned_bytes` in all: more than was known, and no more than it
    /// had. The window becomes what is still out, the floor at least. True when the sender should
    /// be told of new credit.
    pub(crate) fn take_back(&mut self, returned_bytes: u64, budget: &mut Budget) -> bool {
        let more_bytes = returned_bytes.saturating_sub(self.returned_bytes);
        self.returned_bytes += more_bytes;
        self.granted_bytes = self.granted_bytes.saturating_sub(more_bytes);
        let floor_bytes = budget.reserve.floor_bytes();
        let wanted_bytes = self.exposed_bytes().max(floor_bytes);
        let excess_bytes = self.window_bytes().saturating_sub(wanted_bytes);
        let grown_bytes = excess_bytes.min(self.taken_bytes);
        self.taken_bytes -= grown_bytes;
        budget.pool.give_back(grown_bytes);
        let base_bytes = self.base_bytes.saturating_sub(excess_bytes - grown_bytes);
        self.set_base(base_bytes.max(floor_bytes), budget);
        self.mark = None; // what is read from now on is read of another window
        self.is_due()
    }

    /// `arrived_bytes` have come in all, `unread_bytes` of them could be read and were not. True
    /// when the sender should be told of new credit.
    pub(crate) fn arrive(
        &mut self,
        now_ns: u64,
        arrived_bytes: u64,
        unread_bytes: u64,
        rtt_ns: u64,
        budget: &mut Budget,
    ) -> bool {
        let Some(pace) = self.arrivals.pace(now_ns, arrived_bytes, rtt_ns) else {
            return false;
        };
        if arrived_bytes < self.base_bytes / GROW_PART_MIN {
            return false;
        }
        let left_bytes = self.granted_bytes.saturating_sub(arrived_bytes);
        // What is still behind a hole is credit that was used, too, and is not seen here: a window
        // that is far too small is short of it.
        let is_short = pace.is_first_round
            || left_bytes <= self.window_bytes() / 4 * 3
            || aim_bytes(&pace, rtt_ns) >= self.window_bytes().saturating_mul(2);
        // When memory is or was short, what comes has to be read before more may.
        let is_trusted =
            !budget.reserve.asks_proof(self.base_bytes) || self.consumed_bytes >= self.base_bytes;
        if !is_short || !is_trusted || !self.keeps_up(unread_bytes) {
            return false;
        }
        let pool = &mut budget.pool;
        let most_bytes = if pace.is_first_round {
            let part_bytes = pool.free_bytes().saturating_add(self.taken_bytes) / FIRST_ROUND_PART;
            part_bytes.saturating_sub(self.taken_bytes)
        } else {
            u64::MAX
        };
        self.grow(&pace, rtt_ns, most_bytes, pool);
        let new_bytes = self.limit_bytes().saturating_sub(self.granted_bytes);
        new_bytes >= self.window_bytes() / 4
    }

    /// Whether a reader who could have read so much more is as fast as what comes.
    fn keeps_up(&self, unread_bytes: u64) -> bool {
        let is_little = unread_bytes <= self.base_bytes / UNREAD_PART;
        unread_bytes <= self.window_bytes() / 4
            && (is_little || unread_bytes <= self.consumed_bytes)
    }

    /// The window becomes what it should be at this pace; it takes at most `taken_bytes_max` of the
    /// pool.
    fn grow(&mut self, pace: &Pace, rtt_ns: u64, taken_bytes_max: u64, pool: &mut Pool) {
        let most_bytes = self.window_bytes().saturating_mul(GROW_FACTOR_MAX);
        let least_bytes = match pace.is_first_round {
            true => self.base_bytes.saturating_mul(FIRST_ROUND_FACTOR),
            false => 0,
        };
        let aim_bytes = aim_bytes(pace, rtt_ns).max(least_bytes);
        let aim_bytes = aim_bytes.min(most_bytes).min(self.max_bytes);
        let wanted_bytes = aim_bytes.saturating_sub(self.window_bytes());
        self.taken_bytes += pool.take(wanted_bytes.min(taken_bytes_max));
        self.taken_bytes_max = u64::MAX;
    }

    /// A whole window was read in `elapsed_ns`.
    fn adjust(&mut self, elapsed_ns: u64, rtt_ns: u64, pool: &mut Pool) {
        if elapsed_ns <= rtt_ns.saturating_mul(GROW_ROUND_TRIPS) {
            let pace = Pace {
                bytes: self.window_bytes(),
                elapsed_ns,
                is_first_round: false,
            };
            self.grow(&pace, rtt_ns, u64::MAX, pool);
        } else if pool.free_bytes() == 0 && elapsed_ns > rtt_ns.saturating_mul(SHRINK_ROUND_TRIPS) {
            // Others want to grow and this flow does not need what it has.
            self.taken_bytes_max = self.taken_bytes / 2;
        }
    }

    fn limit_bytes(&self) -> u64 {
        self.consumed_bytes.saturating_add(self.window_bytes())
    }

    /// The credit to announce now: with what was given back, for that counts as spent. It never
    /// goes back, even when the window shrank.
    pub(crate) fn announce(&mut self) -> u64 {
        self.granted_bytes = self.granted_bytes.max(self.limit_bytes());
        self.granted_bytes.saturating_add(self.returned_bytes)
    }

    /// Returns all of the window; the flow is over.
    pub(crate) fn release(&mut self, budget: &mut Budget) {
        budget.pool.give_back(self.taken_bytes);
        budget.reserve.end(self.base_bytes);
        self.taken_bytes = 0;
        self.base_bytes = budget.reserve.floor_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Reserve;

    const MIB: u64 = 1 << 20;
    const RTT_NS: u64 = 100_000_000;

    /// A budget whose reserve is never pressed.
    fn budget(pool_bytes: u64) -> Budget {
        Budget {
            pool: Pool::new(pool_bytes),
            reserve: Reserve::new(1024 * MIB, MIB),
        }
    }

    /// Reads `windows` windows in pieces of 64 KiB, each window within `window_ns`.
    fn read_windows(
        grant: &mut Grant,
        budget: &mut Budget,
        windows: u32,
        window_ns: u64,
        now_ns: &mut u64,
    ) {
        for _ in 0..windows {
            let pieces = grant.window_bytes() / 65_536;
            for _ in 0..pieces {
                *now_ns += window_ns / pieces;
                grant.consume(*now_ns, 65_536, RTT_NS, budget);
            }
            grant.announce();
        }
    }

    #[test]
    fn a_window_read_fast_becomes_twelve_round_trips_worth_up_to_its_maximum() {
        let mut budget = budget(256 * MIB);
        let mut grant = Grant::new(16 * MIB, &mut budget);
        let mut now_ns = 5;
        read_windows(&mut grant, &mut budget, 1, 6 * RTT_NS, &mut now_ns);
        let window_bytes = grant.window_bytes() as f64 / MIB as f64;
        assert!((2.0..2.2).contains(&window_bytes), "{window_bytes} MiB");
        read_windows(&mut grant, &mut budget, 9, 2 * RTT_NS, &mut now_ns);
        assert_eq!(grant.window_bytes(), 16 * MIB);
        assert_eq!(budget.pool.free_bytes(), 241 * MIB);
        grant.release(&mut budget);
        assert_eq!(budget.pool.free_bytes(), 256 * MIB);
    }

    #[test]
    fn a_burst_makes_a_window_eightfold_at_most() {
        let mut budget = budget(256 * MIB);
        let mut grant = Grant::new(64 * MIB, &mut budget);
        let mut now_ns = 5;
        read_windows(&mut grant, &mut budget, 1, 16, &mut now_ns);
        assert_eq!(grant.window_bytes(), 8 * MIB);
        read_windows(&mut grant, &mut budget, 1, 3 * RTT_NS, &mut now_ns);
        assert!(grant.window_bytes() > 31 * MIB && grant.window_bytes() < 34 * MIB);
    }

    #[test]
    fn what_arrives_lets_the_window_grow_before_any_of_it_is_read() {
        let mut budget = budget(256 * MIB);
        let mut grant = Grant::new(64 * MIB, &mut budget);
        let mut arrived_bytes = 0;
        for round in 1..6 {
            // All that was granted arrives within half a round trip, behind a hole.
            let granted_bytes = grant.granted_bytes();
            let step_bytes = (granted_bytes - arrived_bytes) / 16;
            for step in 1..=16 {
                arrived_bytes += step_bytes;
                let now_ns = round * RTT_NS + step * RTT_NS / 32;
                if grant.arrive(now_ns, arrived_bytes, 0, RTT_NS, &mut budget) {
                    grant.announce();
                }
            }
        }
        assert_eq!(grant.window_bytes(), 64 * MIB);
        grant.release(&mut budget);
        assert_eq!(budget.pool.free_bytes(), 256 * MIB);
    }

    #[test]
    fn what_arrives_and_could_be_read_but_is_not_earns_nothing() {
        let mut budget = budget(256 * MIB);
        let mut grant = Grant::new(64 * MIB, &mut budget);
        for sixteenth in 1..=16 {
            let bytes = sixteenth * MIB / 16;
            assert!(!grant.arrive(bytes, bytes, bytes, RTT_NS, &mut budget));
        }
        assert_eq!(grant.window_bytes(), MIB);
    }

    #[test]
    fn a_flow_of_the_first_round_trip_leaves_most_of_the_pool_to_others() {
        let mut budget = budget(64 * MIB);
        let mut grants = [(); 8].map(|()| Grant::new(64 * MIB, &mut budget));
        for grant in &mut grants {
            for sixteenth in 1..=16 {
                let bytes = sixteenth * MIB / 16;
                grant.arrive(bytes, bytes, 0, RTT_NS, &mut budget);
            }
            assert!(grant.window_bytes() > MIB, "{}", grant.window_bytes());
        }
        assert!(budget.pool.free_bytes() > 0);
    }

    #[test]
    fn a_window_read_slowly_stays_and_credit_follows_what_was_read() {
        let mut budget = budget(256 * MIB);
        let mut grant = Grant::new(16 * MIB, &mut budget);
        let mut now_ns = 5;
        read_windows(&mut grant, &mut budget, 10, 20 * RTT_NS, &mut now_ns);
        assert_eq!(grant.window_bytes(), MIB);
        assert_eq!(grant.granted_bytes(), 11 * MIB);
    }

    #[test]
    fn an_empty_pool_limits_growth_and_slow_flows_give_back() {
        let mut budget = budget(3 * MIB);
        let mut grown = Grant::new(64 * MIB, &mut budget);
        let mut other = Grant::new(64 * MIB, &mut budget);
        let (mut now_ns, mut other_ns) = (5, 5);
        read_windows(&mut grown, &mut budget, 5, RTT_NS, &mut now_ns);
        assert_eq!(
            (grown.window_bytes(), budget.pool.free_bytes()),
            (4 * MIB, 0)
        );
        read_windows(&mut other, &mut budget, 5, RTT_NS, &mut other_ns);
        assert_eq!(other.window_bytes(), MIB);
        let before_bytes = grown.granted_bytes();
        read_windows(&mut grown, &mut budget, 1, 100 * RTT_NS, &mut now_ns);
        assert!(grown.window_bytes() < 4 * MIB && budget.pool.free_bytes() > 0);
        assert!(
            grown.granted_bytes() >= before_bytes,
            "credit never goes back"
        );
        read_windows(&mut other, &mut budget, 2, RTT_NS, &mut other_ns);
        assert!(other.window_bytes() > MIB);
        grown.release(&mut budget);
        other.release(&mut budget);
        assert_eq!(budget.pool.free_bytes(), 3 * MIB);
    }

    #[test]
    fn credit_never_goes_back_when_the_window_shrinks() {
        let mut budget = budget(15 * MIB);
        let mut grant = Grant::new(16 * MIB, &mut budget);
        let mut now_ns = 5;
        read_windows(&mut grant, &mut budget, 6, RTT_NS, &mut now_ns);
        let mut granted_bytes = grant.granted_bytes();
        for _ in 0..40 {
            now_ns += 20 * RTT_NS;
            grant.consume(now_ns, MIB, RTT_NS, &mut budget);
            assert!(grant.announce() >= granted_bytes);
            granted_bytes = grant.granted_bytes();
        }
        assert!(grant.window_bytes() < 9 * MIB, "it has shrunk");
    }

    #[test]
    fn credit_is_announced_in_steps_not_for_every_read() {
        let mut budget = budget(0);
        let mut grant = Grant::new(MIB, &mut budget);
        assert!(!grant.consume(1, MIB / 4 - 1, RTT_NS, &mut budget));
        assert!(grant.consume(2, 1, RTT_NS, &mut budget));
        assert_eq!(grant.announce(), MIB + MIB / 4);
        assert!(!grant.consume(3, 1, RTT_NS, &mut budget));
    }
}
