//! Results of one configuration and load over all seeds.

use std::collections::BTreeMap;

use crate::plan::{Point, PointResult};
use crate::statistics::Samples;

/// A mean over seeds with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Mean over seeds.
    pub mean: f64,
    /// Half the width of the 95 % interval; `None` of a single seed.
    pub confidence: Option<f64>,
    /// The greatest of any seed.
    pub max: f64,
}

/// One configuration at one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The point, with the first seed.
    pub point: Point,
    /// Its runs.
    pub results: Vec<PointResult>,
}

/// All results, one group for each configuration and load, in the plan's order.
pub fn groups(results: &[PointResult]) -> Vec<Group> {
    let mut places: BTreeMap<(String, u64), usize> = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for result in results {
        let key = (result.point.config(), result.point.load_mbit.to_bits());
        let place = *places.entry(key).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.results.push(result.clone()),
            None => groups.push(Group {
                point: result.point.clone(),
                results: vec![result.clone()],
            }),
        }
    }
    groups
}

impl Group {
    /// Of one number of each run; runs without it are left out.
    pub fn estimate(&self, number: impl Fn(&PointResult) -> Option<f64>) -> Option<Estimate> {
        let samples = Samples::of(self.results.iter().filter_map(number));
        Some(Estimate {
            mean: samples.mean()?,
            confidence: samples.confidence(),
            max: samples.max()?,
        })
    }

    /// Share of requests without an answer.
    pub fn unanswered_share(&self) -> f64 {
        let sum = |number: fn(&PointResult) -> u64| self.results.iter().map(number).sum::<u64>();
        sum(|result| result.unanswered) as f64 / sum(|result| result.requests).max(1) as f64
    }

    /// The ratio of this group's number to another's, seed by seed: the same
    /// requests through both.
    pub fn ratio(
        &self,
        other: &Self,
        number: impl Fn(&PointResult) -> Option<f64>,
    ) -> Option<Estimate> {
        let of_other: BTreeMap<u64, f64> = other
            .results
            .iter()
            .filter_map(|result| Some((result.point.seed, number(result)?)))
            .collect();
        let ratios = self.results.iter().filter_map(|result| {
            let below = of_other.get(&result.point.seed)?;
            Some(number(result)? / below)
        });
        let samples = Samples::of(ratios);
        Some(Estimate {
            mean: samples.mean()?,
            confidence: samples.confidence(),
            max: samples.max()?,
        })
    }
}
