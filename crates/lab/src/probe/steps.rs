//! What tests of several rates or numbers of streams show together, in words.

use std::fmt::Write as _;

use super::diagnose::mbit;
use super::observe::{FlowResult, FlowWay, TcpResult};
use super::report::Observations;

/// Lines about what was tested in steps.
pub(super) fn of(seen: &Observations, text: &mut String) {
    for name in ["up", "down"] {
        let lines = [carried(&seen.flows, name), streams(&seen.tcp, name)];
        for line in lines.into_iter().flatten() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {line}");
        }
    }
}

fn flow_way<'a>(flow: &'a FlowResult, name: &str) -> Option<&'a FlowWay> {
    match name {
        "up" => flow.up.as_ref(),
        _ => flow.down.as_ref(),
    }
}

/// Up to which of several rates a direction carries everything, or nearly so.
fn carried(flows: &[FlowResult], name: &str) -> Option<String> {
    /// RFC 2544 26.1 allows none, over a cable in a laboratory.
    const LOSS_MAX: f64 = 0.001;
    /// What a sender that was held up did not send says nothing of its rate.
    const SENT_MIN: f64 = 0.95;
    let mut steps: Vec<(f64, f64)> = flows
        .iter()
        .filter_map(|flow| {
            let way = flow_way(flow, name)?;
            let is_sent = way.sent as f64 >= flow.plan.datagrams() as f64 * SENT_MIN;
            is_sent.then(|| (flow.plan.bit_per_s(), way.loss()))
        })
        .collect();
    if flows.len() < 2 || flows.iter().all(|flow| flow_way(flow, name).is_none()) {
        return None;
    }
    steps.sort_by(|one, other| one.0.total_cmp(&other.0));
    let lossy = steps.iter().position(|(_, loss)| *loss > LOSS_MAX);
    let whole = steps.get(..lossy.unwrap_or(steps.len()))?.last();
    let first_lossy = lossy.and_then(|at| steps.get(at));
    let most = LOSS_MAX * 100.0;
    let mut line = match whole {
        Some((rate, _)) => format!(
            "carried {name} with at most {most} % lost: up to {}",
            mbit(*rate)
        ),
        None => format!("carried {name} with at most {most} % lost: none of these rates"),
    };
    if let Some((rate, loss)) = first_lossy {
        // Writing to a String cannot fail.
        let _ = write!(line, "; at {} {:.2} % are lost", mbit(*rate), loss * 100.0);
    }
    let short = flows.len() - steps.len();
    if short > 0 {
        let _ = write!(
            line,
            "; {short} of {} were not sent as planned: a host is too slow for them",
            flows.len()
        );
    }
    Some(line)
}

/// Whether several streams carry more than one.
fn streams(tests: &[TcpResult], name: &str) -> Option<String> {
    /// Below, it may be an accident of the moment.
    const RATIO_MIN: f64 = 1.3;
    let steps = tests.iter().filter_map(|test| {
        let way = if name == "up" { &test.up } else { &test.down };
        Some((test.plan.streams, way.as_ref()?.steady_bit_per_s?))
    });
    let steps: Vec<(u16, f64)> = steps.collect();
    let one = steps.iter().min_by_key(|(streams, _)| *streams)?;
    let most = steps
        .iter()
        .max_by(|one, other| one.1.total_cmp(&other.1))?;
    if one.0 == most.0 || steps.len() < 2 {
        return None;
    }
    let words = |streams: u16| match streams {
        1 => "one stream".to_owned(),
        _ => format!("{streams} streams"),
    };
    let (few, more) = (mbit(one.1), mbit(most.1));
    let mut line = format!(
        "{} carry {more} {name}, {} {few}",
        words(most.0),
        words(one.0)
    );
    if most.1 >= one.1 * RATIO_MIN {
        line.push_str(": each is held back by its window, by loss or by its congestion control; `farhaul probe diagnose` tells them apart");
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::datagram_flow::{FlowCount, FlowPlan};
    use crate::probe::observe::{TcpWay, WayFigures};
    use crate::probe::tcp_test::{Direction, TcpPlan};

    fn flow(mbit: f64, sent_share: f64, lost_share: f64) -> FlowResult {
        let plan = FlowPlan::even(Direction::Up, 1000, mbit * 1e6, 1.0);
        let sent = (plan.datagrams() as f64 * sent_share) as u64;
        let lost = (sent as f64 * lost_share) as u64;
        let count = FlowCount::default();
        FlowResult {
            plan,
            up: Some(FlowWay { sent, lost, count }),
            down: None,
            other_sessions: 0,
        }
    }

    fn lines(seen: &Observations) -> String {
        let mut text = String::new();
        of(seen, &mut text);
        text
    }

    #[test]
    fn the_highest_rate_that_passes_is_named_in_whatever_order() {
        let mut seen = Observations {
            flows: vec![
                flow(50.0, 1.0, 0.31),
                flow(5.0, 1.0, 0.0),
                flow(20.0, 1.0, 0.0005),
            ],
            ..Observations::default()
        };
        let text = lines(&seen);
        assert!(
            text.contains("at most 0.1 % lost: up to 20.0 Mbit/s; at 50.0 Mbit/s 30.99 %"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1);
        // Not above a rate that does not pass, and not what was never sent.
        seen.flows.push(flow(90.0, 1.0, 0.0));
        seen.flows.push(flow(900.0, 0.5, 0.0));
        let text = lines(&seen);
        assert!(
            text.contains("up to 20.0 Mbit/s") && text.contains("1 of 5 were not sent"),
            "{text}"
        );
        seen.flows = vec![flow(5.0, 1.0, 0.2), flow(50.0, 1.0, 0.3)];
        assert!(
            lines(&seen).contains("none of these rates; at 5.00 Mbit/s 20.0"),
            "{}",
            lines(&seen)
        );
        seen.flows.truncate(1);
        assert_eq!(lines(&seen), "");
        seen.flows = vec![flow(5.0, 0.1, 0.0), flow(50.0, 0.1, 0.0)];
        assert!(
            lines(&seen).contains("2 of 2 were not sent"),
            "{}",
            lines(&seen)
        );
    }

    fn tcp(streams: u16, mbit: f64) -> TcpResult {
        TcpResult {
            plan: TcpPlan {
                streams,
                ..TcpPlan::new(Direction::Up, 1000)
            },
            up: Some(TcpWay {
                mean_bit_per_s: Some(mbit * 1e6),
                steady_bit_per_s: Some(mbit * 1e6),
                figures: WayFigures::default(),
                streams: Vec::new(),
            }),
            down: None,
            other_sessions: 0,
        }
    }

    #[test]
    fn streams_that_carry_more_together_are_a_hint() {
        let seen = |tests: &[(u16, f64)]| Observations {
            tcp: tests
                .iter()
                .map(|(streams, mbit)| tcp(*streams, *mbit))
                .collect(),
            ..Observations::default()
        };
        let text = lines(&seen(&[(1, 12.0), (8, 94.0), (4, 48.0)]));
        assert!(
            text.contains("8 streams carry 94.0 Mbit/s up, one stream 12.0 Mbit/s: each is held"),
            "{text}"
        );
        let text = lines(&seen(&[(1, 90.0), (4, 94.0)]));
        assert!(
            text.contains("4 streams carry 94.0 Mbit/s up, one stream 90.0 Mbit/s\n"),
            "{text}"
        );
        assert_eq!(lines(&seen(&[(1, 90.0)])), "");
        // The fewest carry the most: nothing is to be said of more.
        assert_eq!(lines(&seen(&[(1, 95.0), (4, 94.0)])), "");
    }
}
