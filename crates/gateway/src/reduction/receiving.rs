//! The decoder's side of one tunnel: reads records, asks for what it cannot read, and tells what it holds.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use farhaul_reduce::{Decoded, FRAME_INPUT_BYTES_MAX, place_of};

use super::halves::DecoderHalf;
use super::held::TooManyGaps;
use super::message::{Message, Why};
use super::record::Record;
use super::shelf::Shelf;

/// What waits to be said; a peer that does not read need not be told more.
const MESSAGES_MAX: usize = 65_536;

/// What became of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    Bytes(Bytes),
    /// Its log is announced on another flow and not here yet: try again.
    Early,
    /// It refers to this segment, which is being read from disk: try again then.
    Away(u64),
    /// It was asked for again.
    Asked,
}

/// The peer sends what cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

/// A record that was asked for.
#[derive(Debug)]
struct Awaited {
    record: u64,
    /// So many were asked for when this one was.
    nth: u64,
    length: usize,
    bytes: Vec<u8>,
    is_whole: bool,
    /// What could not be read because something it refers to is not here, and the mark of its log.
    unread: Option<(u8, Bytes)>,
}

#[derive(Default)]
pub(super) struct Receiving {
    awaited: BTreeMap<u64, Awaited>,
    /// Records read by flow that the peer has not been told of.
    done: BTreeMap<u64, u64>,
    is_held_news: bool,
    messages: VecDeque<Message>,
    /// Records that could not be read.
    pub(super) missed: u64,
    /// Answers, and parts of them, that have come,
    answers: u64,
    /// and the last record that one of them completed: [`Awaited::nth`].
    answered: u64,
    /// Epoch and number of the seeds that the peer was told are ready.
    told_ready: (u32, usize),
    /// How often something was made durable when the peer was told of it.
    told_kept: u64,
}

impl Receiving {
    /// The peer is told of everything on disk.
    pub(super) fn begin(&mut self, half: &DecoderHalf) {
        self.told_kept = half.kept_count();
    }

    /// Reads the next record of a flow, whose number is `number`; whether it may wait for the disk.
    pub(super) fn read(
        &mut self,
        half: &mut DecoderHalf,
        (flow, number): (u64, u64),
        record: &Record,
        may_wait: bool,
    ) -> Result<Read, Broken> {
        match record {
            Record::Bare(bytes) => Ok(Read::Bytes(bytes.clone())),
            Record::Literal(frame) => Ok(Read::Bytes(literal(half, frame)?.into())),
            Record::Frame(mark, frame) => {
                self.frame(half, (flow, number), (*mark, frame, None), may_wait)
            }
            Record::Copy(..) | Record::Echo(..) => Err(Broken),
        }
    }

    /// The same of a frame without its literals; `copy` is what it may stand for.
    pub(super) fn read_copied(
        &mut self,
        half: &mut DecoderHalf,
        number: (u64, u64),
        (mark, frame, copy): (u8, &Bytes, &[u8]),
        may_wait: bool,
    ) -> Result<Read, Broken> {
        self.frame(half, number, (mark, frame, Some(copy)), may_wait)
    }

    fn frame(
        &mut self,
        half: &mut DecoderHalf,
        (flow, number): (u64, u64),
        (mark, frame, copy): (u8, &Bytes, Option<&[u8]>),
        may_wait: bool,
    ) -> Result<Read, Broken> {
        let (place, length) = place_of(frame).map_err(|_| Broken)?;
        let position = place.ok_or(Broken)?.position;
        let mut output = Vec::new();
        let decoded = match half.of(mark) {
            Ok(decoder) => {
                let decoded = match copy {
                    Some(copy) => decoder.decode_bare(frame, copy, &mut output),
                    None => decoder.decode(frame, &mut output),
                };
                Ok(decoded.map_err(|_| Broken)?)
            }
            Err(true) => return Ok(Read::Early),
            Err(false) => Err(()),
        };
        if let Ok(Decoded::Away { segment, .. }) = decoded
            && may_wait
            && half.recall(segment)
        {
            return Ok(Read::Away(segment));
        }
        if decoded.is_ok() {
            // What was not read is forgotten by the encoder before it hears of more that is held.
            self.hold(half, position, length as u64);
        }
        let (why, absent) = match decoded {
            Ok(Decoded::Released) => {
                self.done.insert(flow, number + 1);
                return Ok(Read::Bytes(output.into()));
            }
            Ok(
                Decoded::Missing { position, bytes }
                | Decoded::Away {
                    position, bytes, ..
                },
            ) => (Why::Absent, (position, bytes)),
            // A copy that is none says nothing of the log.
            Ok(Decoded::Mismatched) if copy.is_some() => (Why::Absent, (0, 0)),
            Ok(Decoded::Mismatched) => (Why::Differs, (0, 0)),
            Err(()) => (Why::Epoch, (0, 0)),
        };
        let unread = (why == Why::Absent).then(|| (mark, frame.clone()));
        self.ask((flow, number), why, absent, (length, unread));
        Ok(Read::Asked)
    }

    /// Asks for a record again whose log is still not announced.
    pub(super) fn give_up(&mut self, number: (u64, u64), record: &Record) -> Result<(), Broken> {
        let frame = match record {
            Record::Frame(_, frame) | Record::Copy(_, _, frame) | Record::Echo(_, _, frame) => {
                frame
            }
            Record::Bare(_) | Record::Literal(_) => return Err(Broken),
        };
        let (_, length) = place_of(frame).map_err(|_| Broken)?;
        self.ask(number, Why::Epoch, (0, 0), (length, None));
        Ok(())
    }

    fn ask(
        &mut self,
        (flow, number): (u64, u64),
        why: Why,
        absent: (u64, u64),
        (length, unread): (usize, Option<(u8, Bytes)>),
    ) {
        self.missed += 1;
        self.messages.push_back(Message::Missing {
            flow,
            record: number,
            why,
            position: absent.0,
            bytes: absent.1,
        });
        let awaited = Awaited {
            record: number,
            nth: self.missed,
            length,
            bytes: Vec::new(),
            is_whole: false,
            unread,
        };
        self.awaited.insert(flow, awaited);
    }

    /// These positions need not be waited for any more.
    fn hold(&mut self, half: &mut DecoderHalf, position: u64, bytes: u64) {
        match half.held.add(position, bytes) {
            Ok(moved) => self.is_held_news |= moved,
            // Beginning anew costs less than counting them all.
            Err(TooManyGaps) => self.forget(half),
        }
    }

    /// What was asked for, once all of it is here.
    pub(super) fn take_again(&mut self, flow: u64) -> Option<Bytes> {
        let awaited = self.awaited.get(&flow).filter(|awaited| awaited.is_whole)?;
        let number = awaited.record;
        let awaited = self.awaited.remove(&flow)?;
        self.done.insert(flow, number + 1);
        Some(awaited.bytes.into())
    }

    /// Changes as long as what this flow waits for may still come: the peer answers in the order in which it is asked.
    pub(super) fn progress(&self, flow: u64) -> Option<u64> {
        let awaited = self.awaited.get(&flow)?;
        (self.answered < awaited.nth).then_some(self.answers)
    }

    /// Nobody reads this flow any more; `is_over` if it was read to its end.
    pub(super) fn leave(&mut self, flow: u64, is_over: bool) {
        self.awaited.remove(&flow);
        if !is_over {
            self.done.remove(&flow);
        }
        if !is_over && self.messages.len() < MESSAGES_MAX {
            self.messages.push_back(Message::Gone { flow });
        }
    }

    /// What the peer says as an encoder; true if records that were early may be read now.
    pub(super) fn handle(
        &mut self,
        half: &mut DecoderHalf,
        message: &Message,
    ) -> Result<bool, Broken> {
        match message {
            Message::Log {
                memory_bytes,
                log,
                epoch,
                start,
                key,
            } => {
                half.follow(*log, *epoch, *start, *key, *memory_bytes);
                self.is_held_news = true;
            }
            Message::Seeds {
                epoch,
                log,
                disk_epoch,
                base,
                numbers,
            } => {
                let shelf = Shelf {
                    log: *log,
                    epoch: *disk_epoch,
                    base: *base,
                    seeds: 0,
                };
                let is_right = half.announce(*epoch, shelf, numbers);
                return is_right.then_some(false).ok_or(Broken);
            }
            Message::Again {
                flow,
                record,
                is_last,
                frame,
            } => self.again(half, (*flow, *record), *is_last, frame)?,
            Message::Skip {
                epoch,
                position,
                bytes,
            } if *epoch == half.epoch() => {
                self.hold(half, *position, *bytes);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn again(
        &mut self,
        half: &mut DecoderHalf,
        (flow, record): (u64, u64),
        is_last: bool,
        frame: &Bytes,
    ) -> Result<(), Broken> {
        let awaited = self.awaited.get_mut(&flow);
        let Some(awaited) = awaited.filter(|awaited| awaited.record == record) else {
            return Ok(());
        };
        awaited.bytes.extend_from_slice(&literal(half, frame)?);
        awaited.is_whole |= is_last;
        self.answers += 1;
        if is_last {
            self.answered = self.answered.max(awaited.nth);
        }
        let is_right = match awaited.is_whole {
            true => awaited.bytes.len() == awaited.length,
            false => awaited.bytes.len() <= FRAME_INPUT_BYTES_MAX,
        };
        if !is_right {
            return Err(Broken);
        }
        let unread = awaited.unread.take_if(|_| awaited.is_whole);
        if let Some((mark, frame)) = unread
            && let Ok(decoder) = half.of(mark)
        {
            // The frames behind it may refer to what was new in it. If it is something else than what it was, the next one says so.
            let _ = decoder.learn(&frame, &awaited.bytes);
        }
        Ok(())
    }

    /// Forgets what the peer sent; it is told to begin anew.
    pub(super) fn forget(&mut self, half: &mut DecoderHalf) {
        half.forget();
        self.messages.push_back(Message::Restart);
    }

    /// What must not wait.
    pub(super) fn poll_message(&mut self) -> Option<Message> {
        self.messages.pop_front()
    }

    /// Whether there is something to acknowledge.
    pub(super) fn has_news(&self, half: &DecoderHalf) -> bool {
        self.is_held_news
            || !self.done.is_empty()
            || self.is_ready_news(half)
            || self.is_kept_news(half)
    }

    fn is_kept_news(&self, half: &DecoderHalf) -> bool {
        half.is_kept() && half.kept_count() != self.told_kept
    }

    fn is_ready_news(&self, half: &DecoderHalf) -> bool {
        let ready = half.ready();
        ready.1 > 0 && ready != self.told_ready
    }

    /// What was read and is held. What was asked for is polled before.
    pub(super) fn take_news(&mut self, half: &DecoderHalf) -> Vec<Message> {
        let done = std::mem::take(&mut self.done).into_iter();
        let done = done.map(|(flow, records)| Message::Done { flow, records });
        let held = std::mem::take(&mut self.is_held_news).then(|| Message::Held {
            epoch: half.epoch(),
            position: half.held.position(),
        });
        let ready = self.is_ready_news(half).then(|| {
            self.told_ready = half.ready();
            Message::Ready {
                epoch: self.told_ready.0,
                segments: self.told_ready.1 as u64,
            }
        });
        let kept = self.is_kept_news(half).then(|| {
            let since = std::mem::replace(&mut self.told_kept, half.kept_count());
            half.kept_since(since)
        });
        let kept = kept.into_iter().flatten();
        done.chain(held).chain(ready).chain(kept).collect()
    }
}

/// Reads a frame that refers to nothing.
fn literal(half: &mut DecoderHalf, frame: &[u8]) -> Result<Vec<u8>, Broken> {
    let mut output = Vec::new();
    let (place, _) = place_of(frame).map_err(|_| Broken)?;
    if place.is_some() {
        return Err(Broken);
    }
    match half.literals().decode(frame, &mut output) {
        Ok(Decoded::Released) => Ok(output),
        _ => Err(Broken),
    }
}
