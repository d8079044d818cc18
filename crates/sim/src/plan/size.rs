//! How much a plan may ask for: what would not fit into memory is refused
//! before anything of it runs.

use super::written::Written;
use super::{PlanError, run};
use crate::workload::{PARTS_MAX, Workload};

/// Requests of one run: some hundred bytes each while it lasts.
const REQUESTS_MAX: f64 = 5e6;

/// Checks every load of the sweep. What a generator will make is estimated by
/// the medians of its sizes.
pub(super) fn check(written: &Written, logged: Option<&Workload>) -> Result<(), PlanError> {
    let from = &written.workload;
    let (trace_mbit, requests) = match (logged, &from.generator) {
        (Some(log), _) => (log.load_bit_per_s() / 1e6, log.requests.len() as f64),
        (None, Some(generator)) => {
            let trace_bytes = from.trace_mbit * 1e6 / 8.0 * written.study.duration_s;
            let median_bytes = generator
                .main
                .median_bytes
                .min(generator.embedded.median_bytes);
            (from.trace_mbit, trace_bytes / median_bytes + 1.0)
        }
        (None, None) => return Ok(()),
    };
    for load_mbit in &written.sweep.load_mbit {
        let parts = run::parts(*load_mbit, trace_mbit);
        let refused = |why: String| Err(PlanError::value("sweep.load_mbit", why));
        if parts > PARTS_MAX {
            return refused(format!(
                "{load_mbit} Mbit/s are {parts} times a trace of {trace_mbit} Mbit/s, more than {PARTS_MAX}"
            ));
        }
        let all = f64::from(parts) * requests;
        if all > REQUESTS_MAX {
            return refused(format!(
                "{load_mbit} Mbit/s are about {all:.0} requests in a run, more than {REQUESTS_MAX}"
            ));
        }
    }
    Ok(())
}
