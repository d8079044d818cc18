//! One error enum per operation.

use crate::flow::FlowId;
use crate::hello::VersionMismatch;

/// Why bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The frame ends before its fields do.
    #[error("frame is cut short")]
    Truncated,
    /// Bytes remain after the last field.
    #[error("{0} bytes follow the end of the frame")]
    Trailing(usize),
    /// The frame is longer than any frame may be.
    #[error("frame of {0} bytes is longer than permitted")]
    TooLong(usize),
    /// A type below the optional range that this version does not know.
    #[error("unknown frame type {0:#04x}")]
    UnknownType(u8),
    /// A field holds a value without meaning; the text names the field.
    #[error("frame field '{0}' holds an impossible value")]
    BadValue(&'static str),
}

/// Why the connection to the peer must be closed. The peer broke the protocol or speaks another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// Bytes that are not a frame.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// No protocol version in common.
    #[error(transparent)]
    Version(#[from] VersionMismatch),
    /// A frame other than HELLO came before HELLO.
    #[error("peer sent a frame before its hello")]
    BeforeHello,
    /// A second HELLO.
    #[error("peer sent a second hello")]
    SecondHello,
    /// The peer is this very process.
    #[error("peer has our own instance id: the tunnel leads back to this gateway")]
    Ourselves,
    /// A frame for one of our flow ids that we never opened.
    #[error("frame for flow {0}, which was never opened")]
    UnknownFlow(FlowId),
    /// A flow id far beyond those in use.
    #[error("flow id {0} is absurdly far ahead")]
    AbsurdFlow(FlowId),
    /// OPEN for a flow id that belongs to our side, or ANSWER for one that belongs to the peer's.
    #[error("frame for flow {0} came from the wrong side")]
    WrongSide(FlowId),
    /// More bytes than the flow's credit permits.
    #[error("flow {flow} exceeded its credit of {limit_bytes} bytes")]
    CreditExceeded {
        /// The flow.
        flow: FlowId,
        /// The credit it had, an absolute count of bytes.
        limit_bytes: u64,
    },
    /// A frame number that credit cannot have allowed.
    #[error("flow {flow} has an absurd frame number {number}")]
    AbsurdNumber {
        /// The flow.
        flow: FlowId,
        /// The frame's number.
        number: u64,
    },
    /// The end that was declared contradicts the frames that came.
    #[error("flow {0} ended otherwise than it declared")]
    EndMismatch(FlowId),
    /// More refusals, resets and opens are waiting than the peer may cause.
    #[error("peer opens flows faster than they can be answered")]
    ControlFlood,
}

/// Why a flow cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Our own `flows_max`, or the one the peer announced, is reached.
    #[error("too many flows to this peer")]
    TooManyFlows,
    /// The tunnel does not drain its control frames.
    #[error("too many control frames are waiting")]
    Congested,
    /// The request cannot be expressed on the wire; the text names the field.
    #[error("open request field '{0}' holds an impossible value")]
    BadRequest(&'static str),
}

/// Why nothing can be written to a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// The flow does not exist (any more): its last event said why.
    #[error("flow is gone")]
    Gone,
    /// The flow was half-closed by us already.
    #[error("flow was finished already")]
    Finished,
    /// The flow was opened by the peer and neither accepted nor refused yet.
    #[error("flow was not accepted yet")]
    NotAccepted,
    /// More than `writable_bytes` was handed in; nothing was taken.
    #[error("write of {wanted_bytes} bytes exceeds the room of {room_bytes}")]
    Full {
        /// Length of the write, bytes.
        wanted_bytes: usize,
        /// Room there was, bytes.
        room_bytes: usize,
    },
}
