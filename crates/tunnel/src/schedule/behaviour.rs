//! What a flow of class `auto` is, judged by what it sends.
//!
//! A bucket fills with every byte sent and leaks while nothing waits to be sent. A flow that fills
//! it transfers in bulk; when it is nearly empty again the flow was quiet, or exchanges requests
//! and answers, and is interactive. It begins as interactive. Each side judges what it sends
//! itself, so a download is bulk in one direction only.

/// A bucket this full makes bulk, bytes: an answer of 64 KiB and its headers is not bulk.
const BULK_BYTES_MAX: u64 = 96 << 10;

/// On slow links less is bulk, bytes; but never less than this.
const BULK_BYTES_MIN: u64 = 8 << 10;

/// On a slow link, what it carries in this time is bulk, milliseconds.
const BULK_MS: u64 = 500;

/// What the bucket leaks, bytes per second: half a megabit per second is no bulk.
const LEAK_BYTES_S: u64 = 64 << 10;

/// What a bulk flow has transferred is forgotten to this fraction before it is interactive again.
const QUIET_DIVISOR: u64 = 6;

/// How much a flow must send to count as bulk at the tunnel's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Habits {
    bulk_bytes: u64,
}

impl Habits {
    /// At `rate_bytes_s`; 0 when it is not known.
    pub(crate) fn at_rate(rate_bytes_s: u64) -> Self {
        let bulk_bytes = match rate_bytes_s {
            0 => BULK_BYTES_MAX,
            rate => (rate / 1000)
                .saturating_mul(BULK_MS)
                .clamp(BULK_BYTES_MIN, BULK_BYTES_MAX),
        };
        Habits { bulk_bytes }
    }
}

/// The bucket of one direction of a flow.
#[derive(Debug, Default)]
pub(super) struct Behaviour {
    level_bytes: u64,
    /// Since when nothing waits to be sent; None while something does.
    drained_ns: Option<u64>,
    /// The level at which the flow is interactive again; 0 while it is.
    quiet_bytes: u64,
}

impl Behaviour {
    pub(super) fn is_bulk(&self) -> bool {
        self.quiet_bytes > 0
    }

    /// Lets the bucket leak up to now.
    pub(super) fn rest(&mut self, now_ns: u64) {
        let Some(drained_ns) = self.drained_ns.as_mut() else {
            return;
        };
        let rested_ns = now_ns.saturating_sub(*drained_ns);
        let leak = u128::from(rested_ns) * u128::from(LEAK_BYTES_S) / 1_000_000_000;
        if leak == 0 {
            return; // the time is not lost, it counts at the next look
        }
        let leak_ns = leak * 1_000_000_000 / u128::from(LEAK_BYTES_S);
        *drained_ns = drained_ns.saturating_add(u64::try_from(leak_ns).unwrap_or(rested_ns));
        let leak_bytes = u64::try_from(leak).unwrap_or(u64::MAX);
        self.level_bytes = self.level_bytes.saturating_sub(leak_bytes);
        if self.level_bytes <= self.quiet_bytes {
            self.quiet_bytes = 0;
        }
    }

    /// The flow sent `bytes`; `is_drained` when nothing is left waiting.
    pub(super) fn note(&mut self, now_ns: u64, bytes: usize, is_drained: bool, habits: Habits) {
        self.rest(now_ns);
        let bulk_bytes = habits.bulk_bytes;
        let level_bytes = self.level_bytes.saturating_add(bytes as u64);
        self.level_bytes = level_bytes.min(2 * bulk_bytes);
        if self.level_bytes > bulk_bytes {
            self.quiet_bytes = bulk_bytes / QUIET_DIVISOR;
        }
        self.drained_ns = is_drained.then_some(self.drained_ns.unwrap_or(now_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Sends `bytes` every `every_ns`, `times` times, nothing waiting in between; when it was bulk.
    fn pace(
        behaviour: &mut Behaviour,
        now_ns: &mut u64,
        bytes: usize,
        every_ns: u64,
        times: u32,
    ) -> Vec<bool> {
        let sends = (0..times).map(|_| {
            *now_ns += every_ns;
            behaviour.note(*now_ns, bytes, true, Habits::at_rate(0));
            behaviour.is_bulk()
        });
        sends.collect()
    }

    #[test]
    fn keystrokes_and_small_answers_stay_interactive_for_ever() {
        let mut behaviour = Behaviour::default();
        let mut now_ns = 0;
        let keys = pace(&mut behaviour, &mut now_ns, 80, SECOND_NS / 20, 100_000);
        assert!(!keys.contains(&true));
        let answers = pace(&mut behaviour, &mut now_ns, 10_000, SECOND_NS / 5, 10_000);
        assert!(!answers.contains(&true));
        let single = pace(&mut behaviour, &mut now_ns, 66_000, 2 * SECOND_NS, 100);
        assert!(
            !single.contains(&true),
            "one answer of 64 KiB every two seconds"
        );
    }

    #[test]
    fn a_copy_by_requests_and_answers_is_bulk() {
        let mut behaviour = Behaviour::default();
        let reads = pace(&mut behaviour, &mut 0, 65_536, SECOND_NS / 10, 10);
        assert_eq!(reads.iter().position(|bulk| *bulk), Some(1));
        assert!(reads[1..].iter().all(|bulk| *bulk), "and stays bulk");
    }

    #[test]
    fn what_waits_for_the_link_does_not_leak_however_slow_it_is() {
        let mut behaviour = Behaviour::default();
        let mut now_ns = 0;
        for _ in 0..70 {
            now_ns += SECOND_NS / 4; // 1400 bytes each quarter of a second, always more behind
            behaviour.note(now_ns, 1400, false, Habits::at_rate(0));
        }
        assert!(!behaviour.is_bulk());
        behaviour.note(now_ns, 1400, false, Habits::at_rate(0));
        assert!(behaviour.is_bulk());
        // The link's rate makes it bulk sooner.
        let mut slow = Behaviour::default();
        for _ in 0..6 {
            slow.note(now_ns, 1400, false, Habits::at_rate(8000));
        }
        assert!(slow.is_bulk());
    }

    #[test]
    fn a_transfer_that_ended_is_interactive_again_after_seconds_not_at_once() {
        let mut behaviour = Behaviour::default();
        for _ in 0..100 {
            behaviour.note(SECOND_NS, 60_000, false, Habits::at_rate(0));
        }
        behaviour.note(SECOND_NS, 60_000, true, Habits::at_rate(0));
        behaviour.rest(3 * SECOND_NS);
        assert!(behaviour.is_bulk());
        behaviour.rest(4 * SECOND_NS);
        assert!(!behaviour.is_bulk());
        // Keystrokes after it do not make it bulk.
        let mut now_ns = 4 * SECOND_NS;
        let keys = pace(&mut behaviour, &mut now_ns, 80, SECOND_NS / 20, 1000);
        assert!(!keys.contains(&true));
    }

    #[test]
    fn a_bulk_flow_that_turns_to_keystrokes_without_a_pause_is_interactive_soon() {
        let mut behaviour = Behaviour::default();
        for _ in 0..100 {
            behaviour.note(1, 60_000, false, Habits::at_rate(0));
        }
        let keys = pace(&mut behaviour, &mut 1, 80, SECOND_NS / 10, 50);
        // 180 KiB leak in 2.8 s, a little more because the keystrokes fill the bucket, too.
        assert_eq!(keys.iter().filter(|bulk| **bulk).count(), 28);
    }

    #[test]
    fn looking_often_does_not_stop_the_leak() {
        let mut behaviour = Behaviour::default();
        behaviour.note(0, 200_000, true, Habits::at_rate(0));
        for now_ns in (0..4 * SECOND_NS).step_by(10_000) {
            behaviour.rest(now_ns);
        }
        assert!(!behaviour.is_bulk());
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_changes_nothing() {
        let mut behaviour = Behaviour::default();
        behaviour.note(5 * SECOND_NS, 200_000, true, Habits::at_rate(0));
        behaviour.rest(SECOND_NS);
        behaviour.note(SECOND_NS, 1, true, Habits::at_rate(u64::MAX));
        assert!(behaviour.is_bulk());
    }
}
