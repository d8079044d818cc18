//! iperf3's protocol, as its sources and its traffic show it (version 3.12):
//! our client tests against any iperf3 server, our server answers any iperf3
//! client, several at once.
//!
//! A control connection begins with a cookie and then carries single bytes
//! ([`State`]) and JSON behind a length; stream connections begin with the same
//! cookie. Every count of the other end is foreign and taken as it is, bounded.

pub(crate) mod client;
pub(crate) mod stream;
pub(crate) mod udp;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::error::{ProbeError, While};
use super::tcp_test::{DURATION_MAX_MS, Direction, STREAMS_MAX};

pub use client::{Iperf3Plan, Iperf3Result, Iperf3Stream, Iperf3Way, run, run_when_free};

/// What a control connection's single bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub(crate) enum State {
    TestStart = 1,
    TestRunning = 2,
    TestEnd = 4,
    ParamExchange = 9,
    CreateStreams = 10,
    ServerTerminate = 11,
    ClientTerminate = 12,
    ExchangeResults = 13,
    DisplayResults = 14,
    Done = 16,
    AccessDenied = -1,
    ServerError = -2,
}

impl State {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        let all = [
            Self::TestStart,
            Self::TestRunning,
            Self::TestEnd,
            Self::ParamExchange,
            Self::CreateStreams,
            Self::ServerTerminate,
            Self::ClientTerminate,
            Self::ExchangeResults,
            Self::DisplayResults,
            Self::Done,
            Self::AccessDenied,
            Self::ServerError,
        ];
        all.into_iter().find(|state| state.byte() == byte)
    }

    pub(crate) fn byte(self) -> u8 {
        (self as i8).cast_unsigned()
    }
}

/// Letters, and a zero at the end.
pub(crate) type Cookie = [u8; COOKIE_BYTES];
pub(crate) const COOKIE_BYTES: usize = 37;
const COOKIE_LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Whether this can be the beginning of a cookie.
pub(crate) fn begins_cookie(bytes: &[u8]) -> bool {
    bytes.iter().all(u8::is_ascii_graphic)
}

fn new_cookie() -> Result<Cookie, ProbeError> {
    use std::io::Read;
    let mut random = [0; COOKIE_BYTES];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .locally("reading random bytes")?;
    let letter = |byte: u8| COOKIE_LETTERS.get(usize::from(byte % 32)).copied();
    let mut cookie = random.map(|byte| letter(byte).unwrap_or(b'a'));
    if let Some(last) = cookie.last_mut() {
        *last = 0;
    }
    Ok(cookie)
}

/// What the client tells the server of its test. Numbers and flags come as
/// iperf3 writes them; what is missing has its default.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Params {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tcp: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) udp: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sctp: Option<bool>,
    pub(crate) omit: u64,
    pub(crate) time: u64,
    pub(crate) num: u64,
    pub(crate) blockcount: u64,
    pub(crate) parallel: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reverse: Option<bool>,
    /// A flag or a number, by version.
    #[serde(deserialize_with = "flag", skip_serializing_if = "Option::is_none")]
    pub(crate) bidirectional: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<u64>,
    #[serde(rename = "MSS", skip_serializing_if = "Option::is_none")]
    pub(crate) mss: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodelay: Option<bool>,
    pub(crate) len: u64,
    pub(crate) bandwidth: u64,
    #[serde(rename = "TOS", skip_serializing_if = "Option::is_none")]
    pub(crate) tos: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) udp_counters_64bit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) congestion: Option<String>,
    pub(crate) pacing_timer: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client_version: Option<String>,
}

impl Params {
    const UDP_BYTES: std::ops::RangeInclusive<u64> = 16..=65_507;
    const TCP_BYTES: std::ops::RangeInclusive<u64> = 1..=1 << 20;

    pub(crate) fn is_udp(&self) -> bool {
        self.udp == Some(true)
    }

    pub(crate) fn direction(&self) -> Direction {
        match self {
            params if params.bidirectional == Some(true) => Direction::Both,
            params if params.reverse == Some(true) => Direction::Down,
            _ => Direction::Up,
        }
    }

    /// Of data per write or datagram.
    pub(crate) fn block_bytes(&self) -> usize {
        let default = if self.is_udp() { 1448 } else { 128 << 10 };
        usize::try_from(self.len)
            .ok()
            .filter(|length| *length > 0)
            .unwrap_or(default)
    }

    /// Says what this server does not do.
    pub(crate) fn check(&self) -> Result<(), String> {
        let streams = 1..=u64::from(STREAMS_MAX);
        if !streams.contains(&self.parallel) {
            return Err(format!("{} streams", self.parallel));
        }
        if self.sctp == Some(true) {
            return Err("SCTP".to_owned());
        }
        let seconds_max = DURATION_MAX_MS / 1000;
        if self.time > seconds_max || self.omit > 60 {
            return Err(format!("{} s and {} s before", self.time, self.omit));
        }
        let range = match self.is_udp() {
            true => Self::UDP_BYTES,
            false => Self::TCP_BYTES,
        };
        match range.contains(&(self.block_bytes() as u64)) {
            true => Ok(()),
            false => Err(format!("blocks of {} bytes", self.len)),
        }
    }
}

/// What an end counted of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StreamCount {
    /// Number of the stream, iperf3's way: 1, 3, 4, 5.
    #[serde(deserialize_with = "signed")]
    pub id: i64,
    /// Payload sent or received, bytes.
    #[serde(deserialize_with = "whole")]
    pub bytes: u64,
    /// Segments sent again; -1 where not known.
    #[serde(deserialize_with = "signed")]
    pub retransmits: i64,
    /// RFC 1889, seconds.
    pub jitter: f64,
    /// Datagrams that did not come.
    #[serde(deserialize_with = "signed")]
    pub errors: i64,
    /// Datagrams sent, or numbered up to the last that came.
    #[serde(deserialize_with = "whole")]
    pub packets: u64,
    /// Seconds.
    pub start_time: f64,
    /// Seconds.
    pub end_time: f64,
}

fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    let is_set = value
        .as_bool()
        .or(value.as_f64().map(|number| number != 0.0));
    Ok(Some(is_set.unwrap_or(false)))
}

/// iperf3 writes some numbers unsigned that mean -1, and large ones as floats.
fn signed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    let float = || number.as_f64().filter(|_| number.is_f64());
    Ok(number
        .as_i64()
        .or_else(|| float().map(|float| float as i64))
        .unwrap_or(-1))
}

fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = serde_json::Number::deserialize(deserializer)?;
    let float = number.as_f64().unwrap_or(0.0);
    Ok(number.as_u64().unwrap_or(float as u64))
}

impl StreamCount {
    /// Payload rate, bit/s.
    pub fn bit_per_s(&self) -> Option<f64> {
        let seconds = self.end_time - self.start_time;
        let rate = self.bytes as f64 * 8.0 / seconds;
        (seconds > 0.0 && rate.is_finite()).then_some(rate)
    }
}

/// What the ends tell each other afterwards.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Results {
    cpu_util_total: f64,
    cpu_util_user: f64,
    cpu_util_system: f64,
    #[serde(deserialize_with = "signed")]
    sender_has_retransmits: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion_used: Option<String>,
    pub(crate) streams: Vec<StreamCount>,
}

impl Results {
    /// `sends`: whether any of the streams is sent from here over TCP.
    pub(crate) fn of(
        streams: Vec<StreamCount>,
        sends: bool,
        congestion_used: Option<String>,
    ) -> Self {
        Self {
            sender_has_retransmits: if sends { 1 } else { -1 },
            congestion_used,
            streams,
            ..Self::default()
        }
    }
}

/// iperf3's number of the nth stream.
pub(crate) fn stream_id(nth: usize) -> i64 {
    match i64::try_from(nth) {
        Ok(0) => 1,
        Ok(nth) => nth + 2,
        Err(_) => i64::MAX,
    }
}

/// How its streams go, by their place: those of the client come first.
pub(crate) fn goes_up(direction: Direction, streams: usize, nth: usize) -> bool {
    match direction {
        Direction::Up => true,
        Direction::Down => false,
        Direction::Both => nth < streams,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_as_iperf3_writes_them() {
        let text = r#"{"tcp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":2,
            "window":65536,"len":131072,"bidirectional":1,"pacing_timer":1000,"client_version":"3.12"}"#;
        let params: Params = serde_json::from_str(text).unwrap();
        assert_eq!(
            (params.direction(), params.is_udp()),
            (Direction::Both, false)
        );
        assert_eq!(
            (params.window, params.block_bytes()),
            (Some(65_536), 131_072)
        );
        assert_eq!(params.check(), Ok(()));
        let bad = |text: &str| serde_json::from_str::<Params>(text).map(|params| params.check());
        assert!(bad(r#"{"parallel":100000}"#).unwrap().is_err());
        assert!(
            bad(r#"{"parallel":1,"udp":true,"len":3}"#)
                .unwrap()
                .is_err()
        );
        assert!(bad(r#"{"parallel":1,"time":1000000}"#).unwrap().is_err());
        assert!(bad(r#"{"parallel":-1}"#).is_err());
        assert!(bad("{}").unwrap().is_err());
    }

    #[test]
    fn states_cookies_and_numbers_are_iperf3s() {
        for byte in 0..=255 {
            assert!(State::of(byte).is_none_or(|state| state.byte() == byte));
        }
        assert_eq!(State::of(0xff), Some(State::AccessDenied));
        let (one, other) = (new_cookie().unwrap(), new_cookie().unwrap());
        assert_ne!(one, other);
        assert!(begins_cookie(&one[..36]) && one[36] == 0);
        assert_eq!([0, 1, 2].map(stream_id), [1, 3, 4]);
        let ups = [0, 1, 2, 3].map(|nth| goes_up(Direction::Both, 2, nth));
        assert_eq!(ups, [true, true, false, false]);
    }

    #[test]
    fn counts_are_read_as_iperf3_writes_them() {
        let text = r#"{"id":1,"bytes":1.5e10,"retransmits":18446744073709551615,"jitter":0,
            "errors":-2,"packets":7,"omitted_errors":0,"start_time":0,"end_time":1.0001}"#;
        let count: StreamCount = serde_json::from_str(text).unwrap();
        assert_eq!((count.bytes, count.retransmits), (15_000_000_000, -1));
        assert_eq!((count.errors, count.packets), (-2, 7));
        for odd in [r#"{"bytes":-1}"#, r#"{"bytes":1e300,"errors":1e300}"#] {
            let count: StreamCount = serde_json::from_str(odd).unwrap();
            assert!(count.bit_per_s().is_none_or(f64::is_finite));
        }
        assert!(serde_json::from_str::<StreamCount>(r#"{"bytes":"x"}"#).is_err());
        let text = r#"{"cpu_util_total":1.5,"sender_has_retransmits":18446744073709551615,
            "streams":[{"id":1},{"id":3}]}"#;
        let results: Results = serde_json::from_str(text).unwrap();
        assert_eq!(results.streams.len(), 2);
    }

    #[test]
    fn a_rate_needs_time() {
        let count = StreamCount {
            bytes: 1_000_000,
            end_time: 2.0,
            ..StreamCount::default()
        };
        assert_eq!(count.bit_per_s(), Some(4e6));
        let none = StreamCount {
            end_time: 0.0,
            ..count
        };
        assert_eq!(none.bit_per_s(), None);
    }
}
