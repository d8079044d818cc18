//! Our throughput beside the real iperf3's: on the same circuit, in turns, over
//! the same span of a test.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::child::Program;
use super::plant::{Plant, draw};
use super::seed_of;
use super::single::serving;
use crate::deployment::{Lab, require_program};
use crate::error::LabError;
use crate::measurement::{Op, Row};
use crate::probe::observe::StreamPair;
use crate::probe::report::Report;
use crate::probe::tcp_test::Direction;
use crate::topology::{LabOptions, SERVER};

/// Name of these rows, for `--only`.
pub const NAME: &str = "iperf3";
/// Circuits that are drawn; every other one is measured down.
const CIRCUITS: u64 = 6;
/// Their draws are none of the clean circuits' own.
const FIRST_DRAW: u64 = 5_000;
/// Tests of each of the two on a circuit.
const ROUNDS: usize = 3;
/// The start of a stream is not compared: iperf3 counts from the start of the
/// test, we from the first byte.
const OMIT_S: u64 = 2;
const COUNTED_S: u64 = 20;
const OFF_MAX: f64 = 0.01;
/// Ours has iperf3's port.
const PORT: &str = "5202";
const SERVER_NAME: &str = "iperf3-server";
const SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// What to do.
#[derive(Debug, Clone)]
pub struct BesideOptions {
    /// Base of all draws.
    pub seed: u64,
    /// Name of the labs.
    pub lab: String,
    /// This very program.
    pub program: PathBuf,
    /// Set to end it.
    pub stop: Arc<AtomicBool>,
}

/// Measures all circuits, and tells of each. One that failed is a row.
pub fn rows(options: &BesideOptions, tell: &dyn Fn(&str)) -> Result<Vec<Row>, LabError> {
    require_program("iperf3", "iperf3")?;
    let mut rows = Vec::new();
    for number in 0..CIRCUITS {
        let seed = seed_of(options.seed, Plant::Clean, FIRST_DRAW + number);
        let words = draw(Plant::Clean, seed).words;
        let direction = match number % 2 {
            0 => Direction::Up,
            _ => Direction::Down,
        };
        let scenario = format!("{NAME} [{words}]");
        tell(&scenario);
        let outcome = measured(options, &words, seed, direction);
        if options.stop.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        let config = match direction {
            Direction::Down => "down",
            _ => "up",
        };
        match outcome {
            Ok((theirs, ours)) => rows.extend(rows_of(&scenario, config, &theirs, &ours)),
            Err(error) => {
                let why = error.to_string();
                rows.push(Row::failed(&scenario, config, "off iperf3", "", why));
            }
        }
    }
    Ok(rows)
}

fn rows_of(scenario: &str, config: &str, theirs: &[f64], ours: &[f64]) -> [Row; 3] {
    let of = |name: &str, rates: &[f64]| {
        let mbit: Vec<f64> = rates.iter().map(|rate| rate / 1e6).collect();
        Row::of_samples(
            scenario,
            &format!("{name} {config}"),
            "throughput",
            "Mbit/s",
            &mbit,
        )
    };
    let (theirs, ours) = (of("iperf3", theirs), of("probe", ours));
    let medians = ours.median.zip(theirs.median);
    let off = medians.map_or(f64::NAN, |(ours, theirs)| (ours / theirs - 1.0).abs());
    let off = Row::of(scenario, config, "off iperf3", "", off)
        .target(Op::AtMost, OFF_MAX)
        .detail("omitted_s", OMIT_S)
        .detail("counted_s", COUNTED_S);
    [theirs, ours, off]
}

/// Rates of iperf3 and of ours.
fn measured(
    options: &BesideOptions,
    words: &str,
    seed: u64,
    direction: Direction,
) -> Result<(Vec<f64>, Vec<f64>), LabError> {
    let mut lab_options = LabOptions::new(&options.lab, &options.program).with_link(words);
    lab_options.seed = seed;
    let mut lab = Lab::up(&lab_options)?;
    lab.interrupt_by(Arc::clone(&options.stop));
    serving(&mut lab, &options.program, None)?;
    let server = lab.server()?;
    let command = ["iperf3", "-s", "-p", PORT, "--forceflush"];
    lab.sandbox_mut().start(SERVER_NAME, &server, &command)?;
    lab.wait_ready(SERVER_NAME, "iperf3's server", SERVER_PATIENCE, |lab| {
        let log = std::fs::read_to_string(lab.sandbox().log_path(SERVER_NAME));
        log.is_ok_and(|log| log.contains("listening"))
    })?;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(iperf3(options, &lab, direction)?);
        ours.push(probe(options, &lab, direction)?);
    }
    Ok((theirs, ours))
}

/// What came in the time that counted, bit/s.
fn iperf3(options: &BesideOptions, lab: &Lab, direction: Direction) -> Result<f64, LabError> {
    let (omit, counted) = (OMIT_S.to_string(), COUNTED_S.to_string());
    let mut command = lab.client()?.command("iperf3");
    command
        .args(["-c", &SERVER.to_string(), "-p", PORT, "-J"])
        .args(["-O", &omit, "-t", &counted]);
    if direction == Direction::Down {
        command.arg("-R");
    }
    let output = Program::start(&mut command, "iperf3")?.output(&options.stop)?;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
    rate.ok_or_else(|| LabError::Invalid {
        what: "the report of iperf3".to_owned(),
        why: report["error"].as_str().unwrap_or("no rate").to_owned(),
    })
}

fn probe(options: &BesideOptions, lab: &Lab, direction: Direction) -> Result<f64, LabError> {
    let (seconds, server) = ((OMIT_S + COUNTED_S).to_string(), SERVER.to_string());
    let way = match direction {
        Direction::Down => "down",
        _ => "up",
    };
    let mut command = lab.client()?.command(&options.program.to_string_lossy());
    command.args([
        "probe", "tcp", &server, "--json", "--way", way, "--time", &seconds,
    ]);
    let output = Program::start(&mut command, "the test")?.output(&options.stop)?;
    let report: Option<Report> = serde_json::from_slice(&output.stdout).ok();
    let test = report.and_then(|report| report.observations.tcp.into_iter().next());
    let way = test.and_then(|test| test.up.or(test.down));
    let rate = way.and_then(|way| counted_bit_per_s(way.streams.first()?));
    rate.ok_or_else(|| LabError::Invalid {
        what: "the report of the test".to_owned(),
        why: format!("no rate: {}", String::from_utf8_lossy(&output.stderr)),
    })
}

/// What came in iperf3's span.
fn counted_bit_per_s(pair: &StreamPair) -> Option<f64> {
    const NS: u64 = 1_000_000_000;
    let begin_ns = pair.receiver.start_ns;
    let (from_ns, until_ns) = (begin_ns + OMIT_S * NS, begin_ns + (OMIT_S + COUNTED_S) * NS);
    let is_counted = |at_ns: u64| (from_ns..=until_ns).contains(&at_ns);
    let mut counted = pair
        .receiver
        .samples
        .iter()
        .filter(|sample| is_counted(sample.at_ns));
    let first = counted.next()?;
    let last = counted.next_back()?;
    let ns = last.at_ns.checked_sub(first.at_ns).filter(|ns| *ns > 0)?;
    Some(last.bytes.checked_sub(first.bytes)? as f64 * 8e9 / ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_compared() {
        let off = |theirs: &[f64], ours: &[f64]| {
            let [.., off] = rows_of("iperf3 [x]", "up", theirs, ours);
            (off.value.map(|value| (value * 1e6).round()), off.ok)
        };
        assert_eq!(
            off(&[10e6, 9e6, 99e6], &[10.05e6]),
            (Some(5_000.0), Some(true))
        );
        assert_eq!(off(&[10e6], &[9.8e6]), (Some(20_000.0), Some(false)));
        assert_eq!(off(&[], &[9.8e6]), (None, Some(false)));
    }
}
