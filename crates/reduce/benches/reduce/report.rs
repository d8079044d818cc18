//! The measurement as tables. What misses its target is in bold.

use std::fmt::Write;

use farhaul_lab::measurement::{Measurement, Row};

use crate::CONFIGS;
use crate::corpora::NAMES;
use crate::levels::LINKS_MBIT_S;

/// All of it in Markdown.
pub fn report(measured: &Measurement) -> String {
    let rows = Rows(&measured.rows);
    let mut text = format!(
        "# What a second version costs\n\nCommit {}, {}, {}. {}.\n",
        measured.commit.as_deref().unwrap_or("unknown"),
        measured.date,
        measured.machine.processor.as_deref().unwrap_or("unknown"),
        measured.plan
    );
    text += "\nBold is what misses its target.\n";
    shares(&rows, &mut text);
    speeds(&rows, &mut text);
    levels(&rows, &mut text);
    sources(&rows, &mut text);
    text
}

struct Rows<'a>(&'a [Row]);

impl Rows<'_> {
    fn find(&self, pair: &str, config: &str, metric: &str) -> Option<&Row> {
        let is_it = |row: &&Row| {
            (
                row.scenario.as_str(),
                row.config.as_str(),
                row.metric.as_str(),
            ) == (pair, config, metric)
        };
        self.0.iter().find(is_it)
    }

    /// A cell; `-` where nothing was measured.
    fn cell(&self, pair: &str, config: &str, metric: &str, digits: usize) -> String {
        let row = self.find(pair, config, metric);
        let Some((row, value)) = row.and_then(|row| Some((row, row.value?))) else {
            return "-".to_owned();
        };
        match row.ok {
            Some(false) => format!("**{value:.digits$}**"),
            _ => format!("{value:.digits$}"),
        }
    }
}

fn line(cells: &[String], text: &mut String) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn head(cells: &[&str], text: &mut String) {
    text.push('\n');
    line(
        &cells
            .iter()
            .map(|cell| (*cell).to_owned())
            .collect::<Vec<_>>(),
        text,
    );
    line(&vec!["---".to_owned(); cells.len()], text);
}

fn shares(rows: &Rows, text: &mut String) {
    text.push_str("\n## The edited version on the wire, and the identical one after it\n");
    head(
        &[
            "pair",
            "bytes, memory tier",
            "share",
            "bytes, sparse",
            "share",
            "bytes, disk tier",
            "share",
            "FastCDC 8K",
            "share",
            "identical, bytes",
            "identical, disk tier",
            "index, B/GB",
        ],
        text,
    );
    for pair in NAMES {
        let cells = [
            (*pair).to_owned(),
            rows.cell(pair, "edited zstd 3", "wire", 0),
            rows.cell(pair, "edited zstd 3", "share", 4),
            rows.cell(pair, "edited zstd 3 sparse", "wire", 0),
            rows.cell(pair, "edited zstd 3 sparse", "share", 4),
            rows.cell(pair, "edited disk tier", "wire", 0),
            rows.cell(pair, "edited disk tier", "share", 4),
            rows.cell(pair, "FastCDC 8K zstd 3", "wire", 0),
            rows.cell(pair, "FastCDC 8K zstd 3", "share", 4),
            rows.cell(pair, "identical null", "wire", 0),
            rows.cell(pair, "identical disk tier", "wire", 0),
            rows.cell(pair, "null", "index", 0),
        ];
        line(&cells, text);
    }
}

fn speeds(rows: &Rows, text: &mut String) {
    text.push_str("\n## GB/s of one core's time: first, edited, identical\n");
    head(
        &[
            "pair",
            "encode, null",
            "decode, null",
            "encode, null, sparse",
            "decode, null, sparse",
            "encode, null, echoes",
            "decode, null, echoes",
            "encode, zstd 3",
            "encode, disk tier",
        ],
        text,
    );
    for pair in NAMES {
        let of = |codec: &str, metric: &str| {
            let cells = CONFIGS.map(|pass| rows.cell(pair, &format!("{pass} {codec}"), metric, 2));
            cells.join(", ")
        };
        let cells = [
            (*pair).to_owned(),
            of("null", "encode"),
            of("null", "decode"),
            of("null sparse", "encode"),
            of("null sparse", "decode"),
            of("null echoes", "encode"),
            of("null echoes", "decode"),
            of("zstd 3", "encode"),
            of("disk tier", "encode"),
        ];
        line(&cells, text);
    }
}

fn levels(rows: &Rows, text: &mut String) {
    text.push_str(
        "\n## The level one core takes most often for the first version, by link (-100: none), and in brackets what the rule moves \
         beside the best fixed level\n",
    );
    let links = LINKS_MBIT_S.map(|mbit_s| format!("{mbit_s} Mbit/s"));
    let mut titles = vec!["pair"];
    titles.extend(links.iter().map(String::as_str));
    head(&titles, text);
    for pair in NAMES {
        let mut cells = vec![(*pair).to_owned()];
        cells.extend(links.iter().map(|link| {
            let level = rows.cell(pair, link, "level", 0);
            format!("{level} ({})", rows.cell(pair, link, "of best level", 2))
        }));
        line(&cells, text);
    }
}

/// What nobody here edited: package and version, and the hash of what was sent of it.
fn sources(rows: &Rows, text: &mut String) {
    text.push_str("\n## What was sent: SHA-256 of each version, and the packages it is made of\n");
    head(&["pair", "version", "SHA-256", "packages"], text);
    for pair in NAMES {
        for config in ["first null", "edited null"] {
            let Some(row) = rows.find(pair, config, "wire") else {
                continue;
            };
            let packages = row.detail.get("made_of").and_then(|of| of.as_array());
            let packages = packages.into_iter().flatten().filter_map(|of| of.as_str());
            let packages = match packages.collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => "made on the spot".to_owned(),
                packages => packages,
            };
            let version = config.split(' ').next().unwrap_or_default();
            let sha256 = row.detail.get("sha256").and_then(|hash| hash.as_str());
            let cells = [*pair, version, sha256.unwrap_or("-"), &packages];
            line(&cells.map(str::to_owned), text);
        }
    }
}
