//! Who sends next, at what cost, and whether windows grow to what the path needs.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

mod world;

use bytes::Bytes;
use farhaul_tunnel::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use world::{Random, hello, request};

/// A dialer whose peer has said hello and grants `window_bytes` to every flow.
fn dialer(window_bytes: u64, limits: Limits) -> Mux {
    let mut mux = Mux::new(Side::Dialer, limits, hello(1));
    let peer = HelloFrame {
        hello: hello(2),
        flow_window_bytes: window_bytes,
        flows_max: 1 << 20,
    };
    mux.handle_frame(1, Frame::Hello(peer).encode()).unwrap();
    while mux.poll_transmit(1).is_some() {}
    mux
}

/// Payload handed out per flow over the next `frames` frames.
fn shares(mux: &mut Mux, frames: usize) -> BTreeMap<FlowId, usize> {
    let mut shares = BTreeMap::new();
    for transmit in std::iter::from_fn(|| mux.poll_transmit(1)).take(frames) {
        let payload_bytes: usize = transmit.chunks[1..].iter().map(Bytes::len).sum();
        *shares.entry(transmit.flow.unwrap()).or_insert(0) += payload_bytes;
    }
    shares
}

#[test]
fn flows_that_always_have_data_get_equal_shares_of_bytes() {
    let limits = Limits {
        send_buffer_bytes_max: 8 << 20,
        ..Limits::default()
    };
    let mut mux = dialer(1 << 30, limits);
    let flows: Vec<FlowId> = (0..5).map(|_| mux.open(request()).unwrap()).collect();
    while mux.poll_transmit(1).is_some() {}
    for (place, flow) in flows.iter().enumerate() {
        // Buffers of different sizes: some flows fill their frames less well.
        let piece_bytes = [700, 5_000, 50_000, 300_000, 4_000_000][place];
        for _ in 0..(7 << 20) / (piece_bytes + 64) {
            mux.write(*flow, vec![1; piece_bytes].into()).unwrap();
        }
    }
    let shares = shares(&mut mux, 800);
    let (least, most) = (
        shares.values().min().unwrap(),
        shares.values().max().unwrap(),
    );
    assert_eq!(shares.len(), 5);
    assert!(*most - *least < 3 * 65_536, "{shares:?}");
    assert!(*least > 20 * 65_536, "{shares:?}");
}

#[test]
fn a_new_flow_waits_at_most_one_turn_of_each_other() {
    let mut mux = dialer(1 << 30, Limits::default());
    for _ in 0..10 {
        let flow = mux.open(request()).unwrap();
        mux.write(flow, vec![1; 500_000].into()).unwrap();
    }
    for _ in 0..25 {
        mux.poll_transmit(1).unwrap();
    }
    let key = mux.open(request()).unwrap();
    mux.write(key, Bytes::from_static(b"keystroke")).unwrap();
    let order: Vec<_> = std::iter::from_fn(|| mux.poll_transmit(1)).collect();
    assert_eq!(order[0].flow, Some(key), "OPEN is a control frame");
    let others = order[1..].iter().take_while(|t| t.flow != Some(key));
    let waited_bytes: usize = others.map(Transmit::frame_bytes).sum();
    assert!(
        waited_bytes <= 10 * (64 << 10),
        "the keystroke came after {waited_bytes} bytes"
    );
}

#[test]
fn control_frames_go_before_data() {
    let mut mux = dialer(1 << 30, Limits::default());
    let flow = mux.open(request()).unwrap();
    mux.write(flow, vec![1; 400_000].into()).unwrap();
    mux.poll_transmit(1).unwrap();
    mux.poll_transmit(1).unwrap();
    let open = Frame::Open {
        flow: FlowId(1),
        request: request(),
    };
    mux.handle_frame(1, open.encode()).unwrap();
    mux.accept(FlowId(1));
    mux.handle_frame(
        1,
        Frame::Ping {
            nonce: 5,
            sent_ns: 6,
        }
        .encode(),
    )
    .unwrap();
    let next = |mux: &mut Mux| Frame::decode(mux.poll_transmit(1).unwrap().chunks.concat().into());
    assert_eq!(
        next(&mut mux),
        Ok(Frame::Answer {
            flow: FlowId(1),
            refusal: None
        })
    );
    assert_eq!(
        next(&mut mux),
        Ok(Frame::Pong {
            nonce: 5,
            sent_ns: 6
        })
    );
    assert!(matches!(next(&mut mux), Ok(Frame::Data { number: 2, .. })));
}

#[test]
fn frames_are_cut_at_the_size_given_and_never_beyond_the_bound() {
    for frame_bytes in [1024, 1200, 10_000, 65_536, FRAME_BYTES_HARD_MAX] {
        let limits = Limits {
            send_buffer_bytes_max: 1 << 20,
            ..Limits::default()
        };
        let mut mux = dialer(1 << 30, limits);
        mux.set_frame_bytes_max(frame_bytes);
        mux.set_rate(1 << 40, 1432);
        let flow = mux.open(request()).unwrap();
        let mut sizes = Vec::new();
        // Frames grow with what the flow has sent.
        for _ in 0..80 {
            mux.write(flow, vec![1; 900_000].into()).unwrap();
            sizes.extend(std::iter::from_fn(|| mux.poll_transmit(1)).map(|t| t.frame_bytes()));
        }
        assert!(sizes.iter().all(|size| *size <= frame_bytes), "{sizes:?}");
        assert!(*sizes.iter().max().unwrap() > frame_bytes - 25);
    }
}

#[test]
fn a_flow_without_credit_sends_nothing_and_goes_on_when_it_has_some() {
    let mut mux = dialer(20_000, Limits::default());
    let flow = mux.open(request()).unwrap();
    mux.write(flow, vec![1; 50_000].into()).unwrap();
    mux.poll_transmit(1).unwrap();
    let sent: Vec<Transmit> = std::iter::from_fn(|| mux.poll_transmit(1)).collect();
    let sent_bytes: usize = sent.iter().map(|t| t.chunks[1].len() + 128).sum();
    assert_eq!((sent.len(), sent_bytes), (2, 20_000));
    // Crumbs of credit are not worth a frame, and credit never goes back.
    for limit_bytes in [20_500, 10] {
        mux.handle_frame(1, Frame::Credit { flow, limit_bytes }.encode())
            .unwrap();
        assert_eq!(mux.poll_transmit(1), None);
        let credit_bytes = mux.flow_stats(flow).map(|stats| stats.send_credit_bytes);
        assert_eq!(credit_bytes, Some(500));
    }
    mux.handle_frame(
        1,
        Frame::Credit {
            flow,
            limit_bytes: 30_000,
        }
        .encode(),
    )
    .unwrap();
    assert_eq!(mux.poll_transmit(1).unwrap().chunks[1].len(), 10_000 - 128);
    assert_eq!(mux.poll_transmit(1), None);
}

/// The time 40,000 frames take among `flow_count` flows that always have data.
fn time_of_frames(flow_count: usize) -> Duration {
    let mut mux = dialer(1 << 40, Limits::default());
    let chunk = Bytes::from(vec![1; 1000]);
    let flows: Vec<FlowId> = (0..flow_count)
        .map(|_| mux.open(request()).unwrap())
        .collect();
    for flow in &flows {
        mux.write(*flow, chunk.clone()).unwrap();
    }
    while let Some(transmit) = mux.poll_transmit(1)
        && transmit.chunks.len() == 1
    {}
    let start = Instant::now();
    for frame in 0..40_000 {
        let flow = flows[frame % flow_count];
        mux.write(flow, chunk.clone()).unwrap();
        assert!(mux.poll_transmit(1).is_some());
        mux.handle_frame(
            1,
            Frame::Credit {
                flow,
                limit_bytes: 1 << 40,
            }
            .encode(),
        )
        .unwrap();
    }
    start.elapsed()
}

#[test]
fn a_frame_costs_about_the_same_among_ten_flows_and_ten_thousand() {
    // A scan per frame would cost a thousandfold; caches and a deeper tree cost a few times.
    let ratios = (0..3).map(|_| {
        let (few, many) = (time_of_frames(10), time_of_frames(10_000));
        many.as_secs_f64() / few.as_secs_f64()
    });
    let best = ratios.fold(f64::INFINITY, f64::min);
    assert!(
        best < 25.0,
        "a frame among 10,000 flows costs {best:.1} times one among 10"
    );
}

/// A path in virtual time: frames leave at a rate, packets are lost and repeated, order goes.
struct Path {
    rate_bits: f64,
    one_way_ns: u64,
    loss: f64,
    random: Random,
    due: BTreeMap<(u64, u64), (usize, Bytes)>,
    count: u64,
}

impl Path {
    fn put(&mut self, now_ns: u64, to: usize, frame: Bytes) {
        let packets = frame.len() / 1400 + 1;
        let is_lost = |random: &mut Random, loss: f64| {
            (random.next() >> 11) as f64 / ((1u64 << 53) as f64) < loss
        };
        let mut rounds = 0;
        for _ in 0..packets {
            let mut tries = 0;
            while is_lost(&mut self.random, self.loss) {
                tries += 1;
            }
            rounds = rounds.max(tries);
        }
        // A lost packet is noticed and repeated after a little more than a round trip.
        let delay_ns = self.one_way_ns + rounds * self.one_way_ns * 9 / 4;
        self.count += 1;
        self.due
            .insert((now_ns + delay_ns, self.count), (to, frame));
    }
}

/// One bulk flow for `seconds`; the payload bits per second read in the second half, and the
/// largest window.
fn bulk(rate_bits: f64, one_way_ns: u64, loss: f64, seconds: u64) -> (f64, u64) {
    let mut muxes = [
        Mux::new(Side::Dialer, Limits::default(), hello(1)),
        Mux::new(Side::Acceptor, Limits::default(), hello(2)),
    ];
    let random = Random(3);
    let mut path = Path {
        rate_bits,
        one_way_ns,
        loss,
        random,
        due: BTreeMap::new(),
        count: 0,
    };
    let flow = muxes[0].open(request()).unwrap();
    let chunk = Bytes::from(vec![1; 64 << 10]);
    let (end_ns, mut now_ns, mut free_ns) = (seconds * 1_000_000_000, 0, 0);
    let (mut read_late, mut window_max) = (0u64, 0);
    while now_ns < end_ns {
        while muxes[0].writable_bytes(flow) >= chunk.len() {
            muxes[0].write(flow, chunk.clone()).unwrap();
        }
        while free_ns <= now_ns
            && let Some(transmit) = muxes[0].poll_transmit(now_ns)
        {
            free_ns = now_ns + (transmit.frame_bytes() as f64 * 8e9 / path.rate_bits) as u64;
            path.put(free_ns, 1, transmit.chunks.concat().into());
        }
        while let Some(transmit) = muxes[1].poll_transmit(now_ns) {
            path.put(now_ns, 0, transmit.chunks.concat().into());
        }
        let next_due_ns = path.due.keys().next().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        let next_free_ns = if free_ns > now_ns { free_ns } else { u64::MAX };
        now_ns = next_due_ns.min(next_free_ns);
        while let Some(entry) = path.due.first_entry()
            && entry.key().0 <= now_ns
        {
            let (to, frame) = entry.remove();
            muxes[to].handle_frame(now_ns, frame).unwrap();
        }
        muxes[1].accept(flow);
        while let Read::Data(data) = muxes[1].read(now_ns, flow, 1 << 20) {
            read_late += if now_ns > end_ns / 2 {
                data.len() as u64
            } else {
                0
            };
        }
        let window_bytes = muxes[1]
            .flow_stats(flow)
            .map_or(0, |stats| stats.receive_window_bytes);
        window_max = window_max.max(window_bytes);
        for mux in &mut muxes {
            while mux.poll_event().is_some() {}
        }
    }
    (read_late as f64 * 8.0 / (seconds as f64 / 2.0), window_max)
}

#[test]
fn credit_is_no_brake_on_long_lossy_paths_though_frames_wait_behind_holes() {
    for (rate_bits, one_way_ms, loss) in [
        (1.544e6, 250, 0.01),
        (51.84e6, 100, 0.0),
        (51.84e6, 100, 0.01),
        (51.84e6, 100, 0.05),
        (51.84e6, 250, 0.10),
        (155.52e6, 100, 0.05),
    ] {
        let (got_bits, window_bytes) = bulk(rate_bits, one_way_ms * 1_000_000, loss, 30);
        let share = got_bits / rate_bits;
        let bdp_bytes = rate_bits * 2.0 * one_way_ms as f64 / 8000.0;
        println!(
            "{rate_bits} bit/s, {one_way_ms} ms, {loss}: share {share:.3}, window {:.1} BDP",
            window_bytes as f64 / bdp_bytes
        );
        assert!(
            share > 0.95,
            "{rate_bits} bit/s, {one_way_ms} ms one-way, loss {loss}: {share:.3}"
        );
        // Growth ends at 12 round trips' worth; losses make PING's round trip longer, and what
        // was waited for comes in lumps.
        let needed_bytes = bdp_bytes.max((1 << 20) as f64);
        assert!(
            window_bytes as f64 <= needed_bytes * 32.0,
            "window of {window_bytes} bytes"
        );
    }
}

#[test]
fn a_flow_that_sent_little_for_long_has_saved_up_no_turns() {
    let limits = Limits {
        send_buffer_bytes_max: 16 << 20,
        ..Limits::default()
    };
    let mut mux = dialer(1 << 30, limits);
    let [bulk, quiet] = [0, 1].map(|_| mux.open(request()).unwrap());
    mux.write(bulk, vec![1; 15 << 20].into()).unwrap();
    for _ in 0..50 {
        mux.write(quiet, Bytes::from_static(b"x")).unwrap();
        mux.poll_transmit(1).unwrap();
        mux.poll_transmit(1).unwrap();
    }
    mux.write(quiet, vec![1; 1 << 20].into()).unwrap();
    let shares = shares(&mut mux, 30);
    assert!(shares[&quiet] <= shares[&bulk] + 65_536, "{shares:?}");
}

#[test]
fn control_frames_can_be_had_without_data() {
    let mut mux = dialer(1 << 30, Limits::default());
    let flow = mux.open(request()).unwrap();
    mux.write(flow, vec![1; 400_000].into()).unwrap();
    let open = mux.poll_control(1).unwrap();
    assert_eq!((open.chunks.len(), open.priority), (1, i32::MAX));
    assert_eq!(mux.poll_control(1), None);
    assert!(mux.has_transmit());
    assert_eq!(mux.poll_transmit(1).unwrap().chunks.len(), 2);
}

#[test]
fn the_tunnel_pings_by_itself_while_it_sends_and_only_then() {
    let mut mux = dialer(1 << 30, Limits::default());
    let flow = mux.open(request()).unwrap();
    let mut pings_per_second = Vec::new();
    for second in 1..10u64 {
        let now_ns = second * 1_000_000_000;
        let mut pings = 0;
        for _ in 0..5 {
            if second != 5 {
                mux.write(flow, Bytes::from_static(b"data")).unwrap();
            }
            while let Some(transmit) = mux.poll_transmit(now_ns + 10) {
                pings += usize::from(transmit.flow.is_none());
            }
        }
        pings_per_second.push(pings);
    }
    assert_eq!(pings_per_second, [1, 1, 1, 1, 0, 1, 1, 1, 1]);
}
