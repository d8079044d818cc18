//! The lab with the real program: gateway pairs and `farhaul lab` by hand.
//! Needs root, and fails without.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use farhaul_lab::demo::fetch::{WORKLOADS, fetch};
use farhaul_lab::demo::progress::Progress;
use farhaul_lab::demo::servers;
use farhaul_lab::gateways::GatewayOverrides;
use farhaul_lab::netns::Namespace;
use farhaul_lab::process::ProcessId;
use farhaul_lab::{Lab, LabOptions, Side};

const FARHAUL: &str = env!("CARGO_BIN_EXE_farhaul");

fn name(test: &str) -> String {
    format!("t{}-{test}", std::process::id())
}

fn farhaul(words: &[&str]) -> Output {
    Command::new(FARHAUL).args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Payload the client's gateway received through the tunnel.
fn carried(lab: &Lab) -> u64 {
    let status = lab.gateway_status(Side::A).unwrap();
    status["peers"][0]["payload_received_bytes"]
        .as_u64()
        .unwrap()
}

#[test]
fn the_pair_carries_every_workload_whole() {
    let mut lab = Lab::up(&LabOptions::new(name("pair"), FARHAUL)).unwrap();
    let folders = servers::start(&mut lab).unwrap();
    lab.gateways_up(&GatewayOverrides::default()).unwrap();
    let stop = AtomicBool::new(false);
    for workload in WORKLOADS {
        let before = carried(&lab);
        let outcome = fetch(&lab, &folders, workload, &mut Progress::new(1), &stop).unwrap();
        assert_eq!(
            outcome.error,
            None,
            "{}\n{}",
            workload.key,
            lab.gateway_log_tail(Side::A)
        );
        assert!(outcome.sha256_equal);
        assert!(
            carried(&lab) - before >= workload.size_bytes(),
            "{} did not go through the tunnel",
            workload.key
        );
    }
    lab.gateways_down().unwrap();
    // Without gateways the routers are routers again.
    let direct = fetch(&lab, &folders, &WORKLOADS[0], &mut Progress::new(1), &stop).unwrap();
    assert_eq!(direct.error, None);
    lab.down().unwrap();
}

/// Round-trip time of the best of some pings, in milliseconds.
fn round_trip_ms(lab: &Lab, address: &str) -> f64 {
    let ping = ["ping", "-n", "-q", "-c", "5", "-i", "0.05", address];
    let shown = lab.client().unwrap().exec(&ping).unwrap();
    let times = shown.split("min/avg/max/mdev = ").nth(1).unwrap();
    times.split('/').next().unwrap().parse().unwrap()
}

#[test]
fn the_link_is_what_was_asked_for_and_changes_at_once() {
    let options = LabOptions::new(name("link"), FARHAUL).with_link("rate 10mbit delay 30ms");
    let mut lab = Lab::up(&options).unwrap();
    for address in ["10.2.0.2", "fdfa:0:2::2"] {
        let time = round_trip_ms(&lab, address);
        assert!((60.0..80.0).contains(&time), "{time} ms to {address}");
    }
    lab.set_link("rate 10mbit delay 10ms").unwrap();
    let time = round_trip_ms(&lab, "10.2.0.2");
    assert!((20.0..40.0).contains(&time), "{time} ms after the change");
    let stats = lab.link_stats().unwrap();
    assert!(
        stats["forward"]["packets_out"].as_u64().unwrap() >= 15,
        "{stats}"
    );
    let again = Lab::open(lab.sandbox().name(), FARHAUL).unwrap();
    assert_eq!(
        again.sandbox().state().notes["link"],
        "rate 10mbit delay 10ms"
    );
}

#[test]
fn a_link_in_wrong_words_is_refused_and_leaves_nothing() {
    let name = name("words");
    let options = LabOptions::new(&name, FARHAUL).with_link("rate 5 parsecs");
    let error = Lab::up(&options).unwrap_err().to_string();
    assert!(error.contains("parsecs"), "{error}");
    assert!(!Namespace::named(format!("fh-{name}-wan")).exists());
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let name = name("stop");
    let out = std::env::temp_dir().join(&name);
    let demo = Command::new(FARHAUL)
        .args(["lab", "demo", "--name", &name, "--out"])
        .arg(&out)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let client = Namespace::named(format!("fh-{name}-client"));
    let end = Instant::now() + Duration::from_secs(30);
    let is_fetching = || client.processes().is_ok_and(|inside| !inside.is_empty());
    while !client.exists() || !is_fetching() {
        assert!(Instant::now() < end, "the first fetch never began");
        std::thread::sleep(Duration::from_millis(20));
    }
    let process = ProcessId::of(demo.id().cast_signed()).unwrap();
    process.signal(rustix::process::Signal::INT).unwrap();
    let output = demo.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.ends_with("farhaul: interrupted\n"), "{said}");
    assert!(!client.exists());
    assert!(Lab::open(&name, FARHAUL).is_err());
    assert!(!out.exists(), "no result of a run that was not finished");
}

#[test]
fn a_killed_gateway_comes_back_by_restart() {
    let mut lab = Lab::up(&LabOptions::new(name("restart"), FARHAUL)).unwrap();
    let overrides =
        GatewayOverrides::both("[tunnel]\ndead_after = '1s'\nkeep_alive = '200ms'").unwrap();
    lab.gateways_up(&overrides).unwrap();
    lab.gateway_kill(Side::B, rustix::process::Signal::KILL)
        .unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while lab.gateway_status(Side::A).unwrap()["peers"][0]["state"] == "up" {
        assert!(
            Instant::now() < end,
            "the death of the peer was not noticed"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        lab.gateway_kill(Side::B, rustix::process::Signal::TERM)
            .is_err()
    );
    lab.gateway_restart(Side::B).unwrap();
    lab.wait_peers_up().unwrap();
    lab.down().unwrap();
}

#[test]
fn a_gateway_that_cannot_start_says_why_and_leaves_nothing() {
    let name = name("refused");
    let mut lab = Lab::up(&LabOptions::new(&name, FARHAUL)).unwrap();
    let overrides = GatewayOverrides::sides("[intercept]\ninterfaces = ['nosuch0']", "").unwrap();
    let error = lab.gateways_up(&overrides).unwrap_err().to_string();
    assert!(
        error.contains("gateway a") && error.contains("nosuch0"),
        "{error}"
    );
    drop(lab);
    assert!(!Namespace::named(format!("fh-{name}-gwa")).exists());
}

#[test]
fn a_lab_by_hand() {
    let name = name("hand");
    let up = farhaul(&["lab", "up", "--no-link", "--gateways", "--name", &name]);
    assert!(up.status.success(), "{}", text(&up.stderr));
    assert!(text(&up.stdout).contains(&format!("farhaul lab exec --name {name} client -- ")));

    let again = farhaul(&["lab", "up", "--no-link", "--name", &name]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        text(&again.stderr).contains("already up"),
        "{}",
        text(&again.stderr)
    );

    assert!(
        text(&farhaul(&["lab", "list"]).stdout)
            .lines()
            .any(|line| line == name)
    );
    let ping = [
        "lab", "exec", "--name", &name, "client", "--", "ping", "-c", "1", "-W", "2", "10.2.0.2",
    ];
    assert!(farhaul(&ping).status.success());
    let failing = farhaul(&[
        "lab", "exec", "--name", &name, "server", "--", "sh", "-c", "exit 7",
    ]);
    assert_eq!(failing.status.code(), Some(7), "the program's own status");

    let status = farhaul(&["lab", "status", "--json", "--name", &name]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["namespaces"].as_array().unwrap().len(), 5);
    let processes = status["processes"].as_array().unwrap().clone();
    assert_eq!(processes.len(), 2);
    assert!(
        processes.iter().all(|process| process["alive"] == true),
        "{processes:?}"
    );

    let down = farhaul(&["lab", "down", "--name", &name]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    for process in &processes {
        let pid = i32::try_from(process["pid"].as_i64().unwrap()).unwrap();
        // Its parent is init now, which may be slow to collect it.
        let is_alive = ProcessId::of(pid).is_some_and(ProcessId::is_alive);
        assert!(!is_alive, "{process} still runs");
    }
    assert!(!text(&farhaul(&["lab", "list"]).stdout).contains(&name));
    let missing = farhaul(&["lab", "status", "--name", &name]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        text(&missing.stderr).contains("there is no lab"),
        "{}",
        text(&missing.stderr)
    );
}

#[test]
fn wrong_use_is_refused_in_words() {
    let bad = farhaul(&["lab", "up", "--no-link", "--name", "../etc"]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(
        text(&bad.stderr).contains("cannot be a lab name"),
        "{}",
        text(&bad.stderr)
    );
    let negative = farhaul(&["lab", "up", "--link", "loss -1%"]);
    assert_eq!(negative.status.code(), Some(2));
    assert!(
        text(&negative.stderr).contains("`-1%`: a negative value"),
        "{}",
        text(&negative.stderr)
    );
    let unknown = farhaul(&[
        "lab",
        "up",
        "--no-link",
        "--name",
        "unbuilt",
        "--congestion-control",
        "nope",
    ]);
    assert!(!unknown.status.success());
    assert!(
        text(&unknown.stderr).contains("congestion control `nope`: this kernel has none"),
        "{}",
        text(&unknown.stderr)
    );
    let empty = farhaul(&["lab", "exec", "client"]);
    assert_eq!(empty.status.code(), Some(2));
}
