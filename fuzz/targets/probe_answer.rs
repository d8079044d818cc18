//! What a server of the circuit tester answers.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(farhaul_lab::probe::fuzz::answer);
