//! Switches whose engine is not part of this version. The language knows them,
//! so that a file says the same thing in every version; asking for one that is
//! not there is an error rather than a silent nothing.
//!
//! A version that brings an engine deletes its line here, and nothing else.

use super::meaning::{Optimise, Reduction};

/// What a rule may ask for and this version cannot do, with what to write instead.
pub fn optimise(value: Optimise) -> Option<&'static str> {
    match value {
        Optimise::Http | Optimise::Nfs | Optimise::Dns | Optimise::Mapi => {
            Some("\"auto\", \"smb\", \"opaque\" or \"direct\"")
        }
        Optimise::Auto | Optimise::Smb | Optimise::Opaque | Optimise::Direct => None,
    }
}

/// As [`optimise`], for redundancy elimination.
pub fn reduction(value: Reduction) -> Option<&'static str> {
    match value {
        Reduction::Memory | Reduction::Disk | Reduction::Both => Some("\"auto\" or \"off\""),
        Reduction::Auto | Reduction::Off => None,
    }
}
