//! The path to a peer, measured through the tunnel and beside it.

use std::process::{Command, Stdio};

use farhaul_lab::Side;
use farhaul_link::LinkProfile;
use serde_json::Value;

use crate::apps::{Service, assert_echo, echo};
use crate::schema::{fits, schema};
use crate::start_up::Running;
use crate::world::{FARHAUL, World, until, v4};

/// A document, held against its published schema.
fn json(text: &[u8]) -> Value {
    let report = serde_json::from_slice(text).unwrap();
    let schema = schema("probe-peer");
    fits(&report, &schema, &schema, "report").unwrap();
    report
}

/// Slow enough for two busy cores.
const LINK: &str = "rate 8mbit delay 20ms backward rate 4mbit";

#[test]
fn a_measurement_finds_the_link_and_proposes_what_to_write() {
    let world = World::over(Some(LINK), "measure", "", "");
    let _echo = Service::start(&world.lab.server().unwrap(), 1000, echo);
    let mut user = world.connect(v4(1000));
    assert_echo(&mut user, b"before");
    let doctor = || String::from_utf8(world.ask(Side::A, "doctor --json").stdout).unwrap();
    assert!(doctor().contains("farhaul probe peer"), "{}", doctor());
    let measuring = std::thread::scope(|scope| {
        let measuring = scope.spawn(|| world.ask(Side::A, "probe peer --time 6 --json"));
        until("it to begin", || flow_of(&world, Side::B).is_some());
        let flow = flow_of(&world, Side::B).unwrap();
        assert_eq!(
            (&flow["class"], &flow["side"]),
            (&"background".into(), &"far".into())
        );
        // One at a time, whoever asks.
        let second = world.ask(Side::A, "probe peer");
        assert_eq!(second.status.code(), Some(1));
        let other_way = world.ask(Side::B, "probe peer");
        assert_eq!(other_way.status.code(), Some(1));
        // A user is served meanwhile.
        assert_echo(&mut user, &[7; 20_000]);
        measuring.join().unwrap()
    });
    let measured = json(&measuring.stdout);
    assert!(measuring.status.success(), "{measured}");
    let found = |way: &str| measured[way]["bit_per_s"].as_f64().unwrap();
    let (there, back) = (found("there"), found("back"));
    assert!((6e6..9e6).contains(&there), "{measured}");
    assert!((3e6..4.5e6).contains(&back), "{measured}");
    assert!(measured["rtt_ms"].as_f64().unwrap() >= 40.0, "{measured}");
    let proposal = measured["proposal"].as_str().unwrap();
    assert!(proposal.contains("backward rate"), "{proposal}");
    let line = format!("link = \\\"{proposal}\\\"");
    assert!(doctor().contains(&line), "{}", doctor());
    // It has to rest now, for as long as that took.
    let again = json(&world.ask(Side::A, "probe peer --time 1 --json").stdout);
    assert!(
        again["end"].as_str().unwrap().contains("try again"),
        "{again}"
    );
    assert!(flow_of(&world, Side::B).is_none(), "nothing of it is left");
    assert_echo(&mut user, b"after");
}

/// The circuit itself, without the tunnel, found by the tester that waits on the peer's machine.
#[test]
fn beside_the_tunnel_the_same_link_is_found() {
    let world = World::over(Some(LINK), "beside", "", "");
    let mut serve = world.gateway(Side::B).command(FARHAUL);
    serve.args(["probe", "serve"]).stderr(Stdio::null());
    let _served = Running(serve.stdout(Stdio::null()).spawn().unwrap());
    let mut probe = world.gateway(Side::A).command(FARHAUL);
    probe.args(["probe", "peer", "--beside", "--json", "--socket"]);
    probe.arg(world.lab.gateway_socket(Side::A));
    let mut ask = || serde_json::from_slice::<Value>(&probe.output().unwrap().stdout).unwrap();
    let mut report = ask();
    until("the server to listen", || {
        let is_early = report["error"]["code"] == "unreachable";
        if is_early {
            report = ask();
        }
        !is_early
    });
    let schema = schema("probe-report");
    fits(&report, &schema, &schema, "report").unwrap();
    assert!(report["error"].is_null(), "{report}");
    let findings = report["verdict"]["findings"].as_array().unwrap();
    let is_asymmetric = |found: &Value| found["fault"] == "asymmetric_rate";
    assert!(findings.iter().any(is_asymmetric), "{}", report["verdict"]);
    let words = report["link_profile"].as_str().unwrap();
    let [real, found] = [LINK, words].map(|words| LinkProfile::parse(words).unwrap());
    for (real, found) in [
        (real.forward, found.forward),
        (real.backward, found.backward),
    ] {
        let [real, found] = [real, found].map(|way| way.rate.unwrap().bit_per_s() as f64);
        assert!((0.8..1.1).contains(&(found / real)), "{words}");
    }
}

fn flow_of(world: &World, side: Side) -> Option<Value> {
    let flows = world.flows(side);
    let list = flows["flows"].as_array().unwrap();
    list.iter()
        .find(|flow| flow["rule"] == "probe peer")
        .cloned()
}

/// What is printed where SIGINT comes in the middle.
fn interrupted(world: &World) -> Value {
    let begin = || {
        Command::new(FARHAUL)
            .args(["probe", "peer", "--time", "20", "--json", "--socket"])
            .arg(world.lab.gateway_socket(Side::A))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    // It rests for as long as the last one took.
    let mut child = begin();
    until("it to begin", || {
        let has_ended = child.try_wait().unwrap().is_some();
        if has_ended {
            child = begin();
        }
        flow_of(world, Side::B).is_some()
    });
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let report = json(&output.stdout);
    assert_eq!(
        (output.status.code(), &report["exit_code"]),
        (Some(7), &7.into())
    );
    report
}

#[test]
fn a_measurement_that_an_operator_or_a_restart_ends_says_so() {
    let mut world = World::over(Some(LINK), "measurecut", "", "");
    let cut = std::thread::scope(|scope| {
        let measuring = scope.spawn(|| world.ask(Side::A, "probe peer --time 20 --json"));
        until("it to begin", || flow_of(&world, Side::A).is_some());
        let flow = flow_of(&world, Side::A).unwrap();
        world.told(Side::A, &format!("reset {}", flow["id"]));
        json(&measuring.join().unwrap().stdout)
    });
    assert_eq!(cut["end"], "reset-by-operator");
    assert_eq!(cut["error"]["code"], "not-measured");
    assert!(cut["proposal"].is_null());
    until("the far side to have ended it, too", || {
        flow_of(&world, Side::B).is_none()
    });
    let interrupted = interrupted(&world);
    assert_eq!(interrupted["error"]["code"], "interrupted");
    until("nothing of it to be left", || {
        [Side::A, Side::B].map(|side| flow_of(&world, side)) == [None, None]
    });
    world.signal(Side::B, rustix::process::Signal::KILL);
    world.wait_peer(Side::A, "down");
    let gone = world.ask(Side::A, "probe peer");
    assert!(String::from_utf8_lossy(&gone.stderr).contains("no tunnel"));
}
