//! Rate and the exact arithmetic of sending bytes at it.

use std::fmt;

const NS_PER_S: u128 = 1_000_000_000;

/// Bits per second, from 1 bit/s to 10 Tbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

impl Rate {
    /// Highest rate accepted: 10 Tbit/s. Above it a full-size frame would
    /// take about a nanosecond and the clock of the model would be too coarse.
    pub const MAX_BIT_PER_S: u64 = 10_000_000_000_000;

    /// From bits per second; `None` for 0 and above [`Rate::MAX_BIT_PER_S`].
    pub const fn from_bit_per_s(bit_per_s: u64) -> Option<Self> {
        if bit_per_s == 0 || bit_per_s > Self::MAX_BIT_PER_S {
            return None;
        }
        Some(Self(bit_per_s))
    }

    /// For the table of named profiles, whose numbers are constants.
    pub(crate) const fn constant(bit_per_s: u64) -> Self {
        Self(bit_per_s)
    }

    /// Bits per second.
    pub const fn bit_per_s(self) -> u64 {
        self.0
    }

    /// Time to send `bytes`, in nanoseconds rounded down.
    pub fn time_ns(self, bytes: u64) -> u64 {
        clamp(u128::from(bytes) * 8 * NS_PER_S / u128::from(self.0))
    }

    /// Bytes sent in `time_ns`, rounded down.
    pub fn bytes_in(self, time_ns: u64) -> u64 {
        clamp(u128::from(time_ns) * u128::from(self.0) / (8 * NS_PER_S))
    }
}

/// Prints in the largest decimal unit that needs no rounding: `51.84mbit`.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name, digits) = match self.0 {
            1_000_000_000.. => (1_000_000_000, "gbit", 9),
            1_000_000.. => (1_000_000, "mbit", 6),
            1_000.. => (1_000, "kbit", 3),
            _ => (1, "bit", 0),
        };
        let rest = self.0 % unit;
        write!(f, "{}", self.0 / unit)?;
        if rest > 0 {
            let decimals = format!("{rest:0digits$}");
            write!(f, ".{}", decimals.trim_end_matches('0'))?;
        }
        f.write_str(name)
    }
}

fn clamp(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// When the transmitter becomes free, kept to a fraction of a nanosecond
/// whose denominator is the rate: back-to-back packets therefore leave at the
/// exact rate for ever, whatever their lengths.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Departure {
    /// Whole nanoseconds.
    pub(crate) at_ns: u64,
    /// Remaining fraction, in units of 1/rate nanoseconds.
    remainder: u64,
}

impl Departure {
    /// Sends `bytes`, starting at `start_ns` or when the previous packet is
    /// through, whichever is later.
    pub(crate) fn send(self, start_ns: u64, rate: Rate, bytes: u64) -> Self {
        let from = if start_ns > self.at_ns {
            Self {
                at_ns: start_ns,
                remainder: 0,
            }
        } else {
            self
        };
        let work = u128::from(bytes) * 8 * NS_PER_S + u128::from(from.remainder);
        from.at_ns_plus(work, rate)
    }

    /// The same transmission from `now_ns` on at another rate: what is left
    /// of the packet is sent at the new one.
    pub(crate) fn change_rate(self, now_ns: u64, old: Rate, new: Rate) -> Self {
        let left_ns = self.at_ns.saturating_sub(now_ns);
        let work = u128::from(left_ns) * u128::from(old.0) + u128::from(self.remainder);
        Self {
            at_ns: now_ns,
            remainder: 0,
        }
        .at_ns_plus(work, new)
    }

    /// `work` is in units of 1/rate nanoseconds, which is bits x 10^9.
    fn at_ns_plus(self, work: u128, rate: Rate) -> Self {
        let rate = u128::from(rate.0);
        Self {
            at_ns: self.at_ns.saturating_add(clamp(work / rate)),
            remainder: clamp(work % rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_of_odd_packets_leaves_at_the_exact_rate() {
        // 44.736 Mbit/s and 1513 bytes: no packet takes whole nanoseconds.
        let rate = Rate::from_bit_per_s(44_736_000).unwrap();
        let packets: u64 = 3600 * 44_736_000 / (1513 * 8);
        let mut departure = Departure::default();
        for _ in 0..packets {
            departure = departure.send(0, rate, 1513);
        }
        let exact = u128::from(packets) * 1513 * 8 * NS_PER_S / 44_736_000;
        assert_eq!(u128::from(departure.at_ns), exact);
    }

    #[test]
    fn a_change_of_rate_sends_the_rest_at_the_new_one() {
        let slow = Rate::from_bit_per_s(8_000).unwrap();
        let fast = Rate::from_bit_per_s(80_000).unwrap();
        // 1000 bytes at 1000 byte/s: after 0.4 s 600 bytes are left, which
        // take 60 ms at ten times the rate.
        let departure = Departure::default().send(0, slow, 1000);
        assert_eq!(departure.at_ns, 1_000_000_000);
        let departure = departure.change_rate(400_000_000, slow, fast);
        assert_eq!(departure.at_ns, 460_000_000);
    }

    #[test]
    fn prints_exactly() {
        let text = |bits| Rate::from_bit_per_s(bits).unwrap().to_string();
        assert_eq!(text(51_840_000), "51.84mbit");
        assert_eq!(text(64_000), "64kbit");
        assert_eq!(text(1_000_000_000), "1gbit");
        assert_eq!(text(1_000_000_001), "1.000000001gbit");
        assert_eq!(text(7), "7bit");
        assert_eq!(Rate::from_bit_per_s(0), None);
        assert_eq!(Rate::from_bit_per_s(Rate::MAX_BIT_PER_S + 1), None);
    }
}
