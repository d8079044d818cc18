//! Does a campaign's runs. Nothing it keeps in memory grows with their number.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::places::check_page;
use super::record::{Record, read};
use super::summary::{Campaign, Summary};
use super::watch::{Step, Tally};
use super::{Line, RUNS_MAX, Run, SCHEMA, Start, Subject, Test};
use crate::measurement::now_text;
use crate::probe::clock::{now_ns, sleep_until};
use crate::probe::error::{ProbeError, SILENT_EXIT_CODE};
use crate::probe::examine::{Single, Target, single, with_iperf3};
use crate::probe::message::SLICE;
use crate::probe::report::{Report, Trouble};

/// An iperf3 server does one test at a time, and needs a moment between two.
const IPERF3_PATIENCE: Duration = Duration::from_secs(3);

/// What a campaign shall be.
#[derive(Debug, Clone)]
pub struct CampaignOptions {
    /// What is tested.
    pub subject: Subject,
    /// Runs in all, those that the file has already included.
    pub runs: u32,
    /// From the beginning of a run to that of the next; none is back to back.
    pub every: Option<Duration>,
    /// Rate of the circuit, bit/s.
    pub circuit_bit_per_s: Option<u64>,
    /// Its file.
    pub file: PathBuf,
    /// Where its page will be.
    pub page: PathBuf,
    /// Set to end it.
    pub stop: Arc<AtomicBool>,
}

impl CampaignOptions {
    /// Says what cannot be done.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=RUNS_MAX).contains(&self.runs) {
            return Err(format!("a campaign has 1 to {RUNS_MAX} runs"));
        }
        self.subject.check()
    }

    fn start(&self) -> Start {
        Start {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date: now_text(),
            subject: self.subject.clone(),
            runs: self.runs,
            every_ms: self.every.map(|every| every.as_millis() as u64),
            circuit_bit_per_s: self.circuit_bit_per_s,
        }
    }
}

/// Why a campaign ended before its last run.
#[derive(Debug)]
struct Ended {
    trouble: Trouble,
    exit_code: u8,
}

impl Campaign {
    /// Says of a document what went wrong after its runs.
    pub fn fail(&mut self, error: ProbeError) {
        let ended = Ended::from(error);
        self.error = Some(ended.trouble);
        self.exit_code = ended.exit_code;
    }
}

impl From<ProbeError> for Ended {
    fn from(error: ProbeError) -> Self {
        let report = Report::new("").ended(Err(error));
        let trouble = report.error.unwrap_or_else(|| Trouble {
            code: "local".to_owned(),
            text: String::new(),
        });
        Self {
            trouble,
            exit_code: report.exit_code,
        }
    }
}

/// One run's test, on connections of its own.
pub fn measure(target: &Target, test: &Test) -> Report {
    match test {
        Test::Tcp(plan) => single(target, &Single::Tcp(vec![plan.clone()])),
        Test::Udp(plan) => single(target, &Single::Flow(vec![*plan])),
        Test::Iperf3(plan) => with_iperf3(target, plan, IPERF3_PATIENCE),
    }
}

/// Does the runs that are missing, each by `measure`, and tells of each step. Always
/// a document, of all runs so far.
pub fn run_all(
    options: &CampaignOptions,
    measure: &mut dyn FnMut(&Test) -> Report,
    tell: &mut dyn FnMut(Step, &Tally),
) -> Campaign {
    let outcome = options
        .check()
        .map_err(|why| Ended::from(ProbeError::Usage(why)))
        .and_then(|()| go(options, measure, tell));
    let start = options.start();
    let mut campaign = match &outcome {
        // A file that is not ours says nothing about this campaign.
        Err(ended) if ended.trouble.code == "usage" => Summary::new(start).campaign(),
        _ => of_file(start, &options.file),
    };
    campaign.file = options.file.display().to_string();
    if let Err(ended) = outcome {
        campaign.error = Some(ended.trouble);
        campaign.exit_code = ended.exit_code;
    }
    campaign
}

/// What a file's runs show; with what is asked for now in place of what stands
/// there.
fn of_file(start: Start, file: &Path) -> Campaign {
    let mut summary = Summary::new(start);
    let outcome = read(file, &mut |line| summary.take(line));
    let mut campaign = summary.campaign();
    if let Err(error) = outcome {
        campaign.fail(error);
    }
    campaign
}

/// What the runs in a file show, finished or not, for a page that can be made of them.
pub fn so_far(
    file: &Path,
    page: &Path,
    circuit_bit_per_s: Option<u64>,
) -> Result<Campaign, ProbeError> {
    check_page(page, file)?;
    let mut summary: Option<Summary> = None;
    read(file, &mut |line| {
        if let Line::Start(start) = line {
            let mut start = start.clone();
            start.circuit_bit_per_s = circuit_bit_per_s.or(start.circuit_bit_per_s);
            match &mut summary {
                Some(summary) => summary.go_on(start),
                None => summary = Some(Summary::new(start)),
            }
        }
        summary.iter_mut().for_each(|summary| summary.take(line));
    })?;
    let empty = || ProbeError::Usage(format!("{} is empty", file.display()));
    let mut campaign = summary.ok_or_else(empty)?.campaign();
    campaign.file = file.display().to_string();
    Ok(campaign)
}

fn go(
    options: &CampaignOptions,
    measure: &mut dyn FnMut(&Test) -> Report,
    tell: &mut dyn FnMut(Step, &Tally),
) -> Result<(), Ended> {
    let start = options.start();
    let mut tally = Tally::new(&start);
    check_page(&options.page, &options.file)?;
    let mut record = Record::open(&options.file, &start, &mut |line| tally.take(line))?;
    if tally.done >= options.runs {
        return Ok(());
    }
    record.append(&Line::Start(start))?;
    let mut schedule = Schedule::of(options);
    while tally.done < options.runs {
        let next_ns = schedule.next_ns(now_ns());
        wait(next_ns, &options.stop, &mut |left| {
            tell(Step::Waits(left), &tally)
        })?;
        tell(Step::Begins, &tally);
        let number = tally.done + 1;
        let (began_ns, start_unix_ms) = (now_ns(), unix_ms());
        let report = measure(&options.subject.test_of(number));
        if options.stop.load(Ordering::Relaxed) {
            // A run that was cut short says nothing.
            return Err(ProbeError::Interrupted.into());
        }
        let mut run = Run::of(number, &options.subject, &report);
        run.start_unix_ms = start_unix_ms;
        run.took_ms = (now_ns() - began_ns) / 1_000_000;
        schedule.after(began_ns, run.error.is_some());
        let line = Line::Run(run);
        record.append(&line)?;
        tally.take(&line);
        tell(Step::Ended, &tally);
        if let (
            Line::Run(Run {
                error: Some(trouble),
                ..
            }),
            true,
        ) = (line, tally.has_no_good())
        {
            // Rather a wrong command line than a result.
            // A test that ended well, without payload, is a silent one.
            let exit_code = match report.exit_code {
                0 => SILENT_EXIT_CODE,
                code => code,
            };
            return Err(Ended { trouble, exit_code });
        }
    }
    Ok(())
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis() as u64
}

/// Tells each second how long it still takes.
fn wait(
    until_ns: u64,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Duration),
) -> Result<(), ProbeError> {
    let slice_ns = SLICE.as_nanos() as u64;
    let mut told_s = None;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(ProbeError::Interrupted);
        }
        let now = now_ns();
        if now >= until_ns {
            return Ok(());
        }
        let left = Duration::from_nanos(until_ns - now);
        if left >= Duration::from_secs(1) && told_s.replace(left.as_secs()) != Some(left.as_secs())
        {
            tell(left);
        }
        sleep_until(until_ns.min(now + slice_ns));
    }
}

/// When the next run begins, by the monotonic clock.
#[derive(Debug)]
struct Schedule {
    every_ns: Option<u64>,
    /// A failed run takes the place of a good one: an outage shall cost as many
    /// runs as it lasts, not all of them within a second.
    hold_ns: u64,
    next_ns: u64,
}

impl Schedule {
    fn of(options: &CampaignOptions) -> Self {
        Self {
            every_ns: options.every.map(|every| every.as_nanos() as u64),
            hold_ns: options.subject.test.duration_ms().saturating_mul(1_000_000),
            next_ns: 0,
        }
    }

    fn after(&mut self, began_ns: u64, has_failed: bool) {
        let least_ns = if has_failed { self.hold_ns } else { 0 };
        self.next_ns = began_ns.saturating_add(self.every_ns.unwrap_or(0).max(least_ns));
    }

    /// At once, if it is late; what it is late by is not made up for.
    fn next_ns(&self, now_ns: u64) -> u64 {
        self.next_ns.max(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::subject;
    use super::*;
    use crate::probe::observe::{TcpResult, TcpWay, WayFigures};
    use crate::probe::tcp_test::{Direction, TcpPlan};

    fn options(name: &str, runs: u32) -> CampaignOptions {
        let file = format!("farhaul-runner-{name}-{}", std::process::id());
        let file = std::env::temp_dir().join(file);
        let _ = fs::remove_file(&file);
        let mut subject = subject(&[Some(8192), None]);
        subject.test = Test::Tcp(TcpPlan::new(Direction::Up, 1));
        CampaignOptions {
            subject,
            runs,
            every: None,
            circuit_bit_per_s: None,
            page: file.with_extension("html"),
            file,
            stop: Arc::default(),
        }
    }

    /// A test's report without a network.
    fn report(test: &Test, bit_per_s: f64) -> Report {
        let Test::Tcp(plan) = test else {
            panic!("{test:?}")
        };
        let mut report = Report::new("x");
        report.observations.tcp.push(TcpResult {
            plan: plan.clone(),
            up: Some(TcpWay {
                mean_bit_per_s: Some(bit_per_s),
                steady_bit_per_s: None,
                figures: WayFigures::default(),
                streams: Vec::new(),
            }),
            down: None,
            other_sessions: 0,
        });
        report
    }

    fn failed() -> Report {
        let why = "gone".to_owned();
        Report::new("x").ended(Err(ProbeError::Refused { why }))
    }

    #[test]
    fn a_stopped_campaign_goes_on_and_failures_are_results() {
        let mut options = options("resume", 6);
        let mut asked = Vec::new();
        let stop = Arc::clone(&options.stop);
        let stopped = run_all(
            &options,
            &mut |test| {
                asked.push(test.clone());
                stop.store(asked.len() == 4, Ordering::Relaxed);
                match asked.len() {
                    2 => failed(),
                    _ => report(test, 1e6),
                }
            },
            &mut |_, _| {},
        );
        assert_eq!(asked, [1, 2, 3, 4].map(|run| options.subject.test_of(run)));
        assert_eq!((stopped.runs_done, stopped.runs_failed), (3, 1));
        assert_eq!(
            (stopped.exit_code, stopped.error.unwrap().code),
            (7, "interrupted".into())
        );
        options.stop = Arc::default();
        let mut told = Vec::new();
        let whole = run_all(
            &options,
            &mut |test| report(test, 2e6),
            &mut |step, tally| {
                told.push((step, tally.done));
            },
        );
        let begins_and_ends = |done| [(Step::Begins, done - 1), (Step::Ended, done)];
        assert_eq!(told, [4, 5, 6].map(begins_and_ends).concat());
        assert_eq!(
            (whole.runs_done, whole.runs_failed, whole.starts),
            (6, 1, 2)
        );
        assert_eq!((whole.exit_code, whole.error), (0, None));
        assert_eq!(whole.failures[0].code, "refused");
        let again = run_all(&options, &mut |_| panic!("all done"), &mut |_, _| {});
        assert_eq!((again.runs_done, again.starts), (6, 2));
        let read = so_far(&options.file, &options.page, Some(10_000_000)).unwrap();
        assert_eq!(read.runs_done, 6);
        assert_eq!(read.circuit_bit_per_s, Some(10_000_000));
        assert_eq!(read.groups.len(), again.groups.len());
        fs::remove_file(&options.file).unwrap();
    }

    #[test]
    fn a_campaign_in_which_nothing_ever_worked_stops() {
        let options = options("hopeless", 100);
        for done in [1, 2] {
            let campaign = run_all(&options, &mut |_| failed(), &mut |_, _| {});
            assert_eq!((campaign.exit_code, campaign.runs_done), (4, done));
            assert_eq!(campaign.error.unwrap().code, "refused");
        }
        fs::remove_file(&options.file).unwrap();
    }

    #[test]
    fn wrong_options_and_files_end_in_a_document() {
        let mut options = options("wrong", 0);
        let none = run_all(&options, &mut |_| panic!("no runs"), &mut |_, _| {});
        assert_eq!((none.exit_code, none.runs_done), (2, 0));
        options.runs = 1;
        fs::write(&options.file, "not a campaign\n").unwrap();
        let foreign = run_all(&options, &mut |_| panic!("no runs"), &mut |_, _| {});
        assert_eq!((foreign.exit_code, foreign.groups.len()), (2, 2));
        fs::remove_file(&options.file).unwrap();
        options.file = "/no-such-folder/x".into();
        let nowhere = run_all(&options, &mut |_| panic!("no runs"), &mut |_, _| {});
        assert_eq!(nowhere.exit_code, 1);
    }

    #[test]
    fn who_waits_is_told_each_second_for_how_long() {
        let mut told = Vec::new();
        let until_ns = now_ns() + 2_500_000_000;
        wait(until_ns, &AtomicBool::new(false), &mut |left| {
            told.push(left.as_secs());
        })
        .unwrap();
        assert!(now_ns() >= until_ns);
        // A second may pass without a look at the clock.
        assert!(told.is_sorted_by(|one, next| one > next), "{told:?}");
        assert!(told.contains(&2) && !told.contains(&0), "{told:?}");
        let stopped = wait(u64::MAX, &AtomicBool::new(true), &mut |_| panic!("told"));
        assert!(matches!(stopped, Err(ProbeError::Interrupted)));
    }

    #[test]
    fn runs_begin_at_intervals_or_at_once_and_failures_hold_their_place() {
        let mut schedule = Schedule {
            every_ns: None,
            hold_ns: 50,
            next_ns: 0,
        };
        let mut next = |every_ns, has_failed, now_ns| {
            schedule.every_ns = every_ns;
            schedule.after(1000, has_failed);
            schedule.next_ns(now_ns)
        };
        assert_eq!(next(None, false, 1010), 1010);
        assert_eq!(next(None, true, 1010), 1050);
        assert_eq!(next(Some(100), false, 1010), 1100);
        assert_eq!(next(Some(100), false, 1300), 1300);
        assert_eq!(next(Some(20), true, 1010), 1050);
    }
}
