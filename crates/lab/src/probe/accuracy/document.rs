//! `probe.json`: one document of all parts, whenever each of them was run. A part
//! is a plant or a table, and has the first word of its rows' scenarios.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::plant::Plant;
use super::{beside, endurance, memo};
use crate::error::LabError;
use crate::measurement::{Measurement, Row};

/// Its name, and its file's.
pub const NAME: &str = "probe";
/// When a row's part was begun.
pub(super) const DATE: &str = "date";

/// Which part a row belongs to.
pub(super) fn part_of(row: &Row) -> &str {
    row.scenario.split(' ').next().unwrap_or_default()
}

/// A document to put parts into: `fresh`, with the rows that are in the folder if
/// the same program made them in the same way. If not, also why.
pub fn open(folder: &Path, mut fresh: Measurement) -> (Measurement, Option<String>) {
    let path = folder.join(format!("{NAME}.json"));
    let anew = |why: String| Some(format!("{}: {why}: begun anew", path.display()));
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return (fresh, None),
        Err(error) => return (fresh, anew(error.to_string())),
    };
    let before: Measurement = match serde_json::from_str(&text) {
        Ok(before) => before,
        Err(error) => {
            return (
                fresh,
                anew(format!("no document of a measurement: {error}")),
            );
        }
    };
    match difference(&before, &fresh) {
        Some(of) => (fresh, anew(format!("of another {of}"))),
        None => {
            fresh.rows = before.rows;
            (fresh, None)
        }
    }
}

/// What keeps the rows of one from being rows of the other.
fn difference(before: &Measurement, now: &Measurement) -> Option<&'static str> {
    let differences = [
        (before.name != now.name, "measurement"),
        (before.commit != now.commit, "commit"),
        // It names the program, and what else holds for all runs.
        (before.plan != now.plan, "program"),
        (before.seed != now.seed, "seed"),
        (before.machine != now.machine, "machine"),
    ];
    let differs = differences.into_iter().find(|(differs, _)| *differs);
    differs.map(|(_, what)| what)
}

/// Puts rows in the place of those that their parts had.
pub fn put(document: &mut Measurement, rows: Vec<Row>) {
    let date = document.date.clone();
    let is_old = |old: &Row| rows.iter().any(|row| part_of(row) == part_of(old));
    document.rows.retain(|old| !is_old(old));
    let dated = rows.into_iter().map(|row| row.detail(DATE, date.clone()));
    document.rows.extend(dated);
    let order = order();
    let place = |row: &Row| order.iter().position(|part| part == part_of(row));
    // What no part is called any more comes last.
    document
        .rows
        .sort_by_key(|row| place(row).unwrap_or(order.len()));
}

/// All parts, as they stand in the document.
fn order() -> Vec<String> {
    let tables = memo::TABLES.into_iter().map(|table| table.name);
    let tables = tables.chain([beside::NAME, endurance::NAME]);
    let plants = Plant::ALL.into_iter().map(Plant::name);
    plants.chain(tables.map(str::to_owned)).collect()
}

/// Writes it, and a page of tables beside it; returns where it is.
pub fn write(document: &Measurement, folder: &Path) -> Result<PathBuf, LabError> {
    let path = document.write(folder)?;
    document.write_page(folder, &super::page::page(document))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Measurement {
        Measurement::new(NAME, "by program abc", 7)
    }

    fn row(scenario: &str, value: f64) -> Row {
        Row::of(scenario, "probe", "metric", "", value)
    }

    fn values(document: &Measurement) -> Vec<(&str, f64)> {
        let rows = document.rows.iter();
        rows.map(|row| (row.scenario.as_str(), row.value.unwrap()))
            .collect()
    }

    #[test]
    fn parts_that_are_run_one_by_one_make_one_document() {
        let folder = std::env::temp_dir().join(format!("farhaul-parts-{}", std::process::id()));
        let (mut document, why) = open(&folder, fresh());
        assert_eq!((why, document.rows.len()), (None, 0));
        put(&mut document, vec![row("memo a", 1.0), row("memo b", 2.0)]);
        put(&mut document, vec![row("campaign", 3.0)]);
        document.date = "2026-01-01T00:00:00Z".to_owned();
        write(&document, &folder).unwrap();
        let (mut again, why) = open(&folder, fresh());
        assert_eq!(why, None);
        put(&mut again, vec![row("clean", 4.0), row("loss1", 5.0)]);
        // A part that is run again has nothing of what it had.
        put(&mut again, vec![row("memo a", 6.0)]);
        let expected = [
            ("clean", 4.0),
            ("loss1", 5.0),
            ("memo a", 6.0),
            ("campaign", 3.0),
        ];
        assert_eq!(values(&again), expected);
        write(&again, &folder).unwrap();
        let (last, _) = open(&folder, fresh());
        assert_eq!(values(&last), expected);
        let page = fs::read_to_string(folder.join("probe.md")).unwrap();
        assert!(page.contains("seed 7"), "{page}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_was_made_otherwise_is_not_kept_and_said() {
        let folder = std::env::temp_dir().join(format!("farhaul-anew-{}", std::process::id()));
        let mut document = fresh();
        put(&mut document, vec![row("clean", 1.0)]);
        write(&document, &folder).unwrap();
        let other = |change: fn(&mut Measurement)| {
            let mut now = fresh();
            change(&mut now);
            let (opened, why) = open(&folder, now);
            assert_eq!(opened.rows, []);
            why.unwrap()
        };
        let commit = other(|now| now.commit = Some("other".to_owned()));
        assert!(
            commit.contains("another commit: begun anew") && commit.contains("probe.json"),
            "{commit}"
        );
        assert!(other(|now| now.plan.push('!')).contains("another program"));
        assert!(other(|now| now.seed = 8).contains("another seed"));
        assert!(other(|now| now.machine.cores = Some(999)).contains("another machine"));
        fs::write(folder.join("probe.json"), "{\"rows\":").unwrap();
        assert!(other(|_| {}).contains("no document of a measurement"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn plants_stand_before_tables() {
        let order = order();
        assert_eq!(order.first().map(String::as_str), Some("clean"));
        let last: Vec<_> = order.iter().rev().take(4).rev().collect();
        assert_eq!(last, ["memo", "windows", "iperf3", "campaign"]);
        assert!(order.iter().all(|part| !part.contains(' ')));
    }
}
