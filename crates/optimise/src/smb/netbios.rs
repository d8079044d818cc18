//! The framing under SMB: packets of the NetBIOS session service, and of TCP port 445, which uses one type of them.
//!
//! RFC 1002 4.3: type 1, length 3 (on port 139 one bit of flags and 17 of length). MS-SMB2 2.1: type 0, length 3.
//! A packet is handed over whole, so that whoever patches it sees all of it, unless it is longer than
//! [`WHOLE_BYTES_MAX`] and not compounded: of those only the beginning needs to be seen. Of a client compounded ones are
//! longer only where it wants to fill our memory; a server's are as long as it was asked for, two listings of a large
//! folder in one packet, and what a prefix can tell is all that a connection makes us hold of them.

use bytes::{Bytes, BytesMut};

use super::error::WireError;

/// Bytes before each packet.
pub const PREFIX_BYTES: usize = 4;
/// Longer packets come in pieces if only their beginning matters.
pub const WHOLE_BYTES_MAX: usize = 256 << 10;
/// A client's packets of several messages are not longer,
const COMPOUND_BYTES_MAX: usize = 1 << 20;
/// and no packet is (MS-SMB2 2.1: 24 bits of length).
const PACKET_BYTES_MAX: usize = PREFIX_BYTES + (1 << 24);
/// So much of a packet that comes in pieces is in the first.
const BEGINNING_BYTES: usize = 1024;

const SESSION_MESSAGE: u8 = 0x00;
/// Session request, positive, negative, retarget, keep-alive.
const SESSION_SERVICE: [u8; 5] = [0x81, 0x82, 0x83, 0x84, 0x85];

/// Where SMB2 says how far the next compounded message is, from the packet's first byte.
const NEXT_COMMAND_AT: usize = PREFIX_BYTES + 20;

/// Part of a stream of packets. All pieces in order are the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A packet with a message, prefix included.
    Message(Bytes),
    /// The beginning of a long packet with one message, prefix included.
    Beginning(Bytes),
    /// More of that packet.
    Rest(Bytes),
    /// A packet of the session service itself.
    Service(Bytes),
}

/// Cuts a stream into packets.
#[derive(Debug)]
pub struct Packets {
    held: BytesMut,
    /// Packets of several messages are not longer.
    compound_bytes_max: usize,
    /// Still to come of a packet that is handed on in pieces.
    rest_bytes: usize,
}

/// A client's.
impl Default for Packets {
    fn default() -> Self {
        Self {
            held: BytesMut::new(),
            compound_bytes_max: COMPOUND_BYTES_MAX,
            rest_bytes: 0,
        }
    }
}

impl Packets {
    /// A server's.
    #[must_use]
    pub fn of_server() -> Self {
        Self {
            compound_bytes_max: PACKET_BYTES_MAX,
            ..Self::default()
        }
    }

    /// More of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// What was pushed and not yet handed over.
    pub fn take_held(&mut self) -> Bytes {
        self.held.split().freeze()
    }

    /// Whether the stream could end here.
    pub fn is_between(&self) -> bool {
        self.held.is_empty() && self.rest_bytes == 0
    }

    /// How much was pushed and not yet handed over.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// Whether more is to come of a packet of which the beginning was handed over.
    pub fn has_rest(&self) -> bool {
        self.rest_bytes > 0
    }

    /// The next piece, if enough of it is there.
    ///
    /// # Errors
    /// When the stream is none of packets. What is held stays held.
    pub fn poll(&mut self) -> Result<Option<Piece>, WireError> {
        if self.rest_bytes > 0 {
            let length = self.rest_bytes.min(self.held.len());
            self.rest_bytes -= length;
            let rest = self.held.split_to(length).freeze();
            return Ok((length > 0).then_some(Piece::Rest(rest)));
        }
        let Some((kind, length)) = prefix(&self.held)? else {
            return Ok(None);
        };
        let packet_bytes = PREFIX_BYTES + length;
        if kind == SESSION_MESSAGE && packet_bytes > WHOLE_BYTES_MAX && self.may_begin() {
            let beginning = self.held.split_to(BEGINNING_BYTES).freeze();
            self.rest_bytes = packet_bytes - BEGINNING_BYTES;
            return Ok(Some(Piece::Beginning(beginning)));
        }
        if self.held.len() < packet_bytes {
            let bytes_max = match kind {
                SESSION_MESSAGE => self.compound_bytes_max,
                _ => COMPOUND_BYTES_MAX,
            };
            let is_endless = packet_bytes > bytes_max && self.held.len() >= BEGINNING_BYTES;
            return if is_endless {
                Err(WireError::Long)
            } else {
                Ok(None)
            };
        }
        let packet = self.held.split_to(packet_bytes).freeze();
        Ok(Some(match kind {
            SESSION_MESSAGE => Piece::Message(packet),
            _ => Piece::Service(packet),
        }))
    }

    /// The beginning is there and no second message follows in the packet.
    fn may_begin(&self) -> bool {
        let next = self.held.get(NEXT_COMMAND_AT..NEXT_COMMAND_AT + 4);
        self.held.len() >= BEGINNING_BYTES && next == Some(&[0; 4])
    }
}

/// Type and length of the packet that begins here.
pub fn prefix(bytes: &[u8]) -> Result<Option<(u8, usize)>, WireError> {
    let Some(kind) = bytes.first().copied() else {
        return Ok(None);
    };
    if kind != SESSION_MESSAGE && !SESSION_SERVICE.contains(&kind) {
        return Err(WireError::Packet(kind));
    }
    let length = match bytes.get(1..PREFIX_BYTES) {
        Some([high, middle, low]) => u32::from_be_bytes([0, *high, *middle, *low]),
        _ => return Ok(None),
    };
    Ok(Some((kind, length as usize)))
}

/// A message as a packet.
#[must_use]
pub fn packet(message: &[u8]) -> Bytes {
    let mut packet = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    packet.extend_from_slice(&prefix_of(message.len()));
    packet.extend_from_slice(message);
    packet.freeze()
}

/// The prefix of a message of so many bytes; a packet holds less than 16 MiB.
#[must_use]
pub fn prefix_of(length: usize) -> [u8; PREFIX_BYTES] {
    debug_assert!(length < 1 << 24);
    ((length & 0xff_ffff) as u32).to_be_bytes()
}
