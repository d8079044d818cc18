//! Fetches replies from servers: opens, uses again, shares and closes
//! connections as a version of HTTP does. It plays the servers, too.

use std::collections::{BTreeMap, VecDeque};

use super::exchange::{Exchange, State};
use super::spans::Spans;
use super::study::Alarm;
use super::version::Http;
use crate::engine::{NS_PER_S, Stream};
use crate::network::{ConnectionId, Network, Side};
use crate::tcp::{Event, Options, Profile};
use crate::workload::Host;

/// What a fetcher is to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// Over which circuit.
    pub(super) circuit: usize,
    pub(super) http: Http,
    /// A connection idle for so long is closed.
    pub(super) idle_timeout_ns: u64,
    /// The fetching end; its maximum segment size is the most it accepts.
    pub(super) client: Options,
    /// The servers' TCP.
    pub(super) server: Profile,
    /// Servers' buffers, where not each has its own.
    pub(super) server_buffer_bytes: Option<u64>,
    pub(super) seed: u64,
}

/// Bytes of a reply that reached who fetches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fetched {
    pub(super) exchange: u32,
    pub(super) bytes: u64,
}

/// A connection that carries exchanges.
#[derive(Debug)]
struct Carrier {
    id: ConnectionId,
    host: u32,
    asked: Spans,
    replying: Spans,
    /// Exchanges not fully written by the server yet, in the order asked.
    order: VecDeque<u32>,
    /// Exchanges not fully fetched yet.
    outstanding: u32,
    idle_since_ns: u64,
    payload_bytes: u64,
}

#[derive(Debug, Default)]
struct HostState {
    window_bytes: u64,
    mss_bytes: u32,
    phase_ns: u64,
    open: Vec<ConnectionId>,
    /// The last to become idle is the first to be used again.
    idle: Vec<ConnectionId>,
    waiting: VecDeque<u32>,
}

#[derive(Debug, Default)]
struct ClientState {
    under_way: u32,
    waiting: VecDeque<u32>,
}

/// All connections to servers from one place.
#[derive(Debug)]
pub(super) struct Fetcher {
    way: Way,
    hosts: Vec<HostState>,
    clients: BTreeMap<u32, ClientState>,
    carriers: Vec<Option<Carrier>>,
    sessions: u64,
    sessions_max: u64,
    opened: u64,
}

impl Fetcher {
    pub(super) fn new(way: Way, hosts: &[Host]) -> Self {
        let state = |(number, host): (usize, &Host)| HostState {
            window_bytes: way.server_buffer_bytes.unwrap_or(host.window_bytes),
            mss_bytes: host.mss_bytes.min(way.client.mss_bytes),
            phase_ns: Stream::new(way.seed, "host phase", number as u64).below(NS_PER_S),
            ..HostState::default()
        };
        Self {
            hosts: hosts.iter().enumerate().map(state).collect(),
            way,
            clients: BTreeMap::new(),
            carriers: Vec::new(),
            sessions: 0,
            sessions_max: 0,
            opened: 0,
        }
    }

    /// Most connections open at the same time.
    pub(super) fn sessions_max(&self) -> u64 {
        self.sessions_max
    }

    /// Connections open now.
    pub(super) fn sessions(&self) -> u64 {
        self.sessions
    }

    /// Connections opened so far.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    fn carrier(&mut self, id: ConnectionId) -> Option<&mut Carrier> {
        let carrier = self.carriers.get_mut(id.index())?.as_mut()?;
        (carrier.id == id).then_some(carrier)
    }

    /// Fetches an exchange's reply, at once or when its client may.
    pub(super) fn fetch(
        &mut self,
        net: &mut Network<Alarm>,
        exchanges: &mut [Exchange],
        index: u32,
    ) {
        let Some(request) = exchanges.get(index as usize).map(|one| one.request) else {
            return;
        };
        if self.way.http.requests_per_client() < u32::MAX {
            let client = self.clients.entry(request.client).or_default();
            if client.under_way >= self.way.http.requests_per_client() {
                client.waiting.push_back(index);
                return;
            }
            client.under_way += 1;
        }
        self.start(net, exchanges, index);
    }

    fn start(&mut self, net: &mut Network<Alarm>, exchanges: &mut [Exchange], index: u32) {
        let Some(host) = exchanges.get(index as usize).map(|one| one.request.host) else {
            return;
        };
        match self.choose(net, host) {
            Some(id) => self.assign(net, exchanges, id, index),
            None => {
                if let Some(state) = self.hosts.get_mut(host as usize) {
                    state.waiting.push_back(index);
                }
            }
        }
    }

    /// The connection for the next request: idle, shared, new, or none yet.
    fn choose(&mut self, net: &mut Network<Alarm>, host: u32) -> Option<ConnectionId> {
        let http = self.way.http;
        let state = self.hosts.get_mut(host as usize)?;
        if let Some(id) = state.idle.pop() {
            return Some(id);
        }
        if http.depth() > 1 {
            let open = self.hosts.get(host as usize)?.open.iter();
            let load = |id: &ConnectionId| {
                let carrier = self.carriers.get(id.index())?.as_ref()?;
                Some((carrier.outstanding, *id))
            };
            let least = open
                .filter_map(load)
                .min_by_key(|(outstanding, _)| *outstanding);
            if let Some((_, id)) = least.filter(|(outstanding, _)| *outstanding < http.depth()) {
                return Some(id);
            }
        }
        let state = self.hosts.get(host as usize)?;
        (state.open.len() < http.connections_per_host()).then(|| self.open(net, host))
    }

    fn open(&mut self, net: &mut Network<Alarm>, host: u32) -> ConnectionId {
        let (window_bytes, mss_bytes, phase_ns) =
            self.hosts.get(host as usize).map_or((0, 0, 0), |host| {
                (host.window_bytes, host.mss_bytes, host.phase_ns)
            });
        let client = Options {
            mss_bytes,
            ..self.way.client
        };
        let server = Options {
            profile: self.way.server,
            mss_bytes,
            buffer_bytes: window_bytes,
            phase_ns,
        };
        let id = net.connect(self.way.circuit, client, server);
        if self.carriers.len() <= id.index() {
            self.carriers.resize_with(id.index() + 1, || None);
        }
        let carrier = Carrier {
            id,
            host,
            asked: Spans::default(),
            replying: Spans::default(),
            order: VecDeque::new(),
            outstanding: 0,
            idle_since_ns: 0,
            payload_bytes: u64::from(self.way.server.payload_bytes(mss_bytes)),
        };
        if let Some(slot) = self.carriers.get_mut(id.index()) {
            *slot = Some(carrier);
        }
        if let Some(state) = self.hosts.get_mut(host as usize) {
            state.open.push(id);
        }
        self.opened += 1;
        self.sessions += 1;
        self.sessions_max = self.sessions_max.max(self.sessions);
        id
    }

    fn assign(
        &mut self,
        net: &mut Network<Alarm>,
        exchanges: &mut [Exchange],
        id: ConnectionId,
        index: u32,
    ) {
        let Some(exchange) = exchanges.get_mut(index as usize) else {
            return;
        };
        exchange.carrier = Some(id);
        let request_bytes = u64::from(exchange.request.request_bytes);
        if let Some(carrier) = self.carrier(id) {
            carrier.outstanding += 1;
            carrier.order.push_back(index);
            carrier.asked.push(index, request_bytes);
            net.write(id, Side::Client, request_bytes);
        }
    }

    /// Something happened on a connection; what was fetched is added to `out`.
    pub(super) fn handle(
        &mut self,
        net: &mut Network<Alarm>,
        exchanges: &mut [Exchange],
        (id, side, event): (ConnectionId, Side, Event),
        out: &mut Vec<Fetched>,
    ) {
        match (side, event) {
            (Side::Server, Event::Received(bytes)) => self.hear(net, exchanges, id, bytes),
            (Side::Client, Event::Received(bytes)) => {
                self.collect(net, exchanges, id, bytes, out);
            }
            (_, Event::PeerFinished) => net.finish(id, side),
            (Side::Client, Event::Closed) => {
                self.forget(id);
            }
            (_, Event::Failed) => self.fail(net, exchanges, id),
            (Side::Server, Event::Closed) | (_, Event::Connected) => {}
        }
    }

    /// Request bytes reached a server.
    fn hear(
        &mut self,
        net: &mut Network<Alarm>,
        exchanges: &mut [Exchange],
        id: ConnectionId,
        bytes: u64,
    ) {
        let now_ns = net.now_ns();
        let mut left = bytes;
        let Some(carrier) = self.carrier(id) else {
            return;
        };
        while let Some((index, taken)) = carrier.asked.take(&mut left) {
            let Some(exchange) = exchanges.get_mut(index as usize) else {
                continue;
            };
            exchange.asked_bytes += taken;
            if exchange.asked_bytes >= u64::from(exchange.request.request_bytes) {
                exchange.begin(now_ns, carrier.payload_bytes);
                net.set_alarm(exchange.next_release_ns(), Alarm::Release(index));
            }
        }
    }

    /// The far network has delivered the next piece of a reply.
    pub(super) fn release(
        &mut self,
        net: &mut Network<Alarm>,
        exchanges: &mut [Exchange],
        index: u32,
    ) {
        let now_ns = net.now_ns();
        let Some(exchange) = exchanges.get_mut(index as usize) else {
            return;
        };
        let Some(carrier) = exchange.carrier.and_then(|id| self.carrier(id)) else {
            return;
        };
        let (id, payload_bytes) = (carrier.id, carrier.payload_bytes);
        exchange.held_bytes += exchange.release(now_ns, payload_bytes);
        if !exchange.is_released() {
            net.set_alarm(exchange.next_release_ns(), Alarm::Release(index));
        }
        if self.way.http.is_interleaved() {
            self.write_held(net, exchanges, id, index);
        } else {
            self.write_in_order(net, exchanges, id);
        }
    }

    /// Writes what the server holds of an exchange; whether that was all of it.
    fn write_held(
        &mut self,
        net: &mut Network<Alarm>,
        exchanges: &mut [Exchange],
        id: ConnectionId,
        index: u32,
    ) -> bool {
        let Some(exchange) = exchanges.get_mut(index as usize) else {
            return false;
        };
        let bytes = std::mem::take(&mut exchange.held_bytes);
        let is_all = exchange.is_released();
        if let Some(carrier) = self.carrier(id) {
            carrier.replying.push(index, bytes);
            if is_all {
                carrier.order.retain(|other| *other != index);
            }
        }
        // A reply that ends its connection takes the end along with it.
        if is_all && !self.way.http.is_persistent() {
            net.write_last(id, Side::Server, bytes);
        } else {
            net.write(id, Side::Server, bytes);
        }
        is_all
    }

    /// Replies leave in the order of their requests.
    fn write_in_order(
        &mut self,
        net: &mut Network<Alarm>,
        exchanges: &mut [Exchange],
        id: ConnectionId,
    ) {
        while let Some(first) = self
            .carrier(id)
            .and_then(|carrier| carrier.order.front().copied())
        {
            if !self.write_held(net, exchanges, id, first) {
                return;
            }
        }
    }

    /// Reply bytes arrived.
    fn collect(
        &mut self,
        net: &mut Network<Alarm>,
        exchanges: &mut [Exchange],
        id: ConnectionId,
        bytes: u64,
        out: &mut Vec<Fetched>,
    ) {
        let mut left = bytes;
        while let Some((index, taken)) = self
            .carrier(id)
            .and_then(|carrier| carrier.replying.take(&mut left))
        {
            let Some(exchange) = exchanges.get_mut(index as usize) else {
                continue;
            };
            exchange.fetched_bytes += taken;
            out.push(Fetched {
                exchange: index,
                bytes: taken,
            });
            if exchange.is_fetched() {
                let client = exchange.request.client;
                self.complete(net, exchanges, id);
                self.start_waiting_of_client(net, exchanges, client);
            }
        }
    }

    /// An exchange of this connection is through: the next one, or idleness.
    fn complete(&mut self, net: &mut Network<Alarm>, exchanges: &mut [Exchange], id: ConnectionId) {
        let now_ns = net.now_ns();
        let is_persistent = self.way.http.is_persistent();
        let Some(carrier) = self.carrier(id) else {
            return;
        };
        carrier.outstanding = carrier.outstanding.saturating_sub(1);
        carrier.idle_since_ns = now_ns;
        let (host, is_idle) = (carrier.host, carrier.outstanding == 0);
        if !is_persistent {
            return;
        }
        let Some(state) = self.hosts.get_mut(host as usize) else {
            return;
        };
        if let Some(next) = state.waiting.pop_front() {
            self.assign(net, exchanges, id, next);
        } else if is_idle {
            state.idle.push(id);
            net.set_alarm(now_ns + self.way.idle_timeout_ns, Alarm::Idle(id));
        }
    }

    fn start_waiting_of_client(
        &mut self,
        net: &mut Network<Alarm>,
        exchanges: &mut [Exchange],
        client: u32,
    ) {
        let Some(state) = self.clients.get_mut(&client) else {
            return;
        };
        match state.waiting.pop_front() {
            Some(next) => self.start(net, exchanges, next),
            None => {
                state.under_way -= 1;
                if state.under_way == 0 {
                    self.clients.remove(&client);
                }
            }
        }
    }

    /// A connection may have been idle for too long.
    pub(super) fn handle_idle(&mut self, net: &mut Network<Alarm>, id: ConnectionId) {
        let (now_ns, timeout_ns) = (net.now_ns(), self.way.idle_timeout_ns);
        let Some(carrier) = self.carrier(id) else {
            return;
        };
        let is_over = carrier.outstanding == 0 && carrier.idle_since_ns + timeout_ns <= now_ns;
        let host = carrier.host;
        if !is_over {
            return;
        }
        if let Some(state) = self.hosts.get_mut(host as usize) {
            state.idle.retain(|other| *other != id);
            state.open.retain(|other| *other != id);
        }
        net.finish(id, Side::Client);
    }

    fn forget(&mut self, id: ConnectionId) -> Option<Carrier> {
        self.carrier(id)?;
        let carrier = self.carriers.get_mut(id.index())?.take()?;
        if let Some(state) = self.hosts.get_mut(carrier.host as usize) {
            state.idle.retain(|other| *other != id);
            state.open.retain(|other| *other != id);
        }
        self.sessions -= 1;
        Some(carrier)
    }

    /// The other end does not answer any more: so do its exchanges end.
    fn fail(&mut self, net: &mut Network<Alarm>, exchanges: &mut [Exchange], id: ConnectionId) {
        let Some(carrier) = self.forget(id) else {
            return;
        };
        let lost: Vec<u32> = carrier
            .order
            .iter()
            .copied()
            .chain(carrier.replying.owners())
            .collect();
        for index in lost {
            let Some(exchange) = exchanges.get_mut(index as usize) else {
                continue;
            };
            if exchange.state == State::UnderWay && !exchange.is_fetched() {
                exchange.state = State::Failed;
                let client = exchange.request.client;
                self.start_waiting_of_client(net, exchanges, client);
            }
        }
    }
}
