//! The memo's number of runs, back to back, in real processes: whether all come
//! to their end, and whether either end's memory grows meanwhile.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::child::Program;
use super::memo::MemoOptions;
use super::single::serving;
use crate::caller::make_folder;
use crate::deployment::Lab;
use crate::error::LabError;
use crate::measurement::{Op, Row};
use crate::probe::campaign::Campaign;
use crate::topology::{LabOptions, SERVER};

/// Name of these rows, for `--only`.
pub const NAME: &str = "campaign";
/// As the memo has it.
const RUNS: u32 = 8755;
const RUN_TIME: &str = "5ms";
const LINK: &str = "rate 1gbit delay 0.1ms";
/// When memory is looked at; the last is before the document is made, which takes
/// some for each run.
const LOOKS: [u32; 3] = [1000, 5000, 8700];
/// What an allocator holds ready for more may grow by.
const GROWTH_MAX: f64 = 1.10;

/// Does the runs, anew each time: a process that goes on is another one. A
/// campaign that failed is a row.
pub fn rows(options: &MemoOptions, tell: &dyn Fn(&str)) -> Result<Vec<Row>, LabError> {
    tell(&format!("{NAME} [{LINK}] {RUNS} runs of {RUN_TIME}"));
    let outcome = campaign(options);
    if options.stop.load(Ordering::Relaxed) {
        return Err(LabError::Interrupted);
    }
    let failed = |why: String| Row::failed(NAME, "client", "runs done", "runs", why);
    Ok(match outcome {
        Ok((campaign, looks)) => rows_of(&campaign, &looks),
        Err(error) => vec![failed(error.to_string())],
    })
}

/// Memory of client and server after so many runs, kB.
#[derive(Debug, Clone, Copy)]
struct Look {
    runs: u32,
    client_kb: u64,
    server_kb: u64,
}

fn rows_of(campaign: &Campaign, looks: &[Look]) -> Vec<Row> {
    let done = Row::of(
        NAME,
        "client",
        "runs done",
        "runs",
        campaign.runs_done.into(),
    )
    .target(Op::AtLeast, RUNS.into());
    // A failed run is a run done: nothing on this circuit has a reason to fail.
    let failed = f64::from(campaign.runs_failed);
    let failed = Row::of(NAME, "client", "failed runs", "runs", failed).target(Op::AtMost, 0.0);
    let growth = |name: &str, of: fn(&Look) -> u64| {
        let ends = looks.first().zip(looks.last());
        let ends = ends.filter(|_| looks.len() == LOOKS.len());
        let ratio = ends.map_or(f64::NAN, |(first, last)| of(last) as f64 / of(first) as f64);
        let row = Row::of(NAME, name, "memory, last look / first", "times", ratio)
            .target(Op::AtMost, GROWTH_MAX);
        looks.iter().fold(row, |row, look| {
            row.detail(&format!("kb_after_{}_runs", look.runs), of(look))
        })
    };
    vec![
        done,
        failed,
        growth("client", |look| look.client_kb),
        growth("server", |look| look.server_kb),
    ]
}

fn campaign(options: &MemoOptions) -> Result<(Campaign, Vec<Look>), LabError> {
    let folder = &options.folder;
    make_folder(folder)?;
    let file = folder.join(format!("probe-{NAME}.jsonl"));
    // What an earlier go left; there may be nothing.
    let _ = fs::remove_file(&file);
    let lab_options = LabOptions::new(&options.lab, &options.program).with_link(LINK);
    let mut lab = Lab::up(&lab_options)?;
    lab.interrupt_by(Arc::clone(&options.stop));
    let server = serving(&mut lab, &options.program, None)?;
    let mut command = lab.client()?.command(&options.program.to_string_lossy());
    command
        .args(["probe", "campaign", &SERVER.to_string(), "--json"])
        .args(["--runs", &RUNS.to_string(), "--for", RUN_TIME, "--file"])
        .arg(&file);
    let client = Program::start(&mut command, "a campaign")?;
    let (processes, over) = ([client.id(), server], AtomicBool::new(false));
    let (output, looks) = thread::scope(|scope| {
        let looking = scope.spawn(|| look(&file, processes, &over));
        let output = client.output(&options.stop);
        over.store(true, Ordering::Relaxed);
        (output, looking.join().unwrap_or_default())
    });
    let output = output?;
    let campaign = serde_json::from_slice(&output.stdout).map_err(|error| LabError::Invalid {
        what: "the document of a campaign".to_owned(),
        why: format!("{error}: {}", String::from_utf8_lossy(&output.stderr)),
    })?;
    Ok((campaign, looks))
}

/// Looks at both ends' memory whenever it is time.
fn look(file: &Path, [client, server]: [i32; 2], over: &AtomicBool) -> Vec<Look> {
    const EVERY: Duration = Duration::from_millis(100);
    let mut looks = Vec::new();
    for due in LOOKS {
        // The first line is no run.
        while lines_of(file).saturating_sub(1) < due as usize {
            if over.load(Ordering::Relaxed) {
                return looks;
            }
            thread::sleep(EVERY);
        }
        if let (Some(client_kb), Some(server_kb)) = (resident_kb(client), resident_kb(server)) {
            looks.push(Look {
                runs: due,
                client_kb,
                server_kb,
            });
        }
    }
    looks
}

fn lines_of(file: &Path) -> usize {
    let text = fs::read(file).unwrap_or_default();
    text.iter().filter(|byte| **byte == b'\n').count()
}

fn resident_kb(process: i32) -> Option<u64> {
    resident_in(&fs::read_to_string(format!("/proc/{process}/status")).ok()?)
}

/// `VmRSS` of `man 5 proc`.
fn resident_in(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::campaign::summary::Summary;
    use crate::probe::campaign::tests::start;

    #[test]
    fn memory_is_held_against_the_first_look() {
        let mut campaign = Summary::new(start(&[None], RUNS)).campaign();
        let look = |runs, client_kb| Look {
            runs,
            client_kb,
            server_kb: 9000,
        };
        let all = [look(1000, 10_000), look(5000, 10_400), look(8700, 12_000)];
        let verdicts = |campaign: &Campaign, looks: &[Look]| {
            let rows = rows_of(campaign, looks);
            rows.iter()
                .map(|row| row.ok == Some(true))
                .collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&campaign, &all), [false, true, false, true]);
        // A process that ended before the last look has shown nothing.
        assert_eq!(verdicts(&campaign, &all[..2]), [false, true, false, false]);
        let rows = rows_of(&campaign, &all);
        assert_eq!(rows[2].detail["kb_after_5000_runs"], 10_400);
        // Runs that failed are done, too, and are seen to be.
        (campaign.runs_done, campaign.runs_failed) = (RUNS, 1);
        assert_eq!(verdicts(&campaign, &all), [true, false, false, true]);
    }

    #[test]
    fn a_process_has_memory() {
        let own = std::process::id().cast_signed();
        assert!(resident_kb(own).unwrap() > 100);
        assert_eq!(resident_in("VmPeak: 7 kB\nVmRSS:\t  1234 kB\n"), Some(1234));
        assert_eq!(resident_in("VmRSS: much"), None);
    }
}
