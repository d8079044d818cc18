//! When packets should have left, so that what a timer cost is made up for.
//!
//! The stack's pacer forgets what it is late with beyond its bucket of two
//! milliseconds (on slow links of a packet and a third), and timers of a
//! process are a millisecond late as a rule. On a link that nobody else fills
//! that is lost: three percent at 155 Mbit/s. While packets leave late, a
//! little more than the rate is asked for, so that on the average it is the
//! rate.

use std::time::{Duration, Instant};

/// What is later than this and a packet's time is not made up for: the link's
/// queue has run empty by then, and all of it at once would be a burst.
const LATE_MAX: Duration = Duration::from_millis(3);
/// Lateness is made up for within this time.
const MAKE_UP: Duration = Duration::from_millis(20);
/// Never by more than this part of the rate.
const MORE_MAX: f64 = 0.25;

/// Packets of one path, at the rate that was asked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Schedule {
    /// When the next packet is due.
    due: Option<Instant>,
    /// How late the last one left, of what is made up for.
    late: Duration,
}

impl Schedule {
    /// A packet left; the controller's rate is `rate_bytes_s`.
    pub(super) fn handle_sent(&mut self, now: Instant, bytes: u64, rate_bytes_s: u64) {
        if rate_bytes_s == 0 {
            return;
        }
        let packet = Duration::from_secs_f64(bytes as f64 / rate_bytes_s as f64);
        let due = self.due.unwrap_or(now);
        let late = now.saturating_duration_since(due);
        self.late = late.min(LATE_MAX + packet);
        let earliest = now.checked_sub(self.late).unwrap_or(now);
        self.due = Some(due.max(earliest) + packet);
    }

    /// Nothing is due: the window is full, or there is nothing to send.
    pub(super) fn handle_held_back(&mut self) {
        self.due = None;
        self.late = Duration::ZERO;
    }

    /// What to ask the pacer for, that the packets leave at `rate_bytes_s`.
    pub(super) fn ask_bytes_s(&self, rate_bytes_s: u64) -> u64 {
        let more = self.late.as_secs_f64() / MAKE_UP.as_secs_f64();
        rate_bytes_s + (rate_bytes_s as f64 * more.min(MORE_MAX)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_BYTES_S: u64 = 1_250_000;
    const PACKET_BYTES: u64 = 1250;

    /// Sends as the stack's pacer would with a timer that is late by `late`, without a bucket.
    /// Returns the bytes sent within `time`.
    fn send(late: Duration, time: Duration) -> u64 {
        let begin = Instant::now();
        let (mut now, mut sent_bytes) = (begin, 0);
        let mut schedule = Schedule::default();
        while now < begin + time {
            schedule.handle_sent(now, PACKET_BYTES, RATE_BYTES_S);
            sent_bytes += PACKET_BYTES;
            let ask_bytes_s = schedule.ask_bytes_s(RATE_BYTES_S);
            now += Duration::from_secs_f64(PACKET_BYTES as f64 / ask_bytes_s as f64) + late;
        }
        sent_bytes
    }

    #[test]
    fn who_is_on_time_gets_what_he_asks_for() {
        assert_eq!(send(Duration::ZERO, Duration::from_secs(1)), RATE_BYTES_S);
    }

    #[test]
    fn what_a_timer_costs_is_made_up_for() {
        let bytes = send(Duration::from_micros(150), Duration::from_secs(1));
        assert!(bytes > RATE_BYTES_S * 99 / 100, "{bytes}");
        assert!(bytes <= RATE_BYTES_S + PACKET_BYTES, "{bytes}");
    }

    #[test]
    fn who_waits_for_a_window_is_not_late() {
        let begin = Instant::now();
        let mut schedule = Schedule::default();
        schedule.handle_sent(begin, PACKET_BYTES, RATE_BYTES_S);
        schedule.handle_held_back();
        let after = begin + Duration::from_millis(100);
        schedule.handle_sent(after, PACKET_BYTES, RATE_BYTES_S);
        assert_eq!(schedule.ask_bytes_s(RATE_BYTES_S), RATE_BYTES_S);
    }

    #[test]
    fn a_pause_is_not_made_up_for() {
        let begin = Instant::now();
        let mut schedule = Schedule::default();
        schedule.handle_sent(begin, PACKET_BYTES, RATE_BYTES_S);
        let after = begin + Duration::from_secs(60);
        schedule.handle_sent(after, PACKET_BYTES, RATE_BYTES_S);
        let due = schedule.due.expect("a packet was sent");
        assert!(due + LATE_MAX + Duration::from_millis(1) >= after);
        // On time again after few packets.
        let mut now = after;
        for _ in 0..40 {
            let ask_bytes_s = schedule.ask_bytes_s(RATE_BYTES_S);
            now += Duration::from_secs_f64(PACKET_BYTES as f64 / ask_bytes_s as f64);
            schedule.handle_sent(now, PACKET_BYTES, RATE_BYTES_S);
        }
        let more_bytes = schedule.ask_bytes_s(RATE_BYTES_S) - RATE_BYTES_S;
        assert!(more_bytes < RATE_BYTES_S / 20, "{more_bytes}");
    }
}
