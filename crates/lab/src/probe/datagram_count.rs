//! What arrived of a flow: loss, order, duplicates, delay, and at which pace.
//! A pure function from arrivals to figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::datagram_flow::FlowPlan;
use super::line_pace::line_bit_per_s;

/// One arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) sequence: u32,
    /// Dropped by the receiving socket until then.
    pub(crate) dropped: u32,
    /// In the sender's clock.
    pub(crate) sent_ns: u64,
    /// In ours.
    pub(crate) at_ns: u64,
}

/// What has come of a flow so far: each datagram's first copy, so that neither
/// copies nor nonsense take memory beyond the plan's.
#[derive(Debug)]
pub(crate) struct Arrivals {
    seen: Vec<bool>,
    firsts: Vec<Got>,
    /// Arrived again.
    pub(crate) duplicates: u64,
}

impl Arrivals {
    pub(crate) fn of(plan: &FlowPlan) -> Self {
        Self {
            seen: vec![false; usize::try_from(plan.datagrams()).unwrap_or(0)],
            firsts: Vec::new(),
            duplicates: 0,
        }
    }

    pub(crate) fn take(&mut self, one: Got) {
        match self.seen.get_mut(one.sequence as usize) {
            Some(true) => self.duplicates += 1,
            Some(place) => {
                *place = true;
                self.firsts.push(one);
            }
            // The plan has no such datagram.
            None => {}
        }
    }

    /// Whether nothing more can come that is not a copy.
    pub(crate) fn is_whole(&self) -> bool {
        self.firsts.len() == self.seen.len()
    }

    /// In the order in which they came.
    pub(crate) fn firsts(&self) -> &[Got] {
        &self.firsts
    }
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

/// When nothing of a flow came for a tenth of a second and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Silence {
    /// So many datagrams are a tenth of a second, 10 at least.
    pub datagrams_min: u64,
    /// Datagrams missing in stretches of so many between ones that came.
    pub datagrams: u64,
    /// How long the longest of these took, microseconds.
    pub longest_us: u64,
    /// From this datagram on nothing came, though so many of the plan were left; how
    /// many of them were sent only the sender knows.
    pub silent_from: Option<u64>,
}

impl Silence {
    const NS_MIN: u64 = 100_000_000;
    /// So many in a row are no accident of a slow flow.
    const DATAGRAMS_MIN: u64 = 10;

    /// How long so many datagrams took at least, microseconds.
    pub(crate) fn least_us(&self, datagrams: u64) -> u64 {
        datagrams.saturating_mul(Self::NS_MIN / 1000) / self.datagrams_min.max(1)
    }

    /// From which datagrams came.
    fn of(plan: &FlowPlan, seen: &[bool]) -> Option<Self> {
        let one_ns = (plan.gap_ns / u64::from(plan.train_datagrams.max(1))).max(1);
        let datagrams_min = Self::NS_MIN.div_ceil(one_ns).max(Self::DATAGRAMS_MIN);
        let until = seen.iter().rposition(|came| *came)? + 1;
        let (before, after) = seen.split_at_checked(until)?;
        let is_long = |length: &u64| *length >= datagrams_min;
        let missing = before.chunk_by(|a, b| a == b);
        let missing = missing.filter(|stretch| stretch.first() == Some(&false));
        let lengths = missing.map(|stretch| stretch.len() as u64).filter(is_long);
        let datagrams = lengths.clone().sum();
        let silent_from = is_long(&(after.len() as u64)).then_some(until as u64);
        (datagrams > 0 || silent_from.is_some()).then(|| Self {
            datagrams_min,
            datagrams,
            longest_us: lengths.max().unwrap_or(0).saturating_mul(one_ns) / 1000,
            silent_from,
        })
    }
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
    /// Where the receiving program was too slow to read everything in time: only
    /// so many datagrams from the first one on can be judged.
    pub read_until: Option<u64>,
    /// Stretches of missing datagrams between ones that arrived.
    pub loss_events: u64,
    /// Those that took long, and the end of the flow if nothing of it came; null where
    /// all such stretches were short.
    pub silence: Option<Silence>,
    /// Beyond the fastest one's delay.
    pub delays: Delays,
    /// RFC 3550 6.4.1, microseconds.
    pub jitter_us: f64,
    /// Payload rate from the first datagram that came to the last, bit/s.
    pub mean_bit_per_s: Option<f64>,
    /// Payload rate once the flow had run for a quarter of its time, bit/s.
    pub steady_bit_per_s: Option<f64>,
    /// Payload rate at which the datagrams left, by the sender's clock, bit/s.
    pub offered_bit_per_s: Option<f64>,
    /// Share of the time after that quarter in which datagrams were due and none
    /// was sent, pauses of 5 ms and more.
    pub sender_paused: Option<f64>,
    /// Payload rate at which the beginnings of trains came: the slowest line on
    /// the way, or the sender if that is slower, bit/s. Where a receiving
    /// interface coalesces interrupts for as long as a train, the least rate that
    /// the line must have had, or none.
    pub line_bit_per_s: Option<f64>,
    /// Datagrams of a train that arrived before the first that did not, median.
    pub train_whole: Option<u32>,
    /// The same without those that the line carried while the train was being
    /// sent, median: how many the way holds.
    pub train_held: Option<u32>,
    /// Datagrams of a train that arrived, median.
    pub train_arrived: Option<u32>,
}

impl FlowCount {
    /// `is_cut_off`: the reader was stopped while datagrams were waiting for it.
    pub(crate) fn of(plan: &FlowPlan, got: &[Got], dropped_by_host: u64, is_cut_off: bool) -> Self {
        let highest = got.iter().map(|one| u64::from(one.sequence) + 1).max();
        let mut count = Self {
            dropped_by_host,
            read_until: highest.filter(|_| is_cut_off),
            offered_bit_per_s: offered(plan, got),
            ..Self::default()
        };
        let seen = count.order(plan, got);
        count.loss_events = seen
            .windows(2)
            .filter(|pair| pair == &[true, false])
            .count() as u64;
        let judged = count.read_until.map_or(seen.len(), |until| until as usize);
        count.silence = Silence::of(plan, seen.get(..judged).unwrap_or(&seen));
        count.delay(got);
        count.mean_bit_per_s = arriving(plan, got, 0);
        // The first quarter fills queues and empties token buckets.
        count.steady_bit_per_s = arriving(plan, got, 1);
        count.sender_paused = paused(plan, got, 1);
        if plan.train_datagrams > 1 {
            count.line_bit_per_s = line_bit_per_s(plan, got);
            count.trains(plan, &seen);
            count.train_held = held(plan, got, count.line_bit_per_s);
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

pub(super) fn bit_per_s(bytes: f64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| bytes * 8e9 / ns as f64)
}

/// Once so many quarters of the flow's time are over.
fn arriving(plan: &FlowPlan, got: &[Got], quarters: u64) -> Option<f64> {
    let first = got.iter().map(|one| one.at_ns).min()?;
    let last = got.iter().map(|one| one.at_ns).max()?;
    let from = first + (last - first) / 4 * quarters;
    let counted = got.iter().filter(|one| one.at_ns >= from).count();
    let beginning = got
        .iter()
        .map(|one| one.at_ns)
        .filter(|at| *at >= from)
        .min()?;
    // What the host dropped had come over the circuit all the same.
    let drops = || {
        let late = got.iter().filter(|one| one.at_ns >= from);
        late.map(|one| one.dropped)
    };
    let dropped = drops().max()?.saturating_sub(drops().min()?);
    let datagrams = counted.checked_sub(1)? as f64 + f64::from(dropped);
    let bytes = datagrams * f64::from(plan.payload_bytes);
    bit_per_s(bytes, last - beginning)
}

/// How much longer than planned it took from one that came to the next, by the
/// sender's clock. What it makes up for afterwards does not undo a pause.
fn paused(plan: &FlowPlan, got: &[Got], quarters: u64) -> Option<f64> {
    /// Timers are late by less.
    const PAUSE_NS_MIN: u64 = 5_000_000;
    let mut sent: Vec<(u32, u64)> = got.iter().map(|one| (one.sequence, one.sent_ns)).collect();
    sent.sort_unstable();
    let (first_ns, last_ns) = (sent.first()?.1, sent.last()?.1);
    let from_ns = first_ns + last_ns.checked_sub(first_ns)? / 4 * quarters;
    let train_of = |sequence: u32| u64::from(sequence / plan.train_datagrams.max(1));
    let pause_ns = |pair: &[(u32, u64)]| {
        let [(a, a_ns), (b, b_ns)] = *pair else {
            return 0;
        };
        let planned_ns = (train_of(b) - train_of(a)).saturating_mul(plan.gap_ns);
        let since_ns = b_ns.saturating_sub(a_ns.max(from_ns));
        let pause_ns = since_ns.saturating_sub(planned_ns);
        if pause_ns < PAUSE_NS_MIN { 0 } else { pause_ns }
    };
    let paused_ns: u64 = sent.windows(2).map(pause_ns).fold(0, u64::saturating_add);
    let span_ns = last_ns.checked_sub(from_ns).filter(|ns| *ns > 0)?;
    Some((paused_ns as f64 / span_ns as f64).min(1.0))
}

/// From the first to the last that came, as the sender's clock has it.
fn offered(plan: &FlowPlan, got: &[Got]) -> Option<f64> {
    let first = got.iter().min_by_key(|one| one.sequence)?;
    let last = got.iter().max_by_key(|one| one.sequence)?;
    let datagrams = f64::from(last.sequence - first.sequence);
    let ns = last.sent_ns.checked_sub(first.sent_ns)?;
    bit_per_s(datagrams * f64::from(plan.payload_bytes), ns)
}

/// How many datagrams of a train the way holds when it loses the next one.
fn held(plan: &FlowPlan, got: &[Got], line_bit_per_s: Option<f64>) -> Option<u32> {
    let length = plan.train_datagrams.max(1);
    let one_ns = f64::from(plan.payload_bytes) * 8e9 / line_bit_per_s.filter(|rate| *rate > 0.0)?;
    let of_train = |train: &[Got]| {
        let begin = train.first()?;
        let whole = || {
            let expected = begin.sequence..=u32::MAX;
            let pairs = train.iter().zip(expected);
            pairs.take_while(|(one, expected)| one.sequence == *expected)
        };
        let count = u32::try_from(whole().count()).ok()?;
        if begin.sequence % length != 0 || count == length {
            return Some(if count == length { length } else { 0 });
        }
        let sending_ns = whole().last()?.0.sent_ns.saturating_sub(begin.sent_ns);
        let carried = (sending_ns as f64 / one_ns) as u32;
        Some(count - carried.min(count - 1))
    };
    let trains = got.chunk_by(|a, b| a.sequence / length == b.sequence / length);
    median(trains.filter_map(of_train).collect())
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
            catch_up_ns: FlowPlan::CATCH_UP_ALL_NS,
        }
    }

    fn got(sequence: u32, at_ns: u64) -> Got {
        let sent_ns = u64::from(sequence) * 1_000_000;
        Got {
            sequence,
            dropped: 0,
            sent_ns,
            at_ns: at_ns + 77_000_000_000,
        }
    }

    #[test]
    fn loss_order_and_duplicates_are_told_apart() {
        let arrivals = [0, 1, 4, 3, 3, 9].map(|n: u32| got(n, u64::from(n) * 1_000_000));
        let count = FlowCount::of(&plan(10, 1), &arrivals, 2, false);
        assert_eq!((count.received, count.duplicates), (5, 1));
        assert_eq!((count.reordered, count.reorder_places_max), (1, 1));
        assert_eq!((count.loss_events, count.dropped_by_host), (2, 2));
    }

    /// What is said of a flow of 1000 in 10 s of which these did not come.
    fn silence_of(missing: &[std::ops::Range<u32>]) -> Option<Silence> {
        let plan = FlowPlan {
            gap_ns: 10_000_000,
            ..plan(1000, 1)
        };
        let came = |n: &u32| !missing.iter().any(|range| range.contains(n));
        let arrivals: Vec<Got> = (0..1000).filter(came).map(|n| got(n, 0)).collect();
        FlowCount::of(&plan, &arrivals, 0, false).silence
    }

    #[test]
    fn a_long_silence_is_told_and_many_short_ones_are_not() {
        assert_eq!(silence_of(&[100..109, 200..209, 300..309, 991..1000]), None);
        let silence = |datagrams, longest_us, silent_from| Silence {
            datagrams_min: 10,
            datagrams,
            longest_us,
            silent_from,
        };
        assert_eq!(
            silence_of(&[100..400, 500..509, 600..660]),
            Some(silence(360, 3_000_000, None))
        );
        let from = |first| silence_of(std::slice::from_ref(&(first..1000)));
        assert_eq!(from(400), Some(silence(0, 0, Some(400))));
        assert_eq!(from(0), None);
    }

    #[test]
    fn copies_and_nonsense_take_no_room() {
        let mut arrivals = Arrivals::of(&plan(3, 1));
        for sequence in [0, 0, 2, 3, u32::MAX, 2, 0] {
            arrivals.take(got(sequence, 0));
        }
        assert_eq!((arrivals.firsts().len(), arrivals.duplicates), (2, 3));
        assert!(!arrivals.is_whole());
        arrivals.take(got(1, 0));
        assert!(arrivals.is_whole());
    }

    #[test]
    fn delay_counts_beyond_the_fastest_whatever_the_clocks_say() {
        let arrivals: Vec<Got> = (0..100)
            .map(|n| got(n, u64::from(n) * 1_000_000 + u64::from(n) * 10_000))
            .collect();
        let count = FlowCount::of(&plan(100, 1), &arrivals, 0, false);
        assert_eq!((count.delays.p50_us, count.delays.max_us), (490, 990));
        assert!((count.jitter_us - 10.0).abs() < 0.1, "{}", count.jitter_us);
        // 1010 us apart.
        for rate in [count.steady_bit_per_s, count.mean_bit_per_s] {
            let rate = rate.unwrap();
            assert!((rate - 8e9 / 1_010_000.0 * 1000.0).abs() < 1.0, "{rate}");
        }
    }

    #[test]
    fn the_lines_pace_is_that_of_the_first_of_a_train() {
        // Sent 10 us apart, ten pass 100 us apart, then every fifth.
        let arrivals: Vec<Got> = (0..40_u32)
            .filter(|n| *n < 10 || n % 5 == 0)
            .map(|n| Got {
                sent_ns: u64::from(n) * 10_000,
                ..got(n, u64::from(n) * 100_000)
            })
            .collect();
        let count = FlowCount::of(&plan(1, 40), &arrivals, 0, false);
        assert_eq!(count.line_bit_per_s, Some(80e6));
        assert_eq!(
            (count.train_whole, count.train_arrived),
            (Some(11), Some(16))
        );
    }

    #[test]
    fn a_reader_that_was_held_up_changes_neither_rate_nor_loss() {
        // Every datagram came 1 ms after the one before; the socket kept every
        // second one, and the reader got as far as half of them.
        let kept: Vec<Got> = (0..50_u32)
            .map(|n| Got {
                dropped: n,
                ..got(2 * n, u64::from(n) * 2_000_000)
            })
            .collect();
        let count = FlowCount::of(&plan(200, 1), &kept, 49, true);
        assert_eq!(count.read_until, Some(99));
        assert!((count.steady_bit_per_s.unwrap() - 8e6).abs() < 1.0);
        assert!((count.offered_bit_per_s.unwrap() - 8e6).abs() < 1.0);
        let way = crate::probe::observe::FlowWay::from((200, count));
        assert_eq!((way.judged(), way.lost), (99, 0));
    }

    #[test]
    fn what_the_line_carried_meanwhile_was_not_held() {
        // A line of 100 us for each and a queue of ten, from a sender that
        // needs 50 us for each: twenty pass before the first is lost.
        let arrivals: Vec<Got> = (0..40_u32)
            .filter(|n| *n < 20 || n % 2 == 0)
            .map(|n| Got {
                sent_ns: u64::from(n) * 50_000,
                ..got(n, u64::from(n.min(20) + n.saturating_sub(20) / 2) * 100_000)
            })
            .collect();
        let count = FlowCount::of(&plan(1, 40), &arrivals, 0, false);
        assert_eq!((count.train_whole, count.train_held), (Some(21), Some(11)));
        let whole: Vec<Got> = (0..40).map(|n| got(n, u64::from(n) * 100_000)).collect();
        let count = FlowCount::of(&plan(1, 40), &whole, 0, false);
        assert_eq!(count.train_held, Some(40));
    }

    #[test]
    fn nothing_and_nonsense_give_no_figures() {
        let none = FlowCount::of(&plan(10, 2), &[], 0, false);
        assert_eq!(
            (none.received, none.steady_bit_per_s, none.line_bit_per_s),
            (0, None, None)
        );
        let odd = [got(u32::MAX, 0), got(5, 0), got(5, 0)];
        let count = FlowCount::of(&plan(10, 1), &odd, 0, false);
        assert_eq!((count.received, count.duplicates), (1, 1));
        let ends: Vec<Got> = (0..6).map(|n| got(u32::MAX - 5 + n, 0)).collect();
        assert_eq!(FlowCount::of(&plan(10, 8), &ends, 0, false).received, 0);
        let json = serde_json::to_string(&count).unwrap();
        assert!(
            !json.contains("NaN") && !json.contains("jitter_us\":null"),
            "{json}"
        );
    }
}
