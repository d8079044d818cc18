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
//! A run of everything replaces `out/tunnel.json`; a part of it is printed only.

#![allow(clippy::unwrap_used, missing_docs)]

mod options;
#[path = "../../tests/virtual_time/mod.rs"]
mod virtual_time;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use farhaul_lab::measurement::{Measurement, Op, Row};
use farhaul_lab::table::{Cell, Mark, Screen, Table};

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
    let rows = measure(&jobs, &options);
    print!("{}", table(&rows).render(Screen::stdout()));
    println!("{}", summary(&rows));
    if jobs.len() < all {
        return ExitCode::SUCCESS;
    }
    let mut document = Measurement::new("tunnel", PLAN, options.seeds[0]);
    document.rows = rows;
    match document.write(&folder()) {
        Ok(path) => {
            println!("{}", path.display());
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

fn measure(jobs: &[Job], options: &Options) -> Vec<Row> {
    let (start, count) = (Instant::now(), AtomicUsize::new(0));
    let total = jobs.len() * options.seeds.len();
    let tell = |job: &Job, seed: u64, outcome: &Result<Outcome, String>| {
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
    };
    let outcomes = plan::run_all(jobs, &options.seeds, options.jobs, tell);
    let of_job = |(job, runs): (&Job, Vec<Result<Outcome, String>>)| {
        let figures = |run: Result<Outcome, String>| run.map(|outcome| outcome.figures);
        let runs: Vec<_> = runs.into_iter().map(figures).collect();
        figure::rows(&job.scenario(), job.config, &runs)
    };
    jobs.iter().zip(outcomes).flat_map(of_job).collect()
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
