//! Bytes that go back to where they came from: a document that was opened and is saved.
//!
//! The other end has them in the log of what it sent, of which the decoder holds a copy. Of what is new in that log few samples
//! are remembered, and what a stream of the other direction has in common with it need not be sent, only named. Nothing here is
//! trusted: the bytes are compared here, and the frame that they stand for has its hash.
//!
//! Whoever decodes much in a short time must not pay for that: of large frames a sixteenth is looked at, so that what is shorter
//! than some 16 KiB may not be found again. In small ones, as slow links and small documents have them, every position is.

use crate::extend::{common_prefix, common_suffix, run_back_of, run_of};
use crate::index::{Index, WINDOW_BYTES};
use crate::log::{Found, Log, NOWHERE};
use crate::sampler::{Sampler, Sampling};
use crate::settings::Advise;

/// A shorter stretch is not worth its name.
const ECHO_BYTES_MIN: usize = 256;

/// Every position is looked at in frames of at most so many bytes.
const SMALL_FRAME_BYTES: usize = 32 << 10;
/// In larger ones so many positions,
const LOOKED_AT: u64 = 512;
/// of so many. Four samples are expected among them.
const PERIOD: u64 = 8192;
/// Samples whose places in the index are asked for together.
const TOGETHER: usize = 32;

/// A stretch of input that the other end has sent before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// Where it begins in the input.
    pub at: usize,
    /// Its virtual position in the other end's log.
    pub position: u64,
    /// How long it is.
    pub bytes: usize,
}

/// Where few samples of a log were last.
pub(crate) struct Echoes {
    index: Index,
    sampler: Sampler,
    samples: Vec<u32>,
    /// Fingerprints, and their positions, that are to be remembered.
    learned: Vec<(u64, u64)>,
    /// Nothing was learned yet.
    is_empty: bool,
}

impl Echoes {
    /// With an index of about so many bytes.
    pub(crate) fn new(bytes: usize, seed: u64, advise: Advise) -> Self {
        Self {
            index: Index::new(bytes, seed, advise),
            sampler: Sampler::new(),
            samples: Vec::new(),
            learned: Vec::new(),
            is_empty: true,
        }
    }

    /// Bytes that were new in a frame of this length are at this position of the log: [`Echoes::settle`] remembers them.
    pub(crate) fn learn(&mut self, position: u64, bytes: &[u8], frame_bytes: usize) {
        if bytes.len() < WINDOW_BYTES {
            return;
        }
        if frame_bytes <= SMALL_FRAME_BYTES {
            self.samples.clear();
            self.sampler
                .few_samples(bytes, bytes.len(), &mut self.samples);
            return self.take_samples(position, bytes);
        }
        let sparse = self.sampler.at(Sampling::Sparse);
        let end = position + bytes.len() as u64;
        let mut start = position - position % PERIOD;
        while start < end {
            let (from, to) = (start.max(position), end.min(start + LOOKED_AT));
            if from < to {
                let part = bytes.get((from - position) as usize..).unwrap_or_default();
                self.samples.clear();
                sparse.samples(part, (to - from) as usize, &mut self.samples);
                self.take_samples(from, part);
            }
            start += PERIOD;
        }
    }

    fn take_samples(&mut self, position: u64, bytes: &[u8]) {
        for &at in &self.samples {
            let Some(window) = window(bytes, at as usize) else {
                break;
            };
            let fingerprint = self.index.fingerprint(window);
            self.index.prefetch(fingerprint);
            self.learned.push((fingerprint, position + u64::from(at)));
        }
    }

    /// Remembers what was learned. All of a frame at once, or the processor would wait for memory each time.
    pub(crate) fn settle(&mut self) {
        self.is_empty &= self.learned.is_empty();
        for (fingerprint, position) in self.learned.drain(..) {
            self.index.insert(fingerprint, position);
        }
    }

    /// What of the input is in the log, in its order.
    pub(crate) fn find(&self, log: &Log, input: &[u8]) -> Vec<Echo> {
        if self.is_empty {
            return Vec::new();
        }
        let mut samples = Vec::new();
        let sparse = self.sampler.at(Sampling::Sparse);
        sparse.samples(input, input.len(), &mut samples);
        let (mut done, mut found) = (0, Vec::new());
        let mut fingerprints = Vec::with_capacity(TOGETHER);
        for samples in samples.chunks(TOGETHER) {
            fingerprints.clear();
            for at in samples.iter().map(|&at| at as usize) {
                if let Some(window) = window(input, at).filter(|_| at >= done) {
                    let fingerprint = self.index.fingerprint(window);
                    self.index.prefetch(fingerprint);
                    fingerprints.push((at, fingerprint));
                }
            }
            for &(at, fingerprint) in &fingerprints {
                let echo = (at >= done).then(|| self.echo(log, input, (at, done), fingerprint));
                if let Some(echo) = echo.flatten() {
                    done = echo.at + echo.bytes;
                    found.push(echo);
                }
            }
        }
        found
    }

    /// What is in the log around a sample, behind what was found before.
    fn echo(
        &self,
        log: &Log,
        input: &[u8],
        (at, done): (usize, usize),
        fingerprint: u64,
    ) -> Option<Echo> {
        let position = self.index.find(fingerprint, log.end())?;
        let (before, after) = input.split_at_checked(at)?;
        let forward = forward(log, position, after);
        let back = back(log, position, before.get(done..).unwrap_or_default());
        (forward >= WINDOW_BYTES && forward + back >= ECHO_BYTES_MIN).then_some(Echo {
            at: at - back,
            position: position - back as u64,
            bytes: forward + back,
        })
    }
}

fn window(bytes: &[u8], at: usize) -> Option<&[u8]> {
    bytes.get(at..at + WINDOW_BYTES)
}

/// How many of these bytes are in the log from a position on.
fn forward(log: &Log, position: u64, bytes: &[u8]) -> usize {
    let (mut done, mut hint) = (0, NOWHERE);
    while done < bytes.len() {
        let rest = bytes.get(done..).unwrap_or_default();
        let (found, nth) = log.read(position + done as u64, hint);
        hint = nth;
        let (same, whole) = match found {
            Found::Bytes(known) => (common_prefix(known, rest), known.len().min(rest.len())),
            Found::Run(byte, so_often) => {
                let whole = rest.len().min(so_often as usize);
                (run_of(byte, rest.get(..whole).unwrap_or_default()), whole)
            }
            Found::Away(_) | Found::Missing => (0, 1),
        };
        done += same;
        if same < whole {
            break;
        }
    }
    done
}

/// And how many of the last of these are in front of it.
fn back(log: &Log, position: u64, bytes: &[u8]) -> usize {
    let mut done = 0;
    while done < bytes.len() && (done as u64) < position {
        let rest = bytes.get(..bytes.len() - done).unwrap_or_default();
        let (same, whole) = match log.read_back(position - done as u64, NOWHERE, rest.len()) {
            Found::Bytes(known) => (common_suffix(known, rest), known.len()),
            Found::Run(byte, so_often) => {
                let whole = rest.len().min(so_often as usize);
                let tail = rest.get(rest.len() - whole..).unwrap_or_default();
                (run_back_of(byte, tail), whole)
            }
            Found::Away(_) | Found::Missing => (0, 1),
        };
        done += same;
        if same < whole {
            break;
        }
    }
    done
}

/// So many bytes from a position on; `None` if not all of them are at hand.
pub(crate) fn copy_out(log: &Log, position: u64, bytes: u64) -> Option<Vec<u8>> {
    let bytes = usize::try_from(bytes).ok()?;
    let (mut output, mut hint) = (Vec::new(), NOWHERE);
    while output.len() < bytes {
        let rest = bytes - output.len();
        let (found, nth) = log.read(position.checked_add(output.len() as u64)?, hint);
        hint = nth;
        match found {
            Found::Bytes(known) => {
                output.extend_from_slice(known.get(..rest.min(known.len())).unwrap_or_default());
            }
            Found::Run(byte, so_often) => {
                let end = output.len() + rest.min(so_often as usize);
                output.resize(end, byte);
            }
            Found::Away(_) | Found::Missing => return None,
        }
    }
    Some(output)
}
