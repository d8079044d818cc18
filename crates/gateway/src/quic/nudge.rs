//! How often the timers of all connections of an endpoint may begin anew.
//!
//! Each session whose peer answers nothing asks for that by itself (`session/unblock.rs`), and where the line of a hub
//! dies all of them do.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::lock;

/// As far apart as one session's at least.
pub(crate) const NUDGES: Duration = Duration::from_millis(250);

/// When it was done last.
#[derive(Debug, Default)]
pub(super) struct Spacing(Mutex<Option<Instant>>);

impl Spacing {
    /// Whether it may be done now; then it counts as done.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let mut last = lock(&self.0);
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= NUDGES);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_sessions_do_it_as_often_as_one() {
        for sessions in [1, 100] {
            let spacing = Spacing::default();
            let start = Instant::now();
            // One look each 50 ms, the sessions' spread over that time.
            let asked = (0..200 * sessions).map(|n| (n / sessions, n % sessions));
            let done = asked.filter(|(look, session)| {
                let at = Duration::from_millis(look * 50) + Duration::from_micros(session * 500);
                look % 5 == 0 && spacing.is_due(start + at)
            });
            assert_eq!(done.count(), 40, "{sessions} sessions");
        }
    }

    #[test]
    fn what_comes_too_early_does_not_put_off_the_next() {
        let spacing = Spacing::default();
        let start = Instant::now();
        let due = [0, 100, 249, 250, 499, 500]
            .map(|ms| spacing.is_due(start + Duration::from_millis(ms)));
        assert_eq!(due, [true, false, false, true, false, true]);
    }
}
