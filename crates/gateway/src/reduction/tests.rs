//! Both sides of reduction in one process: flows whose frames come late, never or to a log that is not what it was, tunnels
//! that are cut in the middle, gateways that start anew. Whatever happens, no wrong byte comes out and nobody waits for ever.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

mod bounds;
mod echoes;
mod readers;
mod tunnels;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use farhaul_reduce::{Codec, Compressor, Encoder, Plain, Settings};
use proptest::prelude::*;

use super::halves::{DecoderHalf, EncoderHalf};
use super::message::Message;
use super::receiving::{Read, Receiving};
use super::record::{CopyPlace, Draft, Record, Records, copied, literals, mark_of};
use super::sending::Sending;
use super::words::Again;

const MEMORY_BYTES: u64 = 16 << 20;

/// A flow's bytes on their way, and what has come out of them.
#[derive(Default)]
struct Flow {
    sent: Vec<u8>,
    received: Vec<u8>,
    records: u64,
    wire: VecDeque<Bytes>,
    arrived: Records,
    waiting: Option<Record>,
    is_asked: bool,
    number: u64,
}

/// One direction between two gateways, and the tunnel they have at present.
struct World {
    encoder: EncoderHalf,
    decoder: DecoderHalf,
    sending: Sending,
    receiving: Receiving,
    flows: BTreeMap<u64, Flow>,
    /// Messages under way to the decoder and back.
    there: VecDeque<Message>,
    back: VecDeque<Message>,
    compressor: Compressor,
    tunnels: u64,
    record_bytes: usize,
    again_bytes: usize,
    /// The log that was announced last: epoch and key.
    announced: (u32, u64),
    /// How often each of the four flows of an act was cut: numbers of flows are not used twice.
    cuts: [u64; 4],
}

impl World {
    fn new() -> Self {
        Self::of_memory(MEMORY_BYTES)
    }

    fn of_memory(memory_bytes: u64) -> Self {
        let mut world = Self {
            encoder: EncoderHalf::new(memory_bytes),
            decoder: decoder(memory_bytes),
            sending: Sending::new(0),
            receiving: Receiving::default(),
            flows: BTreeMap::new(),
            there: VecDeque::new(),
            back: VecDeque::new(),
            compressor: Compressor::new(),
            tunnels: 0,
            record_bytes: 0,
            again_bytes: 0,
            announced: (0, 0),
            cuts: [0; 4],
        };
        world.connect();
        world
    }

    /// The tunnel is lost with everything under way, and there is a new one.
    fn connect(&mut self) {
        self.tunnels += 1;
        self.flows.clear();
        self.there.clear();
        self.back.clear();
        self.sending = Sending::new(self.tunnels);
        self.receiving = Receiving::default();
        self.back.push_back(self.decoder.state());
    }

    fn write(&mut self, id: u64, input: &[u8]) {
        let batch = Bytes::copy_from_slice(input);
        let flow = self.flows.entry(id).or_default();
        flow.sent.extend_from_slice(input);
        let (sending, half) = (&mut self.sending, &mut self.encoder);
        let drafts = sending.encode(half, id, flow.records, &batch);
        for draft in drafts.unwrap_or_else(|| literals(id, &batch)) {
            let Draft::Frame(plain, mark) = draft else {
                unreachable!("no bare drafts here");
            };
            let mut frame = Vec::new();
            plain.seal(Codec::Zstd(1), &mut self.compressor, &mut frame);
            let record = match mark {
                Some(mark) => Record::Frame(mark, frame.into()),
                None => Record::Literal(frame.into()),
            };
            flow.records += 1;
            self.record_bytes += record.bytes().len();
            flow.wire.push_back(record.bytes());
        }
    }

    /// A flow's next record arrives.
    fn arrive(&mut self, id: u64) {
        let flow = self.flows.entry(id).or_default();
        if let Some(bytes) = flow.wire.pop_front() {
            flow.arrived.push(&bytes);
        }
    }

    /// Reads what there is of a flow.
    fn read(&mut self, id: u64) {
        let flow = self.flows.entry(id).or_default();
        loop {
            let bytes = if flow.is_asked {
                let Some(bytes) = self.receiving.take_again(id) else {
                    return;
                };
                bytes
            } else {
                let next = flow.waiting.take();
                let Some(record) = next.or_else(|| flow.arrived.next().unwrap()) else {
                    return;
                };
                let number = (id, flow.number);
                let read = self
                    .receiving
                    .read(&mut self.decoder, number, &record, true);
                match read.unwrap() {
                    Read::Bytes(bytes) => bytes,
                    Read::Early | Read::Away(_) => {
                        flow.waiting = Some(record);
                        return;
                    }
                    Read::Asked => {
                        flow.is_asked = true;
                        continue;
                    }
                }
            };
            flow.is_asked = false;
            flow.number += 1;
            flow.received.extend_from_slice(&bytes);
            let upto = flow.received.len();
            assert!(flow.received == flow.sent[..upto], "a wrong byte");
        }
    }

    /// Cuts a flow at both ends.
    fn cut(&mut self, id: u64) {
        self.flows.remove(&id);
        self.sending.abandon(&mut self.encoder, id);
        self.receiving.leave(id, false);
    }

    /// Both ends say what they have to say.
    fn speak(&mut self) {
        while let Some(message) = self.sending.poll_message() {
            self.there.push_back(message);
        }
        while let Some(again) = self.sending.poll_again(50_000) {
            self.say_again(&again);
        }
        while let Some(message) = self.receiving.poll_message() {
            self.back.push_back(message);
        }
        self.back.extend(self.receiving.take_news(&self.decoder));
    }

    fn say_again(&mut self, again: &Again) {
        let plain = Plain::literal(again.flow, &again.bytes, 0);
        let mut frame = Vec::new();
        plain.seal(Codec::Null, &mut self.compressor, &mut frame);
        self.again_bytes += frame.len();
        self.there.push_back(Message::Again {
            flow: again.flow,
            record: again.record,
            is_last: again.is_last,
            frame: frame.into(),
        });
    }

    /// So many messages of each direction are heard.
    fn hear(&mut self, count: usize) {
        for _ in 0..count {
            if let Some(message) = self.there.pop_front() {
                if let Message::Log { epoch, key, .. } = message {
                    self.announced = (epoch, key);
                }
                self.receiving.handle(&mut self.decoder, &message).unwrap();
            }
            if let Some(message) = self.back.pop_front() {
                self.sending.handle(&mut self.encoder, &message);
            }
        }
    }

    /// Everything under way arrives and is read; all flows must come through.
    fn settle(&mut self) {
        for _ in 0..300 {
            let ids: Vec<u64> = self.flows.keys().copied().collect();
            for id in ids {
                self.arrive(id);
                self.read(id);
            }
            self.speak();
            self.hear(1000);
        }
        for (id, flow) in &self.flows {
            assert!(flow.received == flow.sent, "flow {id} hangs");
        }
    }

    fn send(&mut self, id: u64, input: &[u8]) -> usize {
        let before = self.record_bytes;
        for part in input.chunks(100_000) {
            self.write(id, part);
        }
        self.settle();
        self.record_bytes - before
    }
}

/// One that can name what it was sent.
fn decoder(memory_bytes: u64) -> DecoderHalf {
    let mut half = DecoderHalf::new(memory_bytes);
    half.has_echoes = true;
    half
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn ready() -> World {
    ready_with(MEMORY_BYTES)
}

fn ready_with(memory_bytes: u64) -> World {
    let mut world = World::of_memory(memory_bytes);
    world.settle();
    world
}

#[test]
fn the_second_time_costs_little_also_for_another_flow_and_another_tunnel() {
    let mut world = ready();
    let input = noise(1, 1_000_000);
    assert!(world.send(1, &input) > 1_000_000);
    assert!(world.send(2, &input) < 2000);
    world.connect();
    world.settle();
    let again = world.send(1, &input);
    assert!(again < 2000, "{again}");
}

#[test]
fn before_the_log_is_announced_bytes_pass_and_are_not_remembered() {
    let mut world = World::new();
    let input = noise(2, 200_000);
    world.write(1, &input);
    world.settle();
    assert!(world.send(2, &input) > 200_000);
    assert!(world.send(3, &input) < 1000);
}

#[test]
fn a_log_that_was_lost_on_either_side_begins_anew() {
    let input = noise(3, 500_000);
    for lost in 0..2 {
        let mut world = ready();
        world.send(1, &input);
        match lost {
            0 => world.decoder = DecoderHalf::new(MEMORY_BYTES),
            _ => world.encoder = EncoderHalf::new(MEMORY_BYTES),
        }
        world.connect();
        world.settle();
        assert!(world.send(2, &input) > 500_000);
        assert!(world.send(3, &input) < 2000);
        assert_eq!(world.sending.missed, 0, "nobody referred to what was lost");
    }
}

#[test]
fn a_decoder_that_forgets_in_mid_tunnel_costs_resends_and_then_nothing() {
    let mut world = ready();
    let input = noise(4, 500_000);
    world.send(1, &input);
    world.write(2, &input);
    world.receiving.forget(&mut world.decoder);
    world.settle();
    assert!(world.sending.missed > 0 && world.again_bytes > 0);
    let missed = world.sending.missed;
    assert!(world.send(3, &input) > 500_000);
    assert!(world.send(4, &input) < 2000);
    assert_eq!(world.sending.missed, missed);
}

/// Sends records without literals to an end that has `copy`; their bytes, and what came of each.
fn send_copied(world: &mut World, flow: u64, input: &[u8], copy: &[u8]) -> (usize, Vec<Read>) {
    let batch = Bytes::copy_from_slice(input);
    let drafts = world.sending.encode(&mut world.encoder, flow, 0, &batch);
    let (mut sent_bytes, mut reads, mut rest) = (0, Vec::new(), copy);
    for (number, draft) in drafts.unwrap().into_iter().enumerate() {
        let Draft::Frame(plain, Some(mark)) = draft else {
            unreachable!("there is a log");
        };
        let (copy, after) = rest.split_at(plain.length);
        rest = after;
        let mut frame = Vec::new();
        plain.seal_bare(&mut frame);
        let place = CopyPlace {
            hash: [1; 16],
            offset: 0,
        };
        sent_bytes += copied(mark, place, &frame).len();
        let (half, number) = (&mut world.decoder, (flow, number as u64));
        let record = (mark, &Bytes::from(frame), copy);
        let read = world.receiving.read_copied(half, number, record, true);
        reads.push(read.unwrap());
    }
    world.settle();
    (sent_bytes, reads)
}

#[test]
fn what_the_other_end_has_a_copy_of_is_remembered_without_being_sent() {
    let mut world = ready();
    let input = noise(11, 900_000);
    let (sent_bytes, reads) = send_copied(&mut world, 1, &input, &input);
    assert!(sent_bytes < 1000, "{sent_bytes}");
    let bytes = reads.iter().flat_map(|read| match read {
        Read::Bytes(bytes) => bytes.to_vec(),
        other => panic!("{other:?}"),
    });
    assert!(bytes.eq(input.iter().copied()));
    assert!(world.send(2, &input) < 2000);
}

#[test]
fn a_copy_that_is_none_is_asked_for_and_says_nothing_of_the_log() {
    let mut world = ready();
    let epoch = world.encoder.epoch;
    let (input, other) = (noise(12, 90_000), noise(13, 90_000));
    let (_, reads) = send_copied(&mut world, 1, &input, &other);
    assert_eq!(reads, [Read::Asked]);
    assert_eq!(world.receiving.take_again(1), Some(input.clone().into()));
    assert_eq!(world.encoder.epoch, epoch);
    assert!(world.send(2, &input) > 90_000, "it was not remembered");
    assert!(world.send(3, &input) < 2000);
}

/// The decoder's log holds other bytes than the encoder believes: as if bits had flipped in it.
#[test]
fn a_log_with_wrong_bytes_delivers_none_and_is_thrown_away() {
    let mut world = ready();
    let (epoch, key) = world.announced;
    let input = noise(5, 400_000);
    world.send(1, &input);
    let mut liar = Encoder::new(Settings {
        hash_key: key,
        ..Settings::of_memory(MEMORY_BYTES as usize)
    });
    let mut wrong = input.clone();
    wrong[200_000] ^= 4;
    liar.encode(9, &wrong);
    liar.flush();
    while let Some(plain) = liar.poll_frame() {
        let mut frame = Vec::new();
        plain.seal(Codec::Null, &mut world.compressor, &mut frame);
        let decoder = world.decoder.of(mark_of(epoch)).ok().unwrap();
        decoder.decode(&frame, &mut Vec::new()).unwrap();
    }
    world.send(2, &input);
    assert!(world.sending.missed > 0, "the lie was never seen");
    assert_ne!(world.encoder.epoch, epoch, "the log was kept");
    world.send(3, &input);
    assert!(world.send(4, &input) < 2000);
}

/// A new process at the encoder's end, whose first records come before the word of its log.
fn overtaken(is_epoch_told: bool) -> World {
    let mut world = ready();
    for _ in 0..4 {
        world.sending.restart(&mut world.encoder);
        world.settle();
    }
    let input = noise(8, 300_000);
    world.send(1, &input);
    world.encoder = EncoderHalf::new(MEMORY_BYTES);
    world.connect();
    let mut have = world.back.pop_front().unwrap();
    if let Message::Have { epoch, .. } = &mut have {
        *epoch = if is_epoch_told { *epoch } else { 0 };
    }
    world.sending.handle(&mut world.encoder, &have);
    world.write(2, &input);
    while !world.flows[&2].wire.is_empty() {
        world.arrive(2);
    }
    world.read(2);
    world.settle();
    // What had to be said again was not to be remembered.
    world.send(3, &input);
    assert!(world.send(4, &input) < 2000, "nothing is held any more");
    world
}

#[test]
fn records_that_overtake_the_word_of_a_new_process_wait_for_it() {
    assert_eq!(overtaken(true).sending.missed, 0);
}

#[test]
fn a_record_that_was_taken_for_one_of_an_old_epoch_leaves_no_gap() {
    assert!(overtaken(false).sending.missed > 0);
}

#[test]
fn a_flow_that_is_cut_leaves_no_gap_behind() {
    let mut world = ready();
    world.write(1, &noise(6, 300_000));
    world.arrive(1);
    world.cut(1);
    let input = noise(7, 300_000);
    world.send(2, &input);
    assert!(world.send(3, &input) < 2000);
}

#[derive(Debug, Clone)]
enum Act {
    Write(u64, u64, usize, usize),
    Arrive(u64),
    Read(u64),
    Speak,
    Hear(usize),
    Cut(u64),
    Connect,
    LoseDecoder,
    LoseEncoder,
    Forget,
    Clear,
    Review(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let flow = || 0u64..4;
    prop_oneof![
        12 => (flow(), 0u64..3, 0usize..60_000, 1usize..50_000)
            .prop_map(|(flow, source, start, len)| Act::Write(flow, source, start, len)),
        12 => flow().prop_map(Act::Arrive),
        8 => flow().prop_map(Act::Read),
        8 => Just(Act::Speak),
        8 => (1usize..5).prop_map(Act::Hear),
        1 => flow().prop_map(Act::Cut),
        1 => Just(Act::Connect),
        1 => Just(Act::LoseDecoder),
        1 => Just(Act::LoseEncoder),
        1 => Just(Act::Forget),
        1 => Just(Act::Clear),
        2 => (0u64..20).prop_map(Act::Review),
    ]
}

fn perform(world: &mut World, sources: &[Vec<u8>], act: Act) {
    let cuts = world.cuts;
    let id = |flow: u64| flow + 4 * cuts[flow as usize];
    match act {
        Act::Write(flow, source, start, len) => {
            world.write(id(flow), &sources[source as usize][start..start + len]);
        }
        Act::Arrive(flow) => world.arrive(id(flow)),
        Act::Read(flow) => world.read(id(flow)),
        Act::Speak => world.speak(),
        Act::Hear(count) => world.hear(count),
        Act::Cut(flow) => {
            world.cut(id(flow));
            world.cuts[flow as usize] += 1;
        }
        Act::Connect => world.connect(),
        Act::LoseDecoder => {
            world.decoder = DecoderHalf::new(MEMORY_BYTES);
            world.connect();
        }
        Act::LoseEncoder => {
            world.encoder = EncoderHalf::new(MEMORY_BYTES);
            world.connect();
        }
        Act::Forget => world.receiving.forget(&mut world.decoder),
        Act::Clear => world.sending.restart(&mut world.encoder),
        Act::Review(second) => {
            let now_ns = second * 1_000_000_000;
            world.sending.review(&mut world.encoder, now_ns, true);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn invariant_2_whatever_happens_the_bytes_are_right_and_come_through(acts in proptest::collection::vec(act(), 1..120)) {
        let sources = [noise(1, 120_000), vec![7; 120_000], b"words and words again ".repeat(6000)];
        let mut world = World::new();
        for act in acts {
            perform(&mut world, &sources, act);
        }
        world.settle();
    }
}
