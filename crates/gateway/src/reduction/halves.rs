//! What a gateway remembers for a peer, in both directions, from tunnel to tunnel: the encoder and its log, and the copy of the
//! peer's log. A log has a number drawn at random for this process, and an epoch that changes whenever it begins anew.

use farhaul_reduce::{
    BLOCK_BYTES, BlockLengths, Decoder, Encoder, SEGMENT_BLOCKS, SEGMENT_BYTES, Segments, Settings,
};
use ring::rand::{SecureRandom, SystemRandom};

use super::held::Held;
use super::message::Message;
use super::record::mark_of;
use super::shelf::{Half, NUMBER_MAX, Offer, Seed, Seeds, SharedCatalog, Shelf};
use crate::lock::lock;
use crate::store::{Key, Listed};

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

fn log_bytes_of(memory_bytes: u64) -> usize {
    usize::try_from(memory_bytes / 100 * LOG_PERCENT).unwrap_or(usize::MAX >> 1)
}

/// Segments that a log of this memory may begin with: an eighth is left for what is new.
fn seeds_max(memory_bytes: u64) -> usize {
    let segments = log_bytes_of(memory_bytes) / SEGMENT_BYTES;
    segments - segments / 8
}

fn settings(memory_bytes: u64, key: u64) -> Settings {
    let log_bytes = log_bytes_of(memory_bytes);
    Settings {
        seed: random(),
        hash_key: key,
        ..Settings::of_memory(log_bytes)
    }
}

/// Our log of what was sent to the peer.
pub(super) struct EncoderHalf {
    /// What it may take, bytes.
    memory_bytes: u64,
    /// What this and the peer's copy take each, bytes.
    agreed_bytes: u64,
    log: u128,
    pub(super) epoch: u32,
    /// How often an epoch was begun.
    pub(super) begun: u32,
    key: u64,
    encoder: Option<Encoder>,
    /// The tunnel whose peer holds the log.
    owner: Option<u64>,
    /// Input and references of earlier epochs.
    before: (u64, u64),
    catalog: Option<SharedCatalog>,
    /// The peer keeps on disk, too.
    peer_keeps: bool,
    /// The number for the next segment that is kept.
    next_number: u64,
    shelf: Option<Shelf>,
    seeds: Seeds,
}

impl EncoderHalf {
    pub(super) fn new(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            agreed_bytes: 0,
            log: u128::from(random()) << 64 | u128::from(random() | 1),
            epoch: 0,
            begun: 0,
            key: 0,
            encoder: None,
            owner: None,
            before: (0, 0),
            catalog: None,
            peer_keeps: false,
            next_number: 0,
            shelf: None,
            seeds: Seeds::default(),
        }
    }

    /// The peer says what it has on disk: what of it is here, too?
    pub(super) fn compare(&self, offer: &mut Offer, log: u128, segments: &[Listed]) {
        offer.is_there = true;
        let Some(catalog) = self.catalog.as_deref().map(lock) else {
            return;
        };
        if catalog.store() != log {
            return;
        }
        for segment in segments.iter().filter(|one| one.number < NUMBER_MAX) {
            offer.next = offer.next.max(segment.number + 1);
            if let Some(lengths) = catalog.agreed(log, segment) {
                offer.agreed.insert(segment.number, lengths);
            }
        }
    }

    /// So many of the seeds are ready at the peer.
    pub(super) fn set_ready(&mut self, epoch: u32, segments: u64) {
        if epoch == self.epoch {
            self.seeds
                .set_ready(usize::try_from(segments).unwrap_or(usize::MAX));
        }
    }

    /// The encoder, for the tunnel whose peer holds the log.
    pub(super) fn of(&mut self, tunnel: u64) -> Option<&mut Encoder> {
        let is_owner = self.owner == Some(tunnel);
        self.encoder.as_mut().filter(|_| is_owner)
    }

    /// Bytes that may be under way: what the other end does not hold is kept.
    pub(super) fn unheld_bytes_max(&self) -> u64 {
        self.agreed_bytes / 4
    }

    /// The peer says what it has: the log goes on, or begins anew, with what is on both disks.
    pub(super) fn attach(
        &mut self,
        tunnel: u64,
        has: (u128, u32),
        held: u64,
        peer_bytes: u64,
        offer: Offer,
    ) -> Vec<Message> {
        let agreed_bytes = self.memory_bytes.min(peer_bytes);
        self.owner = Some(tunnel);
        let same = has == (self.log, self.epoch) && agreed_bytes == self.agreed_bytes;
        self.agreed_bytes = agreed_bytes;
        self.peer_keeps = offer.is_there;
        self.next_number = self.next_number.max(offer.next);
        let Some(encoder) = self.encoder.as_mut().filter(|_| same) else {
            // Behind what the peer knows, whichever process that was of: a record may come before the word of its epoch.
            self.epoch = self.epoch.max(has.1);
            return self.begin(offer);
        };
        // What was under way when the last tunnel ended may never have come.
        let end = encoder.position();
        let held = held.min(end);
        encoder.forget(held, end - held);
        encoder.handle_held(end);
        vec![self.announcement(end)]
    }

    /// Begins a new epoch, with nothing in it.
    pub(super) fn restart(&mut self) -> Vec<Message> {
        self.begin(Offer::default())
    }

    /// Begins a new epoch with what is agreed. Nothing to say if there is no log.
    fn begin(&mut self, offer: Offer) -> Vec<Message> {
        self.end_epoch();
        if self.agreed_bytes < MEMORY_BYTES_MIN || self.owner.is_none() {
            return Vec::new();
        }
        self.epoch = self.epoch.wrapping_add(1).max(1);
        self.begun = self.begun.saturating_add(1);
        self.key = random();
        let mut encoder = Encoder::new(settings(self.agreed_bytes, self.key));
        let mut messages = self.shelve(&mut encoder, offer);
        let start = encoder.position();
        encoder.handle_held(start);
        self.encoder = Some(encoder);
        messages.push(self.announcement(start));
        messages
    }

    /// Drops the log; the next tunnel begins anew.
    pub(super) fn forget(&mut self) {
        self.end_epoch();
    }

    fn end_epoch(&mut self) {
        let encoder = self.encoder.take();
        let stats = encoder.as_ref().map(Encoder::stats).unwrap_or_default();
        self.before.0 += stats.input_bytes;
        self.before.1 += stats.known_bytes + stats.run_bytes;
        if let (Some(shelf), Some(mut encoder)) = (self.shelf.take(), encoder) {
            let used = encoder.segments().end().saturating_sub(shelf.seeds);
            self.next_number = self.next_number.max(shelf.base + used);
        }
        self.seeds = Seeds::default();
    }

    /// Puts what is agreed at the log's beginning, and says so, where both keep on disk.
    fn shelve(&mut self, encoder: &mut Encoder, offer: Offer) -> Vec<Message> {
        let Some(catalog) = self.catalog.as_ref().filter(|_| self.peer_keeps) else {
            return Vec::new();
        };
        let catalog = lock(catalog);
        let log = catalog.store();
        let known = catalog.number_max(log).map_or(0, |number| number + 1);
        drop(catalog);
        self.next_number = self.next_number.max(known);
        let newest = offer.agreed.into_iter().rev();
        let newest = newest.take(seeds_max(self.agreed_bytes));
        let mut seeds: Vec<_> = newest
            .map(|(number, lengths)| (Key { log, number }, lengths))
            .collect();
        seeds.reverse();
        let shelf = Shelf {
            log,
            epoch: random(),
            base: self.next_number,
            seeds: seeds.len() as u64,
        };
        self.shelf = Some(shelf);
        let mut segments = encoder.segments();
        segments.reserve(shelf.seeds);
        segments.watch();
        let numbers: Vec<u64> = seeds.iter().map(|(key, _)| key.number).collect();
        self.seeds = Seeds::new(shelf.epoch, seeds, 0);
        // Without any it still says where the epoch's own are kept.
        let parts = numbers.chunks(SEGMENTS_PER_MESSAGE);
        let none = numbers.is_empty().then_some(&[] as &[u64]);
        let message = |numbers: &[u64]| Message::Seeds {
            epoch: self.epoch,
            log,
            disk_epoch: shelf.epoch,
            base: shelf.base,
            numbers: numbers.to_vec(),
        };
        parts.chain(none).map(message).collect()
    }

    fn announcement(&self, start: u64) -> Message {
        Message::Log {
            memory_bytes: self.agreed_bytes,
            log: self.log,
            epoch: self.epoch,
            start,
            key: self.key,
        }
    }

    /// Input, and how much of it was known, since this process began.
    pub(super) fn counts(&self) -> (u64, u64) {
        let stats = self.encoder.as_ref().map(Encoder::stats);
        let stats = stats.unwrap_or_default();
        let known_bytes = stats.known_bytes + stats.run_bytes;
        (
            self.before.0 + stats.input_bytes,
            self.before.1 + known_bytes,
        )
    }

    /// What the log can hold.
    pub(super) fn capacity_bytes(&self) -> u64 {
        log_bytes_of(self.agreed_bytes) as u64
    }

    /// Bytes of this epoch that came from disk.
    pub(super) fn warmed_bytes(&self) -> u64 {
        self.seeds.bytes()
    }

    /// Bytes of the log's memory, and of its index.
    pub(super) fn sizes(&self) -> (u64, u64) {
        let Some(encoder) = &self.encoder else {
            return (0, 0);
        };
        let (stats, log_bytes) = (encoder.stats(), self.agreed_bytes / 100 * LOG_PERCENT);
        let new_bytes = stats.literal_bytes.saturating_sub(stats.unkept_bytes);
        let kept_bytes = new_bytes + self.seeds.bytes();
        (kept_bytes.min(log_bytes), stats.index_bytes)
    }
}

impl Half for EncoderHalf {
    fn shelf(&self) -> Option<Shelf> {
        self.shelf
    }

    fn segments(&mut self) -> Option<Segments<'_>> {
        self.encoder.as_mut().map(Encoder::segments)
    }

    fn next_seed(&self) -> Option<Seed> {
        self.seeds.next()
    }

    fn put_seed(&mut self, seed: &Seed, bytes: &[u8], lengths: &BlockLengths) {
        if let Some(encoder) = &mut self.encoder
            && self.seeds.pass(seed, lengths)
        {
            encoder.seed(seed.segment, bytes, lengths);
        }
    }

    fn set_catalog(&mut self, catalog: SharedCatalog) {
        self.catalog = Some(catalog);
    }

    fn catalog(&self) -> Option<&SharedCatalog> {
        self.catalog.as_ref()
    }
}

/// An epoch that is to come, as the peer announces it.
struct Announced {
    epoch: u32,
    shelf: Shelf,
    numbers: Vec<u64>,
}

/// Our copy of the peer's log.
pub(super) struct DecoderHalf {
    memory_bytes: u64,
    log: u128,
    epoch: u32,
    decoder: Option<Decoder>,
    pub(super) held: Held,
    /// For frames that refer to nothing.
    literals: Decoder,
    catalog: Option<SharedCatalog>,
    announced: Option<Announced>,
    shelf: Option<Shelf>,
    seeds: Seeds,
}

impl DecoderHalf {
    pub(super) fn new(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            log: 0,
            epoch: 0,
            decoder: None,
            held: Held::default(),
            literals: Decoder::new(Settings::of_memory(0)),
            catalog: None,
            announced: None,
            shelf: None,
            seeds: Seeds::default(),
        }
    }

    /// What is on disk, for a new tunnel's peer; nothing without a disk.
    pub(super) fn stored(&self) -> Vec<Message> {
        let Some(catalog) = self.catalog.as_deref().map(lock) else {
            return Vec::new();
        };
        let listing = catalog.listing(seeds_max(self.memory_bytes));
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
        messages
    }

    /// The next epoch begins with these segments, after those of messages before. False if that cannot be.
    pub(super) fn announce(&mut self, epoch: u32, shelf: Shelf, numbers: &[u64]) -> bool {
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
        known.numbers.len() <= seeds_max(self.memory_bytes) && shelf.base <= NUMBER_MAX
    }

    /// Bytes of this epoch that came from disk.
    pub(super) fn warmed_bytes(&self) -> u64 {
        self.seeds.bytes()
    }

    /// Seeds that the peer may refer to, and the epoch.
    pub(super) fn ready(&self) -> (u32, usize) {
        (self.epoch, self.seeds.done())
    }

    /// What a new tunnel's peer is told.
    pub(super) fn state(&self) -> Message {
        let is_there = self.decoder.is_some();
        Message::Have {
            memory_bytes: self.memory_bytes,
            log: if is_there { self.log } else { 0 },
            epoch: self.epoch,
            held: self.held.position(),
        }
    }

    /// The peer's log goes on at `start`, or begins anew.
    pub(super) fn follow(&mut self, log: u128, epoch: u32, start: u64, key: u64, bytes: u64) {
        let is_same = (log, epoch) == (self.log, self.epoch) && self.decoder.is_some();
        if is_same {
            // Records may have overtaken this.
            self.held.raise(start);
        } else {
            self.held = Held::new(start);
            let memory_bytes = bytes.min(self.memory_bytes);
            (self.log, self.epoch) = (log, epoch);
            let mut decoder = Decoder::new(settings(memory_bytes, key));
            self.shelve(&mut decoder, start);
            self.decoder = Some(decoder);
        }
    }

    /// Makes room for what the epoch was announced to begin with.
    fn shelve(&mut self, decoder: &mut Decoder, start: u64) {
        (self.shelf, self.seeds) = (None, Seeds::default());
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
        let whole = [BLOCK_BYTES as u32; SEGMENT_BLOCKS];
        let all = numbers
            .into_iter()
            .map(|number| (Key { log, number }, whole));
        self.seeds = Seeds::new(shelf.epoch, all.collect(), usize::MAX);
        self.shelf = Some(Shelf { seeds, ..shelf });
    }

    /// Drops the copy; frames that refer to it are missing from now on.
    pub(super) fn forget(&mut self) {
        self.decoder = None;
        (self.shelf, self.seeds) = (None, Seeds::default());
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The decoder for records of this mark: `Err(true)` if the log is still to come, `Err(false)` if it is gone.
    pub(super) fn of(&mut self, mark: u8) -> Result<&mut Decoder, bool> {
        let ahead = (i32::from(mark) - i32::from(mark_of(self.epoch))).rem_euclid(250);
        let is_new = self.epoch == 0 || (1..=125).contains(&ahead);
        match self.decoder.as_mut().filter(|_| ahead == 0) {
            Some(decoder) if !is_new => Ok(decoder),
            _ => Err(is_new),
        }
    }

    pub(super) fn literals(&mut self) -> &mut Decoder {
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
        self.seeds.next()
    }

    fn put_seed(&mut self, seed: &Seed, bytes: &[u8], lengths: &BlockLengths) {
        if let Some(decoder) = &mut self.decoder
            && self.seeds.pass(seed, lengths)
        {
            decoder.seed(seed.segment, bytes, lengths);
        }
    }

    fn set_catalog(&mut self, catalog: SharedCatalog) {
        self.catalog = Some(catalog);
    }

    fn catalog(&self) -> Option<&SharedCatalog> {
        self.catalog.as_ref()
    }
}
