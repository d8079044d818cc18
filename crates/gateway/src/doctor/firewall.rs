//! What stands between the wire and the gateway on its own machine: firewall
//! rules that drop what ends here, and bridges.

use std::path::Path;

use serde::Deserialize;

use super::network::interfaces;
use super::{Check, Patient};
use crate::config::meaning::{ClientAddress, InterceptMode};

/// Do connections that end here get past the machine's own firewall? Those of
/// clients are addressed to servers, those of servers to clients, so no
/// operator's rule for local services lets them in.
pub(super) fn input(patient: &Patient) -> Check {
    let name = "firewall";
    let intercept = &patient.config.intercept;
    let delivers = intercept.mode == InterceptMode::Transparent
        || intercept.client_address == ClientAddress::Keep;
    if !delivers {
        return Check::ok(name, "explicit listeners only");
    }
    let Some(chains) = chains(patient) else {
        return Check::skip(name, "only root may list nftables rules");
    };
    let mark = format!("{:x}", intercept.mark);
    let own = format!("farhaul_{}", intercept.queue);
    for chain in chains.iter().filter(|chain| chain.table != own) {
        let rules = chain.rules(patient);
        if chain.is_closed(&rules) && !rules.to_lowercase().contains(&mark) {
            return closed(chain, intercept.mark);
        }
    }
    Check::ok(name, "no input chain drops what the gateway has marked")
}

fn closed(chain: &Chain, mark: u32) -> Check {
    let Chain {
        family,
        table,
        name,
        ..
    } = chain;
    Check::warn(
        "firewall",
        format!(
            "chain {name} of table {family} {table} drops what no rule accepts, and none of its \
             rules names the gateway's mark {mark:#x}: connections may be dropped on their way in"
        ),
        format!(
            "nft insert rule {family} {table} {name} meta mark and {mark:#x} == {mark:#x} accept, \
             and the same where your firewall keeps its rules; peers that dial need the UDP port \
             of `tunnel.listen`, too"
        ),
    )
}

/// A base chain of the input hook.
#[derive(Debug, Deserialize)]
struct Chain {
    family: String,
    table: String,
    name: String,
    #[serde(default)]
    hook: String,
    #[serde(default)]
    policy: String,
}

impl Chain {
    fn rules(&self, patient: &Patient) -> String {
        let arguments = ["list", "chain", &self.family, &self.table, &self.name];
        let output = patient.outside.run("nft", &arguments);
        output.map(|output| output.stdout).unwrap_or_default()
    }

    /// By policy, or by a last rule that takes everything.
    fn is_closed(&self, rules: &str) -> bool {
        let takes_all = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["counter", "packets", _, "bytes", _, verdict, ..] | [verdict, ..] => {
                    ["drop", "reject"].contains(verdict)
                }
                [] => false,
            }
        };
        self.policy == "drop" || rules.lines().any(takes_all)
    }
}

/// The base chains of the input hook; `None` if `nft` cannot tell.
fn chains(patient: &Patient) -> Option<Vec<Chain>> {
    #[derive(Deserialize)]
    struct Listing {
        nftables: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        chain: Option<Chain>,
    }
    let output = patient.outside.run("nft", &["-j", "list", "chains"]).ok()?;
    let listing: Listing = serde_json::from_str(&output.stdout).ok()?;
    let chains = listing.nftables.into_iter().filter_map(|entry| entry.chain);
    let input = chains.filter(|chain| chain.hook == "input");
    output.success.then(|| input.collect())
}

/// Is what arrives at the LAN interfaces seen there?
pub(super) fn bridges(patient: &Patient) -> Check {
    let name = "bridges";
    let intercept = &patient.config.intercept;
    if intercept.mode == InterceptMode::Explicit {
        return Check::ok(name, "explicit listeners only");
    }
    let Some(all) = interfaces(patient.outside) else {
        return Check::skip(name, "`ip` of the package iproute2 is needed to look");
    };
    for wanted in &intercept.interfaces {
        let found = all.iter().find(|interface| interface.name == *wanted);
        if let Some(master) = found.and_then(|interface| interface.master.as_ref()) {
            return Check::fail(
                name,
                format!("{wanted} is a part of {master}: what arrives at it is seen at {master}"),
                format!("name {master} in `intercept.interfaces` instead"),
            );
        }
        if is_bridge(patient, wanted) && filters_bridged(patient) {
            return Check::warn(
                name,
                format!(
                    "{wanted} is a bridge, and net.bridge.bridge-nf-call-iptables is 1: what is \
                     only bridged passes the gateway's rules as if it were routed"
                ),
                "sysctl -w net.bridge.bridge-nf-call-iptables=0, and the same for ip6tables",
            );
        }
    }
    Check::ok(name, "what arrives at the LAN interfaces is seen there")
}

fn is_bridge(patient: &Patient, interface: &str) -> bool {
    let folder = Path::new("/sys/class/net").join(interface).join("bridge");
    let facts = patient.outside.facts(&folder);
    facts.is_ok_and(|facts| facts.is_folder)
}

fn filters_bridged(patient: &Patient) -> bool {
    let setting = "/proc/sys/net/bridge/bridge-nf-call-iptables";
    let text = patient.outside.read(setting.as_ref());
    text.is_ok_and(|text| text.trim() == "1")
}
