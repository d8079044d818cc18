//! A message of SMB1.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(farhaul_optimise::fuzz::old);
