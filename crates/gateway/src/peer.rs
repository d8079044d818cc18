//! A peer: the gateway at another site, whether it can be reached at the
//! moment, and the tunnels to it.
//!
//! There is normally one tunnel. Two gateways that dial each other at the same
//! time agree on one. After an outage a new one is dialled while
//! the old may still wait for the link to return: new flows use the newest
//! tunnel that is heard, old flows stay where they are until theirs ends.
//! A tunnel whose peer turns out to be another process is ended at once.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use farhaul_optimise::Stats;
use farhaul_tunnel::{Negotiated, PathMemory, PathSettings};
use tokio::sync::Notify;

use crate::config::meaning::{self, Dial};
use crate::event::Event;
use crate::lock::lock;
use crate::recent_loss::{Packets, RecentLoss};
use crate::reduction::Store;
use crate::session::{Session, SessionEnd, SessionStats};
use crate::shared_key::{self, Disowned, Takers};
use crate::shares::Share;

/// Ethernet, IPv4 and UDP headers of a datagram.
const IPV4_HEADERS_BYTES: u16 = 14 + 20 + 8;
/// Ethernet, IPv6 and UDP headers of a datagram.
const IPV6_HEADERS_BYTES: u16 = 14 + 40 + 8;

/// A peer that is heard and acknowledges nothing.
const UNANSWERED: &str = "it is heard, but acknowledges nothing: datagrams of 1200 bytes (an MTU \
                          of 1228, IPv6 1248), or all in this direction, do not reach it";

/// Tunnels that both gateways dialled at the same time are adopted within this
/// time of each other: a dial and its hello take no longer.
const CROSSED: Duration = Duration::from_secs(10);
/// A tunnel that is no longer used stays for so long, since what the peer has
/// opened in it may be on its way.
const SPARED: Duration = Duration::from_secs(2);

/// Whether new flows may use the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No tunnel yet since we started.
    Connecting,
    /// A tunnel stands and is heard.
    Up,
    /// Heard, and shutting down: it finishes the flows it has.
    Draining,
    /// Silent.
    Down,
}

/// A change of state, for the caller to announce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A tunnel stands.
    Up(SocketAddr),
    /// The peer shuts down.
    Draining,
    /// Nothing is heard any more.
    Down(String),
}

impl Change {
    /// As it is announced.
    pub fn event(self, peer: &str) -> Event {
        let peer = peer.to_owned();
        match self {
            Change::Up(address) => Event::PeerUp { peer, address },
            Change::Draining => Event::PeerDraining { peer },
            Change::Down(why) => Event::PeerDown { peer, why },
        }
    }
}

struct Tunnel {
    session: Arc<Session>,
    negotiated: Negotiated,
    /// The process that dialled.
    dialled_by: u128,
    adopted: Instant,
}

impl Tunnel {
    fn is_heard(&self, dead_after: Duration) -> bool {
        !self.session.is_over() && self.session.silence() < dead_after
    }
}

/// A peer and its tunnels.
pub struct Peer {
    config: RwLock<meaning::Peer>,
    /// The last one that is heard is used.
    tunnels: Mutex<Vec<Tunnel>>,
    state: AtomicU8,
    since: Mutex<Instant>,
    last_error: Mutex<Option<String>>,
    /// The address that has answered when it was dialled last.
    reached: Mutex<Option<SocketAddr>>,
    /// The latest tunnel has ended because the path was too narrow for it.
    narrow: AtomicBool,
    /// How the latest tunnel that is gone has ended.
    last_end: Mutex<Option<SessionEnd>>,
    /// The process we last had a tunnel to.
    last_instance: Mutex<Option<u128>>,
    /// The processes it was lately.
    takers: Mutex<Takers>,
    /// How often it has taken another process for us.
    disowned: Mutex<Disowned>,
    /// Flows its restart has cost so far.
    flows_cut: AtomicUsize,
    payload_sent_bytes: AtomicU64,
    payload_received_bytes: AtomicU64,
    /// What optimisers did for flows that have ended.
    optimised: Mutex<Stats>,
    /// What the latest tunnel that is gone found out about the path.
    path_memory: Mutex<Option<PathMemory>>,
    /// Datagram bytes of tunnels that are gone.
    wire_before: Mutex<(u64, u64)>,
    /// Repairs sent and datagrams recovered by tunnels that are gone.
    repairs_before: Mutex<(u64, u64)>,
    /// What passed, for reduction.
    store: Arc<Store>,
    /// What that may take.
    pub(crate) share: Share,
    loss: Mutex<RecentLoss>,
    /// Woken when a tunnel was added or lost.
    pub changed: Notify,
}

impl Peer {
    /// A peer nobody has heard of yet.
    pub fn new(config: meaning::Peer, store: Arc<Store>, share: Share) -> Self {
        Self {
            config: RwLock::new(config),
            tunnels: Mutex::default(),
            state: AtomicU8::new(State::Connecting as u8),
            since: Mutex::new(Instant::now()),
            last_error: Mutex::default(),
            reached: Mutex::default(),
            narrow: AtomicBool::new(false),
            last_end: Mutex::default(),
            last_instance: Mutex::default(),
            takers: Mutex::default(),
            disowned: Mutex::default(),
            flows_cut: AtomicUsize::new(0),
            payload_sent_bytes: AtomicU64::new(0),
            payload_received_bytes: AtomicU64::new(0),
            optimised: Mutex::default(),
            path_memory: Mutex::default(),
            wire_before: Mutex::default(),
            repairs_before: Mutex::default(),
            store,
            share,
            loss: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// What is remembered of what passed to and from it.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Its present configuration.
    pub fn config(&self) -> meaning::Peer {
        self.config
            .read()
            .unwrap_or_else(|poison| poison.into_inner())
            .clone()
    }

    /// Takes a reloaded configuration; standing tunnels are kept.
    pub fn configure(&self, config: meaning::Peer) {
        *self
            .config
            .write()
            .unwrap_or_else(|poison| poison.into_inner()) = config;
        self.changed.notify_one();
    }

    /// The tunnel new flows use: the newest that was heard within `dead_after`,
    /// unless the peer shuts down.
    pub fn tunnel(&self, dead_after: Duration) -> Option<Arc<Session>> {
        self.heard(dead_after)
            .filter(|session| !session.is_peer_draining())
    }

    /// Whether the peer is there but takes no new flows.
    pub fn is_draining(&self, dead_after: Duration) -> bool {
        self.heard(dead_after)
            .is_some_and(|session| session.is_peer_draining())
    }

    fn heard(&self, dead_after: Duration) -> Option<Arc<Session>> {
        let tunnels = lock(&self.tunnels);
        let mut latest_first = tunnels.iter().rev();
        latest_first
            .find(|tunnel| tunnel.is_heard(dead_after))
            .map(|tunnel| tunnel.session.clone())
    }

    /// Adds a tunnel whose peer has said hello and which the process
    /// `dialled_by`, ours or the peer's, has dialled. Tunnels to an earlier
    /// process of the peer are ended; returns how many flows that has reset, or
    /// nothing where the process is the same.
    pub fn adopt(
        &self,
        session: Arc<Session>,
        negotiated: Negotiated,
        dialled_by: u128,
        dead_after: Duration,
    ) -> Option<usize> {
        let mut tunnels = lock(&self.tunnels);
        let instance = negotiated.peer.instance;
        if let Some(address) = session.shown_address() {
            lock(&self.takers).stands(Instant::now(), instance, address);
        }
        let (same, stale): (Vec<_>, Vec<_>) = std::mem::take(&mut *tunnels)
            .into_iter()
            .partition(|tunnel| tunnel.negotiated.peer.instance == instance);
        for tunnel in stale {
            tunnel.session.close(SessionEnd::PeerRestarted);
            self.retire(&tunnel.session);
        }
        *tunnels = same;
        let place = place_of(&tunnels, dialled_by, dead_after);
        let tunnel = Tunnel {
            session,
            negotiated,
            dialled_by,
            adopted: Instant::now(),
        };
        tunnels.insert(place, tunnel);
        drop(tunnels);
        *lock(&self.last_error) = None;
        // The handshake's datagrams were of full size.
        self.narrow.store(false, Ordering::Relaxed);
        self.changed.notify_one();
        // The old tunnel may have ended before: a restarted peer disowns it.
        let cut = self.flows_cut.swap(0, Ordering::Relaxed);
        let before = lock(&self.last_instance).replace(instance);
        before
            .is_some_and(|before| before != instance)
            .then_some(cut)
    }

    /// Where two gateways are that both use its key, if that is how it looks.
    pub fn key_shared_by(&self) -> Option<[SocketAddr; 2]> {
        lock(&self.takers).both(Instant::now())
    }

    /// The same, where it has not been said lately.
    pub fn take_key_shared_by(&self) -> Option<[SocketAddr; 2]> {
        lock(&self.takers).news(Instant::now())
    }

    /// Whether another gateway uses our own key there, as it seems.
    pub fn is_own_key_shared(&self) -> bool {
        lock(&self.disowned).is_key_shared(Instant::now())
    }

    /// The same, where it has not been said lately.
    pub fn take_own_key_shared(&self) -> bool {
        lock(&self.disowned).is_news(Instant::now())
    }

    /// Forgets tunnels that have ended and closes idle ones that were
    /// replaced; then says whether the state has changed.
    pub fn review(&self, dead_after: Duration) -> Option<Change> {
        self.sweep(dead_after);
        self.watch_loss();
        let tunnel = self.tunnel(dead_after);
        let before = self.state();
        let now = match (&tunnel, before) {
            (Some(_), _) => State::Up,
            (None, _) if self.is_draining(dead_after) => State::Draining,
            (None, State::Connecting) => State::Connecting,
            (None, _) => State::Down,
        };
        if before == now {
            return None;
        }
        self.state.store(now as u8, Ordering::Relaxed);
        *lock(&self.since) = Instant::now();
        match tunnel {
            Some(session) => session.shown_address().map(Change::Up),
            None if now == State::Draining => Some(Change::Draining),
            None => {
                let end = lock(&self.last_end).take();
                let why = match end.filter(|_| lock(&self.tunnels).is_empty()) {
                    Some(end) => shared_key::noticed(&end),
                    None if self.is_unanswered(dead_after) => UNANSWERED.to_owned(),
                    None => format!("silent for {} ms", dead_after.as_millis()),
                };
                Some(Change::Down(why))
            }
        }
    }

    fn watch_loss(&self) {
        let newest = self.newest();
        let (now, mut loss) = (Instant::now(), lock(&self.loss));
        if let Some((number, session)) = newest.filter(|(number, _)| loss.is_due(now, *number)) {
            loss.note(now, number, packets_of(&session.stats()));
        }
    }

    /// Share of packets lost in the tunnel in use during about a minute.
    pub fn lost_ratio(&self) -> Option<f64> {
        let (number, session) = self.newest()?;
        lock(&self.loss).ratio(number, packets_of(&session.stats()))
    }

    /// The tunnel in use, and what tells it from others that stand.
    fn newest(&self) -> Option<(usize, Arc<Session>)> {
        let tunnels = lock(&self.tunnels);
        let session = &tunnels.last()?.session;
        Some((Arc::as_ptr(session).addr(), session.clone()))
    }

    fn is_unanswered(&self, dead_after: Duration) -> bool {
        let tunnels = lock(&self.tunnels);
        let newest = tunnels.last();
        newest.is_some_and(|tunnel| {
            let session = &tunnel.session;
            session.unanswered() >= dead_after && session.unheard() < dead_after / 2
        })
    }

    /// Ends tunnels whose peer has acknowledged nothing for longer than flows
    /// are kept. Those that hear nothing the QUIC stack ends by itself.
    pub fn give_up(&self, resume_max: Duration) {
        for tunnel in lock(&self.tunnels).iter() {
            if tunnel.session.unanswered() >= resume_max {
                tunnel.session.close(SessionEnd::Lost);
            }
        }
    }

    fn sweep(&self, dead_after: Duration) {
        let mut tunnels = lock(&self.tunnels);
        let used = tunnels.iter().rposition(|t| t.is_heard(dead_after));
        let is_settled = |tunnel: &Tunnel| tunnel.adopted.elapsed() > SPARED;
        let is_used_for_long = used.and_then(|at| tunnels.get(at)).is_some_and(is_settled);
        // Only for one that is there: the last may be over, or silent.
        let spare = used.filter(|_| is_used_for_long).unwrap_or_default();
        for tunnel in tunnels.iter().take(spare) {
            if is_settled(tunnel) && tunnel.session.is_quiet() {
                tunnel.session.close(SessionEnd::Closed);
            }
        }
        tunnels.retain(|tunnel| {
            let over = tunnel.session.is_over();
            if over {
                self.retire(&tunnel.session);
            }
            !over
        });
    }

    /// Whether no tunnel has anything under way.
    pub fn is_quiet(&self) -> bool {
        let tunnels = lock(&self.tunnels);
        tunnels
            .iter()
            .all(|tunnel| tunnel.session.is_over() || tunnel.session.is_quiet())
    }

    /// Ends every tunnel.
    pub fn close(&self, end: &SessionEnd) {
        for tunnel in lock(&self.tunnels).drain(..) {
            tunnel.session.close(end.clone());
            // Or what we ended ourselves would be put down to its silence.
            *lock(&self.last_end) = Some(end.clone());
        }
    }

    /// Keeps what counts of a tunnel that goes.
    fn retire(&self, session: &Session) {
        let end = session.over();
        if end == Some(SessionEnd::PeerRestarted) {
            self.flows_cut
                .fetch_add(session.flows_cut(), Ordering::Relaxed);
        }
        if let Some(SessionEnd::Narrow) = end {
            self.narrow.store(true, Ordering::Relaxed);
            *lock(&self.last_error) = Some(SessionEnd::Narrow.to_string());
        }
        lock(&self.disowned).ended(Instant::now(), end.as_ref());
        *lock(&self.last_end) = end;
        if let Some(memory) = session.path_memory() {
            *lock(&self.path_memory) = Some(memory);
        }
        let stats = session.stats();
        let mut before = lock(&self.wire_before);
        before.0 += stats.wire_sent_bytes;
        before.1 += stats.wire_received_bytes;
        drop(before);
        let (sent, recovered) = repairs_of(&stats);
        let mut before = lock(&self.repairs_before);
        before.0 += sent;
        before.1 += recovered;
    }

    /// Repairs sent to the peer and datagrams recovered from it since we
    /// started.
    pub fn repairs(&self) -> (u64, u64) {
        let before = *lock(&self.repairs_before);
        let tunnels = self.tunnels();
        let counts = tunnels
            .iter()
            .map(|(session, _)| repairs_of(&session.stats()));
        counts.fold(before, |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// What is known of the path to the peer at `remote`, for a new tunnel:
    /// what the operator wrote, and what earlier tunnels found (RFC 9959).
    pub fn path_settings(&self, remote: Option<SocketAddr>) -> PathSettings {
        let config = self.config();
        let rate = config.link.and_then(|link| link.profile.forward.rate);
        let tunnels = self.tunnels();
        let standing = tunnels.iter().rev().find_map(|(t, _)| t.path_memory());
        PathSettings {
            link_bits_per_s: rate.map(farhaul_link::Rate::bit_per_s),
            is_owned: config.owned,
            remembered: standing.or_else(|| *lock(&self.path_memory)),
            header_bytes: header_bytes(remote),
        }
    }

    /// UDP payload bytes sent to and received from the peer since we started.
    pub fn wire_bytes(&self) -> (u64, u64) {
        let before = *lock(&self.wire_before);
        self.tunnels()
            .iter()
            .fold(before, |(sent, received), (session, _)| {
                let stats = session.stats();
                (
                    sent + stats.wire_sent_bytes,
                    received + stats.wire_received_bytes,
                )
            })
    }

    /// Adds what a flow that ended has moved.
    pub fn count_payload(&self, sent_bytes: u64, received_bytes: u64) {
        self.payload_sent_bytes
            .fetch_add(sent_bytes, Ordering::Relaxed);
        self.payload_received_bytes
            .fetch_add(received_bytes, Ordering::Relaxed);
    }

    /// Counts what an optimiser did for a flow that has ended.
    pub fn count_optimised(&self, stats: &Stats) {
        lock(&self.optimised).add(stats);
    }

    /// What optimisers did for flows that have ended.
    pub fn optimised(&self) -> Stats {
        *lock(&self.optimised)
    }

    /// Payload bytes of flows that have ended.
    pub fn payload_bytes(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (
            read(&self.payload_sent_bytes),
            read(&self.payload_received_bytes),
        )
    }

    /// Whether this side should dial now.
    pub fn should_dial(&self, dead_after: Duration) -> bool {
        let config = self
            .config
            .read()
            .unwrap_or_else(|poison| poison.into_inner());
        config.address.is_some() && config.dial != Dial::Peer && self.heard(dead_after).is_none()
    }

    /// Remembers why there is no tunnel, for `farhaul status`.
    pub fn note_error(&self, error: String) {
        *lock(&self.last_error) = Some(error);
    }

    /// Remembers where it has answered.
    pub(crate) fn note_reached(&self, address: SocketAddr) {
        *lock(&self.reached) = Some(address);
    }

    /// Where it has answered last.
    pub(crate) fn reached(&self) -> Option<SocketAddr> {
        *lock(&self.reached)
    }

    /// Whether the path was too narrow for the latest tunnel.
    pub fn is_narrow(&self) -> bool {
        let ended = |tunnel: &Tunnel| tunnel.session.over() == Some(SessionEnd::Narrow);
        self.narrow.load(Ordering::Relaxed) || lock(&self.tunnels).iter().any(ended)
    }

    /// Why there is no tunnel, as far as known.
    pub fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }

    /// State as last reviewed.
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Relaxed) {
            value if value == State::Up as u8 => State::Up,
            value if value == State::Draining as u8 => State::Draining,
            value if value == State::Down as u8 => State::Down,
            _ => State::Connecting,
        }
    }

    /// For how long it has been in this state.
    pub fn since(&self) -> Duration {
        lock(&self.since).elapsed()
    }

    /// All standing tunnels, oldest first, with what was negotiated.
    pub fn tunnels(&self) -> Vec<(Arc<Session>, Negotiated)> {
        let tunnels = lock(&self.tunnels);
        tunnels
            .iter()
            .map(|t| (t.session.clone(), t.negotiated.clone()))
            .collect()
    }
}

/// Where a new tunnel belongs: behind the others, so that it is used, unless
/// both gateways have dialled at the same time. Each has then adopted the
/// other's tunnel first, and the one of the smaller process is used by both.
fn place_of(tunnels: &[Tunnel], dialled_by: u128, dead_after: Duration) -> usize {
    let goes_first = |other: &&Tunnel| {
        other.dialled_by < dialled_by
            && other.adopted.elapsed() < CROSSED
            && other.is_heard(dead_after)
    };
    let first = tunnels.iter().rev().take_while(goes_first).count();
    tunnels.len() - first
}

/// Ethernet, IP and UDP headers of a datagram to or from an address.
pub(crate) fn header_bytes(remote: Option<SocketAddr>) -> u16 {
    match remote.is_some_and(|remote| remote.ip().to_canonical().is_ipv6()) {
        true => IPV6_HEADERS_BYTES,
        false => IPV4_HEADERS_BYTES,
    }
}

fn packets_of(stats: &SessionStats) -> Packets {
    Packets {
        sent: stats.packets_sent,
        lost: stats.packets_lost,
    }
}

fn repairs_of(stats: &SessionStats) -> (u64, u64) {
    let figures = stats.correction.unwrap_or_default();
    (figures.repairs, figures.recovered)
}
