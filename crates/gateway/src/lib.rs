//! The accelerator at one site.
//!
//! The files follow the life of a byte: a connection enters through
//! [`intercept`] (transparent) or [`explicit`] (SOCKS5, HTTP CONNECT, port
//! forwards), becomes one task in `flow`, crosses the tunnel that `session`
//! and `quic` drive, and leaves the far gateway through `dial`.
//! `peer` decides whether a tunnel may be used at all; [`event`] is the one
//! vocabulary that [`log`], [`metrics`], the status screen ([`admin`]) and the
//! tests read, and [`events`] the one place they all go through.

pub mod admin;
pub mod config;
pub mod dial;
pub mod event;
pub mod events;
pub mod explicit;
pub mod intercept;
pub mod keys;
pub mod known_up;
pub mod log;
pub mod metrics;
pub mod peer;
pub mod quic;
pub mod rules;
pub mod session;
pub mod stop;
