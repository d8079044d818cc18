//! Duplication on the wire: the copy arrives right behind its original.
//!
//! A copy appears after the bottleneck and takes no rate: duplicates come
//! from networks whose paths change, not from the sender's transmitter. A
//! lost packet has no copy; a corrupted one has a copy just as corrupted.

use crate::probability::Probability;
use crate::stream::{Purpose, Stream};

/// The running duplication process of one direction.
#[derive(Debug, Clone)]
pub(crate) struct DuplicateProcess(Stream);

impl DuplicateProcess {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Stream::new(seed, Purpose::Duplicate))
    }

    /// Whether the next packet arrives twice.
    pub(crate) fn step(&mut self, duplicate: Probability) -> bool {
        duplicate > Probability::ZERO && duplicate.hit(self.0.draw())
    }
}
