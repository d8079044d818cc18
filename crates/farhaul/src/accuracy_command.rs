//! `farhaul lab probe`: how often the circuit tester's verdict is right.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use farhaul_lab::measurement::Row;
use farhaul_lab::probe::accuracy::memo::{self, MemoOptions};
use farhaul_lab::probe::accuracy::plant::Plant;
use farhaul_lab::probe::accuracy::{self, AccuracyOptions, Run};
use farhaul_lab::require_root;

use crate::failure::Failure;
use crate::print;

/// `farhaul lab probe`.
#[derive(Debug, Args)]
pub(crate) struct AccuracyCommand {
    /// Only plants whose name contains this; `memo` is the memo's table.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Runs of each plant, and of each window of the memo's table.
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: u32,
    /// Runs at once, each in namespaces of its own.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=accuracy::JOBS_MAX as i64))]
    jobs: u16,
    /// Base of all random draws.
    #[arg(long, value_name = "N", default_value_t = 2012)]
    seed: u64,
    /// Folder for probe.json and probe-runs.jsonl; runs found there are not
    /// done again.
    #[arg(long, value_name = "FOLDER", default_value = "out")]
    out: PathBuf,
    /// Name of the labs it makes.
    #[arg(long, default_value = "probe")]
    name: String,
}

impl AccuracyCommand {
    pub(crate) fn run(self, program: PathBuf, stop: Arc<AtomicBool>) -> Result<(), Failure> {
        require_root("`farhaul lab probe`")?;
        let is_wanted = |plant: &Plant| plant.name().contains(&self.only);
        let options = AccuracyOptions {
            plants: Plant::ALL.into_iter().filter(is_wanted).collect(),
            runs: self.runs.into(),
            seed: self.seed,
            jobs: self.jobs.into(),
            lab: self.name.clone(),
            program: program.clone(),
            runs_file: self.out.join("probe-runs.jsonl"),
            stop: Arc::clone(&stop),
        };
        let has_memo = memo::NAME.contains(&self.only);
        if options.plants.is_empty() && !has_memo {
            return Err(Failure::usage(format!(
                "no plant is called `{}`",
                self.only
            )));
        }
        let tell = |run: &Run| {
            let outcome = match &run.error {
                Some(error) => error.clone(),
                None => format!(
                    "{} {:?}",
                    if run.is_right { "right" } else { "WRONG" },
                    run.found
                ),
            };
            let held_up = match run.error.is_some() || run.counts() {
                true => "",
                false => ", held up by the machine: not counted",
            };
            let line = format!(
                "{} [{}] {outcome}, {:.0} s{held_up}",
                run.plant.name(),
                run.words,
                run.seconds
            );
            // Whoever watched may have gone; the runs go on.
            let _ = print::line(&line);
        };
        let memo_options = MemoOptions {
            runs: self.runs,
            lab: self.name,
            program,
            folder: self.out.clone(),
            stop,
        };
        let memo_rows = match has_memo {
            true => memo::rows(&memo_options, &|line| drop(print::line(line)))?,
            false => Vec::new(),
        };
        let mut document = accuracy::run(&options, &tell)?;
        document.rows.extend(memo_rows);
        let path = document.write(&self.out)?;
        for row in &document.rows {
            print::line(&row_words(row))?;
        }
        print::line(&path.display().to_string())?;
        match document.is_ok() {
            true => Ok(()),
            false => Err(Failure::Reported),
        }
    }
}

/// Shares as percentages; a failure says why.
fn row_words(row: &Row) -> String {
    let value = match (row.value, row.unit.as_str()) {
        (None, _) => row.error.clone().unwrap_or_else(|| "-".to_owned()),
        (Some(share), "") => format!("{:.1} %", share * 100.0),
        (Some(value), unit) => format!("{value:.3} {unit}"),
    };
    let name = match row.scenario.starts_with(memo::NAME) {
        true => format!("{}, {}", row.scenario, row.config),
        false => row.scenario.clone(),
    };
    format!("{name:<40} {:<18} {value}", row.metric)
}
