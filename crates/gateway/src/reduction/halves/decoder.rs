//! Our copy of the peer's log: its epochs, what it begins with, and what of it is read back from disk.

use farhaul_reduce::{BlockLengths, Decoder, ReadAt, SEGMENT_BYTES, Segments, Settings};

use super::{SEEDS_MAX, SEGMENTS_PER_MESSAGE, WHOLE, disk_bytes, key_of, seeds_max, settings};
use crate::lock::lock;
use crate::reduction::echo::Echoed;
use crate::reduction::held::Held;
use crate::reduction::message::Message;
use crate::reduction::recalls::{Recall, Recalls};
use crate::reduction::record::mark_of;
use crate::reduction::shelf::{Half, NUMBER_MAX, Seed, Seeds, SharedCatalog, Shelf};
use crate::store::Key;

/// Of a log, one in so many bytes is for the index of what may be sent back.
const ECHO_SHARE: usize = 64;

/// Whether an epoch came before another; 0 is none.
fn is_before(epoch: u32, other: u32) -> bool {
    other != 0 && epoch.wrapping_sub(other) > u32::MAX / 2
}

/// An epoch that is to come, as the peer announces it.
struct Announced {
    epoch: u32,
    shelf: Shelf,
    numbers: Vec<u64>,
}

/// Our copy of the peer's log.
pub(in crate::reduction) struct DecoderHalf {
    memory_bytes: u64,
    log: u128,
    epoch: u32,
    decoder: Option<Decoder>,
    pub(in crate::reduction) held: Held,
    /// The peer knows what it has sent itself: of what it sends so much is remembered that it can be named. It holds for logs that
    /// begin from now on; a peer of another version begins one.
    pub(in crate::reduction) has_echoes: bool,
    /// For frames that refer to nothing.
    literals: Decoder,
    catalog: Option<SharedCatalog>,
    announced: Option<Announced>,
    shelf: Option<Shelf>,
    seeds: Seeds,
    recalls: Recalls,
}

impl DecoderHalf {
    pub(in crate::reduction) fn new(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            log: 0,
            epoch: 0,
            decoder: None,
            held: Held::default(),
            has_echoes: false,
            literals: Decoder::new(Settings::of_memory(0)),
            catalog: None,
            announced: None,
            shelf: None,
            seeds: Seeds::default(),
            recalls: Recalls::default(),
        }
    }

    /// What is on disk, for a new tunnel's peer; nothing without a disk.
    pub(in crate::reduction) fn stored(&self) -> Vec<Message> {
        let Some(catalog) = self.catalog.as_deref().map(lock) else {
            return Vec::new();
        };
        let listing = catalog.listing(SEEDS_MAX);
        let messages = listing.iter().flat_map(|(log, listed)| {
            listed
                .chunks(SEGMENTS_PER_MESSAGE)
                .map(|part| Message::Stored {
                    log: *log,
                    segments: part.to_vec(),
                })
        });
        let mut messages: Vec<_> = messages.collect();
        if messages.is_empty() {
            messages.push(Message::Stored {
                log: 0,
                segments: Vec::new(),
            });
        }
        // Whoever says so, even of nothing, reads back what a record refers to.
        messages.push(Message::Kept {
            log: 0,
            from: 0,
            segments: Vec::new(),
        });
        messages
    }

    /// Whether the peer's log is kept on disk.
    pub(in crate::reduction) fn is_kept(&self) -> bool {
        self.shelf.is_some() && self.catalog.is_some()
    }

    /// How often something was made durable.
    pub(in crate::reduction) fn kept_count(&self) -> u64 {
        let catalog = self.catalog.as_deref().map(lock);
        catalog.map_or(0, |catalog| catalog.kept_count())
    }

    /// What was made durable of the peer's log since then, and what will go next.
    pub(in crate::reduction) fn kept_since(&self, count: u64) -> Option<Message> {
        let log = self.shelf?.log;
        let catalog = lock(self.catalog.as_deref()?);
        Some(Message::Kept {
            log,
            from: catalog.going_below(log),
            segments: catalog.kept_since(log, count, SEGMENTS_PER_MESSAGE),
        })
    }

    /// Whether it is still to be read back.
    pub(in crate::reduction) fn is_reading(&self, segment: u64) -> bool {
        self.recalls.is_pending(segment)
    }

    /// A record refers to a segment that is not in memory: is it read back?
    pub(in crate::reduction) fn recall(&mut self, segment: u64) -> bool {
        let Some((catalog, shelf)) = self.catalog.as_deref().zip(self.shelf) else {
            return false;
        };
        let Some(key) = key_of(&shelf, &self.seeds, &lock(catalog), segment) else {
            return false;
        };
        self.recalls.ask(Recall {
            epoch: shelf.epoch,
            read: ReadAt {
                segment,
                position: 0,
                is_ahead: false,
            },
            key,
            lengths: WHOLE,
        })
    }

    /// The next epoch begins with these segments, after those of messages before. False if that cannot be.
    pub(in crate::reduction) fn announce(
        &mut self,
        epoch: u32,
        shelf: Shelf,
        numbers: &[u64],
    ) -> bool {
        let last = self.announced.as_ref().map_or(0, |known| known.epoch);
        if is_before(epoch, self.epoch) || is_before(epoch, last) {
            return true;
        }
        let is_next_part = |known: &&mut Announced| known.epoch == epoch && known.shelf == shelf;
        let known = match self.announced.as_mut().filter(is_next_part) {
            Some(known) => known,
            None => self.announced.insert(Announced {
                epoch,
                shelf,
                numbers: Vec::new(),
            }),
        };
        known.numbers.extend_from_slice(numbers);
        known.numbers.len() <= SEEDS_MAX && shelf.base <= NUMBER_MAX
    }

    #[cfg(test)]
    pub(in crate::reduction) fn announced_numbers(&self) -> Option<(u32, &[u64])> {
        let announced = self.announced.as_ref()?;
        Some((announced.epoch, &announced.numbers))
    }

    /// Bytes of this epoch that came from disk.
    pub(in crate::reduction) fn warmed_bytes(&self) -> u64 {
        self.seeds.bytes()
    }

    /// Seeds that the peer may refer to, and the epoch.
    pub(in crate::reduction) fn ready(&self) -> (u32, usize) {
        (self.epoch, self.seeds.usable())
    }

    /// What a new tunnel's peer is told.
    pub(in crate::reduction) fn state(&self) -> Message {
        let is_there = self.decoder.is_some();
        Message::Have {
            memory_bytes: self.memory_bytes,
            log: if is_there { self.log } else { 0 },
            epoch: self.epoch,
            held: self.held.position(),
        }
    }

    /// The peer's log goes on at `start`, or begins anew. Tunnels overtake each other: the word of an epoch that is over, said on
    /// an older one, changes nothing, for that of the epoch after it will not be said again.
    pub(in crate::reduction) fn follow(
        &mut self,
        log: u128,
        epoch: u32,
        start: u64,
        key: u64,
        bytes: u64,
    ) {
        if log == self.log && is_before(epoch, self.epoch) {
            return;
        }
        let is_same = (log, epoch) == (self.log, self.epoch) && self.decoder.is_some();
        if is_same {
            // Records may have overtaken this.
            self.held.raise(start);
        } else {
            self.held = Held::new(start);
            let memory_bytes = bytes.min(self.memory_bytes);
            let disk_bytes = disk_bytes(self.catalog.as_ref());
            (self.log, self.epoch) = (log, epoch);
            let settings = settings(memory_bytes, disk_bytes, key);
            let echo_bytes = match self.has_echoes {
                true => settings.memory_bytes / ECHO_SHARE,
                false => 0,
            };
            let mut decoder = Decoder::new(Settings {
                echo_bytes,
                ..settings
            });
            self.shelve(&mut decoder, start, memory_bytes);
            self.decoder = Some(decoder);
        }
    }

    /// Makes room for what the epoch was announced to begin with.
    fn shelve(&mut self, decoder: &mut Decoder, start: u64, memory_bytes: u64) {
        (self.shelf, self.seeds) = (None, Seeds::default());
        self.recalls.clear();
        let epoch = self.epoch;
        let announced = self
            .announced
            .take()
            .filter(|announced| announced.epoch == epoch);
        let Some(Announced { shelf, numbers, .. }) = announced else {
            return;
        };
        let seeds = numbers.len() as u64;
        if self.catalog.is_none() || seeds * SEGMENT_BYTES as u64 != start {
            return;
        }
        let mut segments = decoder.segments();
        segments.reserve(seeds);
        segments.watch();
        let log = shelf.log;
        let all = numbers
            .into_iter()
            .map(|number| (Key { log, number }, WHOLE));
        let near_max = seeds_max(memory_bytes);
        self.seeds = Seeds::new(shelf.epoch, all.collect(), usize::MAX, near_max);
        self.shelf = Some(Shelf { seeds, ..shelf });
    }

    /// Drops the copy; frames that refer to it are missing from now on.
    pub(in crate::reduction) fn forget(&mut self) {
        self.decoder = None;
        (self.shelf, self.seeds) = (None, Seeds::default());
        self.recalls.clear();
    }

    pub(in crate::reduction) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// These bytes in the words of what the peer has sent, if that takes no more than so many.
    pub(in crate::reduction) fn echoed(&self, input: &[u8], most_bytes: usize) -> Option<Echoed> {
        Echoed::of(self.epoch, self.decoder.as_ref()?, input, most_bytes)
    }

    /// The decoder for records of this mark: `Err(true)` if the log is still to come, `Err(false)` if it is gone.
    pub(in crate::reduction) fn of(&mut self, mark: u8) -> Result<&mut Decoder, bool> {
        let ahead = (i32::from(mark) - i32::from(mark_of(self.epoch))).rem_euclid(250);
        let is_new = self.epoch == 0 || (1..=125).contains(&ahead);
        match self.decoder.as_mut().filter(|_| ahead == 0) {
            Some(decoder) if !is_new => Ok(decoder),
            _ => Err(is_new),
        }
    }

    pub(in crate::reduction) fn literals(&mut self) -> &mut Decoder {
        &mut self.literals
    }
}

impl Half for DecoderHalf {
    fn shelf(&self) -> Option<Shelf> {
        self.shelf
    }

    fn segments(&mut self) -> Option<Segments<'_>> {
        self.decoder.as_mut().map(Decoder::segments)
    }

    fn next_seed(&self) -> Option<Seed> {
        self.seeds.next().filter(|seed| !seed.is_away)
    }

    fn put_seed(&mut self, seed: &Seed, bytes: &[u8], lengths: &BlockLengths) {
        if let Some(decoder) = &mut self.decoder
            && self.seeds.pass(seed, lengths)
        {
            decoder.seed(seed.segment, bytes, lengths);
        }
    }

    fn next_recall(&mut self) -> Option<Recall> {
        self.recalls.next()
    }

    fn put_recall(&mut self, recall: &Recall, bytes: &[u8], lengths: &BlockLengths) {
        let is_same = self.shelf.is_some_and(|shelf| shelf.epoch == recall.epoch);
        if let Some(decoder) = self.decoder.as_mut().filter(|_| is_same) {
            self.recalls.pass();
            decoder.recall(recall.read.segment, bytes, lengths);
        }
    }

    fn set_catalog(&mut self, catalog: SharedCatalog) {
        self.catalog = Some(catalog);
    }

    fn catalog(&self) -> Option<&SharedCatalog> {
        self.catalog.as_ref()
    }
}
