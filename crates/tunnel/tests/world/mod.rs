//! Two tunnels, a wire that keeps no order, and a model of what every flow must deliver.
//!
//! Every byte written is a function of flow, direction and offset, so a byte lost, doubled or out
//! of place is seen where it is read. `World` panics the moment either tunnel breaks a promise.

#![allow(dead_code, clippy::unwrap_used)] // each test file uses its part of it

use bytes::Bytes;
use farhaul_tunnel::*;
use std::collections::BTreeMap;

/// A small seeded generator (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

pub fn hello(instance: u128) -> Hello {
    Hello {
        versions: PROTOCOL_VERSIONS,
        instance,
        site: format!("site-{instance}"),
        features: 0b110,
    }
}

pub fn request() -> OpenRequest {
    request_as(Class::Bulk)
}

pub fn request_as(class: Class) -> OpenRequest {
    OpenRequest {
        client: "192.0.2.7:40000".parse().unwrap(),
        target: Target::Address("198.51.100.9:445".parse().unwrap()),
        keep_client_address: true,
        class,
        dscp: 10,
        correction: Correction::Auto,
        items: false,
        payload: Payload::Plain,
    }
}

/// Limits small enough that every bound is met within a test.
pub fn small_limits() -> Limits {
    Limits {
        flow_window_bytes_initial: 16 << 10,
        flow_window_bytes_max: 64 << 10,
        peer_window_bytes_max: 96 << 10,
        send_buffer_bytes_max: 24 << 10,
        frame_bytes_max: 3000,
        ..Limits::default()
    }
}

/// Limits under which flows are refused, reset for overload and held to the floor.
pub fn tight_limits() -> Limits {
    Limits {
        flows_max: 5,
        receive_buffer_bytes_max: 8 << 10,
        flow_window_bytes_initial: 96 << 10,
        flow_window_bytes_max: 192 << 10,
        send_buffer_bytes_max: 60 << 10,
        peer_send_buffer_bytes_max: 80 << 10,
        ..small_limits()
    }
}

/// Limits under which credit is asked back as soon as three flows are open.
pub fn pressed_limits() -> Limits {
    Limits {
        flows_max: 20,
        receive_buffer_bytes_max: 224 << 10,
        ..tight_limits()
    }
}

/// The bytes a side writes to a flow, from `offset` on.
pub fn pattern(flow: FlowId, side: usize, offset: u64, length: usize) -> Bytes {
    let at = |n: usize| {
        let place = offset + n as u64;
        let word = (place / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (flow.0 * 2 + side as u64);
        (word.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> (8 * (place % 8))) as u8
    };
    (0..length).map(at).collect()
}

/// What one side wrote to a flow, and what the other has read of it.
#[derive(Debug, Default, Clone)]
pub struct Direction {
    pub written: u64,
    pub finished: bool,
    pub read: u64,
    pub end_read: bool,
}

/// The model of one flow; index 0 is the dialer, 1 the acceptor, as everywhere here.
#[derive(Debug, Default, Clone)]
pub struct Track {
    pub class: Class,
    /// By the side that writes.
    pub directions: [Direction; 2],
    /// The side knows the flow (it opened it or saw `Incoming`).
    pub known: [bool; 2],
    pub answered: bool,
    /// The flow's last event came, or the side reset or refused it.
    pub gone: [bool; 2],
    /// Someone reset or refused it: bytes may be missing, but no end may be seen.
    pub cut: bool,
    pub readable: [bool; 2],
    pub refused: Option<Refusal>,
    pub reset: Option<ResetCode>,
}

pub struct World {
    pub muxes: [Mux; 2],
    /// Frames on their way to each side, in no order.
    pub wire: [Vec<Bytes>; 2],
    pub flows: BTreeMap<FlowId, Track>,
    pub now_ns: u64,
    pub limits: Limits,
    pub pongs: [usize; 2],
    pub hellos: [usize; 2],
    pub writable: Vec<(usize, FlowId)>,
}

impl World {
    pub fn new(limits: Limits) -> World {
        World::offering(FEATURE_RECLAIM, limits)
    }

    /// Both sides offer `features` beside some that do not matter.
    pub fn offering(features: u64, limits: Limits) -> World {
        let hello = |instance| Hello {
            features: features | 0b110,
            ..hello(instance)
        };
        let dialer = Mux::new(Side::Dialer, limits.clone(), hello(1));
        let acceptor = Mux::new(Side::Acceptor, limits.clone(), hello(2));
        World {
            muxes: [dialer, acceptor],
            wire: [Vec::new(), Vec::new()],
            flows: BTreeMap::new(),
            now_ns: 1,
            limits,
            pongs: [0; 2],
            hellos: [0; 2],
            writable: Vec::new(),
        }
    }

    pub fn open(&mut self, side: usize) -> Option<FlowId> {
        self.open_as(side, Class::Bulk)
    }

    pub fn open_as(&mut self, side: usize, class: Class) -> Option<FlowId> {
        let id = self.muxes[side].open(request_as(class)).ok()?;
        let track = self.flows.entry(id).or_default();
        assert!(!track.known[side], "flow id {id} was used twice");
        track.known[side] = true;
        track.class = class;
        Some(id)
    }

    /// Writes as much of `length` as fits; returns how much that was.
    pub fn write(&mut self, side: usize, id: FlowId, length: usize) -> usize {
        let length = length.min(self.muxes[side].writable_bytes(id));
        if length == 0 {
            return 0;
        }
        let direction = &mut self.flows.get_mut(&id).unwrap().directions[side];
        let data = pattern(id, side, direction.written, length);
        self.muxes[side].write(id, data).unwrap();
        direction.written += length as u64;
        length
    }

    pub fn finish(&mut self, side: usize, id: FlowId) {
        let track = self.flows.get_mut(&id).unwrap();
        if track.known[side] && !track.gone[side] {
            track.directions[side].finished = true;
            self.muxes[side].finish(id);
        }
    }

    pub fn reset(&mut self, side: usize, id: FlowId, code: ResetCode) {
        let track = self.flows.get_mut(&id).unwrap();
        if track.known[side] && !track.gone[side] {
            track.gone[side] = true;
            track.cut = true;
            self.muxes[side].reset(id, code);
        }
    }

    pub fn answer(&mut self, side: usize, id: FlowId, refusal: Option<Refusal>) {
        let is_incoming = id.opener() != [Side::Dialer, Side::Acceptor][side];
        let track = self.flows.get_mut(&id).unwrap();
        if !is_incoming || !track.known[side] || track.gone[side] || track.answered {
            return;
        }
        track.answered = true;
        match refusal {
            None => self.muxes[side].accept(id),
            Some(why) => {
                track.gone[side] = true;
                track.cut = true;
                self.muxes[side].refuse(id, why);
            }
        }
    }

    /// Reads once and checks what came; true when something did.
    pub fn read(&mut self, side: usize, id: FlowId, bytes_max: usize) -> bool {
        let track = self.flows.get_mut(&id).unwrap();
        if !track.known[side] {
            return false;
        }
        let read = self.muxes[side].read(self.now_ns, id, bytes_max);
        let writer = 1 - side;
        let direction = &mut track.directions[writer];
        match read {
            Read::Data(data) => {
                assert!(!track.gone[side] && !direction.end_read);
                assert!(!data.is_empty() && data.len() <= bytes_max.max(1));
                assert_eq!(data, pattern(id, writer, direction.read, data.len()));
                direction.read += data.len() as u64;
                assert!(direction.read <= direction.written);
                true
            }
            Read::End => {
                assert!(direction.finished, "an end nobody wrote on flow {id}");
                assert_eq!(direction.read, direction.written, "flow {id} ended short");
                let is_new = !direction.end_read;
                direction.end_read = true;
                self.events(side);
                is_new
            }
            Read::Gone => {
                assert!(track.gone[side], "flow {id} vanished without an event");
                false
            }
            Read::Blocked => {
                track.readable[side] = false;
                false
            }
        }
    }

    /// Hands the next frame of `side` to the wire.
    pub fn transmit(&mut self, side: usize) -> bool {
        let transmit = self.muxes[side].poll_transmit(self.now_ns);
        self.carry(side, transmit)
    }

    /// Hands the next frame that may not wait to the wire.
    pub fn transmit_urgent(&mut self, side: usize) -> bool {
        let transmit = self.muxes[side].poll_urgent(self.now_ns);
        let class = transmit.as_ref().map(|transmit| transmit.class);
        assert!(matches!(
            class,
            None | Some(Class::Control | Class::Interactive)
        ));
        self.carry(side, transmit)
    }

    fn carry(&mut self, side: usize, transmit: Option<Transmit>) -> bool {
        let Some(transmit) = transmit else {
            return false;
        };
        self.check_class(side, &transmit);
        assert!(transmit.frame_bytes() <= self.limits.frame_bytes_max.max(400));
        self.wire[1 - side].push(transmit.chunks.concat().into());
        self.events(side);
        true
    }

    /// A frame goes as what its flow was opened as, or as one of the two that `auto` can be.
    fn check_class(&self, side: usize, transmit: &Transmit) {
        if transmit.chunks.len() == 1 && transmit.priority == i32::MAX {
            return assert_eq!(transmit.class, Class::Control);
        }
        let asked = self.flows[&transmit.flow.unwrap()].class;
        let is_right = match asked {
            Class::Auto => matches!(transmit.class, Class::Interactive | Class::Bulk),
            asked => transmit.class == asked,
        };
        assert!(
            is_right,
            "{asked:?} of side {side} went as {:?}",
            transmit.class
        );
    }

    /// Delivers one frame, any, to `side`.
    pub fn deliver(&mut self, side: usize, index: usize) -> bool {
        if self.wire[side].is_empty() {
            return false;
        }
        let index = index % self.wire[side].len();
        let frame = self.wire[side].swap_remove(index);
        let handled = self.muxes[side].handle_frame(self.now_ns, frame);
        assert_eq!(handled, Ok(()), "an honest peer was accused");
        true
    }

    /// Takes every event in and checks it against the model.
    pub fn events(&mut self, side: usize) {
        while let Some(event) = self.muxes[side].poll_event() {
            match event {
                Event::Hello(negotiated) => {
                    assert_eq!(negotiated.version, 1);
                    self.hellos[side] += 1;
                }
                Event::Draining => {}
                Event::Pong { .. } => self.pongs[side] += 1,
                Event::Incoming(id, asked) => {
                    let track = self.flows.get_mut(&id).unwrap();
                    assert_eq!(asked, request_as(track.class));
                    assert!(!track.known[side], "flow {id} came twice");
                    track.known[side] = true;
                }
                Event::Opened(id) => assert!(self.live(side, id).answered),
                Event::Readable(id) => {
                    let track = self.live(side, id);
                    assert!(!track.readable[side], "told twice without Blocked between");
                    track.readable[side] = true;
                }
                Event::Writable(id) => {
                    self.live(side, id);
                    self.writable.push((side, id));
                }
                Event::Refused(id, why) => {
                    let track = self.live(side, id);
                    (track.gone[side], track.cut, track.refused) = (true, true, Some(why));
                }
                Event::Reset(id, code) => {
                    let track = self.live(side, id);
                    (track.gone[side], track.cut, track.reset) = (true, true, Some(code));
                }
                Event::Ended(id) => {
                    let track = self.live(side, id);
                    track.gone[side] = true;
                    assert!(track.directions[1 - side].end_read);
                    assert!(track.directions[side].finished);
                }
            }
        }
    }

    fn live(&mut self, side: usize, id: FlowId) -> &mut Track {
        let track = self.flows.get_mut(&id).unwrap();
        assert!(
            track.known[side],
            "event of flow {id}, which the side does not know"
        );
        assert!(!track.gone[side], "event of flow {id} after its last");
        track
    }

    /// Every bound that `Limits` promises, as the tunnel itself counts it.
    pub fn check_bounds(&self) {
        let limits = &self.limits;
        for mux in &self.muxes {
            let stats = mux.stats();
            assert!(stats.flows <= limits.flows_max as u64);
            let floor_bytes = limits.flows_max as u64 * RECEIVE_FLOOR_BYTES;
            let bytes_max = limits.receive_buffer_bytes_max + floor_bytes;
            assert!(stats.receive_buffered_bytes <= bytes_max);
            assert!(stats.window_free_bytes <= limits.peer_window_bytes_max);
            let control_max = limits.control_frames_max as u64 + 5 * stats.flows;
            assert!(stats.control_frames_queued <= control_max);
            assert!(stats.flows_ready <= 2 * stats.flows + 128);
            let (mut grown_bytes, mut reserve_bytes) = (0, 0);
            let floor_bytes = limits.flow_window_bytes_initial.min(RECEIVE_FLOOR_BYTES);
            for id in mux.flows() {
                let flow = mux.flow_stats(id).unwrap();
                assert!(flow.receive_buffered_bytes <= limits.flow_window_bytes_max);
                assert!(flow.receive_window_bytes <= limits.flow_window_bytes_max);
                assert!(flow.send_buffered_bytes <= limits.send_buffer_bytes_max as u64);
                assert!(flow.receive_buffered_bytes <= flow.receive_window_bytes);
                assert!(flow.receive_base_bytes <= limits.flow_window_bytes_initial);
                grown_bytes += flow.receive_window_bytes - flow.receive_base_bytes;
                reserve_bytes += flow.receive_base_bytes - floor_bytes;
            }
            assert_eq!(
                stats.window_free_bytes + grown_bytes,
                limits.peer_window_bytes_max
            );
            // Flows whose OPEN was overtaken are not among those that are listed.
            assert!(reserve_bytes <= stats.reserve_used_bytes);
        }
    }

    /// Answers, reads and ends everything until nothing moves, delivering in random order.
    pub fn settle(&mut self, random: &mut Random) {
        let ids: Vec<FlowId> = self.flows.keys().copied().collect();
        loop {
            let mut moved = false;
            self.now_ns += 1_000_000;
            for side in 0..2 {
                while self.transmit(side) {
                    moved = true;
                }
                while self.deliver(side, random.below(1 << 20)) {
                    moved = true;
                    self.events(side);
                }
                for id in &ids {
                    self.answer(side, *id, None);
                    self.finish(side, *id);
                    while self.read(side, *id, 1 + random.below(5000)) {
                        moved = true;
                    }
                }
                self.events(side);
            }
            if !moved && !self.muxes.iter().any(Mux::has_transmit) {
                return;
            }
        }
    }

    /// After `settle`: every flow is over, every byte of uncut flows arrived, nothing is kept.
    pub fn check_all_done(&self) {
        for (id, track) in &self.flows {
            for side in 0..2 {
                assert!(
                    !track.known[side] || track.gone[side],
                    "flow {id} hangs: {track:?}"
                );
                let direction = &track.directions[side];
                assert!(track.cut || direction.read == direction.written);
                assert!(track.cut || direction.end_read);
            }
        }
        for mux in &self.muxes {
            let stats = mux.stats();
            assert!(mux.is_idle());
            assert_eq!(stats.flows, 0);
            assert_eq!(stats.send_buffered_bytes, 0);
            assert_eq!(stats.receive_buffered_bytes, 0);
            assert_eq!(stats.control_frames_queued, 0);
            assert_eq!(stats.window_free_bytes, self.limits.peer_window_bytes_max);
            assert_eq!(stats.reserve_used_bytes, 0);
            assert!(stats.ended_ranges <= 1, "{} ranges", stats.ended_ranges);
        }
    }
}
