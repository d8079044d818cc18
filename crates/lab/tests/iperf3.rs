//! The circuit tester and the real iperf3, each in both roles, over loopback.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use farhaul_lab::probe::iperf3::{Iperf3Plan, Iperf3Result, run};
use farhaul_lab::probe::tcp_test::{Direction, TcpPlan};
use farhaul_lab::probe::{Client, ProbeError, Server, ServerOptions};
use serde_json::Value;

/// Our server; ended when dropped.
struct Ours {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ours {
    fn start(sessions_max: u32) -> Self {
        Self::with(ServerOptions {
            sessions_max,
            ..ServerOptions::default()
        })
    }

    fn with(options: ServerOptions) -> Self {
        let options = ServerOptions {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            port: 0,
            ..options
        };
        let stop = Arc::new(AtomicBool::new(false));
        let server = Server::listen(options, Arc::clone(&stop)).unwrap();
        let address = server.addresses()[0];
        let thread = Some(std::thread::spawn(move || server.run().unwrap()));
        Self {
            address,
            stop,
            thread,
        }
    }

    /// A test of the real client: its JSON.
    fn client(&self, words: &str) -> Value {
        let output = self.start_client(words).wait_with_output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn start_client(&self, words: &str) -> Child {
        Command::new("iperf3")
            .args(["-c", "127.0.0.1", "-J", "-p"])
            .arg(self.address.port().to_string())
            .args(words.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .expect("iperf3 is installed by scripts/setup.sh")
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// What can be on its way in a stream when its receiver stops counting: as much as
/// the buffers of both ends may hold.
fn on_the_way_bytes() -> f64 {
    let most = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
        text.split_whitespace()
            .last()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    most("tcp_wmem") + most("tcp_rmem")
}

/// Datagrams that any socket had no room for so far: over loopback nothing else is
/// lost, however long a reader is held up.
fn dropped() -> f64 {
    let text = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, value) = pairs.find(|(name, _)| *name == "RcvbufErrors").unwrap();
    value.parse().unwrap()
}

fn bytes(sum: &Value) -> f64 {
    sum["bytes"].as_f64().unwrap_or_else(|| panic!("{sum}"))
}

#[test]
fn the_real_client_tests_tcp_with_our_server() {
    let server = Ours::start(32);
    for (words, streams) in [
        ("-t 1", 1),
        ("-t 1 -R", 1),
        ("-t 1 -P 3", 3),
        ("-t 1 -P 2 --bidir", 4),
        ("-t 1 -w 64k -M 1000 -C reno", 1),
        ("-t 1 -O 1 -R", 1),
        ("-n 300M", 1),
    ] {
        let report = server.client(words);
        assert_eq!(report["error"], Value::Null, "{words}");
        let end = &report["end"];
        assert_eq!(end["streams"].as_array().unwrap().len(), streams, "{words}");
        for way in ["", "_bidir_reverse"] {
            let Some(sent) = end.get(format!("sum_sent{way}")) else {
                assert!(!way.is_empty(), "{words}");
                continue;
            };
            let received = &end[format!("sum_received{way}")];
            let (sent, received) = (bytes(sent), bytes(received));
            // Where the first second is left out, what was on its way then counts at
            // the receiver only; else each end decides on its last blocks for itself.
            let on_the_way = on_the_way_bytes() * streams as f64;
            let before = if words.contains("-O") {
                on_the_way
            } else {
                1e6
            };
            assert!(sent > 1e6 && received > 0.0, "{words}: {end}");
            // A sender goes on until it hears of the end, which may take as long again.
            assert!(
                received >= (sent - on_the_way).min(sent / 2.0),
                "{words}: {end}"
            );
            assert!(received <= sent + before, "{words}: {end}");
        }
    }
}

#[test]
fn the_real_client_tests_udp_with_our_server() {
    let server = Ours::start(32);
    for (words, streams) in [
        ("-u -t 1 -b 5M -l 1000", 1),
        ("-u -t 1 -b 5M -l 1000 -R", 1),
        ("-u -t 1 -b 2M -l 500 -P 2 --bidir --udp-counters-64bit", 4),
    ] {
        let before = dropped();
        let report = server.client(words);
        let dropped = dropped() - before;
        assert_eq!(report["error"], Value::Null, "{words}");
        let end = &report["end"];
        let all = end["streams"].as_array().unwrap();
        assert_eq!(all.len(), streams, "{words}");
        for stream in all {
            let udp = &stream["udp"];
            let packets = udp["packets"].as_f64().unwrap();
            assert!(packets > 100.0, "{words}: {udp}");
            let lost = udp["lost_packets"].as_f64().unwrap();
            assert!((0.0..=dropped).contains(&lost), "{words}: {udp} {dropped}");
        }
    }
}

#[test]
fn the_real_client_gets_the_settings_it_asks_for() {
    let server = Ours::start(32);
    let ended = |words: &str| {
        let report = server.client(words);
        assert_eq!(report["error"], Value::Null, "{words}");
        report
    };
    for words in [
        "-t 1 -w 64k -M 1000 -C reno",
        "-t 1 -w 64k -M 1000 -C reno -R",
    ] {
        let report = ended(words);
        // The segments of both ends, for each heard the other's.
        assert_eq!(report["start"]["tcp_mss"], 1000, "{words}");
        // One end's own, the other as our server tells it.
        for end in ["sender_tcp_congestion", "receiver_tcp_congestion"] {
            assert_eq!(report["end"][end], "reno", "{words}");
        }
        let sender = &report["end"]["streams"][0]["sender"];
        // Linux doubles what is asked for; -R shows nothing of the sender's kernel.
        let window_bytes = sender["max_snd_wnd"].as_u64().unwrap();
        assert!(window_bytes <= 128 << 10, "{words}: {sender}");
    }
    for (words, wanted) in [("-n 3M", 3_145_728.0), ("-k 30 -l 10000", 300_000.0)] {
        let end = &ended(words)["end"];
        let (sent, received) = (bytes(&end["sum_sent"]), bytes(&end["sum_received"]));
        assert_eq!(sent, wanted, "{words}");
        assert!(received <= sent, "{words}: {end}");
    }
    for words in ["-t 1 -b 20M -l 10000", "-t 1 -b 20M -l 10000 -R"] {
        let sent = &ended(words)["end"]["sum_sent"];
        // By the sender's own clock, and a block or two before the first pause.
        let most = sent["end"].as_f64().unwrap() * 2.5e6 + 30_000.0;
        assert!(bytes(sent) > 0.0 && bytes(sent) <= most, "{words}: {sent}");
    }
}

#[test]
fn several_clients_are_served_at_once_and_no_more_than_allowed() {
    let server = Ours::start(2);
    let mut ours = Client::connect("127.0.0.1", server.address.port(), Arc::default()).unwrap();
    let long = server.start_client("-t 4");
    let others = |ours: &mut Client| {
        let moment = TcpPlan::new(Direction::Up, 1);
        ours.tcp(&moment).unwrap().other_sessions
    };
    while others(&mut ours) == 0 {}
    let third = server.client("-t 1");
    let busy = third["error"].as_str().unwrap();
    assert!(busy.contains("busy"), "{busy}");
    drop(ours);
    let output = long.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["error"], Value::Null);
    let server = Ours::start(2);
    let pair = ["-t 1", "-t 1 -u -b 2M -l 1000"].map(|words| server.start_client(words));
    for child in pair {
        let output = child.wait_with_output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["error"], Value::Null);
    }
}

/// The real server; ended when dropped.
struct Theirs {
    child: Child,
    port: u16,
}

impl Theirs {
    fn start() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut child = Command::new("iperf3")
            .args(["-s", "-B", "127.0.0.1", "--forceflush", "-p"])
            .arg(port.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("iperf3 is installed by scripts/setup.sh");
        // A trial connection would be taken for a test: its own words are read.
        let mut heard = Vec::new();
        let stdout = child.stdout.as_mut().unwrap();
        while !String::from_utf8_lossy(&heard).contains("listening on") {
            let mut byte = [0];
            stdout.read_exact(&mut byte).unwrap();
            heard.push(byte[0]);
        }
        // Nobody reads the rest: a full pipe would stop it.
        let mut rest = child.stdout.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut rest, &mut std::io::sink()));
        Self { child, port }
    }

    /// Between tests it needs a moment, in which it is busy or does not listen.
    fn test(&self, plan: &Iperf3Plan) -> Result<Iperf3Result, ProbeError> {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match run("127.0.0.1", self.port, plan, Arc::default()) {
                Err(ProbeError::Refused { .. } | ProbeError::NoIperf3 { .. })
                    if Instant::now() < end =>
                {
                    sleep(Duration::from_millis(50));
                }
                other => return other,
            }
        }
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn plan(direction: Direction) -> Iperf3Plan {
    Iperf3Plan {
        direction,
        streams: 1,
        duration_s: 1,
        omit_s: 0,
        udp: false,
        bit_per_s: None,
        window_bytes: None,
        mss_bytes: None,
        block_bytes: None,
    }
}

#[test]
fn our_client_tests_tcp_with_the_real_server() {
    let server = Theirs::start();
    for direction in [Direction::Up, Direction::Down, Direction::Both] {
        let mut plan = plan(direction);
        plan.streams = 2;
        plan.window_bytes = (direction == Direction::Down).then_some(64 << 10);
        let result = server.test(&plan).unwrap();
        assert_eq!(result.up.is_some(), direction.has_up());
        assert_eq!(result.down.is_some(), direction.has_down());
        for way in [result.up, result.down].into_iter().flatten() {
            assert_eq!(way.streams.len(), 2);
            assert!(way.sent_bit_per_s > Some(8e6) && way.received_bit_per_s > Some(0.0));
            for stream in &way.streams {
                let [sent, received] =
                    [stream.sender, stream.receiver].map(|count| count.bytes as f64);
                let least = (sent - on_the_way_bytes()).min(sent / 2.0);
                let is_near = received > 0.0 && received >= least && received <= sent + 1e6;
                assert!(is_near, "{stream:?}");
            }
            assert!(way.streams.iter().all(|stream| stream.state.is_some()));
        }
    }
}

#[test]
fn our_client_tests_udp_with_the_real_server() {
    let server = Theirs::start();
    for direction in [Direction::Up, Direction::Down, Direction::Both] {
        let mut plan = plan(direction);
        (plan.udp, plan.bit_per_s, plan.block_bytes) = (true, Some(4_000_000), Some(1000));
        let before = dropped();
        let result = server.test(&plan).unwrap();
        let dropped = dropped() - before;
        for way in [result.up, result.down].into_iter().flatten() {
            assert!(way.packets > 100, "{way:?}");
            assert!(
                (0.0..=dropped).contains(&(way.lost as f64)),
                "{way:?} {dropped}"
            );
        }
    }
}

#[test]
fn the_servers_own_window_holds_unless_a_client_asks_for_one() {
    let server = Ours::with(ServerOptions {
        window_bytes: Some(16 << 10),
        ..ServerOptions::default()
    });
    let mut plan = plan(Direction::Up);
    plan.mss_bytes = Some(1400);
    let window_of = |plan: &Iperf3Plan| {
        let result = run("127.0.0.1", server.address.port(), plan, Arc::default()).unwrap();
        result.up.unwrap().streams[0]
            .state
            .unwrap()
            .send_window_bytes
    };
    let own = window_of(&plan);
    assert!(own <= 16 << 10, "{own}");
    plan.window_bytes = Some(128 << 10);
    // It is what is left at the end: nothing, where the reader was held up just then.
    let windows: Vec<u32> = (0..5).map(|_| window_of(&plan)).collect();
    assert!(
        windows.iter().any(|window| *window > 16 << 10),
        "{windows:?}"
    );
}

/// A client of our server that has just been told to open its streams.
fn opening(server: &Ours, cookie: &[u8; 37], params: &[u8]) -> TcpStream {
    let mut control = TcpStream::connect(server.address).unwrap();
    let patience = Some(Duration::from_secs(30));
    control.set_read_timeout(patience).unwrap();
    control.write_all(cookie).unwrap();
    control
        .write_all(&(params.len() as u32).to_be_bytes())
        .unwrap();
    control.write_all(params).unwrap();
    let mut states = [0; 2];
    control.read_exact(&mut states).unwrap();
    // PARAM_EXCHANGE, CREATE_STREAMS.
    assert_eq!(states, [9, 10]);
    control
}

#[test]
fn streams_may_come_slowly_one_after_the_other() {
    let server = Ours::start(32);
    let cookie = b"slowabcdefghijklmnopqrstuvwxyz234567\0";
    let params = br#"{"tcp":true,"time":1,"parallel":3}"#;
    let mut control = opening(&server, cookie, params);
    // Longer in all than any of them may take.
    let streams: Vec<TcpStream> = (0..3)
        .map(|_| {
            sleep(Duration::from_secs(4));
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.write_all(cookie).unwrap();
            stream
        })
        .collect();
    let mut states = [0; 2];
    control.read_exact(&mut states).unwrap();
    // TEST_START, TEST_RUNNING.
    assert_eq!(states, [1, 2], "{streams:?}");
}

#[test]
fn a_stray_datagram_opens_no_stream() {
    let server = Ours::start(32);
    let cookie = b"strayabcdefghijklmnopqrstuvwxyz23456\0";
    let params = br#"{"udp":true,"time":1,"parallel":1,"len":1000}"#;
    let mut control = opening(&server, cookie, params);
    let socket = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server.address).unwrap();
        socket
    };
    let (stray, wanted) = (socket(), socket());
    stray.send(b"who is there?").unwrap();
    stray.send(b"6789 6789").unwrap();
    // Behind them in the same queue.
    wanted.send(b"6789").unwrap();
    let patience = Some(Duration::from_secs(20));
    wanted.set_read_timeout(patience).unwrap();
    assert_eq!(wanted.recv(&mut [0; 64]).unwrap(), 4);
    stray.set_nonblocking(true).unwrap();
    assert!(stray.recv(&mut [0; 64]).is_err());
    let mut states = [0; 2];
    control.read_exact(&mut states).unwrap();
    assert_eq!(states, [1, 2]);
}

/// A server that says something and goes away.
fn speaker(words: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut stream: TcpStream = listener.accept().unwrap().0;
        let _ = stream.write_all(words);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    port
}

#[test]
fn servers_that_do_not_behave_are_named() {
    for (words, code) in [
        (&b"\xff"[..], "refused"),
        (b"\xfe\0\0\0\x0d\0\0\0\0", "refused"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "protocol"),
        (b"\x09\x0a\x01\x02\x0b", "refused"),
        (b"\x09\x09", "protocol"),
    ] {
        let port = speaker(words);
        let error = run("127.0.0.1", port, &plan(Direction::Up), Arc::default()).unwrap_err();
        assert_eq!(error.code(), code, "{words:?}: {error:?}");
    }
}

#[test]
fn clients_that_do_not_behave_end_their_own_test_only() {
    let server = Ours::start(32);
    for (first, words) in [
        (b'a', &b"\xff\xff\xff\xff"[..]),
        (b'b', b"\0\0\0\x02[]"),
        (b'c', b"\0\0\0\x13{\"parallel\":100000}"),
        (b'd', b"\0\0\0\x02{}"),
    ] {
        // A test's own: a second connection with the same would be a stream of the first.
        let mut cookie = *b"abcdefghijklmnopqrstuvwxyz234567abcd\0";
        cookie[0] = first;
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.write_all(&cookie).unwrap();
        stream.write_all(words).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer[..2], [9, 0xfe], "{words:?}: {answer:?}");
        assert_eq!(answer.len(), 10);
    }
    assert_eq!(server.client("-t 1")["error"], Value::Null);
}
