//! A flow's two directions and where it is in its life.

use super::{Correction, FlowStats, OpenRequest, ReceiveHalf, SendHalf};
use crate::schedule::{Rank, Turn};

/// Where a flow is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Ours, not answered yet; may send.
    Opening,
    /// The peer's: frames overtook its OPEN. The application does not know it yet.
    Early,
    /// The peer's, the application has not answered yet; may read, not send.
    Asked,
    /// Answered.
    Open,
}

/// One live flow.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) stage: Stage,
    pub(crate) send: SendHalf,
    pub(crate) receive: ReceiveHalf,
    /// What to put into OPEN; None for the peer's flows and once it was sent.
    pub(crate) request: Option<OpenRequest>,
    pub(crate) dscp: u8,
    pub(crate) turn: Turn,
    pub(crate) correction: Correction,
    /// A CREDIT for this flow waits to be sent.
    pub(crate) credit_queued: bool,
    /// The peer was, or is about to be, asked for credit and has not answered yet.
    pub(crate) is_asked: bool,
    /// A RETURNED for this flow waits to be sent.
    pub(crate) return_queued: bool,
}

impl Flow {
    /// Whether the application may write. What it wrote is sent only then, too.
    pub(crate) fn may_send(&self) -> bool {
        matches!(self.stage, Stage::Opening | Stage::Open)
    }

    /// Whether there is a frame of payload to send now.
    pub(crate) fn is_sendable(&self, payload_bytes_max: usize) -> bool {
        self.may_send() && self.send.is_sendable(payload_bytes_max)
    }

    /// Whether its frames of this rank are repaired when they are lost.
    pub(crate) fn is_protected(&self, rank: Rank) -> bool {
        match self.correction {
            Correction::Auto => rank.is_urgent(),
            Correction::Off => false,
            Correction::On => true,
        }
    }

    pub(crate) fn stats(&self) -> FlowStats {
        FlowStats {
            class: self.turn.rank().class(),
            sent_bytes: self.send.sent_bytes(),
            received_bytes: self.receive.bytes_seen(),
            read_bytes: self.receive.bytes_read(),
            send_buffered_bytes: self.send.buffered_bytes() as u64,
            receive_buffered_bytes: self.receive.held_bytes(),
            out_of_order_frames: self.receive.waiting_frames(),
            send_credit_bytes: self.send.credit_bytes(),
            receive_window_bytes: self.receive.grant().window_bytes(),
            receive_base_bytes: self.receive.grant().base_bytes(),
        }
    }
}
