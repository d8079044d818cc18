//! HTTP over the simulated network: who opens connections when, what waits for
//! what, and how long each request takes.

mod carriage;
mod exchange;
mod fetcher;
mod pair;
mod pool;
mod spans;
mod study;
mod version;

pub use study::{Architecture, Outcome, Scenario, Study};
pub use version::Http;
