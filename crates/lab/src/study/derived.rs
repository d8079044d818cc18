//! Rows made from others: how much faster a configuration is than none, what was read in vain, and how far what is known is off.

use super::rows::metric;
use crate::measurement::{Measurement, Op, Row};
use crate::plan::{Cell, Config, Expected, Plan, Work};

/// Metric of how many times faster than B.
pub const OF_DIRECT: &str = "of_direct";
/// Metric of how far a cell is off what somebody else found.
pub const OFF_EXPECTED: &str = "off_expected";

/// Metric of what the server is asked to read beyond what the client asks, as a share of that, in requests.
pub const EXTRA_READS: &str = "extra_reads";
/// The same in bytes.
pub const EXTRA_BYTES: &str = "extra_bytes";

/// A tunnel that does not look into the protocol need not be faster than B, but no slower, within what one measures.
const NO_SLOWER: f64 = 0.98;

/// Whether a row is made from others.
pub(super) fn is_derived(row: &Row) -> bool {
    [OF_DIRECT, OFF_EXPECTED, EXTRA_READS, EXTRA_BYTES].contains(&row.metric.as_str())
}

/// Puts rows behind the others that say how many times faster each configuration is than B, what is read in vain, and how far
/// what is known is off.
pub(super) fn compare(document: &mut Measurement, plan: &Plan) {
    document.rows.retain(|row| !is_derived(row));
    let compared = plan.cells.iter();
    let compared = compared.filter_map(|cell| comparison(document, cell));
    let cells = plan.cells.iter();
    let in_vain = cells.flat_map(|cell| extra(document, cell).unwrap_or_default());
    let expected = plan.expected.iter();
    let expected = expected.filter_map(|expected| distance(document, plan, expected));
    let derived: Vec<Row> = compared.chain(in_vain).chain(expected).collect();
    document.rows.extend(derived);
}

/// How far a cell is off what somebody else found, as a share of that; `None` as long as it has no value.
fn distance(document: &Measurement, plan: &Plan, expected: &Expected) -> Option<Row> {
    let mut cells = plan.cells.iter();
    let cell = cells.find(|cell| cell.name() == expected.cell)?;
    let (scenario, config) = (cell.scenario(), cell.config.word());
    let mut rows = document.rows.iter();
    let row = rows.find(|row| row.scenario == scenario && row.config == config)?;
    let off = (row.value? / expected.value - 1.0).abs();
    let row = Row::of(&scenario, config, OFF_EXPECTED, "", off)
        .target(Op::AtMost, expected.within)
        .detail("expected", expected.value)
        .detail("unit", metric(cell).1);
    Some(row)
}

/// What the server was asked to read beyond what a client asked that jumps about, in requests and in bytes. In requests it is less
/// than nothing where a single one of ours was for several of the client's.
fn extra(document: &Measurement, cell: &Cell) -> Option<Vec<Row>> {
    if cell.work != Work::Random || !cell.config.is_accelerated() {
        return None;
    }
    let (scenario, config) = (cell.scenario(), cell.config.word());
    let mut rows = document.rows.iter();
    let row =
        rows.find(|row| row.scenario == scenario && row.config == config && row.value.is_some())?;
    let asked = |key: &str| {
        let count = row.detail.get(key)?.as_f64();
        count.filter(|count| *count > 0.0)
    };
    let said = row.detail.get("gateway")?;
    let (made, answered) = (
        said["reads_made"].as_f64()?,
        said["reads_answered"].as_f64()?,
    );
    let wasted_bytes = said["wasted_bytes"].as_f64()?;
    let reads = (made - answered) / asked("read_requests")?;
    let reads = Row::of(&scenario, config, EXTRA_READS, "", reads)
        .detail("reads_made", made)
        .detail("reads_answered", answered);
    let bytes = wasted_bytes / asked("bytes")?;
    let bytes = Row::of(&scenario, config, EXTRA_BYTES, "", bytes)
        .detail("wasted_bytes", said["wasted_bytes"].clone());
    let rows = [reads, bytes].map(|row| match cell.most_extra_reads {
        Some(most) => row.target(Op::AtMost, most),
        None => row,
    });
    Some(rows.into())
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
    let least = match cell.config.is_accelerated() {
        true => cell.least_of_direct,
        false => cell.least_of_direct.map(|least| least.min(NO_SLOWER)),
    };
    Some(match least {
        Some(least) => row.target(Op::AtLeast, least),
        None => row,
    })
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::{measured, plan};
    use super::super::rows::{is_done, put};
    use super::*;
    use serde_json::json;

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
    fn what_is_known_of_a_cell_is_held_against_it() {
        let plan = plan();
        let mut document = Measurement::new("x", "", 1);
        compare(&mut document, &plan);
        assert!(document.rows.is_empty(), "nothing is measured yet");
        for (value, off, ok) in [(100.0, 0.25, false), (70.0, 0.125, true)] {
            put(&mut document, measured(&plan.cells[0], value));
            compare(&mut document, &plan);
            let found: Vec<_> = document.rows.iter().filter(|row| is_derived(row)).collect();
            let [row] = found.as_slice() else {
                panic!("{found:?}");
            };
            assert_eq!(
                (row.metric.as_str(), row.config.as_str()),
                (OFF_EXPECTED, "B")
            );
            assert_eq!((row.value, row.ok), (Some(off), Some(ok)));
            assert!(is_done(&document, &plan.cells[0]));
        }
    }

    #[test]
    fn a_tunnel_that_leaves_the_protocol_alone_need_only_be_no_slower() {
        let text = "name = 'x'\n[[cells]]\nrate = ['1mbit']\ndelay = ['250ms']\nclient = ['smbclient']\n\
                    work = ['folder']\nconfig = ['B', 'T', 'F', 'A']\nsize = '1 MB'\nleast_of_direct = 12.0\n";
        let plan = Plan::parse("p", text).unwrap();
        let mut document = Measurement::new("x", "", 1);
        for (cell, value) in plan.cells.iter().zip([100.0, 101.0, 103.0, 9.0]) {
            put(&mut document, measured(cell, value));
        }
        compare(&mut document, &plan);
        let compared = document.rows.iter().filter(|row| row.metric == OF_DIRECT);
        let found: Vec<_> = compared.map(|row| (row.target, row.ok)).collect();
        let expected = [(0.98, true), (0.98, false), (12.0, false)];
        assert_eq!(found, expected.map(|(least, ok)| (Some(least), Some(ok))));
    }

    #[test]
    fn what_is_read_in_vain_is_held_against_what_was_asked() {
        let text = "name = 'x'\n[[cells]]\nrate = ['1mbit']\ndelay = ['30ms']\nclient = ['lockstep-smb1']\n\
                    work = ['random', 'read']\nconfig = ['B', 'A']\nsize = '32 MiB'\nmost_extra_reads = 0.1\n";
        let plan = Plan::parse("p", text).unwrap();
        let mut document = Measurement::new("x", "", 1);
        for cell in &plan.cells {
            let said = json!({ "reads_made": 300, "reads_answered": 60, "wasted_bytes": 7_000 });
            let row = measured(cell, 9.0)
                .detail("read_requests", 2_000)
                .detail("bytes", 100_000);
            put(&mut document, row.detail("gateway", said));
        }
        compare(&mut document, &plan);
        let extra = document.rows.iter().filter(|row| is_derived(row));
        let extra = extra.filter(|row| row.metric != OF_DIRECT);
        let found: Vec<_> = extra
            .map(|row| {
                (
                    row.scenario.as_str(),
                    row.config.as_str(),
                    row.metric.as_str(),
                    row.value,
                    row.ok,
                )
            })
            .collect();
        let scenario = "1M/30ms lockstep-smb1 random";
        let expected = [(EXTRA_READS, 0.12, false), (EXTRA_BYTES, 0.07, true)];
        let expected =
            expected.map(|(metric, value, ok)| (scenario, "A", metric, Some(value), Some(ok)));
        assert_eq!(found, expected);
        assert!(
            is_done(&document, &plan.cells[1]),
            "it is not run again for that"
        );
    }
}
