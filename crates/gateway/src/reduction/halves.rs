//! What a gateway remembers for a peer, in both directions, from tunnel to tunnel: the encoder and its log, and the copy of the
//! peer's log. A log has a number drawn at random for this process, and an epoch that changes whenever it begins anew.

mod decoder;
mod encoder;

use farhaul_reduce::{BLOCK_BYTES, BlockLengths, SEGMENT_BLOCKS, SEGMENT_BYTES, Settings};
use ring::rand::{SecureRandom, SystemRandom};

use super::pages::ask_for_large;
use super::shelf::{Seeds, SharedCatalog, Shelf};
use crate::lock::lock;
use crate::store::{Catalog, Key};

pub(super) use self::decoder::DecoderHalf;
pub(super) use self::encoder::{EncoderHalf, Look};

/// A log smaller than this is none, bytes.
pub(super) const MEMORY_BYTES_MIN: u64 = 4 << 20;

/// Of the memory for one direction, what is the log's in percent; the rest is for index and extents.
const LOG_PERCENT: u64 = 80;

/// A number nobody can foresee. Without randomness the gateway has no keys either, so it does not get here.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = SystemRandom::new().fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Segments named in one message.
const SEGMENTS_PER_MESSAGE: usize = 4096;
/// Segments that a log begins with at most, in memory or on disk: 64 GiB.
const SEEDS_MAX: usize = 65_536;
/// Every byte of a segment.
const WHOLE: BlockLengths = [BLOCK_BYTES as u32; SEGMENT_BLOCKS];

fn log_bytes_of(memory_bytes: u64) -> usize {
    usize::try_from(memory_bytes / 100 * LOG_PERCENT).unwrap_or(usize::MAX >> 1)
}

/// Segments that a log of this memory may begin with: an eighth is left for what is new.
fn seeds_max(memory_bytes: u64) -> usize {
    let segments = log_bytes_of(memory_bytes) / SEGMENT_BYTES;
    segments - segments / 8
}

fn settings(memory_bytes: u64, disk_bytes: u64, key: u64) -> Settings {
    let log_bytes = log_bytes_of(memory_bytes);
    let disk_bytes = usize::try_from(disk_bytes).unwrap_or(usize::MAX);
    Settings {
        seed: random(),
        hash_key: key,
        advise: ask_for_large,
        ..Settings::of_memory_and_disk(log_bytes, disk_bytes)
    }
}

/// What of the disk is a direction's, bytes; zero without one.
fn disk_bytes(catalog: Option<&SharedCatalog>) -> u64 {
    catalog.map_or(0, |catalog| lock(catalog).size_bytes())
}

/// The name on disk of a segment that is there: one of the epoch's own, or one it began with.
fn key_of(shelf: &Shelf, seeds: &Seeds, catalog: &Catalog, segment: u64) -> Option<Key> {
    match shelf.key(segment) {
        Some(own) => (catalog.epoch(&own) == Some(shelf.epoch)).then_some(own),
        None => seeds
            .key(segment)
            .filter(|key| catalog.epoch(key).is_some()),
    }
}
