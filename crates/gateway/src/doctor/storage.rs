//! What the gateway needs to hold: disk space and ports.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use super::kernel::listen_address;
use super::{Check, Patient};
use crate::admin::advice::store_trouble;

/// Is the store's folder there, writable, and large enough?
pub(super) fn disk(patient: &Patient) -> Check {
    let name = "disk";
    let Some(disk) = &patient.config.store.disk else {
        return Check::ok(name, "the store uses memory only");
    };
    let shown = disk.path.display();
    let another = "choose another `store.disk.path`, a folder of its own such as /var/lib/farhaul";
    if let Some(why) = disk.misplaced() {
        return Check::fail(name, format!("{shown} {why}"), another);
    }
    match patient.outside.facts(&disk.path) {
        Ok(facts) if facts.is_folder => {}
        Ok(_) => {
            return Check::fail(name, format!("{shown} is not a folder"), another);
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Check::fail(name, format!("{shown}: {error}"), another);
        }
        Err(error) => {
            return Check::fail(
                name,
                format!("{shown}: {error}"),
                format!("create it for the gateway's user: mkdir -m 700 {shown}"),
            );
        }
    }
    if let Err(error) = patient.outside.try_write(&disk.path) {
        return Check::fail(
            name,
            format!("{shown} cannot be written: {error}"),
            match error.kind() {
                ErrorKind::ReadOnlyFilesystem => {
                    "make the file system writable, or choose another `store.disk.path`"
                }
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                    "make room there, or choose another `store.disk.path`"
                }
                _ => "give it to the user that runs the gateway (and run doctor as that user)",
            },
        );
    }
    if let Some((what, remedy)) = patient.status.and_then(store_trouble) {
        return Check::warn(name, what, remedy);
    }
    let path = disk.path.to_string_lossy();
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    match free_bytes(patient, &path) {
        None => Check::ok(name, format!("{shown} can be written")),
        Some(free) if free < disk.size_bytes => Check::warn(
            name,
            format!(
                "{shown} has {:.1} GiB free, the store may grow to {:.1} GiB",
                gib(free),
                gib(disk.size_bytes)
            ),
            "lower `store.disk.size`, unless the difference is what the store already holds",
        ),
        Some(free) => Check::ok(
            name,
            format!("{shown} can be written, {:.1} GiB free", gib(free)),
        ),
    }
}

fn free_bytes(patient: &Patient, path: &str) -> Option<u64> {
    let output = patient
        .outside
        .run("df", &["--output=avail", "-B1", path])
        .ok()?;
    output
        .stdout
        .lines()
        .nth(1)?
        .trim()
        .parse()
        .ok()
        .filter(|_| output.success)
}

/// Can the gateway take its ports?
pub(super) fn ports(patient: &Patient) -> Check {
    let name = "ports";
    if let Some(status) = patient.status {
        return Check::ok(
            name,
            format!("the running gateway (process {}) holds them", status.pid),
        );
    }
    let config = patient.config;
    let tcp = config
        .listens
        .iter()
        .map(|listen| ("listen", listen_address(listen)));
    let tcp = tcp.chain(
        config
            .admin
            .metrics
            .map(|address| ("admin.metrics", address)),
    );
    let tcp = tcp.map(|(key, address)| (key, address, patient.outside.try_bind_tcp(address)));
    let udp = config.tunnel.listen;
    let udp = ("tunnel.listen", udp, patient.outside.try_bind_udp(udp));
    let mut free = Vec::new();
    for (key, address, outcome) in std::iter::once(udp).chain(tcp) {
        match outcome {
            Ok(()) => free.push(address.to_string()),
            Err(error) => return taken(key, address, &error),
        }
    }
    Check::ok(name, format!("free: {}", free.join(", ")))
}

fn taken(key: &str, address: SocketAddr, error: &io::Error) -> Check {
    let remedy = match error.kind() {
        ErrorKind::AddrInUse => {
            "stop the program that has it (`ss -lntup` names it), or choose another port"
        }
        ErrorKind::AddrNotAvailable => {
            "this machine does not have that address; use one of its own"
        }
        ErrorKind::PermissionDenied => {
            "use a port from 1024 up, or give the gateway CAP_NET_BIND_SERVICE"
        }
        _ => "choose another address or port",
    };
    Check::fail("ports", format!("{key} {address}: {error}"), remedy)
}
