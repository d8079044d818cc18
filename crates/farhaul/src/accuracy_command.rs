//! `farhaul lab probe`: how often the circuit tester's verdict is right.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use farhaul_lab::measurement::{Measurement, Row};
use farhaul_lab::probe::accuracy::beside::{self, BesideOptions};
use farhaul_lab::probe::accuracy::memo::{self, MemoOptions, TABLES, Table};
use farhaul_lab::probe::accuracy::plant::Plant;
use farhaul_lab::probe::accuracy::{self, AccuracyOptions, Run, document, endurance, fingerprint};
use farhaul_lab::require_root;

use crate::failure::Failure;
use crate::print;

/// All plants that can share the machine, for `--only`.
const PLANTS: &str = "plants";

/// `farhaul lab probe`.
#[derive(Debug, Args)]
pub(crate) struct AccuracyCommand {
    /// Only plants and tables whose name contains this; `plants` are all plants
    /// but `clean_wide`, which wants the machine for itself. Tables: `memo`, the
    /// memo's; `windows`, of whole segments by round trip; `iperf3`, our rates
    /// beside iperf3's; `campaign`, 8755 runs and the memory they take.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Runs of each plant; of circuits without a fault 2.5 times as many.
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: u32,
    /// Runs of each window of the tables [default: 50 of the memo's, 5 of the
    /// other].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    window_runs: Option<u32>,
    /// Runs at once, each in namespaces of its own.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=accuracy::JOBS_MAX as i64))]
    jobs: u16,
    /// Base of all random draws.
    #[arg(long, value_name = "N", default_value_t = 2012)]
    seed: u64,
    /// Folder for probe.json, probe.md and probe-runs.jsonl; runs found there are
    /// not done again, and parts that are not run stay in the document.
    #[arg(long, value_name = "FOLDER", default_value = "out")]
    out: PathBuf,
    /// Name of the labs it makes.
    #[arg(long, default_value = "probe")]
    name: String,
}

impl AccuracyCommand {
    fn memo(&self, options: &AccuracyOptions) -> MemoOptions {
        MemoOptions {
            runs: self.window_runs,
            made_by: options.made_by.clone(),
            lab: options.lab.clone(),
            program: options.program.clone(),
            folder: self.out.clone(),
            stop: Arc::clone(&options.stop),
        }
    }

    pub(crate) fn run(self, program: PathBuf, stop: Arc<AtomicBool>) -> Result<(), Failure> {
        require_root("`farhaul lab probe`")?;
        let is_wanted = |plant: &Plant| match self.only.as_str() {
            PLANTS => *plant != Plant::CleanWide,
            only => plant.name().contains(only),
        };
        let options = AccuracyOptions {
            plants: Plant::ALL.into_iter().filter(is_wanted).collect(),
            runs: self.runs.into(),
            seed: self.seed,
            jobs: self.jobs.into(),
            lab: self.name.clone(),
            made_by: fingerprint(&program)?,
            program,
            runs_file: self.out.join("probe-runs.jsonl"),
            stop,
        };
        let tables: Vec<&Table> = TABLES
            .into_iter()
            .filter(|table| table.name.contains(&self.only))
            .collect();
        let is_beside = beside::NAME.contains(&self.only);
        let is_endurance = endurance::NAME.contains(&self.only);
        if options.plants.is_empty() && tables.is_empty() && !is_beside && !is_endurance {
            return Err(Failure::usage(format!(
                "no plant and no table is called `{}`",
                self.only
            )));
        }
        let mut book = Book::open(self.out.clone(), &options);
        for table in tables {
            book.put(memo::rows(&self.memo(&options), table, &tell)?)?;
        }
        if is_beside {
            let beside = BesideOptions {
                seed: options.seed,
                lab: options.lab.clone(),
                program: options.program.clone(),
                stop: Arc::clone(&options.stop),
            };
            book.put(beside::rows(&beside, &tell)?)?;
        }
        if is_endurance {
            book.put(endurance::rows(&self.memo(&options), &tell)?)?;
        }
        book.put(accuracy::run(&options, &|run| tell(&run_words(run)))?)?;
        book.end()
    }
}

/// The document while its parts are run: written after each, so that what is
/// stopped later loses none.
struct Book {
    folder: PathBuf,
    document: Measurement,
    /// Of this run, as lines.
    lines: Vec<String>,
    is_ok: bool,
}

impl Book {
    fn open(folder: PathBuf, options: &AccuracyOptions) -> Self {
        let fresh = Measurement::new(document::NAME, accuracy::plan(options), options.seed);
        let (document, anew) = document::open(&folder, fresh);
        if let Some(why) = anew {
            tell(&why);
        }
        Self {
            folder,
            document,
            lines: Vec::new(),
            is_ok: true,
        }
    }

    fn put(&mut self, rows: Vec<Row>) -> Result<(), Failure> {
        self.is_ok &= rows.iter().all(|row| row.ok != Some(false));
        self.lines.extend(rows.iter().map(row_words));
        document::put(&mut self.document, rows);
        document::write(&self.document, &self.folder)?;
        Ok(())
    }

    /// What came of the parts of this run.
    fn end(self) -> Result<(), Failure> {
        let path = document::write(&self.document, &self.folder)?;
        for line in &self.lines {
            print::line(line)?;
        }
        print::line(&path.display().to_string())?;
        match self.is_ok {
            true => Ok(()),
            false => Err(Failure::Reported),
        }
    }
}

/// Whoever watched may have gone; the runs go on.
fn tell(line: &str) {
    let _ = print::line(line);
}

fn run_words(run: &Run) -> String {
    let outcome = match &run.error {
        Some(error) if run.is_examined() => format!("WRONG, failed: {error}"),
        Some(error) => error.clone(),
        None => format!(
            "{} {:?}",
            if run.is_right { "right" } else { "WRONG" },
            run.found
        ),
    };
    let held_up = match run.counts() {
        true => "",
        false if run.is_examined() => ", held up by the machine: not counted",
        false => ", not counted",
    };
    let window = match run.server_window_bytes {
        Some(bytes) => format!(", --window {bytes}"),
        None => String::new(),
    };
    format!(
        "{} [{}{window}] {outcome}, {:.0} s{held_up}",
        run.plant.name(),
        run.words,
        run.seconds
    )
}

/// Shares as percentages; a failure says why.
fn row_words(row: &Row) -> String {
    let value = match (row.value, row.unit.as_str()) {
        (None, _) => row.error.clone().unwrap_or_else(|| "-".to_owned()),
        (Some(share), "") => format!("{:.1} %", share * 100.0),
        (Some(value), unit) => format!("{value:.3} {unit}"),
    };
    let name = match row.config.as_str() {
        "probe" => row.scenario.clone(),
        config => format!("{}, {config}", row.scenario),
    };
    let missing = match (&row.error, row.value) {
        (Some(error), Some(_)) => format!(", {error}"),
        _ => String::new(),
    };
    format!("{name:<40} {:<18} {value}{missing}", row.metric)
}
