//! The label of a store on disk.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(farhaul_gateway::fuzz::label);
