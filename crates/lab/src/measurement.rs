//! The document every measuring verb writes: `out/NAME.json`.
//!
//! One row is one number with what it is held against. Failures are rows too,
//! with a text and without a value; what is not known is `null`, never `NaN`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::caller::{Caller, make_folder};
use crate::error::LabError;
use crate::sandbox::write_whole_for;

/// A run of a measuring verb.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Verb, and file name: `out/NAME.json`.
    pub name: String,
    /// Commit of the source tree it was run from; `-dirty` where it was changed.
    pub commit: Option<String>,
    /// Start, RFC 3339 in UTC.
    pub date: String,
    /// What it ran on.
    pub machine: Machine,
    /// What was done, in words that let someone do it again.
    pub plan: String,
    /// Seed of everything random that can be seeded.
    pub seed: u64,
    /// The numbers.
    pub rows: Vec<Row>,
}

/// The machine of a run. No host name: results are published.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system's name and version.
    pub system: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Processor model.
    pub processor: Option<String>,
    /// Logical processors.
    pub cores: Option<u64>,
    /// Main memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// How a value is held against its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// At least the target.
    #[serde(rename = ">=")]
    AtLeast,
    /// At most the target.
    #[serde(rename = "<=")]
    AtMost,
}

/// One number. Rows are made by [`Row::of`], [`Row::of_samples`] and
/// [`Row::failed`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Short stable name of the circumstances: `51.84M/100ms one-way/1%`.
    pub scenario: String,
    /// `direct`, `accelerated`, ...
    pub config: String,
    /// What was measured.
    pub metric: String,
    /// The value; the median of several samples.
    pub value: Option<f64>,
    /// Unit of value, limit, target, min, median and max.
    pub unit: String,
    /// Physical or reference value it is held against.
    pub limit: Option<f64>,
    /// What it must reach.
    pub target: Option<f64>,
    /// How it is held against the target.
    pub op: Option<Op>,
    /// Whether it reached it; `None` where nothing was asked.
    pub ok: Option<bool>,
    /// Samples.
    pub n: Option<u64>,
    /// Least sample.
    pub min: Option<f64>,
    /// Median sample.
    pub median: Option<f64>,
    /// Greatest sample.
    pub max: Option<f64>,
    /// Why there is no value, or why it is not to be trusted.
    pub error: Option<String>,
    /// What else was seen: read-back settings, hashes, counters.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub detail: Map<String, Value>,
}

impl Row {
    /// A row of one value.
    pub fn of(scenario: &str, config: &str, metric: &str, unit: &str, value: f64) -> Self {
        Self::of_samples(scenario, config, metric, unit, &[value])
    }

    /// A row whose value is the samples' median. No samples, or one that is
    /// not a finite number, make a failed row.
    pub fn of_samples(
        scenario: &str,
        config: &str,
        metric: &str,
        unit: &str,
        samples: &[f64],
    ) -> Self {
        let mut row = Self::failed(scenario, config, metric, unit, "");
        row.error = match samples {
            [] => Some("no sample".to_owned()),
            samples if !samples.iter().all(|sample| sample.is_finite()) => {
                Some("a sample is not a finite number".to_owned())
            }
            _ => None,
        };
        if row.error.is_some() {
            return row;
        }
        row.ok = None;
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        row.n = Some(sorted.len() as u64);
        row.min = sorted.first().copied();
        row.max = sorted.last().copied();
        row.median = median_of_sorted(&sorted);
        row.value = row.median;
        row
    }

    /// A row without a value: what was asked for did not work.
    pub fn failed(
        scenario: &str,
        config: &str,
        metric: &str,
        unit: &str,
        error: impl Into<String>,
    ) -> Self {
        Self {
            scenario: scenario.to_owned(),
            config: config.to_owned(),
            metric: metric.to_owned(),
            value: None,
            unit: unit.to_owned(),
            limit: None,
            target: None,
            op: None,
            ok: Some(false),
            n: None,
            min: None,
            median: None,
            max: None,
            error: Some(error.into()),
            detail: Map::new(),
        }
    }

    /// With the value it is held against.
    pub fn limit(mut self, limit: f64) -> Self {
        self.limit = limit.is_finite().then_some(limit);
        self
    }

    /// With what it must reach; decides [`Row::ok`].
    pub fn target(mut self, op: Op, target: f64) -> Self {
        self.op = Some(op);
        self.target = target.is_finite().then_some(target);
        self.ok = Some(match (self.value, op) {
            (Some(value), Op::AtLeast) => value >= target,
            (Some(value), Op::AtMost) => value <= target,
            (None, _) => false,
        });
        self
    }

    /// With something else that was seen.
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.detail.insert(key.to_owned(), value.into());
        self
    }

    /// Value as a share of the limit.
    pub fn share_of_limit(&self) -> Option<f64> {
        let share = self.value? / self.limit?;
        share.is_finite().then_some(share)
    }
}

/// The median of some numbers; `None` of none.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(f64::midpoint(lower, upper))
}

impl Measurement {
    /// An empty document of now, here.
    pub fn new(name: impl Into<String>, plan: impl Into<String>, seed: u64) -> Self {
        Self {
            name: name.into(),
            commit: commit(),
            date: now_text(),
            machine: Machine::here(),
            plan: plan.into(),
            seed,
            rows: Vec::new(),
        }
    }

    /// Whether no row failed.
    pub fn is_ok(&self) -> bool {
        self.rows.iter().all(|row| row.ok != Some(false))
    }

    /// Writes `FOLDER/NAME.json`, whole or not at all, and returns its path.
    /// Under sudo the file, and folders that were missing, belong to who called sudo.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, LabError> {
        let path = folder.join(format!("{}.json", self.name));
        let mut text = serde_json::to_string_pretty(self).map_err(|error| LabError::Invalid {
            what: path.display().to_string(),
            why: error.to_string(),
        })?;
        text.push('\n');
        make_folder(folder)?;
        write_whole_for(Caller::of_sudo(), &path, text.as_bytes())?;
        Ok(path)
    }

    /// Writes a page of it beside it, `FOLDER/NAME.md`.
    pub fn write_page(&self, folder: &Path, page: &str) -> Result<(), LabError> {
        let path = folder.join(format!("{}.md", self.name));
        write_whole_for(Caller::of_sudo(), &path, page.as_bytes())
    }
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let line_value = |path: &str, key: &str, separator: char| {
            let text = fs::read_to_string(path).ok()?;
            let line = text.lines().find(|line| line.starts_with(key))?;
            let (_, value) = line.split_once(separator)?;
            Some(value.trim().trim_matches('"').to_owned())
        };
        let memory_kib = line_value("/proc/meminfo", "MemTotal", ':')
            .and_then(|text| text.trim_end_matches("kB").trim().parse::<u64>().ok());
        Self {
            system: line_value("/etc/os-release", "PRETTY_NAME", '='),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .ok()
                .map(|text| text.trim().to_owned()),
            processor: line_value("/proc/cpuinfo", "model name", ':'),
            cores: std::thread::available_parallelism()
                .ok()
                .map(|n| n.get() as u64),
            memory_bytes: memory_kib.map(|kib| kib * 1024),
        }
    }
}

/// Commit of the source tree around the working folder, if there is one.
fn commit() -> Option<String> {
    let git = |words: &[&str]| {
        // Root in a tree of somebody else's is the normal case under sudo.
        let output = Command::new("git")
            .args(["-c", "safe.directory=*"])
            .args(words)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let head = git(&["rev-parse", "--short=12", "HEAD"])?;
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if is_clean {
        head
    } else {
        format!("{head}-dirty")
    })
}

/// The time of day as RFC 3339 text in UTC.
pub(crate) fn now_text() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    rfc3339(now.unwrap_or_default().as_secs())
}

/// Seconds since 1970 as RFC 3339 text.
pub(crate) fn rfc3339(unix_s: u64) -> String {
    let (days, rest) = (unix_s / 86_400, unix_s % 86_400);
    // Counted in 400-year eras that begin on 1 March, so that the leap day is
    // the last of its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        for (unix_s, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_704_067_199, "2023-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(unix_s), expected);
        }
    }

    #[test]
    fn samples_give_median_least_and_greatest() {
        let row = Row::of_samples("s", "c", "m", "s", &[3.0, 1.0, 2.0]);
        assert_eq!(
            (row.value, row.min, row.max),
            (Some(2.0), Some(1.0), Some(3.0))
        );
        assert_eq!((row.n, row.ok, row.error), (Some(3), None, None));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn targets_decide() {
        let row = || Row::of("s", "c", "ratio", "", 10.0);
        assert_eq!(row().target(Op::AtLeast, 10.0).ok, Some(true));
        assert_eq!(row().target(Op::AtLeast, 10.1).ok, Some(false));
        assert_eq!(row().target(Op::AtMost, 9.9).ok, Some(false));
        assert_eq!(
            Row::failed("s", "c", "m", "", "x")
                .target(Op::AtMost, 1.0)
                .ok,
            Some(false)
        );
    }

    #[test]
    fn nothing_that_is_not_a_number_is_written() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let row = Row::of_samples("s", "c", "m", "s", &[1.0, bad])
                .limit(bad)
                .target(Op::AtLeast, bad);
            assert_eq!((row.value, row.limit, row.ok), (None, None, Some(false)));
            let text = serde_json::to_string(&row).unwrap();
            assert!(text.contains("not a finite number"), "{text}");
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
        assert_eq!(
            Row::of("s", "c", "m", "s", 1.0).limit(0.0).share_of_limit(),
            None
        );
    }

    #[test]
    fn the_document_has_every_column_and_comes_back_the_same() {
        let folder =
            std::env::temp_dir().join(format!("farhaul-measurement-{}", std::process::id()));
        let mut document = Measurement::new("demo", "what was done", 7);
        document.rows.push(
            Row::of("s", "direct", "m", "s", 2.0)
                .limit(1.0)
                .detail("sha256_equal", true),
        );
        document
            .rows
            .push(Row::failed("s", "accelerated", "m", "s", "it broke"));
        let path = document.write(&folder).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let left = fs::read_dir(&folder).unwrap().count();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(path, folder.join("demo.json"));
        assert_eq!(left, 1, "the draft is gone");
        assert_eq!(
            serde_json::from_str::<Measurement>(&text).unwrap(),
            document
        );
        let value: Value = serde_json::from_str(&text).unwrap();
        for key in ["name", "commit", "date", "machine", "plan", "seed", "rows"] {
            assert!(value.get(key).is_some(), "{key} is missing");
        }
        for row in value["rows"].as_array().unwrap() {
            for key in [
                "scenario", "config", "metric", "value", "unit", "limit", "target", "op", "ok",
                "n", "min", "median", "max", "error",
            ] {
                assert!(row.get(key).is_some(), "{key} is missing");
            }
        }
        assert!(!document.is_ok());
    }
}
