//! The ladder of validation: what can be computed with a pencil, held against
//! what the machines do. Each rung is a function that runs a small world and a
//! formula that knows nothing of it.

mod bulk;
mod formulas;
mod queue;
mod rungs;

pub use bulk::{Bulk, BulkResult};
pub use formulas::{
    mathis_bit_per_s, md1_wait_s, pftk_bit_per_s, slow_start_rounds, window_bit_per_s,
};
pub use queue::poisson_wait_s;
pub use rungs::{Rung, rungs};
