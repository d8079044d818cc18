//! Round trips of small datagrams, alone or while something else fills the
//! circuit: what a queue on the way costs everybody.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::clock::{now_ns, sleep_until};
use super::datagram_flow::{Header, Kind};
use super::datagram_socket::{DatagramSocket, at_port};
use super::error::{ProbeError, While};
use super::message::Token;

/// Most that is kept.
const ROUND_TRIPS_MAX: u32 = 200_000;
/// How long the last one is waited for, beyond two round trips.
const LAST_PATIENCE_NS: u64 = 1_000_000_000;

/// Round trips of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Echoes sent.
    pub sent: u64,
    /// Replies that came.
    pub received: u64,
    /// Shortest, microseconds.
    pub min_us: Option<u64>,
    /// Median, microseconds.
    pub p50_us: Option<u64>,
    /// 95 % took at most this long, microseconds.
    pub p95_us: Option<u64>,
    /// Longest, microseconds.
    pub max_us: Option<u64>,
}

impl Latency {
    fn of(sent: u64, mut round_trips_us: Vec<u64>) -> Self {
        round_trips_us.sort_unstable();
        let at = |percent: usize| {
            let last = round_trips_us.len().checked_sub(1)?;
            round_trips_us.get(last * percent / 100).copied()
        };
        Self {
            sent,
            received: round_trips_us.len() as u64,
            min_us: at(0),
            p50_us: at(50),
            p95_us: at(95),
            max_us: at(100),
        }
    }
}

/// What is needed to send echoes, apart from the control connection.
#[derive(Debug)]
pub(crate) struct Pinger {
    socket: DatagramSocket,
    to: SocketAddr,
    token: Token,
    last_patience_ns: u64,
}

/// How long the last echo of a circuit of this round trip is waited for.
fn last_patience_ns(round_trip_ns: u64) -> u64 {
    LAST_PATIENCE_NS.saturating_add(round_trip_ns.saturating_mul(2))
}

impl Pinger {
    pub(crate) fn new(client: &Client) -> Result<Self, ProbeError> {
        let patience = Duration::from_millis(20);
        let socket = DatagramSocket::bind(client.local_address(), patience)
            .locally("opening a UDP socket")?;
        Ok(Self {
            socket,
            to: at_port(client.server(), client.echo_port),
            token: client.token,
            last_patience_ns: last_patience_ns(client.control_rtt_ns),
        })
    }

    /// Sends an echo every `every` until `done` or `echoes_max` are out.
    pub(crate) fn run(
        &self,
        every: Duration,
        echoes_max: u32,
        done: &AtomicBool,
    ) -> Result<Latency, ProbeError> {
        let (finished, received) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let reader = scope.spawn(|| self.replies(&finished, &received));
            let sent = self.echoes(every, echoes_max.min(ROUND_TRIPS_MAX), done);
            let end_ns = now_ns().saturating_add(self.last_patience_ns);
            let is_open = || received.load(Ordering::Relaxed) < sent && !reader.is_finished();
            while now_ns() < end_ns && is_open() {
                thread::sleep(Duration::from_millis(5));
            }
            finished.store(true, Ordering::Relaxed);
            Ok(Latency::of(sent, reader.join().unwrap_or_default()))
        })
    }

    fn echoes(&self, every: Duration, echoes_max: u32, done: &AtomicBool) -> u64 {
        let mut datagram = [0; Header::BYTES];
        let mut due_ns = now_ns();
        let mut sent = 0;
        for sequence in 0..echoes_max {
            if done.load(Ordering::Relaxed) {
                break;
            }
            let header = Header {
                token: self.token,
                kind: Kind::Echo,
                tos: 0,
                bytes: Header::BYTES as u16,
                sequence,
                sent_ns: now_ns(),
            };
            header.write(&mut datagram);
            sent += u64::from(self.socket.send_to(&datagram, self.to).is_ok());
            due_ns += every.as_nanos() as u64;
            sleep_until(due_ns);
        }
        sent
    }

    fn replies(&self, finished: &AtomicBool, received: &AtomicU64) -> Vec<u64> {
        let mut round_trips_us = Vec::new();
        let mut buffer = [0; 2048];
        while !finished.load(Ordering::Relaxed) {
            let Ok(Some((arrival, from))) = self.socket.receive(&mut buffer) else {
                continue;
            };
            let datagram = buffer.get(..arrival.length).unwrap_or_default();
            let header = Header::read(datagram, &self.token);
            let is_reply = |header: &Header| header.kind == Kind::Reply && from == self.to;
            if let Some(header) = header.filter(is_reply) {
                round_trips_us.push(arrival.at_ns.saturating_sub(header.sent_ns) / 1000);
                received.fetch_add(1, Ordering::Relaxed);
            }
            if round_trips_us.len() > ROUND_TRIPS_MAX as usize {
                break;
            }
        }
        round_trips_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_echo_of_a_long_way_is_waited_for() {
        for round_trip_ns in [1_000_000, 2_000_000_000, 10_000_000_000, u64::MAX] {
            assert!(last_patience_ns(round_trip_ns) >= round_trip_ns);
        }
    }

    #[test]
    fn no_reply_gives_no_figures() {
        let latency = Latency::of(3, Vec::new());
        assert_eq!(
            (latency.received, latency.min_us, latency.max_us),
            (0, None, None)
        );
        let latency = Latency::of(4, vec![30, 10, 20]);
        assert_eq!(
            (latency.min_us, latency.p50_us, latency.max_us),
            (Some(10), Some(20), Some(30))
        );
    }
}
