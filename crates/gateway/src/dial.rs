//! The far side: connections from this gateway to the servers behind it.
//!
//! With [`Source::Client`] the server sees the client's own address and port.
//! Its replies are then addressed to the client, pass through this gateway on
//! their way, and are delivered here by the `socket transparent` rule that
//! [`crate::intercept::Interceptor`] installs on every interface. If they take
//! another way, nothing arrives: [`DialFailure::AsymmetricReturn`] tells that
//! apart from a server that is silent.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::config::meaning::Accept;
use crate::intercept::{address_towards, prepare, time_wait};

/// Silence after which we ask from our own address whether the server is
/// there: two SYNs have gone unanswered by then. What the network says about
/// the client's connection it says to the client's address, not to us.
const PROBE_AFTER: Duration = Duration::from_millis(1_500);
/// Nothing is concluded from the probe before the client's connection has had
/// this long: SYNs at 0, 1 and 3 s, with exponential backoff.
const CONCLUDE_AFTER: Duration = Duration::from_millis(3_200);
/// How long the client's connection may still come up after our own was
/// answered: one more round trip, generously.
const PROBE_GRACE: Duration = Duration::from_secs(1);

/// How long the end of the client's previous connection from the same port may
/// be on its way; less than [`PROBE_AFTER`].
const END_MAX: Duration = Duration::from_millis(800);
/// Between two looks for it.
const END_AGAIN: Duration = Duration::from_millis(20);

/// Which source address the server sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// This address and port, usually the client's. Needs CAP_NET_ADMIN. A
    /// client of the other address family falls back to [`Source::Gateway`].
    Client(SocketAddr),
    /// Whatever the routing table gives us.
    Gateway,
}

/// Why there is no connection to the server.
#[derive(Debug, thiserror::Error)]
pub enum DialFailure {
    /// It answered with a reset.
    #[error("connection refused")]
    Refused,
    /// A router, or address resolution on the last link, says so.
    #[error("host unreachable")]
    HostUnreachable,
    /// No route, here or on the way.
    #[error("network unreachable")]
    NetworkUnreachable,
    /// No answer in time.
    #[error("timed out")]
    TimedOut,
    /// The server answers this gateway but not the client's address through it.
    #[error(
        "the server answers this gateway, but its replies to {client} do not come back through it: \
         route them here, or set `client_address = \"gateway\"`"
    )]
    AsymmetricReturn {
        /// The address they are lost to.
        client: IpAddr,
    },
    /// The client's address and port are in use here: an earlier connection of
    /// its to the same server has not ended yet.
    #[error(
        "{client} still has a connection to this server here, or a program of this machine listens on its port"
    )]
    SourceInUse {
        /// The client.
        client: SocketAddr,
    },
    /// We lack the capability to speak for the client.
    #[error("speaking for client addresses needs CAP_NET_ADMIN")]
    SourceNotPermitted,
    /// Policy forbids the destination.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// Anything else, such as no more descriptors.
    #[error("{0}")]
    Failed(io::Error),
}

/// Why a destination must not be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// Not inside `[accept] destinations`.
    #[error("the destination is not in `[accept] destinations`")]
    NotAccepted,
    /// 127.0.0.0/8, ::1.
    #[error("loopback destinations are refused")]
    Loopback,
    /// 169.254.0.0/16, fe80::/10: names a different host on every link.
    #[error("link-local destinations are refused")]
    LinkLocal,
    /// 224.0.0.0/4, ff00::/8, 255.255.255.255.
    #[error("multicast and broadcast destinations are refused")]
    Multicast,
    /// 0.0.0.0/8, ::, deprecated ::a.b.c.d, or port 0.
    #[error("unspecified destinations are refused")]
    Unspecified,
    /// An address of this gateway.
    #[error("the gateway's own addresses are refused")]
    OwnAddress,
}

/// Whether a peer may reach `destination` through us. `own` is what
/// [`own_addresses`] gives; [`dial`] checks that part again by itself.
///
/// # Errors
/// What forbids it.
pub fn permitted(
    destination: SocketAddr,
    accept: &Accept,
    own: &[IpAddr],
) -> Result<(), Forbidden> {
    let address = destination.ip().to_canonical();
    ordinary(SocketAddr::new(address, destination.port()))?;
    if own.iter().any(|own| own.to_canonical() == address) {
        return Err(Forbidden::OwnAddress);
    }
    if !accept
        .destinations
        .iter()
        .any(|network| network.contains(address))
    {
        return Err(Forbidden::NotAccepted);
    }
    Ok(())
}

/// Refuses what is no single ordinary host. `destination` is canonical.
fn ordinary(destination: SocketAddr) -> Result<(), Forbidden> {
    let address = destination.ip();
    let (link_local, unspecified, broadcast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[0] == 0, v4.is_broadcast()),
        IpAddr::V6(v6) => {
            // RFC 4291 2.5.5.1; `::1` is reported as loopback below.
            let compatible = v6.segments()[..6] == [0; 6] && v6 != Ipv6Addr::LOCALHOST;
            (v6.is_unicast_link_local(), compatible, false)
        }
    };
    if address.is_loopback() {
        Err(Forbidden::Loopback)
    } else if link_local {
        Err(Forbidden::LinkLocal)
    } else if address.is_multicast() || broadcast {
        Err(Forbidden::Multicast)
    } else if unspecified || destination.port() == 0 {
        Err(Forbidden::Unspecified)
    } else {
        Ok(())
    }
}

/// The addresses of this machine (of the calling thread's network namespace).
pub fn own_addresses() -> Vec<IpAddr> {
    let read = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    let mut addresses = addresses_v4(&read("fib_trie").unwrap_or_default());
    addresses.extend(addresses_v6(&read("if_inet6").unwrap_or_default()));
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Leaves of the routing trie that are host routes to ourselves: an address
/// line (`|-- 10.1.0.1`) followed by `/32 host LOCAL`.
fn addresses_v4(fib_trie: &str) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    let mut leaf = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line.starts_with("/32 host LOCAL") {
            addresses.extend(leaf.map(IpAddr::V4));
        }
    }
    addresses
}

/// First column: the address in 32 hexadecimal digits.
fn addresses_v6(if_inet6: &str) -> Vec<IpAddr> {
    if_inet6
        .lines()
        .filter_map(|line| u128::from_str_radix(line.get(..32)?, 16).ok())
        .map(|bits| Ipv6Addr::from(bits).into())
        .collect()
}

/// Connects to `destination` within `limit`. The stream has no-delay,
/// keep-alive and reset-on-close set (see [`prepare`]).
///
/// # Errors
/// See [`DialFailure`]. Destinations that are no single ordinary host or that
/// are this machine are forbidden whatever the policy says.
pub async fn dial(
    destination: SocketAddr,
    source: Source,
    limit: Duration,
) -> Result<TcpStream, DialFailure> {
    let address = destination.ip().to_canonical();
    let destination = SocketAddr::new(address, destination.port());
    ordinary(destination)?;
    // The kernel picks the destination itself as source only if it is ours.
    if address_towards(address).is_ok_and(|own| own == address) {
        return Err(Forbidden::OwnAddress.into());
    }
    let deadline = Instant::now() + limit;
    let stream = match source {
        Source::Client(client) if client.is_ipv4() == destination.is_ipv4() => {
            dial_as_client(destination, client, limit, deadline).await?
        }
        _ => timeout_at(deadline, connect(destination, Source::Gateway))
            .await
            .map_err(|_elapsed| DialFailure::TimedOut)?
            .map_err(|error| failure(error, Source::Gateway))?,
    };
    prepare(&stream).map_err(DialFailure::Failed)?;
    Ok(stream)
}

async fn dial_as_client(
    destination: SocketAddr,
    client: SocketAddr,
    limit: Duration,
    deadline: Instant,
) -> Result<TcpStream, DialFailure> {
    let source = Source::Client(client);
    let finish = |result: io::Result<TcpStream>| result.map_err(|error| failure(error, source));
    let begun = Instant::now();
    let mut connecting = pin!(connect_again(destination, client));
    let patience = PROBE_AFTER.min(limit / 2);
    if let Ok(result) = timeout(patience, &mut connecting).await {
        return finish(result);
    }
    let probed = tokio::select! {
        result = &mut connecting => return finish(result),
        probed = probe(destination) => probed,
        () = sleep_until(deadline) => return Err(DialFailure::TimedOut),
    };
    let concluded = begun + CONCLUDE_AFTER;
    let (until, verdict) = match probed {
        Probed::Answered => (
            concluded.max(Instant::now() + PROBE_GRACE),
            DialFailure::AsymmetricReturn {
                client: client.ip(),
            },
        ),
        Probed::Unreachable(verdict) => (concluded, verdict),
        Probed::Silent => (deadline, DialFailure::TimedOut),
    };
    match timeout_at(until.min(deadline), connecting).await {
        Ok(result) => finish(result),
        Err(_elapsed) => Err(verdict),
    }
}

/// What a connection from our own address has met.
enum Probed {
    /// The server, be it with a reset.
    Answered,
    /// A neighbour that does not answer, or a router that knows no way.
    Unreachable(DialFailure),
    /// Nothing, or nothing that says anything of the server.
    Silent,
}

/// Connects from our own address and resets the connection at once. Towards
/// a host that is not there no segment leaves this machine: it waits for
/// address resolution beside the client's (`docs/design/unreachable.md`).
async fn probe(destination: SocketAddr) -> Probed {
    match connect(destination, Source::Gateway).await {
        Ok(stream) => {
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            Probed::Answered
        }
        Err(error) => match failure(error, Source::Gateway) {
            DialFailure::Refused => Probed::Answered,
            verdict @ (DialFailure::HostUnreachable | DialFailure::NetworkUnreachable) => {
                Probed::Unreachable(verdict)
            }
            _ => Probed::Silent,
        },
    }
}

/// As [`connect`] in the client's name, over the remains of its previous
/// connection from the same port if need be, or after its end: the client has
/// seen that already, but the tunnel may bring it later than the next open.
async fn connect_again(destination: SocketAddr, client: SocketAddr) -> io::Result<TcpStream> {
    let source = Source::Client(client);
    let patience = Instant::now() + END_MAX;
    loop {
        match connect(destination, source).await {
            Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => {
                if time_wait::end(client, destination).unwrap_or(false) {
                    return connect(destination, source).await;
                }
                if Instant::now() >= patience {
                    return Err(error);
                }
                sleep(END_AGAIN).await;
            }
            result => return result,
        }
    }
}

async fn connect(destination: SocketAddr, source: Source) -> io::Result<TcpStream> {
    let domain = Domain::for_address(destination);
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if let Source::Client(client) = source {
        if client.is_ipv4() {
            socket.set_ip_transparent_v4(true)?;
        } else {
            socket.set_ip_transparent_v6(true)?;
        }
        // One client port may lead to several servers at once.
        socket.set_reuse_address(true)?;
        socket.bind(&client.into())?;
    }
    TcpSocket::from_std_stream(socket.into())
        .connect(destination)
        .await
}

fn failure(error: io::Error, source: Source) -> DialFailure {
    match (error.raw_os_error(), source) {
        (Some(libc::ECONNREFUSED), _) => DialFailure::Refused,
        (Some(libc::EHOSTUNREACH | libc::EHOSTDOWN), _) => DialFailure::HostUnreachable,
        (Some(libc::ENETUNREACH | libc::ENETDOWN), _) => DialFailure::NetworkUnreachable,
        (Some(libc::ETIMEDOUT), _) => DialFailure::TimedOut,
        // The kernel resets a handshake whose answer it cannot place.
        (Some(libc::ECONNRESET), _) => DialFailure::Refused,
        (Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL), Source::Client(client)) => {
            DialFailure::SourceInUse { client }
        }
        (Some(libc::EPERM), Source::Client(_)) => DialFailure::SourceNotPermitted,
        _ => DialFailure::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::meaning::Network;

    fn everything() -> Accept {
        let any = |address: &str| Network {
            address: address.parse().unwrap(),
            prefix_bits: 0,
        };
        Accept {
            destinations: vec![any("0.0.0.0"), any("::")],
        }
    }

    #[test]
    fn what_is_no_single_ordinary_host_is_forbidden_even_if_accepted() {
        let own = ["10.9.0.1".parse().unwrap(), "fd00::9".parse().unwrap()];
        for (destination, verdict) in [
            ("10.2.0.2:80", Ok(())),
            ("[fd00::2]:80", Ok(())),
            ("[::ffff:10.2.0.2]:80", Ok(())),
            ("127.0.0.1:80", Err(Forbidden::Loopback)),
            ("127.9.9.9:80", Err(Forbidden::Loopback)),
            ("[::1]:80", Err(Forbidden::Loopback)),
            ("[::ffff:127.0.0.1]:80", Err(Forbidden::Loopback)),
            ("169.254.169.254:80", Err(Forbidden::LinkLocal)),
            ("[::ffff:169.254.169.254]:80", Err(Forbidden::LinkLocal)),
            ("[fe80::1]:80", Err(Forbidden::LinkLocal)),
            ("224.0.0.1:80", Err(Forbidden::Multicast)),
            ("255.255.255.255:80", Err(Forbidden::Multicast)),
            ("[ff02::1]:80", Err(Forbidden::Multicast)),
            ("0.0.0.0:80", Err(Forbidden::Unspecified)),
            ("0.1.2.3:80", Err(Forbidden::Unspecified)),
            ("[::]:80", Err(Forbidden::Unspecified)),
            ("[::127.0.0.1]:80", Err(Forbidden::Unspecified)),
            ("10.2.0.2:0", Err(Forbidden::Unspecified)),
            ("10.9.0.1:80", Err(Forbidden::OwnAddress)),
            ("[::ffff:10.9.0.1]:80", Err(Forbidden::OwnAddress)),
            ("[fd00::9]:80", Err(Forbidden::OwnAddress)),
        ] {
            let given = permitted(destination.parse().unwrap(), &everything(), &own);
            assert_eq!(given, verdict, "{destination}");
        }
        let nothing = Accept {
            destinations: vec![],
        };
        assert_eq!(
            permitted("10.2.0.2:80".parse().unwrap(), &nothing, &[]),
            Err(Forbidden::NotAccepted)
        );
    }

    #[test]
    fn own_addresses_are_read_from_the_kernels_tables() {
        let fib_trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     \
            |-- 10.1.0.0\n        /24 link UNICAST\nLocal:\n     |-- 10.1.0.1\n        /32 host LOCAL\n     \
            |-- 10.1.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.0\n        /8 host LOCAL\n     \
            |-- 127.0.0.1\n        /32 host LOCAL\n";
        let v4: Vec<IpAddr> = vec![[10, 1, 0, 1].into(), [127, 0, 0, 1].into()];
        assert_eq!(addresses_v4(fib_trie), v4);
        let if_inet6 = "fd000000000000000000000000000001 02 40 00 80     lan0\nnonsense\n";
        let v6: Vec<IpAddr> = vec!["fd00::1".parse().unwrap()];
        assert_eq!(addresses_v6(if_inet6), v6);
        // This machine has at least its loopback address.
        assert!(own_addresses().contains(&[127, 0, 0, 1].into()));
    }
}
