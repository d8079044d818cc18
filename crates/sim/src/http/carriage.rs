//! What carries a tunnel's frames over the long link: datagrams under the
//! gateway's own congestion controller, acknowledged, sent again when lost.
//!
//! The controller, [`farhaul_tunnel::Controller`], is the product's. Around it
//! stands a model of QUIC with one short stream per frame: datagrams of 1472
//! bytes with their headers, pacing, a window, acknowledgement of every tenth
//! packet or after 25 ms, loss by time alone, as the gateway judges it. What is
//! not modelled: trains (the gateway sends a millisecond's packets at once), FEC,
//! the handshake.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use farhaul_tunnel::{Controller, PathSettings};

use crate::engine::{NS_PER_MS, NS_PER_S};

/// IP packet of a full datagram: 1472 bytes of UDP payload.
const PACKET_BYTES: u64 = 1500;
/// IP and UDP headers.
pub(super) const HEADER_BYTES: u16 = 28;
/// Those, and QUIC's: short header with connection id and packet number 13,
/// authentication tag 16, stream frame header 7.
const OVERHEAD_BYTES: u64 = HEADER_BYTES as u64 + 36;
const DATAGRAM_BYTES: u16 = 1472;
/// IP packet of an acknowledgement.
const ACK_BYTES: u32 = 70;
const ACK_EVERY: usize = 10;
const ACK_DELAY_NS: u64 = 25 * NS_PER_MS;
/// Round trips after which a packet is lost when a later one arrived, in quarters
/// (RFC 9002, 6.1.2, with the gateway's factor).
const REORDER_QUARTERS: u64 = 5;
/// Frames wait in the tunnel, where they can still be ordered, and not here:
/// no more than this is taken from it ahead of time, but always a datagram.
const AHEAD_S: f64 = 0.020;

/// A piece of a frame in a datagram.
#[derive(Debug, Clone, Copy)]
struct Piece {
    frame: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    piece: Piece,
    sent_ns: u64,
}

impl Sent {
    /// UDP payload, which is what the controller counts.
    fn udp_bytes(&self) -> u64 {
        self.piece.bytes + OVERHEAD_BYTES - u64::from(HEADER_BYTES)
    }
}

/// A frame on its way.
#[derive(Debug)]
struct Frame {
    content: Bytes,
    missing_bytes: u64,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Carriage {
    controller: Controller,
    /// Smoothed round trip, and the latest one.
    rtt_ns: u64,
    latest_rtt_ns: u64,
    /// Longer than any round trip: after it what was sent counts as lost.
    patience_ns: u64,
    largest_acked: Option<u64>,
    unsent: VecDeque<Piece>,
    unsent_bytes: u64,
    frames: BTreeMap<u64, Frame>,
    in_flight: BTreeMap<u64, Sent>,
    in_flight_bytes: u64,
    next_frame: u64,
    next_packet: u64,
    /// When the next datagram may leave.
    free_ns: u64,
    /// Packets received and not acknowledged yet, and since when.
    unsaid: Vec<u64>,
    unsaid_since_ns: Option<u64>,
    /// Acknowledgements on their way back, by number.
    said: BTreeMap<u64, Vec<u64>>,
    next_ack: u64,
    lost: u64,
}

/// A datagram to be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Datagram {
    /// Even: data. Odd: an acknowledgement.
    pub(super) number: u64,
    pub(super) ip_bytes: u32,
}

impl Carriage {
    /// `rtt_ns` is that of the empty link.
    pub(super) fn new(settings: PathSettings, rtt_ns: u64) -> Self {
        Self {
            controller: Controller::new(settings, DATAGRAM_BYTES),
            rtt_ns,
            latest_rtt_ns: rtt_ns,
            patience_ns: 2 * rtt_ns + NS_PER_S / 5,
            largest_acked: None,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            frames: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            next_frame: 0,
            next_packet: 0,
            free_ns: 0,
            unsaid: Vec::new(),
            unsaid_since_ns: None,
            said: BTreeMap::new(),
            next_ack: 0,
            lost: 0,
        }
    }

    /// Datagrams sent again.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Whether another frame is to be taken from the tunnel now.
    pub(super) fn has_room(&self) -> bool {
        let ahead_bytes = self.controller.pace() * AHEAD_S;
        (self.unsent_bytes as f64) < ahead_bytes.max(f64::from(DATAGRAM_BYTES))
    }

    /// A frame to be carried. What is urgent goes before what waits.
    pub(super) fn send(&mut self, content: Bytes, is_urgent: bool) {
        let frame = self.next_frame;
        self.next_frame += 1;
        let mut left = content.len() as u64;
        self.unsent_bytes += left;
        let mut pieces = Vec::new();
        while left > 0 {
            let bytes = left.min(PACKET_BYTES - OVERHEAD_BYTES);
            pieces.push(Piece { frame, bytes });
            left -= bytes;
        }
        if is_urgent {
            pieces
                .into_iter()
                .rev()
                .for_each(|piece| self.unsent.push_front(piece));
        } else {
            self.unsent.extend(pieces);
        }
        let missing_bytes = content.len() as u64;
        self.frames.insert(
            frame,
            Frame {
                content,
                missing_bytes,
            },
        );
    }

    /// Whether the window lets another datagram go.
    fn is_open(&self) -> bool {
        self.in_flight_bytes + u64::from(DATAGRAM_BYTES) <= self.controller.window_bytes()
    }

    /// The next datagram of data, if pace and window allow one.
    pub(super) fn next_datagram(&mut self, now_ns: u64) -> Option<Datagram> {
        if self.free_ns > now_ns || !self.is_open() {
            return None;
        }
        let piece = self.unsent.pop_front()?;
        self.unsent_bytes -= piece.bytes;
        let sent_ns = now_ns;
        let sent = Sent { piece, sent_ns };
        let took_s = sent.udp_bytes() as f64 / self.controller.pace();
        self.free_ns = self.free_ns.max(now_ns) + (took_s * NS_PER_S as f64) as u64;
        let number = self.next_packet;
        self.next_packet += 1;
        self.in_flight_bytes += sent.udp_bytes();
        self.controller
            .handle_sent(now_ns, number, sent.udp_bytes());
        self.in_flight.insert(number, sent);
        let ip_bytes = piece.bytes + OVERHEAD_BYTES;
        Some(Datagram {
            number: number * 2,
            ip_bytes: u32::try_from(ip_bytes).unwrap_or(u32::MAX),
        })
    }

    /// When something is due: a datagram's turn, an acknowledgement, a loss.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let may_send = !self.unsent.is_empty() && self.is_open();
        let turn_ns = may_send.then_some(self.free_ns);
        let ack_ns = self.unsaid_since_ns.map(|since_ns| since_ns + ACK_DELAY_NS);
        let oldest = self.oldest();
        let loss_ns = oldest.map(|(packet, sent)| self.lost_at_ns(packet, &sent));
        [turn_ns, ack_ns, loss_ns].into_iter().flatten().min()
    }

    /// A datagram of data arrived: the frame it completes, if any.
    pub(super) fn handle_data(&mut self, now_ns: u64, number: u64) -> Option<Bytes> {
        let packet = number / 2;
        self.unsaid.push(packet);
        self.unsaid_since_ns.get_or_insert(now_ns);
        let piece = self.in_flight.get(&packet)?.piece;
        let frame = self.frames.get_mut(&piece.frame)?;
        frame.missing_bytes = frame.missing_bytes.saturating_sub(piece.bytes);
        if frame.missing_bytes > 0 {
            return None;
        }
        self.frames.remove(&piece.frame).map(|frame| frame.content)
    }

    /// The acknowledgement that is due, to be sent the other way.
    pub(super) fn next_ack(&mut self, now_ns: u64) -> Option<Datagram> {
        let is_late = self
            .unsaid_since_ns
            .is_some_and(|since_ns| since_ns + ACK_DELAY_NS <= now_ns);
        if self.unsaid.len() < ACK_EVERY && !is_late {
            return None;
        }
        self.unsaid_since_ns = None;
        let number = self.next_ack;
        self.next_ack += 1;
        self.said.insert(number, std::mem::take(&mut self.unsaid));
        Some(Datagram {
            number: number * 2 + 1,
            ip_bytes: ACK_BYTES,
        })
    }

    /// An acknowledgement came back.
    pub(super) fn handle_ack(&mut self, now_ns: u64, number: u64) {
        let ack = number / 2;
        let Some(packets) = self.said.remove(&ack) else {
            return;
        };
        // Acknowledgements before it that were lost: what they said, it says too.
        let later = self.said.split_off(&ack);
        let earlier = std::mem::replace(&mut self.said, later);
        let mut packets: Vec<u64> = earlier.into_values().flatten().chain(packets).collect();
        packets.sort_unstable();
        let Some(largest) = packets.last().copied() else {
            return;
        };
        for packet in packets {
            self.handle_acked(now_ns, packet, packet == largest);
        }
        self.largest_acked = self.largest_acked.max(Some(largest));
        self.take_lost(now_ns);
        let is_limited = self.unsent.is_empty();
        self.controller.handle_ack_end(now_ns, is_limited);
    }

    fn handle_acked(&mut self, now_ns: u64, packet: u64, is_largest: bool) {
        let Some(sent) = self.in_flight.remove(&packet) else {
            return;
        };
        self.in_flight_bytes -= sent.udp_bytes();
        self.controller
            .handle_acked(now_ns, packet, sent.sent_ns, sent.udp_bytes());
        if is_largest {
            self.latest_rtt_ns = now_ns.saturating_sub(sent.sent_ns);
            self.rtt_ns = (7 * self.rtt_ns + self.latest_rtt_ns) / 8;
        }
    }

    /// When a packet counts as lost if nothing is heard of it: sooner where a
    /// later one has arrived.
    fn lost_at_ns(&self, packet: u64, sent: &Sent) -> u64 {
        let is_overtaken = self.largest_acked.is_some_and(|largest| packet < largest);
        let wait_ns = if is_overtaken {
            self.rtt_ns.max(self.latest_rtt_ns) * REORDER_QUARTERS / 4
        } else {
            self.patience_ns
        };
        sent.sent_ns + wait_ns
    }

    fn oldest(&self) -> Option<(u64, Sent)> {
        let (packet, sent) = self.in_flight.first_key_value()?;
        Some((*packet, *sent))
    }

    /// Lost pieces go before everything new, the oldest first. A piece whose
    /// datagram arrived after all is not counted a second time: its number is
    /// no longer in flight. Packets in flight are in the order of their times, so
    /// that those which are not lost follow those which are.
    pub(super) fn take_lost(&mut self, now_ns: u64) {
        let mut lost = Vec::new();
        while let Some((packet, sent)) = self.oldest()
            && self.lost_at_ns(packet, &sent) <= now_ns
        {
            self.in_flight.remove(&packet);
            self.in_flight_bytes -= sent.udp_bytes();
            self.controller.handle_lost(now_ns, packet);
            lost.push(sent.piece);
        }
        for piece in lost.into_iter().rev() {
            self.lost += 1;
            self.unsent_bytes += piece.bytes;
            self.unsent.push_front(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drives one direction over a wire that loses what `is_lost` says.
    fn deliver(bytes: usize, is_lost: impl Fn(u64) -> bool) -> (Option<Bytes>, u64, u64) {
        let settings = PathSettings {
            link_bits_per_s: Some(8_000_000),
            is_owned: true,
            remembered: None,
            header_bytes: HEADER_BYTES,
        };
        let mut carriage = Carriage::new(settings, 100 * NS_PER_MS);
        carriage.send(Bytes::from(vec![7u8; bytes]), false);
        let mut wire: Vec<(u64, u64)> = Vec::new();
        let mut now_ns = 0;
        for _ in 0..100_000 {
            carriage.take_lost(now_ns);
            while let Some(datagram) = carriage.next_datagram(now_ns) {
                if !is_lost(datagram.number / 2) {
                    wire.push((now_ns + 50 * NS_PER_MS, datagram.number));
                }
            }
            while let Some(ack) = carriage.next_ack(now_ns) {
                wire.push((now_ns + 50 * NS_PER_MS, ack.number));
            }
            wire.sort_unstable();
            let wire_ns = wire.first().map(|(at_ns, _)| *at_ns);
            let Some(next_ns) = [wire_ns, carriage.next_ns()].into_iter().flatten().min() else {
                break;
            };
            now_ns = now_ns.max(next_ns);
            while wire.first().is_some_and(|(at_ns, _)| *at_ns <= now_ns) {
                let (_, number) = wire.remove(0);
                if number % 2 == 1 {
                    carriage.handle_ack(now_ns, number);
                } else if let Some(frame) = carriage.handle_data(now_ns, number) {
                    return (Some(frame), now_ns, carriage.lost());
                }
            }
        }
        (None, now_ns, carriage.lost())
    }

    #[test]
    fn a_frame_arrives_at_the_told_rate() {
        let (frame, now_ns, lost) = deliver(143_600, |_| false);
        assert_eq!((frame.map(|frame| frame.len()), lost), (Some(143_600), 0));
        // 100 packets of 1500 bytes at 0.999 Mbyte/s, which is what the controller
        // makes of a told rate, the last without its own
        // time on the wire, and 50 ms.
        assert!(
            (now_ns as f64 / 1e9 - (99.0 * 0.0015 / 0.999 + 0.05)).abs() < 0.001,
            "{now_ns}"
        );
    }

    #[test]
    fn what_is_lost_is_sent_again_until_it_is_there() {
        let (frame, _, lost) = deliver(143_600, |packet| packet % 5 == 0 && packet < 100);
        assert_eq!((frame.map(|frame| frame.len()), lost), (Some(143_600), 20));
        let (frame, _, lost) = deliver(1000, |packet| packet < 3);
        assert_eq!((frame.map(|frame| frame.len()), lost), (Some(1000), 3));
    }
}
