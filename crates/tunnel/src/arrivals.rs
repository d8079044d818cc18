//! How fast the data of a flow comes while it comes.
//!
//! A sender that has used up its credit pauses for a round trip. Over such pauses the pace is what
//! the window allows and tells nothing of the link, so a pause begins the measurement anew.

/// Shorter spans show bursts, not a pace: a frame is a stream of its own, and those whose lost
/// packets come again arrive together. This part of a round trip.
const SPAN_PART_MIN: u64 = 8;

/// The same within a flow's first round trip. All that can come then is the initial credit, and a
/// pause of a round trip follows.
const FIRST_SPAN_PART_MIN: u64 = 16;

/// A pace is that of the last so-many-th of a round trip: at the start of a tunnel it doubles in one.
const SPAN_PART: u64 = 4;

/// Whoever sends nothing for this part of a round trip has paused.
const PAUSE_PART: u64 = 2;

/// Less than so much in all are messages: the first round trip begins with what comes behind them.
const MESSAGES_BYTES_MAX: u64 = 32 << 10;

/// What came, and in which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) bytes: u64,
    pub(crate) elapsed_ns: u64,
    /// Within a round trip of the flow's first data, but for some messages: all of it was sent on the initial credit, and
    /// whoever sent it waits for more.
    pub(crate) is_first_round: bool,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    first_ns: u64,
    last_ns: u64,
    last_bytes: u64,
    /// When the span that is measured began, and how much had come by then.
    mark_ns: u64,
    mark_bytes: u64,
}

/// What has come of a flow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Arrivals {
    seen: Option<Seen>,
}

impl Arrivals {
    /// Something came, `arrived_bytes` in all. None while that is too little to tell a pace.
    pub(crate) fn pace(&mut self, now_ns: u64, arrived_bytes: u64, rtt_ns: u64) -> Option<Pace> {
        let seen = self.seen.get_or_insert(Seen {
            first_ns: now_ns,
            last_ns: now_ns,
            last_bytes: 0,
            mark_ns: now_ns,
            mark_bytes: 0,
        });
        if std::mem::replace(&mut seen.last_bytes, arrived_bytes) <= MESSAGES_BYTES_MAX {
            seen.first_ns = now_ns;
        }
        let since_first_ns = now_ns.saturating_sub(seen.first_ns);
        let has_paused = now_ns.saturating_sub(seen.last_ns) > rtt_ns / PAUSE_PART;
        seen.last_ns = now_ns;
        if has_paused {
            (seen.mark_ns, seen.mark_bytes) = (now_ns, arrived_bytes);
            return None;
        }
        let is_first_round = since_first_ns < rtt_ns;
        let least_part = if is_first_round {
            FIRST_SPAN_PART_MIN
        } else {
            SPAN_PART_MIN
        };
        let least_ns = rtt_ns / least_part;
        let elapsed_ns = now_ns.saturating_sub(seen.mark_ns);
        if elapsed_ns < least_ns && !is_first_round {
            return None;
        }
        let pace = Pace {
            bytes: arrived_bytes.saturating_sub(seen.mark_bytes),
            elapsed_ns: elapsed_ns.max(least_ns),
            is_first_round,
        };
        if elapsed_ns >= rtt_ns / SPAN_PART {
            (seen.mark_ns, seen.mark_bytes) = (now_ns, arrived_bytes);
        }
        Some(pace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_NS: u64 = 100_000_000;

    /// Brings `bytes` in each of so many sixteenths of a round trip from `from_ns` on.
    fn bring(
        arrivals: &mut Arrivals,
        from_ns: u64,
        sixteenths: u64,
        bytes: u64,
        arrived_bytes: &mut u64,
    ) -> Vec<Pace> {
        let at_ns = |sixteenth| from_ns + sixteenth * RTT_NS / 16;
        let mut one = |sixteenth| {
            *arrived_bytes += bytes;
            arrivals.pace(at_ns(sixteenth), *arrived_bytes, RTT_NS)
        };
        (0..sixteenths).filter_map(&mut one).collect()
    }

    fn bytes_s(pace: &Pace) -> f64 {
        pace.bytes as f64 / pace.elapsed_ns as f64 * 1e9
    }

    #[test]
    fn a_pause_is_no_slow_pace() {
        let mut arrivals = Arrivals::default();
        let mut arrived_bytes = 0;
        let first = bring(&mut arrivals, 0, 2, 40_000, &mut arrived_bytes);
        assert!(first.iter().all(|pace| pace.is_first_round));
        // The next comes when the credit has been announced and used: a round trip later.
        let next = bring(&mut arrivals, RTT_NS, 8, 40_000, &mut arrived_bytes);
        assert!(next.iter().all(|pace| !pace.is_first_round));
        let expected = 40_000.0 * 16.0 / (RTT_NS as f64 / 1e9);
        assert!(!next.is_empty());
        for pace in &next {
            assert!((bytes_s(pace) / expected - 1.0).abs() < 0.01, "{pace:?}");
        }
    }

    /// A file server's client has said and heard some kilobytes before it opens its first file.
    #[test]
    fn the_first_round_trip_is_that_of_what_is_much() {
        let mut arrivals = Arrivals::default();
        for message in 1..6 {
            arrivals.pace(message * RTT_NS, message * 1000, RTT_NS);
        }
        let mut arrived_bytes = 5000;
        let first = bring(&mut arrivals, 6 * RTT_NS, 8, 40_000, &mut arrived_bytes);
        assert!(first.len() > 6 && first.iter().all(|pace| pace.is_first_round));
        let next = bring(&mut arrivals, 7 * RTT_NS, 8, 40_000, &mut arrived_bytes);
        assert!(next.iter().all(|pace| !pace.is_first_round));
    }

    #[test]
    fn what_comes_at_once_was_waited_for() {
        let mut arrivals = Arrivals::default();
        let first = arrivals.pace(0, 64_000, RTT_NS).unwrap();
        assert_eq!(first.elapsed_ns, RTT_NS / FIRST_SPAN_PART_MIN);
        arrivals.pace(RTT_NS, 64_001, RTT_NS);
        for frame in 1..10 {
            let pace = arrivals.pace(RTT_NS + frame, 64_001 + frame * 64_000, RTT_NS);
            assert_eq!(pace, None);
        }
    }

    #[test]
    fn a_pace_that_doubles_is_seen_within_a_quarter_of_a_round_trip() {
        let mut arrivals = Arrivals::default();
        let mut arrived_bytes = 0;
        bring(&mut arrivals, 0, 32, 1000, &mut arrived_bytes);
        let after = bring(&mut arrivals, 2 * RTT_NS, 8, 2000, &mut arrived_bytes);
        let expected = 2000.0 * 16.0 / (RTT_NS as f64 / 1e9);
        let last = after.last().unwrap();
        assert!((bytes_s(last) / expected - 1.0).abs() < 0.01, "{last:?}");
    }
}
