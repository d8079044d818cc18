//! What crossed the WAN, read from a capture there: how much came towards the client, and when.

use std::net::Ipv4Addr;

use super::bytes_before;
use super::pcap::packets;
use super::segment::{Seen, seen};

/// Who may speak on the WAN.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speakers {
    pub(crate) client: Ipv4Addr,
    pub(crate) server: (Ipv4Addr, u16),
    /// The gateways' addresses on the WAN, the client's side first.
    pub(crate) gateways: [Ipv4Addr; 2],
}

/// What crossed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Crossed {
    /// Times and lengths of frames from the server's side, the tunnel's and the copy's.
    towards_client: Vec<(u64, u64)>,
    /// The same of frames the other way.
    towards_server: Vec<(u64, u64)>,
    /// Bytes of all of them.
    pub(crate) own_bytes: u64,
    pub(crate) foreign_bytes: u64,
}

impl Crossed {
    /// Frames towards the client, frames towards the server, and no others.
    #[cfg(test)]
    pub(crate) fn of(towards_client: &[(u64, u64)], towards_server: &[(u64, u64)]) -> Self {
        let all = towards_client.iter().chain(towards_server);
        Self {
            towards_client: towards_client.to_vec(),
            towards_server: towards_server.to_vec(),
            own_bytes: all.map(|(_, bytes)| bytes).sum(),
            foreign_bytes: 0,
        }
    }

    /// Bytes of frames that came towards the client before this.
    pub(crate) fn towards_client_before(&self, time_ns: u64) -> u64 {
        bytes_before(&self.towards_client, time_ns)
    }

    /// Bytes of frames that came towards the server before this.
    pub(crate) fn towards_server_before(&self, time_ns: u64) -> u64 {
        bytes_before(&self.towards_server, time_ns)
    }

    /// All of those towards the client.
    pub(crate) fn towards_client(&self) -> u64 {
        self.towards_client_before(u64::MAX)
    }

    /// All of those towards the server.
    pub(crate) fn towards_server(&self) -> u64 {
        self.towards_server_before(u64::MAX)
    }
}

/// Reads a capture file; `None` where it is none.
pub(crate) fn crossed(file: &[u8], speakers: Speakers) -> Option<Crossed> {
    let mut crossed = Crossed::default();
    for packet in packets(file)? {
        let length = packet.length as u64;
        match is_towards_client(seen(packet.bytes), speakers) {
            Some(is_towards) => {
                crossed.own_bytes += length;
                match is_towards {
                    true => crossed.towards_client.push((packet.time_ns, length)),
                    false => crossed.towards_server.push((packet.time_ns, length)),
                }
            }
            None => crossed.foreign_bytes += length,
        }
    }
    Some(crossed)
}

/// `None` is foreign.
fn is_towards_client(frame: Seen<'_>, speakers: Speakers) -> Option<bool> {
    let Speakers {
        client,
        server,
        gateways: [near, far],
    } = speakers;
    match frame {
        Seen::Tcp(segment) if segment.source == server && segment.destination.0 == client => {
            Some(true)
        }
        Seen::Tcp(segment) if segment.source.0 == client && segment.destination == server => {
            Some(false)
        }
        Seen::Udp {
            source,
            destination,
        } => match (source.0, destination.0) {
            ends if ends == (far, near) => Some(true),
            ends if ends == (near, far) => Some(false),
            _ => None,
        },
        Seen::Tcp(_) | Seen::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::pcap::tests::file;
    use super::*;

    #[test]
    fn the_tunnel_is_told_from_others_and_counted_by_time() {
        let address = |last| Ipv4Addr::new(10, 9, 0, last);
        let datagram = |from: Ipv4Addr, to: Ipv4Addr| {
            let mut frame = vec![0; 12];
            frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
            frame.extend(from.octets());
            frame.extend(to.octets());
            frame.extend([0x11, 0x51, 0x11, 0x51, 0, 8, 0, 0]);
            frame
        };
        let (near, far, other) = (address(1), address(2), address(3));
        let frames = [
            (10, datagram(far, near)),
            (20, datagram(near, far)),
            (30, datagram(far, near)),
            (40, datagram(other, near)),
        ];
        let speakers = Speakers {
            client: Ipv4Addr::new(10, 1, 0, 2),
            server: (Ipv4Addr::new(10, 2, 0, 2), 445),
            gateways: [near, far],
        };
        let crossed = crossed(&file(&frames), speakers).unwrap();
        assert_eq!((crossed.own_bytes, crossed.foreign_bytes), (3 * 42, 42));
        assert_eq!(crossed.towards_client_before(10), 0);
        assert_eq!(crossed.towards_client_before(30), 42);
        assert_eq!(crossed.towards_client(), 84);
        assert_eq!(crossed.towards_server_before(20), 0);
        assert_eq!(crossed.towards_server_before(21), 42);
    }
}
