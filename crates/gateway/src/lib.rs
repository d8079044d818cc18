//! The accelerator at one site.
//!
//! The files follow the life of a byte: a connection enters through
//! [`intercept`] (transparent) or [`explicit`] (SOCKS5, HTTP CONNECT, port
//! forwards), `near` decides its way, [`flow`] carries it, [`session`] and
//! [`quic`] take it across, `far` and [`dial`] connect it to the server.
//! [`peer`] knows whether a tunnel may be used at all; [`gateway`] is what
//! they share and [`run`] starts and ends it. [`event`] is the one vocabulary
//! that [`log`], [`metrics`], the status screen ([`admin`]) and the tests
//! read, and [`events`] the one place they all go through.

pub mod admin;
mod announced;
pub mod config;
mod copies;
mod descriptors;
pub mod dial;
pub mod doctor;
pub mod event;
pub mod events;
pub mod explicit;
mod far;
pub mod flow;
pub mod flow_table;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod gateway;
pub mod intercept;
pub mod keys;
pub mod known_up;
mod lately;
mod leave;
mod lock;
pub mod log;
mod measure;
pub mod metrics;
mod near;
pub mod operate;
mod optimising;
pub mod pairing;
pub mod peer;
pub mod quic;
mod reach;
mod reason;
mod recent_loss;
pub mod reduction;
mod regular;
mod relay;
pub mod reload;
pub mod rules;
pub mod run;
pub mod service;
pub mod session;
mod shared_key;
pub mod shares;
pub mod stop;
pub mod store;
mod strangers;
mod upkeep;
mod ups_and_downs;
mod warm;
