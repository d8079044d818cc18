//! Result files: one line for each point, whole plans from shards.
//!
//! A file begins with a line that says of which plan, model and shard it is;
//! every further line is a point's result. A run that was stopped leaves a file
//! that can be gone on with; shards that belong together can be merged, and
//! others cannot.

mod merge;
mod shard;

pub use merge::{Completeness, MergeError, Merged, merge};
pub use shard::{Header, ResumeError, Resumed, Shard, resume};
