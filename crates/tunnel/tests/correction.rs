//! Which frames are marked to be repaired when they are lost, and that the far side follows.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

use bytes::Bytes;
use farhaul_tunnel::*;

fn hello(instance: u128, features: u64) -> Hello {
    Hello {
        versions: PROTOCOL_VERSIONS,
        instance,
        site: "site".into(),
        features,
    }
}

fn request(class: Class, correction: Correction) -> OpenRequest {
    OpenRequest {
        client: "192.0.2.7:40000".parse().unwrap(),
        target: Target::Address("198.51.100.9:445".parse().unwrap()),
        keep_client_address: true,
        class,
        dscp: 0,
        correction,
        items: false,
        payload: Payload::Plain,
    }
}

/// Everything `from` has to send, taken to `to`.
fn carry(from: &mut Mux, to: &mut Mux) -> Vec<Transmit> {
    let frames: Vec<Transmit> = std::iter::from_fn(|| from.poll_transmit(1)).collect();
    for frame in &frames {
        let bytes: Vec<u8> = frame.chunks.concat();
        to.handle_frame(1, bytes.into()).unwrap();
    }
    frames
}

fn pair(features: u64) -> (Mux, Mux) {
    let mut near = Mux::new(Side::Dialer, Limits::default(), hello(1, features));
    let mut far = Mux::new(Side::Acceptor, Limits::default(), hello(2, FEATURE_FEC));
    while carry(&mut near, &mut far).len() + carry(&mut far, &mut near).len() > 0 {}
    (near, far)
}

fn incoming(mux: &mut Mux) -> (FlowId, OpenRequest) {
    let mut events = std::iter::from_fn(|| mux.poll_event());
    events
        .find_map(|event| match event {
            Event::Incoming(flow, request) => Some((flow, request)),
            _ => None,
        })
        .unwrap()
}

/// Whether the data frames that come and go are marked, both ways.
fn marks(class: Class, correction: Correction, features: u64) -> (Vec<bool>, Vec<bool>) {
    let data = |frames: Vec<Transmit>| -> Vec<bool> {
        let data = frames
            .iter()
            .filter(|frame| frame.priority != i32::MAX && frame.flow.is_some());
        data.map(|frame| frame.is_protected).collect()
    };
    let (mut near, mut far) = pair(features);
    let flow = near.open(request(class, correction)).unwrap();
    near.write(flow, Bytes::from_static(b"question")).unwrap();
    let there = data(carry(&mut near, &mut far));
    let (flow, _) = incoming(&mut far);
    far.accept(flow);
    far.write(flow, Bytes::from_static(b"answer")).unwrap();
    (there, data(carry(&mut far, &mut near)))
}

#[test]
fn interactive_frames_are_marked_and_bulk_is_not() {
    let of = |class, correction| marks(class, correction, FEATURE_FEC);
    let (yes, no) = ((vec![true], vec![true]), (vec![false], vec![false]));
    assert_eq!(of(Class::Auto, Correction::Auto), yes, "auto begins so");
    assert_eq!(of(Class::Interactive, Correction::Auto), yes);
    assert_eq!(of(Class::Bulk, Correction::Auto), no);
    assert_eq!(of(Class::Background, Correction::Auto), no);
    assert_eq!(of(Class::Interactive, Correction::Off), no);
    assert_eq!(of(Class::Bulk, Correction::On), yes);
}

#[test]
fn a_flow_that_has_become_bulk_is_not_marked_any_more() {
    let (mut near, mut far) = pair(FEATURE_FEC);
    let flow = near.open(request(Class::Auto, Correction::Auto)).unwrap();
    near.write(flow, vec![0; 400_000].into()).unwrap();
    let frames = carry(&mut near, &mut far);
    let data: Vec<&Transmit> = frames
        .iter()
        .filter(|frame| frame.priority != i32::MAX)
        .collect();
    let marked: usize = data
        .iter()
        .take_while(|frame| frame.is_protected)
        .map(|frame| frame.frame_bytes())
        .sum();
    assert!((60_000..200_000).contains(&marked), "{marked} bytes");
    assert!(!data.last().unwrap().is_protected);
}

#[test]
fn opens_and_answers_are_marked_pings_are_not() {
    let (mut near, mut far) = pair(FEATURE_FEC);
    near.open(request(Class::Bulk, Correction::Auto)).unwrap();
    assert!(
        carry(&mut near, &mut far)
            .iter()
            .any(|frame| frame.is_protected)
    );
    near.open(request(Class::Bulk, Correction::Off)).unwrap();
    assert!(
        carry(&mut near, &mut far)
            .iter()
            .all(|frame| !frame.is_protected)
    );
    near.ping();
    assert!(
        carry(&mut near, &mut far)
            .iter()
            .all(|frame| !frame.is_protected)
    );
}

/// The far side is asked only where it would understand.
#[test]
fn a_peer_without_error_correction_is_not_asked_for_it() {
    for (features, expected) in [(FEATURE_FEC, Correction::Off), (0, Correction::Auto)] {
        let (mut near, mut far) = pair(features);
        near.open(request(Class::Bulk, Correction::Off)).unwrap();
        carry(&mut near, &mut far);
        assert_eq!(incoming(&mut far).1.correction, expected);
    }
}

#[test]
fn a_fourth_kind_of_correction_is_refused() {
    let open: &[u8] = &[
        0x10, 0, 0b110, 0, 0, 4, 192, 0, 2, 7, 0x9c, 0x40, 4, 198, 51, 100, 9, 1, 0xbd,
    ];
    let decoded = Frame::decode(Bytes::from_static(open));
    assert_eq!(decoded, Err(DecodeError::BadValue("flags")));
}
