//! The link between two healthy gateways is cut and comes back.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use farhaul_lab::Side;
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};

use crate::apps::{Service, assert_echo, content, digest, echo, read_all};
use crate::transfer::{Transfer, Way};
use crate::world::{HANG, World, until, v4};

/// Cuts the cable of a world without emulator and puts it back.
fn cable(world: &World, how: &str) {
    world.lab.namespace("wan").unwrap().ip(how).unwrap();
}

/// Whether the client's SYN is answered within `patience`.
fn accepted(world: &World, patience: Duration) -> bool {
    world.client(|| TcpStream::connect_timeout(&v4(4007), patience).is_ok())
}

fn survives(test: &str, cut: &str, heal: &str) {
    let world = World::up(test);
    let _service = Service::start(&world.lab.server().unwrap(), 4000, echo);
    assert!(world.is_tunnelled(&world.connect(v4(4000))));
    let transfers =
        [(4001, Way::Down), (4002, Way::Up)].map(|(port, way)| Transfer::start(&world, port, way));
    cable(&world, cut);
    for side in Side::BOTH {
        world.wait_peer(side, "down");
    }
    // A destination known to be up, so that nothing but the peer's state
    // can send the connection direct.
    let from = SocketAddr::from(([10, 1, 0, 2], 44_000));
    let attempt = world.client(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect_timeout(&v4(4000).into(), Duration::from_millis(500))
    });
    assert!(attempt.is_err(), "connected across a cut link");
    let event = world.direct_event(Side::A, from).unwrap();
    assert_eq!(event["reason"], "peer-down", "{event}");
    for transfer in &transfers {
        assert!(world.is_tunnelled(&transfer.stream), "not kept");
    }
    cable(&world, heal);
    for side in Side::BOTH {
        world.wait_peer(side, "up");
    }
    let mut again = world.connect(v4(4000));
    assert!(world.is_tunnelled(&again));
    assert_echo(&mut again, &content(1, 100_000));
    for transfer in &transfers {
        transfer.wait_moved(1 << 20);
    }
    transfers.into_iter().for_each(Transfer::finish_whole);
    let events = world.status(Side::A)["recent"].to_string();
    assert!(
        events.contains("peer_down") && events.contains("peer_up"),
        "{events}"
    );
    assert!(!events.contains("restarted"), "{events}");
}

#[test]
fn invariant_7_flows_survive_a_link_that_loses_everything() {
    survives("lossy", "link set a0 nomaster", "link set a0 master cable");
}

#[test]
fn invariant_7_flows_survive_an_interface_that_is_down() {
    survives("ifdown", "link set b0 down", "link set b0 up");
}

#[test]
fn invariant_7_an_outage_beyond_resume_max_is_a_reset_at_both_ends() {
    let short = "[tunnel]\nresume_max = '3s'";
    let world = World::with("beyond", short, short);
    let transfers =
        [(4003, Way::Down), (4004, Way::Up)].map(|(port, way)| Transfer::start(&world, port, way));
    let cut = Instant::now();
    cable(&world, "link set a0 nomaster");
    for transfer in transfers {
        transfer.broken(cut, Duration::from_secs(8));
    }
    cable(&world, "link set a0 master cable");
    for side in Side::BOTH {
        world.wait_peer(side, "up");
    }
    let _service = Service::start(&world.lab.server().unwrap(), 4005, echo);
    until("connections through the tunnel again", || {
        world.is_tunnelled(&world.connect(v4(4005)))
    });
}

#[test]
fn an_idle_flow_survives_an_outage_it_does_not_notice() {
    let world = World::up("idlecut");
    let _service = Service::start(&world.lab.server().unwrap(), 4006, echo);
    let mut stream: TcpStream = world.connect(v4(4006));
    assert_echo(&mut stream, b"before");
    cable(&world, "link set a0 nomaster");
    world.wait_peer(Side::A, "down");
    sleep(Duration::from_secs(1));
    cable(&world, "link set a0 master cable");
    world.wait_peer(Side::A, "up");
    assert_echo(&mut stream, b"after");
    assert!(world.is_tunnelled(&stream));
}

#[test]
fn what_a_silent_peer_was_trusted_with_is_reset_and_it_is_not_trusted_for_long() {
    // Slow enough for a busy machine to act between the steps.
    let slow = "[tunnel]\nkeep_alive = '2s'\ndead_after = '10s'";
    let world = World::with("trust", slow, slow);
    let _service = Service::start(&world.lab.server().unwrap(), 4007, echo);
    // Known to be up from here on, and the peer just heard.
    let mut kept = world.connect(v4(4007));
    assert_echo(&mut kept, b"hello");
    cable(&world, "link set a0 nomaster");
    let mut trusted = world.connect(v4(4007));
    trusted.write_all(b"anybody there?").unwrap();
    // Long before it is declared down it is not taken at its word any more.
    until("connections to be held", || {
        !accepted(&world, Duration::from_millis(500))
    });
    assert_eq!(world.peer_state(Side::A), "up");
    let error = trusted.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    world.wait_peer(Side::A, "down");
    // What the far side had answered is kept all the same.
    assert!(world.is_tunnelled(&kept));
    cable(&world, "link set a0 master cable");
    world.wait_peer(Side::A, "up");
    assert_echo(&mut kept, b"still here");
    assert!(world.is_tunnelled(&world.connect(v4(4007))));
}

#[test]
fn a_path_that_has_become_too_narrow_for_the_tunnel_ends_it_and_says_so() {
    let mut world = World::over(Some("rate 100mbit delay 5ms"), "narrow", "", "");
    let _service = Service::start(&world.lab.server().unwrap(), 4010, echo);
    let mut stream = world.connect(v4(4010));
    assert_echo(&mut stream, b"wide");
    // 28 bytes of headers: 1200 do not pass, pings and acknowledgements do.
    world.lab.set_link("mtu 1200").unwrap();
    stream.write_all(&content(1, 20_000)).unwrap();
    let error = stream.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    for side in Side::BOTH {
        world.wait_peer(side, "down");
        let status = world.status(side);
        assert!(status["next"].to_string().contains("1200"), "{status}");
    }
    world.assert_direct(&world.connect(v4(4010)), "path-too-narrow");
    let doctor = world.ask(Side::A, "doctor");
    assert_eq!(doctor.status.code(), Some(2));
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(
        text.contains("1200-byte datagrams no longer reach"),
        "{text}"
    );
    world.lab.set_link("mtu none").unwrap();
    for side in Side::BOTH {
        world.wait_peer(side, "up");
    }
    let mut again = world.connect(v4(4010));
    assert!(world.is_tunnelled(&again));
    assert_echo(&mut again, &content(1, 100_000));
}

#[test]
fn transfers_on_a_path_that_becomes_too_narrow_end_and_others_go_direct() {
    let short = "[tunnel]\nresume_max = '6s'";
    let mut world = World::over(Some("rate 100mbit delay 5ms"), "squeezed", short, short);
    let _service = Service::start(&world.lab.server().unwrap(), 4013, echo);
    let transfers =
        [(4011, Way::Down), (4012, Way::Up)].map(|(port, way)| Transfer::start(&world, port, way));
    world.lab.set_link("mtu 1200").unwrap();
    let narrowed = Instant::now();
    for side in Side::BOTH {
        world.wait_peer(side, "down");
    }
    assert!(!world.is_tunnelled(&world.connect(v4(4013))));
    for transfer in transfers {
        transfer.broken(narrowed, HANG);
    }
    world.lab.set_link("mtu none").unwrap();
    for side in Side::BOTH {
        world.wait_peer(side, "up");
    }
    assert!(world.is_tunnelled(&world.connect(v4(4013))));
}

/// A client that has asked, has closed its half, and does not read what the server has sent and closed. The far gateway has
/// nothing to do with it any more, the near one holds its bytes.
fn unread(world: &World, port: u16) -> (Service, TcpStream) {
    let service = Service::start(&world.lab.server().unwrap(), port, |mut stream, _| {
        let _ = stream.read_to_end(&mut Vec::new());
        let _ = stream.write_all(&content(7, UNREAD_BYTES));
    });
    let mut stream = world.client(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        socket.connect(&v4(port).into()).unwrap();
        TcpStream::from(socket)
    });
    stream.set_read_timeout(Some(HANG)).unwrap();
    stream.write_all(b"everything, please").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    until("the far gateway to be done with the flow", || {
        let flows = world.flows(Side::B);
        flows["flows"].as_array().unwrap().is_empty()
    });
    assert!(world.is_tunnelled(&stream), "the near gateway is not");
    (service, stream)
}

/// More than sockets hold when nobody reads.
const UNREAD_BYTES: usize = 1_000_000;

fn assert_unread(mut stream: TcpStream) {
    let (bytes, hash, end) = read_all(&mut stream);
    end.unwrap();
    assert_eq!(bytes, UNREAD_BYTES);
    assert_eq!(hash, digest(&content(7, UNREAD_BYTES)));
}

#[test]
fn invariant_7_what_came_before_an_outage_is_read_after_it() {
    let world = World::up("unread");
    let (_service, stream) = unread(&world, 4014);
    cable(&world, "link set a0 nomaster");
    for side in Side::BOTH {
        world.wait_peer(side, "down");
    }
    cable(&world, "link set a0 master cable");
    for side in Side::BOTH {
        world.wait_peer(side, "up");
    }
    // The tunnel of before is closed as soon as it is seen to be empty.
    sleep(Duration::from_secs(2));
    assert!(world.is_tunnelled(&stream), "cut with the tunnel");
    assert_unread(stream);
}

#[test]
fn invariant_7_what_came_before_the_far_gateway_stopped_is_read_after_it() {
    let mut world = World::up("stopped");
    let (_service, stream) = unread(&world, 4015);
    world.signal(Side::B, Signal::TERM);
    world.wait_peer(Side::A, "down");
    assert!(world.is_tunnelled(&stream), "cut with the tunnel");
    assert_unread(stream);
}
