//! One run: a circuit is built, examined by the real program, and taken down.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::child::Program;
use super::group::{Pressure, stolen_s};
use super::plant::{Circuit, Plant, draw, has_its_direction};
use super::trouble::Trouble;
use super::{AccuracyOptions, Held, Run};
use crate::deployment::Lab;
use crate::error::{During, LabError};
use crate::probe::diagnose::Finding;
use crate::probe::report::Report;
use crate::topology::{LabOptions, SERVER};

const SERVER_PATIENCE: Duration = Duration::from_secs(10);
/// Code of an examination that ended without its document.
const NO_REPORT: &str = "no-report";
/// Code of one that a signal ended.
const INTERRUPTED: &str = "interrupted";

/// What it is, and in whose namespaces.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) plant: Plant,
    pub(super) seed: u64,
    /// Name of the lab: no two runs at once share one.
    pub(super) lab: String,
}

/// Does it. A run that was interrupted is none; one that the lab failed at has no
/// report.
pub(super) fn once(
    options: &AccuracyOptions,
    job: &Job,
) -> Result<(Run, Option<Report>), LabError> {
    let circuit = draw(job.plant, job.seed);
    let begin = Instant::now();
    let outcome = match options.stop.load(Ordering::Relaxed) {
        true => Err(LabError::Interrupted),
        false => examined(options, job, &circuit),
    };
    if options.stop.load(Ordering::Relaxed) {
        return Err(LabError::Interrupted);
    }
    let mut run = Run {
        plant: job.plant,
        seed: job.seed,
        made_by: options.made_by.clone(),
        words: circuit.words.clone(),
        server_window_bytes: circuit.server_window_bytes,
        found: Vec::new(),
        is_right: false,
        sentence: String::new(),
        lateness_max_ms: 0.0,
        lateness_p99_ms: 0.0,
        held: Held::default(),
        seconds: begin.elapsed().as_secs_f64(),
        error: None,
        error_code: None,
    };
    match outcome {
        Err(error) => {
            run.error = Some(error.to_string());
            Ok((run, None))
        }
        Ok(seen) => {
            run.held = seen.held;
            (run.lateness_max_ms, run.lateness_p99_ms) = seen.lateness;
            let report = run.take(seen.said, &circuit);
            Ok((run, report))
        }
    }
}

impl Run {
    /// What came of the examination. One that somebody ended is none; any other
    /// error is its own, that it said nothing readable, too.
    fn take(&mut self, said: Result<Report, String>, circuit: &Circuit) -> Option<Report> {
        let report = match said {
            Ok(report) => report,
            Err(why) => {
                self.error = Some(why);
                self.error_code = Some(NO_REPORT.to_owned());
                return None;
            }
        };
        if let Some(trouble) = &report.error {
            self.error = Some(trouble.text.clone());
            self.error_code = Some(trouble.code.clone()).filter(|code| code != INTERRUPTED);
        }
        if let Some(verdict) = &report.verdict {
            self.found = verdict.faults();
            let is_apt =
                |finding: &Finding| has_its_direction(finding) && circuit.is_cured_by(finding);
            let are_apt = verdict.findings.iter().all(is_apt);
            let is_it = self.found == self.plant.expected() && are_apt;
            self.is_right = is_it && self.error.is_none();
            self.sentence.clone_from(&verdict.sentence);
        }
        Some(report)
    }
}

/// A run's examination and its conditions.
struct Seen {
    /// The report, or why it cannot be read.
    said: Result<Report, String>,
    /// What the machine held up.
    held: Held,
    /// How late the emulator was, at most and 99 times of 100, in ms.
    lateness: (f64, f64),
}

fn examined(options: &AccuracyOptions, job: &Job, circuit: &Circuit) -> Result<Seen, LabError> {
    let mut lab_options = LabOptions::new(&job.lab, &options.program).with_link(&circuit.words);
    lab_options.seed = job.seed;
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
    let server_pid = serving(&mut lab, &options.program, circuit.server_window_bytes)?;
    let trouble = Trouble::begin(circuit, &lab, server_pid)?;
    let watch = Watch::begin(options.jobs, &job.lab);
    if circuit.server_cpu.is_none() {
        // A server that shall have too little time says nothing of the machine.
        watch.add(server_pid)?;
    }
    let mut command = client.command(&options.program.to_string_lossy());
    command.args(["probe", "diagnose", &SERVER.to_string(), "--json"]);
    let examination = Program::start(&mut command, "the examination")?;
    watch.add(examination.id())?;
    let output = examination.output(&options.stop)?;
    let held = watch.end();
    drop(trouble);
    let said = serde_json::from_slice(&output.stdout).map_err(|error| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!("the report of the examination: {error}: {complaint}")
    });
    Ok(Seen {
        said,
        held,
        lateness: lateness(&lab)?,
    })
}

fn lateness(lab: &Lab) -> Result<(f64, f64), LabError> {
    let stats = lab.link_stats()?;
    let late_ms = |field: &str| {
        let of = |direction: &str| stats.get(direction)?.get(field)?.as_f64();
        let [there, back] = ["forward", "backward"].map(|way| of(way).unwrap_or(0.0));
        there.max(back) / 1e6
    };
    Ok((late_ms("lateness_max_ns"), late_ms("lateness_p99_ns")))
}

/// Starts the far end in the server's namespace, with a receive window of its own
/// where one is given.
pub(super) fn serving(
    lab: &mut Lab,
    program: &Path,
    window_bytes: Option<u32>,
) -> Result<i32, LabError> {
    let (server, program) = (lab.server()?, program.to_string_lossy());
    let window = window_bytes.map(|bytes| bytes.to_string());
    let mut command = vec![&*program, "probe", "serve"];
    if let Some(window) = &window {
        command.extend(["--window", window.as_str()]);
    }
    let sandbox = lab.sandbox_mut();
    let process = sandbox.start("probe-server", &server, &command)?;
    lab.wait_ready("probe-server", "the test server", SERVER_PATIENCE, |lab| {
        let log = fs::read_to_string(lab.sandbox().log_path("probe-server"));
        log.is_ok_and(|log| log.contains("listening"))
    })?;
    Ok(process.pid)
}

/// Watches what the machine keeps from the two programs.
struct Watch {
    jobs: usize,
    begin: Instant,
    pressure: Option<Pressure>,
    /// What the group had waited before: one that a killed run left is used again.
    waited_s: Option<f64>,
    stolen_s: Option<f64>,
}

impl Watch {
    fn begin(jobs: usize, lab: &str) -> Self {
        let pressure = Pressure::of(&format!("{lab}-seen"));
        Self {
            jobs,
            begin: Instant::now(),
            waited_s: pressure.as_ref().and_then(Pressure::waited_s),
            pressure,
            stolen_s: stolen_s(),
        }
    }

    fn add(&self, process: i32) -> Result<(), LabError> {
        let added = self.pressure.as_ref().map(|pressure| pressure.add(process));
        // A program that has ended by itself says why.
        match added.transpose() {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                Err(error).during(|| "watching a program's processor time".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn end(&self) -> Held {
        let seconds = self.begin.elapsed().as_secs_f64().max(1e-3);
        let since =
            |now: Option<f64>, then: Option<f64>| now.zip(then).map(|(now, then)| now - then);
        let waited_s = self.pressure.as_ref().and_then(Pressure::waited_s);
        let waited_s = since(waited_s, self.waited_s);
        let stolen_s = since(stolen_s(), self.stolen_s);
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Held {
            jobs: self.jobs,
            waited_share: waited_s.map(|waited_s| waited_s / seconds),
            stolen_share: stolen_s.map(|stolen_s| stolen_s / seconds),
            load: load.split(' ').next().and_then(|word| word.parse().ok()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;
    use crate::probe::report::Trouble;

    fn taken(said: Result<Report, String>) -> Run {
        let mut run = run(Plant::Clean, 1, 0.1, None);
        run.is_right = false;
        run.take(said, &draw(Plant::Clean, 1));
        run
    }

    #[test]
    fn errors_are_the_examinations_own_unless_somebody_ended_it() {
        let trouble = |code: &str| {
            let mut report = Report::new("diagnose");
            report.error = Some(Trouble {
                code: code.to_owned(),
                text: "text".to_owned(),
            });
            taken(Ok(report))
        };
        for code in ["lost", "silent", "protocol"] {
            let run = trouble(code);
            assert_eq!(run.error_code.as_deref(), Some(code));
            assert!(run.counts() && !run.is_right, "{run:?}");
        }
        let unreadable = taken(Err("panicked".to_owned()));
        assert!(unreadable.counts() && !unreadable.is_right);
        let ended = trouble(INTERRUPTED);
        assert!(ended.error.is_some() && !ended.counts());
    }
}
