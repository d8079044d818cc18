//! Configuration in two steps: what was written, and what it means.
//!
//! `written` mirrors the TOML file and refuses what it does not know;
//! [`Config`] is the checked value the gateway runs on. Every default lives in
//! the step from one to the other.

pub mod meaning;

pub use meaning::Config;
