//! `farhaul sim report`: page, figures and document from results alone.

use std::path::PathBuf;

use clap::Args;
use farhaul_lab::measurement::{Measurement, Op, Row};
use farhaul_lab::table::{Cell, Mark, Screen, Table};
use farhaul_sim::ladder::rungs;
use farhaul_sim::report::{self, Finding, Report};
use farhaul_sim::results::{Completeness, Shard};

use super::merge::{merge, write_whole};
use super::run::{read_plan, result_path};
use crate::failure::Failure;
use crate::print;

#[derive(Debug, Args)]
#[command(after_help = "example: farhaul sim report plans/waikato.toml")]
pub(crate) struct ReportCommand {
    /// The plan.
    plan: PathBuf,
    /// Its results, whole or in shards; `sim-PLAN.jsonl` in the folder where
    /// none is named.
    files: Vec<PathBuf>,
    /// Folder for page, figures and document, and where results lie.
    #[arg(long, value_name = "FOLDER", default_value = "out")]
    out: PathBuf,
    /// Report on a sweep of which points are missing; the page says so.
    #[arg(long)]
    unfinished: bool,
    /// Name of the document; the page is named after the plan.
    #[arg(long, default_value = "sim")]
    name: String,
}

impl ReportCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = read_plan(&self.plan)?;
        let mut files = self.files;
        if files.is_empty() {
            files.push(result_path(&self.out, &plan, Shard::WHOLE));
        }
        let completeness = match self.unfinished {
            true => Completeness::Partial,
            false => Completeness::Whole,
        };
        let merged = merge(&files, completeness)?;
        if !merged.is_of(&plan) {
            return Err(Failure::failed(format!(
                "the results are not of {} as it is now: they are of plan {} {}; run it again",
                self.plan.display(),
                merged.header.plan,
                merged.header.fingerprint
            )));
        }
        let report = report::report(&plan, &merged, &rungs());
        let page = self.out.join(format!("sim-{}.md", plan.name()));
        write_whole(&page, &report.page)?;
        for figure in &report.figures {
            write_whole(
                &self.out.join(format!("{}.svg", figure.name)),
                &figure.to_svg(),
            )?;
        }
        let seeds = merged.results.iter().map(|result| result.point.seed);
        let seed = seeds.min().unwrap_or(0);
        let about = format!(
            "{} (plan {}, fingerprint {})",
            plan.about(),
            plan.name(),
            plan.fingerprint()
        );
        let mut document = Measurement::new(self.name, about, seed);
        document.rows = report.findings.iter().map(row).collect();
        let path = document.write(&self.out)?;
        print::out(&table(&report).render(Screen::stdout()))?;
        print::out(&format!("\n{}\n{}\n", page.display(), path.display()))
    }
}

/// A finding as a row of the document. One that lies outside its bounds is
/// told by `ok`, and both bounds stand in the detail: a row has one target.
fn row(finding: &Finding) -> Row {
    let Finding {
        scenario,
        config,
        metric,
        unit,
        ..
    } = finding;
    let mut row = match finding.value {
        Some(value) => Row::of(scenario, config, metric, unit, value),
        None => Row::failed(scenario, config, metric, unit, "no run gave this number"),
    };
    if let Some(reference) = finding.reference {
        row = row.limit(reference);
    }
    if let Some((low, high)) = finding.bounds {
        row = row.target(Op::AtLeast, low).detail("at_least", low);
        if high.is_finite() {
            row = row.detail("at_most", high);
        }
        row.ok = finding.is_inside();
    }
    if let Some(half) = finding.confidence {
        row = row.detail("confidence_95", half);
    }
    row.detail("remark", finding.remark.clone())
}

/// What was held against something, for people.
fn table(report: &Report) -> Table {
    let mut table = Table::new(["what", "where", "reference", "ours", "verdict"]);
    for finding in report
        .findings
        .iter()
        .filter(|finding| finding.bounds.is_some())
    {
        let number =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
        let verdict = match finding.is_inside() {
            Some(true) => Cell::marked("inside", Mark::Good),
            _ => Cell::marked("OUTSIDE", Mark::Bad),
        };
        table.row(vec![
            finding.config.as_str().into(),
            finding.scenario.as_str().into(),
            number(finding.reference).into(),
            number(finding.value).into(),
            verdict,
        ]);
    }
    table
}
