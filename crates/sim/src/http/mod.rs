//! HTTP over the simulated network: who opens connections when, what waits for
//! what, and how long each request takes.

mod exchange;
mod fetcher;
mod pool;
mod spans;
mod study;
mod version;

pub use study::{Architecture, Outcome, Scenario, Study};
pub use version::Http;
