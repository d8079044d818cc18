//! How `farhaul probe serve` is ended: by a signal, with the exit code of the
//! table, whatever it is doing, and nothing of it stays.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};

use crate::odd_ends::{outcome, start_verb};
use crate::{FARHAUL, REPORT, document, ended};

const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// A server in a process group of its own, which iperf 2 clients may come to as
/// well; killed where a test fails.
struct Serving {
    child: Child,
    port: String,
    _lines: BufReader<ChildStdout>,
}

impl Serving {
    fn start() -> Self {
        let mut child = Command::new(FARHAUL)
            .args(["probe", "serve", "--listen", "127.0.0.1"])
            .args(["--port", "0", "--iperf2", "0"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let [first, second] = [(); 2].map(|()| {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            line
        });
        assert!(second.contains("iperf 2"), "{second}");
        let port = first.trim().rsplit(':').next().unwrap().to_owned();
        Self {
            child,
            port,
            _lines: lines,
        }
    }

    /// Connections that it has accepted (proc_pid_net(5): local address, state 1).
    fn connections(&self) -> usize {
        let port = self.port.parse::<u16>().unwrap();
        let port = format!(":{port:04X}");
        let is_ours = |line: &&str| {
            let words: Vec<_> = line.split_whitespace().collect();
            words[1].ends_with(&port) && words[3] == "01"
        };
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        table.lines().skip(1).filter(is_ours).count()
    }

    fn wait_for_connections(&self, wanted: usize) {
        let begin = Instant::now();
        while self.connections() < wanted {
            let there = self.connections();
            assert!(begin.elapsed() < Duration::from_secs(25), "{there}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it ends with when it is told to, which takes no patience.
    fn end(&mut self, signal: Signal) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{signal:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// No process of its group, and nobody on its port.
    fn is_gone_without_a_trace(&self) {
        let group = test_kill_process_group(Pid::from_child(&self.child));
        assert_eq!(group, Err(Errno::SRCH));
        TcpListener::bind(format!("127.0.0.1:{}", self.port)).unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_signal_is_how_a_server_is_ended() {
    for signal in SIGNALS {
        let mut server = Serving::start();
        let status = server.end(signal);
        assert_eq!(status.code(), Some(0), "{signal:?}: {status}");
        server.is_gone_without_a_trace();
    }
}

#[test]
fn a_signal_ends_a_server_in_the_middle_of_its_tests() {
    // Each is a minute long, if nobody ended it.
    let verbs: [&[&str]; 8] = [
        &["tcp", "--time", "60"],
        &["tcp", "--time", "60", "--way", "down"],
        &["udp", "--time", "60"],
        &["udp", "--time", "60", "--way", "down"],
        &["transact", "--time", "60"],
        &["iperf3", "--time", "60"],
        &["iperf3", "--time", "60", "--way", "down"],
        &["iperf3", "--time", "60", "--udp"],
    ];
    for signal in [Signal::INT, Signal::TERM] {
        let mut server = Serving::start();
        let clients = verbs.map(|verb| (verb, start_verb(verb, &server.port)));
        // Eight control connections, four streams and an echo; then some data.
        server.wait_for_connections(13);
        thread::sleep(Duration::from_secs(1));
        let status = server.end(signal);
        assert_eq!(status.code(), Some(0), "{signal:?}: {status}");
        server.is_gone_without_a_trace();
        let begin = Instant::now();
        for (verb, client) in clients {
            let seen = document(&ended(client), REPORT);
            // Nobody goes on with what nobody listens to.
            let waited = begin.elapsed();
            assert!(waited < Duration::from_secs(30), "{verb:?}: {waited:?}");
            let refused = ("refused".to_owned(), 4);
            assert_eq!(outcome(&seen), refused, "{verb:?}: {}", seen["error"]);
        }
    }
}
