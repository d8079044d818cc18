//! Explicit ways in: SOCKS5, HTTP CONNECT and plain port forwards.
//!
//! [`listen`] accepts clients, lets them say where they want to go, and hands
//! each one on as a [`Request`]. Nothing has been answered by then: the flow
//! first learns whether the destination can be reached and then calls
//! [`Answer::succeed`] or [`Answer::fail`], so that a client of a proxy sees
//! refused as refused, too.
//!
//! A client that says nothing, too much or too slowly costs one bounded buffer
//! for [`HANDSHAKE_TIMEOUT`] and is closed.

mod answer;
mod connect;
mod socks;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use farhaul_tunnel::Target;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

pub use answer::Answer;

use crate::config::meaning::{HostPort, Listen};
use crate::event::Event;
use crate::events::Events;

/// Time a client has to say where it wants to go.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most handshakes under way from one client address; more are closed at once,
/// so that one client cannot keep the others out.
pub const HANDSHAKES_PER_CLIENT_MAX: usize = 64;
/// Pause after a failed accept (out of descriptors), so that it does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A client that has said where it wants to go and waits for the answer.
#[derive(Debug)]
pub struct Request {
    /// The client's connection.
    pub stream: TcpStream,
    /// Bytes the client sent beyond its handshake; they come first.
    pub leftover: Bytes,
    /// The client.
    pub client: SocketAddr,
    /// Where it wants to go. Address literals have become addresses.
    pub target: Target,
    /// How it is told.
    pub answer: Answer,
}

/// A running listener; dropping it closes the port and the handshakes under
/// way, not the requests handed on.
#[derive(Debug)]
pub struct Listener {
    /// The address bound, with the real port if 0 was asked for.
    pub address: SocketAddr,
    task: AbortHandle,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens a listener and serves it in a task of its own until the returned
/// handle is dropped or `requests` is closed. So many handshakes may be under
/// way as there are descriptors for; further clients wait in the backlog.
///
/// # Errors
/// What binding says, with the configuration's key and a remedy.
pub async fn listen(
    listen: &Listen,
    requests: mpsc::Sender<Request>,
    events: Events,
    handshakes: usize,
) -> io::Result<Listener> {
    listen_within(listen, requests, events, (handshakes, HANDSHAKE_TIMEOUT)).await
}

async fn listen_within(
    listen: &Listen,
    requests: mpsc::Sender<Request>,
    events: Events,
    (handshakes, patience): (usize, Duration),
) -> io::Result<Listener> {
    let (key, address) = match listen {
        Listen::Socks(address) => ("listen.socks", address),
        Listen::Connect(address) => ("listen.connect", address),
        Listen::Forward { listen, .. } => ("listen.forward", listen),
    };
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => "; another program has this port, choose another",
            io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
            _ => "",
        };
        io::Error::new(error.kind(), format!("{key} {address}: {error}{remedy}"))
    })?;
    let address = listener.local_addr()?;
    let door = Arc::new(Door {
        kind: Kind::of(listen),
        requests,
        events,
        patience,
        clients: Mutex::default(),
    });
    let task = tokio::spawn(accept_loop(listener, door, handshakes)).abort_handle();
    Ok(Listener { address, task })
}

/// What a listener expects of its clients.
#[derive(Debug)]
enum Kind {
    Socks,
    Connect,
    Forward(Target),
}

impl Kind {
    fn of(listen: &Listen) -> Kind {
        match listen {
            Listen::Socks(_) => Kind::Socks,
            Listen::Connect(_) => Kind::Connect,
            Listen::Forward {
                target: HostPort { host, port },
                ..
            } => Kind::Forward(target(host, *port)),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Kind::Socks => "socks",
            Kind::Connect => "connect",
            Kind::Forward(_) => "forward",
        }
    }
}

/// Everything the handshakes of one listener share.
#[derive(Debug)]
struct Door {
    kind: Kind,
    requests: mpsc::Sender<Request>,
    events: Events,
    patience: Duration,
    /// Handshakes under way by client; as many entries as handshakes at most.
    clients: Mutex<HashMap<IpAddr, usize>>,
}

async fn accept_loop(listener: TcpListener, door: Arc<Door>, handshakes_max: usize) {
    let slots = Arc::new(Semaphore::new(handshakes_max));
    // Owned here, so that dropping the listener ends the handshakes as well.
    let mut handshakes = JoinSet::new();
    loop {
        while handshakes.try_join_next().is_some() {}
        if slots.available_permits() == 0 {
            door.events.emit(Event::Full {
                bound: "listen.handshakes_max",
            });
        }
        // Never closed; without a permit there would only be no bound.
        let slot = slots.clone().acquire_owned().await.ok();
        let accepted = tokio::select! {
            () = door.requests.closed() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, client)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        let Some(entered) = Entered::new(&door, client.ip()) else {
            door.failed(client, "too many handshakes at once from this client");
            continue;
        };
        let door = door.clone();
        handshakes.spawn(async move {
            door.admit(stream, client).await;
            drop((entered, slot));
        });
    }
}

impl Door {
    async fn admit(&self, stream: TcpStream, client: SocketAddr) {
        // Small first requests must not wait for more; failing costs only time.
        let _ = stream.set_nodelay(true);
        let outcome = timeout(self.patience, async {
            let request = self.handshake(stream, client).await?;
            // Only a gateway that shuts down has closed the queue.
            let _ = self.requests.send(request).await;
            Ok::<_, Refused>(())
        })
        .await;
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(refused)) => self.failed(client, &refused.why),
            Err(_) => self.failed(client, "it took too long"),
        }
    }

    async fn handshake(
        &self,
        mut stream: TcpStream,
        client: SocketAddr,
    ) -> Result<Request, Refused> {
        let mut read = BytesMut::new();
        let outcome = match &self.kind {
            Kind::Socks => socks::handshake(&mut stream, &mut read).await,
            Kind::Connect => connect::handshake(&mut stream, &mut read).await,
            Kind::Forward(target) => Ok((target.clone(), Answer::Forward)),
        };
        match outcome {
            Ok((target, answer)) => Ok(Request {
                stream,
                leftover: read.freeze(),
                client,
                target,
                answer,
            }),
            Err(refused) => {
                answer::close(stream, &refused.reply).await;
                Err(refused)
            }
        }
    }

    fn failed(&self, client: SocketAddr, why: &str) {
        let listener = self.kind.name();
        self.events.emit(Event::HandshakeFailed {
            listener,
            client,
            why: why.to_owned(),
        });
    }
}

/// One handshake of a client, counted until dropped.
struct Entered {
    door: Arc<Door>,
    client: IpAddr,
}

impl Entered {
    fn new(door: &Arc<Door>, client: IpAddr) -> Option<Entered> {
        let mut clients = door.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let count = clients.entry(client).or_default();
        if *count >= HANDSHAKES_PER_CLIENT_MAX {
            return None;
        }
        *count += 1;
        Some(Entered {
            door: door.clone(),
            client,
        })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut clients = self
            .door
            .clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

/// A handshake that came to nothing: why, and what the client is told.
#[derive(Debug)]
struct Refused {
    why: String,
    reply: Bytes,
}

impl Refused {
    fn new(why: impl Into<String>, reply: impl Into<Bytes>) -> Refused {
        Refused {
            why: why.into(),
            reply: reply.into(),
        }
    }
}

/// What a parser of an incomplete message says: nothing yet, or a value and
/// how many bytes it took.
type Parsed<T> = Result<Option<(T, usize)>, Refused>;

/// Reads until `parse` finds its message, which is then removed from `read`.
/// `parse` refuses by itself what grows beyond its bound.
async fn read_message<T>(
    stream: &mut TcpStream,
    read: &mut BytesMut,
    parse: impl Fn(&[u8]) -> Parsed<T>,
) -> Result<T, Refused> {
    loop {
        if let Some((message, length_bytes)) = parse(read)? {
            let _ = read.split_to(length_bytes.min(read.len()));
            return Ok(message);
        }
        read.reserve(1024);
        match stream.read_buf(read).await {
            Ok(0) => return Err(Refused::new("it closed before it said where to go", "")),
            Ok(_) => {}
            Err(error) => return Err(Refused::new(error.to_string(), "")),
        }
    }
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), Refused> {
    stream
        .write_all(bytes)
        .await
        .map_err(|error| Refused::new(error.to_string(), ""))
}

/// An address if `host` is the literal of one, or else a name for the far
/// gateway to resolve. An IPv4 address in IPv6 clothes is IPv4, so that no
/// rule or policy is walked around.
fn target(host: &str, port: u16) -> Target {
    match host.parse::<IpAddr>() {
        Ok(address) => Target::Address(SocketAddr::new(address.to_canonical(), port)),
        Err(_) => Target::Host {
            name: host.to_owned(),
            port,
        },
    }
}

/// As [`target`], for what a client wrote: `None` unless it is an address or a
/// name of 1 to 255 bytes without blanks and control characters.
fn named_target(host: &[u8], port: u16) -> Option<Target> {
    let host = std::str::from_utf8(host).ok()?;
    let fine = (1..=255).contains(&host.len())
        && !host.chars().any(|c| c.is_whitespace() || c.is_control());
    (fine && port != 0).then(|| target(host, port))
}
