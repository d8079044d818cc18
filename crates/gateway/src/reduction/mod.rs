//! Redundancy elimination and compression between two gateways: what of `farhaul-reduce` needs a peer.
//!
//! ```text
//! application ─ Outbound ─ Sending ─ flow ~~ WAN ~~ flow ─ Receiving ─ Inbound ─ application
//!                  EncoderHalf  └──── channel ────┘  DecoderHalf
//! ```
//! A flow carries [`record`]s; beside them the gateways talk on a [`channel`] in [`message`]s: which log is spoken of, what of it
//! is held, which record cannot be read. [`halves`] outlive a tunnel, everything else ends with it. The pure machines
//! [`sending`] and [`receiving`] decide; [`ends`] and [`channel`] move the bytes. Why it is so: `docs/design/reduction-in-the-gateway.md`.

mod channel;
mod ends;
mod halves;
mod held;
mod message;
mod receiving;
mod record;
mod sending;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use farhaul_reduce::Compressor;
use tokio::sync::{Notify, watch};

use crate::lock::lock;

pub(crate) use self::channel::serve;
pub use self::ends::{Inbound, Outbound, of};
use self::halves::{DecoderHalf, EncoderHalf};
use self::receiving::Receiving;
use self::sending::Sending;

/// Compressors that are kept for the next records.
const COMPRESSORS_MAX: usize = 4;

/// What is remembered of and for one peer, from tunnel to tunnel.
pub struct Store {
    encoder: Mutex<EncoderHalf>,
    decoder: Mutex<DecoderHalf>,
    tunnels: AtomicU64,
    counts: Counts,
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
}

/// What reduction did for a peer since this process began, and what it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Applications' bytes that were made records.
    pub input_bytes: u64,
    /// Those records.
    pub records_bytes: u64,
    /// Bytes that were compared with the log.
    pub compared_bytes: u64,
    /// Of those, what was known.
    pub known_bytes: u64,
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
    pub epoch: u32,
}

impl Store {
    /// One that may take so much memory in all.
    pub fn new(memory_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            encoder: Mutex::new(EncoderHalf::new(memory_bytes / 2)),
            decoder: Mutex::new(DecoderHalf::new(memory_bytes / 2)),
            tunnels: AtomicU64::new(0),
            counts: Counts::default(),
        })
    }

    /// What it did and takes.
    pub fn figures(&self) -> Figures {
        let encoder = lock(&self.encoder);
        let (compared_bytes, known_bytes) = encoder.counts();
        let (log_bytes, index_bytes) = encoder.sizes();
        let epoch = encoder.epoch;
        drop(encoder);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            input_bytes: read(&self.counts.input_bytes),
            records_bytes: read(&self.counts.records_bytes),
            compared_bytes,
            known_bytes,
            output_bytes: read(&self.counts.output_bytes),
            received_bytes: read(&self.counts.received_bytes),
            asked: read(&self.counts.asked),
            missed: read(&self.counts.missed),
            log_bytes,
            index_bytes,
            epoch,
        }
    }
}

/// Reduction in one tunnel.
pub struct Reduction {
    store: Arc<Store>,
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
    /// Woken when the channel has something to say.
    talk: Notify,
    /// Changes when the peer has said something.
    heard: watch::Sender<()>,
    compressors: Mutex<Vec<Compressor>>,
}

impl Reduction {
    /// For a tunnel whose peer offered it. The newest tunnel has the log.
    pub(crate) fn new(store: Arc<Store>) -> Arc<Self> {
        let tunnel = store.tunnels.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            store,
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
