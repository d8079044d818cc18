//! What is sent next: control frames, then the classes in their order, each class's flows in turn.
//!
//! * [`Rank`] is the order between classes, also as the priority of a QUIC stream.
//! * [`Shares`] keeps the lower classes alive: each is owed a small part of what others are sent.
//! * [`Ring`] is the order within a class: deficit round robin, fair in bytes.
//! * [`Turn`] is a flow's place in it, and [`behaviour`] what class `auto` makes of a flow.
//! * [`FrameSizes`] says how large a frame may be at the present rate.
//!
//! Choosing a frame costs the same with one flow or ten thousand.

mod behaviour;
mod rank;
mod ring;
mod shares;
mod size;

pub(crate) use behaviour::Habits;
pub(crate) use rank::{PerRank, Rank};
pub(crate) use ring::Turn;
pub(crate) use size::FrameSizes;

use crate::flow::{FlowId, Refusal, ResetCode};
use ring::Ring;
use shares::Shares;
use std::collections::VecDeque;

/// What a frame costs of a turn besides its payload, bytes: its stream and packet.
const FRAME_TURN_BYTES: i64 = 128;

/// A control frame to be made when it is sent, so that it says what is true then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    Pong { nonce: u64, sent_ns: u64 },
    Open(FlowId),
    Answer(FlowId, Option<Refusal>),
    Credit(FlowId),
    Reclaim(FlowId),
    Returned(FlowId),
    Reset(FlowId, ResetCode),
}

/// The queues of one tunnel.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    control: VecDeque<Control>,
    /// Flows of class `auto` that were bulk when they fell silent: once the time is known it is
    /// known what they are now.
    woken: VecDeque<FlowId>,
    rings: PerRank<Ring>,
    shares: Shares,
    /// Ids in the queues whose flow is gone.
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

    /// Flows that have something to send.
    pub(crate) fn ready_flows(&self) -> usize {
        let ringed: usize = Rank::ALL.iter().map(|rank| self.ring(*rank).len()).sum();
        self.woken.len() + ringed
    }

    /// The flow has something to send.
    pub(crate) fn enqueue(&mut self, flow: FlowId, turn: &mut Turn) {
        if turn.is_queued() {
            return;
        }
        turn.queue();
        if turn.may_change() {
            self.woken.push_back(flow);
        } else {
            self.rings.get_mut(turn.rank()).push(flow);
        }
    }

    /// The next flow whose class is to be judged before it is given its place with
    /// [`Schedule::place`].
    pub(crate) fn pop_woken(&mut self) -> Option<FlowId> {
        self.woken.pop_front()
    }

    /// A judged flow takes its place.
    pub(crate) fn place(&mut self, flow: FlowId, turn: &Turn) {
        self.rings.get_mut(turn.rank()).push(flow);
    }

    /// A woken flow is gone.
    pub(crate) fn skip_woken(&mut self) {
        self.stale = self.stale.saturating_sub(1);
    }

    /// The class and the flow whose turn it is. `turn_bytes` is what a lower class must be owed
    /// for a turn before a higher one.
    pub(crate) fn next(&self, turn_bytes: usize) -> Option<(Rank, FlowId)> {
        let is_ready = |rank: Rank| !self.ring(rank).is_empty();
        let rank = self.shares.choose(is_ready, turn_bytes)?;
        Some((rank, self.ring(rank).front()?))
    }

    /// Whether a flow of a class above `rank` waits.
    pub(crate) fn is_contended(&self, rank: Rank) -> bool {
        let above = Rank::ALL.iter().take_while(|above| **above < rank);
        above.into_iter().any(|above| !self.ring(*above).is_empty())
    }

    /// The flow at the front of `rank` is gone.
    pub(crate) fn drop_front(&mut self, rank: Rank) {
        self.rings.get_mut(rank).pop();
        self.stale = self.stale.saturating_sub(1);
    }

    /// The flow at the front of `rank` has sent `bytes`; `has_more` can be sent at once. Its class
    /// may be another since.
    pub(crate) fn sent(&mut self, rank: Rank, turn: &mut Turn, bytes: usize, has_more: bool) {
        let cost_bytes = i64::try_from(bytes)
            .unwrap_or(i64::MAX)
            .saturating_add(FRAME_TURN_BYTES);
        if bytes > 0 {
            let is_ready = |rank: Rank| !self.rings.get(rank).is_empty();
            self.shares.charge(rank, cost_bytes, is_ready);
        }
        if turn.spend(cost_bytes, has_more && turn.rank() == rank) {
            return;
        }
        let Some(flow) = self.rings.get_mut(rank).pop() else {
            return;
        };
        if has_more {
            self.rings.get_mut(turn.rank()).push(flow);
        } else {
            turn.leave();
        }
    }

    /// A flow is gone. Its id may stay queued for a while, but the queues stay in proportion.
    pub(crate) fn forget(&mut self, turn: &Turn, is_live: impl Fn(FlowId) -> bool) {
        self.stale += usize::from(turn.is_queued());
        if self.stale > 64 + self.ready_flows() / 2 {
            for rank in Rank::ALL {
                self.rings.get_mut(rank).retain(&is_live);
            }
            self.woken.retain(|flow| is_live(*flow));
            self.stale = 0;
        }
    }

    fn ring(&self, rank: Rank) -> &Ring {
        self.rings.get(rank)
    }
}
