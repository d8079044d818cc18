//! The sending direction of a flow: what was written, cut into numbered frames within credit.

use crate::credit::{FRAME_COST_BYTES, cost_bytes};
use crate::error::FlowError;
use bytes::Bytes;
use std::collections::VecDeque;

/// Smaller pieces than this are not sent while more data waits for credit.
const PIECE_BYTES_MIN: usize = 1024;

/// A flow's frames are no longer than this part of what it has sent before.
const YOUNG_DIVISOR: u64 = 256;

/// Buffers joined in one frame at most.
const CHUNKS_MAX: usize = 64;

/// What one buffer costs in the send buffer besides its bytes, so that one-byte writes are bounded.
const CHUNK_COST_BYTES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    Open,
    Wanted,
    Sent,
}

/// A numbered frame about to be sent.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) number: u64,
    pub(crate) chunks: Vec<Bytes>,
    pub(crate) payload_bytes: usize,
    /// Payload of the whole direction, when this is its last frame.
    pub(crate) end_bytes: Option<u64>,
}

/// The sending direction.
#[derive(Debug)]
pub(crate) struct SendHalf {
    chunks: VecDeque<Bytes>,
    buffered_bytes: usize,
    sent_bytes: u64,
    spent_bytes: u64,
    /// Credit given back: as good as spent.
    returned_bytes: u64,
    limit_bytes: u64,
    next_number: u64,
    finish: Finish,
}

impl SendHalf {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        SendHalf {
            chunks: VecDeque::new(),
            buffered_bytes: 0,
            sent_bytes: 0,
            spent_bytes: 0,
            returned_bytes: 0,
            limit_bytes,
            next_number: 1,
            finish: Finish::Open,
        }
    }

    /// Bytes held, buffers' own cost included.
    pub(crate) fn held_bytes(&self) -> usize {
        self.buffered_bytes + self.chunks.len() * CHUNK_COST_BYTES
    }

    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// How long frames are while the flow is young. A frame counts when it is whole: with losses a
    /// long one is whole a round trip later, and credit grows by what has come.
    pub(crate) fn young_bytes_max(&self, small_bytes: usize) -> usize {
        let part_bytes = usize::try_from(self.sent_bytes / YOUNG_DIVISOR).unwrap_or(usize::MAX);
        part_bytes.max(small_bytes)
    }

    pub(crate) fn credit_bytes(&self) -> u64 {
        let gone_bytes = self.spent_bytes.saturating_add(self.returned_bytes);
        self.limit_bytes.saturating_sub(gone_bytes)
    }

    /// Gives back all credit but `keep_bytes`.
    pub(crate) fn give_back(&mut self, keep_bytes: u64) {
        let excess_bytes = self.credit_bytes().saturating_sub(keep_bytes);
        self.returned_bytes = self.returned_bytes.saturating_add(excess_bytes);
    }

    /// What was given back in all.
    pub(crate) fn returned_bytes(&self) -> u64 {
        self.returned_bytes
    }

    pub(crate) fn room_bytes(&self, bytes_max: usize) -> usize {
        if self.finish == Finish::Open {
            bytes_max.saturating_sub(self.held_bytes())
        } else {
            0
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.finish == Finish::Sent
    }

    pub(crate) fn write(&mut self, data: Bytes, bytes_max: usize) -> Result<(), FlowError> {
        if self.finish != Finish::Open {
            return Err(FlowError::Finished);
        }
        let room_bytes = self.room_bytes(bytes_max);
        if data.len() > room_bytes {
            return Err(FlowError::Full {
                wanted_bytes: data.len(),
                room_bytes,
            });
        }
        if !data.is_empty() {
            self.buffered_bytes += data.len();
            self.chunks.push_back(data);
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self) {
        if self.finish == Finish::Open {
            self.finish = Finish::Wanted;
        }
    }

    /// The peer allows up to `limit_bytes`; credit never goes back, and frames come in any order.
    pub(crate) fn raise_limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = self.limit_bytes.max(limit_bytes);
    }

    /// Whether at least half the buffer is free, so that waiting for room makes no sense.
    pub(crate) fn has_room(&self, bytes_max: usize) -> bool {
        self.finish == Finish::Open && self.room_bytes(bytes_max) >= bytes_max / 2
    }

    pub(crate) fn is_sendable(&self, payload_bytes_max: usize) -> bool {
        match self.finish {
            Finish::Sent => false,
            Finish::Wanted if self.buffered_bytes == 0 => true,
            _ => self.next_bytes(payload_bytes_max) > 0,
        }
    }

    /// How long the next piece may be; 0 when there is nothing to send or no credit.
    fn next_bytes(&self, payload_bytes_max: usize) -> usize {
        let credit_bytes = self.credit_bytes().saturating_sub(FRAME_COST_BYTES);
        let wanted_bytes = self.buffered_bytes.min(payload_bytes_max);
        let length_bytes = wanted_bytes.min(usize::try_from(credit_bytes).unwrap_or(usize::MAX));
        if length_bytes < wanted_bytes.min(PIECE_BYTES_MIN) {
            0
        } else {
            length_bytes
        }
    }

    /// Takes the next frame's worth out of the buffer, without copying.
    pub(crate) fn take(&mut self, payload_bytes_max: usize) -> Option<Piece> {
        if !self.is_sendable(payload_bytes_max) {
            return None;
        }
        let length_bytes = self.next_bytes(payload_bytes_max);
        let chunks = self.take_chunks(length_bytes);
        let payload_bytes = chunks.iter().map(Bytes::len).sum();
        self.buffered_bytes -= payload_bytes;
        self.sent_bytes = self.sent_bytes.saturating_add(payload_bytes as u64);
        self.spent_bytes = self.spent_bytes.saturating_add(cost_bytes(payload_bytes));
        let number = self.next_number;
        self.next_number = number.saturating_add(1);
        let is_last = self.finish == Finish::Wanted && self.buffered_bytes == 0;
        if is_last {
            self.finish = Finish::Sent;
        }
        Some(Piece {
            number,
            chunks,
            payload_bytes,
            end_bytes: is_last.then_some(self.sent_bytes),
        })
    }

    fn take_chunks(&mut self, length_bytes: usize) -> Vec<Bytes> {
        let mut chunks = Vec::new();
        let mut left_bytes = length_bytes;
        while left_bytes > 0 && chunks.len() < CHUNKS_MAX {
            let Some(mut chunk) = self.chunks.pop_front() else {
                break;
            };
            if chunk.len() > left_bytes {
                let head = chunk.split_to(left_bytes);
                self.chunks.push_front(chunk);
                chunk = head;
            }
            left_bytes -= chunk.len();
            chunks.push(chunk);
        }
        chunks
    }
}
