//! The two directions of a flow as its task sees them: bytes in, records out, and the reverse.

mod reader;
mod writer;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use farhaul_reduce::Codec;
use farhaul_tunnel::{Payload, ResetCode};

pub use self::reader::Reader;
pub use self::writer::Writer;
use super::record::CopyPlace;
use crate::copies::Copies;
use crate::session::FlowHandle;

/// Read from a flow at once.
const READ_BYTES: usize = 64 << 10;

/// From an application to the peer.
pub enum Outbound {
    /// As the bytes are.
    Plain,
    /// In records.
    Records(Box<Writer>),
}

/// From the peer to an application.
pub enum Inbound {
    /// As the bytes are.
    Plain,
    /// In records.
    Records(Box<Reader>),
}

/// Both directions of a flow, by what was agreed when it was opened.
pub fn of(flow: &FlowHandle) -> (Outbound, Inbound) {
    let kind = match flow.payload() {
        Payload::Records {
            eliminated,
            compressed: false,
            ..
        } => Some((eliminated, Some(Codec::Null))),
        Payload::Records {
            eliminated, level, ..
        } => Some((eliminated, level.map(Codec::Zstd))),
        Payload::Warming => Some((true, None)),
        Payload::Plain | Payload::Channel | Payload::Measuring => None,
    };
    match (kind, flow.session().reduction()) {
        (Some((eliminated, pinned)), Some(reduction)) => {
            let writer = Writer::new(reduction, flow, eliminated, pinned);
            let reader = Reader::new(reduction, flow);
            (
                Outbound::Records(Box::new(writer)),
                Inbound::Records(Box::new(reader)),
            )
        }
        _ => (Outbound::Plain, Inbound::Plain),
    }
}

impl Outbound {
    /// How much to read from the application at once, when the flow has `room_bytes`.
    pub fn batch_bytes(&self, flow: &FlowHandle, room_bytes: usize) -> usize {
        match self {
            Self::Plain => room_bytes.min(READ_BYTES),
            Self::Records(writer) => writer.batch_bytes(flow),
        }
    }

    /// Sends bytes, waiting for room.
    pub async fn send(&mut self, flow: &FlowHandle, bytes: Bytes) -> Result<(), ResetCode> {
        match self {
            Self::Plain => flow.write(bytes).await,
            Self::Records(writer) => writer.send(flow, bytes).await,
        }
    }

    /// Sends bytes that the peer has in a copy of its own: everything but them, where there is a log.
    pub(crate) async fn send_copied(
        &mut self,
        flow: &FlowHandle,
        bytes: Bytes,
        place: CopyPlace,
    ) -> Result<(), ResetCode> {
        match self {
            Self::Plain => flow.write(bytes).await,
            Self::Records(writer) => writer.send_copied(flow, bytes, place).await,
        }
    }

    /// Bytes that the peer could not make of what it was sent and that went again: they are not remembered.
    pub(crate) fn repeated_bytes(&self) -> u64 {
        match self {
            Self::Plain => 0,
            Self::Records(writer) => writer.repeated_bytes(),
        }
    }

    /// Waits until the peer has said that it read everything, so that any flow may refer to it; at most so long. It says so now and then
    /// only, later than it ends its direction.
    pub(crate) async fn all_read(&self, within: Duration) {
        match self {
            Self::Plain => (),
            Self::Records(writer) => writer.all_read(within).await,
        }
    }

    /// Both directions have ended well.
    pub fn settle(self) {
        if let Self::Records(writer) = self {
            writer.settle();
        }
    }
}

impl Inbound {
    /// The peer may leave out what is in these.
    pub(crate) fn use_copies(&mut self, copies: Arc<Mutex<Copies>>) {
        if let Self::Records(reader) = self {
            reader.use_copies(copies);
        }
    }

    /// The next bytes in order; `None` is the peer's clean end.
    pub async fn next(&mut self, flow: &FlowHandle) -> Result<Option<Bytes>, ResetCode> {
        match self {
            Self::Plain => flow.read(READ_BYTES).await,
            Self::Records(reader) => reader.next(flow).await,
        }
    }
}
