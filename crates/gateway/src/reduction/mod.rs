//! Redundancy elimination and compression between two gateways: what of `farhaul-reduce` needs a peer.
//!
//! ```text
//! application ─ Outbound ─ Sending ─ flow ~~ WAN ~~ flow ─ Receiving ─ Inbound ─ application
//!                  EncoderHalf  └──── channel ────┘  DecoderHalf
//! ```
//! A flow carries [`record`]s; beside them the gateways talk on a [`channel`] in [`message`]s: which log is spoken of, what of it
//! is held, which record cannot be read. [`halves`] outlive a tunnel, everything else ends with it. What halves hold a thread keeps on disk
//! ([`keeper`], [`shelf`]), a gateway that starts again has it, and what has left the memory is read back from there ([`recalls`]). The pure machines
//! [`sending`] and [`receiving`] decide; [`ends`] and [`channel`] move the bytes. Why it is so: `docs/design/reduction-in-the-gateway.md`.

mod channel;
mod compared;
mod echo;
mod effort;
mod ends;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
mod halves;
mod held;
mod keeper;
mod message;
mod pace;
mod pages;
mod recalls;
mod receiving;
mod record;
mod sending;
mod shelf;
#[cfg(test)]
mod tests;
mod tunnels;
mod words;

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farhaul_reduce::{Codec, Compressor};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::timeout;

use crate::lock::lock;
use crate::store::Catalog;

pub(crate) use self::channel::serve;
pub use self::compared::Compared;
pub use self::ends::{Inbound, Outbound, of};
use self::halves::{DecoderHalf, EncoderHalf};
pub use self::keeper::Disk;
use self::keeper::Order;
use self::receiving::Receiving;
pub(crate) use self::record::{CopyPlace, SegmentHash};
use self::sending::Sending;
use self::shelf::{Half, SharedCatalog};
use self::tunnels::Tunnels;

/// A disk that has not told what is on it by then is done without.
const OPENED_WITHIN: Duration = Duration::from_secs(30);
/// What a tunnel waits for the disk to write what is not on it yet.
const SAVED_WITHIN: Duration = Duration::from_secs(2);
/// What a disk may take to write what is left, or to forget everything.
const ORDER_WITHIN: Duration = Duration::from_secs(10);
/// Orders that wait for the disk; one of them at most is to look what is to be read back.
const ORDERS_MAX: usize = 16;

/// Of a record with less that is new the level says nothing: it has taught nobody how the content shrinks.
const LEVEL_BYTES_MIN: usize = 4096;
/// Nothing was sent yet: no level there is.
const NO_LEVEL: i32 = i32::MIN;

/// Compressors that are kept for the next records.
const COMPRESSORS_MAX: usize = 4;

/// What is remembered of and for one peer, from tunnel to tunnel.
pub struct Store {
    encoder: Mutex<EncoderHalf>,
    decoder: Mutex<DecoderHalf>,
    tunnels: Mutex<Tunnels>,
    counts: Counts,
    orders: Option<SyncSender<Order>>,
    /// Whether one of them is to look.
    is_look_ordered: AtomicBool,
    /// [`Disk::read_within`], if there is a disk.
    read_within: Option<Duration>,
    /// Whether what is on disk is known; true without a disk.
    opened: watch::Sender<bool>,
    /// Why there is no disk, if there should be one.
    problem: Mutex<Option<String>>,
    /// The last problems that [`Store::take_troubles`] told.
    told: Mutex<[Option<String>; 3]>,
    /// Woken when something was read from disk, or a tunnel has ended.
    news: Notify,
    /// Changes when a segment was read back, or could not be.
    recalled: watch::Sender<()>,
}

/// Bytes of flows that carry records, and records that missed.
#[derive(Debug, Default)]
struct Counts {
    input_bytes: AtomicU64,
    records_bytes: AtomicU64,
    output_bytes: AtomicU64,
    received_bytes: AtomicU64,
    missed: AtomicU64,
    asked: AtomicU64,
    new_bytes: AtomicU64,
    packed_bytes: AtomicU64,
    /// [`Figures::level`]; [`NO_LEVEL`] before the first record.
    level: AtomicI32,
}

impl Counts {
    /// So many bytes of records, or of a record said once more.
    fn add_sent(&self, bytes: usize) {
        self.records_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// So many bytes that were not known were made so many, now at this level.
    fn add_packed(&self, new_bytes: usize, packed_bytes: usize, codec: Codec) {
        let level = match codec {
            Codec::Null => 0,
            Codec::Zstd(level) => i32::from(level),
        };
        if new_bytes >= LEVEL_BYTES_MIN {
            self.level.store(level, Ordering::Relaxed);
        }
        let add = |counter: &AtomicU64, bytes| counter.fetch_add(bytes as u64, Ordering::Relaxed);
        add(&self.new_bytes, new_bytes);
        add(&self.packed_bytes, packed_bytes);
    }
}

/// What reduction did for a peer since this process began, and what it takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Applications' bytes that were made records.
    pub input_bytes: u64,
    /// Those records, and what was said once more of them.
    pub records_bytes: u64,
    /// What of their bytes was compared with the log.
    pub compared: Compared,
    /// What compression was given: what was not known, and what refers to the rest.
    pub new_bytes: u64,
    /// What it made of that.
    pub packed_bytes: u64,
    /// zstd's level after the last record with 4 KiB that were new, 0 for none; absent before the first.
    pub level: Option<i32>,
    /// Bytes that were made of the peer's records.
    pub output_bytes: u64,
    /// Those records.
    pub received_bytes: u64,
    /// Records the peer asked for again.
    pub asked: u64,
    /// Records we asked for again.
    pub missed: u64,
    /// What our log holds at most.
    pub log_bytes: u64,
    /// Its index.
    pub index_bytes: u64,
    /// How often the log began anew.
    pub begun: u32,
    /// What a log can hold in memory.
    pub capacity_bytes: u64,
    /// What of it is kept on disk at most, where both ends do; else 0.
    pub disk_capacity_bytes: u64,
    /// Bytes that came from disk into the log, or into our copy of the peer's.
    pub warmed_bytes: u64,
    /// The disk, if it is used.
    pub disk: Option<DiskFigures>,
}

/// A peer's part of the disk, both directions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskFigures {
    /// What it may take.
    pub size_bytes: u64,
    /// What segments take.
    pub used_bytes: u64,
    /// Written since start.
    pub saved_bytes: u64,
    /// Segments read since start.
    pub loaded: u64,
    /// Segments that made room for others since start.
    pub evicted: u64,
    /// Blocks that were not as they were written.
    pub bad_blocks: u64,
    /// Files that could not be used, or were removed meanwhile.
    pub unusable_files: u64,
    /// Places of files that something else takes.
    pub barred_files: u64,
    /// Reads and writes that failed, and times there was no room to reserve.
    pub failed: u64,
    /// Segments that were written and are not durable.
    pub unsynced: u64,
    /// Something is being made durable.
    pub is_syncing: bool,
    /// Groups of segments that were made durable.
    pub synced: u64,
    /// What went wrong last.
    pub problem: Option<String>,
}

impl DiskFigures {
    fn add(&mut self, catalog: &Catalog) {
        let counts = catalog.counts();
        self.size_bytes += catalog.size_bytes();
        self.used_bytes += catalog.used_bytes();
        self.saved_bytes += counts.saved_bytes;
        self.loaded += counts.loaded;
        self.evicted += counts.evicted;
        self.bad_blocks += counts.bad_blocks;
        self.unusable_files += counts.unusable_files;
        self.barred_files += counts.barred_files;
        self.failed += counts.failed + counts.full;
        self.unsynced += counts.unsynced;
        self.is_syncing |= counts.is_syncing;
        self.synced += counts.synced;
        self.problem = counts.problem.or(self.problem.take());
    }
}

impl Store {
    /// One that may take so much memory in all.
    pub fn new(memory_bytes: u64) -> Arc<Self> {
        Self::with_disk(memory_bytes, None)
    }

    /// The same, and what it holds is kept on disk.
    pub fn with_disk(memory_bytes: u64, disk: Option<Disk>) -> Arc<Self> {
        let (orders, receiver) = sync_channel(ORDERS_MAX);
        let disk = disk.filter(|_| memory_bytes > 0);
        let store = Arc::new(Self {
            encoder: Mutex::new(EncoderHalf::new(memory_bytes / 2)),
            decoder: Mutex::new(DecoderHalf::new(memory_bytes / 2)),
            tunnels: Mutex::default(),
            counts: Counts {
                level: AtomicI32::new(NO_LEVEL),
                ..Counts::default()
            },
            orders: disk.is_some().then_some(orders),
            is_look_ordered: AtomicBool::new(false),
            read_within: disk.as_ref().map(|disk| disk.read_within),
            opened: watch::channel(disk.is_none()).0,
            problem: Mutex::default(),
            told: Mutex::default(),
            news: Notify::new(),
            recalled: watch::channel(()).0,
        });
        if let Some(disk) = disk {
            let weak = Arc::downgrade(&store);
            let thread = std::thread::Builder::new().name("store".to_owned());
            let started = thread.spawn(move || keeper::run(&weak, &disk, &receiver));
            if let Err(error) = started {
                *lock(&store.problem) = Some(format!("no thread for the disk: {error}"));
                store.opened.send_replace(true);
            }
        }
        store
    }

    /// Waits until it is known what is on disk, and until what is in memory only is there, too: a new tunnel's peer is told of what is
    /// on disk, and may have forgotten the rest.
    pub(crate) async fn opened(&self) {
        let mut opened = self.opened.subscribe();
        // The sender lives as long as we do.
        let _ = timeout(OPENED_WITHIN, opened.wait_for(|is_opened| *is_opened)).await;
        let (answer, answered) = oneshot::channel();
        let orders = self.orders.as_ref();
        if orders.is_some_and(|orders| orders.try_send(Order::Save(answer)).is_ok()) {
            let _ = timeout(SAVED_WITHIN, answered).await;
        }
    }

    /// Something is to be read back.
    fn wake_disk(&self) {
        let Some(orders) = &self.orders else {
            return;
        };
        // Once is enough, and flows that read much must not keep other orders out.
        let is_ordered = self.is_look_ordered.swap(true, Ordering::AcqRel);
        if !is_ordered && orders.try_send(Order::Look).is_err() {
            self.is_look_ordered.store(false, Ordering::Release);
        }
    }

    /// Writes to disk what is not there yet, and ends the use of it. Blocks.
    pub fn stop(&self) {
        let (answer, answered) = sync_channel(1);
        let orders = self.orders.as_ref();
        if orders.is_some_and(|orders| orders.try_send(Order::Stop(answer)).is_ok()) {
            let _ = answered.recv_timeout(ORDER_WITHIN);
        }
    }

    /// The disk looks now: what is wanted from here on is another look.
    fn handle_look(&self) {
        self.is_look_ordered.store(false, Ordering::Release);
    }

    /// Forgets what is in memory, where no tunnel uses it; the next one begins anew.
    pub fn forget(&self) {
        lock(&self.encoder).forget();
        lock(&self.decoder).forget();
    }

    /// Forgets what is on disk. Blocks.
    pub fn clear_disk(&self) -> Result<(), String> {
        let Some(orders) = &self.orders else {
            return Ok(());
        };
        let (answer, answered) = sync_channel(1);
        match orders.try_send(Order::Clear(answer)) {
            Ok(()) => answered
                .recv_timeout(ORDER_WITHIN)
                .unwrap_or_else(|_| Err("the disk does not answer".to_owned())),
            Err(TrySendError::Full(_)) => Err("the disk is busy".to_owned()),
            // Why, status says; there is nothing this gateway would use.
            Err(TrySendError::Disconnected(_)) => {
                let problem = lock(&self.problem).clone();
                Err(problem.unwrap_or_else(|| "the disk is not in use".to_owned()))
            }
        }
    }

    /// What is on disk; `None` if none was asked for.
    fn disk_figures(&self) -> Option<DiskFigures> {
        self.orders.as_ref()?;
        let problem = lock(&self.problem).clone();
        let mut figures = DiskFigures {
            failed: u64::from(problem.is_some()),
            problem,
            ..DiskFigures::default()
        };
        for catalog in self.catalogs().into_iter().flatten() {
            figures.add(&lock(&catalog));
        }
        Some(figures)
    }

    /// What went wrong with the disk, once each: as a whole, and in each direction.
    pub fn take_troubles(&self) -> Vec<String> {
        let whole = lock(&self.problem).clone();
        let [sent, received] = self.catalogs();
        let of = |catalog: Option<SharedCatalog>| lock(&*catalog?).counts().problem;
        let mut told = lock(&self.told);
        let problems = told.iter_mut().zip([whole, of(sent), of(received)]);
        let news = problems.filter_map(|(told, problem)| {
            let is_new = problem.is_some() && *told != problem;
            is_new.then(|| told.clone_from(&problem)).and(problem)
        });
        news.collect()
    }

    fn catalogs(&self) -> [Option<SharedCatalog>; 2] {
        let sent = lock(&self.encoder).catalog().cloned();
        let received = lock(&self.decoder).catalog().cloned();
        [sent, received]
    }

    /// What it did and takes.
    pub fn figures(&self) -> Figures {
        let encoder = lock(&self.encoder);
        let compared = encoder.compared();
        let (log_bytes, index_bytes) = encoder.sizes();
        let begun = encoder.begun;
        let capacity_bytes = encoder.capacity_bytes();
        let disk_capacity_bytes = encoder.disk_capacity_bytes();
        let warmed_bytes = encoder.warmed_bytes();
        drop(encoder);
        let warmed_bytes = warmed_bytes + lock(&self.decoder).warmed_bytes();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            input_bytes: read(&self.counts.input_bytes),
            records_bytes: read(&self.counts.records_bytes),
            compared,
            new_bytes: read(&self.counts.new_bytes),
            packed_bytes: read(&self.counts.packed_bytes),
            level: Some(self.counts.level.load(Ordering::Relaxed))
                .filter(|level| *level != NO_LEVEL),
            output_bytes: read(&self.counts.output_bytes),
            received_bytes: read(&self.counts.received_bytes),
            asked: read(&self.counts.asked),
            missed: read(&self.counts.missed),
            log_bytes,
            index_bytes,
            begun,
            capacity_bytes,
            disk_capacity_bytes,
            warmed_bytes,
            disk: self.disk_figures(),
        }
    }
}

/// Reduction in one tunnel.
pub struct Reduction {
    store: Arc<Store>,
    tunnel: u64,
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
    /// Woken when the channel has something to say.
    talk: Notify,
    /// Changes when the peer has said something.
    heard: watch::Sender<()>,
    compressors: Mutex<Vec<Compressor>>,
}

impl Reduction {
    /// For a tunnel whose peer offered it, and perhaps to know what it has sent itself. The newest tunnel has the log.
    pub(crate) fn new(store: Arc<Store>, has_echoes: bool) -> Arc<Self> {
        let tunnel = lock(&store.tunnels).number();
        lock(&store.decoder).has_echoes = has_echoes;
        Arc::new(Self {
            store,
            tunnel,
            sending: Mutex::new(Sending::new(tunnel)),
            receiving: Mutex::default(),
            talk: Notify::new(),
            heard: watch::channel(()).0,
            compressors: Mutex::default(),
        })
    }

    /// Forgets what was sent and what was received; both ends begin anew.
    pub fn clear(&self) {
        lock(&self.sending).restart(&mut lock(&self.store.encoder));
        lock(&self.receiving).forget(&mut lock(&self.store.decoder));
        self.talk.notify_one();
    }

    /// Whether the peer has read every record and can ask for none again.
    pub(crate) fn is_all_read(&self) -> bool {
        lock(&self.sending).is_all_read()
    }

    /// Runs something with a compressor.
    fn with_compressor<R>(&self, work: impl FnOnce(&mut Compressor) -> R) -> R {
        let mut compressor = lock(&self.compressors).pop().unwrap_or_default();
        let result = work(&mut compressor);
        let mut compressors = lock(&self.compressors);
        if compressors.len() < COMPRESSORS_MAX {
            compressors.push(compressor);
        }
        result
    }
}
