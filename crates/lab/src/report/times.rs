//! What is measured as time, folders, listings and documents, as a table; beside it what others' appliances did.

use std::fmt::Write as _;

use serde_json::Value;

use super::figure::ratio;
use super::tables::{cell, config_words, first_cell, flag};
use crate::measurement::Row;
use crate::probe::campaign::chart::escaped;

/// `docs/reference/README.md` has the source.
const STEELHEAD: &str = include_str!("../../../../docs/reference/steelhead_mobile.csv");

/// All configurations of one link, client and work.
struct Line<'a> {
    scenario: &'a str,
    rows: Vec<&'a Row>,
}

impl Line<'_> {
    fn row(&self, config: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.config == config).copied()
    }

    fn value(&self, config: &str) -> Option<f64> {
        self.row(config)?.value
    }

    fn detail(&self, key: &str) -> Option<f64> {
        let mut found = self.rows.iter();
        found.find_map(|row| row.detail.get(key)?.as_f64())
    }
}

/// The table with its heading; nothing where a document has no such rows.
pub(super) fn section(rows: &[Row]) -> String {
    let lines = lines(rows);
    if lines.is_empty() {
        return String::new();
    }
    let is_there = |config: &&str| lines.iter().any(|line| line.row(config).is_some());
    let configs: Vec<&str> = ["B", "T", "A", "F", "AF"]
        .into_iter()
        .filter(is_there)
        .collect();
    let mut text = format!(
        "<h3>Folders, listings and documents, s</h3>\n{}",
        head(&configs)
    );
    for line in &lines {
        text += &cells(line, &configs);
    }
    text += "</table></div>\n";
    text + &others()
}

fn lines(rows: &[Row]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let is_timed = |row: &&Row| row.metric == "time" && row.detail.contains_key("work");
    for row in rows.iter().filter(is_timed) {
        match lines.iter_mut().find(|line| line.scenario == row.scenario) {
            Some(line) => line.rows.push(row),
            None => lines.push(Line {
                scenario: &row.scenario,
                rows: vec![row],
            }),
        }
    }
    lines
}

fn head(configs: &[&str]) -> String {
    let mut text = String::from(
        "<div class=\"wide\"><table>\n<tr><th rowspan=\"2\">link, client and work</th><th rowspan=\"2\">files</th><th rowspan=\"2\">MB</th><th rowspan=\"2\">limit</th>",
    );
    for config in configs {
        let width = if *config == "B" { 2 } else { 3 };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "<th class=\"first\" colspan=\"{width}\">{}</th>",
            config_words(config)
        );
    }
    text += "</tr>\n<tr>";
    for config in configs {
        text += "<th class=\"first\">ours</th><th>requests a file</th>";
        text += if *config == "B" {
            ""
        } else {
            "<th>times as fast</th>"
        };
    }
    text + "</tr>\n"
}

fn cells(line: &Line<'_>, configs: &[&str]) -> String {
    let limits = line.rows.iter().filter_map(|row| row.limit);
    let facts = [
        Some(escaped(line.scenario)),
        line.detail("files").map(|files| format!("{files:.0}")),
        line.detail("size_bytes")
            .map(|bytes| format!("{:.1}", bytes / 1e6)),
        limits.reduce(f64::min).map(seconds),
    ];
    let mut text: String = facts.map(cell).concat();
    for config in configs {
        let row = line.row(config);
        let mark = row.map_or("", flag);
        let value = line.value(config);
        let requests = row.and_then(|row| row.detail.get("requests_per_file"));
        let requests = requests.and_then(Value::as_f64);
        text += &first_cell(value.map(|value| format!("{}{mark}", seconds(value))));
        text += &cell(requests.map(|each| format!("{each:.2}")));
        if *config != "B" {
            text += &cell(ratio(line.value("B"), value).map(times));
        }
    }
    format!("<tr>{text}</tr>\n")
}

/// What a known appliance did over such a link.
fn others() -> String {
    let mut text = String::from(
        "<p>For comparison, Riverbed Steelhead Mobile over a T1 with 500 ms of round trip, as InfoWorld measured it: the first pass, and one of what had passed before. Ours are first passes.</p>\n<div class=\"wide\"><table>\n<tr><th>work over CIFS</th><th>files</th><th>MB</th><th>direct</th><th>first pass</th><th>times as fast</th><th>second pass</th><th>times as fast</th></tr>\n",
    );
    for line in STEELHEAD.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [work, files, mbytes, _, _, times_s @ ..] = fields.as_slice() else {
            continue;
        };
        let times_s = times_s.iter().map(|field| field.parse::<f64>().ok());
        let [Some(direct_s), Some(cold_s), Some(warm_s), ..] = times_s.collect::<Vec<_>>()[..]
        else {
            continue;
        };
        let words = match *work {
            "folder" => "folder of small files copied",
            "document" => "spreadsheet opened, copied, saved, opened",
            _ => "one file copied",
        };
        let _ = writeln!(
            text,
            "<tr><td>{words}</td><td>{files}</td><td>{mbytes}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            clock(direct_s),
            clock(cold_s),
            times(direct_s / cold_s),
            clock(warm_s),
            times(direct_s / warm_s)
        );
    }
    text + "</table></div>\n"
}

fn seconds(value: f64) -> String {
    format!("{value:.1}")
}

fn times(value: f64) -> String {
    format!("{value:.1} ×")
}

/// Hours, minutes and seconds, as far as there are any.
fn clock(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    let (hours, minutes, seconds) = (whole / 3_600, whole / 60 % 60, whole % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_against_the_same_copy_without_gateways() {
        let row = |config: &str, value: f64| {
            Row::of("1.544M/250ms smbclient folder", config, "time", "s", value)
                .limit(54.7)
                .detail("work", "folder")
                .detail("files", 1_000)
                .detail("size_bytes", 10_000_000)
                .detail("requests_per_file", 4.14)
                .detail("ended", if config == "T" { "late" } else { "whole" })
        };
        let rows = [row("B", 2066.0), row("T", 2100.0), row("A", 82.0)];
        let text = section(&rows);
        for expected in [
            "<td>1000</td><td>10.0</td><td>54.7</td><td class=\"first\">2066.0</td><td>4.14</td><td class=\"first\">2100.0 †</td>",
            ">82.0</td><td>4.14</td><td>25.2 ×</td>",
            "<td>4:08:03</td><td>26:59</td><td>9.2 ×</td><td>20:28</td><td>12.1 ×</td>",
            "<td>45:45</td><td>1:19</td>",
        ] {
            assert!(text.contains(expected), "{expected} is not in {text}");
        }
        assert_eq!(section(&[]), "");
    }
}
