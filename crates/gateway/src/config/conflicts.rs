//! Values that are right each by itself and wrong together.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use super::diagnose::Problems;
use super::load;
use super::meaning::{Config, Dial, HostPort, InterceptMode, Network};
use super::reader::At;
use super::written::{Listen, MaybeList, Peer, Rule, Written};
use super::{defaults, units};
use crate::keys::PublicKey;
use crate::rules;

/// Longest path of a Unix socket (unix(7): `sun_path` holds 108 bytes with the
/// final zero).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Less disk for a peer holds too little to find anything again.
const STORE_PEER_DISK_BYTES_MIN: u64 = 64 << 20;

/// Reports every conflict. `config` is absent where the file cannot give one.
pub fn find(
    written: &Written,
    config: Option<&Config>,
    own: Option<PublicKey>,
    problems: &mut Problems,
) {
    peers(written, own, problems);
    networks(written, problems);
    tunnel(written, problems);
    families(written, problems);
    intercept(written, problems);
    for listen in &written.listens {
        listener(listen, problems);
    }
    ports(written, problems);
    covered_rules(&written.rules, problems);
    accept(written, problems);
    if let Some(config) = config {
        whole(written, config, problems);
    }
}

fn items<T>(list: &MaybeList<T>) -> impl Iterator<Item = &At<T>> {
    list.iter().flat_map(|list| list.value.iter())
}

/// Reports values that occur twice, the second time with a pointer to the first.
fn twice<'a, T: Eq + Hash + 'a>(
    values: impl Iterator<Item = (&'a T, &'a Range<usize>)>,
    problems: &mut Problems,
    say: impl Fn(&T, usize) -> (String, &'static str),
) {
    let mut seen: HashMap<&T, usize> = HashMap::new();
    for (value, span) in values {
        match seen.get(value) {
            Some(first) => {
                let (message, help) = say(value, problems.line_of(*first));
                problems.error(span.clone(), message).help(help);
            }
            None => {
                seen.insert(value, span.start);
            }
        }
    }
}

fn peers(written: &Written, own: Option<PublicKey>, problems: &mut Problems) {
    let names = written.peers.iter().filter_map(|peer| peer.name.as_ref());
    twice(
        names.map(|name| (&name.value, &name.span)),
        problems,
        |name, line| {
            (
                format!("peer.name: `{name}` is already the peer of line {line}"),
                "every peer has a name of its own",
            )
        },
    );
    let keys = || written.peers.iter().filter_map(|peer| peer.key.as_ref());
    twice(
        keys().map(|key| (&key.value, &key.span)),
        problems,
        |_, line| {
            (
                format!("peer.key: the peer of line {line} has the same key"),
                "every gateway has a key of its own: run `farhaul keygen` at each",
            )
        },
    );
    for key in keys().filter(|key| Some(key.value) == own) {
        let problem = problems.error(key.span.clone(), "peer.key: this is this gateway's own key");
        problem.help("enter the public key that `farhaul keygen` printed at the other site");
    }
    let addresses = written.peers.iter().filter_map(|p| p.address.as_ref());
    let texts: Vec<_> = addresses
        .map(|address| (address.value.to_string(), address.span.clone()))
        .collect();
    twice(
        texts.iter().map(|(text, span)| (text, span)),
        problems,
        |text, line| {
            (
                format!("peer.address: `{text}` is already the peer's of line {line}"),
                "two gateways cannot share one address and port",
            )
        },
    );
    for peer in &written.peers {
        dialling(peer, problems);
    }
    for address in written.peers.iter().filter_map(|p| p.address.as_ref()) {
        if let Some(kind) = units::never_dialled(&address.value.host) {
            let message = format!(
                "peer.address: `{}` is {kind}: no gateway is reached there",
                address.value
            );
            let problem = problems.error(address.span.clone(), message);
            problem.help("name the address that the peer's gateway has");
        }
    }
}

fn dialling(peer: &Peer, problems: &mut Problems) {
    if let (Some(dial), None) = (&peer.dial, &peer.address)
        && dial.value != Dial::Peer
    {
        let problem = problems.error(
            dial.span.clone(),
            "peer.dial: this gateway cannot dial a peer without an address",
        );
        problem.help("add `address = \"HOST:4433\"`, or let the peer dial: dial = \"peer\"");
    }
}

fn networks(written: &Written, problems: &mut Problems) {
    let mut seen: HashMap<Network, (usize, usize)> = HashMap::new();
    for (index, peer) in written.peers.iter().enumerate() {
        for network in items(&peer.networks) {
            let span = network.span.clone();
            let text = network.value;
            if let Some(kind) = units::never_served(text.address) {
                let message = format!(
                    "peer.networks: `{text}` is {kind}: no connection there leaves its own network"
                );
                problems.warning(span.clone(), message);
            }
            let first = *seen.entry(text).or_insert((index, span.start));
            if first.1 == span.start {
                continue;
            }
            let line = problems.line_of(first.1);
            if first.0 == index {
                let message =
                    format!("peer.networks: `{text}` is named twice, first in line {line}");
                problems.warning(span, message);
            } else {
                let message =
                    format!("peer.networks: `{text}` lies already behind the peer of line {line}");
                let problem = problems.error(span, message);
                problem.help("the longest prefix wins: give one of the peers the smaller network");
            }
        }
    }
}

fn tunnel(written: &Written, problems: &mut Problems) {
    let awaited = written
        .peers
        .iter()
        .find(|peer| load::dial(peer) != Dial::Us);
    if let (Some(listen), Some(peer)) = (&written.tunnel.listen, awaited)
        && listen.value.port() == 0
    {
        let line = problems.line_of(peer.span.start);
        let problem = problems.error(
            listen.span.clone(),
            format!("tunnel.listen: port 0 cannot be dialled, and the peer of line {line} dials this gateway"),
        );
        problem.help("name the port, as in \"[::]:4433\", or dial the peer: give it an `address`");
    }
    let (keep_alive, dead_after) = (&written.tunnel.keep_alive, &written.tunnel.dead_after);
    let interval = keep_alive
        .as_ref()
        .map_or(defaults::KEEP_ALIVE, |found| found.value);
    let silence = dead_after
        .as_ref()
        .map_or(defaults::DEAD_AFTER, |found| found.value);
    if interval * 2 > silence
        && let Some(place) = dead_after.as_ref().or(keep_alive.as_ref())
    {
        let message = format!(
            "tunnel.dead_after ({}) is less than twice tunnel.keep_alive ({}): one lost packet would count as a dead peer",
            units::write_duration(silence),
            units::write_duration(interval)
        );
        let problem = problems.error(place.span.clone(), message);
        problem.help("raise dead_after or lower keep_alive");
    }
    if let Some(found) = &written.tunnel.resume_max
        && found.value < silence * 2
    {
        let message = format!(
            "tunnel.resume_max ({}) is less than twice tunnel.dead_after ({}): connections are kept that long in any case",
            units::write_duration(found.value),
            units::write_duration(silence)
        );
        let problem = problems.warning(found.span.clone(), message);
        problem.help("raise resume_max, or lower dead_after with it");
    }
    if let Some(found) = dead_after
        && found.value.as_millis() > 3000
    {
        let message = "tunnel.dead_after: new connections wait for so long when the peer is gone";
        let problem = problems.warning(found.span.clone(), message);
        problem.help("up to 3s is usual");
    }
}

/// Peers are dialled from the socket that `tunnel.listen` names. One of IPv4
/// reaches no IPv6, and of those of IPv6 only `[::]` reaches IPv4, too.
fn families(written: &Written, problems: &mut Problems) {
    let Some(listen) = &written.tunnel.listen else {
        return;
    };
    let own = listen.value.ip().to_canonical();
    for peer in &written.peers {
        let dial = load::dial(peer);
        let Some(address) = peer.address.as_ref().filter(|_| dial != Dial::Peer) else {
            continue;
        };
        let Ok(to) = address.value.host.parse::<IpAddr>() else {
            continue;
        };
        let (family, only) = match (own.is_ipv4(), to.to_canonical().is_ipv4()) {
            (true, false) => ("IPv6", "IPv4"),
            (false, true) if !own.is_unspecified() => ("IPv4", "IPv6"),
            _ => continue,
        };
        let line = problems.line_of(listen.span.start);
        let message = format!(
            "peer.address: `{}` is an {family} address, which cannot be dialled: the tunnel listens on {only} alone (`{}`, line {line})",
            address.value, listen.value
        );
        let place = address.span.clone();
        let problem = match dial {
            // The peer's own dialling may do.
            Dial::Both => problems.warning(place, message),
            _ => problems.error(place, message),
        };
        problem.help(format!(
            "listen = \"[::]:{}\" serves both, or name the peer's {only} address",
            listen.value.port()
        ));
    }
}

fn intercept(written: &Written, problems: &mut Problems) {
    let intercept = &written.intercept;
    let named = intercept.interfaces.as_ref();
    match (&intercept.mode, named.map(|list| list.value.is_empty())) {
        (Some(mode), None | Some(true)) if mode.value == InterceptMode::Transparent => {
            if named.is_some_and(|list| problems.has_errors_in(&list.span)) {
                return;
            }
            let problem = problems.error(
                mode.span.clone(),
                "intercept.mode: transparent interception needs interfaces",
            );
            problem.help("add `interfaces = [\"lan0\"]` with the LAN side's interface; `ip -brief link` lists them");
        }
        (Some(mode), Some(false)) if mode.value == InterceptMode::Explicit => {
            let place = named.map_or(0..0, |list| list.span.clone());
            let problem =
                problems.warning(place, "intercept.interfaces: not used in explicit mode");
            problem.help("remove them, or set mode = \"transparent\"");
        }
        _ => {}
    }
    for interface in items(&intercept.interfaces).filter(|item| item.value == "lo") {
        let message = "intercept.interfaces: nobody's connections arrive at the loopback interface";
        let problem = problems.warning(interface.span.clone(), message);
        problem.help("name the LAN side's interface; `ip -brief link` lists them");
    }
    twice(
        items(&intercept.interfaces).map(|item| (&item.value, &item.span)),
        problems,
        |name, line| {
            (
                format!("intercept.interfaces: `{name}` is named already in line {line}"),
                "name every interface once",
            )
        },
    );
}

fn listener(listen: &Listen, problems: &mut Problems) {
    let kinds = [&listen.socks, &listen.connect, &listen.forward];
    let help = "one of `socks`, `connect` and `forward` per [[listen]] block";
    match kinds.iter().filter(|kind| kind.is_some()).count() {
        0 if listen.keys == 0 => {
            problems
                .error(listen.span.clone(), "[[listen]] says not what to listen to")
                .help(help);
        }
        2.. => {
            problems
                .error(
                    listen.span.clone(),
                    "[[listen]] wants to be several things at once",
                )
                .help(help);
        }
        _ => {}
    }
    match (&listen.forward, &listen.target) {
        (Some(forward), None) if listen.keys == 1 => {
            let problem =
                problems.error(forward.span.clone(), "listen.forward: lacks its `target`");
            problem.help("add `target = \"HOST:PORT\"`");
        }
        (None, Some(target)) if listen.keys == 1 => {
            let problem =
                problems.error(target.span.clone(), "listen.target: belongs to a `forward`");
            problem.help("add `forward = \"127.0.0.1:PORT\"`, or remove the target");
        }
        _ => {}
    }
    if let (Some(forward), Some(target)) = (&listen.forward, &listen.target) {
        forwarding(forward, target, problems);
    }
    for proxy in [&listen.socks, &listen.connect].into_iter().flatten() {
        if !proxy.value.ip().to_canonical().is_loopback() {
            let message = format!(
                "{}: whoever reaches this address can use the proxy, it asks for no password",
                proxy.value
            );
            let problem = problems.warning(proxy.span.clone(), message);
            problem.help("listen on 127.0.0.1 or [::1], or see that only the LAN reaches it");
        }
    }
}

/// A target that is this listener, or that no gateway connects to.
fn forwarding(forward: &At<SocketAddr>, target: &At<HostPort>, problems: &mut Problems) {
    let Ok(address) = target.value.host.parse::<IpAddr>() else {
        return;
    };
    let to = SocketAddr::new(address, target.value.port);
    let (message, help) = if collide(&forward.value, &to) && !forward.value.ip().is_unspecified() {
        (
            format!("listen.target: `{}` is this listener itself", target.value),
            "name the server, which lies behind a peer",
        )
    } else if let Some(kind) = units::never_served(address) {
        (
            format!(
                "listen.target: `{}` is {kind} and lies behind no peer",
                target.value
            ),
            "name the server by the address it has in its own network",
        )
    } else {
        return;
    };
    problems.warning(target.span.clone(), message).help(help);
}

/// Whether two sockets of one protocol cannot be bound together. `[::]` also
/// takes IPv4 (`IPV6_V6ONLY` is off by default).
fn collide(a: &SocketAddr, b: &SocketAddr) -> bool {
    let any = |address: &SocketAddr| address.ip().is_unspecified();
    let reaches = |a: &SocketAddr, b: &SocketAddr| any(a) && (a.is_ipv6() || b.is_ipv4());
    a.port() == b.port()
        && (a.ip().to_canonical() == b.ip().to_canonical() || reaches(a, b) || reaches(b, a))
}

/// TCP ports this gateway wants to listen on.
fn ports(written: &Written, problems: &mut Problems) {
    let explicit = written.listens.iter().flat_map(|listen| {
        [
            ("listen.socks", &listen.socks),
            ("listen.connect", &listen.connect),
            ("listen.forward", &listen.forward),
        ]
    });
    let all: Vec<(&str, &At<SocketAddr>)> = explicit
        .chain([("admin.metrics", &written.metrics)])
        .filter_map(|(key, found)| found.as_ref().map(|address| (key, address)))
        .collect();
    for (at, (key, address)) in all.iter().enumerate() {
        if address.value.port() == 0 {
            let message = format!("{key}: port 0 is a port nobody knows");
            problems
                .error(address.span.clone(), message)
                .help("name the port");
            continue;
        }
        let mut before = all.iter().take(at);
        if let Some((_, first)) = before.find(|(_, other)| collide(&other.value, &address.value)) {
            let line = problems.line_of(first.span.start);
            let message = format!(
                "{key}: `{}` is taken by `{}` in line {line}",
                address.value, first.value
            );
            problems
                .error(address.span.clone(), message)
                .help("two listeners need two ports or two addresses");
        }
    }
}

fn covered_rules(written: &[Rule], problems: &mut Problems) {
    let rules: Vec<_> = written
        .iter()
        .enumerate()
        .map(|(at, rule)| load::rule(at, rule))
        .collect();
    for (at, (rule, place)) in rules.iter().zip(written).enumerate() {
        let mut before = rules.iter().zip(written).take(at);
        let covering = before.find(|(wide, _)| rules::covers(&wide.matching, &rule.matching));
        if let Some((wide, first)) = covering {
            let line = problems.line_of(first.span.start);
            let message = format!(
                "`{}` never matches: `{}` in line {line} comes first and covers it",
                rule.name, wide.name
            );
            let problem = problems.warning(place.span.clone(), message);
            problem.help("the first rule that matches decides: put the narrower one first");
        }
    }
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (rule, place) in rules.iter().zip(written) {
        if let Some(first) = seen.insert(&rule.name, place.span.start) {
            let line = problems.line_of(first);
            let message = format!(
                "rule.name: `{}` is already the rule of line {line}",
                rule.name
            );
            let span = place
                .name
                .as_ref()
                .map_or(place.span.clone(), |name| name.span.clone());
            problems.warning(span, message);
        }
    }
}

fn accept(written: &Written, problems: &mut Problems) {
    for network in items(&written.destinations) {
        let text = network.value;
        if let Some(kind) = units::never_served(text.address) {
            let message =
                format!("accept.destinations: `{text}` is {kind} and refused in any case");
            problems.warning(network.span.clone(), message);
        } else if text.prefix_bits == 0 {
            let message = format!(
                "accept.destinations: `{text}` lets peers reach everything that this gateway reaches, the Internet included"
            );
            let problem = problems.warning(network.span.clone(), message);
            problem.help("name the networks at this site");
        }
        let same = |peer: &&Peer| items(&peer.networks).any(|behind| behind.value == text);
        if let Some(peer) = written.peers.iter().find(same) {
            let line = problems.line_of(peer.span.start);
            let message = format!(
                "accept.destinations: `{text}` lies behind the peer of line {line}, not behind this gateway"
            );
            let problem = problems.warning(network.span.clone(), message);
            problem.help("name the networks at this site");
        }
    }
}

/// Judgements about the file as a whole.
fn whole(written: &Written, config: &Config, problems: &mut Problems) {
    let socket = config.admin.socket.as_os_str().len();
    if socket > SOCKET_PATH_BYTES_MAX {
        let place = written
            .socket
            .as_ref()
            .map_or(0..0, |found| found.span.clone());
        let message = format!(
            "admin.socket: the path has {socket} bytes, the system allows {SOCKET_PATH_BYTES_MAX}"
        );
        problems
            .error(place, message)
            .help("choose a shorter one, as in \"/run/farhaul/a.sock\"");
    }
    if problems.has_errors() {
        return;
    }
    let site = written
        .site
        .name
        .as_ref()
        .map_or(0..0, |name| name.span.clone());
    if config.peers.is_empty() {
        let problem = problems.warning(site, "there is no [[peer]]: nothing goes through a tunnel");
        problem.help("`farhaul init` and `farhaul join` pair two gateways");
    } else if config.intercept.mode == InterceptMode::Explicit
        && config.listens.is_empty()
        && config.accept.destinations.is_empty()
    {
        let problem = problems.warning(site, "this gateway takes no connections and serves none");
        problem.help("name [intercept] interfaces or a [[listen]] block where clients are, [accept] destinations where servers are");
    }
    little_store(written, config, problems);
    misplaced_store(written, config, problems);
}

/// A disk in a place that is not for it.
fn misplaced_store(written: &Written, config: &Config, problems: &mut Problems) {
    let disk = config.store.disk.as_ref();
    let found = disk.and_then(|disk| Some((&disk.path, disk.misplaced()?)));
    if let Some(((place, why), path)) = found.zip(written.store.path.as_ref()) {
        let message = format!("store.disk.path: {} {why}", place.display());
        let problem = problems.warning(path.span.clone(), message);
        problem.help("name a folder of its own, such as \"/var/lib/farhaul\"");
    }
}

/// Memory or disk that is too small to be of use.
fn little_store(written: &Written, config: &Config, problems: &mut Problems) {
    let memory_bytes_min = defaults::STORE_PEER_BYTES_MIN * config.peers.len() as u64;
    let memory = written.store.memory.as_ref();
    if let Some(found) = memory.filter(|found| (1..memory_bytes_min).contains(&found.value)) {
        let problem = problems.warning(
            found.span.clone(),
            "too little memory for redundancy elimination",
        );
        problem.help(
            "16 MiB for each peer are the least, 512 MiB a good beginning; 0 B switches it off",
        );
    }
    let Some(disk) = &written.store.size else {
        return;
    };
    if config.store.memory_bytes == 0 {
        let problem = problems.warning(disk.span.clone(), "a disk without memory has no effect");
        problem.help("give `store.memory` a size, too: what is on disk is used from memory");
    }
    let disk_bytes_min = STORE_PEER_DISK_BYTES_MIN * config.peers.len() as u64;
    if disk.value < disk_bytes_min {
        let problem = problems.warning(disk.span.clone(), "too little disk for so many peers");
        problem
            .help("64 MiB for each peer are the least, ten times `store.memory` a good beginning");
    }
}
