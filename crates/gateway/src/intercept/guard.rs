//! The guard: a small process that removes the rules when the gateway is
//! killed and cannot.
//!
//! It holds a second handle of the gateway's NFQUEUE socket. So the kernel
//! does not drop the SYNs held at that moment: the guard lets them go, and the
//! queue number stays taken until the rules are gone, so that a gateway started
//! meanwhile waits and never has its own rules removed. The same happens,
//! without removal, while the gateway does not beat: see `lease`.
//!
//! Protocol: arguments `QUEUE MARK TABLE`; standard input is a Unix stream
//! socket, standard output the queue. It writes `ready`; each byte `b` is a
//! beat, the byte `q` means "nothing to do, go", and the end means "remove
//! everything".

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use socket2::Socket;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::InterceptError;
use super::nfqueue::SharedQueue;
use super::rules::{self, Identity};

/// What the gateway says at each beat, and before it goes in good order.
pub(super) const BEAT: u8 = b'b';
const DISMISSED: u8 = b'q';
const READY: &[u8] = b"ready";
/// Silence after which held SYNs are let go: several beats, and well below a
/// client's first retransmission after a second.
const BEAT_PATIENCE: Duration = Duration::from_millis(500);
const READY_PATIENCE: Duration = Duration::from_secs(5);
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

/// The guard as seen by the gateway. Dropping it, and the stream given to the
/// lease, makes the guard tidy up.
pub(super) struct Guard {
    child: Child,
    control: UnixStream,
}

impl Guard {
    /// Starts the guard and waits until it is on duty.
    pub async fn start(
        program: &GuardProgram,
        identity: Identity,
        queue: Socket,
    ) -> Result<Guard, InterceptError> {
        let path = program.program.display();
        let failed = |error| InterceptError::Guard {
            why: format!("{path}: {error}"),
        };
        let (control, theirs) = UnixStream::pair().map_err(failed)?;
        let child = Command::new(&program.program)
            .args(&program.arguments)
            .args([
                identity.queue.to_string(),
                identity.mark.to_string(),
                identity.table.to_string(),
            ])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(OwnedFd::from(queue)))
            // Not in the terminal's process group: Ctrl-C is not for it.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        control.set_nonblocking(true).map_err(failed)?;
        let mut stream = tokio::net::UnixStream::from_std(control).map_err(failed)?;
        let mut said = [0; READY.len()];
        let heard = timeout(READY_PATIENCE, stream.read_exact(&mut said)).await;
        if !matches!(heard, Ok(Ok(_))) || said != READY {
            let why = "it ended or hung before it was ready";
            return Err(failed(io::Error::other(why)));
        }
        let control = stream.into_std().map_err(failed)?;
        Ok(Guard { child, control })
    }

    /// The stream beats are written to.
    pub fn control(&self) -> io::Result<UnixStream> {
        self.control.try_clone()
    }

    /// Waits until the guard has died.
    pub async fn died(&mut self) {
        let _ = self.child.wait().await;
    }

    /// The rules are gone already: the guard may go.
    pub async fn dismiss(mut self) {
        let _ = self.control.write(&[DISMISSED]);
        if timeout(DISMISS_PATIENCE, self.child.wait()).await.is_err() {
            let _ = self.child.start_kill();
        }
    }
}

/// The guard's whole life; `arguments` are those after the hidden verb.
///
/// # Errors
/// Not started by a gateway, or rules that could not be removed.
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

    let watch = tokio::task::spawn_blocking(move || watch(identity));
    let watched = watch.await.map_err(|error| error.to_string())?;
    let Some(queue) = watched.map_err(|error| error.to_string())? else {
        return Ok(());
    };
    let mut result = rules::remove(identity).await;
    for _ in 0..5 {
        if result.is_ok() {
            break;
        }
        sleep(Duration::from_millis(200)).await;
        result = rules::remove(identity).await;
    }
    // Only now may another gateway have the number.
    drop(queue);
    result.map_err(|error| error.to_string())
}

/// Watches the gateway until its end; `None` if it went in good order, else
/// its queue, opened up.
fn watch(identity: Identity) -> io::Result<Option<SharedQueue>> {
    let mut control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let socket = Socket::from(io::stdout().as_fd().try_clone_to_owned()?);
    let queue = SharedQueue::new(socket, identity.queue);
    queue.close_again()?;
    control.set_read_timeout(Some(BEAT_PATIENCE))?;
    control.write_all(READY)?;
    let mut open = false;
    let mut heard = [0; 64];
    loop {
        let length = match control.read(&mut heard) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Repeated at every silence: cheap, and sure.
                queue.open_up()?;
                open = true;
                continue;
            }
            Err(_) => 0,
        };
        let heard = heard.get(..length).unwrap_or_default();
        if heard.contains(&DISMISSED) {
            return Ok(None);
        }
        if heard.is_empty() {
            // Errors here must not keep the rules from being removed.
            let _ = queue.open_up();
            return Ok(Some(queue));
        }
        if std::mem::take(&mut open) {
            queue.close_again()?;
        }
    }
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
