//! Connections over circuits: the part of the world that moves packets.
//!
//! [`Network`] owns the clock. The application opens connections, writes,
//! finishes and sets alarms; [`Network::run`] runs the world until something
//! happens that the application should know.

mod circuit;
mod frame;
mod slots;

pub use circuit::{Circuit, CircuitStats};
pub use frame::Frame;
pub use slots::ConnectionId;

use std::collections::VecDeque;

use crate::engine::{EventQueue, TooManyEvents, Trace};
use crate::tcp::{Endpoint, Event, Options, Output, Segment};
use slots::Slots;

/// Most events that may wait at once: each connection has at most a few, so
/// this is some hundred thousand connections.
const EVENTS_MAX: usize = 8_000_000;

/// An end of a connection or of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Who connects.
    Client,
    /// Who is connected to.
    Server,
}

impl Side {
    /// The other end.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// What the application should know. `T` is what it told an alarm to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice<T> {
    /// Something happened at one end of a connection.
    Connection(ConnectionId, Side, Event),
    /// An alarm went off.
    Alarm(T),
    /// A bare packet came out of a circuit (see [`Network::send_packet`]).
    Packet(usize, Side, u64),
}

#[derive(Debug, Clone, Copy)]
enum Due<T> {
    Circuit(usize, Side),
    Timer(ConnectionId, Side),
    Alarm(T),
}

#[derive(Debug, Clone)]
struct Connection {
    circuit: usize,
    ends: [End; 2],
}

#[derive(Debug, Clone)]
struct End {
    endpoint: Endpoint,
    /// The earliest timer event that waits for it.
    wake_ns: u64,
    is_over: bool,
}

impl Connection {
    fn end(&self, side: Side) -> &End {
        let [client, server] = &self.ends;
        match side {
            Side::Client => client,
            Side::Server => server,
        }
    }

    fn end_mut(&mut self, side: Side) -> &mut End {
        let [client, server] = &mut self.ends;
        match side {
            Side::Client => client,
            Side::Server => server,
        }
    }
}

/// Connections, circuits and the clock.
#[derive(Debug)]
pub struct Network<T> {
    now_ns: u64,
    events: EventQueue<Due<T>>,
    circuits: Vec<Circuit>,
    connections: Slots<Connection>,
    notices: VecDeque<Notice<T>>,
    trace: Trace,
    overflow: Option<TooManyEvents>,
}

impl<T: Copy> Network<T> {
    /// A world with these circuits at time 0.
    pub fn new(circuits: Vec<Circuit>) -> Self {
        Self {
            now_ns: 0,
            events: EventQueue::new(EVENTS_MAX),
            circuits,
            connections: Slots::default(),
            notices: VecDeque::new(),
            trace: Trace::default(),
            overflow: None,
        }
    }

    /// What time it is.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The hash of everything that happened so far.
    pub fn trace(&self) -> Trace {
        self.trace
    }

    /// Events that happened so far.
    pub fn events(&self) -> u64 {
        self.events.taken()
    }

    /// The bound on events was met: the run is not to be trusted.
    pub fn overflow(&self) -> Option<TooManyEvents> {
        self.overflow
    }

    /// Connections that are not closed at both ends.
    pub fn open_connections(&self) -> usize {
        self.connections.len()
    }

    /// Counters of a circuit's direction towards `to`.
    pub fn circuit(&self, circuit: usize, to: Side) -> Option<CircuitStats> {
        Some(self.circuits.get(circuit)?.stats(to))
    }

    /// Opens a connection over a circuit from its client side.
    pub fn connect(&mut self, circuit: usize, client: Options, server: Options) -> ConnectionId {
        let end = |endpoint| End {
            endpoint,
            wake_ns: u64::MAX,
            is_over: false,
        };
        let id = self.connections.insert(Connection {
            circuit,
            ends: [
                end(Endpoint::connect(client)),
                end(Endpoint::listen(server)),
            ],
        });
        self.pump(id, Side::Client);
        id
    }

    /// Appends bytes to what `side` sends. A connection that is gone takes nothing.
    pub fn write(&mut self, id: ConnectionId, side: Side, bytes: u64) {
        self.with_end(id, side, |endpoint| endpoint.write(bytes));
    }

    /// Appends bytes and half-closes, so that the end rides with the last byte.
    pub fn write_last(&mut self, id: ConnectionId, side: Side, bytes: u64) {
        self.with_end(id, side, |endpoint| {
            endpoint.write(bytes);
            endpoint.finish();
        });
    }

    /// Half-closes.
    pub fn finish(&mut self, id: ConnectionId, side: Side) {
        self.with_end(id, side, Endpoint::finish);
    }

    /// Bytes that `side` wrote and the other end has not acknowledged.
    pub fn backlog_bytes(&self, id: ConnectionId, side: Side) -> u64 {
        let connection = self.connections.get(id);
        connection.map_or(0, |connection| {
            connection.end(side).endpoint.backlog_bytes()
        })
    }

    /// The congestion window of `side`.
    pub fn window_bytes(&self, id: ConnectionId, side: Side) -> u64 {
        let connection = self.connections.get(id);
        connection.map_or(0, |connection| connection.end(side).endpoint.window_bytes())
    }

    /// Says `what` at `at_ns`, or at once where that has passed.
    pub fn set_alarm(&mut self, at_ns: u64, what: T) {
        self.schedule(at_ns.max(self.now_ns), Due::Alarm(what));
    }

    /// Sends a packet that belongs to no connection, with a number to know it by.
    pub fn send_packet(&mut self, circuit: usize, to: Side, ip_bytes: u32, number: u64) {
        let header_bytes = self.header_bytes(circuit);
        let frame = Frame::bare(number, to, ip_bytes, header_bytes);
        self.send_frame(circuit, to, frame);
    }

    /// Runs until something happens that the application should know. `None`
    /// when nothing will ever happen again.
    pub fn run(&mut self) -> Option<Notice<T>> {
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Some(notice);
            }
            let (at_ns, due) = self.events.pop()?;
            self.now_ns = self.now_ns.max(at_ns);
            match due {
                Due::Alarm(what) => return Some(Notice::Alarm(what)),
                Due::Circuit(circuit, to) => self.deliver(circuit, to, at_ns),
                Due::Timer(id, side) => self.handle_timer(id, side, at_ns),
            }
        }
    }

    fn schedule(&mut self, at_ns: u64, due: Due<T>) {
        if let Err(overflow) = self.events.push(at_ns, due) {
            self.overflow = Some(overflow);
        }
    }

    fn with_end(&mut self, id: ConnectionId, side: Side, change: impl FnOnce(&mut Endpoint)) {
        if let Some(connection) = self.connections.get_mut(id) {
            change(&mut connection.end_mut(side).endpoint);
            self.pump(id, side);
        }
    }

    fn handle_timer(&mut self, id: ConnectionId, side: Side, at_ns: u64) {
        let now_ns = self.now_ns;
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let end = connection.end_mut(side);
        if end.wake_ns != at_ns {
            return; // another event took its place
        }
        end.wake_ns = u64::MAX;
        end.endpoint.handle_timeout(now_ns);
        self.pump(id, side);
    }

    /// Does everything an end wants done.
    fn pump(&mut self, id: ConnectionId, side: Side) {
        let now_ns = self.now_ns;
        loop {
            let Some(connection) = self.connections.get_mut(id) else {
                return;
            };
            let circuit = connection.circuit;
            let end = connection.end_mut(side);
            match end.endpoint.poll_output(now_ns) {
                Output::Transmit(segment) => self.transmit(id, side, circuit, segment),
                Output::Event(event) => self.tell(id, side, event),
                Output::Timeout(at_ns) => {
                    if at_ns < end.wake_ns {
                        end.wake_ns = at_ns;
                        self.schedule(at_ns, Due::Timer(id, side));
                    }
                    return;
                }
                Output::Idle => return,
            }
        }
    }

    fn tell(&mut self, id: ConnectionId, side: Side, event: Event) {
        self.notices.push_back(Notice::Connection(id, side, event));
        if !matches!(event, Event::Closed | Event::Failed) {
            return;
        }
        let is_over = self.connections.get_mut(id).is_some_and(|connection| {
            connection.end_mut(side).is_over = true;
            connection.ends.iter().all(|end| end.is_over)
        });
        if is_over {
            self.connections.remove(id);
        }
    }

    fn transmit(&mut self, id: ConnectionId, from: Side, circuit: usize, segment: Segment) {
        let header_bytes = self.header_bytes(circuit);
        let frame = Frame::of_segment(id, from.other(), segment, header_bytes);
        self.send_frame(circuit, from.other(), frame);
    }

    fn header_bytes(&self, circuit: usize) -> u32 {
        let circuit = self.circuits.get(circuit);
        circuit.map_or(0, Circuit::header_bytes)
    }

    fn send_frame(&mut self, circuit: usize, to: Side, frame: Frame) {
        let now_ns = self.now_ns;
        let Some(wire) = self.circuits.get_mut(circuit) else {
            return;
        };
        if let Some(at_ns) = wire.send(now_ns, to, frame) {
            self.schedule(at_ns, Due::Circuit(circuit, to));
        }
    }

    fn deliver(&mut self, circuit: usize, to: Side, at_ns: u64) {
        loop {
            let now_ns = self.now_ns;
            let Some(wire) = self.circuits.get_mut(circuit) else {
                return;
            };
            match wire.receive(now_ns, to, at_ns) {
                circuit::Received::Frame(frame) => self.arrive(circuit, &frame),
                circuit::Received::Later(at_ns) => {
                    self.schedule(at_ns, Due::Circuit(circuit, to));
                    return;
                }
                circuit::Received::Nothing => return,
            }
        }
    }

    fn arrive(&mut self, circuit: usize, frame: &Frame) {
        self.trace.record(frame.words(self.now_ns));
        if frame.is_corrupt() {
            return; // its checksum is wrong
        }
        let to = frame.to();
        match frame.content() {
            frame::Content::Bare { number, .. } => {
                self.notices.push_back(Notice::Packet(circuit, to, number));
            }
            frame::Content::Segment(id, segment) => {
                let now_ns = self.now_ns;
                if let Some(connection) = self.connections.get_mut(id) {
                    let endpoint = &mut connection.end_mut(to).endpoint;
                    endpoint.handle_segment(now_ns, &segment);
                    self.pump(id, to);
                }
            }
        }
    }
}
