//! Credit that comes back when memory for what is unread could run short.
//!
//! Every flow begins with the initial window, but not all can be filled at the same time. Under
//! pressure (`budget.rs`) the sender of each new flow is asked to keep only the floor, and so are
//! those of flows in which nothing moves. Flows that are read get new credit as before.

use super::Mux;
use crate::error::ProtocolError;
use crate::flow::FlowId;
use crate::frame::Frame;
use crate::hello::FEATURE_RECLAIM;
use crate::schedule::Control;

/// How often idle flows are looked for at most, nanoseconds.
const SCAN_INTERVAL_NS: u64 = 1_000_000_000;

/// A flow is idle when nothing came for this long, nanoseconds, ...
const IDLE_NS: u64 = 1_000_000_000;

/// ... and so many round trips more: a lost frame takes some to come.
const IDLE_ROUND_TRIPS: u64 = 4;

impl Mux {
    fn may_ask(&self) -> bool {
        let negotiated = self.negotiated.as_ref();
        negotiated.is_some_and(|negotiated| negotiated.features & FEATURE_RECLAIM != 0)
    }

    /// A flow has begun.
    pub(super) fn ask_newcomer(&mut self, id: FlowId) {
        if self.budget.reserve.is_pressed() && self.may_ask() {
            self.ask(id);
        }
    }

    /// Asks for the credit of idle flows, if that is needed.
    pub(super) fn ask_idle(&mut self, now_ns: u64) {
        if now_ns < self.scan_due_ns || !self.budget.is_pressed() || !self.may_ask() {
            return;
        }
        self.scan_due_ns = now_ns.saturating_add(SCAN_INTERVAL_NS);
        let quiet_ns = IDLE_NS.saturating_add(self.rtt_ns().saturating_mul(IDLE_ROUND_TRIPS));
        let Some(since_ns) = now_ns.checked_sub(quiet_ns) else {
            return;
        };
        let idle: Vec<FlowId> = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.receive.is_idle_since(since_ns))
            .map(|(id, _)| *id)
            .collect();
        for id in idle {
            self.ask(id);
        }
    }

    /// Asks for what the flow has of unused credit beyond what it needs, if that is known to be
    /// anything and it was not asked already.
    fn ask(&mut self, id: FlowId) {
        if self.keep_bytes(id).is_some()
            && let Some(flow) = self.flows.get_mut(&id)
            && !flow.is_asked
        {
            flow.is_asked = true;
            self.schedule.push_control(Control::Reclaim(id));
        }
    }

    fn keep_bytes(&self, id: FlowId) -> Option<u64> {
        let flow = self.flows.get(&id)?;
        let base_bytes = flow.receive.grant().base_bytes();
        let wanted_bytes = self.budget.idle_bytes(base_bytes);
        flow.receive.keep_bytes(wanted_bytes)
    }

    /// The question, as it is now; None when there is nothing to ask for any more.
    pub(super) fn reclaim_frame(&mut self, id: FlowId) -> Option<Frame> {
        let keep_bytes = self.keep_bytes(id);
        let flow = self.flows.get_mut(&id)?;
        flow.is_asked = keep_bytes.is_some();
        self.stats.reclaims_sent += u64::from(flow.is_asked);
        Some(Frame::Reclaim {
            flow: id,
            keep_bytes: keep_bytes?,
        })
    }

    /// The answer.
    pub(super) fn returned_frame(&mut self, id: FlowId) -> Option<Frame> {
        let flow = self.flows.get_mut(&id)?;
        flow.return_queued = false;
        Some(Frame::Returned {
            flow: id,
            returned_bytes: flow.send.returned_bytes(),
        })
    }

    /// The peer asks us for credit.
    pub(super) fn on_reclaim(&mut self, id: FlowId, keep_bytes: u64) -> Result<(), ProtocolError> {
        if self.locate(id)?
            && let Some(flow) = self.flows.get_mut(&id)
        {
            flow.send.give_back(keep_bytes);
            if !std::mem::replace(&mut flow.return_queued, true) {
                self.schedule.push_control(Control::Returned(id));
            }
        }
        Ok(())
    }

    /// The peer gives credit back.
    pub(super) fn on_returned(
        &mut self,
        id: FlowId,
        returned_bytes: u64,
    ) -> Result<(), ProtocolError> {
        if !self.locate(id)? {
            return Ok(());
        }
        let Some(flow) = self.flows.get_mut(&id) else {
            return Ok(());
        };
        let known_bytes = flow.receive.grant().returned_bytes();
        let is_due = flow
            .receive
            .take_back(id, returned_bytes, &mut self.budget)?;
        flow.is_asked = false;
        let now_bytes = flow.receive.grant().returned_bytes();
        self.stats.credit_returned_bytes += now_bytes - known_bytes;
        if is_due {
            self.queue_credit(id);
        }
        Ok(())
    }

    /// The sender is to be told of new credit.
    pub(super) fn queue_credit(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id)
            && !std::mem::replace(&mut flow.credit_queued, true)
        {
            self.schedule.push_control(Control::Credit(id));
        }
    }
}
