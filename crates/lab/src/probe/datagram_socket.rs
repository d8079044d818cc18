//! A UDP socket that says of every datagram when the kernel got it, with which
//! type of service, and how many were dropped because nobody read them.

// Control messages have no safe wrapper for these kinds in the libraries used.
#![allow(unsafe_code)]

use std::io;
use std::mem::zeroed;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use socket2::SockRef;

use super::clock::Stamps;
use super::socket_state::{receive_drops, set, set_receive_buffer};

/// `IP_PMTUDISC_PROBE` of linux/in.h: do not fragment, do not believe the
/// cached path MTU.
const PMTUDISC_PROBE: i32 = 3;
/// Room for a burst that arrives while the reader does not run.
const RECEIVE_BUFFER_BYTES: u32 = 8 << 20;

/// The same host's other port. Of a link-local address of IPv6 the link stays with it.
pub(crate) fn at_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// What came with a datagram.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Arrival {
    pub(crate) length: usize,
    pub(crate) at_ns: u64,
    pub(crate) tos: Option<u8>,
    /// Dropped by this socket so far, as of this datagram.
    pub(crate) dropped: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    socket: UdpSocket,
    stamps: Stamps,
}

impl DatagramSocket {
    /// Bound to an address; reading gives up after `patience`.
    pub(crate) fn bind(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_read_timeout(Some(patience))?;
        let stamps = Stamps::new();
        let this = Self { socket, stamps };
        let descriptor = this.socket.as_raw_fd();
        for option in [libc::SO_TIMESTAMPNS, libc::SO_RXQ_OVFL] {
            set(descriptor, libc::SOL_SOCKET, option, 1)?;
        }
        set_receive_buffer(descriptor, RECEIVE_BUFFER_BYTES)?;
        let (level, tos, discover) = match address {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVTOS, libc::IP_MTU_DISCOVER),
            SocketAddr::V6(_) => (
                libc::IPPROTO_IPV6,
                libc::IPV6_RECVTCLASS,
                libc::IPV6_MTU_DISCOVER,
            ),
        };
        set(descriptor, level, tos, 1)?;
        set(descriptor, level, discover, PMTUDISC_PROBE)?;
        Ok(this)
    }

    pub(crate) fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    pub(crate) fn connect(&self, to: SocketAddr) -> io::Result<()> {
        self.socket.connect(to)
    }

    pub(crate) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(patience))
    }

    /// Dropped by this socket so far, also after the last datagram it kept.
    pub(crate) fn dropped(&self) -> io::Result<u32> {
        receive_drops(self.socket.as_raw_fd())
    }

    /// Type of service of what is sent from now on.
    pub(crate) fn set_tos(&self, tos: u8) -> io::Result<()> {
        let socket = SockRef::from(&self.socket);
        match self.socket.local_addr()? {
            SocketAddr::V4(_) => socket.set_tos_v4(u32::from(tos)),
            SocketAddr::V6(_) => socket.set_tclass_v6(u32::from(tos)),
        }
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.send(bytes)
    }

    pub(crate) fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.socket.send_to(bytes, to)
    }

    /// The next datagram with its sender; `None` when patience is over.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(Arrival, SocketAddr)>> {
        match self.receive_message(buffer) {
            Ok(found) => Ok(Some(found)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(None),
                // An ICMP error about something sent earlier.
                io::ErrorKind::ConnectionRefused | io::ErrorKind::HostUnreachable => Ok(None),
                _ => Err(error),
            },
        }
    }

    fn receive_message(&self, buffer: &mut [u8]) -> io::Result<(Arrival, SocketAddr)> {
        let mut control = [0_u64; 32];
        let mut part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let mut arrival = Arrival::default();
        let mut read = |storage: *mut libc::sockaddr_storage, length: *mut libc::socklen_t| {
            // SAFETY: zero is valid for this plain C structure; every pointer
            // in it is to something that lives until the call returns, with
            // its size beside it.
            unsafe {
                let mut message: libc::msghdr = zeroed();
                message.msg_name = storage.cast();
                message.msg_namelen = *length;
                message.msg_iov = &raw mut part;
                message.msg_iovlen = 1;
                message.msg_control = control.as_mut_ptr().cast();
                message.msg_controllen = size_of_val(&control) as _;
                let got = libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0);
                if got < 0 {
                    return Err(io::Error::last_os_error());
                }
                *length = message.msg_namelen;
                arrival = read_control(&message, &self.stamps);
                arrival.length = got.cast_unsigned();
            }
            Ok(())
        };
        // SAFETY: recvmsg initialises the address, or fails.
        let ((), from) =
            unsafe { socket2::SockAddr::try_init(|storage, length| read(storage.cast(), length)) }?;
        let from = from.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        Ok((arrival, from))
    }
}

impl AsRawFd for DatagramSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// # Safety
/// The message must have been filled by the kernel.
unsafe fn read_control(message: &libc::msghdr, stamps: &Stamps) -> Arrival {
    let mut arrival = Arrival::default();
    let mut stamp_ns = None;
    // SAFETY: the macros walk the buffer the kernel filled, within its length;
    // each kind's data has the type that is read, at any alignment.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = at.as_ref() {
            let data = libc::CMSG_DATA(at);
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    stamp_ns = Some(wall_ns(time));
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    arrival.dropped = data.cast::<u32>().read_unaligned();
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => arrival.tos = Some(data.read()),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    let class = data.cast::<i32>().read_unaligned();
                    arrival.tos = u8::try_from(class).ok();
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
    arrival.at_ns = stamps.arrival_ns(stamp_ns);
    arrival
}

fn wall_ns(time: libc::timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::clock::now_ns;

    #[test]
    fn a_datagram_comes_with_time_and_type_of_service() {
        let patience = Duration::from_secs(5);
        for address in ["127.0.0.1", "::1"] {
            let address = SocketAddr::new(address.parse().unwrap(), 0);
            let receiver = DatagramSocket::bind(address, patience).unwrap();
            let sender = DatagramSocket::bind(address, patience).unwrap();
            let to = at_port(address, receiver.port().unwrap());
            sender.set_tos(0xb8).unwrap();
            let before = now_ns();
            sender.send_to(b"abc", to).unwrap();
            let mut buffer = [0; 16];
            let (arrival, from) = receiver.receive(&mut buffer).unwrap().unwrap();
            assert_eq!(&buffer[..arrival.length], b"abc");
            assert_eq!(arrival.tos, Some(0xb8));
            assert_eq!(from.port(), sender.port().unwrap());
            assert!(arrival.at_ns >= before && arrival.at_ns <= now_ns());
        }
    }
}
