//! What a side offers to the flows opened towards it, by target port as of
//! old: echo (RFC 862), discard (RFC 863); and answers of a size asked for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use farhaul_gateway::reduction::{self, Inbound};
use farhaul_gateway::session::{FlowHandle, Incoming, Session};
use farhaul_tunnel::{Class, Correction, OpenRequest, Payload, Target};
use tokio::sync::{mpsc, watch};

use super::network::Network;

/// Sends back what it receives.
pub const ECHO: u16 = 7;
/// Counts what it receives.
pub const DISCARD: u16 = 9;
/// Sends as many bytes as the first four it receives say.
pub const ANSWER: u16 = 80;

/// Any bytes will do.
static ANSWER_BYTES: [u8; 64 << 10] = [0; 64 << 10];
const READ_BYTES_MAX: usize = 256 << 10;

/// What one discarding flow has received.
#[derive(Debug)]
pub struct Received {
    bytes: AtomicU64,
    end_ns: OnceLock<u64>,
    reads: watch::Sender<bool>,
}

impl Received {
    fn new() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            end_ns: OnceLock::new(),
            reads: watch::channel(true).0,
        }
    }

    /// Payload in order.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// When the flow's clean end was read.
    pub fn end_ns(&self) -> Option<u64> {
        self.end_ns.get().copied()
    }

    /// From now on nothing more is read.
    pub fn stop_reading(&self) {
        self.reads.send_replace(false);
    }
}

/// The services of one side.
#[derive(Debug, Default)]
pub struct Services(Mutex<BTreeMap<u16, Arc<Received>>>);

impl Services {
    /// The count of the flow whose client port is `port`.
    pub fn received(&self, port: u16) -> Arc<Received> {
        let mut all = self.0.lock().unwrap();
        let entry = all.entry(port);
        entry.or_insert_with(|| Arc::new(Received::new())).clone()
    }

    /// Payload of all flows.
    pub fn bytes(&self) -> u64 {
        let all = self.0.lock().unwrap();
        all.values().map(|received| received.bytes()).sum()
    }
}

/// What a flow asks for; `port` names it in [`Services::received`].
pub fn request(service: u16, port: u16, class: Class) -> OpenRequest {
    OpenRequest {
        client: SocketAddr::from(([10, 1, 0, 2], port)),
        target: Target::Address(SocketAddr::from(([10, 2, 0, 2], service))),
        keep_client_address: true,
        class,
        dscp: 0,
        correction: Correction::Auto,
        items: false,
        payload: Payload::Plain,
    }
}

/// Serves every flow the peer opens.
pub async fn serve(
    network: Arc<Network>,
    session: Arc<Session>,
    mut incoming: mpsc::UnboundedReceiver<Incoming>,
    services: Arc<Services>,
) {
    while let Some(asked) = incoming.recv().await {
        if asked.request.payload == Payload::Channel {
            session.serve_channel(asked);
            continue;
        }
        let port = asked.request.client.port();
        let service = match asked.request.target {
            Target::Address(to) => to.port(),
            Target::Host { port, .. } => port,
        };
        let flow = asked.accept(&session);
        match service {
            ECHO => tokio::spawn(echo(flow)),
            ANSWER => tokio::spawn(answer(flow)),
            _ => tokio::spawn(discard(network.clone(), flow, services.received(port))),
        };
    }
}

async fn echo(flow: FlowHandle) {
    while let Ok(Some(bytes)) = flow.read(READ_BYTES_MAX).await {
        if flow.write(bytes).await.is_err() {
            return;
        }
    }
    flow.finish();
}

async fn answer(flow: FlowHandle) {
    let mut asked = Vec::new();
    while asked.len() < 4 {
        match flow.read(4 - asked.len()).await {
            Ok(Some(bytes)) => asked.extend_from_slice(&bytes),
            _ => return,
        }
    }
    let len = u32::from_be_bytes(asked.try_into().unwrap()) as usize;
    let bytes = ANSWER_BYTES.get(..len).unwrap_or(&ANSWER_BYTES);
    if flow.write(Bytes::from_static(bytes)).await.is_ok() {
        flow.finish();
        let _ = flow.read(1).await;
    }
}

async fn discard(network: Arc<Network>, flow: FlowHandle, received: Arc<Received>) {
    let mut reads = received.reads.subscribe();
    let (_, mut back) = reduction::of(&flow);
    while reads.wait_for(|reads| *reads).await.is_ok() {
        let next = match &mut back {
            Inbound::Plain => flow.read(READ_BYTES_MAX).await,
            records => records.next(&flow).await,
        };
        match next {
            Ok(Some(bytes)) => {
                received
                    .bytes
                    .fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            Ok(None) => {
                let _ = received.end_ns.set(network.now_ns());
                return flow.finish();
            }
            Err(_) => return,
        }
    }
}
