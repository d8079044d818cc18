//! The circuit tester and the real iperf3, each in both roles, over loopback.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod client;
mod odd_ends;
mod server;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use farhaul_lab::overflows::own_receiver_overflows;
use farhaul_lab::probe::iperf3::Iperf3Plan;
use farhaul_lab::probe::tcp_test::Direction;
use farhaul_lab::probe::{Server, ServerOptions};
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
        ended(self.start_client(words))
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

/// The JSON of a client that was started.
fn ended(client: Child) -> Value {
    let output = client.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
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
    own_receiver_overflows().unwrap() as f64
}

fn bytes(sum: &Value) -> f64 {
    sum["bytes"].as_f64().unwrap_or_else(|| panic!("{sum}"))
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
