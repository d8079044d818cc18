//! The tester's messages for fuzzers: what can be read is written, read again, and
//! is the same; what is then done with it must hold for any numbers. The tests
//! below do it with true messages that were changed.

#![allow(clippy::unwrap_used)] // a failure is what is looked for

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::datagram_flow::{DATAGRAMS_MAX, Header};
use super::message::{Answer, Greeting, Request, Token, read_message};
use super::observe::{FlowWay, TcpResult};
use super::tcp_test::{Direction, STREAMS_MAX, StreamEnd, TcpPlan};

/// What a client sends on a control connection. Whether it is a request.
pub fn request(text: &[u8]) -> bool {
    let Some(request) = read::<Request>(text) else {
        return false;
    };
    assert_eq!(again(&request), request);
    match &request {
        Request::Tcp(plan) if plan.check().is_ok() => {
            assert!((1..=STREAMS_MAX * 2).contains(&plan.connections()));
        }
        Request::Datagrams(plan) if plan.check().is_ok() => {
            assert!((1..=DATAGRAMS_MAX).contains(&plan.datagrams()));
            assert!(usize::from(plan.payload_bytes) >= Header::BYTES);
            assert!(plan.bit_per_s().is_finite());
        }
        _ => {}
    }
    true
}

/// What a server answers. Whether it is an answer.
pub fn answer(text: &[u8]) -> bool {
    let Some(answer) = read::<Answer>(text) else {
        return false;
    };
    // A decimal fraction may come back as its neighbour, and stays that then.
    let written = again(&answer);
    assert_eq!(kind(&written), kind(&answer));
    match answer {
        Answer::TcpDone { streams, .. } => judge_streams(streams),
        Answer::DatagramsDone { sent, count, .. } => {
            let way = count.map(|count| FlowWay::from((sent, *count)));
            let shares = way.map(|way| way.loss() + way.reordering());
            assert!(shares.is_none_or(f64::is_finite));
        }
        Answer::Welcome { host, .. } => drop(host.of_another()),
        Answer::Clock { .. } | Answer::Ready { .. } | Answer::Go | Answer::Refused { .. } => {}
    }
    true
}

/// The first bytes of a connection, or of a datagram of any token. Whether they are
/// ours.
pub fn beginning(bytes: &[u8]) -> bool {
    let greeting = bytes.first_chunk().and_then(Greeting::read);
    if let Some(greeting) = greeting {
        assert_eq!(Greeting::read(&greeting.to_bytes()), Some(greeting));
    }
    let token: Option<Token> = bytes.get(4..).and_then(|rest| rest.first_chunk().copied());
    let header = token.and_then(|token| Header::read(bytes, &token));
    if let Some(header) = header {
        let mut written = [0; Header::BYTES];
        header.write(&mut written);
        assert_eq!(bytes.first_chunk(), Some(&written));
    }
    greeting.is_some() || header.is_some()
}

/// A message; why it is none can be shown on a terminal.
fn read<T: DeserializeOwned>(text: &[u8]) -> Option<T> {
    let outcome = read_message(text);
    if let Err(error) = &outcome {
        assert!(!error.to_string().contains(char::is_control));
    }
    outcome.ok()
}

fn again<T: Serialize + DeserializeOwned>(message: &T) -> T {
    read(&serde_json::to_vec(message).unwrap()).unwrap()
}

fn kind(answer: &Answer) -> std::mem::Discriminant<Answer> {
    std::mem::discriminant(answer)
}

/// Puts them beside what a client that did the same test would have seen.
fn judge_streams(mut theirs: Vec<StreamEnd>) {
    let of_client = |end: &StreamEnd| StreamEnd {
        sends: !end.sends,
        ..end.clone()
    };
    let ours = theirs.iter().map(of_client).collect();
    for ahead_ns in [i64::MIN, -1, 0, i64::MAX] {
        theirs.iter_mut().for_each(|end| end.shift(ahead_ns));
    }
    let plan = TcpPlan::new(Direction::Both, 1000);
    if let Ok(result) = TcpResult::of(plan, ours, theirs, 0) {
        // Whether it carried anything is all the same here.
        let _ = result.carried();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::accuracy::plant::Draw;
    use crate::probe::datagram_flow::{FlowCount, FlowPlan, Kind};
    use crate::probe::host::HostFacts;
    use crate::probe::message::{Purpose, VERSION};
    use crate::probe::tcp_test::Sample;

    const CHANGES: usize = 5_000;
    /// What a number is changed to.
    const NUMBERS: [&str; 8] = [
        "0",
        "1",
        "-1",
        "0.1",
        "1e308",
        "9223372036854775808",
        "18446744073709551615",
        "null",
    ];

    /// What is changed, and how: the same for the same seed.
    struct Dice(Draw);

    impl Dice {
        fn below(&mut self, end: usize) -> usize {
            self.0.below(end.max(1))
        }

        /// One to four changes.
        fn change(&mut self, bytes: &[u8]) -> Vec<u8> {
            let mut bytes = bytes.to_vec();
            for _ in 0..=self.below(4) {
                let at = self.below(bytes.len());
                match self.below(8) {
                    0 => bytes.truncate(at + 1),
                    1 => bytes.insert(at.min(bytes.len()), self.below(256) as u8),
                    2 if !bytes.is_empty() => drop(bytes.remove(at)),
                    3 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                    _ => self.change_number(&mut bytes, at),
                }
            }
            bytes
        }

        /// The first one from there on: a bit that is changed seldom leaves JSON.
        fn change_number(&mut self, bytes: &mut Vec<u8>, at: usize) {
            let is_digit = |byte: &u8| byte.is_ascii_digit();
            let Some(begin) = bytes.iter().skip(at).position(is_digit) else {
                return;
            };
            let begin = at + begin;
            let digits = bytes[begin..].iter().take_while(|byte| is_digit(byte));
            let end = begin + digits.count();
            let number = NUMBERS[self.below(NUMBERS.len())];
            bytes.splice(begin..end, number.bytes());
        }

        /// How many of the changed ones could be read.
        fn read(&mut self, right: &[u8], target: fn(&[u8]) -> bool) -> usize {
            assert!(target(right), "{}", String::from_utf8_lossy(right));
            (0..CHANGES).filter(|_| target(&self.change(right))).count()
        }
    }

    fn text(message: &impl Serialize) -> Vec<u8> {
        serde_json::to_vec(message).unwrap()
    }

    fn requests() -> [Request; 4] {
        let mut plan = TcpPlan::new(Direction::Both, 10_000);
        plan.window_bytes = Some(8192);
        plan.congestion_control = Some("cubic".to_owned());
        [
            Request::Hello { version: VERSION },
            Request::Clock,
            Request::Tcp(plan),
            Request::Datagrams(FlowPlan::even(Direction::Up, 1400, 5e6, 2.0)),
        ]
    }

    fn streams() -> Vec<StreamEnd> {
        let sample = |nth: u64| Sample {
            at_ns: nth * 100_000_000,
            bytes: nth * 50_000,
            ..Sample::default()
        };
        let stream = |connection: u16| StreamEnd {
            connection,
            goes_up: connection == 0,
            sends: connection != 0,
            first_ns: Some(1),
            last_ns: Some(900_000_000),
            bytes: 450_000,
            samples: (0..10).map(sample).collect(),
            ..StreamEnd::default()
        };
        (0..2).map(stream).collect()
    }

    fn answers() -> [Answer; 7] {
        let count = FlowCount {
            received: 90,
            read_until: Some(95),
            steady_bit_per_s: Some(4.9e6),
            ..FlowCount::default()
        };
        [
            Answer::Welcome {
                version: VERSION,
                token: [7; 16],
                echo_port: 5202,
                host: Box::new(HostFacts::here()),
                other_sessions: 0,
            },
            Answer::Clock { at_ns: 12_345 },
            Answer::Ready { port: 5203 },
            Answer::Go,
            Answer::TcpDone {
                streams: streams(),
                other_sessions: 1,
            },
            Answer::DatagramsDone {
                sent: 100,
                count: Some(Box::new(count)),
                other_sessions: 1,
            },
            Answer::Refused {
                why: "too many clients".to_owned(),
            },
        ]
    }

    #[test]
    fn changed_requests_are_read_or_refused() {
        let mut dice = Dice(Draw::new(1));
        let read = requests().map(|right| dice.read(&text(&right), request));
        let [.., of_tcp, of_datagrams] = read;
        assert!(of_tcp > 100 && of_datagrams > 100, "{read:?}");
    }

    #[test]
    fn changed_answers_are_read_or_refused() {
        let mut dice = Dice(Draw::new(2));
        let read = answers().map(|right| dice.read(&text(&right), answer));
        let [_, _, _, _, of_streams, of_datagrams, _] = read;
        assert!(of_streams > 100 && of_datagrams > 100, "{read:?}");
    }

    #[test]
    fn changed_beginnings_are_read_or_refused() {
        let mut dice = Dice(Draw::new(3));
        let token = [7; 16];
        let purpose = Purpose::Stream(513);
        let greeting = Greeting { purpose, token };
        let greetings = dice.read(&greeting.to_bytes(), beginning);
        let header = Header {
            token,
            kind: Kind::Echo,
            tos: 8,
            bytes: 1400,
            sequence: 9,
            sent_ns: 77,
        };
        let mut datagram = vec![0; 64];
        header.write(&mut datagram);
        let headers = dice.read(&datagram, beginning);
        assert!(greetings > 100 && headers > 100, "{greetings} {headers}");
    }
}
