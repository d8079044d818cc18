//! Campaigns: the same test again and again, back to back or at intervals: TCP
//! or UDP with our server, or either with iperf3's.
//!
//! [`subject`] is what is tested, [`runner`] does the runs, [`run`](mod@run) is
//! what came of one, [`record`] keeps each as a line of a file, so that a stopped
//! campaign goes on, and `places` keeps that file and the page apart. [`summary`] is what they show together,
//! of bounded size and a pure function of the lines; [`text`] and [`page`] are
//! the same for people, [`chart`] draws, [`watch`] tells how far it is.

pub mod chart;
pub mod group;
pub mod page;
mod places;
pub mod record;
pub mod run;
pub mod runner;
pub mod subject;
pub mod summary;
pub mod text;
pub mod watch;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tcp_test::Direction;

pub use run::{Run, RunWay};
pub use runner::{CampaignOptions, measure, run_all, so_far};
pub use subject::{Subject, Test};
pub use summary::Campaign;

/// Name of the format of file and document.
pub const SCHEMA: &str = "farhaul-campaign/2";
/// Most runs of a campaign: some 400 MB of lines.
pub const RUNS_MAX: u32 = 1_000_000;

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
    use crate::probe::iperf3::Iperf3Plan;
    use crate::probe::report::Report;
    use crate::probe::tcp_test::TcpPlan;

    pub(crate) fn subject(windows_bytes: &[Option<u32>]) -> Subject {
        Subject {
            windows_bytes: windows_bytes.to_vec(),
            ..subject_of(Test::Tcp(TcpPlan::new(Direction::Up, 100)))
        }
    }

    pub(crate) fn subject_of(test: Test) -> Subject {
        Subject {
            target: "far <end>".to_owned(),
            port: 5201,
            test,
            windows_bytes: vec![None],
        }
    }

    pub(crate) fn iperf3_plan(udp: bool) -> Iperf3Plan {
        Iperf3Plan {
            direction: Direction::Up,
            streams: 1,
            duration_s: 1,
            omit_s: 0,
            udp,
            bit_per_s: udp.then_some(5_000_000),
            window_bytes: None,
            mss_bytes: None,
            block_bytes: None,
        }
    }

    pub(crate) fn start(windows_bytes: &[Option<u32>], runs: u32) -> Start {
        start_of(subject(windows_bytes), runs)
    }

    pub(crate) fn start_of(subject: Subject, runs: u32) -> Start {
        Start {
            schema: SCHEMA.to_owned(),
            version: "1".to_owned(),
            date: "2026-01-01T00:00:00Z".to_owned(),
            subject,
            runs,
            every_ms: None,
            circuit_bit_per_s: Some(1_000_000_000),
        }
    }

    /// With what a test of TCP, or of UDP, shows.
    pub(crate) fn good(number: u32, subject: &Subject, bit_per_s: u64) -> Run {
        let mut run = Run::of(number, subject, &Report::new("x"));
        run.start_unix_ms = 1_700_000_000_000 + u64::from(number) * 1000;
        run.took_ms = 100;
        run.error = None;
        let way = RunWay {
            bit_per_s,
            steady_bit_per_s: Some(bit_per_s),
            ..RunWay::default()
        };
        run.up = Some(match subject.test.is_udp() {
            true => RunWay {
                datagrams: Some(1000),
                lost: Some(u64::from(number % 10)),
                reordered: Some(2),
                jitter_us: Some(1500),
                ..way
            },
            false => RunWay {
                retransmitted_segments: Some(1),
                data_segments: Some(1000),
                min_rtt_us: Some(10_000),
                advertised_bytes: Some(65_536),
                window_limited_percent: Some(50),
                ..way
            },
        });
        run
    }

    #[test]
    fn windows_have_names() {
        assert_eq!(window_name(Some(65_536)), "64 KB");
        assert_eq!(window_name(Some(87_380)), "85.3 KB");
        assert_eq!(window_name(None), "hosts' own");
    }
}
