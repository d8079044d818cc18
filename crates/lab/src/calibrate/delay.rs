//! Delays: table 22 of the study, and the delay of table 20.

use super::capture::Captures;
use super::reference::{Published, published};
use super::{Bench, CalibrateOptions, Hosts, Lateness, left_address, right_address};
use crate::deployment::Lab;
use crate::error::LabError;
use crate::measurement::{Op, Row};

/// Round trips in milliseconds, half of each on either way.
const RTT_MS: [u64; 7] = [0, 2, 10, 40, 100, 200, 2000];
const PINGS: u64 = 1_000;
const PINGS_QUICK: u64 = 100;
const INTERVAL_S: &str = "0.01";
/// A run whose latest departure was later than this says more about the
/// machine than about the emulator: it is measured again.
const LATENESS_MAX_MS: f64 = 2.0;
/// How far the mean may lie off: the larger of both.
const ALLOWED_MS: f64 = 0.3;
const ALLOWED_SHARE: f64 = 0.005;

/// What one run measured, in milliseconds.
struct Delays {
    /// Mean round trip by ping.
    ping_mean_ms: f64,
    ping_min_ms: f64,
    ping_max_ms: f64,
    pings: u64,
    forward_ms: Vec<f64>,
    backward_ms: Vec<f64>,
}

pub(super) fn stages() -> usize {
    1 + RTT_MS.len()
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<(), LabError> {
    let pings = if bench.options.is_quick {
        PINGS_QUICK
    } else {
        PINGS
    };
    let options = bench.options;
    let stage = format!("delay over a kernel bridge, {pings} pings");
    let bridge = bench.with_lab(&stage, None, |lab| measure(lab, options, pings))?;
    let row = match bridge {
        Ok((delays, _)) => {
            let row = Row::of("no emulator", "ping", "rtt", "ms", delays.ping_mean_ms);
            let row = row.detail("pings", delays.pings);
            with_published(row, published("rtt-switch", 0.0))
        }
        Err(error) => Row::failed("no emulator", "ping", "rtt", "ms", error.to_string()),
    };
    bench.document.rows.push(row);
    for rtt_ms in RTT_MS {
        let scenario = format!("{rtt_ms}ms rtt");
        let words = format!("rtt {rtt_ms}ms");
        let stage = format!("delay {rtt_ms} ms, {pings} pings");
        let outcome =
            bench.quietest(&stage, &words, is_quiet, |lab| measure(lab, options, pings))?;
        let rows = match outcome {
            Ok((delays, lateness)) => rows(&scenario, rtt_ms as f64, &delays, lateness),
            Err(error) => vec![Row::failed(
                &scenario,
                "ping",
                "rtt",
                "ms",
                error.to_string(),
            )],
        };
        bench.document.rows.extend(rows);
    }
    Ok(())
}

fn is_quiet(lateness: Lateness) -> bool {
    lateness.max_ms <= LATENESS_MAX_MS
}

fn measure(lab: &mut Lab, options: &CalibrateOptions, pings: u64) -> Result<Delays, LabError> {
    let hosts = Hosts::of(lab, options)?;
    // The first packet of all pays for page faults and neighbour tables.
    hosts
        .left
        .exec(&["ping", "-n", "-q", "-c", "3", "-i", "0.1", &right_address()])?;
    let captures = Captures::start(lab)?;
    let count = pings.to_string();
    let (from, to) = (left_address(), right_address());
    let words = [
        "env", "LC_ALL=C", "ping", "-n", "-q", "-c", &count, "-i", INTERVAL_S, "-I", &from, &to,
    ];
    let text = hosts.left.exec(&words)?;
    let (forward_ms, backward_ms) = captures.finish(lab)?;
    let (received, [ping_min_ms, ping_mean_ms, ping_max_ms]) =
        read_ping(&text).ok_or_else(|| LabError::Invalid {
            what: "the output of ping".to_owned(),
            why: text.clone(),
        })?;
    for (way, times) in [("forward", &forward_ms), ("backward", &backward_ms)] {
        if times.len() as u64 != pings || received != pings {
            return Err(LabError::Invalid {
                what: format!("the pings captured {way}"),
                why: format!("{} of {pings}, {received} answered", times.len()),
            });
        }
    }
    Ok(Delays {
        ping_mean_ms,
        ping_min_ms,
        ping_max_ms,
        pings,
        forward_ms,
        backward_ms,
    })
}

/// Answers received, and least, mean and greatest round trip in milliseconds.
fn read_ping(text: &str) -> Option<(u64, [f64; 3])> {
    let received = text
        .split(" received")
        .next()?
        .rsplit(' ')
        .next()?
        .parse()
        .ok()?;
    let (_, numbers) = text.split_once("rtt min/avg/max/mdev = ")?;
    let mut numbers = numbers.split('/').map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    Some((received, [next()?, next()?, next()?]))
}

fn rows(scenario: &str, rtt_ms: f64, delays: &Delays, lateness: Option<Lateness>) -> Vec<Row> {
    let published = published("rtt", rtt_ms);
    let mut rows = ping_rows(scenario, rtt_ms, delays, lateness);
    if let Some(row) = rows.first_mut() {
        *row = with_published(row.clone(), published);
    }
    if let Some(reference) = published.filter(|_| rtt_ms > 0.0) {
        // Ping includes the hosts' time, the study's and ours alike; the
        // captures leave ours out.
        let reference_ms = (reference.actual - rtt_ms).abs();
        let both_ms = mean(&delays.forward_ms) + mean(&delays.backward_ms);
        for (config, ms) in [("captures", both_ms), ("ping", delays.ping_mean_ms)] {
            let metric = "rtt_error_beside_published";
            let row = Row::of(scenario, config, metric, "ms", (ms - rtt_ms).abs());
            rows.push(row.target(Op::AtMost, reference_ms));
        }
    }
    rows.extend(one_way_rows(
        scenario,
        "capture forward",
        rtt_ms,
        &delays.forward_ms,
    ));
    rows.extend(one_way_rows(
        scenario,
        "capture backward",
        rtt_ms,
        &delays.backward_ms,
    ));
    rows
}

fn ping_rows(scenario: &str, rtt_ms: f64, delays: &Delays, lateness: Option<Lateness>) -> Vec<Row> {
    let mut row = Row::of(scenario, "ping", "rtt", "ms", delays.ping_mean_ms)
        .limit(rtt_ms)
        .detail("pings", delays.pings)
        .detail("min_ms", delays.ping_min_ms)
        .detail("max_ms", delays.ping_max_ms);
    if let Some(lateness) = lateness {
        row = row
            .detail("lateness_p99_ms", lateness.p99_ms)
            .detail("lateness_max_ms", lateness.max_ms);
        let is_late = lateness.max_ms > LATENESS_MAX_MS;
        row.error = is_late.then(|| {
            let late_ms = lateness.max_ms;
            format!("a departure was {late_ms:.1} ms late: the machine was busy")
        });
    }
    let error_ms = (delays.ping_mean_ms - rtt_ms).abs();
    let error = Row::of(scenario, "ping", "rtt_error", "ms", error_ms);
    vec![row, error.target(Op::AtMost, allowed_ms(rtt_ms))]
}

/// The value is the mean, beside the samples' median, least and greatest.
fn one_way_rows(scenario: &str, config: &str, rtt_ms: f64, times_ms: &[f64]) -> [Row; 2] {
    let one_way_ms = rtt_ms / 2.0;
    let mean_ms = mean(times_ms);
    let mut row = Row::of_samples(scenario, config, "one_way", "ms", times_ms)
        .limit(one_way_ms)
        .detail("value_is", "mean");
    row.value = Some(mean_ms);
    let error_ms = (mean_ms - one_way_ms).abs();
    let error = Row::of(scenario, config, "one_way_error", "ms", error_ms);
    [row, error.target(Op::AtMost, allowed_ms(one_way_ms))]
}

fn allowed_ms(delay_ms: f64) -> f64 {
    ALLOWED_MS.max(ALLOWED_SHARE * delay_ms)
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

fn with_published(row: Row, published: Option<Published>) -> Row {
    match published {
        Some(Published {
            actual,
            accuracy_percent,
        }) => row
            .detail("published_ms", actual)
            .detail("published_accuracy_percent", accuracy_percent),
        None => row,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_summary_is_read() {
        let text = "PING 10.9.0.2 (10.9.0.2) from 10.9.0.1 : 56(84) bytes of data.\n\n\
                    --- 10.9.0.2 ping statistics ---\n\
                    100 packets transmitted, 99 received, 1% packet loss, time 1010ms\n\
                    rtt min/avg/max/mdev = 0.022/0.031/0.063/0.009 ms, pipe 2\n";
        assert_eq!(read_ping(text), Some((99, [0.022, 0.031, 0.063])));
        assert_eq!(read_ping("ping: sendmsg: Network is unreachable"), None);
    }

    #[test]
    fn a_row_is_held_against_the_tolerance_and_the_study() {
        let delays = Delays {
            ping_mean_ms: 100.2,
            ping_min_ms: 100.0,
            ping_max_ms: 101.0,
            pings: 2,
            forward_ms: vec![50.1, 50.3],
            backward_ms: vec![50.4, 50.4],
        };
        let rows = rows("100ms rtt", 100.0, &delays, None);
        let ok = |config: &str, metric: &str| {
            let row = rows
                .iter()
                .find(|row| row.config == config && row.metric == metric);
            row.unwrap().ok
        };
        assert_eq!(ok("ping", "rtt_error"), Some(true));
        assert_eq!(ok("capture forward", "one_way_error"), Some(true));
        assert_eq!(ok("capture backward", "one_way_error"), Some(false));
        // 100.6 ms by the captures; the study had 99.89.
        assert_eq!(ok("captures", "rtt_error_beside_published"), Some(false));
        assert_eq!(ok("ping", "rtt_error_beside_published"), Some(false));
        assert!((allowed_ms(200.0) - 1.0).abs() < 1e-9);
    }
}
