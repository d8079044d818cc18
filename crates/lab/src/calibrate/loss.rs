//! Losses: table 23 of the study, and 10 %.

use super::numbered::{self, Count};
use super::reference::published;
use super::{Bench, Hosts, Lateness, binomial};
use crate::error::LabError;
use crate::measurement::{Op, Row};

const LOSS_PERCENT: [f64; 7] = [0.0, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0];
/// Below 1 % it takes a million packets to tell right from nearly right.
const PACKETS_RARE: u64 = 1_100_000;
const PACKETS: u64 = 110_000;
const PACKETS_QUICK: u64 = 20_000;
const CONFIDENCE: f64 = 0.99;

pub(super) fn stages() -> usize {
    LOSS_PERCENT.len()
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), LabError> {
    for percent in LOSS_PERCENT {
        let packets = match percent {
            _ if bench.options.is_quick => PACKETS_QUICK,
            percent if percent < 1.0 => PACKETS_RARE,
            _ => PACKETS,
        };
        let stage = format!("loss {percent} %, {packets} packets");
        let words = format!("loss {percent}%");
        let options = bench.options;
        let outcome = bench.quietest(&stage, &words, Lateness::is_undisturbed, |lab| {
            numbered::send(&Hosts::of(lab, options)?, packets)
        })?;
        bench.document.rows.extend(rows(percent, outcome));
    }
    Ok(())
}

fn rows(percent: f64, outcome: Result<(Count, Option<Lateness>), LabError>) -> Vec<Row> {
    let scenario = format!("{percent}%");
    let (count, lateness) = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            return vec![Row::failed(
                &scenario,
                "numbered udp",
                "loss",
                "%",
                error.to_string(),
            )];
        }
    };
    let (low, high) = binomial::interval(count.sent, percent / 100.0, CONFIDENCE);
    let measured = count.lost() as f64 / count.sent as f64 * 100.0;
    let mut row = Row::of(&scenario, "numbered udp", "loss", "%", measured)
        .limit(percent)
        .detail("sent", count.sent)
        .detail("lost", count.lost())
        .detail("interval_99_low", low)
        .detail("interval_99_high", high)
        .detail("duplicates", count.duplicates)
        .detail("out_of_order", count.out_of_order);
    if percent > 0.0 {
        row = row.detail("accuracy_percent", measured / percent * 100.0);
    }
    if let Some(lateness) = lateness {
        row = row.detail("lateness_p99_ms", lateness.p99_ms);
    }
    if let Some(published) = published("loss", percent) {
        row = row
            .detail("published_percent", published.actual)
            .detail("published_accuracy_percent", published.accuracy_percent);
    }
    // How far from the expected number, and how far the interval reaches on
    // that side.
    let expected = count.sent as f64 * percent / 100.0;
    let lost = count.lost() as f64;
    let reach = if lost < expected {
        expected - low as f64
    } else {
        high as f64 - expected
    };
    let error = Row::of(
        &scenario,
        "numbered udp",
        "loss_error",
        "packets",
        (lost - expected).abs(),
    )
    .target(Op::AtMost, reach);
    let strange = (count.duplicates + count.out_of_order) as f64;
    let order = Row::of(
        &scenario,
        "numbered udp",
        "copied_or_swapped",
        "packets",
        strange,
    )
    .target(Op::AtMost, 0.0);
    vec![row, error, order]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(percent: f64, sent: u64, lost: u64) -> Option<bool> {
        let count = Count {
            sent,
            received: sent - lost,
            duplicates: 0,
            out_of_order: 0,
        };
        rows(percent, Ok((count, None)))[1].ok
    }

    #[test]
    fn the_interval_decides() {
        let (low, high) = binomial::interval(110_000, 0.01, CONFIDENCE);
        assert_eq!(ok(1.0, 110_000, low), Some(true));
        assert_eq!(ok(1.0, 110_000, high), Some(true));
        assert_eq!(ok(1.0, 110_000, low - 1), Some(false));
        assert_eq!(ok(1.0, 110_000, high + 1), Some(false));
        assert_eq!(ok(0.0, 1_100_000, 0), Some(true));
        assert_eq!(ok(0.0, 1_100_000, 1), Some(false));
    }

    #[test]
    fn copies_are_a_failure_of_their_own() {
        let count = Count {
            sent: 10,
            received: 10,
            duplicates: 1,
            out_of_order: 0,
        };
        assert_eq!(rows(0.0, Ok((count, None)))[2].ok, Some(false));
    }
}
