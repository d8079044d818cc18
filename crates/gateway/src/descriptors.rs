//! File descriptors: a flow holds one, and a process that has none left
//! accepts connections and lets them starve.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept for everything that is not a flow: tunnel, rules, admin, logs.
const RESERVED: usize = 64;

/// Raises the soft limit to the hard one and says how many flows fit.
pub fn flows_that_fit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // Refused only where the limit is what it was: then that holds.
    let _ = setrlimit(Resource::Nofile, raised);
    match getrlimit(Resource::Nofile).current {
        Some(descriptors) => usize::try_from(descriptors)
            .unwrap_or(usize::MAX)
            .saturating_sub(RESERVED),
        None => usize::MAX,
    }
}
