//! A plan as it is written.

use serde::Deserialize;
use toml::Spanned;

/// A list of words, each with its place in the file.
pub(super) type Words = Spanned<Vec<Spanned<String>>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) about: String,
    #[serde(default = "first")]
    pub(super) seed: u64,
    pub(super) repeat: Option<Spanned<u32>>,
    pub(super) cell_s: Option<Spanned<u64>>,
    pub(super) flat_after_s: Option<Spanned<u64>>,
    pub(super) congestion_control: Option<String>,
    pub(super) cells: Vec<Block>,
    #[serde(default)]
    pub(super) expect: Vec<Expectation>,
}

fn first() -> u64 {
    1
}

/// Every combination of its lists is a cell.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Block {
    pub(super) rate: Words,
    pub(super) delay: Words,
    pub(super) jitter: Option<Words>,
    pub(super) loss: Option<Words>,
    pub(super) queue: Option<Words>,
    pub(super) client: Words,
    pub(super) work: Option<Words>,
    pub(super) config: Words,
    pub(super) receive_buffer: Option<Words>,
    pub(super) size: Spanned<String>,
    pub(super) files: Option<Spanned<u32>>,
    pub(super) repeat: Option<Spanned<u32>>,
    pub(super) cell_s: Option<Spanned<u64>>,
    pub(super) least_of_limit: Option<Spanned<f64>>,
    pub(super) least_of_direct: Option<Spanned<f64>>,
    pub(super) most_extra_reads: Option<Spanned<f64>>,
}

/// A cell of which somebody else has told what comes out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expectation {
    pub(super) cell: Spanned<String>,
    pub(super) value: Spanned<f64>,
    pub(super) within: Spanned<f64>,
}
