//! A pair of Farhaul gateways instead of proxies: the product's own tunnel
//! machines, `farhaul_tunnel::Mux`, with their flows, credit, turns and frames,
//! and its congestion controllers; between both a model of QUIC (`carriage.rs`).
//!
//! Every request is a flow. Where the far gateway reached the host within the
//! last minute the client is answered at once and its request rides with the
//! OPEN; otherwise it waits for the answer, as the gateway does.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use farhaul_tunnel::{
    Class, Correction, Event, FlowId, Hello, Limits, Mux, OpenRequest, PROTOCOL_VERSIONS,
    PathSettings, Read, Side as Role, Target,
};

use super::carriage::Carriage;
use super::exchange::Exchange;
use super::study::Alarm;
use crate::engine::NS_PER_S;
use crate::network::{Network, Side};

/// How long a host that was reached counts as there.
const KNOWN_UP_NS: u64 = 60 * NS_PER_S;
/// Content of everything: nothing here depends on it.
static ZEROS: [u8; 65_536] = [0; 65_536];
const PORT: u16 = 80;

/// One end.
#[derive(Debug)]
struct Gateway {
    mux: Mux,
    /// Towards the other end.
    carriage: Carriage,
    wake_ns: u64,
}

/// Both gateways.
#[derive(Debug)]
pub(super) struct Pair {
    circuit: usize,
    near: Gateway,
    far: Gateway,
    flows: BTreeMap<FlowId, Flow>,
    of_exchange: BTreeMap<u32, FlowId>,
    known_up_ns: BTreeMap<u32, u64>,
    failed: bool,
}

/// What a flow carries.
#[derive(Debug)]
struct Flow {
    exchange: u32,
    host: u32,
    /// Request bytes the far gateway has not read yet.
    asked_bytes: u64,
    /// Reply bytes that wait for room in the far gateway.
    waiting_bytes: u64,
    is_complete: bool,
    /// The near gateway has the request.
    is_written: bool,
}

/// What happened that the study should know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// A request is at the far gateway.
    Asked(u32),
    /// A whole reply is at the near one.
    Replied(u32),
}

impl Pair {
    /// `told` is what each gateway's controller knows of its direction, out and back.
    pub(super) fn new(circuit: usize, told: [PathSettings; 2], rtt_ns: u64) -> Self {
        let [out, back] = told;
        let gateway = |role, instance, settings| Gateway {
            mux: Mux::new(
                role,
                Limits::default(),
                Hello {
                    versions: PROTOCOL_VERSIONS,
                    instance,
                    site: format!("site{instance}"),
                    features: 0,
                },
            ),
            carriage: Carriage::new(settings, rtt_ns),
            wake_ns: u64::MAX,
        };
        Self {
            circuit,
            near: gateway(Role::Dialer, 1, out),
            far: gateway(Role::Acceptor, 2, back),
            flows: BTreeMap::new(),
            of_exchange: BTreeMap::new(),
            known_up_ns: BTreeMap::new(),
            failed: false,
        }
    }

    /// Whether the tunnel broke, which nothing here may make it do.
    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Datagrams that were sent again.
    pub(super) fn lost(&self) -> u64 {
        self.near.carriage.lost() + self.far.carriage.lost()
    }

    /// A client connects to the near gateway and asks.
    pub(super) fn ask(&mut self, net: &Network<Alarm>, exchange: &Exchange, index: u32) {
        let request = OpenRequest {
            client: SocketAddr::from(([192, 0, 2, 1], 40_000)),
            target: Target::Address(SocketAddr::from(([198, 51, 100, 1], PORT))),
            keep_client_address: false,
            class: Class::Interactive,
            dscp: 0,
            correction: Correction::Off,
            items: false,
            payload: farhaul_tunnel::Payload::Plain,
        };
        let Ok(id) = self.near.mux.open(request) else {
            self.failed = true;
            return;
        };
        let host = exchange.request.host;
        let known_ns = self.known_up_ns.get(&host);
        let is_known = known_ns.is_some_and(|at_ns| at_ns + KNOWN_UP_NS > net.now_ns());
        self.of_exchange.insert(index, id);
        self.flows.insert(
            id,
            Flow {
                exchange: index,
                host,
                asked_bytes: u64::from(exchange.request.request_bytes),
                waiting_bytes: 0,
                is_complete: false,
                is_written: is_known,
            },
        );
        if is_known {
            self.write_request(id);
        }
    }

    fn write_request(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get(&id) else {
            return;
        };
        for piece in zeros(flow.asked_bytes) {
            self.failed |= self.near.mux.write(id, piece).is_err();
        }
        self.near.mux.finish(id);
    }

    /// Bytes of a reply reached the far gateway; the last ones, if `is_last`.
    pub(super) fn reply(&mut self, index: u32, bytes: u64, is_last: bool) {
        let Some(id) = self.of_exchange.get(&index).copied() else {
            return;
        };
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.waiting_bytes += bytes;
            flow.is_complete |= is_last;
        }
        self.write_reply(id);
    }

    /// As much as there is room for; the rest waits for `Writable`.
    fn write_reply(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else {
            return;
        };
        while flow.waiting_bytes > 0 {
            let room = self.far.mux.writable_bytes(id).min(ZEROS.len());
            let bytes = room.min(usize::try_from(flow.waiting_bytes).unwrap_or(usize::MAX));
            if bytes == 0 {
                return;
            }
            let piece = ZEROS
                .get(..bytes)
                .map(Bytes::from_static)
                .unwrap_or_default();
            self.failed |= self.far.mux.write(id, piece).is_err();
            flow.waiting_bytes -= bytes as u64;
        }
        if flow.is_complete {
            self.far.mux.finish(id);
        }
    }

    /// A datagram arrived at one end.
    pub(super) fn handle_packet(&mut self, net: &Network<Alarm>, to: Side, number: u64) {
        let now_ns = net.now_ns();
        let (gateway, other) = match to {
            Side::Server => (&mut self.far, &mut self.near),
            Side::Client => (&mut self.near, &mut self.far),
        };
        if number % 2 == 1 {
            gateway.carriage.handle_ack(now_ns, number);
        } else if let Some(frame) = other.carriage.handle_data(now_ns, number) {
            self.failed |= gateway.mux.handle_frame(now_ns, frame).is_err();
        }
    }

    /// Does everything that can be done now.
    pub(super) fn pump(&mut self, net: &mut Network<Alarm>, out: &mut Vec<Heard>) {
        while self.handle_event(net.now_ns(), out) {}
        for side in [Side::Client, Side::Server] {
            self.transmit(net, side);
        }
    }

    fn handle_event(&mut self, now_ns: u64, out: &mut Vec<Heard>) -> bool {
        if let Some(event) = self.near.mux.poll_event() {
            self.handle_near(now_ns, &event, out);
            return true;
        }
        let Some(event) = self.far.mux.poll_event() else {
            return false;
        };
        self.handle_far(now_ns, &event, out);
        true
    }

    fn handle_near(&mut self, now_ns: u64, event: &Event, out: &mut Vec<Heard>) {
        match event {
            Event::Opened(id) => {
                let Some(flow) = self.flows.get_mut(id) else {
                    return;
                };
                self.known_up_ns.insert(flow.host, now_ns);
                if !std::mem::replace(&mut flow.is_written, true) {
                    self.write_request(*id);
                }
            }
            Event::Readable(id) => {
                let is_over = drain(&mut self.near.mux, now_ns, *id).1;
                if is_over && let Some(flow) = self.flows.remove(id) {
                    self.of_exchange.remove(&flow.exchange);
                    out.push(Heard::Replied(flow.exchange));
                }
            }
            Event::Refused(..) | Event::Reset(..) => self.failed = true,
            _ => {}
        }
    }

    fn handle_far(&mut self, now_ns: u64, event: &Event, out: &mut Vec<Heard>) {
        match event {
            Event::Incoming(id, _) => self.far.mux.accept(*id),
            Event::Readable(id) => {
                let (bytes, _) = drain(&mut self.far.mux, now_ns, *id);
                if let Some(flow) = self.flows.get_mut(id)
                    && flow.asked_bytes > 0
                {
                    flow.asked_bytes = flow.asked_bytes.saturating_sub(bytes);
                    if flow.asked_bytes == 0 {
                        out.push(Heard::Asked(flow.exchange));
                    }
                }
            }
            Event::Writable(id) => self.write_reply(*id),
            Event::Refused(..) | Event::Reset(..) => self.failed = true,
            _ => {}
        }
    }

    /// Sends what `from` has and may send, and sees that it is woken for more.
    fn transmit(&mut self, net: &mut Network<Alarm>, from: Side) {
        let now_ns = net.now_ns();
        let (gateway, other) = match from {
            Side::Client => (&mut self.near, &mut self.far),
            Side::Server => (&mut self.far, &mut self.near),
        };
        gateway.carriage.take_lost(now_ns);
        loop {
            gateway.take_frames(now_ns);
            let Some(datagram) = gateway.carriage.next_datagram(now_ns) else {
                break;
            };
            net.send_packet(
                self.circuit,
                from.other(),
                datagram.ip_bytes,
                datagram.number,
            );
        }
        // What this end received is acknowledged on the other direction's books.
        while let Some(ack) = other.carriage.next_ack(now_ns) {
            net.send_packet(self.circuit, from.other(), ack.ip_bytes, ack.number);
        }
        if let Some(at_ns) = gateway.carriage.next_ns()
            && (at_ns < gateway.wake_ns || gateway.wake_ns <= now_ns)
        {
            gateway.wake_ns = at_ns;
            net.set_alarm(at_ns, Alarm::Carriage);
        }
    }
}

impl Gateway {
    /// Takes frames from the tunnel while the carriage has room; control frames
    /// whether it has or not.
    fn take_frames(&mut self, now_ns: u64) {
        while let Some(transmit) = self.mux.poll_control(now_ns) {
            self.carriage.send(joined(&transmit.chunks), true);
        }
        while self.carriage.has_room()
            && let Some(transmit) = self.mux.poll_transmit(now_ns)
        {
            self.carriage.send(joined(&transmit.chunks), false);
        }
    }
}

fn joined(chunks: &[Bytes]) -> Bytes {
    match chunks {
        [one] => one.clone(),
        many => Bytes::from(many.concat()),
    }
}

/// So many bytes in pieces.
fn zeros(bytes: u64) -> impl Iterator<Item = Bytes> {
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    std::iter::from_fn(move || {
        let piece = ZEROS.get(..left.min(ZEROS.len()))?;
        left -= piece.len();
        (!piece.is_empty()).then(|| Bytes::from_static(piece))
    })
}

/// Reads everything there is: how many bytes, and whether that was the end.
fn drain(mux: &mut Mux, now_ns: u64, id: FlowId) -> (u64, bool) {
    let mut bytes = 0;
    loop {
        match mux.read(now_ns, id, usize::MAX) {
            Read::Data(data) => bytes += data.len() as u64,
            Read::End => return (bytes, true),
            Read::Blocked | Read::Gone => return (bytes, false),
        }
    }
}
