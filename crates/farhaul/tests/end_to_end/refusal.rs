//! A destination that is not there looks as it would without gateways.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farhaul_lab::Side;
use socket2::{Domain, Socket, Type};

use crate::apps::{Service, greet_and_echo, greeting};
use crate::wire::{Capture, TCP};
use crate::world::{Shared, World, until, v4, v6};

static PLAIN: Shared = Shared::new();

/// 10.5/16 lies behind the peer by configuration, but there is no route to it.
fn plain() -> Arc<World> {
    let networks = "networks = ['10.2.0.0/24', 'fdfa:0:2::/64', '10.5.0.0/16']";
    PLAIN.get(|| {
        World::with(
            "refusal",
            &format!("[tunnel]\nopen_timeout = '2s'\n[[peer]]\n{networks}"),
            "[accept]\ndestinations = ['10.2.0.2/32', 'fdfa:0:2::/64', '10.5.0.0/16', '127.0.0.0/8']",
        )
    })
}

#[test]
fn refused_stays_refused() {
    let world = plain();
    let capture = Capture::start(&world);
    for server in [v4(6001), v6(6001)] {
        for _ in 0..10 {
            let error = world.try_connect(server).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        }
    }
    let event = world.flows(Side::A)["recent_direct"].to_string();
    assert!(event.contains(r#""refusal":"refused""#), "{event}");
    let asked_directly = |p: &crate::wire::Packet| p.protocol == TCP && p.ports.1 == 6001;
    assert!(!capture.packets().iter().any(asked_directly));
}

#[test]
fn a_host_that_is_not_there_is_unreachable() {
    // With the usual patience of 20 s, of which it must not take much.
    let world = World::with(
        "nobody",
        "",
        "[accept]\ndestinations = ['10.2.0.77/32', 'fdfa:0:2::/64']",
    );
    for nobody in ["10.2.0.77:80", "[fdfa:0:2::77]:80"] {
        let (outcome, took) = world.connect_timed(nobody.parse().unwrap());
        let error = outcome.unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::HostUnreachable,
            "{nobody}: {error}"
        );
        assert!(took < Duration::from_secs(15), "{nobody}: {took:?}");
    }
    let event = world.flows(Side::A)["recent_direct"].to_string();
    assert!(event.contains(r#""refusal":"host-unreachable""#), "{event}");
    // They have a reason and were no flows, neither here nor there.
    let failed = r#"farhaul_opens_failed_total{reason="host-unreachable"}"#;
    for side in Side::BOTH {
        let metrics = world.metrics(side);
        assert!(metrics.contains(&format!("\n{failed} 2\n")), "{metrics}");
        for never in ["farhaul_flows_opened_total", "farhaul_flows_ended_total"] {
            assert_eq!(world.metric(side, never), 0, "{never}");
        }
    }
}

#[test]
fn a_network_without_a_route_is_unreachable() {
    let error = plain()
        .try_connect("10.5.0.1:80".parse().unwrap())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable, "{error:?}");
}

#[test]
fn silence_is_a_time_out_of_the_client_and_never_an_accept() {
    let world = plain();
    let server = world.lab.server().unwrap();
    server
        .exec(&["nft", "add table inet silence; add chain inet silence in { type filter hook input priority 0; }; add rule inet silence in tcp dport 6002 drop"])
        .unwrap();
    let started = Instant::now();
    // Longer than the gateway's own patience, and than two retransmissions.
    let patience = Duration::from_secs(5);
    let outcome = world.client(|| TcpStream::connect_timeout(&v4(6002), patience));
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(started.elapsed() >= patience);
    server.exec(&["nft", "delete table inet silence"]).unwrap();
    let _service = Service::start(&server, 6002, greet_and_echo);
    assert!(world.is_tunnelled(&world.connect(v4(6002))));
}

#[test]
fn what_the_far_policy_refuses_goes_direct_and_says_so() {
    let world = plain();
    let server = world.lab.server().unwrap();
    server.ip("address add 10.2.0.3/24 dev eth0").unwrap();
    let _service = Service::start(&server, 6003, greet_and_echo);
    let outside = world.connect("10.2.0.3:6003".parse().unwrap());
    world.assert_direct(&outside, "peer-policy");
    // A gateway's own address is never dialled for a peer, whatever the policy.
    let own = world.gateway(Side::B);
    let _admin = Service::start(&own, 6004, greet_and_echo);
    let to_gateway = world.connect("10.2.0.1:6004".parse().unwrap());
    world.assert_direct(&to_gateway, "peer-policy");
}

#[test]
fn a_client_that_gives_up_leaves_no_flow_behind() {
    let world = plain();
    let _service = Service::start(&world.lab.server().unwrap(), 6005, greet_and_echo);
    // Its SYN goes out, then the client is gone before the answer.
    let from = SocketAddr::from(([10, 1, 0, 2], 46_005));
    world.client(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&from.into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&v4(6005).into());
    });
    until("both gateways to let go of it", || {
        [Side::A, Side::B]
            .iter()
            .all(|side| world.flow_of(*side, from).is_none())
    });
    let mut next = world.connect(v4(6005));
    greeting(&mut next).unwrap();
}
