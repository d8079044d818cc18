//! Capture files with nanosecond times (pcap, magic 0xa1b23c4d), written by a
//! thread of their own: the packet threads never wait for a disk.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use super::error::{Doing, EmulateError};

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const LINK_TYPE_ETHERNET: u32 = 1;
/// Longer than any frame.
const SNAP_BYTES: u32 = 262_144;
/// Frames that may wait for the disk; more are left out and counted.
const WAITING_FRAMES_MAX: usize = 16_384;

struct Record {
    real_ns: u64,
    frame: Vec<u8>,
}

/// Where a packet thread leaves copies of frames.
#[derive(Clone)]
pub(super) struct Tap {
    records: SyncSender<Record>,
    drops: Arc<AtomicU64>,
}

impl Tap {
    /// Leaves a copy, or counts it as missing where the writer is behind.
    pub(super) fn copy(&self, real_ns: u64, frame: &[u8]) {
        let record = Record {
            real_ns,
            frame: frame.to_vec(),
        };
        match self.records.try_send(record) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.drops.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A capture file being written.
pub(super) struct Capture {
    path: PathBuf,
    thread: JoinHandle<io::Result<()>>,
}

impl Capture {
    /// Makes the file (replacing an old one) and starts its writer.
    pub(super) fn create(path: &Path, drops: Arc<AtomicU64>) -> Result<(Self, Tap), EmulateError> {
        let making = || format!("writing the capture file {}", path.display());
        let mut file = BufWriter::new(File::create(path).doing(making)?);
        write_header(&mut file)
            .and_then(|()| file.flush())
            .doing(making)?;
        let (records, incoming) = sync_channel(WAITING_FRAMES_MAX);
        let thread = thread::Builder::new()
            .name("link-pcap".to_owned())
            .spawn(move || write_records(&incoming, file))
            .doing(|| "starting a thread".to_owned())?;
        let capture = Self {
            path: path.to_owned(),
            thread,
        };
        Ok((capture, Tap { records, drops }))
    }

    /// Waits until all is written; every [`Tap`] must be gone.
    pub(super) fn finish(self) -> Result<(), EmulateError> {
        let written = self
            .thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the writer panicked")));
        written.doing(|| format!("writing the capture file {}", self.path.display()))
    }
}

fn write_header(file: &mut impl Write) -> io::Result<()> {
    file.write_all(&MAGIC_NANOSECONDS.to_ne_bytes())?;
    file.write_all(&2u16.to_ne_bytes())?;
    file.write_all(&4u16.to_ne_bytes())?;
    file.write_all(&[0; 8])?;
    file.write_all(&SNAP_BYTES.to_ne_bytes())?;
    file.write_all(&LINK_TYPE_ETHERNET.to_ne_bytes())
}

fn write_records(incoming: &Receiver<Record>, mut file: BufWriter<File>) -> io::Result<()> {
    loop {
        let record = match incoming.try_recv() {
            Ok(record) => record,
            Err(TryRecvError::Disconnected) => return file.flush(),
            Err(TryRecvError::Empty) => {
                // Nothing waits: let readers of the file see what there is.
                file.flush()?;
                match incoming.recv() {
                    Ok(record) => record,
                    Err(_) => return Ok(()),
                }
            }
        };
        write_record(&mut file, &record)?;
    }
}

fn write_record(file: &mut impl Write, record: &Record) -> io::Result<()> {
    let seconds = (record.real_ns / 1_000_000_000) as u32;
    let nanoseconds = (record.real_ns % 1_000_000_000) as u32;
    let length = record.frame.len() as u32;
    for word in [seconds, nanoseconds, length, length] {
        file.write_all(&word.to_ne_bytes())?;
    }
    file.write_all(&record.frame)
}
