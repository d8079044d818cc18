//! `farhaul sim run`: the points of a plan, some at a time, each result written
//! as soon as it is there.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::Args;
use farhaul_sim::plan::{self, Plan, Point, PointResult};
use farhaul_sim::results::{Header, Shard, resume};

use crate::failure::Failure;
use crate::print;

/// Most points run at the same time.
const JOBS_MAX: usize = 1024;

#[derive(Debug, Args)]
#[command(
    after_help = "example: farhaul sim run plans/waikato.toml --jobs 2\n         \
                        farhaul sim run plans/waikato.toml --shard 3/16 --resume"
)]
pub(crate) struct Run {
    /// The plan.
    plan: PathBuf,
    /// One of several shards, counted from 0: 0/4 is the first of four.
    #[arg(long, value_name = "I/N", value_parser = Shard::parse)]
    shard: Option<Shard>,
    /// Points to run at the same time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
    /// Go on where a stopped run of the same shard ended.
    #[arg(long)]
    resume: bool,
    /// Folder for result files.
    #[arg(long, value_name = "FOLDER", default_value = "out")]
    out: PathBuf,
}

/// Reads a plan and the files it names.
pub(crate) fn read_plan(path: &Path) -> Result<Plan, Failure> {
    let failed = |why: String| Failure::failed(format!("{}: {why}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let read_file = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let plan = Plan::parse(&text, &read_file).map_err(|error| failed(error.to_string()))?;
    for complaint in plan.malformed() {
        eprintln!("farhaul: {complaint}");
    }
    Ok(plan)
}

/// Where a shard's results lie.
pub(crate) fn result_path(out: &Path, plan: &Plan, shard: Shard) -> PathBuf {
    let name = match shard {
        Shard::WHOLE => format!("sim-{}.jsonl", plan.name()),
        Shard { shard, of } => format!("sim-{}-{shard}-of-{of}.jsonl", plan.name()),
    };
    out.join(name)
}

impl Run {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if !(1..=JOBS_MAX).contains(&self.jobs) {
            return Err(Failure::usage(format!("--jobs must be 1 to {JOBS_MAX}")));
        }
        let plan = read_plan(&self.plan)?;
        let shard = self.shard.unwrap_or(Shard::WHOLE);
        let path = result_path(&self.out, &plan, shard);
        let header = Header::new(&plan, shard);
        let (file, done) = self.open(&path, &header)?;
        let points: Vec<&Point> = plan
            .shard(shard.shard, shard.of)
            .filter(|point| !done.contains(&point.number))
            .collect();
        print::out(&format!(
            "plan {}: {} points to run, {} done before -> {}\n",
            plan.name(),
            points.len(),
            done.len(),
            path.display()
        ))?;
        let worthless = run_all(&plan, &points, self.jobs, &file)?;
        match worthless {
            0 => Ok(()),
            count => Err(Failure::failed(format!(
                "{count} points outgrew their memory; see `error` in {}",
                path.display()
            ))),
        }
    }

    /// The result file, ready to be appended to, and what is in it already.
    fn open(&self, path: &Path, header: &Header) -> Result<(File, BTreeSet<u32>), Failure> {
        let failed = |why: String| Failure::failed(format!("{}: {why}", path.display()));
        fs::create_dir_all(&self.out).map_err(|error| failed(error.to_string()))?;
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(!self.resume);
        let mut file = options
            .open(path)
            .map_err(|error| failed(error.to_string()))?;
        let text = match self.resume {
            true => fs::read_to_string(path).map_err(|error| failed(error.to_string()))?,
            false => String::new(),
        };
        let resumed = resume(&text, header).map_err(|error| failed(error.to_string()))?;
        let end = resumed.whole_bytes as u64;
        file.set_len(end)
            .map_err(|error| failed(error.to_string()))?;
        file.seek(SeekFrom::End(0))
            .map_err(|error| failed(error.to_string()))?;
        if end == 0 {
            write_line(&mut file, header)?;
        }
        Ok((file, resumed.done))
    }
}

/// Runs points on so many threads. A point does not know of the others, so the
/// number of threads changes nothing but the order of the lines.
fn run_all(plan: &Plan, points: &[&Point], jobs: usize, file: &File) -> Result<usize, Failure> {
    let next = AtomicUsize::new(0);
    let written = Mutex::new((file, 0, 0, Ok(())));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(points.len()) {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = plan::run(plan, point);
                    let Ok(mut written) = written.lock() else {
                        return;
                    };
                    let (file, done, worthless, outcome) = &mut *written;
                    *done += 1;
                    *worthless += usize::from(result.error.is_some());
                    if outcome.is_ok() {
                        *outcome = write_line(file, &result);
                    }
                    tell(&result, *done, points.len(), began);
                    if outcome.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let Ok((_, _, worthless, outcome)) = written.into_inner() else {
        return Err(Failure::failed("a thread of the simulation ended"));
    };
    outcome.map(|()| worthless)
}

/// A line on standard error, so that results can go elsewhere.
fn tell(result: &PointResult, done: usize, points: usize, began: Instant) {
    eprintln!(
        "{done}/{points} {:.0} s  {} load {} seed {}: mean {:.3} s, {} of {} unanswered",
        began.elapsed().as_secs_f64(),
        result.point.config(),
        result.point.load_mbit,
        result.point.seed,
        result.mean_s.unwrap_or(f64::NAN),
        result.unanswered,
        result.requests
    );
}

fn write_line(mut file: impl Write, value: &impl serde::Serialize) -> Result<(), Failure> {
    let mut line = serde_json::to_string(value).map_err(Failure::failed)?;
    line.push('\n');
    file.write_all(line.as_bytes()).map_err(Failure::failed)
}
