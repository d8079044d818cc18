//! What the emulator carries: anything with a length.

/// Bytes of an Ethernet header without a VLAN tag.
pub const ETHERNET_HEADER_BYTES: usize = 14;

const VLAN_TAG_BYTES: usize = 4;
/// EtherTypes that announce a VLAN tag: IEEE 802.1Q and 802.1ad.
const VLAN_ETHERTYPES: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];

/// A packet the emulator can carry.
///
/// `Vec<u8>` implements it as an Ethernet frame without preamble and FCS;
/// tests and simulators implement it for their own small types.
pub trait Packet: Clone {
    /// Length of the frame in bytes, header included, preamble and FCS not.
    fn frame_bytes(&self) -> usize;

    /// Bytes of `frame_bytes` that precede the network layer; an MTU and
    /// the framings that count network-layer bytes subtract them.
    fn header_bytes(&self) -> usize {
        ETHERNET_HEADER_BYTES
    }

    /// Flips one bit. `bit` is any number: reduce it modulo what there is.
    fn corrupt(&mut self, bit: u64);
}

/// An Ethernet frame without preamble and FCS. Corruption flips a bit behind
/// the Ethernet header, because a frame with a wrong address or type would
/// vanish at the next interface and could not be told from a lost one.
impl Packet for Vec<u8> {
    fn frame_bytes(&self) -> usize {
        self.len()
    }

    fn header_bytes(&self) -> usize {
        let mut at = ETHERNET_HEADER_BYTES;
        // At most two tags (802.1ad): more is not a frame anybody sends.
        for _ in 0..2 {
            match self.get(at.saturating_sub(2)..at) {
                Some(kind) if VLAN_ETHERTYPES.iter().any(|vlan| vlan == kind) => {
                    at += VLAN_TAG_BYTES;
                }
                _ => break,
            }
        }
        at
    }

    fn corrupt(&mut self, bit: u64) {
        let header = self.header_bytes();
        let start = if self.len() > header { header } else { 0 };
        let bits = (self.len() - start) as u64 * 8;
        if bits == 0 {
            return;
        }
        let bit = bit % bits;
        if let Some(byte) = self.get_mut(start + (bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_changes_one_bit_behind_the_header() {
        for bit in [0, 7, 8, 799, 800, u64::MAX] {
            let clean = vec![0u8; 114];
            let mut frame = clean.clone();
            frame.corrupt(bit);
            let ones: u32 = frame.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(ones, 1);
            assert_eq!(frame[..14], clean[..14]);
        }
    }

    #[test]
    fn corruption_of_a_runt_stays_inside_it() {
        let mut empty: Vec<u8> = Vec::new();
        empty.corrupt(5);
        assert!(empty.is_empty());
        let mut runt = vec![0u8; 3];
        runt.corrupt(25);
        assert_eq!(runt, vec![2, 0, 0]);
    }

    #[test]
    fn vlan_tags_belong_to_the_header() {
        let mut frame = vec![0u8; 64];
        assert_eq!(frame.header_bytes(), 14);
        frame[12..14].copy_from_slice(&[0x81, 0x00]);
        assert_eq!(frame.header_bytes(), 18);
        frame[12..14].copy_from_slice(&[0x88, 0xa8]);
        frame[16..18].copy_from_slice(&[0x81, 0x00]);
        assert_eq!(frame.header_bytes(), 22);
    }
}
