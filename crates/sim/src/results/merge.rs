//! Shards put together: complete, of one plan, nothing twice.

use std::collections::BTreeMap;

use super::shard::{Header, ResumeError, header};
use crate::plan::{Plan, PointResult};

/// Points named in a message.
const NAMED_MAX: usize = 10;

/// Why files make no whole plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// Nothing to merge.
    #[error("no result file was given")]
    Nothing,
    /// A file that cannot be read.
    #[error("{file}: {why}")]
    File {
        /// Its name.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// Files of different plans or versions.
    #[error("{file} does not belong with {first}: another plan, model version or number of shards")]
    Foreign {
        /// The one.
        first: String,
        /// The other.
        file: String,
    },
    /// A point that is in two files, or not of this shard.
    #[error("{file}: point {point} {why}")]
    Point {
        /// Where.
        file: String,
        /// Its number.
        point: u32,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Not everything was run.
    #[error("{missing} of {points} points are missing: {first}")]
    Missing {
        /// How many.
        missing: usize,
        /// Of how many.
        points: u32,
        /// The first of them, with their shards.
        first: String,
    },
}

/// A whole plan's results.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// As if it had been one shard.
    pub header: Header,
    /// The points, in order: every one, unless it was said that some may be missing.
    pub results: Vec<PointResult>,
}

/// Whether a plan must be whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    /// No point may be missing.
    Whole,
    /// A look at an unfinished sweep.
    Partial,
}

impl Merged {
    /// The file that one run of the whole plan would have written.
    pub fn to_text(&self) -> String {
        let mut lines = vec![serde_json::to_string(&self.header).unwrap_or_default()];
        let results = self.results.iter();
        lines.extend(results.map(|result| serde_json::to_string(result).unwrap_or_default()));
        lines.push(String::new());
        lines.join("\n")
    }

    /// Points of the plan that are not there.
    pub fn missing(&self) -> usize {
        (self.header.points as usize).saturating_sub(self.results.len())
    }

    /// Whether these are a plan's results.
    pub fn is_of(&self, plan: &Plan) -> bool {
        self.header == Header::new(plan, super::Shard::WHOLE)
    }
}

/// Merges the texts of result files, each with its name.
///
/// # Errors
/// [`MergeError`] where a shard is missing, foreign, damaged or there twice.
pub fn merge(files: &[(String, String)], completeness: Completeness) -> Result<Merged, MergeError> {
    let mut first: Option<(&str, Header)> = None;
    let mut results: BTreeMap<u32, PointResult> = BTreeMap::new();
    for (file, text) in files {
        let (header, found) = read(file, text)?;
        if let Some((first, of_first)) = &first
            && !header.belongs_with(of_first)
        {
            return Err(MergeError::Foreign {
                first: (*first).to_owned(),
                file: file.clone(),
            });
        }
        for result in found {
            let point = result.point.number;
            let wrong = |why| MergeError::Point {
                file: file.clone(),
                point,
                why,
            };
            if point >= header.points || point % header.of.max(1) != header.shard {
                return Err(wrong("is not of this shard"));
            }
            if results.insert(point, result).is_some() {
                return Err(wrong("is there twice"));
            }
        }
        first.get_or_insert((file.as_str(), header));
    }
    let (_, header) = first.ok_or(MergeError::Nothing)?;
    complete(header, results, completeness)
}

fn read(file: &str, text: &str) -> Result<(Header, Vec<PointResult>), MergeError> {
    let wrong = |why: String| MergeError::File {
        file: file.to_owned(),
        why,
    };
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(wrong(
            "its last line is cut; go on with it by --resume".to_owned(),
        ));
    }
    let mut lines = text.lines();
    let first = lines
        .next()
        .ok_or_else(|| wrong("it is empty".to_owned()))?;
    let header = header(first).map_err(|error: ResumeError| wrong(error.to_string()))?;
    let results = lines.enumerate().map(|(number, line)| {
        serde_json::from_str(line).map_err(|error| wrong(format!("line {}: {error}", number + 2)))
    });
    Ok((header, results.collect::<Result<_, _>>()?))
}

fn complete(
    header: Header,
    results: BTreeMap<u32, PointResult>,
    completeness: Completeness,
) -> Result<Merged, MergeError> {
    let missing: Vec<u32> = (0..header.points)
        .filter(|number| !results.contains_key(number))
        .collect();
    if !missing.is_empty() && completeness == Completeness::Whole {
        let named = missing.iter().take(NAMED_MAX);
        let named = named.map(|number| {
            format!(
                "{number} (shard {}/{})",
                number % header.of.max(1),
                header.of
            )
        });
        return Err(MergeError::Missing {
            missing: missing.len(),
            points: header.points,
            first: named.collect::<Vec<_>>().join(", "),
        });
    }
    Ok(Merged {
        header: Header {
            shard: 0,
            of: 1,
            ..header
        },
        results: results.into_values().collect(),
    })
}
