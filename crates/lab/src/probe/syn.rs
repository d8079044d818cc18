//! The options of a SYN, as they arrived: what a box on the way took out of it
//! shows when it is held against what was sent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a SYN asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SynOptions {
    /// Type of service or traffic class: DSCP and ECN.
    pub tos: u8,
    /// Hops it may still have gone.
    pub hop_limit: u8,
    /// Whether it asked for ECN.
    pub asks_ecn: bool,
    /// Maximum segment size.
    pub mss_bytes: Option<u16>,
    /// Window scale.
    pub window_shift: Option<u8>,
    /// Selective acknowledgements.
    pub sack: bool,
    /// Timestamps.
    pub timestamps: bool,
}

impl SynOptions {
    /// From IP and TCP header; `None` where they are not whole.
    pub(crate) fn read(packet: &[u8]) -> Option<Self> {
        let first = *packet.first()?;
        let (tos, hop_limit, tcp) = match first >> 4 {
            4 => {
                let header_bytes = usize::from(first & 15) * 4;
                (
                    *packet.get(1)?,
                    *packet.get(8)?,
                    packet.get(header_bytes..)?,
                )
            }
            6 => {
                let class = (first << 4) | (packet.get(1)? >> 4);
                (class, *packet.get(7)?, packet.get(40..)?)
            }
            _ => return None,
        };
        let header_bytes = usize::from(tcp.get(12)? >> 4) * 4;
        let flags = *tcp.get(13)?;
        let mut found = Self {
            tos,
            hop_limit,
            // RFC 3168 6.1.1: both ECE and CWR.
            asks_ecn: flags & 0xc0 == 0xc0,
            ..Self::default()
        };
        found.read_options(tcp.get(20..header_bytes)?);
        Some(found)
    }

    /// RFC 9293 3.1, RFC 7323, RFC 2018. What is cut short ends the list.
    fn read_options(&mut self, mut rest: &[u8]) {
        loop {
            match rest {
                [1, more @ ..] => rest = more,
                [kind, length, ..] if *kind != 0 && *length >= 2 => {
                    let Some((option, more)) = rest.split_at_checked(usize::from(*length)) else {
                        return;
                    };
                    match option {
                        [2, 4, high, low] => {
                            self.mss_bytes = Some(u16::from_be_bytes([*high, *low]))
                        }
                        [3, 3, shift] => self.window_shift = Some(*shift),
                        [4, 2] => self.sack = true,
                        [8, 10, ..] => self.timestamps = true,
                        _ => {}
                    }
                    rest = more;
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 SYN of Linux: MSS 1460, SACK, timestamps, scale 7, DSCP 46.
    fn syn() -> Vec<u8> {
        let mut packet = vec![0x45, 0xb8, 0, 60, 0, 0, 0x40, 0, 62, 6, 0, 0];
        packet.extend([10, 1, 0, 2, 10, 2, 0, 2]);
        packet.extend([0; 12]);
        packet.extend([0xa0, 0xc2, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend([
            2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7,
        ]);
        packet
    }

    #[test]
    fn a_syn_is_read() {
        let expected = SynOptions {
            tos: 0xb8,
            hop_limit: 62,
            asks_ecn: true,
            mss_bytes: Some(1460),
            window_shift: Some(7),
            sack: true,
            timestamps: true,
        };
        assert_eq!(SynOptions::read(&syn()), Some(expected));
    }

    #[test]
    fn no_cut_or_change_makes_trouble() {
        for length in 0..syn().len() {
            let _ = SynOptions::read(&syn()[..length]);
        }
        for at in 0..syn().len() {
            for value in [0, 1, 2, 3, 0x0f, 0xf0, 0xff] {
                let mut odd = syn();
                odd[at] = value;
                let _ = SynOptions::read(&odd);
            }
        }
    }
}
