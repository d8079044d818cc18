//! Client and server of the circuit tester over loopback, and both against
//! other ends that do not behave.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod sockets;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul_lab::probe::datagram_flow::FlowPlan;
use farhaul_lab::probe::tcp_test::{Direction, TcpPlan};
use farhaul_lab::probe::{Client, ProbeError, Server, ServerOptions, UdpPorts};
use serde_json::Value;

struct Running {
    address: SocketAddr,
    iperf2: Option<SocketAddr>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn new(change: impl FnOnce(&mut ServerOptions)) -> Self {
        let mut options = ServerOptions {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            port: 0,
            ..ServerOptions::default()
        };
        change(&mut options);
        let stop = Arc::new(AtomicBool::new(false));
        let server = Server::listen(options, Arc::clone(&stop)).unwrap();
        let address = server.addresses()[0];
        let iperf2 = server.iperf2_addresses().first().copied();
        let thread = Some(std::thread::spawn(move || server.run().unwrap()));
        Self {
            address,
            iperf2,
            stop,
            thread,
        }
    }

    fn client(&self) -> Client {
        connect(self.address).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn connect(address: SocketAddr) -> Result<Client, ProbeError> {
    Client::connect(&address.ip().to_string(), address.port(), Arc::default())
}

#[test]
fn tcp_is_seen_by_both_ends_at_the_same_time() {
    let server = Running::new(|_| {});
    let mut client = server.client();
    for direction in [Direction::Up, Direction::Down, Direction::Both] {
        let mut plan = TcpPlan::new(direction, 1000);
        plan.streams = 2;
        let result = client.tcp(&plan).unwrap();
        assert_eq!(result.up.is_some(), direction.has_up());
        assert_eq!(result.down.is_some(), direction.has_down());
        for way in [result.up, result.down].into_iter().flatten() {
            assert_eq!(way.streams.len(), 2);
            assert!(way.mean_bit_per_s.unwrap() > 1e6);
            for pair in &way.streams {
                assert_eq!((&pair.sender.error, &pair.receiver.error), (&None, &None));
                assert_eq!(pair.sender.bytes, pair.receiver.bytes);
                let (sent, got) = (&pair.sender.samples, &pair.receiver.samples);
                assert!(sent.len() >= 2 && got.len() >= 2);
                // One clock: the ends began within a slice of each other.
                let apart = sent[0].at_ns.abs_diff(got[0].at_ns);
                assert!(apart < 5_000_000_000, "{apart}");
            }
        }
    }
}

#[test]
fn a_window_that_is_clamped_limits_and_is_seen_to() {
    let server = Running::new(|options| options.window_bytes = Some(16 << 10));
    let mut client = server.client();
    let mut plan = TcpPlan::new(Direction::Up, 500);
    plan.mss_bytes = Some(1400);
    let result = client.tcp(&plan).unwrap();
    let figures = result.up.unwrap().figures;
    assert!(figures.send_window_bytes <= 16 << 10, "{figures:?}");
}

#[test]
fn settings_asked_for_are_read_back() {
    let server = Running::new(|_| {});
    let mut plan = TcpPlan::new(Direction::Down, 200);
    plan.congestion_control = Some("reno".to_owned());
    plan.mss_bytes = Some(1000);
    let way = server.client().tcp(&plan).unwrap().down.unwrap();
    let sender = &way.streams[0].sender;
    assert_eq!(sender.settings.congestion_control, "reno");
    assert_eq!(sender.settings.syn.unwrap().mss_bytes, Some(1000));
    plan.congestion_control = Some("nonesuch".to_owned());
    let error = server.client().tcp(&plan).unwrap_err();
    assert_eq!(error.code(), "refused", "{error}");
}

#[test]
fn datagrams_are_counted_both_ways() {
    let server = Running::new(|_| {});
    let mut client = server.client();
    // All of it has room in a socket, and a second may be made up for.
    let plan = FlowPlan {
        direction: Direction::Both,
        payload_bytes: 100,
        trains: 40,
        train_datagrams: 5,
        gap_ns: 50_000_000,
        catch_up_ns: FlowPlan::CATCH_UP_ALL_NS,
    };
    let result = client.datagrams(&plan).unwrap();
    for way in [result.up.unwrap(), result.down.unwrap()] {
        assert_eq!((way.sent, way.lost, way.count.received), (200, 0, 200));
        assert_eq!(
            (way.count.duplicates, way.count.train_arrived),
            (0, Some(5))
        );
        assert!(way.count.line_bit_per_s.unwrap() > 1e6);
    }
}

/// Two UDP ports beside each other that are free, as far as anybody can know.
/// Below those that the system gives to others meanwhile.
fn two_ports() -> UdpPorts {
    let is_free = |port: u16| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let first = (20_000..30_000).find(|first| is_free(*first) && is_free(first + 1));
    let first = first.unwrap();
    UdpPorts::parse(&format!("{first}-{}", first + 1)).unwrap()
}

#[test]
fn a_server_behind_a_firewall_keeps_to_its_udp_ports() {
    let server = Running::new(|options| options.udp_ports = Some(two_ports()));
    let mut first = server.client();
    let plan = FlowPlan::even(Direction::Both, 100, 80_000.0, 0.1);
    let result = first.datagrams(&plan).unwrap();
    assert!(result.up.unwrap().count.received > 0 && result.down.unwrap().count.received > 0);
    // One for the echoes of each: none is left for a third, nor for a test, with
    // which the session ends that asked for it.
    let second = server.client();
    let third = connect(server.address).unwrap_err();
    for error in [third, first.datagrams(&plan).unwrap_err()] {
        assert_eq!(error.code(), "refused", "{error}");
        assert!(error.to_string().contains("are in use"), "{error}");
    }
    second.end();
}

#[test]
fn clients_share_a_server_and_hear_of_each_other() {
    let server = Running::new(|options| options.sessions_max = 2);
    let (mut first, mut second) = (server.client(), server.client());
    assert_eq!((first.other_sessions, second.other_sessions), (0, 1));
    let third = connect(server.address).unwrap_err();
    assert_eq!(third.code(), "refused", "{third}");
    // It stays until both have ended, whichever is the quicker.
    let other = std::thread::spawn(move || {
        let result = second.tcp(&TcpPlan::new(Direction::Up, 300)).unwrap();
        (result, second)
    });
    let result = first.tcp(&TcpPlan::new(Direction::Down, 300)).unwrap();
    assert_eq!(result.other_sessions, 1);
    let (result, _second) = other.join().unwrap();
    assert_eq!(result.other_sessions, 1);
}

#[test]
fn a_server_that_stops_ends_its_tests_and_its_clients() {
    let server = Running::new(|_| {});
    let mut client = server.client();
    let thread = std::thread::spawn(move || {
        // A minute long, if nobody ended it.
        let _ = client.tcp(&TcpPlan::new(Direction::Down, 60_000));
    });
    std::thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    drop(server);
    assert!(begin.elapsed() < Duration::from_secs(20));
    thread.join().unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(40),
        "the client ends too"
    );
}

#[test]
fn strangers_are_turned_away_and_hurt_nobody() {
    let server = Running::new(|_| {});
    for words in [
        &b"GET / HTTP/1.1\r\n\r\n abcdefghijkl"[..],
        &[0; 24],
        b"FHP1\x01\x00\x00\x00................\xff\xff\xff\xff",
        b"FHP1\x01\x00\x00\x00................\x00\x00\x00\x02[]",
        b"FHP1\x02\x00\x00\x01................",
        b"FHP1\x03\x00\x00\x00................",
    ] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.write_all(words).unwrap();
        let mut answer = Vec::new();
        // Closed, perhaps with a reset, and with at most one refusal.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 500, "{}", String::from_utf8_lossy(&answer));
    }
    assert!(
        server
            .client()
            .tcp(&TcpPlan::new(Direction::Up, 100))
            .is_ok()
    );
}

/// What a server does with a connection.
type Manners = fn(TcpStream);

fn odd_server(answer: Manners) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // All that it says before it waits: an answer to a part of it, and the
        // rest unread, would be a reset.
        let mut greeting = [0; 24];
        let _ = stream.read_exact(&mut greeting);
        hear(&mut stream);
        answer(stream);
    });
    address
}

/// Until the other end closes.
fn stay(mut stream: &TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

fn say(mut stream: &TcpStream, text: &[u8]) {
    let _ = stream.write_all(&(text.len() as u32).to_be_bytes());
    let _ = stream.write_all(text);
}

fn hear(stream: &mut TcpStream) -> Value {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut text = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut text).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn open(server: SocketAddr, head: [u8; 8], token: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).unwrap();
    stream.write_all(&[&head, token].concat()).unwrap();
    stream
}

/// A control connection, greeted, and its token.
fn session(server: SocketAddr) -> (TcpStream, Vec<u8>) {
    let mut control = open(server, *b"FHP1\x01\0\0\0", &[0; 16]);
    say(&control, br#"{"request":"hello","version":1}"#);
    let welcome = hear(&mut control);
    let token = serde_json::from_value(welcome["token"].clone()).unwrap();
    (control, token)
}

#[test]
fn echoes_that_nobody_reads_give_their_places_back_with_their_session() {
    const ECHOES: u32 = 3;
    let server = Running::new(|options| options.connections_max = ECHOES + 1);
    let (control, token) = session(server.address);
    let echoes: Vec<TcpStream> = (0..ECHOES)
        .map(|_| {
            let mut echo = open(server.address, *b"FHP1\x03\0\0\0", &token);
            let patience = Some(Duration::from_millis(300));
            echo.set_write_timeout(patience).unwrap();
            while echo.write(&[1; 65_536]).is_ok() {}
            echo
        })
        .collect();
    assert_eq!(connect(server.address).unwrap_err().code(), "lost");
    drop(control);
    let (begin, mut clients) = (Instant::now(), Vec::new());
    while clients.len() <= ECHOES as usize {
        clients.extend(connect(server.address));
        let waited = begin.elapsed();
        assert!(
            waited < Duration::from_secs(20),
            "{echoes:?} are still held"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn streams_may_come_slowly_one_after_the_other() {
    let server = Running::new(|_| {});
    let open = |head, token: &[u8]| open(server.address, head, token);
    let (mut control, token) = session(server.address);
    let plan =
        br#"{"request":"tcp","direction":"up","streams":3,"duration_ms":100,"window_bytes":null,
        "send_buffer_bytes":null,"congestion_control":null,"mss_bytes":null,"tos":0}"#;
    say(&control, plan);
    assert_eq!(hear(&mut control)["answer"], "ready");
    // Longer in all than any of them may take.
    let streams: Vec<TcpStream> = (0..3)
        .map(|number| {
            std::thread::sleep(Duration::from_secs(4));
            open([b'F', b'H', b'P', b'1', 2, 0, 0, number], &token)
        })
        .collect();
    assert_eq!(hear(&mut control)["answer"], "go", "{streams:?}");
}

#[test]
fn invented_senders_of_datagrams_shut_out_nobody() {
    let server = Running::new(|options| {
        options.sessions_max = 2;
        options.iperf2_port = Some(0);
    });
    for last in 2..8 {
        let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, last), 0)).unwrap();
        let patience = Some(Duration::from_secs(20));
        socket.set_read_timeout(patience).unwrap();
        for number in [0_i32, 1, -2] {
            let mut datagram = [0; 100];
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            socket.send_to(&datagram, server.iperf2.unwrap()).unwrap();
        }
        // Two are known, and answered; the others are none too many.
        if last < 4 {
            socket.recv(&mut [0; 2000]).unwrap();
        }
    }
    let mut client = server.client();
    assert_eq!(client.other_sessions, 2);
    assert!(client.tcp(&TcpPlan::new(Direction::Up, 100)).is_ok());
}

#[test]
fn servers_that_do_not_behave_are_named() {
    let cases: [(Manners, &str); 6] = [
        (|mut stream| drop(stream.write_all(&[0xff; 64])), "protocol"),
        (|stream| say(&stream, b"{}"), "protocol"),
        (
            |stream| say(&stream, b"{\"answer\":\"welcome\",\"version\":[]}"),
            "protocol",
        ),
        (
            |stream| {
                say(
                    &stream,
                    b"{\"answer\":\"refused\",\"why\":\"\\u001b[2Jno\"}",
                )
            },
            "refused",
        ),
        (drop, "lost"),
        (
            |mut stream| {
                let _ = stream.write_all(&1000_u32.to_be_bytes());
                let _ = stream.write_all(b"{");
                stay(&stream);
            },
            "silent",
        ),
    ];
    for (answer, code) in cases {
        let error = connect(odd_server(answer)).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(!error.to_string().contains('\x1b'));
    }
}

#[test]
fn nobody_there_is_said_at_once() {
    // A port that is taken, by a connection: nobody else can come to listen there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let address = taken.local_addr().unwrap();
    assert_eq!(connect(address).unwrap_err().code(), "unreachable");
    let error = Client::connect("no-such-host.invalid", 5201, Arc::default()).unwrap_err();
    assert_eq!(error.code(), "unknown-host");
}

#[test]
fn a_port_in_use_is_said() {
    let server = Running::new(|_| {});
    let options = ServerOptions {
        address: Some(server.address.ip()),
        port: server.address.port(),
        ..ServerOptions::default()
    };
    let error = Server::listen(options, Arc::default()).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
}
