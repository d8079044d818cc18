//! RFC 6349's three figures: transfer time ratio, TCP efficiency, buffer delay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tcp_test::Direction;

/// Of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// Which way.
    pub direction: Direction,
    /// Actual transfer time by the ideal one (RFC 6349 4.1); 1 is best.
    pub transfer_time_ratio: Option<f64>,
    /// Share of bytes that were not sent again (RFC 6349 4.2), percent.
    pub tcp_efficiency_percent: f64,
    /// Growth of the round trip under load (RFC 6349 4.3), percent.
    pub buffer_delay_percent: Option<f64>,
}

impl Figures {
    /// From a test's payload rate, the circuit's, the share sent again, and
    /// the round trips.
    pub fn of(
        direction: Direction,
        actual_bit_per_s: Option<f64>,
        ideal_bit_per_s: Option<f64>,
        retransmitted: f64,
        (idle_us, loaded_us): (Option<u64>, f64),
    ) -> Self {
        let ratio = |above: f64, below: f64| (below > 0.0).then(|| above / below);
        let time_ratio = ideal_bit_per_s.zip(actual_bit_per_s);
        let delay = |idle: u64| ratio((loaded_us - idle as f64) * 100.0, idle as f64);
        Self {
            direction,
            transfer_time_ratio: time_ratio.and_then(|(ideal, actual)| ratio(ideal, actual)),
            tcp_efficiency_percent: (1.0 - retransmitted).clamp(0.0, 1.0) * 100.0,
            buffer_delay_percent: idle_us.and_then(delay),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rfcs_own_examples() {
        // RFC 6349 4.1: 500 Mbit/s achievable taken as ideal, 4 times slower; 4.2: 2 of 102;
        // 4.3: 25 ms becomes 32 ms.
        let figures = Figures::of(
            Direction::Up,
            Some(125e6),
            Some(500e6),
            2.0 / 102.0,
            (Some(25_000), 32_000.0),
        );
        assert_eq!(figures.transfer_time_ratio, Some(4.0));
        assert!((figures.tcp_efficiency_percent - 98.03).abs() < 0.01);
        assert_eq!(figures.buffer_delay_percent, Some(28.0));
    }

    #[test]
    fn nothing_moved_gives_no_ratio() {
        let figures = Figures::of(Direction::Up, Some(0.0), Some(1e6), 0.0, (Some(0), 0.0));
        assert_eq!(
            (figures.transfer_time_ratio, figures.buffer_delay_percent),
            (None, None)
        );
    }
}
