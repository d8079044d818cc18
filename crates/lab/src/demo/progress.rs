//! What is going on, while it goes on: a bar on a terminal, a line now and
//! then elsewhere. It goes to standard error; results go to standard output.

use std::io::{IsTerminal, Write, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Least time between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Least time between two states of a bar.
const BAR_EVERY: Duration = Duration::from_millis(200);
/// Cells of a bar.
const BAR_CELLS: usize = 24;

/// Progress through a known number of stages.
#[derive(Debug)]
pub struct Progress {
    counts: Arc<Counts>,
    stage: usize,
    name: String,
    stage_start: Instant,
    last_shown: Option<Instant>,
    is_terminal: bool,
}

/// Of everything that is done at the same time.
#[derive(Debug)]
struct Counts {
    stages: AtomicUsize,
    begun: AtomicUsize,
}

impl Progress {
    /// Of so many stages, towards standard error.
    pub fn new(stages: usize) -> Self {
        let counts = Counts {
            stages: AtomicUsize::new(stages),
            begun: AtomicUsize::new(0),
        };
        Self {
            counts: Arc::new(counts),
            stage: 0,
            name: String::new(),
            stage_start: Instant::now(),
            last_shown: None,
            is_terminal: stderr().is_terminal()
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
        }
    }

    /// Of what is done beside this one, of the same stages. A terminal has one line for a bar, so both say what they do in lines.
    pub fn beside(&mut self) -> Self {
        self.is_terminal = false;
        Self {
            counts: Arc::clone(&self.counts),
            stage: 0,
            name: String::new(),
            stage_start: Instant::now(),
            last_shown: None,
            is_terminal: false,
        }
    }

    /// One stage more than was known: something is done again.
    pub fn add_stage(&mut self) {
        self.counts.stages.fetch_add(1, Ordering::Relaxed);
    }

    fn stages(&self) -> usize {
        self.counts.stages.load(Ordering::Relaxed)
    }

    /// Begins the next stage.
    pub fn begin(&mut self, name: &str) {
        self.stage = self.counts.begun.fetch_add(1, Ordering::Relaxed) + 1;
        name.clone_into(&mut self.name);
        self.stage_start = Instant::now();
        self.last_shown = None;
        if self.is_terminal {
            self.at(0.0);
        } else {
            self.line("");
            self.last_shown = Some(self.stage_start);
        }
    }

    /// The stage is done to this share (0 to 1).
    pub fn at(&mut self, share: f64) {
        let now = Instant::now();
        let every = if self.is_terminal {
            BAR_EVERY
        } else {
            LINE_EVERY
        };
        if self
            .last_shown
            .is_some_and(|last| now.duration_since(last) < every)
        {
            return;
        }
        self.last_shown = Some(now);
        let remaining = remaining(self.stage_start.elapsed(), share);
        let percent = (share.clamp(0.0, 1.0) * 100.0).floor();
        if self.is_terminal {
            self.bar(&format!("{} {percent:>3} %{remaining}", bar(share)));
        } else {
            self.line(&format!(": {percent} %{remaining}"));
        }
    }

    /// Ends the stage with what came of it.
    pub fn end(&mut self, outcome: &str) {
        if self.is_terminal {
            self.bar(outcome);
            let _ = writeln!(stderr());
        } else {
            self.line(&format!(": {outcome}"));
        }
    }

    fn bar(&self, text: &str) {
        // Standard error that is gone is no reason to stop measuring.
        let _ = write!(
            stderr(),
            "\r\x1b[K[{}/{}] {:<38} {text}",
            self.stage,
            self.stages(),
            self.name
        );
        let _ = stderr().flush();
    }

    fn line(&self, text: &str) {
        let _ = writeln!(
            stderr(),
            "[{}/{}] {}{text}",
            self.stage,
            self.stages(),
            self.name
        );
    }
}

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR_CELLS as f64) as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(BAR_CELLS - full))
}

/// What is left at the pace so far; nothing while that is a mere guess.
fn remaining(elapsed: Duration, share: f64) -> String {
    if share < 0.02 || elapsed < Duration::from_secs(1) {
        return String::new();
    }
    let left_s = elapsed.as_secs_f64() * (1.0 - share).max(0.0) / share;
    format!(", {} s left", left_s.ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_the_pace() {
        assert_eq!(remaining(Duration::from_secs(10), 0.25), ", 30 s left");
        assert_eq!(remaining(Duration::from_secs(10), 1.0), ", 0 s left");
        assert_eq!(remaining(Duration::from_secs(10), 0.0), "");
        assert_eq!(remaining(Duration::from_millis(10), 0.5), "");
    }

    #[test]
    fn what_is_done_beside_another_counts_with_it() {
        let mut first = Progress::new(2);
        let mut second = first.beside();
        first.begin("one");
        second.begin("other");
        second.add_stage();
        first.begin("one again");
        assert_eq!((first.stage, second.stage), (3, 2));
        assert_eq!((first.stages(), second.stages()), (3, 3));
        assert!(!first.is_terminal);
    }

    #[test]
    fn a_bar_never_leaves_its_frame() {
        for share in [-1.0, 0.0, 0.5, 1.0, 7.0] {
            assert_eq!(bar(share).chars().count(), BAR_CELLS);
        }
        assert_eq!(
            bar(0.5).chars().filter(|c| *c == '█').count(),
            BAR_CELLS / 2
        );
    }
}
