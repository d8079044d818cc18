//! Processes known by more than their number: a pid with its start time names
//! one process for ever, so a recycled pid is never signalled.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::error::{During, LabError};

/// USER_HZ, in which the kernel counts for programs on every architecture that Rust's tier 1 and 2
/// name (include/asm-generic/param.h).
pub(crate) const TICKS_PER_S: f64 = 100.0;
/// How often a wait looks again.
const POLL: Duration = Duration::from_millis(10);

/// One process, told apart from any later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Process number.
    pub pid: i32,
    /// Start time in clock ticks since boot (proc(5), field 22 of `stat`).
    pub start_ticks: u64,
}

impl ProcessId {
    /// The running process with this number, if there is one.
    pub fn of(pid: i32) -> Option<Self> {
        let start_ticks = Stat::read(pid)?.start_ticks;
        Some(Self { pid, start_ticks })
    }

    /// The calling process.
    pub fn own() -> Result<Self, LabError> {
        let pid = std::process::id().cast_signed();
        Self::of(pid).ok_or_else(|| LabError::Invalid {
            what: format!("/proc/{pid}/stat"),
            why: "/proc must be mounted".to_owned(),
        })
    }

    /// Whether it runs. A zombie has ended.
    pub fn is_alive(self) -> bool {
        self.stat().is_some()
    }

    /// Processor time of all its threads, its ended children left out; `None` where it has ended.
    pub fn cpu_time(self) -> Option<Duration> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let (_, rest) = text.rsplit_once(')')?;
        // proc(5): fields 14 and 15, user and system, in hundredths of a second on every Linux of today.
        let ticks: Vec<u64> = rest
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse().ok())
            .collect();
        let is_same = self.is_alive() && ticks.len() == 2;
        is_same.then(|| Duration::from_millis(10 * ticks.iter().sum::<u64>()))
    }

    /// Sends `signal`; `false` where the process has ended already.
    pub fn signal(self, signal: Signal) -> Result<bool, LabError> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(false);
        };
        // The descriptor pins the process: what is checked is what is signalled.
        let Ok(pinned) = pidfd_open(pid, PidfdFlags::empty()) else {
            return Ok(false);
        };
        if !self.is_alive() {
            return Ok(false);
        }
        match pidfd_send_signal(&pinned, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => {
                Err(error).during(|| format!("sending {signal:?} to process {}", self.pid))
            }
        }
    }

    /// Processor time it has used, its own and the kernel's for it, in seconds.
    pub fn cpu_s(self) -> Option<f64> {
        Some(self.stat()?.cpu_ticks as f64 / TICKS_PER_S)
    }

    /// None once it has ended.
    fn stat(self) -> Option<Stat> {
        let has_ended = |stat: &Stat| ['Z', 'X'].contains(&stat.state);
        Stat::read(self.pid).filter(|stat| stat.start_ticks == self.start_ticks && !has_ended(stat))
    }

    /// Waits until it has ended; `false` after `patience`.
    pub fn wait_ended(self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while self.is_alive() {
            if Instant::now() >= end {
                return false;
            }
            sleep(POLL);
        }
        true
    }
}

/// Ends all of them: SIGTERM to each, then SIGKILL to those that still run
/// after `patience`.
pub fn end_all(processes: &[ProcessId], patience: Duration) -> Result<(), LabError> {
    for process in processes {
        process.signal(Signal::TERM)?;
    }
    let end = Instant::now() + patience;
    for process in processes {
        if !process.wait_ended(end.saturating_duration_since(Instant::now())) {
            process.signal(Signal::KILL)?;
        }
    }
    for process in processes {
        if !process.wait_ended(Duration::from_secs(5)) {
            return Err(LabError::Invalid {
                what: format!("process {}", process.pid),
                why: "still runs 5 s after SIGKILL".to_owned(),
            });
        }
    }
    Ok(())
}

/// What is of use of `/proc/PID/stat` (proc_pid_stat(5)).
struct Stat {
    state: char,
    /// User and system time together.
    cpu_ticks: u64,
    start_ticks: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program name, the second field, stands in parentheses and may itself contain any character.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |nth: usize| fields.get(nth - 3)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            cpu_ticks: number(14)? + number(15)?,
            start_ticks: number(22)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessId::of(child.id().cast_signed()).unwrap();
        assert!(process.is_alive());
        let cpu_time = process.cpu_time().unwrap();
        assert!(cpu_time < Duration::from_secs(5), "{cpu_time:?}");
        let namesake = ProcessId {
            start_ticks: process.start_ticks + 1,
            ..process
        };
        assert!(!namesake.is_alive());
        assert!(!namesake.signal(Signal::KILL).unwrap());
        assert!(process.is_alive(), "a later namesake's signal reached it");
        end_all(&[process, namesake], Duration::from_secs(5)).unwrap();
        assert!(!process.is_alive(), "a zombie counts as ended");
        child.wait().unwrap();
        assert!(!process.signal(Signal::TERM).unwrap());
    }

    #[test]
    fn what_ignores_sigterm_is_killed() {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(child.stdout.take().unwrap()),
            &mut line,
        )
        .unwrap();
        let process = ProcessId::of(child.id().cast_signed()).unwrap();
        end_all(&[process], Duration::from_millis(100)).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9)
        );
    }
}
