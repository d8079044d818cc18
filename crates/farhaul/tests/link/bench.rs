//! Two hosts with a link between them, and `farhaul link` as a process.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use farhaul_lab::netns::{Namespace, connect};
use farhaul_lab::sandbox::Sandbox;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(super) const FARHAUL: &str = env!("CARGO_BIN_EXE_farhaul");
/// How long anything may take on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Two hosts, `left` (10.78.0.1) and `right` (10.78.0.2), and between them
/// `wan` with the interfaces `a` and `b` for a link. The hosts' own offloads
/// are on, as they are by default.
pub(super) struct Bench {
    pub(super) left: Namespace,
    pub(super) wan: Namespace,
    pub(super) right: Namespace,
    pub(super) sandbox: Sandbox,
}

impl Bench {
    pub(super) fn new(test: &str) -> Self {
        let name = format!("k{}-{test}", std::process::id());
        let mut sandbox = Sandbox::create(&name).unwrap();
        let [left, wan, right] =
            ["left", "wan", "right"].map(|role| sandbox.add_namespace(role).unwrap());
        // Nobody but the hosts speaks on the link.
        wan.set(&[
            ("ipv6/conf/all/disable_ipv6", "1"),
            ("ipv6/conf/default/disable_ipv6", "1"),
        ])
        .unwrap();
        for (host, inside, number) in [(&left, "a", 1), (&right, "b", 2)] {
            connect((host, "eth0"), (&wan, inside)).unwrap();
            host.ip(&format!(
                "address add 10.78.0.{number}/24 dev eth0
                 address add fd78::{number}/64 dev eth0 nodad
                 link set eth0 up"
            ))
            .unwrap();
            wan.ip(&format!("link set dev {inside} up")).unwrap();
        }
        Self {
            left,
            wan,
            right,
            sandbox,
        }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.sandbox.folder().join("link.sock")
    }

    /// Starts a link between `a` and `b` and waits until it is ready.
    pub(super) fn link(&self, words: &[&str]) -> Link {
        self.link_between(["a", "b"], words, self.socket())
    }

    pub(super) fn link_between(
        &self,
        interfaces: [&str; 2],
        words: &[&str],
        socket: PathBuf,
    ) -> Link {
        let mut command = self.wan.command(FARHAUL);
        command.args(["link", "run"]).args(interfaces).args(words);
        command.arg("--socket").arg(&socket);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        if line != "ready\n" {
            let output = child.wait_with_output().unwrap();
            panic!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Link { child, socket }
    }

    /// Runs `farhaul link run` with arguments that it should refuse.
    pub(super) fn refused(&self, words: &[&str], code: i32) -> String {
        let before = self.offloads();
        let mut command = self.wan.command(FARHAUL);
        command.args(["link", "run"]).args(words);
        if !words.contains(&"--socket") {
            command.arg("--socket").arg(self.socket());
        }
        let output = command.output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.starts_with("farhaul: "), "{text}");
        assert!(output.stdout.is_empty());
        assert_eq!(self.offloads(), before, "{words:?} left something behind");
        text
    }

    /// What `ethtool -k` says about both interfaces.
    pub(super) fn offloads(&self) -> String {
        ["a", "b"]
            .map(|name| self.wan.exec(&["ethtool", "-k", name]).unwrap_or_default())
            .concat()
    }

    /// Answers every datagram on a port of the right host.
    pub(super) fn echo(&self, address: &'static str) {
        let socket = self
            .right
            .within(|| UdpSocket::bind(address).unwrap())
            .unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((count, from)) = socket.recv_from(&mut buffer) {
                if socket.send_to(&buffer[..count], from).is_err() {
                    return;
                }
            }
        });
    }

    /// A socket on the left host that talks to `peer`.
    pub(super) fn client(&self, peer: &str) -> UdpSocket {
        let peer: SocketAddr = peer.parse().unwrap();
        let any = if peer.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let socket = self.left.within(|| UdpSocket::bind(any).unwrap()).unwrap();
        socket.connect(peer).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        socket
    }
}

pub(super) struct Link {
    pub(super) child: Child,
    pub(super) socket: PathBuf,
}

impl Link {
    pub(super) fn ask(&self, verb: &str, words: &[&str]) -> Output {
        Command::new(FARHAUL)
            .args(["link", verb])
            .args(words)
            .arg("--socket")
            .arg(&self.socket)
            .output()
            .unwrap()
    }

    pub(super) fn set(&self, words: &[&str]) {
        let output = self.ask("set", words);
        assert!(output.status.success(), "{}", stderr(&output));
    }

    pub(super) fn stats(&self) -> Value {
        let output = self.ask("stats", &["--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end: exit code and what it said.
    pub(super) fn end(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < PATIENCE, "the link does not end");
            thread::sleep(Duration::from_millis(10));
        }
        let mut text = String::new();
        let mut pipe = self.child.stderr.take().unwrap();
        pipe.read_to_string(&mut text).unwrap();
        (self.child.wait().unwrap().code(), text)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // It puts everything back, unless the test has ended it already.
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

pub(super) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(super) fn count(stats: &Value, pointer: &str) -> u64 {
    stats.pointer(pointer).unwrap().as_u64().unwrap()
}

/// Receives a datagram. A wait with a time-out is not taken up again by itself
/// after an interruption.
pub(super) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
