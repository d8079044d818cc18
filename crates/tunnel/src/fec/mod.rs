//! Forward error correction beneath QUIC: repairs for datagrams that were sent, made so that any
//! k lost datagrams are recovered from k repairs' worth of bytes.
//!
//! A sliding-window random linear code over GF(256) in the spirit of RFC 8681 (RLC), with two
//! differences that come from what is protected. *Datagrams go out untouched*: a QUIC datagram
//! ends with an authentication tag that nobody can predict, so a repair names the datagrams it
//! covers by the last bytes of their tags, and no byte is added to what is not lost. And
//! coefficients are those of a Cauchy matrix, so repairs over one window never depend on each
//! other; RFC 8681's random ones do in one case of 255.
//!
//! # The code
//! A datagram is cut in rows of [`ROW_BYTES`], the last one padded with zeros. A repair is the sum
//! over all rows it covers of coefficient x row. Half a datagram is a good row: a repair of a full
//! one then fits the same path with its header, which needs no smaller datagrams.
//!
//! Datagrams are numbered modulo 2^16 in the order they were sent, repairs modulo 2^7. In repair x
//! the coefficient of row r (zero or one) of datagram n is the inverse of 128 + x + y over GF(256)
//! with the polynomial of RFC 8681, where y is 2 (n mod 64) + r. The sum is an exclusive or.
//!
//! # On the wire
//! QUIC version 1 sets the second bit of every datagram (RFC 9000 section 17); these have the two
//! first bits clear, so the two never meet (RFC 9443). Integers are big-endian.
//!
//! | message | bytes |
//! |---|---|
//! | both | type 1, channel 4, tag 8 (over everything else, keyed; see the gateway) |
//! | 0c REPAIR | x 1 (0 to 127), number of the first datagram 2, count 1 (1 to 64), per datagram 6 (the last 4 of its own, length 2), sum (1 to [`ROW_BYTES`] bytes, as long as the longest row it covers) |
//! | 0d REPORT | sequence 4, flags 1 (bit 0: repairs may follow, keep what arrives), then 4 each: datagrams named, of these missing when named, runs of missing ones, recovered, recovered but came late, repairs received; anything |
//!
//! Datagrams of less than [`DATAGRAM_BYTES_MIN`] or more than [`DATAGRAM_BYTES_MAX`] bytes are not
//! covered. Counters are cumulative and wrap around. Golden bytes are in `tests/fec.rs`.
//!
//! # Bounds
//! The encoder keeps [`WINDOW_DATAGRAMS_MAX`] datagrams, the decoder the last
//! [`KEPT_DATAGRAMS`] and [`EQUATIONS_MAX`] repairs with at most [`UNKNOWN_ROWS_MAX`] unknown
//! rows: 1.7 MB per peer. A repair costs at most `WINDOW_DATAGRAMS_MAX` x `KEPT_DATAGRAMS`
//! comparisons and `EQUATIONS_MAX` x 2 row operations, whatever the peer sends.

mod adaptation;
mod budget;
mod decoder;
mod encoder;
mod gf256;
#[cfg(target_arch = "x86_64")]
mod gf256_x86;
mod kept;
mod odds;
mod protection;
mod system;
mod wire;

pub use adaptation::{Adaptation, CorrectionState, Observation};
pub use decoder::{Decoder, Tally};
pub use encoder::Encoder;
pub use protection::Protection;
pub use wire::{HEADER_BYTES, Header, MessageError, Repair, Report, is_fec};

/// Bytes of a row: half of a full datagram on Ethernet (1472).
pub const ROW_BYTES: usize = 736;
/// Rows of a datagram at most.
const ROWS_MAX: usize = 2;
/// Longest datagram that can be covered, bytes.
pub const DATAGRAM_BYTES_MAX: usize = ROW_BYTES * ROWS_MAX;
/// Shortest datagram that can be covered: a tag (RFC 9001 section 5.3) must be in it, bytes.
pub const DATAGRAM_BYTES_MIN: usize = 17;
/// Datagrams one repair covers at most.
pub const WINDOW_DATAGRAMS_MAX: usize = 64;
/// Received datagrams kept for decoding.
pub const KEPT_DATAGRAMS: usize = 1024;
/// Repairs kept that do not suffice yet.
pub const EQUATIONS_MAX: usize = 64;
/// Unknown rows that kept repairs may have among them.
pub const UNKNOWN_ROWS_MAX: usize = 128;

/// A datagram as repairs name it: the end of its tag, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    tag: u32,
    bytes: u16,
}

impl Name {
    const WIRE_BYTES: usize = 6;

    /// The name of a datagram, if it can be covered.
    pub(crate) fn of(datagram: &[u8]) -> Option<Name> {
        let tag = u32::from_be_bytes(*datagram.last_chunk()?);
        let bytes = u16::try_from(datagram.len()).ok()?;
        Name { tag, bytes }.if_possible()
    }

    /// Reads a name; None when its length is impossible.
    pub(crate) fn from_wire(bytes: [u8; Self::WIRE_BYTES]) -> Option<Name> {
        let [a, b, c, d, high, low] = bytes;
        let tag = u32::from_be_bytes([a, b, c, d]);
        let bytes = u16::from_be_bytes([high, low]);
        Name { tag, bytes }.if_possible()
    }

    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.tag.to_be_bytes());
        out.extend_from_slice(&self.bytes.to_be_bytes());
    }

    fn if_possible(self) -> Option<Name> {
        let possible = DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX;
        possible.contains(&self.datagram_bytes()).then_some(self)
    }

    pub(crate) fn datagram_bytes(self) -> usize {
        usize::from(self.bytes)
    }

    /// How many rows the datagram has.
    pub(crate) fn rows(self) -> u8 {
        if self.datagram_bytes() > ROW_BYTES {
            2
        } else {
            1
        }
    }
}

/// Row `row` of a datagram, shorter than [`ROW_BYTES`] at its end.
pub(crate) fn row_of(datagram: &[u8], row: u8) -> &[u8] {
    let from = usize::from(row) * ROW_BYTES;
    let rest = datagram.get(from..).unwrap_or_default();
    rest.get(..ROW_BYTES).unwrap_or(rest)
}

/// The Cauchy coefficient of a row in repair `x`; never zero.
pub(crate) fn coefficient(x: u8, number: u16, row: u8) -> u8 {
    let slot = (number % WINDOW_DATAGRAMS_MAX as u16) as u8;
    gf256::inverse((0x80 | x) ^ (2 * slot + (row & 1)))
}
