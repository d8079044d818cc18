//! The messages on the wire; the module's page has the table.

use super::{Name, ROW_BYTES, WINDOW_DATAGRAMS_MAX};

const REPAIR: u8 = 0x0c;
const REPORT: u8 = 0x0d;
/// Bits that are both clear in our messages and never in QUIC's.
const QUIC_BITS: u8 = 0xc0;
const TAG_BYTES: usize = 8;
const TAG_AT: usize = 1 + 4;
/// Bytes before the fields of a message: type, channel, tag.
pub const HEADER_BYTES: usize = TAG_AT + TAG_BYTES;
const FLAG_PROTECTS: u8 = 1;
/// Highest number of a repair.
pub(super) const X_MAX: u8 = 0x7f;

/// Whether a datagram is one of ours rather than QUIC's.
#[must_use]
pub fn is_fec(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & QUIC_BITS == 0)
}

/// Why a datagram is no message of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// It ends before its fields do.
    #[error("message is cut short")]
    Truncated,
    /// A type nobody knows, perhaps of a later version.
    #[error("unknown message type {0:#04x}")]
    UnknownType(u8),
    /// A field holds a value without meaning; the text names the field.
    #[error("message field '{0}' holds an impossible value")]
    BadValue(&'static str),
}

/// What every message begins with, and what the tag is made over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// Type and channel: the first part the tag covers.
    pub prefix: &'a [u8],
    /// Which channel it belongs to.
    pub channel: u32,
    /// The tag.
    pub tag: &'a [u8],
    /// The fields: the second part the tag covers.
    pub fields: &'a [u8],
}

impl<'a> Header<'a> {
    /// Splits a datagram.
    ///
    /// # Errors
    /// When it is too short to be one of ours.
    pub fn read(datagram: &'a [u8]) -> Result<Self, MessageError> {
        let (prefix, rest) = datagram
            .split_at_checked(TAG_AT)
            .ok_or(MessageError::Truncated)?;
        let (tag, fields) = rest
            .split_at_checked(TAG_BYTES)
            .ok_or(MessageError::Truncated)?;
        let channel = prefix.last_chunk().ok_or(MessageError::Truncated)?;
        Ok(Header {
            prefix,
            channel: u32::from_be_bytes(*channel),
            tag,
            fields,
        })
    }

    /// Whether it is a report; otherwise it is a repair.
    ///
    /// # Errors
    /// When it is neither.
    pub fn is_report(&self) -> Result<bool, MessageError> {
        match self.prefix.first() {
            Some(&REPAIR) => Ok(false),
            Some(&REPORT) => Ok(true),
            Some(unknown) => Err(MessageError::UnknownType(*unknown)),
            None => Err(MessageError::Truncated),
        }
    }

    /// Puts the tag of a finished message in its place; a longer tag is cut.
    pub fn seal(message: &mut [u8], tag: &[u8]) {
        let place = message.get_mut(TAG_AT..HEADER_BYTES).unwrap_or_default();
        place.iter_mut().zip(tag).for_each(|(to, from)| *to = *from);
    }
}

fn begin(kind: u8, channel: u32, out: &mut Vec<u8>) {
    out.clear();
    out.push(kind);
    out.extend_from_slice(&channel.to_be_bytes());
    out.extend_from_slice(&[0; TAG_BYTES]);
}

/// A sum over rows of datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Its number, which makes its coefficients.
    pub(super) x: u8,
    /// Number of the first datagram it covers.
    pub(super) first: u16,
    /// What it covers, in the order of sending.
    pub(super) names: Vec<Name>,
    /// The sum, as long as the longest row.
    pub(super) sum: Vec<u8>,
}

impl Repair {
    /// Length of the message, bytes.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        Self::bytes(self.names.len(), self.sum.len())
    }

    /// How long it is over so many datagrams with a sum of so many bytes.
    pub(super) fn bytes(datagrams: usize, sum_bytes: usize) -> usize {
        HEADER_BYTES + 4 + datagrams * Name::WIRE_BYTES + sum_bytes
    }

    /// Writes the message with its tag left zero; `out` is emptied before.
    pub fn write(&self, channel: u32, out: &mut Vec<u8>) {
        begin(REPAIR, channel, out);
        out.push(self.x);
        out.extend_from_slice(&self.first.to_be_bytes());
        out.push(u8::try_from(self.names.len()).unwrap_or(u8::MAX));
        for name in &self.names {
            name.write(out);
        }
        out.extend_from_slice(&self.sum);
    }

    /// Reads the fields behind the header.
    ///
    /// # Errors
    /// When they are not those of a repair.
    pub fn read(fields: &[u8]) -> Result<Repair, MessageError> {
        let (&[x, first_high, first_low, count], rest) = fields
            .split_first_chunk::<4>()
            .ok_or(MessageError::Truncated)?;
        let count = usize::from(count);
        if x > X_MAX {
            return Err(MessageError::BadValue("x"));
        }
        if count == 0 || count > WINDOW_DATAGRAMS_MAX {
            return Err(MessageError::BadValue("count"));
        }
        let (names, sum) = rest
            .split_at_checked(count * Name::WIRE_BYTES)
            .ok_or(MessageError::Truncated)?;
        if sum.is_empty() || sum.len() > ROW_BYTES {
            return Err(MessageError::BadValue("sum"));
        }
        let words = names.as_chunks().0.iter();
        let names = words
            .map(|word| Name::from_wire(*word))
            .collect::<Option<Vec<_>>>()
            .ok_or(MessageError::BadValue("length"))?;
        Ok(Repair {
            x,
            first: u16::from_be_bytes([first_high, first_low]),
            names,
            sum: sum.to_vec(),
        })
    }
}

/// What a receiver of repairs tells their sender. All counters are cumulative and wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Grows with every report; an older one says nothing.
    pub sequence: u32,
    /// The sender of this report sends repairs itself: keep what arrives from it.
    pub protects: bool,
    /// Datagrams that repairs have named, each once.
    pub named: u32,
    /// Of these, not there when they were named first.
    pub missing: u32,
    /// Runs of missing ones next to each other.
    pub runs: u32,
    /// Datagrams recovered.
    pub recovered: u32,
    /// Of these, came by themselves afterwards.
    pub late: u32,
    /// Repairs received.
    pub repairs: u32,
}

impl Report {
    /// Writes the message with its tag left zero; `out` is emptied before.
    pub fn write(&self, channel: u32, out: &mut Vec<u8>) {
        begin(REPORT, channel, out);
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.push(if self.protects { FLAG_PROTECTS } else { 0 });
        for counter in [
            self.named,
            self.missing,
            self.runs,
            self.recovered,
            self.late,
            self.repairs,
        ] {
            out.extend_from_slice(&counter.to_be_bytes());
        }
    }

    /// Reads the fields behind the header. What follows them is for later versions.
    ///
    /// # Errors
    /// When they are not those of a report.
    pub fn read(fields: &[u8]) -> Result<Report, MessageError> {
        let (sequence, rest) = fields
            .split_first_chunk::<4>()
            .ok_or(MessageError::Truncated)?;
        let (flags, rest) = rest.split_first().ok_or(MessageError::Truncated)?;
        let counters = rest.first_chunk::<24>().ok_or(MessageError::Truncated)?;
        let mut counters = counters.as_chunks::<4>().0.iter();
        let mut next = || counters.next().map_or(0, |word| u32::from_be_bytes(*word));
        Ok(Report {
            sequence: u32::from_be_bytes(*sequence),
            protects: flags & FLAG_PROTECTS != 0,
            named: next(),
            missing: next(),
            runs: next(),
            recovered: next(),
            late: next(),
            repairs: next(),
        })
    }
}
