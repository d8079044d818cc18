//! Fresh random data, without and with reduction in turn: what it costs to find out that nothing can be done.

use super::row::{Fetched, Level, Link, Protocol};
use super::{Fetches, Group, RANDOM};
use crate::error::LabError;
use crate::measurement::{Op, Row, median};

/// Each fetch would take the whole link for so long.
pub(super) const SECONDS: u64 = 12;
/// Fetches without and with it.
pub(super) const PAIRS: usize = 3;
/// With reduction it may be so much slower than without.
const SHARE_MIN: f64 = 0.99;
const LEVELS: [Level; 2] = [Level::Transport, Level::First];

impl Fetches<'_> {
    pub(super) fn random(&mut self, link: Link) -> Result<(), LabError> {
        let mut lab = self.lab(Some(&link))?;
        let scenario = Group::Random(link).name();
        let mut fetched = [Vec::new(), Vec::new()];
        let mut failed = None;
        for _ in 0..PAIRS {
            for (level, fetched) in LEVELS.into_iter().zip(&mut fetched) {
                self.place.random(link.bytes_in(SECONDS))?;
                self.gateways(&mut lab, level)?;
                let label = format!("{scenario}, {}", level.word());
                match self.one(&lab, &label, (Protocol::Http, RANDOM))? {
                    Ok(one) => fetched.push(one),
                    Err(error) => failed = Some((level, error)),
                }
            }
        }
        self.measurement
            .rows
            .extend(rows(&link, &scenario, &fetched));
        let failed = failed.map(|(level, error)| {
            Row::failed(&scenario, level.word(), "effective", "Mbit/s", error)
        });
        self.measurement.rows.extend(failed);
        lab.down()
    }
}

/// Rates and processor time at both levels, and one held against the other.
fn rows(link: &Link, scenario: &str, fetched: &[Vec<Fetched>; 2]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut middles = Vec::new();
    for (level, fetched) in LEVELS.into_iter().zip(fetched) {
        let of = |metric: &str, unit: &str, samples: &[f64]| {
            Row::of_samples(scenario, level.word(), metric, unit, samples)
        };
        let rates: Vec<f64> = fetched.iter().map(Fetched::mbit_per_s).collect();
        let cpu = fetched.iter().filter_map(Fetched::cpu_seconds_per_gb);
        rows.push(of("effective", "Mbit/s", &rates).limit(link.limit_mbit()));
        rows.push(of("gateways_cpu", "s/GB", &cpu.collect::<Vec<_>>()));
        middles.extend(median(&rates));
    }
    if let [without, with] = middles[..] {
        let share = with / without;
        let share = Row::of(scenario, LEVELS[1].word(), "of_transport", "x", share);
        rows.push(share.target(Op::AtLeast, SHARE_MIN));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fetches::row::LINKS;

    #[test]
    fn the_middle_one_counts() {
        let of = |seconds: f64| Fetched {
            seconds,
            bytes: 1_000_000,
            wire_bytes: None,
            cpu_seconds: Some(0.004),
        };
        let fetched = [
            [1.0, 1.0, 9.0].map(of).to_vec(),
            [1.02, 1.02, 0.5].map(of).to_vec(),
        ];
        let rows = rows(&LINKS[0], "T3/random", &fetched);
        let shares: Vec<_> = rows
            .iter()
            .filter(|row| row.metric == "of_transport")
            .collect();
        assert_eq!(shares.len(), 1);
        assert_eq!(shares[0].ok, Some(false), "two per cent slower");
        assert_eq!(rows[1].value, Some(4.0));
    }
}
