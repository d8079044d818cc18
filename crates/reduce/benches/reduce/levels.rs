//! The level rule on a pair's first version: which level it takes by link, and how much it moves beside the best fixed level.

use farhaul_lab::measurement::Row;
use farhaul_reduce::{Codec, Levels};

use crate::corpora::Pair;
use crate::passes;

/// Literals the levels are tried on, from the middle of the version.
const LEVEL_BYTES: usize = 48 << 20;
/// What a gateway compresses at once.
const PIECE_BYTES: usize = 256 << 10;
/// What a flow may have written ahead of the link (`send_buffer_bytes_max` of a tunnel).
const AHEAD_BYTES: f64 = 512.0 * 1024.0;
pub const LINKS_MBIT_S: [f64; 5] = [1.5, 45.0, 155.0, 1000.0, 10_000.0];
/// What stands for doing nothing in a table of levels.
const NONE: f64 = -100.0;

/// Bytes on the wire and processor time (ns) of one piece at one level.
type Cost = (usize, u64);

/// One core compresses while the link carries what it made before; the time for all of it, s.
fn time_s(pieces: &[Vec<Cost>], link_bytes_s: f64, mut pick: impl FnMut(&[Cost]) -> usize) -> f64 {
    let (mut made_s, mut sent_s) = (0.0f64, 0.0f64);
    for costs in pieces {
        let (bytes, cpu_ns) = costs[pick(costs)];
        made_s = made_s.max(sent_s - AHEAD_BYTES / link_bytes_s) + cpu_ns as f64 / 1e9;
        sent_s = sent_s.max(made_s) + bytes as f64 / link_bytes_s;
    }
    sent_s
}

/// Two rows for each link: the level that was taken most often, and the time of the best fixed level by that of the rule.
pub fn rows(pair: &Pair) -> Vec<Row> {
    let codecs = Levels::new(None).all();
    let start = pair.first.len().saturating_sub(LEVEL_BYTES) / 2;
    let pieces: Vec<Vec<Cost>> = pair.first[start..]
        .chunks(PIECE_BYTES)
        .take(LEVEL_BYTES / PIECE_BYTES)
        .map(|piece| {
            let cost = |&codec: &Codec| {
                let (bytes, cpu) = passes::compress(piece, codec);
                (bytes, cpu.as_nanos() as u64)
            };
            codecs.iter().map(cost).collect()
        })
        .collect();
    LINKS_MBIT_S
        .iter()
        .flat_map(|&mbit_s| of_link(pair, &codecs, &pieces, mbit_s))
        .collect()
}

fn of_link(pair: &Pair, codecs: &[Codec], pieces: &[Vec<Cost>], mbit_s: f64) -> [Row; 2] {
    let link_bytes_s = mbit_s * 1e6 / 8.0;
    let mut levels = Levels::new(None);
    let mut taken = vec![0u64; codecs.len()];
    let rule_s = time_s(pieces, link_bytes_s, |costs| {
        let codec = levels.trial();
        let nth = codecs.iter().position(|known| *known == codec).unwrap();
        let (bytes, cpu_ns) = costs[nth];
        levels.handle_sample(codec, PIECE_BYTES, bytes, cpu_ns);
        levels.choose(1.0, link_bytes_s);
        taken[nth] += 1;
        nth
    });
    let fixed_s = (0..codecs.len()).map(|nth| time_s(pieces, link_bytes_s, |_| nth));
    let (best, best_s) = fixed_s
        .enumerate()
        .min_by(|left, right| left.1.total_cmp(&right.1))
        .unwrap();
    let most = (0..taken.len()).max_by_key(|&nth| taken[nth]).unwrap();
    let number = |nth: usize| match codecs[nth] {
        Codec::Null => NONE,
        Codec::Zstd(level) => f64::from(level),
    };
    let config = format!("{mbit_s} Mbit/s");
    [
        Row::of(pair.name, &config, "level", "", number(most))
            .detail("sampling", format!("{:?}", levels.sampling())),
        Row::of(pair.name, &config, "of best level", "", best_s / rule_s)
            .detail("best_level", number(best)),
    ]
}
