//! Our log of what was sent to the peer: its epochs, what it begins with, and what of it is read back from disk.

use farhaul_reduce::{BlockLengths, Encoder, ReadAt, Segments, Settings};

use super::{
    LOG_PERCENT, MEMORY_BYTES_MIN, SEEDS_MAX, SEGMENTS_PER_MESSAGE, disk_bytes, key_of,
    log_bytes_of, random, seeds_max, settings,
};
use crate::lock::lock;
use crate::reduction::Compared;
use crate::reduction::echo::Echoed;
use crate::reduction::message::Message;
use crate::reduction::recalls::{Far, Recall, Recalls};
use crate::reduction::shelf::{Half, NUMBER_MAX, Offer, Seed, Seeds, SharedCatalog, Shelf};
use crate::store::{Key, Listed};

/// Of the memory for the log, what may be read ahead.
const AHEAD_SHARE: u64 = 8;

/// What tells that segments on disk may be of use.
#[derive(Debug, Clone, Copy)]
pub(in crate::reduction) enum Look {
    /// Anchors: what was sent in long pieces, and what comes behind it.
    Anchors,
    /// Samples of what nothing at hand covers, of this flow.
    Samples(u64),
}

/// Our log of what was sent to the peer.
pub(in crate::reduction) struct EncoderHalf {
    /// What it may take, bytes.
    memory_bytes: u64,
    /// What this and the peer's copy take each, bytes.
    agreed_bytes: u64,
    log: u128,
    pub(in crate::reduction) epoch: u32,
    /// How often an epoch was begun.
    pub(in crate::reduction) begun: u32,
    key: u64,
    encoder: Option<Encoder>,
    /// The tunnel whose peer holds the log.
    owner: Option<u64>,
    /// What was compared in earlier epochs.
    before: Compared,
    catalog: Option<SharedCatalog>,
    /// The peer keeps on disk, too.
    peer_keeps: bool,
    /// The number for the next segment that is kept.
    next_number: u64,
    shelf: Option<Shelf>,
    seeds: Seeds,
    far: Far,
    recalls: Recalls,
}

impl EncoderHalf {
    pub(in crate::reduction) fn new(memory_bytes: u64) -> Self {
        Self {
            memory_bytes,
            agreed_bytes: 0,
            log: u128::from(random()) << 64 | u128::from(random() | 1),
            epoch: 0,
            begun: 0,
            key: 0,
            encoder: None,
            owner: None,
            before: Compared::default(),
            catalog: None,
            peer_keeps: false,
            next_number: 0,
            shelf: None,
            seeds: Seeds::default(),
            far: Far::default(),
            recalls: Recalls::default(),
        }
    }

    /// The peer says what it has on disk: what of it is here, too?
    pub(in crate::reduction) fn compare(&self, offer: &mut Offer, log: u128, segments: &[Listed]) {
        offer.is_there = true;
        let Some(catalog) = self.catalog.as_deref().map(lock) else {
            return;
        };
        if catalog.store() != log {
            return;
        }
        offer.far.add(0, segments);
        for segment in segments.iter().filter(|one| one.number < NUMBER_MAX) {
            offer.next = offer.next.max(segment.number + 1);
            if let Some(lengths) = catalog.agreed(log, segment) {
                offer.agreed.insert(segment.number, lengths);
            }
        }
    }

    /// The peer has these on disk now, and will not keep what is below `from`. Before the first tunnel of a log it is part of its offer.
    pub(in crate::reduction) fn kept(
        &mut self,
        tunnel: u64,
        offer: &mut Offer,
        (log, from): (u128, u64),
        segments: &[Listed],
    ) {
        let is_ours = self
            .catalog
            .as_deref()
            .is_some_and(|catalog| lock(catalog).store() == log);
        let far = match self.owner == Some(tunnel) {
            true => &mut self.far,
            false => &mut offer.far,
        };
        far.is_recalling = true;
        if is_ours {
            far.add(from, segments);
        }
    }

    /// Has segments read that a flow's next bytes may refer to; says which of them are worth waiting for.
    pub(in crate::reduction) fn look(&mut self, tunnel: u64, look: Look, batch: &[u8]) -> Vec<u64> {
        let ahead_bytes = self.agreed_bytes / AHEAD_SHARE;
        if !self.far.is_recalling || self.shelf.is_none() {
            return Vec::new();
        }
        let Some(encoder) = self.of(tunnel) else {
            return Vec::new();
        };
        let reads = match look {
            Look::Anchors => encoder.look(batch, ahead_bytes),
            Look::Samples(flow) => encoder.look_closely(flow, batch),
        };
        let mut pending: Vec<ReadAt> = reads.into_iter().filter(|read| self.ask(*read)).collect();
        pending.retain(|read| !read.is_ahead);
        pending.into_iter().map(|read| read.segment).collect()
    }

    /// What the peer names of what we have sent, if it is there.
    pub(in crate::reduction) fn whole(&self, echoed: &Echoed) -> Option<Vec<u8>> {
        let encoder = self.encoder.as_ref()?;
        let is_current = echoed.epoch == self.epoch;
        is_current
            .then(|| echoed.whole(|position, bytes| encoder.said(position, bytes)))
            .flatten()
    }

    /// Whether one of these is still to be read.
    pub(in crate::reduction) fn is_reading(&self, segments: &[u64]) -> bool {
        segments
            .iter()
            .any(|&segment| self.recalls.is_pending(segment))
    }

    fn ask(&mut self, read: ReadAt) -> bool {
        if self.recalls.is_pending(read.segment) {
            return true;
        }
        let Some((key, lengths)) = self.on_both_disks(read.segment) else {
            return false;
        };
        let epoch = self.shelf.map_or(0, |shelf| shelf.epoch);
        self.recalls.ask(Recall {
            epoch,
            read,
            key,
            lengths,
        })
    }

    /// The name of a segment, and as much of it as both ends have on disk.
    fn on_both_disks(&self, segment: u64) -> Option<(Key, BlockLengths)> {
        let catalog = lock(self.catalog.as_deref()?);
        let key = key_of(&self.shelf?, &self.seeds, &catalog, segment)?;
        let lengths = catalog.agreed(key.log, self.far.get(key.number)?)?;
        Some((key, lengths))
    }

    /// The peer did not find what is at these positions: they are not read back for it again.
    pub(in crate::reduction) fn distrust(&mut self, (position, bytes): (u64, u64)) {
        let Some((encoder, shelf)) = self.encoder.as_ref().zip(self.shelf) else {
            return;
        };
        for segment in encoder.segments_at(position, bytes) {
            let key = shelf.key(segment).or_else(|| self.seeds.key(segment));
            if let Some(key) = key {
                self.far.remove(key.number);
            }
        }
    }

    /// So many of the seeds are ready at the peer.
    pub(in crate::reduction) fn set_ready(&mut self, epoch: u32, segments: u64) {
        if epoch == self.epoch {
            self.seeds
                .set_ready(usize::try_from(segments).unwrap_or(usize::MAX));
        }
    }

    /// The encoder, for the tunnel whose peer holds the log.
    pub(in crate::reduction) fn of(&mut self, tunnel: u64) -> Option<&mut Encoder> {
        let is_owner = self.owner == Some(tunnel);
        self.encoder.as_mut().filter(|_| is_owner)
    }

    /// Whether this tunnel or a newer one has the log.
    pub(in crate::reduction) fn is_taken(&self, tunnel: u64) -> bool {
        self.owner.is_some_and(|owner| owner >= tunnel)
    }

    /// The tunnel has ended: another may have the log.
    pub(in crate::reduction) fn detach(&mut self, tunnel: u64) {
        self.owner = self.owner.filter(|owner| *owner != tunnel);
    }

    /// Bytes that may be under way: what the other end does not hold is kept.
    pub(in crate::reduction) fn unheld_bytes_max(&self) -> u64 {
        self.agreed_bytes / 4
    }

    /// The peer says what it has: the log goes on, or begins anew, with what is on both disks. Not if it [is taken](Self::is_taken).
    pub(in crate::reduction) fn attach(
        &mut self,
        tunnel: u64,
        has: (u128, u32),
        held: u64,
        peer_bytes: u64,
        mut offer: Offer,
    ) -> Vec<Message> {
        let agreed_bytes = self.memory_bytes.min(peer_bytes);
        self.owner = Some(tunnel);
        let same = has == (self.log, self.epoch) && agreed_bytes == self.agreed_bytes;
        self.agreed_bytes = agreed_bytes;
        self.peer_keeps = offer.is_there;
        self.far = std::mem::take(&mut offer.far);
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

    /// Begins a new epoch, with nothing in it: either end has forgotten what there was.
    pub(in crate::reduction) fn restart(&mut self) -> Vec<Message> {
        self.far.clear();
        self.begin(Offer::default())
    }

    /// Begins a new epoch, because the log at the other end is not what it was, with what both disks hold: that has its hashes.
    pub(in crate::reduction) fn mend(&mut self) -> Vec<Message> {
        let mut offer = Offer::default();
        if let Some(catalog) = self.catalog.as_deref().map(lock) {
            let log = catalog.store();
            let agreed = self.far.all().filter_map(|listed| {
                let lengths = catalog.agreed(log, listed)?;
                (listed.number < NUMBER_MAX).then_some((listed.number, lengths))
            });
            offer.agreed = agreed.collect();
        }
        self.begin(offer)
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
        let mut encoder = Encoder::new(self.settings());
        let mut messages = self.shelve(&mut encoder, offer);
        let start = encoder.position();
        encoder.handle_held(start);
        self.encoder = Some(encoder);
        messages.push(self.announcement(start));
        messages
    }

    fn settings(&self) -> Settings {
        settings(self.agreed_bytes, self.disk_bytes(), self.key)
    }

    fn disk_bytes(&self) -> u64 {
        disk_bytes(self.catalog.as_ref())
    }

    /// Drops the log; the next tunnel begins anew.
    pub(in crate::reduction) fn forget(&mut self) {
        self.end_epoch();
    }

    fn end_epoch(&mut self) {
        self.before = self.compared();
        let encoder = self.encoder.take();
        if let (Some(shelf), Some(mut encoder)) = (self.shelf.take(), encoder) {
            let used = encoder.segments().end().saturating_sub(shelf.seeds);
            self.next_number = self.next_number.max(shelf.base + used);
        }
        self.seeds = Seeds::default();
        self.recalls.clear();
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
        let near_max = seeds_max(self.agreed_bytes);
        let is_enough = if self.far.is_recalling {
            SEEDS_MAX
        } else {
            near_max
        };
        let newest = newest.take(is_enough);
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
        self.seeds = Seeds::new(shelf.epoch, seeds, 0, near_max);
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

    /// What was compared since this process began.
    pub(in crate::reduction) fn compared(&self) -> Compared {
        let stats = self.encoder.as_ref().map(Encoder::stats);
        self.before.and(&stats.unwrap_or_default())
    }

    /// What the log can hold.
    pub(in crate::reduction) fn capacity_bytes(&self) -> u64 {
        log_bytes_of(self.agreed_bytes) as u64
    }

    /// What of it the disk keeps and finds again, where the peer's does, too.
    pub(in crate::reduction) fn disk_capacity_bytes(&self) -> u64 {
        match self.shelf.is_some() && self.far.is_recalling {
            true => self.disk_bytes(),
            false => 0,
        }
    }

    /// Bytes of this epoch that came from disk.
    pub(in crate::reduction) fn warmed_bytes(&self) -> u64 {
        self.seeds.bytes()
    }

    /// Bytes of the log's memory, and of its index.
    pub(in crate::reduction) fn sizes(&self) -> (u64, u64) {
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
            match seed.is_away {
                true => encoder.anchor(seed.segment, bytes, lengths),
                false => encoder.seed(seed.segment, bytes, lengths),
            }
        }
    }

    fn next_recall(&mut self) -> Option<Recall> {
        self.recalls.next()
    }

    fn put_recall(&mut self, recall: &Recall, bytes: &[u8], lengths: &BlockLengths) {
        let is_same = self.shelf.is_some_and(|shelf| shelf.epoch == recall.epoch);
        if let Some(encoder) = self.encoder.as_mut().filter(|_| is_same) {
            self.recalls.pass();
            encoder.recall(&recall.read, bytes, lengths);
        }
    }

    fn set_catalog(&mut self, catalog: SharedCatalog) {
        self.catalog = Some(catalog);
    }

    fn catalog(&self) -> Option<&SharedCatalog> {
        self.catalog.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduction::halves::WHOLE;
    use crate::store::{Embedded, Folder, Options, Store};

    fn seeds_of(said: &[Message]) -> Vec<u64> {
        let numbers = said.iter().flat_map(|message| match message {
            Message::Seeds { numbers, .. } => numbers.clone(),
            _ => Vec::new(),
        });
        numbers.collect()
    }

    /// Computed: maps are two thirds full, half of the disk is of what was sent, and only that is found by anchors.
    #[test]
    fn a_terabyte_of_disk_takes_less_than_a_gigabyte_and_a_half_of_memory() {
        let segments = 1e12 / farhaul_reduce::SEGMENT_BYTES as f64;
        let known_bytes = segments * crate::store::entry_bytes() as f64 * 1.5;
        let far_bytes = segments / 2.0 * size_of::<(u64, Listed)>() as f64 * 1.5;
        let anchor_bytes = 1e12 / 2.0 / farhaul_reduce::DISK_PER_ANCHORS as f64;
        let all_bytes = known_bytes + far_bytes + anchor_bytes;
        println!("{:.2} GB", all_bytes / 1e9);
        assert!((0.5e9..1.5e9).contains(&all_bytes), "{all_bytes}");
    }

    #[test]
    fn what_finds_a_large_disk_again_does_not_depend_on_the_memory() {
        let path = std::env::temp_dir().join(format!("fh-anchors-{}", std::process::id()));
        let options = Options {
            size_bytes: 1 << 40,
            place: [1; 32],
        };
        let disk = Embedded::open(Folder::open(&path).unwrap(), options).unwrap();
        for memory_bytes in [16 << 20, 4 << 30] {
            let mut half = EncoderHalf::new(memory_bytes);
            half.agreed_bytes = memory_bytes;
            half.set_catalog(disk.catalog());
            let found_bytes = half.settings().anchor_bytes as u64 * 8192 / 8;
            assert!(found_bytes > 1 << 40, "{memory_bytes}: {found_bytes}");
        }
        drop(disk);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_log_that_is_thrown_away_begins_with_what_both_disks_hold() {
        let path = std::env::temp_dir().join(format!("fh-mend-{}", std::process::id()));
        let folder = Folder::open(&path).unwrap();
        let options = Options {
            size_bytes: 64 << 20,
            place: [1; 32],
        };
        let mut disk = Embedded::open(folder, options).unwrap();
        let log = lock(&disk.catalog()).store();
        for number in 0..3 {
            let bytes = vec![number as u8; farhaul_reduce::SEGMENT_BYTES];
            disk.save(Key { log, number }, 9, &bytes, &WHOLE).unwrap();
        }
        disk.sync().unwrap();
        let listing = lock(&disk.catalog()).listing(9);
        let mut half = EncoderHalf::new(64 << 20);
        half.set_catalog(disk.catalog());
        let mut offer = Offer::default();
        half.compare(&mut offer, log, &[]);
        let said = half.attach(1, (0, 0), 0, 64 << 20, offer);
        assert_eq!(seeds_of(&said), [0; 0]);
        assert_eq!(half.disk_capacity_bytes(), 0, "the peer reads nothing back");
        // The newest two are there, too.
        let theirs = &listing[0].1[..2];
        half.kept(1, &mut Offer::default(), (log, 0), theirs);
        // What three files hold.
        assert_eq!(half.disk_capacity_bytes(), 48 << 20);
        assert_eq!(seeds_of(&half.mend()), [1, 2]);
        assert_eq!(seeds_of(&half.restart()), [0; 0]);
        assert_eq!(seeds_of(&half.mend()), [0; 0], "it has forgotten them");
        drop(disk);
        std::fs::remove_dir_all(path).unwrap();
    }
}
