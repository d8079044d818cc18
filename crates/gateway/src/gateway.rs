//! The gateway as a whole: what its parts share, and the tasks that serve
//! peers.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::{Duration, Instant};

use farhaul_tunnel::{
    FEATURE_COPIES, FEATURE_ECHOES, FEATURE_FEC, FEATURE_LEVELS, FEATURE_MEASURING,
    FEATURE_OPTIMISERS, FEATURE_RECLAIM, FEATURE_REDUCTION, FEATURE_WARMING, Hello, Limits,
    PROTOCOL_VERSIONS, Payload, Side, Target,
};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::config::Config;
use crate::copies::Copies;
use crate::event::Event;
use crate::events::Events;
use crate::flow_table::FlowTable;
use crate::intercept::Health;
use crate::keys::PublicKey;
use crate::known_up::KnownUp;
use crate::lately::Lately;
use crate::lock::lock;
use crate::measure::Measurements;
use crate::near::Pending;
use crate::operate::ReloadRequest;
use crate::peer::Peer;
use crate::quic::fec::CorrectionState;
use crate::quic::{Endpoint, plain};
use crate::rules;
use crate::session::{Incoming, Session, SessionEnd, SessionParts};
use crate::shared_key;
use crate::shares::{self, store_of};
use crate::strangers::Strangers;
use crate::ups_and_downs::UpsAndDowns;
use crate::warm::Warmings;

/// A handshake or hello that takes longer has failed.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Between attempts to reach a peer.
const REDIAL: Duration = Duration::from_secs(1);
/// How often peers are reviewed; adds at most this to detection.
const REVIEW: Duration = Duration::from_millis(200);
/// After this long all peers know that we shut down: a round trip and more.
const DRAIN_KNOWN: Duration = Duration::from_secs(1);
/// Handshakes under way at most; dialers beyond it try again.
const HANDSHAKES_MAX: usize = 64;

/// What all tasks of a gateway share.
pub struct Gateway {
    config: RwLock<Arc<Config>>,
    peers: RwLock<Vec<Arc<Peer>>>,
    pub(crate) endpoint: Endpoint,
    pub(crate) own_key: PublicKey,
    instance: u128,
    pub(crate) started: Instant,
    pub(crate) bypass: AtomicBool,
    draining: OnceLock<Instant>,
    pub(crate) asymmetric_returns: Mutex<Lately>,
    pub(crate) direct_since_start: AtomicU64,
    /// Connections of explicit listeners relayed outside the tunnel now.
    pub(crate) relayed: AtomicU64,
    pub(crate) reloads: mpsc::Sender<ReloadRequest>,
    fitting: usize,
    pub(crate) handshakes: usize,
    pub(crate) events: Events,
    pub(crate) health: Mutex<Health>,
    pub(crate) strangers: Mutex<Strangers>,
    pub(crate) flows: Arc<FlowTable>,
    pub(crate) known_up: Mutex<KnownUp>,
    pub(crate) pending: Mutex<Pending>,
    pub(crate) warmings: Mutex<Warmings>,
    pub(crate) copies: Arc<Mutex<Copies>>,
    pub(crate) measurements: Mutex<Measurements>,
    /// For those who have only a reference.
    pub(crate) me: Weak<Gateway>,
}

/// What a gateway is made of.
pub struct GatewayParts {
    /// Checked configuration.
    pub config: Config,
    /// Bound endpoint.
    pub endpoint: Endpoint,
    /// Public half of the endpoint's key.
    pub own_key: PublicKey,
    /// Where events go.
    pub events: Events,
    /// Where operators' reloads go.
    pub reloads: mpsc::Sender<ReloadRequest>,
    /// Flows that the process has descriptors for.
    pub fitting: usize,
    /// Handshakes that each explicit listener has descriptors for.
    pub handshakes: usize,
}

impl Gateway {
    /// A gateway whose endpoint is bound; nothing runs yet.
    pub fn new(parts: GatewayParts) -> Arc<Self> {
        let GatewayParts {
            config,
            endpoint,
            own_key,
            events,
            reloads,
            fitting,
            handshakes,
        } = parts;
        endpoint
            .pinned
            .replace(config.peers.iter().map(|peer| peer.key));
        let share = shares::at_start(&config);
        let peers = config
            .peers
            .iter()
            .map(|peer| Peer::new(peer.clone(), store_of(&config, peer, share), share))
            .map(Arc::new)
            .collect();
        Arc::new_cyclic(|me| Self {
            flows: Arc::new(FlowTable::new(config.tunnel.flows_max.min(fitting))),
            config: RwLock::new(Arc::new(config)),
            peers: RwLock::new(peers),
            endpoint,
            own_key,
            instance: rand_instance(),
            started: Instant::now(),
            bypass: AtomicBool::new(false),
            draining: OnceLock::new(),
            asymmetric_returns: Mutex::default(),
            direct_since_start: AtomicU64::new(0),
            relayed: AtomicU64::new(0),
            reloads,
            fitting,
            handshakes,
            events,
            health: Mutex::default(),
            strangers: Mutex::default(),
            known_up: Mutex::default(),
            pending: Mutex::default(),
            warmings: Mutex::default(),
            copies: Arc::default(),
            measurements: Mutex::default(),
            me: me.clone(),
        })
    }

    /// Takes a reloaded configuration: peers that stay keep their tunnels,
    /// flows that run are not touched.
    pub fn configure(self: &Arc<Self>, config: Config) {
        self.endpoint
            .pinned
            .replace(config.peers.iter().map(|peer| peer.key));
        self.flows
            .set_max(config.tunnel.flows_max.min(self.fitting));
        self.events.set_log(config.log);
        let old = self.peers();
        let (peers, added) = self.peers_of(&config, &old);
        *self
            .peers
            .write()
            .unwrap_or_else(|poison| poison.into_inner()) = peers;
        *self
            .config
            .write()
            .unwrap_or_else(|poison| poison.into_inner()) = Arc::new(config);
        old.iter().for_each(|peer| peer.changed.notify_one());
        added
            .into_iter()
            .for_each(|peer| drop(tokio::spawn(self.clone().keep(peer))));
    }

    /// Sends new connections direct from now on; returns the flows alive.
    pub fn drain(&self) -> usize {
        let _ = self.draining.set(Instant::now());
        for peer in self.peers() {
            let tunnels = peer.tunnels();
            tunnels.iter().for_each(|(session, _)| session.drain());
        }
        self.flows.len()
    }

    /// Whether it can stop without loss: no flows are left, and peers have all that was sent.
    pub(crate) fn is_quiet(&self) -> bool {
        self.flows.is_empty() && self.peers().iter().all(|peer| peer.is_quiet())
    }

    /// Ends every tunnel; what flows are left see a reset.
    pub async fn close(&self) {
        self.peers()
            .iter()
            .for_each(|peer| peer.close(&SessionEnd::Closed));
        self.endpoint.close(b"gateway stopped").await;
        let stores: Vec<_> = self
            .peers()
            .iter()
            .map(|peer| peer.store().clone())
            .collect();
        // What it cannot write in time is sent anew.
        let stopping = stores
            .into_iter()
            .map(|store| spawn_blocking(move || store.stop()));
        for stopped in stopping.collect::<Vec<_>>() {
            let _ = stopped.await;
        }
    }

    /// Serves dialers and keeps tunnels to all peers until the endpoint closes.
    pub fn start(self: &Arc<Self>) {
        tokio::spawn(self.clone().accept_dialers());
        for peer in self.peers() {
            tokio::spawn(self.clone().keep(peer));
        }
        tokio::spawn(self.clone().tidy());
    }

    /// The configuration of the moment.
    pub fn config(&self) -> Arc<Config> {
        self.config
            .read()
            .unwrap_or_else(|poison| poison.into_inner())
            .clone()
    }

    /// All peers, in the order of the configuration.
    pub fn peers(&self) -> Vec<Arc<Peer>> {
        self.peers
            .read()
            .unwrap_or_else(|poison| poison.into_inner())
            .clone()
    }

    /// The peer of a name, or the only one; `or_ask` is said where there are several.
    pub(crate) fn peer_named(&self, name: Option<&str>, or_ask: &str) -> Result<Arc<Peer>, String> {
        let mut peers = self.peers();
        match name {
            Some(name) => {
                let known = peers.into_iter().find(|peer| peer.config().name == name);
                known.ok_or_else(|| format!("there is no peer {name}"))
            }
            None if peers.len() == 1 => Ok(peers.swap_remove(0)),
            None => Err(or_ask.to_owned()),
        }
    }

    /// Whether so many file descriptors are left: a flow has one, a relayed
    /// connection two.
    pub(crate) fn has_descriptors(&self, wanted: usize) -> bool {
        let relayed = usize::try_from(self.relayed.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let taken = self.flows.len().saturating_add(relayed.saturating_mul(2));
        taken.saturating_add(wanted) <= self.fitting
    }

    /// Whether new connections go direct because an operator said so.
    pub fn is_bypassed(&self) -> bool {
        self.bypass.load(Ordering::Relaxed)
    }

    /// Whether the gateway is shutting down.
    pub fn is_draining(&self) -> bool {
        self.draining.get().is_some()
    }

    /// Whether peers must know by now that we shut down. Until then they may
    /// have accepted clients in our name, and those are still served.
    pub(crate) fn has_drained(&self) -> bool {
        let since = self.draining.get();
        since.is_some_and(|since| since.elapsed() > DRAIN_KNOWN)
    }

    /// The peer with the longest prefix over the destination. A name is known
    /// only over there: it goes to the only peer there is.
    pub(crate) fn peer_for(&self, target: &Target) -> Option<Arc<Peer>> {
        let mut peers = self.peers();
        let index = match target {
            Target::Address(address) => {
                let configs: Vec<_> = peers.iter().map(|peer| peer.config()).collect();
                let own = &self.config().accept.destinations;
                rules::peer_for(&configs, own, address.ip())?
            }
            Target::Host { .. } if peers.len() == 1 => 0,
            Target::Host { .. } => return None,
        };
        Some(peers.swap_remove(index))
    }

    async fn accept_dialers(self: Arc<Self>) {
        let handshakes = Arc::new(tokio::sync::Semaphore::new(HANDSHAKES_MAX));
        while let Some(incoming) = self.endpoint.accept().await {
            let Ok(permit) = handshakes.clone().try_acquire_owned() else {
                incoming.ignore();
                continue;
            };
            let gateway = self.clone();
            tokio::spawn(async move {
                gateway.admit(incoming).await;
                drop(permit);
            });
        }
    }

    async fn admit(self: &Arc<Self>, incoming: noq::Incoming) {
        let address = plain(self.endpoint.aliases.real(incoming.remote_address()));
        let rejected = |why: String| Event::PeerRejected { address, why };
        let (connection, key) = match Endpoint::admit(incoming, HANDSHAKE_MAX).await {
            Ok(admitted) => admitted,
            Err(error) => return self.turn_away(address, &error),
        };
        match self
            .peers()
            .into_iter()
            .find(|peer| peer.config().key == key)
        {
            Some(peer) => {
                self.greet(&peer, connection, Side::Acceptor).await;
            }
            None => self
                .events
                .emit(rejected(format!("key {key} is not pinned any more"))),
        }
    }

    /// Dials while there is no tunnel, and announces changes of state.
    async fn keep(self: Arc<Self>, peer: Arc<Peer>) {
        let mut dialled: Option<Instant> = None;
        let mut dialling = tokio::task::JoinSet::new();
        let mut ups_and_downs = UpsAndDowns::default();
        while self.peers().iter().any(|known| Arc::ptr_eq(known, &peer)) {
            let dead_after = self.config().tunnel.dead_after;
            peer.give_up(self.config().tunnel.resume_max.max(dead_after * 2));
            self.announce(&peer, dead_after, &mut ups_and_downs);
            while dialling.try_join_next().is_some() {}
            let rested = dialled.is_none_or(|at| at.elapsed() >= REDIAL) && dialling.is_empty();
            if rested && !self.is_draining() && peer.should_dial(dead_after) {
                dialled = Some(Instant::now());
                let (gateway, peer) = (self.clone(), peer.clone());
                // Beside the review: a slow handshake must not delay it.
                dialling.spawn(async move { gateway.dial(&peer).await });
            }
            let _ = tokio::time::timeout(REVIEW, peer.changed.notified()).await;
        }
        peer.close(&SessionEnd::Closed);
    }

    fn announce(&self, peer: &Peer, dead_after: Duration, ups_and_downs: &mut UpsAndDowns) {
        let name = peer.config().name;
        for (session, _) in peer.tunnels() {
            if let Some((state, loss)) = session.take_correction_change() {
                self.events.emit(Event::Correcting {
                    peer: name.clone(),
                    on: state == CorrectionState::On,
                    too_dear: state == CorrectionState::TooDear,
                    loss_ppm: (loss * 1e6) as u32,
                });
            }
        }
        let changed = peer.review(dead_after).map(|change| change.event(&name));
        if let Some(Event::PeerDown { .. }) = changed {
            lock(&self.known_up).clear();
        }
        ups_and_downs.tell(&self.events, changed);
        if peer.take_own_key_shared() {
            self.events.emit(Event::Trouble {
                part: "tunnel".to_owned(),
                what: shared_key::own_advice(&name),
            });
        }
    }

    fn hello(&self, site: &str, peer: &Peer) -> Hello {
        let reduction = match peer.share.memory_bytes {
            0 => 0,
            _ => {
                FEATURE_REDUCTION
                    | FEATURE_WARMING
                    | FEATURE_COPIES
                    | FEATURE_LEVELS
                    | FEATURE_ECHOES
            }
        };
        Hello {
            versions: PROTOCOL_VERSIONS,
            instance: self.instance,
            site: site.to_owned(),
            features: FEATURE_FEC
                | FEATURE_OPTIMISERS
                | FEATURE_MEASURING
                | FEATURE_RECLAIM
                | reduction,
        }
    }

    /// Exchanges hellos and puts the tunnel to use; whether there is one.
    pub(crate) async fn greet(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        connection: noq::Connection,
        side: Side,
    ) -> bool {
        let name = peer.config().name;
        let remote = connection
            .path(noq::PathId::ZERO)
            .and_then(|path| path.remote_address().ok())
            .map(|remote| self.endpoint.aliases.real(remote));
        let mark = remote
            .map(|remote| self.endpoint.marking.of(remote))
            .unwrap_or_default();
        let config = self.config();
        let (session, incoming) = Session::start(SessionParts {
            peer: name.clone(),
            connection,
            side,
            hello: self.hello(&config.site.name, peer),
            limits: Limits {
                flows_max: config.tunnel.flows_max,
                ..Limits::default()
            },
            mark,
            path: peer.path_settings(remote),
            keep_alive: config.tunnel.keep_alive,
            aliases: (side == Side::Acceptor).then(|| self.endpoint.aliases.clone()),
            nudge: self.endpoint.nudge(),
            pauses: self.endpoint.pauses.clone(),
        });
        let negotiated = tokio::select! {
            greeting = session.greeted() => greeting,
            () = tokio::time::sleep(HANDSHAKE_MAX) => Err(SessionEnd::Lost),
        };
        let negotiated = match negotiated {
            Ok(negotiated) => negotiated,
            Err(end) => {
                session.close(end.clone());
                self.note_no_tunnel(peer, side, remote, &end);
                return false;
            }
        };
        self.use_features(&session, peer, negotiated.features, side);
        let dialled_by = match side {
            Side::Dialer => self.instance,
            Side::Acceptor => negotiated.peer.instance,
        };
        let dead_after = config.tunnel.dead_after;
        if let Some(flows) = peer.adopt(session.clone(), negotiated, dialled_by, dead_after) {
            self.tell_replaced(peer, flows);
        }
        if self.is_draining() {
            session.drain();
        }
        if peer.tunnels().len() > 1 {
            // The handshake went through, so the older tunnels' path works
            // again too: their flows need not wait for their timers.
            self.endpoint.path_is_back();
        }
        tokio::spawn(self.clone().attend(session, incoming));
        true
    }

    /// The hellos have come to nothing.
    fn note_no_tunnel(
        &self,
        peer: &Peer,
        side: Side,
        remote: Option<SocketAddr>,
        end: &SessionEnd,
    ) {
        if let (Side::Acceptor, SessionEnd::Protocol(why), Some(address)) = (side, end, remote) {
            self.events.emit(Event::PeerRejected {
                address: plain(address),
                why: why.clone(),
            });
        }
        let own = match end {
            SessionEnd::KeyRefused => format!(": {}", self.own_key),
            _ => String::new(),
        };
        peer.note_error(format!("no tunnel: {end}{own}"));
    }

    /// The peer is another process than before.
    fn tell_replaced(&self, peer: &Peer, flows: usize) {
        lock(&self.known_up).clear();
        let name = peer.config().name;
        if let Some(addresses) = peer.take_key_shared_by() {
            let addresses = addresses.map(|address| address.to_string());
            self.events.emit(Event::Trouble {
                part: "tunnel".to_owned(),
                what: shared_key::advice(&name, &addresses),
            });
        } else if peer.key_shared_by().is_none() {
            self.events.emit(Event::PeerRestarted {
                peer: name,
                flows: flows as u64,
            });
        }
    }

    /// Begins what both sides have offered.
    fn use_features(&self, session: &Arc<Session>, peer: &Peer, features: u64, side: Side) {
        if features & FEATURE_FEC != 0 {
            session.correct(&self.endpoint.channels, side);
        }
        if features & FEATURE_REDUCTION != 0 {
            session.reduce(peer.store(), side);
        }
        if features & FEATURE_OPTIMISERS != 0 {
            session.optimise();
        }
    }

    /// Serves what the peer opens in a tunnel.
    async fn attend(
        self: Arc<Self>,
        session: Arc<Session>,
        mut incoming: mpsc::UnboundedReceiver<Incoming>,
    ) {
        while let Some(request) = incoming.recv().await {
            match request.request.payload {
                Payload::Channel => session.serve_channel(request),
                Payload::Warming => {
                    tokio::spawn(self.clone().be_warmed(session.clone(), request));
                }
                Payload::Measuring => {
                    tokio::spawn(self.clone().be_measured(session.clone(), request));
                }
                Payload::Plain | Payload::Records { .. } => {
                    tokio::spawn(self.clone().fulfil(session.clone(), request));
                }
            }
        }
    }

    /// Drops what clients gave up between SYN and connection, and tells what is wrong with disks.
    async fn tidy(self: Arc<Self>) {
        let mut tick = tokio::time::interval(Duration::from_secs(5));
        loop {
            tick.tick().await;
            lock(&self.pending).expire(Instant::now());
            for peer in self.peers() {
                for trouble in peer.store().take_troubles() {
                    self.events.emit(Event::Trouble {
                        part: "store".to_owned(),
                        what: format!("peer {}: {trouble}", peer.config().name),
                    });
                }
            }
        }
    }
}

/// Names this process towards peers. Should the system have no randomness to
/// give, the time still differs from one start to the next.
fn rand_instance() -> u128 {
    let mut bytes = [0; 16];
    let since_epoch = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => u128::from_le_bytes(bytes),
        Err(_) => since_epoch.as_nanos(),
    }
}
