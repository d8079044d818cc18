//! invariant 6: bytes from outside cannot panic the process, and say what is wrong with them.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

mod world;

use bytes::{BufMut, Bytes, BytesMut};
use farhaul_tunnel::*;
use proptest::prelude::*;
use world::{Random, hello, request, small_limits};

fn any_request() -> impl Strategy<Value = OpenRequest> {
    let address = any::<(bool, u128, u16)>().prop_map(|(is_v4, bits, port)| {
        let v4 = core::net::Ipv4Addr::from_bits(bits as u32).into();
        let v6 = core::net::Ipv6Addr::from_bits(bits).into();
        core::net::SocketAddr::new(if is_v4 { v4 } else { v6 }, port)
    });
    let host =
        ("[a-z0-9._é-]{1,120}", any::<u16>()).prop_map(|(name, port)| Target::Host { name, port });
    let target = prop_oneof![address.clone().prop_map(Target::Address), host];
    let class = prop_oneof![
        Just(Class::Auto),
        Just(Class::Control),
        Just(Class::Interactive),
        Just(Class::Bulk),
        Just(Class::Background),
    ];
    let correction = prop_oneof![
        Just(Correction::Auto),
        Just(Correction::Off),
        Just(Correction::On),
    ];
    let records = |eliminated, compressed| Payload::Records {
        eliminated,
        compressed,
        level: None,
    };
    let at_level = (any::<bool>(), -7i8..=22).prop_map(|(eliminated, level)| Payload::Records {
        eliminated,
        compressed: true,
        level: Some(level),
    });
    let payload = prop_oneof![
        Just(Payload::Plain),
        Just(records(true, true)),
        Just(records(true, false)),
        Just(records(false, true)),
        at_level,
        Just(Payload::Channel),
        Just(Payload::Warming),
        Just(Payload::Measuring),
    ];
    let extras = (correction, any::<bool>(), payload);
    (address, target, any::<bool>(), class, 0u8..64, extras).prop_map(
        |(client, target, keep_client_address, class, dscp, (correction, items, payload))| {
            OpenRequest {
                client,
                target,
                keep_client_address,
                class,
                dscp,
                correction,
                items,
                payload,
            }
        },
    )
}

/// Any frame that can be sent.
fn any_frame() -> impl Strategy<Value = Frame> {
    let flow = || (0u64..1 << 62).prop_map(FlowId);
    let payload = |min| prop::collection::vec(any::<u8>(), min..300).prop_map(Bytes::from);
    let number = || 1u64..(1 << 62) - 1;
    let count = || 0u64..1 << 62;
    let hello = (
        any::<(u16, u16, u128, u64)>(),
        "[^\\p{Cc}]{0,16}",
        count(),
        count(),
    )
        .prop_map(
            |((one, other, instance, features), site, flow_window_bytes, flows_max)| {
                let versions = VersionRange {
                    min: one.min(other),
                    max: one.max(other),
                };
                let hello = Hello {
                    versions,
                    instance,
                    site,
                    features,
                };
                Frame::Hello(HelloFrame {
                    hello,
                    flow_window_bytes,
                    flows_max,
                })
            },
        );
    prop_oneof![
        hello,
        any::<(u64, u64)>().prop_map(|(nonce, sent_ns)| Frame::Ping { nonce, sent_ns }),
        any::<(u64, u64)>().prop_map(|(nonce, sent_ns)| Frame::Pong { nonce, sent_ns }),
        (flow(), any_request()).prop_map(|(flow, request)| Frame::Open { flow, request }),
        (flow(), number(), payload(1)).prop_map(|(flow, number, payload)| Frame::Data {
            flow,
            number,
            payload
        }),
        (flow(), number(), count(), payload(0)).prop_map(|(flow, number, bytes, payload)| {
            Frame::End {
                flow,
                number,
                bytes,
                payload,
            }
        }),
        (flow(), count()).prop_map(|(flow, limit_bytes)| Frame::Credit { flow, limit_bytes }),
        (flow(), count()).prop_map(|(flow, keep_bytes)| Frame::Reclaim { flow, keep_bytes }),
        (flow(), count()).prop_map(|(flow, returned_bytes)| Frame::Returned {
            flow,
            returned_bytes
        }),
        (0x81u8..).prop_map(|kind| Frame::Optional { kind }),
        Just(Frame::Drain),
    ]
}

/// A tunnel of each side that has heard hello and holds flows of both openers.
fn busy(side: Side) -> Mux {
    let mut mux = Mux::new(side, small_limits(), hello(1));
    let peer = HelloFrame {
        hello: hello(2),
        flow_window_bytes: 1 << 20,
        flows_max: 100,
    };
    mux.handle_frame(1, Frame::Hello(peer).encode()).unwrap();
    for _ in 0..4 {
        let flow = mux.open(request()).unwrap();
        mux.write(flow, Bytes::from_static(b"some bytes")).unwrap();
    }
    let parity = u64::from(side == Side::Dialer);
    for index in 0..4 {
        let flow = FlowId(index * 2 + parity);
        mux.handle_frame(
            1,
            Frame::Open {
                flow,
                request: request(),
            }
            .encode(),
        )
        .unwrap();
    }
    mux
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_encoded_decodes_to_the_same(frame in any_frame()) {
        prop_assert_eq!(Frame::decode(frame.encode()), Ok(frame));
    }

    #[test]
    fn invariant_6_arbitrary_bytes_cannot_panic_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(frame) = Frame::decode(bytes.into()) {
            // Whatever was understood can be said again with the same meaning.
            prop_assert_eq!(Frame::decode(frame.encode()), Ok(frame));
        }
    }

    /// Frames of small numbers, so that they meet live flows, in any order, damaged or not.
    #[test]
    fn invariant_6_a_hostile_peer_cannot_panic_the_tunnel(
        seed: u64,
        is_dialer: bool,
        frames in 1usize..200,
    ) {
        let mut mux = busy(if is_dialer { Side::Dialer } else { Side::Acceptor });
        let mut random = Random(seed);
        for _ in 0..frames {
            // An error closes the connection; here the tunnel must survive even being asked on.
            let _ = mux.handle_frame(2, hostile_frame(&mut random));
            while mux.poll_event().is_some() {}
            let flow = FlowId(random.below(12) as u64);
            match random.below(6) {
                0 => mux.accept(flow),
                1 => mux.refuse(flow, Refusal::Policy),
                2 => drop(mux.read(3, flow, random.below(2000))),
                3 => mux.finish(flow),
                4 => mux.reset(flow, ResetCode::Admin),
                _ => drop(mux.poll_transmit(4)),
            }
        }
        let ids: Vec<FlowId> = mux.flows().collect();
        for id in ids {
            mux.reset(id, ResetCode::Admin);
        }
        while mux.poll_transmit(5).is_some() {}
        prop_assert_eq!(mux.stats().send_buffered_bytes, 0);
    }
}

/// Well-formed frames of live and other flows, and some that are not well-formed.
fn hostile_frame(random: &mut Random) -> Bytes {
    let count = |random: &mut Random| match random.below(8) {
        0 => random.next() >> 2,
        1 => (1 << 62) - 2,
        _ => random.below(12) as u64,
    };
    let flow = FlowId(count(random));
    let payload = Bytes::from(vec![7; 1 + random.below(9000)]);
    let frame = match random.below(11) {
        0 => Frame::Open {
            flow,
            request: request(),
        },
        1 => Frame::Answer {
            flow,
            refusal: None,
        },
        2 => Frame::Answer {
            flow,
            refusal: Some(Refusal::Policy),
        },
        3 => Frame::Credit {
            flow,
            limit_bytes: count(random),
        },
        4 => Frame::Reset {
            flow,
            code: ResetCode::Application,
        },
        5 => Frame::End {
            flow,
            number: count(random),
            bytes: count(random),
            payload,
        },
        9 => Frame::Reclaim {
            flow,
            keep_bytes: count(random),
        },
        10 => Frame::Returned {
            flow,
            returned_bytes: count(random),
        },
        6 => Frame::Ping {
            nonce: count(random),
            sent_ns: count(random),
        },
        _ => Frame::Data {
            flow,
            number: count(random),
            payload,
        },
    };
    let bytes = frame.encode();
    if random.below(3) > 0 {
        return bytes;
    }
    let mut damaged = BytesMut::from(&bytes[..random.below(bytes.len())]);
    if !damaged.is_empty() {
        let place = random.below(damaged.len().min(12));
        damaged[place] ^= random.next() as u8;
    }
    damaged.put_bytes(random.next() as u8, random.below(20));
    damaged.freeze()
}

#[test]
fn hostile_frames_reach_every_kind_of_answer() {
    let mut random = Random(5);
    let mut taken = 0;
    let mut errors = std::collections::BTreeSet::new();
    for _ in 0..3000 {
        let mut mux = busy(Side::Dialer);
        for _ in 0..10 {
            match mux.handle_frame(2, hostile_frame(&mut random)) {
                Ok(()) => taken += 1,
                Err(error) => drop(
                    errors.insert(
                        format!("{error:?}")
                            .split(['(', ' '])
                            .next()
                            .map(str::to_owned),
                    ),
                ),
            }
        }
    }
    let named: Vec<String> = errors.into_iter().flatten().collect();
    assert!(
        taken > 1000,
        "only {taken} of 30,000 frames were understood"
    );
    for kind in [
        "AbsurdFlow",
        "AbsurdNumber",
        "CreditExceeded",
        "Decode",
        "EndMismatch",
        "UnknownFlow",
        "WrongSide",
    ] {
        assert!(
            named.iter().any(|name| name == kind),
            "{kind} was never reached: {named:?}"
        );
    }
}

/// Sends `frames` to a busy dialer; what the last one gave.
fn answer_to(frames: &[Frame]) -> Result<(), ProtocolError> {
    let mut mux = busy(Side::Dialer);
    let mut last = Ok(());
    for frame in frames {
        assert_eq!(last, Ok(()), "an earlier frame was refused");
        last = mux.handle_frame(2, frame.encode());
    }
    last
}

fn data(flow: u64, number: u64, length: usize) -> Frame {
    Frame::Data {
        flow: FlowId(flow),
        number,
        payload: vec![7; length].into(),
    }
}

fn end(flow: u64, number: u64, bytes: u64, length: usize) -> Frame {
    Frame::End {
        flow: FlowId(flow),
        number,
        bytes,
        payload: vec![7; length].into(),
    }
}

#[test]
fn credit_is_exact_and_going_beyond_it_is_an_error() {
    // The window is 16 KiB and a frame costs 128 bytes more than its payload.
    let full = (16 << 10) - 128;
    assert_eq!(answer_to(&[data(1, 1, full)]), Ok(()));
    let exceeded = ProtocolError::CreditExceeded {
        flow: FlowId(1),
        limit_bytes: 16 << 10,
    };
    assert_eq!(answer_to(&[data(1, 1, full + 1)]), Err(exceeded.clone()));
    assert_eq!(
        answer_to(&[data(1, 1, full), data(1, 2, 1)]),
        Err(exceeded.clone())
    );
    let small: Vec<Frame> = (1..=127).map(|number| data(1, number, 1)).collect();
    assert_eq!(answer_to(&small), Ok(()));
    let more: Vec<Frame> = (1..=128).map(|number| data(1, number, 1)).collect();
    assert_eq!(answer_to(&more), Err(exceeded));
}

#[test]
fn an_end_without_payload_needs_no_credit() {
    let full = (16 << 10) - 128;
    assert_eq!(
        answer_to(&[data(1, 1, full), end(1, 2, full as u64, 0)]),
        Ok(())
    );
}

#[test]
fn a_frame_number_beyond_what_credit_allows_is_an_error() {
    // 16384 / 129 = 127 frames at most, this one included.
    assert_eq!(answer_to(&[data(1, 127, 1)]), Ok(()));
    let absurd = ProtocolError::AbsurdNumber {
        flow: FlowId(1),
        number: 128,
    };
    assert_eq!(answer_to(&[data(1, 128, 1)]), Err(absurd));
}

#[test]
fn an_end_that_contradicts_the_frames_is_an_error() {
    let mismatch = Err(ProtocolError::EndMismatch(FlowId(1)));
    assert_eq!(answer_to(&[data(1, 1, 10), end(1, 2, 10, 0)]), Ok(()));
    assert_eq!(answer_to(&[end(1, 2, 10, 0), data(1, 1, 10)]), Ok(()));
    assert_eq!(answer_to(&[data(1, 1, 10), end(1, 2, 9, 0)]), mismatch);
    assert_eq!(answer_to(&[data(1, 1, 10), end(1, 2, 11, 0)]), mismatch);
    assert_eq!(answer_to(&[end(1, 2, 11, 0), data(1, 1, 10)]), mismatch);
    assert_eq!(answer_to(&[end(1, 2, 10, 0), data(1, 3, 10)]), mismatch);
    assert_eq!(answer_to(&[data(1, 3, 10), end(1, 2, 10, 0)]), mismatch);
    assert_eq!(answer_to(&[end(1, 2, 10, 0), end(1, 1, 10, 10)]), mismatch);
    assert_eq!(answer_to(&[data(1, 1, 10), end(1, 1, 10, 10)]), mismatch);
}

#[test]
fn a_frame_that_comes_twice_is_ignored_and_costs_nothing() {
    let full = (16 << 10) - 128;
    assert_eq!(
        answer_to(&[data(1, 1, full), data(1, 1, full), data(1, 1, full)]),
        Ok(())
    );
    assert_eq!(
        answer_to(&[end(1, 2, 5, 0), end(1, 2, 5, 0), data(1, 1, 5)]),
        Ok(())
    );
    let open = Frame::Open {
        flow: FlowId(1),
        request: request(),
    };
    assert_eq!(answer_to(&[open.clone(), open]), Ok(()));
    let accept = Frame::Answer {
        flow: FlowId(0),
        refusal: None,
    };
    assert_eq!(answer_to(&[accept.clone(), accept]), Ok(()));
}

#[test]
fn frames_of_flows_nobody_opened_or_of_the_wrong_side_are_errors() {
    let ours_unused = FlowId(8);
    assert_eq!(
        answer_to(&[data(8, 1, 1)]),
        Err(ProtocolError::UnknownFlow(ours_unused))
    );
    let code = ResetCode::Application;
    assert_eq!(
        answer_to(&[Frame::Reset {
            flow: ours_unused,
            code
        }]),
        Err(ProtocolError::UnknownFlow(ours_unused))
    );
    assert_eq!(
        answer_to(&[Frame::Open {
            flow: FlowId(0),
            request: request()
        }]),
        Err(ProtocolError::WrongSide(FlowId(0)))
    );
    assert_eq!(
        answer_to(&[Frame::Answer {
            flow: FlowId(1),
            refusal: None
        }]),
        Err(ProtocolError::WrongSide(FlowId(1)))
    );
    let far = FlowId((4 + Limits::default().flow_ids_ahead_max) * 2 + 1);
    assert_eq!(
        answer_to(&[Frame::Credit {
            flow: far,
            limit_bytes: 1
        }]),
        Err(ProtocolError::AbsurdFlow(far))
    );
    let near = FlowId(far.0 - 2);
    assert_eq!(
        answer_to(&[Frame::Credit {
            flow: near,
            limit_bytes: 1
        }]),
        Ok(())
    );
}
