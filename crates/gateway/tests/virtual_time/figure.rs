//! One number of one run, and the row that several runs' numbers make.

use farhaul_lab::measurement::{Op, Row};

/// One number with what it is held against.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What was measured.
    pub metric: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The number.
    pub value: f64,
    /// Physical bound.
    pub limit: Option<f64>,
    /// What it must reach.
    pub target: Option<(Op, f64)>,
    /// What else is to be known, as words.
    pub details: Vec<(&'static str, String)>,
}

impl Figure {
    /// A number alone.
    pub fn new(metric: &'static str, unit: &'static str, value: f64) -> Self {
        Self {
            metric,
            unit,
            value,
            limit: None,
            target: None,
            details: Vec::new(),
        }
    }

    /// With its physical bound.
    pub fn limit(mut self, limit: f64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Must be this much at least.
    pub fn at_least(mut self, target: f64) -> Self {
        self.target = Some((Op::AtLeast, target));
        self
    }

    /// Must be this much at most.
    pub fn at_most(mut self, target: f64) -> Self {
        self.target = Some((Op::AtMost, target));
        self
    }

    /// With words for the reader.
    pub fn detail(mut self, key: &'static str, words: impl Into<String>) -> Self {
        self.details.push((key, words.into()));
        self
    }
}

/// The rows of runs that differ in their seed only; a run that failed makes a
/// row of its own.
pub fn rows(scenario: &str, config: &str, runs: &[Result<Vec<Figure>, String>]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let good: Vec<&Vec<Figure>> = runs.iter().filter_map(|run| run.as_ref().ok()).collect();
    for figure in good.first().into_iter().flat_map(|figures| figures.iter()) {
        let same = |figures: &&Vec<Figure>| {
            let same = figures.iter().find(|other| other.metric == figure.metric);
            same.map(|other| other.value)
        };
        let values: Vec<f64> = good.iter().filter_map(same).collect();
        let mut row = Row::of_samples(scenario, config, figure.metric, figure.unit, &values);
        if let Some(limit) = figure.limit {
            row = row.limit(limit);
        }
        if let Some((op, target)) = figure.target {
            row = row.target(op, target);
        }
        for (key, words) in &figure.details {
            row = row.detail(key, words.as_str());
        }
        rows.push(row);
    }
    for error in runs.iter().filter_map(|run| run.as_ref().err()) {
        rows.push(Row::failed(scenario, config, "run", "", error.as_str()));
    }
    rows
}
