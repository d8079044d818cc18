//! Model of a circuit: rate, delay, loss and everything else that makes a
//! long link long, in virtual time.
//!
//! One [`Emulator`] is one direction. It has no clock, no socket and no
//! thread: the caller says what time it is. The packet-level emulator, the
//! simulator, the lab and unit tests all use this one model.
//!
//! ```
//! use farhaul_link::{Emulator, LinkProfile, Output};
//!
//! let link: LinkProfile = "t1 delay 100ms".parse()?;
//! let mut there = Emulator::new(link.forward, 1);
//! there.handle_packet(0, vec![0u8; 1514]);
//! let Output::Timeout(at_ns) = there.poll_output(0) else { panic!() };
//! assert_eq!(at_ns, 107_844_559); // 1514 bytes at 1.544 Mbit/s, then 100 ms
//! assert!(matches!(there.poll_output(at_ns), Output::Deliver { due_ns, .. } if due_ns == at_ns));
//! assert!(matches!(there.poll_output(at_ns), Output::Idle));
//! # Ok::<(), farhaul_link::ProfileError>(())
//! ```
//!
//! # The way of a packet
//!
//! ```text
//! handle_packet -> MTU -> policer -> queue (tail drop) -> transmitter (rate) -> wire -> poll_output
//!                                                         loss, corruption, duplication, delay, order
//! ```
//!
//! * **Rate** counts Ethernet frames without preamble and FCS unless a
//!   [`Framing`] says otherwise. Departures are exact: the fraction of a
//!   nanosecond is carried from packet to packet.
//! * **Policer**: a token bucket that drops and delays nothing ([`Policer`]).
//! * **Queue**: tail drop by bytes, packets or time ([`QueueLimit`]). The
//!   packet being sent is not in it. It is the only place where packets wait.
//! * **Loss** happens on the wire, behind the transmitter: a lost packet has
//!   used its share of the rate, and only tail drop depends on the load.
//! * **Corruption** flips one bit; **duplication** makes a copy that arrives
//!   right behind its original and takes no rate.
//! * **Delay** is one way and never part of the queue. With jitter, a packet
//!   that would overtake waits for the one before it, so the mean delay of a
//!   dense stream lies above the nominal one; [`Reorder::Jitter`] lets it pass
//!   instead, as netem does.
//! * **Reordering** is what [`Reorder`] says, and nothing else reorders.
//!
//! Every packet is delivered, held or counted in [`Stats`] with the cause of
//! its loss. Every buffer is bounded: the queue by its limit, the wire by
//! rate x delay, or by a count of packets where there is no rate.
//!
//! Every impairment has a random generator of its own, all from one seed, so
//! that the same seed loses the same packets, whatever else is switched on.
//!
//! # Profiles as text
//!
//! [`LinkProfile::parse`] takes a name from [`profiles`] and netem's words:
//! `oc1 delay 100ms 10ms loss 1%`, `rtt 60ms rate 10mbit queue 64kb`,
//! `delay 20ms forward rate 1mbit backward rate 8mbit loss bursts 1% 5`. The
//! grammar stands in `parse.rs`; `Display` prints what `parse` reads. Differences
//! from netem: times and percentages need their units, `delay` keeps the order
//! of packets, correlations are not offered (`loss bursts` and `loss gemodel`
//! are), and rates in `mbps` are refused because nobody agrees what they mean.

mod corrupt;
mod delay;
mod display;
mod duplicate;
mod emulator;
mod error;
mod framing;
mod line;
mod loss;
mod named;
mod packet;
mod parse;
mod policer;
mod probability;
mod profile;
mod queue;
mod rate;
mod reorder;
mod stats;
mod stream;
mod suggest;
mod units;

pub use delay::{Distribution, PARETO_REACH};
pub use emulator::{Emulator, Output};
pub use error::ProfileError;
pub use framing::Framing;
pub use loss::Loss;
pub use named::{NamedProfile, profiles};
pub use packet::{ETHERNET_HEADER_BYTES, Packet};
pub use policer::Policer;
pub use probability::Probability;
pub use profile::{
    DirectionProfile, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_PACKETS_DEFAULT, ImpossibleProfile,
    LinkProfile, TIME_MAX_NS,
};
pub use queue::QueueLimit;
pub use rate::Rate;
pub use reorder::Reorder;
pub use stats::{Drops, Stats};
