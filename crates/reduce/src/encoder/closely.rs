//! What an input may repeat of which no anchor tells.
//!
//! An anchor is one position in 8192: what was sent in short pieces, between references to what is older, has none. Its samples are in
//! the index all the same, so before the input is encoded it is gone through as the encoder would, and what nothing at hand covers is
//! asked for. What does cover the rest is spared meanwhile, or reading the one would drive the other out.

use std::collections::{BTreeMap, BTreeSet};

use super::recall::Reads;
use super::{Encoder, RESUME_BYTES, slice};
use crate::ahead::Ahead;
use crate::log::{Found, NOWHERE, ReadAt};

/// So many samples must lead to a segment that it is read: a megabyte from a disk for fewer takes longer than sending their bytes,
/// and the index is mistaken now and then.
const SAMPLES_MIN: usize = 4;

/// How far the input is covered, and by what.
#[derive(Default)]
struct Plan {
    at: usize,
    /// Segments at hand that matches are in.
    due: BTreeSet<u64>,
    /// Those that are not, how many samples that nothing else covers lead there, and where to.
    away: BTreeMap<u64, (usize, u64)>,
}

impl Encoder {
    /// Which segments that are not at hand hold what nothing at hand does, as far as samples of the input lead there. To be asked when
    /// what [`Encoder::look`] named is at hand, and before the input is encoded.
    pub fn look_closely(&mut self, flow: u64, input: &[u8]) -> Vec<ReadAt> {
        if self.anchors.is_none() || !self.log.is_any_away() {
            return Vec::new();
        }
        let mut reads = Reads::default();
        let mut plan = self.plan(flow, input);
        for (segment, (samples, source)) in std::mem::take(&mut plan.away) {
            if samples >= SAMPLES_MIN {
                plan.due.insert(segment);
                reads.add(vec![(segment, source)], false);
            }
        }
        self.log.set_due(plan.due.into_iter().collect());
        reads.0
    }

    fn plan(&self, flow: u64, input: &[u8]) -> Plan {
        let mut plan = Plan::default();
        let goes_on = self.open.as_ref().is_none_or(|open| open.flow == flow);
        if let Some(expected) = self.expected.filter(|_| goes_on) {
            self.go_on(flow, expected, input, &mut plan);
        }
        let (mut ahead, near) = (Ahead::default(), self.log.end());
        while plan.at < input.len() {
            let range = (plan.at, input.len());
            ahead.look_up(self.sampler, &self.index, input, range, near);
            for sample in ahead.samples() {
                if let Some(source) = sample.found {
                    self.plan_sample(flow, (sample.at, source), input, &mut plan);
                }
            }
            plan.at = plan.at.max(ahead.end());
        }
        plan
    }

    /// Covers the input with what `source` leads to, or notes that this is away.
    fn plan_sample(&self, flow: u64, (at, source): (usize, u64), input: &[u8], plan: &mut Plan) {
        let Some(offset) = at.checked_sub(plan.at) else {
            return;
        };
        let rest = slice(input, plan.at, input.len());
        if let Some(found) = self.confirm(flow, (source, NOWHERE), rest, offset) {
            plan.at = at;
            self.go_on(flow, (found.source, found.hint), input, plan);
        } else if let (Found::Away(segment), _) = self.log.read(source, NOWHERE) {
            plan.away.entry(segment).or_insert((0, source)).0 += 1;
        }
    }

    /// Follows a match, differences included, until it is over.
    fn go_on(&self, flow: u64, mut expected: (u64, usize), input: &[u8], plan: &mut Plan) {
        while let Some((skip, found)) = self.resumed(
            flow,
            expected,
            slice(input, plan.at, input.len()),
            RESUME_BYTES,
        ) {
            let bytes = found.forward as u64;
            plan.at += skip + found.forward;
            plan.due.extend(self.segments_at(found.source, bytes));
            expected = (found.source + bytes, found.hint);
        }
    }
}
