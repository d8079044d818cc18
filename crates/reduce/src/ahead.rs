//! What the index knows of the next bytes of the input.
//!
//! The samples of a block are hashed and their buckets asked for before the first is looked up, so that the processor waits for
//! memory once and not thirty times. What was looked up stays good behind a match: a block is never looked at twice.

use crate::index::{Index, WINDOW_BYTES};
use crate::log::{Log, NOWHERE};
use crate::noise::{NOISE_BYTES, is_noise};
use crate::sampler::{Sampler, is_anchor};

/// Samples looked up together belong to so many bytes,
pub(crate) const BLOCK_BYTES: usize = 2048;
/// or to so many of noise, which has few.
pub(crate) const NOISE_BLOCK_BYTES: usize = 8192;

/// A stretch without sample that is long enough to look for a run in.
const GAP_BYTES: usize = 512;
/// So many candidates before they are compared, the places where they were last are asked for. More would often be in vain: a match
/// goes over them.
const APPROACHED: usize = 4;

/// A sampled position of the input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) at: usize,
    pub(crate) fingerprint: u64,
    /// It is remembered for longer.
    pub(crate) is_anchor: bool,
    /// Where the same content may have been last.
    pub(crate) found: Option<u64>,
}

/// A sample that the index knew, or the end of a long stretch without any.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) at: usize,
    /// The sample before it or where the block begins, if that is far away.
    gap: usize,
    /// Where the same content may have been last.
    pub(crate) found: Option<u64>,
    /// The log's hint for it.
    pub(crate) hint: usize,
}

impl Candidate {
    /// The stretch without sample before it, from `at` on, if it is long enough to look for a run in.
    pub(crate) fn gap_from(&self, at: usize) -> Option<std::ops::Range<usize>> {
        let gap = self.gap.max(at)..self.at;
        (gap.len() >= GAP_BYTES).then_some(gap)
    }
}

/// The samples of the input up to a position.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    positions: Vec<u32>,
    samples: Vec<Sample>,
    candidates: Vec<Candidate>,
    /// The first candidate that was not passed.
    next: usize,
    /// The first candidate whose place was not asked for.
    approached: usize,
    /// The log's hint for the last that was.
    hint: usize,
    /// The samples before this position are known.
    end: usize,
    /// Up to where the input was judged, and whether that is noise.
    judged: (usize, bool),
}

impl Ahead {
    /// Forgets everything: another input begins.
    pub(crate) fn clear(&mut self) {
        self.samples.clear();
        self.candidates.clear();
        (self.next, self.approached, self.end) = (0, 0, 0);
        self.judged = (0, false);
    }

    /// Whether what was looked up last is of noise: it has few samples and no runs.
    pub(crate) fn is_noise(&self) -> bool {
        self.judged.1
    }

    /// Judges the input that begins at `at`; its end together with what is before it.
    fn judge(&mut self, input: &[u8], at: usize) {
        if at < self.judged.0 {
            return;
        }
        let start = at.min(input.len().saturating_sub(NOISE_BYTES));
        let end = start + NOISE_BYTES;
        self.judged = (end, input.get(start..end).is_some_and(is_noise));
    }

    /// Up to where the samples are known.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Finds the samples of a block of `input` that begins at `at` and does not go beyond `end`; asks for what the index knows of them.
    fn sample(
        &mut self,
        sampler: Sampler,
        index: &Index,
        input: &[u8],
        (at, end_max): (usize, usize),
    ) {
        self.judge(input, at);
        let is_noise = self.is_noise();
        let block_bytes = if is_noise {
            NOISE_BLOCK_BYTES
        } else {
            BLOCK_BYTES
        };
        let end = end_max.min(at + block_bytes);
        self.positions.clear();
        self.samples.clear();
        self.candidates.clear();
        (self.next, self.approached, self.end) = (0, 0, end);
        let rest = input.get(at..).unwrap_or_default();
        match is_noise {
            true => sampler.few_samples(rest, end - at, &mut self.positions),
            false => sampler.samples(rest, end - at, &mut self.positions),
        }
        for &offset in &self.positions {
            let at = at + offset as usize;
            let Some(window) = input.get(at..at + WINDOW_BYTES) else {
                break;
            };
            let fingerprint = index.fingerprint(window);
            index.prefetch(fingerprint);
            self.samples.push(Sample {
                at,
                fingerprint,
                is_anchor: is_anchor(window),
                found: None,
            });
        }
    }

    /// Finds the samples of a block and puts them into the index: the byte at `range.0` is the next of the log. Of what the index knew
    /// come the candidates.
    pub(crate) fn exchange(
        &mut self,
        sampler: Sampler,
        index: &mut Index,
        log: &Log,
        input: &[u8],
        range: (usize, usize),
    ) {
        self.sample(sampler, index, input, range);
        let (near, start) = (log.end(), range.0);
        let gap_bytes = if self.is_noise() {
            usize::MAX
        } else {
            GAP_BYTES
        };
        let mut last = start;
        for nth in 0..self.samples.len() {
            let Some((sample, before)) = self
                .samples
                .get_mut(..=nth)
                .and_then(<[Sample]>::split_last_mut)
            else {
                break;
            };
            let position = near + (sample.at - start) as u64;
            sample.found = index.exchange(sample.fingerprint, position);
            // What is in the same block is not in the log yet.
            if let Some(ahead) = sample.found.and_then(|found| found.checked_sub(near)) {
                let twin = before
                    .iter()
                    .rev()
                    .find(|twin| (twin.at - start) as u64 == ahead);
                sample.found = twin.and_then(|twin| twin.found);
            }
            let is_gap = sample.at - last >= gap_bytes;
            if sample.found.is_some() || is_gap {
                self.candidates.push(Candidate {
                    at: sample.at,
                    gap: if is_gap { last } else { sample.at },
                    found: sample.found,
                    hint: NOWHERE,
                });
            }
            last = sample.at;
        }
        if self.end - last >= gap_bytes {
            self.candidates.push(Candidate {
                at: self.end,
                gap: last,
                found: None,
                hint: NOWHERE,
            });
        }
    }

    /// Finds the samples of a block, and what the index knows of them; `near` is the end of the log.
    pub(crate) fn look_up(
        &mut self,
        sampler: Sampler,
        index: &Index,
        input: &[u8],
        range: (usize, usize),
        near: u64,
    ) {
        self.sample(sampler, index, input, range);
        for sample in &mut self.samples {
            sample.found = index.find(sample.fingerprint, near);
        }
    }

    /// The samples of the block.
    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The next candidate that is not before `at`; it is passed. Asks for what the next ones will be compared with.
    pub(crate) fn next_from(&mut self, at: usize, log: &Log) -> Option<Candidate> {
        while self.candidates.get(self.next)?.at < at {
            self.next += 1;
        }
        self.approached = self.approached.max(self.next);
        let near = self
            .candidates
            .get_mut(self.approached..)
            .unwrap_or_default();
        for candidate in near
            .iter_mut()
            .take(self.next + APPROACHED - self.approached)
        {
            if let Some(found) = candidate.found {
                self.hint = log.approach(found, self.hint);
                candidate.hint = self.hint;
            }
            self.approached += 1;
        }
        self.next += 1;
        self.candidates.get(self.next - 1).copied()
    }
}
