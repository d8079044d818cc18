//! Connections of explicit listeners: through the tunnel where there is one,
//! otherwise relayed to the server by this gateway itself.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farhaul_tunnel::{Refusal, Target};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::config::meaning::{ClientAddress, Listen};
use crate::dial;
use crate::event::{Event, Reason, refusal_code};
use crate::explicit::Request;
use crate::gateway::Gateway;
use crate::intercept::{disarm_reset, prepare};
use crate::near::{Unopened, Way, text};

/// Marks a request without DSCP: its client set none that we can see.
const NO_DSCP: u8 = 0;

impl Gateway {
    /// Serves a request of a SOCKS, CONNECT or forward listener.
    pub(crate) async fn requested(self: Arc<Self>, mut request: Request) {
        let way = self.way(
            request.client,
            &request.target,
            NO_DSCP,
            ClientAddress::Gateway,
        );
        let opened = match way {
            Way::Tunnel(route) => self.open(&route).await,
            Way::Direct(reason) => Err(Unopened::Direct(reason)),
        };
        match opened {
            Ok((flow, entry)) => {
                let bound = local_address(&request.stream);
                if request
                    .answer
                    .succeed(&mut request.stream, bound)
                    .await
                    .is_ok()
                {
                    self.serve(request.stream, request.leftover, flow, entry, None)
                        .await;
                }
            }
            Err(Unopened::Direct(reason)) => self.relay(request, reason).await,
            Err(Unopened::Refused(why)) => {
                self.events.emit(Event::OpenFailed {
                    client: request.client,
                    destination: text(&request.target),
                    refusal: refusal_code(why),
                });
                request.answer.fail(request.stream, why).await;
            }
        }
    }

    async fn relay(&self, mut request: Request, reason: Reason) {
        self.count_direct(reason);
        self.events.emit(Event::WentDirect {
            client: request.client,
            destination: text(&request.target),
            reason,
        });
        let Some(_relaying) = Relaying::enter(self) else {
            return refuse(request, Refusal::Overload).await;
        };
        let connect = self.connect_directly(request.client, &request.target);
        let timeout = self.config().tunnel.open_timeout;
        let server = match tokio::time::timeout(timeout, connect).await {
            Ok(Ok(server)) => server,
            Ok(Err(why)) => return refuse(request, why).await,
            Err(_) => return refuse(request, Refusal::TimedOut).await,
        };
        let bound = local_address(&server);
        if request
            .answer
            .succeed(&mut request.stream, bound)
            .await
            .is_err()
        {
            return;
        }
        // An error leaves both sockets armed: both applications see a reset.
        let _ = splice(request, server).await;
    }

    /// Connects from this gateway. Its own loopback is for its own users: a
    /// proxy on the LAN must not be a way around the address a service listens
    /// on. Its own listeners are for nobody: what is relayed there goes round
    /// in circles until no descriptor is left.
    async fn connect_directly(
        &self,
        client: SocketAddr,
        target: &Target,
    ) -> Result<TcpStream, Refusal> {
        let resolved: Vec<SocketAddr> = match target {
            Target::Address(address) => vec![*address],
            Target::Host { name, port } => tokio::net::lookup_host((name.as_str(), *port))
                .await
                .map_err(|_| Refusal::NameNotFound)?
                .collect(),
        };
        let is_local = client.ip().to_canonical().is_loopback();
        let mut last = Refusal::NameNotFound;
        for address in resolved {
            let ip = address.ip().to_canonical();
            let is_private = !is_local && (ip.is_loopback() || ip.is_unspecified());
            if is_private || self.is_own_listener(address) {
                last = Refusal::Policy;
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(server) => return Ok(server),
                Err(error) => last = refusal_of(&error),
            }
        }
        Err(last)
    }

    /// Whether a connection there would come back to us as a new request.
    fn is_own_listener(&self, to: SocketAddr) -> bool {
        let config = self.config();
        let mut ports = config.listens.iter().map(|listen| match listen {
            Listen::Socks(address) | Listen::Connect(address) => address.port(),
            Listen::Forward { listen, .. } => listen.port(),
        });
        let ip = to.ip().to_canonical();
        let is_here =
            || ip.is_loopback() || ip.is_unspecified() || dial::own_addresses().contains(&ip);
        let is_own = ports.any(|port| port == to.port()) && is_here();
        if is_own {
            self.events.emit(Event::Trouble {
                part: "relay".to_owned(),
                what: format!("{to} is a listener of this gateway itself: refused"),
            });
        }
        is_own
    }
}

/// A connection being relayed, counted until dropped.
struct Relaying<'a>(&'a Gateway);

impl<'a> Relaying<'a> {
    /// None where the process has no descriptors left for another one.
    fn enter(gateway: &'a Gateway) -> Option<Self> {
        if !gateway.has_descriptors(2) {
            gateway.events.emit(Event::Full {
                bound: "descriptors",
            });
            return None;
        }
        gateway.relayed.fetch_add(1, Ordering::Relaxed);
        Some(Self(gateway))
    }
}

impl Drop for Relaying<'_> {
    fn drop(&mut self) {
        self.0.relayed.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn splice(mut request: Request, mut server: TcpStream) -> io::Result<()> {
    prepare(&request.stream)?;
    prepare(&server)?;
    server.write_all(&request.leftover).await?;
    tokio::io::copy_bidirectional(&mut request.stream, &mut server).await?;
    disarm_reset(&request.stream)?;
    disarm_reset(&server)
}

async fn refuse(request: Request, why: Refusal) {
    request.answer.fail(request.stream, why).await;
}

fn refusal_of(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Refusal::Refused,
        io::ErrorKind::HostUnreachable => Refusal::HostUnreachable,
        io::ErrorKind::NetworkUnreachable => Refusal::NetworkUnreachable,
        io::ErrorKind::TimedOut => Refusal::TimedOut,
        _ => Refusal::Internal,
    }
}

fn local_address(stream: &TcpStream) -> SocketAddr {
    stream
        .local_addr()
        .unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)))
}
