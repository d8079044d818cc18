//! How long a store of segments takes to fill, to open and to read back: `segment_store FOLDER GIGABYTES`. The folder is made, and removed again.
#![allow(clippy::unwrap_used)] // an instrument: whatever goes wrong ends it

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use farhaul_gateway::store::{Embedded, Folder, Key, Options, Store};
use farhaul_reduce::{BLOCK_BYTES, SEGMENT_BLOCKS, SEGMENT_BYTES};

const WHOLE: [u32; SEGMENT_BLOCKS] = [BLOCK_BYTES as u32; SEGMENT_BLOCKS];
/// Segments that are made durable together, as the gateway does.
const GROUP: u64 = 16;

fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(folder), Some(gigabytes)) = (words.next(), words.next()) else {
        eprintln!("segment_store FOLDER GIGABYTES");
        std::process::exit(2);
    };
    let folder = PathBuf::from(folder);
    assert!(!folder.exists(), "{} is there already", folder.display());
    let segments = gigabytes.parse::<u64>().unwrap() * 1_000_000_000 / SEGMENT_BYTES as u64;
    let options = Options {
        size_bytes: segments * SEGMENT_BYTES as u64 / 100 * 102,
        place: [0; 32],
    };
    let open = || Embedded::open(Folder::open(&folder).unwrap(), options).unwrap();
    let mut store = open();
    timed("fill", segments, || fill(&mut store, segments));
    drop(store);
    let mut store = timed("open", segments, open);
    assert_eq!(store.catalog().lock().unwrap().segments() as u64, segments);
    timed("read back", segments, || read_back(&mut store, segments));
    drop(store);
    fs::remove_dir_all(&folder).unwrap();
}

fn timed<T>(what: &str, segments: u64, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    let took_s = started.elapsed().as_secs_f64();
    let gigabytes = segments as f64 * SEGMENT_BYTES as f64 / 1e9;
    println!("{what}: {took_s:.3} s, {:.2} GB/s", gigabytes / took_s);
    result
}

fn fill(store: &mut impl Store, segments: u64) {
    let mut bytes = vec![0; SEGMENT_BYTES];
    let mut state = 1u64;
    for number in 0..segments {
        for word in bytes.chunks_exact_mut(8) {
            // Marsaglia's xorshift64.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let key = Key { log: 1, number };
        store.save(key, 1, &bytes, &WHOLE).unwrap();
        if number % GROUP == GROUP - 1 {
            store.sync().unwrap();
        }
    }
    store.sync().unwrap();
}

fn read_back(store: &mut impl Store, segments: u64) {
    let mut bytes = Vec::new();
    for number in (0..segments).rev() {
        assert_eq!(
            store.load(Key { log: 1, number }, &mut bytes).unwrap(),
            WHOLE
        );
    }
}
