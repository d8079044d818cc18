//! The link emulator on real packets: two interfaces of this network
//! namespace, joined at layer 2 by a [`farhaul_link::LinkProfile`].
//!
//! Frames come in through [packet sockets](packet_socket), are made what they
//! would be on a wire ([`frame`]: segmentation and checksums that a sender left
//! to its network card, VLAN tags), pass the model with the time at which the
//! kernel received them, and leave when they are due. A real-time thread serves
//! both [`direction`]s; [`live`] owns it, [`control`] lets others talk to it,
//! [`claim`] makes sure that interfaces are as before afterwards.
//! `docs/design/link-emulator.md` has the choices and the measurements.

mod claim;
mod clock;
mod commands;
mod control;
mod direction;
mod error;
mod ethtool;
mod events;
mod frame;
mod lateness;
mod live;
mod packet_socket;
mod pcap;
mod rate_meter;
mod realtime;
mod signals;
mod stats;

pub use claim::{Restored, restore};
pub use control::{ControlClient, ControlSocket, default_socket, serve};
pub use error::EmulateError;
pub use events::Event;
pub use lateness::Lateness;
pub use live::{LinkOptions, LiveLink};
pub use signals::StopSignals;
pub use stats::{DirectionStats, DropCounts, LATENESS_LIMIT_NS, LinkStats};

/// Where control sockets lie.
pub const SOCKET_FOLDER: &str = "/run/farhaul";
/// Where it is remembered what is to be put back on interfaces.
pub const STATE_FOLDER: &str = "/run/farhaul/offloads";
