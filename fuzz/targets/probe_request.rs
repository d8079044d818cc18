//! What a client of the circuit tester asks its server.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(farhaul_lab::probe::fuzz::request);
