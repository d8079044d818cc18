//! The demo's servers and clients on a plain bridge: no emulator, no gateways.
//! Needs root, nginx, smbd, curl and smbclient, and fails without.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use farhaul_lab::demo::fetch::{Client, WORKLOADS, fetch};
use farhaul_lab::demo::progress::Progress;
use farhaul_lab::demo::servers;
use farhaul_lab::{Lab, LabError, LabOptions};

fn up(test: &str) -> Lab {
    let name = format!("t{}-{test}", std::process::id());
    Lab::up(&LabOptions::new(name, "/nonexistent/farhaul")).unwrap()
}

#[test]
fn every_workload_arrives_whole() {
    let mut lab = up("fetch");
    let folders = servers::start(&mut lab).unwrap();
    let processes: Vec<_> = lab
        .sandbox()
        .state()
        .processes
        .iter()
        .map(|record| record.process)
        .collect();
    let stop = AtomicBool::new(false);
    for workload in WORKLOADS {
        let outcome = fetch(&lab, &folders, workload, &mut Progress::new(1), &stop).unwrap();
        assert_eq!(outcome.error, None, "{}", workload.key);
        assert!(outcome.sha256_equal);
        assert!(outcome.seconds > 0.0 && outcome.seconds < 30.0);
        assert_eq!(
            std::fs::read_dir(&folders.fetched).unwrap().count(),
            workload.files
        );
        if workload.client == Client::CurlParallel {
            let connections = outcome.connections.unwrap();
            assert!(
                (2..=6).contains(&connections),
                "a browser opens up to 6, here {connections}"
            );
        }
    }
    // The servers' children (nginx's worker, smbd's sessions) must end as well.
    let server = lab.server().unwrap();
    assert!(server.processes().unwrap().len() > processes.len());
    lab.down().unwrap();
    assert!(processes.iter().all(|process| !process.is_alive()));
}

#[test]
fn a_fetch_that_cannot_work_is_an_outcome_with_a_reason() {
    let mut lab = up("broken");
    let folders = servers::start(&mut lab).unwrap();
    lab.server().unwrap().ip("link set eth0 down").unwrap();
    lab.gateway(farhaul_lab::Side::B)
        .unwrap()
        .ip("link set wan0 down")
        .unwrap();
    let stop = AtomicBool::new(false);
    let mut workload = WORKLOADS[0];
    workload.patience = Duration::from_millis(300);
    let outcome = fetch(&lab, &folders, &workload, &mut Progress::new(1), &stop).unwrap();
    let error = outcome.error.unwrap();
    assert!(
        error.contains("not done after") || error.contains("the client failed"),
        "{error}"
    );
    assert!(!outcome.sha256_equal);
}

#[test]
fn a_fetch_is_ended_at_once_when_asked() {
    let mut lab = up("stop");
    let folders = servers::start(&mut lab).unwrap();
    lab.client().unwrap().ip("link set eth0 down").unwrap();
    let stop = AtomicBool::new(true);
    let start = Instant::now();
    let outcome = fetch(&lab, &folders, &WORKLOADS[0], &mut Progress::new(1), &stop);
    assert!(matches!(outcome, Err(LabError::Interrupted)), "{outcome:?}");
    // The client would wait for minutes.
    assert!(start.elapsed() < Duration::from_secs(20));
}
