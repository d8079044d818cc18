//! iperf3 as a process: started, awaited, and ended whatever happens.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::deployment::parse_json;
use crate::error::{During, LabError};
use crate::netns::Namespace;

/// Where its server listens unless told otherwise.
pub(crate) const PORT: u16 = 5201;
/// How long the server may take to listen.
const LISTEN_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn odd(who: &str, why: &str) -> LabError {
    LabError::Invalid {
        what: format!("the iperf3 {who}"),
        why: why.to_owned(),
    }
}

/// Waits until something listens on `port`. A trial connection would be taken
/// for the test, so the kernel's table is read instead.
pub(crate) fn wait_listening(
    namespace: &Namespace,
    port: u16,
    server: &mut Running,
) -> Result<(), LabError> {
    /// The state LISTEN, as `/proc/net/tcp` writes it.
    const LISTEN: &str = " 0A ";
    let port_text = format!(":{port:04X} ");
    let end = Instant::now() + LISTEN_PATIENCE;
    loop {
        let table = namespace
            .within(|| std::fs::read_to_string("/proc/thread-self/net/tcp"))?
            .during(|| "reading /proc/thread-self/net/tcp".to_owned())?;
        if table
            .lines()
            .any(|line| line.contains(&port_text) && line.contains(LISTEN))
        {
            return Ok(());
        }
        if server.has_ended()? || Instant::now() > end {
            return Err(odd("server", &format!("it does not listen on port {port}")));
        }
        sleep(Duration::from_millis(20));
    }
}

/// An iperf3 process. Dropping it ends it.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Result<Self, LabError> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .during(|| "starting iperf3".to_owned())?;
        Ok(Self(child))
    }

    fn has_ended(&mut self) -> Result<bool, LabError> {
        let status = self
            .0
            .try_wait()
            .during(|| "waiting for iperf3".to_owned())?;
        Ok(status.is_some())
    }

    /// Its JSON, once it has ended by itself within `patience`; `check` may end
    /// the wait early.
    pub(crate) fn finish(
        mut self,
        patience: Duration,
        check: impl Fn() -> Result<(), LabError>,
    ) -> Result<Value, LabError> {
        let mut stdout = self
            .0
            .stdout
            .take()
            .ok_or_else(|| odd("process", "no output"))?;
        // Read aside, so that a full pipe never stops it.
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).map(|_| text)
        });
        let end = Instant::now() + patience;
        while !self.has_ended()? {
            check()?;
            if Instant::now() > end {
                return Err(odd("process", "it does not end"));
            }
            sleep(Duration::from_millis(20));
        }
        let text = reader
            .join()
            .map_err(|_| odd("process", "its output could not be read"))?
            .during(|| "reading the output of iperf3".to_owned())?;
        parse_json("iperf3 -J", &text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail harmlessly where it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
