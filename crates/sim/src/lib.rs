//! Discrete-event simulation of HTTP over long links, with and without proxies.
//!
//! From the bottom up, each part usable and tested by itself:
//!
//! * [`engine`]: clock, events, random streams, trace hash;
//! * [`tcp`]: TCP without I/O, as 4.4BSD did it and as it is done today;
//! * [`network`]: connections over circuits, which are `link::Emulator`s;
//! * [`ladder`]: what can be computed with a pencil, to be held against them.
//!
//! The crate is pure: it reads no file, clock or socket. The same plan and seed
//! give the same events, on one thread or many.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod engine;
pub mod http;
pub mod ladder;
pub mod network;
pub mod statistics;
pub mod tcp;
pub mod workload;
