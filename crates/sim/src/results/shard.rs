//! The file of one shard.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::plan::{MODEL_VERSION, Plan, PointResult};

/// The first line of a result file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`MODEL_VERSION`] of who wrote it.
    pub model: u32,
    /// Name of the plan.
    pub plan: String,
    /// [`Plan::fingerprint`].
    pub fingerprint: String,
    /// Which shard, from 0.
    pub shard: u32,
    /// Of how many.
    pub of: u32,
    /// Points of the whole plan.
    pub points: u32,
}

/// Which part of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub shard: u32,
    /// How many there are.
    pub of: u32,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Self = Self { shard: 0, of: 1 };

    /// Reads `I/N`, `I` from 0, as array jobs count.
    ///
    /// # Errors
    /// A text that says what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let shard = text.split_once('/').and_then(|(shard, of)| {
            Some(Self {
                shard: shard.parse().ok()?,
                of: of.parse().ok()?,
            })
        });
        shard
            .filter(|shard| shard.shard < shard.of)
            .ok_or_else(|| format!("`{text}` is no shard: write 0/4 for the first of four"))
    }
}

impl Header {
    /// Of a plan's shard.
    pub fn new(plan: &Plan, shard: Shard) -> Self {
        Self {
            model: MODEL_VERSION,
            plan: plan.name().to_owned(),
            fingerprint: plan.fingerprint().to_owned(),
            shard: shard.shard,
            of: shard.of,
            points: u32::try_from(plan.points().len()).unwrap_or(u32::MAX),
        }
    }

    /// Whether both are of one plan and model, cut into as many shards.
    pub(super) fn belongs_with(&self, other: &Self) -> bool {
        let of_shard = |header: &Self| Self {
            shard: 0,
            ..header.clone()
        };
        of_shard(self) == of_shard(other)
    }
}

/// Why a result file cannot be gone on with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// Its first line is none of ours.
    #[error("it is no result file of farhaul sim: {0}")]
    NoHeader(String),
    /// It is of another plan, model or shard.
    #[error("it is of another plan, model version or shard: {found}; this one is {wanted}")]
    Foreign {
        /// What the file says.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// A line in the middle is damaged.
    #[error("line {0} is damaged")]
    Damaged(usize),
}

/// What a stopped run left.
#[derive(Debug, Clone, PartialEq)]
pub struct Resumed {
    /// Numbers of the points that are done.
    pub done: BTreeSet<u32>,
    /// How many bytes of the file are whole lines; what follows is to be cut.
    pub whole_bytes: usize,
}

/// Looks at the text of a shard's file that may have been cut anywhere.
///
/// # Errors
/// [`ResumeError`].
pub fn resume(text: &str, wanted: &Header) -> Result<Resumed, ResumeError> {
    let whole_bytes = text.rfind('\n').map_or(0, |at| at + 1);
    let whole = text.get(..whole_bytes).unwrap_or_default();
    let mut lines = whole.lines();
    let mut done = BTreeSet::new();
    if let Some(first) = lines.next() {
        let found = header(first)?;
        if found != *wanted {
            return Err(ResumeError::Foreign {
                found: describe(&found),
                wanted: describe(wanted),
            });
        }
    }
    for (number, line) in lines.enumerate() {
        let result: PointResult =
            serde_json::from_str(line).map_err(|_| ResumeError::Damaged(number + 2))?;
        done.insert(result.point.number);
    }
    Ok(Resumed { done, whole_bytes })
}

pub(super) fn header(line: &str) -> Result<Header, ResumeError> {
    serde_json::from_str(line).map_err(|error| ResumeError::NoHeader(error.to_string()))
}

fn describe(header: &Header) -> String {
    format!(
        "plan {} {}, model {}, shard {}/{}",
        header.plan, header.fingerprint, header.model, header.shard, header.of
    )
}
