//! The rungs with their tolerances: what tests assert and reports print.

use farhaul_link::{DirectionProfile, Framing, LinkProfile, Loss, Probability, QueueLimit, Rate};

use super::bulk::Bulk;
use super::{formulas, queue};
use crate::engine::{NS_PER_MS, NS_PER_S, seconds};
use crate::network::{Circuit, Network, Notice, Side};
use crate::tcp::{Event, Options, Profile, Recovery};

/// E3 (ITU-T G.751): the link of the study.
const E3_BIT_PER_S: u64 = 34_368_000;
const MSS_BYTES: u32 = 1460;
const PACKET_BYTES: u32 = 1500;
const BUFFER_BYTES: u64 = 32_767;
const ROUTER_BYTES: u64 = 256_000;

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Rung {
    /// What is compared, and for which parameters.
    pub name: String,
    /// By formula.
    pub expected: f64,
    /// By simulation.
    pub simulated: f64,
    /// Of both.
    pub unit: &'static str,
    /// How far apart they may be, as a share of the expected. `None` where the
    /// formula is only a bound.
    pub tolerance: Option<f64>,
}

impl Rung {
    /// How far apart they are, as a share of the expected.
    pub fn error(&self) -> f64 {
        (self.simulated - self.expected).abs() / self.expected.abs()
    }

    /// Whether it holds.
    pub fn holds(&self) -> bool {
        self.tolerance
            .is_none_or(|tolerance| self.error() <= tolerance)
    }
}

/// All rungs that need no real network. A few seconds of work.
pub fn rungs() -> Vec<Rung> {
    let mut all = vec![serialisation()];
    for (rtt_ms, connections) in [120, 380, 640]
        .into_iter()
        .flat_map(|rtt_ms| [1, 16, 50, 70, 84, 120].map(|count| (rtt_ms, count)))
    {
        all.push(window(rtt_ms, connections));
    }
    all.extend([1, 7, 31, 120].map(slow_start));
    all.extend([0.3, 0.6, 0.8].map(md1));
    all.extend([0.001, 0.003, 0.01].map(mathis));
    all.extend([0.01, 0.03].map(pftk));
    all
}

fn link(rtt_ns: u64, loss: Loss, rate_bit_per_s: Option<u64>) -> LinkProfile {
    let forward = DirectionProfile {
        rate: rate_bit_per_s.and_then(Rate::from_bit_per_s),
        framing: Framing::Ip,
        delay_ns: rtt_ns / 2,
        queue: QueueLimit::Bytes(ROUTER_BYTES),
        ..DirectionProfile::default()
    };
    let backward = DirectionProfile {
        loss,
        ..forward.clone()
    };
    LinkProfile {
        name: None,
        forward,
        backward,
    }
}

fn e3(rtt_ms: u64) -> LinkProfile {
    link(rtt_ms * NS_PER_MS, Loss::None, Some(E3_BIT_PER_S))
}

/// One segment on an idle line: its bits, then the way.
fn serialisation() -> Rung {
    let link = e3(120);
    let mut network: Network<()> = Network::new(vec![Circuit::new(&link, 0, 1)]);
    network.send_packet(0, Side::Client, PACKET_BYTES, 0);
    while let Some(notice) = network.run() {
        if let Notice::Packet(..) = notice {
            break;
        }
    }
    Rung {
        name: "a packet of 1500 bytes on an idle E3, 60 ms away".to_owned(),
        expected: f64::from(PACKET_BYTES) * 8.0 / E3_BIT_PER_S as f64 + 0.06,
        simulated: seconds(network.now_ns()),
        unit: "s",
        tolerance: Some(0.0001),
    }
}

/// Windows of 32,767 bytes: whole segments per round trip, until the link is
/// full.
fn window(rtt_ms: u64, connections: u32) -> Rung {
    let result = Bulk {
        link: e3(rtt_ms),
        header_bytes: 0,
        // A lone segment whose acknowledgement waits for the tick would cost a
        // varying percent or two, which the formula knows nothing of.
        profile: Profile {
            quick_acks: u32::MAX,
            ..Profile::BSD44
        },
        mss_bytes: MSS_BYTES,
        buffer_bytes: BUFFER_BYTES,
        connections,
        // Losses of the common start are long forgotten after a minute.
        duration_ns: 180 * NS_PER_S,
        warm_up_ns: 60 * NS_PER_S,
        seed: 1,
    }
    .run();
    let bits = |bytes: u32| f64::from(bytes) * 8.0 / E3_BIT_PER_S as f64;
    // A round trip begins with a segment and ends with its acknowledgement.
    let rtt_s = rtt_ms as f64 / 1000.0 + bits(PACKET_BYTES) + bits(40);
    let segments = BUFFER_BYTES / u64::from(MSS_BYTES);
    let each = formulas::window_bit_per_s(segments, u64::from(MSS_BYTES), rtt_s);
    let full = E3_BIT_PER_S as f64 * f64::from(MSS_BYTES) / f64::from(PACKET_BYTES);
    let windows = u64::from(connections) * segments * u64::from(PACKET_BYTES);
    let room = ROUTER_BYTES as f64 + E3_BIT_PER_S as f64 / 8.0 * rtt_s;
    // Windows that overflow link and router together lose packets for ever;
    // the rate is then only what the throughput cannot exceed.
    let tolerance = (windows as f64 <= room).then_some(0.02);
    Rung {
        name: format!("{connections} x 32,767-byte window, {rtt_ms} ms round trip"),
        expected: (each * f64::from(connections)).min(full),
        simulated: result.bit_per_s,
        unit: "bit/s",
        tolerance,
    }
}

/// A reply of so many segments when every segment is acknowledged at once: a
/// round trip for the handshake, one for each doubling.
fn slow_start(segments: u64) -> Rung {
    let rtt_ns = 640 * NS_PER_MS;
    let profile = Profile {
        quick_acks: u32::MAX,
        timestamps: false,
        initial_window_segments: 1,
        byte_counting_segments: 1,
        ..Profile::MODERN
    };
    let mut network: Network<()> =
        Network::new(vec![Circuit::new(&link(rtt_ns, Loss::None, None), 0, 1)]);
    let options = Options {
        profile,
        mss_bytes: MSS_BYTES,
        buffer_bytes: 1 << 20,
        phase_ns: 0,
    };
    let id = network.connect(0, options, options);
    network.write(id, Side::Client, 1);
    let wanted = segments * u64::from(MSS_BYTES);
    let mut received = 0;
    while let Some(notice) = network.run() {
        match notice {
            Notice::Connection(id, Side::Server, Event::Received(_)) => {
                network.write(id, Side::Server, wanted);
            }
            Notice::Connection(_, Side::Client, Event::Received(bytes)) => received += bytes,
            _ => {}
        }
        if received == wanted {
            break;
        }
    }
    let rounds = 1 + formulas::slow_start_rounds(segments, 1);
    Rung {
        name: format!("{segments} segments after a handshake, slow start from one segment"),
        expected: f64::from(rounds),
        simulated: network.now_ns() as f64 / rtt_ns as f64,
        unit: "round trips",
        tolerance: Some(0.02),
    }
}

fn md1(load: f64) -> Rung {
    let mut link = e3(120);
    link.backward.queue = QueueLimit::Bytes(u64::MAX);
    let service_s = f64::from(PACKET_BYTES) * 8.0 / E3_BIT_PER_S as f64;
    Rung {
        name: format!(
            "mean wait in the router at {:.0} % load, Poisson arrivals",
            load * 100.0
        ),
        expected: formulas::md1_wait_s(load, service_s),
        simulated: queue::poisson_wait_s(&link, PACKET_BYTES, load, 200_000, 1),
        unit: "s",
        tolerance: Some(0.05),
    }
}

/// Long transfers with independent losses, no other limit.
fn lossy(profile: Profile, loss: f64, duration_s: u64) -> f64 {
    let share = Probability::from_percent(loss * 100.0).unwrap_or(Probability::ZERO);
    let bulk = Bulk {
        link: link(100 * NS_PER_MS, Loss::Bernoulli(share), None),
        header_bytes: 0,
        profile,
        mss_bytes: MSS_BYTES,
        buffer_bytes: 1 << 30,
        connections: 8,
        duration_ns: duration_s * NS_PER_S,
        warm_up_ns: 10 * NS_PER_S,
        seed: 1,
    };
    bulk.run().bit_per_s / f64::from(bulk.connections)
}

fn reno(recovery: Recovery, quick_acks: u32) -> Profile {
    Profile {
        recovery,
        growth: crate::tcp::Growth::Reno,
        timestamps: false,
        limited_transmit: false,
        early_retransmit: false,
        quick_acks,
        ..Profile::MODERN
    }
}

fn mathis(loss: f64) -> Rung {
    Rung {
        name: format!(
            "square-root law at {} % loss, every segment acknowledged",
            loss * 100.0
        ),
        expected: formulas::mathis_bit_per_s(u64::from(MSS_BYTES), 0.1, loss, 1.0),
        simulated: lossy(reno(Recovery::Sack, u32::MAX), loss, 400),
        unit: "bit/s",
        tolerance: Some(0.10),
    }
}

fn pftk(loss: f64) -> Rung {
    Rung {
        name: format!("loss and time-outs (Padhye) at {} % loss", loss * 100.0),
        expected: formulas::pftk_bit_per_s(u64::from(MSS_BYTES), 0.1, loss, 2.0, 0.3),
        // The formula's sender grows with each acknowledgement, not with bytes.
        simulated: lossy(
            Profile {
                byte_counting_segments: 0,
                ..reno(Recovery::Reno, 0)
            },
            loss,
            400,
        ),
        unit: "bit/s",
        tolerance: Some(0.10),
    }
}
