//! The cycle: a short train above the rate, one below it, then a while at it.

use super::cohort::Sample;
use super::{Controller, Phase};

pub(super) const UP_GAIN: f64 = 1.25;
pub(super) const DOWN_GAIN: f64 = 0.75;
/// What is sent below the rate has so many packets at least, unless there is nothing left to drain.
pub(super) const DOWN_PACKETS_MIN: u64 = 12;
/// More than noise: the path has become faster.
const NEWS: f64 = 1.1;
/// A probe of which this part of its pace arrives has met no full link.
const WHOLE: f64 = 0.95;
/// Probes in a row that found more before the search starts anew.
const FINDS: u32 = 2;
/// More than two cohorts of one link differ by where round trips vary.
const DOUBTFUL: f64 = 1.06;
/// Who has waited for less than this part of the threshold has met no queue.
const UNQUEUED: f64 = 0.1;
/// Round trips that fall by this part of the time in which [`DOWN_GAIN`] was sent, from one half of it to the other, tell of a
/// queue that empties: an eighth where it is ours.
const DRAINED: f64 = 0.04;

/// Cohorts between probes, 3.5 to 4.5. Others probe as well, on the same link and on the way back,
/// where their trains delay our acknowledgements: whoever kept step with them would never see the
/// link free.
fn uneven_wait(pn: u64) -> f64 {
    // The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
    let mut mixed = pn.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    3.5 + (mixed >> 11) as f64 / (1u64 << 53) as f64
}

#[derive(Debug, Clone, Default)]
pub(super) struct Probe {
    /// Estimate when the probe was sent, bytes per second.
    before: f64,
    /// First packet after the last Down.
    end_pn: u64,
    /// Probes in a row that found more.
    finds: u32,
    /// What the last probe showed, if it is not believed yet.
    doubted: Option<(Sample, f64)>,
    /// The next probe need not wait.
    is_urgent: bool,
    /// Cohorts from one probe to the next.
    wait: f64,
    /// Marks are believed once a round trip: packets before this one are old news.
    marked_pn: u64,
}

impl Probe {
    pub(super) fn handle_mark(&mut self, pn: u64, next_pn: u64, react: impl FnOnce()) {
        if pn >= self.marked_pn {
            self.marked_pn = next_pn;
            react();
        }
    }
}

impl Controller {
    pub(super) fn is_probe_due(&self, now_ns: u64, since_ns: u64) -> bool {
        // The last probe's answer must be in.
        let is_answered = self
            .largest_acked_pn
            .is_some_and(|pn| pn >= self.probe.end_pn);
        if self.is_limited || self.is_at_max() || !is_answered {
            return false;
        }
        if self.delay.queue() > super::standing::PROBE_QUEUE * self.threshold() {
            return false;
        }
        let wait = (self.probe.wait * self.cohort_span()).max(self.rtt());
        let passed = now_ns.saturating_sub(since_ns) as f64 / 1e9;
        self.probe.is_urgent || passed > wait
    }

    pub(super) fn enter_up(&mut self) {
        self.probe.is_urgent = false;
        self.probe.wait = uneven_wait(self.next_pn);
        self.probe.before = self.rate();
        self.rates.next_cycle();
        self.enter(Phase::Up);
    }

    pub(super) fn enter_down(&mut self) {
        self.probe.end_pn = self.next_pn;
        self.enter(Phase::Down);
    }

    pub(super) fn learn_up(&mut self, sample: &Sample, corrected: f64) {
        let grown_ns = sample.rtt_ns.1.saturating_sub(sample.rtt_ns.0);
        let is_queueing = grown_ns as f64 / 1e9 > 0.1 * self.cohort_span();
        // On a full link others give way to a train, and it arrives slower than it was sent.
        let is_whole = corrected > WHOLE * sample.sent_rate;
        let is_news = corrected > NEWS * self.probe.before;
        if sample.is_limited || is_queueing || !is_whole || !is_news {
            self.probe.finds = 0;
            return;
        }
        // A rate at the bottom is a mistake more often than a link: there one find is enough.
        let is_at_bottom = self.probe.before < 2.0 * self.rate_min();
        self.probe.finds += if is_at_bottom { FINDS } else { 1 };
        self.probe.is_urgent = true;
    }

    /// Whether there is nothing left of what a probe put in the queue, nor to send: who sends a little at a time and waits for the
    /// answer would be slowed down for nothing.
    pub(super) fn has_drained(&self) -> bool {
        let is_all_there = self
            .largest_acked_pn
            .is_some_and(|pn| pn + 1 >= self.next_pn);
        self.is_limited && is_all_there && self.probe.doubted.is_none()
    }

    /// Takes a probe's answer, or keeps it until what was sent after it has shown whose it is.
    pub(super) fn hear_up(&mut self, sample: &Sample, corrected: f64) {
        let is_plain = self.waited(sample) < UNQUEUED * self.threshold()
            || self.probe.before < 2.0 * self.rate_min();
        self.probe.doubted = None;
        if !is_plain && corrected > DOUBTFUL * self.probe.before {
            self.probe.doubted = Some((*sample, corrected));
            return;
        }
        self.learn_up(sample, corrected);
        self.learn_rate(sample, corrected);
    }

    /// What followed a probe below the rate. While the queue of the way back empties, acknowledgements come faster one after another
    /// and round trips do not grow, whatever our own queue does: that looks like a faster link, and the ends of a tunnel that both
    /// send do it to each other. A faster link has nothing left to drain by the middle of what follows; a full one has.
    pub(super) fn hear_down(&mut self, down: &Sample) {
        let Some((up, corrected)) = self.probe.doubted.take() else {
            return;
        };
        let (from_ns, to_ns) = down.rtt_ns;
        let is_known = from_ns != u64::MAX && to_ns != u64::MAX;
        let drained = from_ns.saturating_sub(to_ns) as f64 / 1e9;
        if is_known && drained > DRAINED * down.sent_span {
            self.probe.finds = 0;
            return;
        }
        self.learn_up(&up, corrected);
        self.learn_rate(&up, corrected);
    }

    pub(super) fn has_found_more(&mut self) -> bool {
        let is_found = self.probe.finds >= FINDS;
        if is_found {
            self.probe.finds = 0;
        }
        is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathSettings;
    use crate::controller::cohort::Purpose;
    use std::collections::VecDeque;

    const MTU_BYTES: u16 = 1472;
    const RTT_NS: u64 = 100_000_000;

    /// Sends as fast as it may over a path without any limit, until the controller knows of
    /// `enough` bytes per second. Returns when that was.
    fn run(controller: &mut Controller, enough: f64) -> u64 {
        let (mut now_ns, mut pn) = (0, 0);
        let mut on_the_way = VecDeque::new();
        while controller.rate() < enough && now_ns < 60_000_000_000 {
            controller.handle_sent(now_ns, pn, u64::from(MTU_BYTES));
            on_the_way.push_back((pn, now_ns));
            pn += 1;
            now_ns += (f64::from(MTU_BYTES) / controller.pace() * 1e9) as u64;
            while let Some((pn, sent_ns)) = on_the_way.pop_front() {
                if sent_ns + RTT_NS > now_ns {
                    on_the_way.push_front((pn, sent_ns));
                    break;
                }
                controller.handle_acked(sent_ns + RTT_NS, pn, sent_ns, u64::from(MTU_BYTES));
                controller.handle_ack_end(sent_ns + RTT_NS, false);
            }
        }
        now_ns
    }

    #[test]
    fn a_rate_that_collapsed_is_found_again() {
        let mut controller = Controller::new(PathSettings::default(), MTU_BYTES);
        controller.rates.set(50.0);
        controller.enter(Phase::Cruise(0));
        let found_ns = run(&mut controller, 1e6);
        assert!(found_ns < 10_000_000_000, "{found_ns}");
    }

    /// What is left of a cohort that a probe has cut short, of packets as far apart as told.
    fn remnant(packets: f64, bytes_per_s: f64) -> Sample {
        let span = packets * f64::from(MTU_BYTES) / bytes_per_s;
        Sample {
            purpose: Purpose::Cruise,
            rate: bytes_per_s,
            sent_rate: bytes_per_s,
            sent_packets: packets,
            pace: bytes_per_s,
            sent_span: span,
            missing: 0.0,
            rtt_ns: (RTT_NS, RTT_NS),
            is_limited: false,
            is_lump: false,
            is_burst: false,
            arrived: super::super::cohort::Arrived::default(),
        }
    }

    /// What a probe and what follows it show, at a fifth more than is known: round trips of their halves, ms above the least.
    fn probe(up_ms: (u64, u64), down_ms: (u64, u64)) -> f64 {
        let mut controller = Controller::new(PathSettings::default(), MTU_BYTES);
        controller.delay.handle_rtt(0, RTT_NS, false);
        controller.rates.set(5e6);
        controller.enter_up();
        let of = |ms: u64| RTT_NS + ms * 1_000_000;
        let mut up = remnant(400.0, 6e6);
        (up.purpose, up.rtt_ns) = (Purpose::Up, (of(up_ms.0), of(up_ms.1)));
        controller.learn(0, &up);
        let mut down = remnant(250.0, 3.75e6);
        (down.purpose, down.rtt_ns) = (Purpose::Down, (of(down_ms.0), of(down_ms.1)));
        controller.learn(0, &down);
        controller.rate()
    }

    #[test]
    fn a_queue_that_empties_on_the_way_back_is_no_faster_link() {
        assert_eq!(probe((25, 25), (24, 12)), 5e6, "ours was full");
        assert_eq!(probe((25, 25), (24, 24)), 6e6, "nothing of ours to drain");
        assert_eq!(probe((0, 0), (24, 12)), 6e6, "nothing had waited");
    }

    #[test]
    fn the_step_of_a_timer_is_no_faster_link() {
        let mut controller = Controller::new(PathSettings::default(), MTU_BYTES);
        controller.rates.set(1.21e8);
        controller.learn_rate(&remnant(15.0, 1.27e8), 1.27e8);
        assert_eq!(controller.rate(), 1.21e8, "in a sixth of a millisecond");
        controller.rates.set(1e5);
        controller.learn_rate(&remnant(5.0, 1.2e5), 1.2e5);
        assert_eq!(controller.rate(), 1.2e5, "few, and slowly");
    }
}
