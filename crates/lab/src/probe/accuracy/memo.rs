//! Throughput by receive window beside what window / round trip predicts: the
//! memo's table again, on a circuit of its rate and on a long one, and windows
//! of whole segments by round trip. Each circuit is a campaign in which the
//! windows take turns.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::child::Program;
use super::single::serving;
use crate::caller::make_folder;
use crate::deployment::Lab;
use crate::error::LabError;
use crate::measurement::{Op, Row};
use crate::probe::campaign::group::Group;
use crate::probe::campaign::{Campaign, window_name};
use crate::topology::{LabOptions, SERVER};

/// Some circuits and the windows that take turns on each.
#[derive(Debug)]
pub struct Table {
    /// Of its rows, for `--only`.
    pub name: &'static str,
    /// Runs of each window, where nothing else is asked for.
    runs: u32,
    windows: &'static str,
    windows_count: u32,
    circuits: &'static [Circuit],
}

#[derive(Debug)]
struct Circuit {
    name: &'static str,
    /// Of `farhaul link`.
    words: &'static str,
    rate_mbit: &'static str,
    /// Many round trips: a rate from the first byte to the last is too high by
    /// a window, and too low by the start.
    run_time: &'static str,
}

const fn circuit(
    name: &'static str,
    words: &'static str,
    rate_mbit: &'static str,
    run_time: &'static str,
) -> Circuit {
    Circuit {
        name,
        words,
        rate_mbit,
        run_time,
    }
}

/// All tables.
pub const TABLES: [&Table; 2] = [&MEMO, &SEGMENTS];

/// Windows XP's, the two of the memo's Linux host, and none; as many runs of a
/// circuit as a distribution needs.
const MEMO: Table = Table {
    name: "memo",
    runs: 50,
    windows: "8k,64k,87380,own",
    windows_count: 4,
    circuits: &[
        circuit("1gbit-10ms", "rate 1gbit delay 5ms", "1000", "3s"),
        circuit("oc3-40ms", "oc3 delay 20ms", "155.52", "3s"),
    ],
};

/// 6, 45 and 60 segments of 1448 bytes.
const SEGMENTS: Table = Table {
    name: "windows",
    runs: 5,
    windows: "8688,65160,86880",
    windows_count: 3,
    circuits: &[
        circuit("5ms", "rate 1gbit delay 2.5ms", "1000", "3s"),
        circuit("10ms", "rate 1gbit delay 5ms", "1000", "3s"),
        circuit("40ms", "rate 1gbit delay 20ms", "1000", "5s"),
        circuit("100ms", "rate 1gbit delay 50ms", "1000", "10s"),
    ],
};
/// How far a window's throughput may be from window / round trip.
const OFF_MAX: f64 = 0.05;
/// What the memo reached when no window was in the way.
const UTILISATION_MIN: f64 = 0.8;

/// What to do.
#[derive(Debug, Clone)]
pub struct MemoOptions {
    /// Runs of each window, if not the table's own number.
    pub runs: Option<u32>,
    /// [`super::fingerprint`] of the program: its runs are not mixed with
    /// another one's.
    pub made_by: String,
    /// Name of the labs.
    pub lab: String,
    /// This very program.
    pub program: PathBuf,
    /// Where the campaigns' files and pages go; what is there is not done again.
    pub folder: PathBuf,
    /// Set to end it.
    pub stop: Arc<AtomicBool>,
}

/// Does what is missing of a table's circuits, and tells of each. A circuit that
/// failed is a row.
pub fn rows(
    options: &MemoOptions,
    table: &Table,
    tell: &dyn Fn(&str),
) -> Result<Vec<Row>, LabError> {
    let mut rows = Vec::new();
    for circuit in table.circuits {
        let scenario = format!("{} {}", table.name, circuit.name);
        tell(&format!(
            "{scenario} [{}] windows {}",
            circuit.words, table.windows
        ));
        let outcome = campaign(options, table, circuit);
        if options.stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        match outcome {
            Ok(campaign) => rows.extend(rows_of(&scenario, &campaign)),
            Err(error) => rows.push(Row::failed(
                &scenario,
                "probe",
                "throughput",
                "Mbit/s",
                error.to_string(),
            )),
        }
    }
    Ok(rows)
}

fn campaign(options: &MemoOptions, table: &Table, circuit: &Circuit) -> Result<Campaign, LabError> {
    make_folder(&options.folder)?;
    let lab_options = LabOptions::new(&options.lab, &options.program).with_link(circuit.words);
    let mut lab = Lab::up(&lab_options)?;
    lab.interrupt_by(Arc::clone(&options.stop));
    serving(&mut lab, &options.program, None)?;
    let each = options.runs.unwrap_or(table.runs);
    let runs = each.saturating_mul(table.windows_count).to_string();
    let (name, made_by) = (circuit.name, &options.made_by);
    let file = format!("probe-{}-{name}-{made_by}.jsonl", table.name);
    let mut command = lab.client()?.command(&options.program.to_string_lossy());
    command
        .args(["probe", "campaign", &SERVER.to_string(), "--json"])
        .args(["--runs", &runs, "--for", circuit.run_time])
        .args(["--windows", table.windows, "--circuit", circuit.rate_mbit])
        .arg("--file")
        .arg(options.folder.join(file));
    let output = Program::start(&mut command, "a campaign")?.output(&options.stop)?;
    let invalid = |why: String| LabError::Invalid {
        what: "the document of a campaign".to_owned(),
        why,
    };
    let campaign: Campaign = serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        invalid(format!("{error}: {said}"))
    })?;
    match &campaign.error {
        None => Ok(campaign),
        Some(trouble) => Err(invalid(trouble.text.clone())),
    }
}

/// Throughput of each window, and how far it is off; of no window the
/// utilisation.
fn rows_of(scenario: &str, campaign: &Campaign) -> Vec<Row> {
    campaign
        .groups
        .iter()
        .flat_map(|group| group_rows(scenario, group))
        .collect()
}

fn group_rows(scenario: &str, group: &Group) -> Vec<Row> {
    let config = format!("window {}", window_name(group.window_bytes));
    let Some(rates) = group.bit_per_s else {
        return vec![Row::failed(
            scenario,
            &config,
            "throughput",
            "Mbit/s",
            "no run reached a rate",
        )];
    };
    let of = |metric: &str, unit: &str, value: f64| {
        Row::of(scenario, &config, metric, unit, value).detail("failed_runs", group.failed)
    };
    let mut throughput = of("throughput", "Mbit/s", rates.median / 1e6);
    (throughput.n, throughput.min, throughput.max) = (
        Some(group.runs.into()),
        Some(rates.min / 1e6),
        Some(rates.max / 1e6),
    );
    let judged = match (group.window_bytes, group.window_rate_bit_per_s) {
        (Some(_), Some(predicted)) => {
            throughput = throughput.limit(predicted / 1e6);
            let off = (rates.median / predicted - 1.0).abs();
            of("off window / RTT", "", off).target(Op::AtMost, OFF_MAX)
        }
        (Some(_), None) => of("off window / RTT", "", f64::NAN).target(Op::AtMost, OFF_MAX),
        (None, _) => {
            let percent = group.utilisation.as_ref().map(|all| all.percent.median);
            let share = percent.map_or(f64::NAN, |percent| percent / 100.0);
            of("utilisation", "", share).target(Op::AtLeast, UTILISATION_MIN)
        }
    };
    vec![throughput, judged]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::campaign::Line;
    use crate::probe::campaign::summary::Summary;
    use crate::probe::campaign::tests::{good, start};

    #[test]
    fn windows_are_held_against_their_prediction_and_none_against_the_circuit() {
        let start = start(&[Some(65_536), Some(8192), None], 6);
        let mut summary = Summary::new(start.clone());
        // 64 KB in 10 ms are 52.4 Mbit/s.
        for (run, rate) in [(1, 51_000_000), (2, 40_000_000), (3, 900_000_000)] {
            summary.take(&Line::Run(good(run, &start.subject, rate)));
        }
        let rows = rows_of("memo x", &summary.campaign());
        let judged: Vec<_> = rows
            .iter()
            .map(|row| (row.metric.as_str(), row.ok))
            .collect();
        assert_eq!(
            judged,
            [
                ("throughput", None),
                ("off window / RTT", Some(true)),
                ("throughput", None),
                ("off window / RTT", Some(false)),
                ("throughput", None),
                ("utilisation", Some(true)),
            ]
        );
        assert_eq!(rows[4].config, "window hosts' own");
        assert!((rows[0].limit.unwrap() - 52.428_8).abs() < 1e-6);
        let none = rows_of("memo x", &Summary::new(start).campaign());
        assert!(none.iter().all(|row| row.ok == Some(false)) && none.len() == 3);
    }

    #[test]
    fn its_circuits_are_circuits() {
        for table in TABLES {
            for circuit in table.circuits {
                let parsed = farhaul_link::LinkProfile::parse(circuit.words);
                assert!(parsed.is_ok(), "{circuit:?}");
                assert!(circuit.rate_mbit.parse::<f64>().is_ok());
            }
            assert_eq!(table.windows.split(',').count() as u32, table.windows_count);
        }
        let distribution = MEMO.runs * MEMO.windows_count;
        assert!(distribution >= 200, "{distribution}");
        let segments = SEGMENTS.windows.split(',').map(str::parse::<u32>);
        assert!(segments.flatten().all(|bytes| bytes % 1448 == 0));
    }
}
