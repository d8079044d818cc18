//! What two gateways tell each other of their records, on a flow of its own.
//!
//! Every message is a length of three bytes, a type and its fields; numbers are big-endian. Unknown types are skipped.
//!
//! | type | message | fields (bytes) | from | effect |
//! |---|---|---|---|---|
//! | 1 | HAVE | memory 8, log 16, epoch 4, held 8 | decoder, first of all | how much it keeps, and of which log it holds everything below `held`; a log of zero is none. Epochs are new behind this one |
//! | 2 | LOG | memory 8, log 16, epoch 4, start 8, key 8 | encoder | records of this epoch follow, their positions from `start` on, their frames hashed with `key` |
//! | 3 | HELD | epoch 4, position 8 | decoder | every position below is held or was given up |
//! | 4 | DONE | flow 8, records 8 | decoder | so many records of the flow were read; none of them will be asked for, and what they stand for is held |
//! | 5 | MISSING | flow 8, record 8, why 1, position 8, bytes 8 | decoder | the record cannot be read: 0 these positions are not here, 1 its hash differs, 2 it is of another epoch |
//! | 6 | AGAIN | flow 8, record 8, last 1, frame | encoder | what a missing record stands for, in frames that refer to nothing |
//! | 7 | SKIP | epoch 4, position 8, bytes 8 | encoder | these positions may never come; nothing refers to them |
//! | 8 | GONE | flow 8 | decoder | nobody reads this flow any more |
//! | 9 | RESTART | | decoder | it has forgotten the log: begin a new epoch |
//! | 10 | STORED | log 16, then 47 for each segment: number 8, whole 2, root 16, tail 1, tail bytes 4, tail hash 16 | decoder, before HAVE | it keeps on disk, and has these segments of this log |
//! | 11 | SEEDS | epoch 4, log 16, disk epoch 8, base 8, then 8 for each segment: number | encoder, before LOG | the epoch begins with these segments; its own are kept under numbers from `base` on |
//! | 12 | READY | epoch 4, segments 8 | decoder | so many of them, from the last on, may be referred to |
//! | 13 | KEPT | log 16, from 8, then as in STORED | decoder, before HAVE and whenever it has news | these are on its disk, and it reads them back when a record refers to them; those below `from` may go |

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::store::Listed;

/// No message is longer.
const MESSAGE_BYTES_MAX: usize = 600 << 10;

/// Why a record cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It refers to positions that are not here.
    Absent,
    /// What it refers to is not what it was.
    Differs,
    /// It is of another epoch than the log.
    Epoch,
}

/// One message; the module's table tells the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are those of the table
pub enum Message {
    Have {
        memory_bytes: u64,
        log: u128,
        epoch: u32,
        held: u64,
    },
    Log {
        memory_bytes: u64,
        log: u128,
        epoch: u32,
        start: u64,
        key: u64,
    },
    Held {
        epoch: u32,
        position: u64,
    },
    Done {
        flow: u64,
        records: u64,
    },
    Missing {
        flow: u64,
        record: u64,
        why: Why,
        position: u64,
        bytes: u64,
    },
    Again {
        flow: u64,
        record: u64,
        is_last: bool,
        frame: Bytes,
    },
    Skip {
        epoch: u32,
        position: u64,
        bytes: u64,
    },
    Gone {
        flow: u64,
    },
    Restart,
    Stored {
        log: u128,
        segments: Vec<Listed>,
    },
    Seeds {
        epoch: u32,
        log: u128,
        disk_epoch: u64,
        base: u64,
        numbers: Vec<u64>,
    },
    Ready {
        epoch: u32,
        segments: u64,
    },
    Kept {
        log: u128,
        from: u64,
        segments: Vec<Listed>,
    },
    /// One of a later version.
    Unknown,
}

/// The bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Longer than any.
    #[error("a message of {0} bytes about reduction")]
    TooLong(usize),
    /// Its fields do not fit its type.
    #[error("message {0} about reduction is malformed")]
    Malformed(u8),
}

impl Message {
    /// Appends the message.
    pub fn put(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_uint(0, 3);
        self.put_fields(out);
        let length = ((out.len() - start - 3) as u32).to_be_bytes();
        if let Some(head) = out.get_mut(start..start + 3) {
            head.copy_from_slice(&length[1..]);
        }
    }

    fn put_fields(&self, out: &mut BytesMut) {
        match *self {
            Self::Have {
                memory_bytes,
                log,
                epoch,
                held,
            } => {
                out.put_u8(1);
                put_log(out, memory_bytes, log, epoch);
                out.put_u64(held);
            }
            Self::Log {
                memory_bytes,
                log,
                epoch,
                start,
                key,
            } => {
                out.put_u8(2);
                put_log(out, memory_bytes, log, epoch);
                put_words(out, [start, key]);
            }
            Self::Held { epoch, position } => {
                out.put_u8(3);
                out.put_u32(epoch);
                out.put_u64(position);
            }
            Self::Done { flow, records } => {
                out.put_u8(4);
                put_words(out, [flow, records]);
            }
            _ => self.put_more_fields(out),
        }
    }

    fn put_more_fields(&self, out: &mut BytesMut) {
        match *self {
            Self::Missing {
                flow,
                record,
                why,
                position,
                bytes,
            } => {
                out.put_u8(5);
                put_words(out, [flow, record]);
                out.put_u8(why as u8);
                put_words(out, [position, bytes]);
            }
            Self::Again {
                flow,
                record,
                is_last,
                ref frame,
            } => {
                out.put_u8(6);
                put_words(out, [flow, record]);
                out.put_u8(is_last.into());
                out.put_slice(frame);
            }
            Self::Skip {
                epoch,
                position,
                bytes,
            } => {
                out.put_u8(7);
                out.put_u32(epoch);
                put_words(out, [position, bytes]);
            }
            Self::Gone { flow } => {
                out.put_u8(8);
                out.put_u64(flow);
            }
            Self::Restart => out.put_u8(9),
            _ => self.put_fields_of_disk(out),
        }
    }

    fn put_fields_of_disk(&self, out: &mut BytesMut) {
        match self {
            Self::Stored { log, segments } => {
                out.put_u8(10);
                out.put_u128(*log);
                segments.iter().for_each(|segment| put_listed(out, segment));
            }
            Self::Seeds {
                epoch,
                log,
                disk_epoch,
                base,
                numbers,
            } => {
                out.put_u8(11);
                out.put_u32(*epoch);
                out.put_u128(*log);
                put_words(out, [*disk_epoch, *base]);
                numbers.iter().for_each(|number| out.put_u64(*number));
            }
            Self::Ready { epoch, segments } => {
                out.put_u8(12);
                out.put_u32(*epoch);
                out.put_u64(*segments);
            }
            Self::Kept {
                log,
                from,
                segments,
            } => {
                out.put_u8(13);
                out.put_u128(*log);
                out.put_u64(*from);
                segments.iter().for_each(|segment| put_listed(out, segment));
            }
            _ => out.put_u8(0),
        }
    }

    fn read(bytes: &mut Bytes) -> Result<Self, MessageError> {
        let kind = bytes.try_get_u8().unwrap_or(0);
        let message = Self::fields(kind, bytes).map_err(|_| MessageError::Malformed(kind))?;
        match bytes.is_empty() || message == Self::Unknown {
            true => Ok(message),
            false => Err(MessageError::Malformed(kind)),
        }
    }

    fn fields(kind: u8, bytes: &mut Bytes) -> Result<Self, bytes::TryGetError> {
        Ok(match kind {
            1 => Self::Have {
                memory_bytes: bytes.try_get_u64()?,
                log: bytes.try_get_u128()?,
                epoch: bytes.try_get_u32()?,
                held: bytes.try_get_u64()?,
            },
            2 => Self::Log {
                memory_bytes: bytes.try_get_u64()?,
                log: bytes.try_get_u128()?,
                epoch: bytes.try_get_u32()?,
                start: bytes.try_get_u64()?,
                key: bytes.try_get_u64()?,
            },
            3 => Self::Held {
                epoch: bytes.try_get_u32()?,
                position: bytes.try_get_u64()?,
            },
            4 => Self::Done {
                flow: bytes.try_get_u64()?,
                records: bytes.try_get_u64()?,
            },
            5 => Self::Missing {
                flow: bytes.try_get_u64()?,
                record: bytes.try_get_u64()?,
                why: match bytes.try_get_u8()? {
                    0 => Why::Absent,
                    1 => Why::Differs,
                    _ => Why::Epoch,
                },
                position: bytes.try_get_u64()?,
                bytes: bytes.try_get_u64()?,
            },
            6 => Self::Again {
                flow: bytes.try_get_u64()?,
                record: bytes.try_get_u64()?,
                is_last: bytes.try_get_u8()? != 0,
                frame: bytes.split_off(0),
            },
            7 => Self::Skip {
                epoch: bytes.try_get_u32()?,
                position: bytes.try_get_u64()?,
                bytes: bytes.try_get_u64()?,
            },
            8 => Self::Gone {
                flow: bytes.try_get_u64()?,
            },
            9 => Self::Restart,
            10..=13 => return Self::fields_of_disk(kind, bytes),
            _ => Self::Unknown,
        })
    }

    fn fields_of_disk(kind: u8, bytes: &mut Bytes) -> Result<Self, bytes::TryGetError> {
        Ok(match kind {
            10 => Self::Stored {
                log: bytes.try_get_u128()?,
                segments: all(bytes, listed)?,
            },
            11 => Self::Seeds {
                epoch: bytes.try_get_u32()?,
                log: bytes.try_get_u128()?,
                disk_epoch: bytes.try_get_u64()?,
                base: bytes.try_get_u64()?,
                numbers: all(bytes, Bytes::try_get_u64)?,
            },
            12 => Self::Ready {
                epoch: bytes.try_get_u32()?,
                segments: bytes.try_get_u64()?,
            },
            _ => Self::Kept {
                log: bytes.try_get_u128()?,
                from: bytes.try_get_u64()?,
                segments: all(bytes, listed)?,
            },
        })
    }
}

/// Everything up to the end of the message.
fn all<T>(
    bytes: &mut Bytes,
    next: impl Fn(&mut Bytes) -> Result<T, bytes::TryGetError>,
) -> Result<Vec<T>, bytes::TryGetError> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(next(bytes)?);
    }
    Ok(all)
}

fn put_listed(out: &mut BytesMut, listed: &Listed) {
    out.put_u64(listed.number);
    out.put_u16(listed.whole);
    out.put_slice(&listed.root);
    out.put_u8(listed.tail);
    out.put_u32(listed.tail_bytes);
    out.put_slice(&listed.tail_hash);
}

fn listed(bytes: &mut Bytes) -> Result<Listed, bytes::TryGetError> {
    Ok(Listed {
        number: bytes.try_get_u64()?,
        whole: bytes.try_get_u16()?,
        root: bytes.try_get_u128()?.to_be_bytes(),
        tail: bytes.try_get_u8()?,
        tail_bytes: bytes.try_get_u32()?,
        tail_hash: bytes.try_get_u128()?.to_be_bytes(),
    })
}

fn put_log(out: &mut BytesMut, memory_bytes: u64, log: u128, epoch: u32) {
    out.put_u64(memory_bytes);
    out.put_u128(log);
    out.put_u32(epoch);
}

fn put_words(out: &mut BytesMut, words: [u64; 2]) {
    words.iter().for_each(|word| out.put_u64(*word));
}

/// Cuts a stream of bytes into what begins with a length of three bytes, itself not counted.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    bytes: BytesMut,
}

impl Cutter {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next piece that is whole, without its length; an error with the length of one that is too long.
    pub(super) fn next(&mut self, bytes_max: usize) -> Result<Option<Bytes>, usize> {
        let Some(&[high, middle, low]) = self.bytes.first_chunk::<3>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if length > bytes_max {
            return Err(length);
        }
        if self.bytes.len() < length + 3 {
            self.bytes.reserve(length + 3 - self.bytes.len());
            return Ok(None);
        }
        self.bytes.advance(3);
        let piece = self.bytes.split_to(length).freeze();
        if self.bytes.is_empty() {
            // An idle flow keeps no buffer.
            self.bytes = BytesMut::new();
        }
        Ok(Some(piece))
    }
}

/// Reads messages from the bytes of their flow.
#[derive(Debug, Default)]
pub(super) struct Messages(Cutter);

impl Messages {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    pub(super) fn next(&mut self) -> Result<Option<Message>, MessageError> {
        match self.0.next(MESSAGE_BYTES_MAX) {
            Ok(Some(mut bytes)) => Message::read(&mut bytes).map(Some),
            Ok(None) => Ok(None),
            Err(length) => Err(MessageError::TooLong(length)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn golden() -> Vec<(Message, &'static str)> {
        let (log, epoch) = (0x0011_2233_4455_6677_8899_aabb_ccdd_eeff, 3);
        vec![
            (
                Message::Have {
                    memory_bytes: 1 << 20,
                    log,
                    epoch,
                    held: 5,
                },
                "000025 01 0000000000100000 00112233445566778899aabbccddeeff 00000003 0000000000000005",
            ),
            (
                Message::Log {
                    memory_bytes: 1 << 20,
                    log,
                    epoch,
                    start: 6,
                    key: 7,
                },
                "00002d 02 0000000000100000 00112233445566778899aabbccddeeff 00000003 0000000000000006 0000000000000007",
            ),
            (
                Message::Held { epoch, position: 8 },
                "00000d 03 00000003 0000000000000008",
            ),
            (
                Message::Done {
                    flow: 9,
                    records: 10,
                },
                "000011 04 0000000000000009 000000000000000a",
            ),
            (
                Message::Missing {
                    flow: 9,
                    record: 10,
                    why: Why::Differs,
                    position: 11,
                    bytes: 12,
                },
                "000022 05 0000000000000009 000000000000000a 01 000000000000000b 000000000000000c",
            ),
            (
                Message::Again {
                    flow: 9,
                    record: 10,
                    is_last: true,
                    frame: Bytes::from_static(b"abc"),
                },
                "000015 06 0000000000000009 000000000000000a 01 616263",
            ),
            (
                Message::Skip {
                    epoch,
                    position: 13,
                    bytes: 14,
                },
                "000015 07 00000003 000000000000000d 000000000000000e",
            ),
            (Message::Gone { flow: 9 }, "000009 08 0000000000000009"),
            (Message::Restart, "000001 09"),
            (
                Message::Stored {
                    log,
                    segments: vec![Listed {
                        number: 15,
                        whole: 0x0103,
                        root: [0xab; 16],
                        tail: 2,
                        tail_bytes: 16,
                        tail_hash: [0xcd; 16],
                    }],
                },
                "000040 0a 00112233445566778899aabbccddeeff 000000000000000f 0103 abababababababababababababababab \
                 02 00000010 cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
            ),
            (
                Message::Seeds {
                    epoch,
                    log,
                    disk_epoch: 17,
                    base: 18,
                    numbers: vec![19, 20],
                },
                "000035 0b 00000003 00112233445566778899aabbccddeeff 0000000000000011 0000000000000012 \
                 0000000000000013 0000000000000014",
            ),
            (
                Message::Ready {
                    epoch,
                    segments: 21,
                },
                "00000d 0c 00000003 0000000000000015",
            ),
            (
                Message::Kept {
                    log,
                    from: 22,
                    segments: vec![Listed {
                        number: 23,
                        whole: 0xffff,
                        root: [0xef; 16],
                        tail: 0,
                        tail_bytes: 0,
                        tail_hash: [0; 16],
                    }],
                },
                "000048 0d 00112233445566778899aabbccddeeff 0000000000000016 0000000000000017 ffff \
                 efefefefefefefefefefefefefefefef 00 00000000 00000000000000000000000000000000",
            ),
        ]
    }

    #[test]
    fn invariant_10_every_message_has_its_golden_bytes() {
        for (message, hex) in golden() {
            let mut bytes = BytesMut::new();
            message.put(&mut bytes);
            let written: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(written, hex.replace(' ', ""), "{message:?}");
            let mut messages = Messages::default();
            for byte in &bytes {
                assert_eq!(messages.next(), Ok(None));
                messages.push(&[*byte]);
            }
            assert_eq!(messages.next(), Ok(Some(message)));
            assert_eq!(messages.next(), Ok(None));
        }
    }

    #[test]
    fn later_messages_are_skipped_and_impossible_ones_refused() {
        let mut messages = Messages::default();
        messages.push(&[0, 0, 2, 99, 1, 0, 0, 1, 9]);
        assert_eq!(messages.next(), Ok(Some(Message::Unknown)));
        assert_eq!(messages.next(), Ok(Some(Message::Restart)));
        messages.push(&[0, 0, 2, 9, 1]);
        assert_eq!(messages.next(), Err(MessageError::Malformed(9)));
        let mut messages = Messages::default();
        messages.push(&[0, 0, 18, 10]);
        messages.push(&[7; 17]);
        assert_eq!(messages.next(), Err(MessageError::Malformed(10)));
        messages.push(&[255, 0, 0]);
        assert!(matches!(messages.next(), Err(MessageError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn invariant_6_no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut messages = Messages::default();
            for part in bytes.chunks(7) {
                messages.push(part);
                while let Ok(Some(_)) = messages.next() {}
            }
        }
    }
}
