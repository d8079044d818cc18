//! Network namespaces: made and removed by name, entered by programs
//! (`ip netns exec`, which also gives them the right `/sys`) and by threads.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{During, LabError};
use crate::process::ProcessId;

/// Where iproute2 keeps named namespaces.
const FOLDER: &str = "/run/netns";

/// A named network namespace. A handle only: dropping it removes nothing
/// (see [`crate::sandbox::Sandbox`] for namespaces that go away by themselves).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A handle to the namespace of this name, which need not exist yet.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Its name, as `ip netns list` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(FOLDER).join(&self.name)
    }

    /// Whether something of this name exists.
    pub fn exists(&self) -> bool {
        self.path().symlink_metadata().is_ok()
    }

    /// Makes it, with its loopback interface up. Fails where the name is taken.
    pub fn create(&self) -> Result<(), LabError> {
        run(Command::new("ip").args(["netns", "add", &self.name]))?;
        run(Command::new("ip").args(["-n", &self.name, "link", "set", "lo", "up"])).map(drop)
    }

    /// Removes it. Interfaces inside go with it once no process is left in it.
    pub fn delete(&self) -> Result<(), LabError> {
        run(Command::new("ip").args(["netns", "delete", &self.name])).map(drop)
    }

    /// Device and inode number: the kernel's identity of this namespace.
    pub fn identity(&self) -> Result<(u64, u64), LabError> {
        let path = self.path();
        let metadata = fs::metadata(&path).during(|| format!("looking at {}", path.display()))?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// Processes whose main thread is inside, without the calling one.
    pub fn processes(&self) -> Result<Vec<ProcessId>, LabError> {
        let identity = self.identity()?;
        let own = std::process::id().cast_signed();
        let entries = fs::read_dir("/proc").during(|| "reading /proc".to_owned())?;
        let inside = entries.flatten().filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let metadata = fs::metadata(entry.path().join("ns/net")).ok()?;
            let is_inside = (metadata.dev(), metadata.ino()) == identity && pid != own;
            is_inside.then(|| ProcessId::of(pid)).flatten()
        });
        Ok(inside.collect())
    }

    /// A command that runs `program` inside; arguments, input and output are
    /// the caller's to set. The process keeps the number it was started with.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a program inside to its end and returns what it printed; a non-zero
    /// status is an error that carries its error output.
    pub fn exec(&self, words: &[&str]) -> Result<String, LabError> {
        let (program, arguments) = words.split_first().ok_or_else(|| LabError::Invalid {
            what: "a command for a namespace".to_owned(),
            why: "it is empty".to_owned(),
        })?;
        run(self.command(program).args(arguments))
    }

    /// Runs several `ip` commands inside, one per line of `script`; the first
    /// failure ends it.
    pub fn ip(&self, script: &str) -> Result<(), LabError> {
        let mut command = Command::new("ip");
        command.args(["-n", &self.name, "-batch", "-"]);
        run_with_input(&mut command, script).map(drop)
    }

    /// Runs `closure` in a thread that has entered the namespace: every socket
    /// it opens and every thread and process it starts belongs to it. Returns
    /// when the closure has; a panic inside goes on outside.
    pub fn within<T: Send>(&self, closure: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        thread::scope(|scope| {
            let entered = scope.spawn(|| {
                self.enter()?;
                Ok(closure())
            });
            entered.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// As [`Namespace::within`], without waiting for the closure's end.
    pub fn spawn_within<T: Send + 'static>(
        &self,
        closure: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<Result<T, LabError>> {
        let namespace = self.clone();
        thread::spawn(move || {
            namespace.enter()?;
            Ok(closure())
        })
    }

    /// Moves the calling thread, which must end before anything else is done
    /// with it.
    fn enter(&self) -> Result<(), LabError> {
        let path = self.path();
        let file = File::open(&path).during(|| format!("opening {}", path.display()))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .during(|| format!("entering namespace {}", self.name))
    }

    /// Writes kernel settings under `/proc/sys/net`, each `(path, value)`.
    pub fn set(&self, settings: &[(&str, &str)]) -> Result<(), LabError> {
        self.within(|| {
            for (path, value) in settings {
                let path = format!("/proc/sys/net/{path}");
                fs::write(&path, value)
                    .during(|| format!("setting {path} to {value} in {}", self.name))?;
            }
            Ok(())
        })?
    }

    /// As [`Namespace::set`] for settings that some kernels do not have per
    /// namespace; those are left as they are.
    pub fn set_where_possible(&self, settings: &[(&str, &str)]) -> Result<(), LabError> {
        self.within(|| {
            for (path, value) in settings {
                // Absent or read-only here means the kernel decides for all.
                let _ = fs::write(format!("/proc/sys/net/{path}"), value);
            }
        })
    }
}

/// Connects two namespaces with a veth pair; both interfaces are left down.
pub fn connect(
    (left, left_name): (&Namespace, &str),
    (right, right_name): (&Namespace, &str),
) -> Result<(), LabError> {
    left.ip(&format!(
        "link add {left_name} type veth peer name {right_name} netns {}",
        right.name
    ))
}

/// Runs a program to its end and returns what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String, LabError> {
    run_with_input(command, "")
}

fn run_with_input(command: &mut Command, input: &str) -> Result<String, LabError> {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let line = words.join(" ");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .during(|| format!("starting `{line}`"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input shows so by its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child
        .wait_with_output()
        .during(|| format!("waiting for `{line}`"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(LabError::Command {
        command: line,
        status: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
