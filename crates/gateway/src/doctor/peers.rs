//! The way to the peers, and what happens beyond them.

use std::net::IpAddr;

use super::network::{Route, route_to};
use super::{Check, Patient, elsewhere};
use crate::admin::status::{PeerState, PeerStatus};
use crate::config::meaning::Peer;
use crate::event::Reason;
use crate::quic::narrow::DATAGRAM_BYTES_MIN;

/// IP and UDP headers around it: IPv6 is the larger.
const HEADER_BYTES: u64 = 48;

/// One check per peer: can it be reached?
pub(super) fn reachable(patient: &Patient) -> Vec<Check> {
    if patient.config.peers.is_empty() {
        return vec![Check::fail(
            "peer",
            "no peer is configured",
            "run `farhaul init` here and `farhaul join` at the other site",
        )];
    }
    patient
        .config
        .peers
        .iter()
        .map(|peer| one_peer(patient, peer))
        .collect()
}

fn one_peer(patient: &Patient, peer: &Peer) -> Check {
    let name = format!("peer {}", peer.name);
    let running = patient
        .status
        .and_then(|status| status.peers.iter().find(|known| known.name == peer.name));
    match (running, patient.status) {
        (Some(known), _) => no_fixed_port(patient, peer, asked(name, known)),
        (None, Some(_)) => Check::warn(
            name,
            "the running gateway does not know this peer",
            "run `farhaul reload`",
        ),
        (None, None) => looked_at(patient, name, peer),
    }
}

/// Where each side names an address of the other and no port of its own, both
/// dial a port at which nobody listens.
fn no_fixed_port(patient: &Patient, peer: &Peer, mut check: Check) -> Check {
    let only_dials = peer.address.is_some() && patient.config.tunnel.listen.port() == 0;
    if let (true, Some(remedy)) = (only_dials, &mut check.remedy) {
        remedy.push_str(
            "; this gateway only dials and listens on no fixed port, so if the other side names an \
             `address` for it, too, one of both needs `tunnel.listen` with that port",
        );
    }
    check
}

/// What the gateway knows.
fn asked(name: String, peer: &PeerStatus) -> Check {
    let address = if peer.address.is_empty() {
        "no address yet"
    } else {
        &peer.address
    };
    let error = peer
        .last_error
        .as_ref()
        .map(|error| format!(": {error}"))
        .unwrap_or_default();
    match peer.state {
        PeerState::Up => {
            let rtt = peer
                .rtt_ms
                .map(|ms| format!(", round trip {ms:.1} ms"))
                .unwrap_or_default();
            Check::ok(name, format!("up for {} s at {address}{rtt}", peer.since_s))
        }
        PeerState::Connecting => Check::warn(
            name,
            format!("connecting for {} s to {address}{error}", peer.since_s),
            "if it stays so: is the other gateway running, has it our key, does a firewall drop UDP?",
        ),
        PeerState::Draining => Check::warn(
            name,
            format!("shutting down for {} s at {address}", peer.since_s),
            "if nobody stops the other gateway, see its log; until it is back connections go direct",
        ),
        PeerState::Down if peer.path_too_narrow => Check::fail(
            name,
            format!("down for {} s, {address}{error}", peer.since_s),
            "see `mtu` below",
        ),
        PeerState::Down => Check::fail(
            name,
            format!("down for {} s, {address}{error}", peer.since_s),
            "check that the other gateway runs, that each has the other's key, and that UDP passes both ways",
        ),
    }
}

/// What can be seen without a gateway. Gateways do not answer strangers, so
/// there is nothing to be gained by sending to it.
fn looked_at(patient: &Patient, name: String, peer: &Peer) -> Check {
    let Some(address) = &peer.address else {
        return Check::skip(
            name,
            "it dials us; start the gateway to see whether it does",
        );
    };
    let found = match patient.outside.resolve(&address.host, address.port) {
        Ok(found) if !found.is_empty() => found,
        Ok(_) => return unresolved(name, &address.host, "it has no address"),
        Err(error) => return unresolved(name, &address.host, &error.to_string()),
    };
    let mut seen = Vec::new();
    for target in &found {
        match route_to(patient.outside, target.ip()) {
            Some(Route::Via { interface, .. }) => {
                seen.push(format!("{target} through {interface}"))
            }
            Some(Route::Here) => {
                return Check::fail(
                    name,
                    format!("{} is {target}, an address of this machine", address.host),
                    "give the address of the other site's gateway",
                );
            }
            Some(Route::None(_)) => {}
            None => seen.push(target.to_string()),
        }
    }
    if seen.is_empty() {
        return Check::fail(
            name,
            format!("there is no route to {}", address.host),
            "check the default route and the WAN interface",
        );
    }
    Check::ok(
        name,
        format!(
            "{}; start the gateway to see whether it answers",
            seen.join(", ")
        ),
    )
}

fn unresolved(name: String, host: &str, why: &str) -> Check {
    Check::fail(
        name,
        format!("{host} does not resolve: {why}"),
        "check the name in `peer.address` and this machine's DNS, or use an address",
    )
}

/// Does the path carry datagrams of useful size?
pub(super) fn mtu(patient: &Patient) -> Check {
    let peers = patient.status.map(|status| status.peers.as_slice());
    let peers = peers.unwrap_or_default();
    if let Some(peer) = peers.iter().find(|peer| peer.path_too_narrow) {
        return Check::fail(
            "mtu",
            format!(
                "{DATAGRAM_BYTES_MIN}-byte datagrams no longer reach {}, and the tunnel needs them",
                peer.name
            ),
            Reason::PathTooNarrow.remedy().unwrap_or_default(),
        );
    }
    if peers.iter().any(|peer| peer.datagram_bytes.is_some()) {
        return probed_mtu(peers);
    }
    match patient.status {
        Some(status) if elsewhere(patient.outside, status.pid) => {
            Check::skip("mtu", "known once a peer is up")
        }
        _ => link_mtu(patient),
    }
}

fn probed_mtu(peers: &[PeerStatus]) -> Check {
    let name = "mtu";
    let known: Vec<_> = peers
        .iter()
        .filter_map(|peer| Some((&peer.name, peer.datagram_bytes?)))
        .collect();
    let evidence: Vec<_> = known
        .iter()
        .map(|(peer, bytes)| format!("{bytes}-byte datagrams reach {peer}"))
        .collect();
    let evidence = evidence.join(", ");
    if known.iter().any(|(_, bytes)| *bytes <= DATAGRAM_BYTES_MIN) {
        return Check::warn(
            name,
            format!("{evidence}, and nothing larger"),
            "look for a tunnel or PPPoE with a small MTU on the way; small datagrams cost throughput",
        );
    }
    Check::ok(name, evidence)
}

fn link_mtu(patient: &Patient) -> Check {
    let name = "mtu";
    let mut seen = Vec::new();
    for peer in &patient.config.peers {
        let Some(address) = &peer.address else {
            continue;
        };
        let target: Option<IpAddr> = patient
            .outside
            .resolve(&address.host, address.port)
            .ok()
            .and_then(|found| found.first().map(|target| target.ip()));
        if let Some(Route::Via {
            interface,
            mtu: Some(mtu),
            ..
        }) = target.and_then(|target| route_to(patient.outside, target))
        {
            seen.push((interface, mtu));
        }
    }
    let needed = u64::from(DATAGRAM_BYTES_MIN) + HEADER_BYTES;
    match seen.iter().min_by_key(|(_, mtu)| *mtu) {
        None => Check::skip(name, "known once a peer is up"),
        Some((interface, mtu)) if *mtu < needed => Check::fail(
            name,
            format!("{interface} has an MTU of {mtu}; the tunnel needs {needed}"),
            format!("ip link set {interface} mtu 1500, if the line allows"),
        ),
        Some((interface, mtu)) => Check::ok(
            name,
            format!("{interface} has an MTU of {mtu}; the path is probed once a peer is up"),
        ),
    }
}

/// Do servers' replies come back through the far gateway?
pub(super) fn asymmetric_return(patient: &Patient) -> Check {
    let name = "return path";
    match patient.status {
        None => Check::skip(name, "only a running gateway sees it"),
        Some(status) if status.asymmetric_returns > 0 => Check::warn(
            name,
            format!(
                "{} connections went direct lately: {}",
                status.asymmetric_returns,
                Reason::AsymmetricReturn.meaning()
            ),
            Reason::AsymmetricReturn.remedy().unwrap_or_default(),
        ),
        Some(_) => Check::ok(name, "no reply has gone past a gateway lately"),
    }
}
