//! The few packets interception reads and writes: a client's SYN, the RST that
//! refuses it, the ICMP error that calls its destination unreachable.
//!
//! Reading trusts nothing: every access is checked, and whatever is not a
//! plain first SYN is `None`, which means "not ours, let it pass".

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_ICMP: u8 = 1;
const PROTOCOL_ICMPV6: u8 = 58;
const TCP_SYN: u8 = 0x02;
const TCP_RST: u8 = 0x04;
const TCP_ACK: u8 = 0x10;
const HOP_LIMIT: u8 = 64;

/// The opening segment of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Syn {
    /// Source address and port.
    pub client: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Initial sequence number.
    pub isn: u32,
    /// DSCP, 0-63.
    pub dscp: u8,
    /// Payload carried by the SYN (TCP Fast Open, RFC 7413).
    pub payload_bytes: u32,
    /// IP and TCP headers as they arrived, to be quoted in ICMP errors.
    pub headers: Box<[u8]>,
}

/// Which ICMP error to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreachable {
    /// RFC 792 type 3 code 1, RFC 4443 type 1 code 3.
    Host,
    /// RFC 792 type 3 code 0, RFC 4443 type 1 code 0.
    Network,
}

impl Syn {
    /// Reads a packet that begins with its IP header; the capture may end
    /// anywhere after the TCP header.
    pub fn parse(packet: &[u8]) -> Option<Syn> {
        match byte(packet, 0)? >> 4 {
            4 => Self::parse_v4(packet),
            6 => Self::parse_v6(packet),
            _ => None,
        }
    }

    fn parse_v4(packet: &[u8]) -> Option<Syn> {
        let header_bytes = usize::from(byte(packet, 0)? & 0x0f) * 4;
        let total_bytes = usize::from(be16(packet, 2)?);
        // More-fragments flag or an offset: not a whole segment.
        let whole = be16(packet, 6)? & 0x3fff == 0;
        if header_bytes < 20 || !whole || byte(packet, 9)? != PROTOCOL_TCP {
            return None;
        }
        let source = Ipv4Addr::from(array::<4>(packet, 12)?);
        let target = Ipv4Addr::from(array::<4>(packet, 16)?);
        let ends = (IpAddr::V4(source), IpAddr::V4(target));
        let traffic_class = byte(packet, 1)?;
        Self::parse_tcp(packet, header_bytes, total_bytes, ends, traffic_class)
    }

    fn parse_v6(packet: &[u8]) -> Option<Syn> {
        let total_bytes = 40 + usize::from(be16(packet, 4)?);
        let source = Ipv6Addr::from(array::<16>(packet, 8)?);
        let target = Ipv6Addr::from(array::<16>(packet, 24)?);
        let traffic_class = (be16(packet, 0)? >> 4) as u8;
        let tcp_at = skip_extensions(packet)?;
        let ends = (IpAddr::V6(source), IpAddr::V6(target));
        Self::parse_tcp(packet, tcp_at, total_bytes, ends, traffic_class)
    }

    fn parse_tcp(
        packet: &[u8],
        tcp_at: usize,
        total_bytes: usize,
        (source, target): (IpAddr, IpAddr),
        traffic_class: u8,
    ) -> Option<Syn> {
        let tcp_bytes = usize::from(byte(packet, tcp_at + 12)? >> 4) * 4;
        let flags = byte(packet, tcp_at + 13)?;
        if tcp_bytes < 20 || flags & (TCP_SYN | TCP_ACK | TCP_RST | 0x01) != TCP_SYN {
            return None;
        }
        let end = tcp_at + tcp_bytes;
        Some(Syn {
            client: SocketAddr::new(source, be16(packet, tcp_at)?),
            destination: SocketAddr::new(target, be16(packet, tcp_at + 2)?),
            isn: u32::from_be_bytes(array::<4>(packet, tcp_at + 4)?),
            dscp: traffic_class >> 2,
            payload_bytes: u32::try_from(total_bytes.checked_sub(end)?).ok()?,
            headers: packet.get(..end)?.into(),
        })
    }

    /// The RST|ACK a closed port answers with (RFC 9293 3.10.7.1), as a whole
    /// IP packet from the destination to the client.
    pub fn reset(&self) -> Option<Vec<u8>> {
        // SYN counts one, payload as it is long.
        let acknowledged = self.isn.wrapping_add(1).wrapping_add(self.payload_bytes);
        let mut tcp = Vec::with_capacity(20);
        tcp.extend(self.destination.port().to_be_bytes());
        tcp.extend(self.client.port().to_be_bytes());
        tcp.extend(0u32.to_be_bytes());
        tcp.extend(acknowledged.to_be_bytes());
        tcp.extend([5 << 4, TCP_RST | TCP_ACK, 0, 0, 0, 0, 0, 0]);
        let (from, to) = (self.destination.ip(), self.client.ip());
        let sum = pseudo_checksum(from, to, PROTOCOL_TCP, &tcp)?;
        tcp.splice(16..18, sum.to_be_bytes());
        ip_packet(from, to, PROTOCOL_TCP, self.dscp, &tcp)
    }

    /// The ICMP or ICMPv6 error a router at `router` sends when it cannot
    /// deliver this SYN, as a whole IP packet.
    pub fn unreachable(&self, kind: Unreachable, router: IpAddr) -> Option<Vec<u8>> {
        let client = self.client.ip();
        let (protocol, icmp_type, code) = match (client, kind) {
            (IpAddr::V4(_), Unreachable::Host) => (PROTOCOL_ICMP, 3, 1),
            (IpAddr::V4(_), Unreachable::Network) => (PROTOCOL_ICMP, 3, 0),
            (IpAddr::V6(_), Unreachable::Host) => (PROTOCOL_ICMPV6, 1, 3),
            (IpAddr::V6(_), Unreachable::Network) => (PROTOCOL_ICMPV6, 1, 0),
        };
        let mut icmp = vec![icmp_type, code, 0, 0, 0, 0, 0, 0];
        icmp.extend_from_slice(&self.headers);
        let sum = if protocol == PROTOCOL_ICMP {
            checksum(&icmp)
        } else {
            pseudo_checksum(router, client, protocol, &icmp)?
        };
        icmp.splice(2..4, sum.to_be_bytes());
        ip_packet(router, client, protocol, 0, &icmp)
    }
}

/// Where the TCP header begins behind IPv6 extension headers; `None` for
/// anything that is not TCP in the clear towards its last hop.
fn skip_extensions(packet: &[u8]) -> Option<usize> {
    let mut next = byte(packet, 6)?;
    let mut at = 40usize;
    loop {
        match next {
            PROTOCOL_TCP => return Some(at),
            // Routing with segments left: the address is not the last hop's.
            43 if byte(packet, at + 3)? != 0 => return None,
            // Hop-by-hop, routing, destination options (RFC 8200 4.1).
            0 | 43 | 60 => {
                next = byte(packet, at)?;
                at += (usize::from(byte(packet, at + 1)?) + 1) * 8;
            }
            // Fragment header: only an atomic fragment (RFC 6946) is whole.
            44 if be16(packet, at + 2)? & 0xfff9 == 0 => {
                next = byte(packet, at)?;
                at += 8;
            }
            _ => return None,
        }
    }
}

fn ip_packet(from: IpAddr, to: IpAddr, protocol: u8, dscp: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let traffic_class = dscp << 2;
    let mut packet = Vec::with_capacity(40 + payload.len());
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = u16::try_from(20 + payload.len()).ok()?;
            packet.extend([0x45, traffic_class]);
            packet.extend(total.to_be_bytes());
            // Identification 0 with don't-fragment: RFC 6864.
            packet.extend([0, 0, 0x40, 0, HOP_LIMIT, protocol, 0, 0]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            let sum = checksum(&packet);
            packet.splice(10..12, sum.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let length = u16::try_from(payload.len()).ok()?;
            packet.extend((0x6000_0000 | (u32::from(traffic_class) << 20)).to_be_bytes());
            packet.extend(length.to_be_bytes());
            packet.extend([protocol, HOP_LIMIT]);
            packet.extend(from.octets());
            packet.extend(to.octets());
        }
        _ => return None,
    }
    packet.extend_from_slice(payload);
    Some(packet)
}

/// Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        let high = pair.first().copied().unwrap_or(0);
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([high, low]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Checksum over the pseudo header (RFC 9293 3.1, RFC 8200 8.1) and `payload`.
fn pseudo_checksum(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Option<u16> {
    let length = u16::try_from(payload.len()).ok()?;
    let mut bytes = Vec::with_capacity(40 + payload.len());
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            bytes.extend(from.octets());
            bytes.extend(to.octets());
        }
        _ => return None,
    }
    // The two families arrange these words differently; the sum is the same.
    bytes.extend([0, protocol]);
    bytes.extend(length.to_be_bytes());
    bytes.extend_from_slice(payload);
    Some(checksum(&bytes))
}

fn byte(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    array::<2>(bytes, at).map(u16::from_be_bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A SYN as a client sends it, with `options` bytes of IPv4 options or an
    /// IPv6 destination-options header of `8 * (options + 1)` bytes.
    pub fn syn_packet(
        client: SocketAddr,
        destination: SocketAddr,
        isn: u32,
        dscp: u8,
        payload: &[u8],
        options: u8,
    ) -> Vec<u8> {
        let mut tcp = Vec::new();
        tcp.extend(client.port().to_be_bytes());
        tcp.extend(destination.port().to_be_bytes());
        tcp.extend(isn.to_be_bytes());
        tcp.extend([0; 4]);
        // MSS option, window 64240, ECN-setup bits set as a modern client may.
        tcp.extend([6 << 4, TCP_SYN | 0xc0, 0xfa, 0xf0, 0, 0, 0, 0]);
        tcp.extend([2, 4, 5, 0xb4]);
        tcp.extend_from_slice(payload);
        let mut packet =
            ip_packet(client.ip(), destination.ip(), PROTOCOL_TCP, dscp, &tcp).unwrap();
        if options == 0 {
            return packet;
        }
        if client.is_ipv4() {
            let words = options.min(10);
            packet[0] += words;
            packet.splice(20..20, std::iter::repeat_n(1, usize::from(words) * 4));
            let total = packet.len() as u16;
            packet[2..4].copy_from_slice(&total.to_be_bytes());
        } else {
            packet[6] = 60;
            let mut header = vec![0u8; usize::from(options) * 8 + 8];
            header[0] = PROTOCOL_TCP;
            header[1] = options;
            packet.splice(40..40, header);
            let length = (packet.len() - 40) as u16;
            packet[4..6].copy_from_slice(&length.to_be_bytes());
        }
        packet
    }

    fn pair() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        let ports = (any::<u16>(), any::<u16>());
        let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>())
            .prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
        let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>())
            .prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
        (prop_oneof![v4, v6], ports)
            .prop_map(|((a, b), (p, q))| (SocketAddr::new(a, p), SocketAddr::new(b, q)))
    }

    proptest! {
        #[test]
        fn parse_inverts_build(
            (client, destination) in pair(),
            isn: u32,
            dscp in 0u8..64,
            payload in proptest::collection::vec(any::<u8>(), 0..64),
            options in 0u8..12,
        ) {
            let packet = syn_packet(client, destination, isn, dscp, &payload, options);
            let syn = Syn::parse(&packet).unwrap();
            prop_assert_eq!(syn.client, client);
            prop_assert_eq!(syn.destination, destination);
            prop_assert_eq!(syn.isn, isn);
            prop_assert_eq!(syn.dscp, dscp);
            prop_assert_eq!(syn.payload_bytes as usize, payload.len());
            prop_assert_eq!(&syn.headers[..], &packet[..packet.len() - payload.len()]);
            // A capture that ends with the headers reads the same.
            prop_assert_eq!(Syn::parse(&syn.headers), Some(syn.clone()));
            // One that ends within them is refused.
            prop_assert_eq!(Syn::parse(&syn.headers[..syn.headers.len() - 1]), None);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(syn) = Syn::parse(&bytes) {
                let _ = syn.reset();
                let _ = syn.unreachable(Unreachable::Host, syn.destination.ip());
            }
        }

        #[test]
        fn mutated_syns_are_survived(
            (client, destination) in pair(),
            options in 0u8..12,
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut packet = syn_packet(client, destination, 7, 0, b"", options);
            for (at, value) in changes {
                let at = at.index(packet.len());
                packet[at] = value;
            }
            packet.truncate(cut.index(packet.len()) + 1);
            if let Some(syn) = Syn::parse(&packet) {
                prop_assert!(syn.headers.len() <= packet.len());
            }
        }

        #[test]
        fn answers_have_valid_checksums((client, destination) in pair(), isn: u32) {
            let syn = Syn::parse(&syn_packet(client, destination, isn, 10, b"x", 0)).unwrap();
            let reset = syn.reset().unwrap();
            let error = syn.unreachable(Unreachable::Host, destination.ip()).unwrap();
            for packet in [&reset, &error] {
                let at = if client.is_ipv4() { 20 } else { 40 };
                if client.is_ipv4() {
                    prop_assert_eq!(checksum(&packet[..20]), 0);
                }
                let protocol = if client.is_ipv4() { packet[9] } else { packet[6] };
                let sum = if protocol == PROTOCOL_ICMP {
                    checksum(&packet[at..])
                } else {
                    pseudo_checksum(destination.ip(), client.ip(), protocol, &packet[at..]).unwrap()
                };
                prop_assert_eq!(sum, 0);
            }
            // SYN and one byte of payload are acknowledged.
            let at = if client.is_ipv4() { 28 } else { 48 };
            prop_assert_eq!(array::<4>(&reset, at).unwrap(), isn.wrapping_add(2).to_be_bytes());
        }
    }

    #[test]
    fn only_first_syns_of_whole_plain_packets_are_ours() {
        let client = "10.1.0.2:40000".parse().unwrap();
        let server = "10.2.0.2:80".parse().unwrap();
        let good = syn_packet(client, server, 1, 0, b"", 0);
        assert!(Syn::parse(&good).is_some());
        for (at, value, why) in [
            (0, 0x55, "version 5"),
            (0, 0x44, "header length 16"),
            (6, 0x20, "more fragments"),
            (7, 1, "fragment offset"),
            (9, 17, "UDP"),
            (33, TCP_SYN | TCP_ACK, "SYN-ACK"),
            (33, TCP_ACK, "ACK"),
            (33, TCP_SYN | TCP_RST, "SYN with RST"),
            (32, 4 << 4, "data offset 16"),
        ] {
            let mut packet = good.clone();
            packet[at] = value;
            assert_eq!(Syn::parse(&packet), None, "{why}");
        }

        let client = "[fd00:1::2]:40000".parse().unwrap();
        let server = "[fd00:2::2]:80".parse().unwrap();
        let mut routed = syn_packet(client, server, 1, 0, b"", 1);
        routed[6] = 43;
        routed[43] = 1;
        assert_eq!(Syn::parse(&routed), None, "segments left");
        routed[6] = 51;
        assert_eq!(Syn::parse(&routed), None, "IPsec authentication header");
    }
}
