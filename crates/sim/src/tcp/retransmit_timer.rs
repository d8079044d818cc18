//! How long to wait for an acknowledgement: in ticks of half a second as
//! 4.4BSD does, or finely (RFC 6298). Both back off exponentially and take no
//! sample from what was sent twice (Karn): the sender sees to that.

use super::profile::Clock;
use crate::engine::{NS_PER_MS, NS_PER_S};

const SLOW_TICK_NS: u64 = 500 * NS_PER_MS;
const FAST_TICK_NS: u64 = 200 * NS_PER_MS;
/// 4.4BSD: srtt is kept in eighths of a tick, its deviation in quarters.
const SRTT_SHIFT: u32 = 3;
const RTTVAR_SHIFT: u32 = 2;
/// Before any sample: srtt 0, deviation 3 s; the first wait is 6 s.
const RTTVAR_START: i64 = 24;
const RTO_START_TICKS: u64 = 12;
const RTO_TICKS: std::ops::RangeInclusive<u64> = 2..=128;
const BSD_BACKOFF_MAX: u32 = 6;
/// RFC 6298: 2.1 and 2.5.
const RTO_START_NS: u64 = NS_PER_S;
const RTO_NS_MAX: u64 = 120 * NS_PER_S;
/// Attempts after which a connection is given up, by both.
pub(crate) const ATTEMPTS_MAX: u32 = 12;

/// The retransmission timer of one end, and its clock for acknowledgements.
#[derive(Debug, Clone)]
pub(crate) struct RetransmitTimer {
    clock: Clock,
    /// When the host's ticks fall, relative to time 0.
    phase_ns: u64,
    /// `Ticks`: eighths of a tick. `Fine`: nanoseconds.
    srtt: i64,
    /// `Ticks`: quarters of a tick. `Fine`: nanoseconds.
    rttvar: i64,
    rto_ticks: u64,
    attempts: u32,
}

impl RetransmitTimer {
    pub(crate) fn new(clock: Clock, phase_ns: u64) -> Self {
        let rttvar = match clock {
            Clock::Ticks => RTTVAR_START,
            Clock::Fine { .. } => 0,
        };
        Self {
            clock,
            phase_ns,
            srtt: 0,
            rttvar,
            rto_ticks: RTO_START_TICKS,
            attempts: 0,
        }
    }

    /// Something sent at `sent_ns` was acknowledged at `now_ns`.
    pub(crate) fn sample(&mut self, sent_ns: u64, now_ns: u64) {
        match self.clock {
            Clock::Ticks => self.sample_ticks(sent_ns, now_ns),
            Clock::Fine { .. } => self.sample_fine(now_ns.saturating_sub(sent_ns)),
        }
        self.attempts = 0;
    }

    /// Ticks that fell meanwhile; the stack counts from one and takes it off.
    fn sample_ticks(&mut self, sent_ns: u64, now_ns: u64) {
        let ticks = self.tick(now_ns, SLOW_TICK_NS) - self.tick(sent_ns, SLOW_TICK_NS);
        let ticks = i64::try_from(ticks).unwrap_or(i64::MAX >> SRTT_SHIFT);
        if self.srtt == 0 {
            self.srtt = (ticks + 1) << SRTT_SHIFT;
            self.rttvar = (ticks + 1) << (RTTVAR_SHIFT - 1);
        } else {
            let delta = ticks - (self.srtt >> SRTT_SHIFT);
            self.srtt = (self.srtt + delta).max(1);
            let spread = delta.abs() - (self.rttvar >> RTTVAR_SHIFT);
            self.rttvar = (self.rttvar + spread).max(1);
        }
        self.rto_ticks = self
            .base_ticks()
            .clamp(*RTO_TICKS.start(), *RTO_TICKS.end());
    }

    fn base_ticks(&self) -> u64 {
        u64::try_from((self.srtt >> SRTT_SHIFT) + self.rttvar).unwrap_or(0)
    }

    fn sample_fine(&mut self, rtt_ns: u64) {
        let rtt = i64::try_from(rtt_ns).unwrap_or(i64::MAX / 16);
        if self.srtt == 0 {
            self.srtt = rtt.max(1);
            self.rttvar = rtt / 2;
        } else {
            let delta = rtt - self.srtt;
            self.rttvar += (delta.abs() - self.rttvar) / 4;
            self.srtt = (self.srtt + delta / 8).max(1);
        }
    }

    /// A retransmission time passed. False when it was one too many.
    pub(crate) fn back_off(&mut self) -> bool {
        self.attempts += 1;
        if let Clock::Ticks = self.clock {
            let shift = self.attempts.min(BSD_BACKOFF_MAX);
            let base = if self.srtt == 0 {
                RTO_START_TICKS
            } else {
                self.base_ticks()
            };
            self.rto_ticks = (base << shift).clamp(*RTO_TICKS.start(), *RTO_TICKS.end());
        }
        self.attempts <= ATTEMPTS_MAX
    }

    /// Retransmissions in a row without an answer.
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// New data was acknowledged: the next wait is not longer because of the
    /// last ones (Linux; 4.4BSD waits for a sample).
    pub(crate) fn progress(&mut self) {
        if let Clock::Fine { .. } = self.clock {
            self.attempts = 0;
        }
    }

    /// The smoothed round trip, where there is one.
    pub(crate) fn srtt_ns(&self) -> Option<u64> {
        let srtt = u64::try_from(self.srtt).ok().filter(|srtt| *srtt > 0)?;
        Some(match self.clock {
            Clock::Ticks => (srtt * SLOW_TICK_NS) >> SRTT_SHIFT,
            Clock::Fine { .. } => srtt,
        })
    }

    /// How long to wait, roughly: for judging idleness.
    pub(crate) fn wait_ns(&self) -> u64 {
        match self.clock {
            Clock::Ticks => self.rto_ticks * SLOW_TICK_NS,
            Clock::Fine { rto_min_ns, .. } => self.fine_wait_ns(rto_min_ns),
        }
    }

    fn fine_wait_ns(&self, rto_min_ns: u64) -> u64 {
        let base_ns = match self.srtt_ns() {
            None => RTO_START_NS,
            Some(srtt_ns) => {
                let spread_ns = u64::try_from(self.rttvar).unwrap_or(0).saturating_mul(4);
                srtt_ns.saturating_add(spread_ns.max(rto_min_ns))
            }
        };
        let backed_off_ns = base_ns.saturating_mul(1 << self.attempts.min(30));
        backed_off_ns.min(RTO_NS_MAX)
    }

    /// When the timer set at `now_ns` expires.
    pub(crate) fn deadline_ns(&self, now_ns: u64) -> u64 {
        match self.clock {
            Clock::Ticks => self.tick_ns(now_ns, SLOW_TICK_NS, self.rto_ticks),
            Clock::Fine { .. } => now_ns.saturating_add(self.wait_ns()),
        }
    }

    /// When an acknowledgement that waits from `now_ns` on must go.
    pub(crate) fn delayed_ack_ns(&self, now_ns: u64) -> u64 {
        match self.clock {
            Clock::Ticks => self.tick_ns(now_ns, FAST_TICK_NS, 1),
            Clock::Fine { delayed_ack_ns, .. } => now_ns.saturating_add(delayed_ack_ns),
        }
    }

    /// Ticks that have fallen by `now_ns`.
    fn tick(&self, now_ns: u64, tick_ns: u64) -> u64 {
        (now_ns + tick_ns - self.phase_ns % tick_ns) / tick_ns
    }

    /// When the `count`th tick after `now_ns` falls.
    fn tick_ns(&self, now_ns: u64, tick_ns: u64, count: u64) -> u64 {
        let next = self.tick(now_ns, tick_ns) + count;
        (next * tick_ns + self.phase_ns % tick_ns).saturating_sub(tick_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Clock = Clock::Fine {
        rto_min_ns: 200 * NS_PER_MS,
        delayed_ack_ns: 40 * NS_PER_MS,
    };

    #[test]
    fn ticks_fall_at_the_phase_of_the_host() {
        let timer = RetransmitTimer::new(Clock::Ticks, 70 * NS_PER_MS);
        let ms = |ns: u64| ns / NS_PER_MS;
        assert_eq!(ms(timer.delayed_ack_ns(0)), 70);
        assert_eq!(ms(timer.delayed_ack_ns(70 * NS_PER_MS)), 270);
        assert_eq!(ms(timer.delayed_ack_ns(100 * NS_PER_MS)), 270);
        // The first wait: twelve ticks, the first of them at 70 ms.
        assert_eq!(ms(timer.deadline_ns(0)), 70 + 11 * 500);
    }

    #[test]
    fn coarse_times_have_a_floor_of_two_ticks_and_back_off() {
        let mut timer = RetransmitTimer::new(Clock::Ticks, 0);
        for _ in 0..20 {
            timer.sample(NS_PER_MS, 2 * NS_PER_MS);
        }
        // The deviation stays at three quarters of a tick, which count as three.
        assert_eq!(timer.wait_ns(), 3 * SLOW_TICK_NS);
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                timer.back_off();
                timer.wait_ns() / SLOW_TICK_NS
            })
            .collect();
        assert!(
            waits
                .windows(2)
                .all(|pair| pair[1] >= pair[0] && pair[1] <= 128),
            "{waits:?}"
        );
        assert_eq!(waits[1], waits[0] * 2);
        timer.sample(0, NS_PER_MS);
        assert_eq!(timer.wait_ns(), 3 * SLOW_TICK_NS);
    }

    #[test]
    fn fine_times_follow_rfc_6298_with_the_floor_on_the_deviation() {
        let mut timer = RetransmitTimer::new(FINE, 0);
        assert_eq!(timer.wait_ns(), NS_PER_S);
        timer.sample(0, 100 * NS_PER_MS);
        assert_eq!(timer.wait_ns(), 300 * NS_PER_MS);
        for _ in 0..100 {
            timer.sample(0, 100 * NS_PER_MS);
        }
        assert_eq!(timer.wait_ns(), 300 * NS_PER_MS);
        assert!(timer.back_off());
        assert_eq!(timer.wait_ns(), 600 * NS_PER_MS);
        assert!((1..=11).all(|_| timer.back_off()));
        assert!(!timer.back_off(), "the thirteenth attempt is one too many");
    }
}
