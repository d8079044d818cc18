//! What the rate counts: how many bytes a frame takes on the wire.

use std::fmt;

/// Shortest Ethernet frame without FCS (IEEE 802.3: 64 with it).
const ETHERNET_MIN_BYTES: u64 = 60;
/// Preamble and start delimiter 8, FCS 4, inter-packet gap 12 (IEEE 802.3).
const ETHERNET_WIRE_BYTES: u64 = 24;
/// Flag 1, address 1, control 1, protocol 2, FCS 2 (RFC 1662, Cisco HDLC).
const HDLC_BYTES: u64 = 7;
/// LLC/SNAP header 8 and AAL5 trailer 8 (RFC 2684, routed payloads).
const AAL5_BYTES: u64 = 16;
const ATM_CELL_PAYLOAD_BYTES: u64 = 48;
const ATM_CELL_BYTES: u64 = 53;

/// What a rate counts for each packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Framing {
    /// The Ethernet frame without preamble and FCS: 1514 bytes at MTU 1500.
    #[default]
    Ethernet,
    /// The frame as it occupies an Ethernet wire: at least 60 bytes, and 24
    /// more for preamble, FCS and inter-packet gap (IEEE 802.3).
    Wire,
    /// The network-layer packet alone.
    Ip,
    /// The network-layer packet in HDLC or PPP with a 2-byte FCS: 7 bytes
    /// more (RFC 1662), as on leased lines.
    Hdlc,
    /// The network-layer packet in AAL5 with LLC/SNAP, in 53-byte cells
    /// (RFC 2684), as on ADSL and ATM backbones.
    Atm,
    /// netem's numbers: `overhead_bytes` added to the frame, then whole cells
    /// of `cell_bytes` (0: no cells), each with `cell_overhead_bytes` more.
    Custom {
        /// Added to the frame's length; negative to leave headers out.
        overhead_bytes: i16,
        /// Payload of one cell; 0 means no cells.
        cell_bytes: u16,
        /// Added for every cell.
        cell_overhead_bytes: u16,
    },
}

impl Framing {
    /// Every framing with a name, for parser and messages.
    pub(crate) const NAMED: [(&'static str, Self); 5] = [
        ("ethernet", Self::Ethernet),
        ("wire", Self::Wire),
        ("ip", Self::Ip),
        ("hdlc", Self::Hdlc),
        ("atm", Self::Atm),
    ];

    /// Bytes that a frame of `frame_bytes`, `header_bytes` of them before the
    /// network layer, takes on the wire. At least 1.
    pub fn wire_bytes(self, frame_bytes: usize, header_bytes: usize) -> u64 {
        let frame = frame_bytes as u64;
        let network = frame.saturating_sub(header_bytes as u64);
        let bytes = match self {
            Self::Ethernet => frame,
            Self::Wire => frame
                .max(ETHERNET_MIN_BYTES)
                .saturating_add(ETHERNET_WIRE_BYTES),
            Self::Ip => network,
            Self::Hdlc => network.saturating_add(HDLC_BYTES),
            Self::Atm => network
                .saturating_add(AAL5_BYTES)
                .div_ceil(ATM_CELL_PAYLOAD_BYTES)
                .saturating_mul(ATM_CELL_BYTES),
            Self::Custom {
                overhead_bytes,
                cell_bytes,
                cell_overhead_bytes,
            } => {
                let padded = frame.saturating_add_signed(i64::from(overhead_bytes));
                if cell_bytes == 0 {
                    padded
                } else {
                    let cells = padded.div_ceil(u64::from(cell_bytes));
                    cells.saturating_mul(u64::from(cell_bytes) + u64::from(cell_overhead_bytes))
                }
            }
        };
        bytes.max(1)
    }
}

/// Prints what the parser reads after the word `framing`.
impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = Self::NAMED.iter().find(|(_, framing)| framing == self) {
            return f.write_str(name);
        }
        match self {
            Self::Custom {
                overhead_bytes,
                cell_bytes,
                cell_overhead_bytes,
            } => {
                write!(f, "{overhead_bytes} {cell_bytes} {cell_overhead_bytes}")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_size_frame() {
        let wire = |framing: Framing| framing.wire_bytes(1514, 14);
        assert_eq!(wire(Framing::Ethernet), 1514);
        assert_eq!(wire(Framing::Wire), 1538);
        assert_eq!(wire(Framing::Ip), 1500);
        assert_eq!(wire(Framing::Hdlc), 1507);
        // (1500 + 16) / 48 = 31.6 -> 32 cells.
        assert_eq!(wire(Framing::Atm), 32 * 53);
    }

    #[test]
    fn short_frames_are_padded_on_the_wire_only() {
        assert_eq!(Framing::Wire.wire_bytes(42, 14), 84);
        assert_eq!(Framing::Ethernet.wire_bytes(42, 14), 42);
        assert_eq!(Framing::Ip.wire_bytes(3, 14), 1);
    }

    #[test]
    fn netem_numbers() {
        let framing = Framing::Custom {
            overhead_bytes: -14,
            cell_bytes: 48,
            cell_overhead_bytes: 5,
        };
        assert_eq!(framing.wire_bytes(1514, 14), 32 * 53);
        let framing = Framing::Custom {
            overhead_bytes: 20,
            cell_bytes: 0,
            cell_overhead_bytes: 9,
        };
        assert_eq!(framing.wire_bytes(100, 14), 120);
        let framing = Framing::Custom {
            overhead_bytes: -200,
            cell_bytes: 0,
            cell_overhead_bytes: 0,
        };
        assert_eq!(framing.wire_bytes(100, 14), 1);
    }
}
