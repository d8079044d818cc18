//! A campaign for people, as lines.

use std::fmt::Write as _;

use super::group::{Distribution, Group};
use super::summary::Campaign;
use super::{way_name, window_name};
use crate::table::{Cell, Screen, Table};

/// As lines.
pub fn of(campaign: &Campaign, screen: Screen) -> String {
    let mut text = format!(
        "campaign to {}: {}\n",
        campaign.subject.target,
        sizes(campaign)
    );
    for line in facts(campaign) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{line}");
    }
    if campaign.runs_done > 0 {
        let _ = write!(
            text,
            "\npayload, Mbit/s (10^6 bit/s)\n{}",
            table(campaign).render(screen)
        );
    }
    text
}

/// How many runs of what.
pub(super) fn sizes(campaign: &Campaign) -> String {
    let test = &campaign.subject.test;
    let words = test.words();
    let every = match campaign.every_ms {
        None => "back to back".to_owned(),
        Some(ms) => format!("every {}", seconds(ms)),
    };
    format!(
        "{} of {} runs of {} {words}, {every}",
        campaign.runs_done,
        campaign.runs_planned,
        seconds(test.duration_ms())
    )
}

/// Times, failures, and what disturbed.
pub(super) fn facts(campaign: &Campaign) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(first), Some(last)) = (&campaign.first_start, &campaign.last_start) {
        let starts = match campaign.starts {
            0 | 1 => String::new(),
            starts => format!(", begun or gone on with {starts} times"),
        };
        lines.push(format!("first run {first}, last run {last}{starts}"));
    }
    for one in &campaign.failures {
        lines.push(format!(
            "{} failed ({}), runs {} to {}: {}",
            one.runs, one.code, one.first_run, one.last_run, one.text
        ));
    }
    if campaign.runs_disturbed > 0 {
        lines.push(format!(
            "{} runs shared the server with other clients",
            campaign.runs_disturbed
        ));
    }
    lines
}

/// Milliseconds as seconds.
fn seconds(ms: u64) -> String {
    format!("{} s", super::chart::number_text(ms as f64 / 1e3))
}

/// Heads of the table of rates.
pub(super) fn heads(campaign: &Campaign) -> Vec<&'static str> {
    let is_udp = campaign.subject.test.is_udp();
    let mut heads = vec!["way"];
    if !is_udp {
        heads.push("window");
    }
    heads.extend([
        "runs", "failed", "min", "p5", "median", "p95", "max", "mean",
    ]);
    if campaign.circuit_bit_per_s.is_some() {
        heads.push("% of circuit");
    }
    heads.extend(match is_udp {
        true => ["lost", "lost p95", "lost max", "out of order", "jitter, ms"].iter(),
        false => ["window / RTT", "window-limited", "sent again"].iter(),
    });
    heads
}

/// Cells of a group's row.
pub(super) fn cells(group: &Group, campaign: &Campaign) -> Vec<String> {
    let is_udp = campaign.subject.test.is_udp();
    let mut cells = vec![way_name(group.direction).to_owned()];
    if !is_udp {
        cells.push(window_name(group.window_bytes));
    }
    cells.extend([group.runs.to_string(), group.failed.to_string()]);
    let rate = |of: fn(&Distribution) -> f64| group.bit_per_s.as_ref().map(of);
    let rates = [
        rate(|all| all.min),
        rate(|all| all.p5),
        rate(|all| all.median),
        rate(|all| all.p95),
        rate(|all| all.max),
        rate(|all| all.mean),
    ];
    cells.extend(rates.map(mbit));
    if campaign.circuit_bit_per_s.is_some() {
        let median = group.utilisation.as_ref().map(|share| share.percent.median);
        cells.push(percent(median, 1));
    }
    match is_udp {
        true => cells.extend(udp_cells(group)),
        false => {
            cells.push(mbit(group.window_rate_bit_per_s));
            cells.push(percent(group.window_limited_percent, 0));
            cells.push(percent(group.retransmitted_percent, 3));
        }
    }
    cells
}

fn udp_cells(group: &Group) -> [String; 5] {
    let lost = |of: fn(&Distribution) -> f64| percent(group.lost_percent.as_ref().map(of), 3);
    let jitter = group.jitter_us.map(|us| format!("{:.3}", us / 1e3));
    [
        lost(|all| all.mean),
        lost(|all| all.p95),
        lost(|all| all.max),
        percent(group.reordered_percent, 3),
        jitter.unwrap_or_else(|| "?".to_owned()),
    ]
}

fn percent(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "?".to_owned(), |value| format!("{value:.digits$} %"))
}

fn mbit(bit_per_s: Option<f64>) -> String {
    let mbit = bit_per_s.map(|rate| rate / 1e6);
    match mbit {
        None => "?".to_owned(),
        Some(mbit) if mbit < 10.0 => format!("{mbit:.3}"),
        Some(mbit) if mbit < 100.0 => format!("{mbit:.2}"),
        Some(mbit) => format!("{mbit:.1}"),
    }
}

fn table(campaign: &Campaign) -> Table {
    let mut table = Table::new(heads(campaign));
    for group in &campaign.groups {
        let cells = cells(group, campaign);
        table.row(cells.into_iter().map(Cell::from).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::summary::Summary;
    use super::super::tests::{good, iperf3_plan, start, start_of, subject_of};
    use super::super::{Line, Start, Test};
    use super::*;

    fn text_of(start: &Start, rates: &[u64]) -> String {
        let mut summary = Summary::new(start.clone());
        for (number, rate) in (1..).zip(rates) {
            summary.take(&Line::Run(good(number, &start.subject, *rate)));
        }
        let screen = Screen {
            columns: None,
            has_colour: false,
        };
        of(&summary.campaign(), screen)
    }

    #[test]
    fn datagrams_have_other_columns() {
        let start = start_of(subject_of(Test::Iperf3(iperf3_plan(true))), 9);
        let text = text_of(&start, &[4_900_000, 4_800_000]);
        assert!(
            text.contains("2 of 9 runs of 1 s UDP with iperf3 up, 5 Mbit/s"),
            "{text}"
        );
        for wanted in ["lost p95", "out of order", "0.150 %", "0.200 %", "1.500"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(!text.contains("window"), "{text}");
    }

    #[test]
    fn a_table_names_units_and_runs() {
        let start = start(&[Some(8192), None], 4);
        let text = text_of(&start, &[6_400_000, 918_090_000, 6_500_000]);
        assert!(
            text.contains("3 of 4 runs of 0.1 s TCP up, back to back"),
            "{text}"
        );
        assert!(
            text.contains("Mbit/s") && text.contains("918.1") && text.contains("91.8 %"),
            "{text}"
        );
        assert!(
            text.contains("8 KB") && text.contains("hosts' own"),
            "{text}"
        );
    }
}
