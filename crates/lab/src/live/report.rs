//! The table, made from the document alone.

use crate::measurement::{Measurement, Op, Row};
use crate::table::{Cell, Mark, Table};

/// Every row, with what was asked of it.
pub fn table(document: &Measurement) -> Table {
    let mut columns = vec![
        "link",
        "by",
        "metric",
        "value",
        "of the limit",
        "target",
        "holds",
    ];
    let is_published = document.rows.iter().any(|row| published(row).is_some());
    columns.extend(is_published.then_some("published"));
    let mut table = Table::new(columns);
    for row in &document.rows {
        let mut cells = vec![
            row.scenario.clone().into(),
            row.config.clone().into(),
            row.metric.clone().into(),
            value(row).into(),
            row.share_of_limit()
                .map_or(String::new(), |share| format!("{share:.3}"))
                .into(),
            target(row).into(),
            verdict(row),
        ];
        let published =
            published(row).map_or(String::new(), |value| format!("{value} {}", row.unit));
        cells.extend(is_published.then_some(published.into()));
        table.row(cells);
    }
    table
}

/// What somebody else has printed for it.
fn published(row: &Row) -> Option<f64> {
    row.detail.get("published")?.as_f64()
}

fn value(row: &Row) -> String {
    match (row.value, &row.error) {
        (Some(value), _) => format!("{} {}", digits(value), row.unit)
            .trim_end()
            .to_owned(),
        (None, Some(error)) => error.clone(),
        (None, None) => String::new(),
    }
}

/// Two decimals; small shares need more.
fn digits(value: f64) -> String {
    match value.abs() < 0.1 {
        true => format!("{value:.4}"),
        false => format!("{value:.2}"),
    }
}

fn target(row: &Row) -> String {
    let rounded = row.target.map(|target| (target * 1e4).round() / 1e4);
    match (row.op, rounded) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Screen;

    #[test]
    fn what_others_have_printed_has_a_column_where_there_is_some() {
        let mut document = Measurement::new("m", "", 1);
        let share = Row::of("T3", "dedup", "wire_share", "", 0.000_34);
        document.rows.push(share.target(Op::AtMost, 1.0 / 3000.0));
        let screen = Screen {
            columns: None,
            has_colour: false,
        };
        let plain = table(&document).render(screen);
        assert!(
            plain.contains("0.0003") && !plain.contains("published"),
            "{plain}"
        );
        let rate = Row::of("T3", "dedup", "effective", "Mbit/s", 100.0);
        document.rows.push(rate.detail("published", 344.0));
        let both = table(&document).render(screen);
        assert!(
            both.contains("published") && both.contains("344 Mbit/s"),
            "{both}"
        );
    }
}
