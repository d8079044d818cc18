//! The far end of a test: waits for clients, several at once, each bounded.
//!
//! A client is one control connection with a token; what comes without a
//! known token is closed. Nothing is sent to an address that did not ask.
//! iperf 2 has a port of its own, for its clients show nothing.

mod clients;
mod descriptors;
mod echo;
mod iperf2;
mod iperf2_udp;
mod iperf3;
mod ports;
mod send_back;
mod session;

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, Socket, Type};

use super::error::{ProbeError, While};
use super::iperf3::{COOKIE_BYTES, Cookie, begins_cookie};
use super::message::{Greeting, Purpose, SLICE};
use super::socket_state::save_syns;
use clients::Clients;
pub use ports::UdpPorts;

/// How long a new connection may take to say what it wants.
const GREETING_PATIENCE: Duration = Duration::from_secs(5);

/// How long clients may take to hear that the server ends.
const PARTING_PATIENCE: Duration = Duration::from_secs(5);

/// What a server shall be.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Address; none listens on all, of both families.
    pub address: Option<IpAddr>,
    /// TCP port; 0 lets the system choose.
    pub port: u16,
    /// Port for iperf 2 clients, TCP and UDP; 0 lets the system choose.
    pub iperf2_port: Option<u16>,
    /// Most clients at once.
    pub sessions_max: u32,
    /// Most connections at once, of all clients; fewer where the system does not
    /// let us have the descriptors.
    pub connections_max: u32,
    /// Receivers advertise no more, unless a client asks otherwise: a host of
    /// fixed settings.
    pub window_bytes: Option<u32>,
    /// UDP ports for our own clients; none lets the system choose.
    pub udp_ports: Option<UdpPorts>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            address: None,
            port: super::message::PORT,
            iperf2_port: None,
            sessions_max: 32,
            connections_max: 1024,
            window_bytes: None,
            udp_ports: None,
        }
    }
}

/// A connection for a session, with its number: the one it shows, or for
/// iperf3, which shows none, the place in which it came.
type Stream<Number = u16> = (Number, TcpStream);

/// What all connections share.
#[derive(Debug)]
struct Shared {
    options: ServerOptions,
    stop: Arc<AtomicBool>,
    connections: AtomicU32,
    accepted: AtomicU64,
    clients: Mutex<Clients>,
    udp_turn: Mutex<()>,
    udp_sockets: ports::Sockets,
}

impl Shared {
    /// For the one iperf3 test that opens its UDP streams; `None` while another
    /// one does.
    fn udp_turn(&self) -> Option<MutexGuard<'_, ()>> {
        match self.udp_turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Who speaks on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guests {
    /// Ours and iperf3's.
    Known,
    /// iperf 2's.
    Iperf2,
}

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<(Guests, TcpListener)>,
    iperf2_sockets: Vec<UdpSocket>,
    shared: Arc<Shared>,
}

impl Server {
    /// Listens. Setting `stop` ends [`Server::run`] and every test.
    pub fn listen(mut options: ServerOptions, stop: Arc<AtomicBool>) -> Result<Self, ProbeError> {
        options.connections_max = options.connections_max.min(descriptors::room());
        let mut listeners = Vec::new();
        let mut sockets = Vec::new();
        for (guests, port) in [
            (Guests::Known, Some(options.port)),
            (Guests::Iperf2, options.iperf2_port),
        ] {
            for listener in port.map_or_else(|| Ok(Vec::new()), |port| bound(&options, port))? {
                let at = listener.local_addr().locally("reading the address")?;
                if guests == Guests::Iperf2 {
                    let during = format!("listening on UDP {at}");
                    sockets.push(udp_socket(at).locally(&during)?);
                }
                listeners.push((guests, listener));
            }
        }
        let shared = Shared {
            udp_sockets: ports::Sockets::new(options.udp_ports),
            options,
            stop,
            connections: AtomicU32::new(0),
            accepted: AtomicU64::new(0),
            clients: Mutex::default(),
            udp_turn: Mutex::default(),
        };
        Ok(Self {
            listeners,
            iperf2_sockets: sockets,
            shared: Arc::new(shared),
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses_for(Guests::Known)
    }

    /// Where it listens for iperf 2.
    pub fn iperf2_addresses(&self) -> Vec<SocketAddr> {
        self.addresses_for(Guests::Iperf2)
    }

    fn addresses_for(&self, wanted: Guests) -> Vec<SocketAddr> {
        let all = self.listeners.iter();
        let wanted = all.filter(|(guests, _)| *guests == wanted);
        wanted
            .flat_map(|(_, listener)| listener.local_addr())
            .collect()
    }

    /// Answers until stopped.
    pub fn run(&self) -> Result<(), ProbeError> {
        std::thread::scope(|scope| {
            for socket in &self.iperf2_sockets {
                scope.spawn(|| iperf2_udp::serve(&self.shared, socket));
            }
            let outcome = self.answer();
            self.shared.stop.store(true, Ordering::Relaxed);
            self.part();
            outcome
        })
    }

    /// Waits until every client has been told: a process that ends takes its
    /// threads along, and their last words.
    fn part(&self) {
        let end = Instant::now() + PARTING_PATIENCE;
        while self.shared.connections.load(Ordering::Relaxed) > 0 && Instant::now() < end {
            std::thread::sleep(SLICE / 10);
        }
    }

    fn answer(&self) -> Result<(), ProbeError> {
        while !self.shared.is_stopping() {
            for (guests, listener) in self.ready()? {
                match listener.accept() {
                    Ok((stream, from)) => self.welcome(*guests, stream, from),
                    // Whoever it was has gone, or we are out of descriptors.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => std::thread::sleep(SLICE),
                }
            }
        }
        Ok(())
    }

    fn ready(&self) -> Result<Vec<&(Guests, TcpListener)>, ProbeError> {
        let mut waits: Vec<_> = self
            .listeners
            .iter()
            .map(|(_, listener)| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN))
            .collect();
        let slice = Timespec::try_from(SLICE).ok();
        match poll(&mut waits, slice.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).locally("waiting for clients"),
        }
        let is_ready = |wait: &PollFd<'_>| !wait.revents().is_empty();
        let pairs = self.listeners.iter().zip(waits.iter().map(is_ready));
        Ok(pairs
            .filter(|(_, ready)| *ready)
            .map(|(listener, _)| listener)
            .collect())
    }

    fn welcome(&self, guests: Guests, stream: TcpStream, from: SocketAddr) {
        let shared = Arc::clone(&self.shared);
        if shared.connections.fetch_add(1, Ordering::Relaxed) >= shared.options.connections_max {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let guarded = Connection(Arc::clone(&shared));
        let place = shared.accepted.fetch_add(1, Ordering::Relaxed);
        let run = move || {
            let _guard = guarded;
            match guests {
                Guests::Known => serve(&shared, stream, from, place),
                Guests::Iperf2 => iperf2::serve(&shared, stream, from),
            }
        };
        // Without a thread the connection is closed, and its count given back.
        let _ = std::thread::Builder::new()
            .name("probe-client".into())
            .spawn(run);
    }
}

/// One of the connections counted; uncounted when dropped.
struct Connection(Arc<Shared>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Listens on a port, on all addresses that are wanted.
fn bound(options: &ServerOptions, mut port: u16) -> Result<Vec<TcpListener>, ProbeError> {
    let addresses = match options.address {
        Some(address) => vec![address],
        None => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
    };
    let mut listeners: Vec<TcpListener> = Vec::new();
    for address in addresses {
        let at = SocketAddr::new(address, port);
        match listen(at) {
            Ok(listener) => {
                port = listener.local_addr().locally("reading the address")?.port();
                listeners.push(listener);
            }
            // A machine may do without IPv6.
            Err(error)
                if at.is_ipv6()
                    && error.kind() != ErrorKind::AddrInUse
                    && !listeners.is_empty() => {}
            Err(error) => return Err(error).locally(&format!("listening on {at}")),
        }
    }
    Ok(listeners)
}

/// For iperf 2's datagrams.
fn udp_socket(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    let socket: UdpSocket = socket.into();
    socket.set_read_timeout(Some(SLICE))?;
    super::iperf3::udp::prepare(&socket)?;
    Ok(socket)
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    save_syns(socket.as_raw_fd())?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(128)?;
    Ok(socket.into())
}

fn serve(shared: &Arc<Shared>, stream: TcpStream, from: SocketAddr, place: u64) {
    let Some((stream, wish)) = wish(shared, stream) else {
        return;
    };
    let greeting = match wish {
        Wish::Ours(greeting) => greeting,
        Wish::Iperf3(cookie) => {
            let test = shared.clients().iperf3_tests.get(&cookie).cloned();
            return match test {
                // A test that wants no more streams closes it.
                Some(test) => drop(test.try_send((place, stream))),
                None => iperf3::serve(shared, stream, from, cookie),
            };
        }
    };
    let session = || shared.clients().sessions.get(&greeting.token).cloned();
    match greeting.purpose {
        Purpose::Control => session::serve(shared, stream, from),
        Purpose::Stream(number) => {
            if let Some(session) = session() {
                // A session that wants no more streams closes it.
                let _ = session.streams.try_send((number, stream));
            }
        }
        Purpose::Echo => {
            if let Some(session) = session() {
                session.echoes.serve(stream, &shared.stop);
            }
        }
    }
}

/// What a connection is for, by its first bytes.
enum Wish {
    Ours(Greeting),
    Iperf3(Cookie),
}

fn wish(shared: &Shared, mut stream: TcpStream) -> Option<(TcpStream, Wish)> {
    let end = Instant::now() + GREETING_PATIENCE;
    stream.set_nonblocking(false).ok()?;
    stream.set_read_timeout(Some(SLICE)).ok()?;
    let mut bytes = [0; COOKIE_BYTES];
    let (head, tail) = bytes.split_at_mut(Greeting::BYTES);
    read_until(shared, &mut stream, head, end)?;
    if let Some(greeting) = head.first_chunk().and_then(Greeting::read) {
        return Some((stream, Wish::Ours(greeting)));
    }
    if !begins_cookie(head) {
        return None;
    }
    read_until(shared, &mut stream, tail, end)?;
    Some((stream, Wish::Iperf3(bytes)))
}

fn read_until(
    shared: &Shared,
    stream: &mut TcpStream,
    mut wanted: &mut [u8],
    end: Instant,
) -> Option<()> {
    while !wanted.is_empty() {
        if shared.is_stopping() || Instant::now() > end {
            return None;
        }
        match stream.read(wanted) {
            Ok(0) => return None,
            Ok(got) => wanted = wanted.get_mut(got..)?,
            Err(error) if super::message::is_slice_over(&error) => {}
            Err(_) => return None,
        }
    }
    Some(())
}
