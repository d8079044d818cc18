//! The link: one emulator in each direction, hosts at both ends, and a ledger
//! of what happened at the bottleneck.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use bytes::Bytes;
use farhaul_link::{DirectionProfile, Emulator, LinkProfile, Output, Packet, Stats};
use noq::udp::EcnCodepoint;
use tokio::time::Instant;

/// Ethernet 14, IPv4 20 (RFC 791), UDP 8 (RFC 768).
pub const HEADERS_BYTES: usize = 42;

/// Direction of travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From the near gateways to the far ones.
    Forward = 0,
    /// Back.
    Backward = 1,
}

/// A UDP datagram on its way.
#[derive(Debug, Clone)]
pub struct Datagram {
    /// Sender's address.
    pub from: SocketAddr,
    /// Receiver's address.
    pub to: SocketAddr,
    /// ECN field of the IP header.
    pub ecn: Option<EcnCodepoint>,
    /// UDP payload.
    pub contents: Bytes,
}

impl Packet for Datagram {
    fn frame_bytes(&self) -> usize {
        self.contents.len() + HEADERS_BYTES
    }

    fn corrupt(&mut self, bit: u64) {
        let mut contents = self.contents.to_vec();
        let bits = contents.len() as u64 * 8;
        if let Some(bit) = bit.checked_rem(bits) {
            contents[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        self.contents = contents.into();
    }
}

/// What one direction of the bottleneck has seen so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ledger {
    /// The emulator's own counters.
    pub stats: Stats,
    /// Packets that the queue accepted.
    pub queued_packets: u64,
    /// Time they waited for the transmitter, all together.
    pub waited_ns: u64,
    /// Longest wait since [`Network::take_peak_ns`] was asked.
    pub peak_ns: u64,
}

/// A datagram for which it says `true` is lost before it reaches the link.
pub type DropRule = Box<dyn FnMut(&Datagram) -> bool + Send>;

struct Direction {
    emulator: Emulator<Datagram>,
    ledger: Ledger,
    rule: Option<DropRule>,
}

impl Direction {
    fn new(profile: DirectionProfile, seed: u64) -> Self {
        Self {
            emulator: Emulator::new(profile, seed),
            ledger: Ledger::default(),
            rule: None,
        }
    }

    fn send(&mut self, now_ns: u64, datagram: Datagram) {
        if self.rule.as_mut().is_some_and(|rule| rule(&datagram)) {
            return;
        }
        let frame_bytes = datagram.frame_bytes() as u64;
        let dropped = self.emulator.stats().drops.queue;
        self.emulator.handle_packet(now_ns, datagram);
        let stats = self.emulator.stats();
        if stats.drops.queue > dropped {
            return;
        }
        // The queue's length now is the packet's wait and its own transmission.
        let rate = self.emulator.profile().rate;
        let own_ns = rate.map_or(0, |rate| rate.time_ns(frame_bytes));
        let wait_ns = stats.queue_ns.saturating_sub(own_ns);
        self.ledger.queued_packets += 1;
        self.ledger.waited_ns += wait_ns;
        self.ledger.peak_ns = self.ledger.peak_ns.max(wait_ns);
    }
}

struct Host {
    way: Way,
    /// Delay between the bottleneck and this host, towards it.
    access: Option<Emulator<Datagram>>,
    inbox: VecDeque<Datagram>,
    waker: Option<Waker>,
}

impl Host {
    fn receive(&mut self, datagram: Datagram) {
        self.inbox.push_back(datagram);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

struct State {
    directions: [Direction; 2],
    hosts: BTreeMap<SocketAddr, Host>,
}

/// A link and the hosts at its ends.
pub struct Network {
    state: Mutex<State>,
    origin: Instant,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

impl Network {
    /// An idle link. Its time starts now, on tokio's clock.
    pub fn new(link: LinkProfile, seed: u64) -> Arc<Self> {
        let directions = [
            Direction::new(link.forward, seed.wrapping_mul(2)),
            Direction::new(link.backward, seed.wrapping_mul(2) + 1),
        ];
        let hosts = BTreeMap::new();
        Arc::new(Self {
            state: Mutex::new(State { directions, hosts }),
            origin: Instant::now(),
        })
    }

    /// Virtual time since the start.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Adds a host whose datagrams travel `way`. What arrives at it takes
    /// `access_ns` longer than the link.
    pub fn attach(&self, address: SocketAddr, way: Way, access_ns: u64) {
        let profile = DirectionProfile {
            delay_ns: access_ns,
            ..DirectionProfile::UNLIMITED
        };
        let host = Host {
            way,
            access: (access_ns > 0).then(|| Emulator::new(profile, 0)),
            inbox: VecDeque::new(),
            waker: None,
        };
        self.lock().hosts.insert(address, host);
    }

    /// A host sends. Datagrams of unknown hosts vanish.
    pub fn send(&self, datagram: Datagram) {
        let now_ns = self.now_ns();
        let mut state = self.lock();
        let Some(way) = state.hosts.get(&datagram.from).map(|host| host.way) else {
            return;
        };
        state.directions[way as usize].send(now_ns, datagram);
    }

    /// What has arrived at a host, at most `max` datagrams; without any, the
    /// waker is called when there are.
    pub fn receive(&self, host: SocketAddr, max: usize, waker: &Waker) -> Vec<Datagram> {
        let mut state = self.lock();
        let Some(host) = state.hosts.get_mut(&host) else {
            return Vec::new();
        };
        let count = host.inbox.len().min(max);
        if count == 0 {
            host.waker = Some(waker.clone());
        }
        host.inbox.drain(..count).collect()
    }

    /// Hands over everything due by `now_ns`; says how many datagrams that
    /// were and when the next one can be due.
    pub fn deliver(&self, now_ns: u64) -> (usize, Option<u64>) {
        let mut state = self.lock();
        let State { directions, hosts } = &mut *state;
        let (mut delivered, mut next_ns) = (0, None);
        for direction in directions {
            let emulator = &mut direction.emulator;
            let next = drain(emulator, now_ns, |due_ns, datagram| {
                delivered += 1;
                let Some(host) = hosts.get_mut(&datagram.to) else {
                    return;
                };
                match &mut host.access {
                    Some(access) => access.handle_packet(due_ns, datagram),
                    None => host.receive(datagram),
                }
            });
            next_ns = earlier(next_ns, next);
        }
        for host in hosts.values_mut() {
            let Some(mut access) = host.access.take() else {
                continue;
            };
            let next = drain(&mut access, now_ns, |_, datagram| {
                delivered += 1;
                host.receive(datagram);
            });
            next_ns = earlier(next_ns, next);
            host.access = Some(access);
        }
        (delivered, next_ns)
    }

    /// What the bottleneck has seen in one direction.
    pub fn ledger(&self, way: Way) -> Ledger {
        let mut state = self.lock();
        let direction = &mut state.directions[way as usize];
        direction.ledger.stats = *direction.emulator.stats();
        direction.ledger.clone()
    }

    /// The longest wait since this was last asked.
    pub fn take_peak_ns(&self, way: Way) -> u64 {
        std::mem::take(&mut self.lock().directions[way as usize].ledger.peak_ns)
    }

    /// The link is another one from now on.
    pub fn change(&self, link: &LinkProfile) {
        let now_ns = self.now_ns();
        let mut state = self.lock();
        let [forward, backward] = &mut state.directions;
        forward
            .emulator
            .handle_profile(now_ns, link.forward.clone());
        backward
            .emulator
            .handle_profile(now_ns, link.backward.clone());
    }

    /// From now on `rule` chooses datagrams to be lost in one direction.
    pub fn lose(&self, way: Way, rule: DropRule) {
        self.lock().directions[way as usize].rule = Some(rule);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn drain(
    emulator: &mut Emulator<Datagram>,
    now_ns: u64,
    mut deliver: impl FnMut(u64, Datagram),
) -> Option<u64> {
    loop {
        match emulator.poll_output(now_ns) {
            Output::Deliver { packet, due_ns } => deliver(due_ns, packet),
            Output::Timeout(at_ns) => return Some(at_ns),
            Output::Idle => return None,
        }
    }
}

fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
