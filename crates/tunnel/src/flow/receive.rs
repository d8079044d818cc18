//! The receiving direction of a flow: numbered frames in any order become bytes in order.

use super::FlowId;
use crate::budget::Budget;
use crate::credit::{FRAME_COST_BYTES, Grant, cost_bytes};
use crate::error::ProtocolError;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// What the end was declared to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    number: u64,
    bytes: u64,
}

/// The receiving direction.
#[derive(Debug)]
pub(crate) struct ReceiveHalf {
    grant: Grant,
    /// In order, to be read.
    ready: VecDeque<Bytes>,
    /// Behind a gap. Bounded by credit: each holds at least one byte and costs
    /// `FRAME_COST_BYTES` more; the only empty one is the END.
    waiting: BTreeMap<u64, Bytes>,
    /// The lowest frame number not yet here; 0 stands for OPEN or ANSWER.
    next_number: u64,
    frames_seen: u64,
    bytes_seen: u64,
    bytes_read: u64,
    charged_bytes: u64,
    held_bytes: u64,
    /// Of `held_bytes`, what could be read now.
    ready_bytes: u64,
    end: Option<End>,
    end_read: bool,
    readable_told: bool,
    /// When something came last.
    arrived_ns: u64,
}

impl ReceiveHalf {
    pub(crate) fn new(now_ns: u64, grant: Grant) -> Self {
        ReceiveHalf {
            grant,
            ready: VecDeque::new(),
            waiting: BTreeMap::new(),
            next_number: 0,
            frames_seen: 0,
            bytes_seen: 0,
            bytes_read: 0,
            charged_bytes: 0,
            held_bytes: 0,
            ready_bytes: 0,
            end: None,
            end_read: false,
            readable_told: false,
            arrived_ns: now_ns,
        }
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    pub(crate) fn grant_mut(&mut self) -> &mut Grant {
        &mut self.grant
    }

    /// Unread bytes, frame costs included.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    pub(crate) fn bytes_seen(&self) -> u64 {
        self.bytes_seen
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    pub(crate) fn waiting_frames(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Whether frame 0 (OPEN or ANSWER) is here.
    pub(crate) fn is_headed(&self) -> bool {
        self.next_number > 0
    }

    /// Whether the application has read to the end.
    pub(crate) fn is_ended(&self) -> bool {
        self.end_read
    }

    /// Frame 0 is here; false when it was already.
    pub(crate) fn head(&mut self) -> bool {
        if self.is_headed() {
            return false;
        }
        self.next_number = 1;
        self.advance();
        true
    }

    /// Takes a frame in; returns what it now holds in memory. A frame seen before is ignored.
    pub(crate) fn insert(
        &mut self,
        flow: FlowId,
        number: u64,
        payload: Bytes,
        end_bytes: Option<u64>,
    ) -> Result<u64, ProtocolError> {
        if number < self.next_number || self.waiting.contains_key(&number) {
            let end_number = self.end.map(|end| end.number);
            return match end_bytes {
                Some(_) if end_number != Some(number) => Err(ProtocolError::EndMismatch(flow)),
                _ => Ok(0),
            };
        }
        let length_bytes = payload.len();
        self.check_end(flow, number, end_bytes)?;
        self.charge(flow, number, length_bytes)?;
        self.frames_seen = self.frames_seen.saturating_add(1);
        self.bytes_seen = self.bytes_seen.saturating_add(length_bytes as u64);
        self.waiting.insert(number, payload);
        if let Some(bytes) = end_bytes {
            self.end = Some(End { number, bytes });
        }
        self.check_total(flow)?;
        self.advance();
        let held_bytes = cost_bytes(length_bytes);
        self.held_bytes = self.held_bytes.saturating_add(held_bytes);
        Ok(held_bytes)
    }

    fn check_end(
        &self,
        flow: FlowId,
        number: u64,
        end_bytes: Option<u64>,
    ) -> Result<(), ProtocolError> {
        let past_end = self
            .end
            .is_some_and(|end| number > end.number || end_bytes.is_some());
        let beyond = self.waiting.last_key_value().map(|(last, _)| *last);
        let end_too_early = end_bytes.is_some() && beyond.is_some_and(|last| last > number);
        if past_end || end_too_early {
            return Err(ProtocolError::EndMismatch(flow));
        }
        Ok(())
    }

    /// Holds the frame against the flow's credit, its number included: every frame not seen yet
    /// below it costs credit too.
    fn charge(
        &mut self,
        flow: FlowId,
        number: u64,
        length_bytes: usize,
    ) -> Result<(), ProtocolError> {
        let limit_bytes = self.grant.granted_bytes();
        let charged_bytes = self.charged_bytes.saturating_add(cost_bytes(length_bytes));
        if charged_bytes > limit_bytes {
            return Err(ProtocolError::CreditExceeded { flow, limit_bytes });
        }
        let unseen_max = (limit_bytes - charged_bytes) / (FRAME_COST_BYTES + 1);
        if number.saturating_sub(1) > self.frames_seen.saturating_add(unseen_max) {
            return Err(ProtocolError::AbsurdNumber { flow, number });
        }
        self.charged_bytes = charged_bytes;
        Ok(())
    }

    /// Once all frames are here, their bytes must be those the END declared.
    fn check_total(&self, flow: FlowId) -> Result<(), ProtocolError> {
        let Some(end) = self.end else {
            return Ok(());
        };
        let is_complete = self.frames_seen == end.number;
        if self.bytes_seen > end.bytes || (is_complete && self.bytes_seen != end.bytes) {
            return Err(ProtocolError::EndMismatch(flow));
        }
        Ok(())
    }

    fn advance(&mut self) {
        if !self.is_headed() {
            return;
        }
        while let Some(payload) = self.waiting.remove(&self.next_number) {
            if !payload.is_empty() {
                self.ready_bytes = self.ready_bytes.saturating_add(cost_bytes(payload.len()));
                self.ready.push_back(payload);
            }
            self.next_number = self.next_number.saturating_add(1);
        }
    }

    /// Whether everything up to the end is here, read or not.
    pub(crate) fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| self.next_number > end.number)
    }

    fn is_at_end(&self) -> bool {
        self.ready.is_empty() && self.is_whole()
    }

    /// True once after each `Blocked`, when there is something to read.
    pub(crate) fn take_readable(&mut self) -> bool {
        let has_news = !self.ready.is_empty() || (self.is_at_end() && !self.end_read);
        if !has_news || self.readable_told {
            return false;
        }
        self.readable_told = true;
        true
    }

    /// The next bytes in order, at most `bytes_max`, and what reading them freed. None: nothing yet
    /// or, when [`ReceiveHalf::is_ended`], no more.
    pub(crate) fn read(&mut self, bytes_max: usize) -> Option<(Bytes, u64)> {
        let Some(front) = self.ready.front_mut() else {
            self.readable_told = false;
            self.end_read |= self.is_at_end();
            return None;
        };
        let data = front.split_to(front.len().min(bytes_max.max(1)));
        let mut freed_bytes = data.len() as u64;
        if front.is_empty() {
            self.ready.pop_front();
            freed_bytes += FRAME_COST_BYTES;
        }
        self.bytes_read = self.bytes_read.saturating_add(data.len() as u64);
        self.held_bytes = self.held_bytes.saturating_sub(freed_bytes);
        self.ready_bytes = self.ready_bytes.saturating_sub(freed_bytes);
        Some((data, freed_bytes))
    }

    /// Something came; true when the sender should be told of new credit.
    pub(crate) fn arrive(&mut self, now_ns: u64, rtt_ns: u64, budget: &mut Budget) -> bool {
        self.arrived_ns = now_ns;
        let (arrived_bytes, unread_bytes) = (self.charged_bytes, self.ready_bytes);
        self.is_headed()
            && self.end.is_none()
            && self
                .grant
                .arrive(now_ns, arrived_bytes, unread_bytes, rtt_ns, budget)
    }

    /// Accounts what was read; true when the sender should be told of new credit.
    pub(crate) fn consume(
        &mut self,
        now_ns: u64,
        freed_bytes: u64,
        rtt_ns: u64,
        budget: &mut Budget,
    ) -> bool {
        self.grant.consume(now_ns, freed_bytes, rtt_ns, budget) && self.end.is_none()
    }

    /// Whether nothing has come since `since_ns`.
    pub(crate) fn is_idle_since(&self, since_ns: u64) -> bool {
        self.arrived_ns <= since_ns
    }

    /// What of its credit the sender should keep if the flow needs no more than `wanted_bytes`,
    /// what waits to be read included. None: it has no more, as far as is known here.
    pub(crate) fn keep_bytes(&self, wanted_bytes: u64) -> Option<u64> {
        let unused_bytes = self
            .grant
            .granted_bytes()
            .saturating_sub(self.charged_bytes);
        (unused_bytes > wanted_bytes).then(|| wanted_bytes.saturating_sub(self.held_bytes))
    }

    /// The sender says that it has given back so much in all; true when it should be told of new
    /// credit. What it gives back it must have had, as what it sends.
    pub(crate) fn take_back(
        &mut self,
        flow: FlowId,
        returned_bytes: u64,
        budget: &mut Budget,
    ) -> Result<bool, ProtocolError> {
        let known_bytes = self.grant.returned_bytes();
        if returned_bytes <= known_bytes {
            return Ok(false); // older than what is known, or nothing
        }
        let limit_bytes = self.grant.granted_bytes();
        if returned_bytes - known_bytes > limit_bytes.saturating_sub(self.charged_bytes) {
            return Err(ProtocolError::CreditExceeded { flow, limit_bytes });
        }
        Ok(self.grant.take_back(returned_bytes, budget) && self.end.is_none())
    }
}
