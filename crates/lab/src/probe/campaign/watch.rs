//! How far a campaign is: one line that is written anew on a terminal, a line
//! now and then elsewhere.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use super::{Line, Run, Start, way_name, window_name};
use crate::probe::diagnose::mbit;
use crate::probe::tcp_test::Direction;

/// Least time between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Rates of a direction so far.
#[derive(Debug, Clone, Copy, Default)]
struct Rates {
    runs: u32,
    sum_bit_per_s: f64,
    least_bit_per_s: f64,
    most_bit_per_s: f64,
}

impl Rates {
    fn take(&mut self, bit_per_s: f64) {
        self.least_bit_per_s = match self.runs {
            0 => bit_per_s,
            _ => self.least_bit_per_s.min(bit_per_s),
        };
        self.most_bit_per_s = self.most_bit_per_s.max(bit_per_s);
        self.sum_bit_per_s += bit_per_s;
        self.runs += 1;
    }
}

/// What is kept of all runs while a campaign goes on: of one size, however
/// many they are.
#[derive(Debug, Clone)]
pub struct Tally {
    /// Runs done, failed ones included.
    pub done: u32,
    /// Runs that failed.
    pub failed: u32,
    /// The last run.
    pub last: Option<Run>,
    planned: u32,
    windows: usize,
    circuit_bit_per_s: Option<u64>,
    up: Rates,
    down: Rates,
}

impl Tally {
    /// Of a campaign that begins.
    pub fn new(start: &Start) -> Self {
        Self {
            done: 0,
            failed: 0,
            last: None,
            planned: start.runs,
            windows: start.subject.windows_bytes.len(),
            circuit_bit_per_s: start.circuit_bit_per_s,
            up: Rates::default(),
            down: Rates::default(),
        }
    }

    /// A line of the file, or a run that has just ended.
    pub fn take(&mut self, line: &Line) {
        let Line::Run(run) = line else { return };
        self.done = run.run;
        self.failed += u32::from(run.error.is_some());
        let ways = [(&mut self.up, &run.up), (&mut self.down, &run.down)];
        for (rates, way) in ways {
            way.iter().for_each(|way| rates.take(way.bit_per_s as f64));
        }
        self.last = Some(run.clone());
    }

    /// Whether nothing has worked so far.
    pub(crate) fn has_no_good(&self) -> bool {
        self.done == self.failed
    }

    /// For people; `left` is how long the rest will take.
    pub fn line(&self, left: Option<Duration>) -> String {
        let mut parts = vec![format!("run {} of {}", self.done, self.planned)];
        if let Some(run) = &self.last {
            parts.push(self.last_words(run));
        }
        for (direction, rates) in [(Direction::Up, self.up), (Direction::Down, self.down)] {
            if rates.runs > 0 && self.windows == 1 {
                parts.push(self.rates_words(direction, rates));
            }
        }
        if self.failed > 0 {
            parts.push(format!("{} failed", self.failed));
        }
        if let Some(left) = left.filter(|_| self.done < self.planned) {
            parts.push(format!("{} left", span(left)));
        }
        parts.join(", ")
    }

    fn last_words(&self, run: &Run) -> String {
        if let Some(trouble) = &run.error {
            return format!("FAILED: {}", trouble.text);
        }
        let rate = |direction: Direction| {
            let way = run.way(direction)?;
            let (rate, name) = (mbit(way.bit_per_s as f64), way_name(direction));
            Some(match way.lost_percent() {
                Some(percent) => format!("{rate} {name} ({percent:.3} % lost)"),
                None => format!("{rate} {name}"),
            })
        };
        let rates: Vec<_> = [Direction::Up, Direction::Down]
            .into_iter()
            .filter_map(rate)
            .collect();
        match self.windows {
            1 => rates.join(" "),
            _ => format!(
                "window {}: {}",
                window_name(run.window_bytes),
                rates.join(" ")
            ),
        }
    }

    fn rates_words(&self, direction: Direction, rates: Rates) -> String {
        let mean = rates.sum_bit_per_s / f64::from(rates.runs);
        let share = self
            .circuit_bit_per_s
            .filter(|rate| *rate > 0)
            .map_or_else(String::new, |rate| {
                format!(" ({:.1} % of the circuit)", mean * 100.0 / rate as f64)
            });
        format!(
            "{} mean {}{share}, {} to {}",
            way_name(direction),
            mbit(mean),
            mbit(rates.least_bit_per_s),
            mbit(rates.most_bit_per_s)
        )
    }
}

fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..90 => format!("{seconds} s"),
        seconds @ 90..5400 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// What a campaign has just come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The next run is due in so long.
    Waits(Duration),
    /// The next run begins.
    Begins,
    /// A run is over.
    Ended,
}

/// Where it is told: standard error, results go to standard output.
#[derive(Debug)]
pub struct Watch {
    is_terminal: bool,
    begin: Instant,
    /// Runs that were done before this campaign went on.
    done_before: Option<u32>,
    last_line: Option<Instant>,
    last_failed: bool,
}

impl Default for Watch {
    fn default() -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            is_terminal: stderr().is_terminal() && !is_dumb,
            begin: Instant::now(),
            done_before: None,
            last_line: None,
            last_failed: false,
        }
    }
}

impl Watch {
    /// Says how far it is.
    pub fn at(&mut self, step: Step, tally: &Tally) {
        let before = *self.done_before.get_or_insert(tally.done);
        // Whoever watched may have gone; the runs go on.
        let _ = if self.is_terminal {
            let line = terminal_line(step, tally, self.left(before, tally));
            write!(stderr(), "\r{}\x1b[K", clipped(&line, columns()))
        } else if step == Step::Ended && self.is_due(tally) {
            let line = tally.line(self.left(before, tally));
            writeln!(stderr(), "farhaul: {line}")
        } else {
            Ok(())
        };
    }

    /// How long the rest takes, if it takes as long as what is done.
    fn left(&self, before: u32, tally: &Tally) -> Option<Duration> {
        let made = tally.done.checked_sub(before).filter(|made| *made > 0)?;
        let missing = f64::from(tally.planned.saturating_sub(tally.done));
        let left = self.begin.elapsed().as_secs_f64() / f64::from(made) * missing;
        Duration::try_from_secs_f64(left).ok()
    }

    /// The first run, the last, those after which it fails or works again, and
    /// else now and then.
    fn is_due(&mut self, tally: &Tally) -> bool {
        let is_new = self
            .last_line
            .is_none_or(|last| last.elapsed() >= LINE_EVERY);
        let has_failed = tally.last.as_ref().is_some_and(|run| run.error.is_some());
        let is_other = std::mem::replace(&mut self.last_failed, has_failed) != has_failed;
        let is_due = is_new || is_other || tally.done == tally.planned;
        if is_due {
            self.last_line = Some(Instant::now());
        }
        is_due
    }

    /// The line on the terminal is done with.
    pub fn end(&self) {
        if self.is_terminal && self.done_before.is_some() {
            let _ = writeln!(stderr());
        }
    }
}

/// A line that is written anew at each step.
fn terminal_line(step: Step, tally: &Tally, left: Option<Duration>) -> String {
    let next = tally.done + 1;
    match step {
        Step::Waits(time) => format!("run {next} in {}; {}", span(time), tally.line(left)),
        // Of a long first run nothing else would be seen.
        Step::Begins if tally.done == 0 => format!("run {next} of {} begins", tally.planned),
        Step::Begins | Step::Ended => tally.line(left),
    }
}

fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(stderr()).ok();
    // A serial line does not know how wide it is.
    let known = size.map(|size| usize::from(size.ws_col));
    known.filter(|columns| *columns > 0).unwrap_or(80).max(20)
}

/// A longer line would wrap, and the next one would not cover it.
fn clipped(line: &str, columns: usize) -> String {
    match line.chars().count() < columns {
        true => line.to_owned(),
        false => line.chars().take(columns - 2).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Test;
    use super::super::tests::{good, iperf3_plan, start, start_of, subject_of};
    use super::*;
    use crate::probe::report::Trouble;

    #[test]
    fn a_line_says_how_far_and_how_well() {
        let start = start(&[None], 8755);
        let mut tally = Tally::new(&start);
        assert!(tally.has_no_good());
        for (number, rate) in [(1, 900), (2, 940)] {
            tally.take(&Line::Run(good(number, &start.subject, rate * 1_000_000)));
        }
        assert_eq!(
            tally.line(Some(Duration::from_secs(7300))),
            "run 2 of 8755, 940 Mbit/s up, up mean 920 Mbit/s (92.0 % of the circuit), 900 Mbit/s to 940 Mbit/s, 2 h 1 min left"
        );
        let mut failed = good(3, &start.subject, 1);
        failed.up = None;
        failed.error = Some(Trouble {
            code: "lost".into(),
            text: "the server is gone".into(),
        });
        tally.take(&Line::Run(failed));
        let line = tally.line(None);
        assert!(
            line.starts_with("run 3 of 8755, FAILED: the server is gone, up mean"),
            "{line}"
        );
        assert!(
            line.ends_with(", 1 failed") && !tally.has_no_good(),
            "{line}"
        );
    }

    #[test]
    fn windows_are_named_where_they_take_turns() {
        let start = start(&[Some(8192), None], 4);
        let mut tally = Tally::new(&start);
        tally.take(&Line::Run(good(1, &start.subject, 6_500_000)));
        assert_eq!(tally.line(None), "run 1 of 4, window 8 KB: 6.50 Mbit/s up");
    }

    #[test]
    fn what_datagrams_lost_is_said() {
        let start = start_of(subject_of(Test::Iperf3(iperf3_plan(true))), 4);
        let mut tally = Tally::new(&start);
        tally.take(&Line::Run(good(1, &start.subject, 4_900_000)));
        let line = tally.line(None);
        assert!(line.contains("4.90 Mbit/s up (0.100 % lost)"), "{line}");
    }

    #[test]
    fn a_terminal_shows_what_goes_on_before_the_first_run_and_between_runs() {
        let start = start(&[None], 3);
        let mut tally = Tally::new(&start);
        let line = |step, tally: &Tally| terminal_line(step, tally, None);
        assert_eq!(line(Step::Begins, &tally), "run 1 of 3 begins");
        tally.take(&Line::Run(good(1, &start.subject, 900_000_000)));
        let ended = line(Step::Ended, &tally);
        assert!(ended.starts_with("run 1 of 3, 900 Mbit/s up"), "{ended}");
        assert_eq!(line(Step::Begins, &tally), ended);
        let waits = line(Step::Waits(Duration::from_secs(41)), &tally);
        assert_eq!(waits, format!("run 2 in 41 s; {ended}"));
    }

    #[test]
    fn the_rest_takes_as_long_as_what_was_done_here() {
        let start = start(&[None], 8);
        let (mut tally, mut watch) = (Tally::new(&start), Watch::default());
        for run in 1..=4 {
            tally.take(&Line::Run(good(run, &start.subject, 1_000_000)));
        }
        // They were done before, in no time of this campaign's.
        assert_eq!(watch.left(4, &tally), None);
        tally.take(&Line::Run(good(5, &start.subject, 1_000_000)));
        watch.begin = Instant::now().checked_sub(Duration::from_secs(20)).unwrap();
        let left = watch.left(4, &tally).unwrap().as_secs();
        assert!((60..90).contains(&left), "{left}");
    }

    #[test]
    fn long_lines_are_cut() {
        assert_eq!(clipped("abc", 4), "abc");
        assert_eq!(clipped("abcdef", 5), "abc…");
    }
}
