//! From a cell's samples to its row, and from rows to how much faster a configuration is than none.

use serde_json::Value;

use super::judge::{Ended, Run, Verdict};
use crate::measurement::{Measurement, Op, Row};
use crate::plan::{Cell, Config, Plan};

/// Metric of how many times faster than B.
pub const OF_DIRECT: &str = "of_direct";

/// One sample of a cell.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) verdict: Verdict,
    pub(super) run: Run,
    /// Times it was run until it was clean.
    pub(super) attempts: u32,
    /// Of what was copied.
    pub(super) sha256: String,
    /// What the gateway says.
    pub(super) said: Value,
}

/// What is measured of a cell, in which unit.
pub(super) fn metric(cell: &Cell) -> (&'static str, &'static str) {
    match cell.work.is_throughput() {
        true => ("throughput", "KiB/s"),
        false => ("time", "s"),
    }
}

/// The row of a cell that could not be run.
pub(super) fn failed(cell: &Cell, why: String) -> Row {
    let (metric, unit) = metric(cell);
    let (scenario, config) = (cell.scenario(), cell.config.word());
    described(Row::failed(&scenario, config, metric, unit, why), cell)
}

/// The row of a cell.
pub(super) fn row(cell: &Cell, plan: &Plan, commit: Option<&str>, samples: &[Sample]) -> Row {
    let (metric, unit) = metric(cell);
    let (scenario, config) = (cell.scenario(), cell.config.word());
    let values: Vec<f64> = samples
        .iter()
        .filter_map(|sample| sample.verdict.value)
        .collect();
    let mut row = Row::of_samples(&scenario, config, metric, unit, &values);
    let least = |limits: f64, sample: &Sample| {
        sample
            .verdict
            .limit
            .map_or(limits, |limit| limit.min(limits))
    };
    let limit = samples.iter().fold(f64::INFINITY, least);
    row = row.limit(limit);
    if let (true, Some(share), true) = (
        cell.config.is_accelerated(),
        cell.least_of_limit,
        limit.is_finite(),
    ) {
        let share = share * (1.0 - cell.circuit.loss);
        row = match cell.work.is_throughput() {
            true => row.target(Op::AtLeast, share * limit),
            false => row.target(Op::AtMost, limit / share),
        };
    }
    let faults: Vec<_> = samples
        .iter()
        .flat_map(|sample| &sample.verdict.faults)
        .collect();
    let doubts: Vec<_> = samples
        .iter()
        .flat_map(|sample| &sample.verdict.doubts)
        .collect();
    if !faults.is_empty() {
        row.ok = Some(false);
    }
    let troubles: Vec<_> = faults.into_iter().chain(doubts).cloned().collect();
    if !troubles.is_empty() {
        row.error = Some(troubles.join("; "));
    }
    let row = described(row, cell)
        .detail("congestion_control", plan.congestion_control.clone())
        .detail("commit", commit.map_or(Value::Null, Value::from));
    match samples.last() {
        Some(sample) => seen(row, cell, sample),
        None => row,
    }
}

/// What a report groups by.
fn described(row: Row, cell: &Cell) -> Row {
    row.detail("link", cell.circuit.words.clone())
        .detail("rate_mbit", cell.circuit.rate_mbit())
        .detail("delay_ms", cell.circuit.delay_ms)
        .detail("jitter_ms", cell.circuit.jitter_ms)
        .detail("loss", cell.circuit.loss)
        .detail("client", cell.client.word())
        .detail("work", cell.work.word())
        .detail("receive_buffer_bytes", cell.receive_buffer_bytes)
        .detail("size_bytes", cell.size_bytes)
        .detail("files", cell.files)
}

/// What was seen of the last sample.
fn seen(row: Row, cell: &Cell, sample: &Sample) -> Row {
    let Sample { verdict, run, .. } = sample;
    let transfer = &run.shown.transfer;
    let ended = match &run.ended {
        Ended::Whole => "whole",
        Ended::Flat => "flat",
        Ended::Late => "late",
        Ended::Failed(_) => "failed",
    };
    let mut row = row
        .detail("ended", ended)
        .detail("bytes", verdict.bytes)
        .detail("attempts", sample.attempts)
        .detail("lateness_ms", run.lateness_ms)
        .detail(
            "foreign_bytes",
            run.shown.foreign_bytes + run.crossed.foreign_bytes,
        )
        .detail("wan_bytes", run.crossed.towards_client())
        .detail("repeated_bytes", transfer.repeated_bytes)
        .detail("requests", transfer.requests)
        .detail("read_requests", transfer.read_requests)
        .detail("window_bytes_max", transfer.window_bytes_max)
        .detail("sha256", sample.sha256.clone())
        .detail("equal", run.is_equal);
    if cell.files > 1 {
        let each = transfer.requests as f64 / f64::from(cell.files);
        row = row.detail("requests_per_file", each);
    }
    match &sample.said {
        Value::Null => row,
        said => row.detail("gateway", said.clone()),
    }
}

/// Puts rows behind the others that say how many times faster each configuration is than B.
pub(super) fn compare(document: &mut Measurement, plan: &Plan) {
    document.rows.retain(|row| row.metric != OF_DIRECT);
    let compared: Vec<Row> = plan
        .cells
        .iter()
        .filter_map(|cell| comparison(document, cell))
        .collect();
    document.rows.extend(compared);
}

fn comparison(document: &Measurement, cell: &Cell) -> Option<Row> {
    if cell.config == Config::B {
        return None;
    }
    let scenario = cell.scenario();
    let value = |config: &str| {
        let mut rows = document.rows.iter();
        let row = rows.find(|row| row.scenario == scenario && row.config == config)?;
        row.value.filter(|value| *value > 0.0)
    };
    let (ours, direct) = (value(cell.config.word())?, value(Config::B.word())?);
    let times = match cell.work.is_throughput() {
        true => ours / direct,
        false => direct / ours,
    };
    let row = Row::of(&scenario, cell.config.word(), OF_DIRECT, "x", times);
    Some(
        match cell
            .least_of_direct
            .filter(|_| cell.config.is_accelerated())
        {
            Some(least) => row.target(Op::AtLeast, least),
            None => row,
        },
    )
}

/// Whether a document has this cell already, with a value.
pub(super) fn is_done(document: &Measurement, cell: &Cell) -> bool {
    let (scenario, config) = (cell.scenario(), cell.config.word());
    let is_it =
        |row: &Row| row.scenario == scenario && row.config == config && row.metric != OF_DIRECT;
    document
        .rows
        .iter()
        .any(|row| is_it(row) && row.value.is_some())
}

/// Takes a cell's older row away and puts the new one in.
pub(super) fn put(document: &mut Measurement, row: Row) {
    let is_same = |old: &Row| {
        (&old.scenario, &old.config, &old.metric) == (&row.scenario, &row.config, &row.metric)
    };
    document.rows.retain(|old| !is_same(old));
    document.rows.push(row);
}

/// Rows in the order of the plan's cells, whatever was run when; those of no cell come last.
pub(super) fn sort(document: &mut Measurement, plan: &Plan) {
    let names: Vec<String> = plan.cells.iter().map(Cell::name).collect();
    let place = |row: &Row| {
        let name = format!("{} {}", row.scenario, row.config);
        let at = names.iter().position(|other| *other == name);
        (row.metric == OF_DIRECT, at.unwrap_or(usize::MAX))
    };
    document.rows.sort_by_key(place);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        let text = "name = 'x'\n[[cells]]\nrate = ['1mbit']\ndelay = ['0ms', '30ms']\n\
                    client = ['smbclient']\nwork = ['read', 'folder']\nconfig = ['B', 'A']\nsize = '1 MiB'\n\
                    least_of_direct = 0.98\n";
        Plan::parse("p", text).unwrap()
    }

    fn measured(cell: &Cell, value: f64) -> Row {
        let (metric, unit) = metric(cell);
        Row::of(&cell.scenario(), cell.config.word(), metric, unit, value)
    }

    #[test]
    fn configurations_are_held_against_the_same_cell_without_gateways() {
        let plan = plan();
        let mut document = Measurement::new("x", "", 1);
        let [read_b, read_a, folder_b, folder_a] = &plan.cells[..4] else {
            panic!("{:?}", plan.cells);
        };
        for (cell, value) in [
            (read_b, 100.0),
            (read_a, 90.0),
            (folder_b, 60.0),
            (folder_a, 5.0),
        ] {
            put(&mut document, measured(cell, value));
        }
        // Twice: what was compared before is compared anew.
        compare(&mut document, &plan);
        compare(&mut document, &plan);
        let compared: Vec<_> = document
            .rows
            .iter()
            .filter(|row| row.metric == OF_DIRECT)
            .collect();
        let found: Vec<_> = compared.iter().map(|row| (row.value, row.ok)).collect();
        assert_eq!(found, [(Some(0.9), Some(false)), (Some(12.0), Some(true))]);
    }

    #[test]
    fn a_cell_is_done_when_it_has_a_value() {
        let plan = plan();
        let mut document = Measurement::new("x", "", 1);
        let cell = &plan.cells[1];
        put(&mut document, failed(cell, "it broke".to_owned()));
        assert!(!is_done(&document, cell));
        put(&mut document, measured(cell, 7.0));
        assert!(is_done(&document, cell) && !is_done(&document, &plan.cells[0]));
        assert_eq!(document.rows.len(), 1, "the failed row is gone");
        put(&mut document, measured(&plan.cells[0], 9.0));
        sort(&mut document, &plan);
        assert_eq!(document.rows[0].config, "B");
    }
}
