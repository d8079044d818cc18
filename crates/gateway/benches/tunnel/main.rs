//! `make bench-tunnel`: the tunnel over every link of the matrix, in virtual
//! time. Prints a table and writes `out/tunnel.json`.
//!
//! One cell, second by second, for who works on the controller:
//!
//! ```text
//! scripts/bench-tunnel.sh --only '51.84M/100ms/1%' untold --trace
//! ```
//!
//! | option | environment | what |
//! |---|---|---|
//! | `--only PATTERN` | `ONLY` | jobs whose name as `--list` shows it holds PATTERN; `*` stands for anything. Bare words narrow further |
//! | `--seeds N` | `SEEDS` | runs of each job, with seeds 1 to N; rows show the median |
//! | `--seed S` | | that seed alone |
//! | `--jobs N` | `JOBS` | threads; as many as there are processors |
//! | `--trace` | | what happened in each second, for each run |
//! | `--list` | | the jobs' names only |
//!
//! A run of everything replaces `out/tunnel.json`; a part of it is printed only. Finished jobs are
//! kept (`kept.rs`): a run that was stopped goes on, and a part that was run is not run again.

#![allow(clippy::unwrap_used, missing_docs)]

mod kept;
mod options;
#[path = "../../tests/virtual_time/mod.rs"]
mod virtual_time;

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use farhaul_lab::measurement::{Measurement, Op, Row};
use farhaul_lab::table::{Cell, Mark, Screen, Table};

use kept::Kept;
use options::Options;
use virtual_time::figure;
use virtual_time::plan::{self, Job, Outcome};

const PLAN: &str = "two real sessions over two real QUIC endpoints, in virtual time across two \
    link emulators (farhaul_link); `limit` of goodput is ceiling x (1 - loss), the ceiling being \
    the payload share after all headers (tests/virtual_time/ceiling.rs)";

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let mut jobs = plan::jobs();
    let all = jobs.len();
    jobs.retain(|job| options.wants(&job.name()));
    if options.list {
        jobs.iter().for_each(|job| println!("{}", job.name()));
        return ExitCode::SUCCESS;
    }
    if jobs.is_empty() {
        eprintln!("no job of {all} has such a name; --list shows them");
        return ExitCode::from(2);
    }
    let mut document = Measurement::new("tunnel", PLAN, options.seeds[0]);
    let is_whole = jobs.len() == all;
    let commit = document.commit.as_deref();
    let kept = match Kept::open(&folder(), commit, &options.seeds, is_whole) {
        Ok(kept) => kept,
        Err(error) => {
            eprintln!("{}: {error}", folder().display());
            return ExitCode::FAILURE;
        }
    };
    let rows = measure(jobs, &options, &kept);
    print!("{}", table(&rows).render(Screen::stdout()));
    println!("{}", summary(&rows));
    if !is_whole {
        return ExitCode::SUCCESS;
    }
    document.rows = rows;
    let written = document.write(&folder());
    match written {
        Ok(path) => {
            println!("{}", path.display());
            kept.remove();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out")
}

/// Runs what is not finished; the rows of all `jobs`, in their order.
fn measure(jobs: Vec<Job>, options: &Options, kept: &Kept) -> Vec<Row> {
    let names: Vec<String> = jobs.iter().map(Job::name).collect();
    let is_due = |job: &Job| options.trace || kept.of(&job.name()).is_none();
    let due: Vec<Job> = jobs.into_iter().filter(is_due).collect();
    let (start, count) = (Instant::now(), AtomicUsize::new(0));
    let total = due.len() * options.seeds.len();
    let runs: Mutex<HashMap<String, Vec<_>>> = Mutex::default();
    let done = |job: &Job, seed: u64, outcome: &Result<Outcome, String>| {
        let nth = count.fetch_add(1, Ordering::Relaxed) + 1;
        let seconds = start.elapsed().as_secs_f64();
        let mut text = format!(
            "[{nth:>3}/{total} {seconds:>5.0} s] {} seed {seed}: {}",
            job.name(),
            brief(outcome)
        );
        if let (true, Ok(outcome)) = (options.trace, outcome) {
            text += &format!("\n{}", outcome.trace);
        }
        eprintln!("{text}");
        let mut runs = runs.lock().unwrap();
        let of_job = runs.entry(job.name()).or_default();
        let figures = outcome.as_ref().map(|outcome| outcome.figures.clone());
        of_job.push((seed, figures.map_err(Clone::clone)));
        if of_job.len() == options.seeds.len() {
            of_job.sort_by_key(|(seed, _)| *seed);
            let figures: Vec<_> = of_job.drain(..).map(|(_, figures)| figures).collect();
            let rows = figure::rows(&job.scenario(), job.config, &figures);
            kept.add(job.name(), rows);
        }
    };
    plan::run_all(&due, &options.seeds, options.jobs, done);
    names
        .iter()
        .filter_map(|name| kept.of(name))
        .flatten()
        .collect()
}

fn brief(outcome: &Result<Outcome, String>) -> String {
    match outcome {
        Err(error) => error.clone(),
        Ok(outcome) => {
            let texts = outcome.figures.iter().map(|figure| {
                let share = figure.limit.map_or(String::new(), |limit| {
                    format!(" ({:.3})", figure.value / limit)
                });
                format!("{} {:.2}{share}", figure.metric, figure.value)
            });
            texts.collect::<Vec<_>>().join(", ")
        }
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "link", "gateways", "metric", "value", "unit", "limit", "share", "target", "holds",
    ]);
    for row in rows {
        let number =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
        let sign = row.op.map_or("", |op| match op {
            Op::AtLeast => "≥ ",
            Op::AtMost => "≤ ",
        });
        let holds = match row.ok {
            None => Cell::from(""),
            Some(true) => Cell::marked("yes", Mark::Good),
            Some(false) => Cell::marked("no", Mark::Bad),
        };
        let value = row.error.clone().unwrap_or_else(|| number(row.value));
        table.row(vec![
            row.scenario.as_str().into(),
            row.config.as_str().into(),
            row.metric.as_str().into(),
            value.into(),
            row.unit.as_str().into(),
            number(row.limit).into(),
            number(row.share_of_limit()).into(),
            format!("{sign}{}", number(row.target)).into(),
            holds,
        ]);
    }
    table
}

fn summary(rows: &[Row]) -> String {
    let judged = rows.iter().filter(|row| row.ok.is_some()).count();
    let good = rows.iter().filter(|row| row.ok == Some(true)).count();
    format!("{good} of {judged} rows hold")
}
