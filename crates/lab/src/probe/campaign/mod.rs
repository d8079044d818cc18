//! Campaigns: the same TCP test again and again, back to back or at intervals.
//!
//! [`runner`] does the runs, [`record`] keeps each outcome as a line of a file,
//! so that a stopped campaign goes on. [`summary`] is what they show together,
//! of bounded size and a pure function of the lines; [`text`] and [`page`] are
//! the same for people, [`chart`] draws, [`watch`] tells how far it is.

pub mod chart;
pub mod page;
pub mod record;
pub mod runner;
pub mod summary;
pub mod text;
pub mod watch;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::harmless;
use super::observe::TcpWay;
use super::report::{Report, Trouble};
use super::tcp_test::{Direction, TcpPlan};

pub use runner::{CampaignOptions, run, so_far};
pub use summary::Campaign;

/// Name of the format of file and document.
pub const SCHEMA: &str = "farhaul-campaign/1";
/// Most runs of a campaign: some 400 MB of lines.
pub const RUNS_MAX: u32 = 1_000_000;
/// Most windows that take turns.
pub const WINDOWS_MAX: usize = 32;

/// What is tested: two campaigns of the same subject may share a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// Server as it was asked for.
    pub target: String,
    /// Its port.
    pub port: u16,
    /// The test of a run, but for its window.
    pub test: TcpPlan,
    /// Windows that runs take in turn; null is whatever the hosts do by themselves.
    pub windows_bytes: Vec<Option<u32>>,
}

impl Subject {
    /// Says what cannot be done.
    pub fn check(&self) -> Result<(), String> {
        if self.windows_bytes.is_empty() || self.windows_bytes.len() > WINDOWS_MAX {
            return Err(format!("a campaign has 1 to {WINDOWS_MAX} windows"));
        }
        let plans = self.windows_bytes.iter().map(|window| self.plan(*window));
        plans.into_iter().try_for_each(|plan| plan.check())
    }

    /// Window of a run; the first run is number 1.
    pub(crate) fn window_of(&self, run: u32) -> Option<u32> {
        let turns = self.windows_bytes.len().max(1);
        let turn = run.saturating_sub(1) as usize % turns;
        self.windows_bytes.get(turn).copied().flatten()
    }

    pub(crate) fn plan(&self, window_bytes: Option<u32>) -> TcpPlan {
        TcpPlan {
            window_bytes,
            ..self.test.clone()
        }
    }

    /// Directions that are measured.
    pub fn directions(&self) -> Vec<Direction> {
        let both = [Direction::Up, Direction::Down];
        let asked = self.test.direction;
        let is_asked = |direction: &Direction| asked == Direction::Both || asked == *direction;
        both.into_iter().filter(is_asked).collect()
    }
}

/// First line of a file, and another one each time a campaign goes on: the
/// last one counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Start {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of this program.
    pub version: String,
    /// RFC 3339 in UTC.
    pub date: String,
    /// What is tested.
    pub subject: Subject,
    /// Runs wanted in all.
    pub runs: u32,
    /// From the beginning of a run to that of the next; null is back to back.
    pub every_ms: Option<u64>,
    /// Rate of the circuit, bit/s, of which utilisation is a share.
    pub circuit_bit_per_s: Option<u64>,
}

/// One direction of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunWay {
    /// Payload that arrived, all streams, from first to last byte, bit/s.
    pub bit_per_s: u64,
    /// The same over the second half of the run; null where it is too short.
    pub steady_bit_per_s: Option<u64>,
    /// Segments sent again, of the first stream.
    pub retransmitted_segments: u64,
    /// Segments with data, of the first stream.
    pub data_segments: u64,
    /// Least round trip, microseconds.
    pub min_rtt_us: u64,
    /// Window the receiver advertised in the end, bytes.
    pub advertised_bytes: u64,
    /// Share of the second half in which the window was the limit, percent.
    pub window_limited_percent: u8,
}

impl RunWay {
    /// `None` where nothing arrived.
    fn of(way: &TcpWay) -> Option<Self> {
        let whole = |rate: f64| (rate.is_finite() && rate >= 1.0).then_some(rate.round() as u64);
        let figures = &way.figures;
        Some(Self {
            bit_per_s: way.mean_bit_per_s.and_then(whole)?,
            steady_bit_per_s: way.steady_bit_per_s.and_then(whole),
            retransmitted_segments: figures.retransmitted_segments,
            data_segments: figures.data_segments,
            min_rtt_us: figures.min_rtt_us,
            advertised_bytes: figures.send_window_bytes,
            window_limited_percent: (figures.receive_window_limited * 100.0).round() as u8,
        })
    }
}

/// What came of a run: rates, or why there are none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Its number, from 1.
    pub run: u32,
    /// When it began, milliseconds since 1970 by the wall clock.
    pub start_unix_ms: u64,
    /// How long it took with its connections, by the monotonic clock.
    pub took_ms: u64,
    /// Window asked for; null is whatever the hosts do by themselves.
    pub window_bytes: Option<u32>,
    /// From client to server.
    pub up: Option<RunWay>,
    /// From server to client.
    pub down: Option<RunWay>,
    /// Other clients of the server meanwhile, at most.
    pub other_sessions: u32,
    /// Why it failed.
    pub error: Option<Trouble>,
}

impl Run {
    /// Of a test's report. A direction in which nothing arrived is a failure.
    pub(crate) fn of(number: u32, subject: &Subject, report: &Report) -> Self {
        let mut run = Self {
            run: number,
            start_unix_ms: 0,
            took_ms: 0,
            window_bytes: subject.window_of(number),
            up: None,
            down: None,
            other_sessions: report.observations.other_sessions,
            error: report.error.as_ref().map(|trouble| Trouble {
                code: trouble.code.clone(),
                text: harmless(&trouble.text),
            }),
        };
        if run.error.is_some() {
            return run;
        }
        if let Some(test) = report.observations.tcp.first() {
            run.up = test.up.as_ref().and_then(RunWay::of);
            run.down = test.down.as_ref().and_then(RunWay::of);
            run.other_sessions = run.other_sessions.max(test.other_sessions);
        }
        let is_missing = |direction: &Direction| run.way(*direction).is_none();
        if subject.directions().iter().any(is_missing) {
            (run.up, run.down) = (None, None);
            run.error = Some(Trouble {
                code: "silent".to_owned(),
                text: "no payload arrived within the run".to_owned(),
            });
        }
        run
    }

    /// One direction's figures.
    pub fn way(&self, direction: Direction) -> Option<&RunWay> {
        match direction {
            Direction::Down => self.down.as_ref(),
            _ => self.up.as_ref(),
        }
    }
}

/// A line of a campaign's file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// It begins, or goes on.
    Start(Start),
    /// A run is over.
    Run(Run),
}

impl Line {
    /// The schema of a line (JSON Schema 2020-12), indented.
    pub fn schema_text() -> String {
        let schema = schemars::schema_for!(Self);
        format!("{:#}\n", schema.to_value())
    }
}

/// A window's name for people: KB are 1024 bytes.
pub(crate) fn window_name(window_bytes: Option<u32>) -> String {
    match window_bytes {
        None => "hosts' own".to_owned(),
        Some(bytes) if bytes % 1024 == 0 => format!("{} KB", bytes / 1024),
        Some(bytes) => format!("{:.1} KB", f64::from(bytes) / 1024.0),
    }
}

/// A direction's name for people.
pub(crate) fn way_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
        Direction::Both => "both",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn subject(windows_bytes: &[Option<u32>]) -> Subject {
        Subject {
            target: "far <end>".to_owned(),
            port: 5201,
            test: TcpPlan::new(Direction::Up, 100),
            windows_bytes: windows_bytes.to_vec(),
        }
    }

    pub(crate) fn start(windows_bytes: &[Option<u32>], runs: u32) -> Start {
        Start {
            schema: SCHEMA.to_owned(),
            version: "1".to_owned(),
            date: "2026-01-01T00:00:00Z".to_owned(),
            subject: subject(windows_bytes),
            runs,
            every_ms: None,
            circuit_bit_per_s: Some(1_000_000_000),
        }
    }

    pub(crate) fn good(number: u32, subject: &Subject, bit_per_s: u64) -> Run {
        let mut run = Run::of(number, subject, &Report::new("x"));
        run.start_unix_ms = 1_700_000_000_000 + u64::from(number) * 1000;
        run.took_ms = 100;
        run.error = None;
        run.up = Some(RunWay {
            bit_per_s,
            steady_bit_per_s: Some(bit_per_s),
            retransmitted_segments: 1,
            data_segments: 1000,
            min_rtt_us: 10_000,
            advertised_bytes: 65_536,
            window_limited_percent: 50,
        });
        run
    }

    #[test]
    fn windows_take_turns_and_impossible_subjects_are_named() {
        let turns = subject(&[Some(8192), Some(65_536), None]);
        let windows: Vec<_> = (1..=4).map(|run| turns.window_of(run)).collect();
        assert_eq!(windows, [Some(8192), Some(65_536), None, Some(8192)]);
        assert_eq!(turns.check(), Ok(()));
        assert!(subject(&[]).check().unwrap_err().contains("windows"));
        let small = subject(&[None, Some(1)]);
        assert!(small.check().unwrap_err().contains("window in bytes"));
    }

    #[test]
    fn a_report_without_payload_is_a_failed_run() {
        let subject = subject(&[None]);
        let empty = Run::of(7, &subject, &Report::new("x"));
        assert_eq!((empty.run, empty.up), (7, None));
        assert_eq!(empty.error.unwrap().code, "silent");
        let mut failed = Report::new("x");
        failed.error = Some(Trouble {
            code: "lost".to_owned(),
            text: "a\nb".to_owned(),
        });
        let error = Run::of(8, &subject, &failed).error.unwrap();
        assert_eq!((error.code.as_str(), error.text.as_str()), ("lost", "a b"));
    }

    #[test]
    fn windows_have_names() {
        assert_eq!(window_name(Some(65_536)), "64 KB");
        assert_eq!(window_name(Some(87_380)), "85.3 KB");
        assert_eq!(window_name(None), "hosts' own");
    }
}
