//! The circuit tester between two hosts on a cable that nobody has given addresses. Needs root, and fails without.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::Ipv6Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use farhaul_lab::error::LabError;
use farhaul_lab::netns::{Namespace, connect};
use farhaul_lab::probe::datagram_flow::FlowPlan;
use farhaul_lab::probe::examine::{Single, Target, examine, single};
use farhaul_lab::probe::tcp_test::{Direction, TcpPlan};
use farhaul_lab::probe::{Server, ServerOptions};
use farhaul_lab::sandbox::Sandbox;

/// Two hosts, and a server at the right one.
struct Cable {
    left: Namespace,
    right: Namespace,
    port: u16,
    stop: Arc<AtomicBool>,
    running: Option<JoinHandle<Result<(), LabError>>>,
    _sandbox: Sandbox,
}

impl Cable {
    fn new(test: &str) -> Self {
        let name = format!("t{}-{test}", std::process::id());
        let mut sandbox = Sandbox::create(&name).unwrap();
        let left = sandbox.add_namespace("left").unwrap();
        let right = sandbox.add_namespace("right").unwrap();
        connect((&left, "eth0"), (&right, "eth0")).unwrap();
        for (host, address) in [(&left, "fe80::1"), (&right, "fe80::2")] {
            let words = format!("address add {address}/64 dev eth0 nodad\nlink set eth0 up");
            host.ip(&words).unwrap();
        }
        let options = ServerOptions {
            address: Some(Ipv6Addr::UNSPECIFIED.into()),
            port: 0,
            ..ServerOptions::default()
        };
        let stop = Arc::new(AtomicBool::new(false));
        let listen = || Server::listen(options, Arc::clone(&stop)).unwrap();
        let server = right.within(listen).unwrap();
        let port = server.addresses().first().unwrap().port();
        let running = Some(right.spawn_within(move || server.run().unwrap()));
        Self {
            left,
            right,
            port,
            stop,
            running,
            _sandbox: sandbox,
        }
    }

    /// The address is one of the link only, and says nothing without the link's name.
    fn target(&self) -> Target {
        Target {
            host: "fe80::2%eth0".to_owned(),
            port: self.port,
            stop: Arc::default(),
        }
    }

    /// Packets that left the server's host so far.
    fn sent_packets(&self) -> u64 {
        let read = || fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let text = self.right.within(read).unwrap();
        let line = text.lines().find(|line| line.contains("eth0:")).unwrap();
        let (_, figures) = line.split_once(':').unwrap();
        figures.split_whitespace().nth(9).unwrap().parse().unwrap()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.running.take().map(JoinHandle::join);
    }
}

#[test]
fn link_local_addresses_are_enough() {
    let cable = Cable::new("local");
    let target = cable.target();
    let report = cable
        .left
        .within(|| examine(&target, 1000, &|_| ()))
        .unwrap();
    assert_eq!(report.error, None);
    let seen = report.observations;
    assert!(seen.idle.is_some_and(|idle| idle.p50_us.is_some()));
    assert_eq!(seen.path.and_then(|path| path.mtu_bytes()), Some(1500));
    let quiet = [seen.quiet_up, seen.quiet_down].map(Option::unwrap);
    let ways = quiet.map(|flow| flow.up.or(flow.down).unwrap());
    assert!(ways.iter().all(|way| way.count.received > 0), "{ways:?}");
}

/// A client's host is switched off: no end, no reset, no error comes back.
#[test]
fn a_server_sends_to_no_host_that_has_vanished() {
    let cable = Cable::new("gone");
    let flow = FlowPlan::even(Direction::Down, 1000, 8e6, 300.0);
    let tests = [
        Single::Flow(vec![flow]),
        Single::Tcp(vec![TcpPlan::new(Direction::Both, 300_000)]),
    ];
    let clients = tests.map(|test| {
        let target = cable.target();
        cable.left.spawn_within(move || single(&target, &test))
    });
    let words = format!(
        "-c fe80::2%eth0 -p {} -B fe80::1%eth0 -u -R -t 300 -b 5M",
        cable.port
    );
    let begin = || {
        let mut command = Command::new("iperf3");
        command.args(words.split(' ')).stdout(Stdio::null());
        command.spawn().unwrap()
    };
    let mut iperf3 = cable.left.within(begin).unwrap();
    sleep(Duration::from_secs(2));
    let before = cable.sent_packets();
    sleep(Duration::from_secs(1));
    let a_second = cable.sent_packets() - before;
    assert!(a_second > 1000, "{a_second} packets in a second");
    assert!(iperf3.try_wait().unwrap().is_none(), "it has ended");

    let silence = "table inet gone {\n\
        chain in { type filter hook input priority 0; policy drop; }\n\
        chain out { type filter hook output priority 0; policy drop; }\n}";
    let silenced = cable.left.within(|| {
        let status = Command::new("nft").arg(silence).status();
        status.unwrap().success()
    });
    assert!(silenced.unwrap());
    let (cut, mut before) = (Instant::now(), cable.sent_packets());
    loop {
        sleep(Duration::from_secs(1));
        let now = cable.sent_packets();
        // Neighbours are asked for a while longer.
        if now - before < 10 {
            break;
        }
        before = now;
        let passed = cut.elapsed();
        assert!(passed < Duration::from_secs(60), "still sending: {now}");
    }
    iperf3.kill().unwrap();
    iperf3.wait().unwrap();
    for client in clients {
        let report = client.join().unwrap().unwrap();
        let error = report.error.unwrap();
        assert_eq!(error.code, "lost", "{}", error.text);
    }
}

#[test]
fn datagrams_that_do_not_get_through_are_missed() {
    let cable = Cable::new("mute");
    let rules = "table inet mute {\n\
        chain out { type filter hook output priority 0; meta l4proto udp drop; }\n}";
    let dropped = cable.left.within(|| {
        let status = Command::new("nft").arg(rules).status();
        status.unwrap().success()
    });
    assert!(dropped.unwrap());
    let target = cable.target();
    let flow = |way| Single::Flow(vec![FlowPlan::even(way, 1000, 1e6, 0.2)]);
    for way in [Direction::Up, Direction::Down] {
        let report = cable.left.within(|| single(&target, &flow(way))).unwrap();
        let error = report.error.unwrap();
        assert_eq!(error.code, "silent", "{way:?}: {}", error.text);
    }
}
