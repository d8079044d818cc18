//! The page: tables, figures and what they are of.

use std::fmt::Write;

use super::figure::{Figure, Series};
use super::finding::Finding;
use super::group::{Estimate, Group, groups};
use super::waikato::{Waikato, knees};
use crate::ladder::Rung;
use crate::plan::{Plan, PointResult};
use crate::results::Merged;

/// A report.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// As Markdown; figures are named relative to it.
    pub page: String,
    /// The figures, by file name without ending.
    pub figures: Vec<Figure>,
    /// Every number that is held against another.
    pub findings: Vec<Finding>,
}

/// Makes the report of a plan's results. `ladder` is what
/// [`rungs`](crate::ladder::rungs) found; it takes seconds and goes to the end
/// of the page.
pub fn report(plan: &Plan, merged: &Merged, ladder: &[Rung]) -> Report {
    let groups = groups(&merged.results);
    let mut findings = ladder_findings(ladder);
    if plan.report().is_waikato {
        let base_load_mbit = plan.report().base_load_mbit.unwrap_or(5.0);
        findings.extend(knees(plan));
        let waikato = Waikato {
            groups: &groups,
            base_load_mbit,
            is_far_away: plan.study().far_delay_ms > 0.0,
        };
        findings.extend(waikato.findings());
    }
    findings.extend(measured(&groups));
    let figures = figures(plan, &groups);
    let page = page(plan, merged, &groups, &findings, &figures);
    Report {
        page,
        figures,
        findings,
    }
}

/// Short stable name of a rung's circumstances, for documents.
const LADDER: &str = "ladder";

fn ladder_findings(rungs: &[Rung]) -> Vec<Finding> {
    let row = |rung: &Rung| Finding {
        scenario: LADDER.to_owned(),
        config: rung.name.clone(),
        metric: "simulated".to_owned(),
        unit: rung.unit.to_owned(),
        value: Some(rung.simulated),
        confidence: None,
        reference: Some(rung.expected),
        bounds: rung.tolerance.map(|tolerance| {
            (
                rung.expected * (1.0 - tolerance),
                rung.expected * (1.0 + tolerance),
            )
        }),
        remark: match rung.tolerance {
            Some(tolerance) => format!("within {} %", tolerance * 100.0),
            None => "overloaded: the formula is only a bound".to_owned(),
        },
    };
    rungs.iter().map(row).collect()
}

/// The numbers themselves, for documents.
fn measured(groups: &[Group]) -> Vec<Finding> {
    let numbers: [(&str, &str, Number); 6] = [
        ("mean latency", "s", |result| result.mean_s),
        ("median latency", "s", |result| result.median_s),
        ("p90 latency", "s", |result| result.p90_s),
        ("p99 latency", "s", |result| result.p99_s),
        ("peak router queue", "bytes", |result| {
            Some(result.queue_bytes_max as f64)
        }),
        ("most concurrent sessions", "", |result| {
            Some(result.sessions_max as f64)
        }),
    ];
    let mut rows = Vec::new();
    for group in groups {
        for (metric, unit, number) in numbers {
            let estimate = group.estimate(number);
            rows.push(Finding {
                scenario: format!("{} Mbit/s presented", group.point.load_mbit),
                config: group.point.config(),
                metric: metric.to_owned(),
                unit: unit.to_owned(),
                value: estimate.map(|estimate| estimate.mean),
                confidence: estimate.and_then(|estimate| estimate.confidence),
                reference: None,
                bounds: None,
                remark: format!(
                    "{} seeds, {:.2} % unanswered",
                    group.results.len(),
                    group.unanswered_share() * 100.0
                ),
            });
        }
    }
    rows
}

type Number = fn(&PointResult) -> Option<f64>;

fn figures(plan: &Plan, groups: &[Group]) -> Vec<Figure> {
    let figure = |name: &str, title: &str, y: &str, y_max, number: Number| Figure {
        name: format!("sim-{}-{name}", plan.name()),
        title: title.to_owned(),
        x: "presented load, Mbit/s".to_owned(),
        y: y.to_owned(),
        y_max,
        series: series(groups, number),
    };
    let latency_max = groups
        .iter()
        .filter(|group| group.unanswered_share() < 0.01)
        .filter_map(|group| group.estimate(|result| result.mean_s))
        .map(|estimate| estimate.mean)
        .fold(0.0, f64::max);
    vec![
        figure(
            "latency",
            "Mean latency of a request",
            "seconds",
            Some((latency_max * 1.15).ceil().max(1.0)),
            |result| result.mean_s,
        ),
        figure(
            "queue",
            "Peak queue of the far router",
            "bytes",
            None,
            |result| Some(result.queue_bytes_max as f64),
        ),
        figure(
            "sessions",
            "Most concurrent sessions to servers",
            "connections",
            None,
            |result| Some(result.sessions_max as f64),
        ),
    ]
}

/// A line for each configuration, over load.
fn series(groups: &[Group], number: Number) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for group in groups {
        let name = group.point.config();
        let Some(estimate) = group.estimate(number) else {
            continue;
        };
        let point = (group.point.load_mbit, estimate.mean, estimate.confidence);
        match all.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => all.push(Series {
                name,
                points: vec![point],
            }),
        }
    }
    all
}

fn page(
    plan: &Plan,
    merged: &Merged,
    groups: &[Group],
    findings: &[Finding],
    figures: &[Figure],
) -> String {
    let seeds = groups.first().map_or(0, |group| group.results.len());
    let mut page = format!(
        "# Simulation: {}\n\n{}.\n\nPlan `{}`, fingerprint `{}`, {}, {} runs, {} seeds each. Made by `farhaul sim report` from results alone.\n\n",
        plan.name(),
        plan.about(),
        plan.name(),
        merged.header.fingerprint,
        plan.model(),
        merged.results.len(),
        seeds
    );
    if merged.missing() > 0 {
        let _ = writeln!(
            page,
            "**Unfinished: {} of {} points are missing.**\n",
            merged.missing(),
            merged.header.points
        );
    }
    let is_ladder = |finding: &&Finding| finding.scenario == LADDER;
    let is_compared = |finding: &&Finding| {
        (finding.reference.is_some() || finding.bounds.is_some()) && !is_ladder(finding)
            || finding.remark.starts_with("the paper")
    };
    let compared: Vec<&Finding> = findings.iter().filter(is_compared).collect();
    if !compared.is_empty() {
        page.push_str("## Beside the paper\n\n");
        push_findings(&mut page, &compared, "paper");
    }
    page.push_str("## Figures\n\n");
    for figure in figures {
        let _ = writeln!(page, "![{}]({}.svg)\n", figure.title, figure.name);
    }
    push_groups(&mut page, groups);
    page.push_str("## Is the simulator right?\n\n");
    push_findings(
        &mut page,
        &findings.iter().filter(is_ladder).collect::<Vec<_>>(),
        "formula",
    );
    page.push_str("## What was set\n\n");
    push_parameters(&mut page, plan);
    page
}

fn push_findings(page: &mut String, findings: &[&Finding], reference: &str) {
    let _ = writeln!(
        page,
        "| where | what | number | {reference} | ours | allowed | verdict | remark |\n|---|---|---|---|---|---|---|---|"
    );
    for finding in findings {
        let number = |value: Option<f64>| {
            value.map_or("-".to_owned(), |value| number_text(value, &finding.unit))
        };
        let half = finding.confidence.map_or(String::new(), |half| {
            format!(" ± {}", number_text(half, &finding.unit))
        });
        let allowed = match finding.bounds {
            Some((low, high)) if high.is_infinite() => {
                format!("from {}", number_text(low, &finding.unit))
            }
            Some((low, high)) => format!(
                "{} - {}",
                number_text(low, &finding.unit),
                number_text(high, &finding.unit)
            ),
            None => "-".to_owned(),
        };
        let verdict = match finding.is_inside() {
            Some(true) => "inside",
            Some(false) if finding.may_be_inside() => "**outside** by less than its interval",
            Some(false) => "**outside**",
            None => "-",
        };
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {}{half} | {allowed} | {verdict} | {} |",
            finding.scenario,
            finding.config,
            finding.metric,
            number(finding.reference),
            number(finding.value),
            finding.remark
        );
    }
    page.push('\n');
}

fn push_groups(page: &mut String, groups: &[Group]) {
    page.push_str("## Latency, queue and sessions\n\nMean over seeds ± half of the 95 % interval of confidence.\n\n");
    page.push_str("| configuration | load | mean s | median s | p90 s | p99 s | peak queue B | sessions | unanswered |\n|---|---|---|---|---|---|---|---|---|\n");
    for group in groups {
        let cell = |number: Number, unit: &str| estimate_text(group.estimate(number), unit);
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {:.2} % |",
            group.point.config(),
            group.point.load_mbit,
            cell(|result| result.mean_s, "s"),
            cell(|result| result.median_s, "s"),
            cell(|result| result.p90_s, "s"),
            cell(|result| result.p99_s, "s"),
            cell(|result| Some(result.queue_bytes_max as f64), "bytes"),
            cell(|result| Some(result.sessions_max as f64), "bytes"),
            group.unanswered_share() * 100.0
        );
    }
    page.push('\n');
}

fn push_parameters(page: &mut String, plan: &Plan) {
    page.push_str("```toml\n");
    page.push_str(&toml::to_string_pretty(plan.study()).unwrap_or_default());
    for (name, link) in plan.links() {
        let _ = writeln!(page, "link {name} = \"{link}\"");
    }
    page.push_str(&toml::to_string_pretty(plan.workload()).unwrap_or_default());
    page.push_str("```\n");
}

fn estimate_text(estimate: Option<Estimate>, unit: &str) -> String {
    let Some(estimate) = estimate else {
        return "-".to_owned();
    };
    let half = estimate.confidence.map_or(String::new(), |half| {
        format!(" ± {}", number_text(half, unit))
    });
    format!("{}{half}", number_text(estimate.mean, unit))
}

fn number_text(value: f64, unit: &str) -> String {
    match unit {
        "bytes" | "bit/s" => format!("{value:.0}"),
        "s" if value.abs() < 0.01 => format!("{:.1} µs", value * 1e6),
        _ => format!("{value:.3}"),
    }
}
