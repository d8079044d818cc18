//! The circuit tester: measures a circuit between two hosts and says what is
//! wrong with it.
//!
//! [`server`] waits at the far end; [`client`] connects and measures with it:
//! TCP streams watched at both ends ([`tcp_test`]), UDP flows
//! ([`datagram_flow`]), what the way does to packets ([`path_check`]), round
//! trips ([`latency`]) and transactions ([`transact`]). [`examine`] does all of
//! it in order; [`diagnose`] is a pure function from what was seen to a
//! verdict; [`report`] is the document, [`text`] the same for people.
//! [`campaign`] is one test many times; [`iperf3`] and [`iperf2`] are what other
//! programs speak.

pub mod accuracy;
pub mod campaign;
pub mod client;
mod clock;
mod datagram_count;
pub mod datagram_flow;
mod datagram_socket;
pub mod diagnose;
pub mod error;
pub mod examine;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod host;
pub mod iperf2;
pub mod iperf3;
pub mod latency;
mod line_pace;
mod link_words;
mod message;
pub mod observe;
pub mod path_check;
pub mod report;
pub mod rfc6349;
pub mod server;
pub mod socket_state;
mod steps;
pub mod sweep;
pub mod syn;
pub mod tcp_test;
pub mod text;
pub mod transact;

pub use client::Client;
pub use error::{FAULT_EXIT_CODE, ProbeError};
pub use message::PORT;
pub use report::Report;
pub use server::{Server, ServerOptions, UdpPorts};
