//! `farhaul doctor`: what usually goes wrong, looked at in the usual order.
//!
//! [`examine`] returns a value; the command line prints it. A check says what
//! it saw and, unless all is well, what to do. With a running gateway the
//! gateway is asked; without one only the machine is looked at. Everything
//! read from the machine comes through [`Outside`], so that tests can stage
//! any illness.

mod firewall;
mod identity;
mod kernel;
mod link;
mod network;
mod outside;
mod peers;
mod storage;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use outside::{CommandOutput, FileFacts, Outside, System};

use crate::admin::Status;
use crate::config::{Config, LoadError, Loaded};
use crate::log::rfc3339;

/// What a check found. Ordered: the worst is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Could not or need not be looked at; the evidence says why.
    Skip,
    /// Fine.
    Ok,
    /// Works, but not as well or not for all.
    Warn,
    /// Does not work.
    Fail,
}

impl Verdict {
    /// The stable word, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Skip => "skip",
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }
}

/// One check's result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Stable name, such as `clock` or `peer hq`.
    pub name: String,
    /// What it found.
    pub verdict: Verdict,
    /// What was seen.
    pub evidence: String,
    /// What to do; present where the verdict is `warn` or `fail`.
    pub remedy: Option<String>,
}

impl Check {
    fn ok(name: impl Into<String>, evidence: impl Into<String>) -> Check {
        Check::without_remedy(name, Verdict::Ok, evidence)
    }

    fn skip(name: impl Into<String>, evidence: impl Into<String>) -> Check {
        Check::without_remedy(name, Verdict::Skip, evidence)
    }

    fn warn(
        name: impl Into<String>,
        evidence: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Check {
        let check = Check::without_remedy(name, Verdict::Warn, evidence);
        Check {
            remedy: Some(remedy.into()),
            ..check
        }
    }

    fn fail(
        name: impl Into<String>,
        evidence: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Check {
        Check {
            verdict: Verdict::Fail,
            ..Check::warn(name, evidence, remedy)
        }
    }

    fn without_remedy(
        name: impl Into<String>,
        verdict: Verdict,
        evidence: impl Into<String>,
    ) -> Check {
        Check {
            name: name.into(),
            verdict,
            evidence: evidence.into(),
            remedy: None,
        }
    }
}

/// Everything the doctor found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// When it was made, RFC 3339 in UTC.
    pub time: String,
    /// Site name, if the configuration could be read.
    pub site: Option<String>,
    /// Whether a gateway was asked.
    pub running: bool,
    /// The checks, in the order to work through them.
    pub checks: Vec<Check>,
}

impl Report {
    /// The worst verdict of all.
    pub fn worst(&self) -> Verdict {
        self.checks
            .iter()
            .map(|check| check.verdict)
            .max()
            .unwrap_or(Verdict::Skip)
    }

    /// 0 if nothing is wrong, 1 with warnings, 2 with failures.
    pub fn exit_code(&self) -> u8 {
        match self.worst() {
            Verdict::Skip | Verdict::Ok => 0,
            Verdict::Warn => 1,
            Verdict::Fail => 2,
        }
    }
}

/// What is examined.
#[derive(Debug)]
pub struct Subject {
    /// Where the configuration came from: a file, or the running gateway.
    pub source: String,
    /// What reading it gave.
    pub config: Result<Loaded, LoadError>,
    /// What the running gateway says, or why it could not be asked.
    pub status: Result<Status, String>,
    /// The admin socket asked.
    pub socket: PathBuf,
}

/// Everything a check may look at.
struct Patient<'a> {
    config: &'a Config,
    status: Option<&'a Status>,
    outside: &'a dyn Outside,
}

/// Looks at everything.
pub fn examine(subject: &Subject, outside: &dyn Outside) -> Report {
    let status = subject.status.as_ref().ok();
    let mut checks = vec![
        identity::gateway(subject, outside),
        identity::config(subject),
    ];
    if let Ok(loaded) = &subject.config {
        let patient = Patient {
            config: &loaded.config,
            status,
            outside,
        };
        checks.push(identity::key(&patient));
        checks.extend(peers::reachable(&patient));
        checks.push(peers::mtu(&patient));
        checks.extend(link::told(&patient));
        checks.push(identity::clock(&patient));
        checks.extend(on_this_network(&patient));
        checks.push(peers::asymmetric_return(&patient));
        checks.push(storage::disk(&patient));
    }
    Report {
        time: rfc3339(outside.now()),
        site: subject
            .config
            .as_ref()
            .ok()
            .map(|loaded| loaded.config.site.name.clone()),
        running: status.is_some(),
        checks,
    }
}

/// Checks that look at interfaces, routes and kernel settings, which belong
/// to a network namespace.
fn on_this_network(patient: &Patient) -> Vec<Check> {
    if let Some(pid) = patient.status.map(|status| status.pid)
        && elsewhere(patient.outside, pid)
    {
        let evidence = format!(
            "not looked at: the gateway runs in another network namespace; \
             run `nsenter -t {pid} -n farhaul doctor --socket {}` for these",
            patient.config.admin.socket.display()
        );
        let names = [
            "capabilities",
            "system",
            "interception",
            "firewall",
            "bridges",
            "addresses",
            "routes",
            "ports",
        ];
        return names.map(|name| Check::skip(name, evidence.clone())).into();
    }
    vec![
        kernel::capabilities(patient),
        kernel::settings(patient),
        kernel::interception(patient),
        firewall::input(patient),
        firewall::bridges(patient),
        network::addresses(patient),
        network::routes(patient),
        storage::ports(patient),
    ]
}

fn elsewhere(outside: &dyn Outside, pid: u32) -> bool {
    let ours = outside.read_link("/proc/self/ns/net".as_ref());
    let theirs = outside.read_link(format!("/proc/{pid}/ns/net").as_ref());
    matches!((ours, theirs), (Ok(ours), Ok(theirs)) if ours != theirs)
}
