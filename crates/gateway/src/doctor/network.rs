//! Interfaces, addresses and routes, as `ip -json` tells them.

use std::net::IpAddr;

use serde::Deserialize;

use super::{Check, Outside, Patient};
use crate::config::meaning::{InterceptMode, Network};

/// An interface.
#[derive(Debug, Deserialize)]
pub(super) struct Interface {
    #[serde(rename = "ifname")]
    pub(super) name: String,
    /// The bridge or bond it belongs to.
    #[serde(default)]
    pub(super) master: Option<String>,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    mtu: Option<u64>,
    #[serde(default, rename = "addr_info")]
    addresses: Vec<InterfaceAddress>,
}

#[derive(Debug, Deserialize)]
struct InterfaceAddress {
    local: Option<IpAddr>,
    #[serde(default, rename = "prefixlen")]
    prefix_bits: u8,
    #[serde(default)]
    scope: String,
}

/// Where packets to an address go.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Out of an interface.
    Via {
        /// Its name.
        interface: String,
        /// Its MTU, if known.
        mtu: Option<u64>,
    },
    /// The address is this machine's own.
    Here,
    /// Nowhere; the kernel's words.
    None(String),
}

/// Every interface; `None` if `ip` cannot tell.
pub(super) fn interfaces(outside: &dyn Outside) -> Option<Vec<Interface>> {
    let output = outside
        .run("ip", &["-json", "address", "show"])
        .ok()
        .filter(|out| out.success)?;
    serde_json::from_str(&output.stdout).ok()
}

/// Where packets to `address` go; `None` if `ip` cannot tell.
pub(super) fn route_to(outside: &dyn Outside, address: IpAddr) -> Option<Route> {
    #[derive(Deserialize)]
    struct Found {
        #[serde(default, rename = "type")]
        kind: String,
        dev: Option<String>,
    }
    let output = outside
        .run("ip", &["-json", "route", "get", &address.to_string()])
        .ok()?;
    if !output.success {
        return Some(Route::None(output.stderr.trim().to_owned()));
    }
    let found: Vec<Found> = serde_json::from_str(&output.stdout).ok()?;
    let found = found.into_iter().next()?;
    match (found.kind.as_str(), found.dev) {
        ("local", _) => Some(Route::Here),
        ("unreachable" | "blackhole" | "prohibit", _) => Some(Route::None(found.kind)),
        (_, Some(interface)) => {
            let mtu = interfaces(outside)
                .and_then(|all| all.into_iter().find(|known| known.name == interface)?.mtu);
            Some(Route::Via { interface, mtu })
        }
        (_, None) => None,
    }
}

/// Do the LAN interfaces exist with addresses of this site, and do the sites'
/// addresses differ?
pub(super) fn addresses(patient: &Patient) -> Check {
    let name = "addresses";
    let Some(all) = interfaces(patient.outside) else {
        return Check::skip(name, "`ip` of the package iproute2 is needed to look");
    };
    let mut seen = Vec::new();
    let wanted: &[String] = match patient.config.intercept.mode {
        InterceptMode::Transparent => &patient.config.intercept.interfaces,
        InterceptMode::Explicit => &[],
    };
    for wanted in wanted {
        let Some(interface) = all.iter().find(|interface| interface.name == *wanted) else {
            return missing_interface(wanted, &all);
        };
        if !interface.flags.iter().any(|flag| flag == "UP") {
            let remedy = format!("ip link set {wanted} up");
            return Check::fail(name, format!("{wanted} is down"), remedy);
        }
        let routed: Vec<_> = interface.networks().collect();
        if routed.is_empty() {
            return Check::fail(
                name,
                format!("{wanted} has no address"),
                "give it the address that the site's clients use as their router",
            );
        }
        for network in routed {
            if let Some(check) = own_network_at_a_peer(patient, wanted, network) {
                return check;
            }
            seen.push(format!("{wanted} is in {network}"));
        }
    }
    if let Some(check) = accepted_at_a_peer(patient) {
        return check;
    }
    if seen.is_empty() {
        seen.push("no network is both here and at a peer".to_owned());
    }
    Check::ok(name, seen.join(", "))
}

impl Interface {
    /// The networks of its addresses, without link-local ones.
    fn networks(&self) -> impl Iterator<Item = Network> {
        let global = self
            .addresses
            .iter()
            .filter(|address| address.scope != "link");
        global.filter_map(|address| {
            let network = Network {
                address: address.local?,
                prefix_bits: address.prefix_bits,
            };
            Some(first_address(network))
        })
    }
}

/// The network with its host bits cleared.
fn first_address(network: Network) -> Network {
    let bits = u32::from(network.prefix_bits);
    let address = match network.address {
        IpAddr::V4(address) => {
            let mask = u32::MAX
                .checked_shl(32_u32.saturating_sub(bits))
                .unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX
                .checked_shl(128_u32.saturating_sub(bits))
                .unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    };
    Network { address, ..network }
}

fn missing_interface(wanted: &str, all: &[Interface]) -> Check {
    let known: Vec<_> = all
        .iter()
        .map(|interface| interface.name.as_str())
        .collect();
    Check::fail(
        "addresses",
        format!(
            "there is no interface {wanted}; there are: {}",
            known.join(", ")
        ),
        "correct `intercept.interfaces`",
    )
}

/// A LAN that a peer claims, too. Inside a larger network of the peer
/// ("everything behind headquarters") it can be meant.
fn own_network_at_a_peer(patient: &Patient, interface: &str, own: Network) -> Option<Check> {
    let name = "addresses";
    let (peer, network) = claims(patient, own)?;
    Some(if own.contains_network(&network) {
        Check::fail(
            name,
            format!(
                "{interface} is in {own}, and peer {peer} has {network}: the same addresses at both sites"
            ),
            "renumber one site, or correct the peer's `networks`",
        )
    } else {
        Check::warn(
            name,
            format!("{interface} is in {own}, inside {network} of peer {peer}"),
            "name the peer's `networks` more closely, unless connections from other networks here to \
             this one shall go through the peer",
        )
    })
}

fn accepted_at_a_peer(patient: &Patient) -> Option<Check> {
    patient.config.accept.destinations.iter().find_map(|own| {
        let (peer, network) = claims(patient, *own)?;
        own.contains_network(&network).then(|| {
            Check::warn(
                "addresses",
                format!("`accept.destinations` has {own}, and peer {peer} has {network}"),
                "a network lies at one site only: correct one of them",
            )
        })
    })
}

/// A peer's network that overlaps `own`.
fn claims<'a>(patient: &Patient<'a>, own: Network) -> Option<(&'a str, Network)> {
    patient.config.peers.iter().find_map(|peer| {
        let overlaps =
            |network: &&Network| network.contains_network(&own) || own.contains_network(network);
        Some((peer.name.as_str(), *peer.networks.iter().find(overlaps)?))
    })
}

/// Is there a way to the peers' networks when connections go direct?
pub(super) fn routes(patient: &Patient) -> Check {
    let name = "routes";
    let mut seen = Vec::new();
    for peer in &patient.config.peers {
        for network in &peer.networks {
            let Some(route) = route_to(patient.outside, some_host(*network)) else {
                return Check::skip(name, "`ip` of the package iproute2 is needed to look");
            };
            match route {
                Route::Via { interface, .. } => {
                    let lan = patient.config.intercept.interfaces.contains(&interface);
                    if lan && patient.config.intercept.mode == InterceptMode::Transparent {
                        return Check::warn(
                            name,
                            format!(
                                "the route to {network} of peer {} leads back into {interface}",
                                peer.name
                            ),
                            "route it towards the WAN, or correct `intercept.interfaces`",
                        );
                    }
                    seen.push(format!("{network} through {interface}"));
                }
                Route::Here => {
                    return Check::fail(
                        name,
                        format!("{network} of peer {} is this machine itself", peer.name),
                        "correct the peer's `networks`",
                    );
                }
                Route::None(why) => {
                    return Check::warn(
                        name,
                        format!(
                            "there is no route to {network} of peer {}: {why}",
                            peer.name
                        ),
                        "add one: without it nothing gets through while the peer is down or bypass is on",
                    );
                }
            }
        }
    }
    if seen.is_empty() {
        return Check::skip(name, "no peer has networks");
    }
    Check::ok(name, seen.join(", "))
}

/// A usable address inside: the first after the network's own.
fn some_host(network: Network) -> IpAddr {
    match first_address(network).address {
        IpAddr::V4(address) if network.prefix_bits < 31 => {
            IpAddr::V4(u32::from(address).saturating_add(1).into())
        }
        IpAddr::V6(address) if network.prefix_bits < 127 => {
            IpAddr::V6(u128::from(address).saturating_add(1).into())
        }
        address => address,
    }
}
