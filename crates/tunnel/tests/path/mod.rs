//! Senders on a shared link in virtual time: the controller alone, without QUIC above it.
//!
//! What QUIC does around a controller is here in its smallest form: a pacer with noq's burst sizes,
//! acknowledgements of every second packet, loss detection by packet and time thresholds. It costs
//! a hundredth of the real stack, so a change of the controller shows in seconds.

#![allow(dead_code)]

pub mod cubic;
pub mod sender;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use farhaul_link::{DirectionProfile, Emulator, LinkProfile, Output, Packet};

use farhaul_tunnel::PathSettings;

use self::sender::{AckInfo, Reading, Sender};

pub const DATAGRAM_BYTES: u64 = 1472;
pub const HEADER_BYTES: u64 = 42;

/// A datagram of flow `flow`, or an acknowledgement of everything up to `log`.
#[derive(Debug, Clone, Copy)]
pub struct Datagram {
    flow: usize,
    pn: u64,
    bytes: u64,
}

impl Packet for Datagram {
    fn frame_bytes(&self) -> usize {
        usize::try_from(self.bytes + HEADER_BYTES).unwrap_or(usize::MAX)
    }

    fn corrupt(&mut self, _bit: u64) {
        // No link of these tests does.
    }
}

/// The receiving end of one flow.
#[derive(Debug, Default)]
struct Receiver {
    /// Packet numbers in order of arrival; an acknowledgement names a position in it.
    log: Vec<u64>,
    largest: u64,
    unacked: u64,
    has_gap: bool,
    ack_due_ns: Option<u64>,
    received_bytes: u64,
}

struct Flow {
    sender: Sender,
    receiver: Receiver,
    back: Emulator<Datagram>,
    /// Delay this flow has beside the shared link, one way, ns.
    extra_ns: u64,
    start_ns: u64,
    stop_ns: u64,
    wake_ns: u64,
    back_wake_ns: u64,
}

/// A shared link and its flows.
pub struct World {
    pub now_ns: u64,
    link: Emulator<Datagram>,
    back: DirectionProfile,
    flows: Vec<Flow>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    seq: u64,
    seed: u64,
    link_wake_ns: u64,
    queue_area: f64,
    queue_since_ns: u64,
    queue_last: (u64, u64),
    /// How long machines are held up at most in so much time, ns.
    busy: Option<(u64, u64)>,
    /// Timers end at a multiple of it.
    pub step_ns: u64,
}

/// A gateway that reads a file ahead from then on, as it does for who is far away, on machines whose timers end at a whole
/// millisecond and which are held up for up to three quarters of so much time, again and again.
pub fn read_ahead(world: &mut World, busy_ms: f64, from_ns: u64) -> usize {
    world.step_ns = 1_000_000;
    if busy_ms > 0.0 {
        world.hold_up((busy_ms * 1e6) as u64, (busy_ms * 0.75e6) as u64);
    }
    let settings = PathSettings {
        header_bytes: 42,
        ..PathSettings::default()
    };
    let mut sender = Sender::farhaul(settings);
    sender.reading = Some(Reading {
        from_ns,
        products: 3.0,
        messages_ns: 0,
        train_packets: 0,
    });
    world.add(sender, 0, u64::MAX, 0)
}

/// The same behind so much talk, on machines that have nothing else to do.
pub fn read_behind_messages(world: &mut World, from_ns: u64, messages_ns: u64) -> usize {
    read_behind(world, from_ns, |reading| reading.messages_ns = messages_ns)
}

/// The same some time behind a train of so many packets, with which the tunnel has shown what the link carries.
pub fn read_behind_train(world: &mut World, from_ns: u64, train_packets: usize) -> usize {
    read_behind(world, from_ns, |reading| {
        reading.train_packets = train_packets;
    })
}

fn read_behind(world: &mut World, from_ns: u64, what: impl FnOnce(&mut Reading)) -> usize {
    let flow = read_ahead(world, 0.0, from_ns);
    let reading = world.flows[flow].sender.reading.as_mut();
    what(reading.unwrap());
    flow
}

/// Machines at either end, for [`World::keep_busy`].
const SENDERS: u64 = 1;
const RECEIVERS: u64 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Link,
    Back(usize),
    Arrive(usize, u64, u64),
    Sender(usize),
    Ack(usize),
}

impl World {
    pub fn new(link: &LinkProfile, seed: u64) -> Self {
        World {
            now_ns: 0,
            link: Emulator::new(link.forward.clone(), seed),
            back: link.backward.clone(),
            flows: Vec::new(),
            events: BinaryHeap::new(),
            seq: 0,
            seed,
            link_wake_ns: u64::MAX,
            queue_area: 0.0,
            queue_since_ns: 0,
            queue_last: (0, 0),
            busy: None,
            step_ns: 1,
        }
    }

    /// From now on the machines at both ends have other things to do: in every 40 ms each is held up
    /// for 0 to 30 ms, and then does at once what has become due.
    pub fn keep_busy(&mut self) {
        self.hold_up(40_000_000, 30_000_000);
    }

    /// The same with other times.
    pub fn hold_up(&mut self, slot_ns: u64, most_ns: u64) {
        self.busy = Some((slot_ns, most_ns));
    }

    /// When a machine that is held up goes on.
    fn held_up_until(&self, machine: u64) -> Option<u64> {
        let (slot_ns, most_ns) = self.busy?;
        let slot = self.now_ns / slot_ns;
        let mixed = (slot * 2 + machine).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let until_ns = slot * slot_ns + (mixed >> 32) % most_ns;
        (self.now_ns < until_ns).then_some(until_ns)
    }

    pub fn add(&mut self, sender: Sender, start_ns: u64, stop_ns: u64, extra_ns: u64) -> usize {
        let flow = self.flows.len();
        let mut back = self.back.clone();
        back.delay_ns += extra_ns;
        self.flows.push(Flow {
            sender,
            receiver: Receiver::default(),
            back: Emulator::new(back, self.seed ^ (0x9e37 + flow as u64)),
            extra_ns,
            start_ns,
            stop_ns,
            wake_ns: u64::MAX,
            back_wake_ns: u64::MAX,
        });
        self.at(start_ns, Event::Sender(flow));
        flow
    }

    pub fn set_link(&mut self, link: &LinkProfile) {
        self.link.handle_profile(self.now_ns, link.forward.clone());
        for flow in &mut self.flows {
            let mut back = link.backward.clone();
            back.delay_ns += flow.extra_ns;
            flow.back.handle_profile(self.now_ns, back);
        }
    }

    /// Bytes of datagrams that have arrived.
    pub fn received_bytes(&self, flow: usize) -> u64 {
        self.flows[flow].receiver.received_bytes
    }

    pub fn sender(&self, flow: usize) -> &Sender {
        &self.flows[flow].sender
    }

    pub fn drops(&self) -> u64 {
        self.link.stats().drops.queue
    }

    /// Mean queue of the shared link since the last call, s.
    pub fn mean_queue(&mut self) -> f64 {
        self.watch_queue();
        let span = self.now_ns - self.queue_since_ns;
        let mean = self.queue_area / span.max(1) as f64 / 1e9;
        self.queue_area = 0.0;
        self.queue_since_ns = self.now_ns;
        mean
    }

    fn watch_queue(&mut self) {
        let (at_ns, queue_ns) = self.queue_last;
        self.queue_area += queue_ns as f64 * (self.now_ns - at_ns) as f64;
        self.queue_last = (self.now_ns, self.link.stats().queue_ns);
    }

    pub fn run_until(&mut self, end_ns: u64) {
        while let Some(Reverse((at_ns, _, _))) = self.events.peek() {
            if *at_ns > end_ns {
                break;
            }
            let Some(Reverse((at_ns, _, event))) = self.events.pop() else {
                break;
            };
            self.now_ns = at_ns;
            self.handle(event);
        }
        self.now_ns = end_ns;
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.seq += 1;
        self.events
            .push(Reverse((at_ns.max(self.now_ns), self.seq, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            // A wake-up that was moved forward leaves its old event behind.
            Event::Link if self.now_ns < self.link_wake_ns => {}
            Event::Link => {
                self.link_wake_ns = u64::MAX;
                self.poll_link();
            }
            Event::Back(flow) if self.now_ns < self.flows[flow].back_wake_ns => {}
            Event::Back(flow) => {
                self.flows[flow].back_wake_ns = u64::MAX;
                self.poll_back(flow);
            }
            Event::Arrive(flow, pn, bytes) => match self.held_up_until(RECEIVERS) {
                Some(until_ns) => self.at(until_ns, Event::Arrive(flow, pn, bytes)),
                None => self.arrive(flow, pn, bytes),
            },
            Event::Sender(flow) => {
                if self.flows[flow].wake_ns <= self.now_ns {
                    self.flows[flow].wake_ns = u64::MAX;
                }
                self.drive(flow);
            }
            Event::Ack(flow) => {
                let due = self.flows[flow].receiver.ack_due_ns;
                if due.is_some_and(|due| due <= self.now_ns) {
                    self.acknowledge(flow);
                }
            }
        }
    }

    fn poll_link(&mut self) {
        loop {
            match self.link.poll_output(self.now_ns) {
                Output::Deliver { packet, .. } => {
                    let at_ns = self.now_ns + self.flows[packet.flow].extra_ns;
                    self.at(at_ns, Event::Arrive(packet.flow, packet.pn, packet.bytes));
                }
                Output::Timeout(at_ns) => {
                    if at_ns < self.link_wake_ns {
                        self.link_wake_ns = at_ns;
                        self.at(at_ns, Event::Link);
                    }
                    break;
                }
                Output::Idle => break,
            }
        }
        self.watch_queue();
    }

    fn arrive(&mut self, flow: usize, pn: u64, bytes: u64) {
        let now_ns = self.now_ns;
        let receiver = &mut self.flows[flow].receiver;
        receiver.has_gap |= pn != receiver.largest + 1 && receiver.received_bytes > 0;
        receiver.largest = receiver.largest.max(pn);
        receiver.log.push(pn);
        receiver.received_bytes += bytes;
        receiver.unacked += 1;
        if receiver.unacked >= 2 || receiver.has_gap {
            self.acknowledge(flow);
        } else {
            receiver.ack_due_ns = Some(now_ns + 25_000_000);
            self.at(now_ns + 25_000_000, Event::Ack(flow));
        }
    }

    fn acknowledge(&mut self, flow: usize) {
        let now_ns = self.now_ns;
        let state = &mut self.flows[flow];
        state.receiver.unacked = 0;
        state.receiver.has_gap = false;
        state.receiver.ack_due_ns = None;
        let ack = Datagram {
            flow,
            pn: state.receiver.log.len() as u64,
            bytes: 40,
        };
        state.back.handle_packet(now_ns, ack);
        self.poll_back(flow);
    }

    fn poll_back(&mut self, flow: usize) {
        if let Some(until_ns) = self.held_up_until(SENDERS) {
            return self.at(until_ns, Event::Back(flow));
        }
        loop {
            match self.flows[flow].back.poll_output(self.now_ns) {
                Output::Deliver { packet, .. } => {
                    let state = &mut self.flows[flow];
                    let log = &state.receiver.log;
                    let to = usize::try_from(packet.pn).unwrap_or(usize::MAX);
                    state.sender.handle_ack(AckInfo {
                        now_ns: self.now_ns,
                        log: &log[..to],
                    });
                    self.drive(flow);
                }
                Output::Timeout(at_ns) => {
                    if at_ns < self.flows[flow].back_wake_ns {
                        self.flows[flow].back_wake_ns = at_ns;
                        self.at(at_ns, Event::Back(flow));
                    }
                    break;
                }
                Output::Idle => break,
            }
        }
    }

    fn drive(&mut self, flow: usize) {
        let now_ns = self.now_ns;
        if now_ns < self.flows[flow].start_ns || now_ns >= self.flows[flow].stop_ns {
            return;
        }
        if let Some(until_ns) = self.held_up_until(SENDERS) {
            return self.at(until_ns, Event::Sender(flow));
        }
        let wake_ns = loop {
            match self.flows[flow].sender.poll(now_ns) {
                sender::Poll::Send(pn) => {
                    self.link.handle_packet(
                        now_ns,
                        Datagram {
                            flow,
                            pn,
                            bytes: DATAGRAM_BYTES,
                        },
                    );
                }
                sender::Poll::Wait(at_ns) => break at_ns,
            }
        };
        self.poll_link();
        let wake_ns = wake_ns.next_multiple_of(self.step_ns);
        let state = &mut self.flows[flow];
        if wake_ns < state.wake_ns {
            state.wake_ns = wake_ns;
            self.at(wake_ns, Event::Sender(flow));
        }
    }
}
