//! A healthy machine, and one illness at a time.

mod disk;
mod link;
mod paper;

use std::path::Path;
use std::time::UNIX_EPOCH;

use super::*;
use crate::admin::status::{InterceptStatus, PeerState, PeerStatus};
use crate::config::load;
use paper::{ADDRESSES, CHAINS, KEY, Paper, complained, said};

fn peer_key() -> String {
    crate::keys::PublicKey([7; 32]).to_string()
}

fn configuration() -> String {
    format!(
        r#"
[site]
name = "harbour"
key = "/etc/harbour.key"
[[peer]]
name = "hq"
address = "hq.example:4433"
key = "{}"
networks = ["10.2.0.0/16", "fd02::/16"]
[intercept]
interfaces = ["lan0"]
[[listen]]
socks = "127.0.0.1:1080"
[accept]
destinations = ["10.1.0.0/16"]
"#,
        peer_key()
    )
}

fn subject(text: &str, status: Option<Status>) -> Subject {
    let config = load::check(text, Path::new("/etc/gw.toml"), |_| None).map(|mut loaded| {
        // A folder of this machine's would be looked at.
        loaded.config.store.disk = Some(crate::config::meaning::Disk {
            path: "/store".into(),
            size_bytes: 200 << 30,
        });
        loaded
    });
    Subject {
        source: "/etc/gw.toml".into(),
        config,
        status: status.ok_or_else(|| "connection refused".to_owned()),
        socket: "/run/farhaul/gateway.sock".into(),
    }
}

fn running() -> Status {
    Status {
        site: "harbour".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        pid: 77,
        key: KEY.into(),
        intercept: InterceptStatus {
            mode: "transparent".into(),
            interfaces: vec!["lan0".into()],
            active: true,
            ..InterceptStatus::default()
        },
        peers: vec![PeerStatus {
            name: "hq".into(),
            state: PeerState::Up,
            address: "198.51.100.7:4433".into(),
            rtt_ms: Some(200.0),
            datagram_bytes: Some(1452),
            clock_ahead_ms: Some(-40.0),
            ..PeerStatus::default()
        }],
        ..Status::default()
    }
}

fn check(report: &Report, name: &str) -> Check {
    let found = report.checks.iter().find(|check| check.name == name);
    found
        .unwrap_or_else(|| panic!("no {name} in {report:#?}"))
        .clone()
}

/// What `illness` does to one check of a machine without a gateway.
fn without_gateway(name: &str, illness: impl FnOnce(&mut Paper)) -> Check {
    let mut paper = Paper::healthy();
    illness(&mut paper);
    check(&examine(&subject(&configuration(), None), &paper), name)
}

/// What a changed status does to one check.
fn with_gateway(name: &str, illness: impl FnOnce(&mut Status, &mut Paper)) -> Check {
    let (mut status, mut paper) = (running(), Paper::healthy());
    paper.command(
        "nft list table inet farhaul_250",
        said("table inet farhaul_250 {\n}\n"),
    );
    illness(&mut status, &mut paper);
    check(
        &examine(&subject(&configuration(), Some(status)), &paper),
        name,
    )
}

#[track_caller]
fn assert_found(check: &Check, verdict: Verdict, evidence: &str, remedy: &str) {
    assert_eq!(check.verdict, verdict, "{check:?}");
    assert!(check.evidence.contains(evidence), "{check:?}");
    assert!(
        check.remedy.as_deref().unwrap_or_default().contains(remedy),
        "{check:?}"
    );
}

#[test]
fn a_healthy_pair_passes_every_check() {
    let mut paper = Paper::healthy();
    paper.command(
        "nft list table inet farhaul_250",
        said("table inet farhaul_250 {\n}\n"),
    );
    let report = examine(&subject(&configuration(), Some(running())), &paper);
    for check in &report.checks {
        assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        assert_eq!(check.remedy, None);
    }
    assert_eq!(report.exit_code(), 0);
    assert!(report.checks.len() >= 10);
}

#[test]
fn a_healthy_machine_without_a_gateway_only_lacks_the_gateway() {
    let report = examine(&subject(&configuration(), None), &Paper::healthy());
    let wrong: Vec<_> = report
        .checks
        .iter()
        .filter(|c| c.verdict > Verdict::Ok)
        .collect();
    assert_eq!(wrong.len(), 1, "{wrong:#?}");
    assert_found(wrong[0], Verdict::Warn, "nobody listens", "farhaul gateway");
    assert_eq!(report.exit_code(), 1);
}

#[test]
fn every_complaint_has_a_remedy() {
    let mut paper = Paper::healthy();
    paper.commands.clear();
    paper.files.clear();
    paper.facts.clear();
    paper.names.clear();
    paper.key = Err("no".into());
    paper.now = UNIX_EPOCH;
    paper.taken.insert("127.0.0.1:1080".parse().unwrap());
    let report = examine(&subject(&configuration(), None), &paper);
    assert_eq!(report.exit_code(), 2);
    for check in &report.checks {
        assert_eq!(
            check.remedy.is_some(),
            check.verdict > Verdict::Ok,
            "{check:?}"
        );
        assert!(!check.evidence.is_empty());
    }
}

#[test]
fn a_broken_configuration_is_the_only_thing_said() {
    let report = examine(&subject("[site]\nnam = \"x\"\n", None), &Paper::healthy());
    assert_eq!(report.checks.len(), 2);
    assert_found(
        &check(&report, "config"),
        Verdict::Fail,
        "/etc/gw.toml",
        "correct the file",
    );
    assert_eq!(report.exit_code(), 2);
}

#[test]
fn keys() {
    let missing = without_gateway("key", |paper| paper.key = Err("no such file".into()));
    assert_found(&missing, Verdict::Fail, "no such file", "keygen");
    let open = without_gateway("key", |paper| {
        paper.facts.insert(
            "/etc/harbour.key".into(),
            FileFacts {
                mode: 0o644,
                is_folder: false,
            },
        );
    });
    assert_found(&open, Verdict::Fail, "0644", "chmod 600");
    let other = with_gateway("key", |status, _| status.key = "fh1-old".into());
    assert_found(&other, Verdict::Warn, "fh1-old", "restart");
}

#[test]
fn clocks() {
    let unset = without_gateway("clock", |paper| paper.now = UNIX_EPOCH);
    assert_found(&unset, Verdict::Fail, "1970-01-01", "NTP");
    let skewed = with_gateway("clock", |status, _| {
        status.peers[0].clock_ahead_ms = Some(-400_000.0)
    });
    assert_found(&skewed, Verdict::Warn, "hq is 400 s behind", "NTP");
}

#[test]
fn peers_that_cannot_be_reached() {
    let nameless = without_gateway("peer hq", |paper| paper.names.clear());
    assert_found(&nameless, Verdict::Fail, "does not resolve", "DNS");
    let unrouted = without_gateway("peer hq", |paper| {
        paper.command(
            "ip -json route get 198.51.100.7",
            complained("Network is unreachable"),
        );
    });
    assert_found(
        &unrouted,
        Verdict::Fail,
        "no route to hq.example",
        "default route",
    );
    let own = without_gateway("peer hq", |paper| {
        let local = said(r#"[{"type":"local","dst":"198.51.100.7","dev":"lo"}]"#);
        paper.command("ip -json route get 198.51.100.7", local);
    });
    assert_found(
        &own,
        Verdict::Fail,
        "an address of this machine",
        "other site",
    );
    let down = with_gateway("peer hq", |status, _| {
        status.peers[0].state = PeerState::Down;
        status.peers[0].last_error = Some("handshake timed out".into());
    });
    assert_found(&down, Verdict::Fail, "handshake timed out", "UDP");
    let unknown = with_gateway("peer hq", |status, _| status.peers.clear());
    assert_found(&unknown, Verdict::Warn, "does not know", "reload");
}

#[test]
fn two_gateways_that_only_dial() {
    let down = with_gateway("peer hq", |status, _| {
        status.peers[0].state = PeerState::Down;
    });
    assert_found(&down, Verdict::Fail, "down", "no fixed port");
    let mut status = running();
    status.peers[0].state = PeerState::Down;
    let waiting = configuration() + "[tunnel]\nlisten = \"[::]:4433\"\n";
    let report = examine(&subject(&waiting, Some(status)), &Paper::healthy());
    let remedy = check(&report, "peer hq").remedy.unwrap();
    assert!(!remedy.contains("no fixed port"), "{remedy}");
}

#[test]
fn firewalls_that_drop_what_ends_here() {
    const LIST: &str = "nft list chain inet filter input";
    let rules = |rules: &str| {
        said(&format!(
            "table inet filter {{\n\tchain input {{\n\t\ttype filter hook input priority 0;\n{rules}\n\t}}\n}}\n"
        ))
    };
    let drops = said(&CHAINS.replace(
        "\"prio\": 0, \"policy\": \"accept\"",
        "\"prio\": 0, \"policy\": \"drop\"",
    ));
    let by_policy = without_gateway("firewall", |paper| {
        paper.command("nft -j list chains", drops.clone());
        paper.command(LIST, rules("tcp dport 22 accept"));
    });
    let remedy = "nft insert rule inet filter input meta mark and 0xfa00000";
    assert_found(&by_policy, Verdict::Warn, "table inet filter", remedy);
    for last in [
        "drop",
        "counter packets 17 bytes 1020 reject with icmpx admin-prohibited",
    ] {
        let by_rule = without_gateway("firewall", |paper| {
            paper.command(LIST, rules(&format!("tcp dport 22 accept\n\t\t{last}")));
        });
        assert_found(&by_rule, Verdict::Warn, "table inet filter", remedy);
    }
    // Let in by its mark, or nothing dropped but one port.
    let known = without_gateway("firewall", |paper| {
        paper.command("nft -j list chains", drops);
        paper.command(LIST, rules("meta mark & 0x0ff00000 == 0x0fa00000 accept"));
    });
    let open = without_gateway("firewall", |paper| {
        paper.command(LIST, rules("tcp dport 23 drop"));
    });
    for check in [known, open] {
        assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
    }
}

#[test]
fn interfaces_that_are_parts_of_others() {
    let part = without_gateway("bridges", |paper| {
        let part = ADDRESSES.replace("\"lan0\",", "\"lan0\",\"master\":\"br0\",");
        paper.command("ip -json address show", said(&part));
    });
    assert_found(&part, Verdict::Fail, "lan0 is a part of br0", "name br0");
    let filtered = without_gateway("bridges", |paper| {
        let folder = FileFacts {
            mode: 0o755,
            is_folder: true,
        };
        paper
            .facts
            .insert("/sys/class/net/lan0/bridge".into(), folder);
        paper.set("/proc/sys/net/bridge/bridge-nf-call-iptables", "1\n");
    });
    assert_found(&filtered, Verdict::Warn, "is a bridge", "sysctl -w");
}

#[test]
fn small_mtus() {
    let link = without_gateway("mtu", |paper| {
        let small = ADDRESSES.replace(
            "\"wan0\",\"flags\":[\"BROADCAST\",\"UP\",\"LOWER_UP\"],\"mtu\":1500",
            "\"wan0\",\"flags\":[\"UP\"],\"mtu\":1200",
        );
        paper.command("ip -json address show", said(&small));
    });
    assert_found(&link, Verdict::Fail, "MTU of 1200", "ip link set wan0");
    let narrow = with_gateway("mtu", |status, _| {
        status.peers[0].state = PeerState::Down;
        status.peers[0].datagram_bytes = None;
        status.peers[0].path_too_narrow = true;
    });
    assert_found(&narrow, Verdict::Fail, "no longer reach hq", "below 1228");
    let path = with_gateway("mtu", |status, _| {
        status.peers[0].datagram_bytes = Some(1200)
    });
    assert_found(
        &path,
        Verdict::Warn,
        "1200-byte datagrams reach hq",
        "PPPoE",
    );
}

#[test]
fn missing_capabilities() {
    let shell = without_gateway("capabilities", |paper| {
        paper.set("/proc/self/status", "CapEff:\t0000000000001000\n");
    });
    assert_found(
        &shell,
        Verdict::Warn,
        "lacks CAP_NET_RAW",
        "setcap cap_net_admin,cap_net_raw+ep",
    );
    let gateway = with_gateway("capabilities", |_, paper| {
        paper.set("/proc/77/status", "CapEff:\t0000000000000000\n");
    });
    assert_found(
        &gateway,
        Verdict::Fail,
        "the gateway lacks CAP_NET_ADMIN",
        "as root",
    );
}

#[test]
fn kernel_settings() {
    let v4 = without_gateway("system", |paper| {
        paper.set("/proc/sys/net/ipv4/ip_forward", "0\n")
    });
    assert_found(
        &v4,
        Verdict::Fail,
        "net.ipv4.ip_forward is 0",
        "sysctl -w net.ipv4.ip_forward=1",
    );
    let v6 = without_gateway("system", |paper| {
        paper.set("/proc/sys/net/ipv6/conf/all/forwarding", "0\n");
    });
    assert_found(
        &v6,
        Verdict::Fail,
        "net.ipv6.conf.all.forwarding is 0",
        "sysctl -w",
    );
    let strict = without_gateway("system", |paper| {
        paper.set("/proc/sys/net/ipv4/conf/lan0/rp_filter", "1\n");
    });
    assert_found(&strict, Verdict::Warn, "strict (1) on lan0", "rp_filter=2");
    let lro = without_gateway("system", |paper| {
        paper.command(
            "ethtool -k lan0",
            said("Features:\nlarge-receive-offload: on\n"),
        );
    });
    assert_found(
        &lro,
        Verdict::Warn,
        "large-receive-offload",
        "ethtool -K lan0 lro off",
    );
}

#[test]
fn interception_rules() {
    let gone = with_gateway("interception", |_, paper| {
        paper.command(
            "nft list table inet farhaul_250",
            complained("No such file or directory"),
        );
    });
    assert_found(&gone, Verdict::Fail, "farhaul_250 is gone", "firewall");
    let left = without_gateway("interception", |paper| {
        paper.command(
            "nft list table inet farhaul_250",
            said("table inet farhaul_250 {\n}\n"),
        );
    });
    assert_found(
        &left,
        Verdict::Warn,
        "farhaul_250 exists",
        "nft delete table inet farhaul_250",
    );
    let problem = with_gateway("interception", |status, _| {
        status.intercept.problem = Some("NFQUEUE number 250 is taken".into());
    });
    assert_found(&problem, Verdict::Fail, "250 is taken", "");
    let unguarded = with_gateway("interception", |status, _| {
        status.intercept.unguarded = Some("its rules stay".into());
    });
    assert_found(&unguarded, Verdict::Warn, "its rules stay", "by itself");
    let no_nft = without_gateway("interception", |paper| {
        paper.commands.retain(|line, _| !line.starts_with("nft"));
    });
    assert_found(&no_nft, Verdict::Fail, "not installed", "nftables");
    let not_root = without_gateway("interception", |paper| {
        paper.command(
            "nft list table inet farhaul_250",
            complained("Operation not permitted"),
        );
    });
    assert_eq!(not_root.verdict, Verdict::Skip);
}

#[test]
fn address_plans() {
    let change = |from: &'static str, to: &'static str| {
        without_gateway("addresses", move |paper| {
            let changed = ADDRESSES.replace(from, to);
            assert_ne!(changed, ADDRESSES);
            paper.command("ip -json address show", said(&changed));
        })
    };
    let missing = change("\"lan0\"", "\"eth7\"");
    assert_found(
        &missing,
        Verdict::Fail,
        "no interface lan0; there are: lo, eth7, wan0",
        "intercept.interfaces",
    );
    let bare = change(
        r#""local":"10.1.0.1","prefixlen":24,"scope":"global""#,
        r#""local":"fe80::9","prefixlen":64,"scope":"link""#,
    );
    assert_found(&bare, Verdict::Fail, "lan0 has no address", "router");
    let same = change(
        "\"10.1.0.1\",\"prefixlen\":24",
        "\"10.2.0.1\",\"prefixlen\":16",
    );
    assert_found(
        &same,
        Verdict::Fail,
        "lan0 is in 10.2.0.0/16, and peer hq has 10.2.0.0/16",
        "renumber",
    );
    let inside = change(
        "\"10.1.0.1\",\"prefixlen\":24",
        "\"10.2.7.1\",\"prefixlen\":24",
    );
    assert_found(
        &inside,
        Verdict::Warn,
        "10.2.7.0/24, inside 10.2.0.0/16 of peer hq",
        "closely",
    );
}

#[test]
fn routes_to_the_peers_networks() {
    let route = |output: CommandOutput| {
        without_gateway("routes", |paper| {
            paper.command("ip -json route get 10.2.0.1", output)
        })
    };
    let none = route(complained("RTNETLINK answers: Network is unreachable\n"));
    assert_found(
        &none,
        Verdict::Warn,
        "no route to 10.2.0.0/16 of peer hq: RTNETLINK",
        "add one",
    );
    let back = route(said(r#"[{"dst":"10.2.0.1","dev":"lan0"}]"#));
    assert_found(&back, Verdict::Warn, "back into lan0", "WAN");
    let local = route(said(r#"[{"type":"local","dst":"10.2.0.1","dev":"lo"}]"#));
    assert_found(&local, Verdict::Fail, "this machine itself", "networks");
}

#[test]
fn asymmetric_returns_are_explained() {
    let some = with_gateway("return path", |status, _| status.asymmetric_returns = 4);
    assert_found(&some, Verdict::Warn, "4 connections", "client_address");
}

#[test]
fn taken_ports() {
    let socks = without_gateway("ports", |paper| {
        paper.taken.insert("127.0.0.1:1080".parse().unwrap());
    });
    assert_found(&socks, Verdict::Fail, "listen 127.0.0.1:1080", "ss -lntup");
}

#[test]
fn a_gateway_in_another_namespace_is_not_judged_by_this_one() {
    let report = {
        let mut paper = Paper::healthy();
        paper.commands.clear();
        paper
            .links
            .insert("/proc/self/ns/net".into(), "net:[1]".into());
        paper
            .links
            .insert("/proc/77/ns/net".into(), "net:[2]".into());
        examine(&subject(&configuration(), Some(running())), &paper)
    };
    assert_found(
        &check(&report, "routes"),
        Verdict::Skip,
        "nsenter -t 77",
        "",
    );
    assert_eq!(report.exit_code(), 0, "{report:#?}");
}

#[test]
fn a_gateway_of_another_version_is_restarted() {
    let old = with_gateway("gateway", |status, _| status.version = "0.0.9".into());
    assert_found(&old, Verdict::Warn, "0.0.9", "restart");
}
