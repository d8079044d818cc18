//! Model of a circuit.

/// Both directions of a circuit.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkProfile;
