//! The peer protocol between two gateways, above QUIC: frames, flows, credit and order.
//!
//! Every frame travels on a unidirectional stream of its own and ends with that stream's FIN, so
//! frames are reliable but arrive in any order. [`Mux`] puts the frames of a flow back in order,
//! gives every flow credit of its own, and decides which frame is sent next. It does no I/O and
//! reads no clock: hand it what arrived with `handle_frame(now_ns, ...)`, then drain
//! [`Mux::poll_transmit`] and [`Mux::poll_event`].
//!
//! # Life of a flow
//! The opener queues OPEN (frame 0 of its direction) and may write at once. The far gateway sees
//! [`Event::Incoming`], connects, and answers with [`Mux::accept`] or [`Mux::refuse`]: ANSWER is
//! frame 0 of the other direction. Data frames are numbered from 1 in each direction. END is the
//! last numbered frame and carries the number of payload bytes, so a missing tail never looks like
//! a clean end. RESET may overtake everything. Exactly one of [`Event::Refused`],
//! [`Event::Reset`] and [`Event::Ended`] is the last event of a flow that was not reset locally.
//!
//! # Memory bound per peer (invariant 5; names are those of [`Limits`])
//! * flow states: at most `flows_max`, a few hundred bytes each, plus at most
//!   `flow_ids_ahead_max` ranges of ended flow ids (24 bytes each);
//! * received and unread: at most each flow's window, together at most
//!   `receive_buffer_bytes_max + flows_max x RECEIVE_FLOOR_BYTES`; windows grow beyond the initial
//!   one by at most `peer_window_bytes_max` in total, and when the initial ones add up to more than
//!   the rest, unused credit is asked back, so that nobody is cut for a reader that stopped;
//! * written and unsent: at most `send_buffer_bytes_max` per flow, together at most
//!   `peer_send_buffer_bytes_max + flows_max x SEND_FLOOR_BYTES` (and one write beyond);
//! * queued control frames: at most `control_frames_max` plus five per live flow.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod arrivals;
mod budget;
mod controller;
mod credit;
mod ended;
mod error;
pub mod fec;
mod flow;
mod frame;
mod hello;
mod limits;
mod mux;
mod schedule;

pub use controller::{Controller, PathMemory, PathSettings, PathView};
pub use credit::FRAME_COST_BYTES;
pub use error::{DecodeError, FlowError, OpenError, ProtocolError};
pub use flow::{
    Class, Correction, FlowId, FlowStats, OpenRequest, Payload, Read, Refusal, ResetCode, Side,
    Target,
};
pub use frame::{FRAME_BYTES_HARD_MAX, Frame, HelloFrame, OPTIONAL_TYPE_MIN};
pub use hello::{
    FEATURE_COPIES, FEATURE_ECHOES, FEATURE_FEC, FEATURE_LEVELS, FEATURE_MEASURING,
    FEATURE_OPTIMISERS, FEATURE_RECLAIM, FEATURE_REDUCTION, FEATURE_WARMING, Hello, Negotiated,
    PROTOCOL_VERSIONS, VersionMismatch, VersionRange,
};
pub use limits::{Limits, RECEIVE_FLOOR_BYTES, SEND_FLOOR_BYTES};
pub use mux::{Event, Mux, Stats, Transmit};
