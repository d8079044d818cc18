//! Tables of a group and of a document's rows, as HTML.

use std::fmt::Write as _;

use serde_json::Value;

use super::figure::{ratio, study};
use super::group::{Against, Group, Point, Turn, turn};
use super::paper::{self, Printed};
use crate::measurement::{Op, Row};
use crate::plan;
use crate::probe::campaign::chart::escaped;
use crate::study::{BUFFERS, DIALECT, SERVER_BUFFERS};

/// What a configuration is, for the head of a table.
pub(super) fn config_words(config: &str) -> &'static str {
    match config {
        "B" => "B: nothing",
        "T" => "T: transport, compression, caching",
        "A" => "A: T and protocol",
        "F" => "F: transport with FEC",
        "AF" => "AF: A with FEC",
        _ => "other",
    }
}

/// A column's worth of a group: a configuration, and whether the study has it.
struct Column {
    config: &'static str,
    study: Vec<(f64, f64)>,
    /// Whether there is a baseline to hold it against.
    has_base: bool,
}

impl Column {
    fn has_benefit(&self) -> bool {
        self.has_base && self.config != "B"
    }

    /// Heads beneath the configuration's own.
    fn heads(&self) -> Vec<&'static str> {
        let benefit = self.has_benefit().then_some("benefit");
        let mut heads = vec!["ours", "of limit"];
        heads.extend(benefit);
        if !self.study.is_empty() {
            heads.push("study");
            heads.extend(benefit);
        }
        heads
    }

    /// What the study printed for a place.
    fn printed(&self, place: f64) -> Option<f64> {
        let mut points = self.study.iter();
        points.find(|(x, _)| *x == place).map(|(_, y)| *y)
    }

    /// Cells beneath those heads.
    fn cells(&self, group: &Group<'_>, point: &Point<'_>, base: &Self) -> String {
        let (value, row) = (point.value(self.config), point.row(self.config));
        let mark = row.map_or("", flag);
        let mut text = first_cell(value.map(|value| format!("{}{mark}", rate(value))));
        text += &cell(row.and_then(Row::share_of_limit).map(percent));
        if self.has_benefit() {
            text += &cell(ratio(value, point.value("B")).map(benefit));
        }
        if !self.study.is_empty() {
            let place = group.place(point);
            let printed = self.printed(place);
            text += &cell(printed.map(printed_rate));
            if self.has_benefit() {
                text += &cell(ratio(printed, base.printed(place)).map(benefit));
            }
        }
        text
    }
}

/// The study's table done again: ours beside its own and beside the limit.
pub(super) fn of_group(group: &Group<'_>, printed: &[Printed]) -> String {
    let column = |config: &'static str| Column {
        config,
        study: study(group, config, printed),
        has_base: group.points.iter().any(|point| point.row("B").is_some()),
    };
    let columns: Vec<Column> = group.configs().into_iter().map(column).collect();
    let base = column("B");
    let mut text = head(group, &columns);
    for point in &group.points {
        let place = match group.against {
            Against::Delay => format!("{} ms", point.delay_ms),
            Against::Loss => format!("{} %", plan::percent(point.loss)),
        };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "<tr><td>{place}</td>{}",
            cell(point.limit().map(rate))
        );
        text.extend(
            columns
                .iter()
                .map(|column| column.cells(group, point, &base)),
        );
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

fn head(group: &Group<'_>, columns: &[Column]) -> String {
    let first = match group.against {
        Against::Delay => "delay one way",
        Against::Loss => "loss",
    };
    let mut text = format!(
        "<div class=\"wide\"><table>\n<tr><th rowspan=\"2\">{first}</th><th rowspan=\"2\">limit</th>"
    );
    for column in columns {
        let (width, words) = (column.heads().len(), config_words(column.config));
        let _ = write!(text, "<th class=\"first\" colspan=\"{width}\">{words}</th>");
    }
    text += "</tr>\n<tr>";
    for (at, name) in columns
        .iter()
        .flat_map(|column| column.heads().into_iter().enumerate())
    {
        text += if at == 0 {
            "<th class=\"first\">"
        } else {
            "<th>"
        };
        let _ = write!(text, "{name}</th>");
    }
    text + "</tr>\n"
}

/// From which delay on each configuration pays, ours and the study's.
pub(super) fn turning_points(group: &Group<'_>, printed: &[Printed]) -> String {
    if group.against != Against::Delay {
        return String::new();
    }
    let mut text = String::new();
    for config in group.configs().into_iter().filter(|config| *config != "B") {
        let ours: Vec<_> = group
            .points
            .iter()
            .filter_map(|point| Some((point.delay_ms, point.value(config)?, point.value("B")?)))
            .collect();
        // All of its delays, whichever are there of ours.
        let base = paper::by_delay(printed, group.rate_mbit, "B");
        let theirs: Vec<_> = paper::by_delay(printed, group.rate_mbit, config)
            .into_iter()
            .zip(base)
            .filter(|_| !study(group, config, printed).is_empty())
            .map(|((at, value), (_, base))| (at, value, base))
            .collect();
        let Some(words) = turn(&ours).map(turn_words) else {
            continue;
        };
        let _ = write!(text, "<li>{config}: {words}");
        if let Some(words) = turn(&theirs).map(turn_words) {
            let _ = write!(text, "; in the study {words}");
        }
        text += "</li>\n";
    }
    match text.is_empty() {
        true => text,
        false => format!(
            "<p>Turning point, from which delay on it is no slower than B by more than 2 %:</p><ul>\n{text}</ul>\n"
        ),
    }
}

fn turn_words(turn: Turn) -> String {
    match turn {
        Turn::Always => "at every one measured with both".to_owned(),
        Turn::Never => "not at the longest measured".to_owned(),
        Turn::From(ms) => format!("from {ms:.0} ms on"),
    }
}

/// Every row of a document.
pub(super) fn of_rows(rows: &[Row]) -> String {
    let is_repeated = rows.iter().any(|row| row.n > Some(1));
    let range_head = if is_repeated {
        "<th>least to most (n)</th>"
    } else {
        ""
    };
    let mut text = format!(
        "<div class=\"wide\"><table>\n<tr><th>scenario</th><th>by</th><th>metric</th><th>value</th>{range_head}<th>limit</th><th>of limit</th><th>target</th><th>holds</th><th class=\"words\">remarks</th></tr>\n"
    );
    for row in rows {
        let range = match (row.n, row.min, row.max) {
            (Some(n), Some(least), Some(most)) if n > 1 => {
                Some(format!("{} to {} ({n})", plain(least), plain(most)))
            }
            _ => None,
        };
        let holds = match row.ok {
            Some(true) => "<td>yes</td>".to_owned(),
            Some(false) => "<td class=\"bad\">no</td>".to_owned(),
            None => "<td></td>".to_owned(),
        };
        let cells = [
            Some(row.scenario.clone()),
            Some(row.config.clone()),
            Some(row.metric.clone()),
            row.value
                .map(|value| format!("{} {}", plain(value), row.unit)),
        ];
        let held = [
            row.limit.map(plain),
            share_of_limit(row).map(percent),
            target(row),
        ];
        let range = is_repeated.then_some(range);
        let cells = cells.into_iter().chain(range).chain(held);
        text += "<tr>";
        text.extend(cells.map(|one| cell(one.map(|words| escaped(&words)))));
        text += &holds;
        let _ = writeln!(
            text,
            "<td class=\"words\">{}</td></tr>",
            escaped(&remarks(row))
        );
    }
    text + "</table></div>\n"
}

/// How near the limit a row is: where it is the least time, the limit's share of the value.
fn share_of_limit(row: &Row) -> Option<f64> {
    match row.metric.as_str() {
        "time" => row.share_of_limit().map(f64::recip),
        _ => row.share_of_limit(),
    }
    .filter(|share| share.is_finite())
}

fn target(row: &Row) -> Option<String> {
    let sign = match row.op? {
        Op::AtLeast => "≥",
        Op::AtMost => "≤",
    };
    Some(format!("{sign} {}", plain(row.target?)))
}

/// What one has to know of a row beside its number.
fn remarks(row: &Row) -> String {
    let mut words: Vec<String> = row.error.iter().cloned().collect();
    let detail = |key: &str| row.detail.get(key);
    let count = |key: &str| detail(key).and_then(Value::as_u64);
    // Of the copy that was cut short, which need not be the one in the middle; older documents do not tell them apart.
    let of_ended = |key: &str, middle: &str| count(key).or(count(middle)).unwrap_or(0);
    let mebibytes = of_ended("ended_bytes", "bytes") as f64 / f64::from(1 << 20);
    match detail("ended").and_then(Value::as_str) {
        Some("flat") => words.push(format!("ended when flat, after {mebibytes:.1} MiB")),
        Some("late") if detail("work").and_then(Value::as_str) == Some("folder") => {
            words.push(format!(
                "its time was up after {} of {} files; the value is what all take at that pace",
                of_ended("ended_files", "files_done"),
                count("files").unwrap_or(0)
            ));
        }
        Some("late") => words.push(format!("its time was up after {mebibytes:.1} MiB")),
        _ => {}
    }
    let reasons = row
        .detail
        .get("gateway")
        .and_then(|said| said["not_accelerated"].as_array());
    let reasons: Vec<_> = reasons
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !reasons.is_empty() {
        words.push(format!("protocol not accelerated: {}", reasons.join(", ")));
    }
    let dialect = detail(DIALECT).and_then(Value::as_str);
    words.extend(dialect.map(|dialect| format!("dialect {dialect}")));
    if let Some(window) = count("window_bytes_max") {
        words.push(format!("window of at most {window} bytes"));
    }
    // Of who receives: it bounds the window.
    let buffers = match detail("work").and_then(Value::as_str) {
        Some("write") => detail(SERVER_BUFFERS),
        _ => detail(BUFFERS),
    };
    words.extend(three(buffers).map(|bytes| format!("tcp_rmem {bytes}")));
    if let Some(each) = detail("requests_per_file").and_then(Value::as_f64) {
        words.push(format!("{each:.1} requests a file"));
    }
    words.join("; ")
}

/// Least, first and greatest buffer, as the kernel writes them.
fn three(bytes: Option<&Value>) -> Option<String> {
    let each = bytes?.as_array()?.iter();
    let each: Vec<String> = each.map(Value::to_string).collect();
    Some(each.join(" "))
}

/// A mark behind a value that is not what a whole, clean copy gave.
pub(super) fn flag(row: &Row) -> &'static str {
    let ended = row.detail.get("ended").and_then(Value::as_str);
    match (ended, row.error.is_some()) {
        (Some("flat"), false) => " *",
        (Some("flat"), true) => " *!",
        (Some("late"), false) => " †",
        (Some("late"), true) => " †!",
        (_, false) => "",
        (_, true) => " !",
    }
}

/// What those marks mean.
pub(super) const FLAGS: &str = "* ended when its throughput was flat; † its time was up; ! see the remarks of its row. \
     Where sizes differ the limit in the table is that of the largest transfer; what is of the limit is held against that of its own bytes, which stands in the list of all rows.";

/// A cell; empty where there is nothing to say.
pub(super) fn cell(words: Option<String>) -> String {
    format!("<td>{}</td>", words.unwrap_or_default())
}

/// The first of a configuration's.
pub(super) fn first_cell(words: Option<String>) -> String {
    format!("<td class=\"first\">{}</td>", words.unwrap_or_default())
}

fn rate(value: f64) -> String {
    format!("{value:.1}")
}

/// What could not be transferred at all stands there as 0.
fn printed_rate(value: f64) -> String {
    match value > 0.0 {
        true => rate(value),
        false => "failed".to_owned(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn benefit(times: f64) -> String {
    format!("{:+.1} %", (times - 1.0) * 100.0)
}

fn plain(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
