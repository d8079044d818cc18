//! What is sent: pairs of versions, the second one edited. Made on the spot, the same on every machine.

use std::fmt::Write;
use std::io::Read;
use std::path::Path;

use crate::office;
use crate::source::Noise;
use crate::versions;

/// Two versions of the same thing.
pub struct Pair {
    /// Short stable name.
    pub name: &'static str,
    pub first: Vec<u8>,
    pub second: Vec<u8>,
    /// The packages, with their versions, of either; none where it is made here.
    pub made_of: [Vec<String>; 2],
}

/// Names of all pairs.
pub const NAMES: &[&str] = &[
    "kernel-tar",
    "usr-tar",
    "usr-image",
    "logs",
    "sql",
    "office",
    "office-inflated",
    "random",
];

/// Reads or makes a pair, each version cut to `bytes_max`; upstream versions lie in `folder`.
pub fn pair(name: &'static str, folder: &Path, bytes_max: usize) -> std::io::Result<Pair> {
    let file = |file: &str| {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(folder.join(file))?;
        file.take(bytes_max as u64).read_to_end(&mut bytes)?;
        std::io::Result::Ok(bytes)
    };
    let (mut first, mut second) = match name {
        "kernel-tar" => (file("kernel-1.tar")?, file("kernel-2.tar")?),
        "usr-tar" => (file("usr-1.tar")?, file("usr-2.tar")?),
        "usr-image" => (file("usr-1.img")?, file("usr-2.img")?),
        "logs" => logs(),
        "sql" => sql(),
        "office" => office::folders(BYTES, office::Kept::Deflated),
        "office-inflated" => office::folders(BYTES, office::Kept::Plain),
        _ => random(),
    };
    first.truncate(bytes_max);
    second.truncate(bytes_max);
    Ok(Pair {
        name,
        first,
        second,
        made_of: ["1", "2"].map(|nth| versions::of(name, nth, folder)),
    })
}

const BYTES: usize = 210_000_000;

/// A web server's log; the second version is the same with a fortieth of it rotated away and as much added.
fn logs() -> (Vec<u8>, Vec<u8>) {
    let mut noise = Noise::new(1);
    let mut text = String::with_capacity(BYTES + BYTES / 20);
    let mut time_ms = 1_700_000_000_000u64;
    while text.len() < BYTES + BYTES / 40 {
        time_ms += noise.below(80);
        let (client, user, page) = (noise.below(3000), noise.below(500), noise.below(20_000));
        let status = [200, 200, 200, 200, 304, 404, 500][noise.below(7) as usize];
        let _ = writeln!(
            text,
            "10.{}.{}.{} - user{user} [{}.{:03}] \"GET /app/item/{page}?session={:016x} HTTP/1.1\" {status} {} \"-\" \"Mozilla/5.0 (X11; Linux x86_64; rv:{}.0) Gecko/20100101 Firefox/{}.0\" {}us",
            client / 250,
            client % 250,
            client % 7,
            time_ms / 1000,
            time_ms % 1000,
            noise.next(),
            noise.below(90_000),
            100 + client % 30,
            100 + client % 30,
            noise.below(500_000)
        );
    }
    let text = text.into_bytes();
    (text[..BYTES].to_vec(), text[BYTES / 40..].to_vec())
}

/// A dump of a table; in the second version 12 % of the rows have changed.
fn sql() -> (Vec<u8>, Vec<u8>) {
    let dump = |edit: bool| {
        let (mut noise, mut changes) = (Noise::new(2), Noise::new(3));
        let mut text = String::with_capacity(BYTES + (1 << 20));
        let mut row = 0u64;
        while text.len() < BYTES {
            let (name, city, amount, token, rest) = (
                noise.below(40_000),
                noise.below(900),
                noise.below(10_000_000),
                noise.next(),
                noise.next(),
            );
            let changed = changes.below(100) < 12;
            let amount = if edit && changed {
                changes.below(10_000_000)
            } else {
                amount
            };
            let note = if edit && changed {
                "updated by the nightly run"
            } else {
                "imported"
            };
            let _ = writeln!(
                text,
                "INSERT INTO `orders` VALUES ({row},'customer {name}','city {city}',{}.{:02},'2025-{:02}-{:02}','{token:016x}{rest:016x}','{note}');",
                amount / 100,
                amount % 100,
                1 + token % 12,
                1 + rest % 28
            );
            row += 1;
        }
        text.into_bytes()
    };
    (dump(false), dump(true))
}

/// Nothing to find: noise, and other noise.
fn random() -> (Vec<u8>, Vec<u8>) {
    let bytes = |seed| {
        let mut noise = Noise::new(seed);
        std::iter::repeat_with(|| noise.next().to_le_bytes())
            .take(BYTES / 8)
            .flatten()
            .collect()
    };
    (bytes(4), bytes(5))
}
