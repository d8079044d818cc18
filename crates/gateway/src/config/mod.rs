//! Configuration in two steps: what was written, and what it means.
//!
//! `written` mirrors the TOML file and refuses what it does not know;
//! [`Config`] is the checked value the gateway runs on. Every default lives in
//! the step from one to the other.

mod conflicts;
pub mod defaults;
pub mod diagnose;
pub mod load;
mod machine;
pub mod meaning;
mod not_yet;
pub mod print;
mod reader;
pub mod schema;
pub mod starter;
pub mod units;
mod written;

pub use load::{LoadError, Loaded, load};
pub use meaning::Config;
