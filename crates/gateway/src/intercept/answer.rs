//! Answers in somebody else's name: the RST of a closed port, the ICMP error
//! of a router that found no way.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::packet::{Syn, Unreachable};

/// Raw sockets that take whole IP packets. They receive nothing.
pub(super) struct Answerer {
    v4: Socket,
    /// Absent where the kernel has no IPv6.
    v6: Option<Socket>,
}

impl Answerer {
    /// Needs CAP_NET_RAW.
    pub fn open() -> io::Result<Answerer> {
        // IPPROTO_RAW implies IP_HDRINCL for both families (raw(7)).
        let raw = Some(Protocol::from(libc::IPPROTO_RAW));
        let kind = Type::RAW.nonblocking();
        Ok(Answerer {
            v4: Socket::new(Domain::IPV4, kind, raw)?,
            v6: Socket::new(Domain::IPV6, kind, raw).ok(),
        })
    }

    /// Tells the client that its destination refuses.
    pub fn refuse(&self, syn: &Syn) -> io::Result<()> {
        self.send(syn, syn.reset())
    }

    /// Tells the client that its destination cannot be reached.
    pub fn unreachable(&self, syn: &Syn, kind: Unreachable) -> io::Result<()> {
        let router = address_towards(syn.client.ip())?;
        self.send(syn, syn.unreachable(kind, router))
    }

    fn send(&self, syn: &Syn, packet: Option<Vec<u8>>) -> io::Result<()> {
        let packet = packet.ok_or(io::ErrorKind::InvalidInput)?;
        let socket = match syn.client.ip() {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => self.v6.as_ref().ok_or(io::ErrorKind::Unsupported)?,
        };
        let to = SockAddr::from(SocketAddr::new(syn.client.ip(), 0));
        socket.send_to(&packet, &to).map(drop)
    }
}

/// Our own address on the way to `peer`. Connecting a datagram socket asks the
/// routing table and sends nothing.
pub(crate) fn address_towards(peer: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((peer, 9))?;
    Ok(socket.local_addr()?.ip())
}
