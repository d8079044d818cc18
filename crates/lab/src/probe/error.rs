//! What can go wrong in a circuit test, with the code a report and the process end with.

use std::io;

/// Why a test did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The name or address means nothing.
    #[error("`{target}` cannot be found: {why}; check the name, or give an address")]
    UnknownHost {
        /// What was asked for.
        target: String,
        /// What the resolver said.
        why: String,
    },
    /// Nobody answers there.
    #[error(
        "no test server at {target}: {source}; start one there with `farhaul probe serve`, and let TCP and UDP through"
    )]
    Unreachable {
        /// Address and port.
        target: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Nobody answers there, and nobody of ours was wanted.
    #[error(
        "no iperf3 server at {target}: {source}; start one there with `iperf3 -s`, and let TCP and UDP through"
    )]
    NoIperf3 {
        /// Address and port.
        target: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The server does not want this test.
    #[error("the server refuses: {why}")]
    Refused {
        /// Its words, made harmless.
        why: String,
    },
    /// The other end broke the protocol.
    #[error("the other end does not speak this protocol properly: {why}")]
    Protocol {
        /// What was wrong.
        why: String,
    },
    /// The other end is gone in the middle of a test.
    #[error("the connection was lost while {during}: {source}")]
    Lost {
        /// What was going on.
        during: String,
        /// The system's answer.
        source: io::Error,
    },
    /// Nothing came in time.
    #[error("nothing came from the other end for {seconds} s while {during}")]
    Silent {
        /// How long was waited.
        seconds: u64,
        /// What was going on.
        during: String,
    },
    /// Everything answers, but what a test sends does not get through.
    #[error("no payload arrived {way} within the test")]
    NoPayload {
        /// `up` or `down`.
        way: &'static str,
    },
    /// Everything was tried, and nothing can be said of the circuit.
    #[error("{why}")]
    NoVerdict {
        /// In one sentence.
        why: String,
    },
    /// The operator asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// Something is asked for that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Our own machine does not let us.
    #[error("{what}: {source}")]
    Local {
        /// What was being done.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl ProbeError {
    /// Short and stable, as reports have it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownHost { .. } => "unknown-host",
            Self::Unreachable { .. } | Self::NoIperf3 { .. } => "unreachable",
            Self::Refused { .. } => "refused",
            Self::Protocol { .. } => "protocol",
            Self::Lost { .. } => "lost",
            Self::Silent { .. } | Self::NoPayload { .. } | Self::NoVerdict { .. } => "silent",
            Self::Interrupted => "interrupted",
            Self::Usage(_) => "usage",
            Self::Local { .. } => "local",
        }
    }

    /// What the process ends with; the table is in `docs/reference/probe.md`.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Local { .. } => 1,
            Self::Usage(_) => 2,
            Self::UnknownHost { .. } | Self::Unreachable { .. } | Self::NoIperf3 { .. } => 3,
            Self::Refused { .. } => 4,
            Self::Protocol { .. } => 5,
            Self::Lost { .. } | Self::Silent { .. } => SILENT_EXIT_CODE,
            Self::NoPayload { .. } | Self::NoVerdict { .. } => SILENT_EXIT_CODE,
            Self::Interrupted => 7,
        }
    }

    /// An error where something was to arrive in a direction and nothing did: `None` was not asked for.
    pub(crate) fn unless_carried(up: Option<bool>, down: Option<bool>) -> Result<(), Self> {
        match (up, down) {
            (Some(false), _) => Err(Self::NoPayload { way: "up" }),
            (_, Some(false)) => Err(Self::NoPayload { way: "down" }),
            _ => Ok(()),
        }
    }

    pub(crate) fn protocol(why: impl Into<String>) -> Self {
        Self::Protocol { why: why.into() }
    }
}

/// The exit code where the other end was lost, or nothing came.
pub const SILENT_EXIT_CODE: u8 = 6;
/// The exit code of a diagnosis that found a fault.
pub const FAULT_EXIT_CODE: u8 = 10;

/// Adds to a system error what was being done.
pub(crate) trait While<T> {
    /// Trouble of our own machine.
    fn locally(self, what: &str) -> Result<T, ProbeError>;
    /// Trouble with the other end.
    fn lost_while(self, during: &str) -> Result<T, ProbeError>;
}

impl<T, E: Into<io::Error>> While<T> for Result<T, E> {
    fn locally(self, what: &str) -> Result<T, ProbeError> {
        self.map_err(|error| ProbeError::Local {
            what: what.to_owned(),
            source: error.into(),
        })
    }

    fn lost_while(self, during: &str) -> Result<T, ProbeError> {
        self.map_err(|error| ProbeError::Lost {
            during: during.to_owned(),
            source: error.into(),
        })
    }
}

/// Text of the other end, fit for a terminal: one line, printable, short.
pub(crate) fn harmless(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(CHARACTERS_MAX).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_drive_a_terminal() {
        let text = harmless(&format!("a\x1b[2J\nb{}", "x".repeat(10_000)));
        assert!(text.starts_with("a [2J b") && text.chars().count() == 200);
    }
}
