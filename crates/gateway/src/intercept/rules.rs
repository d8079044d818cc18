//! The nftables table, the policy rule and the route that interception needs:
//! written as text, put in place and taken away by `nft` and `ip`.
//!
//! Everything is named after the NFQUEUE number, which the kernel gives to one
//! process only, so gateways of different numbers do not meet.

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::lease::{BEAT_PORT, LEASE};
use super::{InterceptError, xtables};
use crate::config::meaning::Network;

/// Bits of the fwmark the gateway uses unless the mark itself lies outside.
const MARK_MASK: u32 = 0x0ff0_0000;
/// Preference of the policy rule: before other programs' (strongSwan 220,
/// Tailscale 5210), after the local table.
pub(super) const RULE_PREFERENCE: u32 = 200;

/// A tool that takes longer than this hangs.
const TOOL_PATIENCE: Duration = Duration::from_secs(10);

/// What names a gateway's rules, and is enough to remove them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub queue: u16,
    pub mark: u32,
    pub table: u32,
}

impl Identity {
    /// The bits of the fwmark that are ours.
    pub fn mask(&self) -> u32 {
        if self.mark & !MARK_MASK == 0 {
            MARK_MASK
        } else {
            u32::MAX
        }
    }

    /// Name of the nftables table, in family `inet`.
    pub fn table_name(&self) -> String {
        format!("farhaul_{}", self.queue)
    }

    fn rule_arguments(&self) -> String {
        let Identity { mark, table, .. } = self;
        let mask = self.mask();
        format!("pref {RULE_PREFERENCE} fwmark {mark:#x}/{mask:#x} table {table}")
    }

    fn route_arguments(&self) -> String {
        format!("local default dev lo table {}", self.table)
    }
}

/// Each has rules and routes of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// As `ip` is told.
    fn flag(self) -> &'static str {
        match self {
            Family::V4 => "-4",
            Family::V6 => "-6",
        }
    }
}

/// Everything the rules say.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub identity: Identity,
    /// LAN interfaces.
    pub interfaces: Vec<String>,
    /// What lies behind peers.
    pub networks: Vec<Network>,
    /// Port of the IPv4 listener.
    pub port_v4: u16,
    /// Port of the IPv6 listener; absent where the kernel has no IPv6.
    pub port_v6: Option<u16>,
}

impl Rules {
    /// Puts everything in place, replacing what an earlier run left.
    pub async fn install(&self) -> Result<(), InterceptError> {
        remove_routing(self.identity).await?;
        for family in Family::ALL {
            if family == Family::V4 || self.port_v6.is_some() {
                self.install_routing(family).await?;
            }
        }
        self.install_table().await
    }

    /// The table alone, in one transaction.
    pub async fn install_table(&self) -> Result<(), InterceptError> {
        let Err(native) = tool("nft", "-f -", &self.script(true)).await else {
            return Ok(());
        };
        // A kernel without nft_queue may have xtables' NFQUEUE target.
        if self.interfaces.is_empty() || tool("nft", "-f -", &self.script(false)).await.is_err() {
            return Err(native);
        }
        let Identity { queue, .. } = self.identity;
        xtables::append_queue_rule(&self.identity.table_name(), "ask", queue)
            .map_err(|_unsupported| native)
    }

    /// Replaces the networks in one transaction.
    pub async fn replace_networks(&mut self, networks: &[Network]) -> Result<(), InterceptError> {
        let name = self.identity.table_name();
        let (v4, v6) = elements(networks);
        let mut script = String::new();
        for (set, elements) in [("networks4", v4), ("networks6", v6)] {
            let _ = writeln!(script, "flush set inet {name} {set}");
            if !elements.is_empty() {
                let _ = writeln!(script, "add element inet {name} {set} {{ {elements} }}");
            }
        }
        tool("nft", "-f -", &script).await?;
        self.networks = networks.to_vec();
        Ok(())
    }

    /// Policy rule and route of one family, where neither is any more.
    async fn install_routing(&self, family: Family) -> Result<(), InterceptError> {
        let (flag, table) = (family.flag(), self.identity.table);
        let shown = tool("ip", &format!("{flag} route show table {table}"), "").await;
        if shown.is_ok_and(|routes| !routes.trim().is_empty()) {
            return Err(InterceptError::TableInUse { table });
        }
        let route = self.identity.route_arguments();
        tool("ip", &format!("{flag} route add {route}"), "").await?;
        let rule = self.identity.rule_arguments();
        tool("ip", &format!("{flag} rule add {rule}"), "")
            .await
            .map(drop)
    }

    /// Puts policy rule and route of one family back, whichever is missing.
    pub async fn restore_routing(&self, family: Family) -> Result<(), InterceptError> {
        remove_routing_of(self.identity, family).await?;
        self.install_routing(family).await
    }

    /// The whole table. `add` and `delete` first, so that it replaces another
    /// without failing where there is none.
    fn script(&self, native_queue: bool) -> String {
        let name = self.identity.table_name();
        let (v4, v6) = elements(&self.networks);
        let ours = self.is_ours();
        let beat_set = "meta mark and 0x0";
        format!(
            "add table inet {name}\n\
             delete table inet {name}\n\
             table inet {name} {{\n\
             set networks4 {{ type ipv4_addr; flags interval; {v4} }}\n\
             set networks6 {{ type ipv6_addr; flags interval; {v6} }}\n\
             set lease {{ type mark; flags dynamic,timeout; timeout {lease_ms}ms; size 16; }}\n\
             chain beat {{\n\
             type filter hook output priority mangle; policy accept;\n\
             {ours} ip daddr 127.0.0.1 udp dport {BEAT_PORT} update @lease {{ {beat_set} }} drop\n\
             }}\n\
             chain ask {{\n{queue}\n}}\n\
             chain hold {{\n\
             type filter hook prerouting priority mangle - 1; policy accept;\n{hold}\
             }}\n\
             chain take {{\n\
             type filter hook prerouting priority mangle; policy accept;\n{take}\
             }}\n}}\n",
            lease_ms = LEASE.as_millis(),
            v4 = set_elements(&v4),
            v6 = set_elements(&v6),
            queue = if native_queue && !self.interfaces.is_empty() {
                format!("queue flags bypass to {}", self.identity.queue)
            } else {
                String::new()
            },
            hold = self.hold_rules(beat_set),
            take = self.take_rules(&ours),
        )
    }

    /// First SYNs from the LAN towards peers' networks wait for a verdict, as
    /// long as the lease lives.
    fn hold_rules(&self, beat_set: &str) -> String {
        let mut rules = String::new();
        if self.interfaces.is_empty() {
            return rules;
        }
        let interfaces = self
            .interfaces
            .iter()
            .map(|name| format!("\"{name}\""))
            .collect::<Vec<_>>()
            .join(", ");
        for destination in ["ip daddr @networks4", "ip6 daddr @networks6"] {
            let _ = writeln!(
                rules,
                "iifname {{ {interfaces} }} {FIRST_SYN} {destination} \
                 fib daddr type != local {beat_set} @lease jump ask"
            );
        }
        rules
    }

    /// A SYN judged `Proxy` carries our mark and goes to the listener; segments
    /// of sockets that already stand (proxied clients, and servers answering
    /// a client address we speak for) are delivered here.
    fn take_rules(&self, ours: &str) -> String {
        let Identity { mark, .. } = self.identity;
        let others = !self.identity.mask();
        let mut rules = format!(
            "{FIRST_SYN} {ours} meta nfproto ipv4 tproxy ip to 127.0.0.1:{} accept\n",
            self.port_v4
        );
        if let Some(port) = self.port_v6 {
            let _ = writeln!(
                rules,
                "{FIRST_SYN} {ours} meta nfproto ipv6 tproxy ip6 to [::1]:{port} accept"
            );
        }
        // Other programs' transparent listeners on any address must not make
        // every connection to their port look like ours. (`wildcard 0` in one
        // rule would not do: it fails for handshakes that are under way.)
        let _ = writeln!(
            rules,
            "meta l4proto tcp socket transparent 1 socket wildcard 1 accept\n\
             meta l4proto tcp socket transparent 1 \
             meta mark set meta mark and {others:#x} or {mark:#x} accept"
        );
        rules
    }

    fn is_ours(&self) -> String {
        let Identity { mark, .. } = self.identity;
        format!("meta mark and {:#x} == {mark:#x}", self.identity.mask())
    }
}

const FIRST_SYN: &str = "tcp flags & (fin|syn|rst|ack) == syn";

/// Removes table, policy rules and routes; missing ones are no error.
pub(super) async fn remove(identity: Identity) -> Result<(), InterceptError> {
    let name = identity.table_name();
    let script = format!("add table inet {name}\ndelete table inet {name}\n");
    let table = tool("nft", "-f -", &script).await;
    remove_routing(identity).await?;
    table.map(drop)
}

async fn remove_routing(identity: Identity) -> Result<(), InterceptError> {
    for family in Family::ALL {
        remove_routing_of(identity, family).await?;
    }
    Ok(())
}

/// Rules first: a mark without its route would blackhole, a route nobody
/// points to is harmless.
async fn remove_routing_of(identity: Identity, family: Family) -> Result<(), InterceptError> {
    let flag = family.flag();
    let rule = identity.rule_arguments();
    // Several killed runs may have left several; bounded all the same.
    for _ in 0..16 {
        match tool("ip", &format!("{flag} rule del {rule}"), "").await {
            Ok(_) => {}
            Err(InterceptError::ToolFailed { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    let route = identity.route_arguments();
    let _ = tool("ip", &format!("{flag} route del {route}"), "").await;
    Ok(())
}

fn set_elements(elements: &str) -> String {
    if elements.is_empty() {
        String::new()
    } else {
        format!("elements = {{ {elements} }}")
    }
}

/// The networks as set elements by family, without those inside another:
/// interval sets take no overlaps.
fn elements(networks: &[Network]) -> (String, String) {
    let mut by_size = networks.to_vec();
    by_size.sort_by_key(|network| network.prefix_bits);
    let mut widest: Vec<Network> = Vec::new();
    for network in by_size {
        if !widest.iter().any(|wide| wide.contains(network.address)) {
            widest.push(network);
        }
    }
    let texts = |v4: bool| {
        let of_family = widest.iter().filter(|n| n.address.is_ipv4() == v4);
        of_family.map(cidr).collect::<Vec<_>>().join(", ")
    };
    (texts(true), texts(false))
}

/// `address/bits` with the host bits cleared.
fn cidr(network: &Network) -> String {
    let bits = u32::from(network.prefix_bits);
    let address: IpAddr = match network.address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
            std::net::Ipv4Addr::from(u32::from(v4) & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
            std::net::Ipv6Addr::from(u128::from(v6) & mask).into()
        }
    };
    format!("{address}/{bits}")
}

/// Runs a tool with `input`; its standard output, or what it complained about.
pub(super) async fn tool(
    program: &'static str,
    arguments: &str,
    input: &str,
) -> Result<String, InterceptError> {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let missing = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => InterceptError::ToolMissing { program },
        _ => InterceptError::Tool { program, error },
    };
    // Unprivileged accounts often lack /usr/sbin in their path.
    let mut child = match spawn(program, &arguments) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            spawn(&format!("/usr/sbin/{program}"), &arguments).map_err(missing)?
        }
        other => other.map_err(missing)?,
    };
    let stdin = child.stdin.take();
    let finish = async {
        if let Some(mut stdin) = stdin {
            // A tool that fails early closes its input; its message says why.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(TOOL_PATIENCE, finish)
        .await
        .unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))
        .map_err(missing)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(InterceptError::ToolFailed {
        command: format!("{program} {}", arguments.join(" ")),
        complaint: complaint.lines().next().unwrap_or("no message").to_owned(),
    })
}

fn spawn(program: &str, arguments: &[&str]) -> io::Result<tokio::process::Child> {
    Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        let (address, bits) = text.split_once('/').unwrap();
        Network {
            address: address.parse().unwrap(),
            prefix_bits: bits.parse().unwrap(),
        }
    }

    #[test]
    fn set_elements_do_not_overlap_and_have_no_host_bits() {
        let networks: Vec<_> = [
            "10.2.3.4/24",
            "10.0.0.0/8",
            "192.168.1.9/32",
            "fd00::1/64",
            "fd00::2/128",
        ]
        .into_iter()
        .map(network)
        .collect();
        let (v4, v6) = elements(&networks);
        assert_eq!(v4, "10.0.0.0/8, 192.168.1.9/32");
        assert_eq!(v6, "fd00::/64");
        assert_eq!(cidr(&network("1.2.3.4/0")), "0.0.0.0/0");
        assert_eq!(cidr(&network("::1/0")), "::/0");
        assert_eq!(elements(&[]), (String::new(), String::new()));
    }

    #[test]
    fn a_mark_outside_the_usual_bits_is_used_whole() {
        let mut identity = Identity {
            queue: 250,
            mark: 0x0fa0_0000,
            table: 250,
        };
        assert_eq!(identity.mask(), 0x0ff0_0000);
        identity.mark = 1;
        assert_eq!(identity.mask(), u32::MAX);
    }
}
