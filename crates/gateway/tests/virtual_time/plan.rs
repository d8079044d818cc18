//! Everything that is measured. A job is one link and what the gateways know
//! of it; jobs know nothing of each other and run on as many threads as wanted.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::cell::{Cell, Knowledge};
use super::figure::Figure;
use super::load::{self, Load};
use super::trace::Trace;
use super::transfer::{self, Past, Transfer};

/// What one run of a job has shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Its numbers.
    pub figures: Vec<Figure>,
    /// How it went, second by second.
    pub trace: Trace,
}

/// Does the job with a seed.
type Run = Box<dyn Fn(u64) -> Result<Outcome, String> + Send + Sync>;

/// Something to measure.
pub struct Job {
    /// The link, short and stable.
    pub scenario: String,
    /// What the gateways know.
    pub config: &'static str,
    /// What they do.
    pub work: &'static str,
    /// About how much computing it takes: bits that cross the link.
    pub cost: f64,
    run: Run,
}

impl Job {
    /// One run.
    pub fn run(&self, seed: u64) -> Result<Outcome, String> {
        (self.run)(seed)
    }

    /// Name as a filter sees it.
    pub fn name(&self) -> String {
        format!("{} {} {}", self.scenario, self.config, self.work)
    }
}

/// All jobs.
pub fn jobs() -> Vec<Job> {
    let cells = Cell::matrix();
    let both = |cell| Knowledge::BOTH.map(|known| (cell, known));
    let mut jobs = Vec::new();
    for (cell, knowledge) in cells.iter().flat_map(both) {
        jobs.push(load_job(cell, knowledge));
        if cell.loss() <= 0.05 {
            jobs.push(transfer_job(cell, knowledge, Past::Idle));
        }
    }
    for (rate_mbit, one_way_ms, loss_percent) in RETURNS {
        let cell = Cell::of_matrix(rate_mbit, one_way_ms, loss_percent);
        let return_job = |known| transfer_job(&cell, known, Past::Returning);
        jobs.extend(Knowledge::BOTH.map(return_job));
    }
    jobs
}

/// Links on which a tunnel comes back to a peer.
const RETURNS: [(&str, u64, &str); 8] = [
    ("1.544", 100, "0"),
    ("1.544", 250, "1"),
    ("51.84", 30, "0"),
    ("51.84", 100, "0"),
    ("51.84", 100, "1"),
    ("51.84", 250, "0"),
    ("51.84", 250, "5"),
    ("155.52", 100, "1"),
];

/// Bulk and echo on one link.
pub fn load_job(cell: &Cell, knowledge: Knowledge) -> Job {
    let cell = cell.clone();
    let seconds = cell.warm_up_s() + cell.measured_s();
    Job {
        scenario: cell.name.clone(),
        config: knowledge.name(),
        work: "load",
        cost: cell.rate_bit_per_s() * seconds as f64,
        run: Box::new(move |seed| {
            let load = load::run(&cell, knowledge, seed)?;
            Ok(Outcome {
                figures: load_figures(&cell, knowledge, &load),
                trace: load.trace,
            })
        }),
    }
}

/// One transfer, start and tail included.
pub fn transfer_job(cell: &Cell, knowledge: Knowledge, past: Past) -> Job {
    let cell = cell.clone();
    Job {
        scenario: cell.name.clone(),
        config: knowledge.name(),
        work: match past {
            Past::Idle => "transfer",
            Past::Returning => "return",
        },
        cost: cell.rate_bit_per_s() * transfer::IDEAL_S,
        run: Box::new(move |seed| {
            let transfer = transfer::run(&cell, knowledge, past, seed)?;
            Ok(Outcome {
                figures: transfer_figures(&cell, knowledge, past, &transfer),
                trace: transfer.trace,
            })
        }),
    }
}

fn transfer_figures(
    cell: &Cell,
    knowledge: Knowledge,
    past: Past,
    transfer: &Transfer,
) -> Vec<Figure> {
    let limit_mbit = cell.reachable_bit_per_s() / 1e6;
    let (metric, share): (_, f64) = match (past, knowledge) {
        (Past::Idle, Knowledge::Untold) => ("transfer", 0.93),
        (Past::Idle, Knowledge::Told) => ("transfer", 0.95),
        (Past::Returning, _) => ("return", 0.90),
    };
    let bound = transfer::IDEAL_S / transfer::least_s(cell);
    let words = format!(
        "{} bytes in {:.2} s; at least {:.2} s",
        transfer.bytes,
        transfer.took.as_secs_f64(),
        transfer::least_s(cell)
    );
    vec![
        Figure::new(metric, "Mbit/s", transfer.bit_per_s() / 1e6)
            .limit(limit_mbit)
            .at_least(share.min(bound) * limit_mbit)
            .detail("measured", words),
    ]
}

fn load_figures(cell: &Cell, knowledge: Knowledge, load: &Load) -> Vec<Figure> {
    let is_told = knowledge == Knowledge::Told;
    let limit_mbit = cell.reachable_bit_per_s() / 1e6;
    let goodput_mbit = load.goodput_bit_per_s() / 1e6;
    let share = if is_told { 0.97 } else { 0.95 };
    let measured = format!(
        "seconds {} to {} of one bulk flow",
        load.window_s.0, load.window_s.1
    );
    let is_slow = cell.rate_bit_per_s() < 10e6;
    let queue_ms = match (is_told, is_slow) {
        (true, _) => 5.0,
        (false, true) => 40.0,
        (false, false) => 15.0,
    };
    let base_ms = load::echo_base_ms(cell);
    let grace_ms = 15.0
        + if is_slow {
            cell.sending_ms(3 * 1514)
        } else {
            0.0
        };
    let echo = Figure::new("echo_p95", "ms", load.echo_p95_ms()).limit(base_ms);
    vec![
        Figure::new("goodput", "Mbit/s", goodput_mbit)
            .limit(limit_mbit)
            .at_least(share * limit_mbit)
            .detail("measured", measured),
        Figure::new("queue_mean", "ms", load.queue_mean_ms()).at_most(queue_ms),
        match is_told {
            true => echo.at_most(base_ms + grace_ms),
            false => echo,
        },
        Figure::new("dropped", "%", load.dropped_share() * 100.0),
    ]
}

/// Runs every job with every seed on `threads` threads, the costly ones first.
/// `done` hears of each run as it ends; the answer is in the order of `jobs`.
pub fn run_all(
    jobs: &[Job],
    seeds: &[u64],
    threads: usize,
    done: impl Fn(&Job, u64, &Result<Outcome, String>) + Sync,
) -> Vec<Vec<Result<Outcome, String>>> {
    let mut order: Vec<(usize, usize)> = (0..jobs.len())
        .flat_map(|job| (0..seeds.len()).map(move |seed| (job, seed)))
        .collect();
    order.sort_by(|(a, _), (b, _)| jobs[*b].cost.total_cmp(&jobs[*a].cost));
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some((job, seed)) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = jobs[*job].run(seeds[*seed]);
                    done(&jobs[*job], seeds[*seed], &outcome);
                    outcomes.lock().unwrap().insert((*job, *seed), outcome);
                }
            });
        }
    });
    let mut runs: Vec<Vec<_>> = jobs.iter().map(|_| Vec::new()).collect();
    for ((job, _), outcome) in outcomes.into_inner().unwrap() {
        runs[job].push(outcome);
    }
    runs
}
