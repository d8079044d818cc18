//! What interception takes, what it leaves alone, and what both ends see.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use farhaul_lab::Side;
use socket2::{Domain, SockRef, Socket, Type};

use crate::apps::{Service, assert_echo, content, greet_and_echo, greeting};
use crate::wire::{Capture, ICMP, TCP, UDP};
use crate::world::{HANG, Shared, World, until, v4, v6};

static PLAIN: Shared = Shared::new();

fn plain() -> Arc<World> {
    PLAIN.get(|| World::up("plain"))
}

#[test]
fn the_server_sees_the_clients_own_address_and_port() {
    let world = plain();
    let _service = Service::start(&world.lab.server().unwrap(), 7001, greet_and_echo);
    for server in [v4(7001), v6(7001)] {
        let mut stream = world.connect(server);
        assert_eq!(
            greeting(&mut stream).unwrap(),
            stream.local_addr().unwrap(),
            "the server sees another client"
        );
        assert_eq!(stream.peer_addr().unwrap(), server);
        assert!(world.is_tunnelled(&stream), "it went direct");
        assert_echo(&mut stream, &content(1, 300_000));
    }
}

#[test]
fn servers_reach_clients_through_the_tunnel_as_well() {
    let world = plain();
    let _service = Service::start(&world.lab.client().unwrap(), 7002, greet_and_echo);
    let client = SocketAddr::new(farhaul_lab::topology::CLIENT.into(), 7002);
    let mut stream = world.server(|| std::net::TcpStream::connect(client).unwrap());
    stream.set_read_timeout(Some(HANG)).unwrap();
    let own = stream.local_addr().unwrap();
    assert_eq!(greeting(&mut stream).unwrap(), own);
    assert!(world.ends_in(Side::B, own), "it went direct");
    assert_eq!(world.flow_of(Side::B, own).unwrap()["side"], "near");
    assert_eq!(world.flow_of(Side::A, own).unwrap()["side"], "far");
    assert_echo(&mut stream, &content(2, 300_000));
}

#[test]
fn servers_see_the_gateway_where_its_site_says_so() {
    let world = World::with("sitegw", "", "[intercept]\nclient_address = 'gateway'");
    let _service = Service::start(&world.lab.server().unwrap(), 7003, greet_and_echo);
    for (server, gateway) in [(v4(7003), "10.2.0.1"), (v6(7003), "fdfa:0:2::1")] {
        let mut stream = world.connect(server);
        let seen = greeting(&mut stream).unwrap();
        assert_eq!(seen.ip(), gateway.parse::<IpAddr>().unwrap());
        assert!(world.is_tunnelled(&stream));
        assert_echo(&mut stream, &content(3, 100_000));
    }
}

#[test]
fn servers_see_the_gateway_where_a_rule_says_so() {
    let rule = "[[rule]]\nmatch = { port = [7004] }\nclient_address = 'gateway'";
    let world = World::with("rulegw", rule, "");
    let server = world.lab.server().unwrap();
    let _named = Service::start(&server, 7004, greet_and_echo);
    let _other = Service::start(&server, 7005, greet_and_echo);
    let seen = greeting(&mut world.connect(v4(7004))).unwrap();
    assert_eq!(seen.ip().to_string(), "10.2.0.1");
    let mut other = world.connect(v4(7005));
    assert_eq!(greeting(&mut other).unwrap(), other.local_addr().unwrap());
}

#[test]
fn replies_that_take_another_way_send_connections_direct_and_are_explained() {
    let world = World::up("asym");
    let _service = Service::start(&world.lab.server().unwrap(), 7006, greet_and_echo);
    // The site's replies to the client leave by another router, which is not there.
    let server = world.lab.server().unwrap();
    server.ip("route add blackhole 10.1.0.2/32").unwrap();
    let attempt = world.client(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let from = SocketAddr::from(([10, 1, 0, 2], 45_678));
        socket.bind(&from.into()).unwrap();
        socket.connect_timeout(&v4(7006).into(), Duration::from_secs(10))
    });
    assert!(attempt.is_err(), "nobody can have answered");
    let client = SocketAddr::from(([10, 1, 0, 2], 45_678));
    let event = world.direct_event(Side::A, client).unwrap();
    assert_eq!(event["reason"], "asymmetric-return", "{event}");
    let status = world.status(Side::A);
    let next = status["next"].as_str().unwrap();
    assert!(next.contains("client_address = \"gateway\""), "{next}");
    server.ip("route delete blackhole 10.1.0.2/32").unwrap();
    assert!(world.is_tunnelled(&world.connect(v4(7006))));
}

#[test]
fn udp_and_fragments_and_ping_pass_untouched() {
    let world = plain();
    let capture = Capture::start(&world);
    let server = world.server(|| UdpSocket::bind(v4(7007)).unwrap());
    let client = world.client(|| UdpSocket::bind("10.1.0.2:0").unwrap());
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(HANG)).unwrap();
    }
    let own = client.local_addr().unwrap();
    let mut buffer = vec![0; 9000];
    // The last two need three and six fragments.
    for len in [0, 1, 1472, 4000, 8000] {
        let sent = content(len as u64, len);
        client.send_to(&sent, v4(7007)).unwrap();
        let (received, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..received], from), (&sent[..], own));
        server.send_to(&sent, from).unwrap();
        let (received, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..received], from), (&sent[..], v4(7007)));
    }
    let host = world.lab.client().unwrap();
    for (address, size) in [
        ("10.2.0.2", "56"),
        ("10.2.0.2", "4000"),
        ("fdfa:0:2::2", "56"),
    ] {
        let ping = ["ping", "-n", "-c", "1", "-W", "5", "-s", size, address];
        let shown = host.exec(&ping).unwrap();
        assert!(shown.contains("ttl=62"), "not two routers away: {shown}");
    }
    until("all of it to be seen on the WAN", || {
        let packets = capture.packets();
        let own_udp = |p: &&crate::wire::Packet| p.protocol == UDP && p.source == [10, 1, 0, 2];
        let fragments = packets.iter().filter(own_udp).filter(|p| p.is_fragment);
        let has_ping = packets.iter().any(|p| p.protocol == ICMP);
        // Each is seen where it enters the WAN and where it leaves it, at least.
        fragments.count() >= 2 * 9 && has_ping
    });
}

#[test]
fn what_is_behind_no_peer_is_left_alone() {
    let world = plain();
    let server = world.lab.server().unwrap();
    server.ip("address add 10.3.0.2/32 dev eth0").unwrap();
    let (a, b) = (world.gateway(Side::A), world.gateway(Side::B));
    a.ip("route add 10.3.0.0/24 via 10.9.0.2").unwrap();
    b.ip("route add 10.3.0.0/24 via 10.2.0.2").unwrap();
    let _service = Service::start(&server, 7008, greet_and_echo);
    let capture = Capture::start(&world);
    let mut stream = world.connect("10.3.0.2:7008".parse().unwrap());
    let own = stream.local_addr().unwrap();
    assert_eq!(greeting(&mut stream).unwrap(), own);
    assert!(!world.is_tunnelled(&stream));
    assert_echo(&mut stream, &content(4, 100_000));
    assert!(world.direct_event(Side::A, own).is_none(), "it was asked");
    until("its own packets on the WAN", || {
        let mut packets = capture.packets().into_iter();
        packets.any(|p| p.protocol == TCP && p.ports == (own.port(), 7008))
    });
}

#[test]
fn dscp_of_a_connection_is_copied_to_the_tunnels_packets() {
    let world = World::up("dscp");
    let _service = Service::start(&world.lab.server().unwrap(), 7009, greet_and_echo);
    let capture = Capture::start(&world);
    let from_a = |p: &crate::wire::Packet| {
        p.protocol == UDP && p.source == [10, 9, 0, 1] && p.ports.1 == 4433
    };
    for dscp in [46_u32, 10] {
        let stream = world.client(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_tos_v4(dscp << 2).unwrap();
            socket.connect(&v4(7009).into()).unwrap();
            std::net::TcpStream::from(socket)
        });
        let mut stream = stream;
        stream.set_read_timeout(Some(HANG)).unwrap();
        assert!(world.is_tunnelled(&stream));
        greeting(&mut stream).unwrap();
        assert_echo(&mut stream, &content(5, 200_000));
        until("the mark on the tunnel's packets", || {
            let packets = capture.packets();
            let marked = packets
                .iter()
                .filter(|p| from_a(p) && p.len > 1000 && u32::from(p.dscp) == dscp);
            marked.count() >= 10
        });
        // The far side's packets for the same connection carry it as well.
        until("the mark on the far side's packets", || {
            let packets = capture.packets();
            packets.iter().any(|p| {
                p.protocol == UDP && p.source == [10, 9, 0, 2] && u32::from(p.dscp) == dscp
            })
        });
        assert_eq!(SockRef::from(&stream).tos_v4().unwrap(), dscp << 2);
    }
    let clear = capture.packets().iter().any(|p| p.protocol == TCP);
    assert!(!clear, "TCP crossed the WAN beside the tunnel");
}

#[test]
fn what_ends_interception_is_told_and_ends_with_its_cause() {
    let world = World::up("unruled");
    let _service = Service::start(&world.lab.server().unwrap(), 7010, greet_and_echo);
    assert!(world.is_tunnelled(&world.connect(v4(7010))));
    let router = world.gateway(Side::A);
    // Somebody uses our table, and rules are set anew without ours.
    let foreign = "10.77.0.0/16 dev lo table 250";
    router.ip(&format!("route add {foreign}")).unwrap();
    router.ip("rule del pref 200").unwrap();
    until("interception off", || {
        world.status(Side::A)["intercept"]["active"] == false
    });
    let status = world.status(Side::A);
    for shown in [&status["intercept"]["problem"], &status["next"]] {
        let shown = shown.as_str().unwrap();
        assert!(shown.contains("table 250 already has routes"), "{shown}");
    }
    assert_eq!(world.metric(Side::A, "farhaul_intercepting"), 0);
    assert!(world.told(Side::A, "status").contains("transparent, off:"));
    // As long as the last beat lasts.
    std::thread::sleep(Duration::from_secs(1));
    let mut direct = world.connect(v4(7010));
    assert!(!world.is_tunnelled(&direct));
    assert_eq!(greeting(&mut direct).unwrap(), direct.local_addr().unwrap());
    router.ip(&format!("route del {foreign}")).unwrap();
    until("interception on", || {
        world.status(Side::A)["intercept"]["active"] == true
    });
    assert_eq!(world.metric(Side::A, "farhaul_intercepting"), 1);
    assert_eq!(world.status(Side::A)["next"], serde_json::Value::Null);
    assert!(world.is_tunnelled(&world.connect(v4(7010))));
    let changes = world.metrics(Side::A);
    for to in ["off", "on"] {
        let row = format!("farhaul_intercept_changes_total{{to=\"{to}\"}} 1");
        assert!(changes.contains(&row), "{changes}");
    }
}

#[test]
fn a_far_side_without_its_rules_says_so_and_not_that_replies_go_astray() {
    let world = World::up("farunruled");
    let _service = Service::start(&world.lab.server().unwrap(), 7011, greet_and_echo);
    let router = world.gateway(Side::B);
    let foreign = "10.77.0.0/16 dev lo table 250";
    router.ip(&format!("route add {foreign}")).unwrap();
    router.ip("rule del pref 200").unwrap();
    until("the far side's rules are missed", || {
        world.status(Side::B)["intercept"]["problem"].is_string()
    });
    let direct = world.connect(v4(7011));
    world.assert_direct(&direct, "peer-trouble");
    assert_eq!(world.status(Side::A)["asymmetric_returns"], 0);
    router.ip(&format!("route del {foreign}")).unwrap();
    until("the far side's rules are back", || {
        world.status(Side::B)["intercept"]["problem"].is_null()
    });
    assert!(world.is_tunnelled(&world.connect(v4(7011))));
}
