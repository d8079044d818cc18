//! A program of a run: it ends with the run, whoever ends that.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::{During, LabError};

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long it may take to end by itself when it is asked to.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Ended and collected when dropped.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    name: String,
}

impl Program {
    pub(super) fn start(command: &mut Command, name: &str) -> Result<Self, LabError> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .during(|| format!("starting {name}"))?;
        let name = name.to_owned();
        Ok(Self { child, name })
    }

    pub(super) fn id(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// What it said, once it has ended; a signal that only we have got ends it,
    /// too.
    pub(super) fn output(mut self, stop: &AtomicBool) -> Result<Output, LabError> {
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        thread::scope(|scope| {
            let stdout = scope.spawn(|| all_of(stdout));
            let stderr = scope.spawn(|| all_of(stderr));
            let status = self.status(stop)?;
            Ok(Output {
                status,
                stdout: stdout.join().unwrap_or_default(),
                stderr: stderr.join().unwrap_or_default(),
            })
        })
    }

    fn status(&mut self, stop: &AtomicBool) -> Result<ExitStatus, LabError> {
        loop {
            let status = self.child.try_wait();
            if let Some(status) = status.during(|| format!("waiting for {}", self.name))? {
                return Ok(status);
            }
            if stop.load(Ordering::Relaxed) {
                // Its ends of the pipes close, and their readers end.
                self.end();
                return Err(LabError::Interrupted);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn end(&mut self) {
        // It may just have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let end = Instant::now() + END_PATIENCE;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(LOOK_EVERY);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

/// What cannot be read was not said.
fn all_of(pipe: Option<impl Read>) -> Vec<u8> {
    let mut said = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut said);
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn place_of(program: &Program) -> PathBuf {
        format!("/proc/{}", program.id()).into()
    }

    #[test]
    fn it_is_waited_for_as_long_as_nobody_stops() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo said; echo complained >&2; exit 3"]);
        let program = Program::start(&mut command, "a shell").unwrap();
        let output = program.output(&AtomicBool::new(false)).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(
            (&output.stdout[..], &output.stderr[..]),
            (&b"said\n"[..], &b"complained\n"[..])
        );
        let program = Program::start(Command::new("sleep").arg("600"), "sleep").unwrap();
        let place = place_of(&program);
        let outcome = program.output(&AtomicBool::new(true));
        assert!(matches!(outcome, Err(LabError::Interrupted)), "{outcome:?}");
        assert!(!place.exists());
    }

    #[test]
    fn one_that_nobody_waits_for_any_more_does_not_stay() {
        let program = Program::start(Command::new("sleep").arg("600"), "sleep").unwrap();
        let place = place_of(&program);
        assert!(place.exists());
        drop(program);
        assert!(!place.exists());
    }
}
