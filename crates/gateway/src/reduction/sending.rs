//! The encoder's side of one tunnel: what was sent and may be asked for again, and what the peer says about it.
//!
//! A record is kept until the peer has read it, so a record the peer cannot resolve is said once more in plain words, whatever
//! the log has forgotten since. What is kept is bounded: a flow may have four times what is left under way, then it waits; flows that
//! are not read leave the others their share. When all of it is taken, new bytes are neither remembered nor kept.
//!
//! What the peer has read any flow may refer to, whatever of other flows it has not: one that reads slowly is in nobody's way.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use farhaul_reduce::{Plain, Sampling};

use super::halves::{EncoderHalf, Look};
use super::message::{Message, Why};
use super::record::{Draft, mark_of};
use super::shelf::Offer;
use super::words::{Again, Words};

/// A flow that the peer has read nothing of for so long is set aside: nobody waits for its records or refers to them.
const STUCK_NS: u64 = 5_000_000_000;

/// What keeping a record takes besides its bytes: what is noted of it here and in the encoder, and the buffers around both. So
/// records of a few bytes do not take many times the memory that they count for.
pub(super) const RECORD_COST_BYTES: u64 = 256;

/// Echoes that are left out after one of which the peer did not have everything: each costs a round trip.
const ECHOES_LEFT_OUT: u32 = 64;

#[derive(Debug)]
struct Kept {
    record: u64,
    epoch: u32,
    position: u64,
    bytes: Bytes,
    is_asked: bool,
    /// The peer was told not to wait for it.
    is_skipped: bool,
}

impl Kept {
    /// What it takes of the memory.
    fn cost_bytes(&self) -> u64 {
        self.bytes.len() as u64 + RECORD_COST_BYTES
    }
}

/// One flow's records that the peer has not read.
#[derive(Debug, Default)]
struct Unread {
    kept: VecDeque<Kept>,
    /// What they cost.
    kept_bytes: u64,
    /// Content that was said again in plain words: the peer has it and does not remember it.
    repeated_bytes: u64,
    is_over: bool,
    /// The peer does not read it any more.
    is_gone: bool,
    /// Its records are set aside.
    is_aside: bool,
    /// The first record that was not read, and since when.
    stuck: Option<(u64, u64)>,
}

pub(super) struct Sending {
    tunnel: u64,
    flows: BTreeMap<u64, Unread>,
    /// Of flows that are read,
    kept_bytes: u64,
    /// and of those that are set aside.
    aside_bytes: u64,
    words: Words,
    /// Records the peer could not read.
    pub(super) missed: u64,
    /// What the peer has on disk.
    offer: Offer,
    /// What it has in memory, until we have the log.
    have: Option<Have>,
    restarts: Restarts,
    /// So many records more do not name what the peer has sent.
    pub(super) left_out: u32,
}

/// What the peer holds of a log.
#[derive(Debug, Clone, Copy)]
struct Have {
    log: (u128, u32),
    held: u64,
    memory_bytes: u64,
}

/// A new log costs its memory, so a peer that asks for one again and again gets one a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restarts {
    Allowed,
    Done,
    Due,
}

impl Sending {
    pub(super) fn new(tunnel: u64) -> Self {
        Self {
            tunnel,
            flows: BTreeMap::new(),
            kept_bytes: 0,
            aside_bytes: 0,
            words: Words::default(),
            missed: 0,
            offer: Offer::default(),
            have: None,
            restarts: Restarts::Allowed,
            left_out: 0,
        }
    }

    /// Whether a flow has so much under way that it must wait until the peer has read some: four times what is left, so that one
    /// alone has four fifths of all. One that is set aside takes of what those have, not of the others'.
    pub(super) fn must_wait(&self, half: &EncoderHalf, flow: u64) -> bool {
        let Some(unread) = self.flows.get(&flow) else {
            return false;
        };
        let room_bytes = match unread.is_aside {
            true => half.unheld_bytes_max().saturating_sub(self.aside_bytes),
            false => self.room_bytes(half),
        };
        unread.kept_bytes > 0 && unread.kept_bytes / 4 >= room_bytes
    }

    /// How much more may be kept. Flows that are set aside have as much of their own, and count with what is beyond.
    fn room_bytes(&self, half: &EncoderHalf) -> u64 {
        let max = half.unheld_bytes_max();
        let beyond = self.aside_bytes.saturating_sub(max);
        max.saturating_sub(self.kept_bytes.saturating_add(beyond))
    }

    /// Segments on disk that a flow's next bytes may refer to and that are being read: [`EncoderHalf::is_reading`].
    pub(super) fn look(&self, half: &mut EncoderHalf, look: Look, batch: &[u8]) -> Vec<u64> {
        half.look(self.tunnel, look, batch)
    }

    /// Frames whose records are made: their memory is used for the next ones.
    pub(super) fn recycle(&self, half: &mut EncoderHalf, spent: Vec<Plain>) {
        if let Some(encoder) = half.of(self.tunnel) {
            spent.into_iter().for_each(|plain| encoder.recycle(plain));
        }
    }

    /// How closely the next bytes are looked at.
    pub(super) fn set_sampling(&self, half: &mut EncoderHalf, sampling: Sampling) {
        if let Some(encoder) = half.of(self.tunnel) {
            encoder.set_sampling(sampling);
        }
    }

    /// Makes records of a flow's bytes, numbered from `first` on. `None` if there is no log at present, or no room in it.
    pub(super) fn encode(
        &mut self,
        half: &mut EncoderHalf,
        flow: u64,
        first: u64,
        batch: &Bytes,
    ) -> Option<Vec<Draft>> {
        let has_room = self.room_bytes(half) > 0;
        let epoch = half.epoch;
        let encoder = half.of(self.tunnel).filter(|_| has_room);
        let encoder = encoder.filter(|encoder| encoder.has_room())?;
        encoder.encode(flow, batch);
        encoder.flush();
        let mut rest = batch.clone();
        let mut drafts = Vec::new();
        while let Some(plain) = encoder.poll_frame() {
            let bytes = rest.split_to(plain.length.min(rest.len()));
            let record = first + drafts.len() as u64;
            self.keep((flow, record), epoch, &plain, bytes);
            drafts.push(Draft::Frame(plain, Some(mark_of(epoch))));
        }
        Some(drafts)
    }

    fn keep(&mut self, (flow, record): (u64, u64), epoch: u32, plain: &Plain, bytes: Bytes) {
        let position = plain.place.map_or(0, |place| place.position);
        let kept = Kept {
            record,
            epoch,
            position,
            bytes,
            is_asked: false,
            is_skipped: false,
        };
        let unread = self.flows.entry(flow).or_default();
        let (is_aside, added) = (unread.is_aside, kept.cost_bytes());
        unread.kept_bytes += added;
        unread.kept.push_back(kept);
        *self.pool(is_aside) += added;
    }

    /// With what a flow's kept bytes are counted.
    fn pool(&mut self, is_aside: bool) -> &mut u64 {
        match is_aside {
            true => &mut self.aside_bytes,
            false => &mut self.kept_bytes,
        }
    }

    /// Whether the next record may name what the peer has sent.
    pub(super) fn may_echo(&mut self) -> bool {
        let may = self.left_out == 0;
        self.left_out = self.left_out.saturating_sub(1);
        may
    }

    /// Whether the peer has not said that it read everything of this flow, so that others cannot refer to all of it.
    pub(super) fn is_unread(&self, flow: u64) -> bool {
        let unread = self.flows.get(&flow);
        unread.is_some_and(|unread| !unread.kept.is_empty())
    }

    /// Content of this flow that was said again, as long as it is not over.
    pub(super) fn repeated_bytes(&self, flow: u64) -> u64 {
        self.flows
            .get(&flow)
            .map_or(0, |unread| unread.repeated_bytes)
    }

    /// Nothing more comes from this flow, and both its directions have ended well.
    pub(super) fn finish(&mut self, half: &mut EncoderHalf, flow: u64) {
        let unread = self.flows.entry(flow).or_default();
        unread.is_over = true;
        let is_gone = unread.is_gone;
        if unread.kept.is_empty() {
            self.flows.remove(&flow);
        } else if is_gone {
            self.abandon(half, flow);
        }
    }

    /// Whether no record is kept for a peer that may ask for it again.
    pub(super) fn is_all_read(&self) -> bool {
        self.kept_bytes + self.aside_bytes == 0
    }

    /// The flow is cut: its records may never come.
    pub(super) fn abandon(&mut self, half: &mut EncoderHalf, flow: u64) {
        self.skip(half, flow);
        if let Some(unread) = self.flows.remove(&flow) {
            *self.pool(unread.is_aside) -= unread.kept_bytes;
        }
    }

    /// The peer does not read the flow any more. Some of it may still be under way to it.
    fn leave(&mut self, half: &mut EncoderHalf, flow: u64) {
        let is_open = self.flows.get(&flow).is_some_and(|unread| !unread.is_over);
        self.abandon(half, flow);
        if is_open {
            self.flows.entry(flow).or_default().is_gone = true;
        }
    }

    /// No other flow need wait for this one's records. They can still be said again.
    fn skip(&mut self, half: &mut EncoderHalf, flow: u64) {
        let kept = self.flows.get_mut(&flow).into_iter();
        let mut are_few = true;
        for kept in kept.flat_map(|unread| &mut unread.kept) {
            if kept.is_skipped || kept.epoch != half.epoch {
                continue;
            }
            kept.is_skipped = true;
            let bytes = kept.bytes.len() as u64;
            if let Some(encoder) = half.of(self.tunnel) {
                encoder.forget(kept.position, bytes);
            }
            are_few &= self.words.skip(kept.epoch, kept.position, bytes);
        }
        if !are_few {
            self.restart(half);
        }
    }

    /// Once a second: what had to wait, and flows whose peer does not read. `is_heard` says that the peer could have told.
    pub(super) fn review(&mut self, half: &mut EncoderHalf, now_ns: u64, is_heard: bool) {
        self.take_log(half);
        let is_due = std::mem::replace(&mut self.restarts, Restarts::Allowed) == Restarts::Due;
        if is_due {
            self.restart_for_peer(half);
        }
        let end = half.of(self.tunnel).map_or(0, |encoder| encoder.position());
        let mut late = Vec::new();
        for (&flow, unread) in &mut self.flows {
            let Some((first, last)) = unread.kept.front().zip(unread.kept.back()) else {
                unread.stuck = None;
                continue;
            };
            let same = unread
                .stuck
                .filter(|(record, _)| is_heard && *record == first.record);
            let (_, since_ns) = *unread.stuck.insert(same.unwrap_or((first.record, now_ns)));
            let is_newest = end <= last.position + last.bytes.len() as u64;
            if now_ns.saturating_sub(since_ns) >= STUCK_NS && !is_newest {
                late.push(flow);
            }
        }
        for flow in late {
            self.skip(half, flow);
            self.set_aside(flow, true);
        }
    }

    /// Counts a flow among those that are read or those that are not.
    fn set_aside(&mut self, flow: u64, is_aside: bool) {
        let Some(unread) = self.flows.get_mut(&flow) else {
            return;
        };
        let was_aside = std::mem::replace(&mut unread.is_aside, is_aside);
        let bytes = unread.kept_bytes;
        *self.pool(was_aside) -= bytes;
        *self.pool(is_aside) += bytes;
    }

    /// What the peer says as a decoder.
    pub(super) fn handle(&mut self, half: &mut EncoderHalf, message: &Message) {
        match *message {
            Message::Have {
                memory_bytes,
                log,
                epoch,
                held,
            } => {
                let log = (log, epoch);
                self.have = Some(Have {
                    log,
                    held,
                    memory_bytes,
                });
                self.take_log(half);
            }
            Message::Stored { log, ref segments } => half.compare(&mut self.offer, log, segments),
            Message::Kept {
                log,
                from,
                ref segments,
            } => half.kept(self.tunnel, &mut self.offer, (log, from), segments),
            Message::Ready { epoch, segments } => half.set_ready(epoch, segments),
            Message::Held { epoch, position } if epoch == half.epoch => {
                if let Some(encoder) = half.of(self.tunnel) {
                    encoder.handle_held(position);
                }
            }
            Message::Done { flow, records } => self.done(half, flow, records),
            Message::Gone { flow } => self.leave(half, flow),
            Message::Missing {
                flow,
                record,
                why,
                position,
                bytes,
            } => self.missing(half, (flow, record), why, (position, bytes)),
            Message::Restart => self.restart_for_peer(half),
            _ => (),
        }
    }

    /// Takes the log, if no newer tunnel has it: when that has ended, the word of the peer may have come before.
    fn take_log(&mut self, half: &mut EncoderHalf) {
        if half.is_taken(self.tunnel) {
            return;
        }
        if let Some(have) = self.have.take() {
            let offer = std::mem::take(&mut self.offer);
            let answer = half.attach(self.tunnel, have.log, have.held, have.memory_bytes, offer);
            self.words.extend(answer);
        }
    }

    /// The peer has forgotten everything.
    fn restart_for_peer(&mut self, half: &mut EncoderHalf) {
        let before = self.restarts;
        self.restarts = Restarts::Due;
        if before == Restarts::Allowed {
            self.restarts = Restarts::Done;
            self.restart(half);
        }
    }

    fn done(&mut self, half: &mut EncoderHalf, flow: u64, records: u64) {
        let Some(unread) = self.flows.get_mut(&flow) else {
            return;
        };
        let read = unread.kept.partition_point(|kept| kept.record < records);
        let read: Vec<Kept> = unread.kept.drain(..read).collect();
        let bytes: u64 = read.iter().map(Kept::cost_bytes).sum();
        unread.kept_bytes -= bytes;
        let is_aside = unread.is_aside;
        let is_over = unread.is_over && unread.kept.is_empty();
        *self.pool(is_aside) -= bytes;
        if is_over {
            self.flows.remove(&flow);
        } else if bytes > 0 {
            self.set_aside(flow, false);
        }
        let epoch = half.epoch;
        let Some(encoder) = half.of(self.tunnel) else {
            return;
        };
        for kept in read
            .iter()
            .filter(|kept| kept.epoch == epoch && !kept.is_asked)
        {
            encoder.handle_read(kept.position, kept.bytes.len() as u64);
        }
    }

    fn missing(
        &mut self,
        half: &mut EncoderHalf,
        (flow, record): (u64, u64),
        why: Why,
        absent: (u64, u64),
    ) {
        let Some(unread) = self.flows.get_mut(&flow) else {
            return;
        };
        let mut kept = unread.kept.iter_mut();
        let Some(kept) = kept.find(|kept| kept.record == record && !kept.is_asked) else {
            return;
        };
        kept.is_asked = true;
        unread.repeated_bytes += kept.bytes.len() as u64;
        self.missed += 1;
        let (position, bytes) = (kept.position, kept.bytes.clone());
        let is_current = kept.epoch == half.epoch;
        if why == Why::Absent && absent.1 == 0 {
            // What is missing is not of this log.
            self.left_out = ECHOES_LEFT_OUT;
        }
        if why == Why::Absent && is_current {
            half.distrust(absent);
        }
        if let Some(encoder) = half.of(self.tunnel).filter(|_| is_current) {
            encoder.handle_missing((position, bytes.len() as u64), absent);
        }
        if why == Why::Epoch && is_current {
            // It came before the peer knew of this log, so it is no part of what is held there.
            let are_few = self.words.skip(half.epoch, position, bytes.len() as u64);
            if !are_few {
                self.restart(half);
            }
        }
        self.words.again(flow, record, bytes);
        // What the peer holds of this log is not what it was: who knows what else is not.
        if why == Why::Differs && is_current {
            self.begin_anew(half, EncoderHalf::mend);
        }
    }

    /// Forgets everything; the peer is told.
    pub(super) fn restart(&mut self, half: &mut EncoderHalf) {
        self.begin_anew(half, EncoderHalf::restart);
    }

    fn begin_anew(
        &mut self,
        half: &mut EncoderHalf,
        begin: impl FnOnce(&mut EncoderHalf) -> Vec<Message>,
    ) {
        // Where a newer tunnel has the log, its peer was told to count from there.
        self.words.forget_skips();
        if half.of(self.tunnel).is_some() {
            self.words.extend(begin(half));
        }
    }

    /// Whether the peer makes us answer more than it reads.
    pub(super) fn is_flooded(&self) -> bool {
        self.words.is_flooded()
    }

    /// What must not wait.
    pub(super) fn poll_message(&mut self) -> Option<Message> {
        self.words.poll_message()
    }

    /// Whether something is to be said again.
    pub(super) fn has_again(&self) -> bool {
        self.words.has_again()
    }

    /// What is to be said again next, at most so many bytes of it.
    pub(super) fn poll_again(&mut self, bytes_max: usize) -> Option<Again> {
        self.words.poll_again(bytes_max)
    }
}
