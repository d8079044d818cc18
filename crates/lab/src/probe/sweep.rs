//! Throughput by window size: what window / RTT predicts, and what came of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::error::ProbeError;
use super::tcp_test::{Direction, TcpPlan};

/// The smallest window, and the least that can be asked for as the largest.
pub const FIRST_BYTES: u32 = 8 << 10;

/// One window size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepStep {
    /// Which way.
    pub direction: Direction,
    /// Window asked for; null is whatever the hosts do by themselves.
    pub window_bytes: Option<u32>,
    /// Window the receiver advertised.
    pub advertised_bytes: u64,
    /// Least round trip of the stream, microseconds.
    pub min_rtt_us: u64,
    /// The window / round trip, bit/s.
    pub predicted_bit_per_s: Option<f64>,
    /// Payload rate over the second half of the test, bit/s.
    pub measured_bit_per_s: Option<f64>,
    /// Share of the time in which the window was the limit.
    pub window_limited: f64,
}

/// What a window allows. Linux fills a window to its last byte with a short
/// segment; a sender that sends whole segments only stays below this.
pub fn window_rate_bit_per_s(window_bytes: u64, rtt_us: u64) -> Option<f64> {
    (rtt_us > 0).then(|| window_bytes as f64 * 8e6 / rtt_us as f64)
}

/// From 8 KB in doublings up to a size, each for a time, then without a limit.
pub(crate) fn sweep(
    client: &mut Client,
    direction: Direction,
    largest_bytes: u32,
    duration_ms: u64,
    steps: &mut Vec<SweepStep>,
) -> Result<(), ProbeError> {
    let doubled = |bytes: &u32| bytes.checked_mul(2);
    let windows = std::iter::successors(Some(FIRST_BYTES), doubled)
        .take_while(|bytes| *bytes <= largest_bytes.max(FIRST_BYTES));
    for window_bytes in windows.map(Some).chain([None]) {
        client.check_stop()?;
        let mut plan = TcpPlan::new(direction, duration_ms);
        plan.window_bytes = window_bytes;
        let result = client.tcp(&plan)?;
        let Some(way) = result.up.or(result.down) else {
            continue;
        };
        let figures = way.figures;
        let predicted = window_rate_bit_per_s(figures.send_window_bytes, figures.min_rtt_us);
        steps.push(SweepStep {
            direction,
            window_bytes,
            advertised_bytes: figures.send_window_bytes,
            min_rtt_us: figures.min_rtt_us,
            predicted_bit_per_s: predicted,
            measured_bit_per_s: way.steady_bit_per_s,
            window_limited: figures.receive_window_limited,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_a_round_trip() {
        assert_eq!(window_rate_bit_per_s(8192, 10_000), Some(6_553_600.0));
        assert_eq!(window_rate_bit_per_s(8192, 0), None);
    }
}
