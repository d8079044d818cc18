//! Messages and records for fuzzers: however the bytes are cut, the same comes out, and what was read is written as it was.

use bytes::BytesMut;

#[cfg(test)]
use super::echo::{Echoed, Part};
use super::message::{Message, Messages};
#[cfg(test)]
use super::record::Record;
use super::record::Records;

/// What a reader finds that gets its bytes in parts, up to the first error.
fn read_all<R: Default, T, E>(
    data: &[u8],
    part_bytes: usize,
    push: fn(&mut R, &[u8]),
    next: fn(&mut R) -> Result<Option<T>, E>,
) -> Vec<T> {
    let (mut reader, mut all) = (R::default(), Vec::new());
    for part in data.chunks(part_bytes) {
        push(&mut reader, part);
        loop {
            match next(&mut reader) {
                Ok(Some(found)) => all.push(found),
                Ok(None) => break,
                Err(_) => return all,
            }
        }
    }
    all
}

/// What the peer says about records; how many messages there were.
pub fn messages(data: &[u8]) -> usize {
    let read = |part_bytes| read_all(data, part_bytes, Messages::push, Messages::next);
    let all = read(data.len().max(1));
    assert_eq!(read(7), all);
    for message in &all {
        if *message == Message::Unknown {
            continue;
        }
        let mut bytes = BytesMut::new();
        message.put(&mut bytes);
        let mut again = Messages::default();
        again.push(&bytes);
        assert_eq!(again.next().as_ref(), Ok(&Some(message.clone())));
    }
    all.len()
}

/// A flow's records; how many there were.
pub fn records(data: &[u8]) -> usize {
    let read = |part_bytes| read_all(data, part_bytes, Records::push, Records::next);
    let all = read(data.len().max(1));
    assert_eq!(read(5), all);
    let mut written = Vec::new();
    all.iter()
        .for_each(|record| written.extend_from_slice(&record.bytes()));
    assert!(data.starts_with(&written));
    all.len()
}

/// Messages of most kinds, and records.
#[cfg(test)]
pub(crate) fn true_messages() -> Vec<u8> {
    let log = u128::MAX / 7;
    let held = |position| Message::Held { epoch: 3, position };
    let all = (0..6).map(held).chain([
        Message::Have {
            memory_bytes: 1 << 30,
            log,
            epoch: 3,
            held: 9,
        },
        Message::Done {
            flow: 8,
            records: 2,
        },
        Message::Gone { flow: 8 },
        Message::Restart,
        Message::Seeds {
            epoch: 3,
            log,
            disk_epoch: 5,
            base: 7,
            numbers: (0..9).collect(),
        },
        Message::Kept {
            log,
            from: 1,
            segments: Vec::new(),
        },
    ]);
    let mut bytes = BytesMut::new();
    all.for_each(|message| message.put(&mut bytes));
    bytes.extend_from_slice(&Record::Bare(bytes::Bytes::from_static(b"bare")).bytes());
    let frame = bytes::Bytes::from_static(b"frame");
    let parts = vec![Part {
        others: 2,
        position: 9,
        bytes: 7,
    }];
    let echoed = Echoed {
        epoch: 3,
        parts,
        others: frame.clone(),
    };
    bytes.extend_from_slice(&Record::Echo(4, echoed, frame).bytes());
    bytes.to_vec()
}
