//! What the path loses whatever the load, kept apart from what the load causes.

/// Packets after which half of what was known has been replaced.
const HALF_LIFE_PACKETS: f64 = 200.0;
const HALF_LIFE_LONG_PACKETS: f64 = 600.0;

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
}

impl LossModel {
    /// A cohort sent below the rate while the queue was short.
    pub(super) fn handle_below(&mut self, missing: f64, packets: f64) {
        self.below.update(missing, packets, HALF_LIFE_LONG_PACKETS);
        self.all.update(missing, packets, HALF_LIFE_PACKETS);
    }

    /// A cohort sent at the rate.
    pub(super) fn handle_cruise(&mut self, missing: f64, packets: f64, is_queue_short: bool) {
        if is_queue_short && self.below.packets > 0.0 {
            self.all.update(missing, packets, HALF_LIFE_PACKETS);
        }
        self.cruise.update(missing, packets, HALF_LIFE_PACKETS);
    }

    /// Share the path loses by itself. What load below the rate never showed is not believed.
    pub(super) fn base(&self) -> f64 {
        if self.below.packets == 0.0 {
            return 0.0;
        }
        let most = self.below.value + 2.0 * self.below.deviation(2.0);
        self.all.value.min(most).min(0.5)
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

    fn exceeds(&self, seen: Share) -> bool {
        let spread = seen.deviation(3.0).hypot(self.below.deviation(3.0));
        let is_known = self.below.packets >= 40.0;
        is_known && seen.value > self.below.value.max(self.all.value) + 0.02 + 2.0 * spread
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
