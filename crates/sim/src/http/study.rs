//! A run: a workload, two sites and the link between them.

use farhaul_link::LinkProfile;
use farhaul_tunnel::PathSettings;

use super::exchange::{Exchange, State};
use super::fetcher::{Fetched, Fetcher, Way};
use super::pair::{Heard, Pair};
use super::pool::Pool;
use super::version::Http;
use crate::engine::{NS_PER_MS, NS_PER_S};
use crate::network::{Circuit, CircuitStats, ConnectionId, Network, Notice, Side};
use crate::statistics::Samples;
use crate::tcp::{Event, Options, Profile};
use crate::workload::Workload;

/// The circuit under study, and the one between far proxy and servers.
const LONG: usize = 0;
const FAR: usize = 1;
/// The near proxy's ticks fall at 0, the far one's elsewhere.
const FAR_PHASE_NS: u64 = 130 * NS_PER_MS;
/// How often queue and sessions are looked at.
const SAMPLE_NS: u64 = NS_PER_S / 10;

/// What stands at the far end of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// A router: connections reach from the near proxy to the servers.
    Direct,
    /// A proxy, with so many standing connections to the near one.
    Proxies {
        /// Connections of the pool.
        connections: u32,
    },
    /// A Farhaul gateway, with one at the near site.
    Pair {
        /// They were told the link's rate and that it is theirs alone; otherwise
        /// they find out what it carries.
        is_told: bool,
    },
}

/// Everything about a run but its workload.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The long link; forward is from the near proxy.
    pub link: LinkProfile,
    /// What stands at its far end.
    pub architecture: Architecture,
    /// How connections to servers are used.
    pub http: Http,
    /// Everybody's TCP.
    pub profile: Profile,
    /// Buffers of the proxies' TCP.
    pub proxy_buffer_bytes: u64,
    /// Servers' buffers, where not those of the host file.
    pub server_buffer_bytes: Option<u64>,
    /// Maximum segment size between proxies, and the most they accept.
    pub mss_bytes: u32,
    /// A persistent connection idle for so long is closed.
    pub idle_timeout_ns: u64,
    /// Multiplexing adds this to every reply segment between proxies.
    pub overhead_bytes: u64,
    /// Delay of the network behind the link, one way.
    pub far_delay_ns: u64,
    /// Requests made before this are simulated but not judged.
    pub warm_up_ns: u64,
    /// How long after the last request the run may go on.
    pub drain_ns: u64,
    /// Seed of hosts' ticks and of the link's loss.
    pub seed: u64,
}

/// What the world wakes up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alarm {
    /// The next request of the log.
    Arrive(u32),
    /// The far network delivered a piece of a reply.
    Release(u32),
    /// A connection may have been idle for too long.
    Idle(ConnectionId),
    /// A gateway's transport may have something to do.
    Carriage,
    Sample,
    Stop,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Latencies of judged requests that were answered, seconds, sorted.
    pub latency_s: Samples,
    /// Requests judged, and those of them not answered in time or failed.
    pub judged: u64,
    /// See `judged`.
    pub unanswered: u64,
    /// Reply bytes completely delivered to judged requests.
    pub delivered_bytes: u64,
    /// Connections to servers open at the same time.
    pub sessions_max: u64,
    /// Connections to servers opened.
    pub opened: u64,
    /// Bytes waiting in the far router, looked at ten times a second.
    pub queue_bytes: Samples,
    /// Connections to servers, looked at ten times a second.
    pub sessions: Samples,
    /// Counters of the link towards the near site.
    pub inbound: CircuitStats,
    /// Counters of the link from the near site.
    pub outbound: CircuitStats,
    /// Datagrams that the gateways' transport sent again.
    pub resent: u64,
    /// Packets handed to a circuit and taken out of one.
    pub packet_events: u64,
    /// Simulated time.
    pub ended_ns: u64,
    /// Hash of everything that happened.
    pub trace: String,
    /// Why the run is worthless, if it is: it outgrew its memory, or the tunnel
    /// between the gateways broke.
    pub error: Option<String>,
}

/// A run in progress.
#[derive(Debug)]
pub struct Study<'a> {
    scenario: &'a Scenario,
    workload: &'a Workload,
    net: Network<Alarm>,
    exchanges: Vec<Exchange>,
    fetcher: Fetcher,
    pool: Option<Pool>,
    pair: Option<Pair>,
    unfinished: usize,
    queue_bytes: Samples,
    sessions: Samples,
}

impl<'a> Study<'a> {
    /// A world at time 0.
    pub fn new(scenario: &'a Scenario, workload: &'a Workload) -> Self {
        let far_link = far_link(scenario.far_delay_ns);
        let mut long_link = scenario.link.clone();
        if scenario.architecture == Architecture::Direct {
            // Who asks the servers themselves has both networks before them.
            long_link.forward.delay_ns += scenario.far_delay_ns;
            long_link.backward.delay_ns += scenario.far_delay_ns;
        }
        let mut net = Network::new(vec![
            Circuit::new(&long_link, 0, scenario.seed),
            Circuit::new(&far_link, 0, scenario.seed),
        ]);
        let near = Options {
            profile: scenario.profile,
            mss_bytes: scenario.mss_bytes,
            buffer_bytes: scenario.proxy_buffer_bytes,
            phase_ns: 0,
        };
        let far = Options {
            phase_ns: FAR_PHASE_NS,
            ..near
        };
        let mut pair = None;
        let (pool, circuit, client) = match scenario.architecture {
            Architecture::Direct => (None, LONG, near),
            Architecture::Proxies { connections } => {
                let overhead = scenario.overhead_bytes;
                let pool = Pool::open(&mut net, LONG, connections, near, far, overhead);
                (Some(pool), FAR, far)
            }
            Architecture::Pair { is_told } => {
                pair = Some(pair_of(&scenario.link, is_told));
                (None, FAR, far)
            }
        };
        let way = Way {
            circuit,
            http: scenario.http,
            idle_timeout_ns: scenario.idle_timeout_ns,
            client,
            server: scenario.profile,
            server_buffer_bytes: scenario.server_buffer_bytes,
            seed: scenario.seed,
        };
        Self {
            scenario,
            workload,
            fetcher: Fetcher::new(way, &workload.hosts),
            exchanges: workload
                .requests
                .iter()
                .copied()
                .map(Exchange::new)
                .collect(),
            unfinished: workload.requests.len(),
            net,
            pool,
            pair,
            queue_bytes: Samples::default(),
            sessions: Samples::default(),
        }
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Outcome {
        let last_ns = self
            .workload
            .requests
            .last()
            .map_or(0, |request| request.at_ns);
        self.arm_arrival(0);
        self.pump_pair();
        self.net.set_alarm(0, Alarm::Sample);
        self.net
            .set_alarm(last_ns.saturating_add(self.scenario.drain_ns), Alarm::Stop);
        while self.unfinished > 0 {
            let Some(notice) = self.net.run() else { break };
            match notice {
                Notice::Alarm(Alarm::Stop) => break,
                Notice::Alarm(alarm) => self.handle_alarm(alarm),
                Notice::Connection(id, side, event) => self.handle_connection(id, side, event),
                Notice::Packet(_, to, number) => self.handle_packet(to, number),
            }
        }
        self.outcome()
    }

    fn arm_arrival(&mut self, index: u32) {
        if let Some(exchange) = self.exchanges.get(index as usize) {
            self.net
                .set_alarm(exchange.request.at_ns, Alarm::Arrive(index));
        }
    }

    fn handle_alarm(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Arrive(index) => {
                self.arm_arrival(index + 1);
                self.arrive(index);
            }
            Alarm::Release(index) => {
                self.fetcher
                    .release(&mut self.net, &mut self.exchanges, index);
            }
            Alarm::Idle(id) => self.fetcher.handle_idle(&mut self.net, id),
            Alarm::Carriage => self.pump_pair(),
            Alarm::Sample => self.sample(),
            Alarm::Stop => {}
        }
    }

    fn arrive(&mut self, index: u32) {
        let Some(exchange) = self.exchanges.get_mut(index as usize) else {
            return;
        };
        exchange.state = State::UnderWay;
        match (&mut self.pool, &mut self.pair) {
            (Some(pool), _) => pool.ask(&mut self.net, exchange, index),
            (None, Some(pair)) => {
                pair.ask(&self.net, exchange, index);
                self.pump_pair();
            }
            (None, None) => self
                .fetcher
                .fetch(&mut self.net, &mut self.exchanges, index),
        }
    }

    fn sample(&mut self) {
        let now_ns = self.net.now_ns();
        if now_ns >= self.scenario.warm_up_ns && now_ns < self.workload.duration_ns {
            let stats = self.net.circuit(LONG, Side::Client).unwrap_or_default();
            self.queue_bytes.push(stats.queue_bytes as f64);
            self.sessions.push(self.fetcher.sessions() as f64);
        }
        if now_ns < self.workload.duration_ns {
            self.net.set_alarm(now_ns + SAMPLE_NS, Alarm::Sample);
        }
    }

    fn handle_connection(&mut self, id: ConnectionId, side: Side, event: Event) {
        if self.pool.as_ref().is_some_and(|pool| pool.owns(id)) {
            self.handle_pool(id, side, event);
            return;
        }
        let failed_before = self.count_failed(event);
        let mut fetched = Vec::new();
        let what = (id, side, event);
        self.fetcher
            .handle(&mut self.net, &mut self.exchanges, what, &mut fetched);
        self.unfinished -= self.count_failed(event).saturating_sub(failed_before);
        for piece in fetched {
            self.pass_on(piece);
        }
    }

    /// Exchanges that failed; looked at only where some may have.
    fn count_failed(&self, event: Event) -> usize {
        if event != Event::Failed {
            return 0;
        }
        let is_failed = |exchange: &&Exchange| exchange.state == State::Failed;
        self.exchanges.iter().filter(is_failed).count()
    }

    fn pass_on(&mut self, piece: Fetched) {
        let Fetched { exchange, bytes } = piece;
        let is_last = self
            .exchanges
            .get(exchange as usize)
            .is_some_and(Exchange::is_fetched);
        match (&mut self.pool, &mut self.pair) {
            (Some(pool), _) => pool.reply(&mut self.net, &mut self.exchanges, exchange, bytes),
            (None, Some(pair)) => {
                pair.reply(exchange, bytes, is_last);
                self.pump_pair();
            }
            (None, None) if is_last => self.finish(exchange),
            (None, None) => {}
        }
    }

    fn handle_packet(&mut self, to: Side, number: u64) {
        if let Some(pair) = &mut self.pair {
            pair.handle_packet(&self.net, to, number);
            self.pump_pair();
        }
    }

    fn pump_pair(&mut self) {
        let mut heard = Vec::new();
        if let Some(pair) = &mut self.pair {
            pair.pump(&mut self.net, &mut heard);
        }
        for what in heard {
            match what {
                Heard::Asked(index) => {
                    self.fetcher
                        .fetch(&mut self.net, &mut self.exchanges, index)
                }
                Heard::Replied(index) => self.finish(index),
            }
        }
    }

    fn handle_pool(&mut self, id: ConnectionId, side: Side, event: Event) {
        let Some(pool) = &mut self.pool else {
            return;
        };
        let mut complete = Vec::new();
        match (side, event) {
            (Side::Server, Event::Received(bytes)) => {
                pool.hear(&mut self.exchanges, id, bytes, &mut complete);
                for index in complete {
                    self.fetcher
                        .fetch(&mut self.net, &mut self.exchanges, index);
                }
            }
            (Side::Client, Event::Received(bytes)) => {
                pool.collect(&mut self.exchanges, id, bytes, &mut complete);
                for index in complete {
                    self.finish(index);
                }
            }
            (_, Event::Failed) => pool.handle_failure(id),
            _ => {}
        }
    }

    fn finish(&mut self, index: u32) {
        let now_ns = self.net.now_ns();
        if let Some(exchange) = self.exchanges.get_mut(index as usize)
            && exchange.state == State::UnderWay
        {
            exchange.state = State::Done(now_ns);
            self.unfinished -= 1;
        }
    }

    fn outcome(self) -> Outcome {
        let mut latency_s = Samples::default();
        let (mut judged, mut unanswered, mut delivered_bytes) = (0, 0, 0);
        for exchange in &self.exchanges {
            if exchange.request.at_ns < self.scenario.warm_up_ns {
                continue;
            }
            judged += 1;
            match exchange.state {
                State::Done(at_ns) => {
                    latency_s.push(crate::engine::seconds(at_ns - exchange.request.at_ns));
                    delivered_bytes += exchange.request.reply_bytes;
                }
                _ => unanswered += 1,
            }
        }
        latency_s.sort();
        let stats = |circuit, side| self.net.circuit(circuit, side).unwrap_or_default();
        let all = [
            (LONG, Side::Client),
            (LONG, Side::Server),
            (FAR, Side::Client),
            (FAR, Side::Server),
        ];
        let packet_events = all.map(|(circuit, side)| {
            let stats = stats(circuit, side);
            stats.packets_in + stats.packets_out
        });
        let overflow = self.net.overflow().map(|overflow| overflow.to_string());
        let is_broken = self.pair.as_ref().is_some_and(Pair::has_failed);
        let error = overflow.or_else(|| is_broken.then(|| "the tunnel broke".to_owned()));
        Outcome {
            latency_s,
            judged,
            unanswered,
            delivered_bytes,
            sessions_max: self.fetcher.sessions_max(),
            opened: self.fetcher.opened(),
            queue_bytes: self.queue_bytes.sorted(),
            sessions: self.sessions.sorted(),
            inbound: stats(LONG, Side::Client),
            outbound: stats(LONG, Side::Server),
            resent: self.pair.as_ref().map_or(0, Pair::lost),
            packet_events: packet_events.iter().sum(),
            ended_ns: self.net.now_ns(),
            trace: self.net.trace().hex(),
            error,
        }
    }
}

/// Gateways, and what they know of the link. Nobody can be told the rate of a
/// link that has none.
fn pair_of(link: &LinkProfile, is_told: bool) -> Pair {
    let settings = |direction: &farhaul_link::DirectionProfile| {
        let rate = direction.rate.filter(|_| is_told);
        PathSettings {
            link_bits_per_s: rate.map(farhaul_link::Rate::bit_per_s),
            is_owned: rate.is_some(),
            remembered: None,
            header_bytes: super::carriage::HEADER_BYTES,
        }
    };
    Pair::new(
        LONG,
        [settings(&link.forward), settings(&link.backward)],
        link.rtt_ns(),
    )
}

/// The far network's delay, and nothing else: what it costs beyond that is in
/// the log.
fn far_link(delay_ns: u64) -> LinkProfile {
    let direction = farhaul_link::DirectionProfile {
        delay_ns,
        ..farhaul_link::DirectionProfile::default()
    };
    LinkProfile::symmetric(direction)
}
