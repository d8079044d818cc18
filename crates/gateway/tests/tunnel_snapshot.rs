//! What the tunnel carries over a choice of links, in virtual time, against
//! what it carried when `tunnel_snapshot.txt` was written. It is deterministic:
//! a line that differs is an effect of a change to the code, for better or
//! worse. `make bench-tunnel` measures everything and holds it against targets.
//!
//! After a change that was meant: `FARHAUL_SNAPSHOT=write cargo test -p
//! farhaul-gateway --test tunnel_snapshot`, and look at the difference.

#![allow(clippy::unwrap_used)]

mod virtual_time;

use std::fmt::Write as _;
use std::path::Path;

use virtual_time::ceiling;
use virtual_time::cell::{Cell, Knowledge};
use virtual_time::plan::{self, Job, Outcome};

const SEED: u64 = 1;

/// What is run, in the words of `--list`; `*` stands for any one word.
const CHOICE: [&str; 15] = [
    "1.544M/*/0% * load",
    "1.544M/*/1% untold load",
    "1.544M/*/10% untold load",
    "1.544M/100ms/* * transfer",
    "51.84M/30ms/0% untold load",
    "51.84M/100ms/1% untold load",
    "51.84M/100ms/1% told load",
    "51.84M/250ms/5% untold load",
    "51.84M/30ms/bursts1% untold load",
    "51.84M/30ms/policer untold load",
    "51.84M/30ms/0% untold loss-elsewhere",
    "51.84M/30ms/0% untold both-ways",
    "51.84M/30-100ms/0% told change",
    "51.84M/30ms/mtu1500-1280 untold change",
    "51.84M/30ms/mtu1500-1280/both-ways told change",
];

fn words(text: &str) -> Vec<&str> {
    text.split([' ', '/']).collect()
}

fn is_named(job: &Job, choice: &str) -> bool {
    let name = job.name();
    let (name, choice) = (words(&name), words(choice));
    let fits = |(one, other): (&&str, &&str)| *one == "*" || one == other;
    choice.len() == name.len() && choice.iter().zip(&name).all(fits)
}

fn chosen() -> Vec<Job> {
    let mut jobs = plan::jobs();
    for choice in CHOICE {
        let is_there = jobs.iter().any(|job| is_named(job, choice));
        assert!(is_there, "no job is named {choice}");
    }
    jobs.retain(|job| CHOICE.iter().any(|choice| is_named(job, choice)));
    jobs
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// One line: rounded, so that what nobody would notice changes nothing. A
/// rate is told as its share of what the link can carry.
fn line(job: &Job, outcome: &Result<Outcome, String>) -> String {
    let mut line = format!("{:<40}", job.name());
    match outcome {
        Err(error) => line += error,
        Ok(outcome) => {
            for figure in &outcome.figures {
                let (metric, value, unit) = (figure.metric, figure.value, figure.unit);
                let _ = match (unit, figure.limit) {
                    ("Mbit/s", Some(limit)) => write!(line, "  {metric} {:.2}", value / limit),
                    ("", _) => write!(line, "  {metric} {value:.2}"),
                    _ => write!(line, "  {metric} {value:.0} {unit}"),
                };
            }
        }
    }
    line
}

#[test]
fn the_tunnel_carries_what_it_carried() {
    let jobs = chosen();
    let outcomes = plan::run_all(&jobs, &[SEED], threads(), |_, _, _| {});
    let mut now = String::new();
    for (job, runs) in jobs.iter().zip(&outcomes) {
        for run in runs {
            now += &line(job, run);
            now.push('\n');
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tunnel_snapshot.txt");
    if std::env::var("FARHAUL_SNAPSHOT").is_ok_and(|verb| verb == "write") {
        std::fs::write(&path, &now).unwrap();
        return;
    }
    let then = std::fs::read_to_string(&path).unwrap();
    let differences: Vec<String> = then
        .lines()
        .zip(now.lines())
        .filter(|(then, now)| then != now)
        .map(|(then, now)| format!("- {then}\n+ {now}"))
        .collect();
    assert!(
        then == now,
        "\n{}\n{} of {} lines differ. Where that is meant, write them anew:\n\
         FARHAUL_SNAPSHOT=write cargo test -p farhaul-gateway --test tunnel_snapshot",
        differences.join("\n"),
        differences.len().max(1),
        jobs.len()
    );
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_does_not() {
    let cell = Cell::of_matrix("1.544", 30, "5");
    let job = plan::load_job(&cell, Knowledge::Untold);
    let first = job.run(1).unwrap();
    assert!(first == job.run(1).unwrap(), "two runs of one seed differ");
    assert!(first != job.run(2).unwrap(), "the seed changes nothing");
}

#[test]
fn the_ceiling_is_what_the_headers_leave() {
    // 1514 bytes carry 1472 - 9 - 1 - 16 - 5 - 3.5 of payload.
    let slow = ceiling::payload_share(1_544_000.0, 0.0);
    assert!((slow - 1437.5 / 1514.0).abs() < 0.0003, "{slow}");
    // 41,000 packets in flight need three bytes for their numbers.
    let fast = ceiling::payload_share(1e9, 0.5);
    assert!((slow - fast - 2.0 / 1514.0).abs() < 0.0001, "{fast}");
}
