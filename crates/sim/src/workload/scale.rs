//! More load than a trace has: traces of several days in one, and copies of
//! them, each shifted in time, as the study made them.

use super::{Request, Workload};
use crate::engine::Stream;

/// Clients of one part are not those of another.
const CLIENTS_PER_PART: u32 = 1 << 20;
/// Traces that can be merged, so that every client has a number.
pub const PARTS_MAX: u32 = 1 << 12;

/// Merges traces and shifted copies of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scaled {
    /// Seed of the shifts.
    pub seed: u64,
    /// Traces to be in the result, copies counted.
    pub parts: u32,
}

impl Scaled {
    /// The first parts are the traces themselves; when there are no more, each
    /// is taken again, shifted by a random time around the end.
    pub fn merge(&self, days: &[Workload]) -> Workload {
        let Some(first) = days.first() else {
            return Workload::default();
        };
        let duration_ns = first.duration_ns.max(1);
        let mut merged = Workload {
            hosts: first.hosts.clone(),
            requests: Vec::new(),
            duration_ns: first.duration_ns,
        };
        for (part, day) in (0..self.parts.min(PARTS_MAX)).zip(days.iter().cycle()) {
            let is_copy = part as usize >= days.len();
            let mut stream = Stream::new(self.seed, "shift", u64::from(part));
            let shift_ns = if is_copy {
                stream.below(duration_ns)
            } else {
                0
            };
            merged
                .requests
                .extend(day.requests.iter().map(|request| Request {
                    at_ns: (request.at_ns + shift_ns) % duration_ns,
                    client: request.client % CLIENTS_PER_PART + part * CLIENTS_PER_PART,
                    ..*request
                }));
        }
        merged.sort();
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(at_ns: &[u64]) -> Workload {
        let requests = at_ns.iter().map(|at_ns| Request {
            at_ns: *at_ns,
            client: 0,
            host: 0,
            request_bytes: 1,
            reply_bytes: 1000,
            far_ns: 0,
        });
        Workload {
            hosts: Vec::new(),
            requests: requests.collect(),
            duration_ns: 1000,
        }
    }

    #[test]
    fn days_come_first_and_copies_are_shifted() {
        let days = [day(&[10, 20]), day(&[15])];
        let times = |parts| -> Vec<u64> {
            let merged = Scaled { seed: 1, parts }.merge(&days);
            assert!((merged.load_bit_per_s() - merged.requests.len() as f64 * 8e9).abs() < 1.0);
            merged
                .requests
                .iter()
                .map(|request| request.at_ns)
                .collect()
        };
        assert_eq!(times(1), [10, 20]);
        assert_eq!(times(2), [10, 15, 20]);
        let three = times(3);
        assert_eq!(three.len(), 5);
        assert!(three.iter().any(|at_ns| ![10, 15, 20].contains(at_ns)));
    }
}
