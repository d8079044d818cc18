//! What can go wrong in the lab, each with what to do about it.

use std::io;
use std::path::PathBuf;

/// An error of the lab. The text says what happened, where, and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Not root.
    #[error(
        "{what} needs root (network namespaces, raw sockets): run it as root or with sudo; \
         the effective user is {user}"
    )]
    NotRoot {
        /// What was asked for.
        what: String,
        /// Effective user id.
        user: u32,
    },
    /// A program is not installed.
    #[error(
        "`{program}` is not installed: scripts/setup.sh installs it (Debian package {package})"
    )]
    MissingProgram {
        /// Program.
        program: String,
        /// Debian package that has it.
        package: String,
    },
    /// A program ended with an error.
    #[error("`{command}` failed ({status}): {stderr}")]
    Command {
        /// Command line.
        command: String,
        /// Exit status.
        status: String,
        /// What it said.
        stderr: String,
    },
    /// A file or system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, to which file.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The link's words make no sense.
    #[error("the link's words: {0}")]
    BadLink(farhaul_link::ProfileError),
    /// A lab of that name exists.
    #[error("lab `{name}` is already up{by}: `farhaul lab down --name {name}` ends it")]
    AlreadyUp {
        /// Its name.
        name: String,
        /// ` (process 123)` where one owns it, else empty.
        by: String,
    },
    /// A namespace of the wanted name exists and is not ours.
    #[error(
        "network namespace `{name}` exists and was not made by the lab: choose another lab name"
    )]
    ForeignNamespace {
        /// Namespace.
        name: String,
    },
    /// No lab of that name.
    #[error(
        "there is no lab `{name}`: `farhaul lab up --name {name}` makes one, `farhaul lab list` shows what is there"
    )]
    NoSuchLab {
        /// Name asked for.
        name: String,
    },
    /// No namespace of that role in a lab.
    #[error("lab `{lab}` has no namespace `{role}`: it has {known}")]
    NoSuchRole {
        /// Lab.
        lab: String,
        /// Role asked for.
        role: String,
        /// Roles it has.
        known: String,
    },
    /// A name that cannot be used.
    #[error("`{name}` cannot be a lab name: use 1 to 32 of a-z, 0-9 and -")]
    BadName {
        /// Name given.
        name: String,
    },
    /// A state file could not be read.
    #[error(
        "{path} is damaged ({why}): remove its folder and the namespaces named after it by hand"
    )]
    BadState {
        /// State file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A process of the lab ended early or did not become ready.
    #[error("{what} did not become ready: {why}\n{log_tail}")]
    NotReady {
        /// Which process.
        what: String,
        /// What was seen.
        why: String,
        /// Last lines of its log; of two gateways that have no tunnel, of both.
        log_tail: String,
    },
    /// Text that could not be understood.
    #[error("{what}: {why}")]
    Invalid {
        /// What was given.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The operator asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Adds what was being done to a system error.
pub(crate) trait During<T> {
    /// `what` reads like "writing /run/x".
    fn during(self, what: impl FnOnce() -> String) -> Result<T, LabError>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T, LabError> {
        self.map_err(|error| LabError::Io {
            what: what(),
            source: error.into(),
        })
    }
}

/// Fails with [`LabError::NotRoot`] unless the effective user is root.
pub fn require_root(what: &str) -> Result<(), LabError> {
    let user = rustix::process::geteuid().as_raw();
    if user == 0 {
        return Ok(());
    }
    Err(LabError::NotRoot {
        what: what.to_owned(),
        user,
    })
}
