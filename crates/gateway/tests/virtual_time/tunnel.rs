//! Two gateways' ends of a tunnel across the [`Network`]: the product's own
//! endpoint and session, with its defaults.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use farhaul_gateway::config::meaning;
use farhaul_gateway::keys::{PrivateKey, PublicKey};
use farhaul_gateway::quic::Endpoint;
use farhaul_gateway::quic::socket::Carrier;
use farhaul_gateway::reduction::Store;
use farhaul_gateway::session::{FlowHandle, Session, SessionParts};
use farhaul_tunnel::{
    Class, FEATURE_FEC, FEATURE_REDUCTION, Hello, Limits, PROTOCOL_VERSIONS, PathSettings,
    ResetCode, Side,
};
use noq::AsyncUdpSocket;

use super::network::{Network, Way};
use super::services::{self, DISCARD, Received, Services};
use super::socket::MemorySocket;

/// Ethernet, IPv4 and UDP, as the network counts them.
const HEADERS_BYTES: u16 = 42;
/// `store.memory`, unless it is set.
const STORE_BYTES: u64 = 256 << 20;
const HANDSHAKE: Duration = Duration::from_secs(30);
/// One write of a bulk flow.
static CHUNK: [u8; 64 << 10] = [0; 64 << 10];

/// A gateway on the network.
struct Gateway {
    network: Arc<Network>,
    address: SocketAddr,
    endpoint: Endpoint,
    key: PublicKey,
    features: u64,
    /// Rate of a link that is owned, bit/s.
    told: Option<u64>,
    /// The latest tunnel, whose path the next one remembers.
    latest: Mutex<Option<Arc<Session>>>,
}

impl Gateway {
    /// The gateway with this number on the side whose datagrams travel `way`,
    /// `access_ns` behind the link.
    fn new(
        network: &Arc<Network>,
        way: Way,
        number: u8,
        access_ns: u64,
        seed: u64,
    ) -> Result<Self, String> {
        let address = SocketAddr::from(([10, 1 + way as u8, 0, number], 4500));
        network.attach(address, way, access_ns);
        let socket: Box<dyn AsyncUdpSocket> = Box::new(MemorySocket::new(network.clone(), address));
        let key = PrivateKey::generate().map_err(|error| error.to_string())?;
        let public = key.public();
        let seed = stack_seed(seed, way, number);
        let endpoint = Endpoint::with_carrier(&config(address), key, Carrier::from(socket), seed)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            network: network.clone(),
            address,
            endpoint,
            key: public,
            features: FEATURE_FEC,
            told: None,
            latest: Mutex::default(),
        })
    }

    /// As a peer's configuration and past would have it.
    fn path(&self) -> PathSettings {
        let latest = self.latest.lock().unwrap();
        PathSettings {
            link_bits_per_s: self.told,
            is_owned: self.told.is_some(),
            remembered: latest.as_ref().and_then(|session| session.path_memory()),
            header_bytes: HEADERS_BYTES,
        }
    }

    fn start(&self, connection: noq::Connection, side: Side) -> End {
        let (session, incoming) = Session::start(SessionParts {
            peer: format!("{side:?}"),
            connection,
            side,
            hello: Hello {
                versions: PROTOCOL_VERSIONS,
                instance: u128::from(self.address.port()) + side as u128,
                site: "virtual".to_owned(),
                features: self.features,
            },
            limits: Limits::default(),
            mark: Arc::default(),
            path: self.path(),
            keep_alive: config(self.address).keep_alive,
            aliases: None,
            nudge: self.endpoint.nudge(),
            pauses: self.endpoint.pauses.clone(),
        });
        *self.latest.lock().unwrap() = Some(session.clone());
        let services = Arc::new(Services::default());
        let end = End {
            session: session.clone(),
            services: services.clone(),
            store: Store::new(STORE_BYTES),
        };
        tokio::spawn(services::serve(
            self.network.clone(),
            session,
            incoming,
            services,
        ));
        end
    }
}

/// One end of a tunnel.
#[derive(Clone)]
pub struct End {
    /// The tunnel as this side sees it.
    pub session: Arc<Session>,
    /// What arrived here.
    pub services: Arc<Services>,
    /// What is remembered, where both sides reduce.
    pub store: Arc<Store>,
}

/// Two gateways on opposite sides of the link.
#[derive(Clone)]
pub struct Pair {
    near: Arc<Gateway>,
    far: Arc<Gateway>,
}

impl Pair {
    /// Pair `number` on the link; `access_ns` of its way there lie behind the
    /// link. `told` is the rate of a link that is owned, bit/s.
    pub fn new(
        network: &Arc<Network>,
        number: u8,
        access_ns: u64,
        told: Option<u64>,
        seed: u64,
    ) -> Result<Self, String> {
        Self::offering([FEATURE_FEC; 2], network, number, access_ns, told, seed)
    }

    /// The same, the sides with these features.
    pub fn offering(
        features: [u64; 2],
        network: &Arc<Network>,
        number: u8,
        access_ns: u64,
        told: Option<u64>,
        seed: u64,
    ) -> Result<Self, String> {
        let mut near = Gateway::new(network, Way::Forward, number, 0, seed)?;
        let mut far = Gateway::new(network, Way::Backward, number, access_ns, seed)?;
        [near.features, far.features] = features;
        (near.told, far.told) = (told, told);
        Ok(Self {
            near: Arc::new(near),
            far: Arc::new(far),
        })
    }

    /// Sets a tunnel up; any other the pair has stays.
    pub async fn dial(&self) -> Result<Tunnel, String> {
        Tunnel::dial(self).await
    }
}

/// A standing tunnel: both sides have greeted each other.
#[derive(Clone)]
pub struct Tunnel {
    /// The side that dialled.
    pub near: End,
    /// The side that was dialled.
    pub far: End,
    /// Kept, for the tunnel ends with them.
    _pair: Pair,
}

impl Tunnel {
    async fn dial(pair: &Pair) -> Result<Self, String> {
        let Pair { near, far } = pair;
        far.endpoint.pinned.replace([near.key]);
        let dialled = near.endpoint.dial(far.address, far.key, HANDSHAKE);
        let answered = async {
            let incoming = far.endpoint.accept().await;
            Endpoint::admit(incoming.ok_or("closed")?, HANDSHAKE)
                .await
                .map_err(|error| error.to_string())
        };
        let (dialled, answered) = tokio::join!(dialled, answered);
        let tunnel = Self {
            near: near.start(dialled.map_err(|error| error.to_string())?, Side::Dialer),
            far: far.start(answered?.0, Side::Acceptor),
            _pair: pair.clone(),
        };
        let ends = [
            (&tunnel.near, near, Side::Dialer),
            (&tunnel.far, far, Side::Acceptor),
        ];
        let mut features = 0;
        for (end, gateway, side) in ends {
            let greeted = end.session.greeted().await;
            features = greeted.map_err(|end| end.to_string())?.features;
            if features & FEATURE_FEC != 0 {
                end.session.correct(&gateway.endpoint.channels, side);
            }
        }
        if features & FEATURE_REDUCTION != 0 {
            // The acceptor is given a channel for it by the dialer.
            tunnel.far.session.reduce(&tunnel.far.store, Side::Acceptor);
            tunnel.near.session.reduce(&tunnel.near.store, Side::Dialer);
        }
        Ok(tunnel)
    }

    /// An error where the tunnel is no more.
    pub fn standing(&self) -> Result<(), String> {
        match self.near.session.over() {
            Some(end) => Err(end.to_string()),
            None => Ok(()),
        }
    }

    /// Starts a flow from `from` to the other end that sends as fast as it
    /// may: for ever, or `bytes` and a clean end.
    pub fn bulk(&self, from: Way, port: u16, bytes: Option<u64>) -> Result<Arc<Received>, String> {
        self.bulk_as(from, port, Class::Bulk, bytes)
    }

    /// The same as another class.
    pub fn bulk_as(
        &self,
        from: Way,
        port: u16,
        class: Class,
        bytes: Option<u64>,
    ) -> Result<Arc<Received>, String> {
        let (from, to) = match from {
            Way::Forward => (&self.near, &self.far),
            Way::Backward => (&self.far, &self.near),
        };
        let request = services::request(DISCARD, port, class);
        let flow = from
            .session
            .open(request)
            .map_err(|error| error.to_string())?;
        tokio::spawn(send(flow, bytes));
        Ok(to.services.received(port))
    }
}

async fn send(flow: FlowHandle, bytes: Option<u64>) -> Result<(), ResetCode> {
    let mut left = bytes.unwrap_or(u64::MAX);
    while left > 0 {
        let len = CHUNK.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        left -= len as u64;
        flow.write(Bytes::from_static(&CHUNK[..len])).await?;
    }
    flow.finish();
    // The handle stays until the far side has finished too.
    flow.read(1).await.map(drop)
}

fn config(listen: SocketAddr) -> meaning::Tunnel {
    meaning::Tunnel {
        listen,
        resume_max: Duration::from_secs(120),
        keep_alive: Duration::from_millis(700),
        dead_after: Duration::from_millis(2500),
        open_timeout: Duration::from_secs(20),
        drain: Duration::from_secs(30),
        flows_max: 65_536,
    }
}

fn stack_seed(seed: u64, way: Way, number: u8) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8] = way as u8;
    bytes[9] = number;
    Some(bytes)
}
