//! What the way does to packets: the longest that passes, and which marks are
//! changed.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::clock::now_ns;
use super::datagram_flow::{Header, Kind};
use super::datagram_socket::{Arrival, DatagramSocket, at_port};
use super::error::{ProbeError, While};
use super::latency::Latency;
use super::message::Token;
use super::socket_state::path_mtu_bytes;

/// Every host takes packets of this length (RFC 791), and hardly a way is shorter.
const LEAST_BYTES: u32 = 576;
/// Longer packets are not tried: loopback's and InfiniBand's.
const TRIED_BYTES_MAX: u32 = 9000;
/// Best effort, AF11, EF, and ECN's three marks (RFC 2474, RFC 3168).
const MARKS: [u8; 6] = [0x00, 0x28, 0xb8, 0x02, 0x01, 0x03];
/// Each datagram is tried so often: single losses are no finding.
const TRIES: u32 = 3;
/// Between two tries at least; slow lines get as much time as they need.
const SPACING_NS: u64 = 300_000;
/// Below it nothing but round trips and sizes is measured.
pub(crate) const LINE_BIT_PER_S_MIN: u64 = 100_000;
/// The packet whose round trip is known: an IPv4 echo.
const SHORTEST_BYTES: u32 = Header::BYTES as u32 + 28;
/// What a byte may take as long as nothing has come back: 4800 bit/s.
const FIRST_BYTE_NS: u64 = 8_000_000_000 / 4800;
/// Ethernet's packets. Above them rates are not measured, whatever the interface sends.
pub(crate) const FULL_PACKET_BYTES: u32 = 1500;

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
    /// Where the slower direction's line is slower than 500 kbit/s: about its rate, by
    /// how much longer a long datagram takes than a short one, bit/s.
    #[serde(default)]
    pub slow_line_bit_per_s: Option<u64>,
}

impl PathFacts {
    /// Whether packets that leave the hosts vanish without a word.
    pub fn is_black_hole(&self) -> bool {
        let tried = self.interface_mtu_bytes.unwrap_or(0).min(TRIED_BYTES_MAX);
        let is_short = |mtu: Option<u32>| mtu.is_some_and(|mtu| mtu < tried);
        !self.told_too_long && (is_short(self.up_mtu_bytes) || is_short(self.down_mtu_bytes))
    }

    /// Whether all of a test's datagrams and streams would only queue up.
    pub fn is_too_slow(&self) -> bool {
        let rate = self.slow_line_bit_per_s;
        rate.is_some_and(|rate| rate < LINE_BIT_PER_S_MIN)
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

/// Looks at the way, of which it is known what short datagrams take there and back.
pub(crate) fn check(client: &Client, idle: &Latency) -> Result<PathFacts, ProbeError> {
    let least_ns = idle.min_us.map(|us| us.saturating_mul(1000));
    let first = Pace::first(least_ns.unwrap_or(client.control_rtt_ns));
    let checker = Checker::new(client, first, idle.p95_us.unwrap_or(0).saturating_mul(1000))?;
    let mut facts = PathFacts {
        interface_mtu_bytes: path_mtu_bytes(checker.socket_number, checker.to.is_ipv6()).ok(),
        ..PathFacts::default()
    };
    facts.up_mtu_bytes = checker.longest(Long::Up, &mut facts)?;
    facts.down_mtu_bytes = checker.longest(Long::Down, &mut facts)?;
    if facts.mtu_bytes().is_some() {
        checker.marks(&mut facts)?;
    }
    Ok(facts)
}

struct Checker<'a> {
    client: &'a Client,
    socket: DatagramSocket,
    socket_number: i32,
    to: SocketAddr,
    token: Token,
    first: Pace,
    /// Nearly all of the shortest took less.
    short_late_ns: u64,
    headers_bytes: u32,
}

/// How long a datagram may be under way.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Of the shortest, there and back.
    round_trip_ns: u64,
    /// Of a byte on the slowest line.
    byte_ns: u64,
}

impl Pace {
    fn first(round_trip_ns: u64) -> Self {
        Self {
            round_trip_ns,
            byte_ns: FIRST_BYTE_NS,
        }
    }

    /// As the first longer one that came back shows.
    fn seen(self, bytes: u32, took_ns: u64) -> Self {
        let more = bytes.saturating_sub(SHORTEST_BYTES).max(1);
        let byte_ns = took_ns.saturating_sub(self.round_trip_ns) / u64::from(more);
        Self { byte_ns, ..self }
    }

    fn slow_bit_per_s(self) -> Option<u64> {
        const SLOW_BIT_PER_S: u64 = 500_000;
        let rate = 8_000_000_000_u64.checked_div(self.byte_ns)?;
        Some(rate).filter(|rate| *rate < SLOW_BIT_PER_S)
    }

    /// A line's rate, if not jitter has made it: the quickest long one took longer than
    /// nearly all short ones.
    fn line_bit_per_s(self, long_least_ns: u64, short_late_ns: u64) -> Option<u64> {
        self.slow_bit_per_s()
            .filter(|_| long_least_ns > short_late_ns)
    }

    fn line_ns(self, bytes: u32) -> u64 {
        self.byte_ns.saturating_mul(bytes.into())
    }

    /// After which the next may be sent without waiting behind the one before.
    fn spacing_ns(self, bytes: u32) -> u64 {
        self.line_ns(bytes).saturating_mul(2).max(SPACING_NS)
    }

    /// After which the last one will not come any more.
    fn patience_ns(self, bytes: u32) -> u64 {
        let there_and_back_ns = self.round_trip_ns.saturating_add(self.line_ns(bytes));
        there_and_back_ns
            .saturating_mul(2)
            .saturating_add(250_000_000)
    }
}

/// The longest size that passes, of which the shortest is known to: a bisection.
/// One that vanishes where the longest passed just before is tried once more, for
/// a moment's loss is no length.
fn bisect<E>(
    least: u32,
    most: u32,
    mut passes: impl FnMut(u32) -> Result<bool, E>,
) -> Result<u32, E> {
    if most <= least || passes(most)? {
        return Ok(most.max(least));
    }
    let (mut passed, mut vanished) = (least, most);
    loop {
        while vanished - passed > 1 {
            let middle = passed + (vanished - passed) / 2;
            match passes(middle)? {
                true => passed = middle,
                false => vanished = middle,
            }
        }
        if !passes(vanished)? {
            return Ok(passed);
        }
        (passed, vanished) = (vanished, most);
        if passed == most {
            return Ok(most);
        }
    }
}

/// One datagram that is to come back.
#[derive(Debug, Clone, Copy)]
struct Echo {
    sequence: u32,
    length: u32,
    reply_bytes: u16,
    tos: u8,
}

impl Echo {
    fn longer(&self) -> u32 {
        self.length.max(self.reply_bytes.into())
    }
}

impl<'a> Checker<'a> {
    fn new(client: &'a Client, first: Pace, short_late_ns: u64) -> Result<Self, ProbeError> {
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
            first,
            short_late_ns,
            headers_bytes: if to.is_ipv6() { 48 } else { 28 },
        })
    }

    /// `None` where nothing came back that says so.
    fn longest(&self, long: Long, facts: &mut PathFacts) -> Result<Option<u32>, ProbeError> {
        let most = facts
            .interface_mtu_bytes
            .unwrap_or(FULL_PACKET_BYTES)
            .min(TRIED_BYTES_MAX);
        let least = LEAST_BYTES.min(most);
        let Some(mut took_ns) = self.passes(least, long, self.first, facts)? else {
            return Ok(None);
        };
        let mut pace = self.first.seen(least, took_ns);
        if pace.slow_bit_per_s().is_some() {
            took_ns = self.least_ns(least, long, took_ns, facts)?;
            pace = self.first.seen(least, took_ns);
            let known = facts.slow_line_bit_per_s.into_iter();
            let line = pace.line_bit_per_s(took_ns, self.short_late_ns);
            facts.slow_line_bit_per_s = known.chain(line).min();
        }
        bisect(least, most, |size| {
            let took_ns = self.passes(size, long, pace, facts)?;
            Ok(took_ns.is_some())
        })
        .map(Some)
    }

    /// The least that some of this size take: a line is slow always, jitter is not.
    fn least_ns(
        &self,
        size: u32,
        long: Long,
        first_ns: u64,
        facts: &mut PathFacts,
    ) -> Result<u64, ProbeError> {
        let mut least_ns = first_ns;
        for _again in 0..5 {
            let took_ns = self.passes(size, long, self.first, facts)?;
            least_ns = took_ns.map_or(least_ns, |took_ns| took_ns.min(least_ns));
        }
        Ok(least_ns)
    }

    /// How long the first of this size took that came back, if one did.
    fn passes(
        &self,
        size: u32,
        long: Long,
        pace: Pace,
        facts: &mut PathFacts,
    ) -> Result<Option<u64>, ProbeError> {
        let short = Header::BYTES as u32;
        let payload = size.saturating_sub(self.headers_bytes).max(short);
        let (length, reply_bytes) = match long {
            Long::Up => (payload, short),
            Long::Down => (short, payload),
        };
        let echo = Echo {
            sequence: size,
            length,
            reply_bytes: reply_bytes as u16,
            tos: 0,
        };
        let mut took_ns = None;
        self.exchange(echo, pace, facts, |header, arrival| {
            let whole = match long {
                Long::Up => u32::from(header.bytes),
                Long::Down => arrival.length as u32,
            };
            if header.sequence == size && whole == payload {
                took_ns = Some(arrival.at_ns.saturating_sub(header.sent_ns));
            }
            took_ns.is_some()
        })?;
        Ok(took_ns)
    }

    fn marks(&self, facts: &mut PathFacts) -> Result<(), ProbeError> {
        let mut rewritten = (BTreeSet::new(), BTreeSet::new());
        for mark in MARKS {
            self.socket
                .set_tos(mark)
                .locally("setting the type of service")?;
            let echo = Echo {
                sequence: u32::from(mark),
                length: Header::BYTES as u32,
                reply_bytes: Header::BYTES as u16,
                tos: mark,
            };
            self.exchange(echo, self.first, facts, |header, arrival| {
                // A late reply to the mark before says nothing of this one.
                if header.sequence != u32::from(mark) {
                    return false;
                }
                if header.tos != mark {
                    rewritten.0.insert((mark, header.tos));
                }
                if let Some(tos) = arrival.tos.filter(|tos| *tos != mark) {
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

    /// Sends an echo up to [`TRIES`] times, at the pace of the way, until `take` is
    /// satisfied with a reply or patience is over.
    fn exchange(
        &self,
        echo: Echo,
        pace: Pace,
        facts: &mut PathFacts,
        mut take: impl FnMut(Header, Arrival) -> bool,
    ) -> Result<(), ProbeError> {
        let mut datagram = vec![0; echo.length as usize];
        for nth in 1..=TRIES {
            let sent_ns = now_ns();
            let header = Header {
                token: self.token,
                kind: Kind::Echo,
                tos: echo.tos,
                bytes: echo.reply_bytes,
                sequence: echo.sequence,
                sent_ns,
            };
            header.write(&mut datagram);
            facts.told_too_long |= self.socket.send(&datagram).is_err_and(is_too_long);
            let wait_ns = match nth {
                TRIES => pace.patience_ns(echo.longer()),
                _ => pace.spacing_ns(echo.longer()),
            };
            if self.replies_until(sent_ns + wait_ns, facts, &mut take)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hands every reply to `take` until it is satisfied, which is told, or time is over.
    fn replies_until(
        &self,
        end_ns: u64,
        facts: &mut PathFacts,
        mut take: impl FnMut(Header, Arrival) -> bool,
    ) -> Result<bool, ProbeError> {
        const SLICE_NS: u64 = 20_000_000;
        let mut buffer = vec![0; 16_384];
        loop {
            self.client.check_stop()?;
            let left_ns = end_ns.saturating_sub(now_ns()).min(SLICE_NS);
            if left_ns == 0 {
                return Ok(false);
            }
            self.socket
                .set_patience(Duration::from_nanos(left_ns.max(1000)))
                .locally("setting up a UDP socket")?;
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
            if take(header, arrival) {
                return Ok(true);
            }
        }
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

    /// What a way finds that lets pass what `passes` says, and how many sizes it took.
    fn found(least: u32, most: u32, mut passes: impl FnMut(u32, u32) -> bool) -> (u32, u32) {
        let mut tried = 0;
        let longest = bisect(least, most, |size| {
            tried += 1;
            Ok::<_, ()>(passes(size, tried))
        });
        (longest.unwrap(), tried)
    }

    #[test]
    fn the_longest_is_found_to_the_byte() {
        assert_eq!(found(576, 1500, |_, _| true), (1500, 1));
        assert_eq!(found(576, 576, |_, _| unreachable!()), (576, 0));
        for longest in [576, 577, 1400, 1492, 1499, 8999] {
            for most in [1500, 9000] {
                let (is, tried) = found(576, most, |size, _| size <= longest);
                assert_eq!(is, longest.min(most));
                assert!(tried <= 16, "{longest} of {most}: {tried}");
            }
        }
    }

    #[test]
    fn a_size_that_is_lost_for_a_moment_is_no_longest() {
        assert_eq!(found(576, 1500, |_, tried| tried > 1).0, 1500);
        assert_eq!(found(576, 1500, |_, tried| tried > 5).0, 1500);
        assert_eq!(
            found(576, 1500, |size, tried| size <= 1400 && tried != 2).0,
            1400
        );
    }

    #[test]
    fn a_slow_line_has_time_for_each_size() {
        // 9600 bit/s are 833 us for a byte; headers take their part.
        const BYTE_NS: u64 = 833_333;
        let took = |bytes: u32| 300_000_000 + u64::from(bytes - SHORTEST_BYTES) * BYTE_NS;
        let first = Pace::first(300_000_000);
        assert!(first.patience_ns(576) > took(576));
        let slow = first.seen(576, took(576));
        assert_eq!(slow.slow_bit_per_s(), Some(9600));
        assert!(slow.patience_ns(1500) > took(1500));
        // Each try has left the line before the next comes.
        assert!(slow.spacing_ns(1500) > 1500 * BYTE_NS);
        assert_eq!(slow.line_bit_per_s(took(576), 310_000_000), Some(9600));
        // Jitter is no slow line.
        assert_eq!(slow.line_bit_per_s(took(576), took(700)), None);
        // A fast one is not held up.
        let fast = first.seen(576, 300_050_000);
        assert_eq!(fast.slow_bit_per_s(), None);
        assert_eq!(fast.spacing_ns(1500), SPACING_NS);
        assert!(fast.patience_ns(1500) < 860_000_000);
    }

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
