//! Settings of a circuit: one [`DirectionProfile`] for each way.

use std::fmt;

use crate::delay::Distribution;
use crate::framing::Framing;
use crate::loss::Loss;
use crate::policer::Policer;
use crate::probability::Probability;
use crate::queue::QueueLimit;
use crate::rate::Rate;
use crate::reorder::Reorder;

/// Longest delay, jitter or hold-back accepted: one hour.
pub const TIME_MAX_NS: u64 = 3_600_000_000_000;
/// Most bytes that a profile may have in flight: 8 GiB.
pub const IN_FLIGHT_BYTES_MAX: u64 = 8 << 30;
/// Most packets in flight where no rate bounds them, unless set otherwise.
pub const IN_FLIGHT_PACKETS_DEFAULT: u32 = 262_144;

/// One direction of a circuit.
///
/// A packet passes, in this order: the MTU check, the policer, the router's
/// queue (tail drop), the transmitter (rate), and then the wire: loss,
/// corruption, duplication, propagation (delay and jitter). A packet lost on the wire has
/// used its share of the rate. The default is an ideal wire: unlimited rate,
/// no delay, nothing lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectionProfile {
    /// Rate of the transmitter; `None` is unlimited.
    pub rate: Option<Rate>,
    /// What the rate counts for each packet.
    pub framing: Framing,
    /// Propagation delay, one way, in nanoseconds: the mean if there is jitter.
    pub delay_ns: u64,
    /// Variation of the delay in nanoseconds, as `distribution` reads it.
    pub jitter_ns: u64,
    /// Shape of the variation.
    pub distribution: Distribution,
    /// Loss on the wire.
    pub loss: Loss,
    /// Share of packets that arrive twice.
    pub duplicate: Probability,
    /// Share of packets that arrive with one bit flipped.
    pub corrupt: Probability,
    /// Which packets may overtake others.
    pub reorder: Reorder,
    /// What is let through to the queue; `None` is everything.
    pub policer: Option<Policer>,
    /// How much may wait before the transmitter.
    pub queue: QueueLimit,
    /// Longest network-layer packet in bytes; longer ones are dropped.
    /// `None` is unlimited.
    pub mtu_bytes: Option<u32>,
    /// Most packets in flight while the rate is unlimited; with a rate the
    /// bound follows from rate and delay.
    pub in_flight_packets_max: u32,
}

impl Default for DirectionProfile {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

impl DirectionProfile {
    /// An ideal wire; the same as `default()`, for constants.
    pub const UNLIMITED: Self = Self {
        rate: None,
        framing: Framing::Ethernet,
        delay_ns: 0,
        jitter_ns: 0,
        distribution: Distribution::Uniform,
        loss: Loss::None,
        duplicate: Probability::ZERO,
        corrupt: Probability::ZERO,
        reorder: Reorder::Never,
        policer: None,
        queue: QueueLimit::Auto,
        mtu_bytes: None,
        in_flight_packets_max: IN_FLIGHT_PACKETS_DEFAULT,
    };

    /// Longest time a packet can spend on the wire, in nanoseconds.
    pub fn delay_max_ns(&self) -> u64 {
        let held_ns = match self.reorder {
            Reorder::HoldBack { extra_ns, .. } => extra_ns,
            _ => 0,
        };
        self.delay_ns
            .saturating_add(self.distribution.reach_above_ns(self.jitter_ns))
            .saturating_add(held_ns)
    }

    /// Shortest time a packet can spend on the wire, in nanoseconds.
    pub fn delay_min_ns(&self) -> u64 {
        match self.reorder {
            Reorder::Leap(_) => 0,
            _ => self
                .delay_ns
                .saturating_sub(self.distribution.reach_below_ns(self.jitter_ns)),
        }
    }

    /// Most bytes the rate can put in flight; `None` without a rate.
    pub fn in_flight_bytes_max(&self) -> Option<u64> {
        Some(self.rate?.bytes_in(self.delay_max_ns()))
    }

    /// Says what cannot be emulated: times above [`TIME_MAX_NS`], or more in
    /// flight than [`IN_FLIGHT_BYTES_MAX`].
    pub fn validate(&self) -> Result<(), ImpossibleProfile> {
        let held_ns = match self.reorder {
            Reorder::HoldBack { extra_ns, .. } => extra_ns,
            _ => 0,
        };
        if self.delay_ns.max(self.jitter_ns).max(held_ns) > TIME_MAX_NS {
            return Err(ImpossibleProfile::TimeTooLong);
        }
        match self.in_flight_bytes_max() {
            Some(bytes) if bytes > IN_FLIGHT_BYTES_MAX => {
                Err(ImpossibleProfile::TooMuchInFlight { bytes })
            }
            _ => Ok(()),
        }
    }
}

/// Why a profile whose parts are fine cannot be emulated as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImpossibleProfile {
    /// A delay, jitter or hold-back above one hour.
    TimeTooLong,
    /// Rate x delay is more than memory should hold.
    TooMuchInFlight {
        /// Bytes that would be in flight.
        bytes: u64,
    },
}

impl fmt::Display for ImpossibleProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimeTooLong => f.write_str("a delay is longer than one hour"),
            Self::TooMuchInFlight { bytes } => write!(
                f,
                "rate x delay would keep {} GiB in flight, more than the {} GiB allowed: lower the rate or the delay",
                bytes >> 30,
                IN_FLIGHT_BYTES_MAX >> 30
            ),
        }
    }
}

impl std::error::Error for ImpossibleProfile {}

/// Both directions of a circuit between a first side (A) and a second (B).
///
/// Read one with [`LinkProfile::parse`]; `Display` prints what `parse` reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkProfile {
    /// The named profile it started from, if any.
    pub name: Option<&'static str>,
    /// From A to B: upload, where A is the user's site.
    pub forward: DirectionProfile,
    /// From B to A: download, where A is the user's site.
    pub backward: DirectionProfile,
}

impl LinkProfile {
    /// The same settings in both directions.
    pub fn symmetric(direction: DirectionProfile) -> Self {
        Self {
            name: None,
            forward: direction.clone(),
            backward: direction,
        }
    }

    /// Sum of both propagation delays in nanoseconds, without jitter.
    pub fn rtt_ns(&self) -> u64 {
        self.forward.delay_ns.saturating_add(self.backward.delay_ns)
    }
}
