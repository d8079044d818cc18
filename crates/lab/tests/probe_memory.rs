//! A server of the circuit tester keeps nothing of the clients it has had: as
//! much memory, as many threads and descriptors after hundreds of them as
//! before. What is counted is what is allocated and not freed, not what the
//! allocator holds ready for more.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
#![allow(unsafe_code)] // an allocator that counts is one

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use farhaul_lab::probe::datagram_flow::FlowPlan;
use farhaul_lab::probe::examine::{Single, Target, single};
use farhaul_lab::probe::iperf3::{self, Iperf3Plan};
use farhaul_lab::probe::tcp_test::{Direction, TcpPlan};
use farhaul_lab::probe::{Client, Server, ServerOptions};

static HELD_BYTES: AtomicI64 = AtomicI64::new(0);

/// The system's allocator, with what it has given out and not got back.
struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller keeps to the contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs of our own client in a round. A hundred bytes kept of each would be
/// ten times what tables and names of threads may vary by.
const RUNS: usize = 400;
const VARIES_BYTES: i64 = 4096;
/// Room of the tables of a server that has been used.
const TABLES_BYTES: i64 = 64 << 10;
/// Clients of every other kind.
const OTHERS: usize = 60;

fn target(server: SocketAddr) -> Target {
    Target {
        host: server.ip().to_string(),
        port: server.port(),
        stop: Arc::default(),
    }
}

fn ours(server: SocketAddr, test: &Single, runs: usize) {
    let one_after_the_other = || {
        for _ in 0..runs / 4 {
            // On a busy machine a millisecond may pass before anything has
            // arrived; what is kept of such a client counts as well.
            let report = single(&target(server), test);
            let is_measured = !report.observations.tcp.is_empty();
            let error = report.error;
            let is_usual = |code: &str| is_measured && code == "silent";
            assert!(
                error.as_ref().is_none_or(|error| is_usual(&error.code)),
                "{error:?}"
            );
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(one_after_the_other))));
}

fn iperf3s(server: SocketAddr) {
    let plan = |udp| Iperf3Plan {
        direction: Direction::Both,
        streams: 1,
        duration_s: 1,
        omit_s: 0,
        udp,
        bit_per_s: Some(1_000_000),
        window_bytes: None,
        mss_bytes: None,
        block_bytes: Some(1000),
    };
    let host = server.ip().to_string();
    std::thread::scope(|scope| {
        for udp in [false, true, false, true] {
            let (plan, host) = (plan(udp), &host);
            scope.spawn(move || {
                iperf3::run(host, server.port(), &plan, Arc::default()).unwrap();
            });
        }
    });
}

/// Clients that break off, at every step.
fn vanishing(server: SocketAddr) {
    let hello = b"\0\0\0\x1f{\"request\":\"hello\",\"version\":1}";
    let ours = [&b"FHP1\x01\x00\x00\x00................"[..], hello].concat();
    for number in 0..OTHERS {
        // With a cookie that is known it would be a stream of an earlier one.
        let cookie = format!("{number:a>36}\0").into_bytes();
        let (words, is_answered) = match number % 7 {
            0 => (b"F".to_vec(), false),
            1 => (b"GET / HTTP/1.1\r\n\r\n abcdefghijkl".to_vec(), false),
            2 => (b"FHP1\x02\x00\x00\x01................".to_vec(), false),
            3 => (ours[..24].to_vec(), false),
            4 => (ours.clone(), true),
            5 => (cookie, true),
            _ => ([&cookie[..], b"\0\0\0\x02{}"].concat(), true),
        };
        let mut stream = TcpStream::connect(server).unwrap();
        stream.write_all(&words).unwrap();
        if is_answered {
            stream.read_exact(&mut [0]).unwrap();
        }
    }
}

fn iperf2s(server: SocketAddr, clients: usize) {
    for _ in 0..clients {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.write_all(&[0; 4000]).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        for number in [0_i32, 1, -2] {
            let mut datagram = [0; 100];
            datagram[..4].copy_from_slice(&number.to_be_bytes());
            socket.send_to(&datagram, server).unwrap();
        }
        socket.recv(&mut [0; 2000]).unwrap();
    }
}

fn round(server: &Server) {
    let (known, iperf2) = (server.addresses()[0], server.iperf2_addresses()[0]);
    ours(
        known,
        &Single::Tcp(vec![TcpPlan::new(Direction::Both, 1)]),
        RUNS,
    );
    let flow = FlowPlan::even(Direction::Both, 100, 1e6, 0.02);
    ours(known, &Single::Flow(vec![flow]), OTHERS);
    ours(known, &Single::Transact(Duration::from_millis(10)), OTHERS);
    vanishing(known);
    iperf2s(iperf2, OTHERS);
    iperf3s(known);
}

#[derive(Debug, Clone, Copy)]
struct Held {
    bytes: i64,
    threads: usize,
    descriptors: usize,
}

impl Held {
    fn now() -> Self {
        let entries = |folder: &str| std::fs::read_dir(folder).unwrap().count();
        Self {
            threads: entries("/proc/self/task"),
            descriptors: entries("/proc/self/fd"),
            bytes: HELD_BYTES.load(Ordering::Relaxed),
        }
    }

    fn is_no_more_than(&self, before: &Self) -> bool {
        self.threads <= before.threads
            && self.descriptors <= before.descriptors
            && self.bytes <= before.bytes + VARIES_BYTES
    }
}

/// What is held when everybody who is on the way out has gone.
fn settled(wanted: &Held) -> Held {
    let begin = Instant::now();
    loop {
        let held = Held::now();
        if held.is_no_more_than(wanted) || begin.elapsed() > Duration::from_secs(60) {
            return held;
        }
        sleep(Duration::from_millis(20));
    }
}

/// Until the server knows of no other client, senders of datagrams included.
fn until_forgotten(server: SocketAddr) {
    let begin = Instant::now();
    loop {
        let client = Client::connect("127.0.0.1", server.port(), Arc::default()).unwrap();
        let others = client.other_sessions;
        client.end();
        if others == 0 {
            return;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "{others} are still known"
        );
        sleep(Duration::from_millis(200));
    }
}

/// Ends the server when dropped, also where the test fails.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_server_keeps_nothing_of_the_clients_it_has_had() {
    let options = ServerOptions {
        address: Some(Ipv4Addr::LOCALHOST.into()),
        port: 0,
        iperf2_port: Some(0),
        sessions_max: 256,
        ..ServerOptions::default()
    };
    let stop = Arc::new(AtomicBool::new(false));
    let server = Server::listen(options, Arc::clone(&stop)).unwrap();
    let mut idle = Held::now();
    // One that listens, one for iperf 2's datagrams and their buffer.
    idle.threads += 2;
    idle.bytes += 70_000;
    std::thread::scope(|scope| {
        scope.spawn(|| server.run().unwrap());
        let _ended = Ended(&stop);
        round(&server);
        // Flows of datagrams are only forgotten after a while, and tables keep the
        // room they once needed: more are known at once here than in the next round,
        // however long either takes.
        iperf2s(server.iperf2_addresses()[0], 2 * OTHERS);
        until_forgotten(server.addresses()[0]);
        idle.bytes += TABLES_BYTES;
        let first = settled(&idle);
        assert!(first.is_no_more_than(&idle), "{first:?} after {idle:?}");
        round(&server);
        let second = settled(&first);
        assert!(second.is_no_more_than(&first), "{second:?} after {first:?}");
    });
}
