//! The tables of a calibration, made from its document alone.

use serde_json::Value;

use crate::measurement::{Measurement, Row};
use crate::table::{Cell, Mark, Table};

/// Titles and tables, in the order of the study.
pub fn tables(document: &Measurement) -> Vec<(&'static str, Table)> {
    let all: [(&'static str, Table); 4] = [
        (
            "Rate: goodput at the receiver (study: tables 20 and 21, TCP)",
            rates(document),
        ),
        (
            "Delay: mean round trip, half each way (study: tables 20 and 22)",
            delays(document),
        ),
        (
            "Loss: counted at the receiver (study: table 23)",
            losses(document),
        ),
        (
            "Departures of the emulator, by its own account",
            lateness(document),
        ),
    ];
    all.into_iter()
        .filter(|(_, table)| !table.is_empty())
        .collect()
}

fn rates(document: &Measurement) -> Table {
    let mut table = Table::new([
        "rate",
        "by",
        "expected",
        "measured",
        "accuracy",
        "allowed",
        "verdict",
        "study",
        "its accuracy",
    ]);
    for row in of_metric(document, "rate") {
        let error = beside(document, row, "rate_error");
        table.row(vec![
            row.scenario.clone().into(),
            row.config.clone().into(),
            number(row.limit, 4, " Mbit/s").into(),
            number(row.value, 4, " Mbit/s").into(),
            number(detail(row, "accuracy_percent"), 2, " %").into(),
            number(error.and_then(|row| row.target), 1, " %").into(),
            verdict(document, row),
            number(detail(row, "published_mbit"), 4, " Mbit/s").into(),
            number(detail(row, "published_accuracy_percent"), 2, " %").into(),
        ]);
    }
    table
}

fn delays(document: &Measurement) -> Table {
    let mut table = Table::new([
        "delay",
        "ping",
        "captured there",
        "captured back",
        "allowed",
        "verdict",
        "study",
        "its accuracy",
    ]);
    for row in of_metric(document, "rtt") {
        let one_way = |config: &str| {
            let mut rows = of_metric(document, "one_way");
            rows.find(|other| other.scenario == row.scenario && other.config == config)
                .and_then(|row| row.value)
        };
        let error = beside(document, row, "rtt_error");
        table.row(vec![
            row.scenario.clone().into(),
            number(row.value, 3, " ms").into(),
            number(one_way("capture forward"), 3, " ms").into(),
            number(one_way("capture backward"), 3, " ms").into(),
            number(error.and_then(|row| row.target), 2, " ms").into(),
            verdict(document, row),
            number(detail(row, "published_ms"), 3, " ms").into(),
            number(detail(row, "published_accuracy_percent"), 2, " %").into(),
        ]);
    }
    table
}

fn losses(document: &Measurement) -> Table {
    let mut table = Table::new([
        "loss",
        "packets",
        "lost",
        "99 % interval",
        "measured",
        "accuracy",
        "verdict",
        "study",
        "its accuracy",
    ]);
    for row in of_metric(document, "loss") {
        let whole = |key: &str| number(detail(row, key), 0, "");
        table.row(vec![
            row.scenario.clone().into(),
            whole("sent").into(),
            whole("lost").into(),
            interval(row).into(),
            number(row.value, 4, " %").into(),
            number(detail(row, "accuracy_percent"), 2, " %").into(),
            verdict(document, row),
            number(detail(row, "published_percent"), 2, " %").into(),
            number(detail(row, "published_accuracy_percent"), 0, " %").into(),
        ]);
    }
    table
}

fn lateness(document: &Measurement) -> Table {
    let mut table = Table::new(["runs", "99 of 100 within", "latest", "allowed", "verdict"]);
    for row in of_metric(document, "lateness_p99") {
        table.row(vec![
            row.scenario.clone().into(),
            number(row.value, 3, " ms").into(),
            number(detail(row, "max_ms"), 3, " ms").into(),
            number(row.target, 1, " ms").into(),
            verdict(document, row),
        ]);
    }
    table
}

fn of_metric<'a>(document: &'a Measurement, metric: &'a str) -> impl Iterator<Item = &'a Row> {
    document.rows.iter().filter(move |row| row.metric == metric)
}

/// The row of another metric for the same scenario and config.
fn beside<'a>(document: &'a Measurement, row: &'a Row, metric: &'a str) -> Option<&'a Row> {
    of_metric(document, metric)
        .find(|other| other.scenario == row.scenario && other.config == row.config)
}

/// Everything that was asked of a scenario and carrier, in a word; what
/// failed is named.
fn verdict(document: &Measurement, row: &Row) -> Cell {
    if let (Some(error), Some(false)) = (&row.error, row.ok) {
        // The whole text stands in the document.
        return Cell::marked(error.lines().next().unwrap_or_default(), Mark::Bad);
    }
    // All carriers of a delay stand in one line, those of a rate in their own.
    let is_beside = |other: &&Row| {
        other.scenario == row.scenario && (row.metric == "rtt" || other.config == row.config)
    };
    let asked: Vec<&Row> = document
        .rows
        .iter()
        .filter(is_beside)
        .filter(|row| row.ok.is_some())
        .collect();
    let failed: Vec<&str> = asked
        .iter()
        .filter(|row| row.ok == Some(false))
        .map(|row| row.metric.as_str())
        .collect();
    let remark = row.error.as_ref().map(|error| format!("; {error}"));
    let remark = remark.unwrap_or_default();
    match (asked.is_empty(), failed.is_empty()) {
        (true, _) => "".into(),
        (_, true) => Cell::marked(format!("holds{remark}"), Mark::Good),
        _ => Cell::marked(format!("{}{remark}", failed.join(", ")), Mark::Bad),
    }
}

fn detail(row: &Row, key: &str) -> Option<f64> {
    row.detail.get(key).and_then(Value::as_f64)
}

fn interval(row: &Row) -> String {
    let bound = |key: &str| detail(row, key);
    match bound("interval_99_low").zip(bound("interval_99_high")) {
        Some((low, high)) => format!("{low:.0} to {high:.0}"),
        None => String::new(),
    }
}

fn number(value: Option<f64>, decimals: usize, unit: &str) -> String {
    value.map_or_else(String::new, |value| format!("{value:.decimals$}{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Op;
    use crate::table::Screen;

    #[test]
    fn a_line_says_what_holds_and_what_does_not() {
        let mut document = Measurement::new("calibrate", "test", 1);
        let row = |metric: &str| Row::of("64k", "udp", metric, "%", 1.0);
        document
            .rows
            .push(row("rate").limit(2.0).detail("published_mbit", 0.05956));
        document
            .rows
            .push(row("rate_error").target(Op::AtMost, 1.0));
        document
            .rows
            .push(row("rate_error_beside_published").target(Op::AtMost, 0.7));
        document
            .rows
            .push(Row::failed("0.5%", "numbered udp", "loss", "%", "it broke"));
        let tables = tables(&document);
        let screen = Screen {
            columns: None,
            has_colour: false,
        };
        let text: Vec<String> = tables
            .iter()
            .map(|(_, table)| table.render(screen))
            .collect();
        assert_eq!(text.len(), 2, "tables without rows are left out");
        assert!(text[0].contains("rate_error_beside_published") && text[0].contains("0.0596"));
        assert!(!text[0].contains("holds"));
        assert!(text[1].contains("it broke"));
    }
}
