//! The sockets TPROXY hands proxied connections to, and the settings of a
//! flow's own sockets.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, TcpStream};

/// As many handshakes as `net.core.somaxconn` allows may wait for us.
const BACKLOG: i32 = 16_384;
/// Idle time before a probe: what RFC 1122 4.2.3.6 asks for, so a quiet
/// connection lives as long as it would without gateways.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(7200);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(75);

/// A listener on loopback whose accepted sockets carry the address the client
/// wanted. Only TPROXY leads to it: see [`is_transparent`].
pub(super) fn listen(v6: bool) -> io::Result<TcpListener> {
    let (domain, address): (_, SocketAddr) = if v6 {
        (Domain::IPV6, (Ipv6Addr::LOCALHOST, 0).into())
    } else {
        (Domain::IPV4, (Ipv4Addr::LOCALHOST, 0).into())
    };
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if v6 {
        socket.set_only_v6(true)?;
        socket.set_ip_transparent_v6(true)?;
    } else {
        socket.set_ip_transparent_v4(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Whether an accepted connection came through TPROXY, not from a local
/// program that found our port.
pub(super) fn is_transparent(stream: &TcpStream, listener: SocketAddr) -> bool {
    stream
        .local_addr()
        .is_ok_and(|local| local.ip() != listener.ip())
}

/// Settings of every socket of a flow: no delay for small writes, keep-alive
/// as slow as the standard's, and [`arm_reset`].
///
/// # Errors
/// As setsockopt(2) gives them; the connection is usually gone then.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Urgent bytes keep their place among the others; their mark is lost.
    SockRef::from(stream).set_out_of_band_inline(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
    arm_reset(stream)
}

/// From now on the end of this socket is a reset, also when the process is
/// killed (the kernel would send a FIN and a cut file would look whole).
///
/// # Errors
/// As setsockopt(2) gives them.
pub fn arm_reset(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))
}

/// Both directions have ended cleanly: closing is an ordinary close again.
///
/// # Errors
/// As setsockopt(2) gives them.
pub fn disarm_reset(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_linger(None)
}
