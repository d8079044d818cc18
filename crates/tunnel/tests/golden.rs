//! invariant 10: wire bytes change only with a protocol version. The bytes below are version 1.

#![allow(clippy::unwrap_used)] // helpers of tests are not recognised as tests by the lint

use bytes::Bytes;
use farhaul_tunnel::*;

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Name, frame, bytes.
fn golden() -> Vec<(&'static str, Frame, &'static str)> {
    let hello = HelloFrame {
        hello: Hello {
            versions: VersionRange { min: 1, max: 1 },
            instance: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff,
            site: "Zürich".into(),
            features: 5,
        },
        flow_window_bytes: 1 << 20,
        flows_max: 65_536,
    };
    let v4 = OpenRequest {
        client: "192.0.2.7:40000".parse().unwrap(),
        target: Target::Address("198.51.100.9:445".parse().unwrap()),
        keep_client_address: true,
        class: Class::Interactive,
        dscp: 46,
        correction: Correction::Auto,
        items: false,
        payload: Payload::Plain,
    };
    let v6 = OpenRequest {
        client: "[2001:db8::7]:40000".parse().unwrap(),
        target: Target::Address("[2001:db8:1::9]:80".parse().unwrap()),
        keep_client_address: false,
        class: Class::Auto,
        dscp: 0,
        correction: Correction::Off,
        items: false,
        payload: Payload::Plain,
    };
    let name = Target::Host {
        name: "files.example".into(),
        port: 443,
    };
    let host = OpenRequest {
        target: name,
        class: Class::Bulk,
        correction: Correction::On,
        ..v4.clone()
    };
    let records = OpenRequest {
        payload: Payload::Records {
            eliminated: true,
            compressed: true,
            level: None,
        },
        ..v4.clone()
    };
    let at_level = OpenRequest {
        payload: Payload::Records {
            eliminated: false,
            compressed: true,
            level: Some(-7),
        },
        ..v4.clone()
    };
    let channel = OpenRequest {
        payload: Payload::Channel,
        ..v4.clone()
    };
    let warming = OpenRequest {
        payload: Payload::Warming,
        ..v4.clone()
    };
    let measuring = OpenRequest {
        payload: Payload::Measuring,
        ..v4.clone()
    };
    let items = OpenRequest {
        items: true,
        ..records.clone()
    };
    let payload = Bytes::from_static(b"hello");
    vec![
        (
            "hello",
            Frame::Hello(hello),
            "01 46484155 0001 0001 00112233445566778899aabbccddeeff 0000000000000005 \
             80100000 80010000 07 5ac3bc72696368",
        ),
        (
            "ping",
            Frame::Ping {
                nonce: 7,
                sent_ns: 0x0102_0304_0506_0708,
            },
            "02 0000000000000007 0102030405060708",
        ),
        (
            "pong",
            Frame::Pong {
                nonce: 7,
                sent_ns: 0x0102_0304_0506_0708,
            },
            "03 0000000000000007 0102030405060708",
        ),
        (
            "open, IPv4",
            Frame::Open {
                flow: FlowId(0),
                request: v4,
            },
            "10 00 01 02 2e 04 c0000207 9c40 04 c6336409 01bd",
        ),
        (
            "open, IPv6",
            Frame::Open {
                flow: FlowId(63),
                request: v6,
            },
            "10 3f 02 00 00 06 20010db8000000000000000000000007 9c40 \
             06 20010db8000100000000000000000009 0050",
        ),
        (
            "open, host",
            Frame::Open {
                flow: FlowId(64),
                request: host,
            },
            "10 4040 05 03 2e 04 c0000207 9c40 01 0d 66696c65732e6578616d706c65 01bb",
        ),
        (
            "open, records",
            Frame::Open {
                flow: FlowId(2),
                request: records,
            },
            "10 02 19 02 2e 04 c0000207 9c40 04 c6336409 01bd",
        ),
        (
            "open, records at a level",
            Frame::Open {
                flow: FlowId(8),
                request: at_level,
            },
            "10 08 91 02 2e f9 04 c0000207 9c40 04 c6336409 01bd",
        ),
        (
            "open, records of items",
            Frame::Open {
                flow: FlowId(6),
                request: items,
            },
            "10 06 59 02 2e 04 c0000207 9c40 04 c6336409 01bd",
        ),
        (
            "open, the channel",
            Frame::Open {
                flow: FlowId(4),
                request: channel,
            },
            "10 04 21 02 2e 04 c0000207 9c40 04 c6336409 01bd",
        ),
        (
            "open, to be remembered",
            Frame::Open {
                flow: FlowId(4),
                request: warming,
            },
            "10 04 29 02 2e 04 c0000207 9c40 04 c6336409 01bd",
        ),
        (
            "open, a measurement",
            Frame::Open {
                flow: FlowId(4),
                request: measuring,
            },
            "10 04 31 02 2e 04 c0000207 9c40 04 c6336409 01bd",
        ),
        (
            "data",
            Frame::Data {
                flow: FlowId(16_384),
                number: 1,
                payload: payload.clone(),
            },
            "11 80004000 01 68656c6c6f",
        ),
        (
            "end with payload",
            Frame::End {
                flow: FlowId(3),
                number: 2,
                bytes: 10,
                payload,
            },
            "12 03 02 0a 68656c6c6f",
        ),
        (
            "end without payload",
            Frame::End {
                flow: FlowId(1 << 30),
                number: 1,
                bytes: 0,
                payload: Bytes::new(),
            },
            "12 c000000040000000 01 00",
        ),
        (
            "reset",
            Frame::Reset {
                flow: FlowId(5),
                code: ResetCode::PeerRestarted,
            },
            "13 05 01",
        ),
        (
            "accepted",
            Frame::Answer {
                flow: FlowId(4),
                refusal: None,
            },
            "14 04 00",
        ),
        (
            "refused",
            Frame::Answer {
                flow: FlowId(4),
                refusal: Some(Refusal::NameNotFound),
            },
            "14 04 06",
        ),
        (
            "credit",
            Frame::Credit {
                flow: FlowId(2),
                limit_bytes: 64 << 20,
            },
            "15 02 84000000",
        ),
        (
            "reclaim",
            Frame::Reclaim {
                flow: FlowId(3),
                keep_bytes: 64 << 10,
            },
            "16 03 80010000",
        ),
        (
            "returned",
            Frame::Returned {
                flow: FlowId(3),
                returned_bytes: 0,
            },
            "17 03 00",
        ),
        ("drain", Frame::Drain, "80"),
        ("optional", Frame::Optional { kind: 0x81 }, "81"),
    ]
}

#[test]
fn invariant_10_every_frame_has_its_golden_bytes() {
    for (name, frame, bytes) in golden() {
        assert_eq!(
            hex(&frame.encode()),
            hex(&unhex(bytes)),
            "encoding of {name}"
        );
        assert_eq!(Frame::decode(unhex(bytes)), Ok(frame), "decoding of {name}");
    }
}

#[test]
fn invariant_10_refusals_and_resets_keep_their_numbers() {
    let refusals = [
        Refusal::Refused,
        Refusal::HostUnreachable,
        Refusal::NetworkUnreachable,
        Refusal::TimedOut,
        Refusal::Policy,
        Refusal::NameNotFound,
        Refusal::AsymmetricReturn,
        Refusal::Overload,
        Refusal::Internal,
        Refusal::Draining,
        Refusal::Other(11),
    ];
    for (place, refusal) in refusals.into_iter().enumerate() {
        let frame = Frame::Answer {
            flow: FlowId(0),
            refusal: Some(refusal),
        };
        assert_eq!(frame.encode()[..], [0x14, 0, place as u8 + 1]);
        assert_eq!(Frame::decode(frame.encode()), Ok(frame));
    }
    let resets = [
        ResetCode::Application,
        ResetCode::PeerRestarted,
        ResetCode::Overload,
        ResetCode::Protocol,
        ResetCode::IdleTimeout,
        ResetCode::Admin,
        ResetCode::Unreachable,
        ResetCode::TunnelLost,
        ResetCode::Internal,
        ResetCode::Other(9),
    ];
    for (place, code) in resets.into_iter().enumerate() {
        let frame = Frame::Reset {
            flow: FlowId(0),
            code,
        };
        assert_eq!(frame.encode()[..], [0x13, 0, place as u8]);
        assert_eq!(Frame::decode(frame.encode()), Ok(frame));
    }
}

#[test]
fn every_frame_cut_short_is_an_error_or_a_shorter_payload() {
    for (name, frame, bytes) in golden() {
        let bytes = unhex(bytes);
        for length in 0..bytes.len() {
            let has_payload = matches!(frame, Frame::Data { .. } | Frame::End { .. });
            match Frame::decode(bytes.slice(..length)) {
                Ok(short) => assert!(has_payload && short != frame, "{name} cut to {length}"),
                Err(error) => assert!(
                    matches!(
                        error,
                        DecodeError::Truncated | DecodeError::BadValue("payload")
                    ),
                    "{name} cut to {length}: {error}"
                ),
            }
        }
    }
}

#[test]
fn bytes_behind_a_frame_are_an_error_except_behind_hello() {
    for (name, frame, bytes) in golden() {
        let mut longer = unhex(bytes).to_vec();
        longer.push(0);
        let decoded = Frame::decode(longer.into());
        match frame {
            // Later versions append fields to HELLO; optional frames hold anything.
            Frame::Hello(_) | Frame::Drain | Frame::Optional { .. } => {
                assert_eq!(decoded, Ok(frame))
            }
            Frame::Data { .. } | Frame::End { .. } => assert!(decoded.is_ok()),
            _ => assert_eq!(decoded, Err(DecodeError::Trailing(1)), "{name}"),
        }
    }
}

#[test]
fn impossible_values_are_refused_by_name() {
    let cases = [
        ("", "frame is cut short"),
        ("00", "unknown frame type 0x00"),
        ("7f 01 02", "unknown frame type 0x7f"),
        (
            "01 46484156 0001 0001",
            "frame field 'magic' holds an impossible value",
        ),
        (
            "01 46484155 0002 0001",
            "frame field 'version range' holds an impossible value",
        ),
        (
            "10 00 38 00 00 04 c0000207 9c40 04 c6336409 01bd",
            "frame field 'flags' holds an impossible value",
        ),
        (
            "10 00 00 00 40 04 c0000207 9c40 04 c6336409 01bd",
            "frame field 'dscp' holds an impossible value",
        ),
        (
            "10 00 00 00 00 05 c0000207 9c40 04 c6336409 01bd",
            "frame field 'client address' holds an impossible value",
        ),
        (
            "10 00 00 00 00 04 c0000207 9c40 07 c6336409 01bd",
            "frame field 'target' holds an impossible value",
        ),
        (
            "10 00 00 00 00 04 c0000207 9c40 01 00 01bb",
            "frame field 'host name' holds an impossible value",
        ),
        (
            "10 00 00 00 00 04 c0000207 9c40 01 02 610a 01bb",
            "frame field 'host name' holds an impossible value",
        ),
        (
            "10 00 00 00 00 04 c0000207 9c40 01 01 ff 01bb",
            "frame field 'host name' holds an impossible value",
        ),
        (
            "11 00 00 61",
            "frame field 'number' holds an impossible value",
        ),
        (
            "11 00 ffffffffffffffff 61",
            "frame field 'number' holds an impossible value",
        ),
        (
            "11 00 01",
            "frame field 'payload' holds an impossible value",
        ),
        (
            "12 00 00 00",
            "frame field 'number' holds an impossible value",
        ),
    ];
    for (bytes, text) in cases {
        let error = Frame::decode(unhex(bytes)).unwrap_err();
        assert_eq!(error.to_string(), text, "{bytes}");
    }
    let long = vec![0x11; FRAME_BYTES_HARD_MAX + 1];
    assert_eq!(
        Frame::decode(long.into()),
        Err(DecodeError::TooLong(FRAME_BYTES_HARD_MAX + 1))
    );
}
