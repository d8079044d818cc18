//! From what the kernel hands over to frames as they are on a wire.
//!
//! A sender whose network card has segmentation and checksum offload (every
//! veth has, by default) hands over TCP and UDP packets of up to 64 KiB with
//! an unfinished checksum, and they pass through a veth like that: its far
//! end receives one large frame however its own offloads are set. A real card
//! would cut it and finish the checksums before the wire, so this does.
//!
//! Layout of the virtio-net header: Virtual I/O Device (VIRTIO) 1.2, 5.1.6.

const FLAG_NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Marks a TCP packet that uses ECN (VIRTIO 1.2, 5.1.6.2).
const GSO_FLAG_ECN: u8 = 0x80;

const ETHERNET_HEADER_BYTES: usize = 14;
const VLAN_TAG_BYTES: usize = 4;
const ADDRESSES_BYTES: usize = 12;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: [u16; 2] = [0x8100, 0x88a8];
const IPV6_HEADER_BYTES: usize = 40;
const UDP_HEADER_BYTES: usize = 8;
const UDP_CHECKSUM_OFFSET: usize = 6;
const SCTP_CHECKSUM_OFFSET: usize = 8;
const TCP_CHECKSUM_OFFSET: usize = 16;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_SCTP: u8 = 132;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// What a sender left to its network card, from the virtio-net header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offload {
    /// Where the checksum starts that is still to be finished, and where in
    /// what follows it is to be stored.
    checksum: Option<(usize, usize)>,
    /// Kind of segmentation.
    gso: u8,
    /// Whether a CWR flag belongs to the first segment only (RFC 3168 6.1.2).
    /// Accurate ECN uses that flag in a counter and keeps it on every segment.
    cwr_once: bool,
    /// Payload bytes of each segment.
    segment_bytes: usize,
}

impl Offload {
    /// From the ten bytes before a frame, in the machine's byte order.
    pub(super) fn parse(header: &[u8]) -> Option<Self> {
        let word = |at: usize| -> Option<usize> {
            let bytes = header.get(at..at + 2)?.try_into().ok()?;
            Some(usize::from(u16::from_ne_bytes(bytes)))
        };
        let flags = *header.first()?;
        let checksum = (flags & FLAG_NEEDS_CHECKSUM != 0).then_some((word(6)?, word(8)?));
        Some(Self {
            checksum,
            gso: *header.get(1)? & !GSO_FLAG_ECN,
            cwr_once: *header.get(1)? & GSO_FLAG_ECN != 0,
            segment_bytes: word(4)?,
        })
    }
}

/// A VLAN tag (IEEE 802.1Q).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VlanTag {
    /// EtherType that announces it: 0x8100 or 0x88a8.
    pub(super) protocol: u16,
    /// Priority, drop eligibility and VLAN identifier.
    pub(super) control: u16,
}

/// A packet that no wire carries as it is and that is not understood well
/// enough to be cut: segmentation inside a tunnel, an unknown kind, nonsense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfinishable;

/// Hands the frames that `data` stands for to `emit`, in order.
pub(super) fn finish(
    data: &[u8],
    offload: Offload,
    vlan: Option<VlanTag>,
    mut emit: impl FnMut(Vec<u8>),
) -> Result<(), Unfinishable> {
    if offload.gso != GSO_NONE {
        return segment(data, offload, vlan, &mut emit).ok_or(Unfinishable);
    }
    if data.len() < ETHERNET_HEADER_BYTES {
        return Err(Unfinishable);
    }
    let mut frame = Vec::with_capacity(data.len() + VLAN_TAG_BYTES);
    frame.extend_from_slice(data);
    if let Some((start, offset)) = offload.checksum {
        finish_checksum(&mut frame, start, offset).ok_or(Unfinishable)?;
    }
    insert_tag(&mut frame, vlan);
    emit(frame);
    Ok(())
}

fn insert_tag(frame: &mut Vec<u8>, vlan: Option<VlanTag>) {
    if let Some(tag) = vlan {
        let [a, b] = tag.protocol.to_be_bytes();
        let [c, d] = tag.control.to_be_bytes();
        frame.splice(ADDRESSES_BYTES..ADDRESSES_BYTES, [a, b, c, d]);
    }
}

/// Finishes the checksum whose field holds the pseudo-header's part.
fn finish_checksum(frame: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let is_sctp = offset == SCTP_CHECKSUM_OFFSET
        && network(frame).is_some_and(|network| {
            network.protocol == PROTOCOL_SCTP && network.transport_at == start
        });
    let covered = frame.get_mut(start..)?;
    let field_end = offset.checked_add(if is_sctp { 4 } else { 2 })?;
    covered.get(offset..field_end)?;
    if is_sctp {
        covered.get_mut(offset..field_end)?.fill(0);
        // RFC 9260 appendix A: the one checksum sent least significant byte first.
        let checksum = crc32c(covered).to_le_bytes();
        covered
            .get_mut(offset..field_end)?
            .copy_from_slice(&checksum);
        return Some(());
    }
    let checksum = !fold(sum(covered));
    // RFC 768: a UDP checksum of zero means "none", so it is sent as ones.
    let checksum = if checksum == 0 && offset == UDP_CHECKSUM_OFFSET {
        0xffff
    } else {
        checksum
    };
    put16(covered, offset, checksum)
}

/// Where the layers of a frame are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    at: usize,
    is_ipv4: bool,
    protocol: u8,
    transport_at: usize,
}

fn network(frame: &[u8]) -> Option<Network> {
    let mut type_at = ADDRESSES_BYTES;
    while ETHERTYPE_VLAN.contains(&get16(frame, type_at)?) {
        type_at += VLAN_TAG_BYTES;
    }
    let at = type_at + 2;
    match get16(frame, type_at)? {
        ETHERTYPE_IPV4 => {
            let header_bytes = usize::from(frame.get(at)? & 0x0f) * 4;
            Some(Network {
                at,
                is_ipv4: true,
                protocol: *frame.get(at + 9)?,
                transport_at: at + header_bytes.max(20),
            })
        }
        ETHERTYPE_IPV6 => {
            let (protocol, transport_at) = skip_ipv6_extensions(frame, at)?;
            Some(Network {
                at,
                is_ipv4: false,
                protocol,
                transport_at,
            })
        }
        _ => None,
    }
}

/// The transport protocol behind the extension headers that leave it whole:
/// hop-by-hop, routing, destination options (RFC 8200 4).
fn skip_ipv6_extensions(frame: &[u8], network_at: usize) -> Option<(u8, usize)> {
    let mut protocol = *frame.get(network_at + 6)?;
    let mut at = network_at + IPV6_HEADER_BYTES;
    while matches!(protocol, 0 | 43 | 60) {
        protocol = *frame.get(at)?;
        at += (usize::from(*frame.get(at + 1)?) + 1) * 8;
    }
    Some((protocol, at))
}

/// A packet to be cut.
struct Segmentation<'a> {
    /// All headers, as they came.
    headers: &'a [u8],
    network: Network,
    checksum_offset: usize,
    /// The checksum field without the length: the same for every segment.
    checksum_base: u32,
    cwr_once: bool,
    segments: usize,
}

fn segment(
    data: &[u8],
    offload: Offload,
    vlan: Option<VlanTag>,
    emit: &mut impl FnMut(Vec<u8>),
) -> Option<()> {
    let network = network(data)?;
    let wanted = match offload.gso {
        GSO_TCP4 if network.is_ipv4 => PROTOCOL_TCP,
        GSO_TCP6 if !network.is_ipv4 => PROTOCOL_TCP,
        GSO_UDP => PROTOCOL_UDP,
        _ => return None,
    };
    let (checksum_start, checksum_offset) = offload.checksum?;
    let transport_at = network.transport_at;
    if network.protocol != wanted || checksum_start != transport_at || offload.segment_bytes == 0 {
        return None;
    }
    let header_bytes = match wanted {
        PROTOCOL_TCP => usize::from(data.get(transport_at + 12)? >> 4) * 4,
        _ => UDP_HEADER_BYTES,
    };
    let expected_offset = match wanted {
        PROTOCOL_TCP => TCP_CHECKSUM_OFFSET,
        _ => UDP_CHECKSUM_OFFSET,
    };
    if checksum_offset != expected_offset || (wanted == PROTOCOL_TCP && header_bytes < 20) {
        return None;
    }
    let (headers, payload) = data.split_at_checked(transport_at + header_bytes)?;
    // The field holds the pseudo-header's sum with the whole length in it.
    let whole_bytes = u16::try_from(data.len() - transport_at).ok()?;
    let field = get16(data, transport_at + checksum_offset)?;
    let cut = Segmentation {
        headers,
        network,
        checksum_offset,
        checksum_base: u32::from(field) + u32::from(!whole_bytes),
        cwr_once: offload.cwr_once,
        segments: payload.len().div_ceil(offload.segment_bytes),
    };
    for (index, chunk) in payload.chunks(offload.segment_bytes).enumerate() {
        let mut frame = cut.frame(index, index * offload.segment_bytes, chunk)?;
        insert_tag(&mut frame, vlan);
        emit(frame);
    }
    Some(())
}

impl Segmentation<'_> {
    /// Segment `index`, whose payload starts at `offset` of the whole.
    fn frame(&self, index: usize, offset: usize, payload: &[u8]) -> Option<Vec<u8>> {
        let mut frame = Vec::with_capacity(self.headers.len() + payload.len() + VLAN_TAG_BYTES);
        frame.extend_from_slice(self.headers);
        frame.extend_from_slice(payload);
        let transport_bytes = u16::try_from(frame.len() - self.network.transport_at).ok()?;
        self.write_network(&mut frame, index)?;
        let transport = frame.get_mut(self.network.transport_at..)?;
        if self.network.protocol == PROTOCOL_TCP {
            self.write_tcp(transport, index, offset)?;
        } else {
            put16(transport, 4, transport_bytes)?;
        }
        let base = fold(u64::from(self.checksum_base) + u64::from(transport_bytes));
        put16(transport, self.checksum_offset, base)?;
        finish_checksum(&mut frame, self.network.transport_at, self.checksum_offset)?;
        Some(frame)
    }

    fn write_network(&self, frame: &mut [u8], index: usize) -> Option<()> {
        let Network { at, is_ipv4, .. } = self.network;
        let network_bytes = frame.len() - at;
        if !is_ipv4 {
            let payload_bytes = u16::try_from(network_bytes - IPV6_HEADER_BYTES).ok()?;
            return put16(frame, at + 4, payload_bytes);
        }
        put16(frame, at + 2, u16::try_from(network_bytes).ok()?)?;
        // Every datagram has an identification of its own (RFC 791 3.2).
        let identification = get16(frame, at + 4)?.wrapping_add(index as u16);
        put16(frame, at + 4, identification)?;
        put16(frame, at + 10, 0)?;
        let header = frame.get(at..self.network.transport_at)?;
        let checksum = !fold(sum(header));
        put16(frame, at + 10, checksum)
    }

    fn write_tcp(&self, transport: &mut [u8], index: usize, offset: usize) -> Option<()> {
        let sequence_bytes = transport.get(4..8)?.try_into().ok()?;
        let sequence = u32::from_be_bytes(sequence_bytes).wrapping_add(offset as u32);
        transport
            .get_mut(4..8)?
            .copy_from_slice(&sequence.to_be_bytes());
        let flags = transport.get_mut(13)?;
        if index + 1 < self.segments {
            *flags &= !(TCP_FIN | TCP_PSH);
        }
        if index > 0 && self.cwr_once {
            *flags &= !TCP_CWR;
        }
        Some(())
    }
}

fn get16(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
    Some(u16::from_be_bytes(pair))
}

fn put16(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    bytes
        .get_mut(at..at.checked_add(2)?)?
        .copy_from_slice(&value.to_be_bytes());
    Some(())
}

/// Sum of big-endian 16-bit words, not yet folded (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    // Four bytes at a time: the carries of both halves are folded at the end.
    let mut total = 0u64;
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        total += u64::from(u32::from_be_bytes(*word));
    }
    let mut last = [0u8; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    total + u64::from(u32::from_be_bytes(last))
}

/// Folds a sum into one word, carries added back (RFC 1071).
fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// CRC-32C (Castagnoli), reflected, as SCTP uses it (RFC 9260 appendix A).
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (POLYNOMIAL & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offload(flags: u8, gso: u8, segment: u16, start: u16, offset: u16) -> Offload {
        let mut header = vec![flags, gso];
        for word in [0, segment, start, offset] {
            header.extend_from_slice(&word.to_ne_bytes());
        }
        Offload::parse(&header).unwrap()
    }

    fn all(data: &[u8], offload: Offload, vlan: Option<VlanTag>) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        finish(data, offload, vlan, |frame| frames.push(frame)).unwrap();
        frames
    }

    /// An Ethernet frame whose transport checksum holds the pseudo-header's
    /// sum only, as a stack with checksum offload leaves it.
    fn packet(is_ipv4: bool, protocol: u8, transport: &[u8], checksum_at: usize) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let length = transport.len() as u16;
        let addresses: Vec<u8> = if is_ipv4 {
            frame.extend_from_slice(&[0x08, 0x00, 0x45, 0]);
            frame.extend_from_slice(&(length + 20).to_be_bytes());
            frame.extend_from_slice(&[0xff, 0xff, 0x40, 0, 64, protocol, 0, 0]);
            vec![10, 0, 0, 1, 10, 0, 0, 2]
        } else {
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend_from_slice(&length.to_be_bytes());
            frame.extend_from_slice(&[protocol, 64]);
            (0..32).collect()
        };
        frame.extend_from_slice(&addresses);
        if is_ipv4 {
            let checksum = !fold(sum(&frame[14..]));
            put16(&mut frame, 24, checksum).unwrap();
        }
        let pseudo = fold(sum(&addresses) + u64::from(protocol) + u64::from(length));
        let at = frame.len() + checksum_at;
        frame.extend_from_slice(transport);
        put16(&mut frame, at, pseudo).unwrap();
        frame
    }

    fn tcp(flags: u8, payload: usize) -> Vec<u8> {
        // Ports, sequence number close to its end, 12 bytes of options.
        let mut header = vec![
            0x10, 0, 0x20, 0, 0xff, 0xff, 0xfc, 0, 0, 0, 0, 9, 0x80, flags,
        ];
        header.extend_from_slice(&[1, 0, 0, 0, 0, 0, 1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        header.extend((0..payload).map(|at| (at * 7 + at / 256) as u8));
        header
    }

    /// Whether IP and transport checksums of a finished frame are right.
    fn assert_valid(frame: &[u8]) {
        let network = network(frame).unwrap();
        let transport = &frame[network.transport_at..];
        let addresses = if network.is_ipv4 {
            let header = &frame[network.at..network.transport_at];
            assert_eq!(fold(sum(header)), 0xffff, "IPv4 header checksum");
            let total = usize::from(get16(frame, network.at + 2).unwrap());
            assert_eq!(total, frame.len() - network.at, "IPv4 total length");
            &frame[network.at + 12..network.at + 20]
        } else {
            let length = usize::from(get16(frame, network.at + 4).unwrap());
            assert_eq!(length, frame.len() - network.at - 40, "IPv6 payload length");
            &frame[network.at + 8..network.at + 40]
        };
        let pseudo = sum(addresses) + u64::from(network.protocol) + transport.len() as u64;
        assert_eq!(fold(pseudo + sum(transport)), 0xffff, "transport checksum");
    }

    #[test]
    fn a_finished_frame_stays_as_it_is() {
        let frame: Vec<u8> = (0..60).collect();
        assert_eq!(all(&frame, offload(0, 0, 0, 0, 0), None), [frame]);
    }

    #[test]
    fn a_vlan_tag_goes_back_to_its_place() {
        let frame: Vec<u8> = (0..60).collect();
        let tag = VlanTag {
            protocol: 0x8100,
            control: 0xe00a,
        };
        let tagged = all(&frame, offload(0, 0, 0, 0, 0), Some(tag)).remove(0);
        assert_eq!(tagged.len(), 64);
        assert_eq!(tagged[..12], frame[..12]);
        assert_eq!(tagged[12..16], [0x81, 0x00, 0xe0, 0x0a]);
        assert_eq!(tagged[16..], frame[12..]);
    }

    #[test]
    fn unfinished_checksums_are_finished() {
        for is_ipv4 in [true, false] {
            let start = if is_ipv4 { 34 } else { 54 };
            for payload in [0, 1, 2, 3, 1448] {
                let data = packet(is_ipv4, PROTOCOL_TCP, &tcp(0x18, payload), 16);
                let frames = all(&data, offload(1, 0, 0, start, 16), None);
                assert_eq!(frames.len(), 1);
                assert_valid(&frames[0]);
            }
        }
    }

    #[test]
    fn a_udp_checksum_of_zero_is_sent_as_ones() {
        // Search a payload word for which the sum comes out as zero.
        let zero = (0..=u16::MAX).find_map(|word| {
            let mut datagram = vec![0, 1, 0, 2, 0, 10, 0, 0];
            datagram.extend_from_slice(&word.to_be_bytes());
            let data = packet(true, PROTOCOL_UDP, &datagram, 6);
            let finished = all(&data, offload(1, 0, 0, 34, 6), None).remove(0);
            assert_ne!(finished[40..42], [0, 0]);
            (finished[40..42] == [0xff, 0xff]).then_some(finished)
        });
        assert_valid(&zero.unwrap());
    }

    #[test]
    fn sctp_gets_its_crc() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let mut chunk = vec![0, 1, 0, 2, 0, 0, 0, 3, 0xaa, 0xbb, 0xcc, 0xdd, 1, 0, 0, 4];
        let data = packet(true, PROTOCOL_SCTP, &chunk, 8);
        let finished = all(&data, offload(1, 0, 0, 34, 8), None).remove(0);
        chunk[8..12].fill(0);
        assert_eq!(finished[42..46], crc32c(&chunk).to_le_bytes());
    }

    #[test]
    fn tcp_is_cut_as_a_network_card_cuts_it() {
        for (is_ipv4, gso) in [(true, GSO_TCP4), (false, GSO_TCP6)] {
            let start: u16 = if is_ipv4 { 34 } else { 54 };
            let whole = tcp(TCP_CWR | TCP_PSH | TCP_FIN | 0x10, 4000);
            let data = packet(is_ipv4, PROTOCOL_TCP, &whole, 16);
            let frames = all(&data, offload(1, gso | GSO_FLAG_ECN, 1448, start, 16), None);
            assert_eq!(frames.len(), 3);
            let mut payload = Vec::new();
            for (index, frame) in frames.iter().enumerate() {
                assert_valid(frame);
                let transport = &frame[usize::from(start)..];
                let sequence = u32::from_be_bytes(transport[4..8].try_into().unwrap());
                assert_eq!(sequence, 0xffff_fc00u32.wrapping_add(1448 * index as u32));
                let flags = transport[13];
                let last = index == 2;
                assert_eq!(flags & TCP_CWR != 0, index == 0);
                assert_eq!(flags & (TCP_PSH | TCP_FIN) != 0, last);
                if is_ipv4 {
                    let identification = get16(frame, 18).unwrap();
                    assert_eq!(identification, 0xffffu16.wrapping_add(index as u16));
                }
                payload.extend_from_slice(&transport[32..]);
            }
            assert_eq!(payload, whole[32..]);
            assert_eq!(frames[0].len(), usize::from(start) + 32 + 1448);
        }
    }

    #[test]
    fn accurate_ecn_keeps_its_counter_on_every_segment() {
        let data = packet(true, PROTOCOL_TCP, &tcp(TCP_CWR | 0x10, 3000), 16);
        for frame in all(&data, offload(1, GSO_TCP4, 1000, 34, 16), None) {
            assert_eq!(frame[34 + 13] & TCP_CWR, TCP_CWR);
            assert_valid(&frame);
        }
    }

    #[test]
    fn udp_is_cut_into_datagrams() {
        let mut whole = vec![0x10, 0, 0x20, 0, 0, 0, 0, 0];
        whole.extend((0..2500).map(|at| at as u8));
        let length = whole.len() as u16;
        whole[4..6].copy_from_slice(&length.to_be_bytes());
        let data = packet(true, PROTOCOL_UDP, &whole, 6);
        let frames = all(&data, offload(1, GSO_UDP, 1200, 34, 6), None);
        let lengths: Vec<u16> = frames.iter().map(|f| get16(f, 38).unwrap()).collect();
        assert_eq!(lengths, [1208, 1208, 108]);
        frames.iter().for_each(|frame| assert_valid(frame));
    }

    #[test]
    fn tagged_segments_are_cut_and_tagged_again() {
        // An inner tag in the frame, an outer one that the kernel took out.
        let mut data = packet(true, PROTOCOL_TCP, &tcp(0x10, 2000), 16);
        data.splice(12..12, [0x81, 0, 0, 5]);
        let tag = VlanTag {
            protocol: 0x88a8,
            control: 7,
        };
        let frames = all(&data, offload(1, GSO_TCP4, 1448, 38, 16), Some(tag));
        assert_eq!(frames.len(), 2);
        for frame in frames {
            assert_eq!(frame[12..20], [0x88, 0xa8, 0, 7, 0x81, 0, 0, 5]);
            assert_valid(&frame);
        }
    }

    #[test]
    fn what_cannot_be_cut_rightly_is_refused() {
        let data = packet(true, PROTOCOL_TCP, &tcp(0x10, 3000), 16);
        let bad = [
            offload(1, GSO_TCP6, 1448, 34, 16),
            offload(1, GSO_UDP, 1448, 34, 6),
            // The transport header is not where the packet says: a tunnel.
            offload(1, GSO_TCP4, 1448, 84, 16),
            offload(1, GSO_TCP4, 0, 34, 16),
            offload(0, GSO_TCP4, 1448, 34, 16),
            offload(1, 77, 1448, 34, 16),
            offload(1, 0, 0, 34, 65535),
        ];
        for offload in bad {
            assert_eq!(
                finish(&data, offload, None, drop),
                Err(Unfinishable),
                "{offload:?}"
            );
        }
        assert_eq!(finish(&[0; 13], bad[6], None, drop), Err(Unfinishable));
    }

    proptest::proptest! {
        #[test]
        fn nonsense_never_panics(
            mut data in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
            header in proptest::array::uniform10(proptest::num::u8::ANY),
            shape in 0usize..4,
        ) {
            // Let some of it look like IP, so that it gets further.
            let kinds = [[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00], [0, 0]];
            if let Some(kind) = data.get_mut(12..14) {
                kind.copy_from_slice(&kinds[shape]);
            }
            let mut bytes = 0;
            let _ = finish(&data, Offload::parse(&header).unwrap(), None, |frame| bytes += frame.len());
            // Headers may be repeated for every byte of payload, not more.
            proptest::prop_assert!(bytes <= data.len() * data.len() + data.len());
        }
    }
}
