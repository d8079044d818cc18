//! Numbers with units: read exactly, printed so that reading gives the same.

use std::fmt;

/// Writes a time in the largest unit that needs no rounding: `100ms`.
pub(crate) fn write_time(f: &mut fmt::Formatter<'_>, ns: u64) -> fmt::Result {
    let (unit, name) = match ns {
        0 => (1_000_000, "ms"),
        _ if ns.is_multiple_of(1_000_000_000) => (1_000_000_000, "s"),
        _ if ns.is_multiple_of(1_000_000) => (1_000_000, "ms"),
        _ if ns.is_multiple_of(1_000) => (1_000, "us"),
        _ => (1, "ns"),
    };
    write!(f, "{}{name}", ns / unit)
}

/// A unit: its names, the first one used in messages, and its size.
type Unit = (&'static [&'static str], u64);

/// Times in nanoseconds.
const TIME_UNITS: [Unit; 4] = [
    (&["s", "sec", "secs"], 1_000_000_000),
    (&["ms", "msec", "msecs"], 1_000_000),
    (&["us", "usec", "usecs", "µs"], 1_000),
    (&["ns", "nsec", "nsecs"], 1),
];

/// Rates in bit/s. A number alone is bit/s, as in tc.
const RATE_UNITS: [Unit; 9] = [
    (&["bit", "bit/s", ""], 1),
    (&["kbit", "kbit/s", "k"], 1_000),
    (&["mbit", "mbit/s", "m"], 1_000_000),
    (&["gbit", "gbit/s", "g"], 1_000_000_000),
    (&["tbit", "tbit/s", "t"], 1_000_000_000_000),
    (&["kibit", "kibit/s"], 1 << 10),
    (&["mibit", "mibit/s"], 1 << 20),
    (&["gibit", "gibit/s"], 1 << 30),
    (&["tibit", "tibit/s"], 1 << 40),
];

/// Sizes in bytes. `k` alone can be nothing else where a size is expected; `m`
/// could be minutes.
const SIZE_UNITS: [Unit; 7] = [
    (&["b", "byte", "bytes"], 1),
    (&["kb", "kbyte", "k"], 1_000),
    (&["mb", "mbyte"], 1_000_000),
    (&["gb", "gbyte"], 1_000_000_000),
    (&["kib"], 1 << 10),
    (&["mib"], 1 << 20),
    (&["gib"], 1 << 30),
];

/// Counts of packets.
const PACKET_UNITS: [Unit; 1] = [(&["p", "packet", "packets", "pkt", "pkts"], 1)];

/// tc reads these as bytes per second, most people as bits.
const AMBIGUOUS_RATES: [&str; 9] = [
    "bps", "kbps", "mbps", "gbps", "tbps", "kibps", "mibps", "gibps", "tibps",
];

const NEGATIVE: &str = "a negative value is impossible";

/// What a quantity with a unit can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    Ns(u64),
    BitPerS(u64),
    Bytes(u64),
    Packets(u64),
}

/// Reads a time; the error says what is wrong and what is accepted.
pub(crate) fn time_ns(word: &str) -> Result<u64, String> {
    match quantity(word, &[Kind::Time])? {
        Quantity::Ns(ns) => Ok(ns),
        _ => Err(Kind::Time.expected()),
    }
}

/// Reads a rate in bit/s.
pub(crate) fn bit_per_s(word: &str) -> Result<u64, String> {
    match quantity(word, &[Kind::Rate])? {
        Quantity::BitPerS(bits) => Ok(bits),
        _ => Err(Kind::Rate.expected()),
    }
}

/// Reads the bound of a queue: bytes, packets or a time.
pub(crate) fn queue(word: &str) -> Result<Quantity, String> {
    quantity(word, &[Kind::Size, Kind::Packets, Kind::Time])
}

/// Reads a percentage as parts per billion, not yet checked against 100 %.
pub(crate) fn percent_ppb(word: &str) -> Result<u64, String> {
    let (number, unit) = split(word)?;
    if unit != "%" {
        return Err(match unit {
            "" => format!("a percentage needs its sign: write {word}%"),
            _ => "expected a percentage such as 1% or 0.05%".to_owned(),
        });
    }
    number.times(
        u64::from(crate::probability::PARTS_PER_PERCENT),
        "0.0000001%",
    )
}

/// Reads a number without unit that may have decimals.
pub(crate) fn plain(word: &str) -> Result<f64, String> {
    match split(word)? {
        (number, "") => Ok(number.digits as f64 / 10f64.powi(number.decimals as i32)),
        _ => Err("expected a number without unit".to_owned()),
    }
}

/// Reads a whole number without unit.
pub(crate) fn whole(word: &str) -> Result<u64, &'static str> {
    word.parse().map_err(|_| match word.starts_with('-') {
        true => NEGATIVE,
        false => "expected a whole number without unit",
    })
}

/// Whether a word starts like a number, so that an optional value follows.
pub(crate) fn looks_like_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Time,
    Rate,
    Size,
    Packets,
}

impl Kind {
    fn units(self) -> &'static [Unit] {
        match self {
            Self::Time => &TIME_UNITS,
            Self::Rate => &RATE_UNITS,
            Self::Size => &SIZE_UNITS,
            Self::Packets => &PACKET_UNITS,
        }
    }

    fn expected(self) -> String {
        match self {
            Self::Time => "expected a time such as 100ms, 250us or 1.5s",
            Self::Rate => "expected a rate such as 51.84mbit, 64kbit or 1gbit",
            Self::Size => "expected a size such as 64kb, 256kib or 1mb",
            Self::Packets => "expected a number of packets such as 50p",
        }
        .to_owned()
    }

    fn make(self, value: u64) -> Quantity {
        match self {
            Self::Time => Quantity::Ns(value),
            Self::Rate => Quantity::BitPerS(value),
            Self::Size => Quantity::Bytes(value),
            Self::Packets => Quantity::Packets(value),
        }
    }
}

fn quantity(word: &str, kinds: &[Kind]) -> Result<Quantity, String> {
    let expected = || {
        kinds
            .iter()
            .map(|kind| kind.expected())
            .collect::<Vec<_>>()
            .join(", or ")
    };
    let (number, unit) = split(word).map_err(|why| format!("{why}: {}", expected()))?;
    let unit = unit.to_lowercase();
    for kind in kinds {
        for (names, size) in kind.units() {
            if names.contains(&unit.as_str()) {
                let smallest = kind
                    .units()
                    .iter()
                    .map(|(_, size)| *size)
                    .min()
                    .unwrap_or(1);
                let name = kind.units().iter().find(|(_, size)| *size == smallest);
                let name = name
                    .and_then(|(names, _)| names.first())
                    .copied()
                    .unwrap_or_default();
                return Ok(kind.make(number.times(*size, &format!("1{name}"))?));
            }
        }
    }
    // Zero is zero in any unit; it needs none.
    if number.digits == 0 && unit.is_empty() {
        return kinds.first().map(|kind| kind.make(0)).ok_or_else(expected);
    }
    Err(unknown_unit(word, &unit, kinds, &expected()))
}

fn unknown_unit(word: &str, unit: &str, kinds: &[Kind], expected: &str) -> String {
    let is_rate = kinds.iter().any(|kind| matches!(kind, Kind::Rate));
    if is_rate && AMBIGUOUS_RATES.contains(&unit) {
        let prefix = unit.trim_end_matches("bps");
        return format!(
            "`{unit}` is bytes per second to tc and bits per second to most people: write {prefix}bit for bits, or the number times eight"
        );
    }
    if unit.is_empty() {
        return format!("{word} has no unit: {expected}");
    }
    let names = kinds
        .iter()
        .flat_map(|kind| kind.units())
        .flat_map(|(names, _)| names.iter());
    match crate::suggest::closest(unit, names.copied()) {
        Some(close) => format!("unknown unit `{unit}`, did you mean `{close}`? {expected}"),
        None => format!("unknown unit `{unit}`: {expected}"),
    }
}

/// A decimal number, exactly: `digits` / 10^`decimals`.
#[derive(Debug, Clone, Copy)]
struct Decimal {
    digits: u128,
    decimals: u32,
}

/// More digits than any quantity here can use, and few enough for 128 bits.
const DIGITS_MAX: usize = 20;

impl Decimal {
    /// Times `size`, rounded to the nearest whole; refuses what does not fit
    /// and what would be rounded to nothing.
    fn times(self, size: u64, smallest: &str) -> Result<u64, String> {
        let divisor = 10u128.pow(self.decimals);
        let product = self.digits.saturating_mul(u128::from(size));
        let rounded = product.saturating_add(divisor / 2) / divisor;
        if rounded == 0 && self.digits > 0 {
            return Err(format!(
                "too small: the least that can be told from 0 is {smallest}"
            ));
        }
        u64::try_from(rounded).map_err(|_| "too large".to_owned())
    }
}

/// Splits a word into its number and its unit.
fn split(word: &str) -> Result<(Decimal, &str), String> {
    if word.starts_with('-') {
        return Err(NEGATIVE.to_owned());
    }
    let word = word.strip_prefix('+').unwrap_or(word);
    let end = word
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(word.len());
    let (number, unit) = word.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err("not a number".to_owned());
    }
    if whole.len() + fraction.len() > DIGITS_MAX {
        return Err(format!("more than {DIGITS_MAX} digits"));
    }
    let digits = format!("{whole}{fraction}")
        .parse()
        .map_err(|_| "not a number".to_owned())?;
    Ok((
        Decimal {
            digits,
            decimals: fraction.len() as u32,
        },
        unit,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_exact() {
        assert_eq!(bit_per_s("51.84mbit"), Ok(51_840_000));
        assert_eq!(bit_per_s("51.84Mbit/s"), Ok(51_840_000));
        assert_eq!(bit_per_s("64k"), Ok(64_000));
        assert_eq!(bit_per_s("64000"), Ok(64_000));
        assert_eq!(bit_per_s("1gibit"), Ok(1 << 30));
        assert_eq!(time_ns("0.25s"), Ok(250_000_000));
        assert_eq!(time_ns("1.5us"), Ok(1500));
        assert_eq!(time_ns("0"), Ok(0));
        assert_eq!(percent_ppb("0.05%"), Ok(500_000));
        assert_eq!(queue("64kib"), Ok(Quantity::Bytes(65_536)));
        assert_eq!(queue("256k"), queue("256kb"));
        assert!(queue("1m").is_err());
        assert_eq!(queue("50p"), Ok(Quantity::Packets(50)));
        assert_eq!(queue("100ms"), Ok(Quantity::Ns(100_000_000)));
    }

    #[test]
    fn errors_say_what_is_accepted() {
        let text = |result: Result<u64, String>| result.unwrap_err();
        assert!(text(bit_per_s("10mbps")).contains("write mbit"));
        assert!(text(bit_per_s("10mbi")).contains("did you mean `mbit`"));
        assert!(text(time_ns("100")).contains("100 has no unit"));
        assert!(text(time_ns("-1ms")).contains("negative"));
        assert!(text(time_ns("ms")).contains("not a number"));
        assert!(text(time_ns("1.2.3ms")).contains("not a number"));
        assert!(text(time_ns("0.1ns")).contains("too small"));
        assert!(text(time_ns("99999999999999999999s")).contains("too large"));
        assert!(text(time_ns("999999999999999999999s")).contains("digits"));
        assert!(text(percent_ppb("1")).contains("write 1%"));
        assert!(text(percent_ppb("nan%")).contains("not a number"));
    }
}
