//! Those who have no business at the tunnel's port.

use std::net::{SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use farhaul_lab::Side;

use crate::apps::{Content, Service, assert_echo, content, echo};
use crate::transfer::{Transfer, Way};
use crate::wire::{Capture, UDP};
use crate::world::{FARHAUL, World, until, v4};

/// A public key nobody's gateway has.
fn foreign_key(world: &World, name: &str) -> String {
    let private = world.lab.sandbox().folder().join(name);
    let output = std::process::Command::new(FARHAUL)
        .arg("keygen")
        .arg(&private)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let shown = String::from_utf8(output.stdout).unwrap();
    let key = shown
        .split_whitespace()
        .find(|word| word.starts_with("fh1-"));
    key.unwrap().to_owned()
}

/// Packets from the waiting gateway's tunnel port to `port`.
fn answers(capture: &Capture, port: u16) -> usize {
    let answers = capture.packets().into_iter().filter(|packet| {
        packet.protocol == UDP && packet.source == [10, 9, 0, 2] && packet.ports == (4433, port)
    });
    answers.count()
}

#[test]
fn a_dialler_with_an_unknown_key_is_told_so_and_nobody_comes_up() {
    let mut world = World::bare(None, "keya");
    // B expects somebody else than A.
    let other = foreign_key(&world, "other.key");
    world
        .lab
        .write_gateway_files(
            &farhaul_lab::gateways::GatewayOverrides::sides(
                "",
                &format!("[[peer]]\nkey = '{other}'"),
            )
            .unwrap(),
        )
        .unwrap();
    for side in Side::BOTH {
        world.lab.gateway_start(side).unwrap();
    }
    until("the dialling side to say what is wrong", || {
        let output = world.ask(Side::A, "status --json");
        output.status.success() && world.status(Side::A)["peers"][0]["last_error"].is_string()
    });
    let status = world.status(Side::A);
    assert_ne!(status["peers"][0]["state"], "up");
    let error = status["peers"][0]["last_error"].as_str().unwrap();
    assert!(
        error.contains("does not accept this gateway's key"),
        "{error}"
    );
    let (key_a, key_b) = (&status["key"], &world.status(Side::B)["key"]);
    assert!(error.contains(key_a.as_str().unwrap()), "{error}");
    assert_ne!(key_a, key_b);
    // The other side says which key it saw, and which it expects.
    let seen = world.status(Side::B)["recent"].to_string();
    for key in [key_a.as_str().unwrap(), &other] {
        assert!(seen.contains(key), "{key} is not in {seen}");
    }
    let next = status["next"].as_str().unwrap();
    assert!(next.contains(error), "{next}");
    assert_ne!(world.peer_state(Side::B), "up");
    let _service = Service::start(&world.lab.server().unwrap(), 2001, echo);
    let mut stream = world.connect(v4(2001));
    world.assert_direct(&stream, "peer-down");
    assert_echo(&mut stream, &content(1, 100_000));
}

#[test]
fn who_does_not_know_the_waiting_gateways_key_hears_nothing() {
    let mut world = World::bare(None, "keyb");
    let capture = Capture::start(&world);
    let other = foreign_key(&world, "other.key");
    world
        .lab
        .write_gateway_files(
            &farhaul_lab::gateways::GatewayOverrides::sides(
                &format!("[[peer]]\nkey = '{other}'"),
                "",
            )
            .unwrap(),
        )
        .unwrap();
    for side in Side::BOTH {
        world.lab.gateway_start(side).unwrap();
    }
    until("the dialling side to say what is wrong", || {
        let output = world.ask(Side::A, "status --json");
        output.status.success() && world.status(Side::A)["peers"][0]["last_error"].is_string()
    });
    let error = world.status(Side::A)["peers"][0]["last_error"].to_string();
    assert!(
        error.contains("does not answer") && error.contains(&format!("peer.key, {other}?")),
        "{error}"
    );
    let waiting = world.status(Side::B);
    let (next, key) = (
        waiting["next"].to_string(),
        waiting["key"].as_str().unwrap(),
    );
    assert!(
        next.contains(key) && next.contains("datagrams came that did not know the key"),
        "{next}"
    );
    for side in Side::BOTH {
        assert_ne!(world.peer_state(side), "up");
    }
    let packets = capture.packets();
    let tunnel = |from: [u8; 4]| {
        let sent = |p: &&crate::wire::Packet| p.protocol == UDP && p.source == from;
        packets.iter().filter(sent).count()
    };
    assert!(
        tunnel([10, 9, 0, 1]) > 0,
        "the dialling side did not even knock"
    );
    assert_eq!(tunnel([10, 9, 0, 2]), 0, "a stranger was answered");
}

#[test]
fn strangers_get_no_answer_and_disturb_nobody() {
    let world = World::up("garbage");
    let transfers =
        [(2002, Way::Down), (2003, Way::Up)].map(|(port, way)| Transfer::start(&world, port, way));
    let stranger = world
        .gateway(Side::A)
        .within(|| UdpSocket::bind("10.9.0.1:0").unwrap())
        .unwrap();
    let port = stranger.local_addr().unwrap().port();
    let to: SocketAddr = "10.9.0.2:4433".parse().unwrap();
    let capture = Capture::start(&world);
    let mut random = Content::new(7);
    let mut sent = 0;
    for len in (1..1400).step_by(7) {
        let mut datagram = content(len as u64, len);
        stranger.send_to(&datagram, to).unwrap();
        // QUIC long headers: of version 1, of versions nobody has, Initial and
        // others, with connection IDs and lengths out of the hat.
        for (first, version) in [
            (0xc3, 1_u32),
            (0xe0, 1),
            (0xff, 1),
            (0xc0, 0x1a2a_3a4a),
            (0x80, 0),
        ] {
            random.fill(&mut datagram);
            if len >= 7 {
                datagram[0] = first;
                datagram[1..5].copy_from_slice(&version.to_be_bytes());
                datagram[5] = 8;
            }
            stranger.send_to(&datagram, to).unwrap();
            sent += 1;
        }
    }
    assert!(sent >= 1000);
    for transfer in &transfers {
        transfer.wait_moved(1 << 20);
    }
    sleep(Duration::from_millis(300));
    assert_eq!(answers(&capture, port), 0, "a stranger was answered");
    transfers.into_iter().for_each(Transfer::finish_whole);
    let mut packets = capture.packets().into_iter();
    assert!(
        packets.any(|packet| packet.protocol == UDP && packet.ports == (port, 4433)),
        "the capture did not see the stranger either"
    );
}
