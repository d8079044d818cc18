//! Reordering on the wire. Without it packets keep their order, however much
//! their delay varies.

use crate::probability::Probability;
use crate::stream::{Purpose, Stream};

/// Which packets may leave their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reorder {
    /// None: a packet whose delay would let it overtake waits for the one
    /// before it.
    #[default]
    Never,
    /// A packet chosen with this probability skips the propagation delay and
    /// so overtakes everything in flight: netem's `reorder`.
    Leap(Probability),
    /// A packet chosen with this probability is held back, so that the ones
    /// behind it overtake it: what a second path of another length does.
    HoldBack {
        /// Share of packets that are held back.
        share: Probability,
        /// By how much, in nanoseconds.
        extra_ns: u64,
    },
    /// Every packet takes its own delay: jitter alone decides the order, as
    /// netem's jitter does.
    Jitter,
}

/// What happens to the next packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Behind the packet before it.
    InOrder,
    /// At its own time, whoever it overtakes.
    Free,
    /// Without propagation delay.
    Leap,
    /// This much later.
    HoldBack(u64),
}

/// The running reordering process of one direction.
#[derive(Debug, Clone)]
pub(crate) struct ReorderProcess(Stream);

impl ReorderProcess {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Stream::new(seed, Purpose::Reorder))
    }

    pub(crate) fn step(&mut self, reorder: Reorder) -> Turn {
        match reorder {
            Reorder::Never => Turn::InOrder,
            Reorder::Jitter => Turn::Free,
            Reorder::Leap(share) if share.hit(self.0.draw()) => Turn::Leap,
            Reorder::HoldBack { share, extra_ns } if share.hit(self.0.draw()) => {
                Turn::HoldBack(extra_ns)
            }
            Reorder::Leap(_) | Reorder::HoldBack { .. } => Turn::InOrder,
        }
    }
}
