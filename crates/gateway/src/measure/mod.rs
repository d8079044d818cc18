//! `farhaul probe peer`: what the path to a peer carries, measured through the tunnel itself.
//!
//! It is a flow as any other, of class background: whatever a user wants to send goes first, and the tunnel's congestion
//! controller keeps its queue as short as for everybody. Only a peer can ask for it, for 30 s each way at most, one
//! measurement at a time in a gateway, and then not again for as long as the last one took. [`wire`] is what the gateways
//! tell each other, [`course`] sends and watches, [`words`] says what follows for `peer.link`.

mod course;
mod wire;
mod words;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use farhaul_tunnel::{
    Class, Correction, FEATURE_MEASURING, OpenRequest, Payload, Refusal, ResetCode, Target,
};
use tokio::time::{Instant, timeout};

use crate::admin::MeasureRequest;
use crate::admin::status::{MeasuredStatus, MeasuredWay};
use crate::announced::Announced;
use crate::event::{FlowEnd, Reason, refusal_code};
use crate::flow::Facing;
use crate::flow_table::FlowInfo;
use crate::gateway::Gateway;
use crate::lock::lock;
use crate::log::rfc3339;
use crate::peer::Peer;
use crate::session::{FlowHandle, Incoming, OpenOutcome, Session};

use course::{Reader, fill, seen};
use wire::{Arrived, Seen, Wanted};

/// Beyond the two directions themselves: users may have the link for themselves meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);
/// What of the flow is still under way at its end may be so long.
const TAIL_PATIENCE: Duration = Duration::from_secs(5);
/// What the flow table says of where it goes.
const NOBODY: &str = "nobody: the path is measured";

/// Whether one is under way, and what the last ones found.
#[derive(Default)]
pub(crate) struct Measurements {
    is_busy: bool,
    rest_until: Option<Instant>,
    latest: Vec<MeasuredStatus>,
}

impl Measurements {
    /// The last one of a peer.
    pub(crate) fn of(&self, peer: &str) -> Option<MeasuredStatus> {
        let mut latest = self.latest.iter();
        latest.find(|measured| measured.peer == peer).cloned()
    }

    fn begin(&mut self, measured: MeasuredStatus) {
        self.latest.retain(|known| known.peer != measured.peer);
        self.latest.push(measured);
    }

    fn change(&mut self, flow: u64, change: impl FnOnce(&mut MeasuredStatus)) {
        let mut latest = self.latest.iter_mut();
        if let Some(measured) = latest.find(|measured| measured.flow == flow) {
            change(measured);
        }
    }
}

/// The only measurement of this gateway; over when dropped.
struct Turn {
    gateway: Arc<Gateway>,
    begun: Instant,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut measurements = lock(&self.gateway.measurements);
        measurements.is_busy = false;
        measurements.rest_until = Some(Instant::now() + self.begun.elapsed());
    }
}

/// Why a measurement has no result.
enum Failure {
    Cut(ResetCode),
    Refused(Refusal),
    Late,
}

impl From<ResetCode> for Failure {
    fn from(code: ResetCode) -> Self {
        Self::Cut(code)
    }
}

impl Gateway {
    fn turn(self: &Arc<Self>, is_asked: bool) -> Option<Turn> {
        let mut measurements = lock(&self.measurements);
        let now = Instant::now();
        let rests = measurements.rest_until.is_some_and(|until| now < until);
        if measurements.is_busy || (is_asked && rests) {
            return None;
        }
        measurements.is_busy = true;
        Some(Turn {
            gateway: self.clone(),
            begun: now,
        })
    }

    /// Begins to measure the path to a peer, or to the only one.
    pub(crate) fn begin_measuring(
        self: &Arc<Self>,
        request: &MeasureRequest,
    ) -> Result<MeasuredStatus, String> {
        let wanted = wanted(request)?;
        let peer = self.peer_named(
            request.peer.as_deref(),
            "say which peer: `farhaul probe peer NAME`",
        )?;
        let name = peer.config().name;
        let session = self.session_to_measure(&peer)?;
        let busy = "a measurement is under way; wait for its end";
        let turn = self.turn(false).ok_or(busy)?;
        let entry = self.flows.enter(info(&name, Facing::Client));
        let entry = entry.map_err(|_| "there are too many flows (`tunnel.flows_max`)")?;
        let flow = session.open(open_request());
        let flow = flow.map_err(|_| format!("the tunnel to {name} takes no more flows"))?;
        let entry = self.announced(entry);
        entry.carried_by(&flow);
        let measured = MeasuredStatus {
            flow: entry.id,
            peer: name,
            time: rfc3339(SystemTime::now()),
            seconds: wanted.length.as_secs_f64(),
            ..MeasuredStatus::default()
        };
        lock(&self.measurements).begin(measured.clone());
        let told = peer
            .config()
            .link
            .and_then(|link| link.profile.forward.rate);
        let told_bit_per_s = told.map(|rate| rate.bit_per_s() as f64);
        tokio::spawn(async move {
            let gateway = turn.gateway.clone();
            gateway.measure(flow, entry, wanted, told_bit_per_s).await;
            drop(turn);
        });
        Ok(measured)
    }

    fn session_to_measure(&self, peer: &Peer) -> Result<Arc<Session>, String> {
        let name = peer.config().name;
        let tunnels = peer.tunnels();
        let tunnel = peer.tunnel(self.config().tunnel.dead_after);
        let session = tunnel.ok_or_else(|| format!("there is no tunnel to {name}"))?;
        let mut known = tunnels.into_iter();
        let negotiated = known.find(|(known, _)| Arc::ptr_eq(known, &session));
        match negotiated.is_some_and(|(_, with)| with.features & FEATURE_MEASURING != 0) {
            true => Ok(session),
            false => Err(format!(
                "{name} runs a version that cannot measure; update it"
            )),
        }
    }

    async fn measure(
        &self,
        flow: FlowHandle,
        entry: Announced,
        wanted: Wanted,
        told_bit_per_s: Option<f64>,
    ) {
        let change = |change: &dyn Fn(&mut MeasuredStatus)| {
            lock(&self.measurements).change(entry.id, change);
        };
        let work = async {
            match flow.opened().await {
                OpenOutcome::Opened => (),
                OpenOutcome::Refused(why) => return Err(Failure::Refused(why)),
                OpenOutcome::Cut(code) => return Err(Failure::Cut(code)),
            }
            flow.write(wanted.write().to_vec().into()).await?;
            fill(&flow, &entry, wanted.length, wanted.bytes_s_max).await?;
            let here = seen(flow.session());
            flow.finish();
            let mut reader = Reader::new(&flow, &entry);
            let there = Arrived::read(reader.block().await?);
            change(&|measured| {
                measured.there = Some(way(there, here));
                measured.rtt_ms = here.map(|seen| seen.rtt_ns as f64 / 1e6);
            });
            let back = reader.watch(wanted.length).await?;
            // Where the end of the flow waits behind users it is done without.
            let tail = timeout(TAIL_PATIENCE, reader.tail()).await;
            let far = tail.ok().transpose()?.and_then(Seen::read);
            change(&|measured| measured.back = Some(way(back, far)));
            Ok(())
        };
        let outcome = tokio::select! {
            outcome = timeout(wanted.length * 2 + PATIENCE, work) => {
                outcome.unwrap_or(Err(Failure::Late))
            }
            code = flow.cut() => Err(match flow.opened().await {
                OpenOutcome::Refused(why) => Failure::Refused(why),
                _ => Failure::Cut(code),
            }),
            () = entry.cut_requested() => Err(Failure::Cut(ResetCode::Admin)),
        };
        let (end, text) = end_of(&outcome);
        change(&|measured| {
            measured.end = Some(text.clone());
            if outcome.is_ok() {
                words::conclude(measured, wanted.bytes_s_max.is_some(), told_bit_per_s);
            }
        });
        entry.conclude(end);
    }

    /// Lets a peer measure.
    pub(crate) async fn be_measured(self: Arc<Self>, session: Arc<Session>, incoming: Incoming) {
        if self.has_drained() {
            return incoming.refuse(&session, Refusal::Draining);
        }
        if incoming.request.class != Class::Background {
            return incoming.refuse(&session, Refusal::Policy);
        }
        let Some(turn) = self.turn(true) else {
            return incoming.refuse(&session, Refusal::Overload);
        };
        let Ok(entry) = self.flows.enter(info(&session.peer, Facing::Server)) else {
            return incoming.refuse(&session, Refusal::Overload);
        };
        let entry = self.announced(entry);
        let flow = incoming.accept(&session);
        entry.carried_by(&flow);
        let outcome = tokio::select! {
            outcome = timeout(wire::LONGEST * 2 + PATIENCE, answer(&flow, &entry)) => {
                outcome.unwrap_or(Err(Failure::Late))
            }
            code = flow.cut() => Err(Failure::Cut(code)),
            () = entry.cut_requested() => Err(Failure::Cut(ResetCode::Admin)),
        };
        if let Err(Failure::Late | Failure::Cut(ResetCode::Admin | ResetCode::Protocol)) = &outcome
        {
            flow.reset(ResetCode::Admin);
        }
        entry.conclude(end_of(&outcome).0);
        drop(turn);
    }
}

/// What the asked gateway does.
async fn answer(flow: &FlowHandle, entry: &Announced) -> Result<(), Failure> {
    let mut reader = Reader::new(flow, entry);
    let wanted = Wanted::read(reader.block().await?).ok_or(ResetCode::Protocol)?;
    let arrived = reader.watch(wanted.length).await?;
    flow.write(arrived.write().to_vec().into()).await?;
    fill(flow, entry, wanted.length, wanted.bytes_s_max).await?;
    if let Some(seen) = seen(flow.session()) {
        flow.write(seen.write().to_vec().into()).await?;
    }
    flow.finish();
    reader.drain().await?;
    Ok(())
}

fn wanted(request: &MeasureRequest) -> Result<Wanted, String> {
    let longest = wire::LONGEST.as_secs_f64();
    if !(1.0..=longest).contains(&request.seconds) {
        return Err(format!("a measurement takes 1 to {longest} s each way"));
    }
    let bound = request.bit_per_s_max.map(|most| most / 8.0);
    if bound.is_some_and(|most| !(1000.0..=1e12).contains(&most)) {
        return Err("the most that may be sent is at least 8 kbit/s".to_owned());
    }
    Ok(Wanted {
        length: Duration::from_secs_f64(request.seconds),
        bytes_s_max: bound.map(|most| most as u64),
    })
}

fn way(arrived: Arrived, sender: Option<Seen>) -> MeasuredWay {
    MeasuredWay {
        bit_per_s: arrived.bit_per_s(),
        loss_ratio: sender.map(|seen| f64::from(seen.loss_ppb) / 1e9),
        queue_ms: sender.map(|seen| seen.queue_ns as f64 / 1e6),
        phase: sender.map_or_else(String::new, |seen| seen.phase.word().to_owned()),
    }
}

fn end_of(outcome: &Result<(), Failure>) -> (FlowEnd, String) {
    let end = match outcome {
        Ok(()) => return (FlowEnd::Closed, "measured".to_owned()),
        Err(Failure::Refused(Refusal::Overload)) => {
            let busy = "the peer measures already, or has just done so; try again in a minute";
            return (FlowEnd::Refused, busy.to_owned());
        }
        Err(Failure::Refused(why)) => return (FlowEnd::Refused, refusal_code(*why).to_owned()),
        Err(Failure::Late) => {
            let late = "users had the link for themselves all the time, or the peer is stuck";
            return (FlowEnd::Failed, late.to_owned());
        }
        Err(Failure::Cut(ResetCode::Admin)) => FlowEnd::ResetByOperator,
        Err(Failure::Cut(ResetCode::TunnelLost)) => FlowEnd::PeerLost,
        Err(Failure::Cut(ResetCode::PeerRestarted)) => FlowEnd::PeerRestarted,
        Err(Failure::Cut(_)) => FlowEnd::Failed,
    };
    (end, end.to_string())
}

fn info(peer: &str, facing: Facing) -> FlowInfo {
    FlowInfo {
        peer: peer.to_owned(),
        client: nowhere(),
        destination: NOBODY.to_owned(),
        rule: "probe peer".to_owned(),
        class: Class::Background,
        reason: Reason::Optimised,
        facing,
        writes_behind: true,
    }
}

fn nowhere() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

fn open_request() -> OpenRequest {
    OpenRequest {
        client: nowhere(),
        target: Target::Address(nowhere()),
        keep_client_address: false,
        class: Class::Background,
        dscp: 0,
        correction: Correction::Off,
        items: false,
        payload: Payload::Measuring,
    }
}
