//! What a frame carries: a TCP segment, a UDP datagram, or something else.

use std::net::Ipv4Addr;

const ETHERNET_BYTES: usize = 14;
const ETHERTYPE_IPV4: u16 = 0x0800;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const OPTION_NOTHING: u8 = 1;
const OPTION_WINDOW_SCALE: u8 = 3;

/// Flags of TCP (RFC 9293 3.1).
pub(crate) const SYN: u8 = 0x02;
pub(crate) const ACK: u8 = 0x10;

/// An address with a port.
pub(crate) type End = (Ipv4Addr, u16);

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen<'a> {
    /// TCP over IPv4.
    Tcp(Segment<'a>),
    /// UDP over IPv4.
    Udp { source: End, destination: End },
    /// Anything else.
    Other,
}

/// A TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub(crate) source: End,
    pub(crate) destination: End,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) flags: u8,
    /// As it stands there, not scaled.
    pub(crate) window: u16,
    /// Of a SYN.
    pub(crate) window_scale: Option<u8>,
    /// As much as was captured.
    pub(crate) payload: &'a [u8],
}

/// Reads a frame.
pub(crate) fn seen(frame: &[u8]) -> Seen<'_> {
    read(frame).unwrap_or(Seen::Other)
}

fn read(frame: &[u8]) -> Option<Seen<'_>> {
    if u16_at(frame, ETHERNET_BYTES - 2)? != ETHERTYPE_IPV4 {
        return None;
    }
    let packet = frame.get(ETHERNET_BYTES..)?;
    let header_bytes = usize::from(packet.first()? & 0x0f) * 4;
    // Behind short packets the frame is filled up; a length of 0 is a sender's own, longer than the field.
    let total = match usize::from(u16_at(packet, 2)?) {
        0 => packet.len(),
        total => total.min(packet.len()),
    };
    // A later fragment begins in the middle of something.
    if u16_at(packet, 6)? & 0x1fff != 0 {
        return None;
    }
    let transport = packet.get(header_bytes..total)?;
    let address = |at: usize| {
        let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes))
    };
    let source = (address(12)?, u16_at(transport, 0)?);
    let destination = (address(16)?, u16_at(transport, 2)?);
    match *packet.get(9)? {
        PROTOCOL_TCP => tcp(transport, source, destination).map(Seen::Tcp),
        PROTOCOL_UDP => Some(Seen::Udp {
            source,
            destination,
        }),
        _ => None,
    }
}

fn tcp(transport: &[u8], source: End, destination: End) -> Option<Segment<'_>> {
    let header_bytes = usize::from(*transport.get(12)? >> 4) * 4;
    let flags = *transport.get(13)?;
    Some(Segment {
        source,
        destination,
        sequence: u32_at(transport, 4)?,
        acknowledgment: u32_at(transport, 8)?,
        flags,
        window: u16_at(transport, 14)?,
        window_scale: match flags & SYN {
            0 => None,
            _ => window_scale(transport.get(20..header_bytes)?),
        },
        payload: transport.get(header_bytes..)?,
    })
}

/// RFC 7323 2.2.
fn window_scale(mut options: &[u8]) -> Option<u8> {
    while let Some((kind, rest)) = options.split_first() {
        options = match *kind {
            0 => return None,
            OPTION_NOTHING => rest,
            kind => {
                let length = usize::from(*rest.first()?);
                if kind == OPTION_WINDOW_SCALE {
                    return rest.get(1).copied();
                }
                options.get(length.max(2)..)?
            }
        };
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A frame with a TCP segment.
    pub(crate) fn frame(segment: &Segment<'_>) -> Vec<u8> {
        let options: &[u8] = match segment.window_scale {
            Some(scale) => &[2, 4, 5, 180, 1, 3, 3, scale],
            None => &[],
        };
        let length = 20 + 20 + options.len() + segment.payload.len();
        let mut frame = vec![0; 12];
        frame.extend(ETHERTYPE_IPV4.to_be_bytes());
        frame.extend([0x45, 0]);
        frame.extend((length as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, PROTOCOL_TCP, 0, 0]);
        frame.extend(segment.source.0.octets());
        frame.extend(segment.destination.0.octets());
        frame.extend(segment.source.1.to_be_bytes());
        frame.extend(segment.destination.1.to_be_bytes());
        frame.extend(segment.sequence.to_be_bytes());
        frame.extend(segment.acknowledgment.to_be_bytes());
        frame.extend([((20 + options.len()) as u8 / 4) << 4, segment.flags]);
        frame.extend(segment.window.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(options);
        frame.extend(segment.payload);
        frame
    }

    #[test]
    fn a_segment_is_read_back_and_padding_is_none_of_it() {
        let segment = Segment {
            source: (Ipv4Addr::new(10, 1, 0, 2), 40_000),
            destination: (Ipv4Addr::new(10, 2, 0, 2), 445),
            sequence: 7,
            acknowledgment: 9,
            flags: SYN,
            window: 100,
            window_scale: Some(7),
            payload: b"x",
        };
        let mut bytes = frame(&segment);
        assert_eq!(seen(&bytes), Seen::Tcp(segment));
        bytes.extend([0; 9]);
        assert_eq!(seen(&bytes), Seen::Tcp(segment));
        for end in 0..frame(&segment).len() - 1 {
            // Cut anywhere it is something else or less, never a panic.
            let _ = seen(&bytes[..end]);
        }
        bytes[13] = 6;
        assert_eq!(seen(&bytes), Seen::Other, "ARP");
    }
}
