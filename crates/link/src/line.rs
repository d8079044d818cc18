//! The propagation line: packets that left the transmitter and have not
//! arrived yet. It is apart from the router's queue and never makes a packet
//! wait; its bound only protects memory.
//!
//! With a rate, the line can hold no more than rate x delay, so the bound is
//! computed from the profile and never bites (an emulator with a fixed line
//! silently loses packets on fast long links), unless the caller takes what is
//! due more than half a second late. Without a rate it is a count
//! of packets, with a drop cause of its own.

use std::collections::VecDeque;

use crate::profile::DirectionProfile;

/// Slack for the packet at the edge and for rounding.
const SLACK_BYTES: u64 = 64 * 1024;
/// How late the caller may take what is due before anything is dropped: on a
/// busy machine a thread sleeps for tens of milliseconds, and what was due
/// meanwhile is still in the line.
const LATENESS_NS: u64 = 500_000_000;
/// Most bytes kept for a late caller.
const LATENESS_BYTES_MAX: u64 = 1 << 30;

/// How much the line may hold.
#[derive(Debug, Clone, Copy)]
enum Bound {
    WireBytes(u64),
    Packets(u64),
}

#[derive(Debug, Clone)]
struct InFlight<P> {
    due_ns: u64,
    wire_bytes: u64,
    packet: P,
}

/// Packets in flight, ordered by arrival, ties by departure.
#[derive(Debug, Clone)]
pub(crate) struct Line<P> {
    packets: VecDeque<InFlight<P>>,
    wire_bytes: u64,
    bound: Bound,
}

impl<P> Line<P> {
    pub(crate) fn new(profile: &DirectionProfile) -> Self {
        let mut line = Self {
            packets: VecDeque::new(),
            wire_bytes: 0,
            bound: Bound::Packets(0),
        };
        line.set_profile(profile);
        line
    }

    /// Takes the bound of a new profile on top of what is in flight, so that
    /// the packets of the old one take no room from those of the new one.
    pub(crate) fn set_profile(&mut self, profile: &DirectionProfile) {
        self.bound = match profile.rate {
            None => {
                let packets = u64::from(profile.in_flight_packets_max);
                Bound::Packets(packets.saturating_add(self.len()))
            }
            // Twice, because every packet may have a copy.
            Some(rate) => Bound::WireBytes(
                rate.bytes_in(profile.delay_max_ns())
                    .saturating_add(rate.bytes_in(LATENESS_NS).min(LATENESS_BYTES_MAX))
                    .saturating_mul(2)
                    .saturating_add(SLACK_BYTES)
                    .saturating_add(self.wire_bytes),
            ),
        };
    }

    /// Whether a packet may still enter.
    pub(crate) fn admits(&self, wire_bytes: u64) -> bool {
        match self.bound {
            Bound::Packets(packets) => self.len() < packets,
            // A packet longer than the slack must pass when alone.
            Bound::WireBytes(bytes) => {
                self.packets.is_empty() || self.wire_bytes.saturating_add(wire_bytes) <= bytes
            }
        }
    }

    /// Puts a packet in its place by arrival. Nearly always that is the end;
    /// an overtaking one is moved past the shorter side only.
    pub(crate) fn insert(&mut self, due_ns: u64, wire_bytes: u64, packet: P) {
        self.wire_bytes = self.wire_bytes.saturating_add(wire_bytes);
        let entry = InFlight {
            due_ns,
            wire_bytes,
            packet,
        };
        match self.packets.back() {
            Some(last) if last.due_ns > due_ns => {
                let at = self.packets.partition_point(|other| other.due_ns <= due_ns);
                self.packets.insert(at, entry);
            }
            _ => self.packets.push_back(entry),
        }
    }

    /// When the next packet arrives.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.packets.front().map(|entry| entry.due_ns)
    }

    /// The next packet, if it has arrived by `now_ns`, with its time.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<(u64, P)> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        let entry = self.packets.pop_front()?;
        self.wire_bytes = self.wire_bytes.saturating_sub(entry.wire_bytes);
        Some((entry.due_ns, entry.packet))
    }

    pub(crate) fn len(&self) -> u64 {
        self.packets.len() as u64
    }
}
