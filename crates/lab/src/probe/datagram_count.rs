//! What arrived of a flow: loss, order, duplicates, delay, and at which pace.
//! A pure function from arrivals to figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::datagram_flow::FlowPlan;

/// One arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) sequence: u32,
    /// In the sender's clock.
    pub(crate) sent_ns: u64,
    /// In ours.
    pub(crate) at_ns: u64,
}

/// How much longer than the fastest datagram the others took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Delays {
    /// Median, microseconds.
    pub p50_us: u64,
    /// 95 % took at most this long, microseconds.
    pub p95_us: u64,
    /// Longest, microseconds.
    pub max_us: u64,
}

/// What arrived of a flow.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FlowCount {
    /// Different datagrams that arrived.
    pub received: u64,
    /// Arrived again.
    pub duplicates: u64,
    /// Arrived after a later one.
    pub reordered: u64,
    /// By how many places at most.
    pub reorder_places_max: u64,
    /// Dropped by the receiving host, whose program did not keep up: no fault
    /// of the circuit.
    pub dropped_by_host: u64,
    /// Stretches of missing datagrams between ones that arrived.
    pub loss_events: u64,
    /// Beyond the fastest one's delay.
    pub delays: Delays,
    /// RFC 3550 6.4.1, microseconds.
    pub jitter_us: f64,
    /// Payload rate once the flow had run for a quarter of its time, bit/s.
    pub steady_bit_per_s: Option<f64>,
    /// Payload rate at which neighbours at the beginning of trains came: the
    /// slowest line on the way, bit/s.
    pub line_bit_per_s: Option<f64>,
    /// Datagrams of a train that arrived before the first that did not, median.
    pub train_whole: Option<u32>,
    /// Datagrams of a train that arrived, median.
    pub train_arrived: Option<u32>,
}

/// Neighbours this far into a train still come at the line's pace behind a
/// policer of an ordinary burst.
const LINE_PLACES: u32 = 9;

impl FlowCount {
    pub(crate) fn of(plan: &FlowPlan, got: &[Got], dropped_by_host: u64) -> Self {
        let mut count = Self {
            dropped_by_host,
            ..Self::default()
        };
        let seen = count.order(plan, got);
        count.loss_events = seen
            .windows(2)
            .filter(|pair| pair == &[true, false])
            .count() as u64;
        count.delay(got);
        count.steady_bit_per_s = steady(plan, got);
        if plan.train_datagrams > 1 {
            count.line_bit_per_s = line(plan, got);
            count.trains(plan, &seen);
        }
        count
    }

    /// Which sequence numbers came, up to the last one that did.
    fn order(&mut self, plan: &FlowPlan, got: &[Got]) -> Vec<bool> {
        let mut seen = vec![false; usize::try_from(plan.datagrams()).unwrap_or(0)];
        let mut highest = None;
        for one in got {
            let Some(place) = seen.get_mut(one.sequence as usize) else {
                continue;
            };
            if std::mem::replace(place, true) {
                self.duplicates += 1;
                continue;
            }
            self.received += 1;
            match highest {
                Some(high) if one.sequence < high => {
                    self.reordered += 1;
                    let places = u64::from(high - one.sequence);
                    self.reorder_places_max = self.reorder_places_max.max(places);
                }
                _ => highest = Some(one.sequence),
            }
        }
        seen
    }

    fn delay(&mut self, got: &[Got]) {
        // The clocks are not the same: only differences of differences count.
        let transit = |one: &Got| one.at_ns.wrapping_sub(one.sent_ns).cast_signed();
        let Some(least) = got.iter().map(transit).min() else {
            return;
        };
        let above = |one: &Got| transit(one).wrapping_sub(least).unsigned_abs();
        let mut delays: Vec<u64> = got.iter().map(|one| above(one) / 1000).collect();
        let jitter = |jitter: f64, pair: &[u64]| match pair {
            [a, b] => jitter + (a.abs_diff(*b) as f64 - jitter) / 16.0,
            _ => jitter,
        };
        self.jitter_us = delays.windows(2).fold(0.0, jitter);
        delays.sort_unstable();
        let at = |share: usize| delays.get((delays.len() - 1) * share / 100).copied();
        self.delays = Delays {
            p50_us: at(50).unwrap_or(0),
            p95_us: at(95).unwrap_or(0),
            max_us: at(100).unwrap_or(0),
        };
    }

    fn trains(&mut self, plan: &FlowPlan, seen: &[bool]) {
        let trains = || seen.chunks(plan.train_datagrams.max(1) as usize);
        let whole = |train: &[bool]| train.iter().take_while(|came| **came).count() as u32;
        let arrived = |train: &[bool]| train.iter().filter(|came| **came).count() as u32;
        self.train_whole = median(trains().map(whole).collect());
        self.train_arrived = median(trains().map(arrived).collect());
    }
}

fn median<T: Ord + Copy>(mut values: Vec<T>) -> Option<T> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

fn bit_per_s(bytes: f64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| bytes * 8e9 / ns as f64)
}

/// The first quarter fills queues and empties token buckets.
fn steady(plan: &FlowPlan, got: &[Got]) -> Option<f64> {
    let first = got.iter().map(|one| one.at_ns).min()?;
    let last = got.iter().map(|one| one.at_ns).max()?;
    let from = first + (last - first) / 4;
    let counted = got.iter().filter(|one| one.at_ns >= from).count();
    let beginning = got
        .iter()
        .map(|one| one.at_ns)
        .filter(|at| *at >= from)
        .min()?;
    let bytes = counted.checked_sub(1)? as f64 * f64::from(plan.payload_bytes);
    bit_per_s(bytes, last - beginning)
}

/// Pace of the whole beginning of a train, median of the trains. Over several
/// gaps, for single ones are as uneven as timers are.
fn line(plan: &FlowPlan, got: &[Got]) -> Option<f64> {
    const GAPS_MIN: usize = 4;
    let train_of = |one: &Got| one.sequence / plan.train_datagrams.max(1);
    let rate = |train: &[Got]| {
        let first = train.first()?;
        let begins = first.sequence % plan.train_datagrams.max(1) == 0;
        let whole = train
            .iter()
            .take(LINE_PLACES as usize)
            .zip(first.sequence..)
            .take_while(|(one, expected)| one.sequence == *expected);
        let (gaps, last) = (whole.clone().count().checked_sub(1)?, whole.last()?.0);
        let ns = last.at_ns.checked_sub(first.at_ns)?;
        let bytes = gaps as f64 * f64::from(plan.payload_bytes);
        (begins && gaps >= GAPS_MIN).then(|| bit_per_s(bytes, ns))?
    };
    let trains = got.chunk_by(|a, b| train_of(a) == train_of(b));
    let mut rates: Vec<f64> = trains.filter_map(rate).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tcp_test::Direction;

    fn plan(trains: u32, train_datagrams: u32) -> FlowPlan {
        FlowPlan {
            direction: Direction::Up,
            payload_bytes: 1000,
            trains,
            train_datagrams,
            gap_ns: 1_000_000,
            keeps_rate: true,
        }
    }

    fn got(sequence: u32, at_ns: u64) -> Got {
        let sent_ns = u64::from(sequence) * 1_000_000;
        Got {
            sequence,
            sent_ns,
            at_ns: at_ns + 77_000_000_000,
        }
    }

    #[test]
    fn loss_order_and_duplicates_are_told_apart() {
        let arrivals = [0, 1, 4, 3, 3, 9].map(|n: u32| got(n, u64::from(n) * 1_000_000));
        let count = FlowCount::of(&plan(10, 1), &arrivals, 2);
        assert_eq!((count.received, count.duplicates), (5, 1));
        assert_eq!((count.reordered, count.reorder_places_max), (1, 1));
        assert_eq!((count.loss_events, count.dropped_by_host), (2, 2));
    }

    #[test]
    fn delay_counts_beyond_the_fastest_whatever_the_clocks_say() {
        let arrivals: Vec<Got> = (0..100)
            .map(|n| got(n, u64::from(n) * 1_000_000 + u64::from(n) * 10_000))
            .collect();
        let count = FlowCount::of(&plan(100, 1), &arrivals, 0);
        assert_eq!((count.delays.p50_us, count.delays.max_us), (490, 990));
        assert!((count.jitter_us - 10.0).abs() < 0.1, "{}", count.jitter_us);
        // 1010 us apart.
        let rate = count.steady_bit_per_s.unwrap();
        assert!((rate - 8e9 / 1_010_000.0 * 1000.0).abs() < 1.0, "{rate}");
    }

    #[test]
    fn the_lines_pace_is_that_of_the_first_of_a_train() {
        // Ten pass 100 us apart, then every fifth.
        let arrivals: Vec<Got> = (0..40_u32)
            .filter(|n| *n < 10 || n % 5 == 0)
            .map(|n| got(n, u64::from(n) * 100_000))
            .collect();
        let count = FlowCount::of(&plan(1, 40), &arrivals, 0);
        assert_eq!(count.line_bit_per_s, Some(80e6));
        assert_eq!(
            (count.train_whole, count.train_arrived),
            (Some(11), Some(16))
        );
    }

    #[test]
    fn nothing_and_nonsense_give_no_figures() {
        let none = FlowCount::of(&plan(10, 2), &[], 0);
        assert_eq!(
            (none.received, none.steady_bit_per_s, none.line_bit_per_s),
            (0, None, None)
        );
        let odd = [got(u32::MAX, 0), got(5, 0), got(5, 0)];
        let count = FlowCount::of(&plan(10, 1), &odd, 0);
        assert_eq!((count.received, count.duplicates), (1, 1));
        let json = serde_json::to_string(&count).unwrap();
        assert!(
            !json.contains("NaN") && !json.contains("jitter_us\":null"),
            "{json}"
        );
    }
}
