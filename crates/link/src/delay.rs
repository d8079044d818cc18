//! Propagation delay and its variation.

use std::fmt;

use crate::stream::{Purpose, Stream};

/// How the delay varies around its mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Distribution {
    /// Evenly from `delay - jitter` to `delay + jitter`.
    #[default]
    Uniform,
    /// Bell-shaped with `jitter` as standard deviation, never further than
    /// six of them from the mean.
    Normal,
    /// Skewed with a long tail above, as queues elsewhere make it: a Pareto
    /// law with shape 3, shifted so that its mean is `delay` and its standard
    /// deviation `jitter`; cut off at [`PARETO_REACH`] standard deviations.
    Pareto,
}

/// How many times `jitter` the Pareto law may lie above the mean.
pub const PARETO_REACH: u64 = 20;

/// Terms of the sum that approximates the normal law (Irwin-Hall): twelve
/// uniform numbers have variance exactly 1 and reach six from their mean.
const NORMAL_TERMS: u32 = 12;
const NORMAL_REACH: u64 = 6;

impl Distribution {
    /// Every distribution with its name.
    pub(crate) const NAMED: [(&'static str, Self); 3] = [
        ("uniform", Self::Uniform),
        ("normal", Self::Normal),
        ("pareto", Self::Pareto),
    ];

    /// The longest delay this distribution can draw above the mean, in ns.
    pub(crate) fn reach_above_ns(self, jitter_ns: u64) -> u64 {
        jitter_ns.saturating_mul(match self {
            Self::Uniform => 1,
            Self::Normal => NORMAL_REACH,
            Self::Pareto => PARETO_REACH,
        })
    }

    /// The furthest this distribution can draw below the mean, in ns.
    pub(crate) fn reach_below_ns(self, jitter_ns: u64) -> u64 {
        match self {
            // The Pareto law starts at (1 - 1.5) / sqrt(0.75) = -0.577.
            Self::Uniform | Self::Pareto => jitter_ns,
            Self::Normal => jitter_ns.saturating_mul(NORMAL_REACH),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::Pareto => "pareto",
        })
    }
}

/// The running delay process of one direction.
#[derive(Debug, Clone)]
pub(crate) struct DelayProcess(Stream);

impl DelayProcess {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Stream::new(seed, Purpose::Jitter))
    }

    /// Delay of the next packet in ns; never below zero.
    pub(crate) fn step(
        &mut self,
        delay_ns: u64,
        jitter_ns: u64,
        distribution: Distribution,
    ) -> u64 {
        if jitter_ns == 0 {
            return delay_ns;
        }
        let deviation = match distribution {
            Distribution::Uniform => symmetric(self.0.draw()),
            Distribution::Normal => (0..NORMAL_TERMS)
                .map(|_| symmetric(self.0.draw()) / 2.0)
                .sum(),
            Distribution::Pareto => pareto(self.0.draw()),
        };
        let offset_ns = (deviation * jitter_ns as f64).round() as i64;
        delay_ns.saturating_add_signed(offset_ns)
    }
}

/// A draw as a number from -1 to 1.
fn symmetric(draw: u64) -> f64 {
    unit(draw) * 2.0 - 1.0
}

/// A draw as a number from 0 to below 1, with 53 bits.
fn unit(draw: u64) -> f64 {
    (draw >> 11) as f64 / (1u64 << 53) as f64
}

/// Pareto law of shape 3, mean 0 and standard deviation 1.
fn pareto(draw: u64) -> f64 {
    const MEAN: f64 = 1.5;
    let standard_deviation = 0.75f64.sqrt();
    // 1 - unit is above 0, so the root is finite.
    let value = 1.0 / (1.0 - unit(draw)).cbrt();
    ((value - MEAN) / standard_deviation).min(PARETO_REACH as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: usize = 200_000;
    const DELAY_NS: u64 = 100_000_000;
    const JITTER_NS: u64 = 10_000_000;

    /// Mean and standard deviation in ms, least and greatest in ns.
    fn statistics(distribution: Distribution) -> (f64, f64, u64, u64) {
        let mut process = DelayProcess::new(3);
        let samples: Vec<u64> = (0..SAMPLES)
            .map(|_| process.step(DELAY_NS, JITTER_NS, distribution))
            .collect();
        let mean = samples.iter().map(|ns| *ns as f64).sum::<f64>() / SAMPLES as f64;
        let variance = samples
            .iter()
            .map(|ns| (*ns as f64 - mean).powi(2))
            .sum::<f64>()
            / SAMPLES as f64;
        let least = samples.iter().copied().min().unwrap();
        let greatest = samples.iter().copied().max().unwrap();
        (mean / 1e6, variance.sqrt() / 1e6, least, greatest)
    }

    #[test]
    fn uniform_spreads_evenly_between_its_ends() {
        let (mean, deviation, least, greatest) = statistics(Distribution::Uniform);
        assert!((mean - 100.0).abs() < 0.1);
        assert!((deviation - 10.0 / 3f64.sqrt()).abs() < 0.05);
        assert!((90_000_000..90_010_000).contains(&least));
        assert!((109_990_000..=110_000_000).contains(&greatest));
    }

    #[test]
    fn normal_has_the_jitter_as_standard_deviation() {
        let (mean, deviation, least, greatest) = statistics(Distribution::Normal);
        assert!((mean - 100.0).abs() < 0.1);
        assert!((deviation - 10.0).abs() < 0.1);
        assert!((40_000_000..65_000_000).contains(&least));
        assert!(greatest > 135_000_000 && greatest <= 160_000_000);
    }

    #[test]
    fn pareto_is_skewed_but_keeps_the_mean() {
        let (mean, deviation, least, greatest) = statistics(Distribution::Pareto);
        assert!((mean - 100.0).abs() < 0.15);
        assert!((deviation - 10.0).abs() < 1.5);
        assert!(least >= DELAY_NS - 5_780_000);
        assert!(greatest > 200_000_000 && greatest <= DELAY_NS + PARETO_REACH * JITTER_NS);
    }

    #[test]
    fn no_delay_is_negative() {
        let mut process = DelayProcess::new(3);
        let least = (0..1000)
            .map(|_| process.step(1000, 1_000_000, Distribution::Uniform))
            .min();
        assert_eq!(least, Some(0));
    }
}
