//! Model of a circuit.

mod corrupt;
mod delay;
mod duplicate;
mod emulator;
mod framing;
mod line;
mod loss;
mod packet;
mod probability;
mod profile;
mod queue;
mod rate;
mod reorder;
mod stats;
mod stream;
mod units;

pub use delay::{Distribution, PARETO_REACH};
pub use emulator::{Emulator, Output};
pub use framing::Framing;
pub use loss::Loss;
pub use packet::{ETHERNET_HEADER_BYTES, Packet};
pub use probability::Probability;
pub use profile::{
    DirectionProfile, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_PACKETS_DEFAULT, ImpossibleProfile,
    LinkProfile, TIME_MAX_NS,
};
pub use queue::QueueLimit;
pub use rate::Rate;
pub use reorder::Reorder;
pub use stats::{Drops, Stats};
