//! What two gateways say to each other of records.
#![cfg_attr(fuzzing, no_main)]

farhaul_fuzz::target!(farhaul_gateway::fuzz::messages);
