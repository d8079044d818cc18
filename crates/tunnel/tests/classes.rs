//! Classes: who goes first, who is kept alive, what `auto` makes of a flow, how long frames are.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

mod world;

use bytes::Bytes;
use farhaul_tunnel::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use world::{Random, hello, request_as};

const SECOND_NS: u64 = 1_000_000_000;

const CLASSES: [Class; 4] = [
    Class::Control,
    Class::Interactive,
    Class::Bulk,
    Class::Background,
];

/// A dialer with buffers as large as these tests like, whose peer has said hello.
fn dialer() -> Mux {
    let limits = Limits {
        send_buffer_bytes_max: 4 << 20,
        peer_send_buffer_bytes_max: 1 << 30,
        ..Limits::default()
    };
    let mut mux = Mux::new(Side::Dialer, limits, hello(1));
    let peer = HelloFrame {
        hello: hello(2),
        flow_window_bytes: 1 << 40,
        flows_max: 1 << 20,
    };
    mux.handle_frame(1, Frame::Hello(peer).encode()).unwrap();
    while mux.poll_transmit(1).is_some() {}
    mux
}

/// Opens a flow and lets its OPEN go.
fn open(mux: &mut Mux, class: Class) -> FlowId {
    let flow = mux.open(request_as(class)).unwrap();
    while mux.poll_control(1).is_some() {}
    flow
}

fn fill(mux: &mut Mux, flow: FlowId) {
    let chunk = Bytes::from_static(&[7; 64 << 10]);
    while mux.writable_bytes(flow) >= chunk.len() {
        mux.write(flow, chunk.clone()).unwrap();
    }
}

/// Lets the flow send so much that its frames are as long as they get.
fn ripen(mux: &mut Mux, flow: FlowId) {
    while mux.flow_stats(flow).unwrap().sent_bytes < 256 * FRAME_BYTES_HARD_MAX as u64 {
        fill(mux, flow);
        while mux.poll_transmit(1).is_some() {}
    }
}

fn payload_bytes(transmit: &Transmit) -> usize {
    transmit.chunks[1..].iter().map(Bytes::len).sum()
}

/// Sends `bytes` of payload in all while every flow of `flows` always has data; what each class got.
fn flood(mux: &mut Mux, flows: &[FlowId], bytes: usize) -> BTreeMap<String, f64> {
    let mut got: BTreeMap<String, usize> = BTreeMap::new();
    let mut sent_bytes = 0;
    while sent_bytes < bytes {
        for flow in flows {
            fill(mux, *flow);
        }
        for _ in 0..16 {
            let transmit = mux.poll_transmit(1).unwrap();
            sent_bytes += payload_bytes(&transmit);
            *got.entry(format!("{:?}", transmit.class)).or_default() += payload_bytes(&transmit);
        }
        while mux.poll_event().is_some() {}
    }
    let share = |(class, got)| (class, got as f64 / sent_bytes as f64);
    got.into_iter().map(share).collect()
}

#[test]
fn the_higher_class_goes_first_and_control_frames_before_all() {
    let mut mux = dialer();
    for class in CLASSES.iter().rev() {
        let flow = open(&mut mux, *class);
        mux.write(flow, Bytes::from_static(b"some")).unwrap();
    }
    mux.open(request_as(Class::Background)).unwrap();
    let order: Vec<Transmit> = std::iter::from_fn(|| mux.poll_transmit(1)).collect();
    assert_eq!(order[0].priority, i32::MAX, "an OPEN");
    let classes: Vec<Class> = order[1..].iter().map(|transmit| transmit.class).collect();
    assert_eq!(classes, CLASSES);
    let priorities: Vec<i32> = order.iter().map(|transmit| transmit.priority).collect();
    assert!(priorities.is_sorted_by(|a, b| a > b), "{priorities:?}");
}

#[test]
fn what_is_repeated_goes_before_what_is_new_of_its_class_and_after_higher_classes() {
    let mut mux = dialer();
    let [keys, copy, backup] =
        [Class::Interactive, Class::Bulk, Class::Background].map(|class| open(&mut mux, class));
    let mut send = |flow: FlowId| {
        mux.write(flow, Bytes::from_static(b"some")).unwrap();
        mux.poll_transmit(1).unwrap().priority
    };
    let (old_backup, old_copy, old_key) = (send(backup), send(copy), send(keys));
    let (new_key, new_copy, new_backup) = (send(keys), send(copy), send(backup));
    let falling = [old_key, new_key, old_copy, new_copy, old_backup, new_backup];
    assert!(falling.is_sorted_by(|a, b| a > b), "{falling:?}");
}

#[test]
fn a_keystroke_is_next_whatever_else_waits() {
    let mut mux = dialer();
    mux.set_rate(6_480_000, 1432);
    let copies: Vec<FlowId> = (0..20).map(|_| open(&mut mux, Class::Bulk)).collect();
    let keys = open(&mut mux, Class::Interactive);
    for round in 0..2000 {
        copies.iter().for_each(|flow| fill(&mut mux, *flow));
        for _ in 0..round % 7 {
            let transmit = mux.poll_transmit(1).unwrap();
            assert_eq!(transmit.class, Class::Bulk);
        }
        mux.write(keys, Bytes::from_static(&[1; 64])).unwrap();
        let transmit = mux.poll_urgent(1).expect("the keystroke may not wait");
        assert_eq!(
            (transmit.class, transmit.flow),
            (Class::Interactive, Some(keys))
        );
        assert_eq!(mux.poll_urgent(1), None, "bulk is not urgent");
        while mux.poll_event().is_some() {}
    }
}

/// A class and what it shall get, least and most.
type Promise = (&'static str, f64, f64);

#[test]
fn no_class_starves_and_each_gets_what_it_is_promised() {
    let cases: [(&[Class], &[Promise]); 5] = [
        (
            &[Class::Interactive, Class::Bulk],
            &[("Interactive", 0.89, 0.91), ("Bulk", 0.09, 0.11)],
        ),
        (
            &[Class::Bulk, Class::Background],
            &[("Bulk", 0.97, 0.985), ("Background", 0.015, 0.03)],
        ),
        (
            &[Class::Interactive, Class::Background],
            &[("Interactive", 0.97, 0.985), ("Background", 0.015, 0.03)],
        ),
        (
            &[Class::Interactive, Class::Bulk, Class::Background],
            &[("Bulk", 0.09, 0.11), ("Background", 0.015, 0.03)],
        ),
        (
            &CLASSES,
            &[
                ("Interactive", 0.19, 0.21),
                ("Bulk", 0.09, 0.11),
                ("Background", 0.015, 0.03),
            ],
        ),
    ];
    for rate_bytes_s in [0, 8_000, 193_000, 6_480_000, 125_000_000] {
        for (classes, expected) in cases {
            let mut mux = dialer();
            mux.set_rate(rate_bytes_s, 1432);
            let flows: Vec<FlowId> = classes
                .iter()
                .flat_map(|class| [open(&mut mux, *class), open(&mut mux, *class)])
                .collect();
            let got = flood(&mut mux, &flows, 40 << 20);
            for (class, least, most) in expected {
                let share = got[*class];
                let case = format!("{class} at {rate_bytes_s} bytes/s got {share:.4}: {got:?}");
                assert!((*least..=*most).contains(&share), "{case}");
            }
        }
    }
}

#[test]
fn a_lower_class_that_gets_more_than_its_share_anyway_interrupts_nobody() {
    let mut mux = dialer();
    let (keys, copy) = (
        open(&mut mux, Class::Interactive),
        open(&mut mux, Class::Bulk),
    );
    for _ in 0..1000 {
        fill(&mut mux, copy);
        // Half the bytes are interactive, in bursts as long as a lower class's turn.
        mux.write(keys, Bytes::from_static(&[1; 60_000])).unwrap();
        for _ in 0..4 {
            assert_eq!(mux.poll_transmit(1).unwrap().class, Class::Interactive);
        }
        assert_eq!(mux.poll_transmit(1).unwrap().class, Class::Bulk);
        while mux.poll_event().is_some() {}
    }
}

#[test]
fn flows_of_a_class_share_alike_whatever_their_number_and_writes() {
    for class in CLASSES {
        let mut mux = dialer();
        let flows: Vec<FlowId> = (0..9).map(|_| open(&mut mux, class)).collect();
        let mut got: BTreeMap<FlowId, usize> = BTreeMap::new();
        for _ in 0..3000 {
            for (place, flow) in flows.iter().enumerate() {
                let piece_bytes = [300, 2_000, 70_000][place % 3];
                while mux.writable_bytes(*flow) > 1 << 20 {
                    mux.write(*flow, vec![1; piece_bytes].into()).unwrap();
                }
            }
            let transmit = mux.poll_transmit(1).unwrap();
            *got.entry(transmit.flow.unwrap()).or_default() += payload_bytes(&transmit);
            while mux.poll_event().is_some() {}
        }
        let (least, most) = (got.values().min().unwrap(), got.values().max().unwrap());
        assert_eq!(got.len(), 9);
        assert!(most - least < 3 * 65_536, "{class:?}: {got:?}");
    }
}

/// The class of the only flow with data, as its next frame goes.
fn class_sent(mux: &mut Mux, now_ns: u64) -> Class {
    let transmits = std::iter::from_fn(|| mux.poll_transmit(now_ns));
    let data = transmits.filter(|transmit| transmit.chunks.len() > 1);
    data.last().unwrap().class
}

#[test]
fn auto_begins_interactive_turns_bulk_with_a_transfer_and_comes_back_after_it() {
    let mut mux = dialer();
    let flow = open(&mut mux, Class::Auto);
    let class = |mux: &Mux| mux.flow_stats(flow).unwrap().class;
    assert_eq!(class(&mux), Class::Interactive);
    for second in 1..100 {
        mux.write(flow, Bytes::from_static(b"ls\n")).unwrap();
        assert_eq!(class_sent(&mut mux, second * SECOND_NS), Class::Interactive);
    }
    mux.write(flow, vec![1; 66_000].into()).unwrap();
    assert_eq!(class_sent(&mut mux, 200 * SECOND_NS), Class::Interactive);
    mux.write(flow, vec![1; 500_000].into()).unwrap();
    assert_eq!(class_sent(&mut mux, 201 * SECOND_NS), Class::Bulk);
    assert_eq!(class(&mux), Class::Bulk);
    assert_eq!(mux.flow_class(202 * SECOND_NS, flow), Some(Class::Bulk));
    // The first byte after a pause is a keystroke again, before it is sent.
    mux.write(flow, Bytes::from_static(b"q")).unwrap();
    assert_eq!(class_sent(&mut mux, 205 * SECOND_NS), Class::Interactive);
    assert_eq!(
        mux.flow_class(206 * SECOND_NS, flow),
        Some(Class::Interactive)
    );
}

#[test]
fn each_side_judges_what_it_sends_itself() {
    let mut world = world::World::new(Limits::default());
    let mut random = Random(4);
    let flow = world.open_as(0, Class::Auto).unwrap();
    for round in 0..200 {
        world.answer(1, flow, None);
        world.write(0, flow, 40);
        world.write(1, flow, 60_000);
        world.now_ns += SECOND_NS / 50;
        for side in 0..2 {
            while world.transmit(side) {}
            while world.deliver(1 - side, random.below(100)) {}
            world.events(0);
            world.events(1);
        }
        for side in 0..2 {
            while world.read(side, flow, 1 << 20) {}
        }
        if round > 100 {
            let classes = [0, 1].map(|side| world.muxes[side].flow_stats(flow).unwrap().class);
            assert_eq!(classes, [Class::Interactive, Class::Bulk]);
        }
    }
}

#[test]
fn an_explicit_class_never_changes() {
    for class in CLASSES {
        let mut mux = dialer();
        let flow = open(&mut mux, class);
        for second in 1..50 {
            let bytes = if second % 10 < 5 { 1_000_000 } else { 10 };
            mux.write(flow, vec![1; bytes].into()).unwrap();
            assert_eq!(class_sent(&mut mux, second * SECOND_NS), class);
            assert_eq!(mux.flow_class(second * SECOND_NS, flow), Some(class));
        }
    }
}

#[test]
fn a_bulk_flow_that_turned_interactive_passes_those_that_stayed_bulk() {
    let mut mux = dialer();
    let (shell, copy) = (open(&mut mux, Class::Auto), open(&mut mux, Class::Auto));
    for flow in [shell, copy] {
        mux.write(flow, vec![1; 1 << 20].into()).unwrap();
    }
    while mux.poll_transmit(SECOND_NS).is_some() {}
    for second in 2..10 {
        mux.write(copy, vec![1; 1 << 20].into()).unwrap();
        while mux.poll_transmit(second * SECOND_NS).is_some() {}
    }
    mux.write(copy, vec![1; 1 << 20].into()).unwrap();
    mux.write(shell, Bytes::from_static(b"ls\n")).unwrap();
    let ping = mux.poll_control(10 * SECOND_NS).unwrap();
    assert_eq!(ping.flow, None);
    let first = mux.poll_urgent(10 * SECOND_NS).unwrap();
    assert_eq!((first.flow, first.class), (Some(shell), Class::Interactive));
    assert_eq!(mux.poll_urgent(10 * SECOND_NS), None);
    assert_eq!(
        mux.poll_transmit(10 * SECOND_NS).unwrap().class,
        Class::Bulk
    );
}

#[test]
fn frames_are_cut_by_time() {
    let cases = [
        // bit/s, bulk, interactive, bytes at most
        (64_000, 1432, 1432),
        (1_544_000, 12_352, 1432),
        (51_840_000, 103_680, 12_960),
        (1_000_000_000, FRAME_BYTES_HARD_MAX, 16 << 10),
    ];
    for (rate_bits, bulk_bytes, small_bytes) in cases {
        for (class, bytes_max) in [(Class::Bulk, bulk_bytes), (Class::Interactive, small_bytes)] {
            let mut mux = dialer();
            mux.set_rate(rate_bits / 8, 1432);
            let flow = open(&mut mux, class);
            ripen(&mut mux, flow);
            fill(&mut mux, flow);
            let sizes: Vec<usize> = (0..4)
                .map(|_| mux.poll_transmit(1).unwrap().frame_bytes())
                .collect();
            let is_right = |size: &usize| *size <= bytes_max && *size > bytes_max - 25;
            assert!(
                sizes.iter().all(is_right),
                "{class:?} at {rate_bits}: {sizes:?}"
            );
        }
    }
}

#[test]
fn a_young_flow_sends_small_frames_and_has_the_same_share() {
    let mut mux = dialer();
    mux.set_rate(125_000_000, 1432);
    let old = open(&mut mux, Class::Bulk);
    ripen(&mut mux, old);
    let young = open(&mut mux, Class::Bulk);
    let mut got = BTreeMap::from([(old, 0), (young, 0)]);
    let mut sizes = Vec::new();
    for _ in 0..2000 {
        fill(&mut mux, old);
        fill(&mut mux, young);
        let transmit = mux.poll_transmit(1).unwrap();
        let bytes = payload_bytes(&transmit);
        if transmit.flow == Some(young) {
            sizes.push(bytes);
        }
        *got.get_mut(&transmit.flow.unwrap()).unwrap() += bytes;
        let apart = got[&old].abs_diff(got[&young]);
        assert!(apart <= 3 * FRAME_BYTES_HARD_MAX, "{got:?}");
        while mux.poll_event().is_some() {}
    }
    assert!(sizes[..30].iter().all(|bytes| *bytes <= 16 << 10));
    assert!(sizes.last().unwrap() > &250_000, "{sizes:?}");
}

#[test]
fn bulk_sends_small_frames_while_interactive_flows_wait() {
    let mut mux = dialer();
    mux.set_rate(6_480_000, 1432);
    let (copy, keys) = (
        open(&mut mux, Class::Bulk),
        open(&mut mux, Class::Interactive),
    );
    ripen(&mut mux, copy);
    fill(&mut mux, copy);
    assert!(mux.poll_transmit(1).unwrap().frame_bytes() > 100_000);
    fill(&mut mux, keys);
    for _ in 0..100 {
        let transmit = mux.poll_transmit(1).unwrap();
        assert!(transmit.frame_bytes() <= 12_960, "{:?}", transmit.class);
    }
}

/// One thing that happens to the flows of a sender.
#[derive(Debug, Clone)]
enum Operation {
    Open { class: usize },
    Write { flow: usize, length: usize },
    Fill { flow: usize },
    Finish { flow: usize },
    Reset { flow: usize },
    Send { frames: usize },
    SendUrgent { frames: usize },
    Wait { time_ns: u64 },
    Rate { rate_bytes_s: u64 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let flow = || 0usize..64;
    prop_oneof![
        4 => (0usize..5).prop_map(|class| Operation::Open { class }),
        6 => (flow(), 1usize..200_000)
            .prop_map(|(flow, length)| Operation::Write { flow, length }),
        6 => flow().prop_map(|flow| Operation::Fill { flow }),
        1 => flow().prop_map(|flow| Operation::Finish { flow }),
        1 => flow().prop_map(|flow| Operation::Reset { flow }),
        12 => (1usize..120).prop_map(|frames| Operation::Send { frames }),
        4 => (1usize..60).prop_map(|frames| Operation::SendUrgent { frames }),
        1 => (0u64..5 * SECOND_NS).prop_map(|time_ns| Operation::Wait { time_ns }),
        1 => prop_oneof![Just(0u64), 1000u64..20_000_000]
            .prop_map(|rate_bytes_s| Operation::Rate { rate_bytes_s }),
    ]
}

/// A sender and what its promises are held against.
struct Sender {
    mux: Mux,
    flows: Vec<(FlowId, Class)>,
    now_ns: u64,
    /// Of each class since it last had nothing to send: bytes of all, bytes of its own.
    since: BTreeMap<&'static str, (f64, f64)>,
}

impl Sender {
    fn new() -> Self {
        Sender {
            mux: dialer(),
            flows: Vec::new(),
            now_ns: 1,
            since: BTreeMap::new(),
        }
    }

    fn pick(&self, flow: usize) -> Option<FlowId> {
        let count = self.flows.len().max(1);
        self.flows.get(flow % count).map(|(id, _)| *id)
    }

    fn waits(&self, class: Class) -> bool {
        let is_waiting = |(id, _): &&(FlowId, Class)| {
            let stats = self.mux.flow_stats(*id);
            stats.is_some_and(|stats| stats.class == class && stats.send_buffered_bytes > 0)
        };
        self.flows.iter().find(is_waiting).is_some()
    }

    fn send(&mut self, is_urgent: bool) -> bool {
        let waiting = CLASSES.map(|class| self.waits(class));
        let transmit = match is_urgent {
            true => self.mux.poll_urgent(self.now_ns),
            false => self.mux.poll_transmit(self.now_ns),
        };
        while self.mux.poll_event().is_some() {}
        let Some(transmit) = transmit else {
            // Nothing is held back while there is room.
            assert!(is_urgent || !waiting.contains(&true), "{waiting:?}");
            return false;
        };
        assert!(!is_urgent || matches!(transmit.class, Class::Control | Class::Interactive));
        if transmit.flow.is_some() && transmit.priority != i32::MAX && !is_urgent {
            self.account(&transmit, waiting);
        }
        true
    }

    fn send_frames(&mut self, frames: usize, is_urgent: bool) {
        for _ in 0..frames {
            self.send(is_urgent);
        }
    }

    /// A class that waits gets its share, less what one turn and one frame may be.
    fn account(&mut self, transmit: &Transmit, waiting: [bool; 4]) {
        let names = ["control", "interactive", "bulk", "background"];
        let promised = [0.0, 0.2, 0.1, 0.02];
        let bytes = (transmit.frame_bytes() + 128) as f64;
        for (place, class) in CLASSES.iter().enumerate() {
            let since = self.since.entry(names[place]).or_default();
            if !waiting[place] {
                *since = (0.0, 0.0);
                continue;
            }
            since.0 += bytes;
            since.1 += if transmit.class == *class { bytes } else { 0.0 };
            let slack_bytes = 3.0 * FRAME_BYTES_HARD_MAX as f64;
            assert!(
                since.1 + slack_bytes >= since.0 * promised[place],
                "{class:?} got {since:?}"
            );
        }
    }

    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::Open { class } => {
                let class = [Class::Auto, CLASSES[0], CLASSES[1], CLASSES[2], CLASSES[3]][class];
                let flow = self.mux.open(request_as(class)).unwrap();
                self.flows.push((flow, class));
            }
            Operation::Write { flow, length } => {
                if let Some(id) = self.pick(flow) {
                    let length = length.min(self.mux.writable_bytes(id));
                    let _ = self.mux.write(id, vec![1; length].into());
                }
            }
            Operation::Fill { flow } => {
                if let Some(id) = self.pick(flow) {
                    fill(&mut self.mux, id);
                }
            }
            Operation::Finish { flow } => {
                if let Some(id) = self.pick(flow) {
                    self.mux.finish(id);
                }
            }
            Operation::Reset { flow } => {
                if let Some(id) = self.pick(flow) {
                    self.mux.reset(id, ResetCode::Application);
                    self.flows.retain(|(flow, _)| *flow != id);
                }
            }
            Operation::Send { frames } => self.send_frames(frames, false),
            Operation::SendUrgent { frames } => self.send_frames(frames, true),
            Operation::Wait { time_ns } => self.now_ns += time_ns,
            Operation::Rate { rate_bytes_s } => self.mux.set_rate(rate_bytes_s, 1432),
        }
        self.check();
    }

    fn check(&self) {
        for (id, asked) in &self.flows {
            let class = self.mux.flow_stats(*id).map(|stats| stats.class);
            let is_right = match (asked, class) {
                (_, None) => true,
                (Class::Auto, Some(class)) => {
                    matches!(class, Class::Interactive | Class::Bulk)
                }
                (asked, Some(class)) => *asked == class,
            };
            assert!(is_right, "{asked:?} became {class:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_shares_hold_nothing_waits_in_vain_and_all_is_sent(
        operations in prop::collection::vec(operation(), 0..150),
    ) {
        let mut sender = Sender::new();
        for operation in &operations {
            sender.apply(operation);
        }
        while sender.send(false) {}
        let stats = sender.mux.stats();
        prop_assert_eq!(stats.send_buffered_bytes, 0);
        prop_assert!(stats.flows_ready <= 128, "{} ids left behind", stats.flows_ready);
    }
}
