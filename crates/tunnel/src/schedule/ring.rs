//! The flows of one class, in turn (deficit round robin).
//!
//! The flow at the front may send a quantum of bytes; its last frame may overdraw, which the next
//! turn pays back.

use super::behaviour::{Behaviour, Habits};
use super::{FRAME_TURN_BYTES, Rank};
use crate::flow::{Class, FlowId};
use std::collections::VecDeque;

/// Flows with something to send.
#[derive(Debug, Default)]
pub(super) struct Ring {
    flows: VecDeque<FlowId>,
}

impl Ring {
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    pub(super) fn push(&mut self, flow: FlowId) {
        self.flows.push_back(flow);
    }

    pub(super) fn front(&self) -> Option<FlowId> {
        self.flows.front().copied()
    }

    pub(super) fn pop(&mut self) -> Option<FlowId> {
        self.flows.pop_front()
    }

    pub(super) fn retain(&mut self, is_live: impl Fn(FlowId) -> bool) {
        self.flows.retain(|flow| is_live(*flow));
    }
}

/// A flow's place among the others.
#[derive(Debug)]
pub(crate) struct Turn {
    asked: Class,
    behaviour: Behaviour,
    is_queued: bool,
    is_running: bool,
    deficit_bytes: i64,
}

impl Turn {
    pub(crate) fn new(class: Class) -> Self {
        Turn {
            asked: class,
            behaviour: Behaviour::default(),
            is_queued: false,
            is_running: false,
            deficit_bytes: 0,
        }
    }

    /// The class as the opener wants it. It becomes known late when frames overtake their OPEN.
    pub(crate) fn ask(&mut self, class: Class) {
        self.asked = class;
    }

    /// The class at present.
    pub(crate) fn rank(&self) -> Rank {
        match self.asked {
            Class::Auto if self.behaviour.is_bulk() => Rank::Bulk,
            asked => Rank::of(asked),
        }
    }

    /// Whether time alone may have changed the class.
    pub(super) fn may_change(&self) -> bool {
        self.asked == Class::Auto && self.behaviour.is_bulk()
    }

    /// Time has passed without anything to send.
    pub(crate) fn judge(&mut self, now_ns: u64) {
        self.behaviour.rest(now_ns);
    }

    /// The flow sent `bytes`, `is_drained` when nothing is left waiting, credit or not.
    pub(crate) fn note(&mut self, now_ns: u64, bytes: usize, is_drained: bool, habits: Habits) {
        self.behaviour.note(now_ns, bytes, is_drained, habits);
    }

    pub(crate) fn is_queued(&self) -> bool {
        self.is_queued
    }

    pub(super) fn queue(&mut self) {
        self.is_queued = true;
    }

    /// The flow at the front is about to send; its turn starts unless it goes on.
    pub(crate) fn begin(&mut self, quantum_bytes: usize) {
        if !self.is_running {
            self.is_running = true;
            let quantum_bytes = i64::try_from(quantum_bytes).unwrap_or(i64::MAX);
            let quantum_bytes = quantum_bytes.saturating_add(FRAME_TURN_BYTES);
            self.deficit_bytes = self.deficit_bytes.saturating_add(quantum_bytes).max(1);
        }
    }

    /// Pays for a frame; true when the turn goes on.
    pub(super) fn spend(&mut self, cost_bytes: i64, may_go_on: bool) -> bool {
        self.deficit_bytes = self.deficit_bytes.saturating_sub(cost_bytes);
        self.is_running = may_go_on && self.deficit_bytes > 0;
        self.is_running
    }

    /// Nothing more to send. Credit unused is lost, debt is kept: pausing must not pay.
    pub(super) fn leave(&mut self) {
        self.is_queued = false;
        self.deficit_bytes = self.deficit_bytes.min(0);
    }
}
