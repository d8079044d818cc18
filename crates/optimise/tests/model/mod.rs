//! A client and a server with two gateways between them, in virtual time.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

pub mod client;
pub mod hand;
pub mod plan;
pub mod server;
pub mod world;
