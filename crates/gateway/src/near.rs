//! The near side of a connection: the client is here, the server is behind a
//! peer. Decides whether a connection goes through the tunnel, and what the
//! client sees while the far side connects.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use farhaul_tunnel::{Correction, OpenRequest, Payload, Refusal, ResetCode, Target};
use tokio::net::TcpStream;

use crate::announced::Announced;
use crate::config::meaning::{ClientAddress, Compression, Optimise, Reduction, Rule, Switch};
use crate::event::{Event, FlowEnd, Reason, refusal_code};
use crate::flow::{Facing, carry};
use crate::flow_table::{Entry, FlowInfo};
use crate::gateway::Gateway;
use crate::intercept::{Attempt, Verdict, arm_reset};
use crate::lock::lock;
use crate::rules::{Destination, first_match};
use crate::session::{FlowHandle, OpenOutcome, Session};

/// How long the flow of an accepted SYN waits for the client to complete its
/// handshake. A client on the LAN that has not gave up; should it complete all
/// the same, its flow is opened anew.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Attempts between SYN and connection at most; beyond it they go direct.
const PENDING_MAX: usize = 16_384;

/// Where a connection goes.
pub(crate) enum Way {
    Direct(Reason),
    Tunnel(Route),
}

/// A connection that goes through the tunnel.
pub(crate) struct Route {
    session: Arc<Session>,
    peer: String,
    request: OpenRequest,
    rule: String,
    writes_behind: bool,
}

/// A SYN that was let through to our listener.
enum Admitted {
    /// The far side is connected already.
    Connected(FlowHandle, Announced),
    /// The destination is known to be up: connect when the client has sent.
    /// Its place is taken already, or more would be let through than fit.
    Early(Route, Entry),
}

/// SYNs let through whose connection has not arrived yet.
#[derive(Default)]
pub(crate) struct Pending {
    waiting: HashMap<(SocketAddr, SocketAddr), (Instant, Admitted)>,
}

impl Pending {
    /// Drops what the clients have given up; their flows are reset.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.waiting
            .retain(|_, (since, _)| now.saturating_duration_since(*since) < HANDSHAKE_MAX);
    }
}

impl Gateway {
    /// Answers a held SYN.
    pub(crate) async fn decide(self: &Arc<Self>, attempt: Attempt) -> Verdict {
        let target = Target::Address(attempt.destination);
        let way = self.way(attempt.client, &target, attempt.dscp, ClientAddress::Keep);
        let route = match way {
            Way::Tunnel(_) if lock(&self.pending).waiting.len() >= PENDING_MAX => {
                return self.direct(attempt, Reason::Overload);
            }
            Way::Tunnel(route) => route,
            Way::Direct(reason) => return self.direct(attempt, reason),
        };
        // A peer that may be gone is asked, however well the server is known.
        let is_known_up = lock(&self.known_up).contains(Instant::now(), attempt.destination);
        if is_known_up && route.session.is_lively() {
            return match self.enter(&route) {
                Ok(entry) => {
                    self.expect(attempt, Admitted::Early(route, entry));
                    Verdict::Proxy
                }
                Err(_) => self.direct(attempt, Reason::Overload),
            };
        }
        match self.open(&route).await {
            Ok((flow, entry)) => {
                self.expect(attempt, Admitted::Connected(flow, entry));
                Verdict::Proxy
            }
            Err(Unopened::Direct(reason)) => self.direct(attempt, reason),
            Err(Unopened::Refused(why)) => {
                self.events.emit(Event::OpenFailed {
                    client: attempt.client,
                    destination: attempt.destination.to_string(),
                    refusal: refusal_code(why),
                });
                verdict_of(why)
            }
        }
    }

    /// Serves a connection whose SYN was let through.
    pub(crate) async fn intercepted(self: &Arc<Self>, attempt: Attempt, stream: TcpStream) {
        let key = (attempt.client, attempt.destination);
        let admitted = lock(&self.pending).waiting.remove(&key);
        let opened = match admitted {
            Some((_, Admitted::Connected(flow, entry))) => Ok((flow, entry)),
            Some((_, Admitted::Early(route, entry))) => self.open_on_trust(&route, entry),
            // Let through by an earlier process or given up too soon.
            None => {
                let target = Target::Address(attempt.destination);
                match self.way(attempt.client, &target, attempt.dscp, ClientAddress::Keep) {
                    Way::Tunnel(route) => self
                        .enter(&route)
                        .and_then(|entry| self.open_on_trust(&route, entry)),
                    Way::Direct(reason) => Err(Unopened::Direct(reason)),
                }
            }
        };
        match opened {
            Ok((flow, entry)) => {
                self.serve(stream, Bytes::new(), flow, entry, Some(attempt.destination))
                    .await
            }
            // The client's handshake is done; RST is all that is left to say.
            Err(_) => drop(arm_reset(&stream)),
        }
    }

    /// Carries a flow to its end and reports it.
    pub(crate) async fn serve(
        &self,
        stream: TcpStream,
        leftover: Bytes,
        flow: FlowHandle,
        entry: Announced,
        destination: Option<SocketAddr>,
    ) {
        let dead_after = self.config().tunnel.dead_after;
        let answer = async {
            let outcome = tokio::select! {
                outcome = flow.opened() => outcome,
                // Accepted on trust, and the peer has gone since: nobody has
                // seen the request, so the client may as well ask again.
                () = silent(flow.session(), dead_after) => {
                    destination.iter().for_each(|to| lock(&self.known_up).failed(*to));
                    return FlowEnd::PeerLost;
                }
            };
            match (outcome, destination) {
                (OpenOutcome::Opened, Some(to)) => {
                    lock(&self.known_up).answered(Instant::now(), to);
                }
                (OpenOutcome::Refused(_), Some(to)) => {
                    lock(&self.known_up).failed(to);
                    return FlowEnd::Refused;
                }
                _ => {}
            }
            std::future::pending().await
        };
        let end = tokio::select! {
            biased;
            end = answer => end,
            end = carry(stream, Facing::Client, leftover, &flow, &entry, &self.events) => end,
        };
        entry.conclude(end);
    }

    fn expect(&self, attempt: Attempt, admitted: Admitted) {
        let key = (attempt.client, attempt.destination);
        lock(&self.pending)
            .waiting
            .insert(key, (Instant::now(), admitted));
    }

    /// The SYN went direct after all: resets what was opened for it.
    pub(crate) fn forget(&self, attempt: Attempt) {
        let key = (attempt.client, attempt.destination);
        lock(&self.pending).waiting.remove(&key);
    }

    fn direct(&self, attempt: Attempt, reason: Reason) -> Verdict {
        self.count_direct(reason);
        self.events.emit(Event::WentDirect {
            client: attempt.client,
            destination: attempt.destination.to_string(),
            reason,
        });
        Verdict::Direct
    }

    pub(crate) fn count_direct(&self, reason: Reason) {
        self.direct_since_start.fetch_add(1, Ordering::Relaxed);
        if reason == Reason::AsymmetricReturn {
            lock(&self.asymmetric_returns).happened(Instant::now());
        }
    }

    /// Where a connection goes, by switch, rule and the state of the peer.
    pub(crate) fn way(
        &self,
        client: SocketAddr,
        target: &Target,
        dscp: u8,
        client_address: ClientAddress,
    ) -> Way {
        if self.is_draining() {
            return Way::Direct(Reason::Draining);
        }
        if self.is_bypassed() {
            return Way::Direct(Reason::Bypass);
        }
        let config = self.config();
        let rule = first_match(&config.rules, client, &destination(target));
        if rule.optimise == Optimise::Direct || rule.transport == Switch::Off {
            return Way::Direct(Reason::Rule);
        }
        let Some(peer) = self.peer_for(target) else {
            return Way::Direct(Reason::NoPeer);
        };
        let Some(session) = peer.tunnel(config.tunnel.dead_after) else {
            return Way::Direct(match peer.is_draining(config.tunnel.dead_after) {
                true => Reason::Draining,
                false if peer.is_narrow() => Reason::PathTooNarrow,
                false => Reason::PeerDown,
            });
        };
        if self.flows.is_full() || !self.has_descriptors(1) {
            return Way::Direct(Reason::Overload);
        }
        let request = OpenRequest {
            client,
            target: target.clone(),
            keep_client_address: keeps(client, rule, client_address),
            class: rule.class,
            dscp,
            correction: correction(rule.fec),
            items: rule.optimise != Optimise::Opaque && session.has_optimisers(),
            payload: payload(rule, &session),
        };
        Way::Tunnel(Route {
            session,
            peer: peer.config().name,
            request,
            rule: rule.name.clone(),
            writes_behind: rule.write_behind != Switch::Off,
        })
    }

    /// Opens a flow and waits for the far side's answer.
    pub(crate) async fn open(
        self: &Arc<Self>,
        route: &Route,
    ) -> Result<(FlowHandle, Announced), Unopened> {
        let entry = self.enter(route)?;
        let flow = open_early(route)?;
        let tunnel = self.config().tunnel.clone();
        let outcome = tokio::select! {
            outcome = flow.opened() => outcome,
            () = silent(&route.session, tunnel.dead_after) => {
                return Err(Unopened::Direct(Reason::PeerDown));
            }
            () = tokio::time::sleep(tunnel.open_timeout) => OpenOutcome::Refused(Refusal::TimedOut),
        };
        match outcome {
            OpenOutcome::Opened => {
                if let Target::Address(destination) = &route.request.target {
                    lock(&self.known_up).answered(Instant::now(), *destination);
                }
                Ok((flow, self.announced(entry)))
            }
            OpenOutcome::Refused(why) => Err(unopened(why)),
            OpenOutcome::Cut(ResetCode::Admin) => Err(Unopened::Refused(Refusal::Refused)),
            OpenOutcome::Cut(_) => Err(Unopened::Direct(Reason::PeerDown)),
        }
    }

    /// Opens a flow for a client that was accepted already.
    fn open_on_trust(
        self: &Arc<Self>,
        route: &Route,
        entry: Entry,
    ) -> Result<(FlowHandle, Announced), Unopened> {
        let flow = open_early(route)?;
        Ok((flow, self.announced(entry)))
    }

    /// Takes a place among the flows.
    fn enter(&self, route: &Route) -> Result<Entry, Unopened> {
        let info = FlowInfo {
            peer: route.peer.clone(),
            client: route.request.client,
            destination: text(&route.request.target),
            rule: route.rule.clone(),
            class: route.request.class,
            reason: Reason::Optimised,
            facing: Facing::Client,
            writes_behind: route.writes_behind,
        };
        self.flows
            .enter(info)
            .map_err(|_| Unopened::Direct(Reason::Overload))
    }
}

/// Opens a flow without waiting: the first bytes ride with the open.
fn open_early(route: &Route) -> Result<FlowHandle, Unopened> {
    route
        .session
        .open(route.request.clone())
        .map_err(|_| Unopened::Direct(Reason::Overload))
}

/// Why a flow was not opened.
pub(crate) enum Unopened {
    /// The connection should go around the tunnel.
    Direct(Reason),
    /// The server's answer, for the client to see.
    Refused(Refusal),
}

fn unopened(why: Refusal) -> Unopened {
    match why {
        Refusal::Policy => Unopened::Direct(Reason::PeerPolicy),
        Refusal::AsymmetricReturn => Unopened::Direct(Reason::AsymmetricReturn),
        Refusal::Overload => Unopened::Direct(Reason::Overload),
        Refusal::Internal => Unopened::Direct(Reason::PeerTrouble),
        Refusal::Draining => Unopened::Direct(Reason::Draining),
        other => Unopened::Refused(other),
    }
}

fn verdict_of(why: Refusal) -> Verdict {
    match why {
        Refusal::Refused => Verdict::Refused,
        Refusal::HostUnreachable | Refusal::NameNotFound => Verdict::HostUnreachable,
        Refusal::NetworkUnreachable => Verdict::NetworkUnreachable,
        _ => Verdict::Silent,
    }
}

/// The server may see the client's address unless a rule says otherwise or
/// the client is this very host, whose address means nothing over there.
fn keeps(client: SocketAddr, rule: &Rule, default: ClientAddress) -> bool {
    let address = rule.client_address.unwrap_or(default);
    let local = match client.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    };
    address == ClientAddress::Keep && !local
}

/// Returns when the peer has been silent for `dead_after`.
async fn silent(session: &Session, dead_after: Duration) {
    loop {
        match dead_after.checked_sub(session.silence()) {
            None | Some(Duration::ZERO) => return,
            Some(left) => tokio::time::sleep(left).await,
        }
    }
}

pub(crate) fn text(target: &Target) -> String {
    match target {
        Target::Address(address) => address.to_string(),
        Target::Host { name, port } => format!("{name}:{port}"),
    }
}

/// What the flow's bytes are: records, where both gateways can and the rule does not forbid it.
fn payload(rule: &Rule, session: &Session) -> Payload {
    let eliminated = rule.reduction != Reduction::Off;
    let compressed = rule.compression != Compression::Off;
    let level = match rule.compression {
        Compression::Level(level) => Some(level),
        Compression::Auto | Compression::Off => None,
    };
    match session.reduction() {
        Some(_) if eliminated || compressed => Payload::Records {
            eliminated,
            compressed,
            level,
        },
        _ => Payload::Plain,
    }
}

fn correction(fec: Switch) -> Correction {
    match fec {
        Switch::Auto => Correction::Auto,
        Switch::On => Correction::On,
        Switch::Off => Correction::Off,
    }
}

fn destination(target: &Target) -> Destination {
    match target {
        Target::Address(address) => Destination::from(*address),
        Target::Host { name, port } => Destination::new(name, *port),
    }
}
