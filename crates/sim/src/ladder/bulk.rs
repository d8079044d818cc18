//! Bulk transfers side by side: how fast do they go?

use farhaul_link::LinkProfile;

use crate::engine::{NS_PER_S, Stream, seconds};
use crate::network::{Circuit, Network, Notice, Side};
use crate::tcp::{Event, Options, Profile};

/// Transfers from servers to clients over one circuit, all endless.
#[derive(Debug, Clone)]
pub struct Bulk {
    /// The circuit; forward is towards the servers.
    pub link: LinkProfile,
    /// 14 where the link's rate counts Ethernet frames, 0 where it counts IP.
    pub header_bytes: u32,
    /// Both ends' TCP.
    pub profile: Profile,
    /// Maximum segment size.
    pub mss_bytes: u32,
    /// Both ends' buffers.
    pub buffer_bytes: u64,
    /// How many at the same time.
    pub connections: u32,
    /// Simulated time.
    pub duration_ns: u64,
    /// What is not counted at the start.
    pub warm_up_ns: u64,
    /// Seed of loss and of the hosts' ticks.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BulkResult {
    /// Payload of all connections after the warm-up, per second.
    pub bit_per_s: f64,
    /// Packets that left a circuit.
    pub packets: u64,
    /// Packets lost in the queue or on the wire towards the clients.
    pub lost: u64,
    /// Packets sent towards the clients.
    pub sent: u64,
    /// Hash of the run.
    pub trace: crate::engine::Trace,
}

#[derive(Debug, Clone, Copy)]
enum Alarm {
    Open(u32),
    Stop,
}

/// More than any transfer moves.
const ENDLESS_BYTES: u64 = 1 << 50;

impl Bulk {
    /// Runs it.
    pub fn run(&self) -> BulkResult {
        let circuit = Circuit::new(&self.link, self.header_bytes, self.seed);
        let mut network = Network::new(vec![circuit]);
        let mut stream = Stream::new(self.seed, "bulk start", 0);
        for number in 0..self.connections {
            // Within the first second, so that they do not move in step.
            network.set_alarm(stream.below(NS_PER_S), Alarm::Open(number));
        }
        network.set_alarm(self.duration_ns, Alarm::Stop);
        let mut counted_bytes = 0;
        while let Some(notice) = network.run() {
            match notice {
                Notice::Alarm(Alarm::Stop) => break,
                Notice::Alarm(Alarm::Open(number)) => self.open(&mut network, number),
                Notice::Connection(id, Side::Client, Event::Connected) => {
                    network.write(id, Side::Server, ENDLESS_BYTES);
                }
                Notice::Connection(_, Side::Client, Event::Received(bytes))
                    if network.now_ns() >= self.warm_up_ns =>
                {
                    counted_bytes += bytes;
                }
                _ => {}
            }
        }
        let stats = network.circuit(0, Side::Client).unwrap_or_default();
        let back = network.circuit(0, Side::Server).unwrap_or_default();
        let span_s = seconds(self.duration_ns.saturating_sub(self.warm_up_ns));
        BulkResult {
            bit_per_s: (counted_bytes * 8) as f64 / span_s,
            packets: stats.packets_out + back.packets_out,
            lost: stats.drops.total(),
            sent: stats.packets_in,
            trace: network.trace(),
        }
    }

    fn open(&self, network: &mut Network<Alarm>, number: u32) {
        let options = |phase_ns| Options {
            profile: self.profile,
            mss_bytes: self.mss_bytes,
            buffer_bytes: self.buffer_bytes,
            phase_ns,
        };
        let mut phase = Stream::new(self.seed, "bulk phase", u64::from(number));
        network.connect(0, options(0), options(phase.below(NS_PER_S)));
    }
}
