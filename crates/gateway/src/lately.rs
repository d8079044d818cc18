//! How often something has happened lately: a fault that was put right must
//! not be shown for ever.

use std::time::{Duration, Instant};

/// After so long without one, what was is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// A count that starts anew after ten minutes of quiet.
#[derive(Debug, Default)]
pub(crate) struct Lately {
    count: u64,
    last: Option<Instant>,
}

impl Lately {
    /// It happened.
    pub(crate) fn happened(&mut self, now: Instant) {
        self.count = self.count(now) + 1;
        self.last = Some(now);
    }

    /// How often, without ten minutes between any two and since the last.
    pub(crate) fn count(&self, now: Instant) -> u64 {
        let recent = self
            .last
            .is_some_and(|last| now.saturating_duration_since(last) < FORGOTTEN_AFTER);
        if recent { self.count } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_of_quiet_end_a_series() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut lately = Lately::default();
        assert_eq!(lately.count(start), 0);
        for seconds in [0, 599, 1100] {
            lately.happened(at(seconds));
        }
        assert_eq!(lately.count(at(1699)), 3);
        assert_eq!(lately.count(at(1700)), 0);
        lately.happened(at(1700));
        assert_eq!(lately.count(at(1700)), 1);
    }
}
