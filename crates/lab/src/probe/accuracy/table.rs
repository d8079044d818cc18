//! From runs to shares of right verdicts.

use super::plant::{Plant, RATE_MBIT_MAX, RTT_MS_MAX, RTT_MS_MIN};
use super::{
    AccuracyOptions, LATENESS_MS_MAX, LATENESS_P99_MS_MAX, Run, STOLEN_SHARE_MAX, WAITED_SHARE_MAX,
};
use crate::measurement::{Op, Row};

const RIGHT: f64 = 0.95;
const FALSE_ALARMS: f64 = 0.02;
/// Runs of a plant below which a share decides nothing: one of twenty is 5 %.
const FAULT_RUNS_MIN: usize = 20;
/// Of circuits without a fault: one of fifty is 2 %.
const CLEAN_RUNS_MIN: usize = 50;

/// What is done, whichever parts are: the same program does the same.
pub fn plan(options: &AccuracyOptions) -> String {
    let (waited, stolen) = (WAITED_SHARE_MAX * 100.0, STOLEN_SHARE_MAX * 100.0);
    format!(
        "faults planted on emulated circuits of 10 to 150 Mbit/s and 10 to 100 ms (clean_wide: 10 to {RATE_MBIT_MAX} Mbit/s and {RTT_MS_MIN} to {RTT_MS_MAX} ms), by program {}; not counted and done again are runs whose emulator was once later than {LATENESS_MS_MAX} ms, or {LATENESS_P99_MS_MAX} ms in one departure of a hundred, whose programs waited for a processor for more than {waited} % of the time, or from whose machine the host took more than {stolen} % of a processor",
        options.made_by
    )
}

/// Each plant's share of right verdicts, among runs that the machine did not
/// hold up. An examination that ended in an error is not right.
pub(super) fn rows(options: &AccuracyOptions, runs: &[Run]) -> Vec<Row> {
    let plants = options.plants.iter();
    plants.map(|plant| row(options, runs, *plant)).collect()
}

fn runs_asked(plant: Plant) -> usize {
    match plant {
        Plant::Clean | Plant::CleanWide => CLEAN_RUNS_MIN,
        _ => FAULT_RUNS_MIN,
    }
}

/// Whether its target holds: a share of some of the planned runs is no share of all
/// and fails; one of too few decides nothing, and fails only where it misses.
fn judged(mut row: Row, counted: usize, planned: usize, asked: usize) -> Row {
    let missing = planned - counted;
    let why_missing = (missing > 0).then(|| format!("{missing} of {planned} runs are missing"));
    let undecided =
        (counted < asked).then(|| format!("not decided: {counted} runs count, {asked} are asked"));
    row.ok = match row.ok {
        _ if missing > 0 => Some(false),
        Some(true) if undecided.is_some() => None,
        ok => ok,
    };
    let before = row.error.take().into_iter();
    let why: Vec<_> = before.chain(why_missing).chain(undecided).collect();
    row.error = (!why.is_empty()).then(|| why.join("; "));
    row
}

fn row(options: &AccuracyOptions, runs: &[Run], plant: Plant) -> Row {
    let attempts = |seed: u64| {
        runs.iter()
            .filter(move |run| run.plant == plant && run.seed == seed)
    };
    // Of several attempts at a circuit the first that counts.
    let counted: Vec<_> = options
        .seeds(plant)
        .filter_map(|seed| attempts(seed).find(|run| run.counts()))
        .collect();
    let planned = options.seeds(plant).count();
    // What a busy machine would have given: no result, and worth knowing.
    let held_up: Vec<_> = options
        .seeds(plant)
        .flat_map(attempts)
        .filter(|run| run.is_examined() && !run.counts())
        .collect();
    let failed = options
        .seeds(plant)
        .flat_map(attempts)
        .filter(|run| !run.is_examined())
        .count();
    let without_verdict = counted.iter().filter(|run| run.error.is_some()).count();
    let fixed = counted
        .iter()
        .filter(|run| run.server_window_bytes.is_some());
    let fixed = fixed.count();
    let right_of = |runs: &[&Run]| runs.iter().filter(|run| run.is_right).count();
    let name = plant.name();
    let share = right_of(&counted) as f64 / counted.len() as f64;
    let row = match plant {
        _ if counted.is_empty() => {
            Row::failed(&name, "probe", "right verdicts", "", "no run counts")
        }
        Plant::Clean | Plant::CleanWide => Row::of(&name, "probe", "false alarms", "", 1.0 - share)
            .target(Op::AtMost, FALSE_ALARMS),
        _ => Row::of(&name, "probe", "right verdicts", "", share).target(Op::AtLeast, RIGHT),
    };
    let most = |of: fn(&Run) -> Option<f64>| {
        let all = counted.iter().filter_map(|run| of(run));
        all.reduce(f64::max)
    };
    judged(row, counted.len(), planned, runs_asked(plant))
        .detail("runs_planned", planned)
        .detail("runs_asked", runs_asked(plant))
        .detail("runs_counted", counted.len())
        .detail("runs_right", right_of(&counted))
        .detail("runs_without_verdict", without_verdict)
        .detail("runs_of_fixed_windows", fixed)
        .detail("runs_missing", planned - counted.len())
        .detail("attempts_failed", failed)
        .detail("attempts_held_up", held_up.len())
        .detail("attempts_held_up_right", right_of(&held_up))
        .detail("jobs_most", most(|run| Some(run.held.jobs as f64)))
        .detail("load_most", most(|run| run.held.load))
        .detail(
            "lateness_p99_ms_most",
            most(|run| Some(run.lateness_p99_ms)),
        )
        .detail("lateness_ms_most", most(|run| Some(run.lateness_max_ms)))
        .detail("waited_share_most", most(|run| run.held.waited_share))
        .detail("stolen_share_most", most(|run| run.held.stolen_share))
}
