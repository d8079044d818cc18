//! The circuit tester's server and the real iperf 2, over loopback.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul_lab::overflows::own_receiver_overflows;
use farhaul_lab::probe::{Client, Server, ServerOptions};

/// Our server; ended when dropped.
struct Ours {
    iperf2: SocketAddr,
    own: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ours {
    fn start(options: ServerOptions) -> Self {
        let options = ServerOptions {
            address: Some(Ipv4Addr::LOCALHOST.into()),
            port: 0,
            iperf2_port: Some(0),
            ..options
        };
        let stop = Arc::new(AtomicBool::new(false));
        let server = Server::listen(options, Arc::clone(&stop)).unwrap();
        let (iperf2, own) = (server.iperf2_addresses()[0], server.addresses()[0]);
        let thread = Some(std::thread::spawn(move || server.run().unwrap()));
        Self {
            iperf2,
            own,
            stop,
            thread,
        }
    }

    /// What the real client prints: rates in kbit/s.
    fn client(&self, words: &str) -> String {
        let output = Command::new("iperf")
            .args(["-c", "127.0.0.1", "-f", "k", "-p"])
            .arg(self.iperf2.port().to_string())
            .args(words.split_whitespace())
            .output()
            .expect("iperf is installed by scripts/setup.sh");
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{words}: {text}{errors}");
        format!("{text}{errors}")
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Datagrams that any socket had no room for so far: over loopback nothing else is
/// lost, however long a reader is held up.
fn dropped() -> f64 {
    own_receiver_overflows().unwrap() as f64
}

/// Rates of all lines that have one, in kbit/s.
fn rates(text: &str) -> Vec<f64> {
    let rate = |line: &str| {
        let (before, _) = line.split_once(" Kbits/sec")?;
        before.split_whitespace().last()?.parse().ok()
    };
    text.lines().filter_map(rate).collect()
}

#[test]
fn the_real_client_sends_to_us() {
    let server = Ours::start(ServerOptions::default());
    for (words, lines) in [
        ("-t 1", 1),
        ("-t 1 -P 3", 4),
        ("-n 3M", 1),
        ("-t 1 -w 64k", 1),
    ] {
        let text = server.client(words);
        let rates = rates(&text);
        assert_eq!(rates.len(), lines, "{words}: {text}");
        assert!(rates.iter().all(|rate| *rate > 1000.0), "{words}: {text}");
    }
}

#[test]
fn the_real_client_receives_from_us() {
    let server = Ours::start(ServerOptions::default());
    for (words, lines) in [
        ("-t 1 -R", 1),
        ("-t 1 -R -P 2", 3),
        ("-t 1 --full-duplex", 3),
    ] {
        let begin = Instant::now();
        let text = server.client(words);
        let rates = rates(&text);
        assert_eq!(rates.len(), lines, "{words}: {text}");
        assert!(rates.iter().all(|rate| *rate > 1000.0), "{words}: {text}");
        assert!(begin.elapsed() < Duration::from_secs(20), "{words}: {text}");
    }
}

/// One test after the other, or both at once, on a connection of ours.
#[test]
fn the_real_client_is_called_back() {
    let server = Ours::start(ServerOptions::default());
    for words in ["-t 1 -r", "-t 1 -d"] {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let text = server.client(&format!("{words} -L {port}"));
        let rates = rates(&text);
        assert!(rates.len() >= 2, "{words}: {text}");
        assert!(rates.iter().all(|rate| *rate > 1000.0), "{words}: {text}");
    }
}

/// The head of an iperf 2 client that wants to be called at this port, at once, for a second.
fn wish_to_be_called(port: u16) -> Vec<u8> {
    const VERSION_1_AND_AT_ONCE: u32 = 0x8000_0001;
    let words = [VERSION_1_AND_AT_ONCE, 1, port.into(), 0, 0, -100_i32 as u32];
    let mut head: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    // What it sends.
    head.resize(128 << 10, 0);
    head
}

/// A client on a busy machine may ask before it listens.
#[test]
fn who_listens_late_is_called_all_the_same() {
    let server = Ours::start(ServerOptions::default());
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let listens = free.local_addr().unwrap();
    drop(free);
    let mut asking = TcpStream::connect(server.iperf2).unwrap();
    asking
        .write_all(&wish_to_be_called(listens.port()))
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let listener = TcpListener::bind(listens).unwrap();
    let (mut called, _) = listener.accept().unwrap();
    let mut first = [0; 1000];
    called.read_exact(&mut first).unwrap();
}

#[test]
fn datagrams_are_counted_as_the_real_server_does() {
    let server = Ours::start(ServerOptions::default());
    let before = dropped();
    let text = server.client("-u -t 1 -b 2m -l 1000");
    let dropped = dropped() - before;
    assert!(text.contains("Server Report"), "{text}");
    // The last line: "... 0.004 ms 0/250 (0%)".
    let counts = text.lines().rev().find_map(|line| {
        let (lost, all) = line.split_once(" ms ")?.1.split_once('/')?;
        let all = all.split_whitespace().next()?;
        Some((lost.trim().parse::<f64>().ok()?, all.parse::<f64>().ok()?))
    });
    let (lost, all) = counts.unwrap_or_else(|| panic!("{text}"));
    assert!(all > 100.0 && lost <= dropped, "{text} {dropped}");
}

#[test]
fn a_stream_of_anything_is_taken_and_a_client_is_seen() {
    let server = Ours::start(ServerOptions::default());
    let mut stream = TcpStream::connect(server.iperf2).unwrap();
    stream.write_all(&[b'7'; 100_000]).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let seen = || {
        let port = server.own.port();
        let client = Client::connect("127.0.0.1", port, Arc::default()).unwrap();
        let others = client.other_sessions;
        client.end();
        others
    };
    while seen() != 1 {
        assert!(Instant::now() < end, "it is not counted");
    }
    drop(stream);
    while seen() != 0 {
        assert!(Instant::now() < end, "it is still counted");
    }
}

#[test]
fn no_more_clients_than_allowed_and_no_answer_to_strangers() {
    let server = Ours::start(ServerOptions {
        sessions_max: 1,
        ..ServerOptions::default()
    });
    let port = server.own.port();
    let _ours = Client::connect("127.0.0.1", port, Arc::default()).unwrap();
    let mut stream = TcpStream::connect(server.iperf2).unwrap();
    assert!(matches!(stream.read(&mut [0; 8]), Ok(0) | Err(_)));
    drop(_ours);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    // The end of a flow that never was; then one that asks for more than it sent.
    let last = [0xff; 64];
    for datagram in [&last[..], &[0; 12], &last[..20]] {
        socket.send_to(datagram, server.iperf2).unwrap();
        assert!(socket.recv(&mut [0; 256]).is_err());
    }
}
