//! What the kernel allows and does: capabilities, forwarding, interception rules.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use super::{Check, Patient};
use crate::config::meaning::{InterceptMode, Listen};

/// capability.h
const CAPABILITIES: [(&str, u32); 3] = [
    ("CAP_NET_ADMIN", 12),
    ("CAP_NET_RAW", 13),
    ("CAP_NET_BIND_SERVICE", 10),
];
/// Ports below need CAP_NET_BIND_SERVICE, unless the kernel is told otherwise.
const PRIVILEGED_PORTS: u16 = 1024;

/// May the gateway do what its configuration asks for?
pub(super) fn capabilities(patient: &Patient) -> Check {
    let name = "capabilities";
    let needed = needed_capabilities(patient);
    if needed.is_empty() {
        return Check::ok(name, "none is needed");
    }
    let (whose, path) = match patient.status {
        Some(status) => ("the gateway", format!("/proc/{}/status", status.pid)),
        None => ("this program", "/proc/self/status".to_owned()),
    };
    let Some(held) = patient
        .outside
        .read(path.as_ref())
        .ok()
        .and_then(|text| effective(&text))
    else {
        return Check::skip(name, format!("{path} does not tell"));
    };
    let missing: Vec<_> = CAPABILITIES
        .into_iter()
        .filter(|(capability, bit)| needed.contains(capability) && held >> bit & 1 == 0)
        .map(|(capability, _)| capability)
        .collect();
    if missing.is_empty() {
        return Check::ok(name, format!("{whose} has {}", needed.join(", ")));
    }
    let evidence = format!("{whose} lacks {}", missing.join(", "));
    let remedy = format!(
        "run the gateway as root, or: setcap {}+ep on the farhaul program",
        needed.join(",").to_lowercase()
    );
    match patient.status {
        Some(_) => Check::fail(name, evidence, remedy),
        // A service manager may give the gateway what this shell lacks.
        None => Check::warn(name, evidence, remedy),
    }
}

fn needed_capabilities(patient: &Patient) -> Vec<&'static str> {
    let mut needed = Vec::new();
    if patient.config.intercept.mode == InterceptMode::Transparent {
        needed.extend(["CAP_NET_ADMIN", "CAP_NET_RAW"]);
    }
    let ports = patient.config.listens.iter().map(listen_address);
    let ports = ports
        .chain([patient.config.tunnel.listen])
        .chain(patient.config.admin.metrics);
    if ports
        .map(|address| address.port())
        .any(|port| (1..PRIVILEGED_PORTS).contains(&port))
    {
        needed.push("CAP_NET_BIND_SERVICE");
    }
    needed
}

/// Where an explicit listener listens.
pub(super) fn listen_address(listen: &Listen) -> SocketAddr {
    match listen {
        Listen::Socks(address) | Listen::Connect(address) => *address,
        Listen::Forward { listen, .. } => *listen,
    }
}

/// `CapEff` of `/proc/PID/status`, a bit for each capability.
fn effective(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Does the kernel forward, and let LAN packets in as they come?
pub(super) fn settings(patient: &Patient) -> Check {
    let name = "system";
    let intercept = &patient.config.intercept;
    if intercept.mode == InterceptMode::Explicit {
        return Check::ok(name, "explicit listeners need no forwarding");
    }
    let setting = |path: String| -> Option<String> {
        let text = patient
            .outside
            .read(Path::new("/proc/sys/net").join(path).as_ref())
            .ok()?;
        Some(text.trim().to_owned())
    };
    let networks: Vec<_> = patient
        .config
        .peers
        .iter()
        .flat_map(|peer| &peer.networks)
        .collect();
    let v4 = networks.iter().any(|network| network.address.is_ipv4());
    let v6 = networks.iter().any(|network| network.address.is_ipv6());
    for (wanted, path) in [(v4, "ipv4/ip_forward"), (v6, "ipv6/conf/all/forwarding")] {
        if wanted && setting(path.to_owned()).as_deref() == Some("0") {
            let key = format!("net.{}", path.replace('/', "."));
            return Check::fail(
                name,
                format!("{key} is 0: this machine does not forward"),
                format!("sysctl -w {key}=1, and write it to /etc/sysctl.d/"),
            );
        }
    }
    let strictness = |interface: &str| {
        setting(format!("ipv4/conf/{interface}/rp_filter"))
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    };
    for interface in &intercept.interfaces {
        // The kernel uses the larger of both (ip-sysctl, rp_filter).
        if strictness("all").max(strictness(interface)) == 1_u8 {
            return Check::warn(
                name,
                format!(
                    "rp_filter is strict (1) on {interface}: packets of clients with another way back are dropped silently"
                ),
                format!(
                    "sysctl -w net.ipv4.conf.{interface}.rp_filter=2, and the same for `all` if that is 1"
                ),
            );
        }
        if let Some(offload) = large_receive_offload(patient, interface) {
            return offload;
        }
    }
    Check::ok(name, "it forwards, and takes LAN packets as they come")
}

/// LRO merges packets in a way that cannot be forwarded (kernel
/// documentation, networking/netdev-features).
fn large_receive_offload(patient: &Patient, interface: &str) -> Option<Check> {
    let output = patient.outside.run("ethtool", &["-k", interface]).ok()?;
    let on = output
        .stdout
        .lines()
        .any(|line| line.trim().starts_with("large-receive-offload: on"));
    on.then(|| {
        Check::warn(
            "system",
            format!("large-receive-offload is on at {interface}; a router must not merge packets"),
            format!("ethtool -K {interface} lro off"),
        )
    })
}

/// Are the interception rules in place exactly while a gateway runs?
pub(super) fn interception(patient: &Patient) -> Check {
    let name = "interception";
    let intercept = &patient.config.intercept;
    let told = patient.status.map(|status| &status.intercept);
    // The gateway sees also the policy rules and routes, with explicit
    // listeners as well: servers' answers to clients come by them.
    let remedy = "correct it; the gateway tries again by itself";
    if let Some(problem) = told.and_then(|told| told.problem.as_ref()) {
        return Check::fail(name, problem.clone(), remedy);
    }
    if let Some(what) = told.and_then(|told| told.unguarded.as_ref()) {
        return Check::warn(name, what.clone(), remedy);
    }
    if intercept.mode == InterceptMode::Explicit {
        return Check::ok(name, "explicit listeners only");
    }
    let table = format!("farhaul_{}", intercept.queue);
    let present = match patient
        .outside
        .run("nft", &["list", "table", "inet", &table])
    {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Check::fail(
                name,
                "`nft` is not installed",
                "install the package nftables",
            );
        }
        Err(_) => None,
        Ok(output) if output.success => Some(true),
        Ok(output) if output.stderr.contains("No such file or directory") => Some(false),
        Ok(_) => None,
    };
    match (
        patient.status.map(|status| status.intercept.active),
        present,
    ) {
        (Some(true), Some(false)) => Check::fail(
            name,
            format!("the gateway intercepts, but the nftables table inet {table} is gone"),
            "another program flushed the rules; the gateway puts them back: see that firewall scripts keep foreign tables",
        ),
        (Some(true), _) => Check::ok(
            name,
            format!("rules are in place on {}", intercept.interfaces.join(", ")),
        ),
        (Some(false), _) => Check::warn(
            name,
            "the gateway does not intercept at the moment",
            "see `farhaul status` for the reason",
        ),
        (None, Some(true)) => Check::warn(
            name,
            format!("no gateway answers, but the nftables table inet {table} exists"),
            format!("if no gateway runs: nft delete table inet {table}"),
        ),
        (None, Some(false)) => Check::ok(name, "no rules are left behind"),
        (None, None) => Check::skip(name, "only root may list nftables rules"),
    }
}
