//! `farhaul lab run`: the study of 2006 done again, and what came after it. Every cell of a plan is a link, a client, a
//! work and a configuration; real clients copy fresh files from a real server, and what it took is read from a capture.
//!
//! One lab for each scenario; gateways with empty stores for each copy. A copy that was disturbed (foreign traffic, a
//! late link) is done again. Every finished cell is written to the document at once, so a run that was stopped goes on.

mod bench;
mod clock;
mod copy;
mod derived;
mod flat;
mod judge;
mod lanes;
mod processors;
mod rows;
mod said;
mod sockets;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::demo::progress::Progress;
use crate::deployment::require_program;
use crate::error::LabError;
use crate::measurement::{Measurement, Row};
use crate::plan::{Cell, Plan};

use bench::{Bench, LabBench};
pub use derived::{EXTRA_BYTES, EXTRA_READS, OF_DIRECT, OFF_EXPECTED};
use lanes::Lanes;
use rows::Sample;
pub(crate) use rows::{BUFFERS, COMMIT, DIALECT, SERVER_BUFFERS};

/// A copy that was disturbed is done again, so often in all.
const ATTEMPTS_MAX: usize = 3;

/// How a plan is run.
#[derive(Debug, Clone)]
pub struct StudyOptions {
    /// Name of its labs.
    pub name: String,
    /// The `farhaul` program.
    pub program: PathBuf,
    /// Only cells whose name contains this; the others stay in the document as they are.
    pub only: Option<String>,
    /// Cells that the document has already are not run again.
    pub resume: bool,
    /// So many labs at a time: beside any of them, those of slow links.
    pub jobs: usize,
    /// Where the document goes.
    pub out: PathBuf,
    /// Set from outside to end early.
    pub stop: Arc<AtomicBool>,
}

/// Runs a plan and writes `OUT/PLAN.json` after every cell.
pub fn run(plan: &Plan, options: &StudyOptions) -> Result<Measurement, LabError> {
    for (program, package) in [
        ("tcpdump", "tcpdump"),
        ("smbd", "samba"),
        ("smbclient", "smbclient"),
    ] {
        require_program(program, package)?;
    }
    // No file is used twice.
    let copies = AtomicUsize::new(0);
    run_on(plan, options, |name| {
        LabBench::new(plan, options, name, &copies)
    })
}

/// Runs a plan on what is made for each lane of it.
fn run_on<B: Bench>(
    plan: &Plan,
    options: &StudyOptions,
    make: impl Fn(String) -> B + Sync,
) -> Result<Measurement, LabError> {
    let only = options.only.as_deref().unwrap_or_default();
    let picked: Vec<&Cell> = plan
        .cells
        .iter()
        .filter(|cell| cell.name().contains(only))
        .collect();
    if picked.is_empty() {
        return Err(LabError::Invalid {
            what: format!("`{only}`"),
            why: format!("no cell of {} has that in its name", plan.name),
        });
    }
    let fresh = Measurement::new(plan.name.clone(), plan.text.clone(), plan.seed);
    let (commit, date) = (fresh.commit.clone(), fresh.date.clone());
    let mut document = begin(fresh, options)?;
    let is_open = |cell: &&Cell| !(options.resume && rows::is_done(&document, cell));
    let open: Vec<&Cell> = picked.into_iter().filter(is_open).collect();
    if !open.is_empty() {
        // Rows that stay say themselves what they were made from.
        document.commit.clone_from(&commit);
        document.date = date;
    }
    let jobs = options.jobs.max(1);
    let mut progress = Progress::new(open.iter().map(|cell| cell.repeat as usize).sum());
    let shared = Shared {
        plan,
        options,
        commit,
        is_failed: AtomicBool::new(false),
        state: Mutex::new(State {
            lanes: Lanes::new(&open, jobs),
            left_s: open.iter().map(|cell| expected_s(plan, cell)).sum(),
            pace: 1.0,
            document,
        }),
    };
    let lane = |lane: usize, progress: Progress| {
        let bench = make(shared.name(lane));
        shared.study(lane, bench, progress).run()
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..jobs)
            .map(|number| {
                let progress = progress.beside();
                scope.spawn(move || lane(number, progress))
            })
            .collect();
        let first = lane(0, progress);
        let ends = others.into_iter().map(|other| {
            let end = other.join();
            end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ends.fold(first, Result::and)
    })?;
    let mut state = shared
        .state
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    state.write(plan, options)?;
    Ok(state.document)
}

/// An empty document, or what is there already of the same plan.
fn begin(fresh: Measurement, options: &StudyOptions) -> Result<Measurement, LabError> {
    let path = options.out.join(format!("{}.json", fresh.name));
    let is_anew = !options.resume && options.only.is_none();
    if is_anew || !path.exists() {
        return Ok(fresh);
    }
    let wrong = |why: String| LabError::Invalid {
        what: path.display().to_string(),
        why,
    };
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    let kept: Measurement =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if kept.plan != fresh.plan {
        let way = "begin anew without --resume and --only, choose another folder by --out, or put the plan back";
        return Err(wrong(format!(
            "it was made by another version of the plan: {way}"
        )));
    }
    let model = |document: &Measurement| {
        let machine = &document.machine;
        (machine.processor.clone(), machine.cores)
    };
    if model(&kept) != model(&fresh) {
        return Err(wrong(
            "it was measured on another machine: begin anew without --resume and --only, or choose another folder by --out"
                .to_owned(),
        ));
    }
    Ok(kept)
}

/// About how long a cell takes, gateways and files included.
pub fn expected_s(plan: &Plan, cell: &Cell) -> f64 {
    const AROUND_S: f64 = 4.0;
    let most_s = cell.most_s as f64;
    let flat_s = plan.flat_after_s.filter(|_| cell.is_steady());
    let flat_s = flat_s.map_or(most_s, |flat_s| flat_s as f64);
    let copy_s = cell.expected_s().min(flat_s).min(most_s);
    (copy_s + AROUND_S) * f64::from(cell.repeat)
}

/// What all lanes of a run have in common.
struct Shared<'a> {
    plan: &'a Plan,
    options: &'a StudyOptions,
    /// What this run is made from.
    commit: Option<String>,
    /// One lane cannot go on: the others end after what they do.
    is_failed: AtomicBool,
    state: Mutex<State<'a>>,
}

/// How far the run is.
struct State<'a> {
    lanes: Lanes<'a>,
    /// Of the cells to come, as expected.
    left_s: f64,
    /// How much longer things take than expected.
    pace: f64,
    document: Measurement,
}

impl State<'_> {
    /// What was expected is held against what it took.
    fn count(&mut self, expected_s: f64, took_s: f64) {
        self.left_s = (self.left_s - expected_s).max(0.0);
        self.pace = f64::midpoint(self.pace, (took_s / expected_s).clamp(0.2, 5.0));
    }

    fn write(&mut self, plan: &Plan, options: &StudyOptions) -> Result<(), LabError> {
        derived::compare(&mut self.document, plan);
        rows::sort(&mut self.document, plan);
        self.document.write(&options.out).map(drop)
    }
}

impl<'a> Shared<'a> {
    /// Of a lane's labs.
    fn name(&self, lane: usize) -> String {
        match lane {
            0 => self.options.name.clone(),
            _ => format!("{}{}", self.options.name, lane + 1),
        }
    }

    fn study<B: Bench>(&self, lane: usize, bench: B, progress: Progress) -> Study<'_, 'a, B> {
        Study {
            shared: self,
            lane,
            bench,
            progress,
        }
    }

    fn state(&self) -> MutexGuard<'_, State<'a>> {
        // Every change of it is whole when it ends.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.load(Ordering::Relaxed)
    }
}

/// One lane.
struct Study<'s, 'a, B> {
    shared: &'s Shared<'a>,
    lane: usize,
    bench: B,
    progress: Progress,
}

impl<B: Bench> Study<'_, '_, B> {
    /// One scenario after the other.
    fn run(&mut self) -> Result<(), LabError> {
        while !self.shared.is_failed.load(Ordering::Relaxed) {
            let next = self.shared.state().lanes.next(self.lane);
            let Some(scenario) = next else {
                break;
            };
            let ended = self.scenario(scenario);
            if ended.is_err() {
                self.shared.is_failed.store(true, Ordering::Relaxed);
                return ended;
            }
        }
        Ok(())
    }

    /// Cells that share a link and a client.
    fn scenario(&mut self, cells: &[&Cell]) -> Result<(), LabError> {
        let Some(first) = cells.first() else {
            return Ok(());
        };
        let (plan, study) = (self.shared.plan, self.shared.options);
        self.bench.up(first)?;
        for cell in cells {
            let start = Instant::now();
            let row = self.cell(cell)?;
            let row = match study.jobs {
                0 | 1 => row,
                jobs => row.detail("jobs", jobs),
            };
            let mut state = self.shared.state();
            rows::put(&mut state.document, row);
            state.write(plan, study)?;
            state.count(expected_s(plan, cell), start.elapsed().as_secs_f64());
        }
        self.bench.down()
    }

    /// All samples of a cell. What goes wrong in them is its row; only an interruption ends the study.
    fn cell(&mut self, cell: &Cell) -> Result<Row, LabError> {
        let (mut samples, mut failures) = (Vec::new(), Vec::new());
        let commit = self.shared.commit.as_deref();
        for _ in 0..cell.repeat {
            match self.sample(cell) {
                Ok(sample) => samples.push(sample),
                // Ctrl-C ends other programs, too; what they then say is not the cause.
                Err(_) if self.shared.is_stopped() => return Err(LabError::Interrupted),
                Err(error) => {
                    self.progress.end(&format!("failed: {error}"));
                    failures.push(error.to_string());
                }
            }
        }
        Ok(rows::row(cell, commit, &samples, &failures))
    }

    /// A copy, done again as long as it was disturbed.
    fn sample(&mut self, cell: &Cell) -> Result<Sample, LabError> {
        let mut discarded = Vec::new();
        loop {
            if self.shared.is_stopped() {
                return Err(LabError::Interrupted);
            }
            let left_min = {
                let state = self.shared.state();
                (state.left_s * state.pace / 60.0).ceil()
            };
            self.progress
                .begin(&format!("{} (all: {left_min} min)", cell.name()));
            let mut sample = self.bench.copy(cell, &mut self.progress)?;
            self.progress.end(&told(cell, &sample));
            if sample.verdict.doubts.is_empty() || discarded.len() + 1 == ATTEMPTS_MAX {
                sample.discarded = discarded;
                return Ok(sample);
            }
            discarded.push(sample.verdict.value);
            self.progress.add_stage();
        }
    }
}

/// A sample in a few words, for who watches.
fn told(cell: &Cell, sample: &Sample) -> String {
    let verdict = &sample.verdict;
    let (_, unit) = rows::metric(cell);
    let mut text = match (verdict.value, verdict.limit) {
        (Some(value), Some(limit)) => format!("{value:.1} {unit} of {limit:.1}"),
        _ => "no value".to_owned(),
    };
    match sample.run.ended {
        judge::Ended::Flat => text += ", flat",
        judge::Ended::Late => text += ", its time was up",
        judge::Ended::Whole | judge::Ended::Failed(_) => {}
    }
    for trouble in verdict.faults.iter().chain(&verdict.doubts) {
        text += &format!("; {trouble}");
    }
    text
}
