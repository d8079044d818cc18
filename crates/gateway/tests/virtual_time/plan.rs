//! Everything that is measured. A job is one link and what the gateways know
//! of it; jobs know nothing of each other and run on as many threads as wanted.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::cell::{Cell, Knowledge};
use super::company::First;
use super::figure::Figure;
use super::network::Way;
use super::trace::Trace;
use super::transfer::{self, Past};
use super::{changes, classes, company, load, requests};

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

/// What is done on every link of the matrix.
const LOAD: &str = "load";

/// Something to measure.
pub struct Job {
    /// The link, short and stable.
    pub cell: String,
    /// What the gateways know.
    pub config: &'static str,
    /// What they do.
    pub work: &'static str,
    /// About how much computing it takes: bits that cross the link.
    pub cost: f64,
    run: Run,
}

impl Job {
    /// Work of its own kind.
    pub fn new(
        cell: String,
        config: &'static str,
        work: &'static str,
        cost: f64,
        run: impl Fn(u64) -> Result<Outcome, String> + Send + Sync + 'static,
    ) -> Self {
        let run = Box::new(run);
        Self {
            cell,
            config,
            work,
            cost,
            run,
        }
    }

    /// One run.
    pub fn run(&self, seed: u64) -> Result<Outcome, String> {
        (self.run)(seed)
    }

    /// Name as a filter sees it.
    pub fn name(&self) -> String {
        format!("{} {} {}", self.cell, self.config, self.work)
    }

    /// Name in results: the link, and what is done unless it is the usual.
    pub fn scenario(&self) -> String {
        match self.work {
            LOAD => self.cell.clone(),
            work => format!("{}/{work}", self.cell),
        }
    }
}

/// All jobs.
pub fn jobs() -> Vec<Job> {
    let cells = Cell::matrix();
    let mut jobs = Vec::new();
    for (cell, knowledge) in each(&cells) {
        jobs.push(load_job(cell, knowledge));
        if cell.loss() <= 0.05 {
            jobs.push(transfer_job(cell, knowledge, Past::Idle));
        }
    }
    for (cell, knowledge) in each(&cells_of(&RETURNS)) {
        jobs.push(transfer_job(cell, knowledge, Past::Returning));
    }
    for (cell, knowledge) in each(&odd_cells()) {
        jobs.push(odd_job(cell, knowledge));
    }
    for (cell, knowledge) in each(&cells_of(&COMPANY)) {
        jobs.push(both_ways_job(cell, knowledge));
        jobs.push(many_flows_job(cell, knowledge));
    }
    for cell in &cells_of(&COMPANY) {
        jobs.extend(company_jobs(cell));
    }
    jobs.extend(cubic_jobs());
    jobs.extend(change_jobs());
    jobs.extend(requests::jobs());
    jobs.extend(classes::jobs());
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

/// Links on which a tunnel or a flow is not alone.
const COMPANY: [(&str, u64, &str); 3] =
    [("51.84", 30, "0"), ("51.84", 100, "0"), ("51.84", 100, "1")];

/// What is odd about a link, added to or in place of the matrix's words.
const ODDITIES: [(&str, &str); 10] = [
    ("bursts1%", "loss bursts 1% 3"),
    ("bursts5%", "loss bursts 5% 3"),
    ("jitter20%", "jitter JITTER"),
    ("jitter20%-overtaking", "jitter JITTER reorder jitter"),
    ("ahead1%", "reorder 1%"),
    ("ahead25%", "reorder 25%"),
    ("late1%", "reorder 1% 10ms"),
    ("queue5ms", "queue 5ms"),
    ("queue5ms/1%", "loss 1% queue 5ms"),
    ("policer", "policer RATE 128kb rate 155.52mbit"),
];

fn cells_of(links: &[(&str, u64, &str)]) -> Vec<Cell> {
    let cell = |(rate_mbit, one_way_ms, loss_percent): &(&str, u64, &str)| {
        Cell::of_matrix(rate_mbit, *one_way_ms, loss_percent)
    };
    links.iter().map(cell).collect()
}

fn odd_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (rate_mbit, one_way_ms) in [("51.84", 30), ("51.84", 100), ("51.84", 250)] {
        for (name, words) in ODDITIES {
            let words = words
                .replace("JITTER", &format!("{}ms", one_way_ms / 5))
                .replace("RATE", &format!("{rate_mbit}mbit"));
            cells.push(Cell::new(
                format!("{rate_mbit}M/{one_way_ms}ms/{name}"),
                format!("rate {rate_mbit}mbit delay {one_way_ms}ms queue 100ms {words}"),
            ));
        }
    }
    cells
}

fn each(cells: &[Cell]) -> impl Iterator<Item = (&Cell, Knowledge)> {
    let both = |cell| Knowledge::BOTH.map(|known| (cell, known));
    cells.iter().flat_map(both)
}

/// A job whose link is full for `seconds`.
fn job<F>(cell: &Cell, config: &'static str, work: &'static str, seconds: f64, run: F) -> Job
where
    F: Fn(&Cell, u64) -> Result<(Vec<Figure>, Trace), String> + Send + Sync + 'static,
{
    let cell = cell.clone();
    Job {
        cell: cell.name.clone(),
        config,
        work,
        cost: cell.rate_bit_per_s() * seconds,
        run: Box::new(move |seed| {
            let (figures, trace) = run(&cell, seed)?;
            Ok(Outcome { figures, trace })
        }),
    }
}

fn seconds(cell: &Cell) -> f64 {
    (cell.warm_up_s() + cell.measured_s()) as f64
}

/// Bulk and echo on one link.
pub fn load_job(cell: &Cell, knowledge: Knowledge) -> Job {
    job(
        cell,
        knowledge.name(),
        LOAD,
        seconds(cell),
        move |cell, seed| {
            let load = load::run(cell, knowledge, seed)?;
            Ok((load::figures(cell, knowledge, &load), load.trace))
        },
    )
}

fn odd_job(cell: &Cell, knowledge: Knowledge) -> Job {
    job(
        cell,
        knowledge.name(),
        LOAD,
        seconds(cell),
        move |cell, seed| {
            let load = load::run(cell, knowledge, seed)?;
            Ok((load::odd_figures(cell, &load, 0.85), load.trace))
        },
    )
}

/// One transfer, start and tail included.
pub fn transfer_job(cell: &Cell, knowledge: Knowledge, past: Past) -> Job {
    let work = match past {
        Past::Idle => "transfer",
        Past::Returning => "return",
    };
    job(
        cell,
        knowledge.name(),
        work,
        transfer::IDEAL_S,
        move |cell, seed| {
            let transfer = transfer::run(cell, knowledge, past, seed)?;
            let figures = transfer::figures(cell, knowledge, past, &transfer);
            Ok((figures, transfer.trace))
        },
    )
}

fn both_ways_job(cell: &Cell, knowledge: Knowledge) -> Job {
    let seconds = seconds(cell) * 2.0;
    job(
        cell,
        knowledge.name(),
        "both-ways",
        seconds,
        move |cell, seed| {
            let seen = company::both_ways(cell, knowledge, seed)?;
            Ok((company::both_ways_figures(cell, &seen), seen.1))
        },
    )
}

fn many_flows_job(cell: &Cell, knowledge: Knowledge) -> Job {
    job(
        cell,
        knowledge.name(),
        "20-flows",
        seconds(cell),
        move |cell, seed| {
            let seen = company::many_flows(cell, 20, knowledge, seed)?;
            Ok((company::many_flows_figures(cell, knowledge, &seen), seen.1))
        },
    )
}

/// What is not owned: flows and tunnels that must not hurt each other.
fn company_jobs(cell: &Cell) -> Vec<Job> {
    let untold = Knowledge::Untold.name();
    let seconds = 2.0 * seconds(cell);
    let mut jobs = vec![
        job(
            cell,
            untold,
            "stopped-reader",
            seconds,
            company::stopped_reader,
        ),
        job(
            cell,
            untold,
            "loss-elsewhere",
            10.0,
            company::loss_elsewhere,
        ),
        job(cell, untold, "two-tunnels", 110.0, |cell, seed| {
            let seen = company::two_tunnels(cell, Duration::ZERO, seed)?;
            Ok((company::equal_figures(cell, &seen), seen.1))
        }),
    ];
    // Round trips of 60 and 200 ms.
    if let Some(further) = Duration::from_millis(200)
        .checked_sub(cell.rtt())
        .filter(|further| !further.is_zero())
    {
        jobs.push(job(cell, untold, "two-rtts", 110.0, move |cell, seed| {
            let seen = company::two_tunnels(cell, further, seed)?;
            Ok((company::unequal_figures(cell, &seen), seen.1))
        }));
    }
    jobs
}

/// A tunnel that does not own its link, and a TCP flow.
fn cubic_jobs() -> Vec<Job> {
    let mut jobs = Vec::new();
    for queue_ms in [100, 300] {
        let cell = Cell::new(
            format!("51.84M/30ms/queue{queue_ms}ms"),
            format!("rate 51.84mbit delay 30ms queue {queue_ms}ms"),
        );
        for (first, work) in [(First::Tunnel, "before-cubic"), (First::Tcp, "after-cubic")] {
            let untold = Knowledge::Untold.name();
            jobs.push(job(&cell, untold, work, 200.0, move |cell, seed| {
                let seen = company::beside_cubic(cell, first, seed)?;
                Ok((company::cubic_figures(cell, &seen), seen.1))
            }));
        }
    }
    jobs
}

/// Links that change; the first of each is the one that is told.
fn change_jobs() -> Vec<Job> {
    let link = |words: String| Cell::new("", format!("rate {words}"));
    let rate =
        |mbit: &str, loss: &str| link(format!("{mbit}mbit delay 30ms loss {loss}% queue 100ms"));
    let route = |ms: u64| link(format!("51.84mbit delay {ms}ms queue 100ms"));
    let size = |bytes: u64| link(format!("51.84mbit delay 30ms queue 100ms mtu {bytes}"));
    let steps = |loss| vec![rate("51.84", loss), rate("20", loss), rate("51.84", loss)];
    // A queue of bytes is as long at any rate: 6.7 ms, then 100 ms.
    let fall = |ms: u64| {
        let deep = |mbit: u64| link(format!("{mbit}mbit delay {ms}ms loss 1% queue 250kb"));
        vec![deep(300), deep(20)]
    };
    let there = &[Way::Forward][..];
    let courses = [
        (
            "51.84-20-51.84M/30ms/0%",
            steps("0"),
            &Knowledge::BOTH[..1],
            there,
        ),
        (
            "51.84-20-51.84M/30ms/1%",
            steps("1"),
            &Knowledge::BOTH[..1],
            there,
        ),
        ("300-20M/30ms/1%", fall(30), &Knowledge::BOTH[..], there),
        ("300-20M/100ms/1%", fall(100), &Knowledge::BOTH[..], there),
        (
            "51.84M/30-100ms/0%",
            vec![route(30), route(100)],
            &Knowledge::BOTH[..],
            there,
        ),
        (
            "51.84M/30ms/mtu1500-1280",
            vec![size(1500), size(1280)],
            &Knowledge::BOTH[..],
            there,
        ),
        (
            "51.84M/100-30ms/0%",
            vec![route(100), route(30)],
            &Knowledge::BOTH[..],
            there,
        ),
        (
            "51.84M/30ms/mtu1500-1280/both-ways",
            vec![size(1500), size(1280)],
            &Knowledge::BOTH[..],
            &[Way::Forward, Way::Backward],
        ),
    ];
    let mut jobs = Vec::new();
    for (name, links, knowledges, ways) in courses {
        jobs.extend(
            knowledges
                .iter()
                .map(|known| course(name, &links, *known, ways)),
        );
    }
    jobs
}

/// One link after the other under bulk.
fn course(name: &str, links: &[Cell], knowledge: Knowledge, ways: &'static [Way]) -> Job {
    let first = Cell {
        name: name.to_owned(),
        ..links[0].clone()
    };
    let links = links.to_vec();
    job(&first, knowledge.name(), "change", 90.0, move |_, seed| {
        let trace = changes::run(&links, ways, knowledge, seed)?;
        Ok((changes::figures(&links, &trace), trace))
    })
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
