//! How a flow carries records instead of the application's bytes.
//!
//! | field | bytes | meaning |
//! |---|---|---|
//! | length | 3 | of what follows |
//! | kind | 1 | 0: a frame that refers to nothing and is not remembered; 1 to 250: a frame of the log whose epoch this is (1 + epoch modulo 250); 253: one whose literals the reader has sent itself ([`super::echo`]); 254: one whose literals the reader has in a copy of its own; 255: the bytes themselves |
//! | mark | 1 | of kinds 253 and 254: what would be its kind |
//! | hash | 16 | of kind 254: the first half of BLAKE3 of a segment of the copy |
//! | offset | 4 | of kind 254: where in the segment the bytes begin for which the frame stands |
//! | frame | | a frame of `farhaul-reduce`, bare in kind 254, or bytes |
//!
//! Kind 253 is sent only to a peer that has offered echoes; what follows its mark is in [`super::echo`].
//! Kind 254 is sent only where a file is warmed ([`crate::warm`]) and the peer has offered copies.
//! Records of one direction are numbered from 0; the number is not written.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use farhaul_reduce::{FRAME_PLAIN_BYTES_MAX, Plain};

use super::echo::Echoed;
use super::message::Cutter;

/// No record is longer: a frame's payload, its head and ours.
const RECORD_BYTES_MAX: usize = (512 << 10) + 128;
/// The longest bytes that are sent as they are; less than any match.
pub(super) const BARE_BYTES_MAX: usize = 63;
const BARE: u8 = 255;
const COPY: u8 = 254;
const ECHO: u8 = 253;

/// The first half of a segment's BLAKE3.
pub(crate) type SegmentHash = [u8; 16];

/// Where a copy has bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyPlace {
    /// Of the segment they are in.
    pub(crate) hash: SegmentHash,
    /// Of the first one in the segment.
    pub(crate) offset: u32,
}

/// What a record is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// A frame that refers to nothing.
    Literal(Bytes),
    /// A frame of the log whose epoch has this mark.
    Frame(u8, Bytes),
    /// The same without its literals, which the reader has there.
    Copy(u8, CopyPlace, Bytes),
    /// The same, which the reader has sent itself.
    Echo(u8, Echoed, Bytes),
    /// Bytes as they are.
    Bare(Bytes),
}

/// Input of a frame that refers to nothing.
pub(super) const LITERAL_BYTES_MAX: usize = FRAME_PLAIN_BYTES_MAX / 4;

/// A record before its frame is compressed.
#[derive(Debug)]
pub(super) enum Draft {
    /// Bytes as they are.
    Bare(Bytes),
    /// A frame, and the mark of its epoch if it is of the log.
    Frame(Plain, Option<u8>),
}

/// Bytes in frames that refer to nothing and need not be remembered.
pub(super) fn literals(flow: u64, bytes: &[u8]) -> Vec<Draft> {
    let parts = bytes.chunks(LITERAL_BYTES_MAX);
    parts
        .map(|part| Draft::Frame(Plain::literal(flow, part, 0), None))
        .collect()
}

/// A record of the frame that `write` appends, with the mark of its epoch if it is of the log. It is written where it will be sent from.
pub(super) fn framed(mark: Option<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = vec![0; 3];
    out.push(mark.unwrap_or(0));
    write(&mut out);
    let [_, length @ ..] = ((out.len() - 3) as u32).to_be_bytes();
    if let Some(head) = out.first_chunk_mut::<3>() {
        *head = length;
    }
    out.into()
}

/// A record of a frame without its literals.
pub(super) fn copied(mark: u8, place: CopyPlace, frame: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(frame.len() + 25);
    out.put_uint(frame.len() as u64 + 22, 3);
    out.put_slice(&[COPY, mark]);
    out.put_slice(&place.hash);
    out.put_u32(place.offset);
    out.put_slice(frame);
    out.freeze()
}

/// A record of a frame without its literals, which the reader has sent itself.
pub(super) fn echoed(mark: u8, echoed: &Echoed, frame: &[u8]) -> Bytes {
    framed(Some(ECHO), |out| {
        out.push(mark);
        echoed.put(frame, out);
    })
}

/// Mark, bytes and frame of one.
fn read_echoed(mut payload: Bytes) -> Option<Record> {
    let mark = take_mark(&mut payload)?;
    let (echoed, frame) = Echoed::read(payload)?;
    Some(Record::Echo(mark, echoed, frame))
}

fn take_mark(payload: &mut Bytes) -> Option<u8> {
    let mark = payload.try_get_u8().ok();
    mark.filter(|mark| (1..=250).contains(mark))
}

/// Mark, place and frame of one.
fn read_copied(mut payload: Bytes) -> Option<Record> {
    let mark = take_mark(&mut payload)?;
    let hash = payload.try_get_u128().ok()?.to_be_bytes();
    let offset = payload.try_get_u32().ok()?;
    let place = CopyPlace { hash, offset };
    (!payload.is_empty()).then_some(Record::Copy(mark, place, payload))
}

/// The mark of an epoch in its records.
pub(super) fn mark_of(epoch: u32) -> u8 {
    1 + (epoch % 250) as u8
}

impl Record {
    /// The record as it is written.
    pub(super) fn bytes(&self) -> Bytes {
        let (kind, payload) = match self {
            Self::Literal(frame) => (0, frame),
            Self::Frame(mark, frame) => (*mark, frame),
            Self::Copy(mark, place, frame) => return copied(*mark, *place, frame),
            Self::Echo(mark, parts, frame) => return echoed(*mark, parts, frame),
            Self::Bare(bytes) => (BARE, bytes),
        };
        let mut out = BytesMut::with_capacity(payload.len() + 4);
        out.put_uint(payload.len() as u64 + 1, 3);
        out.put_u8(kind);
        out.put_slice(payload);
        out.freeze()
    }
}

/// Reads records from the bytes of a flow.
#[derive(Debug, Default)]
pub(super) struct Records(Cutter);

/// The flow's bytes are no records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRecord;

impl Records {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// Whether nothing waits for its rest.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn next(&mut self) -> Result<Option<Record>, NoRecord> {
        let Some(mut bytes) = self.0.next(RECORD_BYTES_MAX).map_err(|_| NoRecord)? else {
            return Ok(None);
        };
        if bytes.len() < 2 {
            return Err(NoRecord);
        }
        let payload = bytes.split_off(1);
        match bytes.first() {
            Some(0) => Ok(Some(Record::Literal(payload))),
            Some(&mark @ 1..=250) => Ok(Some(Record::Frame(mark, payload))),
            Some(&COPY) => read_copied(payload).map(Some).ok_or(NoRecord),
            Some(&ECHO) => read_echoed(payload).map(Some).ok_or(NoRecord),
            Some(&BARE) => Ok(Some(Record::Bare(payload))),
            _ => Err(NoRecord),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduction::echo::Part;

    #[test]
    fn invariant_10_records_have_their_golden_bytes() {
        let payload = Bytes::from_static(b"xy");
        let place = CopyPlace {
            hash: [7; 16],
            offset: 0x0102_0304,
        };
        let parts = vec![Part {
            others: 1,
            position: 0x0a0b,
            bytes: 5,
        }];
        let others = Bytes::from_static(b"z");
        let echoed = Echoed {
            epoch: 6,
            parts,
            others,
        };
        let golden: [(Record, &[u8]); 5] = [
            (
                Record::Echo(2, echoed, payload.clone()),
                &[
                    0, 0, 29, 253, 2, 0, 0, 0, 6, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x0a, 0x0b, 0,
                    0, 0, 5, 0, 0, 2, 0x78, 0x79, 0x7a,
                ],
            ),
            (Record::Literal(payload.clone()), &[0, 0, 3, 0, 0x78, 0x79]),
            (
                Record::Frame(mark_of(251), payload.clone()),
                &[0, 0, 3, 2, 0x78, 0x79],
            ),
            (Record::Bare(payload.clone()), &[0, 0, 3, 255, 0x78, 0x79]),
            (
                Record::Copy(2, place, payload),
                &[
                    0, 0, 24, 254, 2, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 1, 2, 3, 4,
                    0x78, 0x79,
                ],
            ),
        ];
        for (record, bytes) in golden {
            assert_eq!(record.bytes(), bytes);
            let mut records = Records::default();
            records.push(&bytes[..4]);
            assert_eq!(records.next(), Ok(None));
            assert!(!records.is_empty());
            records.push(&bytes[4..]);
            assert_eq!(records.next(), Ok(Some(record)));
            assert!(records.is_empty());
        }
    }

    #[test]
    fn a_record_that_is_written_in_place_is_the_same() {
        let payload = Bytes::from_static(b"a frame");
        let write = |out: &mut Vec<u8>| out.extend_from_slice(&payload);
        let literal = Record::Literal(payload.clone());
        assert_eq!(framed(None, write), literal.bytes());
        let of_log = Record::Frame(9, payload.clone());
        assert_eq!(framed(Some(9), write), of_log.bytes());
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let short_copy = [&[0, 0, 22, COPY, 1][..], &[0; 20]].concat();
        let mut copy_of_nothing = short_copy.clone();
        copy_of_nothing[2] = 23;
        copy_of_nothing[4] = 0;
        copy_of_nothing.push(1);
        let without_frame = [&[0, 0, 10, ECHO, 1][..], &[0; 8]].concat();
        let without_parts = [&[0, 0, 8, ECHO, 1, 0, 0, 0, 0, 1][..], &[0; 1]].concat();
        let lists: [&[u8]; 7] = [
            &without_frame,
            &without_parts,
            &[0u8, 0, 1, 0],
            &[0, 0, 0, 0],
            &[9, 0, 0, 0],
            &short_copy,
            &copy_of_nothing,
        ];
        for bytes in lists {
            let mut records = Records::default();
            records.push(bytes);
            assert_eq!(records.next(), Err(NoRecord), "{bytes:?}");
        }
        let mut records = Records::default();
        records.push(&[0, 0, 2, 251, 0]);
        assert_eq!(records.next(), Err(NoRecord));
    }
}
