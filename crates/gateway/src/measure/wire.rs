//! What two gateways tell each other in a measuring flow.
//!
//! | from | bytes | what |
//! |---|---|---|
//! | asking | 16 | version 1, 3 zero, milliseconds 4, most bytes per second 8 (0: no bound) |
//! | asking | any | filler, as long as the time lasts; then the flow's end |
//! | asked | 16 | what arrived of it: bytes of Ethernet frames 8, nanoseconds in which they did 8 |
//! | asked | any | filler, as long as the time lasts |
//! | asked | 24 | what its controller saw: least round trip in ns 8, queue in ns 8, loss in 10^-9 4, phase 4; then the flow's end |

use std::time::Duration;

/// Longest time of one direction.
pub(super) const LONGEST: Duration = Duration::from_secs(30);
const VERSION: u8 = 1;

/// What the asking gateway wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Of each direction.
    pub(super) length: Duration,
    /// Most bytes per second that either sends.
    pub(super) bytes_s_max: Option<u64>,
}

/// What a receiver saw of the tunnel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    /// Ethernet frames.
    pub(super) bytes: u64,
    /// In so many nanoseconds.
    pub(super) ns: u64,
}

/// What a sender's controller saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) rtt_ns: u64,
    pub(super) queue_ns: u64,
    pub(super) loss_ppb: u32,
    pub(super) phase: Phase,
}

/// As far as a measurement is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// It was still finding out what the path carries.
    Climb,
    /// It knows.
    Steady,
    /// Others share the path and fill it.
    Compete,
}

impl Wanted {
    pub(super) const BYTES: usize = 16;

    pub(super) fn write(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let ms = u32::try_from(self.length.as_millis()).unwrap_or(u32::MAX);
        out[0] = VERSION;
        out[4..8].copy_from_slice(&ms.to_be_bytes());
        out[8..].copy_from_slice(&self.bytes_s_max.unwrap_or(0).to_be_bytes());
        out
    }

    /// `None` where it is of another version or asks for more than anybody gets.
    pub(super) fn read(block: [u8; Self::BYTES]) -> Option<Self> {
        let [version, _, _, _, a, b, c, d, rest @ ..] = block;
        let length = Duration::from_millis(u32::from_be_bytes([a, b, c, d]).into());
        let bytes_s = u64::from_be_bytes(rest);
        let is_sane = version == VERSION && !length.is_zero() && length <= LONGEST;
        is_sane.then_some(Self {
            length,
            bytes_s_max: (bytes_s > 0).then_some(bytes_s),
        })
    }
}

impl Arrived {
    pub(super) const BYTES: usize = 16;

    pub(super) fn write(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.bytes.to_be_bytes());
        out[8..].copy_from_slice(&self.ns.to_be_bytes());
        out
    }

    pub(super) fn read(block: [u8; Self::BYTES]) -> Self {
        let number = u128::from_be_bytes(block);
        Self {
            bytes: (number >> 64) as u64,
            ns: number as u64,
        }
    }

    pub(super) fn bit_per_s(&self) -> f64 {
        match self.ns {
            0 => 0.0,
            ns => self.bytes as f64 * 8e9 / ns as f64,
        }
    }
}

impl Seen {
    pub(super) const BYTES: usize = 24;

    pub(super) fn write(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let phase: u32 = match self.phase {
            Phase::Climb => 0,
            Phase::Steady => 1,
            Phase::Compete => 2,
        };
        out[..8].copy_from_slice(&self.rtt_ns.to_be_bytes());
        out[8..16].copy_from_slice(&self.queue_ns.to_be_bytes());
        out[16..20].copy_from_slice(&self.loss_ppb.to_be_bytes());
        out[20..].copy_from_slice(&phase.to_be_bytes());
        out
    }

    /// `None` where the phase is none.
    pub(super) fn read(block: [u8; Self::BYTES]) -> Option<Self> {
        let (head, tail) = block.split_at(16);
        let (loss, phase) = tail.split_at(4);
        let (rtt, queue) = head.split_at(8);
        Some(Self {
            rtt_ns: u64::from_be_bytes(rtt.try_into().ok()?),
            queue_ns: u64::from_be_bytes(queue.try_into().ok()?),
            loss_ppb: u32::from_be_bytes(loss.try_into().ok()?).min(1_000_000_000),
            phase: match u32::from_be_bytes(phase.try_into().ok()?) {
                0 => Phase::Climb,
                1 => Phase::Steady,
                2 => Phase::Compete,
                _ => return None,
            },
        })
    }
}

impl Phase {
    pub(super) fn word(self) -> &'static str {
        match self {
            Phase::Climb => "climb",
            Phase::Steady => "steady",
            Phase::Compete => "compete",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn invariant_10_blocks_are_as_they_were() {
        let wanted = Wanted {
            length: Duration::from_secs(8),
            bytes_s_max: Some(1_250_000),
        };
        assert_eq!(hex(&wanted.write()), "0100000000001f4000000000001312d0");
        assert_eq!(Wanted::read(wanted.write()), Some(wanted));
        let arrived = Arrived {
            bytes: 25_000_000,
            ns: 4_000_000_000,
        };
        assert_eq!(hex(&arrived.write()), "00000000017d784000000000ee6b2800");
        assert_eq!(Arrived::read(arrived.write()), arrived);
        assert!((arrived.bit_per_s() - 50e6).abs() < 1.0);
        let seen = Seen {
            rtt_ns: 100_000_000,
            queue_ns: 1_000_000,
            loss_ppb: 10_000_000,
            phase: Phase::Compete,
        };
        let golden = "0000000005f5e10000000000000f42400098968000000002";
        assert_eq!(hex(&seen.write()), golden);
        assert_eq!(Seen::read(seen.write()), Some(seen));
    }

    #[test]
    fn invariant_6_blocks_of_any_bytes_are_read() {
        let whole = Wanted {
            length: LONGEST,
            bytes_s_max: None,
        };
        assert_eq!(Wanted::read(whole.write()), Some(whole));
        let mut other = whole.write();
        other[0] = 2;
        assert_eq!(Wanted::read(other), None);
        assert_eq!(Wanted::read([0; 16]), None);
        assert_eq!(Wanted::read([0xff; 16]), None);
        assert_eq!(Seen::read([0xff; 24]), None);
        assert_eq!(Arrived::read([0; 16]).bit_per_s(), 0.0);
        assert!(Arrived::read([0xff; 16]).bit_per_s().is_finite());
    }
}
