//! The router's queue before the transmitter: first in, first out, tail drop.
//!
//! It holds packets that wait; the one being sent has left it. A packet that
//! finds the transmitter idle is therefore never dropped here.

use std::collections::VecDeque;
use std::fmt;

use crate::packet::Packet;
use crate::rate::Rate;

/// Full-size Ethernet frame without FCS.
const FRAME_BYTES: u64 = 1514;
/// dummynet's default queue, in packets.
const AUTO_PACKETS: u64 = 50;
/// A common rule for router buffers: a round trip of the continent.
const AUTO_TIME_NS: u64 = 100_000_000;

/// How much may wait. What would exceed it is dropped on arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum QueueLimit {
    /// 100 ms of the rate, or 50 full-size frames if that is more.
    #[default]
    Auto,
    /// Bytes of frames.
    Bytes(u64),
    /// Packets.
    Packets(u64),
    /// The longest an accepted packet waits before its own transmission
    /// starts, in nanoseconds.
    TimeNs(u64),
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Bytes(bytes) => write!(f, "{bytes}b"),
            Self::Packets(packets) => write!(f, "{packets}p"),
            Self::TimeNs(ns) => crate::units::write_time(f, *ns),
        }
    }
}

/// A packet that waits, with its length on the wire.
#[derive(Debug, Clone)]
pub(crate) struct Waiting<P> {
    pub(crate) packet: P,
    pub(crate) wire_bytes: u64,
}

/// Packets that wait for the transmitter.
#[derive(Debug, Clone)]
pub(crate) struct Queue<P> {
    packets: VecDeque<Waiting<P>>,
    frame_bytes: u64,
    wire_bytes: u64,
}

impl<P: Packet> Queue<P> {
    pub(crate) fn new() -> Self {
        Self {
            packets: VecDeque::new(),
            frame_bytes: 0,
            wire_bytes: 0,
        }
    }

    /// Whether a frame may still enter. `busy_ns` is what the transmitter
    /// needs to finish the packet it is sending.
    pub(crate) fn admits(
        &self,
        limit: QueueLimit,
        rate: Rate,
        busy_ns: u64,
        frame_bytes: u64,
    ) -> bool {
        match limit {
            QueueLimit::Auto => {
                let bytes = rate.bytes_in(AUTO_TIME_NS).max(AUTO_PACKETS * FRAME_BYTES);
                self.frame_bytes.saturating_add(frame_bytes) <= bytes
            }
            QueueLimit::Bytes(bytes) => self.frame_bytes.saturating_add(frame_bytes) <= bytes,
            QueueLimit::Packets(packets) => (self.packets.len() as u64) < packets,
            QueueLimit::TimeNs(ns) => self.wait_ns(rate, busy_ns) <= ns,
        }
    }

    /// How long a packet that arrives now would wait, in nanoseconds.
    pub(crate) fn wait_ns(&self, rate: Rate, busy_ns: u64) -> u64 {
        busy_ns.saturating_add(rate.time_ns(self.wire_bytes))
    }

    pub(crate) fn push(&mut self, waiting: Waiting<P>) {
        self.frame_bytes = self
            .frame_bytes
            .saturating_add(waiting.packet.frame_bytes() as u64);
        self.wire_bytes = self.wire_bytes.saturating_add(waiting.wire_bytes);
        self.packets.push_back(waiting);
    }

    pub(crate) fn pop(&mut self) -> Option<Waiting<P>> {
        let waiting = self.packets.pop_front()?;
        self.frame_bytes = self
            .frame_bytes
            .saturating_sub(waiting.packet.frame_bytes() as u64);
        self.wire_bytes = self.wire_bytes.saturating_sub(waiting.wire_bytes);
        Some(waiting)
    }

    /// Computes every length on the wire again, after the framing changed.
    pub(crate) fn measure(&mut self, wire_bytes_of: impl Fn(&P) -> u64) {
        self.wire_bytes = 0;
        for waiting in &mut self.packets {
            waiting.wire_bytes = wire_bytes_of(&waiting.packet);
            self.wire_bytes = self.wire_bytes.saturating_add(waiting.wire_bytes);
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.packets.len() as u64
    }

    pub(crate) fn frame_bytes(&self) -> u64 {
        self.frame_bytes
    }
}
