//! The pace of the slowest line, from when the datagrams of short trains came. A
//! pure function from arrivals to a rate.
//!
//! A network interface that coalesces interrupts hands up at once what came in 20
//! to 200 us: neighbours seem to have come together, and how far apart batches are
//! says how often the interface interrupts. What was on the line between the ends
//! of two batches is what the later ones hold, whatever the interrupt waits for:
//! a time after the first datagram, a time after the interrupt before, or a clock
//! of its own. The first batch does not count, for nobody knows when the line
//! began with it; nor does one with which the train ends, which may have waited
//! for datagrams that never came. Where each datagram comes alone, this is the
//! spacing of neighbours.
//!
//! What cannot be told:
//!
//! * One datagram more or less may be in the last batch: of the eight or more that
//!   are counted that is 12 % at worst. The median of several trains is nearer.
//! * Where trains are over, or cut by a loss, within two or three batches, too few
//!   datagrams are in batches that are whole: the figure is the least that the
//!   line must have carried. At 950 Mbit/s and 200 us it may be two thirds.
//! * Where a train is one batch, there is no figure; or the sender's pace, if
//!   that is the pace at which the receiving host takes them from the interface.
//! * A line that is faster than the sender: datagrams come as they were sent.

use super::datagram_count::{Got, bit_per_s};
use super::datagram_flow::FlowPlan;

/// Neighbours this far into a train still come at the line's pace behind a
/// policer of an ordinary burst. Batches that go on beyond are taken whole, and
/// no more of them than this needs.
const NEIGHBOURS: usize = 8;
/// Fewer will do over several gaps; single ones are as uneven as timers are.
const GAPS_MIN: usize = 4;

/// What one train says of the line, bit/s.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pace {
    Told(f64),
    /// The line is at least as fast.
    Least(f64),
}

/// The median of the trains that tell; if none does, the most that one of them
/// shows the line to carry at least.
pub(super) fn line_bit_per_s(plan: &FlowPlan, got: &[Got]) -> Option<f64> {
    let length = plan.train_datagrams.max(1);
    let trains = got.chunk_by(|a, b| a.sequence / length == b.sequence / length);
    let is_begin = |one: &Got| one.sequence.is_multiple_of(length);
    let begun = trains.filter(|train| train.first().is_some_and(is_begin));
    let (mut told, mut least) = (Vec::new(), Vec::new());
    for pace in begun.filter_map(|train| pace(plan, unbroken(train))) {
        match pace {
            Pace::Told(rate) => told.push(rate),
            Pace::Least(rate) => least.push(rate),
        }
    }
    told.sort_by(f64::total_cmp);
    let median = told.get(told.len() / 2).copied();
    median.or_else(|| least.into_iter().max_by(f64::total_cmp))
}

/// Up to the first that was lost or overtaken.
fn unbroken(train: &[Got]) -> &[Got] {
    let follows = |(a, b): &(&Got, &Got)| a.sequence.checked_add(1) == Some(b.sequence);
    let pairs = train.iter().zip(train.iter().skip(1));
    let count = pairs.take_while(follows).count() + 1;
    train.get(..count).unwrap_or_default()
}

fn pace(plan: &FlowPlan, train: &[Got]) -> Option<Pace> {
    let last = train.len().checked_sub(1)?;
    let mut ends = batch_ends(train);
    if ends.len() == last {
        // Each came alone, and so did the last.
        ends.push(last);
    }
    let from = *ends.first()?;
    let is_enough = |end: &usize| *end - from >= NEIGHBOURS;
    let gaps = ends.iter().position(is_enough).unwrap_or(ends.len() - 1);
    let to = *ends.get(gaps)?;
    let rate = |datagrams, to| rate(plan, train, datagrams, (from, to));
    if to - from >= NEIGHBOURS || gaps >= GAPS_MIN {
        return rate(to - from, to).map(Pace::Told);
    }
    // The first of them may have begun to come just after the batch before.
    let least = (last - from).checked_sub(1)?;
    (least >= GAPS_MIN).then(|| rate(least, last).map(Pace::Least))?
}

/// So many datagrams between the arrivals at two places, but no faster than the
/// train was sent: a host that takes the first one late is no faster line.
fn rate(plan: &FlowPlan, train: &[Got], datagrams: usize, between: (usize, usize)) -> Option<f64> {
    let (first, from, to) = (train.first()?, train.get(between.0)?, train.get(between.1)?);
    let bits_per_s = |datagrams: usize, ns: Option<u64>| {
        bit_per_s(datagrams as f64 * f64::from(plan.payload_bytes), ns?)
    };
    let came = bits_per_s(datagrams, to.at_ns.checked_sub(from.at_ns))?;
    let sent = bits_per_s(between.1, to.sent_ns.checked_sub(first.sent_ns));
    Some(came.min(sent.unwrap_or(f64::INFINITY)))
}

/// Places after which the next one was waited for. What the last of the train is
/// the end of is not known.
fn batch_ends(train: &[Got]) -> Vec<usize> {
    /// A host takes no longer for each of a batch, and full packets on a line of
    /// 950 Mbit/s are further apart.
    const WITHIN_NS_MAX: u64 = 10_000;
    let mean_ns = mean_wait_ns(train);
    let is_end = |pair: &[Got]| {
        let (came_ns, sent_ns) = gaps_ns(pair);
        // What comes closer together than it was sent had waited together.
        let is_close = came_ns <= mean_ns / 2 || came_ns < sent_ns / 2;
        came_ns > WITHIN_NS_MAX || !is_close
    };
    let pairs = train.windows(2).enumerate();
    let ends = pairs.filter(|(_, pair)| is_end(pair));
    ends.map(|(place, _)| place).collect()
}

/// Mean of all gaps. One that the sender made is no wait for a line or an
/// interrupt, and counts as none.
fn mean_wait_ns(train: &[Got]) -> u64 {
    let waits = train.windows(2).map(gaps_ns);
    let waits = waits.filter(|(came_ns, sent_ns)| *came_ns > sent_ns.saturating_mul(2));
    let all_ns = waits.fold(0, |all_ns: u64, (came_ns, _)| {
        all_ns.saturating_add(came_ns)
    });
    all_ns / (train.len() as u64).saturating_sub(1).max(1)
}

/// Between two neighbours: as they came, as they were sent.
fn gaps_ns(pair: &[Got]) -> (u64, u64) {
    let [a, b] = pair else {
        return (0, 0);
    };
    let (came_ns, sent_ns) = (
        b.at_ns.checked_sub(a.at_ns),
        b.sent_ns.checked_sub(a.sent_ns),
    );
    (came_ns.unwrap_or(0), sent_ns.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tcp_test::Direction;

    const TRAINS: u32 = 8;
    const LENGTH: u32 = 30;
    const PAYLOAD_BYTES: u16 = 1472;
    const RATES: [f64; 9] = [10e6, 33e6, 50e6, 100e6, 200e6, 333e6, 500e6, 700e6, 950e6];
    const COALESCED_NS: [u64; 4] = [20_000, 50_000, 125_000, 200_000];

    /// When an interface interrupts.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Interrupts {
        /// So long after the first datagram that waits.
        Delayed(u64),
        /// At once, but not before so long after the one before.
        Throttled(u64),
        /// By a clock of its own.
        Clocked(u64),
    }

    impl Interrupts {
        fn of(ns: u64) -> [Self; 3] {
            [Self::Delayed(ns), Self::Throttled(ns), Self::Clocked(ns)]
        }

        /// For a datagram that finds nothing waiting.
        fn at_ns(self, came_ns: u64, before_ns: u64) -> u64 {
            match self {
                Self::Delayed(ns) => came_ns + ns,
                Self::Throttled(ns) => came_ns.max(before_ns + ns),
                Self::Clocked(ns) => came_ns.next_multiple_of(ns),
            }
        }

        /// Handed up one after the other.
        fn handed(self, came_ns: &[u64]) -> Vec<u64> {
            const EACH_NS: u64 = 600;
            let (mut interrupt_ns, mut handed_ns) = (0, 0);
            let one = |came_ns: &u64| {
                if *came_ns > interrupt_ns {
                    interrupt_ns = self.at_ns(*came_ns, interrupt_ns);
                    handed_ns = interrupt_ns;
                } else {
                    handed_ns += EACH_NS;
                }
                handed_ns
            };
            came_ns.iter().map(one).collect()
        }
    }

    fn plan() -> FlowPlan {
        FlowPlan {
            direction: Direction::Up,
            payload_bytes: PAYLOAD_BYTES,
            trains: TRAINS,
            train_datagrams: LENGTH,
            gap_ns: 100_000_000,
            catch_up_ns: FlowPlan::CATCH_UP_ALL_NS,
        }
    }

    /// Trains of a sender that needs so long for each, on a line of that payload
    /// rate, which begin at odd times.
    fn sent_and_came(rate: f64, each_ns: u64) -> Vec<(u64, u64)> {
        let line_ns = f64::from(PAYLOAD_BYTES) * 8e9 / rate;
        let train = |train: u64| {
            let (begin_ns, mut free_ns) = (train * 100_037_123 + 1_000_000, 0.0);
            (0..u64::from(LENGTH)).map(move |place| {
                let sent_ns = begin_ns + place * each_ns;
                free_ns = f64::max(free_ns, sent_ns as f64) + line_ns;
                (sent_ns, free_ns as u64 + 5_000_000)
            })
        };
        (0..u64::from(TRAINS)).flat_map(train).collect()
    }

    fn arrivals(rate: f64, each_ns: u64, interrupts: Interrupts) -> Vec<Got> {
        let (sent, came): (Vec<u64>, Vec<u64>) = sent_and_came(rate, each_ns).into_iter().unzip();
        let handed = interrupts.handed(&came);
        let both = sent.into_iter().zip(handed).zip(0..);
        let got = both.map(|((sent_ns, at_ns), sequence)| Got {
            sequence,
            dropped: 0,
            sent_ns,
            at_ns,
        });
        got.collect()
    }

    fn line(rate: f64, each_ns: u64, interrupts: Interrupts) -> Option<f64> {
        line_bit_per_s(&plan(), &arrivals(rate, each_ns, interrupts))
    }

    /// Of what it is, with a sender that is much faster.
    fn share(rate: f64, interrupts: Interrupts) -> Option<f64> {
        Some(line(rate, 2_000, interrupts)? / rate)
    }

    #[test]
    fn the_pace_of_a_line_shows_through_coalesced_interrupts() {
        for rate in RATES {
            for interrupts in COALESCED_NS.into_iter().flat_map(Interrupts::of) {
                let seen = share(rate, interrupts).unwrap();
                let is_told = (rate, interrupts) != (950e6, Interrupts::Delayed(200_000));
                // Seventeen and thirteen: the second batch is not over.
                let least = if is_told { 0.88 } else { 0.66 };
                assert!(
                    (least..=1.08).contains(&seen),
                    "{rate:e} {interrupts:?}: {seen}"
                );
            }
        }
    }

    #[test]
    fn interrupts_too_far_apart_give_no_higher_pace_than_the_lines() {
        for rate in RATES {
            for interrupts in [500_000, 1_000_000, 5_000_000].map(Interrupts::of).concat() {
                let seen = share(rate, interrupts);
                assert!(
                    seen.is_none_or(|seen| seen <= 1.08),
                    "{rate:e} {interrupts:?}: {seen:?}"
                );
            }
        }
        assert_eq!(share(950e6, Interrupts::Delayed(400_000)), None);
        let fast = line(10e9, 700, Interrupts::Delayed(400_000)).unwrap();
        assert!(fast <= f64::from(PAYLOAD_BYTES) * 8e9 / 700.0, "{fast}");
    }

    /// Of the first nine of each train.
    fn spacing(got: &[Got]) -> f64 {
        let bits = NEIGHBOURS as f64 * f64::from(PAYLOAD_BYTES) * 8.0;
        let trains = got.chunks(LENGTH as usize);
        let mut rates: Vec<f64> = trains
            .map(|train| bits * 1e9 / (train[NEIGHBOURS].at_ns - train[0].at_ns) as f64)
            .collect();
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    }

    #[test]
    fn datagrams_that_come_alone_have_the_pace_of_their_spacing() {
        for rate in RATES {
            for late_share in [0.0, 0.2, 0.4] {
                let mut got = arrivals(rate, 2_000, Interrupts::Delayed(0));
                let line_ns = f64::from(PAYLOAD_BYTES) * 8e9 / rate;
                for one in &mut got {
                    let odd = f64::from(one.sequence.wrapping_mul(2_654_435_761) >> 16) / 65_536.0;
                    one.at_ns += (odd * late_share * line_ns) as u64;
                }
                let seen = line_bit_per_s(&plan(), &got).unwrap();
                assert_eq!(seen, spacing(&got), "{rate:e} {late_share}");
            }
        }
    }

    #[test]
    fn no_line_is_faster_than_the_sender() {
        for each_ns in [5_000, 13_000, 40_000] {
            let sent = f64::from(PAYLOAD_BYTES) * 8e9 / each_ns as f64;
            for interrupts in COALESCED_NS.into_iter().flat_map(Interrupts::of) {
                let seen = line(10e9, each_ns, interrupts);
                assert!(
                    seen.is_none_or(|seen| seen <= sent * 1.001),
                    "{each_ns} {interrupts:?}: {seen:?}"
                );
            }
            // The host was asleep when the first of each train came.
            let mut got = arrivals(10e9, each_ns, Interrupts::Delayed(0));
            for one in got
                .iter_mut()
                .filter(|one| one.sequence.is_multiple_of(LENGTH))
            {
                one.at_ns += each_ns / 2;
            }
            let seen = line_bit_per_s(&plan(), &got).unwrap();
            assert!((sent * 0.9..=sent * 1.001).contains(&seen), "{seen}");
        }
    }

    #[test]
    fn what_a_policer_lets_pass_later_does_not_count() {
        for interrupts in [20_000, 50_000].map(Interrupts::of).concat() {
            let mut got = arrivals(200e6, 2_000, interrupts);
            got.retain(|one| one.sequence % LENGTH < 15 || one.sequence.is_multiple_of(5));
            let seen = line_bit_per_s(&plan(), &got).unwrap() / 200e6;
            assert!((0.88..=1.08).contains(&seen), "{interrupts:?}: {seen}");
        }
    }

    #[test]
    fn odd_stamps_and_places_give_no_odd_figures() {
        let one = |sequence, sent_ns, at_ns| Got {
            sequence,
            dropped: 0,
            sent_ns,
            at_ns,
        };
        let seen = |got: Vec<Got>| line_bit_per_s(&plan(), &got);
        assert_eq!(seen(Vec::new()), None);
        assert_eq!(seen((0..30).map(|n| one(n, 0, 7)).collect()), None);
        assert_eq!(
            seen((0..30).map(|n| one(n, 0, 99 - u64::from(n))).collect()),
            None
        );
        let ends = (0..6).map(|n| one(u32::MAX - 5 + n, u64::MAX, u64::from(n)));
        assert_eq!(seen(ends.collect()), None);
        let back = (0..30).map(|n| one(n, 99 - u64::from(n), u64::from(n) * 1_000_000));
        assert_eq!(seen(back.collect()), Some(1472.0 * 8e3));
    }
}
