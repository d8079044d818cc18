//! Faults to plant: each drawn at random in strength, rate and round trip.

use serde::{Deserialize, Serialize};

use crate::probe::diagnose::{Fault, Finding};
use crate::probe::tcp_test::Direction;

/// What is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Plant {
    Clean,
    ReceiveWindow,
    WindowScaling,
    SendBuffer,
    Loss001,
    Loss1,
    Policer,
    Duplex,
    BlackHole,
    ShallowBuffer,
    CpuBound,
    AsymmetricRate,
    Reordering,
    WindowAndLoss,
    BlackHoleAndReordering,
    BufferAndPolicer,
    CleanWide,
}

/// Circuits drawn widely: as fast as two processors can emulate beside the two
/// programs, and from a town's round trip to an ocean's and back.
pub(super) const RATE_MBIT_MAX: f64 = 400.0;
pub(super) const RTT_MS_MIN: f64 = 2.0;
pub(super) const RTT_MS_MAX: f64 = 200.0;

/// Linux has no smaller send buffers than two segments with what it keeps beside
/// them (`SOCK_MIN_SNDBUF`, 4.5 KB); some more, for its windows.
const BUFFER_BYTES_MIN: f64 = 6_000.0;
/// More of what the circuit holds may be enough: half of a buffer is for the
/// kernel's own use, but not always.
const BUFFER_SHARE_MAX: f64 = 0.6;
/// A policer's rate is at least this part of the line's.
const POLICER_DIVISOR_MAX: f64 = 6.0;

impl Plant {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Clean,
        Self::ReceiveWindow,
        Self::WindowScaling,
        Self::SendBuffer,
        Self::Loss001,
        Self::Loss1,
        Self::Policer,
        Self::Duplex,
        Self::BlackHole,
        Self::ShallowBuffer,
        Self::CpuBound,
        Self::AsymmetricRate,
        Self::Reordering,
        Self::WindowAndLoss,
        Self::BlackHoleAndReordering,
        Self::BufferAndPolicer,
        Self::CleanWide,
    ];

    /// Short and stable.
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_default()
    }

    /// What the verdict must name, and nothing else.
    pub fn expected(self) -> Vec<Fault> {
        match self {
            Self::Clean | Self::CleanWide => vec![],
            Self::ReceiveWindow => vec![Fault::ReceiveWindow],
            Self::WindowScaling => vec![Fault::WindowScaling],
            Self::SendBuffer => vec![Fault::SendBuffer],
            Self::Loss001 | Self::Loss1 => vec![Fault::Loss],
            Self::Policer => vec![Fault::Policer],
            Self::Duplex => vec![Fault::DuplexMismatch],
            Self::BlackHole => vec![Fault::MtuBlackHole],
            Self::ShallowBuffer => vec![Fault::ShallowBuffer],
            Self::CpuBound => vec![Fault::CpuBound],
            Self::AsymmetricRate => vec![Fault::AsymmetricRate],
            Self::Reordering => vec![Fault::Reordering],
            Self::WindowAndLoss => vec![Fault::ReceiveWindow, Fault::Loss],
            Self::BlackHoleAndReordering => vec![Fault::MtuBlackHole, Fault::Reordering],
            Self::BufferAndPolicer => vec![Fault::SendBuffer, Fault::Policer],
        }
    }
}

/// Where the faults of one host's buffers must be seen, and nowhere else: plants
/// give small ones to the server's receiver and the client's sender.
pub(super) fn has_its_direction(finding: &Finding) -> bool {
    match finding.fault {
        Fault::ReceiveWindow | Fault::SendBuffer => finding.direction == Some(Direction::Up),
        _ => true,
    }
}

/// A circuit with its faults.
#[derive(Debug, Clone, PartialEq)]
pub struct Circuit {
    /// For `farhaul link`.
    pub words: String,
    /// Settings of the client's host.
    pub client: Vec<(&'static str, String)>,
    /// Settings of the server's host.
    pub server: Vec<(&'static str, String)>,
    /// Window that the server's program is told to fix: as good a way to make it
    /// small as the system's setting, with another remedy.
    pub server_window_bytes: Option<u32>,
    /// Share of a processor the server's program has.
    pub server_cpu: Option<f64>,
    /// Loss of a direction while the other is full.
    pub duplex_loss: Option<f64>,
}

impl Circuit {
    /// Loses so many percent of the packets, both ways.
    fn lose(&mut self, percent: f64) {
        self.words += &format!(" loss {percent:.4}%");
    }

    /// A small receive window of the server, in one of two ways.
    fn narrow(&mut self, bytes: u64, is_fixed: bool) {
        match u32::try_from(bytes) {
            Ok(bytes) if is_fixed => self.server_window_bytes = Some(bytes),
            _ => self.server.push(("ipv4/tcp_rmem", three(bytes))),
        }
    }

    /// Whether what a finding tells to do is about the setting that was planted,
    /// where there are two that make the same fault.
    pub(super) fn is_cured_by(&self, finding: &Finding) -> bool {
        let names = |setting: &str| finding.remedy.contains(setting);
        let (is_system, is_program) = (names("net.ipv4.tcp_rmem"), names("SO_RCVBUF"));
        match finding.fault {
            Fault::ReceiveWindow => is_program != is_system && is_program == self.is_fixed(),
            _ => true,
        }
    }

    fn is_fixed(&self) -> bool {
        self.server_window_bytes.is_some()
    }

    /// What Linux has by itself holds less than the longest circuits.
    fn have_room(&mut self, bdp_bytes: f64) {
        let most = (bdp_bytes * 4.0) as u64 + (6 << 20);
        for host in [&mut self.client, &mut self.server] {
            host.push(("ipv4/tcp_rmem", format!("4096 131072 {most}")));
            host.push(("ipv4/tcp_wmem", format!("4096 65536 {most}")));
        }
    }
}

/// Reproducible draws (Steele, Lea, Flood 2014: SplitMix64).
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// Of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + self.unit() * (most - least)
    }

    fn coin(&mut self) -> bool {
        self.unit() < 0.5
    }

    /// One of `0..end`, which is not empty.
    #[cfg(test)]
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.unit() * end as f64) as usize
    }

    /// Evenly spread in its logarithm.
    fn scale(&mut self, least: f64, most: f64) -> f64 {
        (least.ln() + self.unit() * (most / least).ln()).exp()
    }
}

/// A circuit of 10 to 150 Mbit/s and 10 to 100 ms, or drawn widely, with a plant
/// in it.
pub fn draw(plant: Plant, seed: u64) -> Circuit {
    let mut draw = Draw::new(seed);
    let rate_mbit = match plant {
        Plant::CpuBound => draw.scale(80.0, 150.0),
        Plant::CleanWide => draw.scale(10.0, RATE_MBIT_MAX),
        _ => draw.scale(10.0, 150.0),
    };
    let rtt_ms = match plant {
        // Below, 64 KB would be enough.
        Plant::WindowScaling => draw.scale((900.0 / rate_mbit).max(20.0), 120.0),
        Plant::CleanWide => draw.scale(RTT_MS_MIN, RTT_MS_MAX),
        Plant::BufferAndPolicer => draw.scale(policed_rtt_ms_min(rate_mbit), 100.0),
        _ => draw.scale(10.0, 100.0),
    };
    let bdp_bytes = rate_mbit * rtt_ms * 125.0;
    let mut circuit = Circuit {
        words: format!("rate {rate_mbit:.3}mbit delay {:.3}ms", rtt_ms / 2.0),
        client: Vec::new(),
        server: Vec::new(),
        server_window_bytes: None,
        server_cpu: None,
        duplex_loss: None,
    };
    match plant {
        Plant::Clean => {}
        Plant::CleanWide => circuit.have_room(bdp_bytes),
        Plant::ReceiveWindow => circuit.narrow(small(&mut draw, bdp_bytes), draw.coin()),
        Plant::WindowScaling => circuit
            .server
            .push(("ipv4/tcp_window_scaling", "0".to_owned())),
        Plant::SendBuffer => circuit
            .client
            .push(("ipv4/tcp_wmem", three(small(&mut draw, bdp_bytes)))),
        // About .01 %: of 60,000 datagrams some five, of which two are seen in one direction at least.
        Plant::Loss001 => circuit.lose(draw.scale(0.008, 0.02)),
        Plant::Loss1 => circuit.lose(draw.scale(0.7, 2.0)),
        Plant::Policer => circuit.words += &policer(&mut draw, rate_mbit).1,
        Plant::Duplex => circuit.duplex_loss = Some(draw.between(0.05, 0.15)),
        Plant::BlackHole => circuit.words += &format!(" mtu {:.0}", draw.between(1280.0, 1480.0)),
        Plant::ShallowBuffer => {
            let packets = (bdp_bytes / 1514.0 * 0.3).clamp(3.0, 12.0);
            circuit.words += &format!(" queue {:.0}p", draw.between(3.0, packets.max(3.1)));
        }
        // Some 100 us of a processor for each Mbit: a third to two thirds of it.
        Plant::CpuBound => {
            circuit.server_cpu = Some(rate_mbit * draw.between(0.000_03, 0.000_06));
        }
        Plant::AsymmetricRate => {
            let other = rate_mbit / draw.between(2.0, 8.0);
            circuit.words += &format!(" backward rate {other:.3}mbit");
        }
        Plant::Reordering => circuit.words += &reordering(&mut draw),
        Plant::WindowAndLoss => {
            circuit.narrow(small(&mut draw, bdp_bytes), draw.coin());
            circuit.lose(draw.between(0.1, 1.0));
        }
        Plant::BlackHoleAndReordering => {
            circuit.words += &format!(" mtu {:.0}", draw.between(1280.0, 1480.0));
            circuit.words += &reordering(&mut draw);
        }
        Plant::BufferAndPolicer => {
            let (policed_mbit, words) = policer(&mut draw, rate_mbit);
            circuit.words += &words;
            // What is enough for what the policer lets through is no fault.
            let bytes = small(&mut draw, bdp_bytes * policed_mbit / rate_mbit);
            circuit.client.push(("ipv4/tcp_wmem", three(bytes)));
        }
    }
    circuit
}

fn three(most: u64) -> String {
    format!("4096 {} {most}", most.min(4096).max(most / 2))
}

/// A buffer or window that holds too little of what the circuit does.
fn small(draw: &mut Draw, bdp_bytes: f64) -> u64 {
    (bdp_bytes * draw.between(0.15, BUFFER_SHARE_MAX)).max(BUFFER_BYTES_MIN) as u64
}

/// Below, even the least buffer may be enough for what a policer lets through.
fn policed_rtt_ms_min(rate_mbit: f64) -> f64 {
    let bdp_bytes = BUFFER_BYTES_MIN / BUFFER_SHARE_MAX;
    let policed_mbit = rate_mbit / POLICER_DIVISOR_MAX;
    (bdp_bytes / (policed_mbit * 125.0)).max(10.0)
}

/// Its rate in Mbit/s, and its words.
fn policer(draw: &mut Draw, rate_mbit: f64) -> (f64, String) {
    let rate = rate_mbit / draw.between(2.0, POLICER_DIVISOR_MAX);
    let words = format!(" policer {rate:.3}mbit {:.0}kb", draw.between(30.0, 60.0));
    (rate, words)
}

fn reordering(draw: &mut Draw) -> String {
    let (share, extra_ms) = (draw.between(0.5, 5.0), draw.between(2.0, 8.0));
    format!(" reorder {share:.2}% {extra_ms:.1}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plant_is_a_circuit_and_can_be_drawn_again() {
        for plant in Plant::ALL {
            for seed in 0..50 {
                let circuit = draw(plant, seed);
                let parsed = farhaul_link::LinkProfile::parse(&circuit.words);
                assert!(parsed.is_ok(), "{plant:?}: {}: {parsed:?}", circuit.words);
                assert_eq!(circuit, draw(plant, seed));
            }
            assert_ne!(draw(plant, 1), draw(plant, 2), "{plant:?}");
        }
    }

    fn finding(fault: Fault, direction: Option<Direction>) -> Finding {
        Finding {
            fault,
            direction,
            sentence: String::new(),
            evidence: Vec::new(),
            remedy: String::new(),
            expected_bit_per_s: None,
        }
    }

    #[test]
    fn a_small_window_is_the_systems_as_often_as_the_programs() {
        for plant in [Plant::ReceiveWindow, Plant::WindowAndLoss] {
            let circuits: Vec<_> = (0..400).map(|seed| draw(plant, seed)).collect();
            let fixed = circuits.iter().filter(|circuit| circuit.is_fixed());
            assert!((150..250).contains(&fixed.count()), "{plant:?}");
            for circuit in circuits {
                assert_eq!(circuit.server.is_empty(), circuit.is_fixed());
            }
        }
    }

    #[test]
    fn a_small_buffer_before_a_policer_is_too_small_for_the_policer() {
        let ratios: Vec<f64> = (0..400)
            .map(|seed| {
                let circuit = draw(Plant::BufferAndPolicer, seed);
                let words: Vec<&str> = circuit.words.split(' ').collect();
                let after = |word: &str, unit: &str| -> f64 {
                    let at = words.iter().position(|one| *one == word).unwrap();
                    words[at + 1].trim_end_matches(unit).parse().unwrap()
                };
                let held = after("policer", "mbit") * after("delay", "ms") * 2.0 * 125.0;
                let most = circuit.client[0].1.split(' ').next_back().unwrap();
                most.parse::<f64>().unwrap() / held
            })
            .collect();
        assert!(ratios.iter().all(|ratio| (0.14..0.61).contains(ratio)));
        let large = ratios.iter().filter(|ratio| **ratio > 0.375).count();
        assert!((100..300).contains(&large), "{large}");
    }

    #[test]
    fn the_share_that_is_lost_is_drawn() {
        for (plant, least, most) in [(Plant::Loss001, 0.008, 0.02), (Plant::Loss1, 0.7, 2.0)] {
            let shares: Vec<f64> = (0..200)
                .map(|seed| {
                    let words = draw(plant, seed).words;
                    let (_, share) = words.rsplit_once(" loss ").unwrap();
                    share.trim_end_matches('%').parse().unwrap()
                })
                .collect();
            assert!(shares.iter().all(|share| (least..=most).contains(share)));
            let below = shares
                .iter()
                .filter(|&&share| share < (least * most).sqrt());
            assert!((70..130).contains(&below.count()), "{plant:?}");
        }
    }

    #[test]
    fn what_cures_a_small_window_depends_on_how_it_was_made() {
        let told = |remedy: &str| Finding {
            remedy: remedy.to_owned(),
            ..finding(Fault::ReceiveWindow, Some(Direction::Up))
        };
        let (system, program) = (
            "on the server: sysctl -w net.ipv4.tcp_rmem='4096 131072 1048576'",
            "on the server: do not fix the receive buffer of the program (SO_RCVBUF)",
        );
        let both = format!("{system}, and {program}");
        let mut circuit = draw(Plant::Clean, 1);
        for (is_fixed, cures) in [(false, [true, false, false]), (true, [false, true, false])] {
            circuit.narrow(8192, is_fixed);
            let outcomes =
                [system, program, both.as_str()].map(|remedy| circuit.is_cured_by(&told(remedy)));
            assert_eq!(outcomes, cures);
        }
        assert!(circuit.is_cured_by(&finding(Fault::Loss, None)));
    }

    #[test]
    fn a_small_buffer_has_one_direction() {
        let (up, down) = (Some(Direction::Up), Some(Direction::Down));
        assert!(has_its_direction(&finding(Fault::ReceiveWindow, up)));
        assert!(!has_its_direction(&finding(Fault::ReceiveWindow, down)));
        assert!(!has_its_direction(&finding(Fault::SendBuffer, None)));
        assert!(has_its_direction(&finding(Fault::Loss, down)));
    }
}
