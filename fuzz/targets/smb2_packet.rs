//! A packet of SMB2 or SMB3 messages.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(farhaul_optimise::fuzz::modern);
