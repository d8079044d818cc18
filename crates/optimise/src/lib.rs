//! Protocol optimisers: what makes a chatty protocol wait for the link once instead of for every block. Pure.
//!
//! An optimiser stands at both gateways of a flow, between the application's connection and the flow:
//!
//! ```text
//! client TCP ─ near Half ══ items in the flow ══ far Half ─ server TCP
//! ```
//! A [`Half`] is driven as every pure machine of this project: `handle_*` changes it once, then
//! [`Half::poll_output`] until it says [`Output::Idle`] or [`Output::Timeout`]. It is handed the bytes of the
//! application (`handle_local`) and of the flow (`handle_peer`), and says what to write to either.
//!
//! # Giving up
//! What is no protocol we know, comes too late, is signed, encrypted or malformed goes opaque: from that byte on
//! everything passes as it is and in order, and [`Half::reason`] says why. Where an SMB2 server has already been asked
//! more than its client asked, message ids must go on being translated; the connection is then no longer optimised but
//! its ids still are, and what cannot be translated (signed, malformed) ends in a reset.
//!
//! How and why: `docs/design/optimisers.md`.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod detect;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod half;
mod item;
mod output;
mod reason;
mod settings;
pub mod smb;
mod stats;

pub use detect::{Protocol, Verdict, detect};
pub use half::Half;
pub use output::{Event, Output};
pub use reason::Reason;
pub use settings::Settings;
pub use stats::Stats;
