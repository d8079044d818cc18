//! What happens in a tunnel and on its link, second by second.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farhaul_gateway::session::SessionStats;
use farhaul_tunnel::PathView;
use tokio::time::{Instant, sleep_until};

use super::network::{Ledger, Network, Way};
use super::tunnel::Tunnel;

/// Everything counted so far, at a whole second.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// Payload that has arrived, bytes.
    pub received_bytes: u64,
    /// The bottleneck towards the receiver.
    pub ledger: Ledger,
    /// The sender's own figures.
    pub sender: SessionStats,
    /// What the sender's controller believes.
    pub path: Option<PathView>,
    /// Longest wait in the queue within the last second, ns.
    pub peak_ns: u64,
}

/// Samples from second 0 on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace(pub Vec<Sample>);

impl Trace {
    /// Watches payload from the near to the far side for whole seconds.
    pub async fn record(network: &Arc<Network>, tunnel: &Tunnel, seconds: u64) -> Self {
        Self::record_until(network, tunnel, seconds, || false).await
    }

    /// The same, but ends with the second in which `is_done`.
    pub async fn record_until(
        network: &Arc<Network>,
        tunnel: &Tunnel,
        seconds: u64,
        is_done: impl Fn() -> bool,
    ) -> Self {
        let start = Instant::now();
        let mut samples = vec![sample(network, tunnel)];
        for second in 1..=seconds {
            sleep_until(start + Duration::from_secs(second)).await;
            samples.push(sample(network, tunnel));
            if is_done() {
                break;
            }
        }
        Self(samples)
    }

    /// Payload per second between two seconds.
    pub fn goodput_bit_per_s(&self, from_s: u64, to_s: u64) -> f64 {
        let (from, to) = self.between(from_s, to_s);
        (to.received_bytes - from.received_bytes) as f64 * 8.0 / (to_s - from_s) as f64
    }

    /// Mean wait in the bottleneck's queue of the packets it accepted.
    pub fn queue_mean_ms(&self, from_s: u64, to_s: u64) -> f64 {
        let (from, to) = self.between(from_s, to_s);
        mean_wait_ms(&from.ledger, &to.ledger)
    }

    /// Packets that the bottleneck's queue refused, of those that came.
    pub fn dropped_share(&self, from_s: u64, to_s: u64) -> f64 {
        let (from, to) = self.between(from_s, to_s);
        let (from, to) = (&from.ledger.stats, &to.ledger.stats);
        let came = to.packets_in - from.packets_in;
        (to.drops.queue - from.drops.queue) as f64 / came.max(1) as f64
    }

    fn between(&self, from_s: u64, to_s: u64) -> (&Sample, &Sample) {
        (&self.0[from_s as usize], &self.0[to_s as usize])
    }
}

fn sample(network: &Arc<Network>, tunnel: &Tunnel) -> Sample {
    Sample {
        received_bytes: tunnel.far.services.bytes(),
        ledger: network.ledger(Way::Forward),
        sender: tunnel.near.session.stats(),
        path: tunnel.near.session.path(),
        peak_ns: network.take_peak_ns(Way::Forward),
    }
}

fn mean_wait_ms(from: &Ledger, to: &Ledger) -> f64 {
    let packets = to.queued_packets - from.queued_packets;
    (to.waited_ns - from.waited_ns) as f64 / 1e6 / packets.max(1) as f64
}

const HEAD: &str = "   s   goodput      sent  queue ms   peak ms   rtt ms   cwnd kB   lost \
    dropped on wire  estimate  phase";

/// One line per second. Goodput, what was sent (frames that came to the
/// bottleneck) and the controller's estimate (UDP payload) are in Mbit/s.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        for (at, pair) in self.0.windows(2).enumerate() {
            let [from, to] = pair else { continue };
            write_second(f, at + 1, from, to)?;
        }
        Ok(())
    }
}

fn write_second(
    f: &mut fmt::Formatter<'_>,
    second: usize,
    from: &Sample,
    to: &Sample,
) -> fmt::Result {
    let (was, is) = (&from.ledger.stats, &to.ledger.stats);
    writeln!(
        f,
        "{second:>4} {:>9.3} {:>9.3} {:>9.2} {:>9.2} {:>8.1} {:>9.1} {:>6} {:>7} {:>7} {:>9.3}  {}",
        (to.received_bytes - from.received_bytes) as f64 * 8e-6,
        (is.bytes_in - was.bytes_in) as f64 * 8e-6,
        mean_wait_ms(&from.ledger, &to.ledger),
        to.peak_ns as f64 / 1e6,
        to.sender.rtt.as_secs_f64() * 1e3,
        to.sender.window_bytes as f64 / 1e3,
        to.sender.packets_lost - from.sender.packets_lost,
        is.drops.queue - was.drops.queue,
        is.drops.loss - was.drops.loss,
        to.path.map_or(0.0, |path| path.rate * 8e-6),
        to.path.map_or("", |path| path.phase),
    )
}
