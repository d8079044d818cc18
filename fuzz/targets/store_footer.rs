//! The footer of a segment on disk.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(farhaul_gateway::fuzz::footer);
