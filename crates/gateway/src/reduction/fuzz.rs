//! Messages and records for fuzzers: however the bytes are cut, the same comes out, and what was read is written as it was.

use bytes::BytesMut;

use super::message::{Message, Messages};
use super::record::{Record, Records};

/// What the peer says about records; how many messages there were.
pub fn messages(data: &[u8]) -> usize {
    let read = |part_bytes: usize| {
        let (mut messages, mut all) = (Messages::default(), Vec::new());
        for part in data.chunks(part_bytes) {
            messages.push(part);
            loop {
                match messages.next() {
                    Ok(Some(message)) => all.push(message),
                    Ok(None) => break,
                    Err(_) => return all,
                }
            }
        }
        all
    };
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
    let read = |part_bytes: usize| {
        let (mut records, mut all) = (Records::default(), Vec::<Record>::new());
        for part in data.chunks(part_bytes) {
            records.push(part);
            loop {
                match records.next() {
                    Ok(Some(record)) => all.push(record),
                    Ok(None) => break,
                    Err(_) => return all,
                }
            }
        }
        all
    };
    let all = read(data.len().max(1));
    assert_eq!(read(5), all);
    let mut written = Vec::new();
    all.iter()
        .for_each(|record| written.extend_from_slice(&record.bytes()));
    assert!(data.starts_with(&written));
    all.len()
}

/// Messages of most kinds, and two records.
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
    bytes.to_vec()
}
