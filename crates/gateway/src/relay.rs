//! Connections of explicit listeners: through the tunnel where there is one,
//! otherwise relayed to the server by this gateway itself.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farhaul_tunnel::{Refusal, Target};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::config::meaning::ClientAddress;
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
        let connect = connect(request.client, &request.target);
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
        self.relayed.fetch_add(1, Ordering::Relaxed);
        // An error leaves both sockets armed: both applications see a reset.
        let _ = splice(request, server).await;
        self.relayed.fetch_sub(1, Ordering::Relaxed);
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

/// Connects from this gateway. Its own loopback is for its own users: a proxy
/// on the LAN must not be a way around the address a service listens on.
async fn connect(client: SocketAddr, target: &Target) -> Result<TcpStream, Refusal> {
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
        if !is_local && (ip.is_loopback() || ip.is_unspecified()) {
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
