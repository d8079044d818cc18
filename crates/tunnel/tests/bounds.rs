//! invariant 5: every buffer, table and queue has a bound, and who fills one hurts only himself.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

mod world;

use bytes::Bytes;
use farhaul_tunnel::*;
use world::{Random, World, hello, request, small_limits};

/// A world whose hellos are over.
fn met(limits: Limits) -> World {
    greet(World::new(limits))
}

fn greet(mut world: World) -> World {
    for _ in 0..8 {
        exchange(&mut world);
    }
    assert_eq!((world.hellos, world.pongs), ([1, 1], [1, 1]));
    world
}

/// Everything both sides have to send arrives, in order.
fn exchange(world: &mut World) {
    for side in 0..2 {
        while world.transmit(side) {}
        while !world.wire[1 - side].is_empty() {
            let frame = world.wire[1 - side].remove(0);
            assert_eq!(
                world.muxes[1 - side].handle_frame(world.now_ns, frame),
                Ok(())
            );
        }
        world.events(1 - side);
    }
}

/// Opens a flow of the dialer that the acceptor accepts.
fn opened(world: &mut World) -> FlowId {
    let id = world.open(0).expect("there is room for the flow");
    exchange(world);
    world.answer(1, id, None);
    exchange(world);
    id
}

#[test]
fn invariant_5_a_flow_that_is_never_read_holds_its_window_and_blocks_no_other() {
    let limits = small_limits();
    let mut world = met(limits.clone());
    let stuck = opened(&mut world);
    let flows: Vec<FlowId> = (0..5).map(|_| opened(&mut world)).collect();
    for _ in 0..200 {
        world.write(0, stuck, 1 << 20);
        for id in &flows {
            world.write(0, *id, 10_000);
        }
        exchange(&mut world);
        for id in &flows {
            while world.read(1, *id, 4096) {}
        }
        world.now_ns += 1_000_000;
        world.check_bounds();
    }
    for id in &flows {
        let read = world.flows[id].directions[0].read;
        assert!(read > 1_500_000, "flow {id} was held up: {read} bytes");
    }
    let held = world.muxes[1].flow_stats(stuck).unwrap();
    assert_eq!(held.read_bytes, 0);
    assert!(held.receive_buffered_bytes <= limits.flow_window_bytes_initial);
    assert!(held.receive_buffered_bytes > limits.flow_window_bytes_initial / 2);
    let unsent = world.muxes[0].flow_stats(stuck).unwrap();
    assert_eq!(world.muxes[0].writable_bytes(stuck), 0);
    assert!(unsent.send_buffered_bytes <= limits.send_buffer_bytes_max as u64);
    world.settle(&mut Random(1));
    world.check_all_done();
}

#[test]
fn invariant_5_one_byte_frames_cost_what_they_hold() {
    let mut world = met(small_limits());
    let id = opened(&mut world);
    let mut sent = 0;
    for _ in 0..1000 {
        sent += world.write(0, id, 1);
        exchange(&mut world);
    }
    // 16 KiB of credit at 129 bytes each; the rest waits at the sender, at 65 bytes each.
    let received = world.muxes[1].flow_stats(id).unwrap();
    assert_eq!(received.received_bytes, (16 << 10) / 129);
    assert_eq!(received.receive_buffered_bytes, 127 * 129);
    assert_eq!(sent, 127 + (24usize << 10).div_ceil(65));
    assert_eq!(world.muxes[0].writable_bytes(id), 0);
}

#[test]
fn invariant_5_a_peer_that_opens_a_million_flows_is_refused_with_overload() {
    let limits = Limits {
        flows_max: 1000,
        ..Limits::default()
    };
    let mut mux = Mux::new(Side::Acceptor, limits.clone(), hello(1));
    let peer = HelloFrame {
        hello: hello(2),
        flow_window_bytes: 1 << 20,
        flows_max: 10,
    };
    mux.handle_frame(1, Frame::Hello(peer).encode()).unwrap();
    let (mut incoming, mut refused) = (0, 0);
    for index in 0..1_000_000 {
        let flow = FlowId(index * 2);
        let open = Frame::Open {
            flow,
            request: request(),
        };
        mux.handle_frame(1, open.encode()).unwrap();
        while let Some(event) = mux.poll_event() {
            incoming += u64::from(matches!(event, Event::Incoming(..)));
        }
        if index % 100 == 0 {
            while let Some(transmit) = mux.poll_transmit(1) {
                let frame = Frame::decode(transmit.chunks.concat().into()).unwrap();
                let overload = matches!(
                    frame,
                    Frame::Answer {
                        refusal: Some(Refusal::Overload),
                        ..
                    }
                );
                refused += u64::from(overload);
            }
        }
    }
    let stats = mux.stats();
    assert_eq!(
        (incoming, stats.flows, stats.refused_overload),
        (1000, 1000, 999_000)
    );
    assert!(refused > 998_000);
    assert_eq!(stats.ended_ranges, 1);
    // The peer announced room for ten flows of ours, and ours are full anyway.
    assert_eq!(mux.open(request()), Err(OpenError::TooManyFlows));
}

#[test]
fn invariant_5_a_peer_that_opens_without_listening_is_cut_off() {
    let limits = Limits {
        flows_max: 10,
        control_frames_max: 500,
        ..Limits::default()
    };
    let mut mux = Mux::new(Side::Acceptor, limits, hello(1));
    let peer = HelloFrame {
        hello: hello(2),
        flow_window_bytes: 1 << 20,
        flows_max: 10,
    };
    mux.handle_frame(1, Frame::Hello(peer).encode()).unwrap();
    let open = |index: u64| Frame::Open {
        flow: FlowId(index * 2),
        request: request(),
    };
    let handled: Vec<_> = (0..600)
        .map(|index| mux.handle_frame(1, open(index).encode()))
        .collect();
    assert!(handled[..510].iter().all(Result::is_ok));
    assert_eq!(handled[510], Err(ProtocolError::ControlFlood));
    assert!(mux.stats().control_frames_queued <= 510);
    let ping = Frame::Ping {
        nonce: 1,
        sent_ns: 1,
    }
    .encode();
    assert_eq!(mux.handle_frame(1, ping), Err(ProtocolError::ControlFlood));
}

#[test]
fn invariant_5_flows_opened_and_reset_while_nothing_drains_are_bounded() {
    let limits = Limits {
        control_frames_max: 1000,
        ..Limits::default()
    };
    let mut mux = Mux::new(Side::Dialer, limits, hello(1));
    let peer = HelloFrame {
        hello: hello(2),
        flow_window_bytes: 1 << 20,
        flows_max: 1 << 20,
    };
    mux.handle_frame(1, Frame::Hello(peer).encode()).unwrap();
    let mut congested = 0;
    for _ in 0..100_000 {
        match mux.open(request()) {
            Ok(flow) => {
                mux.write(flow, Bytes::from_static(b"data")).unwrap();
                mux.reset(flow, ResetCode::Admin);
            }
            Err(error) => {
                assert_eq!(error, OpenError::Congested);
                congested += 1;
            }
        }
    }
    let stats = mux.stats();
    assert!(congested > 99_000);
    assert!(stats.control_frames_queued <= 1001 && stats.flows_ready <= 500);
    assert_eq!((stats.flows, stats.send_buffered_bytes), (0, 0));
}

#[test]
fn invariant_5_flows_reset_before_their_data_was_sent_leave_nothing_behind() {
    let mut mux = Mux::new(Side::Dialer, Limits::default(), hello(1));
    let peer = HelloFrame {
        hello: hello(2),
        flow_window_bytes: 1 << 20,
        flows_max: 1,
    };
    mux.handle_frame(1, Frame::Hello(peer).encode()).unwrap();
    while mux.poll_transmit(1).is_some() {}
    for _ in 0..10_000 {
        let flow = mux.open(request()).unwrap();
        assert_eq!(mux.open(request()), Err(OpenError::TooManyFlows));
        mux.write(flow, Bytes::from_static(b"data")).unwrap();
        assert!(mux.poll_transmit(1).is_some(), "OPEN");
        mux.reset(flow, ResetCode::Admin);
        assert!(mux.poll_transmit(1).is_some(), "RESET");
        assert!(mux.stats().flows_ready <= 128);
    }
    assert_eq!(mux.poll_transmit(1), None);
    assert!(matches!(mux.poll_event(), Some(Event::Hello(_))));
    assert!(mux.is_idle());
}

#[test]
fn invariant_5_ids_used_sparsely_cannot_grow_the_set_of_ended_flows() {
    let limits = Limits {
        flow_ids_ahead_max: 1000,
        ..Limits::default()
    };
    let mut mux = Mux::new(Side::Acceptor, limits, hello(1));
    let peer = HelloFrame {
        hello: hello(2),
        flow_window_bytes: 1 << 20,
        flows_max: 10,
    };
    mux.handle_frame(1, Frame::Hello(peer).encode()).unwrap();
    let code = ResetCode::Application;
    let reset = |index: u64| {
        Frame::Reset {
            flow: FlowId(index * 2),
            code,
        }
        .encode()
    };
    for index in (2..1000).step_by(2) {
        assert_eq!(mux.handle_frame(1, reset(index)), Ok(()));
    }
    assert_eq!(
        mux.handle_frame(1, reset(1000)),
        Err(ProtocolError::AbsurdFlow(FlowId(2000)))
    );
    assert_eq!(mux.stats().ended_ranges, 499);
    for index in (1..1000).step_by(2).chain([0]) {
        assert_eq!(mux.handle_frame(1, reset(index)), Ok(()));
    }
    assert_eq!(mux.stats().ended_ranges, 1);
    assert_eq!(mux.handle_frame(1, reset(1000)), Ok(()));
}

#[test]
fn invariant_5_more_unread_than_the_peer_may_hold_resets_the_flow_that_holds_too_much() {
    let limits = Limits {
        flow_window_bytes_initial: 1 << 20,
        receive_buffer_bytes_max: 3 << 20,
        ..Limits::default()
    };
    // A peer that can be asked for its credit would be, and nobody cut.
    let mut world = greet(World::offering(0, limits.clone()));
    let stuck: Vec<FlowId> = (0..10).map(|_| opened(&mut world)).collect();
    let modest = opened(&mut world);
    for _ in 0..100 {
        for id in &stuck {
            world.write(0, *id, 50_000);
        }
        world.write(0, modest, 5_000);
        exchange(&mut world);
        while world.read(1, modest, 5_000) {}
        world.check_bounds();
    }
    let stats = world.muxes[1].stats();
    assert!(
        stats.reset_overload > 0 && stats.reset_overload < 10,
        "{stats:?}"
    );
    assert!(
        stats.receive_buffered_bytes <= limits.receive_buffer_bytes_max + 10 * RECEIVE_FLOOR_BYTES
    );
    let cut = world
        .flows
        .values()
        .filter(|track| track.reset == Some(ResetCode::Overload))
        .count();
    assert_eq!(cut as u64, stats.reset_overload, "the opener hears of each");
    assert_eq!(world.flows[&modest].directions[0].read, 500_000);
    assert!(!world.flows[&modest].cut);
}

#[test]
fn invariant_5_unsent_bytes_of_all_flows_together_are_bounded_and_writers_are_woken() {
    let limits = Limits {
        send_buffer_bytes_max: 100_000,
        peer_send_buffer_bytes_max: 300_000,
        ..Limits::default()
    };
    let mut world = met(limits);
    let flows: Vec<FlowId> = (0..20).map(|_| opened(&mut world)).collect();
    let mut written = 0;
    for id in &flows {
        written += world.write(0, *id, 1 << 20);
    }
    // Three flows fill the bound, the others have the floor each.
    assert!(
        written > 300_000 && written <= 300_000 + 20 * SEND_FLOOR_BYTES,
        "{written}"
    );
    assert!(
        flows
            .iter()
            .all(|id| world.muxes[0].writable_bytes(*id) < 100)
    );
    exchange(&mut world);
    world.events(0);
    for id in &flows {
        assert!(
            world.writable.contains(&(0, *id)),
            "writer of flow {id} was not woken"
        );
        assert!(world.muxes[0].writable_bytes(*id) >= 50_000);
    }
}

#[test]
fn writers_that_wait_for_writable_always_get_on() {
    // The buffers of all flows together are so small that the floor comes and goes.
    let limits = Limits {
        send_buffer_bytes_max: 60_000,
        peer_send_buffer_bytes_max: 150_000,
        frame_bytes_max: 4096,
        ..Limits::default()
    };
    let mut random = Random(11);
    let mut world = met(limits);
    let flows: Vec<FlowId> = (0..12).map(|_| opened(&mut world)).collect();
    let mut left: Vec<usize> = flows
        .iter()
        .map(|_| 400_000 + random.below(400_000))
        .collect();
    let mut waits = vec![false; flows.len()];
    for _ in 0..20_000 {
        for (place, id) in flows.iter().enumerate() {
            if waits[place] || left[place] == 0 {
                continue;
            }
            // A writer as the gateway has them: what fits, then wait if that was not all.
            let wanted = left[place].min(1 + random.below(70_000));
            let took = world.write(0, *id, wanted);
            left[place] -= took;
            waits[place] = took < wanted;
        }
        for _ in 0..random.below(30) {
            world.transmit(0);
        }
        while world.deliver(1, random.below(1000)) {}
        world.events(1);
        for id in &flows {
            while world.read(1, *id, 1 << 20) {}
        }
        while world.transmit(1) {}
        while world.deliver(0, 0) {}
        world.events(0);
        for (_, id) in world.writable.drain(..) {
            let place = flows
                .iter()
                .position(|flow| *flow == id)
                .expect("it is one of ours");
            waits[place] = false;
        }
        if left.iter().all(|bytes| *bytes == 0) {
            world.settle(&mut random);
            world.check_all_done();
            return;
        }
    }
    panic!("writers wait for ever: {left:?} {waits:?}");
}

/// A machine whose peer has said hello and asks for at most `flows_max` flows.
fn greeted(limits: &Limits, flows_max: u64) -> Mux {
    let mut mux = Mux::new(Side::Acceptor, limits.clone(), hello(1));
    let peer = HelloFrame {
        hello: hello(2),
        flow_window_bytes: 1 << 20,
        flows_max,
    };
    mux.handle_frame(1, Frame::Hello(peer).encode()).unwrap();
    mux
}

#[test]
fn invariant_5_a_gap_in_a_flow_that_is_read_lets_its_window_grow_to_its_bounds_only() {
    let limits = small_limits();
    let mut mux = greeted(&limits, 100);
    let mut now_ns = 1;
    for flow in (0..50).map(|index| FlowId(index * 2)) {
        let request = request();
        let open = Frame::Open { flow, request };
        mux.handle_frame(now_ns, open.encode()).unwrap();
        mux.accept(flow);
        for number in 2.. {
            now_ns += 1000;
            let payload = Bytes::from_static(&[1; 1000]);
            let data = Frame::Data {
                flow,
                number,
                payload,
            };
            if mux.handle_frame(now_ns, data.encode()).is_err() {
                break;
            }
            while mux.poll_transmit(now_ns).is_some() {}
        }
        let stats = mux.flow_stats(flow).unwrap();
        assert!(stats.receive_buffered_bytes <= limits.flow_window_bytes_max);
    }
    let held_max = limits.peer_window_bytes_max + 50 * limits.flow_window_bytes_initial;
    let stats = mux.stats();
    assert!(stats.receive_buffered_bytes <= held_max, "{stats:?}");
    // Within a flow's first round trip it takes a quarter of what is free.
    assert!(stats.window_free_bytes < 4, "windows have grown");
}

/// What a sender holds whose applications write as much as they are let, bytes.
fn written_by(mux: &mut Mux, flows: usize) -> u64 {
    let chunk = Bytes::from_static(&[1; 10_000]);
    for _ in 0..flows {
        let Ok(flow) = mux.open(request()) else {
            break;
        };
        while mux.writable_bytes(flow) >= chunk.len() {
            mux.write(flow, chunk.clone()).unwrap();
        }
    }
    mux.stats().send_buffered_bytes
}

#[test]
fn invariant_5_a_peer_that_advertises_absurd_windows_makes_nobody_hold_more() {
    let limits = Limits {
        flows_max: 2000,
        peer_send_buffer_bytes_max: 8 << 20,
        ..Limits::default()
    };
    let bytes_max = (8 << 20) + 2000 * SEND_FLOOR_BYTES as u64;
    for window in [0, 1, (1 << 62) - 1] {
        let mut mux = Mux::new(Side::Dialer, limits.clone(), hello(1));
        let peer = HelloFrame {
            hello: hello(2),
            flow_window_bytes: window,
            flows_max: (1 << 62) - 1,
        };
        mux.handle_frame(1, Frame::Hello(peer).encode()).unwrap();
        // Nothing is taken from the tunnel, as when the peer acknowledges nothing.
        assert!(written_by(&mut mux, 3000) <= bytes_max);
        assert_eq!(mux.stats().flows, 2000);
        for flow in (0..2000).map(|index| FlowId(index * 2)) {
            let limit_bytes = (1 << 62) - 1;
            let credit = Frame::Credit { flow, limit_bytes };
            mux.handle_frame(1, credit.encode()).unwrap();
        }
        let stats = mux.stats();
        assert!(stats.send_buffered_bytes <= bytes_max && stats.flows_ready == 2000);
        // All credit of the world: what was written goes, each flow in turn, and then no more.
        let sent: usize = std::iter::from_fn(|| mux.poll_transmit(1))
            .map(|transmit| transmit.frame_bytes())
            .sum();
        assert!(
            sent > 28_000_000 && sent as u64 <= bytes_max + 10_000_000,
            "{sent}"
        );
        assert_eq!(mux.stats().send_buffered_bytes, 0);
    }
}

#[test]
fn invariant_5_frames_behind_a_gap_that_never_closes_are_bounded_by_credit() {
    let limits = small_limits();
    let mut mux = greeted(&limits, 10);
    let mut held = 0;
    for flow in (0..50).map(|index| FlowId(index * 2)) {
        let mut number = 2; // frame 1 and the OPEN never come
        let error = loop {
            let payload = Bytes::from_static(&[1; 100]);
            let data = Frame::Data {
                flow,
                number,
                payload,
            };
            match mux.handle_frame(1, data.encode()) {
                Ok(()) => number += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(
            error,
            ProtocolError::CreditExceeded { .. } | ProtocolError::AbsurdNumber { .. }
        ));
        let now_held = mux.stats().receive_buffered_bytes;
        assert!(now_held - held <= limits.flow_window_bytes_initial);
        held = now_held;
    }
    assert_eq!(mux.flows().count(), 0, "the application hears of none");
}

#[test]
fn absurd_limits_are_brought_into_range() {
    let absurd = Limits {
        flow_window_bytes_initial: 0,
        flow_window_bytes_max: 0,
        peer_window_bytes_max: u64::MAX,
        receive_buffer_bytes_max: 0,
        send_buffer_bytes_max: 0,
        peer_send_buffer_bytes_max: 0,
        flows_max: 0,
        flow_ids_ahead_max: 0,
        control_frames_max: 0,
        frame_bytes_max: usize::MAX,
    }
    .clamped();
    assert_eq!(absurd, absurd.clone().clamped());
    assert_eq!(absurd.frame_bytes_max, FRAME_BYTES_HARD_MAX);
    let mut world = met(absurd);
    let id = opened(&mut world);
    for _ in 0..50 {
        world.write(0, id, 20_000);
        exchange(&mut world);
        while world.read(1, id, 9000) {}
        exchange(&mut world);
    }
    assert!(world.flows[&id].directions[0].read > 500_000);
}
