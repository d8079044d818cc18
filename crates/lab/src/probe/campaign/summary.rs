//! What the runs of a campaign show together: a document whose size does not
//! depend on how many they were.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Line, Run, SCHEMA, Start, Subject};
use crate::measurement::rfc3339;
use crate::probe::report::Trouble;
use crate::probe::sweep::window_rate_bit_per_s;
use crate::probe::tcp_test::Direction;

/// Most points of a time series: more runs share points.
const POINTS_MAX: u32 = 400;
/// More than there are codes; a file of somebody else's may have any.
const FAILURES_MAX: usize = 32;
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
    /// How often which rate was reached; the bars of all groups are the same.
    pub histogram: Vec<Bar>,
    /// One after the other, at most 400 points.
    pub series: Vec<Point>,
}

/// Runs that failed for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failures {
    /// Short and stable.
    pub code: String,
    /// How many.
    pub runs: u32,
    /// The first of them.
    pub first_run: u32,
    /// The last one.
    pub last_run: u32,
    /// What was said the last time.
    pub text: String,
}

/// The document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Campaign {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of this program.
    pub version: String,
    /// When this was put together, RFC 3339 in UTC.
    pub date: String,
    /// Where every run's line is.
    pub file: String,
    /// What was tested.
    pub subject: Subject,
    /// Runs wanted.
    pub runs_planned: u32,
    /// From the beginning of a run to that of the next; null is back to back.
    pub every_ms: Option<u64>,
    /// Rate of the circuit, bit/s.
    pub circuit_bit_per_s: Option<u64>,
    /// How often it was begun or gone on with.
    pub starts: u32,
    /// Runs done, failed ones included.
    pub runs_done: u32,
    /// Runs that failed.
    pub runs_failed: u32,
    /// Runs during which the server had other clients.
    pub runs_disturbed: u32,
    /// When the first run began, RFC 3339 in UTC.
    pub first_start: Option<String>,
    /// When the last one began.
    pub last_start: Option<String>,
    /// Why runs failed.
    pub failures: Vec<Failures>,
    /// Rates by direction and window.
    pub groups: Vec<Group>,
    /// Why the campaign did not come to its end.
    pub error: Option<Trouble>,
    /// What the process ends with.
    pub exit_code: u8,
}

impl Campaign {
    /// The schema of this document (JSON Schema 2020-12), indented.
    pub fn schema_text() -> String {
        let schema = schemars::schema_for!(Self);
        format!("{:#}\n", schema.to_value())
    }
}

/// What is kept of a group's runs while they are read: some bytes of each.
#[derive(Debug)]
struct Collected {
    direction: Direction,
    window_bytes: Option<u32>,
    rates: Vec<(u32, u64)>,
    failed: Vec<u32>,
    window_rates: f64,
    window_rates_counted: u32,
    limited_percent: u64,
    min_rtt_us: Option<u64>,
    sent_again: u64,
    sent: u64,
}

impl Collected {
    fn new(direction: Direction, window_bytes: Option<u32>) -> Self {
        Self {
            direction,
            window_bytes,
            rates: Vec::new(),
            failed: Vec::new(),
            window_rates: 0.0,
            window_rates_counted: 0,
            limited_percent: 0,
            min_rtt_us: None,
            sent_again: 0,
            sent: 0,
        }
    }

    fn take(&mut self, run: &Run) {
        let Some(way) = run.way(self.direction) else {
            self.failed.push(run.run);
            return;
        };
        self.rates.push((run.run, way.bit_per_s));
        if let Some(rate) = window_rate_bit_per_s(way.advertised_bytes, way.min_rtt_us) {
            self.window_rates += rate;
            self.window_rates_counted += 1;
        }
        self.limited_percent += u64::from(way.window_limited_percent);
        self.min_rtt_us = Some(
            self.min_rtt_us
                .map_or(way.min_rtt_us, |least| least.min(way.min_rtt_us)),
        );
        self.sent_again = self.sent_again.saturating_add(way.retransmitted_segments);
        self.sent = self.sent.saturating_add(way.data_segments);
    }

    fn sorted_rates(&self) -> Vec<f64> {
        let mut sorted: Vec<f64> = self.rates.iter().map(|(_, rate)| *rate as f64).collect();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn group(&self, circuit_bit_per_s: Option<u64>, bars: &Bars, runs_done: u32) -> Group {
        let sorted = self.sorted_rates();
        let bit_per_s = Distribution::of_sorted(&sorted);
        let counted = self.rates.len() as f64;
        let mean = |sum: f64, of: f64| (of > 0.0).then(|| sum / of);
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
            runs: self.rates.len() as u32,
            failed: self.failed.len() as u32,
            bit_per_s,
            utilisation,
            window_rate_bit_per_s: mean(self.window_rates, self.window_rates_counted.into()),
            window_limited_percent: mean(self.limited_percent as f64, counted),
            min_rtt_us: self.min_rtt_us,
            retransmitted_percent: mean(self.sent_again as f64 * 100.0, self.sent as f64),
            histogram: bars.count(&sorted),
            series: self.series(runs_done),
        }
    }

    fn series(&self, runs_done: u32) -> Vec<Point> {
        let together = runs_done.div_ceil(POINTS_MAX).max(1);
        let point_of = |run: u32| run.saturating_sub(1) / together;
        let mut rates = self
            .rates
            .chunk_by(|a, b| point_of(a.0) == point_of(b.0))
            .peekable();
        let mut failed = self
            .failed
            .chunk_by(|a, b| point_of(*a) == point_of(*b))
            .peekable();
        let mut series = Vec::new();
        for number in 0..runs_done.div_ceil(together) {
            let is_here = |run: Option<u32>| run.is_some_and(|run| point_of(run) == number);
            let here = rates.next_if(|chunk| is_here(chunk.first().map(|(run, _)| *run)));
            let lost = failed.next_if(|chunk| is_here(chunk.first().copied()));
            if here.is_none() && lost.is_none() {
                continue;
            }
            let mut sorted: Vec<f64> = here
                .into_iter()
                .flatten()
                .map(|(_, rate)| *rate as f64)
                .collect();
            sorted.sort_by(f64::total_cmp);
            let all = Distribution::of_sorted(&sorted);
            series.push(Point {
                first_run: number * together + 1,
                last_run: ((number + 1) * together).min(runs_done),
                runs: sorted.len() as u32,
                failed: lost.map_or(0, |lost| lost.len() as u32),
                min_bit_per_s: all.map(|all| all.min),
                median_bit_per_s: all.map(|all| all.median),
                max_bit_per_s: all.map(|all| all.max),
            });
        }
        series
    }
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
struct Bars {
    first: f64,
    width: f64,
    count: u32,
}

impl Bars {
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

/// Takes lines in order, then makes the document.
#[derive(Debug)]
pub struct Summary {
    start: Start,
    starts: u32,
    runs_done: u32,
    runs_failed: u32,
    runs_disturbed: u32,
    first_ms: Option<u64>,
    last_ms: Option<u64>,
    failures: Vec<Failures>,
    groups: Vec<Collected>,
}

impl Summary {
    /// Of a campaign of which nothing has been read yet.
    pub fn new(start: Start) -> Self {
        let mut groups: Vec<Collected> = Vec::new();
        for direction in start.subject.directions() {
            for window in &start.subject.windows_bytes {
                let is_it = |group: &Collected| {
                    group.direction == direction && group.window_bytes == *window
                };
                if !groups.iter().any(is_it) {
                    groups.push(Collected::new(direction, *window));
                }
            }
        }
        Self {
            start,
            starts: 0,
            runs_done: 0,
            runs_failed: 0,
            runs_disturbed: 0,
            first_ms: None,
            last_ms: None,
            failures: Vec::new(),
            groups,
        }
    }

    /// The same campaign with what was asked for later.
    pub fn go_on(&mut self, start: Start) {
        self.start = start;
    }

    /// A line.
    pub fn take(&mut self, line: &Line) {
        match line {
            Line::Start(_) => self.starts += 1,
            Line::Run(run) => self.take_run(run),
        }
    }

    fn take_run(&mut self, run: &Run) {
        self.runs_done = run.run;
        self.first_ms = self.first_ms.or(Some(run.start_unix_ms));
        self.last_ms = Some(run.start_unix_ms);
        self.runs_disturbed += u32::from(run.other_sessions > 0);
        let of_window = |group: &&mut Collected| group.window_bytes == run.window_bytes;
        let groups = self.groups.iter_mut().filter(of_window);
        groups.for_each(|group| group.take(run));
        let Some(trouble) = &run.error else { return };
        self.runs_failed += 1;
        let is_known = |one: &&mut Failures| one.code == trouble.code;
        if let Some(known) = self.failures.iter_mut().find(is_known) {
            known.runs += 1;
            known.last_run = run.run;
            known.text.clone_from(&trouble.text);
        } else if self.failures.len() < FAILURES_MAX {
            self.failures.push(Failures {
                code: trouble.code.clone(),
                runs: 1,
                first_run: run.run,
                last_run: run.run,
                text: trouble.text.clone(),
            });
        }
    }

    /// The document of what was taken so far.
    pub fn campaign(self) -> Campaign {
        let rates = || self.groups.iter().flat_map(|group| &group.rates);
        let least = rates().map(|(_, rate)| *rate).min().unwrap_or(0) as f64;
        let most = rates().map(|(_, rate)| *rate).max();
        let bars = match most {
            Some(most) => Bars::over(least, most as f64),
            None => Bars {
                first: 0.0,
                width: 1.0,
                count: 0,
            },
        };
        let group = |collected: &Collected| {
            collected.group(self.start.circuit_bit_per_s, &bars, self.runs_done)
        };
        let groups = self.groups.iter().map(group).collect();
        let date = |ms: u64| rfc3339(ms / 1000);
        Campaign {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date: crate::measurement::now_text(),
            file: String::new(),
            runs_planned: self.start.runs,
            every_ms: self.start.every_ms,
            circuit_bit_per_s: self.start.circuit_bit_per_s,
            subject: self.start.subject,
            starts: self.starts,
            runs_done: self.runs_done,
            runs_failed: self.runs_failed,
            runs_disturbed: self.runs_disturbed,
            first_start: self.first_ms.map(date),
            last_start: self.last_ms.map(date),
            failures: self.failures,
            groups,
            error: None,
            exit_code: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{good, start};
    use super::*;

    pub(super) fn summary_of(
        start: Start,
        rates: impl IntoIterator<Item = Option<u64>>,
    ) -> Campaign {
        let mut summary = Summary::new(start.clone());
        summary.take(&Line::Start(start.clone()));
        for (number, rate) in (1..).zip(rates) {
            let mut run = good(number, &start.subject, rate.unwrap_or(1));
            if rate.is_none() {
                run.up = None;
                run.error = Some(Trouble {
                    code: "lost".to_owned(),
                    text: format!("run {number}"),
                });
            }
            summary.take(&Line::Run(run));
        }
        summary.campaign()
    }

    #[test]
    fn distribution_utilisation_and_failures() {
        let rates = (1..=100).map(|n| (n != 50).then_some(n * 10_000_000));
        let campaign = summary_of(start(&[None], 200), rates);
        assert_eq!((campaign.runs_done, campaign.runs_failed), (100, 1));
        let [group] = &campaign.groups[..] else {
            panic!("{campaign:?}")
        };
        let rates = group.bit_per_s.unwrap();
        assert_eq!((rates.min, rates.max), (10e6, 1000e6));
        assert_eq!(rates.median, 510e6);
        assert!(
            (rates.p5 - 59e6).abs() < 1e3 && (rates.p95 - 951e6).abs() < 1e3,
            "{rates:?}"
        );
        let utilisation = group.utilisation.as_ref().unwrap();
        assert!((utilisation.percent.median - 51.0).abs() < 1e-9);
        assert_eq!(utilisation.reached_percent.len(), 101);
        assert_eq!(utilisation.reached_percent[0], 100.0);
        // 80 to 100 of a hundred runs.
        assert_eq!(utilisation.reached_percent[80], 21.0);
        // 64 KB in 10 ms.
        assert!((group.window_rate_bit_per_s.unwrap() - 52_428_800.0).abs() < 1.0);
        assert_eq!(group.window_limited_percent, Some(50.0));
        assert!((group.retransmitted_percent.unwrap() - 0.1).abs() < 1e-9);
        let [lost] = &campaign.failures[..] else {
            panic!("{campaign:?}")
        };
        assert_eq!(
            (lost.runs, lost.first_run, lost.text.as_str()),
            (1, 50, "run 50")
        );
    }

    #[test]
    fn every_run_is_in_a_bar_and_in_a_point() {
        for runs in [1_u64, 2, 399, 400, 401, 8755] {
            let rates =
                (0..runs).map(|n| (n % 7 != 3).then_some(900_000_000 + n * 7919 % 50_000_000));
            let campaign = summary_of(start(&[None, Some(65_536)], 9999), rates);
            let good: u32 = campaign.groups.iter().map(|group| group.runs).sum();
            let bars = campaign.groups.iter().flat_map(|group| &group.histogram);
            assert_eq!(bars.map(|bar| bar.runs).sum::<u32>(), good, "{runs}");
            let points: Vec<&Point> = campaign
                .groups
                .iter()
                .flat_map(|group| &group.series)
                .collect();
            let counted: u32 = points.iter().map(|point| point.runs + point.failed).sum();
            assert_eq!(u64::from(counted), runs);
            for group in &campaign.groups {
                assert!(group.series.len() <= 400, "{}", group.series.len());
                assert!(group.histogram.len() <= 40, "{}", group.histogram.len());
                assert!(
                    group
                        .series
                        .windows(2)
                        .all(|two| two[0].last_run < two[1].first_run)
                );
            }
        }
    }

    #[test]
    fn nothing_and_absurd_numbers_make_no_odd_ones() {
        let odd = |rates: &[Option<u64>]| {
            let mut start = start(&[None], 9);
            start.circuit_bit_per_s = Some(0);
            summary_of(start, rates.iter().copied())
        };
        for rates in [
            &[][..],
            &[None],
            &[Some(1)],
            &[Some(u64::MAX), Some(1)],
            &[Some(0)],
        ] {
            let text = serde_json::to_string(&odd(rates)).unwrap();
            let back: Campaign = serde_json::from_str(&text).unwrap();
            // What is not finite would come back as null.
            assert_eq!(back.groups.len(), 1);
            assert!(!text.contains("\"min\":null"), "{text}");
        }
    }
}
