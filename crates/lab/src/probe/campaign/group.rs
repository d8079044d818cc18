//! Runs of one direction and window: their distribution, how often which rate,
//! and their course.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Run;
use crate::probe::sweep::window_rate_bit_per_s;
use crate::probe::tcp_test::Direction;

/// Most points of a time series: more runs share points.
const POINTS_MAX: u32 = 400;
/// About so many bars has a histogram.
const BARS: f64 = 30.0;

/// Some numbers by their order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// The least.
    pub min: f64,
    /// One in twenty is below.
    pub p5: f64,
    /// One in two is below.
    pub median: f64,
    /// One in twenty is above.
    pub p95: f64,
    /// The greatest.
    pub max: f64,
    /// Their mean.
    pub mean: f64,
}

impl Distribution {
    /// Of numbers in order; between neighbours where need be. `None` of none.
    fn of_sorted(sorted: &[f64]) -> Option<Self> {
        let at = |share: f64| {
            let place = share * sorted.len().checked_sub(1)? as f64;
            let below = *sorted.get(place.floor() as usize)?;
            let above = *sorted.get(place.ceil() as usize)?;
            Some(below + (above - below) * place.fract())
        };
        Some(Self {
            min: at(0.0)?,
            p5: at(0.05)?,
            median: at(0.5)?,
            p95: at(0.95)?,
            max: at(1.0)?,
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
        })
    }

    fn scaled(self, by: f64) -> Self {
        Self {
            min: self.min * by,
            p5: self.p5 * by,
            median: self.median * by,
            p95: self.p95 * by,
            max: self.max * by,
            mean: self.mean * by,
        }
    }
}

/// Runs that reached a rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bar {
    /// From this rate on, bit/s.
    pub from_bit_per_s: f64,
    /// Up to this one.
    pub to_bit_per_s: f64,
    /// How many.
    pub runs: u32,
}

/// Runs that followed each other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// The first run.
    pub first_run: u32,
    /// The last one.
    pub last_run: u32,
    /// How many of this group reached a rate.
    pub runs: u32,
    /// How many of it failed.
    pub failed: u32,
    /// Least rate, bit/s.
    pub min_bit_per_s: Option<f64>,
    /// Median rate, bit/s.
    pub median_bit_per_s: Option<f64>,
    /// Greatest rate, bit/s.
    pub max_bit_per_s: Option<f64>,
    /// UDP: median share of datagrams that did not come, percent.
    pub median_lost_percent: Option<f64>,
    /// UDP: greatest share, percent.
    pub max_lost_percent: Option<f64>,
}

/// Share of the circuit's rate that was payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Utilisation {
    /// Percent of the circuit's rate.
    pub percent: Distribution,
    /// Share of runs, failed ones included, that reached at least 0, 1, 2 ...
    /// 100 percent; in percent.
    pub reached_percent: Vec<f64>,
}

/// Runs of one direction and window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// Which way.
    pub direction: Direction,
    /// Window asked for; null is whatever the hosts do by themselves.
    pub window_bytes: Option<u32>,
    /// Runs that reached a rate.
    pub runs: u32,
    /// Runs that failed.
    pub failed: u32,
    /// Payload rate, bit/s.
    pub bit_per_s: Option<Distribution>,
    /// Against the circuit's rate, where that was told.
    pub utilisation: Option<Utilisation>,
    /// Mean of what the window advertised allows in the run's least round
    /// trip, bit/s.
    pub window_rate_bit_per_s: Option<f64>,
    /// Mean share of the time in which the window was the limit, percent.
    pub window_limited_percent: Option<f64>,
    /// Least round trip of all, microseconds.
    pub min_rtt_us: Option<u64>,
    /// Share of segments sent again, percent.
    pub retransmitted_percent: Option<f64>,
    /// UDP: share of a run's datagrams that did not come, percent.
    pub lost_percent: Option<Distribution>,
    /// UDP: share of datagrams that came after a later one, percent; iperf3
    /// does not tell.
    pub reordered_percent: Option<f64>,
    /// UDP: mean jitter of a run, microseconds.
    pub jitter_us: Option<f64>,
    /// How often which rate was reached; the bars of all groups are the same.
    pub histogram: Vec<Bar>,
    /// One after the other, at most 400 points.
    pub series: Vec<Point>,
}

/// A run that reached a rate.
#[derive(Debug, Clone, Copy)]
struct Reached {
    run: u32,
    lost_percent: Option<f32>,
    bit_per_s: u64,
}

/// A sum of some runs, with how many they were.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    runs: u32,
}

impl Mean {
    fn take(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.runs += 1;
        }
    }

    fn value(self) -> Option<f64> {
        (self.runs > 0).then(|| self.sum / f64::from(self.runs))
    }
}

/// How many of how many.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    counted: u64,
    of: u64,
}

impl Share {
    fn take(&mut self, counted: Option<u64>, of: Option<u64>) {
        if let Some((counted, of)) = counted.zip(of) {
            self.counted = self.counted.saturating_add(counted);
            self.of = self.of.saturating_add(of);
        }
    }

    fn percent(self) -> Option<f64> {
        (self.of > 0).then(|| self.counted as f64 * 100.0 / self.of as f64)
    }
}

/// What is kept of a group's runs while they are read: some bytes of each.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) direction: Direction,
    pub(super) window_bytes: Option<u32>,
    reached: Vec<Reached>,
    failed: Vec<u32>,
    window_rates: Mean,
    limited_percent: Mean,
    min_rtt_us: Option<u64>,
    sent_again: Share,
    reordered: Share,
    jitter_us: Mean,
}

impl Collected {
    pub(super) fn new(direction: Direction, window_bytes: Option<u32>) -> Self {
        Self {
            direction,
            window_bytes,
            reached: Vec::new(),
            failed: Vec::new(),
            window_rates: Mean::default(),
            limited_percent: Mean::default(),
            min_rtt_us: None,
            sent_again: Share::default(),
            reordered: Share::default(),
            jitter_us: Mean::default(),
        }
    }

    pub(super) fn take(&mut self, run: &Run) {
        let Some(way) = run.way(self.direction) else {
            self.failed.push(run.run);
            return;
        };
        self.reached.push(Reached {
            run: run.run,
            lost_percent: way.lost_percent().map(|percent| percent as f32),
            bit_per_s: way.bit_per_s,
        });
        let window = way.advertised_bytes.zip(way.min_rtt_us);
        let rate = window.and_then(|(bytes, rtt_us)| window_rate_bit_per_s(bytes, rtt_us));
        self.window_rates.take(rate);
        self.limited_percent
            .take(way.window_limited_percent.map(f64::from));
        let round_trips = self.min_rtt_us.into_iter().chain(way.min_rtt_us);
        self.min_rtt_us = round_trips.min();
        self.sent_again
            .take(way.retransmitted_segments, way.data_segments);
        self.reordered.take(way.reordered, way.datagrams);
        self.jitter_us.take(way.jitter_us.map(|us| us as f64));
    }

    pub(super) fn group(
        &self,
        circuit_bit_per_s: Option<u64>,
        bars: &Bars,
        runs_done: u32,
    ) -> Group {
        let sorted = rates_of(&self.reached);
        let bit_per_s = Distribution::of_sorted(&sorted);
        let circuit = circuit_bit_per_s
            .filter(|rate| *rate > 0)
            .map(|rate| rate as f64);
        let utilisation = bit_per_s.zip(circuit).map(|(rates, circuit)| Utilisation {
            percent: rates.scaled(100.0 / circuit),
            reached_percent: reached(&sorted, self.failed.len(), circuit),
        });
        Group {
            direction: self.direction,
            window_bytes: self.window_bytes,
            runs: self.reached.len() as u32,
            failed: self.failed.len() as u32,
            bit_per_s,
            utilisation,
            window_rate_bit_per_s: self.window_rates.value(),
            window_limited_percent: self.limited_percent.value(),
            min_rtt_us: self.min_rtt_us,
            retransmitted_percent: self.sent_again.percent(),
            lost_percent: Distribution::of_sorted(&losses_of(&self.reached)),
            reordered_percent: self.reordered.percent(),
            jitter_us: self.jitter_us.value(),
            histogram: bars.count(&sorted),
            series: self.series(runs_done),
        }
    }

    fn series(&self, runs_done: u32) -> Vec<Point> {
        let together = runs_done.div_ceil(POINTS_MAX).max(1);
        let point_of = |run: u32| run.saturating_sub(1) / together;
        let mut reached = self
            .reached
            .chunk_by(|a, b| point_of(a.run) == point_of(b.run))
            .peekable();
        let mut failed = self
            .failed
            .chunk_by(|a, b| point_of(*a) == point_of(*b))
            .peekable();
        let mut series = Vec::new();
        for number in 0..runs_done.div_ceil(together) {
            let is_here = |run: Option<u32>| run.is_some_and(|run| point_of(run) == number);
            let here = reached.next_if(|chunk| is_here(chunk.first().map(|one| one.run)));
            let lost = failed.next_if(|chunk| is_here(chunk.first().copied()));
            if here.is_none() && lost.is_none() {
                continue;
            }
            let here = here.unwrap_or_default();
            let all = Distribution::of_sorted(&rates_of(here));
            let losses = Distribution::of_sorted(&losses_of(here));
            series.push(Point {
                first_run: number * together + 1,
                last_run: ((number + 1) * together).min(runs_done),
                runs: here.len() as u32,
                failed: lost.map_or(0, |lost| lost.len() as u32),
                min_bit_per_s: all.map(|all| all.min),
                median_bit_per_s: all.map(|all| all.median),
                max_bit_per_s: all.map(|all| all.max),
                median_lost_percent: losses.map(|all| all.median),
                max_lost_percent: losses.map(|all| all.max),
            });
        }
        series
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn rates_of(reached: &[Reached]) -> Vec<f64> {
    sorted(reached.iter().map(|one| one.bit_per_s as f64))
}

fn losses_of(reached: &[Reached]) -> Vec<f64> {
    let losses = reached.iter().filter_map(|one| one.lost_percent);
    sorted(losses.map(f64::from))
}

fn reached(sorted: &[f64], failed: usize, circuit: f64) -> Vec<f64> {
    let all = (sorted.len() + failed).max(1) as f64;
    let at_least = |percent: u32| {
        let rate = circuit * f64::from(percent) / 100.0;
        // At 0 everything counts, what failed has carried nothing.
        let below = sorted.partition_point(|value| *value < rate);
        match percent {
            0 => 100.0,
            _ => (sorted.len() - below) as f64 * 100.0 / all,
        }
    };
    (0..=100).map(at_least).collect()
}

/// Bars of a histogram, of round width.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bars {
    first: f64,
    width: f64,
    count: u32,
}

impl Bars {
    /// The same for all groups.
    pub(super) fn of(groups: &[Collected]) -> Self {
        let rates = || {
            let reached = groups.iter().flat_map(|group| &group.reached);
            reached.map(|one| one.bit_per_s)
        };
        match rates().min().zip(rates().max()) {
            Some((least, most)) => Self::over(least as f64, most as f64),
            None => Self {
                first: 0.0,
                width: 1.0,
                count: 0,
            },
        }
    }

    fn over(least: f64, most: f64) -> Self {
        let span = if most > least { most - least } else { most };
        let width = round_step(span / BARS);
        let first = (least / width).floor() * width;
        let count = ((most - first) / width).floor().min(2.0 * BARS) as u32 + 1;
        Self {
            first,
            width,
            count,
        }
    }

    fn count(&self, sorted: &[f64]) -> Vec<Bar> {
        let edge = |number: u32| self.first + f64::from(number) * self.width;
        let bar = |number: u32| {
            let (from, to) = (edge(number), edge(number + 1));
            let is_last = number + 1 == self.count;
            let below = sorted.partition_point(|value| *value < from);
            let until = sorted.partition_point(|value| is_last || *value < to);
            Bar {
                from_bit_per_s: from,
                to_bit_per_s: to,
                runs: until.saturating_sub(below) as u32,
            }
        };
        (0..self.count).map(bar).collect()
    }
}

/// The next 1, 2, 2.5, 5 or 10 times a power of ten.
pub(super) fn round_step(least: f64) -> f64 {
    let least = least.max(1e-9);
    let power = 10_f64.powi(least.log10().floor() as i32);
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0];
    let found = nice.into_iter().find(|nice| nice * power >= least * 0.999);
    found.unwrap_or(10.0) * power
}
