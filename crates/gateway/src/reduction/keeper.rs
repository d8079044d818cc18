//! The thread that keeps a peer's segments on disk: it takes what changed out of the logs, a segment at a time, and puts in what a log
//! begins with and what is wanted again. Flows wait for the last only, so it goes first, and whatever takes a disk long (making durable) is done
//! beside it. What has left the memory before the disk was ready for it is not kept.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farhaul_reduce::SEGMENT_BLOCKS;
use tokio::sync::oneshot;

use super::Store as Memory;
use super::halves::{DecoderHalf, EncoderHalf};
use super::shelf::{Half, both};
use crate::lock::lock;
use crate::store::{Embedded, Folder, Options, Store, StoreError, place};

/// How often the logs are looked at,
const TICK: Duration = Duration::from_millis(100);
/// and whether the disk is ready.
const SYNC_TICK: Duration = Duration::from_millis(5);
/// A segment that is not full is written when nothing came for so long,
const QUIET: Duration = Duration::from_millis(500);
/// or so long after the first byte that is not on disk.
const LATE: Duration = Duration::from_secs(5);
/// Segments that are made durable together.
const GROUP: usize = 16;
/// Segments that are put in before the other direction has its turn.
const SEEDS_PER_TURN: usize = 32;
/// Another gateway may have the folder for so long.
const IN_USE_MAX: Duration = Duration::from_secs(5);
/// After a failure the disk is left alone for so long.
const PAUSE: Duration = Duration::from_secs(5);

/// A peer's part of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Folder of the peer.
    pub path: PathBuf,
    /// What it may take, both directions.
    pub size_bytes: u64,
    /// What a flow waits for it, if its next bytes may be there: [`Disk::READ_WITHIN`]. Then they are sent.
    pub read_within: Duration,
}

impl Disk {
    /// Longer than a busy disk takes for a segment, and shorter than what a user notices.
    pub const READ_WITHIN: Duration = Duration::from_millis(100);
}

/// What the thread is told.
pub(super) enum Order {
    /// Look what is to be read back.
    Look,
    /// Write what there is, and say so.
    Save(oneshot::Sender<()>),
    /// Forget everything, and say how that went.
    Clear(SyncSender<Result<(), String>>),
    /// Write what there is, say so, and end.
    Stop(SyncSender<()>),
}

/// A segment with bytes that are not on disk.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    since: Instant,
    touched: Instant,
}

/// One direction.
struct Lane<H: 'static> {
    half: fn(&Memory) -> &Mutex<H>,
    disk: Box<dyn Store>,
    /// The epoch that `waiting` is of.
    epoch: u64,
    /// The log of an epoch that has begun since the disk was used last.
    begun: Option<u128>,
    waiting: BTreeMap<u64, Waiting>,
    /// Segments to be written now.
    due: VecDeque<u64>,
    /// Segments that were written and are not durable.
    written: usize,
    syncing: Option<JoinHandle<io::Result<()>>>,
    paused_until: Option<Instant>,
    bytes: Vec<u8>,
}

/// Opens the stores and serves them until told to stop or nobody is left.
pub(super) fn run(memory: &Weak<Memory>, disk: &Disk, orders: &Receiver<Order>) {
    let lanes = open(memory, disk);
    let Some(known) = memory.upgrade() else {
        return;
    };
    let lanes = lanes.map_err(|error| *lock(&known.problem) = Some(unopened(&error)));
    known.opened.send_replace(true);
    drop(known);
    let Ok((mut sent, mut received)) = lanes else {
        return;
    };
    let mut wait = TICK;
    loop {
        let order = orders.recv_timeout(wait);
        let Some(memory) = memory.upgrade() else {
            return;
        };
        match order {
            Err(RecvTimeoutError::Timeout) => (),
            Ok(Order::Look) => memory.handle_look(),
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(Order::Clear(answer)) => {
                sent.end_sync();
                received.end_sync();
                let cleared = sent.disk.clear().and(received.disk.clear());
                let _ = answer.try_send(cleared.map_err(|error| error.to_string()));
            }
            Ok(Order::Save(answer)) => {
                sent.save_all(&memory);
                received.save_all(&memory);
                // Whoever asked may have waited long enough.
                let _ = answer.send(());
            }
            Ok(Order::Stop(answer)) => {
                sent.save_all(&memory);
                received.save_all(&memory);
                let _ = answer.try_send(());
                return;
            }
        }
        received.recall(&memory);
        sent.recall(&memory);
        let seeded = [received.seed(&memory), sent.seed(&memory)];
        if seeded.contains(&true) {
            memory.news.notify_waiters();
        }
        sent.save(&memory);
        received.save(&memory);
        wait = match seeded.contains(&true) {
            true => Duration::ZERO,
            false => sent.wait().min(received.wait()),
        };
    }
}

/// Why nothing is kept on disk, and what to do. It is not tried again: who has mended it restarts the gateway.
fn unopened(error: &StoreError) -> String {
    let remedy = error.remedy().unwrap_or("mend that");
    format!(
        "{error}: nothing of this peer is kept on disk, nor read from it; {remedy}, and restart the gateway"
    )
}

fn open(
    memory: &Weak<Memory>,
    disk: &Disk,
) -> Result<(Lane<EncoderHalf>, Lane<DecoderHalf>), StoreError> {
    let size_bytes = disk.size_bytes / 2;
    let sent = open_one(&disk.path.join("sent"), size_bytes)?;
    let received = open_one(&disk.path.join("received"), size_bytes)?;
    let sent = Lane::new(|memory| &memory.encoder, Box::new(sent));
    let received = Lane::new(|memory| &memory.decoder, Box::new(received));
    if let Some(memory) = memory.upgrade() {
        lock(&memory.encoder).set_catalog(sent.disk.catalog());
        lock(&memory.decoder).set_catalog(received.disk.catalog());
    }
    Ok((sent, received))
}

fn open_one(path: &Path, size_bytes: u64) -> Result<Embedded<Folder>, StoreError> {
    let started = Instant::now();
    let folder = loop {
        match Folder::open(path) {
            // A gateway that is being replaced may still be on its way out.
            Err(StoreError::InUse(_)) if started.elapsed() < IN_USE_MAX => {
                std::thread::sleep(TICK);
            }
            other => break other?,
        }
    };
    let options = Options {
        size_bytes,
        place: place(path),
    };
    Embedded::open(folder, options)
}

impl<H: Half> Lane<H> {
    fn new(half: fn(&Memory) -> &Mutex<H>, disk: Box<dyn Store>) -> Self {
        Self {
            half,
            disk,
            epoch: 0,
            begun: None,
            waiting: BTreeMap::new(),
            due: VecDeque::new(),
            written: 0,
            syncing: None,
            paused_until: None,
            bytes: Vec::new(),
        }
    }

    /// Puts in some of what the log begins with; whether there was any.
    fn seed(&mut self, memory: &Arc<Memory>) -> bool {
        let half = (self.half)(memory);
        let mut is_any = false;
        for _ in 0..SEEDS_PER_TURN {
            let Some(seed) = lock(half).next_seed() else {
                break;
            };
            let there = self.disk.load(seed.key, &mut self.bytes);
            let lengths = there.map_or([0; SEGMENT_BLOCKS], |there| both(&there, &seed.lengths));
            lock(half).put_seed(&seed, &self.bytes, &lengths);
            is_any = true;
        }
        is_any
    }

    /// Reads back what is wanted again.
    fn recall(&mut self, memory: &Arc<Memory>) {
        let half = (self.half)(memory);
        loop {
            let Some(recall) = lock(half).next_recall() else {
                return;
            };
            let there = self.disk.load(recall.key, &mut self.bytes);
            let lengths = there.map_or([0; SEGMENT_BLOCKS], |there| both(&there, &recall.lengths));
            lock(half).put_recall(&recall, &self.bytes, &lengths);
            memory.recalled.send_replace(());
        }
    }

    /// When there is something to do again.
    fn wait(&self) -> Duration {
        match (self.syncing.is_some(), self.due.is_empty()) {
            (true, _) => SYNC_TICK,
            (false, true) => TICK,
            (false, false) => Duration::ZERO,
        }
    }

    /// One step of writing segments that are full, or quiet, or old. Short, for flows may wait for what is read back.
    fn save(&mut self, memory: &Arc<Memory>) {
        if self
            .syncing
            .as_ref()
            .is_some_and(|sync| !sync.is_finished())
        {
            return;
        }
        self.end_sync();
        let now = Instant::now();
        if self.paused_until.is_some_and(|until| now < until) {
            return;
        }
        if self.due.is_empty() {
            self.collect(memory, now, false);
        }
        self.step(memory);
    }

    /// Writes everything there is, and waits until it is durable.
    fn save_all(&mut self, memory: &Arc<Memory>) {
        self.end_sync();
        self.collect(memory, Instant::now(), true);
        self.step(memory);
        while self.syncing.is_some() || !self.due.is_empty() {
            self.end_sync();
            self.step(memory);
        }
    }

    /// Writes a segment; a group of them, or the last, is made durable.
    fn step(&mut self, memory: &Arc<Memory>) {
        if let Some(segment) = self.due.pop_front() {
            match self.save_one(memory, segment) {
                Ok(()) => {
                    self.written += 1;
                    lock(&self.disk.catalog()).note_written();
                }
                Err(_) => return self.pause(),
            }
        }
        if self.written >= GROUP || (self.written > 0 && self.due.is_empty()) {
            self.written = 0;
            self.start_sync();
        }
    }

    fn start_sync(&mut self) {
        let syncing = self.disk.start_sync();
        lock(&self.disk.catalog()).note_syncing();
        let thread = thread::Builder::new().name("farhaul-sync".to_owned());
        match thread.spawn(syncing) {
            Ok(syncing) => self.syncing = Some(syncing),
            // What was written counts as lost.
            Err(error) => self.synced(Err(error)),
        }
    }

    /// Waits for the disk, if it is at work.
    fn end_sync(&mut self) {
        if let Some(syncing) = self.syncing.take() {
            let outcome = syncing.join();
            self.synced(outcome.unwrap_or_else(|_| Err(io::Error::other("it panicked"))));
        }
    }

    fn synced(&mut self, outcome: io::Result<()>) {
        let is_durable = self.disk.synced(outcome).is_ok();
        lock(&self.disk.catalog()).note_synced(is_durable);
        if !is_durable {
            self.pause();
        }
    }

    /// The disk failed, which the catalog has counted: it is left alone for a while.
    fn pause(&mut self) {
        self.due.clear();
        self.paused_until = Some(Instant::now() + PAUSE);
    }

    /// Takes note of the segments to be written now.
    fn collect(&mut self, memory: &Arc<Memory>, now: Instant, all: bool) {
        self.paused_until = None;
        let due = self.due(memory, now, all);
        self.due.extend(due);
        if let Some(log) = self.begun.take() {
            // The peer has begun another; what it gave up would only be in the way. A failure is counted.
            let _ = self.disk.retain(log);
        }
    }

    /// The segments to be written now.
    fn due(&mut self, memory: &Arc<Memory>, now: Instant, all: bool) -> Vec<u64> {
        let mut half = lock((self.half)(memory));
        let shelf = half.shelf();
        let Some((shelf, mut segments)) = shelf.zip(half.segments()) else {
            self.waiting.clear();
            return Vec::new();
        };
        if shelf.epoch != self.epoch {
            self.waiting.clear();
            self.epoch = shelf.epoch;
            self.begun = Some(shelf.log);
        }
        for segment in segments.take_changed() {
            let waiting = Waiting {
                since: now,
                touched: now,
            };
            self.waiting.entry(segment).or_insert(waiting).touched = now;
        }
        let mut due = Vec::new();
        self.waiting.retain(|&segment, waiting| {
            let Some(is_whole) = segments.is_whole(segment) else {
                return false;
            };
            let is_old = now - waiting.touched >= QUIET || now - waiting.since >= LATE;
            let is_due = is_whole || is_old || all;
            if is_due {
                due.push(segment);
            }
            !is_due
        });
        due
    }

    fn save_one(&mut self, memory: &Arc<Memory>, segment: u64) -> Result<(), StoreError> {
        let mut half = lock((self.half)(memory));
        let shelf = half.shelf().filter(|shelf| shelf.epoch == self.epoch);
        let Some((shelf, segments)) = shelf.zip(half.segments()) else {
            return Ok(());
        };
        let copied = segments.copy(segment, &mut self.bytes);
        drop(half);
        let Some((lengths, key)) = copied.zip(shelf.key(segment)) else {
            return Ok(());
        };
        if lengths == [0; SEGMENT_BLOCKS] {
            return Ok(());
        }
        self.disk.save(key, shelf.epoch, &self.bytes, &lengths)
    }
}

impl<H: 'static> Drop for Lane<H> {
    fn drop(&mut self) {
        // The folder is free for the next when this is gone.
        if let Some(syncing) = self.syncing.take() {
            let _ = syncing.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A memory whose disk is this folder, once it is open or cannot be.
    fn opened(path: &Path) -> Arc<Memory> {
        let disk = Disk {
            path: path.to_owned(),
            size_bytes: 64 << 20,
            read_within: Disk::READ_WITHIN,
        };
        let memory = Memory::with_disk(8 << 20, Some(disk));
        while !*memory.opened.borrow() {
            thread::sleep(SYNC_TICK);
        }
        memory
    }

    #[test]
    fn a_store_that_cannot_be_opened_is_told_with_what_to_do() {
        let path = std::env::temp_dir().join(format!("fh-unopened-{}", std::process::id()));
        let lock_path = path.join("sent/lock");
        std::fs::create_dir_all(&lock_path).unwrap();
        let memory = opened(&path);
        let told = "lock: a folder, no regular file: nothing of this peer is kept on disk, nor read from it; \
                    remove what is in its place, and restart the gateway";
        let [trouble] = <[_; 1]>::try_from(memory.take_troubles()).unwrap();
        assert!(trouble.ends_with(told), "{trouble}");
        assert_eq!(memory.figures().disk.unwrap().problem, Some(trouble));
        std::fs::remove_dir_all(path).unwrap();
        let read_only = StoreError::Disk {
            what: "cannot open",
            path: lock_path,
            error: io::ErrorKind::ReadOnlyFilesystem.into(),
        };
        let told = unopened(&read_only);
        assert!(
            told.contains("make the file system writable, and restart"),
            "{told}"
        );
    }

    /// Flows that read much say so all the time; whoever stops a gateway or clears its disk has to be heard, too.
    #[test]
    fn who_looks_keeps_no_other_order_out() {
        let path = std::env::temp_dir().join(format!("fh-orders-{}", std::process::id()));
        let memory = opened(&path);
        // The disk's thread is busy.
        let busy = lock(&memory.encoder);
        thread::sleep(2 * TICK);
        (0..100).for_each(|_| memory.wake_disk());
        let other = memory.clone();
        let cleared = thread::spawn(move || other.clear_disk());
        thread::sleep(TICK);
        drop(busy);
        assert_eq!(cleared.join().unwrap(), Ok(()));
        memory.stop();
        drop(memory);
        std::fs::remove_dir_all(path).unwrap();
    }
}
