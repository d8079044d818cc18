//! What a circuit of the simulated world carries.

use farhaul_link::Packet;

use super::{ConnectionId, Side};
use crate::tcp::Segment;

/// A packet on a circuit.
#[derive(Debug, Clone)]
pub struct Frame {
    to: Side,
    header_bytes: u32,
    is_corrupt: bool,
    content: Content,
}

/// What a packet is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    Segment(ConnectionId, Segment),
    Bare { number: u64, ip_bytes: u32 },
}

/// IP and TCP headers without options.
const PLAIN_HEADER_BYTES: u32 = 40;
/// Timestamps (RFC 7323, 3.2), padding included.
const TIMESTAMP_OPTION_BYTES: u32 = 12;
/// Maximum segment size (RFC 9293, 3.7.1).
const MSS_OPTION_BYTES: u32 = 4;

impl Frame {
    pub(super) fn of_segment(
        id: ConnectionId,
        to: Side,
        segment: Segment,
        header_bytes: u32,
    ) -> Self {
        Self {
            to,
            header_bytes,
            is_corrupt: false,
            content: Content::Segment(id, segment),
        }
    }

    pub(super) fn bare(number: u64, to: Side, ip_bytes: u32, header_bytes: u32) -> Self {
        Self {
            to,
            header_bytes,
            is_corrupt: false,
            content: Content::Bare { number, ip_bytes },
        }
    }

    pub(super) fn to(&self) -> Side {
        self.to
    }

    pub(super) fn is_corrupt(&self) -> bool {
        self.is_corrupt
    }

    pub(super) fn content(&self) -> Content {
        self.content
    }

    /// Bytes of the IP packet.
    pub fn ip_bytes(&self) -> u32 {
        match &self.content {
            Content::Bare { ip_bytes, .. } => *ip_bytes,
            Content::Segment(_, segment) => {
                let mut bytes = PLAIN_HEADER_BYTES + segment.payload_bytes;
                bytes += segment.sack.option_bytes();
                if segment.timestamp_ns > 0 {
                    bytes += TIMESTAMP_OPTION_BYTES;
                }
                if segment.is_syn {
                    bytes += MSS_OPTION_BYTES;
                }
                bytes
            }
        }
    }

    /// What the trace remembers of it.
    pub(super) fn words(&self, now_ns: u64) -> [u64; 4] {
        match &self.content {
            Content::Bare { number, ip_bytes } => [now_ns, *number, u64::from(*ip_bytes), 0],
            Content::Segment(id, segment) => {
                let flags = u64::from(segment.is_syn) | u64::from(segment.is_fin) << 1;
                let length = u64::from(segment.payload_bytes) << 2 | flags;
                [
                    now_ns,
                    id.number(),
                    segment.seq << 24 ^ length,
                    segment.ack.unwrap_or(0),
                ]
            }
        }
    }
}

impl Packet for Frame {
    fn frame_bytes(&self) -> usize {
        (self.ip_bytes() + self.header_bytes) as usize
    }

    fn header_bytes(&self) -> usize {
        self.header_bytes as usize
    }

    fn corrupt(&mut self, _bit: u64) {
        self.is_corrupt = true;
    }
}
