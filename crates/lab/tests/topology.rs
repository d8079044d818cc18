//! The lab's network on the real kernel, without emulator and gateways. Needs
//! root, and fails without.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use farhaul_lab::topology::{CLIENT, CLIENT6, SERVER, SERVER6};
use farhaul_lab::{Lab, LabOptions, Side};
use socket2::SockRef;

fn up(test: &str) -> Lab {
    let name = format!("t{}-{test}", std::process::id());
    // No `farhaul` is started on a plain bridge.
    Lab::up(&LabOptions::new(name, "/nonexistent/farhaul")).unwrap()
}

#[test]
fn ping_crosses_in_both_families_and_directions() {
    let lab = up("ping");
    let (client, server) = (lab.client().unwrap(), lab.server().unwrap());
    for (from, to) in [
        (&client, SERVER.to_string()),
        (&client, SERVER6.to_string()),
        (&server, CLIENT.to_string()),
        (&server, CLIENT6.to_string()),
    ] {
        // The gateways are two routers on the way: 64 - 2.
        let seen = from
            .exec(&["ping", "-n", "-c", "1", "-W", "2", &to])
            .unwrap();
        assert!(seen.contains("ttl=62"), "{seen}");
    }
    let seen = client.exec(&[
        "ping",
        "-n",
        "-c",
        "1",
        "-W",
        "2",
        "-M",
        "do",
        "-s",
        "1472",
        &SERVER.to_string(),
    ]);
    assert!(seen.is_ok(), "1500-byte packets must cross whole: {seen:?}");
}

#[test]
fn accepted_sockets_use_the_congestion_control_asked_for() {
    let name = format!("t{}-cc", std::process::id());
    let mut options = LabOptions::new(name, "/nonexistent/farhaul");
    options.congestion_control = "reno".to_owned();
    let reno = Lab::up(&options).unwrap();
    let cubic = up("cubic");
    for (lab, expected) in [(&reno, "reno"), (&cubic, "cubic")] {
        for address in [SERVER.to_string(), format!("[{SERVER6}]")] {
            let listen = format!("{address}:80");
            let listener = lab
                .server()
                .unwrap()
                .within(|| TcpListener::bind(&listen).unwrap());
            let listener = listener.unwrap();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let control = SockRef::from(&stream).tcp_congestion().unwrap();
                stream.write_all(&vec![7; 300_000]).unwrap();
                String::from_utf8_lossy(&control)
                    .trim_end_matches('\0')
                    .to_owned()
            });
            let (control, received) = lab
                .client()
                .unwrap()
                .within(|| {
                    let mut stream = TcpStream::connect(&listen).unwrap();
                    let control = SockRef::from(&stream).tcp_congestion().unwrap();
                    let mut received = Vec::new();
                    stream.read_to_end(&mut received).unwrap();
                    (control, received)
                })
                .unwrap();
            assert_eq!(
                String::from_utf8_lossy(&control).trim_end_matches('\0'),
                expected
            );
            assert_eq!(received, vec![7; 300_000]);
            assert_eq!(server.join().unwrap(), expected);
        }
    }
}

#[test]
fn refused_and_unreachable_are_told_every_time() {
    let lab = up("icmp");
    let client = lab.client().unwrap();
    let errors = client
        .within(|| {
            let refused: Vec<_> = (1..=50)
                .map(|port| TcpStream::connect((SERVER, port)).unwrap_err().kind())
                .collect();
            let nowhere = TcpStream::connect(("10.99.0.1", 80)).unwrap_err();
            (refused, nowhere.kind())
        })
        .unwrap();
    assert!(
        errors
            .0
            .iter()
            .all(|kind| *kind == std::io::ErrorKind::ConnectionRefused)
    );
    assert_eq!(errors.1, std::io::ErrorKind::NetworkUnreachable);
}

#[test]
fn offloads_are_off_towards_the_emulator_and_on_in_the_lans() {
    let lab = up("offload");
    let features = |role: &str, interface: &str| {
        let namespace = lab.namespace(role).unwrap();
        namespace.exec(&["ethtool", "-k", interface]).unwrap()
    };
    for (role, interface) in [
        ("gwa", "wan0"),
        ("wan", "a0"),
        ("wan", "b0"),
        ("gwb", "wan0"),
    ] {
        let shown = features(role, interface);
        for feature in [
            "rx-checksumming: off",
            "tx-checksumming: off",
            "tcp-segmentation-offload: off",
            "generic-segmentation-offload: off",
            "generic-receive-offload: off",
        ] {
            assert!(
                shown.contains(feature),
                "{role} {interface}: {feature}\n{shown}"
            );
        }
    }
    for (role, interface) in [("client", "eth0"), ("gwa", "lan0"), ("server", "eth0")] {
        let shown = features(role, interface);
        assert!(
            shown.contains("tcp-segmentation-offload: on"),
            "{role}: {shown}"
        );
    }
}

#[test]
fn nothing_but_traffic_crosses_the_wan() {
    let lab = up("quiet");
    let wan = lab.namespace("wan").unwrap();
    let frames = |interface: &str| -> u64 {
        let path = format!("/sys/class/net/{interface}/statistics/rx_packets");
        wan.exec(&["cat", &path]).unwrap().trim().parse().unwrap()
    };
    // Let link-local chatter of the interfaces' start pass.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let before = frames("a0");
    lab.client()
        .unwrap()
        .exec(&["ping", "-n", "-c", "3", "-i", "0.2", &SERVER.to_string()])
        .unwrap();
    let crossed = frames("a0") - before;
    // Three requests; a router's multicast report may join them, ARP may not.
    assert!((3..=5).contains(&crossed), "{crossed} frames for 3 pings");
    let neighbours =
        lab.gateway(Side::A)
            .unwrap()
            .exec(&["ip", "neighbour", "show", "dev", "wan0"]);
    assert!(neighbours.unwrap().contains("PERMANENT"));
}

#[test]
fn two_labs_coexist_with_the_same_addresses() {
    let (first, second) = (up("first"), up("second"));
    for lab in [&first, &second] {
        let seen =
            lab.client()
                .unwrap()
                .exec(&["ping", "-n", "-c", "1", "-W", "2", &SERVER.to_string()]);
        assert!(seen.is_ok(), "{seen:?}");
    }
    first.down().unwrap();
    let seen =
        second
            .client()
            .unwrap()
            .exec(&["ping", "-n", "-c", "1", "-W", "2", &SERVER.to_string()]);
    assert!(seen.is_ok(), "ending one lab harmed the other: {seen:?}");
}

#[test]
fn a_link_that_cannot_start_leaves_nothing() {
    let name = format!("t{}-nolink", std::process::id());
    let options = LabOptions::new(&name, "/nonexistent/farhaul").with_link("t1");
    let error = Lab::up(&options).unwrap_err().to_string();
    assert!(
        error.contains("/nonexistent/farhaul"),
        "the log must say why: {error}"
    );
    assert!(Lab::open(&name, "").is_err());
    let list = std::process::Command::new("ip")
        .args(["netns", "list"])
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&list.stdout).contains(&name));
}
