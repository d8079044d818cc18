//! What the way does to packets: the longest that passes, and which marks are
//! changed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::clock::{now_ns, sleep_until};
use super::datagram_flow::{Header, Kind};
use super::datagram_socket::{DatagramSocket, at_port};
use super::error::{ProbeError, While};
use super::message::Token;
use super::socket_state::path_mtu_bytes;

/// Tried first: the ends of common encapsulations (Ethernet, PPPoE, GRE,
/// IPsec, WireGuard, IPv6's least, IPv4's).
const USUAL_BYTES: [u32; 12] = [
    9000, 1500, 1492, 1480, 1476, 1460, 1420, 1400, 1350, 1280, 1006, 576,
];
/// Longer packets are not tried: loopback's and InfiniBand's.
const TRIED_BYTES_MAX: u32 = 9000;
/// Best effort, AF11, EF, and ECN's three marks (RFC 2474, RFC 3168).
const MARKS: [u8; 6] = [0x00, 0x28, 0xb8, 0x02, 0x01, 0x03];
/// Each datagram is tried so often: single losses are no finding.
const TRIES: u32 = 3;
const SPACING_NS: u64 = 300_000;

/// A mark that arrives as another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rewriting {
    /// Type of service that was sent.
    pub sent: u8,
    /// What arrived.
    pub arrived: u8,
}

/// What the way does.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PathFacts {
    /// Longest packet our own interface sends, bytes.
    pub interface_mtu_bytes: Option<u32>,
    /// Longest packet that arrives at the server, bytes.
    pub up_mtu_bytes: Option<u32>,
    /// Longest packet that arrives from the server, bytes; the server's own
    /// interface is part of it.
    pub down_mtu_bytes: Option<u32>,
    /// Whether an ICMP message told us of packets that were too long.
    pub told_too_long: bool,
    /// Marks changed on the way up.
    pub up_rewritten: Vec<Rewriting>,
    /// Marks changed on the way down.
    pub down_rewritten: Vec<Rewriting>,
}

impl PathFacts {
    /// Whether packets that leave the hosts vanish without a word.
    pub fn is_black_hole(&self) -> bool {
        let tried = self.interface_mtu_bytes.unwrap_or(0).min(TRIED_BYTES_MAX);
        let is_short = |mtu: Option<u32>| mtu.is_some_and(|mtu| mtu < tried);
        !self.told_too_long && (is_short(self.up_mtu_bytes) || is_short(self.down_mtu_bytes))
    }

    /// The longest packet that passes both ways.
    pub fn mtu_bytes(&self) -> Option<u32> {
        let both = [self.up_mtu_bytes, self.down_mtu_bytes];
        both.into_iter().flatten().min()
    }
}

/// One direction's packets are long, the other's short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Long {
    Up,
    Down,
}

/// Looks at the way.
pub(crate) fn check(client: &Client) -> Result<PathFacts, ProbeError> {
    let checker = Checker::new(client)?;
    let mut facts = PathFacts {
        interface_mtu_bytes: path_mtu_bytes(checker.socket_number, checker.to.is_ipv6()).ok(),
        ..PathFacts::default()
    };
    facts.up_mtu_bytes = checker.longest(Long::Up, &mut facts)?;
    facts.down_mtu_bytes = checker.longest(Long::Down, &mut facts)?;
    checker.marks(&mut facts)?;
    Ok(facts)
}

struct Checker<'a> {
    client: &'a Client,
    socket: DatagramSocket,
    socket_number: i32,
    to: SocketAddr,
    token: Token,
    patience_ns: u64,
    headers_bytes: u32,
}

impl<'a> Checker<'a> {
    fn new(client: &'a Client) -> Result<Self, ProbeError> {
        let to = at_port(client.server(), client.echo_port);
        let socket = DatagramSocket::bind(client.local_address(), Duration::from_millis(20))
            .locally("opening a UDP socket")?;
        socket.connect(to).locally("connecting a UDP socket")?;
        Ok(Self {
            client,
            socket_number: socket.as_raw_fd(),
            socket,
            to,
            token: client.token,
            patience_ns: 2 * client.control_rtt_ns + 250_000_000,
            headers_bytes: if to.is_ipv6() { 48 } else { 28 },
        })
    }

    /// In three rounds: usual sizes, then ever closer between the longest that
    /// passed and the next.
    fn longest(&self, long: Long, facts: &mut PathFacts) -> Result<Option<u32>, ProbeError> {
        let most = facts
            .interface_mtu_bytes
            .unwrap_or(1500)
            .min(TRIED_BYTES_MAX);
        let mut sizes: BTreeSet<u32> = USUAL_BYTES
            .into_iter()
            .filter(|size| *size < most)
            .collect();
        sizes.insert(most);
        let mut passed: Option<u32> = None;
        for _round in 0..3 {
            let arrived = self.arrived(&sizes, long, facts)?;
            passed = passed.max(arrived.last().copied());
            let Some(longest) = passed else {
                return Ok(None);
            };
            let Some(next) = sizes.iter().copied().find(|size| *size > longest) else {
                return Ok(passed);
            };
            let step = ((next - longest) / 12).max(1) as usize;
            let mut closer: BTreeSet<u32> = (longest + 1..next).step_by(step).collect();
            closer.insert(next);
            sizes = closer;
        }
        Ok(passed)
    }

    fn arrived(
        &self,
        sizes: &BTreeSet<u32>,
        long: Long,
        facts: &mut PathFacts,
    ) -> Result<BTreeSet<u32>, ProbeError> {
        let payload = |size: u32| {
            size.saturating_sub(self.headers_bytes)
                .max(Header::BYTES as u32)
        };
        let echoes = sizes.iter().flat_map(|size| {
            let (echo, reply) = match long {
                Long::Up => (payload(*size), Header::BYTES as u32),
                Long::Down => (Header::BYTES as u32, payload(*size)),
            };
            std::iter::repeat_n((*size, echo as usize, reply as u16, 0), TRIES as usize)
        });
        let wanted = sizes.len();
        let mut found = BTreeSet::new();
        self.exchange(echoes, facts, |header, _, length| {
            let whole = match long {
                Long::Up => usize::from(header.bytes),
                Long::Down => length,
            };
            if whole as u32 == payload(header.sequence) {
                found.insert(header.sequence);
            }
            found.len() == wanted
        })?;
        Ok(found)
    }

    fn marks(&self, facts: &mut PathFacts) -> Result<(), ProbeError> {
        let mut rewritten = (BTreeSet::new(), BTreeSet::new());
        for mark in MARKS {
            self.socket
                .set_tos(mark)
                .locally("setting the type of service")?;
            let bytes = Header::BYTES;
            let echo = (u32::from(mark), bytes, bytes as u16, mark);
            let echoes = std::iter::repeat_n(echo, TRIES as usize);
            self.exchange(echoes, facts, |header, tos, _| {
                // A late reply to the mark before says nothing of this one.
                if header.sequence != u32::from(mark) {
                    return false;
                }
                if header.tos != mark {
                    rewritten.0.insert((mark, header.tos));
                }
                if let Some(tos) = tos.filter(|tos| *tos != mark) {
                    rewritten.1.insert((mark, tos));
                }
                true
            })?;
        }
        let list = |set: BTreeSet<(u8, u8)>| {
            let pairs = set.into_iter();
            pairs
                .map(|(sent, arrived)| Rewriting { sent, arrived })
                .collect()
        };
        facts.up_rewritten = list(rewritten.0);
        facts.down_rewritten = list(rewritten.1);
        Ok(())
    }

    /// Sends echoes and hands every reply to `take`, until that is satisfied
    /// or patience is over.
    fn exchange(
        &self,
        echoes: impl Iterator<Item = (u32, usize, u16, u8)>,
        facts: &mut PathFacts,
        mut take: impl FnMut(Header, Option<u8>, usize) -> bool,
    ) -> Result<(), ProbeError> {
        for (sequence, length, bytes, tos) in echoes {
            let mut datagram = vec![0; length];
            let sent_ns = now_ns();
            let header = Header {
                token: self.token,
                kind: Kind::Echo,
                tos,
                bytes,
                sequence,
                sent_ns,
            };
            header.write(&mut datagram);
            facts.told_too_long |= self.socket.send(&datagram).is_err_and(is_too_long);
            sleep_until(sent_ns + SPACING_NS);
        }
        let end_ns = now_ns() + self.patience_ns;
        let mut buffer = vec![0; 16_384];
        while now_ns() < end_ns {
            self.client.check_stop()?;
            let received = match self.socket.receive(&mut buffer) {
                Ok(received) => received,
                Err(error) if is_too_long_error(&error) => {
                    facts.told_too_long = true;
                    None
                }
                Err(error) => return Err(error).lost_while("looking at the way"),
            };
            let Some((arrival, _)) = received else {
                continue;
            };
            let datagram = buffer.get(..arrival.length).unwrap_or_default();
            let header = Header::read(datagram, &self.token);
            let Some(header) = header.filter(|header| header.kind == Kind::Reply) else {
                continue;
            };
            if take(header, arrival.tos, arrival.length) {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn is_too_long_error(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

#[allow(clippy::needless_pass_by_value)]
fn is_too_long(error: std::io::Error) -> bool {
    is_too_long_error(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_black_hole_is_short_and_silent() {
        let facts = |up, told_too_long| PathFacts {
            interface_mtu_bytes: Some(1500),
            up_mtu_bytes: Some(up),
            down_mtu_bytes: Some(1500),
            told_too_long,
            ..PathFacts::default()
        };
        assert!(!facts(1500, false).is_black_hole());
        assert!(facts(1400, false).is_black_hole());
        assert!(!facts(1400, true).is_black_hole());
        assert_eq!(facts(1400, false).mtu_bytes(), Some(1400));
        // Loopback: what is longer than the longest that is tried is not missed.
        let mut long = facts(9000, false);
        (long.interface_mtu_bytes, long.down_mtu_bytes) = (Some(65_535), Some(9000));
        assert!(!long.is_black_hole());
        long.down_mtu_bytes = Some(8000);
        assert!(long.is_black_hole());
    }
}
