//! Corruption on the wire: one flipped bit in the packet that arrives.

use crate::probability::Probability;
use crate::stream::{Purpose, Stream};

/// The running corruption process of one direction.
#[derive(Debug, Clone)]
pub(crate) struct CorruptProcess(Stream);

impl CorruptProcess {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Stream::new(seed, Purpose::Corrupt))
    }

    /// Which bit of the next packet flips, if any. Both numbers are drawn for
    /// every packet, so that a higher probability hits a superset.
    pub(crate) fn step(&mut self, corrupt: Probability) -> Option<u64> {
        if corrupt == Probability::ZERO {
            return None;
        }
        let (hit, bit) = (self.0.draw(), self.0.draw());
        corrupt.hit(hit).then_some(bit)
    }
}
