//! `farhaul cache warm`: a file is sent to a peer before anybody asks for it, so that both gateways remember it.
//!
//! It is a flow as any other, of class background and in records; the far gateway reads it and gives it to nobody.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::BytesMut;
use farhaul_tunnel::{
    Class, Correction, FEATURE_WARMING, OpenRequest, Payload, Refusal, ResetCode, Target,
};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use crate::admin::status::WarmingStatus;
use crate::announced::Announced;
use crate::event::{FlowEnd, Reason, refusal_code};
use crate::flow::Facing;
use crate::flow_table::FlowInfo;
use crate::gateway::Gateway;
use crate::lock::lock;
use crate::peer::Peer;
use crate::reduction::{self, Outbound};
use crate::session::{FlowHandle, Incoming, OpenOutcome, Session};

/// Files that are remembered to have been sent.
const WARMINGS_MAX: usize = 64;
/// What the flow table says of where it goes.
const NOBODY: &str = "nobody: both gateways remember it";

/// Files under way, and the last ones that were.
#[derive(Default)]
pub(crate) struct Warmings(VecDeque<WarmingStatus>);

impl Warmings {
    /// All that are remembered, oldest first.
    pub(crate) fn all(&self) -> Vec<WarmingStatus> {
        self.0.iter().cloned().collect()
    }

    fn begin(&mut self, warming: WarmingStatus) {
        if self.0.len() >= WARMINGS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(warming);
    }

    fn change(&mut self, flow: u64, change: impl FnOnce(&mut WarmingStatus)) {
        if let Some(warming) = self.0.iter_mut().find(|warming| warming.flow == flow) {
            change(warming);
        }
    }
}

/// Why a file could not be sent to its end.
enum Failure {
    File(std::io::Error),
    Flow(ResetCode),
    Refused(Refusal),
}

impl Gateway {
    /// Begins to send a file to a peer, or to the only one; says what flow it is.
    pub(crate) async fn begin_warming(
        self: &Arc<Self>,
        path: PathBuf,
        peer: Option<String>,
    ) -> Result<WarmingStatus, String> {
        let peer = self.peer_named(peer.as_deref(), "say which peer shall have it: --peer NAME")?;
        let name = peer.config().name;
        let session = self.session_to_warm(&peer)?;
        let memory_bytes = peer.store().figures().capacity_bytes;
        if memory_bytes == 0 {
            return Err(format!(
                "{name} has not said yet what it remembers; try again in a moment"
            ));
        }
        let (file, file_bytes) = open(&path).await?;
        let info = FlowInfo {
            peer: name.clone(),
            client: nowhere(),
            destination: NOBODY.to_owned(),
            rule: "cache warm".to_owned(),
            class: Class::Background,
            reason: Reason::Optimised,
            facing: Facing::Client,
        };
        let entry = self.flows.enter(info);
        let entry = entry.map_err(|_| "there are too many flows (`tunnel.flows_max`)")?;
        let flow = session.open(request());
        let flow = flow.map_err(|_| format!("the tunnel to {name} takes no more flows"))?;
        let entry = self.announced(entry);
        entry.carried_by(&flow);
        let warming = WarmingStatus {
            flow: entry.id,
            peer: name,
            path: path.display().to_string(),
            file_bytes,
            sent_bytes: 0,
            memory_bytes,
            end: None,
        };
        lock(&self.warmings).begin(warming.clone());
        tokio::spawn(self.clone().send_file(file, flow, entry));
        Ok(warming)
    }

    fn session_to_warm(&self, peer: &Peer) -> Result<Arc<Session>, String> {
        let name = peer.config().name;
        let tunnels = peer.tunnels();
        let tunnel = peer.tunnel(self.config().tunnel.dead_after);
        let session = tunnel.ok_or_else(|| format!("there is no tunnel to {name}"))?;
        if session.reduction().is_none() {
            return Err(format!(
                "there is no reduction with {name}: both gateways need `store.memory`"
            ));
        }
        let negotiated = tunnels
            .into_iter()
            .find(|(known, _)| Arc::ptr_eq(known, &session));
        let is_known = negotiated.is_some_and(|(_, with)| with.features & FEATURE_WARMING != 0);
        match is_known {
            true => Ok(session),
            false => Err(format!(
                "{name} runs a version that cannot be warmed; update it"
            )),
        }
    }

    async fn send_file(self: Arc<Self>, file: File, flow: FlowHandle, entry: Announced) {
        let (out, mut back) = reduction::of(&flow);
        let sent = async {
            match flow.opened().await {
                OpenOutcome::Opened => (),
                OpenOutcome::Refused(why) => return Err(Failure::Refused(why)),
                OpenOutcome::Cut(code) => return Err(Failure::Flow(code)),
            }
            let out = self.send_all(file, &flow, &entry, out).await?;
            flow.finish();
            while back.next(&flow).await.map_err(Failure::Flow)?.is_some() {}
            out.settle();
            Ok(())
        };
        let sent = tokio::select! {
            sent = sent => sent,
            code = flow.cut() => Err(Failure::Flow(code)),
            () = entry.cut_requested() => {
                flow.reset(ResetCode::Admin);
                Err(Failure::Flow(ResetCode::Admin))
            }
        };
        let (end, text) = match sent {
            Ok(()) => (FlowEnd::Closed, "sent".to_owned()),
            Err(Failure::File(error)) => (FlowEnd::ResetByClient, error.to_string()),
            Err(Failure::Refused(why)) => (FlowEnd::Refused, refusal_code(why).to_owned()),
            Err(Failure::Flow(code)) => (end_of(code), end_of(code).to_string()),
        };
        lock(&self.warmings).change(entry.id, |warming| warming.end = Some(text));
        entry.conclude(end);
    }

    async fn send_all(
        &self,
        mut file: File,
        flow: &FlowHandle,
        entry: &Announced,
        mut out: Outbound,
    ) -> Result<Outbound, Failure> {
        loop {
            let room_bytes = flow.room().await.map_err(Failure::Flow)?;
            let mut buffer = BytesMut::with_capacity(out.batch_bytes(flow, room_bytes));
            while buffer.len() < buffer.capacity()
                && file.read_buf(&mut buffer).await.map_err(Failure::File)? > 0
            {}
            if buffer.is_empty() {
                return Ok(out);
            }
            let bytes = buffer.len();
            out.send(flow, buffer.freeze())
                .await
                .map_err(Failure::Flow)?;
            entry.sent(bytes);
            let change = |warming: &mut WarmingStatus| warming.sent_bytes += bytes as u64;
            lock(&self.warmings).change(entry.id, change);
        }
    }

    /// Reads what a peer sends to be remembered.
    pub(crate) async fn be_warmed(self: Arc<Self>, session: Arc<Session>, incoming: Incoming) {
        if self.has_drained() {
            return incoming.refuse(&session, Refusal::Draining);
        }
        if session.reduction().is_none() {
            return incoming.refuse(&session, Refusal::Internal);
        }
        let info = FlowInfo {
            peer: session.peer.clone(),
            client: incoming.request.client,
            destination: NOBODY.to_owned(),
            rule: "cache warm".to_owned(),
            class: incoming.request.class,
            reason: Reason::Optimised,
            facing: Facing::Server,
        };
        let Ok(entry) = self.flows.enter(info) else {
            return incoming.refuse(&session, Refusal::Overload);
        };
        let entry = self.announced(entry);
        let flow = incoming.accept(&session);
        entry.carried_by(&flow);
        let (out, mut back) = reduction::of(&flow);
        let read = async {
            while let Some(bytes) = back.next(&flow).await? {
                entry.received(bytes.len());
            }
            flow.finish();
            Ok(())
        };
        let read = tokio::select! {
            read = read => read,
            code = flow.cut() => Err(code),
            () = entry.cut_requested() => {
                flow.reset(ResetCode::Admin);
                Err(ResetCode::Admin)
            }
        };
        let end = match read {
            Ok(()) => {
                out.settle();
                FlowEnd::Closed
            }
            Err(code) => end_of(code),
        };
        entry.conclude(end);
    }
}

fn end_of(code: ResetCode) -> FlowEnd {
    match code {
        ResetCode::Admin => FlowEnd::ResetByOperator,
        ResetCode::TunnelLost => FlowEnd::PeerLost,
        ResetCode::PeerRestarted => FlowEnd::PeerRestarted,
        _ => FlowEnd::Failed,
    }
}

async fn open(path: &Path) -> Result<(File, u64), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let facts = tokio::fs::metadata(path).await.map_err(failed)?;
    if !facts.is_file() {
        return Err(format!("{} is no file", path.display()));
    }
    let file = File::open(path).await.map_err(failed)?;
    Ok((file, facts.len()))
}

fn nowhere() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

fn request() -> OpenRequest {
    OpenRequest {
        client: nowhere(),
        target: Target::Address(nowhere()),
        keep_client_address: false,
        class: Class::Background,
        dscp: 0,
        correction: Correction::Off,
        items: false,
        payload: Payload::Warming,
    }
}
