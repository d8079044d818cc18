//! `farhaul lab probe`: how often the circuit tester's verdict is right.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use farhaul_lab::probe::accuracy::plant::Plant;
use farhaul_lab::probe::accuracy::{self, AccuracyOptions, Run};
use farhaul_lab::require_root;

use crate::failure::Failure;
use crate::print;

/// `farhaul lab probe`.
#[derive(Debug, Args)]
pub(crate) struct AccuracyCommand {
    /// Only plants whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Runs of each plant.
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: u64,
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
            runs: self.runs,
            seed: self.seed,
            lab: self.name,
            program,
            runs_file: self.out.join("probe-runs.jsonl"),
            stop,
        };
        if options.plants.is_empty() {
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
            let line = format!(
                "{} [{}] {outcome}, {:.0} s",
                run.plant.name(),
                run.words,
                run.seconds
            );
            // Whoever watched may have gone; the runs go on.
            let _ = print::line(&line);
        };
        let document = accuracy::run(&options, &tell)?;
        let path = document.write(&self.out)?;
        for row in &document.rows {
            let value = row
                .value
                .map_or_else(|| "-".to_owned(), |value| format!("{:.1} %", value * 100.0));
            print::line(&format!("{:<28} {:<16} {value}", row.scenario, row.metric))?;
        }
        print::line(&path.display().to_string())?;
        match document.is_ok() {
            true => Ok(()),
            false => Err(Failure::Reported),
        }
    }
}
