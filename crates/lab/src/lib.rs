//! The lab: a whole WAN on one machine, and the measurements made on it.
//!
//! [`sandbox`] keeps namespaces and processes together and removes them
//! whatever happens; [`netns`] enters them; [`process`] names processes safely.

pub mod error;
pub mod netns;
pub mod process;
pub mod sandbox;

pub use error::{LabError, require_root};
