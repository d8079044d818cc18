//! `make bench-reduce`: how much of a second version does not cross the WAN, and what that costs in processor time.
//! Prints a table and writes `out/reduce.json`, and the same as tables `out/reduce.md`.
//!
//! | environment | what |
//! |---|---|
//! | `CORPORA` | folder of the upstream versions, made by `scripts/reduce-corpora.sh` |
//! | `ONLY` | pairs whose name holds this text; nothing is written then |
//! | `MEGABYTES` | so much of each version, 256 if unset |

#![allow(clippy::unwrap_used, missing_docs)]

mod corpora;
mod fastcdc;
mod levels;
mod office;
mod passes;
mod reference;
mod report;
#[path = "../../tests/source/mod.rs"]
mod source;
mod versions;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use corpora::Pair;
use farhaul_lab::measurement::{Measurement, Op, Row};
use farhaul_reduce::{Codec, Encoder, Memory, Sampling, Settings};
use passes::{Link, Pass};

const PLAN: &str = "the first 256 MB of each version (MEGABYTES says otherwise); each pair once through encoder and decoder in one thread, memory tier: first version, second version \
    (edited), second version again (identical), every byte compared; input in pieces of 256 KiB from one buffer; GB/s (1e9) of \
    the thread's CPU time, memory touched before; `disk tier`: 40 MB for the direction, divided as a gateway does, everything else on two disks (in memory here) and read back \
    when it is found again, at most 32 segments for a frame, or it is sent as it is; speeds without compression: medians of five runs; `sparse`: one sample in 128 bytes instead of 64, as on links faster than the encoder; `echoes`: with what a gateway does for \
    bytes that go back the way they came: the decoder remembers samples of what is new, in a 64th of its log, and what is new in a frame is looked for in \
    what came from the other end (64 MB of noise), in vain; encode includes framing and compression; wire bytes with zstd 3 unless the row \
    says null; `share` is (input - wire) / (input - patch-from), `share beyond zstd` (zstd - wire) / (zstd - patch-from) with \
    zstd -3 --long=31; levels: 48 MiB from the middle of the first version in pieces of 256 KiB, one core compresses at most 512 KiB ahead of the link";

/// GB/s of first, edited and identical pass, null codec.
const ENCODE_TARGETS: [f64; 3] = [1.5, 2.0, 8.0];
const DECODE_TARGET: f64 = 5.0;
const SHARE_TARGET: f64 = 0.97;
/// Wire bytes per byte of an identical re-send: 64 KiB for a gigabyte.
const IDENTICAL_TARGET: f64 = 65_536.0 / 1e9;
/// Memory of a direction where the rest is on disk, divided as a gateway does: four fifths are the log's, and an eighth
/// is read ahead.
const DISK_TIER_MEMORY_BYTES: usize = 40 << 20;
/// Bytes of each version in units of 1e6.
const MEGABYTES: usize = 256;
const CONFIGS: [&str; 3] = ["first", "edited", "identical"];
/// How a pair is encoded and decoded.
struct Way {
    codec: Codec,
    sampling: Sampling,
    /// Both gateways give names to what goes back the way it came.
    has_echoes: bool,
    name: &'static str,
}

impl Way {
    const fn plain(codec: Codec, sampling: Sampling, name: &'static str) -> Self {
        Self {
            codec,
            sampling,
            has_echoes: false,
            name,
        }
    }
}

/// Sparse: what the encoder looks at where the link is faster than itself. Echoes: what a gateway does besides.
const WAYS: [Way; 5] = [
    Way::plain(Codec::Null, Sampling::Dense, "null"),
    Way::plain(Codec::Null, Sampling::Sparse, "null sparse"),
    Way {
        has_echoes: true,
        ..Way::plain(Codec::Null, Sampling::Dense, "null echoes")
    },
    Way::plain(Codec::Zstd(3), Sampling::Dense, "zstd 3"),
    Way::plain(Codec::Zstd(3), Sampling::Sparse, "zstd 3 sparse"),
];
/// Of a log, one in so many bytes is for the index of what may go back: what a gateway does.
const ECHO_SHARE: usize = 64;
/// Runs of what has a target: a neighbour on the same host slows single ones by a fifth and more.
const RUNS: usize = 5;

fn main() -> ExitCode {
    let folder = PathBuf::from(std::env::var("CORPORA").unwrap_or_default());
    let only = std::env::var("ONLY").unwrap_or_default();
    let megabytes = std::env::var("MEGABYTES").map(|text| text.parse());
    let megabytes = megabytes
        .unwrap_or(Ok(MEGABYTES))
        .expect("MEGABYTES is a number");
    let mut document = Measurement::new("reduce", PLAN, 0);
    for name in corpora::NAMES.iter().filter(|name| name.contains(&only)) {
        let rows = match corpora::pair(name, &folder, megabytes * 1_000_000) {
            Ok(pair) => measure(&pair),
            Err(error) => vec![Row::failed(name, "all", "pair", "", error.to_string())],
        };
        rows.iter().for_each(show);
        document.rows.extend(rows);
    }
    if !only.is_empty() {
        return ExitCode::SUCCESS;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../out");
    match document.write(&folder) {
        Ok(path) => {
            std::fs::write(path.with_extension("md"), report::report(&document)).unwrap();
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn show(row: &Row) {
    let value = row
        .value
        .map_or("-".to_owned(), |value| format!("{value:.5}"));
    let target = match (row.target, row.op) {
        (Some(target), Some(Op::AtLeast)) => format!(">= {target:.5}"),
        (Some(target), Some(Op::AtMost)) => format!("<= {target:.5}"),
        _ => String::new(),
    };
    let verdict = match row.ok {
        Some(true) => "ok",
        Some(false) => "MISSED",
        None => "",
    };
    let (scenario, config, metric, unit) = (&row.scenario, &row.config, &row.metric, &row.unit);
    println!(
        "{scenario:<11} {config:<18} {metric:<18} {value:>18} {unit:<5} {target:<12} {verdict}"
    );
}

/// Huge pages, all there from the start: a gateway that has run for an hour pays for neither.
#[allow(unsafe_code)]
fn huge_pages(_: Memory, start: *const u8, bytes: usize) {
    use rustix::mm::{Advice, madvise};
    let page = 2 << 20;
    let skip = start.align_offset(page);
    let whole = bytes.saturating_sub(skip) / page * page;
    for advice in [Advice::LinuxHugepage, Advice::LinuxPopulateWrite] {
        // SAFETY: whole pages inside of memory that the caller owns; neither advice changes what is in them.
        let _ = unsafe { madvise(start.wrapping_add(skip).cast_mut().cast(), whole, advice) };
    }
}

fn settings(pair: &Pair) -> Settings {
    let memory_bytes = (pair.first.len() + pair.second.len() / 2).max(256 << 20);
    Settings {
        advise: huge_pages,
        ..Settings::of_memory(memory_bytes)
    }
}

fn echo_settings(pair: &Pair) -> Settings {
    let settings = settings(pair);
    Settings {
        echo_bytes: settings.memory_bytes / ECHO_SHARE,
        ..settings
    }
}

fn measure(pair: &Pair) -> Vec<Row> {
    let mut rows = Vec::new();
    let reference = reference::zstd(pair);
    for way in &WAYS {
        rows.extend(way_rows(pair, way, reference.as_ref()));
    }
    rows.extend(disk_rows(pair, reference.as_ref()));
    let mut chunks = fastcdc::Chunks::default();
    chunks.pass(&pair.first, Codec::Zstd(3));
    let (wire, new) = chunks.pass(&pair.second, Codec::Zstd(3));
    rows.push(
        Row::of(pair.name, "FastCDC 8K zstd 3", "wire", "B", wire as f64)
            .detail("literal_bytes", new),
    );
    rows.extend(share_rows(
        pair,
        "FastCDC 8K zstd 3",
        wire,
        reference.as_ref(),
        false,
    ));
    rows.extend(levels::rows(pair));
    rows
}

/// One codec and sampling: three passes, again and again where a target holds for the speed.
fn way_rows(pair: &Pair, way: &Way, reference: Result<&reference::Zstd, &String>) -> Vec<Row> {
    let mut rows = Vec::new();
    let is_null = way.codec == Codec::Null;
    let runs: Vec<[Pass; 3]> = (0..if is_null { RUNS } else { 1 })
        .map(|_| {
            let mut link = match way.has_echoes {
                true => Link::with_echoes(echo_settings(pair)),
                false => Link::new(settings(pair)),
            };
            link.encoder.set_sampling(way.sampling);
            [&pair.first, &pair.second, &pair.second].map(|input| link.pass(input, way.codec))
        })
        .collect();
    for nth in 0..CONFIGS.len() {
        let passes: Vec<Pass> = runs.iter().map(|run| run[nth]).collect();
        let config = format!("{} {}", CONFIGS[nth], way.name);
        let target = is_null.then_some(ENCODE_TARGETS[nth]);
        rows.extend(speed_rows(pair, &config, &passes, target));
        rows.push(wire_row(pair, &config, &passes[0], nth));
        if nth == 1 && !is_null {
            let wire_bytes = passes[0].wire_bytes;
            rows.extend(share_rows(pair, &config, wire_bytes, reference, true));
        }
    }
    if way.name == "null" {
        let settings = settings(pair);
        let index_bytes = Encoder::new(settings).stats().index_bytes as f64;
        let per_gb = index_bytes / (settings.memory_bytes as f64 / 1e9);
        rows.push(Row::of(pair.name, "null", "index", "B/GB", per_gb));
    }
    rows
}

/// The same with little memory: what has left it is read back from disk.
fn disk_rows(pair: &Pair, reference: Result<&reference::Zstd, &String>) -> Vec<Row> {
    let disk_bytes = settings(pair).memory_bytes;
    let settings = Settings::of_memory_and_disk(DISK_TIER_MEMORY_BYTES / 5 * 4, disk_bytes);
    let mut link = Link::with_disks(settings, DISK_TIER_MEMORY_BYTES as u64 / 8);
    let mut rows = Vec::new();
    for (nth, input) in [&pair.first, &pair.second, &pair.second]
        .into_iter()
        .enumerate()
    {
        let pass = link.pass(input, Codec::Zstd(3));
        let config = format!("{} disk tier", CONFIGS[nth]);
        rows.extend(speed_rows(pair, &config, &[pass], None));
        let wire = wire_row(pair, &config, &pass, nth);
        let stats = link.encoder.stats();
        rows.push(
            wire.detail("recalled", stats.recalled)
                .detail("repeated", pass.repeated),
        );
        if nth == 1 {
            rows.extend(share_rows(pair, &config, pass.wire_bytes, reference, true));
        }
    }
    rows
}

/// Medians of the passes; a target is that of encoding.
fn speed_rows(pair: &Pair, config: &str, passes: &[Pass], target: Option<f64>) -> [Row; 2] {
    let row = |metric, speed: fn(&Pass) -> f64| {
        let speeds: Vec<f64> = passes.iter().map(speed).collect();
        Row::of_samples(pair.name, config, metric, "GB/s", &speeds)
    };
    let (encode, decode) = (
        row("encode", Pass::encode_gb_s),
        row("decode", Pass::decode_gb_s),
    );
    match target {
        Some(target) => [
            encode.target(Op::AtLeast, target),
            decode.target(Op::AtLeast, DECODE_TARGET),
        ],
        None => [encode, decode],
    }
}

fn wire_row(pair: &Pair, config: &str, pass: &Pass, nth: usize) -> Row {
    let row = Row::of(pair.name, config, "wire", "B", pass.wire_bytes as f64)
        .limit(pass.input_bytes as f64)
        .detail("literal_bytes", pass.literal_bytes)
        .detail("token_bytes", pass.token_bytes)
        .detail(
            "sha256",
            reference::sha256(if nth == 0 { &pair.first } else { &pair.second }),
        )
        .detail("made_of", pair.made_of[nth.min(1)].clone());
    if nth == 2 {
        row.target(Op::AtMost, pass.input_bytes as f64 * IDENTICAL_TARGET)
    } else {
        row
    }
}

/// Shares of what patch-from saves. Of pairs without anything in common there is none.
fn share_rows(
    pair: &Pair,
    config: &str,
    wire: u64,
    reference: Result<&reference::Zstd, &String>,
    is_ours: bool,
) -> Vec<Row> {
    let input = pair.second.len() as f64;
    let zstd = match reference {
        Ok(zstd) => zstd,
        Err(error) => return vec![Row::failed(pair.name, config, "share", "", error)],
    };
    let (alone, patch, wire) = (zstd.alone as f64, zstd.patch_from as f64, wire as f64);
    if patch > 0.99 * input {
        return Vec::new();
    }
    let share = Row::of(
        pair.name,
        config,
        "share",
        "",
        (input - wire) / (input - patch),
    )
    .detail("zstd_bytes", zstd.alone)
    .detail("patch_from_bytes", zstd.patch_from);
    let beyond = Row::of(
        pair.name,
        config,
        "share beyond zstd",
        "",
        (alone - wire) / (alone - patch),
    );
    vec![
        if is_ours {
            share.target(Op::AtLeast, SHARE_TARGET)
        } else {
            share
        },
        beyond,
    ]
}
