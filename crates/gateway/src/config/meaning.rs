//! The checked configuration: every default filled in, every unit resolved.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use farhaul_link::LinkProfile;

use crate::keys::PublicKey;

/// Everything a gateway needs to know, free of syntax.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Who this gateway is.
    pub site: Site,
    /// The UDP side: where peers reach us and how the tunnel behaves.
    pub tunnel: Tunnel,
    /// The gateways at the other sites.
    pub peers: Vec<Peer>,
    /// How connections are taken from the wire.
    pub intercept: Intercept,
    /// Explicit ways in.
    pub listens: Vec<Listen>,
    /// First match wins; the built-in rules for usual ports follow the
    /// operator's.
    pub rules: Vec<Rule>,
    /// What peers may reach through us.
    pub accept: Accept,
    /// Memory and disk of the reduction store.
    pub store: Store,
    /// Admin socket and metrics.
    pub admin: Admin,
    /// Log format and level.
    pub log: Log,
}

/// This gateway's name and private key.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Name shown to peers and operators.
    pub name: String,
    /// File with the private key, mode 0600.
    pub key: PathBuf,
}

/// Tunnel endpoint settings that are not per peer.
#[derive(Debug, Clone, PartialEq)]
pub struct Tunnel {
    /// UDP address the tunnel listens on; port 0 for a gateway that only dials.
    pub listen: SocketAddr,
    /// How long flows are kept while a peer is silent (default 120 s).
    pub resume_max: Duration,
    /// Interval of keep-alives, also NAT keep-alive (default 700 ms).
    pub keep_alive: Duration,
    /// Silence after which a peer counts as gone (default 2.5 s).
    pub dead_after: Duration,
    /// How long a held SYN waits for the far side's answer (default 20 s).
    pub open_timeout: Duration,
    /// How long after shutdown flows may finish (default 30 s).
    pub drain: Duration,
    /// Most flows held at once; beyond it new connections go direct.
    pub flows_max: usize,
}

/// Which side sets the tunnel up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dial {
    /// We dial the peer's address.
    Us,
    /// The peer dials us.
    Peer,
    /// Both try; the first tunnel that stands is used.
    Both,
}

/// A gateway at another site.
#[derive(Debug, Clone, PartialEq)]
pub struct Peer {
    /// Name in commands, logs and metrics.
    pub name: String,
    /// Host and UDP port; absent on the side that waits.
    pub address: Option<HostPort>,
    /// The peer's pinned public key.
    pub key: PublicKey,
    /// What lies behind it.
    pub networks: Vec<Network>,
    /// Who dials.
    pub dial: Dial,
    /// What is known of the circuit.
    pub link: Option<Circuit>,
    /// Nobody else shares this circuit.
    pub owned: bool,
}

/// What an operator says about the circuit to a peer.
#[derive(Debug, Clone, PartialEq)]
pub struct Circuit {
    /// Profile name and words as `farhaul link` takes them.
    pub words: String,
    /// What they mean; forward is from here to the peer.
    pub profile: LinkProfile,
}

/// A host name or address with a port, resolved when used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// DNS name or address literal, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// An IP network in CIDR form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    /// First address.
    pub address: IpAddr,
    /// Prefix length in bits.
    pub prefix_bits: u8,
}

impl Network {
    /// Whether `address` lies inside.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(addr)) => {
                let shift = 32 - u32::from(self.prefix_bits);
                shift == 32 || (u32::from(net) >> shift) == (u32::from(addr) >> shift)
            }
            (IpAddr::V6(net), IpAddr::V6(addr)) => {
                let shift = 128 - u32::from(self.prefix_bits);
                shift == 128 || (u128::from(net) >> shift) == (u128::from(addr) >> shift)
            }
            _ => false,
        }
    }

    /// Whether all of `inner` lies inside.
    pub fn contains_network(&self, inner: &Network) -> bool {
        self.prefix_bits <= inner.prefix_bits && self.contains(inner.address)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

/// How connections are taken from the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterceptMode {
    /// nftables rules take TCP connections to peers' networks.
    Transparent,
    /// Only explicit listeners.
    Explicit,
}

/// Which source address the server sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAddress {
    /// The client's own address and port.
    Keep,
    /// The far gateway's address.
    Gateway,
}

/// Transparent interception.
#[derive(Debug, Clone, PartialEq)]
pub struct Intercept {
    /// Transparent or explicit only.
    pub mode: InterceptMode,
    /// LAN interfaces whose connections are taken; never the WAN side.
    pub interfaces: Vec<String>,
    /// Source address towards the server (this gateway's side of accepted
    /// flows; a rule of the near side may ask for `gateway` as well).
    pub client_address: ClientAddress,
    /// fwmark of our own packets and its mask (default 0x0fa0_0000/0x0ff0_0000).
    pub mark: u32,
    /// Routing table for local delivery (default 250).
    pub table: u32,
    /// First NFQUEUE number (default 250).
    pub queue: u16,
}

/// An explicit way in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// SOCKS5 (RFC 1928), CONNECT command, no authentication.
    Socks(SocketAddr),
    /// HTTP CONNECT (RFC 9110 section 9.3.6).
    Connect(SocketAddr),
    /// Everything that arrives goes to `target`.
    Forward {
        /// Where we listen.
        listen: SocketAddr,
        /// Where it goes.
        target: HostPort,
    },
}

/// What a connection must look like for a rule to apply; empty = anything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Match {
    /// Client networks.
    pub source: Vec<Network>,
    /// Server networks (a single host is a /32 or /128).
    pub destination: Vec<Network>,
    /// Server names, for SOCKS and CONNECT requests that carry one; `*.` prefix allowed.
    pub host: Vec<String>,
    /// Server ports, inclusive ranges.
    pub port: Vec<(u16, u16)>,
}

/// Which optimiser a rule asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Optimise {
    /// Detect it.
    Auto,
    /// Through the tunnel, protocol untouched.
    Opaque,
    /// Not through the tunnel at all.
    Direct,
    /// SMB/CIFS.
    Smb,
    /// HTTP.
    Http,
    /// NFS.
    Nfs,
    /// DNS.
    Dns,
    /// MAPI.
    Mapi,
}

/// Where redundancy elimination keeps what it has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// As the store allows.
    Auto,
    /// None.
    Off,
    /// Memory tier only.
    Memory,
    /// Disk tier only.
    Disk,
    /// Both tiers.
    Both,
}

/// Compression of what redundancy elimination leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Adaptive level.
    Auto,
    /// None.
    Off,
    /// A pinned zstd level.
    Level(i8),
}

/// A switch that may also be left to the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// As the gateway judges.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Name in `flows` and logs: the operator's, or `rule 3`, or `default smb`.
    pub name: String,
    /// When it applies.
    pub matching: Match,
    /// Scheduling class.
    pub class: farhaul_tunnel::Class,
    /// Protocol optimiser.
    pub optimise: Optimise,
    /// Transport optimisation: `Off` sends the connection direct.
    pub transport: Switch,
    /// Redundancy elimination.
    pub reduction: Reduction,
    /// Compression.
    pub compression: Compression,
    /// Forward error correction.
    pub fec: Switch,
    /// Answers to writes before the server has them.
    pub write_behind: Switch,
    /// Overrides the far side's default source address.
    pub client_address: Option<ClientAddress>,
}

/// What peers may reach through us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accept {
    /// Networks; loopback, link-local, multicast and our own addresses are
    /// refused even when they lie inside one.
    pub destinations: Vec<Network>,
}

/// Reduction store sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Memory tier in bytes.
    pub memory_bytes: u64,
    /// The file gives none, and that is what its disk is used from.
    pub is_memory_by_disk: bool,
    /// Disk tier, if any.
    pub disk: Option<Disk>,
}

/// Disk tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Folder of the segment files.
    pub path: PathBuf,
    /// Size in bytes.
    pub size_bytes: u64,
}

impl Disk {
    /// Why a folder of ours cannot or should not be there, whatever the machine.
    pub fn misplaced(&self) -> Option<&'static str> {
        let mut plain = PathBuf::new();
        for component in self.path.components() {
            match component {
                Component::ParentDir => {
                    plain.pop();
                }
                other => plain.push(other),
            }
        }
        let kernels = ["/proc", "/sys", "/dev"]
            .iter()
            .any(|of| plain.starts_with(of));
        if plain == Path::new("/") {
            Some("is the root of all folders")
        } else if kernels && !plain.starts_with("/dev/shm") {
            Some("belongs to the kernel, which keeps nothing")
        } else {
            None
        }
    }
}

/// Admin interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Unix socket of the admin API (default `/run/farhaul/gateway.sock`).
    pub socket: PathBuf,
    /// Address that serves `/metrics` over TCP, if any.
    pub metrics: Option<SocketAddr>,
}

/// Log output on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// `json` or `text`.
    pub json: bool,
    /// Least severe level written.
    pub level: Level,
}

/// Severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Per-flow detail.
    Debug,
    /// Normal operation.
    Info,
    /// Something needs an operator's eye.
    Warn,
    /// Something failed.
    Error,
}
