//! The share of a link that can be payload of a tunnel: stated once, here.

use super::network::HEADERS_BYTES;

/// Largest UDP payload on a path with an MTU of 1500 (RFC 791, RFC 768).
const DATAGRAM_BYTES: f64 = 1472.0;
/// Payload of one frame of the tunnel.
const FRAME_BYTES: f64 = 64.0 * 1024.0;
/// Type, flow, number of a data frame (`tunnel::frame`).
const FRAME_HEADER_BYTES: f64 = 6.0;
/// First byte and connection ID of a short header (RFC 9000 section 17.3.1).
const SHORT_HEADER_BYTES: f64 = 1.0 + 8.0;
/// AEAD tag (RFC 9001 section 5.3).
const TAG_BYTES: f64 = 16.0;
/// Type and stream ID of a STREAM frame (RFC 9000 section 19.8), the ID as
/// from the 4,096th stream on; length left out, the frame fills its packet.
const STREAM_BYTES: f64 = 1.0 + 4.0;
/// The offset, 2 bytes below 16 KiB and 4 above (RFC 9000 section 16).
const OFFSET_BYTES: f64 = 0.25 * 2.0 + 0.75 * 4.0;
/// Length field of the last piece of a stream, which shares its packet with
/// the first piece of the next one.
const LENGTH_BYTES: f64 = 2.0;

/// Highest payload rate of one tunnel on a link of `rate_bit_per_s`, whose
/// rate counts Ethernet frames, with a round trip of `rtt_s`: full datagrams
/// back to back, nothing lost, nothing sent but payload.
pub fn payload_bit_per_s(rate_bit_per_s: f64, rtt_s: f64) -> f64 {
    rate_bit_per_s * payload_share(rate_bit_per_s, rtt_s)
}

/// Payload in each byte of the link.
pub fn payload_share(rate_bit_per_s: f64, rtt_s: f64) -> f64 {
    let ethernet_bytes = DATAGRAM_BYTES + HEADERS_BYTES as f64;
    // RFC 9000 section 17.1: twice the packets in flight must be told apart.
    let in_flight = rate_bit_per_s * rtt_s / 8.0 / ethernet_bytes;
    let number_bytes = ((2.0 * in_flight).max(1.0).log2() / 8.0).floor() + 1.0;
    let packet_bytes = SHORT_HEADER_BYTES + number_bytes + TAG_BYTES;
    let piece_bytes = DATAGRAM_BYTES - packet_bytes - STREAM_BYTES - OFFSET_BYTES;
    // Per frame: its own header and one more STREAM header.
    let frame_bytes = FRAME_BYTES + FRAME_HEADER_BYTES + STREAM_BYTES + OFFSET_BYTES + LENGTH_BYTES;
    piece_bytes / ethernet_bytes * FRAME_BYTES / frame_bytes
}
