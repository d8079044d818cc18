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
    let empty = farhaul(&["lab", "exec", "client"]);
    assert_eq!(empty.status.code(), Some(2));
}
