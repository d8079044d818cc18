//! The lab: a whole WAN on one machine, and the measurements made on it.
//!
//! [`sandbox`] keeps namespaces and processes together and removes them
//! whatever happens; [`netns`] enters them; [`process`] names processes safely.
//! [`topology`] lays out client, gateways, link and server; [`deployment`] runs
//! them, [`gateways`] adds the pair. [`emulate`] is the link itself, on real
//! packets; [`calibrate`] measures it, with processors kept [`awake`]. [`demo`] is the first use of all of it,
//! [`live`] the tunnel beside the kernel's own controllers, [`fetches`] what reduction
//! does to a disk image; [`probe`] is the circuit tester. [`study`] runs the cells of a [`plan`] with real clients, among
//! them [`lockstep`], and reads what they took from captures; [`report`] shows it beside what others have published.
//! Results are a [`measurement`] for programs and a [`table`] for people.

pub mod awake;
pub mod calibrate;
mod caller;
mod capture;
pub mod demo;
pub mod deployment;
pub mod emulate;
pub mod error;
pub mod fetches;
pub mod gateways;
mod iperf;
pub mod live;
pub mod lockstep;
pub mod measurement;
pub mod netns;
pub mod overflows;
pub mod plan;
pub mod probe;
pub mod process;
pub mod report;
pub mod sandbox;
pub mod study;
pub mod table;
pub mod topology;

pub use deployment::Lab;
pub use error::{LabError, require_root};
pub use topology::{LabOptions, Side};
