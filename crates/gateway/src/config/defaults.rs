//! What holds where the file is silent, and the rules for usual ports.

use std::path::Path;
use std::time::Duration;

use farhaul_tunnel::Class;

use super::meaning::{Compression, Match, Optimise, Reduction, Rule, Switch};

/// Port of the tunnel on a gateway that waits for its peers.
pub const TUNNEL_PORT: u16 = 4433;
/// `tunnel.resume_max`.
pub const RESUME_MAX: Duration = Duration::from_secs(120);
/// `tunnel.keep_alive`: three of them fit into `dead_after`, so that one lost
/// packet does not cost the peer.
pub const KEEP_ALIVE: Duration = Duration::from_millis(700);
/// `tunnel.dead_after`: detection within 3 s with room for scheduling.
pub const DEAD_AFTER: Duration = Duration::from_millis(2500);
/// `tunnel.open_timeout`.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// `tunnel.drain`.
pub const DRAIN: Duration = Duration::from_secs(30);
/// `tunnel.flows_max`.
pub const FLOWS_MAX: usize = 10_000;
/// `intercept.mark`.
pub const MARK: u32 = 0x0fa0_0000;
/// Bits of the mark that are the gateway's.
pub const MARK_MASK: u32 = 0x0ff0_0000;
/// `intercept.table`.
pub const TABLE: u32 = 250;
/// `intercept.queue`.
pub const QUEUE: u16 = 250;
/// `store.memory` in bytes without a disk: no reduction.
pub const STORE_MEMORY_BYTES: u64 = 0;
/// Less memory for a peer remembers too little to find anything again.
pub(super) const STORE_PEER_BYTES_MIN: u64 = 16 << 20;
/// For so many bytes of disk one byte of memory (`docs/design/disk-lookup.md`).
pub(super) const DISK_PER_MEMORY: u64 = 800;

/// What a peer's disk is used from, if the disk is not smaller: with less, a few readers at a time take all that may be under way, and
/// what is on disk is sent again in full.
const STORE_PEER_BYTES_BY_DISK: u64 = 256 << 20;

/// `store.memory` in bytes with a disk of that size: enough to use it from for so many peers, and no less than what finds the
/// content on disk takes besides, so that a large disk has a memory in proportion.
pub(super) fn store_memory_bytes(disk_bytes: u64, peers: usize) -> u64 {
    let peers_bytes = STORE_PEER_BYTES_BY_DISK.saturating_mul(peers.max(1) as u64);
    (disk_bytes / DISK_PER_MEMORY).max(peers_bytes.min(disk_bytes))
}

/// `admin.socket`.
pub fn admin_socket() -> &'static Path {
    Path::new("/run/farhaul/gateway.sock")
}

/// Usual ports: name, class, ports. The optimiser is always detected.
///
/// SSH counts as interactive although it also carries copies: a bulk transfer
/// that is told apart by behaviour (`auto`) would leave the first keystrokes
/// of every login behind other bulk. FTP's control connection is a dialogue;
/// only its data port is bulk.
const USUAL: &[(&str, Class, &[u16])] = &[
    ("default smb", Class::Auto, &[139, 445]),
    ("default http", Class::Auto, &[80, 8080]),
    ("default nfs", Class::Auto, &[2049]),
    ("default dns", Class::Auto, &[53]),
    ("default mapi", Class::Auto, &[135]),
    (
        "default terminal",
        Class::Interactive,
        &[21, 22, 23, 3389, 5900],
    ),
    ("default bulk", Class::Bulk, &[20, 873]),
];

/// The rules that follow the operator's; the last one matches everything.
pub fn rules() -> Vec<Rule> {
    let usual = USUAL
        .iter()
        .map(|(name, class, ports)| rule(name, *class, ports));
    usual
        .chain(std::iter::once(rule("default", Class::Auto, &[])))
        .collect()
}

fn rule(name: &str, class: Class, ports: &[u16]) -> Rule {
    Rule {
        name: name.to_owned(),
        matching: Match {
            port: ports.iter().map(|port| (*port, *port)).collect(),
            ..Match::default()
        },
        class,
        optimise: Optimise::Auto,
        transport: Switch::Auto,
        reduction: Reduction::Auto,
        compression: Compression::Auto,
        fec: Switch::Auto,
        write_behind: Switch::Auto,
        client_address: None,
    }
}
