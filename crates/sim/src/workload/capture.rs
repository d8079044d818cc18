//! Servers' windows and segment sizes from a capture of their handshakes, as
//! the study had them from tcpdump: every SYN with an acknowledgement in a
//! classic pcap file.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::entry::Handshake;

/// File format numbers (draft-ietf-opsawg-pcap).
const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
const FILE_HEADER_BYTES: usize = 24;
const PACKET_HEADER_BYTES: usize = 16;
const LINK_ETHERNET: u32 = 1;
const LINK_RAW: u32 = 101;
const LINK_LINUX_SLL: u32 = 113;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPES_VLAN: [u16; 2] = [0x8100, 0x88a8];
const PROTOCOL_TCP: u8 = 6;
const FLAGS_SYN_ACK: u8 = 0x12;
const OPTION_MSS: u8 = 2;
const OPTION_SCALE: u8 = 3;

/// Handshakes by server address, and packets that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Handshakes {
    /// By address.
    pub by_address: BTreeMap<String, Handshake>,
    /// Packets cut short or malformed.
    pub bad_packets: usize,
}

/// Reads a pcap file.
///
/// # Errors
/// A text where it is none, or of a link layer nothing is known of.
pub fn read_handshakes(bytes: &[u8]) -> Result<Handshakes, String> {
    let magic = bytes.get(..4).ok_or("it is no capture: it is empty")?;
    let is_ours = |magic: u32| magic == MAGIC_MICROS || magic == MAGIC_NANOS;
    let little = u32_at(bytes, 0, true).is_some_and(is_ours);
    if !little && !u32_at(bytes, 0, false).is_some_and(is_ours) {
        return Err(match magic {
            [0x0a, 0x0d, 0x0d, 0x0a] => {
                "it is pcapng; write it as pcap (editcap -F pcap)".to_owned()
            }
            _ => "it is no pcap file".to_owned(),
        });
    }
    let link = u32_at(bytes, 20, little).ok_or("its header is cut")? & 0x0fff_ffff;
    if ![LINK_ETHERNET, LINK_RAW, LINK_LINUX_SLL].contains(&link) {
        return Err(format!(
            "link layer {link} is unknown; Ethernet, raw IP and Linux cooked are known"
        ));
    }
    let mut found = Handshakes::default();
    let mut at = FILE_HEADER_BYTES;
    while at < bytes.len() {
        let length = u32_at(bytes, at + 8, little).unwrap_or(u32::MAX) as usize;
        let start = at + PACKET_HEADER_BYTES;
        let Some(packet) = start
            .checked_add(length)
            .and_then(|end| bytes.get(start..end))
        else {
            found.bad_packets += 1;
            break;
        };
        match network_layer(packet, link).map(read_packet) {
            Some(Read::Handshake(address, handshake)) => {
                remember(&mut found.by_address, address, handshake)
            }
            Some(Read::Other) => {}
            Some(Read::Bad) | None => found.bad_packets += 1,
        }
        at = start + length;
    }
    Ok(found)
}

/// A server seen twice keeps its largest window.
fn remember(all: &mut BTreeMap<String, Handshake>, address: String, new: Handshake) {
    let known = all.entry(address).or_insert(new);
    known.window_bytes = known.window_bytes.max(new.window_bytes);
    known.mss_bytes = known.mss_bytes.or(new.mss_bytes);
}

fn u32_at(bytes: &[u8], at: usize, little: bool) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(if little {
        u32::from_le_bytes(four)
    } else {
        u32::from_be_bytes(four)
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
    Some(u16::from_be_bytes(two))
}

/// The packet without its link layer; empty where it carries no IP.
fn network_layer(packet: &[u8], link: u32) -> Option<&[u8]> {
    let mut at = match link {
        LINK_RAW => return Some(packet),
        LINK_LINUX_SLL => 14,
        _ => 12,
    };
    while ETHERTYPES_VLAN.contains(&u16_at(packet, at)?) {
        at += 4;
    }
    match u16_at(packet, at)? {
        ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => packet.get(at + 2..),
        _ => Some(&[]),
    }
}

enum Read {
    Handshake(String, Handshake),
    Other,
    Bad,
}

fn read_packet(packet: &[u8]) -> Read {
    if packet.is_empty() {
        return Read::Other;
    }
    match segment(packet) {
        None => Read::Bad,
        Some((_, [])) => Read::Other,
        Some((address, segment)) => read_segment(address, segment),
    }
}

/// Source address and TCP segment; an empty segment where it carries no TCP.
fn segment(packet: &[u8]) -> Option<(String, &[u8])> {
    match packet.first()? >> 4 {
        4 => {
            let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
            let header_bytes = usize::from(packet.first()? & 0x0f) * 4;
            let is_first = u16_at(packet, 6)? & 0x1fff == 0;
            let is_tcp = *packet.get(9)? == PROTOCOL_TCP && is_first;
            let segment = if is_tcp {
                packet.get(header_bytes..)?
            } else {
                &[]
            };
            Some((Ipv4Addr::from(source).to_string(), segment))
        }
        6 => {
            let source: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            let is_tcp = *packet.get(6)? == PROTOCOL_TCP;
            let segment = if is_tcp { packet.get(40..)? } else { &[] };
            Some((Ipv6Addr::from(source).to_string(), segment))
        }
        _ => None,
    }
}

fn read_segment(address: String, segment: &[u8]) -> Read {
    let (Some(flags), Some(window), Some(offset)) =
        (segment.get(13), u16_at(segment, 14), segment.get(12))
    else {
        return Read::Bad;
    };
    if flags & 0x17 != FLAGS_SYN_ACK {
        return Read::Other;
    }
    let header_bytes = usize::from(offset >> 4) * 4;
    let options = segment.get(20..header_bytes).unwrap_or_default();
    let (mss_bytes, scale) = read_options(options);
    // The window of a SYN is never scaled (RFC 7323, 2.2), but what follows
    // can be that much larger: the most it may offer is what is wanted.
    let window_bytes = if scale > 0 {
        u64::from(u16::MAX) << scale
    } else {
        u64::from(window)
    };
    Read::Handshake(
        address,
        Handshake {
            window_bytes,
            mss_bytes,
        },
    )
}

fn read_options(mut options: &[u8]) -> (Option<u32>, u8) {
    let (mut mss_bytes, mut scale) = (None, 0);
    while let Some((kind, rest)) = options.split_first() {
        match kind {
            0 => break,
            1 => options = rest,
            _ => {
                let Some(length) = rest
                    .first()
                    .map(|length| usize::from(*length))
                    .filter(|length| *length >= 2)
                else {
                    break;
                };
                match (*kind, options.get(2..length)) {
                    (OPTION_MSS, Some([high, low])) => {
                        mss_bytes = Some(u32::from(u16::from_be_bytes([*high, *low])))
                            .filter(|mss| *mss >= 88);
                    }
                    // RFC 7323, 2.3: at most 14.
                    (OPTION_SCALE, Some([shift])) => scale = (*shift).min(14),
                    _ => {}
                }
                options = options.get(length..).unwrap_or_default();
            }
        }
    }
    (mss_bytes, scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(source: [u8; 4], flags: u8, window: u16, options: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0]);
        frame.extend(source);
        frame.extend([192, 0, 2, 99]);
        frame.extend([0, 80, 0x30, 0x39, 0, 0, 0, 0, 0, 0, 0, 0]);
        frame.push((((20 + options.len()) / 4) << 4) as u8);
        frame.push(flags);
        frame.extend(window.to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(options);
        frame
    }

    fn capture(packets: &[Vec<u8>]) -> Vec<u8> {
        let mut file = MAGIC_MICROS.to_le_bytes().to_vec();
        file.extend([
            2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0,
        ]);
        for packet in packets {
            let length = u32::try_from(packet.len()).unwrap().to_le_bytes();
            file.extend([0; 8]);
            file.extend(length);
            file.extend(length);
            file.extend(packet);
        }
        file
    }

    #[test]
    fn windows_and_segment_sizes_of_servers_are_found() {
        let first = [192, 0, 2, 1];
        let file = capture(&[
            packet(first, 0x12, 8760, &[2, 4, 0x05, 0xb4]),
            packet(first, 0x12, 4380, &[]),
            packet([192, 0, 2, 2], 0x12, 65535, &[1, 3, 3, 7, 2, 4, 2, 24]),
            packet([192, 0, 2, 3], 0x02, 1000, &[]),
            packet([192, 0, 2, 4], 0x10, 1000, &[]),
        ]);
        let found = read_handshakes(&file).unwrap();
        let handshake = |window_bytes, mss_bytes| Handshake {
            window_bytes,
            mss_bytes,
        };
        let expected = BTreeMap::from([
            ("192.0.2.1".to_owned(), handshake(8760, Some(1460))),
            ("192.0.2.2".to_owned(), handshake(65_535 << 7, Some(536))),
        ]);
        assert_eq!((found.by_address, found.bad_packets), (expected, 0));
        let cut = read_handshakes(&file[..file.len() - 1]).unwrap();
        assert_eq!(cut.bad_packets, 1);
        assert!(read_handshakes(b"").is_err() && read_handshakes(b"GIF89a").is_err());
        assert!(
            read_handshakes(&[0x0a, 0x0d, 0x0d, 0x0a])
                .unwrap_err()
                .contains("pcapng")
        );
    }

    proptest! {
        #[test]
        fn invariant_6_no_bytes_panic(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..6), cut in 0usize..60) {
            let mut file = capture(&packets);
            file.truncate(file.len().saturating_sub(cut));
            let _ = read_handshakes(&file);
        }
    }
}
