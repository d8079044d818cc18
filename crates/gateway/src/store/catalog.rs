//! What a store holds, in memory: which segments, where, and the hashes of their blocks. Two gateways compare it to find out what
//! both have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farhaul_reduce::{BLOCK_BYTES, BlockLengths, SEGMENT_BLOCKS, SEGMENT_BYTES};

use super::footer::{BlockHash, Footer, half};

/// Segments that were made durable last and are remembered.
const RECENT_MAX: usize = 4096;
/// Segments that are given up before they go.
const GOING_MAX: usize = 64;

/// Names a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Store of the gateway that sent the bytes.
    pub log: u128,
    /// Number in that log.
    pub number: u64,
}

/// A segment on disk.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) slot: u32,
    pub(super) footer: Footer,
    /// What was there before, in case a crash has left less than the newest footer says.
    pub(super) older: Option<Box<Footer>>,
}

/// Memory for what is known of one segment.
#[cfg(test)]
pub(crate) fn entry_bytes() -> usize {
    size_of::<Key>() + size_of::<Entry>()
}

/// What one gateway tells the other of a segment it has: enough to see whether the other has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Number in the log.
    pub number: u64,
    /// A bit for each block of which every byte is there, the first block's the lowest.
    pub whole: u16,
    /// Hash over the hashes of those blocks.
    pub root: [u8; 16],
    /// The first block of which a part is there.
    pub tail: u8,
    /// Bytes of it; 0 if there is none.
    pub tail_bytes: u32,
    /// Their hash.
    pub tail_hash: [u8; 16],
}

/// What a store did, and what went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes written.
    pub saved_bytes: u64,
    /// Segments read.
    pub loaded: u64,
    /// Segments that made room for others.
    pub evicted: u64,
    /// Blocks that were not as they were written.
    pub bad_blocks: u64,
    /// Files that could not be used, or were removed meanwhile.
    pub unusable_files: u64,
    /// Places of files that something else takes.
    pub barred_files: u64,
    /// Times everything was dropped because it was another store's, machine's or version's.
    pub foreign: u64,
    /// Times the file system refused to reserve room.
    pub full: u64,
    /// Reads and writes that failed.
    pub failed: u64,
    /// Segments that were written and are not durable.
    pub unsynced: u64,
    /// They are being made durable.
    pub is_syncing: bool,
    /// Groups of segments that were made durable.
    pub synced: u64,
    /// The last thing that went wrong.
    pub problem: Option<String>,
}

/// The segments of one store.
#[derive(Debug, Default)]
pub struct Catalog {
    pub(super) entries: BTreeMap<Key, Entry>,
    pub(super) counts: Counts,
    pub(super) store: u128,
    pub(super) size_bytes: u64,
    /// What was made durable last, oldest first.
    pub(super) recent: VecDeque<Key>,
    /// How often something was.
    pub(super) kept_count: u64,
}

impl Catalog {
    /// The number of this store, which is that of the log of what was sent from here.
    pub fn store(&self) -> u128 {
        self.store
    }

    /// Bytes it may take.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes its segments take.
    pub fn used_bytes(&self) -> u64 {
        (self.entries.len() * SEGMENT_BYTES) as u64
    }

    /// Segments.
    pub fn segments(&self) -> usize {
        self.entries.len()
    }

    /// What it did.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Notes that a segment was written, and is not durable.
    pub fn note_written(&mut self) {
        self.counts.unsynced += 1;
    }

    /// Notes that what was written is being made durable.
    pub fn note_syncing(&mut self) {
        self.counts.is_syncing = true;
    }

    /// Notes how that went.
    pub fn note_synced(&mut self, is_durable: bool) {
        (self.counts.unsynced, self.counts.is_syncing) = (0, false);
        self.counts.synced += u64::from(is_durable);
    }

    /// The greatest number in a log.
    pub fn number_max(&self, log: u128) -> Option<u64> {
        let (key, _) = self.entries.range(of_log(log)).next_back()?;
        Some(key.number)
    }

    /// The newest segments of each log, at most so many in all.
    pub fn listing(&self, count_max: usize) -> Vec<(u128, Vec<Listed>)> {
        let mut listing = Vec::new();
        let (mut last, mut rest) = (None, count_max);
        while let Some(&Key { log, .. }) = self.next_log(last) {
            let newest = self.entries.range(of_log(log)).rev().take(rest);
            let listed: Vec<Listed> = newest.map(|(_, entry)| listed(&entry.footer)).collect();
            rest -= listed.len();
            last = Some(log);
            if !listed.is_empty() {
                listing.push((log, listed));
            }
        }
        listing
    }

    /// The epoch a segment that is there was written in.
    pub fn epoch(&self, key: &Key) -> Option<u64> {
        self.entries.get(key).map(|entry| entry.footer.epoch)
    }

    /// Notes that a segment was made durable.
    pub(super) fn note_kept(&mut self, key: Key) {
        self.kept_count += 1;
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(key);
    }

    /// How often something was made durable.
    pub fn kept_count(&self) -> u64 {
        self.kept_count
    }

    /// What was made durable of a log after that was said `count` times, as far as it is remembered, the newest `segments_max`.
    pub fn kept_since(&self, log: u128, count: u64, segments_max: usize) -> Vec<Listed> {
        let news = self.kept_count.saturating_sub(count);
        let news = usize::try_from(news)
            .unwrap_or(usize::MAX)
            .min(segments_max);
        let newest = self.recent.iter().rev().take(news);
        let keys: BTreeSet<&Key> = newest.filter(|key| key.log == log).collect();
        let entries = keys.into_iter().filter_map(|key| self.entries.get(key));
        entries.map(|entry| listed(&entry.footer)).collect()
    }

    /// Segments of a log below this number go soon, because there is little room.
    pub fn going_below(&self, log: u128) -> u64 {
        let all = (self.size_bytes / SEGMENT_BYTES as u64) as usize;
        let margin = (all / 8).min(GOING_MAX);
        let (first, last) = (
            Key { log, number: 0 },
            Key {
                log,
                number: u64::MAX,
            },
        );
        let mut own = self.entries.range(first..=last);
        // Those of other logs go first.
        let others = self.entries.range(..first).take(margin).count()
            + self.entries.range(last..).take(margin).count();
        if all - self.entries.len().min(all) + others >= margin {
            return 0;
        }
        own.nth(margin).map_or(0, |(key, _)| key.number)
    }

    fn next_log(&self, last: Option<u128>) -> Option<&Key> {
        match last {
            None => self.entries.keys().next(),
            Some(u128::MAX) => None,
            Some(last) => {
                let from = Key {
                    log: last + 1,
                    number: 0,
                };
                self.entries.range(from..).next().map(|(key, _)| key)
            }
        }
    }

    /// How much of a segment is the same here as there; `None` if nothing is, or it cannot be told.
    pub fn agreed(&self, log: u128, theirs: &Listed) -> Option<BlockLengths> {
        let key = Key {
            log,
            number: theirs.number,
        };
        let footer = &self.entries.get(&key)?.footer;
        let ours = listed(footer);
        let mut lengths = [0; SEGMENT_BLOCKS];
        let is_known = theirs.whole & !ours.whole == 0;
        if is_known && theirs.whole != 0 && root(footer, theirs.whole) == theirs.root {
            for nth in bits(theirs.whole) {
                if let Some(length) = lengths.get_mut(nth) {
                    *length = BLOCK_BYTES as u32;
                }
            }
        }
        let tail = usize::from(theirs.tail);
        let own = footer.lengths.get(tail).zip(footer.hashes.get(tail));
        if theirs.tail_bytes > 0
            && own == Some((&theirs.tail_bytes, &theirs.tail_hash))
            && let Some(length) = lengths.get_mut(tail)
        {
            *length = theirs.tail_bytes;
        }
        (lengths != [0; SEGMENT_BLOCKS]).then_some(lengths)
    }

    /// The segment that goes first when there must be room for one of `log`: one of another log, or the oldest. Those that
    /// `is_held` stay.
    pub(super) fn victim(&self, log: u128, is_held: impl Fn(&Key) -> bool) -> Option<Key> {
        let last = *self.entries.keys().next_back()?;
        let is_other = last.log != log;
        let others = is_other.then(|| self.entries.range(of_log(last.log)));
        let others = others.into_iter().flatten().map(|(key, _)| key);
        let mut candidates = others.chain(self.entries.keys());
        candidates.find(|key| !is_held(key)).copied()
    }

    /// Notes that something could not be written. It is tried again, so a remedy is all that is needed.
    pub(super) fn note(&mut self, error: &super::StoreError) {
        self.counts.failed += 1;
        let remedy = error
            .remedy()
            .map(|remedy| format!(": what passes meanwhile is not kept on disk; {remedy}"));
        self.counts.problem = Some(error.to_string() + &remedy.unwrap_or_default());
    }
}

fn of_log(log: u128) -> std::ops::RangeInclusive<Key> {
    let key = |number| Key { log, number };
    key(0)..=key(u64::MAX)
}

fn bits(mask: u16) -> impl Iterator<Item = usize> {
    (0..SEGMENT_BLOCKS).filter(move |nth| mask & (1 << nth) != 0)
}

fn listed(footer: &Footer) -> Listed {
    let lengths = footer.lengths.iter().enumerate();
    let whole = lengths.clone().fold(0, |mask, (nth, &length)| {
        mask | u16::from(length == BLOCK_BYTES as u32) << nth
    });
    let tail = lengths
        .zip(&footer.hashes)
        .find(|((_, length), _)| (1..BLOCK_BYTES as u32).contains(*length));
    let ((tail, tail_bytes), tail_hash) = tail
        .map_or(((0, 0), [0; 16]), |((nth, length), hash)| {
            ((nth, *length), *hash)
        });
    Listed {
        number: footer.number,
        whole,
        root: root(footer, whole),
        tail: tail as u8,
        tail_bytes,
        tail_hash,
    }
}

fn root(footer: &Footer, whole: u16) -> BlockHash {
    let mut hasher = blake3::Hasher::new();
    for nth in bits(whole) {
        hasher.update(footer.hashes.get(nth).map_or(&[], |hash| hash.as_slice()));
    }
    half(hasher.finalize())
}

/// What is of this log, and the rest.
pub(super) fn apart<V>(all: BTreeMap<Key, V>, log: u128) -> (BTreeMap<Key, V>, BTreeMap<Key, V>) {
    all.into_iter().partition(|(key, _)| key.log == log)
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use super::*;
    use crate::store::StoreError;

    fn catalog(lengths: BlockLengths, changed: usize) -> Catalog {
        let mut hashes = [[0; 16]; SEGMENT_BLOCKS];
        for (nth, hash) in hashes.iter_mut().enumerate() {
            *hash = [nth as u8; 16];
        }
        if let Some(hash) = hashes.get_mut(changed) {
            *hash = [99; 16];
        }
        let footer = Footer {
            store: 1,
            log: 2,
            number: 3,
            epoch: 4,
            version: 5,
            lengths,
            hashes,
        };
        let entry = Entry {
            slot: 0,
            footer,
            older: None,
        };
        let mut catalog = Catalog::default();
        catalog.entries.insert(Key { log: 2, number: 3 }, entry);
        catalog
    }

    fn agreed(here: &Catalog, there: &Catalog) -> Option<BlockLengths> {
        let listing = there.listing(10);
        assert_eq!(listing.len(), 1);
        here.agreed(listing[0].0, &listing[0].1[0])
    }

    const FULL: u32 = BLOCK_BYTES as u32;

    #[test]
    fn the_same_segment_is_agreed_and_a_different_one_is_not() {
        let whole = [FULL; SEGMENT_BLOCKS];
        assert_eq!(
            agreed(&catalog(whole, 99), &catalog(whole, 99)),
            Some(whole)
        );
        assert_eq!(agreed(&catalog(whole, 99), &catalog(whole, 3)), None);
        let mut gap = whole;
        gap[3] = 0;
        assert_eq!(agreed(&catalog(whole, 3), &catalog(gap, 99)), Some(gap));
        assert_eq!(
            agreed(&catalog(gap, 99), &catalog(whole, 99)),
            None,
            "it cannot be told"
        );
        gap[3] = 17;
        assert_eq!(agreed(&catalog(gap, 99), &catalog(gap, 99)), Some(gap));
        let mut rest = gap;
        rest[3] = 0;
        assert_eq!(agreed(&catalog(gap, 3), &catalog(gap, 99)), Some(rest));
    }

    #[test]
    fn other_logs_go_first_and_the_newest_is_listed_first() {
        let mut catalog = catalog([FULL; SEGMENT_BLOCKS], 99);
        let (_, entry) = catalog.entries.pop_first().unwrap();
        for (log, number) in [(5, 7), (5, 8), (9, 1), (9, 2)] {
            let mut entry = entry.clone();
            entry.footer.number = number;
            catalog.entries.insert(Key { log, number }, entry);
        }
        let victim = |log| {
            catalog
                .victim(log, |_| false)
                .map(|key| (key.log, key.number))
        };
        assert_eq!(victim(5), Some((9, 1)));
        assert_eq!(victim(9), Some((5, 7)));
        let free = catalog
            .victim(5, |key| key.log == 9)
            .map(|key| (key.log, key.number));
        assert_eq!(free, Some((5, 7)), "what is held stays");
        assert_eq!(catalog.number_max(5), Some(8));
        let listing = catalog.listing(3);
        let numbers = |nth: usize| -> Vec<u64> {
            let (_, listed) = &listing[nth];
            listed.iter().map(|listed| listed.number).collect()
        };
        assert_eq!((numbers(0), numbers(1)), (vec![8, 7], vec![2]));
    }

    #[test]
    fn news_are_told_once_and_what_goes_soon_is_given_up() {
        let mut catalog = catalog([FULL; SEGMENT_BLOCKS], 99);
        let (_, entry) = catalog.entries.pop_first().unwrap();
        catalog.size_bytes = 32 << 20;
        for number in 0..30 {
            let key = Key { log: 5, number };
            let mut entry = entry.clone();
            entry.footer.number = number;
            catalog.entries.insert(key, entry);
            catalog.note_kept(key);
        }
        let numbers = |since| -> Vec<u64> {
            let news = catalog.kept_since(5, since, 100);
            news.iter().map(|listed| listed.number).collect()
        };
        assert_eq!(numbers(28), [28, 29]);
        assert_eq!(numbers(30), [0; 0]);
        assert!(catalog.kept_since(6, 0, 100).is_empty());
        assert_eq!(catalog.going_below(5), 4, "two places of four are free");
        catalog.size_bytes = 64 << 20;
        assert_eq!(catalog.going_below(5), 0);
    }

    #[test]
    fn what_cannot_be_written_is_told_with_what_to_do_where_that_is_known() {
        let told = |error| {
            let mut catalog = Catalog::default();
            catalog.note(&StoreError::Disk {
                what: "cannot write to",
                path: "/disk".into(),
                error,
            });
            catalog.counts.problem.unwrap()
        };
        let read_only = told(ErrorKind::ReadOnlyFilesystem.into());
        let end = ": what passes meanwhile is not kept on disk; make the file system writable";
        assert!(read_only.ends_with(end), "{read_only}");
        let broken = told(io::Error::other("it broke"));
        assert_eq!(broken, "cannot write to /disk: it broke");
    }
}
