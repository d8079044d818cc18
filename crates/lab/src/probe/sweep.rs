//! Throughput by window size: what window / RTT predicts, and what came of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::error::ProbeError;
use super::observe::{TcpResult, TcpWay};
use super::tcp_test::{Direction, TcpPlan};

/// The smallest window, and the least that can be asked for as the largest.
pub const FIRST_BYTES: u32 = 8 << 10;

/// One window size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepStep {
    /// Which way: up or down. With both at a time, each has a step of its own.
    pub direction: Direction,
    /// Window asked for; null is whatever the hosts do by themselves.
    pub window_bytes: Option<u32>,
    /// Greatest window the receiver advertised in the second half.
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

/// From 8 KB in doublings up to a size, or to twice what the circuit holds; and
/// without a limit, last in what came of it.
pub(crate) fn sweep(
    client: &mut Client,
    direction: Direction,
    largest_bytes: Option<u32>,
    duration_ms: u64,
    steps: &mut Vec<SweepStep>,
) -> Result<(), ProbeError> {
    let mut step = |window_bytes: Option<u32>| {
        client.check_stop()?;
        let mut plan = TcpPlan::new(direction, duration_ms);
        plan.window_bytes = window_bytes;
        client.tcp(&plan).map(|result| of(&plan, &result))
    };
    // First, for it shows what the circuit holds.
    steps.extend(step(None)?);
    let largest_bytes = largest_bytes.unwrap_or_else(|| twice_held_bytes(steps));
    let doubled = |bytes: &u32| bytes.checked_mul(2);
    let windows = std::iter::successors(Some(FIRST_BYTES), doubled)
        .take_while(|bytes| *bytes <= largest_bytes.max(FIRST_BYTES));
    for window_bytes in windows {
        steps.extend(step(Some(window_bytes))?);
    }
    steps.sort_by_key(|step| step.window_bytes.unwrap_or(u32::MAX));
    Ok(())
}

/// One step, or one for each direction.
fn of(plan: &TcpPlan, result: &TcpResult) -> Vec<SweepStep> {
    let ways = [(Direction::Up, &result.up), (Direction::Down, &result.down)];
    let of_way = |(direction, way): (Direction, &Option<TcpWay>)| {
        way.as_ref().map(|way| step_of(plan, direction, way))
    };
    ways.into_iter().filter_map(of_way).collect()
}

fn step_of(plan: &TcpPlan, direction: Direction, way: &TcpWay) -> SweepStep {
    let figures = &way.figures;
    SweepStep {
        direction,
        window_bytes: plan.window_bytes,
        advertised_bytes: figures.send_window_steady_bytes,
        min_rtt_us: figures.min_rtt_us,
        predicted_bit_per_s: window_rate_bit_per_s(
            figures.send_window_steady_bytes,
            figures.min_rtt_us,
        ),
        measured_bit_per_s: way.steady_bit_per_s,
        window_limited: figures.receive_window_limited,
    }
}

/// The first of the doublings that is no less than twice what was on its way
/// without a limit, in whichever direction: a window that is surely none.
fn twice_held_bytes(unlimited: &[SweepStep]) -> u32 {
    const LEAST_KNOWN_BYTES: u32 = 1 << 20;
    const MOST_BYTES: u32 = 256 << 20;
    let held = |step: &SweepStep| Some(step.measured_bit_per_s? * step.min_rtt_us as f64 / 8e6);
    let held_bytes = unlimited.iter().filter_map(held).reduce(f64::max);
    let held_bytes = held_bytes.filter(|bytes| *bytes > 0.0);
    let twice = held_bytes.map(|bytes| (bytes * 2.0).min(f64::from(MOST_BYTES)) as u32);
    // A power of two itself: the next one exists.
    twice.map_or(LEAST_KNOWN_BYTES, u32::next_power_of_two)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_a_round_trip() {
        assert_eq!(window_rate_bit_per_s(8192, 10_000), Some(6_553_600.0));
        assert_eq!(window_rate_bit_per_s(8192, 0), None);
    }

    #[test]
    fn a_sweep_ends_above_what_the_circuit_holds() {
        let unlimited = |measured_bit_per_s, min_rtt_us| SweepStep {
            direction: Direction::Up,
            window_bytes: None,
            advertised_bytes: 0,
            min_rtt_us,
            predicted_bit_per_s: None,
            measured_bit_per_s,
            window_limited: 0.0,
        };
        for (rate, rtt_us, expected) in [
            // 250 000 bytes, 12 500, none, and more than any window.
            (Some(50e6), 40_000, 512 << 10),
            (Some(10e6), 10_000, 32 << 10),
            (None, 40_000, 1 << 20),
            (Some(0.0), 40_000, 1 << 20),
            (Some(1e300), 40_000, 256 << 20),
        ] {
            let step = unlimited(rate, rtt_us);
            assert_eq!(twice_held_bytes(&[step]), expected, "{rate:?}");
        }
        assert_eq!(twice_held_bytes(&[]), 1 << 20);
        let both = [unlimited(Some(10e6), 10_000), unlimited(Some(50e6), 40_000)];
        assert_eq!(twice_held_bytes(&both), 512 << 10);
    }
}
