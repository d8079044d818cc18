//! What a flow goes through, step by step, frames in order.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

use bytes::Bytes;
use farhaul_tunnel::*;

fn hello(instance: u128) -> Hello {
    Hello {
        versions: PROTOCOL_VERSIONS,
        instance,
        site: format!("site-{instance}"),
        features: 0b110,
    }
}

fn request() -> OpenRequest {
    OpenRequest {
        client: "192.0.2.7:40000".parse().unwrap(),
        target: Target::Address("198.51.100.9:445".parse().unwrap()),
        keep_client_address: true,
        class: Class::Interactive,
        dscp: 10,
    }
}

/// Moves every frame there is, both ways, until nothing moves.
fn settle(a: &mut Mux, b: &mut Mux) {
    loop {
        let mut moved = false;
        while let Some(transmit) = a.poll_transmit(1) {
            b.handle_frame(2, transmit.chunks.concat().into()).unwrap();
            moved = true;
        }
        while let Some(transmit) = b.poll_transmit(3) {
            a.handle_frame(4, transmit.chunks.concat().into()).unwrap();
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
