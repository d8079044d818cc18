//! What the path loses whatever the load, kept apart from what the load causes.

use super::probe::DOWN_PACKETS_MIN;

/// Packets after which half of what was known has been replaced.
const HALF_LIFE_PACKETS: f64 = 200.0;
const HALF_LIFE_LONG_PACKETS: f64 = 600.0;
/// Fewer say nothing about what the path loses by itself.
const KNOWN_PACKETS: f64 = 40.0;
/// But so many below the rate count for more than what was seen at the start.
const BELOW_PACKETS: f64 = DOWN_PACKETS_MIN as f64;

#[derive(Debug, Clone, Copy, Default)]
struct Share {
    value: f64,
    packets: f64,
}

impl Share {
    fn update(&mut self, missing: f64, packets: f64, half_life: f64) {
        // Until a half-life has been seen, the plain mean.
        let weight =
            (packets / (self.packets + packets)).max(1.0 - 0.5f64.powf(packets / half_life));
        self.value += (missing - self.value) * weight.min(1.0);
        self.packets = (self.packets + packets).min(half_life * 1.44);
    }

    /// Standard deviation of what is known; losses in bursts of three are taken for usual.
    fn deviation(&self, bursts: f64) -> f64 {
        let p = self.value.max(1.0 / (self.packets + 2.0));
        (p * (1.0 - p) * bursts / self.packets.max(1.0)).sqrt()
    }
}

/// Loss without load (`base`), and whether load adds to it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LossModel {
    /// Seen below the rate, with an empty queue.
    below: Share,
    /// Seen at or below the rate, with an empty queue.
    all: Share,
    /// Seen at the rate, lately, whatever the queue.
    cruise: Share,
    /// Seen while the rate was searched and everything arrived as fast as it was sent: a first idea
    /// until something has been sent below the rate.
    start: Share,
}

impl LossModel {
    /// A cohort sent below the rate while the queue was short.
    pub(super) fn handle_below(&mut self, missing: f64, packets: f64) {
        self.below.update(missing, packets, HALF_LIFE_LONG_PACKETS);
        self.all.update(missing, packets, HALF_LIFE_PACKETS);
    }

    /// A cohort sent while searching for the rate, which it did not exceed.
    pub(super) fn handle_start(&mut self, missing: f64, packets: f64) {
        self.start.update(missing, packets, HALF_LIFE_PACKETS);
    }

    /// A cohort sent at the rate.
    pub(super) fn handle_cruise(&mut self, missing: f64, packets: f64, is_queue_short: bool) {
        if is_queue_short && self.is_below_known() {
            self.all.update(missing, packets, HALF_LIFE_PACKETS);
        }
        self.cruise.update(missing, packets, HALF_LIFE_PACKETS);
    }

    fn is_below_known(&self) -> bool {
        self.below.packets >= BELOW_PACKETS
    }

    /// Share the path loses by itself. What load below the rate never showed is not believed; before there was any, what was
    /// lost at the start by packets that were neither late nor slowed.
    pub(super) fn base(&self) -> f64 {
        if !self.is_below_known() {
            let is_known = self.start.packets >= KNOWN_PACKETS;
            let start = self.start.value.min(0.5);
            return if is_known { start } else { 0.0 };
        }
        let most = self.below.value + 2.0 * self.below.deviation(2.0);
        self.all.value.min(most).min(0.5)
    }

    /// Share that was lost lately, whoever is to blame, for those who only wait for what is missing: before load below the rate has
    /// shown what the path loses, what was lost at the rate. `None` while nothing is known.
    pub(super) fn seen(&self) -> Option<f64> {
        let at_rate = (self.cruise.packets >= KNOWN_PACKETS).then_some(self.cruise.value.min(0.5));
        match self.is_below_known() || self.start.packets >= KNOWN_PACKETS {
            true => Some(self.base()),
            false => at_rate,
        }
    }

    /// Whether so much of so many packets, whenever they were sent, is more than the path loses by
    /// itself.
    pub(super) fn is_excess(&self, missing: f64, packets: f64) -> bool {
        let seen = Share {
            value: missing,
            packets,
        };
        packets >= 20.0 && self.exceeds(seen)
    }

    /// Compared with what was seen below the rate: where somebody's full queue is taken for a longer
    /// route, it is what was seen *at* the rate that is in doubt.
    fn exceeds(&self, seen: Share) -> bool {
        let (known, least) = match self.below.packets >= KNOWN_PACKETS {
            true => (self.below, self.base()),
            false => (self.start, 0.0),
        };
        let spread = seen.deviation(3.0).hypot(known.deviation(3.0));
        let is_known = known.packets >= KNOWN_PACKETS;
        is_known && seen.value > known.value.max(least) + 0.02 + 2.0 * spread
    }

    /// Whether load at the rate loses more than the path does by itself.
    pub(super) fn has_excess(&self) -> bool {
        self.cruise.packets >= 60.0 && self.exceeds(self.cruise)
    }

    /// What was seen at the rate said what it had to say.
    pub(super) fn forget_cruise(&mut self) {
        self.cruise = Share::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COHORT: f64 = 72.0;

    #[test]
    fn a_packet_or_two_below_the_rate_do_not_replace_the_start() {
        let mut loss = LossModel::default();
        loss.handle_start(0.1, COHORT);
        for _ in 0..5 {
            loss.handle_below(0.5, 2.0);
            assert_eq!((loss.base(), loss.seen()), (0.1, Some(0.1)));
        }
        loss.handle_below(0.0, 40.0);
        assert!(loss.base() < 0.1);
    }

    fn repeat(times: usize, mut act: impl FnMut()) {
        (0..times).for_each(|_| act());
    }

    #[test]
    fn load_that_loses_is_seen_where_a_full_queue_is_taken_for_the_route() {
        let mut loss = LossModel::default();
        for _ in 0..12 {
            loss.handle_below(0.01, COHORT);
            // The base round trip is that of a full queue, so the queue looks short.
            repeat(4, || loss.handle_cruise(0.13, COHORT, true));
        }
        assert!(loss.base() < 0.03, "{}", loss.base());
        assert!(loss.has_excess());
    }

    #[test]
    fn a_lossy_path_is_no_excess() {
        let mut loss = LossModel::default();
        for _ in 0..12 {
            loss.handle_below(0.09, COHORT);
            repeat(4, || loss.handle_cruise(0.11, COHORT, true));
        }
        assert!(!loss.has_excess());
    }

    #[test]
    fn who_waits_for_what_is_missing_hears_of_it_before_the_path_is_known() {
        let mut loss = LossModel::default();
        assert_eq!(loss.seen(), None);
        loss.handle_cruise(0.1, COHORT, true);
        assert_eq!((loss.base(), loss.seen()), (0.0, Some(0.1)));
        loss.handle_below(0.0, COHORT);
        assert_eq!(loss.seen(), Some(loss.base()));
    }

    #[test]
    fn what_the_start_lost_is_known_before_anything_was_sent_below_the_rate() {
        let mut loss = LossModel::default();
        assert!(!loss.is_excess(0.4, COHORT), "nothing is known");
        repeat(3, || loss.handle_start(0.01, COHORT));
        assert!(loss.is_excess(0.4, COHORT));
        assert!(!loss.is_excess(0.03, COHORT));
        assert!((loss.base() - 0.01).abs() < 1e-9, "{}", loss.base());
        loss.handle_below(0.0, COHORT);
        assert!(
            loss.base() < 1e-9,
            "what load below the rate lost is known better"
        );
    }
}
