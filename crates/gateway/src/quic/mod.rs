//! The QUIC endpoint that carries tunnels: pinned keys, silent towards
//! strangers, path MTU probed upwards from 1200.

pub mod alias;
pub mod controller;
pub mod fec;
pub mod flight;
pub mod knock;
pub mod narrow;
mod nudge;
mod pause;
mod schedule;
pub mod socket;
pub mod tls;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use noq::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TokioRuntime, TransportConfig, VarInt};
use ring::hmac;
use thiserror::Error;
use tokio::time::Instant;

use self::alias::{AliasSocket, Aliases};
use self::controller::ModelFactory;
use self::fec::{Channels, FecSocket};
use self::flight::WatchedFactory;
use self::knock::{Doorkeeper, IssuedIds, Knock};
pub(crate) use self::nudge::NUDGES;
use self::nudge::Spacing;
pub use self::pause::Pauses;
use self::socket::{Carrier, Marking, TunnelSocket, Turned};
use self::tls::PinnedKeys;
use crate::config::meaning::Tunnel;
use crate::keys::{PrivateKey, PublicKey};

/// Largest UDP payload the path is probed for: Ethernet's 1500 less IPv4 and
/// UDP headers. IPv6 paths end up 20 bytes lower by themselves.
const DATAGRAM_BYTES_MAX: u16 = 1472;
/// Frames in flight to us at most; each holds one short stream.
const STREAMS_MAX: u32 = 16_384;
/// What one tunnel may have in flight towards us: 4 x 1 Gbit/s x 0.5 s. Frames
/// are read as they come, so little of it is ever held.
const RECEIVE_WINDOW_BYTES: u32 = 256 << 20;
/// One frame and its header, with room for larger frames of later versions.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// Why the endpoint could not be set up or a peer not be dialled.
#[derive(Debug, Error)]
pub enum EndpointError {
    /// The UDP address is taken or not ours.
    #[error("cannot listen on UDP {address} (tunnel.listen): {source}")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// Keys the TLS stack does not take.
    #[error("cannot use the gateway's key: {0}")]
    Tls(#[from] rustls::Error),
    /// The stack refused to dial.
    #[error("cannot dial {0}: {1}")]
    Connect(SocketAddr, noq::ConnectError),
    /// The handshake failed.
    #[error("handshake with {0} failed: {1}")]
    Handshake(SocketAddr, noq::ConnectionError),
    /// Nobody answered in time.
    #[error(
        "{0} does not answer; is the far gateway running, do UDP datagrams of 1200 bytes pass \
         (an MTU of 1228, with IPv6 1248), and is its key still the one in peer.key, {1}? \
         (a gateway is silent towards those who do not know its key)"
    )]
    Silent(SocketAddr, PublicKey),
    /// A dialer went away in the middle of it.
    #[error("{0} did not complete its handshake")]
    Unfinished(SocketAddr),
    /// The other side proved no key, or one that is not pinned.
    #[error("{0} presented no pinned key")]
    Stranger(SocketAddr),
}

/// Lets all connections of an endpoint that wait for a retransmission timer send at once; within a quarter of a second
/// of the last time it does nothing.
pub type Nudge = Arc<dyn Fn() + Send + Sync>;

/// Our side of all tunnels.
pub struct Endpoint {
    inner: noq::Endpoint,
    key: PrivateKey,
    transport: Arc<TransportConfig>,
    /// Keys that may dial us.
    pub pinned: Arc<PinnedKeys>,
    /// DSCP of outgoing datagrams by peer address.
    pub marking: Arc<Marking>,
    /// Datagrams dropped unanswered.
    pub turned: Arc<Turned>,
    /// Error correction, by tunnel.
    pub channels: Arc<Channels>,
    /// By which names the stack knows peers that have moved.
    pub aliases: Arc<Aliases>,
    nudges: Arc<Spacing>,
    /// When this process did not run.
    pub pauses: Arc<Pauses>,
}

impl Endpoint {
    /// Binds the UDP socket. Must run inside a tokio runtime.
    pub fn bind(config: &Tunnel, key: PrivateKey) -> Result<Self, EndpointError> {
        let bind_error = |source| EndpointError::Bind {
            address: config.listen,
            source,
        };
        let carrier = bind_udp(config.listen)
            .and_then(Carrier::system)
            .map_err(bind_error)?;
        Self::with_carrier(config, key, carrier, None)
    }

    /// Runs over a socket that is there already. With a `seed`, everything
    /// random in the QUIC stack that shows in time or size repeats itself.
    pub fn with_carrier(
        config: &Tunnel,
        key: PrivateKey,
        carrier: Carrier,
        seed: Option<[u8; 32]>,
    ) -> Result<Self, EndpointError> {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &key.to_pkcs8_der());
        let issued = IssuedIds::new(hmac::sign(&secret, b"connection ids").as_ref());
        let reset_key = hmac::Key::new(
            hmac::HMAC_SHA256,
            hmac::sign(&secret, b"stateless reset").as_ref(),
        );
        let mut endpoint_config = EndpointConfig::new(Arc::new(reset_key));
        let ids = issued.clone();
        endpoint_config
            .cid_generator(Arc::new(move || Box::new(ids.clone())))
            // RFC 9287 would make QUIC's datagrams look like those of `fec`.
            .grease_quic_bit(false)
            .rng_seed(seed);

        let pinned = Arc::new(PinnedKeys::default());
        let transport = Arc::new(transport(config));
        let mut server =
            noq::ServerConfig::with_crypto(Arc::new(tls::server(&key, pinned.clone())?));
        server.transport_config(transport.clone());
        server.migration(true);

        let marking = Arc::new(Marking::default());
        let turned = Arc::new(Turned::default());
        let doorkeeper = Doorkeeper::new(issued, &key.public());
        let pauses = Arc::<Pauses>::default();
        let socket = TunnelSocket::new(
            carrier,
            doorkeeper,
            marking.clone(),
            turned.clone(),
            pauses.clone(),
        );
        let channels = Arc::new(Channels::default());
        let socket = FecSocket::new(Box::new(socket), channels.clone(), turned.clone());
        let aliases = Arc::new(Aliases::default());
        let socket = AliasSocket::new(Box::new(socket), aliases.clone());
        let inner = noq::Endpoint::new_with_abstract_socket(
            endpoint_config,
            Some(server),
            Box::new(socket),
            Arc::new(TokioRuntime),
        )
        .map_err(|source| EndpointError::Bind {
            address: config.listen,
            source,
        })?;
        Ok(Self {
            inner,
            key,
            transport,
            pinned,
            marking,
            turned,
            channels,
            aliases,
            nudges: Arc::default(),
            pauses,
        })
    }

    /// Dials a peer and proves both keys.
    pub async fn dial(
        &self,
        address: SocketAddr,
        peer: PublicKey,
        timeout: Duration,
    ) -> Result<noq::Connection, EndpointError> {
        self.aliases.dialled(address);
        let knock = Knock::new(&peer);
        let mut client = noq::ClientConfig::new(Arc::new(tls::client(&self.key, peer)?));
        client.transport_config(self.transport.clone());
        client.initial_dst_cid_provider(Arc::new(move || knock.connection_id()));
        let connecting = self
            .inner
            .connect_with(client, address, "farhaul.invalid")
            .map_err(|error| EndpointError::Connect(address, error))?;
        match tokio::time::timeout(timeout, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(EndpointError::Handshake(address, error)),
            Err(_) => Err(EndpointError::Silent(address, peer)),
        }
    }

    /// Waits for the next dialer. `None` once the endpoint is closed.
    pub async fn accept(&self) -> Option<noq::Incoming> {
        self.inner.accept().await
    }

    /// Completes the handshake with a dialer and names its key.
    pub async fn admit(
        incoming: noq::Incoming,
        timeout: Duration,
    ) -> Result<(noq::Connection, PublicKey), EndpointError> {
        let address = plain(incoming.remote_address());
        let handshake = async {
            let connecting = incoming.accept()?;
            connecting.await
        };
        let connection = match tokio::time::timeout(timeout, handshake).await {
            Ok(result) => result.map_err(|error| EndpointError::Handshake(address, error))?,
            Err(_) => return Err(EndpointError::Unfinished(address)),
        };
        match tls::peer_key(&connection) {
            Some(key) => Ok((connection, key)),
            None => Err(EndpointError::Stranger(address)),
        }
    }

    /// The path is back: connections that were waiting out a backed-off
    /// retransmission timer send at once. Rates and round trips are kept.
    pub fn path_is_back(&self) {
        self.inner.handle_network_change(None);
    }

    /// [`Endpoint::path_is_back`] for sessions that hope so. The call is for all connections: of the sessions that ask
    /// for it within the same quarter of a second, one does so for all.
    pub fn nudge(&self) -> Nudge {
        let (endpoint, nudges) = (self.inner.clone(), self.nudges.clone());
        Arc::new(move || {
            if nudges.is_due(Instant::now()) {
                endpoint.handle_network_change(None);
            }
        })
    }

    /// The UDP address we listen on.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.inner.local_addr().ok()
    }

    /// Closes every tunnel and waits until the peers were told.
    pub async fn close(&self, reason: &[u8]) {
        self.inner.close(VarInt::from_u32(0), reason);
        let _ = tokio::time::timeout(Duration::from_secs(1), self.inner.wait_idle()).await;
    }
}

/// An address as people write it: one of IPv4 is none of IPv6, whatever the socket is.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn bind_udp(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Room for a burst at 1 Gbit/s while the process is not scheduled; the
    // kernel grants what it is allowed to.
    let _ = socket.set_recv_buffer_size(8 << 20);
    let _ = socket.set_send_buffer_size(8 << 20);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn transport(config: &Tunnel) -> TransportConfig {
    let mut transport = TransportConfig::default();
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(DATAGRAM_BYTES_MAX);
    let idle = IdleTimeout::try_from(config.resume_max.max(config.dead_after * 2)).ok();
    transport
        .max_idle_timeout(idle)
        .keep_alive_interval(Some(config.keep_alive))
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(STREAMS_MAX))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(RECEIVE_WINDOW_BYTES))
        .send_window(u64::from(RECEIVE_WINDOW_BYTES))
        .send_fairness(true)
        // A long link reorders, and frames are put in order above QUIC anyway: time decides.
        .packet_threshold(10_000)
        .time_threshold(1.25)
        .initial_rtt(Duration::from_millis(200))
        .mtu_discovery_config(Some(mtu))
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(Arc::new(WatchedFactory::new(ModelFactory)));
    transport
}
