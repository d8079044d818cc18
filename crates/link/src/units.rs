//! Numbers with units: how they are printed and read.

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
