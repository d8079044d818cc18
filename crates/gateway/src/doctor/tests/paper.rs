//! A machine on paper, for tests of the doctor.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::super::{CommandOutput, FileFacts, Outside};

/// The public half of the site's key.
pub const KEY: &str = "fh1-own";

/// A machine on paper.
pub struct Paper {
    pub now: SystemTime,
    pub files: HashMap<PathBuf, String>,
    pub links: HashMap<PathBuf, PathBuf>,
    pub facts: HashMap<PathBuf, FileFacts>,
    pub key: Result<String, String>,
    pub commands: HashMap<String, CommandOutput>,
    pub names: HashMap<String, Vec<SocketAddr>>,
    pub taken: HashSet<SocketAddr>,
    pub read_only: bool,
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Outside for Paper {
    fn now(&self) -> SystemTime {
        self.now
    }
    fn read(&self, path: &Path) -> io::Result<String> {
        self.files.get(path).cloned().ok_or_else(not_found)
    }
    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.links.get(path).cloned().ok_or_else(not_found)
    }
    fn facts(&self, path: &Path) -> io::Result<FileFacts> {
        self.facts.get(path).copied().ok_or_else(not_found)
    }
    fn public_key(&self, _: &Path) -> Result<String, String> {
        self.key.clone()
    }
    fn run(&self, program: &str, arguments: &[&str]) -> io::Result<CommandOutput> {
        let line = format!("{program} {}", arguments.join(" "));
        self.commands.get(&line).cloned().ok_or_else(not_found)
    }
    fn resolve(&self, host: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        self.names
            .get(host)
            .cloned()
            .ok_or_else(|| io::Error::other("no such name"))
    }
    fn try_bind_udp(&self, address: SocketAddr) -> io::Result<()> {
        self.try_bind_tcp(address)
    }
    fn try_bind_tcp(&self, address: SocketAddr) -> io::Result<()> {
        if self.taken.contains(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(())
    }
    fn try_write(&self, _: &Path) -> io::Result<()> {
        if self.read_only {
            Err(io::ErrorKind::PermissionDenied.into())
        } else {
            Ok(())
        }
    }
}

/// What `ip -json address show` prints, shortened.
pub const ADDRESSES: &str = r#"[
 {"ifname":"lo","flags":["LOOPBACK","UP","LOWER_UP"],"mtu":65536,"addr_info":[
  {"family":"inet","local":"127.0.0.1","prefixlen":8,"scope":"host"}]},
 {"ifname":"lan0","flags":["BROADCAST","UP","LOWER_UP"],"mtu":1500,"addr_info":[
  {"family":"inet","local":"10.1.0.1","prefixlen":24,"scope":"global"},
  {"family":"inet6","local":"fe80::1","prefixlen":64,"scope":"link"}]},
 {"ifname":"wan0","flags":["BROADCAST","UP","LOWER_UP"],"mtu":1500,"addr_info":[]}]"#;

/// What `nft -j list chains` prints on a router that filters nothing itself.
pub const CHAINS: &str = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
 {"chain": {"family": "inet", "table": "farhaul_250", "name": "hold", "handle": 1, "type": "filter",
  "hook": "prerouting", "prio": -151, "policy": "accept"}},
 {"chain": {"family": "inet", "table": "filter", "name": "services", "handle": 2}},
 {"chain": {"family": "inet", "table": "filter", "name": "input", "handle": 1, "type": "filter",
  "hook": "input", "prio": 0, "policy": "accept"}}]}"#;

pub fn said(text: &str) -> CommandOutput {
    CommandOutput {
        success: true,
        stdout: text.to_owned(),
        stderr: String::new(),
    }
}

pub fn complained(text: &str) -> CommandOutput {
    CommandOutput {
        success: false,
        stdout: String::new(),
        stderr: text.to_owned(),
    }
}

impl Paper {
    /// A machine without fault, without a running gateway.
    pub fn healthy() -> Paper {
        let via_wan = said(r#"[{"dst":"x","gateway":"192.0.2.1","dev":"wan0","flags":[]}]"#);
        let commands = [
            ("ip -json address show", said(ADDRESSES)),
            ("ip -json route get 10.2.0.1", via_wan.clone()),
            ("ip -json route get fd02::1", via_wan.clone()),
            ("ip -json route get 198.51.100.7", via_wan),
            (
                "nft list table inet farhaul_250",
                complained("Error: No such file or directory"),
            ),
            ("nft -j list chains", said(CHAINS)),
            (
                "df --output=avail -B1 /store",
                said("    Avail\n300000000000\n"),
            ),
            (
                "ethtool -k lan0",
                said("Features:\nlarge-receive-offload: off [fixed]\n"),
            ),
        ];
        let files = [
            ("/proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n"),
            ("/proc/77/status", "Name:\tx\nCapEff:\t0000000000003400\n"),
            ("/proc/sys/net/ipv4/ip_forward", "1\n"),
            ("/proc/sys/net/ipv6/conf/all/forwarding", "1\n"),
            ("/proc/sys/net/ipv4/conf/all/rp_filter", "0\n"),
            ("/proc/sys/net/ipv4/conf/lan0/rp_filter", "2\n"),
        ];
        Paper {
            now: UNIX_EPOCH + Duration::from_secs(1_790_000_000),
            files: files
                .map(|(path, text)| (path.into(), text.to_owned()))
                .into(),
            links: HashMap::new(),
            facts: [
                (
                    "/etc/harbour.key".into(),
                    FileFacts {
                        mode: 0o600,
                        is_folder: false,
                    },
                ),
                (
                    "/store".into(),
                    FileFacts {
                        mode: 0o700,
                        is_folder: true,
                    },
                ),
            ]
            .into(),
            key: Ok(KEY.to_owned()),
            commands: commands
                .map(|(line, output)| (line.to_owned(), output))
                .into(),
            names: [(
                "hq.example".to_owned(),
                vec!["198.51.100.7:4433".parse().unwrap()],
            )]
            .into(),
            taken: HashSet::new(),
            read_only: false,
        }
    }

    pub fn set(&mut self, path: &str, text: &str) {
        self.files.insert(path.into(), text.to_owned());
    }

    pub fn command(&mut self, line: &str, output: CommandOutput) {
        self.commands.insert(line.to_owned(), output);
    }
}
