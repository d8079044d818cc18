//! Ends what is left of a finished connection, so that a client may use its
//! port again.
//!
//! The far gateway stands in for the client towards the server, so it is here
//! that the closing side's TIME_WAIT lasts a minute. Clients with fixed ports
//! (NFS, many databases' links) come back sooner. The kernel lets them where
//! TCP timestamps tell old segments from new; towards servers that use none,
//! Windows' among them, it refuses the connect with EADDRNOTAVAIL.
//! Layout: linux/inet_diag.h, linux/sock_diag.h.

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SOCK_DESTROY: u16 = 21;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const STATE_TIME_WAIT: u8 = 6;

/// Ends the connection from `local` to `remote` if, and only if, it is in
/// TIME_WAIT; true if it was. Needs CAP_NET_ADMIN and a kernel with
/// `INET_DIAG_DESTROY`.
pub(crate) fn end(local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
    let protocol = Protocol::from(NETLINK_SOCK_DIAG);
    let mut socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
    socket.send(&request(SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, local, remote))?;
    let mut answer = [0u8; 1024];
    let length = socket.read(&mut answer)?;
    // Behind the netlink header: family, state.
    let known = kind(&answer) == Some(SOCK_DIAG_BY_FAMILY) && length > 17;
    if !known || answer.get(17) != Some(&STATE_TIME_WAIT) {
        return Ok(false);
    }
    let flags = NLM_F_REQUEST | NLM_F_ACK;
    socket.send(&request(SOCK_DESTROY, flags, local, remote))?;
    let length = socket.read(&mut answer)?;
    // An error message, whose number 0 is the acknowledgement.
    Ok(length >= 20 && answer.get(16..20) == Some(&[0; 4]))
}

fn request(kind: u16, flags: u16, local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let mut bytes = Vec::with_capacity(72);
    bytes.extend(72u32.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    // All states.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        let mut words = [0u8; 16];
        match address {
            IpAddr::V4(v4) => words[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => words = v6.octets(),
        }
        bytes.extend(words);
    }
    // Any interface; no cookie.
    bytes.extend([0; 4]);
    bytes.extend([0xff; 8]);
    bytes
}

fn kind(answer: &[u8]) -> Option<u16> {
    let bytes = answer.get(4..6)?.try_into().ok()?;
    Some(u16::from_ne_bytes(bytes))
}
