//! The whole program on the real kernel: gateway pairs in network namespaces,
//! with applications that see what applications see.
//!
//! Needs root, and fails without. Every test has a lab of its own or shares
//! one with those of its file; all of them run side by side. Times in here are
//! promises of the gateway (a second, a round trip) or time-outs that turn a
//! hang into a failure, never measurements.
#![allow(clippy::unwrap_used)] // clippy.toml allows it in test functions only, not beside them

mod apps;
#[path = "../probe/schema.rs"]
#[allow(clippy::indexing_slicing)]
mod schema;
mod transfer;
mod wire;
mod world;

mod connections;
mod crowd;
mod explicit;
mod interception;
mod kills;
mod long_link;
mod measuring;
mod moments;
mod moved;
mod operation;
mod outage;
mod phases;
mod reduction;
mod refusal;
mod smb;
mod smb1;
mod smb_files;
mod smb_folders;
mod smb_leases;
mod smb_neighbours;
mod smb_no_gain;
mod smb_shares;
mod smb_writes;
mod start_up;
mod strangers;
