//! What a flow goes through, step by step, frames in order.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

mod world;

use bytes::Bytes;
use farhaul_tunnel::*;
use world::{hello, request};

fn joined(transmit: &Transmit) -> Bytes {
    transmit.chunks.concat().into()
}

/// Everything `mux` has to send, in its order.
fn frames(mux: &mut Mux) -> Vec<Bytes> {
    std::iter::from_fn(|| mux.poll_transmit(1))
        .map(|transmit| joined(&transmit))
        .collect()
}

fn deliver(mux: &mut Mux, frames: impl IntoIterator<Item = Bytes>) {
    for frame in frames {
        assert_eq!(mux.handle_frame(2, frame), Ok(()));
    }
}

/// Moves every frame there is, both ways, until nothing moves.
fn settle(a: &mut Mux, b: &mut Mux) {
    loop {
        let mut moved = false;
        while let Some(transmit) = a.poll_transmit(1) {
            assert_eq!(b.handle_frame(2, joined(&transmit)), Ok(()));
            moved = true;
        }
        while let Some(transmit) = b.poll_transmit(3) {
            assert_eq!(a.handle_frame(4, joined(&transmit)), Ok(()));
            moved = true;
        }
        if !moved {
            return;
        }
    }
}

fn events(mux: &mut Mux) -> Vec<Event> {
    std::iter::from_fn(|| mux.poll_event()).collect()
}

/// Two tunnels that have said hello, events drained.
fn pair() -> (Mux, Mux) {
    let mut dialer = Mux::new(Side::Dialer, Limits::default(), hello(1));
    let mut acceptor = Mux::new(Side::Acceptor, Limits::default(), hello(2));
    settle(&mut dialer, &mut acceptor);
    assert!(matches!(events(&mut dialer)[0], Event::Hello(_)));
    assert!(matches!(events(&mut acceptor)[0], Event::Hello(_)));
    (dialer, acceptor)
}

#[test]
fn a_request_rides_with_the_open_and_both_halves_close() {
    let (mut a, mut b) = pair();
    let flow = a.open(request()).unwrap();
    a.write(flow, Bytes::from_static(b"GET /")).unwrap();
    a.finish(flow);
    settle(&mut a, &mut b);
    assert_eq!(
        events(&mut b),
        [Event::Incoming(flow, request()), Event::Readable(flow)]
    );
    assert_eq!(
        b.read(5, flow, 100),
        Read::Data(Bytes::from_static(b"GET /"))
    );
    assert_eq!(b.read(5, flow, 100), Read::End);
    assert_eq!(
        b.write(flow, Bytes::from_static(b"x")),
        Err(FlowError::NotAccepted)
    );
    b.accept(flow);
    b.write(flow, Bytes::from_static(b"200 OK")).unwrap();
    b.finish(flow);
    settle(&mut a, &mut b);
    assert_eq!(events(&mut b), [Event::Ended(flow)]);
    assert_eq!(events(&mut a), [Event::Opened(flow), Event::Readable(flow)]);
    assert_eq!(a.read(6, flow, 3), Read::Data(Bytes::from_static(b"200")));
    assert_eq!(a.read(6, flow, 9), Read::Data(Bytes::from_static(b" OK")));
    assert_eq!(a.read(6, flow, 9), Read::End);
    assert_eq!(events(&mut a), [Event::Ended(flow)]);
    assert_eq!(a.read(6, flow, 9), Read::Gone);
    assert!(a.is_idle() && b.is_idle());
}

/// A flow of the dialer that the acceptor has accepted, events drained.
fn open_pair() -> (Mux, Mux, FlowId) {
    let (mut a, mut b) = pair();
    let flow = a.open(request()).unwrap();
    settle(&mut a, &mut b);
    b.accept(flow);
    settle(&mut a, &mut b);
    assert_eq!(events(&mut b), [Event::Incoming(flow, request())]);
    assert_eq!(events(&mut a), [Event::Opened(flow)]);
    (a, b, flow)
}

#[test]
fn both_sides_open_flows_with_ids_of_their_own() {
    let (mut a, mut b) = pair();
    assert_eq!(
        [a.open(request()), a.open(request())],
        [Ok(FlowId(0)), Ok(FlowId(2))]
    );
    assert_eq!(
        [b.open(request()), b.open(request())],
        [Ok(FlowId(1)), Ok(FlowId(3))]
    );
    assert_eq!(FlowId(2).opener(), Side::Dialer);
    assert_eq!(FlowId(3).opener(), Side::Acceptor);
}

#[test]
fn a_flow_of_no_bytes_ends_cleanly_on_both_sides() {
    let (mut a, mut b, flow) = open_pair();
    b.finish(flow);
    settle(&mut a, &mut b);
    assert_eq!(events(&mut a), [Event::Readable(flow)]);
    assert_eq!(a.read(5, flow, 10), Read::End);
    // One direction ended: the other still lives.
    assert_eq!(events(&mut a), []);
    assert_eq!(b.read(5, flow, 10), Read::Blocked);
    a.finish(flow);
    settle(&mut a, &mut b);
    assert_eq!(events(&mut a), [Event::Ended(flow)]);
    assert_eq!(events(&mut b), [Event::Readable(flow)]);
    assert_eq!(b.read(5, flow, 10), Read::End);
    assert_eq!(events(&mut b), [Event::Ended(flow)]);
    assert!(a.is_idle() && b.is_idle());
}

#[test]
fn after_the_opener_closed_its_half_the_answer_still_flows() {
    let (mut a, mut b, flow) = open_pair();
    a.finish(flow);
    assert_eq!(
        a.write(flow, Bytes::from_static(b"late")),
        Err(FlowError::Finished)
    );
    assert_eq!(a.writable_bytes(flow), 0);
    settle(&mut a, &mut b);
    for round in 0..300u32 {
        b.write(flow, round.to_be_bytes().to_vec().into()).unwrap();
        settle(&mut a, &mut b);
        assert_eq!(
            a.read(9, flow, 100),
            Read::Data(round.to_be_bytes().to_vec().into())
        );
        assert_eq!(a.read(9, flow, 100), Read::Blocked);
    }
}

#[test]
fn a_refusal_says_why_and_late_data_is_ignored() {
    let (mut a, mut b) = pair();
    let flow = a.open(request()).unwrap();
    settle(&mut a, &mut b);
    b.refuse(flow, Refusal::TimedOut);
    a.write(flow, Bytes::from_static(b"on its way already"))
        .unwrap();
    settle(&mut a, &mut b);
    assert_eq!(events(&mut a), [Event::Refused(flow, Refusal::TimedOut)]);
    assert_eq!(events(&mut b), [Event::Incoming(flow, request())]);
    assert_eq!(
        a.write(flow, Bytes::from_static(b"x")),
        Err(FlowError::Gone)
    );
    assert_eq!(
        (a.read(9, flow, 1), b.read(9, flow, 1)),
        (Read::Gone, Read::Gone)
    );
    assert!(a.is_idle() && b.is_idle());
}

#[test]
fn a_reset_overtakes_data_open_and_answer() {
    let (mut a, mut b) = pair();
    let flow = a.open(request()).unwrap();
    a.write(flow, Bytes::from_static(b"data")).unwrap();
    let overtaken = frames(&mut a);
    assert_eq!(overtaken.len(), 2);
    a.reset(flow, ResetCode::Application);
    let reset = frames(&mut a);
    assert_eq!(reset.len(), 1);
    deliver(&mut b, reset);
    deliver(&mut b, overtaken);
    assert_eq!(events(&mut b), [], "the application never hears of it");
    assert!(a.is_idle() && b.is_idle());

    let flow = a.open(request()).unwrap();
    settle(&mut a, &mut b);
    assert_eq!(events(&mut b), [Event::Incoming(flow, request())]);
    b.accept(flow);
    b.write(flow, Bytes::from_static(b"data")).unwrap();
    b.finish(flow);
    let overtaken = frames(&mut b);
    b.reset(flow, ResetCode::Overload);
    deliver(&mut a, frames(&mut b));
    deliver(&mut a, overtaken);
    assert_eq!(events(&mut a), [Event::Reset(flow, ResetCode::Overload)]);
    assert_eq!(a.read(9, flow, 10), Read::Gone);
    assert!(a.is_idle() && b.is_idle());
}

#[test]
fn a_reset_before_the_open_was_sent_sends_no_open() {
    let (mut a, mut b) = pair();
    let flow = a.open(request()).unwrap();
    a.write(flow, Bytes::from_static(b"data")).unwrap();
    a.reset(flow, ResetCode::Admin);
    let sent = frames(&mut a);
    assert_eq!(sent.len(), 1);
    deliver(&mut b, sent);
    assert_eq!(events(&mut b), []);
    // The id counts as used, or the peer would wait for it for ever.
    assert_eq!(b.stats().ended_ranges, 1);
    assert!(a.is_idle());
}

#[test]
fn unread_data_is_dropped_by_a_reset_and_no_end_is_seen() {
    let (mut a, mut b, flow) = open_pair();
    a.write(flow, Bytes::from_static(b"half a file")).unwrap();
    settle(&mut a, &mut b);
    assert_eq!(b.read(9, flow, 4), Read::Data(Bytes::from_static(b"half")));
    a.reset(flow, ResetCode::TunnelLost);
    settle(&mut a, &mut b);
    assert_eq!(
        events(&mut b),
        [
            Event::Readable(flow),
            Event::Reset(flow, ResetCode::TunnelLost)
        ]
    );
    assert_eq!(b.read(9, flow, 100), Read::Gone);
}

#[test]
fn invariant_7_a_missing_tail_is_never_a_clean_end() {
    let (mut a, mut b, flow) = open_pair();
    a.set_frame_bytes_max(1024);
    a.write(flow, vec![1; 5000].into()).unwrap();
    a.finish(flow);
    let sent = frames(&mut a);
    assert_eq!(sent.len(), 6);
    // For every frame that is missing: no end, however often the reader asks.
    for missing in 0..sent.len() {
        let (mut c, mut d, other) = open_pair();
        assert_eq!(other, flow);
        let arrived = sent
            .iter()
            .enumerate()
            .filter(|(place, _)| *place != missing);
        deliver(&mut d, arrived.map(|(_, frame)| frame.clone()));
        let mut read_bytes = 0;
        while let Read::Data(data) = d.read(9, flow, 9000) {
            read_bytes += data.len();
        }
        assert_eq!(d.read(9, flow, 9000), Read::Blocked);
        assert_eq!(read_bytes, 999 * missing);
        deliver(&mut d, [sent[missing].clone()]);
        while let Read::Data(data) = d.read(9, flow, 9000) {
            read_bytes += data.len();
        }
        assert_eq!((d.read(9, flow, 9000), read_bytes), (Read::End, 5000));
        c.reset(flow, ResetCode::Admin);
    }
    b.reset(flow, ResetCode::Admin);
}

#[test]
fn a_flow_finished_before_it_was_accepted_ends_after_it() {
    let (mut a, mut b) = pair();
    let flow = a.open(request()).unwrap();
    a.finish(flow);
    settle(&mut a, &mut b);
    b.finish(flow);
    assert!(!b.has_transmit());
    b.accept(flow);
    settle(&mut a, &mut b);
    assert_eq!(a.read(9, flow, 1), Read::End);
    assert_eq!(b.read(9, flow, 1), Read::End);
    assert!(events(&mut a).contains(&Event::Ended(flow)));
    assert!(events(&mut b).contains(&Event::Ended(flow)));
}

#[test]
fn what_the_acceptor_says_is_not_read_before_its_answer() {
    let (mut a, mut b) = pair();
    let flow = a.open(request()).unwrap();
    settle(&mut a, &mut b);
    b.accept(flow);
    b.write(flow, Bytes::from_static(b"220 ready")).unwrap();
    let mut sent = frames(&mut b);
    assert_eq!(sent.len(), 2);
    let answer = sent.remove(0);
    deliver(&mut a, sent);
    assert_eq!(events(&mut a), []);
    assert_eq!(a.read(9, flow, 100), Read::Blocked);
    deliver(&mut a, [answer]);
    assert_eq!(events(&mut a), [Event::Opened(flow), Event::Readable(flow)]);
    assert_eq!(
        a.read(9, flow, 100),
        Read::Data(Bytes::from_static(b"220 ready"))
    );
}

#[test]
fn payload_is_sent_without_being_copied_and_small_writes_share_a_frame() {
    let (mut a, _b, flow) = open_pair();
    let big = Bytes::from(vec![5; 10_000]);
    a.write(flow, big.clone()).unwrap();
    for _ in 0..10 {
        a.write(flow, Bytes::from_static(b"small")).unwrap();
    }
    let transmit = a.poll_transmit(1).unwrap();
    assert_eq!(transmit.chunks.len(), 12);
    assert_eq!(transmit.chunks[1].as_ptr(), big.as_ptr());
    assert_eq!(transmit.chunks[1].len(), 10_000);
    assert_eq!((transmit.flow, transmit.dscp), (Some(flow), 10));
    assert_eq!(a.poll_transmit(1), None);
}

#[test]
fn older_data_frames_have_the_higher_priority_and_control_the_highest() {
    let (mut a, _b, flow) = open_pair();
    a.write(flow, vec![5; 200_000].into()).unwrap();
    a.open(request()).unwrap();
    a.ping();
    let priorities: Vec<i32> = std::iter::from_fn(|| a.poll_transmit(1))
        .map(|t| t.priority)
        .collect();
    assert_eq!(priorities[..2], [i32::MAX, i32::MAX]);
    assert_eq!(priorities.len(), 2 + 200_000usize.div_ceil(16 << 10));
    assert!(
        priorities.windows(2).skip(1).all(|pair| pair[0] > pair[1]),
        "{priorities:?}"
    );
}

#[test]
fn requests_that_cannot_be_sent_are_refused_by_field() {
    let (mut a, _) = pair();
    let target = |name: &str| Target::Host {
        name: name.into(),
        port: 1,
    };
    for name in ["", "two words", "line\n", &"x".repeat(256)] {
        let request = OpenRequest {
            target: target(name),
            ..request()
        };
        assert_eq!(a.open(request), Err(OpenError::BadRequest("host name")));
    }
    let request = OpenRequest {
        dscp: 64,
        ..request()
    };
    assert_eq!(a.open(request), Err(OpenError::BadRequest("dscp")));
    assert!(a.is_idle());
}

#[test]
fn an_open_or_answer_that_comes_again_changes_nothing() {
    let (mut a, mut b) = pair();
    let flow = a.open(request()).unwrap();
    let open = frames(&mut a);
    deliver(&mut b, open.clone());
    assert_eq!(events(&mut b), [Event::Incoming(flow, request())]);
    b.accept(flow);
    let answer = frames(&mut b);
    deliver(&mut a, answer.clone());
    assert_eq!(events(&mut a), [Event::Opened(flow)]);
    deliver(&mut b, open);
    deliver(&mut a, answer);
    let refusal = Some(Refusal::Policy);
    deliver(&mut a, [Frame::Answer { flow, refusal }.encode()]);
    assert_eq!((events(&mut a), events(&mut b)), (vec![], vec![]));
    assert_eq!(b.write(flow, Bytes::from_static(b"still open")), Ok(()));
    settle(&mut a, &mut b);
    assert_eq!(
        a.read(9, flow, 99),
        Read::Data(Bytes::from_static(b"still open"))
    );
}

#[test]
fn data_that_comes_again_changes_nothing_even_after_the_end() {
    let (mut a, mut b, flow) = open_pair();
    let mut sent = Vec::new();
    for part in [&b"one "[..], b"two "] {
        a.write(flow, Bytes::copy_from_slice(part)).unwrap();
        sent.extend(frames(&mut a));
        deliver(&mut b, sent.clone());
    }
    a.finish(flow);
    sent.extend(frames(&mut a));
    deliver(&mut b, sent.clone());
    for part in [&b"one "[..], b"two "] {
        let read = b.read(9, flow, 99);
        assert_eq!(read, Read::Data(Bytes::from_static(part)));
    }
    assert_eq!(b.read(9, flow, 99), Read::End);
    deliver(&mut b, sent.clone());
    b.finish(flow);
    settle(&mut a, &mut b);
    assert_eq!(a.read(9, flow, 99), Read::End);
    settle(&mut a, &mut b);
    assert_eq!((a.flows().count(), b.flows().count()), (0, 0));
    deliver(&mut b, sent);
    assert_eq!(b.flows().count(), 0, "not opened anew by its data");
}

#[test]
fn no_credit_is_sent_for_a_direction_that_has_ended() {
    let (mut a, mut b, flow) = open_pair();
    a.write(flow, vec![1; 500_000].into()).unwrap();
    a.finish(flow);
    settle(&mut a, &mut b);
    let mut read_bytes = 0;
    while let Read::Data(data) = b.read(9, flow, 1 << 20) {
        read_bytes += data.len();
    }
    assert_eq!(read_bytes, 500_000);
    assert_eq!(b.poll_transmit(1), None);
}
