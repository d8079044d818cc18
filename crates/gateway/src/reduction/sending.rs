//! The encoder's side of one tunnel: what was sent and may be asked for again, and what the peer says about it.
//!
//! A record is kept until the peer has read it, so a record the peer cannot resolve is said once more in plain words, whatever
//! the log has forgotten since. What is kept is bounded: a flow that has its share under way waits, and when all flows together
//! have theirs, new bytes are neither remembered nor kept.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use farhaul_reduce::{Plain, Sampling};

use super::halves::EncoderHalf;
use super::message::{Message, Why};
use super::record::{Draft, mark_of};
use super::shelf::Offer;

/// A flow whose peer does not read holds up what others may refer to for this long.
const STUCK_NS: u64 = 5_000_000_000;

/// Answers that wait for a peer that asks and does not read; more are a broken peer.
const WORDS_MAX: usize = 16_384;

/// Something for the peer.
#[derive(Debug)]
pub(super) enum Word {
    Message(Message),
    /// A record once more.
    Again {
        flow: u64,
        record: u64,
        bytes: Bytes,
    },
}

#[derive(Debug)]
struct Kept {
    record: u64,
    epoch: u32,
    position: u64,
    bytes: Bytes,
    is_asked: bool,
}

/// One flow's records that the peer has not read.
#[derive(Debug, Default)]
struct Unread {
    kept: VecDeque<Kept>,
    kept_bytes: u64,
    is_over: bool,
}

pub(super) struct Sending {
    tunnel: u64,
    flows: BTreeMap<u64, Unread>,
    /// By their position, the flows whose records are not held.
    order: BTreeMap<u64, u64>,
    kept_bytes: u64,
    words: VecDeque<Word>,
    /// The first position that is not held, and since when.
    stuck: (u64, u64),
    /// Records the peer could not read.
    pub(super) missed: u64,
    /// What the peer has on disk.
    offer: Offer,
}

impl Sending {
    pub(super) fn new(tunnel: u64) -> Self {
        Self {
            tunnel,
            flows: BTreeMap::new(),
            order: BTreeMap::new(),
            kept_bytes: 0,
            words: VecDeque::new(),
            stuck: (0, 0),
            missed: 0,
            offer: Offer::default(),
        }
    }

    /// Whether a flow has so much under way that it must wait until the peer has read some.
    pub(super) fn must_wait(&self, half: &EncoderHalf, flow: u64) -> bool {
        let kept_bytes = self.flows.get(&flow).map_or(0, |flow| flow.kept_bytes);
        kept_bytes > 0 && kept_bytes >= half.unheld_bytes_max() / 2
    }

    /// Segments on disk that a flow's next bytes may refer to and that are being read: [`EncoderHalf::is_reading`].
    pub(super) fn look(&self, half: &mut EncoderHalf, batch: &[u8]) -> Vec<u64> {
        half.look(self.tunnel, batch)
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
        let has_room = self.kept_bytes < half.unheld_bytes_max();
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
        let unread = self.flows.entry(flow).or_default();
        unread.kept_bytes += bytes.len() as u64;
        self.kept_bytes += bytes.len() as u64;
        self.order.insert(position, flow);
        unread.kept.push_back(Kept {
            record,
            epoch,
            position,
            bytes,
            is_asked: false,
        });
    }

    /// Nothing more comes from this flow, and both its directions have ended well.
    pub(super) fn finish(&mut self, flow: u64) {
        let unread = self.flows.entry(flow).or_default();
        unread.is_over = true;
        if unread.kept.is_empty() {
            self.flows.remove(&flow);
        }
    }

    /// Whether no record is kept for a peer that may ask for it again.
    pub(super) fn is_all_read(&self) -> bool {
        self.kept_bytes == 0
    }

    /// The flow is cut: its records may never come.
    pub(super) fn abandon(&mut self, half: &mut EncoderHalf, flow: u64) {
        self.set_aside(half, flow);
        if let Some(unread) = self.flows.remove(&flow) {
            self.kept_bytes -= unread.kept_bytes;
        }
    }

    /// No other flow need wait for this one's records. They can still be said again.
    fn set_aside(&mut self, half: &mut EncoderHalf, flow: u64) {
        let kept = self.flows.get(&flow).into_iter();
        for kept in kept.flat_map(|unread| &unread.kept) {
            if self.order.get(&kept.position) != Some(&flow) || kept.epoch != half.epoch {
                continue;
            }
            self.order.remove(&kept.position);
            let bytes = kept.bytes.len() as u64;
            if let Some(encoder) = half.of(self.tunnel) {
                encoder.forget(kept.position, bytes);
            }
            self.words.push_back(Word::Message(Message::Skip {
                epoch: kept.epoch,
                position: kept.position,
                bytes,
            }));
        }
    }

    /// Looks after flows whose peer does not read. `is_heard` says that the peer could have told.
    pub(super) fn review(&mut self, half: &mut EncoderHalf, now_ns: u64, is_heard: bool) {
        let Some((&first, &flow)) = self.order.first_key_value() else {
            return;
        };
        if self.stuck.0 != first || !is_heard {
            self.stuck = (first, now_ns);
        }
        let last = self.flows.get(&flow).and_then(|unread| unread.kept.back());
        let end = last.map_or(0, |kept| kept.position + kept.bytes.len() as u64);
        let is_newest = half
            .of(self.tunnel)
            .is_none_or(|encoder| encoder.position() <= end);
        let is_late = now_ns.saturating_sub(self.stuck.1) >= STUCK_NS;
        if is_late && !is_newest {
            self.set_aside(half, flow);
        }
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
                self.order.clear();
                let offer = std::mem::take(&mut self.offer);
                let answer = half.attach(self.tunnel, (log, epoch), held, memory_bytes, offer);
                self.words.extend(answer.into_iter().map(Word::Message));
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
            Message::Done { flow, records } => self.done(flow, records),
            Message::Gone { flow } => self.abandon(half, flow),
            Message::Missing {
                flow,
                record,
                why,
                position,
                bytes,
            } => self.missing(half, (flow, record), why, (position, bytes)),
            Message::Restart => self.restart(half),
            _ => (),
        }
    }

    fn done(&mut self, flow: u64, records: u64) {
        let Some(unread) = self.flows.get_mut(&flow) else {
            return;
        };
        let read = unread.kept.partition_point(|kept| kept.record < records);
        for kept in unread.kept.drain(..read) {
            unread.kept_bytes -= kept.bytes.len() as u64;
            self.kept_bytes -= kept.bytes.len() as u64;
            if self.order.get(&kept.position) == Some(&flow) {
                self.order.remove(&kept.position);
            }
        }
        if unread.is_over && unread.kept.is_empty() {
            self.flows.remove(&flow);
        }
    }

    fn missing(
        &mut self,
        half: &mut EncoderHalf,
        (flow, record): (u64, u64),
        why: Why,
        absent: (u64, u64),
    ) {
        let unread = self.flows.get_mut(&flow);
        let mut kept = unread.into_iter().flat_map(|unread| &mut unread.kept);
        let Some(kept) = kept.find(|kept| kept.record == record && !kept.is_asked) else {
            return;
        };
        kept.is_asked = true;
        self.missed += 1;
        let (position, bytes) = (kept.position, kept.bytes.clone());
        let is_current = kept.epoch == half.epoch;
        if why == Why::Absent && is_current {
            half.distrust(absent);
        }
        if let Some(encoder) = half.of(self.tunnel).filter(|_| is_current) {
            encoder.forget(absent.0, absent.1);
            encoder.forget(position, bytes.len() as u64);
        }
        if why == Why::Epoch && is_current {
            // It came before the peer knew of this log, so it is no part of what is held there.
            self.words.push_back(Word::Message(Message::Skip {
                epoch: half.epoch,
                position,
                bytes: bytes.len() as u64,
            }));
        }
        self.words.push_back(Word::Again {
            flow,
            record,
            bytes,
        });
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
        if half.of(self.tunnel).is_some() {
            self.order.clear();
            self.words
                .extend(begin(half).into_iter().map(Word::Message));
        }
    }

    /// Whether the peer makes us answer more than it reads.
    pub(super) fn is_flooded(&self) -> bool {
        self.words.len() > WORDS_MAX
    }

    pub(super) fn poll_word(&mut self) -> Option<Word> {
        self.words.pop_front()
    }
}
