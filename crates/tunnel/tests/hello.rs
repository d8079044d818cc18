//! Hello, versions, liveness.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

mod world;

use bytes::Bytes;
use farhaul_tunnel::*;
use world::{hello, request};

fn mux(side: Side, instance: u128, versions: (u16, u16)) -> Mux {
    let versions = VersionRange {
        min: versions.0,
        max: versions.1,
    };
    Mux::new(
        side,
        Limits::default(),
        Hello {
            versions,
            ..hello(instance)
        },
    )
}

/// Carries one frame, if there is one.
fn carry(from: &mut Mux, to: &mut Mux) -> Result<bool, ProtocolError> {
    let Some(transmit) = from.poll_transmit(1000) else {
        return Ok(false);
    };
    to.handle_frame(51_000, transmit.chunks.concat().into())?;
    Ok(true)
}

fn meet(a: &mut Mux, b: &mut Mux) -> Result<(), ProtocolError> {
    while carry(a, b)? | carry(b, a)? {}
    Ok(())
}

#[test]
fn invariant_10_versions_one_apart_interoperate() {
    for (dialer, acceptor) in [((1, 1), (0, 2)), ((0, 2), (1, 1)), ((1, 2), (0, 1))] {
        let mut a = mux(Side::Dialer, 1, dialer);
        let mut b = mux(Side::Acceptor, 2, acceptor);
        assert_eq!(meet(&mut a, &mut b), Ok(()));
        for (mux, peer) in [(&mut a, 2), (&mut b, 1)] {
            let negotiated = mux.negotiated().cloned().expect("hello was said");
            assert_eq!((negotiated.version, negotiated.features), (1, 0b110));
            assert_eq!(negotiated.peer.instance, peer);
            assert_eq!(negotiated.peer.site, format!("site-{peer}"));
            assert_eq!(mux.poll_event(), Some(Event::Hello(negotiated)));
        }
        let flow = a.open(request()).unwrap();
        a.write(flow, Bytes::from_static(b"works")).unwrap();
        assert_eq!(meet(&mut a, &mut b), Ok(()));
        assert_eq!(b.read(1, flow, 9), Read::Data(Bytes::from_static(b"works")));
    }
}

#[test]
fn no_common_version_is_an_error_that_names_both_ranges() {
    let mut a = mux(Side::Dialer, 1, (2, 4));
    let mut b = mux(Side::Acceptor, 2, (1, 1));
    let error = meet(&mut a, &mut b).expect_err("there is no common version");
    assert_eq!(
        error.to_string(),
        "no common protocol version: we speak 1, the peer speaks 2 to 4"
    );
    assert_eq!(b.poll_transmit(1), None);
}

#[test]
fn a_newer_peer_may_say_more_in_its_hello_and_send_frames_we_do_not_know() {
    let mut a = mux(Side::Dialer, 1, (1, 2));
    let mut b = mux(Side::Acceptor, 2, (1, 1));
    let mut longer = a.poll_transmit(1).unwrap().chunks.concat();
    longer.extend_from_slice(b"fields of version 2");
    assert_eq!(b.handle_frame(1, longer.into()), Ok(()));
    assert_eq!(b.negotiated().map(|negotiated| negotiated.version), Some(1));
    assert_eq!(
        b.handle_frame(1, Bytes::from_static(&[0x81, 1, 2, 3])),
        Ok(())
    );
    assert_eq!(b.handle_frame(1, Bytes::from_static(&[0xff])), Ok(()));
    assert_eq!(b.stats().frames_skipped, 2);
    let unknown = b.handle_frame(1, Bytes::from_static(&[0x7f])).unwrap_err();
    assert_eq!(
        unknown,
        ProtocolError::Decode(DecodeError::UnknownType(0x7f))
    );
}

#[test]
fn a_frame_of_nothing_goes_behind_all_others_and_is_skipped() {
    let mut a = mux(Side::Dialer, 1, (1, 1));
    let mut b = mux(Side::Acceptor, 2, (1, 1));
    assert_eq!(meet(&mut a, &mut b), Ok(()));
    b.fill(50_000);
    b.ping();
    assert!(b.has_transmit());
    assert!(b.poll_urgent(1).is_some(), "the PING");
    assert!(b.poll_urgent(1).is_none(), "it does not stand in the way");
    let transmit = b.poll_transmit(1).unwrap();
    let frame = transmit.chunks.concat();
    assert_eq!((frame.len(), frame.first()), (50_000, Some(&0x81)));
    assert!(!transmit.is_protected && b.poll_transmit(1).is_none() && !b.has_transmit());
    assert_eq!(a.handle_frame(1, frame.into()), Ok(()));
    assert_eq!(a.stats().frames_skipped, 1);
    b.fill(usize::MAX);
    let most = b.poll_transmit(1).unwrap().chunks.concat();
    assert_eq!(most.len(), FRAME_BYTES_HARD_MAX);
    assert_eq!(a.handle_frame(1, most.into()), Ok(()));
}

#[test]
fn a_draining_side_says_so_once_and_flows_still_open() {
    let mut a = mux(Side::Dialer, 1, (1, 1));
    let mut b = mux(Side::Acceptor, 2, (1, 1));
    assert_eq!(meet(&mut a, &mut b), Ok(()));
    while a.poll_event().is_some() {}
    b.drain();
    b.drain();
    let mut drains = 0;
    while let Some(transmit) = b.poll_transmit(1) {
        let frame = transmit.chunks.concat();
        drains += usize::from(frame == [0x80]);
        assert_eq!(a.handle_frame(1, frame.into()), Ok(()));
    }
    assert_eq!(drains, 1);
    let events: Vec<_> = std::iter::from_fn(|| a.poll_event()).collect();
    assert!(events.contains(&Event::Draining), "{events:?}");
    assert_eq!(a.handle_frame(1, Bytes::from_static(&[0x80])), Ok(()));
    assert_eq!(a.poll_event(), None, "said twice, heard once");
}

#[test]
fn features_are_those_both_offer() {
    let offer = |side, instance, features| {
        Mux::new(
            side,
            Limits::default(),
            Hello {
                features,
                ..hello(instance)
            },
        )
    };
    let mut a = offer(Side::Dialer, 1, 0b1011);
    let mut b = offer(Side::Acceptor, 2, 0b0110);
    assert_eq!(meet(&mut a, &mut b), Ok(()));
    assert_eq!(
        a.negotiated().map(|negotiated| negotiated.features),
        Some(0b0010)
    );
    assert_eq!(
        b.negotiated().map(|negotiated| negotiated.features),
        Some(0b0010)
    );
}

#[test]
fn a_level_reaches_only_a_peer_that_offered_to_hear_it() {
    let payload = |level| Payload::Records {
        eliminated: true,
        compressed: true,
        level,
    };
    for (features, expected) in [(FEATURE_LEVELS, Some(9)), (0, None)] {
        let offer = |side, instance| {
            let hello = Hello {
                features,
                ..hello(instance)
            };
            Mux::new(side, Limits::default(), hello)
        };
        let (mut a, mut b) = (offer(Side::Dialer, 1), offer(Side::Acceptor, 2));
        let wanted = OpenRequest {
            payload: payload(Some(9)),
            ..request()
        };
        a.open(wanted).unwrap();
        assert_eq!(meet(&mut a, &mut b), Ok(()));
        let mut events = std::iter::from_fn(|| b.poll_event());
        let heard = events.find_map(|event| match event {
            Event::Incoming(_, request) => Some(request.payload),
            _ => None,
        });
        assert_eq!(heard, Some(payload(expected)));
    }
}

#[test]
fn a_level_that_there_is_not_and_one_for_what_is_not_compressed_are_refused() {
    let open = |flags: u8, level: u8| {
        let fields = [4, 192, 0, 2, 7, 0x9c, 0x40, 4, 198, 51, 100, 9, 1, 0xbd];
        let frame = [&[0x10, 0, flags, 0, 0, level], &fields[..]].concat();
        Frame::decode(frame.into()).err()
    };
    assert_eq!(open(0x90, 22), None);
    assert_eq!(open(0x98, 0xf9), None);
    for (flags, level, field) in [
        (0x90, 23, "level"),
        (0x90, 0xf8, "level"),
        (0x88, 3, "flags"),
        (0x80, 3, "flags"),
    ] {
        assert_eq!(open(flags, level), Some(DecodeError::BadValue(field)));
    }
}

#[test]
fn nothing_is_sent_before_the_other_side_can_understand_it() {
    let mut a = mux(Side::Dialer, 1, (1, 1));
    let mut b = mux(Side::Acceptor, 2, (1, 1));
    let flow = a.open(request()).unwrap();
    a.write(flow, Bytes::from_static(b"early")).unwrap();
    b.open(request()).unwrap();
    assert_eq!(b.poll_transmit(1), None, "the acceptor listens first");
    assert_eq!(carry(&mut a, &mut b), Ok(true));
    assert_eq!(a.poll_transmit(1), None, "the dialer waits for the answer");
    assert_eq!(carry(&mut b, &mut a), Ok(true));
    assert_eq!(
        b.poll_transmit(1),
        None,
        "the acceptor does not know yet that it was heard"
    );
    assert_eq!(carry(&mut a, &mut b), Ok(true));
    assert!(b.has_transmit());
    assert_eq!(meet(&mut a, &mut b), Ok(()));
    assert_eq!(b.read(1, flow, 9), Read::Data(Bytes::from_static(b"early")));
    assert_eq!(b.stats().flows, 2);
}

#[test]
fn a_frame_before_hello_a_second_hello_and_our_own_hello_are_errors() {
    let mut b = mux(Side::Acceptor, 2, (1, 1));
    let ping = Frame::Ping {
        nonce: 1,
        sent_ns: 1,
    }
    .encode();
    assert_eq!(b.handle_frame(1, ping), Err(ProtocolError::BeforeHello));
    let mut a = mux(Side::Dialer, 1, (1, 1));
    let said: Bytes = a.poll_transmit(1).unwrap().chunks.concat().into();
    assert_eq!(b.handle_frame(1, said.clone()), Ok(()));
    assert_eq!(
        b.handle_frame(1, said.clone()),
        Err(ProtocolError::SecondHello)
    );
    let mut mirror = mux(Side::Acceptor, 1, (1, 1));
    assert_eq!(mirror.handle_frame(1, said), Err(ProtocolError::Ourselves));
}

#[test]
fn a_site_name_that_is_too_long_or_unclean_is_cut_not_refused() {
    let site = format!("line\nbreak{}", "é".repeat(60));
    let mut a = Mux::new(Side::Dialer, Limits::default(), Hello { site, ..hello(1) });
    let mut b = mux(Side::Acceptor, 2, (1, 1));
    assert_eq!(meet(&mut a, &mut b), Ok(()));
    let heard = b
        .negotiated()
        .map(|negotiated| negotiated.peer.site.clone());
    assert_eq!(heard, Some(format!("linebreak{}", "é".repeat(27))));
}

#[test]
fn a_ping_measures_the_round_trip_and_a_forged_answer_does_not() {
    let mut a = mux(Side::Dialer, 1, (1, 1));
    let mut b = mux(Side::Acceptor, 2, (1, 1));
    assert_eq!(meet(&mut a, &mut b), Ok(()));
    while a.poll_event().is_some() {}
    let nonce = a.ping();
    let ping = a.poll_transmit(1_000_000).unwrap();
    assert_eq!(b.handle_frame(0, ping.chunks.concat().into()), Ok(()));
    let pong: Bytes = b.poll_transmit(0).unwrap().chunks.concat().into();
    let forged = Frame::Pong {
        nonce: nonce + 1,
        sent_ns: 0,
    }
    .encode();
    assert_eq!(a.handle_frame(9_000_000, forged), Ok(()));
    assert_eq!(a.poll_event(), None);
    assert_eq!(a.handle_frame(201_000_000, pong.clone()), Ok(()));
    assert_eq!(
        a.poll_event(),
        Some(Event::Pong {
            nonce,
            rtt_ns: 200_000_000
        })
    );
    assert_eq!(a.handle_frame(500_000_000, pong), Ok(()));
    assert_eq!(a.poll_event(), None, "an answer counts once");
}
