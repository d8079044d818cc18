//! A lab that runs: the topology with the emulator in its middle, for tests,
//! plans and `farhaul lab`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::error::LabError;
use crate::netns::{Namespace, run};
use crate::sandbox::Sandbox;
use crate::topology::{self, LabOptions, Side, wan_interface};

/// What the emulator is in its sandbox.
pub(crate) const LINK: &str = "link";
/// How long the emulator may take to start.
const LINK_PATIENCE: Duration = Duration::from_secs(10);
/// How often a wait looks again.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// A lab that is up. Dropping it tears it down, unless it was
/// [kept](Lab::keep) or [opened](Lab::open).
#[derive(Debug)]
pub struct Lab {
    pub(crate) sandbox: Sandbox,
    pub(crate) program: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Lab {
    /// Builds the topology and starts the emulator.
    pub fn up(options: &LabOptions) -> Result<Self, LabError> {
        // Said here, the mistake is not buried in the emulator's log.
        if let Some(words) = &options.link {
            farhaul_link::LinkProfile::parse(words).map_err(LabError::BadLink)?;
        }
        require_congestion_control(&options.congestion_control)?;
        require_programs()?;
        let mut sandbox = Sandbox::create(&options.name)?;
        sandbox.note("link", json!(options.link))?;
        sandbox.note("seed", json!(options.seed))?;
        topology::build(&mut sandbox, options)?;
        let mut lab = Self {
            sandbox,
            program: options.program.clone(),
            stop: Arc::default(),
        };
        if let Some(words) = &options.link {
            lab.start_link(words, options.seed)?;
        }
        Ok(lab)
    }

    /// A lab that is up already; dropping the handle leaves it up. `program`
    /// is the `farhaul` binary.
    pub fn open(name: &str, program: impl Into<PathBuf>) -> Result<Self, LabError> {
        Ok(Self {
            sandbox: Sandbox::open(name)?,
            program: program.into(),
            stop: Arc::default(),
        })
    }

    /// Lets `stop` end every wait of this handle with [`LabError::Interrupted`].
    pub fn interrupt_by(&mut self, stop: Arc<AtomicBool>) {
        self.stop = stop;
    }

    /// Leaves it up for [`Lab::open`].
    pub fn keep(self) -> Result<(), LabError> {
        self.sandbox.keep()
    }

    /// Tears it down.
    pub fn down(self) -> Result<(), LabError> {
        self.sandbox.tear_down()
    }

    /// Namespaces, processes, folder.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// As [`Lab::sandbox`], to start programs that end with the lab.
    pub fn sandbox_mut(&mut self) -> &mut Sandbox {
        &mut self.sandbox
    }

    /// The namespace of a role: `client`, `gwa`, `wan`, `gwb` or `server`.
    pub fn namespace(&self, role: &str) -> Result<Namespace, LabError> {
        self.sandbox.namespace(role)
    }

    /// The client's namespace.
    pub fn client(&self) -> Result<Namespace, LabError> {
        self.namespace("client")
    }

    /// The server's namespace.
    pub fn server(&self) -> Result<Namespace, LabError> {
        self.namespace("server")
    }

    /// The namespace of a side's gateway.
    pub fn gateway(&self, side: Side) -> Result<Namespace, LabError> {
        self.namespace(side.gateway_role())
    }

    /// The emulator's admin socket.
    pub fn link_socket(&self) -> PathBuf {
        self.sandbox.folder().join("link.sock")
    }

    /// Changes the running link at once; `words` as `farhaul link` takes them.
    pub fn set_link(&mut self, words: &str) -> Result<(), LabError> {
        let mut command = self.farhaul(&["link", "set", "--socket"]);
        command
            .arg(self.link_socket())
            .args(words.split_whitespace());
        run(&mut command)?;
        self.sandbox.note("link", json!(words))
    }

    /// The emulator's counters, as `farhaul link stats --json` prints them.
    pub fn link_stats(&self) -> Result<Value, LabError> {
        let mut command = self.farhaul(&["link", "stats", "--json", "--socket"]);
        command.arg(self.link_socket());
        parse_json("farhaul link stats --json", &run(&mut command)?)
    }

    fn start_link(&mut self, words: &str, seed: u64) -> Result<(), LabError> {
        let wan = self.namespace("wan")?;
        let program = self.program.to_string_lossy().into_owned();
        let (socket, seed) = (self.link_socket(), seed.to_string());
        let socket = socket.to_string_lossy();
        let (a, b) = (wan_interface(Side::A), wan_interface(Side::B));
        let mut command = vec![program.as_str(), "link", "run", &a, &b];
        command.extend(words.split_whitespace());
        command.extend(["--socket", &socket, "--seed", &seed]);
        self.sandbox.start(LINK, &wan, &command)?;
        let is_ready = |lab: &Self| {
            let log = std::fs::read_to_string(lab.sandbox.log_path(LINK)).unwrap_or_default();
            log.lines().any(|line| line.starts_with("ready"))
        };
        self.wait_ready(LINK, "the link emulator", LINK_PATIENCE, is_ready)
    }

    /// Waits until `is_ready`; an early end of the role's process or running
    /// out of patience is an error that shows the end of its log.
    pub(crate) fn wait_ready(
        &mut self,
        role: &str,
        what: &str,
        patience: Duration,
        is_ready: impl Fn(&Self) -> bool,
    ) -> Result<(), LabError> {
        let end = Instant::now() + patience;
        let why = loop {
            if is_ready(self) {
                return Ok(());
            }
            if !self
                .sandbox
                .process(role)
                .is_some_and(|process| process.is_alive())
            {
                break "its process ended".to_owned();
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            if Instant::now() >= end {
                break format!("nothing within {} s", patience.as_secs());
            }
            sleep(POLL);
        };
        self.sandbox.reap();
        Err(LabError::NotReady {
            what: what.to_owned(),
            why,
            log_tail: self.sandbox.log_tail(role),
        })
    }

    pub(crate) fn farhaul(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words);
        command
    }
}

pub(crate) fn parse_json(what: &str, text: &str) -> Result<Value, LabError> {
    serde_json::from_str(text).map_err(|error| LabError::Invalid {
        what: format!("the output of `{what}`"),
        why: error.to_string(),
    })
}

/// Asks the kernel, which loads a module where it has one.
fn require_congestion_control(name: &str) -> Result<(), LabError> {
    let tried = Socket::new(Domain::IPV4, Type::STREAM, None)
        .and_then(|socket| socket.set_tcp_congestion(name.as_bytes()));
    let is_unknown = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    // Whatever else is wrong, as too few privileges, is said where it matters.
    if !tried.is_err_and(|error| is_unknown(&error)) {
        return Ok(());
    }
    let known = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let known = std::fs::read_to_string(known).unwrap_or_default();
    Err(LabError::Invalid {
        what: format!("congestion control `{name}`"),
        why: format!(
            "this kernel has none of that name; it has: {}",
            known.trim()
        ),
    })
}

fn require_programs() -> Result<(), LabError> {
    for (program, package) in [
        ("ip", "iproute2"),
        ("ethtool", "ethtool"),
        ("setsid", "util-linux"),
    ] {
        require_program(program, package)?;
    }
    Ok(())
}

/// Fails with the Debian package's name where `program` is not installed.
pub fn require_program(program: &str, package: &str) -> Result<PathBuf, LabError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Administrators' programs are not on every user's path.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders
        .map(|folder| folder.join(program))
        .find(|file| file.is_file());
    found.ok_or_else(|| LabError::MissingProgram {
        program: program.to_owned(),
        package: package.to_owned(),
    })
}
