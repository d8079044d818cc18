//! How fast what was asked for is said again, and how often what is held is told.
//!
//! The talk goes before everything else in the tunnel, for others wait for what it says. A record of half a megabyte in it would take
//! a T1 for 2.7 s, and a thousand of them for as long as they last. So what is said again comes in parts that keep the link for some
//! milliseconds, with as long a pause behind each: that is what anything else waits, and half of the link is left for it.
//!
//! Where nothing else waits for the link there is no pause: the next part goes when the one before has left. With pauses the link would
//! never be full, and a tunnel learns what a link carries only from who fills it: a new one that knew a hundredth of it said again at half
//! of that.

use std::time::Duration;

/// What is held is told at most this often,
const NEWS_EVERY: Duration = Duration::from_millis(50);
/// and at least, whatever is known of the link.
const NEWS_EVERY_MAX: Duration = Duration::from_secs(1);
/// Meanwhile the link carries so many bytes. Every 50 ms the news, and what acknowledges it, took 1.7 % of a T1 in either direction, and went
/// before what somebody waited for.
const NEWS_EVERY_BYTES: u64 = 32 << 10;

/// A part keeps the link for so long, milliseconds.
const PART_MS: u64 = 20;
/// But it is no shorter than this, bytes: a packet.
const PART_BYTES_MIN: u64 = 1024;
/// How soon to look again whether a part has left.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// While the link's rate is not known, bytes per second.
const RATE_BYTES_S_ASSUMED: u64 = 1_000_000;

/// When to tell again what is held, at a rate that is 0 while not known.
pub(super) fn news_every(rate_bytes_s: u64) -> Duration {
    match rate_bytes_s {
        0 => NEWS_EVERY,
        known => Duration::from_secs_f64(NEWS_EVERY_BYTES as f64 / known as f64)
            .clamp(NEWS_EVERY, NEWS_EVERY_MAX),
    }
}

/// By the link's rate, bytes per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    rate_bytes_s: u64,
    is_alone: bool,
    unsent_bytes: u64,
}

impl Pace {
    /// At a rate that is 0 while not known, where others wait for the link or not, with so much taken and not sent.
    pub(super) fn at(rate_bytes_s: u64, others_wait: bool, unsent_bytes: u64) -> Self {
        let rate_bytes_s = match rate_bytes_s {
            0 => RATE_BYTES_S_ASSUMED,
            known => known,
        };
        Self {
            rate_bytes_s,
            is_alone: !others_wait,
            unsent_bytes,
        }
    }

    /// Nothing is said now, but looked again so much later: what was said before has not left.
    pub(super) fn hold(self, bytes_max: usize) -> Option<Duration> {
        let is_held = self.is_alone && self.unsent_bytes > self.part_bytes(bytes_max) as u64;
        is_held.then_some(LOOK_AGAIN)
    }

    /// How much is said at once.
    pub(super) fn part_bytes(self, bytes_max: usize) -> usize {
        let bytes = (self.rate_bytes_s.saturating_mul(PART_MS) / 1000).max(PART_BYTES_MIN);
        usize::try_from(bytes).map_or(bytes_max, |bytes| bytes.min(bytes_max))
    }

    /// When so many bytes have been said, the next are said so much later.
    pub(super) fn wait(self, said_bytes: usize) -> Duration {
        match self.is_alone {
            true => LOOK_AGAIN,
            false => Duration::from_secs_f64(2.0 * said_bytes as f64 / self.rate_bytes_s as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What of a long record waits in front of a frame that comes at any moment, and what the link carries of it in the long run.
    #[test]
    fn what_is_said_again_leaves_half_of_the_link_and_holds_nobody_up() {
        for (rate_bytes_s, most_ms) in [(8_000, 130.0), (193_000, 21.0), (6_480_000, 21.0)] {
            let pace = Pace::at(rate_bytes_s, true, 1 << 20);
            assert_eq!(pace.hold(128 << 10), None);
            let (mut now_s, mut free_s, mut rest) = (0.0, 0.0f64, 512 << 10);
            while rest > 0 {
                let part = pace.part_bytes(128 << 10).min(rest);
                rest -= part;
                free_s = free_s.max(now_s) + part as f64 / rate_bytes_s as f64;
                let waits_ms = (free_s - now_s) * 1000.0;
                assert!(waits_ms <= most_ms, "{waits_ms} ms at {rate_bytes_s} B/s");
                now_s += pace.wait(part).as_secs_f64();
            }
            let share = (512 << 10) as f64 / now_s / rate_bytes_s as f64;
            assert!((0.49..0.51).contains(&share), "{share}");
        }
    }

    #[test]
    fn news_takes_little_of_a_slow_link_and_is_never_old() {
        let every_ms = [0, 1, 8_000, 193_000, 6_480_000, u64::MAX].map(news_every);
        let every_ms = every_ms.map(|every| every.as_millis());
        assert_eq!(every_ms, [50, 1_000, 1_000, 169, 50, 50]);
    }

    #[test]
    fn a_part_is_no_longer_than_a_message_and_a_rate_that_is_not_known_is_a_slow_one() {
        let pace = |rate_bytes_s| Pace::at(rate_bytes_s, true, 0);
        assert_eq!(pace(u64::MAX).part_bytes(128 << 10), 128 << 10);
        assert_eq!(pace(0).part_bytes(128 << 10), 20_000);
        assert_eq!(pace(0).wait(20_000), Duration::from_millis(40));
    }

    /// A new tunnel that knows little of its link, and nobody else on it: the link is never idle, and never has more than two parts before it.
    #[test]
    fn who_is_alone_says_the_next_part_when_the_one_before_has_left() {
        let (known_bytes_s, link_bytes_s) = (200_000, 6_480_000);
        let (mut unsent, mut said, mut most) = (0u64, 0u64, 0);
        for _ms in 0..1000 {
            let pace = Pace::at(known_bytes_s, false, unsent);
            if pace.hold(128 << 10).is_none() {
                let part = pace.part_bytes(128 << 10) as u64;
                (unsent, said) = (unsent + part, said + part);
            }
            most = most.max(unsent);
            unsent = unsent.saturating_sub(link_bytes_s / 1000);
        }
        assert!(said > known_bytes_s * 10, "{said}");
        assert!(most <= 2 * known_bytes_s / 50, "{most}");
    }
}
