//! Tokens of a frame, behind the position they begin at.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(farhaul_reduce::fuzz::tokens);
