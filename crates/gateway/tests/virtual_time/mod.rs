//! The tunnel in virtual time: real sessions over real QUIC endpoints, whose
//! datagrams cross a [`farhaul_link::Emulator`] in each direction instead of a
//! network. No real clock, no real socket: half a minute of a T1 costs a tenth
//! of a second, and the same seed gives the same result.
//!
//! | file | what |
//! |---|---|
//! | `clock`, `random` | a scenario while time jumps from event to event; numbers that repeat |
//! | `network`, `socket` | the link, and the sockets on it |
//! | `tunnel` | two gateways' ends of a tunnel across it |
//! | `services` | what the far side offers to flows: discard (of records, too), echo, a reader that stops |
//! | `ceiling` | the share of a link that can be payload |
//! | `cell` | names and durations of the matrix |
//! | `trace` | what happens second by second |
//! | `echo` | a person typing: 64 bytes now and then |
//! | `load` | bulk and echo at once: goodput, queue and delay of one cell |
//! | `requests` | requests beside bulk, with error correction and without |
//! | `classes` | what each class gets of a full link, and what `auto` does |
//! | `transfer` | one transfer from its first byte to its end |
//! | `changes` | bulk over a link that becomes another one |
//! | `company`, `cubic` | several flows in a tunnel, several tunnels on a link, a TCP flow beside one |
//! | `plan`, `figure` | everything that is measured, as jobs that give rows |
//!
//! # What is modelled and what is not
//! Processors and sockets cost no time and hold everything. Timers have
//! tokio's resolution of one millisecond, as in the product; datagrams arrive
//! to 50 microseconds, about what a network card's interrupt moderation does.
//! Keys and TLS randomness differ between runs, which shows in no size or time.

// Each test program and benchmark uses a part of it.
#![allow(dead_code)]

pub mod ceiling;
pub mod cell;
pub mod changes;
pub mod classes;
pub mod clock;
pub mod company;
pub mod cubic;
pub mod echo;
pub mod figure;
pub mod load;
pub mod network;
pub mod plan;
pub mod random;
pub mod requests;
pub mod services;
pub mod socket;
pub mod trace;
pub mod transfer;
pub mod tunnel;
