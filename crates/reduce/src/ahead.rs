//! What the index knows of the next bytes of the input.
//!
//! The samples of a block are hashed and their buckets asked for before the first is looked up, so that the processor waits for
//! memory once and not thirty times. What was looked up stays good behind a match: a block is never looked at twice.

use crate::index::{Index, WINDOW_BYTES};
use crate::sampler::{Sampler, is_anchor};

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
}

impl Ahead {
    /// Forgets everything: another input begins.
    pub(crate) fn clear(&mut self) {
        self.samples.clear();
        (self.next, self.end) = (0, 0);
    }

    /// Up to where the samples are known.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// Finds the samples of `input` from `at` to `end`, and what the index knows of them; `near` is the end of the log.
    pub(crate) fn look_up(
        &mut self,
        sampler: Sampler,
        index: &Index,
        input: &[u8],
        range: (usize, usize),
        near: u64,
    ) {
        let (at, end) = range;
        self.positions.clear();
        self.samples.clear();
        (self.next, self.end) = (0, end);
        sampler.samples(
            input.get(at..).unwrap_or_default(),
            end - at,
            &mut self.positions,
        );
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
