//! How often the verdict is right: faults planted on the emulator, drawn at
//! random, examined by the real program in namespaces of their own. [`memo`] is
//! the table of the memo that asked for all this.

pub mod memo;
pub mod plant;
mod record;
mod trouble;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::deployment::Lab;
use crate::error::{During, LabError};
use crate::measurement::{Measurement, Op, Row};
use crate::topology::{LabOptions, SERVER};

use super::diagnose::Fault;
use super::report::Report;
use plant::{Circuit, Plant, draw};
use record::Record;
use trouble::Trouble;

/// A run whose emulator was later than this says nothing about the verdict.
const LATENESS_MS_MAX: f64 = 2.0;
const SERVER_PATIENCE: Duration = Duration::from_secs(10);

/// What to do.
#[derive(Debug, Clone)]
pub struct AccuracyOptions {
    /// Plants; those of two faults and clean circuits among them.
    pub plants: Vec<Plant>,
    /// Runs of each.
    pub runs: u64,
    /// Base of all draws.
    pub seed: u64,
    /// Name of the labs.
    pub lab: String,
    /// This very program.
    pub program: PathBuf,
    /// Results of single runs, one JSON document a line: what is there already
    /// is not done again.
    pub runs_file: PathBuf,
    /// Set to end it.
    pub stop: Arc<AtomicBool>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was planted.
    pub plant: Plant,
    /// Its seed.
    pub seed: u64,
    /// The circuit.
    pub words: String,
    /// What was named.
    pub found: Vec<Fault>,
    /// Whether exactly what was planted was named.
    pub is_right: bool,
    /// The verdict's sentence.
    pub sentence: String,
    /// How late the emulator was at most.
    pub lateness_max_ms: f64,
    /// How long it took.
    pub seconds: f64,
    /// Why there is no verdict.
    pub error: Option<String>,
}

impl Run {
    /// Whether it says anything about the verdict.
    fn counts(&self) -> bool {
        self.error.is_none() && self.lateness_max_ms <= LATENESS_MS_MAX
    }
}

impl AccuracyOptions {
    /// Seeds of a plant's runs. False alarms are rarer than wrong verdicts: clean
    /// circuits are drawn more often.
    fn seeds(&self, plant: Plant) -> impl Iterator<Item = u64> {
        let runs = match plant {
            Plant::Clean => self.runs * 5 / 2,
            _ => self.runs,
        };
        let base = self.seed;
        (0..runs).map(move |number| seed_of(base, plant, number))
    }
}

/// Runs what is missing, which is also what failed or was late before, and puts
/// everything together.
pub fn run(options: &AccuracyOptions, tell: &dyn Fn(&Run)) -> Result<Measurement, LabError> {
    let mut record = Record::open(&options.runs_file)?;
    let mut rounds: Vec<_> = options
        .plants
        .iter()
        .map(|plant| (*plant, options.seeds(*plant)))
        .collect();
    loop {
        let mut is_over = true;
        for (plant, seeds) in &mut rounds {
            let Some(seed) = seeds.next() else { continue };
            is_over = false;
            if !record.has(*plant, seed) {
                let run = once(options, &record, *plant, seed)?;
                tell(&run);
                record.append(run)?;
            }
        }
        if is_over {
            return Ok(measurement(options, &record.runs));
        }
    }
}

fn seed_of(base: u64, plant: Plant, number: u64) -> u64 {
    base.wrapping_mul(1_000_003)
        .wrapping_add(plant as u64 * 10_007)
        .wrapping_add(number)
}

/// A run that was interrupted is none.
fn once(
    options: &AccuracyOptions,
    record: &Record,
    plant: Plant,
    seed: u64,
) -> Result<Run, LabError> {
    let circuit = draw(plant, seed);
    let begin = Instant::now();
    let mut run = Run {
        plant,
        seed,
        words: circuit.words.clone(),
        found: Vec::new(),
        is_right: false,
        sentence: String::new(),
        lateness_max_ms: 0.0,
        seconds: 0.0,
        error: None,
    };
    let outcome = match options.stop.load(Ordering::Relaxed) {
        true => Err(LabError::Interrupted),
        false => examined(options, &circuit, seed),
    };
    if options.stop.load(Ordering::Relaxed) {
        return Err(LabError::Interrupted);
    }
    match outcome {
        Ok((report, lateness_max_ms)) => {
            run.lateness_max_ms = lateness_max_ms;
            run.error = report.error.as_ref().map(|trouble| trouble.text.clone());
            if let Some(verdict) = &report.verdict {
                run.found = verdict.faults();
                run.is_right = run.found == plant.expected();
                run.sentence.clone_from(&verdict.sentence);
            }
            record.keep(&format!("{}-{seed}.json", plant.name()), report)?;
        }
        Err(error) => run.error = Some(error.to_string()),
    }
    run.seconds = begin.elapsed().as_secs_f64();
    Ok(run)
}

/// Builds the circuit, examines it, and takes it down.
fn examined(
    options: &AccuracyOptions,
    circuit: &Circuit,
    seed: u64,
) -> Result<(Report, f64), LabError> {
    let mut lab_options = LabOptions::new(&options.lab, &options.program).with_link(&circuit.words);
    lab_options.seed = seed;
    let mut lab = Lab::up(&lab_options)?;
    lab.interrupt_by(Arc::clone(&options.stop));
    let (client, server) = (lab.client()?, lab.server()?);
    for (namespace, settings) in [(&client, &circuit.client), (&server, &circuit.server)] {
        let settings: Vec<_> = settings
            .iter()
            .map(|(path, value)| (*path, value.as_str()))
            .collect();
        namespace.set(&settings)?;
    }
    let server_pid = serving(&mut lab, &options.program)?;
    let trouble = Trouble::begin(circuit, &lab, server_pid)?;
    let output = client
        .command(&options.program.to_string_lossy())
        .args(["probe", "diagnose", &SERVER.to_string(), "--json"])
        .output()
        .during(|| "starting the examination".to_owned())?;
    drop(trouble);
    let report = serde_json::from_slice(&output.stdout).map_err(|error| LabError::Invalid {
        what: "the report of the examination".to_owned(),
        why: format!("{error}: {}", String::from_utf8_lossy(&output.stderr)),
    })?;
    let stats = lab.link_stats()?;
    let late = |direction: &str| {
        let ns = stats
            .get(direction)
            .and_then(|one| one.get("lateness_max_ns"));
        ns.and_then(serde_json::Value::as_f64).unwrap_or(0.0) / 1e6
    };
    Ok((report, late("forward").max(late("backward"))))
}

/// Starts the far end in the server's namespace.
fn serving(lab: &mut Lab, program: &Path) -> Result<i32, LabError> {
    let (server, program) = (lab.server()?, program.to_string_lossy());
    let process =
        lab.sandbox_mut()
            .start("probe-server", &server, &[&program, "probe", "serve"])?;
    lab.wait_ready("probe-server", "the test server", SERVER_PATIENCE, |lab| {
        let log = fs::read_to_string(lab.sandbox().log_path("probe-server"));
        log.is_ok_and(|log| log.contains("listening"))
    })?;
    Ok(process.pid)
}

/// Each plant's share of right verdicts, among runs whose emulator was on time.
pub fn measurement(options: &AccuracyOptions, runs: &[Run]) -> Measurement {
    const RIGHT: f64 = 0.95;
    const FALSE_ALARMS: f64 = 0.02;
    let plan = format!(
        "faults planted on emulated circuits of 10 to 150 Mbit/s and 10 to 100 ms, {} runs each; runs whose emulator was later than {LATENESS_MS_MAX} ms are not counted",
        options.runs
    );
    let mut document = Measurement::new("probe", plan, options.seed);
    for plant in &options.plants {
        // Of several attempts at a circuit the first that counts.
        let attempts = |seed: u64| {
            runs.iter()
                .filter(move |run| run.plant == *plant && run.seed == seed)
        };
        let counted: Vec<_> = options
            .seeds(*plant)
            .filter_map(|seed| attempts(seed).find(|run| run.counts()))
            .collect();
        let planned = options.seeds(*plant).count();
        // What a busy machine would have given: no result, and worth knowing.
        let late: Vec<_> = options
            .seeds(*plant)
            .filter_map(|seed| attempts(seed).find(|run| run.error.is_none() && !run.counts()))
            .collect();
        let late_right = late.iter().filter(|run| run.is_right).count();
        let name = plant.name();
        if counted.is_empty() {
            let failed = Row::failed(&name, "probe", "right verdicts", "", "no run counts");
            let row = failed.detail("runs_late", late.len());
            document
                .rows
                .push(row.detail("runs_late_right", late_right));
            continue;
        }
        let right = counted.iter().filter(|run| run.is_right).count() as f64 / counted.len() as f64;
        let row = match plant {
            Plant::Clean => Row::of(&name, "probe", "false alarms", "", 1.0 - right)
                .target(Op::AtMost, FALSE_ALARMS),
            _ => Row::of(&name, "probe", "right verdicts", "", right).target(Op::AtLeast, RIGHT),
        };
        let row = row
            .detail("runs_counted", counted.len())
            .detail("runs_missing", planned - counted.len())
            .detail("runs_late", late.len())
            .detail("runs_late_right", late_right);
        document.rows.push(row);
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn run(plant: Plant, seed: u64, lateness_max_ms: f64, error: Option<&str>) -> Run {
        Run {
            plant,
            seed,
            words: String::new(),
            found: Vec::new(),
            is_right: true,
            sentence: String::new(),
            lateness_max_ms,
            seconds: 1.0,
            error: error.map(str::to_owned),
        }
    }

    #[test]
    fn late_and_failed_runs_and_those_of_other_seeds_do_not_count() {
        let options = AccuracyOptions {
            plants: vec![Plant::Clean, Plant::Loss1],
            runs: 2,
            seed: 1,
            lab: "x".to_owned(),
            program: PathBuf::new(),
            runs_file: PathBuf::new(),
            stop: Arc::default(),
        };
        let clean: Vec<u64> = options.seeds(Plant::Clean).collect();
        let lossy: Vec<u64> = options.seeds(Plant::Loss1).collect();
        assert_eq!((clean.len(), lossy.len()), (5, 2));
        let wrong = |run: Run| Run {
            is_right: false,
            ..run
        };
        let runs = [
            run(Plant::Clean, clean[0], 0.1, None),
            wrong(run(Plant::Clean, clean[1], 5.0, None)),
            run(Plant::Clean, clean[1], 0.1, None),
            wrong(run(Plant::Clean, clean[2], 0.1, Some("no"))),
            run(Plant::Loss1, lossy[0], 0.1, None),
            wrong(run(Plant::Loss1, lossy[1], 0.1, None)),
            // A second attempt does not better a verdict.
            run(Plant::Loss1, lossy[1], 0.1, None),
            wrong(run(Plant::Loss1, lossy[1] + 1, 0.1, None)),
        ];
        let document = measurement(&options, &runs);
        let [clean_row, loss_row] = &document.rows[..] else {
            panic!("{document:?}");
        };
        assert_eq!((clean_row.value, clean_row.ok), (Some(0.0), Some(true)));
        assert_eq!((loss_row.value, loss_row.ok), (Some(0.5), Some(false)));
        assert_eq!(measurement(&options, &[]).rows[0].ok, Some(false));
    }
}
