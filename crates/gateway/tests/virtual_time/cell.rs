//! Links by name, and how long they are watched.

use std::time::Duration;

use farhaul_link::LinkProfile;

use super::ceiling;

/// Rates of the matrix, Mbit/s.
pub const RATES_MBIT: [&str; 5] = ["1.544", "45", "51.84", "155.52", "1000"];
/// One-way delays of the matrix, ms.
pub const ONE_WAYS_MS: [u64; 4] = [0, 30, 100, 250];
/// Losses of the matrix in each direction, percent.
pub const LOSSES_PERCENT: [&str; 6] = ["0", "0.1", "0.5", "1", "5", "10"];

/// At the start nothing is measured for this long, or 20 round trips.
const WARM_UP: Duration = Duration::from_secs(10);

/// What the gateways are told about the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// Nothing: no rate, and perhaps others use it.
    Untold,
    /// Its rate, and that nobody else uses it.
    Told,
}

impl Knowledge {
    /// Both, in the order of tables.
    pub const BOTH: [Self; 2] = [Self::Untold, Self::Told];

    /// As results call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Untold => "untold",
            Self::Told => "told",
        }
    }

    /// The rate that is told, bit/s; who is told it owns the link.
    pub fn of(self, cell: &Cell) -> Option<u64> {
        (self == Self::Told).then(|| cell.rate_bit_per_s() as u64)
    }
}

/// A link with a name.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Short and stable: `51.84M/100ms/1%`.
    pub name: String,
    /// In the words of `farhaul link`.
    pub words: String,
    /// What the words mean.
    pub link: LinkProfile,
}

impl Cell {
    /// A link in the words of `farhaul link`.
    pub fn new(name: impl Into<String>, words: impl Into<String>) -> Self {
        let words = words.into();
        let link = LinkProfile::parse(&words).unwrap_or_else(|error| panic!("{words}: {error}"));
        Self {
            name: name.into(),
            words,
            link,
        }
    }

    /// A cell of the matrix: the same in both directions, a queue of 100 ms.
    pub fn of_matrix(rate_mbit: &str, one_way_ms: u64, loss_percent: &str) -> Self {
        Self::new(
            format!("{rate_mbit}M/{one_way_ms}ms/{loss_percent}%"),
            format!("rate {rate_mbit}mbit delay {one_way_ms}ms loss {loss_percent}% queue 100ms"),
        )
    }

    /// The whole matrix.
    pub fn matrix() -> Vec<Self> {
        let mut cells = Vec::new();
        for rate_mbit in RATES_MBIT {
            for one_way_ms in ONE_WAYS_MS {
                for loss_percent in LOSSES_PERCENT {
                    cells.push(Self::of_matrix(rate_mbit, one_way_ms, loss_percent));
                }
            }
        }
        cells
    }

    /// Rate towards the far side: the line's, or the policer's below it.
    pub fn rate_bit_per_s(&self) -> f64 {
        let rate = self.link.forward.rate;
        let policer = self.link.forward.policer.map(|policer| policer.rate);
        let least = rate.into_iter().chain(policer).min();
        least.map_or(f64::INFINITY, |rate| rate.bit_per_s() as f64)
    }

    /// Round trip of an empty link.
    pub fn rtt(&self) -> Duration {
        Duration::from_nanos(self.link.rtt_ns())
    }

    /// Share of packets that the wire loses on the way there.
    pub fn loss(&self) -> f64 {
        self.link.forward.loss.mean()
    }

    /// Most payload the link can carry, without loss.
    pub fn ceiling_bit_per_s(&self) -> f64 {
        ceiling::payload_bit_per_s(self.rate_bit_per_s(), self.rtt().as_secs_f64())
    }

    /// Most payload that arrives, with the loss.
    pub fn reachable_bit_per_s(&self) -> f64 {
        self.ceiling_bit_per_s() * (1.0 - self.loss())
    }

    /// Time to send `bytes` of frames.
    pub fn sending_ms(&self, bytes: u64) -> f64 {
        bytes as f64 * 8e3 / self.rate_bit_per_s()
    }

    /// Not measured at the start, whole seconds.
    pub fn warm_up_s(&self) -> u64 {
        let round_trips = self.rtt() * 20;
        WARM_UP.max(round_trips).as_secs_f64().ceil() as u64
    }

    /// Measured after the warm-up: long enough for some 10,000 packets and 40
    /// round trips, short where a second costs a second of computing.
    pub fn measured_s(&self) -> u64 {
        match self.rate_bit_per_s() {
            ..10e6 => 120,
            ..500e6 => 40,
            _ => 20,
        }
    }
}
