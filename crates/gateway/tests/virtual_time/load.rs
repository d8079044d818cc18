//! One bulk flow and one person typing: what a cell of the matrix is judged
//! by.

use std::sync::Arc;
use std::time::Duration;

use super::cell::{Cell, Knowledge};
use super::clock;
use super::echo::{self, Echoes};
use super::figure::Figure;
use super::network::{Network, Way};
use super::trace::Trace;
use super::tunnel::Pair;

const BULK_PORT: u16 = 40_000;
const ECHO_PORT: u16 = 50_000;

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// The whole run.
    pub trace: Trace,
    /// Measured from this second to that.
    pub window_s: (u64, u64),
    /// Round trips of the echoes sent within it.
    pub echoes_ms: Vec<f64>,
}

impl Load {
    /// Payload per second after the warm-up.
    pub fn goodput_mbit(&self) -> f64 {
        self.trace
            .goodput_bit_per_s(self.window_s.0, self.window_s.1)
            / 1e6
    }

    /// Mean wait in the bottleneck's queue after the warm-up.
    pub fn queue_mean_ms(&self) -> f64 {
        self.trace.queue_mean_ms(self.window_s.0, self.window_s.1)
    }

    /// Share of packets that queue or policer refused after the warm-up.
    pub fn dropped_share(&self) -> f64 {
        self.trace.dropped_share(self.window_s.0, self.window_s.1)
    }
}

/// Runs one cell.
pub fn run(cell: &Cell, knowledge: Knowledge, seed: u64) -> Result<Load, String> {
    let warm_up_s = cell.warm_up_s();
    let window_s = (warm_up_s, warm_up_s + cell.measured_s());
    let limit = Duration::from_secs(window_s.1 + 60);
    let interval = echo_interval(cell);
    clock::run(cell.link.clone(), seed, limit, |network| {
        load(network, knowledge.of(cell), seed, window_s, interval)
    })
}

/// Seldom enough to take no share of the link worth counting.
fn echo_interval(cell: &Cell) -> Duration {
    match cell.rate_bit_per_s() {
        ..10e6 => Duration::from_millis(400),
        _ => Duration::from_millis(80),
    }
}

async fn load(
    network: Arc<Network>,
    told: Option<u64>,
    seed: u64,
    window_s: (u64, u64),
    interval: Duration,
) -> Result<Load, String> {
    let tunnel = Pair::new(&network, 1, 0, told, seed)?.dial().await?;
    tunnel.bulk(Way::Forward, BULK_PORT, None)?;
    let echoes = Echoes::start(&network, &tunnel, ECHO_PORT, interval, seed)?;
    let start_ns = network.now_ns();
    let trace = Trace::record(&network, &tunnel, window_s.1).await;
    tunnel.standing()?;
    let from_ns = start_ns + window_s.0 * 1_000_000_000;
    let echoes_ms = echoes.since(from_ns, network.now_ns());
    Ok(Load {
        trace,
        window_s,
        echoes_ms,
    })
}

/// A cell of the matrix against its targets.
pub fn figures(cell: &Cell, knowledge: Knowledge, load: &Load) -> Vec<Figure> {
    let is_told = knowledge == Knowledge::Told;
    let is_slow = cell.rate_bit_per_s() < 10e6;
    let queue_ms = match (is_told, is_slow) {
        (true, _) => 5.0,
        (false, true) => 40.0,
        (false, false) => 15.0,
    };
    let base_ms = echo::base_ms(cell);
    let grace_ms = 15.0
        + if is_slow {
            cell.sending_ms(3 * 1514)
        } else {
            0.0
        };
    let echo = Figure::new("echo_p95", "ms", echo::percentile(&load.echoes_ms, 95)).limit(base_ms);
    vec![
        goodput(cell, load, if is_told { 0.97 } else { 0.95 }),
        Figure::new("queue_mean", "ms", load.queue_mean_ms()).at_most(queue_ms),
        match is_told {
            true => echo.at_most(base_ms + grace_ms),
            false => echo,
        },
        Figure::new("dropped", "%", load.dropped_share() * 100.0),
    ]
}

/// A link that is no cell of the matrix: only the goodput has a target.
pub fn odd_figures(cell: &Cell, load: &Load, share: f64) -> Vec<Figure> {
    vec![
        goodput(cell, load, share),
        Figure::new("queue_mean", "ms", load.queue_mean_ms()),
        Figure::new("echo_p95", "ms", echo::percentile(&load.echoes_ms, 95))
            .limit(echo::base_ms(cell)),
        Figure::new("dropped", "%", load.dropped_share() * 100.0),
    ]
}

fn goodput(cell: &Cell, load: &Load, share: f64) -> Figure {
    let limit_mbit = cell.reachable_bit_per_s() / 1e6;
    let (from_s, to_s) = load.window_s;
    Figure::new("goodput", "Mbit/s", load.goodput_mbit())
        .limit(limit_mbit)
        .at_least(share * limit_mbit)
        .detail("measured", format!("seconds {from_s} to {to_s}"))
        .detail("link", cell.words.as_str())
}
