//! Records of a flow.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(farhaul_gateway::fuzz::records);
