//! Bytes that go back to where they came from: a document that was opened and is saved.
//!
//! The other end has them in the log of what it sent, of which the decoder holds a copy. Of what is new in that log few samples
//! are remembered, and what a stream of the other direction has in common with it need not be sent, only named. Nothing here is
//! trusted: the bytes are compared here, and the frame that they stand for has its hash.

use crate::extend::{common_prefix, common_suffix, run_back_of, run_of};
use crate::index::{Index, WINDOW_BYTES};
use crate::log::{Found, Log, NOWHERE};
use crate::sampler::Sampler;
use crate::settings::Advise;

/// A shorter stretch is not worth its name.
const ECHO_BYTES_MIN: usize = 256;

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
}

impl Echoes {
    /// With an index of about so many bytes.
    pub(crate) fn new(bytes: usize, seed: u64, advise: Advise) -> Self {
        Self {
            index: Index::new(bytes, seed, advise),
            sampler: Sampler::new(),
            samples: Vec::new(),
        }
    }

    /// Bytes that were new are at this position of the log.
    pub(crate) fn learn(&mut self, position: u64, bytes: &[u8]) {
        if bytes.len() < WINDOW_BYTES {
            return;
        }
        self.samples.clear();
        self.sampler
            .few_samples(bytes, bytes.len(), &mut self.samples);
        for &at in &self.samples {
            let Some(window) = window(bytes, at as usize) else {
                break;
            };
            let fingerprint = self.index.fingerprint(window);
            self.index.insert(fingerprint, position + u64::from(at));
        }
    }

    /// What of the input is in the log, in its order.
    pub(crate) fn find(&self, log: &Log, input: &[u8]) -> Vec<Echo> {
        let mut samples = Vec::new();
        self.sampler.few_samples(input, input.len(), &mut samples);
        let (mut done, mut found) = (0, Vec::new());
        for at in samples {
            let at = at as usize;
            let Some(window) = window(input, at).filter(|_| at >= done) else {
                continue;
            };
            let fingerprint = self.index.fingerprint(window);
            let Some(position) = self.index.find(fingerprint, log.end()) else {
                continue;
            };
            let (before, after) = input.split_at(at);
            let forward = forward(log, position, after);
            let back = back(log, position, before.get(done..).unwrap_or_default());
            if forward < WINDOW_BYTES || forward + back < ECHO_BYTES_MIN {
                continue;
            }
            done = at + forward;
            found.push(Echo {
                at: at - back,
                position: position - back as u64,
                bytes: forward + back,
            });
        }
        found
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
