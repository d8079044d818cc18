//! A frame of reduction behind some true ones.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(farhaul_reduce::fuzz::frame);
