//! What a client sees for each verdict, and what is left alone.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::place::{Place, v4, v6};
use crate::role::{
    ALL, DIRECT, HOST_UNREACHABLE, NETWORK_UNREACHABLE, REFUSED, RELAY, RELAY_LATE, SILENT, printed,
};

pub const TESTS: &[(&str, fn())] = &[
    ("proxied_connections_keep_both_addresses", proxied),
    ("direct_connections_are_untouched", direct),
    ("refused_and_unreachable_are_told_at_once", turned_away),
    ("silence_stays_a_time_out", silent),
    ("a_retransmitted_syn_is_asked_about_once", retransmitted),
    ("udp_and_ping_pass", other_traffic),
    ("networks_change_without_restart", networks),
    ("half_close_and_clean_end", half_close),
];

const SOON: Duration = Duration::from_millis(800);

fn proxied() {
    let place = Place::new();
    place.serve(&ALL);
    let mut gateway = place.gateway("");
    for destination in [v4(RELAY), v6(RELAY)] {
        let mut greeted = place.greeted(destination, SOON).unwrap();
        greeted.assert_kept();
        greeted.assert_echo();
        // Through the gateway, which knows both ends.
        let client = printed(&greeted.stream);
        gateway.wait_for(&format!("attempt {client} {destination} 0"), SOON);
        gateway.wait_for(&format!("connection {client} {destination} 0"), SOON);
        assert_eq!(greeted.stream.peer_addr().unwrap(), destination);
    }
    // The SYN's DSCP is reported with both.
    let destination = v4(RELAY);
    let stream = place.within("c", || {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_tos_v4(46 << 2).unwrap();
        socket.connect(&destination.into()).unwrap();
        TcpStream::from(socket)
    });
    let client = printed(&stream);
    gateway.wait_for(&format!("attempt {client} {destination} 46"), SOON);
    gateway.wait_for(&format!("connection {client} {destination} 46"), SOON);
    assert_eq!(gateway.stats()["connections"], 3);
    gateway.stop();
}

fn direct() {
    let place = Place::new();
    place.serve(&ALL);
    let mut gateway = place.gateway("");
    for destination in [v4(DIRECT), v6(DIRECT)] {
        let mut greeted = place.greeted(destination, SOON).unwrap();
        greeted.assert_kept();
        greeted.assert_echo();
    }
    let stats = gateway.stats();
    assert_eq!(
        (&stats["direct"], &stats["connections"]),
        (&2.into(), &0.into())
    );
    gateway.stop();
}

fn turned_away() {
    let place = Place::new();
    // The server would accept: the answer is the gateway's.
    place.serve(&ALL);
    let gateway = place.gateway("");
    for (port, errno) in [
        (REFUSED, libc::ECONNREFUSED),
        (HOST_UNREACHABLE, libc::EHOSTUNREACH),
        (NETWORK_UNREACHABLE, libc::ENETUNREACH),
    ] {
        for destination in [v4(port), v6(port)] {
            let start = Instant::now();
            let error = connect(&place, destination, SOON).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno), "{destination}: {error}");
            assert!(
                // Before a second SYN.
                start.elapsed() < Duration::from_secs(1),
                "{destination} late"
            );
        }
    }
    gateway.stop();
}

fn silent() {
    let place = Place::new();
    place.serve(&ALL);
    let mut gateway = place.gateway("");
    let patience = Duration::from_millis(1500);
    for destination in [v4(SILENT), v6(SILENT)] {
        let error = connect(&place, destination, patience).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
    // One retransmission each, after a second: asked about again.
    assert_eq!(gateway.stats()["silent"], 4);
    gateway.stop();
}

fn retransmitted() {
    let place = Place::new();
    place.serve(&ALL);
    let mut gateway = place.gateway("");
    for destination in [v4(RELAY_LATE), v6(RELAY_LATE)] {
        let greeted = place.greeted(destination, Duration::from_secs(5)).unwrap();
        greeted.assert_kept();
        // The SYN kept is the one sent after a second: the client need not
        // wait for its next one at three seconds.
        assert!(
            greeted.took < Duration::from_millis(2900),
            "{:?}",
            greeted.took
        );
    }
    // Its answer comes after everything that the gateway has said before.
    let stats = gateway.stats();
    assert_eq!(
        (gateway.count("attempt"), gateway.count("connection")),
        (2, 2)
    );
    assert_eq!(stats["proxied"], 2);
    assert!(stats["retransmitted"].as_u64().unwrap() >= 2, "{stats}");
    gateway.stop();
}

fn other_traffic() {
    let place = Place::new();
    place.serve_udp(RELAY);
    let mut gateway = place.gateway("");
    for (any, destination) in [("0.0.0.0:0", v4(RELAY)), ("[::]:0", v6(RELAY))] {
        let socket = place.within("c", || UdpSocket::bind(any).unwrap());
        socket.set_read_timeout(Some(SOON)).unwrap();
        // The larger one travels in fragments.
        for length in [10, 1400, 5000] {
            let sent = vec![7u8; length];
            let mut buffer = [0u8; 6000];
            socket.send_to(&sent, destination).unwrap();
            // Linux fits the echo buffer of 1500 bytes.
            let (received, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!((received, from), (length.min(1500), destination));
        }
        place.run("c", &format!("ping -c 2 -i 0.1 -w 2 {}", destination.ip()));
    }
    assert_eq!(gateway.stats()["syns"], 0);
    gateway.stop();
}

fn networks() {
    let place = Place::new();
    place.serve(&ALL);
    let mut gateway = place.gateway("networks=");
    let proxied = |gateway: &mut crate::place::Gateway| {
        place.greeted(v4(RELAY), SOON).unwrap().assert_kept();
        gateway.stats()["proxied"].as_u64().unwrap()
    };
    assert_eq!(proxied(&mut gateway), 0);
    gateway.tell("networks 10.2.0.0/24,10.2.0.2/32,10.0.0.0/8,0.0.0.0/0");
    gateway.wait_for("networks", SOON);
    assert_eq!(proxied(&mut gateway), 1);
    gateway.tell("networks 192.168.0.0/16,::/0");
    gateway.wait_for("networks", SOON);
    assert_eq!(proxied(&mut gateway), 1);
    // Everything may be a peer's network: the router itself stays reachable.
    gateway.tell("networks 0.0.0.0/0");
    gateway.wait_for("networks", SOON);
    let router: SocketAddr = "10.1.0.1:9".parse().unwrap();
    let error = connect(&place, router, SOON).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(gateway.stats()["syns"], 1);
    gateway.stop();
}

fn half_close() {
    let place = Place::new();
    place.serve(&ALL);
    let gateway = place.gateway("");
    let mut greeted = place.greeted(v4(RELAY), SOON).unwrap();
    greeted.stream.write_all(b"last words").unwrap();
    greeted.stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut greeted.stream, &mut rest).unwrap();
    assert_eq!(rest, "last words");
    gateway.stop();
}

fn connect(place: &Place, to: SocketAddr, patience: Duration) -> std::io::Result<TcpStream> {
    place.within("c", || TcpStream::connect_timeout(&to, patience))
}
