//! Our client with the real server.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use farhaul_lab::probe::ProbeError;
use farhaul_lab::probe::iperf3::{Iperf3Plan, Iperf3Result, run};
use farhaul_lab::probe::tcp_test::Direction;

use crate::{dropped, on_the_way_bytes, plan};
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
fn the_segments_and_the_window_asked_for_hold_with_the_real_server() {
    const WINDOW_BYTES: u32 = 32 << 10;
    let server = Theirs::start();
    for direction in [Direction::Up, Direction::Down] {
        let state_with = |mss_bytes, window_bytes| {
            let plan = Iperf3Plan {
                mss_bytes,
                window_bytes,
                ..plan(direction)
            };
            let result = server.test(&plan).unwrap();
            let way = result.up.or(result.down).unwrap();
            way.streams[0].state.unwrap()
        };
        let (own, asked) = (
            state_with(None, None),
            state_with(Some(1000), Some(WINDOW_BYTES)),
        );
        let (segments, window) = match direction {
            // The server's buffer, as its acknowledgements show it.
            Direction::Up => (
                [own, asked].map(|state| state.send_mss_bytes),
                [own, asked].map(|state| state.send_window_bytes),
            ),
            _ => (
                [own, asked].map(|state| state.advertised_mss_bytes),
                [own, asked].map(|state| state.receive_window_bytes),
            ),
        };
        // Timestamps take 12 bytes of a segment; loopback's own are far longer.
        assert!(segments[0] > 1400, "{direction:?}: {own:?}");
        assert!(
            (988..=1000).contains(&segments[1]),
            "{direction:?}: {asked:?}"
        );
        // Linux doubles what is asked for.
        assert!(window[1] <= 2 * WINDOW_BYTES, "{direction:?}: {asked:?}");
        let most = asked.send_window_bytes.max(asked.receive_window_bytes);
        assert!(most > 0, "{direction:?}: {asked:?}");
    }
}

#[test]
fn what_is_left_out_counts_at_neither_end() {
    const BYTES_PER_S: f64 = 2_500_000.0;
    let server = Theirs::start();
    for direction in [Direction::Up, Direction::Down] {
        let plan = Iperf3Plan {
            omit_s: 2,
            bit_per_s: Some(20_000_000),
            block_bytes: Some(10_000),
            ..plan(direction)
        };
        let result = server.test(&plan).unwrap();
        let way = result.up.or(result.down).unwrap();
        let stream = way.streams[0];
        for count in [stream.sender, stream.receiver] {
            let seconds = count.end_time - count.start_time;
            // The sender makes up for a pause, and each end has its own end of the
            // time left out; that time alone has carried 5 MB.
            let most = BYTES_PER_S * (seconds + 1.0);
            let bytes = count.bytes as f64;
            assert!(bytes > 0.0 && bytes <= most, "{direction:?}: {stream:?}");
            assert!((0.9..2.8).contains(&seconds), "{direction:?}: {stream:?}");
        }
    }
}
