//! One transfer from its first byte to its end, start and tail included.

use std::sync::Arc;
use std::time::Duration;

use farhaul_gateway::session::SessionEnd;
use tokio::time::sleep;

use super::cell::{Cell, Knowledge};
use super::clock;
use super::figure::Figure;
use super::network::{Network, Way};
use super::trace::Trace;
use super::tunnel::{Pair, Tunnel};

/// Length of the transfer if it had the whole link.
pub const IDEAL_S: f64 = 60.0;
/// What a tunnel does before: nothing but keep-alives.
const IDLE: Duration = Duration::from_secs(5);
/// Bulk in an earlier tunnel between the same gateways.
const EARLIER: Duration = Duration::from_secs(30);
const PATIENCE_S: u64 = 1200;

/// What the tunnel has behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// It stands and has carried nothing.
    Idle,
    /// It is new; an earlier one to the same peer carried bulk and was closed.
    Returning,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Transfer {
    /// Payload.
    pub bytes: u64,
    /// From the first write to the clean end at the receiver.
    pub took: Duration,
    /// Second by second, from the first write on.
    pub trace: Trace,
}

impl Transfer {
    /// Payload over the whole time.
    pub fn bit_per_s(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.took.as_secs_f64()
    }
}

/// The least time: sending, one way, and as many rounds of retransmission as
/// it takes until nothing of the last round trip is missing.
pub fn least_s(cell: &Cell) -> f64 {
    let rtt_s = cell.rtt().as_secs_f64();
    let in_flight = (cell.rate_bit_per_s() * rtt_s / 8.0 / 1514.0).max(1.0);
    let rounds = match cell.loss() {
        0.0 => 0.0,
        loss => in_flight.ln() / -loss.ln(),
    };
    IDEAL_S + rtt_s / 2.0 + rtt_s * rounds
}

/// Runs one transfer.
pub fn run(cell: &Cell, knowledge: Knowledge, past: Past, seed: u64) -> Result<Transfer, String> {
    let bytes = (cell.reachable_bit_per_s() * IDEAL_S / 8.0) as u64;
    let limit = Duration::from_secs(PATIENCE_S + 120);
    let told = knowledge.of(cell);
    clock::run(cell.link.clone(), seed, limit, |network| async move {
        let pair = Pair::new(&network, 1, 0, told, seed)?;
        let tunnel = match past {
            Past::Idle => pair.dial().await?,
            Past::Returning => again(&pair).await?,
        };
        if past == Past::Idle {
            sleep(IDLE).await;
        }
        transfer(&network, &tunnel, bytes).await
    })
}

async fn again(pair: &Pair) -> Result<Tunnel, String> {
    let earlier = pair.dial().await?;
    earlier.bulk(Way::Forward, 1, None)?;
    sleep(EARLIER).await;
    earlier.near.session.close(SessionEnd::Closed);
    sleep(IDLE).await;
    pair.dial().await
}

async fn transfer(network: &Arc<Network>, tunnel: &Tunnel, bytes: u64) -> Result<Transfer, String> {
    let start_ns = network.now_ns();
    let received = tunnel.bulk(Way::Forward, 2, Some(bytes))?;
    let is_done = || received.end_ns().is_some();
    let trace = Trace::record_until(network, tunnel, PATIENCE_S, is_done).await;
    let end_ns = received.end_ns().ok_or_else(|| {
        let arrived = received.bytes();
        format!("{arrived} of {bytes} bytes after {PATIENCE_S} s")
    })?;
    Ok(Transfer {
        bytes: received.bytes(),
        took: Duration::from_nanos(end_ns - start_ns),
        trace,
    })
}

/// A transfer against its target, or against the least time it can take.
pub fn figures(cell: &Cell, knowledge: Knowledge, past: Past, transfer: &Transfer) -> Vec<Figure> {
    let limit_mbit = cell.reachable_bit_per_s() / 1e6;
    let share: f64 = match (past, knowledge) {
        (Past::Idle, Knowledge::Untold) => 0.93,
        (Past::Idle, Knowledge::Told) => 0.95,
        (Past::Returning, _) => 0.90,
    };
    let least_s = least_s(cell);
    let (bytes, took_s) = (transfer.bytes, transfer.took.as_secs_f64());
    let words = format!("{bytes} bytes in {took_s:.2} s; at least {least_s:.2} s");
    vec![
        Figure::new("goodput", "Mbit/s", transfer.bit_per_s() / 1e6)
            .limit(limit_mbit)
            .at_least(share.min(IDEAL_S / least_s) * limit_mbit)
            .detail("measured", words),
    ]
}
