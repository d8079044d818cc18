//! What is sent next: control frames first, then flows in turn, each about as many bytes.
//!
//! Flows with something to send stand in a ring. The one at the front may send a quantum of bytes
//! (deficit round robin; the last frame may overdraw, which the next turn pays back), so choosing
//! costs the same with one flow or ten thousand.

use crate::flow::{Class, FlowId, Refusal, ResetCode};
use std::collections::VecDeque;

/// What a frame costs of a flow's turn besides its payload, bytes: its stream and packet.
const FRAME_TURN_BYTES: i64 = 128;

/// A control frame to be made when it is sent, so that it says what is true then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    Pong { nonce: u64, sent_ns: u64 },
    Open(FlowId),
    Answer(FlowId, Option<Refusal>),
    Credit(FlowId),
    Reset(FlowId, ResetCode),
}

/// A flow's place in the ring.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The flow's class; carried for the scheduler of classes, not used for the order yet.
    pub(crate) class: Class,
    is_queued: bool,
    is_running: bool,
    deficit_bytes: i64,
}

impl Turn {
    pub(crate) fn new(class: Class) -> Self {
        Turn {
            class,
            is_queued: false,
            is_running: false,
            deficit_bytes: 0,
        }
    }
}

/// The queues of one tunnel.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    control: VecDeque<Control>,
    ring: VecDeque<FlowId>,
    /// Ids in the ring whose flow is gone.
    stale: usize,
}

impl Schedule {
    pub(crate) fn push_control(&mut self, control: Control) {
        self.control.push_back(control);
    }

    pub(crate) fn pop_control(&mut self) -> Option<Control> {
        self.control.pop_front()
    }

    pub(crate) fn control_frames(&self) -> usize {
        self.control.len()
    }

    pub(crate) fn ring_flows(&self) -> usize {
        self.ring.len()
    }

    /// The flow has something to send.
    pub(crate) fn enqueue(&mut self, flow: FlowId, turn: &mut Turn) {
        if !turn.is_queued {
            turn.is_queued = true;
            self.ring.push_back(flow);
        }
    }

    /// The flow whose turn it is.
    pub(crate) fn front(&self) -> Option<FlowId> {
        self.ring.front().copied()
    }

    /// The flow at the front is gone.
    pub(crate) fn drop_front(&mut self) {
        self.ring.pop_front();
        self.stale = self.stale.saturating_sub(1);
    }

    /// The flow at the front is about to send; its turn starts unless it goes on.
    pub(crate) fn begin(turn: &mut Turn, quantum_bytes: usize) {
        if !turn.is_running {
            turn.is_running = true;
            let quantum_bytes = i64::try_from(quantum_bytes).unwrap_or(i64::MAX);
            let quantum_bytes = quantum_bytes.saturating_add(FRAME_TURN_BYTES);
            turn.deficit_bytes = turn.deficit_bytes.saturating_add(quantum_bytes).max(1);
        }
    }

    /// The flow at the front has sent `bytes`; `has_more` can be sent at once.
    pub(crate) fn sent(&mut self, turn: &mut Turn, bytes: usize, has_more: bool) {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        turn.deficit_bytes = turn
            .deficit_bytes
            .saturating_sub(bytes.saturating_add(FRAME_TURN_BYTES));
        if has_more && turn.deficit_bytes > 0 {
            return;
        }
        turn.is_running = false;
        let Some(flow) = self.ring.pop_front() else {
            return;
        };
        if has_more {
            self.ring.push_back(flow);
        } else {
            turn.is_queued = false;
            // Credit unused is lost, debt is kept: pausing must not pay.
            turn.deficit_bytes = turn.deficit_bytes.min(0);
        }
    }

    /// A flow is gone. Its id may stay in the ring for a while, but the ring stays in proportion.
    pub(crate) fn forget(&mut self, turn: &Turn, is_live: impl Fn(FlowId) -> bool) {
        self.stale += usize::from(turn.is_queued);
        if self.stale > 64 + self.ring.len() / 2 {
            self.ring.retain(|flow| is_live(*flow));
            self.stale = 0;
        }
    }
}
