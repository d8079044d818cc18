//! Loss on the wire: independent, or in bursts.

use crate::probability::Probability;
use crate::stream::{Purpose, Stream};

/// How packets are lost after they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Loss {
    /// Nothing is lost.
    #[default]
    None,
    /// Every packet is lost with the same probability.
    Bernoulli(Probability),
    /// Two states with a loss probability each (Gilbert 1960, Elliott 1963),
    /// stepped once per packet. netem: `loss gemodel p r 1-h 1-k`.
    GilbertElliott {
        /// Probability of going from the good to the bad state (p).
        to_bad: Probability,
        /// Probability of going from the bad to the good state (r).
        to_good: Probability,
        /// Loss in the bad state (1-h).
        loss_bad: Probability,
        /// Loss in the good state (1-k).
        loss_good: Probability,
    },
}

impl Loss {
    /// Bursts of `mean_length_packets` losing `mean` of all packets: the
    /// simple Gilbert model (everything lost in the bad state). `None` where
    /// no such chain exists: lengths below 1, or so much loss that the gaps
    /// between the bursts would be shorter than one packet.
    pub fn bursts(mean: Probability, mean_length_packets: f64) -> Option<Self> {
        if !mean_length_packets.is_finite() || mean_length_packets < 1.0 {
            return None;
        }
        let leave = 1.0 / mean_length_packets;
        let enter = leave * mean.fraction() / (1.0 - mean.fraction());
        Some(Self::GilbertElliott {
            to_bad: Probability::from_percent(enter * 100.0)?,
            to_good: Probability::from_percent(leave * 100.0)?,
            loss_bad: Probability::ONE,
            loss_good: Probability::ZERO,
        })
    }

    /// Share of packets lost in the long run, from 0 to 1.
    pub fn mean(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Bernoulli(probability) => probability.fraction(),
            Self::GilbertElliott {
                to_bad,
                to_good,
                loss_bad,
                loss_good,
            } => {
                let turns = to_bad.fraction() + to_good.fraction();
                // A chain that never turns stays where it starts: good.
                let bad = if turns > 0.0 {
                    to_bad.fraction() / turns
                } else {
                    0.0
                };
                bad * loss_bad.fraction() + (1.0 - bad) * loss_good.fraction()
            }
        }
    }
}

/// The running loss process of one direction.
#[derive(Debug, Clone)]
pub(crate) struct LossProcess {
    stream: Stream,
    bad: bool,
}

impl LossProcess {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            stream: Stream::new(seed, Purpose::Loss),
            bad: false,
        }
    }

    /// Whether the next packet is lost.
    pub(crate) fn step(&mut self, loss: Loss) -> bool {
        match loss {
            Loss::None => false,
            Loss::Bernoulli(probability) => probability.hit(self.stream.draw()),
            Loss::GilbertElliott {
                to_bad,
                to_good,
                loss_bad,
                loss_good,
            } => {
                let (loss, turn) = if self.bad {
                    (loss_bad, to_good)
                } else {
                    (loss_good, to_bad)
                };
                let lost = loss.hit(self.stream.draw());
                if turn.hit(self.stream.draw()) {
                    self.bad = !self.bad;
                }
                lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: u32 = 1_000_000;

    fn outcomes(loss: Loss) -> Vec<bool> {
        let mut process = LossProcess::new(7);
        (0..PACKETS).map(|_| process.step(loss)).collect()
    }

    fn share(outcomes: &[bool]) -> f64 {
        outcomes.iter().filter(|lost| **lost).count() as f64 / outcomes.len() as f64
    }

    fn mean_burst_packets(outcomes: &[bool]) -> f64 {
        let bursts = outcomes
            .windows(2)
            .filter(|pair| !pair[0] && pair[1])
            .count();
        let lost = outcomes.iter().filter(|lost| **lost).count();
        lost as f64 / bursts as f64
    }

    #[test]
    fn bernoulli_loses_its_share_without_memory() {
        let lost = outcomes(Loss::Bernoulli(Probability::from_percent(1.0).unwrap()));
        // Four standard deviations of a binomial with n = 10^6.
        assert!((share(&lost) - 0.01).abs() < 4.0 * (0.01f64 * 0.99 / 1e6).sqrt());
        // Independent losses come in runs of 1 / (1 - p).
        assert!((mean_burst_packets(&lost) - 1.0 / 0.99).abs() < 0.01);
    }

    #[test]
    fn gilbert_elliott_has_the_mean_loss_and_burst_length_asked_for() {
        let loss = Loss::bursts(Probability::from_percent(2.0).unwrap(), 8.0).unwrap();
        assert!((loss.mean() - 0.02).abs() < 1e-6);
        let lost = outcomes(loss);
        // Bursts make the estimate wider by about sqrt(2 x 8).
        let sigma = (0.02f64 * 0.98 / 1e6).sqrt() * 4.0;
        assert!((share(&lost) - 0.02).abs() < 4.0 * sigma);
        // 2,500 bursts of geometric length: sigma = 8 / sqrt(2500) = 0.16.
        assert!((mean_burst_packets(&lost) - 8.0).abs() < 0.64);
    }

    #[test]
    fn both_states_may_lose() {
        let percent = |value| Probability::from_percent(value).unwrap();
        let loss = Loss::GilbertElliott {
            to_bad: percent(1.0),
            to_good: percent(9.0),
            loss_bad: percent(50.0),
            loss_good: percent(0.1),
        };
        assert!((loss.mean() - (0.1 * 0.5 + 0.9 * 0.001)).abs() < 1e-12);
        assert!((share(&outcomes(loss)) - loss.mean()).abs() < 0.002);
    }

    #[test]
    fn impossible_bursts_are_refused() {
        let percent = |value| Probability::from_percent(value).unwrap();
        assert_eq!(Loss::bursts(percent(1.0), 0.5), None);
        assert_eq!(Loss::bursts(percent(1.0), f64::NAN), None);
        assert_eq!(Loss::bursts(percent(60.0), 1.0), None);
        assert_eq!(Loss::bursts(percent(100.0), 5.0), None);
    }
}
