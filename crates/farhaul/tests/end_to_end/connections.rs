//! Connections behave as without gateways: every way to begin, pause and end.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread::sleep;
use std::time::Duration;

use farhaul_lab::Side;
use socket2::SockRef;

use crate::apps::{
    Content, Service, assert_echo, close_with_reset, content, digest, echo, read_all,
};
use crate::world::{HANG, Shared, World, until, v4, v6};

static PLAIN: Shared = Shared::new();

fn plain() -> Arc<World> {
    PLAIN.get(|| World::up("life"))
}

/// A connection and the server's end of it.
fn pair(world: &World, port: u16) -> (TcpStream, TcpStream, Service) {
    let (accepted, incoming) = mpsc::channel();
    let service = Service::start(&world.lab.server().unwrap(), port, move |stream, _| {
        accepted.send(stream).unwrap();
    });
    let client = world.connect(v4(port));
    let server = incoming.recv_timeout(HANG).unwrap();
    assert!(world.is_tunnelled(&client), "it went direct");
    (client, server, service)
}

fn both_ways(world: &World, port: u16, act: impl Fn(TcpStream, TcpStream)) {
    let (client, server, service) = pair(world, port);
    act(client, server);
    drop(service);
    let (client, server, _service) = pair(world, port);
    act(server, client);
}

#[test]
fn one_half_closed_the_other_goes_on() {
    both_ways(&plain(), 8001, |mut first, mut second| {
        let (early, late) = (content(1, 700_000), content(2, 3_000_000));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                first.write_all(&early).unwrap();
                first.shutdown(Shutdown::Write).unwrap();
            });
            let (len, sum, end) = read_all(&mut second);
            end.unwrap();
            assert_eq!((len, sum), (early.len(), digest(&early)));
        });
        // Long after the FIN the other direction still carries.
        sleep(Duration::from_millis(300));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                second.write_all(&late).unwrap();
                second.shutdown(Shutdown::Write).unwrap();
            });
            let (len, sum, end) = read_all(&mut first);
            end.unwrap();
            assert_eq!((len, sum), (late.len(), digest(&late)));
        });
    });
}

#[test]
fn a_reset_arrives_as_a_reset() {
    both_ways(&plain(), 8002, |first, mut second| {
        close_with_reset(first);
        let (_, _, end) = read_all(&mut second);
        assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_reset_arrives_while_the_other_end_only_writes() {
    both_ways(&plain(), 8003, |first, mut second| {
        let block = content(3, 1 << 20);
        // Full buffers everywhere: nobody reads.
        second
            .set_write_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        while second.write_all(&block).is_ok() {}
        second.set_write_timeout(Some(HANG)).unwrap();
        close_with_reset(first);
        let error = loop {
            if let Err(error) = second.write_all(&block) {
                break error;
            }
        };
        let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(kinds.contains(&error.kind()), "{error}");
    });
}

#[test]
fn closing_with_unread_bytes_is_a_reset_for_the_sender() {
    both_ways(&plain(), 8004, |first, mut second| {
        second.write_all(&content(4, 500_000)).unwrap();
        sleep(Duration::from_millis(200));
        drop(first);
        let block = content(4, 1 << 20);
        let outcome = loop {
            if let Err(error) = second.write_all(&block) {
                break error.kind();
            }
        };
        assert!(
            matches!(outcome, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
            "{outcome:?}"
        );
    });
}

#[test]
fn connections_without_a_byte_end_cleanly() {
    both_ways(&plain(), 8005, |first, mut second| {
        drop(first);
        let (len, _, end) = read_all(&mut second);
        end.unwrap();
        assert_eq!(len, 0);
    });
    let world = plain();
    until("no flow of it to be left", || {
        let flows = world.flows(Side::A);
        let mut flows = flows["flows"].as_array().unwrap().iter();
        !flows.any(|flow| flow["destination"] == "10.2.0.2:8005")
    });
}

#[test]
fn the_server_may_speak_first() {
    let world = plain();
    let _service = Service::start(&world.lab.server().unwrap(), 8006, |mut stream, _| {
        stream.write_all(b"220 ready\r\n").unwrap();
        let mut line = [0; 6];
        stream.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"QUIT\r\n");
    });
    // The second is accepted before the server is asked.
    for _ in 0..2 {
        let mut stream = world.connect(v4(8006));
        let mut line = [0; 11];
        stream.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"220 ready\r\n");
        stream.write_all(b"QUIT\r\n").unwrap();
        assert_eq!(stream.read(&mut line).unwrap(), 0);
    }
}

#[test]
fn urgent_bytes_keep_their_place_among_the_others() {
    both_ways(&plain(), 8011, |mut first, mut second| {
        first.write_all(b"or").unwrap();
        let urgent = |stream: &TcpStream, byte: &[u8; 1]| {
            let sent = SockRef::from(stream).send_out_of_band(byte);
            assert_eq!(sent.unwrap(), 1);
        };
        urgent(&first, b"d");
        first.write_all(b"e").unwrap();
        urgent(&first, b"r");
        first.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        second.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"order");
    });
}

#[test]
fn idle_connections_are_kept() {
    let world = plain();
    let _service = Service::start(&world.lab.server().unwrap(), 8007, echo);
    let mut silent = world.connect(v4(8007));
    let mut used = world.connect(v4(8007));
    assert_echo(&mut used, b"before");
    // Beyond every time-out of the tunnel but the one for a silent peer.
    sleep(Duration::from_secs(5));
    for stream in [&mut silent, &mut used] {
        assert_echo(stream, b"after");
        assert!(world.is_tunnelled(stream));
    }
    let flow = world.flow_of(Side::A, used.local_addr().unwrap()).unwrap();
    assert!(flow["age_s"].as_u64().unwrap() >= 5, "{flow}");
    assert_eq!(flow["sent_bytes"], 11, "{flow}");
    assert_eq!(flow["received_bytes"], 11, "{flow}");
}

#[test]
fn single_bytes_go_back_and_forth() {
    let world = plain();
    let _service = Service::start(&world.lab.server().unwrap(), 8008, echo);
    let mut stream = world.connect(v4(8008));
    stream.set_nodelay(true).unwrap();
    for byte in (0..=255).chain(0..=255) {
        let mut back = [0];
        stream.write_all(&[byte]).unwrap();
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, [byte]);
    }
}

#[test]
fn invariant_2_every_size_arrives_byte_for_byte() {
    let world = plain();
    let _service = Service::start(&world.lab.server().unwrap(), 8009, echo);
    let sizes = [
        1, 2, 1447, 1448, 1449, 16_383, 16_384, 65_535, 65_536, 65_537, 1_048_577, 8_000_000,
    ];
    for (at, len) in sizes.into_iter().enumerate() {
        let server = [v4(8009), v6(8009)][at % 2];
        let (mut stream, sent) = (world.connect(server), content(at as u64, len));
        let mut writer = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                writer.write_all(&sent).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let (received, sum, end) = read_all(&mut stream);
            end.unwrap();
            assert_eq!((received, sum), (len, digest(&sent)), "{len} bytes");
        });
    }
}

#[test]
fn odd_pieces_in_both_directions_at_once_stay_whole() {
    let world = plain();
    let _service = Service::start(&world.lab.server().unwrap(), 8010, echo);
    let mut stream = world.connect(v4(8010));
    stream.set_nodelay(true).unwrap();
    let sent = content(10, 2_000_000);
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut rest, mut size) = (&sent[..], Content::new(99));
            while !rest.is_empty() {
                let mut two = [0; 2];
                size.fill(&mut two);
                let len = usize::from(u16::from_le_bytes(two)).clamp(1, rest.len());
                let (piece, after) = rest.split_at(len);
                writer.write_all(piece).unwrap();
                rest = after;
            }
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let (received, sum, end) = read_all(&mut stream);
        end.unwrap();
        assert_eq!((received, sum), (sent.len(), digest(&sent)));
    });
}
