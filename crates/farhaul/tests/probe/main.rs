//! `farhaul probe` as a program: documents that fit the published schema
//! whatever happens, exit codes of the table, nothing left running.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod campaigns;
mod clocks;
mod cut_streams;
mod half_done;
mod odd_ends;
mod schema;
mod serve_ends;
mod watch;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use schema::{fits, schema, schema_path};
use serde_json::Value;

const FARHAUL: &str = env!("CARGO_BIN_EXE_farhaul");

const REPORT: &str = "probe-report";
const CAMPAIGN: &str = "probe-campaign";
const LINE: &str = "probe-campaign-line";
const PEER: &str = "probe-peer";

fn probe(words: &[&str]) -> Output {
    Command::new(FARHAUL)
        .arg("probe")
        .args(words)
        .output()
        .unwrap()
}

/// A server on a port of its own; ended when dropped.
struct Server {
    child: Child,
    port: String,
}

impl Server {
    fn start() -> Self {
        Self::for_clients("32")
    }

    fn for_clients(most: &str) -> Self {
        Self::at("0", most)
    }

    fn at(port: &str, most: &str) -> Self {
        let mut child = Command::new(FARHAUL)
            .args(["probe", "serve", "--listen", "127.0.0.1"])
            .args(["--port", port, "--clients", most])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().unwrap().to_owned();
        assert!(port.parse::<u16>().is_ok(), "{line}");
        Self { child, port }
    }
}

impl Server {
    /// Threads that serve a client.
    fn at_work(&self) -> usize {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let names = tasks.flat_map(|task| fs::read_to_string(task.unwrap().path().join("comm")));
        names.filter(|name| name.trim() == "probe-client").count()
    }

    fn wait_for_a_client(&self) {
        let begin = Instant::now();
        while self.at_work() == 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "nobody came");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A port that nobody listens on and nobody else can take meanwhile: that of a
/// connection.
struct Deaf {
    port: String,
    _ends: (TcpListener, TcpStream),
}

impl Deaf {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Self {
            port: stream.local_addr().unwrap().port().to_string(),
            _ends: (listener, stream),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The report of a command, held against the schema, with its exit code.
fn report(output: &Output) -> Value {
    document(output, REPORT)
}

fn document(output: &Output, name: &str) -> Value {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
    });
    let schema = schema(name);
    if let Err(problem) = fits(&report, &schema, &schema, "report") {
        panic!("{problem}");
    }
    assert_eq!(report["exit_code"], output.status.code().unwrap());
    report
}

#[test]
fn the_published_schemas_are_the_programs() {
    for (word, name) in [
        ("report", REPORT),
        ("campaign", CAMPAIGN),
        ("line", LINE),
        ("peer", PEER),
    ] {
        let output = probe(&["schema", word]);
        assert!(output.status.success());
        let published = fs::read_to_string(schema_path(name)).unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            published,
            "write it anew: farhaul probe schema {word} > docs/reference/{name}.schema.json"
        );
    }
}

#[test]
fn single_tests_give_documents_that_fit_the_schema() {
    let server = Server::start();
    let port = server.port.as_str();
    let report_of = |words: &[&str]| {
        report(&probe(
            &[words, &["127.0.0.1", "--port", port, "--json"]].concat(),
        ))
    };
    let tcp = report_of(&["tcp", "--time", "0.3", "--way", "both", "--streams", "2"]);
    assert!(
        tcp["observations"]["tcp"][0]["down"]["mean_bit_per_s"]
            .as_f64()
            .unwrap()
            > 1e6
    );
    assert!(tcp["error"].is_null() && tcp["verdict"].is_null());
    let udp = report_of(&["udp", "--time", "0.3", "--rate", "2"]);
    assert!(
        udp["observations"]["flows"][0]["up"]["sent"]
            .as_u64()
            .unwrap()
            > 10
    );
    let steps = report_of(&["udp", "--time", "0.2", "--rate", "0.5,1,2", "--way", "both"]);
    let flows = steps["observations"]["flows"].as_array().unwrap();
    let gaps = flows
        .iter()
        .map(|flow| flow["plan"]["gap_ns"].as_u64().unwrap());
    let gaps: Vec<_> = gaps.collect();
    assert!(
        gaps.len() == 3 && gaps.is_sorted_by(|one, next| one > next),
        "{gaps:?}"
    );
    let steps = report_of(&["tcp", "--time", "0.2", "--streams", "1,3", "--way", "down"]);
    let tests = steps["observations"]["tcp"].as_array().unwrap();
    let streams = tests
        .iter()
        .map(|test| test["down"]["streams"].as_array().unwrap().len());
    assert_eq!(streams.collect::<Vec<_>>(), [1, 3]);
    let transact = report_of(&["transact", "--time", "0.2"]);
    let made = &transact["observations"]["transactions"];
    assert!(made["on_new_connections"].as_u64().unwrap() >= 1, "{made}");
    let sweep = report_of(&["sweep", "--time", "0.1", "--most", "16k"]);
    assert_eq!(sweep["observations"]["sweep"].as_array().unwrap().len(), 3);
    let sweep = report_of(&["sweep", "--way", "both", "--time", "0.2", "--most", "8k"]);
    let steps = sweep["observations"]["sweep"].as_array().unwrap();
    let ways: Vec<_> = steps
        .iter()
        .map(|step| step["direction"].as_str())
        .collect();
    assert_eq!(ways, ["up", "down", "up", "down"].map(Some), "{sweep}");
    let limited = steps.iter().filter(|step| !step["window_bytes"].is_null());
    let is_kept = |step: &Value| step["advertised_bytes"].as_u64() <= step["window_bytes"].as_u64();
    assert!(
        limited.clone().count() == 2 && limited.clone().all(is_kept),
        "{sweep}"
    );
    // As far as twice what the way holds, whatever that is here.
    let sweep = report_of(&["sweep", "--time", "0.1"]);
    let steps = sweep["observations"]["sweep"].as_array().unwrap();
    let (unlimited, windows) = steps.split_last().unwrap();
    assert!(unlimited["window_bytes"].is_null(), "{unlimited}");
    let windows = windows
        .iter()
        .map(|step| step["window_bytes"].as_u64().unwrap());
    let doublings = (13..).map(|power| 1_u64 << power).take(windows.len());
    assert!(windows.len() >= 1 && windows.eq(doublings), "{sweep}");
}

#[test]
fn whole_examinations_and_iperf3s_tests_fit_the_schema() {
    let server = Server::start();
    let far = ["127.0.0.1", "--port", &server.port, "--json", "--time", "1"];
    let iperf3 = report(&probe(
        &[&["iperf3"][..], &far, &["--way", "both"]].concat(),
    ));
    let down = &iperf3["observations"]["iperf3"]["down"];
    assert!(down["received_bit_per_s"].as_f64().unwrap() > 1e6, "{down}");
    let whole = report(&probe(&[&["diagnose"][..], &far].concat()));
    // A busy machine may be called one.
    let exit_code = whole["exit_code"].as_u64().unwrap();
    assert!([0, 10].contains(&exit_code), "{}", whole["error"]);
    assert!(whole["verdict"]["sentence"].is_string());
    assert!(whole["link_profile"].is_string());
}

#[test]
fn failures_have_their_codes_and_documents() {
    let deaf = Deaf::new();
    let refused = probe(&["diagnose", "127.0.0.1", "--port", &deaf.port, "--json"]);
    assert_eq!(report(&refused)["error"]["code"], "unreachable");
    let unknown = probe(&["tcp", "no-such-host.invalid", "--json"]);
    assert_eq!(report(&unknown)["error"]["code"], "unknown-host");
    let server = Server::start();
    let odd = [
        "tcp",
        "127.0.0.1",
        "--port",
        &server.port,
        "--json",
        "--way",
        "down",
        "--congestion-control",
        "none",
    ];
    assert_eq!(report(&probe(&odd))["error"]["code"], "refused");
    for words in [
        &["tcp", "x", "--time", "0"][..],
        &["tcp", "x", "--time", "NaN"],
        &["tcp", "x", "--streams", "0"],
        &["tcp", "x", "--window", "1"],
        &["udp", "x", "--payload", "1"],
        &["udp", "x", "--rate", "-1"],
        &["diagnose"],
    ] {
        let output = probe(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(!output.stderr.is_empty());
    }
    let taken = probe(&["serve", "--listen", "127.0.0.1", "--port", &server.port]);
    assert_eq!(taken.status.code(), Some(1));
}

#[test]
fn without_a_gateway_the_circuit_to_a_peer_has_a_document_all_the_same() {
    let nowhere = ["--json", "--socket", "/nonesuch/gateway.sock"];
    let through = probe(&[&["peer", "hq"], &nowhere[..]].concat());
    let through = document(&through, PEER);
    assert_eq!(through["error"]["code"], "unreachable");
    assert_eq!(
        (&through["peer"], &through["exit_code"]),
        (&"hq".into(), &1.into())
    );
    let unread = probe(&["peer", "--json", "--config", "/nonesuch/farhaul.toml"]);
    assert_eq!(document(&unread, PEER)["error"]["code"], "local");
    let beside = report(&probe(&[&["peer", "--beside"], &nowhere[..]].concat()));
    assert_eq!(
        (&beside["error"]["code"], &beside["exit_code"]),
        (&"local".into(), &1.into())
    );
}

fn start(server: &Server) -> Child {
    let words = [
        "probe",
        "diagnose",
        "127.0.0.1",
        "--port",
        &server.port,
        "--json",
        "--time",
        "60",
    ];
    Command::new(FARHAUL)
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The document of a client that has to end by itself.
fn ended(mut child: Child) -> Output {
    let mut stdout = Vec::new();
    let begin = Instant::now();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut stdout)
        .unwrap();
    let status = child.wait().unwrap();
    assert!(
        begin.elapsed() < Duration::from_secs(60),
        "it took {:?}",
        begin.elapsed()
    );
    Output {
        status,
        stdout,
        stderr: Vec::new(),
    }
}

#[test]
fn an_interrupted_test_ends_with_a_document() {
    let server = Server::start();
    let child = start(&server);
    server.wait_for_a_client();
    std::thread::sleep(Duration::from_millis(1500));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(report(&ended(child))["error"]["code"], "interrupted");
}

#[test]
fn a_server_that_dies_in_the_middle_is_a_lost_one() {
    let server = Server::start();
    let child = start(&server);
    server.wait_for_a_client();
    std::thread::sleep(Duration::from_millis(1500));
    drop(server);
    assert_eq!(report(&ended(child))["error"]["code"], "lost");
}

#[test]
fn a_client_that_is_killed_makes_room_for_the_next() {
    let server = Server::for_clients("1");
    let mut child = start(&server);
    server.wait_for_a_client();
    std::thread::sleep(Duration::from_millis(1500));
    child.kill().unwrap();
    child.wait().unwrap();
    let words = [
        "tcp",
        "127.0.0.1",
        "--port",
        &server.port,
        "--time",
        "0.1",
        "--json",
    ];
    let begin = Instant::now();
    while !probe(&words).status.success() {
        assert!(begin.elapsed() < Duration::from_secs(30), "still served");
        std::thread::sleep(Duration::from_millis(100));
    }
}
