//! What carries a tunnel's frames over the long link: datagrams at a told rate,
//! acknowledged, sent again when lost.
//!
//! This stands for QUIC with one short stream per frame under a controller that
//! was told the link's rate. What is modelled: datagrams of 1472 bytes with
//! their headers, pacing, acknowledgement of every tenth packet or after 25 ms,
//! loss by packet threshold and by time. What is not: learning the rate, sharing
//! it, FEC, the handshake.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::engine::{NS_PER_MS, NS_PER_S};

/// IP packet of a full datagram: 1472 bytes of UDP payload.
const PACKET_BYTES: u64 = 1500;
/// IP and UDP headers 28, QUIC short header with connection id and packet
/// number 13, authentication tag 16, stream frame header 7.
const OVERHEAD_BYTES: u64 = 64;
/// IP packet of an acknowledgement.
const ACK_BYTES: u32 = 70;
const ACK_EVERY: usize = 10;
const ACK_DELAY_NS: u64 = 25 * NS_PER_MS;
/// Packets that may arrive before one that was sent earlier.
const REORDER_PACKETS: u64 = 3;
/// A link whose rate is told is filled to this share.
const TOLD_GAIN: f64 = 0.998;
/// Frames wait in the tunnel, where they can still be ordered, and not here:
/// no more than this is taken from it ahead of time.
const AHEAD_NS: u64 = 20 * NS_PER_MS;

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

/// A frame on its way.
#[derive(Debug)]
struct Frame {
    content: Bytes,
    missing_bytes: u64,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Carriage {
    rate_byte_per_s: f64,
    /// Longer than any round trip: after it what was sent counts as lost.
    patience_ns: u64,
    unsent: VecDeque<Piece>,
    unsent_bytes: u64,
    frames: BTreeMap<u64, Frame>,
    in_flight: BTreeMap<u64, Sent>,
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
    pub(super) fn new(rate_bit_per_s: u64, rtt_ns: u64) -> Self {
        Self {
            rate_byte_per_s: rate_bit_per_s as f64 / 8.0 * TOLD_GAIN,
            patience_ns: 2 * rtt_ns + NS_PER_S / 5,
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            frames: BTreeMap::new(),
            in_flight: BTreeMap::new(),
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
        let ahead_bytes = self.rate_byte_per_s * AHEAD_NS as f64 / NS_PER_S as f64;
        (self.unsent_bytes as f64) < ahead_bytes
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

    /// The next datagram of data, if the pace allows one.
    pub(super) fn next_datagram(&mut self, now_ns: u64) -> Option<Datagram> {
        if self.free_ns > now_ns {
            return None;
        }
        let piece = self.unsent.pop_front()?;
        self.unsent_bytes -= piece.bytes;
        let ip_bytes = piece.bytes + OVERHEAD_BYTES;
        let took_ns = ip_bytes as f64 / self.rate_byte_per_s * NS_PER_S as f64;
        self.free_ns = self.free_ns.max(now_ns) + took_ns as u64;
        let number = self.next_packet;
        self.next_packet += 1;
        let sent_ns = now_ns;
        self.in_flight.insert(number, Sent { piece, sent_ns });
        Some(Datagram {
            number: number * 2,
            ip_bytes: u32::try_from(ip_bytes).unwrap_or(u32::MAX),
        })
    }

    /// When something is due: a datagram's turn, an acknowledgement, a loss.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let turn_ns = (!self.unsent.is_empty()).then_some(self.free_ns);
        let ack_ns = self.unsaid_since_ns.map(|since_ns| since_ns + ACK_DELAY_NS);
        let oldest = self.in_flight.first_key_value();
        let loss_ns = oldest.map(|(_, sent)| sent.sent_ns + self.patience_ns);
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
    pub(super) fn handle_ack(&mut self, number: u64) {
        let ack = number / 2;
        let Some(packets) = self.said.remove(&ack) else {
            return;
        };
        // Acknowledgements before it that were lost: what they said, it says too.
        let later = self.said.split_off(&ack);
        let earlier = std::mem::replace(&mut self.said, later);
        let largest = packets.iter().max().copied().unwrap_or(0);
        for packet in earlier.into_values().flatten().chain(packets) {
            self.in_flight.remove(&packet);
        }
        let later = self
            .in_flight
            .split_off(&largest.saturating_sub(REORDER_PACKETS));
        let lost = std::mem::replace(&mut self.in_flight, later);
        self.resend(lost);
    }

    /// What was sent too long ago is lost.
    pub(super) fn handle_timeout(&mut self, now_ns: u64) {
        let is_old = |sent: &Sent| sent.sent_ns + self.patience_ns <= now_ns;
        let old = self.in_flight.iter().filter(|(_, sent)| is_old(sent));
        let numbers: Vec<u64> = old.map(|(number, _)| *number).collect();
        let taken = numbers
            .into_iter()
            .filter_map(|number| self.in_flight.remove_entry(&number));
        let lost: BTreeMap<u64, Sent> = taken.collect();
        self.resend(lost);
    }

    /// Lost pieces go before everything new, the oldest first. A piece whose
    /// datagram arrived after all is not counted a second time: its number is
    /// no longer in flight.
    fn resend(&mut self, lost: BTreeMap<u64, Sent>) {
        for sent in lost.into_values().rev() {
            self.lost += 1;
            self.unsent_bytes += sent.piece.bytes;
            self.unsent.push_front(sent.piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drives one direction over a wire that loses what `is_lost` says.
    fn deliver(bytes: usize, is_lost: impl Fn(u64) -> bool) -> (Option<Bytes>, u64, u64) {
        let mut carriage = Carriage::new(8_000_000, 100 * NS_PER_MS);
        carriage.send(Bytes::from(vec![7u8; bytes]), false);
        let mut wire: Vec<(u64, u64)> = Vec::new();
        let mut now_ns = 0;
        for _ in 0..100_000 {
            carriage.handle_timeout(now_ns);
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
                    carriage.handle_ack(number);
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
        // 100 packets of 1500 bytes at 0.998 Mbyte/s, the last without its own
        // time on the wire, and 50 ms.
        assert!(
            (now_ns as f64 / 1e9 - (99.0 * 0.0015 / 0.998 + 0.05)).abs() < 0.001,
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
