//! Frames as values: only meaningful ones can be expressed, and parsing checks every field.

use super::wire::{Reader, VARINT_MAX, put_address, put_text, put_varint};
use super::{FRAME_BYTES_HARD_MAX, OPTIONAL_TYPE_MIN};
use crate::error::DecodeError;
use crate::flow::{Class, Correction, FlowId, OpenRequest, Payload, Refusal, ResetCode, Target};
use crate::hello::{Hello, VersionRange};
use bytes::{BufMut, Bytes, BytesMut};

const HELLO: u8 = 0x01;
const PING: u8 = 0x02;
const PONG: u8 = 0x03;
const OPEN: u8 = 0x10;
const DATA: u8 = 0x11;
const END: u8 = 0x12;
const RESET: u8 = 0x13;
const ANSWER: u8 = 0x14;
const CREDIT: u8 = 0x15;
const RECLAIM: u8 = 0x16;
const RETURNED: u8 = 0x17;
const DRAIN: u8 = 0x80;

const MAGIC: &[u8] = b"FHAU";
const SITE_BYTES_MAX: usize = 64;
const FLAG_KEEP_CLIENT_ADDRESS: u8 = 1;
/// Two bits of OPEN's flags: the error correction asked for.
const CORRECTION_SHIFT: u8 = 1;
const CORRECTION_MASK: u8 = 0b110;
/// Three bits of OPEN's flags: what the flow's bytes are.
const PAYLOAD_SHIFT: u8 = 3;
const PAYLOAD_MASK: u8 = 0b11_1000;
const FLAG_ITEMS: u8 = 0b100_0000;
/// A level follows.
const FLAG_LEVEL: u8 = 0b1000_0000;
const TARGET_HOST: u8 = 1;

/// Levels that may be asked for.
const LEVELS: std::ops::RangeInclusive<i8> = -7..=22;

/// HELLO with the limits the other side must keep to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelloFrame {
    /// What the gateway says about itself.
    pub hello: Hello,
    /// Credit of every new flow towards this gateway, bytes.
    pub flow_window_bytes: u64,
    /// Flows it keeps at the same time.
    pub flows_max: u64,
}

/// One frame. The module's table tells the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are those of the table
pub enum Frame {
    /// First frame of each direction.
    Hello(HelloFrame),
    /// Is the peer alive, and how far away?
    Ping { nonce: u64, sent_ns: u64 },
    /// The answer to PING, with its values.
    Pong { nonce: u64, sent_ns: u64 },
    /// A new flow.
    Open { flow: FlowId, request: OpenRequest },
    /// Payload.
    Data {
        flow: FlowId,
        number: u64,
        payload: Bytes,
    },
    /// The last payload, possibly none, and how much there was in all.
    End {
        flow: FlowId,
        number: u64,
        bytes: u64,
        payload: Bytes,
    },
    /// The flow is cut.
    Reset { flow: FlowId, code: ResetCode },
    /// The far side connected (None) or could not.
    Answer {
        flow: FlowId,
        refusal: Option<Refusal>,
    },
    /// How much the receiver of this frame may have sent.
    Credit { flow: FlowId, limit_bytes: u64 },
    /// The receiver of this frame should give back all credit but so much.
    Reclaim { flow: FlowId, keep_bytes: u64 },
    /// What the sender of this frame has given back, in all.
    Returned { flow: FlowId, returned_bytes: u64 },
    /// The sender shuts down: flows should be opened elsewhere.
    Drain,
    /// An optional frame of a later version; to be skipped.
    Optional { kind: u8 },
}

impl Frame {
    /// Reads a frame from the bytes of its stream. Payload is not copied.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are not a frame of this version.
    pub fn decode(bytes: Bytes) -> Result<Frame, DecodeError> {
        if bytes.len() > FRAME_BYTES_HARD_MAX {
            return Err(DecodeError::TooLong(bytes.len()));
        }
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        match kind {
            HELLO => decode_hello(reader),
            PING | PONG => decode_probe(kind, reader),
            OPEN => decode_open(reader),
            DATA | END => decode_payload(kind, reader),
            RESET | ANSWER => decode_code(kind, reader),
            CREDIT | RECLAIM | RETURNED => decode_count(kind, reader),
            DRAIN => Ok(Frame::Drain),
            kind if kind >= OPTIONAL_TYPE_MIN => Ok(Frame::Optional { kind }),
            unknown => Err(DecodeError::UnknownType(unknown)),
        }
    }

    /// The frame's bytes in one piece. Payload is copied; the sender's path uses
    /// [`Mux::poll_transmit`](crate::Mux::poll_transmit) instead.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(64);
        match self {
            Frame::Hello(hello) => put_hello(&mut out, hello),
            Frame::Ping { nonce, sent_ns } => put_probe(&mut out, PING, *nonce, *sent_ns),
            Frame::Pong { nonce, sent_ns } => put_probe(&mut out, PONG, *nonce, *sent_ns),
            Frame::Open { flow, request } => put_open(&mut out, *flow, request),
            Frame::Data {
                flow,
                number,
                payload,
            } => {
                out.put(data_header(*flow, *number, None));
                out.put_slice(payload);
            }
            Frame::End {
                flow,
                number,
                bytes,
                payload,
            } => {
                out.put(data_header(*flow, *number, Some(*bytes)));
                out.put_slice(payload);
            }
            Frame::Reset { flow, code } => {
                out.put_u8(RESET);
                put_varint(&mut out, flow.0);
                out.put_u8(reset_byte(*code));
            }
            Frame::Answer { flow, refusal } => {
                out.put_u8(ANSWER);
                put_varint(&mut out, flow.0);
                out.put_u8(refusal.map_or(0, refusal_byte));
            }
            Frame::Credit { flow, limit_bytes } => put_count(&mut out, CREDIT, *flow, *limit_bytes),
            Frame::Reclaim { flow, keep_bytes } => put_count(&mut out, RECLAIM, *flow, *keep_bytes),
            Frame::Returned {
                flow,
                returned_bytes,
            } => put_count(&mut out, RETURNED, *flow, *returned_bytes),
            Frame::Drain => out.put_u8(DRAIN),
            Frame::Optional { kind } => out.put_u8(*kind),
        }
        out.freeze()
    }
}

/// The header of DATA or, with the direction's total, END; the payload follows it.
pub(crate) fn data_header(flow: FlowId, number: u64, end_bytes: Option<u64>) -> Bytes {
    let mut out = BytesMut::with_capacity(super::DATA_HEADER_BYTES_MAX);
    out.put_u8(if end_bytes.is_some() { END } else { DATA });
    put_varint(&mut out, flow.0);
    put_varint(&mut out, number);
    if let Some(bytes) = end_bytes {
        put_varint(&mut out, bytes);
    }
    out.freeze()
}

/// The field of a request that cannot be sent, if there is one.
pub(crate) fn request_problem(request: &OpenRequest) -> Option<&'static str> {
    if request.dscp > 63 {
        return Some("dscp");
    }
    if level_of(request.payload).is_some_and(|level| !LEVELS.contains(&level)) {
        return Some("level");
    }
    match &request.target {
        Target::Host { name, .. } if !is_host_name(name) => Some("host name"),
        _ => None,
    }
}

fn is_host_name(name: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
    (1..=255).contains(&name.len()) && name.chars().all(is_plain)
}

/// The site name as it may be sent: at most 64 bytes, no control characters.
pub(crate) fn site_for_wire(site: &str) -> String {
    let mut out = String::new();
    for c in site.chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > SITE_BYTES_MAX {
            break;
        }
        out.push(c);
    }
    out
}

fn decode_hello(mut reader: Reader) -> Result<Frame, DecodeError> {
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(DecodeError::BadValue("magic"));
    }
    let versions = VersionRange {
        min: reader.u16()?,
        max: reader.u16()?,
    };
    if versions.min > versions.max {
        return Err(DecodeError::BadValue("version range"));
    }
    let instance = reader.u128()?;
    let features = reader.u64()?;
    let flow_window_bytes = reader.varint()?;
    let flows_max = reader.varint()?;
    let site = reader.text("site")?;
    if site.len() > SITE_BYTES_MAX || site.chars().any(char::is_control) {
        return Err(DecodeError::BadValue("site"));
    }
    // Later versions append fields; what follows is theirs.
    let hello = Hello {
        versions,
        instance,
        site,
        features,
    };
    Ok(Frame::Hello(HelloFrame {
        hello,
        flow_window_bytes,
        flows_max,
    }))
}

fn put_hello(out: &mut BytesMut, frame: &HelloFrame) {
    out.put_u8(HELLO);
    out.put_slice(MAGIC);
    out.put_u16(frame.hello.versions.min);
    out.put_u16(frame.hello.versions.max);
    out.put_u128(frame.hello.instance);
    out.put_u64(frame.hello.features);
    put_varint(out, frame.flow_window_bytes);
    put_varint(out, frame.flows_max);
    put_text(out, &frame.hello.site);
}

fn decode_probe(kind: u8, mut reader: Reader) -> Result<Frame, DecodeError> {
    let (nonce, sent_ns) = (reader.u64()?, reader.u64()?);
    reader.end()?;
    Ok(match kind {
        PING => Frame::Ping { nonce, sent_ns },
        _ => Frame::Pong { nonce, sent_ns },
    })
}

fn put_probe(out: &mut BytesMut, kind: u8, nonce: u64, sent_ns: u64) {
    out.put_u8(kind);
    out.put_u64(nonce);
    out.put_u64(sent_ns);
}

fn decode_open(mut reader: Reader) -> Result<Frame, DecodeError> {
    let flow = FlowId(reader.varint()?);
    let flags = reader.u8()?;
    let correction = correction_of(flags)?;
    let mut payload = payload_of(flags)?;
    let class = class_of(reader.u8()?);
    let dscp = reader.u8()?;
    if flags & FLAG_LEVEL != 0 {
        let asked = reader.u8()?.cast_signed();
        match &mut payload {
            Payload::Records {
                compressed: true,
                level,
                ..
            } => *level = Some(asked),
            _ => return Err(DecodeError::BadValue("flags")),
        }
    }
    let family = reader.u8()?;
    let client = reader.address(family, "client address")?;
    let target = match reader.u8()? {
        TARGET_HOST => {
            let name = reader.text("host name")?;
            Target::Host {
                name,
                port: reader.u16()?,
            }
        }
        family => Target::Address(reader.address(family, "target")?),
    };
    reader.end()?;
    let keep_client_address = flags & FLAG_KEEP_CLIENT_ADDRESS != 0;
    let request = OpenRequest {
        client,
        target,
        keep_client_address,
        class,
        dscp,
        correction,
        items: flags & FLAG_ITEMS != 0,
        payload,
    };
    match request_problem(&request) {
        Some(field) => Err(DecodeError::BadValue(field)),
        None => Ok(Frame::Open { flow, request }),
    }
}

fn put_open(out: &mut BytesMut, flow: FlowId, request: &OpenRequest) {
    out.put_u8(OPEN);
    put_varint(out, flow.0);
    let keep = u8::from(request.keep_client_address) * FLAG_KEEP_CLIENT_ADDRESS;
    let items = u8::from(request.items) * FLAG_ITEMS;
    let payload = payload_bits(request.payload);
    let level = level_of(request.payload);
    let has_level = u8::from(level.is_some()) * FLAG_LEVEL;
    out.put_u8(keep | correction_bits(request.correction) | payload | items | has_level);
    out.put_u8(class_byte(request.class));
    out.put_u8(request.dscp);
    if let Some(level) = level {
        out.put_i8(level);
    }
    put_address(out, request.client);
    match &request.target {
        Target::Address(address) => put_address(out, *address),
        Target::Host { name, port } => {
            out.put_u8(TARGET_HOST);
            put_text(out, name);
            out.put_u16(*port);
        }
    }
}

fn correction_of(flags: u8) -> Result<Correction, DecodeError> {
    match (flags & CORRECTION_MASK) >> CORRECTION_SHIFT {
        0 => Ok(Correction::Auto),
        1 => Ok(Correction::Off),
        2 => Ok(Correction::On),
        _ => Err(DecodeError::BadValue("flags")),
    }
}

fn correction_bits(correction: Correction) -> u8 {
    let value = match correction {
        Correction::Auto => 0,
        Correction::Off => 1,
        Correction::On => 2,
    };
    value << CORRECTION_SHIFT
}

fn payload_of(flags: u8) -> Result<Payload, DecodeError> {
    match (flags & PAYLOAD_MASK) >> PAYLOAD_SHIFT {
        0 => Ok(Payload::Plain),
        records @ 1..=3 => Ok(Payload::Records {
            eliminated: records & 1 != 0,
            compressed: records & 2 != 0,
            level: None,
        }),
        4 => Ok(Payload::Channel),
        5 => Ok(Payload::Warming),
        6 => Ok(Payload::Measuring),
        _ => Err(DecodeError::BadValue("flags")),
    }
}

fn payload_bits(payload: Payload) -> u8 {
    let value = match payload {
        Payload::Plain => 0,
        // Records that are neither would be plain ones with a head.
        Payload::Records {
            eliminated: false,
            compressed: false,
            ..
        } => 2,
        Payload::Records {
            eliminated,
            compressed,
            ..
        } => u8::from(eliminated) | u8::from(compressed) << 1,
        Payload::Channel => 4,
        Payload::Warming => 5,
        Payload::Measuring => 6,
    };
    value << PAYLOAD_SHIFT
}

/// The level that is asked for, where anything is compressed.
fn level_of(payload: Payload) -> Option<i8> {
    match payload {
        Payload::Records {
            compressed: true,
            level,
            ..
        } => level,
        _ => None,
    }
}

fn decode_payload(kind: u8, mut reader: Reader) -> Result<Frame, DecodeError> {
    let flow = FlowId(reader.varint()?);
    let number = reader.varint()?;
    // Number 0 is OPEN's or ANSWER's; the last numbers leave room to count beyond them.
    if number == 0 || number >= VARINT_MAX {
        return Err(DecodeError::BadValue("number"));
    }
    if kind == END {
        let bytes = reader.varint()?;
        let payload = reader.rest();
        return Ok(Frame::End {
            flow,
            number,
            bytes,
            payload,
        });
    }
    let payload = reader.rest();
    if payload.is_empty() {
        return Err(DecodeError::BadValue("payload"));
    }
    Ok(Frame::Data {
        flow,
        number,
        payload,
    })
}

fn decode_count(kind: u8, mut reader: Reader) -> Result<Frame, DecodeError> {
    let (flow, bytes) = (FlowId(reader.varint()?), reader.varint()?);
    reader.end()?;
    Ok(match kind {
        CREDIT => Frame::Credit {
            flow,
            limit_bytes: bytes,
        },
        RECLAIM => Frame::Reclaim {
            flow,
            keep_bytes: bytes,
        },
        _ => Frame::Returned {
            flow,
            returned_bytes: bytes,
        },
    })
}

fn put_count(out: &mut BytesMut, kind: u8, flow: FlowId, bytes: u64) {
    out.put_u8(kind);
    put_varint(out, flow.0);
    put_varint(out, bytes);
}

fn decode_code(kind: u8, mut reader: Reader) -> Result<Frame, DecodeError> {
    let flow = FlowId(reader.varint()?);
    let byte = reader.u8()?;
    reader.end()?;
    Ok(match kind {
        RESET => Frame::Reset {
            flow,
            code: reset_of(byte),
        },
        _ => Frame::Answer {
            flow,
            refusal: (byte != 0).then(|| refusal_of(byte)),
        },
    })
}

/// A class of a later version is only a hint lost.
fn class_of(byte: u8) -> Class {
    match byte {
        1 => Class::Control,
        2 => Class::Interactive,
        3 => Class::Bulk,
        4 => Class::Background,
        _ => Class::Auto,
    }
}

fn class_byte(class: Class) -> u8 {
    match class {
        Class::Auto => 0,
        Class::Control => 1,
        Class::Interactive => 2,
        Class::Bulk => 3,
        Class::Background => 4,
    }
}

fn refusal_of(byte: u8) -> Refusal {
    match byte {
        1 => Refusal::Refused,
        2 => Refusal::HostUnreachable,
        3 => Refusal::NetworkUnreachable,
        4 => Refusal::TimedOut,
        5 => Refusal::Policy,
        6 => Refusal::NameNotFound,
        7 => Refusal::AsymmetricReturn,
        8 => Refusal::Overload,
        9 => Refusal::Internal,
        10 => Refusal::Draining,
        other => Refusal::Other(other),
    }
}

fn refusal_byte(refusal: Refusal) -> u8 {
    match refusal {
        Refusal::Refused => 1,
        Refusal::HostUnreachable => 2,
        Refusal::NetworkUnreachable => 3,
        Refusal::TimedOut => 4,
        Refusal::Policy => 5,
        Refusal::NameNotFound => 6,
        Refusal::AsymmetricReturn => 7,
        Refusal::Overload => 8,
        Refusal::Internal => 9,
        Refusal::Draining => 10,
        // 0 would say "accepted".
        Refusal::Other(byte) => byte.max(1),
    }
}

fn reset_of(byte: u8) -> ResetCode {
    match byte {
        0 => ResetCode::Application,
        1 => ResetCode::PeerRestarted,
        2 => ResetCode::Overload,
        3 => ResetCode::Protocol,
        4 => ResetCode::IdleTimeout,
        5 => ResetCode::Admin,
        6 => ResetCode::Unreachable,
        7 => ResetCode::TunnelLost,
        8 => ResetCode::Internal,
        other => ResetCode::Other(other),
    }
}

fn reset_byte(code: ResetCode) -> u8 {
    match code {
        ResetCode::Application => 0,
        ResetCode::PeerRestarted => 1,
        ResetCode::Overload => 2,
        ResetCode::Protocol => 3,
        ResetCode::IdleTimeout => 4,
        ResetCode::Admin => 5,
        ResetCode::Unreachable => 6,
        ResetCode::TunnelLost => 7,
        ResetCode::Internal => 8,
        ResetCode::Other(byte) => byte,
    }
}
