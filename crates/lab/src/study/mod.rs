//! `farhaul lab run`: the study of 2006 done again, and what came after it. Every cell of a plan is a link, a client, a
//! work and a configuration; real clients copy fresh files from a real server, and what it took is read from a capture.
//!
//! One lab for each scenario; gateways with empty stores for each copy. A copy that was disturbed (foreign traffic, a
//! late link) is done again. Every finished cell is written to the document at once, so a run that was stopped goes on.

mod copy;
mod flat;
mod judge;
mod lanes;
mod rows;
mod said;
mod sockets;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::capture::{Captures, Speakers, crossed, shown};
use crate::demo::progress::Progress;
use crate::demo::servers::{Folders, SMB_PORT, start_files};
use crate::deployment::{Lab, require_program};
use crate::emulate::{ControlClient, LinkStats};
use crate::error::LabError;
use crate::gateways::GatewayOverrides;
use crate::measurement::{Measurement, Row};
use crate::plan::{Cell, Config, Plan};
use crate::topology::{CLIENT, LabOptions, SERVER, Side};

use copy::{Copying, Files};
use judge::{Run, judge};
use lanes::Lanes;
pub(crate) use rows::COMMIT;
use rows::Sample;
pub use rows::{EXTRA_READS, OF_DIRECT, OFF_EXPECTED};

/// A copy that was disturbed is done again, so often in all.
const ATTEMPTS_MAX: u32 = 3;
/// What the share says besides: everybody may write, as the folder's owner, and the old dialect is spoken.
const SHARE: &str = "read only = no\nforce user = root\n[global]\nserver min protocol = NT1\n";
/// The kernel's own receive buffers.
const GROWING_BUFFERS: &str = "4096 131072 6291456";

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
    let commit = fresh.commit.clone();
    let mut document = begin(fresh, options)?;
    let is_open = |cell: &&Cell| !(options.resume && rows::is_done(&document, cell));
    let open: Vec<&Cell> = picked.into_iter().filter(is_open).collect();
    if !open.is_empty() {
        // Rows that stay say themselves what they were made from.
        document.commit.clone_from(&commit);
    }
    let jobs = options.jobs.max(1);
    let mut progress = Progress::new(open.iter().map(|cell| cell.repeat as usize).sum());
    let shared = Shared {
        plan,
        options,
        commit,
        copies: AtomicUsize::new(0),
        is_failed: AtomicBool::new(false),
        state: Mutex::new(State {
            lanes: Lanes::new(&open, jobs),
            left_s: open.iter().map(|cell| expected_s(plan, cell)).sum(),
            pace: 1.0,
            document,
        }),
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..jobs)
            .map(|lane| {
                let mut study = shared.study(lane, progress.beside());
                scope.spawn(move || study.run())
            })
            .collect();
        let first = shared.study(0, progress).run();
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
    /// No file is used twice.
    copies: AtomicUsize,
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
        rows::compare(&mut self.document, plan);
        rows::sort(&mut self.document, plan);
        self.document.write(&options.out).map(drop)
    }
}

impl<'a> Shared<'a> {
    fn study<'s>(&'s self, lane: usize, progress: Progress) -> Study<'s, 'a> {
        let name = match lane {
            0 => self.options.name.clone(),
            _ => format!("{}{}", self.options.name, lane + 1),
        };
        Study {
            shared: self,
            lane,
            name,
            progress,
        }
    }

    fn state(&self) -> MutexGuard<'_, State<'a>> {
        // Every change of it is whole when it ends.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One lane.
struct Study<'s, 'a> {
    shared: &'s Shared<'a>,
    lane: usize,
    /// Of its labs.
    name: String,
    progress: Progress,
}

impl Study<'_, '_> {
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
        let mut options = LabOptions::new(&self.name, &study.program);
        options.link = Some(first.circuit.words.clone());
        options.seed = plan.seed;
        options
            .congestion_control
            .clone_from(&plan.congestion_control);
        let mut lab = Lab::up(&options)?;
        lab.interrupt_by(Arc::clone(&study.stop));
        let folders = start_files(&mut lab, SHARE)?;
        let buffers = match first.receive_buffer_bytes {
            Some(bytes) => format!("4096 {bytes} {bytes}"),
            None => GROWING_BUFFERS.to_owned(),
        };
        lab.client()?.set(&[("ipv4/tcp_rmem", &buffers)])?;
        for cell in cells {
            let start = Instant::now();
            let row = self.cell(&mut lab, &folders, cell)?;
            let row = match study.jobs {
                0 | 1 => row,
                jobs => row.detail("jobs", jobs),
            };
            let mut state = self.shared.state();
            rows::put(&mut state.document, row);
            state.write(plan, study)?;
            state.count(expected_s(plan, cell), start.elapsed().as_secs_f64());
        }
        lab.down()
    }

    /// All samples of a cell. What goes wrong in them is its row; only an interruption ends the study.
    fn cell(&mut self, lab: &mut Lab, folders: &Folders, cell: &Cell) -> Result<Row, LabError> {
        let (mut samples, mut failures) = (Vec::new(), Vec::new());
        let commit = self.shared.commit.as_deref();
        for _ in 0..cell.repeat {
            match self.sample(lab, folders, cell) {
                Ok(sample) => samples.push(sample),
                // Ctrl-C ends other programs, too; what they then say is not the cause.
                Err(_) if self.shared.options.stop.load(Ordering::Relaxed) => {
                    return Err(LabError::Interrupted);
                }
                Err(error) => {
                    self.progress.end(&format!("failed: {error}"));
                    failures.push(error.to_string());
                }
            }
        }
        Ok(rows::row(cell, commit, &samples, &failures))
    }

    fn sample(
        &mut self,
        lab: &mut Lab,
        folders: &Folders,
        cell: &Cell,
    ) -> Result<Sample, LabError> {
        let mut attempts = 1;
        loop {
            if self.shared.options.stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            let left_min = {
                let state = self.shared.state();
                (state.left_s * state.pace / 60.0).ceil()
            };
            self.progress
                .begin(&format!("{} (all: {left_min} min)", cell.name()));
            let sample = self.attempt(lab, folders, cell, attempts)?;
            self.progress.end(&told(cell, &sample));
            if sample.verdict.doubts.is_empty() || attempts == ATTEMPTS_MAX {
                return Ok(sample);
            }
            attempts += 1;
            self.progress.add_stage();
        }
    }

    fn attempt(
        &mut self,
        lab: &mut Lab,
        folders: &Folders,
        cell: &Cell,
        attempts: u32,
    ) -> Result<Sample, LabError> {
        gateways(lab, cell.config)?;
        let copy = self.shared.copies.fetch_add(1, Ordering::Relaxed) + 1;
        let files = Files::make(cell, folders, copy)?;
        link_stats(lab, true)?;
        let captures = Captures::start(lab)?;
        let copy = Copying {
            lab,
            folders,
            plan: self.shared.plan,
            cell,
            files: &files,
            stop: &self.shared.options.stop,
        };
        let (ended, sockets) = copy.run(&mut self.progress)?;
        let captured = captures.finish(lab)?;
        let stats = link_stats(lab, false)?;
        let late_ns = stats
            .forward
            .lateness_max_ns
            .max(stats.backward.lateness_max_ns);
        let server = (SERVER, SMB_PORT);
        let gateways = Side::BOTH.map(Side::wan_address);
        let speakers = Speakers {
            client: CLIENT,
            server,
            gateways,
        };
        let no_capture = || LabError::Invalid {
            what: "what tcpdump has written".to_owned(),
            why: "not a pcap file with nanoseconds".to_owned(),
        };
        let is_whole = ended == judge::Ended::Whole;
        let run = Run {
            is_equal: files.is_equal(is_whole),
            files_done: files.done(is_whole),
            ended,
            shown: shown(&captured.client, CLIENT, server).ok_or_else(no_capture)?,
            crossed: crossed(&captured.wan, speakers).ok_or_else(no_capture)?,
            missed: captured.missed,
            lateness_ms: late_ns as f64 / 1e6,
        };
        let mut verdict = judge(cell, &run);
        let wrong = sockets.wrong(&self.shared.plan.congestion_control);
        verdict.faults.extend(wrong);
        let sample = Sample {
            verdict,
            run,
            sockets,
            attempts,
            sha256: files.sha256(),
            said: match cell.config.has_gateways() {
                true => said::of(lab),
                false => serde_json::Value::Null,
            },
        };
        files.remove(folders);
        Ok(sample)
    }
}

/// Ends the gateways that run and starts those of a configuration, which have seen nothing.
fn gateways(lab: &mut Lab, config: Config) -> Result<(), LabError> {
    lab.gateways_down()?;
    match config.has_gateways() {
        true => lab.gateways_up(&GatewayOverrides::both(config.gateway_text())?),
        false => Ok(()),
    }
}

/// The link's counters since they were last started anew.
fn link_stats(lab: &Lab, is_new: bool) -> Result<LinkStats, LabError> {
    let stats = ControlClient::connect(&lab.link_socket()).and_then(|mut link| link.stats(is_new));
    stats.map_err(|error| LabError::Invalid {
        what: "the link emulator".to_owned(),
        why: error.to_string(),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_plan_is_begun_anew() {
        let out = std::env::temp_dir().join(format!("farhaul-begin-{}", std::process::id()));
        let options = |only: Option<&str>, resume| StudyOptions {
            name: "x".to_owned(),
            program: PathBuf::new(),
            only: only.map(str::to_owned),
            resume,
            jobs: 1,
            out: out.clone(),
            stop: Arc::default(),
        };
        let begun =
            |options: StudyOptions, plan: &str| begin(Measurement::new("p", plan, 1), &options);
        assert!(begun(options(Some("A"), true), "text").is_ok_and(|begun| begun.rows.is_empty()));
        let mut kept = Measurement::new("p", "text", 1);
        kept.rows
            .push(Row::of("s", "A", "throughput", "KiB/s", 1.0));
        kept.write(&out).unwrap();
        let rows = [
            (None, false),
            (Some("B"), false),
            (Some("B"), true),
            (None, true),
        ]
        .map(|(only, resume)| {
            begun(options(only, resume), "text")
                .map(|begun| begun.rows.len())
                .ok()
        });
        let other = begun(options(Some("B"), false), "another text").unwrap_err();
        std::fs::remove_dir_all(&out).unwrap();
        assert_eq!(rows, [Some(0), Some(1), Some(1), Some(1)]);
        assert!(
            other.to_string().contains("another version of the plan"),
            "{other}"
        );
    }
}
