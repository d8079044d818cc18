//! The first bytes of a connection to the circuit tester, or of one of its datagrams.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(farhaul_lab::probe::fuzz::beginning);
