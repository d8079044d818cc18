//! What is done while nothing of ours is answered.
//!
//! A stack whose window is full of what was lost, and that has data to send, sends nothing else
//! either: no ping, no acknowledgement, no answer to a peer that asks whether our address is ours
//! (`docs/design/full-window.md`). All that leaves are its probes, by a timer that doubles each time.
//! They carry whatever is due, and are never longer than 1200 bytes: where a path has become narrower
//! than the datagrams of both sides, nothing else passes it. So the timer is begun anew now and then.
//!
//! A window that is lent some packets is the other way, for what probes alone do not get through. Each
//! packet that is lent puts the probes off, and is of full size; so that is done for a part of the
//! time only.

use std::time::Duration;

use crate::quic::NUDGES;

/// Nothing is done before so long, and so many round trips: the stack does what is needed by itself.
const PATIENCE: Duration = Duration::from_millis(500);
const PATIENCE_ROUNDS: u32 = 3;
/// The timer is begun anew once in [`NUDGES`], or in half a round trip, for so long; then once in each period.
const NUDGED_FOR: Duration = Duration::from_secs(10);
/// At the end of each period of so long, and so many round trips, the window is lent packets,
const PERIOD: Duration = Duration::from_secs(2);
const PERIOD_ROUNDS: u32 = 8;
/// for this part of it,
const LENDING_PART: u32 = 4;
/// but for the first ones.
const PERIODS_WITHOUT: u32 = 2;

/// What to do at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// Let the stack's timer for probes begin anew.
    Nudge,
    /// Let some packets leave although the window is full.
    Lend,
}

/// When what was done last.
#[derive(Debug, Default)]
pub(super) struct Unblock {
    /// How long nothing had been answered when the timer was begun anew.
    nudged: Option<Duration>,
}

impl Unblock {
    /// Nothing was answered for so long.
    pub(super) fn look(&mut self, unanswered: Duration, rtt: Duration) -> Step {
        let Some(since) = unanswered.checked_sub(PATIENCE.max(rtt * PATIENCE_ROUNDS)) else {
            self.nudged = None;
            return Step::Nothing;
        };
        let period = PERIOD.max(rtt * PERIOD_ROUNDS);
        let phase_ms = since.as_millis() % period.as_millis();
        let is_lending = phase_ms >= (period - period / LENDING_PART).as_millis();
        if is_lending && since >= period * PERIODS_WITHOUT {
            return Step::Lend;
        }
        let spacing = match since < NUDGED_FOR {
            true => NUDGES.max(rtt / 2),
            false => period,
        };
        let is_due = self
            .nudged
            .is_none_or(|nudged| unanswered.saturating_sub(nudged) >= spacing);
        if !is_due {
            return Step::Nothing;
        }
        self.nudged = Some(unanswered);
        Step::Nudge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK_MS: u64 = 50;

    /// Looks for so many seconds of silence: how often each was done.
    fn steps(seconds: u64, rtt_ms: u64) -> (usize, usize, Vec<Step>) {
        let mut unblock = Unblock::default();
        let steps: Vec<Step> = (0..seconds * 1000 / LOOK_MS)
            .map(|look| {
                let unanswered = Duration::from_millis(look * LOOK_MS);
                unblock.look(unanswered, Duration::from_millis(rtt_ms))
            })
            .collect();
        let count = |which| steps.iter().filter(|step| **step == which).count();
        (count(Step::Nudge), count(Step::Lend), steps)
    }

    #[test]
    fn probes_have_time_between_what_is_lent() {
        for rtt_ms in [1, 60, 200, 500] {
            let (nudges, lends, steps) = steps(60, rtt_ms);
            assert!(nudges >= 10 && lends >= 100, "{nudges} {lends}");
            // A timer that begins anew fires after some round trips, unless something is sent.
            let quiet = steps.split(|step| *step == Step::Lend);
            let longest = quiet.map(<[Step]>::len).max().unwrap_or(0) as u64;
            assert!(longest * LOOK_MS >= 1500.max(3 * rtt_ms), "{longest}");
        }
    }

    #[test]
    fn a_long_outage_is_asked_less_often() {
        let (nudges, ..) = steps(10, 60);
        let (more, ..) = steps(110, 60);
        assert!((25..40).contains(&nudges), "{nudges}");
        assert!(more - nudges <= 52, "{more}");
    }

    #[test]
    fn an_answer_ends_it() {
        let mut unblock = Unblock::default();
        let rtt = Duration::from_millis(60);
        assert_eq!(unblock.look(Duration::from_millis(600), rtt), Step::Nudge);
        assert_eq!(unblock.look(Duration::from_millis(650), rtt), Step::Nothing);
        assert_eq!(unblock.look(Duration::ZERO, rtt), Step::Nothing);
        assert_eq!(unblock.look(Duration::from_millis(600), rtt), Step::Nudge);
    }
}
