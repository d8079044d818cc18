//! The store in this process's own files.

mod gone;
mod opening;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use farhaul_reduce::{BLOCK_BYTES, BlockLengths, SEGMENT_BLOCKS, SEGMENT_BYTES};

use super::catalog::{Catalog, Entry, Key, apart};
use super::files::Files;
use super::footer::{BlockHash, FOOTER_BYTES, Footer, block_hash};
use super::identity::Label;
use super::{Store, StoreError, Syncing, clear};
use crate::lock::lock;

/// Segments in one file.
pub(super) const FILE_SLOTS: u32 = 16;
pub(super) const FOOTERS_AT: u64 = FILE_SLOTS as u64 * SEGMENT_BYTES as u64;
pub(super) const FOOTERS_BYTES: usize = FILE_SLOTS as usize * 2 * FOOTER_BYTES;
/// Bytes of one file.
pub(super) const FILE_BYTES: u64 = FOOTERS_AT + FOOTERS_BYTES as u64;

/// How a store is opened.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Bytes its files may take.
    pub size_bytes: u64,
    /// What names machine and disk.
    pub place: [u8; 32],
}

/// Written, and not known to be durable.
struct Pending {
    entry: Entry,
    /// Whether its slot held something else before.
    is_new: bool,
}

/// A store in files.
pub struct Embedded<F> {
    files: F,
    label: Label,
    catalog: Arc<Mutex<Catalog>>,
    files_max: u32,
    /// Files that are there in full.
    there: BTreeSet<u32>,
    /// Numbers that something else has, which is no file.
    barred: BTreeSet<u32>,
    free: Vec<u32>,
    /// Of each slot the version of its newest footer that is durable.
    versions: BTreeMap<u32, u32>,
    pending: BTreeMap<Key, Pending>,
    /// Files written to since the last sync.
    touched: BTreeSet<u32>,
}

/// Where a slot is: file, and the offset of its first byte.
pub(super) fn place_of(slot: u32) -> (u32, u64) {
    let (file, nth) = (slot / FILE_SLOTS, slot % FILE_SLOTS);
    (file, u64::from(nth) * SEGMENT_BYTES as u64)
}

fn footer_at(slot: u32, version: u32) -> u64 {
    let nth = u64::from(slot % FILE_SLOTS * 2 + version % 2);
    FOOTERS_AT + nth * FOOTER_BYTES as u64
}

/// The newer of a slot's two footers, and the older one if it is of the same segment.
pub(super) fn newest(footers: &[u8], nth: usize, store: u128) -> Option<(Footer, Option<Footer>)> {
    let both = footers.get(nth * 2 * FOOTER_BYTES..(nth + 1) * 2 * FOOTER_BYTES)?;
    let (even, odd) = both.split_at(FOOTER_BYTES);
    let own = |bytes| Footer::read(bytes).filter(|footer| footer.store == store);
    let (newer, older) = match (own(even), own(odd)) {
        (Some(even), Some(odd)) if even.version > odd.version => (even, Some(odd)),
        (Some(even), Some(odd)) => (odd, Some(even)),
        (Some(only), None) | (None, Some(only)) => (only, None),
        (None, None) => return None,
    };
    let older = older.filter(|older| older.is_same(&newer));
    Some((newer, older))
}

impl<F: Files> Embedded<F> {
    /// Opens a store with what of it fits. What belongs to another store, machine or version is removed.
    pub fn open(files: F, options: Options) -> Result<Self, StoreError> {
        let files_max =
            u32::try_from(options.size_bytes / FILE_BYTES).unwrap_or(u32::MAX / FILE_SLOTS);
        let files_max = files_max.min(u32::MAX / FILE_SLOTS);
        if files_max == 0 {
            return Err(StoreError::NoRoom);
        }
        let mut store = Self {
            files,
            label: Label::draw(options.place),
            catalog: Arc::default(),
            files_max,
            there: BTreeSet::new(),
            barred: BTreeSet::new(),
            free: Vec::new(),
            versions: BTreeMap::new(),
            pending: BTreeMap::new(),
            touched: BTreeSet::new(),
        };
        store.claim()?;
        let mut catalog = lock(&store.catalog);
        catalog.store = store.label.store;
        catalog.size_bytes = u64::from(files_max) * FOOTERS_AT;
        drop(catalog);
        store.recover()?;
        store.shrink()?;
        Ok(store)
    }

    fn failed(&self, what: &'static str, error: std::io::Error) -> StoreError {
        let path = self.files.path().to_owned();
        StoreError::Disk { what, path, error }
    }

    /// Makes the store no larger than it may be: the oldest go, and what is left moves to the files that stay.
    fn shrink(&mut self) -> Result<(), StoreError> {
        let doomed = self.there.split_off(&self.files_max);
        if doomed.is_empty() {
            return Ok(());
        }
        let is_kept = |slot: &u32| slot / FILE_SLOTS < self.files_max;
        self.free.retain(is_kept);
        let slots_max = self.files_max as usize * FILE_SLOTS as usize;
        let moving = self.drop_oldest(slots_max);
        let mut bytes = Vec::new();
        for (key, entry) in moving {
            let found = self.read_entry(&entry, &mut bytes);
            let moved = self.save(key, found.epoch, &bytes, &found.lengths);
            moved.unwrap_or_else(|error| lock(&self.catalog).note(&error));
        }
        // What could not be moved is lost; it is a cache.
        self.sync()
            .unwrap_or_else(|error| lock(&self.catalog).note(&error));
        for file in doomed {
            self.files
                .remove(file)
                .map_err(|e| self.failed("cannot shrink", e))?;
        }
        Ok(())
    }

    /// Forgets all but the newest; of those takes what lies in files beyond the last that stays.
    fn drop_oldest(&mut self, slots_max: usize) -> BTreeMap<Key, Entry> {
        let mut catalog = lock(&self.catalog);
        let newest = catalog.entries.keys().next_back().map_or(0, |key| key.log);
        while catalog.entries.len() > slots_max
            && let Some(victim) = catalog.victim(newest, |_| false)
            && let Some(entry) = catalog.entries.remove(&victim)
        {
            catalog.counts.evicted += 1;
            if entry.slot / FILE_SLOTS < self.files_max {
                self.free.push(entry.slot);
            }
        }
        let files_max = self.files_max;
        let is_moving = |entry: &Entry| entry.slot / FILE_SLOTS >= files_max;
        let (moving, kept) = std::mem::take(&mut catalog.entries)
            .into_iter()
            .partition(|(_, entry)| is_moving(entry));
        catalog.entries = kept;
        moving
    }

    /// A slot for a segment of `log`, if need be that of another segment.
    fn slot(&mut self, log: u128) -> Result<u32, StoreError> {
        if self.free.is_empty() && self.there.len() + self.barred.len() < self.files_max as usize {
            self.grow();
        }
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let mut catalog = lock(&self.catalog);
        let is_written = |key: &Key| self.pending.contains_key(key);
        let victim = catalog.victim(log, is_written).ok_or(StoreError::NoRoom)?;
        let entry = catalog.entries.remove(&victim).ok_or(StoreError::NoRoom)?;
        catalog.counts.evicted += 1;
        Ok(entry.slot)
    }

    /// Makes one file more, if the disk has room for it.
    fn grow(&mut self) {
        let is_taken = |file: &u32| self.there.contains(file) || self.barred.contains(file);
        let Some(file) = (0..self.files_max).find(|file| !is_taken(file)) else {
            return;
        };
        if let Err(error) = self.files.create(file, FILE_BYTES) {
            // What it may have left is of no use; if that cannot go, it is tried again with the next segment.
            let _ = self.files.remove(file);
            let error = self.failed("cannot reserve room in", error);
            let mut catalog = lock(&self.catalog);
            catalog.counts.full += 1;
            catalog.counts.problem = Some(error.to_string());
            return;
        }
        self.there.insert(file);
        self.free
            .extend((file * FILE_SLOTS..(file + 1) * FILE_SLOTS).rev());
    }

    /// The segment as it was saved last, if it is of this epoch. One of another epoch is forgotten.
    fn take_known(&mut self, key: Key, epoch: u64) -> Option<Pending> {
        let pending = self.pending.remove(&key);
        let known = pending.or_else(|| {
            let entry = lock(&self.catalog).entries.get(&key).cloned()?;
            Some(Pending {
                entry,
                is_new: false,
            })
        })?;
        if known.entry.footer.epoch == epoch {
            return Some(known);
        }
        lock(&self.catalog).entries.remove(&key);
        self.free.push(known.entry.slot);
        None
    }

    fn new_entry(&mut self, key: Key, epoch: u64) -> Result<Pending, StoreError> {
        let slot = self.slot(key.log)?;
        let footer = Footer {
            store: self.label.store,
            log: key.log,
            number: key.number,
            epoch,
            version: 0,
            lengths: [0; SEGMENT_BLOCKS],
            hashes: [[0; 16]; SEGMENT_BLOCKS],
        };
        let entry = Entry {
            slot,
            footer,
            older: None,
        };
        Ok(Pending {
            entry,
            is_new: true,
        })
    }

    /// Forgets on disk, too, what a slot held.
    fn blank(&self, slot: u32) -> std::io::Result<()> {
        let (file, _) = place_of(slot);
        let nothing = [0; 2 * FOOTER_BYTES];
        self.files.write(file, footer_at(slot, 0), &nothing)
    }

    /// Writes the blocks of which more is there than before, and the footer; says how many bytes.
    fn write(
        &self,
        entry: &mut Entry,
        bytes: &[u8],
        lengths: &BlockLengths,
    ) -> std::io::Result<u64> {
        let (file, start) = place_of(entry.slot);
        if entry.footer.lengths == [0; SEGMENT_BLOCKS] {
            // Whatever was in this slot is gone: nobody should miss it, and no greater version of it stand before ours.
            self.blank(entry.slot)?;
        }
        let footer = &mut entry.footer;
        let mut written = 0;
        let known = footer.lengths.iter_mut().zip(&mut footer.hashes);
        let blocks = bytes.chunks(BLOCK_BYTES).zip(lengths).zip(known);
        for (nth, ((block, &length), (known_length, hash))) in blocks.enumerate() {
            let Some(part) = block
                .get(..length as usize)
                .filter(|_| length > *known_length)
            else {
                continue;
            };
            self.files
                .write(file, start + (nth * BLOCK_BYTES) as u64, part)?;
            (*known_length, *hash) = (length, block_hash(part));
            written += u64::from(length);
        }
        // Not the place of the footer that is durable, however often this is tried.
        footer.version = self
            .versions
            .get(&entry.slot)
            .map_or(0, |version| version + 1);
        self.files
            .write(file, footer_at(entry.slot, footer.version), &footer.bytes())?;
        Ok(written)
    }

    /// Reads what an entry says is there, and says what is: a block that is not as it was written has no length.
    fn read_entry(&self, entry: &Entry, into: &mut Vec<u8>) -> Footer {
        let (file, start) = place_of(entry.slot);
        let read = |at: usize, into: &mut [u8]| self.files.read(file, start + at as u64, into);
        found(&entry.footer, entry.older.as_deref(), read, into)
    }
}

/// Reads the footers of a file. An error says why it cannot be used: files appear at their full length, so one that is shorter was cut.
pub(super) fn read_footers(
    files: &impl Files,
    file: u32,
    footers: &mut [u8],
) -> std::io::Result<()> {
    if file >= u32::MAX / FILE_SLOTS {
        return Err(std::io::Error::other("no store has so many files"));
    }
    match files.length(file)? {
        bytes if bytes < FILE_BYTES => Err(std::io::Error::other(format!(
            "cut short, {bytes} of {FILE_BYTES} bytes are left"
        ))),
        _ => files.read(file, FOOTERS_AT, footers),
    }
}

/// Reads a segment and compares it with what its footers say; what is not as it was written has no length.
pub(super) fn found(
    newest: &Footer,
    older: Option<&Footer>,
    read: impl Fn(usize, &mut [u8]) -> std::io::Result<()>,
    into: &mut Vec<u8>,
) -> Footer {
    into.clear();
    into.resize(SEGMENT_BYTES, 0);
    let is_whole = read(0, into).is_ok();
    let mut there = newest.clone();
    for (nth, block) in into.chunks_mut(BLOCK_BYTES).enumerate() {
        let is_read = is_whole || read(nth * BLOCK_BYTES, block).is_ok();
        let footers = std::iter::once(newest).chain(older).filter(|_| is_read);
        let right = footers
            .filter_map(|footer| right(footer, nth, block))
            .next();
        let (length, hash) = right.unwrap_or_default();
        let place = there.lengths.get_mut(nth).zip(there.hashes.get_mut(nth));
        if let Some((known, known_hash)) = place {
            (*known, *known_hash) = (length, hash);
        }
    }
    there
}

/// Length and hash of a block, if it is as this footer says.
fn right(footer: &Footer, nth: usize, block: &[u8]) -> Option<(u32, BlockHash)> {
    let (&length, hash) = footer.lengths.get(nth).zip(footer.hashes.get(nth))?;
    let part = block.get(..length as usize)?;
    (length > 0 && block_hash(part) == *hash).then_some((length, *hash))
}

impl<F: Files> Store for Embedded<F> {
    fn save(
        &mut self,
        key: Key,
        epoch: u64,
        bytes: &[u8],
        lengths: &BlockLengths,
    ) -> Result<(), StoreError> {
        let is_pending = self.pending.contains_key(&key);
        let known = self.take_known(key, epoch);
        let is_news = |known: &Pending| {
            let mut both = known.entry.footer.lengths.iter().zip(lengths);
            both.any(|(known, new)| new > known)
        };
        let mut pending = match known {
            Some(known) if is_news(&known) => known,
            Some(known) => {
                // What was written and is not durable yet must not be forgotten.
                if is_pending {
                    self.pending.insert(key, known);
                }
                return Ok(());
            }
            None => self.new_entry(key, epoch)?,
        };
        let before = pending.entry.clone();
        self.touched.insert(place_of(before.slot).0);
        match self.write(&mut pending.entry, bytes, lengths) {
            Ok(written) => {
                lock(&self.catalog).counts.saved_bytes += written;
                self.pending.insert(key, pending);
                Ok(())
            }
            Err(error) => {
                if pending.is_new {
                    self.free.push(before.slot);
                }
                let error = self.failed("cannot write to", error);
                lock(&self.catalog).note(&error);
                self.forget_gone();
                Err(error)
            }
        }
    }

    fn start_sync(&mut self) -> Syncing {
        let touched = std::mem::take(&mut self.touched);
        let files = self.files.clone();
        Box::new(move || touched.into_iter().try_for_each(|file| files.sync(file)))
    }

    fn synced(&mut self, outcome: std::io::Result<()>) -> Result<(), StoreError> {
        let pending = std::mem::take(&mut self.pending);
        if let Err(error) = outcome {
            // What is on disk now nobody knows: not what was written, at any rate.
            let new = pending.into_values().filter(|pending| pending.is_new);
            self.free.extend(new.map(|pending| pending.entry.slot));
            let error = self.failed("cannot sync", error);
            lock(&self.catalog).note(&error);
            self.forget_gone();
            return Err(error);
        }
        let mut catalog = lock(&self.catalog);
        for (key, Pending { mut entry, .. }) in pending {
            self.versions.insert(entry.slot, entry.footer.version);
            entry.older = None;
            catalog.entries.insert(key, entry);
            catalog.note_kept(key);
        }
        Ok(())
    }

    fn load(&mut self, key: Key, into: &mut Vec<u8>) -> Result<BlockLengths, StoreError> {
        let entry = lock(&self.catalog).entries.get(&key).cloned();
        let entry = entry.ok_or(StoreError::Absent(key.number))?;
        let there = self.read_entry(&entry, into);
        let lengths = there.lengths;
        if lengths == [0; SEGMENT_BLOCKS] && self.is_gone(place_of(entry.slot).0) {
            self.forget_gone();
            return Ok(lengths);
        }
        let mut catalog = lock(&self.catalog);
        catalog.counts.loaded += 1;
        let said = entry.footer.lengths.iter().zip(&lengths);
        let bad = said.filter(|(said, there)| said != there).count();
        if bad > 0 {
            catalog.counts.bad_blocks += bad as u64;
            let path = self.files.path().display();
            catalog.counts.problem = Some(format!("{path}: {bad} blocks of a segment are damaged"));
            if lengths == [0; SEGMENT_BLOCKS] {
                catalog.entries.remove(&key);
                match self.pending.get_mut(&key) {
                    // More of it was written to the same slot and will be durable.
                    Some(pending) => pending.is_new = true,
                    None => self.free.push(entry.slot),
                }
            } else if let Some(entry) = catalog.entries.get_mut(&key) {
                // The damaged part is not offered again.
                entry.footer = there;
            }
        }
        Ok(lengths)
    }

    fn retain(&mut self, log: u128) -> Result<(), StoreError> {
        let mut catalog = lock(&self.catalog);
        let (kept, gone) = apart(std::mem::take(&mut catalog.entries), log);
        catalog.entries = kept;
        drop(catalog);
        let (kept, written) = apart(std::mem::take(&mut self.pending), log);
        self.pending = kept;
        let gone = gone.into_values().map(|entry| entry.slot);
        // Of what was only just written, the slots of what was there before are among these.
        let written = written.into_values().filter(|pending| pending.is_new);
        let slots: Vec<u32> = gone.chain(written.map(|new| new.entry.slot)).collect();
        let mut blanked = Ok(());
        for slot in slots {
            self.touched.insert(place_of(slot).0);
            blanked = blanked.and(self.blank(slot));
            self.free.push(slot);
        }
        blanked.map_err(|error| {
            let error = self.failed("cannot write to", error);
            lock(&self.catalog).note(&error);
            error
        })
    }

    fn clear(&mut self) -> Result<(), StoreError> {
        self.pending.clear();
        self.touched.clear();
        self.free.clear();
        self.versions.clear();
        lock(&self.catalog).entries.clear();
        let there = std::mem::take(&mut self.there);
        clear::remove(&self.files, there).map_err(|error| self.failed("cannot clear", error))?;
        // What was wrong is gone with what was there, but for what is none of ours.
        lock(&self.catalog).counts.problem = self.tell_barred();
        Ok(())
    }

    fn catalog(&self) -> Arc<Mutex<Catalog>> {
        self.catalog.clone()
    }
}
