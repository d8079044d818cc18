//! What the two halves of the SMB optimiser say to each other.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(farhaul_optimise::fuzz::between_halves);
