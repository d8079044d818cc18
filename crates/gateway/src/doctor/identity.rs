//! Who this gateway is: the process, its configuration, its key, its clock.

use std::time::{Duration, UNIX_EPOCH};

use super::{Check, Outside, Patient, Subject};
use crate::log::rfc3339;

/// A clock before this was never set: 2025-01-01.
const SANE_CLOCK_S: u64 = 1_735_689_600;
/// A difference between two gateways' clocks that makes logs hard to compare.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);

/// Is a gateway running, and is it the one installed?
pub(super) fn gateway(subject: &Subject, outside: &dyn Outside) -> Check {
    let name = "gateway";
    let socket = subject.socket.display();
    match &subject.status {
        Ok(status) if status.version != env!("CARGO_PKG_VERSION") => Check::warn(
            name,
            format!(
                "it runs version {}, this program is {}",
                status.version,
                env!("CARGO_PKG_VERSION")
            ),
            "restart the gateway, so that it runs what is installed",
        ),
        Ok(status) if status.draining => Check::warn(
            name,
            format!("process {} is shutting down", status.pid),
            "wait until it has ended, then start it again",
        ),
        Ok(status) if status.bypass => Check::warn(
            name,
            format!(
                "process {} runs, with bypass on: new connections go direct",
                status.pid
            ),
            "run `farhaul bypass off`",
        ),
        Ok(status) => Check::ok(name, format!("process {} answers at {socket}", status.pid)),
        Err(why) => {
            let there = outside.facts(&subject.socket).is_ok();
            let evidence = match there {
                true => format!("{socket} exists, but: {why}"),
                false => format!("nobody listens at {socket}; only the machine is examined"),
            };
            Check::warn(name, evidence, "start it: `farhaul gateway --config FILE`")
        }
    }
}

/// Can the configuration be read, and does it make sense?
pub(super) fn config(subject: &Subject) -> Check {
    let name = "config";
    match &subject.config {
        Ok(loaded) if loaded.warnings.is_empty() => {
            Check::ok(name, format!("{} is valid", subject.source))
        }
        Ok(loaded) => Check::warn(
            name,
            format!("{} is valid, but: {}", subject.source, loaded.warnings),
            "look at these places; `farhaul check-config` shows them again",
        ),
        Err(error) => Check::fail(
            name,
            error.to_string(),
            "correct the file; the other checks need it",
        ),
    }
}

/// Is the private key there, private, and the one that is used?
pub(super) fn key(patient: &Patient) -> Check {
    let name = "key";
    let path = &patient.config.site.key;
    let shown = path.display();
    let key = match patient.outside.public_key(path) {
        Ok(key) => key,
        Err(error) => {
            return Check::fail(
                name,
                error,
                format!(
                    "`farhaul keygen {shown}` writes a new key; peers must then be told its public half"
                ),
            );
        }
    };
    // Reading it has checked this as well, but doctors do not trust.
    if let Ok(facts) = patient.outside.facts(path)
        && facts.mode & 0o077 != 0
    {
        return Check::fail(
            name,
            format!("{shown} has mode {:04o}: others can read it", facts.mode),
            format!("chmod 600 {shown}; if others may have read it, write a new key"),
        );
    }
    match patient.status {
        Some(status) if !status.key.is_empty() && status.key != key => Check::warn(
            name,
            format!("{shown} holds {key}, the gateway runs with {}", status.key),
            "restart the gateway to use the new key, and tell the peers",
        ),
        _ => Check::ok(name, format!("{shown} holds {key}")),
    }
}

/// Is the clock sane, and near the peers' clocks?
pub(super) fn clock(patient: &Patient) -> Check {
    let name = "clock";
    let now = patient.outside.now();
    let shown = rfc3339(now);
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    if since.as_secs() < SANE_CLOCK_S {
        return Check::fail(
            name,
            format!("it is {shown}, which cannot be"),
            "set the clock, and run an NTP client such as systemd-timesyncd or chrony",
        );
    }
    let peers = patient
        .status
        .map(|status| status.peers.as_slice())
        .unwrap_or_default();
    let skewed = peers.iter().find_map(|peer| {
        let ahead_ms = peer.clock_ahead_ms?;
        (ahead_ms.abs() > CLOCK_SKEW_MAX.as_millis() as f64).then_some((&peer.name, ahead_ms))
    });
    match skewed {
        Some((peer, ahead_ms)) => Check::warn(
            name,
            format!(
                "the clock of {peer} is {:.0} s {} ours",
                ahead_ms.abs() / 1000.0,
                if ahead_ms > 0.0 { "ahead of" } else { "behind" }
            ),
            "run an NTP client at both sites; the tunnel works, but logs cannot be compared",
        ),
        None => Check::ok(name, format!("it is {shown}")),
    }
}
