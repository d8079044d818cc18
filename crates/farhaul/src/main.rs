//! Command line of Farhaul.

fn main() {}
