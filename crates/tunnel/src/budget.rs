//! What the receive windows of all flows of a peer may hold together.
//!
//! Every flow has a *base*, out of the [`Reserve`], from the moment it exists, and may grow beyond it
//! out of the [`Pool`]. What all flows may hold above [`RECEIVE_FLOOR_BYTES`] each is the sum of
//! both, and that is `receive_buffer_bytes_max`: while the reserve is not overdrawn, a peer that
//! keeps to its credit cannot make us hold more, whether anybody reads or not.
//!
//! Flows begin without asking the reserve, with the initial window that our HELLO has promised. So
//! when more than half of it is used, credit is asked back (`mux/reclaim.rs`).

use crate::limits::{Limits, RECEIVE_FLOOR_BYTES};

/// The pool is short when less than this part of it is free.
const POOL_PART_MIN: u64 = 8;

/// The reserve is pressed when more than this part of it is used.
const RESERVE_PART_MAX: u64 = 2;

/// This part of the reserve is left to flows that are about to begin.
const NEWCOMERS_PART: u64 = 4;

/// A base may become this part of what is free beside that when the reserve is pressed.
const BASE_PART: u64 = 16;

/// What all windows of a peer may grow by together.
#[derive(Debug)]
pub(crate) struct Pool {
    total_bytes: u64,
    free_bytes: u64,
}

impl Pool {
    pub(crate) fn new(total_bytes: u64) -> Self {
        Pool {
            total_bytes,
            free_bytes: total_bytes,
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    pub(crate) fn is_short(&self) -> bool {
        self.free_bytes < self.total_bytes / POOL_PART_MIN
    }

    pub(crate) fn take(&mut self, wanted_bytes: u64) -> u64 {
        let taken = wanted_bytes.min(self.free_bytes);
        self.free_bytes -= taken;
        taken
    }

    pub(crate) fn give_back(&mut self, bytes: u64) {
        self.free_bytes = self.free_bytes.saturating_add(bytes);
    }
}

/// What the bases of all flows have above their floor. A floor costs nothing here.
#[derive(Debug)]
pub(crate) struct Reserve {
    total_bytes: u64,
    used_bytes: u64,
    initial_bytes: u64,
    floor_bytes: u64,
}

impl Reserve {
    pub(crate) fn new(total_bytes: u64, initial_bytes: u64) -> Self {
        Reserve {
            total_bytes,
            used_bytes: 0,
            initial_bytes,
            floor_bytes: initial_bytes.min(RECEIVE_FLOOR_BYTES),
        }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// The least a base can be.
    pub(crate) fn floor_bytes(&self) -> u64 {
        self.floor_bytes
    }

    /// More than half is used.
    pub(crate) fn is_pressed(&self) -> bool {
        self.used_bytes > self.total_bytes / RESERVE_PART_MAX
    }

    /// Whether a flow with this base may grow only once it has shown that it is read.
    pub(crate) fn asks_proof(&self, base_bytes: u64) -> bool {
        base_bytes < self.initial_bytes || self.is_pressed()
    }

    /// A flow begins; its base is the initial window.
    pub(crate) fn begin(&mut self) -> u64 {
        self.used_bytes = self
            .used_bytes
            .saturating_add(self.initial_bytes - self.floor_bytes);
        self.initial_bytes
    }

    /// A base of `before_bytes` becomes `after_bytes`; neither is below the floor.
    pub(crate) fn resize(&mut self, before_bytes: u64, after_bytes: u64) {
        let used_bytes = self.used_bytes.saturating_add(after_bytes);
        self.used_bytes = used_bytes.saturating_sub(before_bytes);
    }

    /// A flow is over that had this base.
    pub(crate) fn end(&mut self, base_bytes: u64) {
        self.resize(base_bytes, self.floor_bytes);
    }

    /// What a base that is `base_bytes` now should be at the next grant.
    pub(crate) fn goal_bytes(&self, base_bytes: u64) -> u64 {
        let free_bytes = self.total_bytes.saturating_sub(self.used_bytes);
        if !self.is_pressed() {
            return self.initial_bytes.min(base_bytes + free_bytes);
        }
        let spare_bytes = free_bytes.saturating_sub(self.total_bytes / NEWCOMERS_PART);
        let goal_bytes = self.floor_bytes + spare_bytes / BASE_PART;
        goal_bytes.min(self.initial_bytes)
    }
}

/// Both of one peer.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) pool: Pool,
    pub(crate) reserve: Reserve,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        let pool_bytes = limits.peer_window_bytes_max;
        let reserve_bytes = limits.receive_buffer_bytes_max.saturating_sub(pool_bytes);
        Budget {
            pool: Pool::new(pool_bytes),
            reserve: Reserve::new(reserve_bytes, limits.flow_window_bytes_initial),
        }
    }

    /// Whether credit that nobody uses should come back.
    pub(crate) fn is_pressed(&self) -> bool {
        self.reserve.is_pressed() || self.pool.is_short()
    }

    /// What of its credit the sender of an idle flow with this base should keep: its base, as long
    /// as only what windows grow by is short.
    pub(crate) fn idle_bytes(&self, base_bytes: u64) -> u64 {
        match self.reserve.is_pressed() {
            true => self.reserve.floor_bytes(),
            false => base_bytes,
        }
    }
}
