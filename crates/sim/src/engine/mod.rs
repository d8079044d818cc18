//! The engine: a clock of whole nanoseconds, a queue of events in an order
//! that nothing but their times and their making decides, streams of random
//! numbers by name, and a hash of everything that happened.

mod events;
mod random;
mod trace;

pub use events::{EventQueue, TooManyEvents};
pub use random::Stream;
pub use trace::Trace;

/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const NS_PER_MS: u64 = 1_000_000;

/// A time in seconds, for people.
pub fn seconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_S as f64
}

/// Seconds as whole nanoseconds; what is negative or no number counts as 0.
pub fn nanoseconds(s: f64) -> u64 {
    // The cast saturates and takes NaN for 0.
    (s * NS_PER_S as f64) as u64
}
