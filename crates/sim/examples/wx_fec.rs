//! Why error correction between two boxes may gain a TCP nothing: end-to-end Reno through a pair of
//! boxes that send parity for every few packets, over the links of tables 16 to 18 of the WX study.
//! One connection, and nothing else on the link: a stream, or reads one after the other. Prints the
//! table of `docs/design/wx-fec.md`.

#![allow(clippy::unwrap_used)]

use farhaul_link::{Emulator, LinkProfile, Output as Arrival, Packet};
use farhaul_sim::tcp::{Clock, Endpoint, Event, Idle, Options, Output, Profile, Recovery, Segment};
use std::collections::{BTreeMap, BTreeSet};

const MS: u64 = 1_000_000;
const HEADERS_BYTES: usize = 54; // Ethernet, IPv4, TCP
const MSS_BYTES: u32 = 1460;
/// A read of a file over SMB 1: what one answer carries.
const READ_BYTES: u64 = 61_440;
/// A block that is not full after this gets its parity all the same, and a packet that is missing
/// is no longer waited for.
const PATIENCE_NS: u64 = 20 * MS;

/// Windows of 2006: Reno, no window scaling, acknowledgements every other segment.
const RENO: Profile = Profile {
    clock: Clock::Fine {
        rto_min_ns: 300 * MS,
        delayed_ack_ns: 200 * MS,
    },
    recovery: Recovery::Reno,
    initial_window_segments: 2,
    byte_counting_segments: 0,
    limited_transmit: false,
    early_retransmit: false,
    idle: Idle::SinceReceived,
    quick_acks: 0,
    timestamps: false,
    ..Profile::LINUX_RENO
};

/// What is on the way, and what uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    /// Data packets for each parity packet; 0 without boxes.
    block: usize,
    /// A part of a block gets parity when nothing has followed for a while.
    is_patient: bool,
    /// Packets wait at the far box for the missing ones before them.
    in_order: bool,
    /// The next read is asked for when the one before has arrived; else the sender always has more.
    reads: bool,
}

/// A packet between the boxes.
#[derive(Debug, Clone)]
struct Wire {
    number: u64,
    bytes: usize,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Segment(Segment),
    /// Data packets from the first to before the last.
    Parity(u64, Vec<Segment>),
}

impl Packet for Wire {
    fn frame_bytes(&self) -> usize {
        self.bytes
    }
    fn corrupt(&mut self, _bit: u64) {}
}

fn frame_bytes(segment: &Segment) -> usize {
    HEADERS_BYTES + segment.payload_bytes as usize
}

/// The sender's box: adds parity.
#[derive(Default)]
struct Near {
    next: u64,
    block: Vec<Segment>,
    since_ns: u64,
}

impl Near {
    fn pass(&mut self, now_ns: u64, segment: Segment, setting: Setting) -> Vec<Wire> {
        let number = self.next;
        self.next += 1;
        let content = Content::Segment(segment);
        let mut out = vec![Wire {
            number,
            bytes: frame_bytes(&segment),
            content,
        }];
        if setting.block > 0 {
            if self.block.is_empty() {
                self.since_ns = now_ns;
            }
            self.block.push(segment);
            if self.block.len() == setting.block {
                out.push(self.parity());
            }
        }
        out
    }

    fn parity(&mut self) -> Wire {
        let block = std::mem::take(&mut self.block);
        let bytes = block.iter().map(frame_bytes).max().unwrap_or(HEADERS_BYTES) + 16;
        let first = self.next - block.len() as u64;
        Wire {
            number: self.next,
            bytes,
            content: Content::Parity(first, block),
        }
    }

    fn due_ns(&self, setting: Setting) -> Option<u64> {
        let waits = !setting.is_patient || self.block.is_empty();
        (!waits).then_some(self.since_ns + PATIENCE_NS)
    }
}

/// The receiver's box: recovers, and holds back where it is asked to.
#[derive(Default)]
struct Far {
    arrived: BTreeSet<u64>,
    held: BTreeMap<u64, (u64, Segment)>,
    next: u64,
    recovered: u64,
}

impl Far {
    fn take(&mut self, now_ns: u64, wire: Wire, setting: Setting) -> Vec<Segment> {
        match wire.content {
            Content::Segment(segment) => self.accept(now_ns, wire.number, segment, setting),
            Content::Parity(first, block) => {
                let numbers = first..first + block.len() as u64;
                let missing: Vec<u64> = numbers.filter(|n| !self.arrived.contains(n)).collect();
                let [only] = missing[..] else {
                    return Vec::new();
                };
                self.recovered += 1;
                self.accept(now_ns, only, block[(only - first) as usize], setting)
            }
        }
    }

    fn accept(
        &mut self,
        now_ns: u64,
        number: u64,
        segment: Segment,
        setting: Setting,
    ) -> Vec<Segment> {
        self.arrived.insert(number);
        self.arrived = self.arrived.split_off(&number.saturating_sub(10_000));
        if !setting.in_order {
            return vec![segment];
        }
        self.held.insert(number, (now_ns, segment));
        self.release(now_ns)
    }

    /// What is next, or has waited too long.
    fn release(&mut self, now_ns: u64) -> Vec<Segment> {
        let mut out = Vec::new();
        while let Some((&number, &(since_ns, segment))) = self.held.first_key_value() {
            if number > self.next && now_ns < since_ns + PATIENCE_NS {
                break;
            }
            self.held.pop_first();
            self.next = number + 1;
            out.push(segment);
        }
        out
    }

    fn due_ns(&self) -> Option<u64> {
        self.held
            .first_key_value()
            .map(|(_, (since_ns, _))| since_ns + PATIENCE_NS)
    }
}

struct World {
    now_ns: u64,
    sender: Endpoint,
    receiver: Endpoint,
    there: Emulator<Wire>,
    back: Emulator<Wire>,
    near: Near,
    far: Far,
    received_bytes: u64,
    asked_bytes: u64,
    ask_ns: Option<u64>,
}

impl World {
    fn new(words: &str, seed: u64) -> Self {
        let link = words.parse::<LinkProfile>().unwrap();
        let options = Options {
            profile: RENO,
            mss_bytes: MSS_BYTES,
            buffer_bytes: 65_535,
            phase_ns: 0,
        };
        Self {
            now_ns: 0,
            sender: Endpoint::connect(options),
            receiver: Endpoint::listen(options),
            there: Emulator::new(link.forward, seed * 2),
            back: Emulator::new(link.backward, seed * 2 + 1),
            near: Near::default(),
            far: Far::default(),
            received_bytes: 0,
            asked_bytes: 0,
            ask_ns: None,
        }
    }

    /// The next read is asked for half a round trip after the last byte of the one before arrived;
    /// that its request is not lost flatters everybody alike.
    fn write(&mut self, reads: bool) {
        if !reads {
            if self.sender.backlog_bytes() < 1 << 20 {
                self.sender.write(1 << 20);
            }
        } else if self.received_bytes >= self.asked_bytes {
            let back_ns = self.back.profile().delay_ns;
            match self.ask_ns {
                None => self.ask_ns = Some(self.now_ns + back_ns),
                Some(at_ns) if at_ns <= self.now_ns => {
                    self.sender.write(READ_BYTES);
                    self.asked_bytes += READ_BYTES;
                    self.ask_ns = None;
                }
                Some(_) => {}
            }
        }
    }

    /// Everything that happens now; when something happens next.
    fn step(&mut self, setting: Setting) -> u64 {
        let mut next_ns = u64::MAX;
        self.write(setting.reads);
        loop {
            match self.sender.poll_output(self.now_ns) {
                Output::Transmit(segment) => {
                    for wire in self.near.pass(self.now_ns, segment, setting) {
                        self.there.handle_packet(self.now_ns, wire);
                    }
                }
                Output::Timeout(at_ns) => break next_ns = next_ns.min(at_ns),
                Output::Idle => break,
                Output::Event(_) => {}
            }
        }
        loop {
            match self.receiver.poll_output(self.now_ns) {
                Output::Transmit(segment) => {
                    let bytes = frame_bytes(&segment).max(60);
                    let content = Content::Segment(segment);
                    self.back.handle_packet(
                        self.now_ns,
                        Wire {
                            number: 0,
                            bytes,
                            content,
                        },
                    );
                }
                Output::Event(Event::Received(bytes)) => self.received_bytes += bytes,
                Output::Timeout(at_ns) => break next_ns = next_ns.min(at_ns),
                Output::Idle => break,
                Output::Event(_) => {}
            }
        }
        if self
            .near
            .due_ns(setting)
            .is_some_and(|due_ns| due_ns <= self.now_ns)
        {
            let parity = self.near.parity();
            self.there.handle_packet(self.now_ns, parity);
        }
        // The last byte of a read may just have come.
        self.write(setting.reads);
        let due = [self.near.due_ns(setting), self.far.due_ns(), self.ask_ns];
        due.into_iter().flatten().fold(next_ns, u64::min)
    }

    /// Hands over what has arrived; how much, and when something arrives next.
    fn arrivals(&mut self, setting: Setting) -> (usize, u64) {
        let (mut delivered, mut next_ns) = (0, u64::MAX);
        loop {
            match self.there.poll_output(self.now_ns) {
                Arrival::Deliver { packet, .. } => {
                    delivered += 1;
                    for segment in self.far.take(self.now_ns, packet, setting) {
                        self.receiver.handle_segment(self.now_ns, &segment);
                    }
                }
                Arrival::Timeout(at_ns) => break next_ns = next_ns.min(at_ns),
                Arrival::Idle => break,
            }
        }
        for segment in self.far.release(self.now_ns) {
            delivered += 1;
            self.receiver.handle_segment(self.now_ns, &segment);
        }
        loop {
            match self.back.poll_output(self.now_ns) {
                Arrival::Deliver { packet, .. } => {
                    delivered += 1;
                    if let Content::Segment(segment) = packet.content {
                        self.sender.handle_segment(self.now_ns, &segment);
                    }
                }
                Arrival::Timeout(at_ns) => break next_ns = next_ns.min(at_ns),
                Arrival::Idle => break,
            }
        }
        (delivered, next_ns)
    }
}

/// Payload per second in kB, and packets recovered, of so many seconds.
fn run(words: &str, setting: Setting, seconds: u64, seed: u64) -> (f64, u64) {
    let mut world = World::new(words, seed);
    while world.now_ns < seconds * 1_000 * MS {
        world.arrivals(setting);
        let next_ns = world.step(setting);
        // What was sent just now may have arrived already.
        let (delivered, arrival_ns) = world.arrivals(setting);
        if delivered == 0 {
            world.now_ns = next_ns.min(arrival_ns).max(world.now_ns + 1);
            world.sender.handle_timeout(world.now_ns);
            world.receiver.handle_timeout(world.now_ns);
        }
    }
    (
        world.received_bytes as f64 / seconds as f64 / 1e3,
        world.far.recovered,
    )
}

/// What the study's boxes may have been, and what they might have been.
fn settings(reads: bool) -> [Setting; 5] {
    let setting = |block, is_patient, in_order| Setting {
        block,
        is_patient,
        in_order,
        reads,
    };
    [
        setting(0, false, false),
        setting(50, false, false),
        setting(10, false, false),
        setting(10, true, false),
        setting(10, true, true),
    ]
}

fn words(one_way: &str, loss: &str) -> String {
    format!("rate 51.84mbit delay {one_way} queue 100ms loss {loss}")
}

fn main() {
    for reads in [false, true] {
        let what = if reads {
            "reads, one after the other"
        } else {
            "one stream"
        };
        println!("{what}: kB/s, gain in percent (recovered)");
        println!("one way  loss  no boxes  full 50:1  full 10:1  10:1 within 20 ms  in order");
        for (one_way, loss) in ["0ms", "250ms"]
            .into_iter()
            .flat_map(|one_way| LOSSES.map(|loss| (one_way, loss)))
        {
            let words = words(one_way, loss);
            let results = settings(reads).map(|setting| {
                let runs = [1, 2].map(|seed| run(&words, setting, 200, seed));
                (runs[0].0 + runs[1].0) / 2.0
            });
            let gains = results
                .map(|kb_s| format!("{kb_s:.1} {:+.0} %", (kb_s / results[0] - 1.0) * 100.0));
            println!("{one_way:>7}  {loss:>5}  {}", gains.join("  "));
        }
    }
}

const LOSSES: [&str; 5] = ["0.1%", "0.5%", "1%", "5%", "10%"];
