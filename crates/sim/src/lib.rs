//! Discrete-event simulation of HTTP over long links, with and without proxies.
//!
//! From the bottom up, each part usable and tested by itself:
//!
//! * [`engine`]: clock, events, random streams, trace hash;
//! * [`tcp`]: TCP without I/O, as 4.4BSD did it and as it is done today;
//! * [`network`]: connections over circuits, which are `link::Emulator`s;
//! * [`http`]: clients, servers, proxies and gateways, a run as a whole;
//! * [`workload`]: what is asked for: read, prepared, generated, scaled;
//! * [`plan`]: a sweep as a file, and its points; [`results`]: their files,
//!   shards and whole plans; [`report`]: tables and figures of them;
//! * [`ladder`]: what can be computed with a pencil, to be held against all this.
//!
//! The crate is pure: it reads no file, clock or socket. The same plan and seed
//! give the same events, on one thread or many.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod engine;
pub mod http;
pub mod ladder;
pub mod network;
pub mod plan;
pub mod report;
pub mod results;
pub mod statistics;
pub mod tcp;
pub mod workload;
