//! Operations of an encoder and a decoder with disks: what is sent, lost, thrown away, harmed, and restarts.
#![cfg_attr(fuzzing, no_main)]

#[path = "../../crates/reduce/tests/away/world.rs"]
mod world;

farhaul_fuzz::target!(world::operations);
