//! What the index knows of the next bytes of the input.
//!
//! The samples of a block are hashed and their buckets asked for before the first is looked up, so that the processor waits for
//! memory once and not thirty times. What was looked up stays good behind a match: a block is never looked at twice.

use crate::index::{Index, WINDOW_BYTES};
use crate::noise::{NOISE_BYTES, is_noise};
use crate::sampler::{Sampler, is_anchor};

/// Samples looked up together belong to so many bytes,
pub(crate) const BLOCK_BYTES: usize = 2048;
/// or to so many of noise, which has few.
pub(crate) const NOISE_BLOCK_BYTES: usize = 8192;

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

/// The samples of the input up to a position.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    positions: Vec<u32>,
    samples: Vec<Sample>,
    /// The first sample that was not passed.
    next: usize,
    /// The samples before this position are known.
    end: usize,
    /// Up to where the input was judged, and whether that is noise.
    judged: (usize, bool),
}

impl Ahead {
    /// Forgets everything: another input begins.
    pub(crate) fn clear(&mut self) {
        self.samples.clear();
        (self.next, self.end) = (0, 0);
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

    /// Finds the samples of a block of `input` that begins at `at` and does not go beyond `end`, and what the index knows of them;
    /// `near` is the end of the log.
    pub(crate) fn look_up(
        &mut self,
        sampler: Sampler,
        index: &Index,
        input: &[u8],
        range: (usize, usize),
        near: u64,
    ) {
        let (at, end_max) = range;
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
        (self.next, self.end) = (0, end);
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
            self.samples.push(Sample {
                at,
                fingerprint,
                is_anchor: is_anchor(window),
                found: None,
            });
        }
        // A loop of its own: so many of these are under way at once as the processor can see ahead.
        for sample in &self.samples {
            index.prefetch(sample.fingerprint);
        }
        for sample in &mut self.samples {
            sample.found = index.find(sample.fingerprint, near);
        }
    }

    /// The next sample that is not before `at`; it is passed.
    pub(crate) fn next_from(&mut self, at: usize) -> Option<Sample> {
        loop {
            let sample = *self.samples.get(self.next)?;
            self.next += 1;
            if sample.at >= at {
                return Some(sample);
            }
        }
    }
}
