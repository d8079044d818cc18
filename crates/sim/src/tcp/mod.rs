//! TCP without I/O: one [`Endpoint`] is one end of one connection. It counts
//! bytes instead of carrying them, because nothing simulated here depends on
//! what they are.
//!
//! The contract is that of every machine of the project: hand in what happened
//! with `handle_*(now_ns, ...)` and the application's verbs, then drain
//! [`Endpoint::poll_output`] until it says `Timeout` or `Idle`.
//!
//! What is modelled: handshake, cumulative and selective acknowledgement,
//! delayed acknowledgement, retransmission timer, slow start, congestion
//! avoidance (Reno, CUBIC), fast retransmit and recovery (Reno, NewReno,
//! SACK), Nagle's rule, restart after idleness, both half-closes. What is not:
//! a receiver that does not read (every byte is read when it arrives, so the
//! window offered is constant and there is no persist timer), TIME-WAIT, RST,
//! urgent data, path MTU discovery, ECN, and of Linux HyStart, RACK and pacing.

mod congestion;
mod endpoint;
mod profile;
mod receiver;
mod retransmit_timer;
mod scoreboard;
mod segment;
mod sender;

pub use endpoint::{Endpoint, Event, Options, Output};
pub use profile::{Clock, Growth, Idle, Profile, Recovery};
pub use segment::{SackBlocks, Segment};
