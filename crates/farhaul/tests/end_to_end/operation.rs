//! What operators do to a running gateway, and what they are told.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use farhaul_lab::Side;
use rustix::process::Signal;

use crate::apps::{Service, assert_echo, content, echo, read_all};
use crate::transfer::{Transfer, Way};
use crate::world::{HANG, World, until, v4};

fn with_echo(test: &str, a: &str, b: &str) -> (World, Service) {
    let world = World::with(test, a, b);
    let service = Service::start(&world.lab.server().unwrap(), 1000, echo);
    // From now on known to be up, where connections are accepted at once.
    assert_echo(&mut world.connect(v4(1000)), b"hello");
    (world, service)
}

fn edit(world: &World, side: Side, change: impl FnOnce(String) -> String) {
    let path = world.lab.gateway_config_path(side);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, change(text)).unwrap();
}

const DIRECT_RULE: &str =
    "\n[[rule]]\nname = 'aside'\nmatch = { port = [1000] }\noptimise = 'direct'\n";

#[test]
fn a_reload_takes_effect_and_disturbs_nothing() {
    let (mut world, _service) = with_echo("reload", "", "");
    let transfers =
        [(1001, Way::Down), (1002, Way::Up)].map(|(port, way)| Transfer::start(&world, port, way));
    let mut kept = world.connect(v4(1000));
    assert!(world.is_tunnelled(&kept));
    let original = fs::read_to_string(world.lab.gateway_config_path(Side::A)).unwrap();
    for round in 0..10 {
        edit(&world, Side::A, |_| format!("{original}{DIRECT_RULE}"));
        assert_eq!(world.told(Side::A, "reload"), "reloaded\n");
        world.assert_direct(&world.connect(v4(1000)), "rule");
        edit(&world, Side::A, |_| original.clone());
        // Half by signal, as service managers do.
        if round % 2 == 0 {
            world.signal(Side::A, Signal::HUP);
        } else {
            world.told(Side::A, "reload");
        }
        until("the old rules to hold again", || {
            world.is_tunnelled(&world.connect(v4(1000)))
        });
        assert_echo(&mut kept, b"not disturbed");
    }
    for transfer in &transfers {
        transfer.wait_moved(1 << 20);
    }
    transfers.into_iter().for_each(Transfer::finish_whole);
    assert!(world.is_tunnelled(&kept));
    assert_echo(&mut kept, &content(1, 200_000));
}

#[test]
fn a_bad_reload_is_refused_with_its_place_and_changes_nothing() {
    let (mut world, _service) = with_echo("badreload", "", "");
    let path = world.lab.gateway_config_path(Side::A);
    let original = fs::read_to_string(&path).unwrap();
    let line = original.lines().count() + 2;
    edit(&world, Side::A, |text| {
        format!("{text}\n[tunel]\ndrain = '1s'\n")
    });
    let output = world.ask(Side::A, "reload");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains(&format!("{}:{line}:", path.display())),
        "{error}"
    );
    assert!(
        error.contains("tunel") && error.contains("tunnel"),
        "{error}"
    );
    // The same by signal: the operator finds it in the status.
    world.signal(Side::A, Signal::HUP);
    until("the refusal by signal", || {
        let status = world.status(Side::A)["recent"].to_string();
        status.matches("reload_refused").count() == 2
    });
    // What needs a restart is refused by name, and nothing of it is taken.
    edit(&world, Side::A, |_| {
        format!("{original}{DIRECT_RULE}")
            .replace("interfaces = [\"lan0\"]", "interfaces = [\"wan0\"]")
    });
    let output = world.ask(Side::A, "reload");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("intercept.interfaces"), "{error}");
    let mut stream = world.connect(v4(1000));
    assert!(world.is_tunnelled(&stream), "the refused rule took effect");
    assert_echo(&mut stream, b"all as before");
    edit(&world, Side::A, |_| original);
    assert_eq!(world.told(Side::A, "reload"), "reloaded\n");
}

#[test]
fn a_peer_that_is_removed_and_added_by_reload_goes_and_comes() {
    let (world, _service) = with_echo("peerless", "", "");
    let original = fs::read_to_string(world.lab.gateway_config_path(Side::A)).unwrap();
    let mut kept = world.connect(v4(1000));
    assert_echo(&mut kept, b"before");
    let mut without: toml::Table = original.parse().unwrap();
    without.remove("peer");
    edit(&world, Side::A, |_| without.to_string());
    world.told(Side::A, "reload");
    let (_, _, end) = read_all(&mut kept);
    assert!(end.is_err(), "flows of a removed peer are reset");
    assert!(!world.is_tunnelled(&world.connect(v4(1000))));
    edit(&world, Side::A, |_| original);
    world.told(Side::A, "reload");
    world.wait_peer(Side::A, "up");
    until("connections through the tunnel again", || {
        world.is_tunnelled(&world.connect(v4(1000)))
    });
}

#[test]
fn told_to_stop_a_gateway_finishes_its_transfers_first() {
    for (test, stopped) in [("drain-a", Side::A), ("drain-b", Side::B)] {
        let (mut world, _service) = with_echo(test, "", "");
        let transfers = [(1003, Way::Down), (1004, Way::Up)]
            .map(|(port, way)| Transfer::start(&world, port, way));
        world.signal(stopped, Signal::TERM);
        until("it to say that it drains", || {
            world.status(stopped)["draining"] == true
        });
        until("the peer to know", || {
            world.peer_state(stopped.other()) == "draining"
        });
        let events = world.status(stopped.other())["recent"].to_string();
        assert!(
            events.contains("peer_draining") && !events.contains("peer_down"),
            "{events}"
        );
        // New connections go around it, those to servers known to be up, too.
        let mut aside = world.connect(v4(1000));
        match stopped {
            // Its own clients' connections do not even reach it any more.
            Side::A => assert!(!world.is_tunnelled(&aside)),
            Side::B => world.assert_direct(&aside, "draining"),
        }
        assert_echo(&mut aside, &content(2, 100_000));
        for transfer in &transfers {
            transfer.wait_moved(1 << 20);
            assert!(world.is_tunnelled(&transfer.stream));
        }
        transfers.into_iter().for_each(Transfer::finish_whole);
        until("it to end when the last flow has", || {
            world.residue(stopped).is_empty()
        });
        assert_echo(&mut aside, b"still here");
        assert!(!world.lab.gateway_socket(stopped).exists());
        world.wait_peer(stopped.other(), "down");
    }
}

#[test]
fn told_twice_a_gateway_stops_at_once() {
    let (mut world, _service) = with_echo("twice", "", "");
    let transfers =
        [(1005, Way::Down), (1006, Way::Up)].map(|(port, way)| Transfer::start(&world, port, way));
    world.signal(Side::A, Signal::TERM);
    until("it to say that it drains", || {
        world.status(Side::A)["draining"] == true
    });
    let second = std::time::Instant::now();
    world.signal(Side::A, Signal::TERM);
    for transfer in transfers {
        transfer.broken(second, Duration::from_secs(5));
    }
    until("nothing of it to be left", || {
        world.residue(Side::A).is_empty()
    });
    assert_echo(&mut world.connect(v4(1000)), b"direct");
}

#[test]
fn a_drain_ends_with_its_time() {
    let (mut world, _service) = with_echo("drained", "[tunnel]\ndrain = '1s'", "");
    let transfer = Transfer::start(&world, 1007, Way::Down);
    let told = std::time::Instant::now();
    world.signal(Side::A, Signal::TERM);
    transfer.broken(told, Duration::from_secs(6));
    until("nothing of it to be left", || {
        world.residue(Side::A).is_empty()
    });
}

#[test]
fn bypass_sends_new_connections_direct_until_it_is_off() {
    let (world, _service) = with_echo("bypass", "", "");
    let mut kept = world.connect(v4(1000));
    world.told(Side::A, "bypass on");
    assert_eq!(world.status(Side::A)["bypass"], true);
    let mut aside = world.connect(v4(1000));
    world.assert_direct(&aside, "bypass");
    assert_echo(&mut aside, &content(3, 100_000));
    assert_echo(&mut kept, &content(4, 100_000));
    assert!(world.is_tunnelled(&kept));
    world.told(Side::A, "bypass off");
    assert!(world.is_tunnelled(&world.connect(v4(1000))));
    assert_echo(&mut aside, b"stays where it is");
}

#[test]
fn one_flow_is_reset_and_no_other() {
    let (world, _service) = with_echo("reset", "", "");
    let mut streams: Vec<TcpStream> = (0..5).map(|_| world.connect(v4(1000))).collect();
    for stream in &mut streams {
        assert_echo(stream, b"hello");
    }
    // At the near gateway, then at the far one.
    for side in Side::BOTH {
        let mut victim = streams.remove(1);
        let flow = world.flow_of(side, victim.local_addr().unwrap()).unwrap();
        let id = flow["id"].as_u64().unwrap();
        assert_eq!(
            world.told(side, &format!("reset {id}")),
            format!("flow {id} was reset\n")
        );
        let (_, _, end) = read_all(&mut victim);
        assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        for stream in &mut streams {
            assert_echo(stream, b"still here");
        }
        let again = world.ask(side, &format!("reset {id}"));
        assert_eq!(again.status.code(), Some(1), "{again:?}");
        for side in Side::BOTH {
            until("the list to be true", || {
                world.flows(side)["flows"].as_array().unwrap().len() == streams.len()
            });
        }
    }
}

#[test]
fn what_status_and_flows_and_metrics_say_is_so() {
    let (world, _service) = with_echo(
        "truth",
        "[admin]\nmetrics = '127.0.0.1:9464'\n[[rule]]\nname = 'bulky'\nmatch = { port = [1000] }\nclass = 'bulk'",
        "",
    );
    let mut stream = world.connect(v4(1000));
    let sent = content(5, 123_456);
    assert_echo(&mut stream, &sent);
    let own = stream.local_addr().unwrap();
    let near = world.flow_of(Side::A, own).unwrap();
    for (key, value) in [
        ("client", own.to_string()),
        ("destination", "10.2.0.2:1000".to_owned()),
        ("peer", "gwb".to_owned()),
        ("rule", "bulky".to_owned()),
        ("class", "bulk".to_owned()),
        ("state", "optimised".to_owned()),
        ("side", "near".to_owned()),
    ] {
        assert_eq!(near[key], value, "{near}");
    }
    let far = world.flow_of(Side::B, own).unwrap();
    assert_eq!(
        (&far["side"], &far["class"]),
        (&"far".into(), &"bulk".into())
    );
    for flow in [&near, &far] {
        assert_eq!(flow["sent_bytes"], 123_456, "{flow}");
        assert_eq!(flow["received_bytes"], 123_456, "{flow}");
    }
    let status = world.status(Side::A);
    assert_eq!(status["flows"]["optimised"], 1, "{status}");
    // With the five bytes that made the server known.
    assert_eq!(status["peers"][0]["payload_sent_bytes"], 123_461);
    assert!(status["peers"][0]["wire_sent_bytes"].as_u64().unwrap() > 123_456);
    assert_eq!(status["intercept"]["active"], true);
    let pid = world.lab.sandbox().process("gateway-a").unwrap().pid;
    assert_eq!(status["pid"], pid);
    drop(stream);
    until("the flow to leave the lists", || {
        [Side::A, Side::B]
            .iter()
            .all(|side| world.flow_of(*side, own).is_none())
    });
    let status = world.status(Side::A);
    assert_eq!(status["flows"]["optimised"], 0);
    assert_eq!(
        status["peers"][0]["payload_sent_bytes"], 123_461,
        "kept when the flow has gone"
    );
    for side in Side::BOTH {
        assert_eq!(world.metric(side, "farhaul_flows_opened_total"), 2);
        until("each end to be counted", || {
            world.metric(side, "farhaul_flows_ended_total") == 2
        });
    }
    assert_metrics(&world);
}

/// Both ways to the metrics answer alike, in Prometheus' text format, and
/// agree with the status.
fn assert_metrics(world: &World) {
    let over_socket = world.metrics(Side::A);
    let namespace = world.gateway(Side::A);
    let mut tcp = namespace
        .within(|| TcpStream::connect("127.0.0.1:9464").unwrap())
        .unwrap();
    tcp.set_read_timeout(Some(HANG)).unwrap();
    tcp.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut over_tcp = String::new();
    tcp.read_to_string(&mut over_tcp).unwrap();
    for answer in [over_socket, over_tcp] {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let mut samples = 0;
        let mut typed = Vec::new();
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                typed.push(rest.split(' ').next().unwrap());
            } else if !line.starts_with('#') && !line.is_empty() {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let name = series.split('{').next().unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(name.starts_with("farhaul_"), "{line}");
                assert!(typed.contains(&name), "no type before {line}");
                samples += 1;
            }
        }
        assert!(samples > 10, "{body}");
        let peer_up = body
            .lines()
            .find(|line| line.starts_with("farhaul_peer_up{"));
        assert!(peer_up.unwrap().ends_with(" 1"), "{peer_up:?}");
    }
}
