//! Operations of two ends that send to each other: names for what goes back, frames without literals, what is missed and learned.
#![cfg_attr(fuzzing, no_main)]

#[path = "../../crates/reduce/tests/both_ways/world.rs"]
mod world;

farhaul_fuzz::target!(world::operations);
