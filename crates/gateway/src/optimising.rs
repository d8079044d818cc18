//! A flow with an optimiser: what its half wants done, done.
//!
//! ```text
//! application TCP ── outbound ──┐        ┌── out ── flow
//!                               │  Half  │
//! application TCP ── delivery ──┘        └── intake ── flow
//! ```
//! The half is one machine between both directions: what arrives from either side can be answered to the same side. So
//! what it wants written waits in two queues. A side is read only while the queue to the other side is short; what
//! a half answers by itself is bounded by what it was asked. But a server that may want an oplock back, which the half
//! holds in the client's place, is heard also while the flow takes nothing: somebody waits for that.

use std::collections::VecDeque;
use std::net::Shutdown;
use std::pin::pin;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bytes::Bytes;
use farhaul_optimise::{Event as HalfEvent, Half, Output, Settings};
use farhaul_tunnel::{PathView, ResetCode};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::event::{Event, Reason};
use crate::events::Events;
use crate::flow::{Facing, Failure, application, fitted, read, write};
use crate::flow_table::FlowRecord;
use crate::leave::hear_out;
use crate::lock::lock;
use crate::quic::controller::Reach;
use crate::reduction::{Inbound, Outbound};
use crate::session::{FlowHandle, Session};

/// While the link's rate is not known, bytes per second: reading ahead begins small and grows.
const RATE_BYTES_S_ASSUMED: u64 = 1_250_000;
/// More of the peer's bytes are not taken while so many wait for the application.
const LOCAL_BYTES_MAX: usize = 256 << 10;
/// Nor while the half holds so many back until the application has answered.
const HELD_BYTES_MAX: usize = 8 << 20;
/// A server that may want an oplock back is not left unread for longer: Samba 4.15 and later give the file to others, and end the
/// connection, where the word of that was not taken within six retransmission times, 1.2 s here.
const UNREAD_MAX: Duration = Duration::from_millis(200);
/// So much is read at a time,
const OVERHEARD_BYTES: usize = 64 << 10;
/// the client's requests wait while so much of what it says is unsent,
const ASKED_BYTES_MAX: usize = 32 << 20;
/// what they had asked for before that is kept up to here,
const UNSENT_BYTES_MAX: usize = 64 << 20;
/// and with more the connection ends in time for whoever wants the oplock: a server waits 35 s, Samba 32 s.
const DEAF_MAX: Duration = Duration::from_secs(25);
/// How long such a connection's server is kept after the end, so that the other gateway knows before others get the file.
const FAREWELL: Duration = Duration::from_secs(3);
/// How long the server may take for what a client, now gone, was told it has: what is answered early is a few seconds of the link.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// How often the half is told what is known of the link.
const LINK_NEWS: Duration = Duration::from_millis(100);
/// How often a half that waits is asked again while the peer is silent.
const SILENCE_LOOK: Duration = Duration::from_millis(250);

/// One flow's optimiser.
pub struct Optimising<'a> {
    flow: &'a FlowHandle,
    record: &'a FlowRecord,
    events: &'a Events,
    started: Instant,
    shared: Mutex<Shared>,
    /// Something is to be sent to the peer.
    for_peer: Notify,
    /// Something is to be written to the application.
    for_local: Notify,
    /// What was to be written has been.
    has_room: Notify,
    /// The half may owe its client nothing any more.
    has_settled: Notify,
}

struct Shared {
    half: Half,
    peer: VecDeque<Bytes>,
    peer_bytes: usize,
    local: VecDeque<Bytes>,
    local_bytes: usize,
    has_peer_ended: bool,
    has_local_ended: bool,
    is_cut: bool,
    wake_ns: Option<u64>,
    /// When the half was told of the link, and what.
    link_told: Instant,
    reach_told: Reach,
    /// Since when the application has not been read.
    unread_since: Option<Instant>,
    /// Since when it could not be, although it should.
    deaf_since: Option<Instant>,
}

impl Shared {
    /// Whether more of the peer's bytes would only lie here, or ask for more than can be kept.
    fn is_full(&self) -> bool {
        let asks = self.peer_bytes > ASKED_BYTES_MAX && self.half.must_listen();
        asks || self.local_bytes > LOCAL_BYTES_MAX || self.half.held_bytes() > HELD_BYTES_MAX
    }

    fn tell_link(&mut self, session: &Session) {
        self.link_told = Instant::now();
        self.reach_told = session.reach();
        self.half.handle_link(&link(session, self.reach_told));
    }

    /// When the application must be read, whether or not the flow takes what it says.
    fn listens(&self) -> Option<Instant> {
        let since = self.unread_since?;
        let may_listen = self.peer_bytes <= UNSENT_BYTES_MAX && self.half.must_listen();
        may_listen.then_some(since + UNREAD_MAX)
    }

    /// When to give up listening.
    fn deaf_due(&mut self) -> Option<Instant> {
        let is_deaf = self.peer_bytes > UNSENT_BYTES_MAX && self.half.must_listen();
        let since = self.deaf_since.unwrap_or_else(Instant::now);
        self.deaf_since = is_deaf.then_some(since);
        Some(self.deaf_since? + DEAF_MAX)
    }
}

impl<'a> Optimising<'a> {
    /// For a flow that carries items.
    pub fn new(
        flow: &'a FlowHandle,
        facing: Facing,
        record: &'a FlowRecord,
        events: &'a Events,
    ) -> Self {
        let reach_told = flow.session().reach();
        let settings = link(flow.session(), reach_told);
        let half = match facing {
            Facing::Client if record.info.writes_behind => Half::near(settings),
            Facing::Client => Half::near(settings).without_write_behind(),
            Facing::Server => Half::far(settings),
        };
        let started = Instant::now();
        let shared = Shared {
            half,
            peer: VecDeque::new(),
            peer_bytes: 0,
            local: VecDeque::new(),
            local_bytes: 0,
            has_peer_ended: false,
            has_local_ended: false,
            is_cut: false,
            wake_ns: None,
            link_told: started,
            reach_told,
            unread_since: None,
            deaf_since: None,
        };
        Self {
            flow,
            record,
            events,
            started,
            shared: Mutex::new(shared),
            for_peer: Notify::new(),
            for_local: Notify::new(),
            has_room: Notify::new(),
            has_settled: Notify::new(),
        }
    }

    /// Moves bytes both ways until both directions have ended or one has failed.
    pub async fn carry(
        &self,
        app: &TcpStream,
        leftover: Bytes,
        out: Outbound,
        back: Inbound,
    ) -> Result<Outbound, Failure> {
        self.handle(|half, now_ns| {
            if !leftover.is_empty() {
                self.record.sent(leftover.len());
                half.handle_local(now_ns, leftover);
            }
        });
        let (out, (), ()) = tokio::try_join!(
            self.outbound(app, out),
            self.intake(back),
            self.delivery(app),
        )?;
        Ok(out)
    }

    async fn outbound(&self, app: &TcpStream, mut out: Outbound) -> Result<Outbound, Failure> {
        let mut is_open = true;
        loop {
            while let Some(batch) = self.take_for_peer(out.batch_bytes(self.flow, usize::MAX)) {
                let sending = out.send(self.flow, batch);
                self.meanwhile(app, &mut is_open, sending).await?;
            }
            let (has_ended, wake) = self.look()?;
            if has_ended {
                break;
            }
            tokio::select! {
                () = self.for_peer.notified() => {}
                () = tokio::time::sleep_until(wake.into()) => {
                    self.handle(|half, now_ns| half.handle_timeout(now_ns));
                }
                () = self.reach_exceeded() => self.handle_link(),
                bytes = self.next(app, &out), if is_open => self.hear(bytes, &mut is_open)?,
            }
        }
        self.flow.finish();
        Ok(out)
    }

    /// Does what cannot wait until something is sent: what the half wanted to be woken for, and to hear a server.
    async fn meanwhile(
        &self,
        app: &TcpStream,
        is_open: &mut bool,
        sending: impl Future<Output = Result<(), ResetCode>>,
    ) -> Result<(), Failure> {
        let mut sending = pin!(sending);
        self.leave_unread();
        loop {
            let (_, wake) = self.look()?;
            tokio::select! {
                biased;
                sent = &mut sending => return sent.map_err(Failure::Flow),
                () = tokio::time::sleep_until(wake.into()) => {
                    self.handle(|half, now_ns| half.handle_timeout(now_ns));
                }
                () = self.reach_exceeded() => self.handle_link(),
                bytes = self.overhear(app), if *is_open => self.hear(bytes, is_open)?,
                () = self.for_peer.notified() => {}
            }
        }
    }

    /// The application has said something, has ended, or is gone.
    fn hear(&self, bytes: Result<Bytes, Failure>, is_open: &mut bool) -> Result<(), Failure> {
        let Some(bytes) = self.unless_owed(bytes)? else {
            *is_open = false;
            return Ok(());
        };
        *is_open = !bytes.is_empty();
        if bytes.is_empty() && lock(&self.shared).half.must_break() {
            return Err(Failure::Application(ResetCode::Application));
        }
        self.record.sent(bytes.len());
        self.handle(|half, now_ns| match bytes.is_empty() {
            true => half.handle_local_end(),
            false => half.handle_local(now_ns, bytes),
        });
        Ok(())
    }

    /// What became of the application's connection. Nothing, where it broke and something is owed: what is under way goes on until
    /// [`Optimising::settled`].
    fn unless_owed<T>(&self, result: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match result {
            Ok(done) => Ok(Some(done)),
            Err(Failure::Application(_)) if lock(&self.shared).half.owes() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Behind the end of a client: the server has what the client was told it has, or will not have it in time.
    pub async fn settled(&self) {
        let settled = async {
            while lock(&self.shared).half.owes() {
                self.has_settled.notified().await;
            }
        };
        let _ = tokio::time::timeout(SETTLED_WITHIN, settled).await;
    }

    /// The application's next bytes, when the flow has room for them, or when they cannot wait.
    async fn next(&self, app: &TcpStream, out: &Outbound) -> Result<Bytes, Failure> {
        self.leave_unread();
        tokio::select! {
            biased;
            room_bytes = self.flow.room() => {
                let room_bytes = room_bytes.map_err(Failure::Flow)?;
                lock(&self.shared).unread_since = None;
                let batch_bytes = out.batch_bytes(self.flow, room_bytes);
                read(app, batch_bytes).await.map_err(application)
            }
            bytes = self.overhear(app) => bytes,
        }
    }

    fn leave_unread(&self) {
        lock(&self.shared)
            .unread_since
            .get_or_insert_with(Instant::now);
    }

    /// The application's next bytes, when they cannot wait.
    async fn overhear(&self, app: &TcpStream) -> Result<Bytes, Failure> {
        let listens = lock(&self.shared).listens();
        match listens {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
        read(app, OVERHEARD_BYTES).await.map_err(application)
    }

    /// Behind a failure: says what the client was told is written, and may not be at the server.
    pub fn tell_lost(&self) {
        let bytes = lock(&self.shared).half.owed_bytes();
        if bytes > 0 {
            let info = &self.record.info;
            self.events.emit(Event::WritesLost {
                flow: self.record.id,
                peer: info.peer.clone(),
                client: info.client,
                destination: info.destination.clone(),
                bytes,
            });
        }
    }

    /// Behind a failure, of a server of which an oplock is borrowed. If the end is ours, the other gateway may hold what others
    /// are about to change, who wait for the oplock that ends with the server's connection: it is to know first.
    pub async fn take_leave(&self, app: &TcpStream, is_ours: bool) {
        if is_ours {
            self.flow.reset(ResetCode::Protocol);
        }
        if !lock(&self.shared).half.must_listen() {
            return;
        }
        if is_ours {
            tokio::time::sleep(FAREWELL).await;
        }
        hear_out(app).await;
    }

    async fn intake(&self, mut back: Inbound) -> Result<(), Failure> {
        loop {
            while lock(&self.shared).is_full() {
                self.has_room.notified().await;
            }
            let Some(bytes) = back.next(self.flow).await.map_err(Failure::Flow)? else {
                self.handle(|half, _| half.handle_peer_end());
                return Ok(());
            };
            self.handle(|half, now_ns| half.handle_peer(now_ns, bytes));
        }
    }

    async fn delivery(&self, app: &TcpStream) -> Result<(), Failure> {
        loop {
            while let Some(bytes) = self.take_for_local() {
                self.record.received(bytes.len());
                self.unless_owed(write(app, bytes).await)?;
                self.has_room.notify_one();
            }
            if self.is_written()? {
                let socket = SockRef::from(app);
                return socket.shutdown(Shutdown::Write).map_err(application);
            }
            self.for_local.notified().await;
        }
    }

    /// Waits until the link needs more than the half was told: it may read further ahead, and a client that waits for its first
    /// bytes says nothing.
    async fn reach_exceeded(&self) {
        let told = {
            let shared = lock(&self.shared);
            shared.half.reads_ahead().then_some(shared.reach_told)
        };
        match told {
            Some(told) => self.flow.session().reach_exceeded(told).await,
            None => std::future::pending().await,
        }
    }

    fn handle_link(&self) {
        lock(&self.shared).tell_link(self.flow.session());
        self.handle(|_, _| {});
    }

    /// Lets the half do one thing, then puts what it wants done where it is done.
    fn handle(&self, operation: impl FnOnce(&mut Half, u64)) {
        let mut shared = lock(&self.shared);
        let now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if shared.link_told.elapsed() >= LINK_NEWS {
            shared.tell_link(self.flow.session());
        }
        let session = self.flow.session();
        shared
            .half
            .handle_hearing(now_ns, session.is_lively(), session.is_sure());
        operation(&mut shared.half, now_ns);
        self.drain(&mut shared);
        self.record.optimised(shared.half.stats());
        drop(shared);
        self.for_peer.notify_one();
        self.for_local.notify_one();
        self.has_room.notify_one();
        self.has_settled.notify_one();
    }

    fn drain(&self, shared: &mut Shared) {
        shared.wake_ns = loop {
            match shared.half.poll_output() {
                Output::Peer(bytes) => {
                    shared.peer_bytes += bytes.len();
                    shared.peer.push_back(bytes);
                }
                Output::Local(bytes) => {
                    shared.local_bytes += bytes.len();
                    shared.local.push_back(bytes);
                }
                Output::PeerEnd => shared.has_peer_ended = true,
                Output::LocalEnd => shared.has_local_ended = true,
                Output::Cut(_) => shared.is_cut = true,
                Output::Event(event) => self.tell(event),
                Output::Timeout(at_ns) => break Some(at_ns),
                Output::Idle => break None,
            }
        };
    }

    fn tell(&self, event: HalfEvent) {
        let info = &self.record.info;
        match event {
            HalfEvent::Recognised(protocol) => {
                self.record.recognised(protocol);
                self.events.emit(Event::Recognised {
                    flow: self.record.id,
                    peer: info.peer.clone(),
                    protocol: protocol.name(),
                });
            }
            HalfEvent::GaveUp(reason) => {
                self.record.gave_up(reason);
                // One of the two tells; of what nobody could optimise nobody wants to hear.
                if info.facing == Facing::Client && Reason::of_optimiser(reason).is_some() {
                    self.events.emit(Event::NotOptimised {
                        flow: self.record.id,
                        peer: info.peer.clone(),
                        reason: reason.code(),
                    });
                }
            }
        }
    }

    /// Whether the application has been given everything there will be.
    fn is_written(&self) -> Result<bool, Failure> {
        let shared = lock(&self.shared);
        match shared.is_cut {
            true => Err(Failure::Flow(ResetCode::Protocol)),
            false => Ok(shared.has_local_ended && shared.local.is_empty()),
        }
    }

    /// Whether the peer has been sent everything there will be, and when to look again.
    fn look(&self) -> Result<(bool, Instant), Failure> {
        let mut shared = lock(&self.shared);
        let deaf_due = shared.deaf_due();
        shared.is_cut |= deaf_due.is_some_and(|due| due <= Instant::now());
        if shared.is_cut {
            return Err(Failure::Flow(ResetCode::Protocol));
        }
        let has_ended = shared.has_peer_ended && shared.peer.is_empty();
        // Only what was recognised can have something that waits; and a half that waits for the peer itself may not wait as long
        // when that is silent.
        let is_known = self.record.optimiser().protocol.is_some();
        let is_waiting = shared.wake_ns.is_some() && shared.half.must_listen();
        let idle = match is_waiting || (is_known && !self.flow.session().is_lively()) {
            true => SILENCE_LOOK,
            false => Duration::from_secs(3600),
        };
        let due = shared
            .wake_ns
            .map(|at_ns| self.started + Duration::from_nanos(at_ns));
        let later = Instant::now() + idle;
        let wakes = [due, deaf_due].into_iter().flatten();
        Ok((has_ended, wakes.fold(later, Instant::min)))
    }

    /// What lies ready for the peer, as one piece of at most so many bytes, or the first as it is.
    fn take_for_peer(&self, bytes_max: usize) -> Option<Bytes> {
        let mut shared = lock(&self.shared);
        let first = shared.peer.pop_front()?;
        self.has_room.notify_one();
        shared.peer_bytes -= first.len();
        let fits = |bytes: usize, next: Option<&Bytes>| {
            next.is_some_and(|next| bytes.saturating_add(next.len()) <= bytes_max)
        };
        if !fits(first.len(), shared.peer.front()) {
            return Some(first);
        }
        let mut joined = first.to_vec();
        while fits(joined.len(), shared.peer.front()) {
            if let Some(next) = shared.peer.pop_front() {
                shared.peer_bytes -= next.len();
                joined.extend_from_slice(&next);
            }
        }
        Some(fitted(joined))
    }

    fn take_for_local(&self) -> Option<Bytes> {
        let mut shared = lock(&self.shared);
        let bytes = shared.local.pop_front()?;
        shared.local_bytes -= bytes.len();
        Some(bytes)
    }
}

/// What a flow may have of the link towards the peer.
fn link(session: &Session, reach: Reach) -> Settings {
    let rate_bytes_s = match reach.rate_bytes_s {
        0 => RATE_BYTES_S_ASSUMED,
        known => known,
    };
    // One at least.
    let rate_bytes_s = (rate_bytes_s as f64 / session.sharers()) as u64;
    let rtt_ns = u64::try_from(session.rtt().as_nanos()).unwrap_or(u64::MAX);
    // One that is missing holds up all that is behind it, and the first one is missing before it is known that packets are lost.
    let loss = reach.loss.max(session.loss_unseen());
    let settings = Settings::of_link(rate_bytes_s, rtt_ns).with_loss(loss);
    match session.path() {
        Some(path) => on_path(settings, rate_bytes_s, &path),
        None => settings,
    }
}

/// The same link, with what the congestion controller has found out about its path, and what it has not yet.
fn on_path(settings: Settings, rate_bytes_s: u64, path: &PathView) -> Settings {
    let settings = settings.with_idle_rtt(rate_bytes_s, path.base_rtt_ns);
    let settings = match path.is_climbing() {
        true => settings.with_least_rate(),
        false => settings,
    };
    match path.is_new() {
        true => settings.while_new(),
        false => settings,
    }
}

#[cfg(test)]
mod tests {
    use farhaul_tunnel::{Controller, PathSettings};

    use super::*;

    /// What was known of 51.84 Mbit/s, 250 ms one way and 10 % loss when a client opened its first file.
    #[test]
    fn a_link_whose_rate_is_being_found_is_not_taken_for_a_slow_one() {
        const RATE_BYTES_S: u64 = 4_260;
        const RTT_NS: u64 = 500_000_000;
        let slow = Settings::of_link(RATE_BYTES_S, RTT_NS);
        let new = PathView {
            base_rtt_ns: RTT_NS,
            ..Controller::new(PathSettings::default(), 1200).view()
        };
        assert!(on_path(slow, RATE_BYTES_S, &new).is_quick);
        let known = PathView {
            phase: "cruise",
            ..new
        };
        assert!(!on_path(slow, RATE_BYTES_S, &known).is_quick);
    }
}
