//! Model of a circuit.
