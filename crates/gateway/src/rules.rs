//! Which rule a connection falls under, and which peer serves an address.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use farhaul_tunnel::Target;

use crate::config::defaults;
use crate::config::meaning::{HostPort, Match, Network, Peer, Rule};

/// A server as the client named it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name, lower case, without a final dot; the far gateway resolves it.
    Name(String),
}

/// Where a connection wants to go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The server.
    pub host: Host,
    /// Its TCP port.
    pub port: u16,
}

impl Destination {
    /// Reads a host as SOCKS and CONNECT requests carry it: an address where it
    /// is one (brackets around IPv6 allowed), else a name.
    pub fn new(host: &str, port: u16) -> Self {
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(host);
        let host = match bare.parse::<IpAddr>() {
            Ok(address) => Host::Address(address.to_canonical()),
            Err(_) => Host::Name(host.trim_end_matches('.').to_ascii_lowercase()),
        };
        Self { host, port }
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: Host::Address(address.ip().to_canonical()),
            port: address.port(),
        }
    }
}

impl From<&HostPort> for Destination {
    fn from(target: &HostPort) -> Self {
        Self::new(&target.host, target.port)
    }
}

impl From<&Destination> for Target {
    fn from(destination: &Destination) -> Self {
        let port = destination.port;
        match &destination.host {
            Host::Address(address) => Target::Address(SocketAddr::new(*address, port)),
            Host::Name(name) => Target::Host {
                name: name.clone(),
                port,
            },
        }
    }
}

impl From<&Target> for Destination {
    fn from(target: &Target) -> Self {
        match target {
            Target::Address(address) => Self::from(*address),
            Target::Host { name, port } => Self::new(name, *port),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address) => SocketAddr::new(*address, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

/// The first rule that fits. A checked configuration ends with one that fits
/// everything; a list without one falls back to just that.
pub fn first_match<'r>(
    rules: &'r [Rule],
    client: SocketAddr,
    destination: &Destination,
) -> &'r Rule {
    static LAST: LazyLock<Vec<Rule>> = LazyLock::new(defaults::rules);
    let fallback = || LAST.iter().rfind(|rule| rule.matching == Match::default());
    rules
        .iter()
        .find(|rule| fits(&rule.matching, client, destination))
        .or_else(fallback)
        .unwrap_or(&LAST[LAST.len() - 1])
}

/// The peer with the longest prefix around `address`; of equals the first. What
/// lies at this site by a longer prefix (`own`) lies behind none.
pub fn peer_for(peers: &[Peer], own: &[Network], address: IpAddr) -> Option<usize> {
    let address = address.to_canonical();
    let longest = |networks: &[Network]| {
        let around = networks.iter().filter(|net| net.contains(address));
        around.map(|net| net.prefix_bits).max()
    };
    let mut best: Option<(u8, usize)> = None;
    for (index, peer) in peers.iter().enumerate() {
        if let Some(bits) = longest(&peer.networks)
            && best.is_none_or(|(most, _)| bits > most)
        {
            best = Some((bits, index));
        }
    }
    let (bits, index) = best?;
    longest(own).is_none_or(|own| own <= bits).then_some(index)
}

/// Whether a connection is what `matching` describes.
pub fn fits(matching: &Match, client: SocketAddr, destination: &Destination) -> bool {
    let client = client.ip().to_canonical();
    let from = matching.source.is_empty() || matching.source.iter().any(|net| net.contains(client));
    let port = matching.port.is_empty()
        || matching
            .port
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&destination.port));
    from && port && fits_server(matching, &destination.host)
}

/// `destination` and `host` name servers in two ways; either may fit.
fn fits_server(matching: &Match, host: &Host) -> bool {
    let anything = matching.destination.is_empty() && matching.host.is_empty();
    anything
        || match host {
            Host::Address(address) => {
                let address = address.to_canonical();
                matching.destination.iter().any(|net| net.contains(address))
            }
            Host::Name(name) => matching.host.iter().any(|pattern| {
                name_fits(pattern, &name.trim_end_matches('.').to_ascii_lowercase())
            }),
        }
}

/// `*.example.org` fits every name below `example.org`, not itself.
fn name_fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix('*') {
        Some(suffix) => name.len() > suffix.len() && name.ends_with(suffix),
        None => pattern == name,
    }
}

/// Whether every connection that fits `narrow` also fits `wide`. May say no
/// where several entries of `wide` only cover one of `narrow` together.
pub fn covers(wide: &Match, narrow: &Match) -> bool {
    let networks = |wide: &[Network], narrow: &[Network]| {
        narrow
            .iter()
            .all(|inner| wide.iter().any(|outer| outer.contains_network(inner)))
    };
    let source = wide.source.is_empty()
        || (!narrow.source.is_empty() && networks(&wide.source, &narrow.source));
    let anything = |matching: &Match| matching.destination.is_empty() && matching.host.is_empty();
    let hosts = narrow.host.iter().all(|inner| {
        wide.host
            .iter()
            .any(|outer| outer == inner || name_fits(outer, inner))
    });
    let server = anything(wide)
        || (!anything(narrow) && networks(&wide.destination, &narrow.destination) && hosts);
    source && server && covers_ports(&wide.port, &narrow.port)
}

fn covers_ports(wide: &[(u16, u16)], narrow: &[(u16, u16)]) -> bool {
    if wide.is_empty() {
        return true;
    }
    let mut sorted = wide.to_vec();
    sorted.sort_unstable();
    let whole: &[(u16, u16)] = &[(0, u16::MAX)];
    let narrow = if narrow.is_empty() { whole } else { narrow };
    narrow.iter().all(|(first, last)| {
        // The first port not covered so far; beyond `last` when all are.
        let mut next = u32::from(*first);
        for (from, to) in &sorted {
            if u32::from(*from) <= next {
                next = next.max(u32::from(*to) + 1);
            }
        }
        next > u32::from(*last)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::meaning::Dial;
    use crate::config::units::network;
    use crate::keys::PublicKey;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn rule(name: &str, matching: Match) -> Rule {
        let mut rule = defaults::rules().pop().unwrap();
        rule.name = name.to_owned();
        rule.matching = matching;
        rule
    }

    fn client() -> SocketAddr {
        "10.1.4.7:40000".parse().unwrap()
    }

    fn nets(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| network(text).unwrap()).collect()
    }

    #[test]
    fn the_first_rule_decides() {
        let rules = [
            rule(
                "port",
                Match {
                    port: vec![(445, 445)],
                    ..Match::default()
                },
            ),
            rule(
                "net",
                Match {
                    destination: nets(&["10.2.0.0/16"]),
                    ..Match::default()
                },
            ),
            rule(
                "name",
                Match {
                    host: vec!["*.example.org".into()],
                    ..Match::default()
                },
            ),
        ];
        let name = |host: &str, port| {
            first_match(&rules, client(), &Destination::new(host, port))
                .name
                .clone()
        };
        assert_eq!(name("10.2.0.5", 445), "port");
        assert_eq!(name("10.2.0.5", 80), "net");
        assert_eq!(name("Files.Example.ORG.", 80), "name");
        assert_eq!(name("example.org", 80), "default");
        assert_eq!(name("10.3.0.1", 80), "default");
        assert_eq!(name("::ffff:10.2.0.1", 80), "net");
    }

    #[test]
    fn usual_ports_have_rules() {
        let rules = defaults::rules();
        let name = |port| {
            first_match(&rules, client(), &Destination::new("10.2.0.1", port))
                .name
                .clone()
        };
        assert_eq!(name(445), "default smb");
        assert_eq!(name(22), "default terminal");
        assert_eq!(name(873), "default bulk");
        assert_eq!(name(9999), "default");
        assert_eq!(
            first_match(&[], client(), &Destination::new("h", 445)).name,
            "default"
        );
    }

    #[test]
    fn destinations_print_as_they_are_dialled() {
        assert_eq!(
            Destination::new("[fd00::1]", 80).to_string(),
            "[fd00::1]:80"
        );
        assert_eq!(Destination::new("HQ.", 80).to_string(), "hq:80");
    }

    fn any_network() -> impl Strategy<Value = Network> {
        // Few bits in use, so that networks meet often.
        (0u32..16, 24u8..=32).prop_map(|(low, bits)| {
            let mask = u32::MAX << (32 - u32::from(bits));
            let address = Ipv4Addr::from((0x0a00_0000 | low) & mask);
            Network {
                address: address.into(),
                prefix_bits: bits,
            }
        })
    }

    fn any_match() -> impl Strategy<Value = Match> {
        let nets = || prop::collection::vec(any_network(), 0..3);
        let host = prop::sample::select(vec!["a.b", "*.b", "*.a.b", "c"]);
        let ports = (1u16..8, 0u16..4).prop_map(|(first, more)| (first, first + more));
        (
            nets(),
            nets(),
            prop::collection::vec(host.prop_map(str::to_owned), 0..3),
            prop::collection::vec(ports, 0..3),
        )
            .prop_map(|(source, destination, host, port)| Match {
                source,
                destination,
                host,
                port,
            })
    }

    fn any_destination() -> impl Strategy<Value = Destination> {
        let address =
            (0u32..16).prop_map(|low| Host::Address(Ipv4Addr::from(0x0a00_0000 | low).into()));
        let name = prop::sample::select(vec!["a.b", "b", "x.a.b", "c", "d"]);
        (
            prop_oneof![address, name.prop_map(|n| Host::Name(n.into()))],
            1u16..12,
        )
            .prop_map(|(host, port)| Destination { host, port })
    }

    #[test]
    fn what_lies_here_by_a_longer_prefix_lies_behind_no_peer() {
        let network = |text: &str| crate::config::units::network(text).unwrap();
        let peers = [Peer {
            name: "hq".into(),
            address: None,
            key: PublicKey([0; 32]),
            networks: vec![network("10.0.0.0/8")],
            dial: Dial::Peer,
            link: None,
            owned: false,
        }];
        let found =
            |own: &str, address: &str| peer_for(&peers, &[network(own)], address.parse().unwrap());
        assert_eq!(found("10.1.0.0/16", "10.1.0.5"), None);
        assert_eq!(found("10.1.0.0/16", "::ffff:10.1.0.5"), None);
        assert_eq!(found("10.1.0.0/16", "10.2.0.5"), Some(0));
        assert_eq!(found("0.0.0.0/0", "10.1.0.5"), Some(0));
        assert_eq!(found("10.0.0.0/8", "10.1.0.5"), Some(0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_covered_rule_never_decides(
            wide in any_match(), narrow in any_match(),
            low in 0u32..16, destination in any_destination(),
        ) {
            let client = SocketAddr::new(Ipv4Addr::from(0x0a00_0000 | low).into(), 1);
            if covers(&wide, &narrow) && fits(&narrow, client, &destination) {
                prop_assert!(fits(&wide, client, &destination));
            }
            prop_assert!(covers(&narrow, &narrow));
        }

        #[test]
        fn the_match_is_the_first_that_fits(
            all in prop::collection::vec(any_match(), 0..6), destination in any_destination(),
        ) {
            let rules: Vec<Rule> = all.into_iter().enumerate()
                .map(|(at, matching)| rule(&at.to_string(), matching)).collect();
            let client: SocketAddr = "10.0.0.3:5".parse().unwrap();
            let found = first_match(&rules, client, &destination);
            match rules.iter().position(|rule| fits(&rule.matching, client, &destination)) {
                Some(at) => prop_assert_eq!(&found.name, &at.to_string()),
                None => prop_assert_eq!(&found.name, "default"),
            }
        }

        #[test]
        fn the_longest_prefix_wins(
            networks in prop::collection::vec(prop::collection::vec(any_network(), 0..3), 0..4),
            low in 0u32..16,
        ) {
            let peers: Vec<Peer> = networks.into_iter().map(|networks| Peer {
                name: "p".into(), address: None, key: PublicKey([0; 32]), networks,
                dial: Dial::Peer, link: None, owned: false,
            }).collect();
            let address: IpAddr = Ipv4Addr::from(0x0a00_0000 | low).into();
            let bits = |peer: &Peer| {
                peer.networks.iter().filter(|n| n.contains(address)).map(|n| n.prefix_bits).max()
            };
            let best = peers.iter().filter_map(bits).max();
            let found = peer_for(&peers, &[], address);
            prop_assert_eq!(found.and_then(|at| bits(&peers[at])), best);
            if let Some(at) = found {
                prop_assert!(peers[..at].iter().all(|peer| bits(peer) < best));
            }
        }
    }
}
