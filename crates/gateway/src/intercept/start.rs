//! Starting, changing and stopping interception.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::Taken;
use super::answer::Answerer;
use super::guard::GuardProgram;
use super::judge::{Desk, Judge, accept_connections};
use super::keeper::{Charge, Health, Keeper};
use super::lease::Lease;
use super::listener::listen;
use super::nfqueue::NfQueue;
use super::rules::{Identity, RULE_PREFERENCE, Rules};
use super::stats::{Counters, InterceptStats};
use crate::config::meaning::{Intercept, InterceptMode, Network};

/// How long to wait for the guard of a killed run, which holds our number
/// until it has tidied up.
const QUEUE_PATIENCE: Duration = Duration::from_secs(4);
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;

/// Why interception could not be started or changed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum InterceptError {
    #[error(
        "transparent interception needs {name}, for `nft` and `ip` as well: run as root, or give the service `AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW`, or set `intercept.mode = \"explicit\"`"
    )]
    MissingCapability { name: &'static str },
    #[error("`{program}` is not installed: install the package {}", if *.program == "nft" { "nftables" } else { "iproute2" })]
    ToolMissing { program: &'static str },
    #[error("`{program}` could not be run: {error}")]
    Tool {
        program: &'static str,
        error: io::Error,
    },
    #[error("`{command}` failed: {complaint}")]
    ToolFailed { command: String, complaint: String },
    #[error("there is no interface `{name}` (intercept.interfaces); there are: {known}")]
    UnknownInterface { name: String, known: String },
    #[error(
        "the loopback interface is down, and proxied connections are delivered through it: `ip link set lo up`"
    )]
    LoopbackDown,
    #[error(
        "NFQUEUE number {queue} is taken, probably by another gateway: choose another `intercept.queue` (and `table` and `mark`) for one of them"
    )]
    QueueInUse { queue: u16 },
    #[error("NFQUEUE number {queue} cannot be bound: {error}")]
    Queue { queue: u16, error: io::Error },
    #[error(
        "routing table {table} already has routes that are not ours: choose another `intercept.table`"
    )]
    TableInUse { table: u32 },
    #[error(
        "rule and route are in place, and packets with the gateway's mark are not delivered here: `ip rule` shows what comes before the rule of preference {RULE_PREFERENCE}"
    )]
    Undelivered,
    #[error("`intercept.mark`, `intercept.table` and `intercept.queue` must not be 0")]
    ZeroNumber,
    #[error("a socket for {what} could not be opened: {error}")]
    Socket {
        what: &'static str,
        error: io::Error,
    },
    #[error("the guard process did not start: {why}")]
    Guard { why: String },
}

/// Transparent interception at work. [`Interceptor::stop`] removes everything;
/// if it is dropped instead, or the process is killed, the guard does.
pub struct Interceptor {
    rules: Arc<Mutex<Rules>>,
    lease: Lease,
    counters: Arc<Counters>,
    health: watch::Receiver<Health>,
    warnings: Vec<String>,
    /// Keeper and queue loop, in the order they are to end.
    loops: Vec<Loop>,
    listeners: Vec<JoinHandle<()>>,
}

impl Interceptor {
    /// Takes connections from `config.interfaces` towards `networks` and
    /// reports them through `taken`. With no interface, or in explicit mode,
    /// only what [`crate::dial`] needs to keep client addresses is set up.
    ///
    /// The lease starts alive; from then on call [`Interceptor::beat`].
    ///
    /// # Errors
    /// See [`InterceptError`]; nothing is left behind.
    pub async fn start(
        config: &Intercept,
        networks: &[Network],
        guard: GuardProgram,
        taken: mpsc::Sender<Taken>,
    ) -> Result<Interceptor, InterceptError> {
        let identity = Identity {
            queue: config.queue,
            mark: config.mark,
            table: config.table,
        };
        let interfaces = match config.mode {
            InterceptMode::Transparent => config.interfaces.clone(),
            InterceptMode::Explicit => Vec::new(),
        };
        check(identity, &interfaces)?;
        // What they warn of concerns connections taken from a LAN.
        let warnings = match interfaces.is_empty() {
            true => Vec::new(),
            false => warnings(concerns_ipv6(networks, &interfaces, &ipv6_addresses())),
        };
        let queue = Arc::new(bind(identity.queue).await?);
        let socket = |what| move |error| InterceptError::Socket { what, error };
        let answerer = Answerer::open().map_err(socket("answers"))?;
        let (listeners, rules) = listeners(identity, interfaces, networks)?;
        let lease =
            Lease::new(identity, rules.port_v6.is_some()).map_err(socket("the heartbeat"))?;
        let rules = Arc::new(Mutex::new(rules));
        let counters = Arc::new(Counters::default());
        let (told, health) = watch::channel(Health::default());
        let charge = Charge {
            program: guard,
            queue: Arc::clone(&queue),
            rules: Arc::clone(&rules),
            lease: lease.clone(),
            counters: Arc::clone(&counters),
            health: told,
        };
        let keeper = Keeper::start(charge).await?;
        lease.turned();
        lease.beat();
        let desk = Desk::new(taken, Arc::clone(&counters));
        let judge = Judge {
            queue,
            desk: desk.clone(),
            answerer,
            lease: lease.clone(),
            identity,
        };
        Ok(Interceptor {
            rules,
            lease,
            counters,
            health,
            warnings,
            loops: vec![
                Loop::start(|stop| keeper.run(stop)),
                Loop::start(|stop| judge.run(stop)),
            ],
            listeners: listeners
                .into_iter()
                .map(|listener| tokio::spawn(accept_connections(listener, desk.clone())))
                .collect(),
        })
    }

    /// Replaces the peers' networks without a gap.
    ///
    /// # Errors
    /// `nft` could not be run or refused; the old networks stay.
    pub async fn set_networks(&mut self, networks: &[Network]) -> Result<(), InterceptError> {
        self.rules.lock().await.replace_networks(networks).await
    }

    /// Renews the lease: to be called every [`super::BEAT_INTERVAL`]. Without
    /// it interception ends within a second.
    pub fn beat(&self) {
        self.lease.beat();
    }

    /// The lease itself, for a loop that does not own the interceptor.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// What was found at start and will keep connections from working, such as
    /// forwarding switched off.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What has been done so far.
    pub fn stats(&self) -> InterceptStats {
        self.counters.read()
    }

    /// How it fares; changes with what others break and cannot be put right.
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    /// Removes rules, routes and guard. SYNs still held go direct; proxied
    /// connections still open lose their way here, so end them first.
    pub async fn stop(mut self) {
        self.lease.revoke();
        // Rules first, so that no SYN is queued that nobody will answer.
        for running in std::mem::take(&mut self.loops) {
            drop(running.stop);
            let _ = running.task.await;
        }
    }
}

impl Drop for Interceptor {
    /// The loops see their `stop` dropped and tidy up; if the runtime ends
    /// before they can, the guard sees its stream closed.
    fn drop(&mut self) {
        self.lease.revoke();
        self.lease.set_guard(None);
        for listener in &self.listeners {
            listener.abort();
        }
    }
}

/// A task that ends when `stop` is dropped.
struct Loop {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Loop {
    fn start<F>(task: impl FnOnce(oneshot::Receiver<()>) -> F) -> Loop
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        Loop {
            stop,
            task: tokio::spawn(task(stopped)),
        }
    }
}

fn listeners(
    identity: Identity,
    interfaces: Vec<String>,
    networks: &[Network],
) -> Result<(Vec<TcpListener>, Rules), InterceptError> {
    let what = "intercepted connections";
    let socket = |error| InterceptError::Socket { what, error };
    let v4 = listen(false).map_err(socket)?;
    let port_v4 = v4.local_addr().map_err(socket)?.port();
    let mut all = vec![v4];
    let mut port_v6 = None;
    if has_ipv6() {
        let v6 = listen(true).map_err(socket)?;
        port_v6 = Some(v6.local_addr().map_err(socket)?.port());
        all.push(v6);
    }
    let rules = Rules {
        identity,
        interfaces,
        networks: networks.to_vec(),
        port_v4,
        port_v6,
    };
    Ok((all, rules))
}

/// The number doubles as lock: the kernel gives it to one socket.
async fn bind(queue: u16) -> Result<NfQueue, InterceptError> {
    let deadline = Instant::now() + QUEUE_PATIENCE;
    loop {
        let error = match NfQueue::bind(queue) {
            Ok(bound) => return Ok(bound),
            Err(error) => error,
        };
        // The kernel says EPERM for a number bound by another socket; that we
        // lack no capability was checked before.
        if !matches!(error.raw_os_error(), Some(libc::EPERM | libc::EBUSY)) {
            return Err(InterceptError::Queue { queue, error });
        }
        if Instant::now() >= deadline {
            return Err(InterceptError::QueueInUse { queue });
        }
        sleep(Duration::from_millis(50)).await;
    }
}

fn check(identity: Identity, interfaces: &[String]) -> Result<(), InterceptError> {
    if identity.queue == 0 || identity.mark == 0 || identity.table == 0 {
        return Err(InterceptError::ZeroNumber);
    }
    for (bit, name) in [
        (CAP_NET_ADMIN, "CAP_NET_ADMIN"),
        (CAP_NET_RAW, "CAP_NET_RAW"),
    ] {
        if !has_capability(bit) {
            return Err(InterceptError::MissingCapability { name });
        }
    }
    let known = interfaces_known();
    for name in interfaces {
        if !known.iter().any(|other| other == name) {
            let known = known.join(", ");
            return Err(InterceptError::UnknownInterface {
                name: name.clone(),
                known,
            });
        }
    }
    if super::address_towards(std::net::Ipv4Addr::LOCALHOST.into()).is_err() {
        return Err(InterceptError::LoopbackDown);
    }
    Ok(())
}

/// Effective capability of this thread (proc_pid_status(5)); unknown counts as
/// present, the kernel will say.
fn has_capability(bit: u32) -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/thread-self/status") else {
        return true;
    };
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_none_or(|set| set & (1 << bit) != 0)
}

/// Interfaces of this thread's network namespace.
pub fn interfaces_known() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    text.lines()
        .skip(2)
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect()
}

/// Whether proxied IPv6 connections could be delivered.
pub(super) fn has_ipv6() -> bool {
    super::address_towards(std::net::Ipv6Addr::LOCALHOST.into()).is_ok()
}

/// The kernel's table of IPv6 addresses.
fn ipv6_addresses() -> String {
    std::fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default()
}

/// Whether there is any IPv6 to take: a network of a peer, or an address on a LAN interface. What each interface has
/// of itself (link-local, scope 20) does not count.
fn concerns_ipv6(networks: &[Network], interfaces: &[String], if_inet6: &str) -> bool {
    let is_ours = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, _, _, scope, _, name]
            if scope != "20" && scope != "10" && interfaces.iter().any(|own| own == name))
    };
    networks.iter().any(|network| network.address.is_ipv6()) || if_inet6.lines().any(is_ours)
}

fn warnings(concerns_ipv6: bool) -> Vec<String> {
    let mut warnings = forwarding_off(concerns_ipv6);
    if concerns_ipv6 && !has_ipv6() {
        warnings.push(
            "IPv6 is off on the loopback interface, so IPv6 connections are not intercepted: \
             `sysctl -w net.ipv6.conf.lo.disable_ipv6=0`"
                .to_owned(),
        );
    }
    warnings
}

fn forwarding_off(concerns_ipv6: bool) -> Vec<String> {
    [
        ("net.ipv4.ip_forward", "IPv4", true),
        ("net.ipv6.conf.all.forwarding", "IPv6", concerns_ipv6),
    ]
    .into_iter()
    .filter(|(key, _, is_concerned)| {
        let path = format!("/proc/sys/{}", key.replace('.', "/"));
        *is_concerned && std::fs::read_to_string(path).is_ok_and(|value| value.trim() == "0")
    })
    .map(|(key, family, _)| {
        format!("{family} forwarding is off, so connections that go direct do not arrive: `sysctl -w {key}=1`")
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESSES: &str = "\
00000000000000000000000000000001 01 80 10 80       lo
fe8000000000000002163efffe000001 02 40 20 80     lan0
fe8000000000000002163efffe000002 03 40 20 80     lan1
fd000000000000000000000000000001 03 40 00 80     lan1
";

    #[test]
    fn ipv6_concerns_a_site_that_has_some() {
        let v4 = crate::config::units::network("10.2.0.0/16").unwrap();
        let v6 = crate::config::units::network("fd00:2::/48").unwrap();
        let on = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        assert!(!concerns_ipv6(&[v4], &on(&["lan0"]), ADDRESSES));
        assert!(concerns_ipv6(&[v4], &on(&["lan0", "lan1"]), ADDRESSES));
        assert!(concerns_ipv6(&[v4, v6], &on(&["lan0"]), ADDRESSES));
        assert!(!concerns_ipv6(&[v4], &on(&["lan0"]), ""));
    }

    #[test]
    fn forwarding_is_warned_of_where_it_is_needed() {
        let of_ipv6 = |warnings: Vec<String>| warnings.iter().any(|line| line.contains("IPv6"));
        assert!(!of_ipv6(warnings(false)));
        let off = std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/forwarding")
            .is_ok_and(|value| value.trim() == "0");
        assert_eq!(of_ipv6(forwarding_off(true)), off);
    }
}
