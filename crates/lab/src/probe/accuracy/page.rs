//! The document as a page of tables, from its rows alone. What misses its target
//! is in bold.

use std::fmt::Write;

use super::document::{DATE, part_of};
use super::{beside, endurance};
use crate::measurement::{Machine, Measurement, Row};

/// All of it in Markdown.
pub(super) fn page(document: &Measurement) -> String {
    let rows = Rows(&document.rows);
    let mut text = format!(
        "# How often the circuit tester is right\n\nCommit {}, {}, seed {}. {}. {}.\n\nBold is what misses its target.\n",
        document.commit.as_deref().unwrap_or("unknown"),
        dates(document),
        document.seed,
        machine(&document.machine),
        document.plan,
    );
    accuracy(&rows, &mut text);
    windows(&rows, "memo", "The memo's windows", &mut text);
    windows(
        &rows,
        "windows",
        "Windows of whole segments by round trip",
        &mut text,
    );
    beside_iperf3(&rows, &mut text);
    campaign(&rows, &mut text);
    failures(&rows, &mut text);
    text
}

/// When its parts were begun.
fn dates(document: &Measurement) -> String {
    let dates = || {
        let rows = document.rows.iter();
        rows.filter_map(|row| row.detail.get(DATE)?.as_str())
    };
    match (dates().min(), dates().max()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        (Some(only), _) => only.to_owned(),
        (None, _) => document.date.clone(),
    }
}

fn machine(machine: &Machine) -> String {
    const GIB: f64 = 1_073_741_824.0;
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let count = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let memory = machine.memory_bytes.map_or_else(
        || "?".to_owned(),
        |bytes| format!("{:.1}", bytes as f64 / GIB),
    );
    format!(
        "{}, {} processors, {memory} GiB, {}, Linux {}",
        known(&machine.processor),
        count(machine.cores),
        known(&machine.system),
        known(&machine.kernel)
    )
}

struct Rows<'a>(&'a [Row]);

impl<'a> Rows<'a> {
    fn part(&self, part: &str) -> impl Iterator<Item = &'a Row> {
        self.0.iter().filter(move |row| part_of(row) == part)
    }

    /// Of the same circumstances, another one.
    fn beside(&self, row: &Row, config: &str, metric: &str) -> Option<&'a Row> {
        let mut all = self.0.iter();
        all.find(|other| {
            other.scenario == row.scenario && other.config == config && other.metric == metric
        })
    }
}

/// A cell; `-` where nothing was measured.
fn number(value: Option<f64>, digits: usize, ok: Option<bool>) -> String {
    let Some(value) = value else {
        return "-".to_owned();
    };
    bold(format!("{value:.digits$}"), ok)
}

/// A share in percent.
fn percent(row: Option<&Row>) -> String {
    let Some(value) = row.and_then(|row| row.value) else {
        return "-".to_owned();
    };
    let text = format!("{:.1} %", value * 100.0);
    bold(text, row.and_then(|row| row.ok))
}

fn bold(text: String, ok: Option<bool>) -> String {
    match ok {
        Some(false) => format!("**{text}**"),
        _ => text,
    }
}

fn line(cells: &[String], text: &mut String) {
    let cells = cells.iter().map(|cell| plain(cell).replace('|', "\\|"));
    // Writing to a String cannot fail.
    let _ = writeln!(text, "| {} |", cells.collect::<Vec<_>>().join(" | "));
}

/// In one line.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn table(title: &str, head: &[&str], lines: &[Vec<String>], text: &mut String) {
    if lines.is_empty() {
        return;
    }
    let _ = write!(text, "\n## {title}\n\n");
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    line(&head, text);
    line(&vec!["---".to_owned(); head.len()], text);
    for cells in lines {
        line(cells, text);
    }
}

/// The metric that circuits without a fault have.
const ALARMS: &str = "false alarms";

fn accuracy(rows: &Rows<'_>, text: &mut String) {
    let is_plant = |row: &&Row| row.metric == "right verdicts" || row.metric == ALARMS;
    let cells = |row: &Row| {
        let told = |key: &str| row.detail.get(key).and_then(|value| value.as_u64());
        let count = |key: &str| told(key).map_or_else(|| "-".to_owned(), |n| n.to_string());
        let counted = format!("{} of {}", count("runs_counted"), count("runs_planned"));
        let is_whole = told("runs_counted") == told("runs_planned");
        let is_undecided = told("runs_counted") < told("runs_asked");
        let share = match is_undecided {
            true => format!("{} (not decided)", percent(Some(row))),
            false => percent(Some(row)),
        };
        let right = count("runs_right");
        // No circuit without a fault is called right by its share, but by its alarms.
        let (right, alarms) = match row.metric.as_str() {
            ALARMS => (right, share),
            _ => (format!("{right}, {share}"), "-".to_owned()),
        };
        let held_up = format!(
            "{} ({} right)",
            count("attempts_held_up"),
            count("attempts_held_up_right")
        );
        vec![
            row.scenario.clone(),
            bold(counted, Some(is_whole)),
            right,
            alarms,
            count("runs_without_verdict"),
            held_up,
            count("attempts_failed"),
        ]
    };
    let lines: Vec<_> = rows.0.iter().filter(is_plant).map(cells).collect();
    let head = [
        "plant",
        "runs counted",
        "right",
        ALARMS,
        "without verdict",
        "held up by the machine, not counted",
        "lab failures",
    ];
    table("Planted faults", &head, &lines, text);
}

fn windows(rows: &Rows<'_>, part: &str, title: &str, text: &mut String) {
    let is_rate = |row: &&Row| row.metric == "throughput";
    let cells = |row: &Row| {
        let of = |metric: &str| percent(rows.beside(row, &row.config, metric));
        let runs = row.n.map_or_else(|| "-".to_owned(), |n| n.to_string());
        vec![
            row.scenario
                .split_once(' ')
                .map_or("", |(_, name)| name)
                .to_owned(),
            row.config.trim_start_matches("window ").to_owned(),
            runs,
            number(row.limit, 2, None),
            number(row.value, 2, row.ok),
            format!(
                "{} to {}",
                number(row.min, 2, None),
                number(row.max, 2, None)
            ),
            of("off window / RTT"),
            of("utilisation"),
        ]
    };
    let lines: Vec<_> = rows.part(part).filter(is_rate).map(cells).collect();
    let head = [
        "circuit",
        "window, bytes",
        "runs",
        "predicted, Mbit/s",
        "measured (median)",
        "least to most",
        "off",
        "utilisation",
    ];
    table(title, &head, &lines, text);
}

fn beside_iperf3(rows: &Rows<'_>, text: &mut String) {
    let is_judged = |row: &&Row| row.metric == "off iperf3";
    let cells = |row: &Row| {
        let rate = |name: &str| {
            let config = format!("{name} {}", row.config);
            let rate = rows.beside(row, &config, "throughput");
            number(rate.and_then(|row| row.value), 3, None)
        };
        let (_, circuit) = row.scenario.split_once(' ').unwrap_or_default();
        vec![
            circuit.trim_matches(['[', ']']).to_owned(),
            row.config.clone(),
            rate("iperf3"),
            rate("probe"),
            percent_of_two(row),
        ]
    };
    let part = rows.part(beside::NAME);
    let lines: Vec<_> = part.filter(is_judged).map(cells).collect();
    let head = ["circuit", "way", "iperf3, Mbit/s", "probe, Mbit/s", "off"];
    table("Beside iperf3", &head, &lines, text);
}

/// What must be within 1 % needs a digit more.
fn percent_of_two(row: &Row) -> String {
    match row.value {
        Some(value) => bold(format!("{:.2} %", value * 100.0), row.ok),
        None => "-".to_owned(),
    }
}

fn campaign(rows: &Rows<'_>, text: &mut String) {
    let cells = |row: &Row| {
        let looks = row.detail.iter().filter_map(|(key, kb)| {
            let runs = key.strip_prefix("kb_after_")?.strip_suffix("_runs")?;
            Some((runs.parse::<u32>().ok()?, kb.as_u64()?))
        });
        let mut looks: Vec<_> = looks.collect();
        looks.sort_unstable();
        let looks = looks
            .iter()
            .map(|(runs, kb)| format!("{kb} kB after {runs}"));
        let digits = if row.unit == "runs" { 0 } else { 3 };
        vec![
            row.metric.clone(),
            row.config.clone(),
            number(row.value, digits, row.ok),
            looks.collect::<Vec<_>>().join(", "),
        ]
    };
    let lines: Vec<_> = rows.part(endurance::NAME).map(cells).collect();
    let head = ["figure", "end", "value", "memory"];
    table("8,755 runs back to back", &head, &lines, text);
}

/// Why there is no value, or why it is not all.
fn failures(rows: &Rows<'_>, text: &mut String) {
    let failed = rows
        .0
        .iter()
        .filter_map(|row| Some((row, row.error.as_deref()?)));
    let lines: Vec<_> = failed
        .map(|(row, error)| {
            vec![
                row.scenario.clone(),
                row.config.clone(),
                row.metric.clone(),
                error.to_owned(),
            ]
        })
        .collect();
    let head = ["scenario", "config", "figure", "why"];
    table(
        "What failed, is missing or is not decided",
        &head,
        &lines,
        text,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Op;

    fn plant(name: &str, metric: &str, share: f64, counted: u64, right: u64) -> Row {
        let row = match metric {
            ALARMS => Row::of(name, "probe", metric, "", share).target(Op::AtMost, 0.02),
            _ => Row::of(name, "probe", metric, "", share).target(Op::AtLeast, 0.95),
        };
        row.detail("runs_counted", counted)
            .detail("runs_asked", 20)
            .detail("runs_planned", 20)
            .detail("runs_right", right)
            .detail("runs_without_verdict", 1)
            .detail("attempts_held_up", 2)
            .detail("attempts_held_up_right", 1)
            .detail("attempts_failed", 3)
    }

    fn document() -> Measurement {
        let mut document = Measurement::new("probe", "faults planted", 77);
        document.commit = Some("abcdef".to_owned());
        document.machine = Machine {
            processor: Some("A processor".to_owned()),
            cores: Some(2),
            ..Machine::default()
        };
        let mut missing = plant("loss1", "right verdicts", 0.9, 10, 9);
        missing.error = Some("10 of 20 runs\nare | missing".to_owned());
        document.rows = vec![
            plant("clean", ALARMS, 0.0, 20, 20).detail(DATE, "2026-11-24T01:00:00Z"),
            missing.detail(DATE, "2026-11-25T02:00:00Z"),
            Row::of_samples(
                "memo a",
                "window 8192",
                "throughput",
                "Mbit/s",
                &[6.5, 6.4, 6.6],
            )
            .limit(6.5536),
            Row::of("memo a", "window 8192", "off window / RTT", "", 0.0081)
                .target(Op::AtMost, 0.05),
            Row::of("memo a", "window hosts' own", "throughput", "Mbit/s", 700.0),
            Row::of("memo a", "window hosts' own", "utilisation", "", 0.7).target(Op::AtLeast, 0.8),
            Row::failed("memo b", "probe", "throughput", "Mbit/s", "no lab"),
            Row::of(
                "iperf3 [rate 10mbit]",
                "iperf3 up",
                "throughput",
                "Mbit/s",
                9.5,
            ),
            Row::of(
                "iperf3 [rate 10mbit]",
                "probe up",
                "throughput",
                "Mbit/s",
                9.7,
            ),
            Row::of("iperf3 [rate 10mbit]", "up", "off iperf3", "", 0.0211)
                .target(Op::AtMost, 0.01),
            Row::of("campaign", "client", "runs done", "runs", 8755.0).target(Op::AtLeast, 8755.0),
            Row::of(
                "campaign",
                "server",
                "memory, last look / first",
                "times",
                1.01,
            )
            .target(Op::AtMost, 1.1)
            .detail("kb_after_5000_runs", 101)
            .detail("kb_after_1000_runs", 100),
        ];
        document
    }

    #[test]
    fn every_part_has_its_table() {
        let page = page(&document());
        for expected in [
            "Commit abcdef, 2026-11-24T01:00:00Z to 2026-11-25T02:00:00Z, seed 77. A processor, 2 processors, ? GiB",
            "| clean | 20 of 20 | 20 | 0.0 % | 1 | 2 (1 right) | 3 |",
            "| loss1 | **10 of 20** | 9, **90.0 %** (not decided) | - | 1 | 2 (1 right) | 3 |",
            "| a | 8192 | 3 | 6.55 | 6.50 | 6.40 to 6.60 | 0.8 % | - |",
            "| a | hosts' own | 1 | - | 700.00 | 700.00 to 700.00 | - | **70.0 %** |",
            "| b | probe | - | - | - | - to - | - | - |",
            "| rate 10mbit | up | 9.500 | 9.700 | **2.11 %** |",
            "| runs done | client | 8755 |  |",
            "| memory, last look / first | server | 1.010 | 100 kB after 1000, 101 kB after 5000 |",
            "| loss1 | probe | right verdicts | 10 of 20 runs are \\| missing |",
            "| memo b | probe | throughput | no lab |",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
    }

    #[test]
    fn a_part_that_was_not_run_has_no_table() {
        let mut document = document();
        document.rows.retain(|row| part_of(row) == "clean");
        let page = page(&document);
        assert_eq!(page.matches("\n## ").count(), 1, "{page}");
        document.rows.clear();
        let empty = super::page(&document);
        assert!(
            empty.contains(&document.date) && !empty.contains('|'),
            "{empty}"
        );
    }
}
