//! The table, made from the document alone.

use crate::measurement::{Measurement, Op, Row};
use crate::table::{Cell, Mark, Table};

/// Every row, with what was asked of it.
pub fn table(document: &Measurement) -> Table {
    let mut table = Table::new([
        "link",
        "by",
        "metric",
        "value",
        "of the limit",
        "target",
        "holds",
    ]);
    for row in &document.rows {
        table.row(vec![
            row.scenario.clone().into(),
            row.config.clone().into(),
            row.metric.clone().into(),
            value(row).into(),
            row.share_of_limit()
                .map_or(String::new(), |share| format!("{share:.3}"))
                .into(),
            target(row).into(),
            verdict(row),
        ]);
    }
    table
}

fn value(row: &Row) -> String {
    match (row.value, &row.error) {
        (Some(value), _) => format!("{value:.2} {}", row.unit).trim_end().to_owned(),
        (None, Some(error)) => error.clone(),
        (None, None) => String::new(),
    }
}

fn target(row: &Row) -> String {
    match (row.op, row.target) {
        (Some(Op::AtLeast), Some(target)) => format!("≥ {target}"),
        (Some(Op::AtMost), Some(target)) => format!("≤ {target}"),
        _ => String::new(),
    }
}

fn verdict(row: &Row) -> Cell {
    match row.ok {
        Some(true) => Cell::marked("yes", Mark::Good),
        Some(false) => Cell::marked("no", Mark::Bad),
        None => "".into(),
    }
}
