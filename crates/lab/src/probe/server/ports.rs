//! UDP ports of a server: any that its system has free, or the ones that a
//! firewall before it lets in.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::probe::datagram_socket::{DatagramSocket, at_port};
use crate::probe::message::SLICE;

/// Ports from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpPorts {
    first: u16,
    count: u16,
}

impl UdpPorts {
    /// One for the echoes of a client, one for its test.
    pub const LEAST: u16 = 2;

    /// `5202-5265`; says what is wrong with other words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (first, last) = text
            .split_once('-')
            .ok_or("not FIRST-LAST, such as 5202-5265")?;
        let port = |word: &str| match word.trim().parse() {
            Ok(0) | Err(_) => Err(format!("`{word}` is no port")),
            Ok(port) => Ok(port),
        };
        let (first, last): (u16, u16) = (port(first)?, port(last)?);
        // 1 to 65535: the difference and one more fit.
        match last.checked_sub(first).map(|more| more + 1) {
            Some(count) if count >= Self::LEAST => Ok(Self { first, count }),
            _ => Err(format!("each client needs {} ports", Self::LEAST)),
        }
    }

    /// Whether a port is one of them.
    pub fn has(self, port: u16) -> bool {
        port.checked_sub(self.first)
            .is_some_and(|nth| nth < self.count)
    }

    /// First and last.
    pub fn ends(self) -> (u16, u16) {
        (self.first, self.first + (self.count - 1))
    }

    /// All of them, from the one with this number, which may be any.
    fn from(self, start: u32) -> impl Iterator<Item = u16> {
        let count = u32::from(self.count);
        (0..count).map(move |nth| {
            // Below `count`, which is a u16.
            let place = (start % count + nth) % count;
            self.first + place as u16
        })
    }
}

/// Gives them out.
#[derive(Debug)]
pub(super) struct Sockets {
    ports: Option<UdpPorts>,
    next: AtomicU32,
}

impl Sockets {
    pub(super) fn new(ports: Option<UdpPorts>) -> Self {
        Self {
            ports,
            next: AtomicU32::new(0),
        }
    }

    /// A socket of its own for a client or a test. Ports take turns: what is still
    /// on its way from a test before belongs to no other.
    pub(super) fn open(&self, local: SocketAddr) -> io::Result<DatagramSocket> {
        let Some(ports) = self.ports else {
            return DatagramSocket::bind(at_port(local, 0), SLICE);
        };
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        for port in ports.from(start) {
            match DatagramSocket::bind(at_port(local, port), SLICE) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                other => return other,
            }
        }
        let (first, last) = ports.ends();
        let why = format!("all UDP ports from {first} to {last} are in use");
        Err(io::Error::new(ErrorKind::AddrInUse, why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_and_others_named() {
        let ports = UdpPorts::parse("5202-5265").unwrap();
        assert_eq!(ports.ends(), (5202, 5265));
        let has: Vec<_> = [5201, 5202, 5265, 5266].map(|port| ports.has(port)).into();
        assert_eq!(has, [false, true, true, false]);
        assert_eq!(UdpPorts::parse("1-65535").unwrap().ends(), (1, 65_535));
        for wrong in [
            "",
            "5202",
            "5202-",
            "-",
            "0-9",
            "5-70000",
            "9-5",
            "5202-5202",
            "a-b",
        ] {
            assert!(UdpPorts::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_port_has_its_turn_from_anywhere() {
        let ports = UdpPorts::parse("65533-65535").unwrap();
        for (start, expected) in [
            (0, [65_533, 65_534, 65_535]),
            (4, [65_534, 65_535, 65_533]),
            (u32::MAX, [65_533, 65_534, 65_535]),
        ] {
            let turn: Vec<u16> = ports.from(start).collect();
            assert_eq!(turn, expected, "{start}");
        }
    }

    #[test]
    fn sockets_take_turns_and_a_range_that_is_used_up_says_so() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        // Two that are free beside each other, as far as anybody can know.
        let pair = (0..100).find_map(|_| {
            let first = DatagramSocket::bind(local, SLICE).unwrap();
            let port = first.port().unwrap();
            let next = port.checked_add(1)?;
            DatagramSocket::bind(at_port(local, next), SLICE).ok()?;
            Some((port, next))
        });
        let (first, last) = pair.unwrap();
        let sockets = Sockets::new(Some(UdpPorts::parse(&format!("{first}-{last}")).unwrap()));
        let one = sockets.open(local).unwrap();
        drop(one);
        let two = sockets.open(local).unwrap();
        assert_eq!(two.port().unwrap(), last);
        let one = sockets.open(local).unwrap();
        assert_eq!(one.port().unwrap(), first);
        let none = sockets.open(local).unwrap_err().to_string();
        assert!(
            none.contains(&format!("from {first} to {last} are in use")),
            "{none}"
        );
    }
}
