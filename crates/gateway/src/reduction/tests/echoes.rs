//! Bytes that go back the way they came: named in the log of who has sent them.

use farhaul_reduce::Plain;

use super::*;
use crate::reduction::echo::Part;
use crate::reduction::record::echoed;

/// Both directions between two gateways.
struct Both {
    down: World,
    up: World,
}

impl Both {
    fn new() -> Self {
        Self {
            down: ready(),
            up: ready(),
        }
    }

    /// Sends bytes up, in the words of what has come down where that is so; how many bytes crossed, and what came of each record.
    fn send_up(&mut self, flow: u64, input: &[u8]) -> (usize, Vec<Read>) {
        let (mut sent_bytes, mut reads, mut number) = (0, Vec::new(), 0);
        for part in input.chunks(100_000) {
            let batch = Bytes::copy_from_slice(part);
            let drafts = self
                .up
                .sending
                .encode(&mut self.up.encoder, flow, number, &batch);
            let mut rest = batch;
            for draft in drafts.unwrap() {
                let Draft::Frame(plain, Some(mark)) = draft else {
                    unreachable!("there is a log");
                };
                let bytes = rest.split_to(plain.length);
                let record = self.record(mark, &plain, &bytes);
                sent_bytes += record.len();
                reads.push(self.read((flow, number), &record));
                number += 1;
            }
        }
        self.up.settle();
        (sent_bytes, reads)
    }

    fn record(&mut self, mark: u8, plain: &Plain, bytes: &[u8]) -> Bytes {
        let mut frame = Vec::new();
        match self.down.decoder.echoed(bytes, bytes.len() / 8) {
            Some(parts) if self.up.sending.may_echo() => {
                plain.seal_bare(&mut frame);
                echoed(mark, &parts, &frame)
            }
            _ => {
                plain.seal(Codec::Null, &mut self.up.compressor, &mut frame);
                Record::Frame(mark, frame.into()).bytes()
            }
        }
    }

    fn read(&mut self, number: (u64, u64), bytes: &[u8]) -> Read {
        let mut records = Records::default();
        records.push(bytes);
        let record = records.next().unwrap().unwrap();
        let (receiving, half) = (&mut self.up.receiving, &mut self.up.decoder);
        let read = match &record {
            Record::Echo(mark, parts, frame) => {
                let whole = self.down.encoder.whole(parts).unwrap_or_default();
                receiving.read_copied(half, number, (*mark, frame, &whole), true)
            }
            other => receiving.read(half, number, other, true),
        };
        read.unwrap()
    }
}

fn bytes_of(reads: &[Read]) -> Vec<u8> {
    let bytes = reads.iter().flat_map(|read| match read {
        Read::Bytes(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    });
    bytes.collect()
}

#[test]
fn a_document_that_is_saved_as_it_was_opened_is_not_sent_back() {
    let mut both = Both::new();
    let document = noise(21, 900_000);
    assert!(both.down.send(1, &document) > 900_000);
    let (sent_bytes, reads) = both.send_up(1, &document);
    assert!(sent_bytes < 2000, "{sent_bytes}");
    assert!(bytes_of(&reads) == document, "other bytes");
    // It is remembered in this direction, too.
    assert!(both.up.send(2, &document) < 2000);
}

#[test]
fn of_a_document_that_was_changed_what_changed_is_sent() {
    let mut both = Both::new();
    let document = noise(22, 900_000);
    both.down.send(1, &document);
    let mut edited = document;
    edited.splice(450_000..450_010, noise(23, 3000));
    edited[700_000] ^= 1;
    let (sent_bytes, reads) = both.send_up(1, &edited);
    assert!((3000..8000).contains(&sent_bytes), "{sent_bytes}");
    assert!(bytes_of(&reads) == edited, "other bytes");
}

#[test]
fn what_came_only_in_part_is_sent_whole() {
    let mut both = Both::new();
    let document = noise(26, 100_000);
    both.down.send(1, &document[..80_000]);
    assert!(both.down.decoder.echoed(&document, 12_500).is_none());
    assert!(both.down.decoder.echoed(&document, 20_500).is_some());
    let (sent_bytes, reads) = both.send_up(1, &document);
    assert!(sent_bytes > 100_000, "{sent_bytes}");
    assert!(bytes_of(&reads) == document, "other bytes");
}

/// The reader has forgotten what it sent: it asks, and is not told so again and again.
#[test]
fn what_its_reader_has_forgotten_is_asked_for_once_and_then_sent() {
    let mut both = Both::new();
    let document = noise(24, 900_000);
    both.down.send(1, &document);
    both.down.encoder = EncoderHalf::new(MEMORY_BYTES);
    let (_, reads) = both.send_up(1, &document[..100_000]);
    assert_eq!(reads, [Read::Asked]);
    let again = both.up.receiving.take_again(1);
    assert_eq!(again.as_deref(), Some(&document[..100_000]));
    let epoch = both.up.encoder.epoch;
    let (sent_bytes, reads) = both.send_up(2, &document[100_000..]);
    assert!(sent_bytes > 800_000, "{sent_bytes}");
    assert!(bytes_of(&reads) == document[100_000..], "other bytes");
    assert_eq!(
        both.up.encoder.epoch, epoch,
        "that says nothing of this log"
    );
    assert_eq!(both.up.sending.missed, 1);
}

/// Other bytes lie where the record says: as if either log were not what the other believes.
#[test]
fn an_echo_that_is_none_delivers_no_byte() {
    let mut both = Both::new();
    let document = noise(25, 90_000);
    both.down.send(1, &document);
    both.down.encoder = EncoderHalf::new(MEMORY_BYTES);
    both.down.decoder = decoder(MEMORY_BYTES);
    both.down.connect();
    both.down.settle();
    both.down.send(1, &document);
    let parts = both.down.decoder.echoed(&document, 1000).unwrap();
    let lies = [
        |part: &mut Part| part.position += 1,
        |part: &mut Part| part.position = u64::MAX,
        |part: &mut Part| part.bytes -= 1,
        |part: &mut Part| part.bytes = u32::MAX,
        |part: &mut Part| part.others = 1,
    ];
    for (flow, lie) in (1..).zip(lies) {
        let batch = Bytes::copy_from_slice(&document);
        let drafts = both
            .up
            .sending
            .encode(&mut both.up.encoder, flow, 0, &batch);
        let Some(Draft::Frame(plain, Some(mark))) = drafts.unwrap().pop() else {
            unreachable!("there is a log");
        };
        let (mut wrong, mut frame) = (parts.clone(), Vec::new());
        wrong.parts.iter_mut().for_each(lie);
        plain.seal_bare(&mut frame);
        let record = echoed(mark, &wrong, &frame);
        let read = both.read((flow, 0), &record);
        assert!(matches!(read, Read::Asked), "{flow}");
        both.up.settle();
        assert_eq!(both.up.receiving.take_again(flow), Some(batch));
        both.up.sending.restart(&mut both.up.encoder);
        both.up.settle();
    }
}

#[test]
fn for_a_peer_that_is_told_of_no_echoes_nothing_is_remembered() {
    let document = noise(27, 200_000);
    for has_echoes in [false, true] {
        let mut world = World::new();
        world.decoder.has_echoes = has_echoes;
        world.settle();
        world.send(1, &document);
        let echoed = world.decoder.echoed(&document, 1000);
        assert_eq!(echoed.is_some(), has_echoes);
    }
}
