//! How often the verdict is right: faults planted on the emulator, drawn at
//! random, examined by the real program in namespaces of their own. [`memo`] has
//! the table of the memo that asked for all this, [`beside`] holds our rates
//! against iperf3's, [`endurance`] does as many runs as the memo.

pub mod beside;
mod child;
pub mod document;
pub mod endurance;
mod group;
pub mod memo;
mod page;
pub mod plant;
mod record;
mod single;
mod table;
mod trouble;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{During, LabError};
use crate::measurement::Row;

use super::diagnose::Fault;
use plant::Plant;
use record::Record;
use single::{Job, once};
pub use table::plan;

/// A run with a departure later than this says nothing about the verdict: the
/// least round trip that is drawn, but for circuits drawn widely.
const LATENESS_MS_MAX: f64 = 10.0;
/// Nor one in which one departure of a hundred was later than this, which is what
/// is asked of the emulator (`make calibrate`).
const LATENESS_P99_MS_MAX: f64 = 1.0;
/// Nor one whose programs waited longer for a processor, as a share of its time:
/// alone on two processors the emulator and the two programs reach a tenth.
const WAITED_SHARE_MAX: f64 = 0.25;
/// Nor one from whose machine its host took more, as a share of one processor.
const STOLEN_SHARE_MAX: f64 = 0.02;
/// How often a circuit is tried in one go, until a run counts.
const ATTEMPTS: u32 = 3;
/// Most runs at once: an emulator and two programs each.
pub const JOBS_MAX: usize = 64;

/// What to do.
#[derive(Debug, Clone)]
pub struct AccuracyOptions {
    /// Plants; those of two faults and clean circuits among them.
    pub plants: Vec<Plant>,
    /// Runs of each.
    pub runs: u64,
    /// Base of all draws.
    pub seed: u64,
    /// Runs at once, each in namespaces of its own.
    pub jobs: usize,
    /// Name of the labs; with several at once a number follows.
    pub lab: String,
    /// This very program.
    pub program: PathBuf,
    /// Its [`fingerprint`]: runs that another one made do not count.
    pub made_by: String,
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
    /// Fingerprint of the program that made it.
    #[serde(default)]
    pub made_by: String,
    /// The circuit.
    pub words: String,
    /// Receive window that the server's program was told to fix; null where it was
    /// not.
    #[serde(default)]
    pub server_window_bytes: Option<u32>,
    /// What was named.
    pub found: Vec<Fault>,
    /// Whether exactly what was planted was named, a small buffer where it is, and
    /// a small window with the setting that makes it small.
    pub is_right: bool,
    /// The verdict's sentence.
    pub sentence: String,
    /// How late the emulator was at most.
    pub lateness_max_ms: f64,
    /// What 99 of 100 of its departures were not later than.
    #[serde(default)]
    pub lateness_p99_ms: f64,
    /// What else the machine did to it.
    #[serde(flatten)]
    pub held: Held,
    /// How long it took.
    pub seconds: f64,
    /// Why there is no verdict.
    pub error: Option<String>,
    /// The error's code where it is the examination's own, which is as wrong as
    /// another verdict; null where the lab failed, which says nothing of it.
    #[serde(default)]
    pub error_code: Option<String>,
}

/// Under which conditions a run was made; what the kernel does not tell is null.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// Runs at once.
    pub jobs: usize,
    /// Share of the time in which one of the two programs wanted a processor and
    /// had none.
    pub waited_share: Option<f64>,
    /// What the machine's host took from it, as a share of one processor.
    pub stolen_share: Option<f64>,
    /// Load average of the last minute, at the end.
    pub load: Option<f64>,
}

impl Run {
    /// Whether the examination came to its end, with a verdict or by itself with
    /// an error.
    pub fn is_examined(&self) -> bool {
        self.error.is_none() || self.error_code.is_some()
    }

    /// Whether it says anything about the verdict: the verdict itself, or that
    /// there is none, does not matter to that.
    pub fn counts(&self) -> bool {
        let is_below = |share: Option<f64>, most: f64| share.is_none_or(|share| share <= most);
        self.is_examined()
            && self.lateness_max_ms <= LATENESS_MS_MAX
            && self.lateness_p99_ms <= LATENESS_P99_MS_MAX
            && is_below(self.held.waited_share, WAITED_SHARE_MAX)
            && is_below(self.held.stolen_share, STOLEN_SHARE_MAX)
    }
}

impl AccuracyOptions {
    /// Seeds of a plant's runs. False alarms are rarer than wrong verdicts: clean
    /// circuits are drawn more often.
    fn seeds(&self, plant: Plant) -> impl Iterator<Item = u64> {
        let runs = match plant {
            Plant::Clean | Plant::CleanWide => self.runs * 5 / 2,
            _ => self.runs,
        };
        let base = self.seed;
        (0..runs).map(move |number| seed_of(base, plant, number))
    }
}

/// Runs what is missing, which is also what the lab failed at or the machine held
/// up, in this or an earlier go, and gives a row of each plant.
pub fn run(options: &AccuracyOptions, tell: &(dyn Fn(&Run) + Sync)) -> Result<Vec<Row>, LabError> {
    let mut record = Record::open(&options.runs_file, &options.made_by)?;
    for _attempt in 0..ATTEMPTS {
        record = tried(options, record, tell)?;
    }
    Ok(table::rows(options, &record.runs))
}

/// Tries each missing run once.
fn tried(
    options: &AccuracyOptions,
    record: Record,
    tell: &(dyn Fn(&Run) + Sync),
) -> Result<Record, LabError> {
    let queue = Mutex::new(missing(options, &record));
    let (record, failure) = (Mutex::new(record), Mutex::new(None));
    let work = |number: usize| {
        let lab = match options.jobs {
            0 | 1 => options.lab.clone(),
            _ => format!("{}-{number}", options.lab),
        };
        let next = || locked(&queue).pop_front();
        while let Some((plant, seed)) = next() {
            let lab = lab.clone();
            let job = Job { plant, seed, lab };
            if let Err(error) = noted(options, &job, &record, tell) {
                locked(&queue).clear();
                locked(&failure).get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| {
        for number in 1..=options.jobs.clamp(1, JOBS_MAX) {
            scope.spawn(move || work(number));
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(record.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Tells one build of a program from any other: the verdicts of several are no
/// measurement of one of them.
pub fn fingerprint(program: &Path) -> Result<String, LabError> {
    const DIGITS: usize = 12;
    let bytes = fs::read(program).during(|| format!("reading {}", program.display()))?;
    let digest = Sha256::digest(bytes);
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    Ok(digits.collect::<String>().chars().take(DIGITS).collect())
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn noted(
    options: &AccuracyOptions,
    job: &Job,
    record: &Mutex<Record>,
    tell: &(dyn Fn(&Run) + Sync),
) -> Result<(), LabError> {
    let (run, report) = once(options, job)?;
    let mut record = locked(record);
    if let Some(report) = report {
        record.keep(&format!("{}-{}.json", job.plant.name(), job.seed), report)?;
    }
    tell(&run);
    record.append(run)
}

/// One of each plant, then the next of each: what is stopped early has some of all.
fn missing(options: &AccuracyOptions, record: &Record) -> VecDeque<(Plant, u64)> {
    let seeds = |plant: &Plant| {
        let plant = *plant;
        let numbered = options.seeds(plant).enumerate();
        numbered.map(move |(nth, seed)| (nth, plant, seed))
    };
    let mut all: Vec<_> = options.plants.iter().flat_map(seeds).collect();
    all.sort_by_key(|(nth, ..)| *nth);
    all.into_iter()
        .map(|(_, plant, seed)| (plant, seed))
        .filter(|(plant, seed)| !record.has(*plant, *seed))
        .collect()
}

fn seed_of(base: u64, plant: Plant, number: u64) -> u64 {
    base.wrapping_mul(1_000_003)
        .wrapping_add(plant as u64 * 10_007)
        .wrapping_add(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(plants: Vec<Plant>) -> AccuracyOptions {
        AccuracyOptions {
            plants,
            runs: 2,
            seed: 1,
            jobs: 1,
            lab: "x".to_owned(),
            program: PathBuf::new(),
            made_by: "me".to_owned(),
            runs_file: PathBuf::new(),
            stop: Arc::default(),
        }
    }

    pub(super) fn run(plant: Plant, seed: u64, lateness_max_ms: f64, error: Option<&str>) -> Run {
        Run {
            plant,
            seed,
            made_by: "me".to_owned(),
            words: String::new(),
            server_window_bytes: None,
            found: Vec::new(),
            is_right: true,
            sentence: String::new(),
            lateness_max_ms,
            lateness_p99_ms: 0.1,
            held: Held::default(),
            seconds: 1.0,
            error: error.map(str::to_owned),
            error_code: None,
        }
    }

    /// One whose examination ended by itself, without a verdict.
    pub(super) fn lost(run: Run) -> Run {
        Run {
            is_right: false,
            error: Some("the connection was lost".to_owned()),
            error_code: Some("lost".to_owned()),
            ..run
        }
    }

    #[test]
    fn an_examination_that_ends_in_an_error_is_a_wrong_verdict() {
        let options = options(vec![Plant::Loss1]);
        let seeds: Vec<u64> = options.seeds(Plant::Loss1).collect();
        let runs = [
            // The machine's fault: done again.
            lost(run(Plant::Loss1, seeds[0], 15.0, None)),
            run(Plant::Loss1, seeds[0], 0.1, None),
            // Its own: a second attempt does not better it.
            lost(run(Plant::Loss1, seeds[1], 0.1, None)),
            run(Plant::Loss1, seeds[1], 0.1, None),
        ];
        let row = &table::rows(&options, &runs)[0];
        assert_eq!((row.value, row.ok), (Some(0.5), Some(false)));
        for (key, expected) in [
            ("runs_counted", 2),
            ("runs_right", 1),
            ("runs_without_verdict", 1),
            ("attempts_failed", 0),
            ("attempts_held_up", 1),
        ] {
            assert_eq!(row.detail[key].as_u64(), Some(expected), "{key}");
        }
    }

    #[test]
    fn held_up_and_failed_runs_and_those_of_other_seeds_do_not_count() {
        let options = options(vec![Plant::Clean, Plant::Loss1]);
        let clean: Vec<u64> = options.seeds(Plant::Clean).collect();
        let lossy: Vec<u64> = options.seeds(Plant::Loss1).collect();
        assert_eq!((clean.len(), lossy.len()), (5, 2));
        let wrong = |run: Run| Run {
            is_right: false,
            ..run
        };
        let waited = |mut run: Run| {
            run.held.waited_share = Some(0.5);
            run
        };
        let runs = [
            run(Plant::Clean, clean[0], 0.1, None),
            wrong(run(Plant::Clean, clean[1], 15.0, None)),
            run(Plant::Clean, clean[1], 0.1, None),
            wrong(run(Plant::Clean, clean[2], 0.1, Some("no"))),
            wrong(waited(run(Plant::Loss1, lossy[0], 0.1, None))),
            run(Plant::Loss1, lossy[0], 0.1, None),
            wrong(run(Plant::Loss1, lossy[1], 0.1, None)),
            // A second attempt does not better a verdict.
            run(Plant::Loss1, lossy[1], 0.1, None),
            wrong(run(Plant::Loss1, lossy[1] + 1, 0.1, None)),
        ];
        let rows = table::rows(&options, &runs);
        let [clean_row, loss_row] = &rows[..] else {
            panic!("{rows:?}");
        };
        // Two of its five circuits have a run that counts.
        assert_eq!((clean_row.value, clean_row.ok), (Some(0.0), Some(false)));
        assert!(clean_row.error.as_ref().unwrap().contains("3 of 5"));
        assert_eq!((loss_row.value, loss_row.ok), (Some(0.5), Some(false)));
        let told = |row: &Row, key: &str| row.detail[key].as_u64();
        assert_eq!(told(clean_row, "attempts_held_up"), Some(1));
        assert_eq!(told(clean_row, "attempts_failed"), Some(1));
        assert_eq!(told(clean_row, "runs_missing"), Some(3));
        assert_eq!(told(loss_row, "attempts_held_up"), Some(1));
        assert_eq!(told(loss_row, "attempts_held_up_right"), Some(0));
        assert_eq!(table::rows(&options, &[])[0].ok, Some(false));
        let all: Vec<Run> = options
            .seeds(Plant::Clean)
            .map(|seed| run(Plant::Clean, seed, 0.1, None))
            .collect();
        let whole = &table::rows(&options, &all)[0];
        assert_eq!((whole.value, whole.ok), (Some(0.0), None));
        let why = whole.error.as_ref().unwrap();
        assert_eq!(why, "not decided: 5 runs count, 50 are asked");
    }

    #[test]
    fn a_target_holds_only_from_as_many_runs_as_it_asks_for() {
        for (plant, runs, asked) in [(Plant::Clean, 20, 50), (Plant::Loss1, 20, 20)] {
            let rows = |runs: u64, wrong: usize| {
                let mut options = options(vec![plant]);
                options.runs = runs;
                let seeds = options.seeds(plant).enumerate();
                let made = seeds.map(|(nth, seed)| Run {
                    is_right: nth >= wrong,
                    ..run(plant, seed, 0.1, None)
                });
                table::rows(&options, &made.collect::<Vec<_>>()).remove(0)
            };
            let enough = rows(runs, 0);
            assert_eq!((enough.ok, enough.error), (Some(true), None), "{plant:?}");
            assert_eq!(enough.detail["runs_counted"].as_u64(), Some(asked));
            assert_eq!(enough.detail["runs_asked"].as_u64(), Some(asked));
            let few = rows(runs - 1, 0);
            assert_eq!(few.ok, None, "{plant:?}");
            assert!(few.error.unwrap().starts_with("not decided"));
            // A wrong one of few is seen all the same.
            let wrong = rows(2, 1);
            assert_eq!(wrong.ok, Some(false), "{plant:?}");
            assert!(wrong.error.unwrap().starts_with("not decided"));
        }
    }

    #[test]
    fn programs_have_fingerprints() {
        let this = std::env::current_exe().unwrap();
        let mark = fingerprint(&this).unwrap();
        assert_eq!(mark.len(), 12);
        assert_eq!(fingerprint(&this).unwrap(), mark);
        assert_ne!(fingerprint(Path::new("/proc/self/cmdline")).unwrap(), mark);
        assert!(fingerprint(Path::new("/nonesuch")).is_err());
    }

    #[test]
    fn a_run_says_under_which_conditions_and_old_lines_still_count() {
        let mut made = run(Plant::Clean, 1, 0.1, None);
        made.held.load = Some(2.5);
        let line = serde_json::to_string(&made).unwrap();
        assert_eq!(serde_json::from_str::<Run>(&line).unwrap(), made);
        let old = line.replace(
            r#""jobs":0,"waited_share":null,"stolen_share":null,"load":2.5,"#,
            "",
        );
        assert_ne!(old, line);
        assert!(serde_json::from_str::<Run>(&old).unwrap().counts());
    }
}
