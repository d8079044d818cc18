//! The guard: a small process that removes the rules when the gateway is
//! killed and cannot.
//!
//! It holds the NFQUEUE number after the gateway's own as a lock (the kernel
//! gives it to one process, and only with CAP_NET_ADMIN). A gateway started
//! while the guard of a killed one still tidies up waits for that lock, so the
//! old guard never removes the new gateway's rules.
//!
//! Protocol: arguments `QUEUE MARK TABLE`; it prints `ready` or a complaint;
//! end of its standard input means "remove everything", the byte `q` before
//! that means "nothing to do".

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::InterceptError;
use super::nfqueue::NfQueue;
use super::rules::{self, Identity};

/// How long a new guard waits for an old one to finish.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const READY_PATIENCE: Duration = Duration::from_secs(8);
const DISMISS_PATIENCE: Duration = Duration::from_secs(2);

/// The program to run as guard: usually ourselves with a hidden verb.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardProgram {
    /// Path of the executable.
    pub program: PathBuf,
    /// Arguments before the guard's own.
    pub arguments: Vec<OsString>,
}

impl GuardProgram {
    /// The running executable with `verb`.
    ///
    /// # Errors
    /// The path of the executable cannot be told.
    pub fn current(verb: &str) -> io::Result<GuardProgram> {
        Ok(GuardProgram {
            program: std::env::current_exe()?,
            arguments: vec![verb.into()],
        })
    }
}

/// The guard as seen by the gateway. Dropping it makes the guard tidy up.
pub(super) struct Guard {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Guard {
    /// Starts the guard and waits until it is on duty.
    pub async fn start(
        program: &GuardProgram,
        identity: Identity,
    ) -> Result<Guard, InterceptError> {
        let failed = |why: String| InterceptError::Guard { why };
        let mut child = Command::new(&program.program)
            .args(&program.arguments)
            .args([
                identity.queue.to_string(),
                identity.mark.to_string(),
                identity.table.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Not in the terminal's process group: Ctrl-C is not for it.
            .process_group(0)
            .spawn()
            .map_err(|error| failed(format!("{}: {error}", program.program.display())))?;
        let stdin = child.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            let mut lines = BufReader::new(stdout);
            let _ = timeout(READY_PATIENCE, lines.read_line(&mut line)).await;
        }
        match line.trim() {
            "ready" => Ok(Guard { child, stdin }),
            "" => Err(failed("it ended or hung before it was ready".to_owned())),
            complaint => Err(failed(complaint.to_owned())),
        }
    }

    /// Waits until the guard has died.
    pub async fn died(&mut self) {
        let _ = self.child.wait().await;
    }

    /// The rules are gone already: the guard may go.
    pub async fn dismiss(mut self) {
        if let Some(mut stdin) = self.stdin.take() {
            let _ = stdin.write_all(b"q").await;
        }
        if timeout(DISMISS_PATIENCE, self.child.wait()).await.is_err() {
            let _ = self.child.start_kill();
        }
    }
}

/// The guard's whole life; `arguments` are those after the hidden verb.
///
/// # Errors
/// Wrong arguments, no lock, or rules that could not be removed.
pub async fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), String> {
    let identity = parse(arguments).ok_or("a guard is started by the gateway, not by hand")?;
    // Registered and never read: service managers signal the whole group, and
    // the guard has to outlive the gateway.
    let mut ignored = Vec::new();
    for kind in [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ] {
        ignored.push(signal(kind).map_err(|error| error.to_string())?);
    }
    // Hold no mount busy.
    let _ = std::env::set_current_dir("/");

    let lock = match lock(identity).await {
        Ok(lock) => lock,
        Err(error) => {
            let why = format!("NFQUEUE number {}: {error}", lock_number(identity));
            say(&why);
            return Err(why);
        }
    };
    say("ready");
    if dismissed().await {
        return Ok(());
    }
    let mut result = rules::remove(identity).await;
    for _ in 0..5 {
        if result.is_ok() {
            break;
        }
        sleep(Duration::from_millis(200)).await;
        result = rules::remove(identity).await;
    }
    drop(lock);
    result.map_err(|error| error.to_string())
}

/// To the gateway; if it is gone by now, the end of input will tell.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Waits for the gateway's word: true when it has tidied up itself.
async fn dismissed() -> bool {
    let read = tokio::task::spawn_blocking(|| {
        let mut byte = [0u8; 1];
        matches!(io::stdin().read(&mut byte), Ok(1) if byte == *b"q")
    });
    read.await.unwrap_or(false)
}

async fn lock(identity: Identity) -> io::Result<NfQueue> {
    let attempts = LOCK_PATIENCE.as_millis() / 50;
    let mut last = io::Error::from(io::ErrorKind::WouldBlock);
    for _ in 0..attempts {
        match NfQueue::bind(lock_number(identity), 1) {
            Ok(lock) => return Ok(lock),
            Err(error) => last = error,
        }
        sleep(Duration::from_millis(50)).await;
    }
    Err(last)
}

fn lock_number(identity: Identity) -> u16 {
    identity.queue.wrapping_add(1)
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Option<Identity> {
    let mut arguments = arguments.into_iter().map(|text| text.into_string().ok());
    let identity = Identity {
        queue: arguments.next()??.parse().ok()?,
        mark: arguments.next()??.parse().ok()?,
        table: arguments.next()??.parse().ok()?,
    };
    arguments.next().is_none().then_some(identity)
}
