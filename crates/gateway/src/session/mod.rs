//! One tunnel that stands: a QUIC connection and the flows it carries.
//!
//! The protocol itself is the pure machine [`Mux`]; this file holds it in a
//! lock and turns its events into wake-ups. `pump` gives its frames to QUIC
//! when they are to be sent (`lane`, `backlog`), `intake` feeds what arrives,
//! `held` counts what is not acknowledged, `link` tells what is known of the path, `liveness` listens for silence, `proof` sees
//! that a peer that has moved proves it, `seek` shows a new path's controller what it carries, and [`FlowHandle`] is what a flow's
//! task holds.

mod address;
mod backlog;
mod correction;
mod end;
mod flow_handle;
mod held;
mod intake;
mod lane;
mod link;
mod liveness;
mod proof;
mod pump;
mod repeat;
mod seek;
mod sharing;
mod shelter;
mod unblock;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use farhaul_tunnel::{
    Class, Correction, Event, FEATURE_ECHOES, FlowId, Hello, Limits, Mux, Negotiated, OpenError,
    OpenRequest, PathMemory, PathSettings, Payload, Refusal, Side, Target,
};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use crate::lock::lock;
use crate::quic::alias::Aliases;
use crate::quic::controller::PathHandle;
use crate::quic::fec::{Channel, Channels, CorrectionState, Figures};
use crate::quic::{Nudge, Pauses};
use crate::reduction::{Reduction, Store, serve};

pub(crate) use self::end::RESTARTED;
pub use self::end::SessionEnd;
use self::flow_handle::{Carried, FlowState};
pub use self::flow_handle::{FlowHandle, Incoming, OpenOutcome};
use self::held::Held;

/// Figures of a tunnel for status and metrics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionStats {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Datagrams sent, bytes of UDP payload.
    pub wire_sent_bytes: u64,
    /// Datagrams received, bytes of UDP payload.
    pub wire_received_bytes: u64,
    /// Packets the QUIC stack counted lost, of `packets_sent`.
    pub packets_lost: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Largest datagram the path carries, bytes of UDP payload.
    pub mtu_bytes: u16,
    /// Congestion window, bytes.
    pub window_bytes: u64,
    /// Flows alive.
    pub flows: usize,
    /// Error correction, where both sides speak it.
    pub correction: Option<Figures>,
}

/// A standing tunnel. Cheap to share; ends when [`Session::close`] is called
/// or the connection is lost.
pub struct Session {
    /// Peer's name, for events.
    pub peer: String,
    connection: noq::Connection,
    /// The congestion controller of the path in use, and what it was told.
    path: Mutex<Option<PathHandle>>,
    path_settings: PathSettings,
    mux: Mutex<Mux>,
    flows: Mutex<HashMap<FlowId, Arc<FlowState>>>,
    incoming: mpsc::UnboundedSender<Incoming>,
    work: Notify,
    acknowledged: Notify,
    held: Held,
    hello: watch::Sender<Option<Negotiated>>,
    end: watch::Sender<Option<SessionEnd>>,
    flows_cut: AtomicUsize,
    peer_draining: AtomicBool,
    mark: Arc<AtomicU8>,
    correction: OnceLock<Arc<Channel>>,
    /// Where the peer dialled and may move.
    aliases: Option<Arc<Aliases>>,
    nudge: Nudge,
    pauses: Arc<Pauses>,
    reduction: OnceLock<Arc<Reduction>>,
    /// Flows may carry items of optimisers.
    has_optimisers: AtomicBool,
    /// Flows on which the gateways talk of records: nobody's connections.
    channels: AtomicUsize,
    sharing: Mutex<sharing::Sharing>,
    started: Instant,
    keep_alive: Duration,
    silent_ms: AtomicU64,
    /// When somebody last looked, and until when the peer counts as one that was silent for long.
    looked_ms: AtomicU64,
    unsure_until_ms: AtomicU64,
    unanswered_ms: AtomicU64,
    unheard_ms: AtomicU64,
}

/// What a tunnel is made of.
pub struct SessionParts {
    /// Peer's name.
    pub peer: String,
    /// A connection whose peer has proved its key.
    pub connection: noq::Connection,
    /// Who dialled.
    pub side: Side,
    /// What we say about ourselves.
    pub hello: Hello,
    /// Bounds.
    pub limits: Limits,
    /// DSCP of the tunnel's datagrams.
    pub mark: Arc<AtomicU8>,
    /// What is known of the path to the peer.
    pub path: PathSettings,
    /// How often each side is to be heard (`tunnel.keep_alive`).
    pub keep_alive: Duration,
    /// For a peer that dialled, which may move: how it is made to prove its new address.
    pub aliases: Option<Arc<Aliases>>,
    /// [`Endpoint::nudge`](crate::quic::Endpoint::nudge).
    pub nudge: Nudge,
    /// [`Endpoint::pauses`](crate::quic::Endpoint::pauses).
    pub pauses: Arc<Pauses>,
}

impl Session {
    /// Starts the tunnel's tasks. Flows that the peer opens arrive on the
    /// receiver; their number is bounded by [`Limits::flows_max`].
    pub fn start(parts: SessionParts) -> (Arc<Self>, mpsc::UnboundedReceiver<Incoming>) {
        let (incoming, receiver) = mpsc::unbounded_channel();
        let mux = Mux::new(parts.side, parts.limits, parts.hello);
        let path = PathHandle::of(&parts.connection);
        if let Some(path) = &path {
            path.configure(parts.path);
        }
        let session = Arc::new(Self {
            peer: parts.peer,
            path: Mutex::new(path),
            path_settings: parts.path,
            connection: parts.connection,
            mux: Mutex::new(mux),
            flows: Mutex::default(),
            incoming,
            work: Notify::new(),
            acknowledged: Notify::new(),
            held: Held::default(),
            hello: watch::channel(None).0,
            end: watch::channel(None).0,
            flows_cut: AtomicUsize::new(0),
            peer_draining: AtomicBool::new(false),
            mark: parts.mark,
            correction: OnceLock::new(),
            aliases: parts.aliases,
            nudge: parts.nudge,
            pauses: parts.pauses,
            reduction: OnceLock::new(),
            has_optimisers: AtomicBool::new(false),
            channels: AtomicUsize::new(0),
            sharing: Mutex::default(),
            started: Instant::now(),
            keep_alive: parts.keep_alive,
            silent_ms: AtomicU64::new(0),
            looked_ms: AtomicU64::new(0),
            unsure_until_ms: AtomicU64::new(0),
            unanswered_ms: AtomicU64::new(0),
            unheard_ms: AtomicU64::new(0),
        });
        tokio::spawn(pump::run(session.clone()));
        tokio::spawn(intake::run(session.clone()));
        tokio::spawn(liveness::run(session.clone()));
        tokio::spawn(seek::run(session.clone()));
        (session, receiver)
    }

    /// Begins to repair what is lost. For a peer that offered to do the same.
    pub fn correct(self: &Arc<Self>, channels: &Arc<Channels>, side: Side) {
        let Some(remote) = self.address() else {
            return;
        };
        let Some(channel) = channels.open(&self.connection, side, remote) else {
            return;
        };
        if self.correction.set(channel.clone()).is_ok() {
            tokio::spawn(correction::run(self.clone(), channels.clone(), channel));
        }
    }

    /// What is done about losses on the way to the peer, where that has changed
    /// since this was last asked, and the loss.
    pub fn take_correction_change(&self) -> Option<(CorrectionState, f64)> {
        self.correction.get()?.take_change()
    }

    /// Begins to speak of records. For a peer that offered to do the same, before flows are opened or served.
    pub fn reduce(self: &Arc<Self>, store: &Arc<Store>, side: Side) {
        let has_echoes = self.features() & FEATURE_ECHOES != 0;
        let reduction = self
            .reduction
            .get_or_init(|| Reduction::new(store.clone(), has_echoes))
            .clone();
        // The acceptor is given the channel by the dialer.
        if side == Side::Dialer
            && let Ok(flow) = self.open(channel_request())
        {
            self.channels.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(serve(reduction, flow));
        }
    }

    /// Takes what the dialer opened for [`Session::reduce`].
    pub fn serve_channel(self: &Arc<Self>, incoming: Incoming) {
        match self.reduction.get() {
            Some(reduction) => {
                self.channels.fetch_add(1, Ordering::Relaxed);
                let flow = incoming.accept(self);
                tokio::spawn(serve(reduction.clone(), flow));
            }
            None => incoming.refuse(self, Refusal::Policy),
        }
    }

    /// Records in this tunnel, where both sides speak of them.
    pub fn reduction(&self) -> Option<&Arc<Reduction>> {
        self.reduction.get()
    }

    /// Lets flows carry items of optimisers. For a peer that offered to do the same.
    pub fn optimise(&self) {
        self.has_optimisers.store(true, Ordering::Relaxed);
    }

    /// Whether flows may carry items of optimisers.
    pub fn has_optimisers(&self) -> bool {
        self.has_optimisers.load(Ordering::Relaxed)
    }

    fn note_sent(&self, sent: &mut sharing::Sent, bytes: usize) {
        let second = self.started.elapsed().as_secs();
        lock(&self.sharing).note(second, sent, bytes);
    }

    /// Waits for the peer's hello.
    pub async fn greeted(&self) -> Result<Negotiated, SessionEnd> {
        let mut hello = self.hello.subscribe();
        tokio::select! {
            greeting = hello.wait_for(Option::is_some) => match greeting {
                Ok(greeting) => greeting.clone().ok_or(SessionEnd::Lost),
                Err(_) => Err(SessionEnd::Lost),
            },
            end = self.ended() => Err(end),
        }
    }

    /// What both sides offered.
    pub fn features(&self) -> u64 {
        let negotiated = self.hello.borrow();
        negotiated.as_ref().map_or(0, |with| with.features)
    }

    /// Opens a flow; data may be written before the far side has answered.
    pub fn open(self: &Arc<Self>, request: OpenRequest) -> Result<FlowHandle, OpenError> {
        let carried = Carried::by(&request);
        let opened = self.drive(|mux, flows| {
            let flow = mux.open(request)?;
            let state = Arc::new(FlowState::default());
            flows.insert(flow, state.clone());
            // Entered after the end was recorded, nobody else would tell it.
            if let Some(end) = self.over() {
                flows.remove(&flow);
                state.reset(end.reset_code());
            }
            Ok((flow, state))
        });
        opened.map(|(flow, state)| FlowHandle::new(self.clone(), flow, carried, state))
    }

    /// Tells the peer that we shut down and new flows should go elsewhere.
    pub fn drain(&self) {
        self.drive(|mux, _| mux.drain());
    }

    /// Whether the peer has said that it shuts down.
    pub fn is_peer_draining(&self) -> bool {
        self.peer_draining.load(Ordering::Relaxed)
    }

    /// How long nothing was received from the peer.
    pub fn unheard(&self) -> Duration {
        Duration::from_millis(self.unheard_ms.load(Ordering::Relaxed))
    }

    /// How long the peer has acknowledged nothing, although something is on
    /// its way.
    pub fn unanswered(&self) -> Duration {
        Duration::from_millis(self.unanswered_ms.load(Ordering::Relaxed))
    }

    /// How long the peer has been silent, or has left everything unanswered.
    pub fn silence(&self) -> Duration {
        Duration::from_millis(self.silent_ms.load(Ordering::Relaxed))
    }

    /// Whether the peer was heard as lately as one that is alive. One that was
    /// not may be gone, although it is too early to say so.
    pub fn is_lively(&self) -> bool {
        self.silence() < liveness::usual_silence(self.keep_alive)
    }

    /// Whether what the peer said lately has come, or it is known to be gone: it was not silent for long, and we ourselves
    /// did not sleep, until a while ago.
    pub fn is_sure(&self) -> bool {
        let now_ms = self.now_ns() / 1_000_000;
        let looked_ms = self.looked_ms.load(Ordering::Relaxed);
        let slept = Duration::from_millis(now_ms.saturating_sub(looked_ms));
        let until_ms = self.unsure_until_ms.load(Ordering::Relaxed);
        slept < liveness::SILENCE_LONG && now_ms >= until_ms
    }

    /// Waits for the end.
    pub async fn ended(&self) -> SessionEnd {
        let mut end = self.end.subscribe();
        match end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(SessionEnd::Lost),
            Err(_) => SessionEnd::Lost,
        }
    }

    /// Whether the tunnel has ended.
    pub fn is_over(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// How the tunnel has ended, if it has.
    pub fn over(&self) -> Option<SessionEnd> {
        self.end.borrow().clone()
    }

    /// Flows of applications that the end of the tunnel has cut.
    pub fn flows_cut(&self) -> usize {
        self.flows_cut.load(Ordering::Relaxed)
    }

    /// Ends the tunnel and resets its flows.
    pub fn close(&self, end: SessionEnd) {
        let reason = match &end {
            SessionEnd::Protocol(text) | SessionEnd::PeerClosed(text) => text.clone(),
            SessionEnd::Closed => "closing".to_owned(),
            SessionEnd::Lost => "lost".to_owned(),
            SessionEnd::PeerRestarted => RESTARTED.to_owned(),
            SessionEnd::Narrow => "path too narrow".to_owned(),
            SessionEnd::KeyRefused => "key refused".to_owned(),
        };
        let code = match &end {
            SessionEnd::Narrow => intake::NARROW_CODE,
            _ => 0,
        };
        self.finish(end);
        self.connection
            .close(noq::VarInt::from_u32(code), reason.as_bytes());
    }

    /// What a flow counts as at present in the direction we send.
    pub fn class_of(&self, flow: FlowId) -> Option<Class> {
        let now_ns = self.now_ns();
        self.operate(|mux, _| mux.flow_class(now_ns, flow))
    }

    /// Flows alive.
    pub fn flow_count(&self) -> usize {
        let channels = self.channels.load(Ordering::Relaxed);
        lock(&self.flows).len().saturating_sub(channels)
    }

    /// Whether the tunnel may be closed without loss: there are no flows, the peer has all that was sent,
    /// and can read it without asking again.
    pub fn is_quiet(&self) -> bool {
        let reduction = self.reduction.get();
        self.flow_count() == 0
            && self.held.is_empty()
            && reduction.is_none_or(|reduction| reduction.is_all_read())
    }

    /// Figures of the moment.
    pub fn stats(&self) -> SessionStats {
        let wire = self.connection.stats();
        let path = self
            .connection
            .path_stats(noq::PathId::ZERO)
            .unwrap_or_default();
        let correction = self.correction.get().map(|channel| channel.figures());
        let beneath = correction.unwrap_or_default();
        // QUIC counts what was recovered as received.
        let received_bytes = wire.udp_rx.bytes + beneath.received_bytes;
        SessionStats {
            rtt: path.rtt,
            wire_sent_bytes: wire.udp_tx.bytes + beneath.sent_bytes,
            wire_received_bytes: received_bytes.saturating_sub(beneath.recovered_bytes),
            packets_lost: packets_lost(&path),
            packets_sent: path.sent_packets,
            mtu_bytes: path.current_mtu,
            window_bytes: path.cwnd,
            flows: self.flow_count(),
            correction,
        }
    }

    /// The peer is at another address, and the path there has a controller that knows nothing. It
    /// is told what that of a new tunnel would be (RFC 9959).
    fn follow_path(&self) {
        let mut path = lock(&self.path);
        let memory = path.as_ref().and_then(PathHandle::memory);
        *path = PathHandle::of(&self.connection);
        if let Some(path) = &*path {
            path.configure(PathSettings {
                remembered: memory.or(self.path_settings.remembered),
                ..self.path_settings
            });
        }
    }

    /// What the next tunnel to the same peer should know.
    pub fn path_memory(&self) -> Option<PathMemory> {
        lock(&self.path).as_ref()?.memory()
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Runs one operation on the protocol machine, then delivers the events
    /// it caused and wakes the writer.
    fn drive<R>(&self, operation: impl FnOnce(&mut Mux, &mut FlowTable) -> R) -> R {
        let result = self.operate(operation);
        self.work.notify_one();
        result
    }

    fn operate<R>(&self, operation: impl FnOnce(&mut Mux, &mut FlowTable) -> R) -> R {
        let mut mux = lock(&self.mux);
        let mut flows = lock(&self.flows);
        let result = operation(&mut mux, &mut flows);
        while let Some(event) = mux.poll_event() {
            self.deliver(event, &mut flows);
        }
        result
    }

    fn deliver(&self, event: Event, flows: &mut FlowTable) {
        match event {
            Event::Hello(negotiated) => {
                self.hello.send_replace(Some(negotiated));
            }
            // Frames of a tunnel that has ended open nothing any more.
            Event::Incoming(..) if self.is_over() => {}
            Event::Incoming(flow, request) => {
                let state = Arc::new(FlowState::default());
                flows.insert(flow, state.clone());
                // The receiver lives as long as the peer's task; once that is
                // gone the tunnel is being closed anyway.
                let _ = self.incoming.send(Incoming {
                    flow,
                    request,
                    state,
                });
            }
            // The round trip is read from QUIC; PING only tells the peer that
            // its hello was heard.
            Event::Pong { .. } => {}
            Event::Draining => self.peer_draining.store(true, Ordering::Relaxed),
            Event::Opened(flow) => {
                wake(flows.get(&flow), |state| state.answer(OpenOutcome::Opened))
            }
            Event::Readable(flow) => wake(flows.get(&flow), FlowState::wake_reader),
            Event::Writable(flow) => wake(flows.get(&flow), FlowState::wake_writer),
            Event::Refused(flow, why) => {
                wake(flows.remove(&flow).as_ref(), |state| state.refuse(why));
            }
            Event::Reset(flow, code) => {
                wake(flows.remove(&flow).as_ref(), |state| state.reset(code));
            }
            Event::Ended(flow) => {
                wake(flows.remove(&flow).as_ref(), FlowState::end);
            }
        }
    }

    /// Records the end once and tells every flow.
    fn finish(&self, end: SessionEnd) {
        let first = self.end.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(end.clone());
            }
            first
        });
        if first {
            let cut = self.operate(|mux, flows| take_cut(&end, mux, flows));
            let channels = self.channels.load(Ordering::Relaxed);
            let applications = cut.len().saturating_sub(channels);
            self.flows_cut.store(applications, Ordering::Relaxed);
            cut.iter().for_each(|state| state.reset(end.reset_code()));
            self.work.notify_one();
            self.acknowledged.notify_one();
        }
    }
}

type FlowTable = HashMap<FlowId, Arc<FlowState>>;

/// Takes the flows that the end of the tunnel cuts. A peer that says good-bye has all of those that need it no more; what it sent
/// of them is here and is still read.
fn take_cut(end: &SessionEnd, mux: &Mux, flows: &mut FlowTable) -> Vec<Arc<FlowState>> {
    let is_goodbye = matches!(end, SessionEnd::PeerClosed(_));
    let is_kept = |flow: &FlowId| is_goodbye && mux.is_settled(*flow);
    let (kept, cut): (FlowTable, FlowTable) = std::mem::take(flows)
        .into_iter()
        .partition(|(flow, _)| is_kept(flow));
    *flows = kept;
    cut.into_values().collect()
}

fn wake(state: Option<&Arc<FlowState>>, action: impl FnOnce(&FlowState)) {
    if let Some(state) = state {
        action(state);
    }
}

impl Incoming {
    /// Turns the request into a flow the far server's side can use.
    pub fn accept(self, session: &Arc<Session>) -> FlowHandle {
        session.drive(|mux, _| mux.accept(self.flow));
        let carried = Carried::by(&self.request);
        FlowHandle::new(session.clone(), self.flow, carried, self.state)
    }

    /// Tells the near side why there is no connection.
    pub fn refuse(self, session: &Arc<Session>, why: Refusal) {
        session.drive(|mux, flows| {
            mux.refuse(self.flow, why);
            flows.remove(&self.flow);
        });
    }
}

/// The flow on which the gateways speak of records; it leads to nobody.
fn channel_request() -> OpenRequest {
    let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
    OpenRequest {
        client: nowhere,
        target: Target::Address(nowhere),
        keep_client_address: false,
        class: Class::Control,
        dscp: 0,
        correction: Correction::On,
        items: false,
        payload: Payload::Channel,
    }
}

/// Packets the path lost. Probes for a larger MTU are meant to be lost and are none.
fn packets_lost(path: &noq::PathStats) -> u64 {
    path.lost_packets.saturating_sub(path.lost_plpmtud_probes)
}
