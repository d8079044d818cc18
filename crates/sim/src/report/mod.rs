//! A report from results alone: tables over seeds, figures, and for the plan
//! that repeats the Waikato study every number of its text beside ours.

mod figure;
mod finding;
mod group;
mod page;
mod waikato;

pub use figure::{Figure, Series};
pub use finding::Finding;
pub use group::{Estimate, Group, groups};
pub use page::{Report, report};
