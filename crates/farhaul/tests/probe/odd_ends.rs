//! Ends that do not behave, from the first byte or in the middle of a test: each
//! has its code, its document, and leaves nothing running.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{CAMPAIGN, Deaf, FARHAUL, REPORT, Server, document, ended, probe, report};

/// What a server does with a connection, its first bytes being read.
type Manners = fn(&mut TcpStream);

/// A port where every connection meets the same manners; forgotten when the
/// test's process ends.
fn odd_server(manners: Manners) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let _ = stream.read(&mut [0; 200]);
                manners(&mut stream);
            });
        }
    });
    port
}

fn quiet(stream: &mut TcpStream) {
    while stream.read(&mut [0; 4096]).is_ok_and(|got| got > 0) {}
}

fn endless(stream: &mut TcpStream) {
    while stream.write_all(&[b'f'; 4096]).is_ok() {}
}

/// A message of the greatest length that is allowed, at a byte now and then.
fn trickle(stream: &mut TcpStream) {
    let _ = stream.write_all(&(16_u32 << 20).to_be_bytes());
    while stream.write_all(b" ").is_ok() {
        thread::sleep(Duration::from_millis(50));
    }
}

fn banner(stream: &mut TcpStream) {
    let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n");
    quiet(stream);
}

fn say(stream: &mut TcpStream, text: &str) {
    let _ = stream.write_all(&(text.len() as u32).to_be_bytes());
    let _ = stream.write_all(text.as_bytes());
}

/// Reads on, for closing with something unread takes the answer back.
fn greet(stream: &mut TcpStream, text: &str) {
    say(stream, text);
    quiet(stream);
}

const VERBS: [&[&str]; 6] = [
    &["diagnose"],
    &["tcp", "--time", "0.2"],
    &["udp", "--time", "0.2"],
    &["sweep", "--time", "0.1"],
    &["transact", "--time", "0.2"],
    &["iperf3", "--time", "1"],
];

fn command(words: &[&str], port: &str) -> Vec<String> {
    let (verb, more) = words.split_first().unwrap();
    let head = [*verb, "127.0.0.1", "--port", port, "--json"];
    let words = head.iter().chain(more);
    words.map(|word| (*word).to_owned()).collect()
}

pub(crate) fn run(words: &[&str], port: &str) -> Output {
    let words = command(words, port);
    probe(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Error code and exit code of a document that fits its schema.
pub(crate) fn outcome(document: &Value) -> (String, u64) {
    let code = document["error"]["code"].as_str().unwrap_or("none");
    (code.to_owned(), document["exit_code"].as_u64().unwrap())
}

#[test]
fn every_verb_names_a_server_that_never_behaves() {
    let cases: [(Manners, &str, u64); 4] = [
        (quiet, "silent", 6),
        (|_| {}, "lost", 6),
        (endless, "protocol", 5),
        (banner, "protocol", 5),
    ];
    thread::scope(|scope| {
        for (manners, code, exit_code) in cases {
            let port = odd_server(manners);
            for verb in VERBS {
                let port = port.clone();
                scope.spawn(move || {
                    let seen = outcome(&report(&run(verb, &port)));
                    assert_eq!(seen, (code.to_owned(), exit_code), "{verb:?}");
                });
            }
        }
    });
}

#[test]
fn greetings_that_are_wrong_are_named() {
    let cases: [(Manners, &str, u64); 6] = [
        (trickle, "silent", 6),
        (|stream| greet(stream, "{}"), "protocol", 5),
        (|stream| greet(stream, "{\"answer\":\"go\"}"), "protocol", 5),
        (
            |stream| {
                greet(
                    stream,
                    "{\"answer\":\"welcome\",\"version\":\"1\",\"token\":7}",
                )
            },
            "protocol",
            5,
        ),
        (|stream| greet(stream, &"[".repeat(1 << 20)), "protocol", 5),
        (
            |stream| greet(stream, "{\"answer\":\"refused\",\"why\":\"\\u001b[2Jno\"}"),
            "refused",
            4,
        ),
    ];
    for (manners, code, exit_code) in cases {
        let output = run(&["tcp"], &odd_server(manners));
        assert_eq!(outcome(&report(&output)), (code.to_owned(), exit_code));
        assert!(!output.stderr.contains(&0x1b) && !output.stderr.is_empty());
    }
}

#[test]
fn the_first_run_of_a_campaign_ends_it_with_the_servers_code() {
    let folder = crate::campaigns::Folder::new("odd");
    for (nth, (manners, code, exit_code)) in [
        (endless as Manners, "protocol", 5),
        (|_: &mut TcpStream| {}, "lost", 6),
    ]
    .into_iter()
    .enumerate()
    {
        let file = folder.file() + &nth.to_string();
        let words = ["campaign", "--runs", "9", "--for", "30ms", "--file", &file];
        let seen = document(&run(&words, &odd_server(manners)), CAMPAIGN);
        assert_eq!(outcome(&seen), (code.to_owned(), exit_code));
        assert_eq!(seen["runs_done"], 1);
    }
}

#[test]
fn a_campaign_whose_first_run_brings_nothing_ends_as_with_a_silent_server() {
    let (folder, server) = (crate::campaigns::Folder::new("nothing"), Server::start());
    let port = between(&server, |n, text| match n {
        0..RESULT => Deed::Pass(text),
        _ => changed(&text, &json!(0)),
    });
    let file = folder.file();
    let words = ["campaign", "--runs", "9", "--for", "30ms", "--file", &file];
    let seen = document(&run(&words, &port), CAMPAIGN);
    assert_eq!(outcome(&seen), ("silent".to_owned(), 6));
}

fn start(port: &str) -> Child {
    start_verb(&["tcp"], port)
}

pub(crate) fn start_verb(words: &[&str], port: &str) -> Child {
    Command::new(FARHAUL)
        .arg("probe")
        .args(command(words, port))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_signal_ends_the_wait_for_a_silent_server() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let child = start(&listener.local_addr().unwrap().port().to_string());
        // It listens to signals before it connects.
        let (_stream, _) = listener.accept().unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let seen = document(&ended(child), REPORT);
        assert_eq!(outcome(&seen), ("interrupted".to_owned(), 7), "{signal:?}");
    }
}

/// Until a program has taken SIGINT into its own hands.
fn until_it_hears(child: &Child) {
    let hears = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        u64::from_str_radix(caught.unwrap().trim(), 16).unwrap() & 0b10 != 0
    };
    while !hears() {
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_signal_ends_every_verbs_test() {
    let server = Server::start();
    let verbs: [&[&str]; 5] = [
        &["udp", "--time", "60"],
        &["udp", "--time", "60", "--way", "down"],
        &["sweep", "--time", "60"],
        &["transact", "--time", "60"],
        &["iperf3", "--time", "60", "--way", "both"],
    ];
    thread::scope(|scope| {
        for verb in verbs {
            let port = server.port.clone();
            scope.spawn(move || {
                let child = start_verb(verb, &port);
                until_it_hears(&child);
                thread::sleep(Duration::from_secs(2));
                kill_process(Pid::from_child(&child), Signal::INT).unwrap();
                let seen = document(&ended(child), REPORT);
                assert_eq!(outcome(&seen), ("interrupted".to_owned(), 7), "{verb:?}");
            });
        }
    });
}

/// What is done with an answer of the server, by its number: 0 is the welcome,
/// 1 to 8 are clock readings, then come `ready`, `go`, and the result.
pub(crate) type Harm = fn(u32, String) -> Deed;

pub(crate) enum Deed {
    Pass(String),
    /// And one more answer, which the server never gave.
    And(String, &'static str),
    Raw(Vec<u8>),
    Close,
    Stall,
    Endless,
}

const GO: u32 = 10;
pub(crate) const RESULT: u32 = 11;

/// Stands before a real server, and does harm to what it answers on the first
/// connection.
pub(crate) fn between(server: &Server, harm: Harm) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = format!("127.0.0.1:{}", server.port);
    thread::spawn(move || {
        for (nth, near) in listener.incoming().enumerate() {
            let near = near.unwrap();
            let Ok(far) = TcpStream::connect(&server) else {
                return;
            };
            let (up, back) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || copy(up, back));
            match nth {
                0 => thread::spawn(move || answers(far, near, harm)),
                _ => thread::spawn(move || copy(far, near)),
            };
        }
    });
    port
}

pub(crate) fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

fn answers(mut far: TcpStream, mut near: TcpStream, harm: Harm) {
    for number in 0.. {
        let mut length = [0; 4];
        if far.read_exact(&mut length).is_err() {
            break;
        }
        let mut text = vec![0; u32::from_be_bytes(length) as usize];
        if far.read_exact(&mut text).is_err() {
            break;
        }
        match harm(number, String::from_utf8(text).unwrap()) {
            Deed::Pass(text) => say(&mut near, &text),
            Deed::And(text, more) => {
                say(&mut near, &text);
                say(&mut near, more);
            }
            Deed::Raw(bytes) => drop(near.write_all(&bytes)),
            Deed::Close => break,
            Deed::Stall => return quiet(&mut far),
            Deed::Endless => return endless(&mut near),
        }
    }
    let _ = near.shutdown(Shutdown::Both);
}

pub(crate) fn only(number: u32, at: u32, text: String, deed: Deed) -> Deed {
    match number == at {
        true => deed,
        false => Deed::Pass(text),
    }
}

#[test]
fn a_server_that_turns_bad_in_the_middle_is_named() {
    let cases: [(Harm, &str, u64); 9] = [
        (|n, text| only(n, 4, text, Deed::Close), "lost", 6),
        (|n, text| only(n, GO, text, Deed::Close), "lost", 6),
        (|n, text| only(n, RESULT, text, Deed::Close), "lost", 6),
        (|n, text| only(n, GO, text, Deed::Stall), "silent", 6),
        (|n, text| only(n, RESULT, text, Deed::Stall), "silent", 6),
        (
            |n, text| only(n, RESULT, text, Deed::Endless),
            "protocol",
            5,
        ),
        (
            |n, text| only(n, RESULT, text, Deed::Raw(vec![0xff; 4])),
            "protocol",
            5,
        ),
        (
            |n, text| {
                let odd = "{\"answer\":\"tcp_done\",\"streams\":{},\"other_sessions\":\"many\"}";
                only(n, RESULT, text, Deed::Pass(odd.to_owned()))
            },
            "protocol",
            5,
        ),
        (
            |n, text| {
                let no = "{\"answer\":\"refused\",\"why\":\"enough\"}";
                only(n, GO, text, Deed::Pass(no.to_owned()))
            },
            "refused",
            4,
        ),
    ];
    let server = Server::start();
    thread::scope(|scope| {
        for (nth, (harm, code, exit_code)) in cases.into_iter().enumerate() {
            let port = between(&server, harm);
            scope.spawn(move || {
                let seen = report(&run(&["tcp", "--time", "0.2"], &port));
                assert_eq!(outcome(&seen), (code.to_owned(), exit_code), "{nth}");
            });
        }
    });
}

#[test]
fn a_signal_also_ends_a_test_whose_server_said_too_early_that_it_is_over() {
    const TCP: &str = "{\"answer\":\"tcp_done\",\"streams\":[],\"other_sessions\":0}";
    const UDP: &str =
        "{\"answer\":\"datagrams_done\",\"sent\":0,\"count\":null,\"other_sessions\":0}";
    let cases: [(&[&str], Harm); 3] = [
        (&["tcp", "--time", "300"], |n, text| match n {
            GO => Deed::And(text, TCP),
            _ => Deed::Pass(text),
        }),
        (&["udp", "--time", "300"], |n, text| match n {
            GO => Deed::And(text, UDP),
            _ => Deed::Pass(text),
        }),
        (
            &["udp", "--time", "300", "--way", "down"],
            |n, text| match n {
                GO => Deed::And(text, UDP),
                _ => Deed::Pass(text),
            },
        ),
    ];
    let server = Server::start();
    thread::scope(|scope| {
        for (words, harm) in cases {
            let port = between(&server, harm);
            scope.spawn(move || {
                let child = start_verb(words, &port);
                until_it_hears(&child);
                thread::sleep(Duration::from_secs(2));
                kill_process(Pid::from_child(&child), Signal::INT).unwrap();
                let seen = document(&ended(child), REPORT);
                assert_eq!(outcome(&seen), ("interrupted".to_owned(), 7), "{words:?}");
            });
        }
    });
}

#[test]
fn a_full_standard_error_changes_no_exit_code() {
    let deaf = Deaf::new();
    for words in [&["diagnose"][..], &["tcp"], &["campaign", "--runs", "1"]] {
        let folder = crate::campaigns::Folder::new("full");
        let mut asked = command(words, &deaf.port);
        if words[0] == "campaign" {
            asked.extend(["--file".to_owned(), folder.file()]);
        }
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let status = Command::new(FARHAUL)
            .arg("probe")
            .args(asked)
            .stdout(Stdio::null())
            .stderr(full.unwrap())
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(3), "{words:?}");
    }
}

/// Every number of a document becomes another one, as far as it fits.
fn with_numbers(value: &mut Value, number: &Value) {
    match value {
        Value::Number(old) if old.is_f64() || number.is_u64() => *value = number.clone(),
        Value::Array(items) => items.iter_mut().for_each(|item| with_numbers(item, number)),
        Value::Object(fields) => {
            // What belongs to the plan is checked, and ends it at once.
            let is_plan = |name: &str| ["connection", "token", "echo_port", "port"].contains(&name);
            let fields = fields.iter_mut().filter(|(name, _)| !is_plan(name));
            fields.for_each(|(_, field)| with_numbers(field, number));
        }
        _ => {}
    }
}

fn changed(text: &str, number: &Value) -> Deed {
    let mut answer: Value = serde_json::from_str(text).unwrap();
    with_numbers(&mut answer, number);
    Deed::Pass(answer.to_string())
}

#[test]
fn figures_that_cannot_be_give_a_document_all_the_same() {
    let harms: [Harm; 6] = [
        |n, text| match n {
            0..RESULT => Deed::Pass(text),
            _ => changed(&text, &json!(u64::MAX)),
        },
        |n, text| match n {
            0..RESULT => Deed::Pass(text),
            _ => changed(&text, &json!(u32::MAX)),
        },
        |n, text| match n {
            0..RESULT => Deed::Pass(text),
            _ => changed(&text, &json!(0)),
        },
        |n, text| match n {
            0..RESULT => Deed::Pass(text),
            _ => changed(&text, &json!(1e308)),
        },
        |n, text| match n {
            0..RESULT => Deed::Pass(text),
            _ => changed(&text, &json!(-1e308)),
        },
        // A clock that stands still, or is at its end.
        |n, text| match n {
            1..9 => changed(&text, &json!(u64::MAX)),
            _ => Deed::Pass(text),
        },
    ];
    let server = Server::start();
    thread::scope(|scope| {
        for (nth, harm) in harms.into_iter().enumerate() {
            for verb in [
                &["tcp", "--time", "0.2", "--way", "down"][..],
                &["udp", "--time", "0.2", "--way", "down"],
                &["sweep", "--time", "0.1", "--most", "8k"],
            ] {
                let port = between(&server, harm);
                scope.spawn(move || {
                    let (code, exit_code) = outcome(&report(&run(verb, &port)));
                    let is_known = ["none", "protocol"].contains(&code.as_str());
                    assert!(is_known, "{nth} {verb:?}: {code}, {exit_code}");
                });
            }
        }
    });
}

#[test]
fn figures_that_cannot_be_are_judged_without_harm() {
    let harms: [Harm; 3] = [
        |n, text| match n {
            0..RESULT => Deed::Pass(text),
            _ => changed(&text, &json!(u64::MAX)),
        },
        |n, text| match n {
            0..RESULT => Deed::Pass(text),
            _ => changed(&text, &json!(u32::MAX)),
        },
        |n, text| match n {
            0..RESULT => Deed::Pass(text),
            _ => changed(&text, &json!(0)),
        },
    ];
    let server = Server::start();
    thread::scope(|scope| {
        for (nth, harm) in harms.into_iter().enumerate() {
            let port = between(&server, harm);
            scope.spawn(move || {
                let seen = report(&run(&["diagnose", "--time", "1"], &port));
                assert!(outcome(&seen).1 < 11, "{nth}: {seen}");
            });
        }
    });
}

#[test]
fn a_test_that_is_impossible_has_a_document_and_words() {
    for words in [
        &["tcp", "x", "--streams", "65"][..],
        &["udp", "x", "--rate", "0.001"],
        &["udp", "x", "--rate", "1e9", "--time", "60"],
        &["iperf3", "x", "--time", "0"],
        &["campaign", "x", "--runs", "0"],
        &["campaign", "x", "--runs", "2", "--udp", "--streams", "2"],
        &["report", "/dev"],
    ] {
        let output = probe(&[words, &["--json"]].concat());
        let seen = report(&output);
        assert_eq!(outcome(&seen), ("usage".to_owned(), 2), "{words:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let text = seen["error"]["text"].as_str().unwrap();
        assert!(said.contains(text), "{words:?}: {said}");
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused_before_anything_is_sent() {
    for words in [
        &["tcp", "x", "--time", "0"][..],
        &["tcp", "x", "--time", "-1"],
        &["tcp", "x", "--time", "1e9"],
        &["tcp", "x", "--window", "8g"],
        &["tcp", "x", "--dscp", "64"],
        &["tcp", "x", "--port", "65536"],
        &["udp", "x", "--time", "0"],
        &["udp", "x", "--rate", "0"],
        &["udp", "x", "--rate", "0.001"],
        &["udp", "x", "--rate", "5,1e-300"],
        &["iperf3", "x", "--udp", "--rate", "1e-300"],
        &["udp", "x", "--rate", "5,0"],
        &["udp", "x", "--rate", "5,,9"],
        &["tcp", "x", "--streams", "1,65"],
        &["tcp", "x", "--streams", "1,two"],
        &["udp", "x", "--rate", "inf"],
        &["udp", "x", "--rate", "1e9", "--time", "60"],
        &["sweep", "x", "--time", "0"],
        &["sweep", "x", "--most", "4k"],
        &["sweep", "x", "--most", "3g"],
        &["sweep", "x", "--most", "2047m"],
        &["transact", "x", "--time", "0"],
        &["iperf3", "x", "--time", "0"],
        &["iperf3", "x", "--streams", "0"],
        &["iperf3", "x", "--udp", "--mss", "1000"],
        &["iperf3", "x", "--udp", "--payload", "70000"],
        &["iperf3", "x", "--udp", "--payload", "0"],
        &["iperf3", "x", "--payload", "0"],
        &["iperf3", "x", "--mss", "1"],
        &["iperf3", "x", "--mss", "20000"],
        &["iperf3", "x", "--window", "0"],
        &["iperf3", "x", "--window", "600m"],
        &["diagnose", "x", "--time", "0"],
        &["diagnose", "x", "--time", "0.5"],
        &["serve", "--window", "1"],
        &["serve", "--clients", "0"],
        &["serve", "--udp-ports", "5202"],
        &["serve", "--udp-ports", "5202-5202"],
        &["serve", "--udp-ports", "5200-5210"],
        &["serve", "--udp-ports", "5000-5010", "--iperf2"],
        &["serve", "--port", "5001", "--iperf2", "5001"],
        &["peer", "--beside", "--rate", "1"],
        &["peer", "--port", "1"],
    ] {
        let output = probe(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(
            !said.is_empty() && !said.contains("panicked"),
            "{words:?}: {said}"
        );
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn a_server_that_cannot_listen_says_why() {
    let server = Server::start();
    for (words, why) in [
        (
            &["--listen", "127.0.0.1", "--port", server.port.as_str()][..],
            "in use",
        ),
        // An address of nobody's (RFC 5737).
        (&["--listen", "192.0.2.1", "--port", "0"], "192.0.2.1"),
        (
            &[
                "--listen",
                "127.0.0.1",
                "--port",
                "0",
                "--iperf2",
                server.port.as_str(),
            ],
            "in use",
        ),
    ] {
        let output = probe(&[&["serve"][..], words].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
}

#[test]
fn a_client_that_is_killed_leaves_no_thread_of_the_server_at_work() {
    // Each is a minute long, if nobody ended it.
    let verbs: [&[&str]; 7] = [
        &["tcp", "--time", "60"],
        &["udp", "--time", "60"],
        &["udp", "--time", "60", "--way", "down"],
        &["udp", "--time", "60", "--way", "both"],
        &["transact", "--time", "60"],
        &["iperf3", "--time", "60", "--way", "both"],
        &["iperf3", "--udp", "--time", "60", "--way", "both"],
    ];
    thread::scope(|scope| {
        for verb in verbs {
            scope.spawn(move || a_client_is_killed(verb));
        }
    });
}

fn a_client_is_killed(verb: &[&str]) {
    let server = Server::start();
    let mut child = start_verb(verb, &server.port);
    server.wait_for_a_client();
    // In the middle of its test.
    thread::sleep(Duration::from_secs(2));
    child.kill().unwrap();
    child.wait().unwrap();
    let begin = Instant::now();
    while server.at_work() > 0 {
        let waited = begin.elapsed();
        assert!(waited < Duration::from_secs(40), "{verb:?}: still at work");
        thread::sleep(Duration::from_millis(50));
    }
}
