//! invariant 5: readers that stop, however many, have nobody cut; unused credit comes back.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

mod world;

use bytes::Bytes;
use farhaul_tunnel::*;
use std::collections::{BTreeMap, BTreeSet};
use world::{Random, hello, request};

const MILLISECOND_NS: u64 = 1_000_000;
const STEP_NS: u64 = 2 * MILLISECOND_NS;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The dialer reads, the acceptor writes.
const READER: usize = 0;
const WRITER: usize = 1;

/// What is written repeats after so many bytes: no multiple of a frame.
const PERIOD: usize = 65_521;

/// A sixteenth of the usual memory, a quarter of the initial window.
fn limits() -> Limits {
    Limits {
        flow_window_bytes_initial: 256 * KIB,
        peer_window_bytes_max: 32 * MIB,
        receive_buffer_bytes_max: 64 * MIB,
        // What waits to be sent holds nobody up here.
        peer_send_buffer_bytes_max: 16 << 30,
        ..Limits::default()
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Track {
    written: u64,
    to_write: u64,
    read: u64,
    is_over: bool,
}

/// Two tunnels, a link of 1 Gbit/s with 25 to 30 ms one way between them, and applications.
struct Pair {
    muxes: [Mux; 2],
    due: BTreeMap<(u64, u64), (usize, Bytes)>,
    count: u64,
    now_ns: u64,
    free_ns: u64,
    random: Random,
    flows: BTreeMap<FlowId, Track>,
    /// Flows of which there may be something to read.
    readable: BTreeSet<FlowId>,
    bytes: Bytes,
    /// Nothing more is written at present.
    is_silent: bool,
}

impl Pair {
    fn new(features: u64) -> Pair {
        let hello = |instance| Hello {
            features,
            ..hello(instance)
        };
        let mut pair = Pair {
            muxes: [
                Mux::new(Side::Dialer, limits(), hello(1)),
                Mux::new(Side::Acceptor, limits(), hello(2)),
            ],
            due: BTreeMap::new(),
            count: 0,
            now_ns: 0,
            free_ns: 0,
            random: Random(4),
            flows: BTreeMap::new(),
            readable: BTreeSet::new(),
            is_silent: false,
            bytes: (0..2 * PERIOD)
                .map(|at| ((at % PERIOD * 2_654_435_761) >> 7) as u8)
                .collect(),
        };
        pair.run(200, |_| true);
        pair
    }

    fn open(&mut self, side: usize, flows: usize, to_write: u64) -> Vec<FlowId> {
        let open = |_| {
            let id = self.muxes[side].open(request()).unwrap();
            let track = Track {
                to_write,
                ..Track::default()
            };
            self.flows.insert(id, track);
            id
        };
        let ids: Vec<FlowId> = (0..flows).map(open).collect();
        ids.iter().for_each(|id| self.write(*id));
        ids
    }

    fn write(&mut self, id: FlowId) {
        let mux = &mut self.muxes[WRITER];
        let track = self.flows.get_mut(&id).unwrap();
        if self.is_silent {
            return;
        }
        loop {
            let left = (track.to_write - track.written) as usize;
            let length = left.min(PERIOD).min(mux.writable_bytes(id));
            if left == 0 {
                mux.finish(id);
            }
            if length == 0 {
                return;
            }
            let place = (track.written % PERIOD as u64) as usize;
            mux.write(id, self.bytes.slice(place..place + length))
                .unwrap();
            track.written += length as u64;
        }
    }

    fn read(&mut self, id: FlowId) {
        let track = self.flows.get_mut(&id).unwrap();
        while let Read::Data(data) = self.muxes[READER].read(self.now_ns, id, 1 << 20) {
            let place = (track.read % PERIOD as u64) as usize;
            assert!(data == self.bytes[place..place + data.len()]);
            track.read += data.len() as u64;
        }
    }

    fn events(&mut self, side: usize) {
        while let Some(event) = self.muxes[side].poll_event() {
            match event {
                Event::Incoming(id, _) => {
                    self.muxes[side].accept(id);
                    self.opened(side, id);
                }
                Event::Opened(id) => self.opened(side, id),
                Event::Writable(id) if side == WRITER => self.write(id),
                Event::Readable(id) if side == READER => drop(self.readable.insert(id)),
                Event::Readable(id) => {
                    assert_eq!(self.muxes[side].read(self.now_ns, id, 1), Read::End);
                }
                Event::Ended(id) if side == READER => {
                    let track = self.flows.get_mut(&id).unwrap();
                    assert_eq!(track.read, track.to_write);
                    track.is_over = true;
                }
                Event::Reset(id, code) => panic!("flow {id} was cut: {code:?}"),
                Event::Refused(id, why) => panic!("flow {id} was refused: {why:?}"),
                _ => {}
            }
        }
    }

    fn opened(&mut self, side: usize, id: FlowId) {
        match side {
            WRITER => self.write(id),
            _ => self.muxes[side].finish(id),
        }
    }

    fn put(&mut self, from: usize, at_ns: u64, transmit: &Transmit) {
        let delay_ns = (25 + self.random.below(6) as u64) * MILLISECOND_NS;
        self.count += 1;
        let frame = (1 - from, transmit.chunks.concat().into());
        self.due.insert((at_ns + delay_ns, self.count), frame);
    }

    /// What goes on for `milliseconds`; flows for which `reads` says so are read as data comes.
    fn run(&mut self, milliseconds: u64, reads: impl Fn(FlowId) -> bool) {
        let end_ns = self.now_ns + milliseconds * MILLISECOND_NS;
        while self.now_ns < end_ns {
            self.now_ns += STEP_NS;
            while let Some(entry) = self.due.first_entry()
                && entry.key().0 <= self.now_ns
            {
                let (to, frame) = entry.remove();
                self.muxes[to].handle_frame(self.now_ns, frame).unwrap();
                self.events(to);
            }
            let ready: Vec<FlowId> = self.readable.iter().copied().collect();
            for id in ready.into_iter().filter(|id| reads(*id)) {
                self.readable.remove(&id);
                self.read(id);
            }
            self.events(READER);
            while let Some(transmit) = self.muxes[READER].poll_transmit(self.now_ns) {
                self.put(READER, self.now_ns, &transmit);
            }
            while let Some(transmit) = self.muxes[WRITER].poll_control(self.now_ns) {
                self.put(WRITER, self.now_ns, &transmit);
            }
            self.free_ns = self.free_ns.max(self.now_ns - STEP_NS);
            while self.free_ns < self.now_ns
                && let Some(transmit) = self.muxes[WRITER].poll_transmit(self.now_ns)
            {
                self.free_ns += transmit.frame_bytes() as u64 * 8;
                self.put(WRITER, self.free_ns, &transmit);
            }
            self.events(WRITER);
            self.check_bound();
        }
    }

    fn check_bound(&self) {
        let stats = self.muxes[READER].stats();
        let floors_bytes = stats.flows * RECEIVE_FLOOR_BYTES;
        assert!(stats.receive_buffered_bytes <= 64 * MIB + floors_bytes);
        assert_eq!(stats.reset_overload, 0);
    }

    fn stats(&self) -> Stats {
        self.muxes[READER].stats()
    }

    fn window(&self, id: FlowId) -> u64 {
        let stats = self.muxes[READER].flow_stats(id).unwrap();
        stats.receive_window_bytes
    }

    fn read_of(&self, flows: &[FlowId]) -> Vec<u64> {
        flows.iter().map(|id| self.flows[id].read).collect()
    }
}

/// `flows` flows opened at once by `side` whose readers stop, beside ten that are read.
fn readers_stop(side: usize, flows: usize, each_bytes: u64) {
    let mut pair = Pair::new(FEATURE_RECLAIM);
    let stopped = pair.open(side, flows, each_bytes);
    let moving = pair.open(side, 10, 1 << 40);
    let is_moving = |id| moving.contains(&id);
    pair.run(4000, is_moving);
    let before = pair.read_of(&moving);
    pair.run(2000, is_moving);
    // Nothing but these moves any more: 250 MB go in two seconds.
    for (before, after) in before.iter().zip(pair.read_of(&moving)) {
        assert!(after - before > 5_000_000, "{before} to {after}");
    }
    assert_eq!(pair.read_of(&stopped), vec![0; flows]);
    let stats = pair.stats();
    assert!(stats.reclaims_sent > flows as u64 / 2, "{stats:?}");
    assert!(stats.receive_buffered_bytes > flows as u64 * 60 * KIB);

    // The readers go on: every byte comes, and at last everything is as in the beginning.
    for id in &moving {
        pair.flows.get_mut(id).unwrap().to_write = pair.flows[id].written;
        pair.write(*id);
    }
    for _ in 0..60 {
        pair.run(1000, |_| true);
        if pair.flows.values().all(|track| track.is_over) {
            break;
        }
    }
    assert!(pair.flows.values().all(|track| track.is_over));
    let stats = pair.stats();
    assert_eq!((stats.flows, stats.reserve_used_bytes), (0, 0));
    assert_eq!(stats.window_free_bytes, 32 * MIB);
    let next = pair.open(side, 1, 1 << 40);
    pair.run(1000, |_| true);
    assert!(pair.window(next[0]) > 8 * MIB, "{}", pair.window(next[0]));
}

#[test]
fn invariant_5_readers_that_stop_have_none_of_900_downloads_cut() {
    readers_stop(READER, 900, 600 * KIB);
}

#[test]
fn invariant_5_readers_that_stop_have_none_of_5000_downloads_cut() {
    readers_stop(READER, 5000, 300 * KIB);
}

#[test]
fn invariant_5_readers_that_stop_have_none_of_900_uploads_cut() {
    readers_stop(WRITER, 900, 600 * KIB);
}

#[test]
fn invariant_5_readers_that_stop_have_none_of_5000_uploads_cut() {
    readers_stop(WRITER, 5000, 300 * KIB);
}

#[test]
fn invariant_5_readers_that_stop_after_their_windows_have_grown_are_not_cut_either() {
    let mut pair = Pair::new(FEATURE_RECLAIM);
    let flows = pair.open(READER, 900, 1 << 40);
    pair.run(4000, |_| true);
    assert!(pair.stats().window_free_bytes < 16 * MIB);
    pair.run(4000, |_| false);
    let held_bytes = pair.stats().receive_buffered_bytes;
    assert!(held_bytes > 64 * MIB, "{held_bytes}");
    // Somebody else gets on with what is left for those that begin.
    let other = pair.open(READER, 1, 1 << 40)[0];
    pair.run(4000, |id| id == other);
    assert!(pair.flows[&other].read > 4_000_000);
    let before = pair.read_of(&flows);
    pair.run(4000, |_| true);
    let after = pair.read_of(&flows);
    assert!(
        before
            .iter()
            .zip(after)
            .all(|(before, after)| *before < after)
    );
}

#[test]
fn flows_that_fall_idle_give_their_credit_back_to_those_that_read() {
    let mut pair = Pair::new(FEATURE_RECLAIM);
    let flows = pair.open(READER, 2000, 1 << 40);
    pair.run(8000, |_| true);
    let idle_from = 300 * KIB;
    assert!(pair.read_of(&flows).iter().all(|read| *read > idle_from));
    assert!(pair.stats().window_free_bytes < 4 * MIB);
    // They stay open, and now and then a round trip is measured.
    pair.is_silent = true;
    for _ in 0..10 {
        pair.run(1000, |_| true);
        pair.muxes[READER].ping();
    }
    pair.is_silent = false;
    let stats = pair.stats();
    assert!(stats.window_free_bytes > 28 * MIB, "{stats:?}");
    assert!(stats.reserve_used_bytes <= 16 * MIB, "{stats:?}");
    let next = pair.open(READER, 1, 1 << 40)[0];
    pair.run(1000, |_| true);
    assert!(pair.window(next) > 8 * MIB, "{}", pair.window(next));
    assert!(pair.flows[&next].read > 80_000_000);
}

#[test]
fn a_peer_that_does_not_know_how_is_not_asked() {
    let mut pair = Pair::new(0);
    pair.open(READER, 120, 1 << 40);
    pair.run(3000, |_| false);
    let stats = pair.stats();
    assert!(stats.reserve_used_bytes > 16 * MIB, "{stats:?}");
    assert_eq!((stats.reclaims_sent, stats.credit_returned_bytes), (0, 0));
    assert_eq!(pair.muxes[WRITER].stats().frames_skipped, 0);
}

#[test]
fn without_pressure_nobody_is_asked() {
    let mut pair = Pair::new(FEATURE_RECLAIM);
    let flows = pair.open(READER, 60, 1 << 40);
    pair.run(5000, |id| id != flows[0]);
    assert_eq!(pair.stats().reclaims_sent, 0);
    assert!(pair.window(flows[0]) == 256 * KIB);
}

/// A tunnel that has heard hello, and what it has to send, decoded.
fn greeted(limits: Limits) -> Mux {
    let hello = |instance| Hello {
        features: FEATURE_RECLAIM,
        ..hello(instance)
    };
    let mut mux = Mux::new(Side::Acceptor, limits, hello(1));
    let peer = HelloFrame {
        hello: hello(2),
        flow_window_bytes: MIB,
        flows_max: 100,
    };
    let ping = Frame::Ping {
        nonce: 1,
        sent_ns: 1,
    };
    take(&mut mux, Frame::Hello(peer));
    take(&mut mux, ping);
    frames(&mut mux);
    mux
}

fn take(mux: &mut Mux, frame: Frame) {
    assert_eq!(mux.handle_frame(1, frame.encode()), Ok(()));
}

fn frames(mux: &mut Mux) -> Vec<Frame> {
    let transmits = std::iter::from_fn(|| mux.poll_transmit(1));
    let decode = |transmit: Transmit| Frame::decode(transmit.chunks.concat().into()).unwrap();
    transmits.map(decode).collect()
}

const FLOW: FlowId = FlowId(0);

fn open(mux: &mut Mux) {
    let request = request();
    take(
        mux,
        Frame::Open {
            flow: FLOW,
            request,
        },
    );
    mux.accept(FLOW);
    frames(mux);
}

fn returned(returned_bytes: u64) -> Frame {
    Frame::Returned {
        flow: FLOW,
        returned_bytes,
    }
}

fn data(number: u64, length: u64) -> Frame {
    Frame::Data {
        flow: FLOW,
        number,
        payload: vec![7; length as usize].into(),
    }
}

#[test]
fn who_gives_credit_back_has_it_no_more_and_is_given_the_floor_again() {
    let mut mux = greeted(limits());
    open(&mut mux);
    let window = |mux: &Mux| mux.flow_stats(FLOW).unwrap().receive_window_bytes;
    take(&mut mux, returned(100 * KIB));
    assert_eq!(window(&mux), 156 * KIB);
    // The same again, and an older one that was overtaken, say nothing new.
    take(&mut mux, returned(100 * KIB));
    take(&mut mux, returned(50 * KIB));
    assert_eq!(window(&mux), 156 * KIB);
    assert_eq!(frames(&mut mux), []);
    take(&mut mux, data(1, 56 * KIB - FRAME_COST_BYTES));
    // All the rest: nothing is unused, and the window is what waits to be read, the floor at least.
    take(&mut mux, returned(200 * KIB));
    assert_eq!(window(&mux), 64 * KIB);
    let limit_bytes = 56 * KIB;
    let exceeded = ProtocolError::CreditExceeded {
        flow: FLOW,
        limit_bytes,
    };
    let after = mux.handle_frame(1, data(2, 1).encode());
    assert_eq!(after, Err(exceeded.clone()));
    assert_eq!(
        mux.handle_frame(1, returned(200 * KIB + 1).encode()),
        Err(exceeded)
    );
    // Once it is read the sender has the floor again, counted from what was given back.
    while matches!(mux.read(1, FLOW, 1 << 20), Read::Data(_)) {}
    let credit = Frame::Credit {
        flow: FLOW,
        limit_bytes: (256 + 256) * KIB,
    };
    let told = frames(&mut mux);
    assert_eq!(told, [credit], "{told:?}");
}

#[test]
fn credit_returned_that_the_sender_never_had_is_an_error() {
    let mut mux = greeted(limits());
    open(&mut mux);
    let absurd = mux.handle_frame(1, returned((1 << 62) - 1).encode());
    assert!(matches!(absurd, Err(ProtocolError::CreditExceeded { .. })));
    let unknown = Frame::Returned {
        flow: FlowId(1),
        returned_bytes: 0,
    };
    assert_eq!(
        mux.handle_frame(1, unknown.encode()),
        Err(ProtocolError::UnknownFlow(FlowId(1)))
    );
}

#[test]
fn a_peer_that_returns_credit_for_ever_gets_no_more_than_its_window() {
    let mut mux = greeted(limits());
    open(&mut mux);
    let mut back_bytes = 256 * KIB;
    for _ in 0..10_000 {
        take(&mut mux, returned(back_bytes));
        let told = frames(&mut mux);
        let [Frame::Credit { limit_bytes, .. }] = told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(limit_bytes - back_bytes, 64 * KIB);
        assert!(mux.stats().reserve_used_bytes <= 256 * KIB);
        back_bytes = limit_bytes;
    }
    assert_eq!(mux.stats().window_free_bytes, 32 * MIB);
}

#[test]
fn what_is_asked_for_comes_back_and_credit_that_comes_late_stands() {
    let mut mux = greeted(limits());
    open(&mut mux);
    let reclaim = |keep_bytes| Frame::Reclaim {
        flow: FLOW,
        keep_bytes,
    };
    let credit = |limit_bytes| Frame::Credit {
        flow: FLOW,
        limit_bytes,
    };
    let left = |mux: &Mux| mux.flow_stats(FLOW).unwrap().send_credit_bytes;
    take(&mut mux, reclaim(64 * KIB));
    take(&mut mux, reclaim(64 * KIB));
    assert_eq!(
        frames(&mut mux),
        [returned(960 * KIB)],
        "one answer says it"
    );
    assert_eq!(left(&mux), 64 * KIB);
    // Announced before the peer asked, or after it had the answer: the count is the same.
    take(&mut mux, credit(MIB + 100 * KIB));
    take(&mut mux, credit(MIB));
    assert_eq!(left(&mux), 164 * KIB);
    // Asked twice, and for more than there is.
    take(&mut mux, reclaim(0));
    assert_eq!(frames(&mut mux), [returned(MIB + 100 * KIB)]);
    take(&mut mux, reclaim(MIB));
    assert_eq!(frames(&mut mux), [returned(MIB + 100 * KIB)]);
    assert_eq!(left(&mux), 0);
    mux.write(FLOW, Bytes::from_static(b"waits")).unwrap();
    assert_eq!(frames(&mut mux), []);
    take(&mut mux, credit(MIB + 104 * KIB));
    assert_eq!(frames(&mut mux).len(), 1);
}
