//! What the runs of a campaign show together: a document whose size does not
//! depend on how many they were.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::group::{Bars, Collected, Group};
use super::{Line, Run, SCHEMA, Start, Subject};
use crate::measurement::rfc3339;
use crate::probe::report::Trouble;

/// More than there are codes; a file of somebody else's may have any.
const FAILURES_MAX: usize = 32;

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
        let bars = Bars::of(&self.groups);
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
    use super::super::Test;
    use super::super::group::Point;
    use super::super::tests::{good, start, start_of, subject_of};
    use super::*;
    use crate::probe::datagram_flow::FlowPlan;
    use crate::probe::tcp_test::Direction;

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
    fn udp_has_loss_order_and_jitter_in_place_of_windows() {
        let plan = FlowPlan::even(Direction::Up, 1000, 8e6, 1.0);
        let start = start_of(subject_of(Test::Udp(plan)), 2000);
        let campaign = summary_of(start, (0..1000).map(|_| Some(8_000_000)));
        let [group] = &campaign.groups[..] else {
            panic!("{campaign:?}")
        };
        // Run n loses n % 10 of a thousand.
        let lost = group.lost_percent.unwrap();
        assert!(
            (lost.mean - 0.45).abs() < 1e-6 && lost.min == 0.0,
            "{lost:?}"
        );
        assert!((lost.max - 0.9).abs() < 1e-6, "{lost:?}");
        assert_eq!(
            (group.reordered_percent, group.jitter_us),
            (Some(0.2), Some(1500.0))
        );
        assert_eq!(
            (group.window_rate_bit_per_s, group.min_rtt_us),
            (None, None)
        );
        assert_eq!(
            (group.window_limited_percent, group.retransmitted_percent),
            (None, None)
        );
        // Three runs a point: 1, 2 and 3 of a thousand.
        let first = group.series.first().unwrap();
        assert!(
            (first.median_lost_percent.unwrap() - 0.2).abs() < 1e-6,
            "{first:?}"
        );
        assert!(
            (first.max_lost_percent.unwrap() - 0.3).abs() < 1e-6,
            "{first:?}"
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
