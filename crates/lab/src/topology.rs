//! The WAN on one machine: five network namespaces in a row.
//!
//! ```text
//!  client ---- gwa ---- wan ---- gwb ---- server
//!  10.1.0.2    .1 10.9.0.1  |  10.9.0.2 .1    10.2.0.2      IPv4, /24 each
//!  ...:1::2    ::1  ...:9::1 | ...:9::2  ::1   ...:2::2     IPv6 in fdfa:0:1::/64, fdfa:0:9::/64, fdfa:0:2::/64
//!  eth0        lan0 wan0  a0 | b0  wan0 lan0    eth0
//! ```
//!
//! `gwa` and `gwb` are ordinary routers between different subnets; a gateway
//! started in them has to intercept what it wants. `wan` has no address at all:
//! the emulator moves frames between `a0` and `b0`.
//!
//! Management stays apart from the data path: the emulator and the gateways
//! are asked over Unix sockets in the lab's folder, so not one packet of it
//! crosses the link or a LAN.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use crate::error::LabError;
use crate::netns::{Namespace, connect, run};
use crate::sandbox::Sandbox;

/// The client.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
/// The client over IPv6.
pub const CLIENT6: Ipv6Addr = Ipv6Addr::new(0xfdfa, 0, 1, 0, 0, 0, 0, 2);
/// The server.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
/// The server over IPv6.
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfdfa, 0, 2, 0, 0, 0, 0, 2);
/// Interface of a gateway towards its LAN.
pub const LAN: &str = "lan0";
/// Interface of a gateway towards the WAN.
pub const WAN: &str = "wan0";

/// One of the two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The client's.
    A,
    /// The server's.
    B,
}

impl Side {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// `a` or `b`.
    pub fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
        }
    }

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Role of this side's gateway namespace.
    pub fn gateway_role(self) -> &'static str {
        match self {
            Self::A => "gwa",
            Self::B => "gwb",
        }
    }

    fn host_role(self) -> &'static str {
        match self {
            Self::A => "client",
            Self::B => "server",
        }
    }

    /// Number of its LAN: the second part of `10.N.0.0/24`.
    fn lan(self) -> u8 {
        match self {
            Self::A => 1,
            Self::B => 2,
        }
    }

    /// Host part of its address on the WAN.
    fn on_wan(self) -> u8 {
        match self {
            Self::A => 1,
            Self::B => 2,
        }
    }

    /// Address of its gateway on the WAN.
    pub fn wan_address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, 0, self.on_wan())
    }

    /// The networks behind its gateway, in CIDR form.
    pub fn networks(self) -> [String; 2] {
        let lan = self.lan();
        [format!("10.{lan}.0.0/24"), format!("fdfa:0:{lan}::/64")]
    }
}

/// What a lab shall be.
#[derive(Debug, Clone)]
pub struct LabOptions {
    /// Name; several labs of different names coexist.
    pub name: String,
    /// Words for `farhaul link`, such as `oc1 delay 100ms loss 1%`; none
    /// connects the two sides by a plain kernel bridge.
    pub link: Option<String>,
    /// Seed of the link's random numbers.
    pub seed: u64,
    /// TCP congestion control of client, server and the gateways' LAN legs.
    /// Routes carry it, since a namespace may not choose it by sysctl.
    pub congestion_control: String,
    /// The `farhaul` program.
    pub program: PathBuf,
}

impl LabOptions {
    /// A plain bridge, cubic, seed 1.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            link: None,
            seed: 1,
            congestion_control: "cubic".to_owned(),
            program: program.into(),
        }
    }

    /// With the emulator and these words.
    pub fn with_link(mut self, words: impl Into<String>) -> Self {
        self.link = Some(words.into());
        self
    }
}

/// Settings every namespace gets before it has an interface.
const EVERYWHERE: &[(&str, &str)] = &[
    // Duplicate address detection would delay each address by a second.
    ("ipv6/conf/all/accept_dad", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/all/accept_ra", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    // New namespaces copy these from the host, whose distribution may set
    // them. Transparent proxying answers from addresses that are not local.
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    // What one transfer learnt must not help or harm the next.
    ("ipv4/tcp_no_metrics_save", "1"),
    // The kernel's own buffer limits, whatever the host was tuned to.
    ("ipv4/tcp_rmem", "4096 131072 6291456"),
    ("ipv4/tcp_wmem", "4096 16384 4194304"),
];

/// A host that says only every second time that something is unreachable
/// cannot be compared with one that always does. (Newer kernels count
/// messages per namespace, older ones for the whole machine.)
const ICMP_UNLIMITED: &[(&str, &str)] = &[
    ("ipv4/icmp_ratelimit", "0"),
    ("ipv6/icmp/ratelimit", "0"),
    ("ipv4/icmp_msgs_per_sec", "1000000"),
    ("ipv4/icmp_msgs_burst", "1000000"),
];

const ROUTER: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    // Hosts whose only way is through us need no advice about better ways.
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
];

/// Makes the five namespaces with their cables, addresses and routes, without
/// anything that runs.
pub(crate) fn build(sandbox: &mut Sandbox, options: &LabOptions) -> Result<(), LabError> {
    let wan = sandbox.add_namespace("wan")?;
    // Nothing in `wan` may speak by itself.
    wan.set(&[
        ("ipv6/conf/all/disable_ipv6", "1"),
        ("ipv6/conf/default/disable_ipv6", "1"),
    ])?;
    for side in Side::BOTH {
        let host = sandbox.add_namespace(side.host_role())?;
        let gateway = sandbox.add_namespace(side.gateway_role())?;
        for namespace in [&host, &gateway] {
            namespace.set(EVERYWHERE)?;
            namespace.set_where_possible(ICMP_UNLIMITED)?;
        }
        gateway.set(ROUTER)?;
        connect((&gateway, LAN), (&host, "eth0"))?;
        connect((&gateway, WAN), (&wan, &wan_interface(side)))?;
        host.ip(&host_script(side, &options.congestion_control))?;
        gateway.ip(&gateway_script(side, &options.congestion_control))?;
        wan.ip(&format!("link set {} up", wan_interface(side)))?;
        // Frames of 64 KB and unfinished checksums must not reach the emulator.
        offloads_off(&gateway, WAN)?;
        offloads_off(&wan, &wan_interface(side))?;
    }
    if options.link.is_none() {
        wan.ip("link add cable type bridge\nlink set a0 master cable\nlink set b0 master cable\nlink set cable up")?;
    }
    Ok(())
}

/// The interface of the `wan` namespace that leads to a side.
pub(crate) fn wan_interface(side: Side) -> String {
    format!("{}0", side.letter())
}

fn wan_mac(side: Side) -> String {
    format!("02:fa:00:00:09:{:02x}", side.on_wan())
}

fn host_script(side: Side, congestion_control: &str) -> String {
    let lan = side.lan();
    format!(
        "link set eth0 up
         address add 10.{lan}.0.2/24 dev eth0
         address add fdfa:0:{lan}::2/64 dev eth0 nodad
         route add default via 10.{lan}.0.1 congctl {congestion_control}
         route add ::/0 via fdfa:0:{lan}::1 congctl {congestion_control}\n"
    )
}

fn gateway_script(side: Side, congestion_control: &str) -> String {
    let (lan, host) = (side.lan(), side.on_wan());
    let (far_lan, far_host) = (side.other().lan(), side.other().on_wan());
    let (mac, far_mac) = (wan_mac(side), wan_mac(side.other()));
    // Permanent neighbours: a leased line has no ARP that could be lost on it.
    format!(
        "link set {LAN} up
         address add 10.{lan}.0.1/24 dev {LAN}
         address add fdfa:0:{lan}::1/64 dev {LAN} nodad
         route replace 10.{lan}.0.0/24 dev {LAN} src 10.{lan}.0.1 congctl {congestion_control}
         route add fdfa:0:{lan}::/64 dev {LAN} metric 100 congctl {congestion_control}
         link set {WAN} address {mac} up
         address add 10.9.0.{host}/24 dev {WAN}
         address add fdfa:0:9::{host}/64 dev {WAN} nodad
         neighbour replace 10.9.0.{far_host} lladdr {far_mac} dev {WAN} nud permanent
         neighbour replace fdfa:0:9::{far_host} lladdr {far_mac} dev {WAN} nud permanent
         route add 10.{far_lan}.0.0/24 via 10.9.0.{far_host} congctl {congestion_control}
         route add fdfa:0:{far_lan}::/64 via fdfa:0:9::{far_host} congctl {congestion_control}\n"
    )
}

fn offloads_off(namespace: &Namespace, interface: &str) -> Result<(), LabError> {
    let mut command = namespace.command("ethtool");
    command.args(["-K", interface]);
    for feature in ["tso", "gso", "gro", "tx", "rx"] {
        command.args([feature, "off"]);
    }
    run(&mut command).map(drop)
}
