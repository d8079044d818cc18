//! Credit: how many bytes of a flow may be on their way or unread.
//!
//! Credit is an absolute count per flow and direction, starting at 0: the receiver says "you may
//! have sent up to N". A data frame costs its payload plus [`FRAME_COST_BYTES`], so that credit
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
//! The same is judged by what arrives when credit runs short and all that could be read was read:
//! behind a hole nothing is read for round trips, and growth must not wait for that.

/// What a frame costs besides its payload, bytes; about what keeping it in a map costs.
pub const FRAME_COST_BYTES: u64 = 128;

/// A window granted in steps of at most this, bytes, so that big windows do not come in gulps.
const GRANT_STEP_BYTES_MAX: u64 = 512 * 1024;

/// A window read within this many round trips is too small.
const GROW_ROUND_TRIPS: u64 = 12;

/// A window grows by at most this factor at once: at first only a burst was read.
const GROW_FACTOR_MAX: u64 = 8;

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

/// What all windows of a peer may grow by together.
#[derive(Debug)]
pub(crate) struct Pool {
    free_bytes: u64,
}

impl Pool {
    pub(crate) fn new(free_bytes: u64) -> Self {
        Pool { free_bytes }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    fn take(&mut self, wanted_bytes: u64) -> u64 {
        let taken = wanted_bytes.min(self.free_bytes);
        self.free_bytes -= taken;
        taken
    }

    fn give_back(&mut self, bytes: u64) {
        self.free_bytes = self.free_bytes.saturating_add(bytes);
    }
}

/// The receiver's side of a flow's credit.
#[derive(Debug)]
pub(crate) struct Grant {
    initial_bytes: u64,
    max_bytes: u64,
    window_bytes: u64,
    granted_bytes: u64,
    consumed_bytes: u64,
    /// When, and at which count, the window now being consumed began.
    mark: Option<(u64, u64)>,
    /// The same of the window now arriving.
    arrival_mark: Option<(u64, u64)>,
}

impl Grant {
    pub(crate) fn new(initial_bytes: u64, max_bytes: u64) -> Self {
        Grant {
            initial_bytes,
            max_bytes,
            window_bytes: initial_bytes,
            granted_bytes: initial_bytes,
            consumed_bytes: 0,
            mark: None,
            arrival_mark: None,
        }
    }

    pub(crate) fn granted_bytes(&self) -> u64 {
        self.granted_bytes
    }

    pub(crate) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    /// The reader took `cost_bytes`. True when the sender should be told of new credit.
    pub(crate) fn consume(
        &mut self,
        now_ns: u64,
        cost_bytes: u64,
        rtt_ns: u64,
        pool: &mut Pool,
    ) -> bool {
        let (mark_ns, mark_bytes) = *self.mark.get_or_insert((now_ns, self.consumed_bytes));
        self.consumed_bytes = self.consumed_bytes.saturating_add(cost_bytes);
        if self.consumed_bytes.saturating_sub(mark_bytes) >= self.window_bytes {
            self.adjust(now_ns.saturating_sub(mark_ns), rtt_ns, pool);
            self.mark = Some((now_ns, self.consumed_bytes));
        }
        let new_bytes = self.limit_bytes().saturating_sub(self.granted_bytes);
        new_bytes >= (self.window_bytes / 4).clamp(1, GRANT_STEP_BYTES_MAX)
    }

    /// `arrived_bytes` have come in all, `unread_bytes` of them could be read and were not. True
    /// when the sender should be told of new credit.
    pub(crate) fn arrive(
        &mut self,
        now_ns: u64,
        arrived_bytes: u64,
        unread_bytes: u64,
        rtt_ns: u64,
        pool: &mut Pool,
    ) -> bool {
        let (mark_ns, mark_bytes) = *self.arrival_mark.get_or_insert((now_ns, 0));
        let left_bytes = self.granted_bytes.saturating_sub(arrived_bytes);
        let came_bytes = arrived_bytes.saturating_sub(mark_bytes);
        let is_short = left_bytes <= self.window_bytes / 4 * 3;
        let is_read = unread_bytes <= self.window_bytes / 4;
        if !is_short || !is_read || came_bytes < self.window_bytes / 8 {
            return false;
        }
        self.arrival_mark = Some((now_ns, arrived_bytes));
        // Frames that were waited for come in bursts: that is no pace.
        let elapsed_ns = now_ns.saturating_sub(mark_ns).max(rtt_ns / 8);
        self.grow(elapsed_ns, came_bytes, rtt_ns, pool);
        let new_bytes = self.limit_bytes().saturating_sub(self.granted_bytes);
        new_bytes >= self.window_bytes / 4
    }

    /// The window becomes what `GROW_ROUND_TRIPS` bring at a pace of `bytes` in `elapsed_ns`.
    fn grow(&mut self, elapsed_ns: u64, bytes: u64, rtt_ns: u64, pool: &mut Pool) {
        let aim_ns = u128::from(rtt_ns.saturating_mul(GROW_ROUND_TRIPS));
        let aim = u128::from(bytes) * aim_ns / u128::from(elapsed_ns.max(1));
        let most_bytes = self.window_bytes.saturating_mul(GROW_FACTOR_MAX);
        let aim_bytes = u64::try_from(aim).unwrap_or(u64::MAX);
        let aim_bytes = aim_bytes.min(most_bytes).min(self.max_bytes);
        self.window_bytes += pool.take(aim_bytes.saturating_sub(self.window_bytes));
    }

    /// A whole window was read in `elapsed_ns`.
    fn adjust(&mut self, elapsed_ns: u64, rtt_ns: u64, pool: &mut Pool) {
        if elapsed_ns <= rtt_ns.saturating_mul(GROW_ROUND_TRIPS) {
            self.grow(elapsed_ns, self.window_bytes, rtt_ns, pool);
        } else if pool.free_bytes() == 0 && elapsed_ns > rtt_ns.saturating_mul(SHRINK_ROUND_TRIPS) {
            // Others want to grow and this flow does not need what it has.
            let surplus_bytes = self.window_bytes.saturating_sub(self.initial_bytes);
            let returned_bytes = surplus_bytes.div_ceil(2);
            self.window_bytes -= returned_bytes;
            pool.give_back(returned_bytes);
        }
    }

    fn limit_bytes(&self) -> u64 {
        self.consumed_bytes.saturating_add(self.window_bytes)
    }

    /// The credit to announce now. It never goes back, even when the window shrank.
    pub(crate) fn announce(&mut self) -> u64 {
        self.granted_bytes = self.granted_bytes.max(self.limit_bytes());
        self.granted_bytes
    }

    /// Returns what the window grew by; the flow is over.
    pub(crate) fn release(&mut self, pool: &mut Pool) {
        pool.give_back(self.window_bytes.saturating_sub(self.initial_bytes));
        self.window_bytes = self.initial_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const RTT_NS: u64 = 100_000_000;

    /// Reads `windows` windows in pieces of 64 KiB, each window within `window_ns`.
    fn read_windows(
        grant: &mut Grant,
        pool: &mut Pool,
        windows: u32,
        window_ns: u64,
        now_ns: &mut u64,
    ) {
        for _ in 0..windows {
            let pieces = grant.window_bytes() / 65_536;
            for _ in 0..pieces {
                *now_ns += window_ns / pieces;
                grant.consume(*now_ns, 65_536, RTT_NS, pool);
            }
            grant.announce();
        }
    }

    #[test]
    fn a_window_read_fast_becomes_twelve_round_trips_worth_up_to_its_maximum() {
        let mut pool = Pool::new(256 * MIB);
        let mut grant = Grant::new(MIB, 16 * MIB);
        let mut now_ns = 5;
        read_windows(&mut grant, &mut pool, 1, 6 * RTT_NS, &mut now_ns);
        let window_bytes = grant.window_bytes() as f64 / MIB as f64;
        assert!((2.0..2.2).contains(&window_bytes), "{window_bytes} MiB");
        read_windows(&mut grant, &mut pool, 9, 2 * RTT_NS, &mut now_ns);
        assert_eq!(grant.window_bytes(), 16 * MIB);
        assert_eq!(pool.free_bytes(), 241 * MIB);
        grant.release(&mut pool);
        assert_eq!(pool.free_bytes(), 256 * MIB);
    }

    #[test]
    fn a_burst_makes_a_window_eightfold_at_most() {
        let mut pool = Pool::new(256 * MIB);
        let mut grant = Grant::new(MIB, 64 * MIB);
        let mut now_ns = 5;
        read_windows(&mut grant, &mut pool, 1, 16, &mut now_ns);
        assert_eq!(grant.window_bytes(), 8 * MIB);
        read_windows(&mut grant, &mut pool, 1, 3 * RTT_NS, &mut now_ns);
        assert!(grant.window_bytes() > 31 * MIB && grant.window_bytes() < 34 * MIB);
    }

    #[test]
    fn what_arrives_lets_the_window_grow_before_any_of_it_is_read() {
        let mut pool = Pool::new(256 * MIB);
        let mut grant = Grant::new(MIB, 64 * MIB);
        let mut arrived_bytes = 0;
        for round in 1..6 {
            // All that was granted arrives within a round trip, behind a hole.
            let granted_bytes = grant.granted_bytes();
            while arrived_bytes < granted_bytes {
                arrived_bytes += granted_bytes / 16;
                let now_ns = round * RTT_NS + arrived_bytes / 1000;
                if grant.arrive(now_ns, arrived_bytes, 0, RTT_NS, &mut pool) {
                    grant.announce();
                    break;
                }
            }
        }
        assert_eq!(grant.window_bytes(), 64 * MIB);
        grant.release(&mut pool);
        assert_eq!(pool.free_bytes(), 256 * MIB);
    }

    #[test]
    fn what_arrives_and_could_be_read_but_is_not_earns_nothing() {
        let mut pool = Pool::new(256 * MIB);
        let mut grant = Grant::new(MIB, 64 * MIB);
        for sixteenth in 1..=16 {
            let bytes = sixteenth * MIB / 16;
            let unread_bytes = bytes.max(MIB / 4 + 1);
            assert!(!grant.arrive(bytes, bytes, unread_bytes, RTT_NS, &mut pool));
        }
        assert_eq!(grant.window_bytes(), MIB);
    }

    #[test]
    fn a_window_read_slowly_stays_and_credit_follows_what_was_read() {
        let mut pool = Pool::new(256 * MIB);
        let mut grant = Grant::new(MIB, 16 * MIB);
        let mut now_ns = 5;
        read_windows(&mut grant, &mut pool, 10, 20 * RTT_NS, &mut now_ns);
        assert_eq!(grant.window_bytes(), MIB);
        assert_eq!(grant.granted_bytes(), 11 * MIB);
    }

    #[test]
    fn an_empty_pool_limits_growth_and_slow_flows_give_back() {
        let mut pool = Pool::new(3 * MIB);
        let mut grown = Grant::new(MIB, 64 * MIB);
        let mut other = Grant::new(MIB, 64 * MIB);
        let (mut now_ns, mut other_ns) = (5, 5);
        read_windows(&mut grown, &mut pool, 5, RTT_NS, &mut now_ns);
        assert_eq!((grown.window_bytes(), pool.free_bytes()), (4 * MIB, 0));
        read_windows(&mut other, &mut pool, 5, RTT_NS, &mut other_ns);
        assert_eq!(other.window_bytes(), MIB);
        let before_bytes = grown.granted_bytes();
        read_windows(&mut grown, &mut pool, 1, 100 * RTT_NS, &mut now_ns);
        assert!(grown.window_bytes() < 4 * MIB && pool.free_bytes() > 0);
        assert!(
            grown.granted_bytes() >= before_bytes,
            "credit never goes back"
        );
        read_windows(&mut other, &mut pool, 2, RTT_NS, &mut other_ns);
        assert!(other.window_bytes() > MIB);
        grown.release(&mut pool);
        other.release(&mut pool);
        assert_eq!(pool.free_bytes(), 3 * MIB);
    }

    #[test]
    fn credit_never_goes_back_when_the_window_shrinks() {
        let mut pool = Pool::new(15 * MIB);
        let mut grant = Grant::new(MIB, 16 * MIB);
        let mut now_ns = 5;
        read_windows(&mut grant, &mut pool, 6, RTT_NS, &mut now_ns);
        let mut granted_bytes = grant.granted_bytes();
        for _ in 0..40 {
            now_ns += 20 * RTT_NS;
            grant.consume(now_ns, MIB, RTT_NS, &mut pool);
            assert!(grant.announce() >= granted_bytes);
            granted_bytes = grant.granted_bytes();
        }
        assert!(grant.window_bytes() < 9 * MIB, "it has shrunk");
    }

    #[test]
    fn credit_is_announced_in_steps_not_for_every_read() {
        let mut pool = Pool::new(0);
        let mut grant = Grant::new(MIB, MIB);
        assert!(!grant.consume(1, MIB / 4 - 1, RTT_NS, &mut pool));
        assert!(grant.consume(2, 1, RTT_NS, &mut pool));
        assert_eq!(grant.announce(), MIB + MIB / 4);
        assert!(!grant.consume(3, 1, RTT_NS, &mut pool));
    }
}
