//! Ends that keep to the protocol for a while, or not at all.

use std::io::{Read, Write, copy, sink};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread::{sleep, spawn};
use std::time::Duration;

use farhaul_lab::probe::ProbeError;
use farhaul_lab::probe::iperf3::{Iperf3Result, run};
use farhaul_lab::probe::tcp_test::Direction;
use serde_json::Value;

use crate::{Ours, plan};
/// A client of our server that has just been told to open its streams.
fn opening(server: &Ours, cookie: &[u8; 37], params: &[u8]) -> TcpStream {
    let mut control = TcpStream::connect(server.address).unwrap();
    let patience = Some(Duration::from_secs(30));
    control.set_read_timeout(patience).unwrap();
    control.write_all(cookie).unwrap();
    control
        .write_all(&(params.len() as u32).to_be_bytes())
        .unwrap();
    control.write_all(params).unwrap();
    let mut states = [0; 2];
    control.read_exact(&mut states).unwrap();
    // PARAM_EXCHANGE, CREATE_STREAMS.
    assert_eq!(states, [9, 10]);
    control
}

#[test]
fn streams_may_come_slowly_one_after_the_other() {
    let server = Ours::start(32);
    let cookie = b"slowabcdefghijklmnopqrstuvwxyz234567\0";
    let params = br#"{"tcp":true,"time":1,"parallel":3}"#;
    let mut control = opening(&server, cookie, params);
    // Longer in all than any of them may take.
    let streams: Vec<TcpStream> = (0..3)
        .map(|_| {
            sleep(Duration::from_secs(4));
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.write_all(cookie).unwrap();
            stream
        })
        .collect();
    let mut states = [0; 2];
    control.read_exact(&mut states).unwrap();
    // TEST_START, TEST_RUNNING.
    assert_eq!(states, [1, 2], "{streams:?}");
}

#[test]
fn a_stray_datagram_opens_no_stream() {
    let server = Ours::start(32);
    let cookie = b"strayabcdefghijklmnopqrstuvwxyz23456\0";
    let params = br#"{"udp":true,"time":1,"parallel":1,"len":1000}"#;
    let mut control = opening(&server, cookie, params);
    let socket = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server.address).unwrap();
        socket
    };
    let (stray, wanted) = (socket(), socket());
    stray.send(b"who is there?").unwrap();
    stray.send(b"6789 6789").unwrap();
    // Behind them in the same queue.
    wanted.send(b"6789").unwrap();
    let patience = Some(Duration::from_secs(20));
    wanted.set_read_timeout(patience).unwrap();
    assert_eq!(wanted.recv(&mut [0; 64]).unwrap(), 4);
    stray.set_nonblocking(true).unwrap();
    assert!(stray.recv(&mut [0; 64]).is_err());
    let mut states = [0; 2];
    control.read_exact(&mut states).unwrap();
    assert_eq!(states, [1, 2]);
}

/// A server that says something and goes away.
fn speaker(words: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn(move || {
        let mut stream: TcpStream = listener.accept().unwrap().0;
        let _ = stream.write_all(words);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    port
}

#[test]
fn servers_that_do_not_behave_are_named() {
    for (words, code) in [
        (&b"\xff"[..], "refused"),
        (b"\xfe\0\0\0\x0d\0\0\0\0", "refused"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "protocol"),
        (b"\x09\x0a\x01\x02\x0b", "refused"),
        (b"\x09\x09", "protocol"),
    ] {
        let port = speaker(words);
        let error = run("127.0.0.1", port, &plan(Direction::Up), Arc::default()).unwrap_err();
        assert_eq!(error.code(), code, "{words:?}: {error:?}");
    }
}

#[test]
fn clients_that_do_not_behave_end_their_own_test_only() {
    let server = Ours::start(32);
    for (first, words) in [
        (b'a', &b"\xff\xff\xff\xff"[..]),
        (b'b', b"\0\0\0\x02[]"),
        (b'c', b"\0\0\0\x13{\"parallel\":100000}"),
        (b'd', b"\0\0\0\x02{}"),
    ] {
        // A test's own: a second connection with the same would be a stream of the first.
        let mut cookie = *b"abcdefghijklmnopqrstuvwxyz234567abcd\0";
        cookie[0] = first;
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream.write_all(&cookie).unwrap();
        stream.write_all(words).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert_eq!(answer[..2], [9, 0xfe], "{words:?}: {answer:?}");
        assert_eq!(answer.len(), 10);
    }
    assert_eq!(server.client("-t 1")["error"], Value::Null);
}

/// A message behind its length.
fn framed(text: &str) -> Vec<u8> {
    let length = (text.len() as u32).to_be_bytes();
    [&length, text.as_bytes()].concat()
}

/// The same, and that it is shown (DISPLAY_RESULTS).
fn shown(text: &str) -> Vec<u8> {
    [framed(text), vec![14]].concat()
}

fn take_framed(control: &mut TcpStream) {
    let mut length = [0; 4];
    control.read_exact(&mut length).unwrap();
    let mut text = vec![0; u32::from_be_bytes(length) as usize];
    control.read_exact(&mut text).unwrap();
}

/// Where a server stops keeping to the protocol.
#[derive(Clone, Copy)]
enum Until {
    /// The test runs.
    Running,
    /// It is over, and the results of the client have come.
    Results,
}

/// A server for one test of one stream, which says `words` in the end.
fn liar(until: Until, words: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    spawn(move || {
        let mut control = listener.accept().unwrap().0;
        control.read_exact(&mut [0; 37]).unwrap();
        control.write_all(&[9]).unwrap();
        take_framed(&mut control);
        control.write_all(&[10]).unwrap();
        let mut data = listener.accept().unwrap().0;
        spawn(move || copy(&mut data, &mut sink()));
        // TEST_START, TEST_RUNNING.
        control.write_all(&[1, 2]).unwrap();
        if let Until::Results = until {
            let mut end = [0];
            control.read_exact(&mut end).unwrap();
            // TEST_END, EXCHANGE_RESULTS.
            assert_eq!(end, [4]);
            control.write_all(&[13]).unwrap();
            take_framed(&mut control);
        }
        control.write_all(&words).unwrap();
        let _ = control.shutdown(std::net::Shutdown::Write);
        let _ = control.read_to_end(&mut Vec::new());
    });
    port
}

fn tested(port: u16) -> Result<Iperf3Result, ProbeError> {
    run("127.0.0.1", port, &plan(Direction::Up), Arc::default())
}

#[test]
fn servers_that_go_wrong_in_a_running_test_are_named() {
    let deep = "[".repeat(1 << 19);
    let mut cases = Vec::new();
    for (words, code) in [
        (&b""[..], "lost"),
        (b"\x02", "protocol"),
        (b"\x0d", "protocol"),
        (b"\x0b", "refused"),
        (b"\xfe\0\0\0\x8b\0\0\0\0", "refused"),
        (b"\xfe", "refused"),
        (b"\x77", "protocol"),
    ] {
        cases.push((Until::Running, words.to_vec(), code));
    }
    for (words, code) in [
        (b"\xff\xff\xff\xff".to_vec(), "protocol"),
        (b"\0\0\0\x40{\"streams\"".to_vec(), "lost"),
        (shown("{}"), "protocol"),
        (framed(""), "protocol"),
        (framed("null"), "protocol"),
        (shown(r#"{"streams":[]}"#), "protocol"),
        (shown(r#"{"streams":[{"id":2,"bytes":1}]}"#), "protocol"),
        (
            framed(r#"{"streams":[{"id":1,"bytes":"many"}]}"#),
            "protocol",
        ),
        (framed(r#"{"streams":[{"id":1,"jitter":NaN}]}"#), "protocol"),
        (
            framed(r#"{"streams":[{"id":1,"jitter":1e999}]}"#),
            "protocol",
        ),
        (framed(&deep), "protocol"),
        // All is told, but not that it is shown.
        (framed(r#"{"streams":[{"id":1}]}"#), "lost"),
    ] {
        cases.push((Until::Results, words, code));
    }
    // At once: each takes a second.
    let tests = cases.into_iter().map(|(until, words, code)| {
        let start = String::from_utf8_lossy(&words[..words.len().min(60)]).into_owned();
        (start, code, spawn(move || tested(liar(until, words))))
    });
    for (words, code, test) in tests.collect::<Vec<_>>() {
        let error = test.join().unwrap().unwrap_err();
        assert_eq!(error.code(), code, "{words:?}: {error:?}");
    }
}

#[test]
fn absurd_counts_of_a_server_leave_numbers_that_json_can_hold() {
    for stream in [
        r#"{"id":1,"bytes":1e300,"errors":-1e300,"packets":1e300,"end_time":1e-300}"#,
        r#"{"id":1,"bytes":-5,"errors":1e18,"start_time":1e308,"end_time":-1e308}"#,
        r#"{"id":1,"bytes":18446744073709551615,"retransmits":18446744073709551615,"end_time":0}"#,
    ] {
        // Twice the same stream: the first counts.
        let results = format!(r#"{{"streams":[{stream},{{"id":1,"bytes":7,"end_time":1}}]}}"#);
        let result = tested(liar(Until::Results, shown(&results))).unwrap();
        let text = serde_json::to_string(&result).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let way = &document["up"];
        // No rate can be made of it; our own count stands beside it.
        assert_eq!(way["received_bit_per_s"], Value::Null, "{stream}: {way}");
        assert!(
            way["sent_bit_per_s"].as_f64() > Some(0.0),
            "{stream}: {way}"
        );
        serde_json::from_str::<Iperf3Result>(&text).unwrap();
    }
}
