//! The gateway ends, hangs or is tampered with: traffic flows, nothing stays.

use std::io::{ErrorKind, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::place::{Place, until, v4, v6};
use crate::role::{ALL, DIRECT, RELAY, UNDECIDED};

pub const TESTS: &[(&str, fn())] = &[
    ("stop_leaves_nothing", stop),
    ("kill_resets_flows_and_leaves_nothing", kill),
    (
        "connections_opened_around_a_kill_work_within_a_second",
        killed_while_opening,
    ),
    (
        "a_stopped_process_loses_interception_within_a_second",
        sigstop,
    ),
    (
        "a_wedged_gateway_loses_interception_within_a_second",
        wedged,
    ),
    ("a_restart_right_after_a_kill_keeps_its_rules", restart),
    ("leftovers_of_a_killed_pair_are_replaced", leftovers),
    ("flushed_rules_come_back", flushed),
    ("a_lost_policy_rule_or_route_comes_back", unrouted),
    (
        "without_policy_rule_or_route_connections_go_direct",
        unroutable,
    ),
    (
        "ipv6_that_is_switched_off_does_not_end_interception",
        without_v6,
    ),
    ("a_killed_guard_is_replaced", guard_killed),
    ("a_guard_that_does_not_start_again_is_told", unguarded),
    ("two_gateways_coexist_and_do_not_share_numbers", coexist),
    ("local_programs_find_no_open_proxy", strays),
    ("what_is_missing_is_named", errors),
    ("a_syn_flood_costs_bounded_memory", flood),
];

const SOON: Duration = Duration::from_millis(800);
const SECOND: Duration = Duration::from_secs(1);

fn stop() {
    let place = Place::new();
    place.serve(&ALL);
    let before = place.residue();
    let gateway = place.gateway("");
    assert_ne!(place.residue(), before);
    place.greeted(v4(RELAY), SOON).unwrap();
    gateway.stop();
    assert_eq!(place.residue(), before);
    place.greeted(v4(RELAY), SOON).unwrap().assert_kept();
}

fn kill() {
    let place = Place::new();
    place.serve(&ALL);
    let before = place.residue();
    let gateway = place.gateway("");
    let open = [v4(RELAY), v6(RELAY)].map(|to| place.greeted(to, SOON).unwrap());

    let killed = Instant::now();
    gateway.signal(Signal::KILL);
    for to in [v4(RELAY), v6(RELAY)] {
        place.greeted(to, SECOND).unwrap().assert_kept();
    }
    assert!(
        killed.elapsed() < SECOND,
        "direct after {:?}",
        killed.elapsed()
    );
    // A reset, never a clean end: neither could tell a cut file from a whole one.
    for mut greeted in open {
        let error = greeted.stream.read(&mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    until(Duration::from_secs(5), "the server was reset too", || {
        place.resets() == 2
    });
    until(Duration::from_secs(2), "the guard tidied up", || {
        place.residue() == before
    });
}

fn killed_while_opening() {
    let place = Place::new();
    place.serve(&ALL);
    let before = place.residue();
    // A SYN that was let through to a listener which dies at that instant is lost like any packet,
    // and comes again after a second: one in some thousand.
    let lost = AtomicUsize::new(0);
    for round in 0..8 {
        let gateway = place.gateway("");
        let start = Instant::now();
        // Openings spread over the moment of death, and one that is held
        // since before it and would never have been decided.
        std::thread::scope(|scope| {
            let (place, lost) = (&place, &lost);
            for delay_ms in 0..10 {
                let port = if delay_ms == 0 { UNDECIDED } else { RELAY };
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(delay_ms));
                    // One that was taken in time is reset, which is right.
                    let opened = place.greeted(v4(port), SECOND * 3);
                    let reset = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                    match opened {
                        Ok(greeted) if greeted.took < SECOND => {}
                        Ok(greeted) if greeted.took < SECOND * 3 / 2 => {
                            lost.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(greeted) => panic!("direct after {:?}", greeted.took),
                        Err(error) => assert!(reset.contains(&error.kind()), "{error}"),
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(2 + round % 4));
            gateway.signal(Signal::KILL);
        });
        assert!(start.elapsed() < SECOND * 2);
        until(SECOND * 2, "the guard tidied up", || {
            place.residue() == before
        });
    }
    let lost = lost.into_inner();
    assert!(lost <= 1, "{lost} of 80 openings waited for a second SYN");
}

fn sigstop() {
    let place = Place::new();
    place.serve(&ALL);
    let mut gateway = place.gateway("");
    place.greeted(v4(RELAY), SOON).unwrap();
    let stats = gateway.stats();
    assert_eq!(stats["proxied"], 1);

    let stopped = Instant::now();
    gateway.freeze();
    // Held in vain until the guard misses the beats.
    let early = place.greeted(v4(RELAY), Duration::from_secs(3)).unwrap();
    early.assert_kept();
    assert!(early.took < SOON, "{:?}", early.took);
    until(SECOND, "a second has passed", || {
        stopped.elapsed() >= SECOND
    });
    let late = place.greeted(v6(RELAY), SOON).unwrap();
    late.assert_kept();
    // No second SYN was needed.
    assert!(late.took < SECOND, "{:?}", late.took);

    gateway.signal(Signal::CONT);
    // The SYN held in vain is not asked about: its client is connected.
    until(SECOND * 2, "interception is back", || {
        place.greeted(v4(RELAY), SOON).unwrap();
        gateway.stats()["proxied"].as_u64() > Some(1)
    });
    let stats = gateway.stats();
    assert_eq!(stats["stale"], 1, "{stats}");
    let client = early.stream.local_addr().unwrap();
    assert_eq!(gateway.count(&format!("attempt {client}")), 0);
    // And its direct connection goes on, unharmed by ours.
    let mut early = early;
    early.assert_echo();
    gateway.stop();
}

fn wedged() {
    let place = Place::new();
    place.serve(&ALL);
    let mut gateway = place.gateway("");
    place.greeted(v4(RELAY), SOON).unwrap();
    gateway.tell("nobeat");
    std::thread::sleep(SECOND);
    for to in [v4(RELAY), v6(RELAY)] {
        place.greeted(to, SOON).unwrap().assert_kept();
    }
    assert_eq!(gateway.stats()["proxied"], 1);
    gateway.stop();
}

fn restart() {
    let place = Place::new();
    place.serve(&ALL);
    let before = place.residue();
    for _ in 0..3 {
        let gateway = place.gateway("");
        gateway.signal(Signal::KILL);
        // At once: the old guard is still at work.
        let mut gateway = place.gateway("");
        std::thread::sleep(Duration::from_millis(300));
        place.greeted(v4(RELAY), SOON).unwrap().assert_kept();
        let stats = gateway.stats();
        assert_eq!(
            (&stats["proxied"], &stats["rules_restored"]),
            (&1.into(), &0.into())
        );
        gateway.stop();
        assert_eq!(place.residue(), before);
    }
}

fn leftovers() {
    let place = Place::new();
    place.serve(&ALL);
    let before = place.residue();
    let gateway = place.gateway("");
    let guard = gateway.guard().unwrap();
    // Guard first, so that nobody tidies up.
    kill_process(guard, Signal::KILL).unwrap();
    gateway.signal(Signal::KILL);
    until(SECOND, "direct although rules are left", || {
        place.greeted(v4(RELAY), SOON).is_ok()
    });
    assert_ne!(place.residue(), before);

    let mut gateway = place.gateway("");
    place.greeted(v4(RELAY), SOON).unwrap().assert_kept();
    assert_eq!(gateway.stats()["proxied"], 1);
    gateway.stop();
    assert_eq!(place.residue(), before);
}

fn flushed() {
    let place = Place::new();
    place.serve(&ALL);
    let before = place.residue();
    let mut gateway = place.gateway("");
    place.run("r", "nft flush ruleset");
    place.greeted(v4(RELAY), SOON).unwrap().assert_kept();
    until(SECOND * 3, "the rules are back", || {
        gateway.stats()["rules_restored"] == 1
    });
    place.greeted(v4(RELAY), SOON).unwrap();
    assert_eq!(gateway.stats()["proxied"], 1);
    // Once is enough.
    std::thread::sleep(SECOND * 2);
    assert_eq!(gateway.stats()["rules_restored"], 1);
    gateway.stop();
    assert_eq!(place.residue(), before);
}

fn unrouted() {
    let place = Place::new();
    place.serve(&ALL);
    let before = place.residue();
    let mut gateway = place.gateway("");
    let mut open = [v4(RELAY), v6(RELAY)].map(|to| place.greeted(to, SECOND * 3).unwrap());
    let losses: [&[&str]; 5] = [
        &["ip -4 rule del pref 200"],
        &["ip -6 rule del pref 200"],
        &["ip -4 route flush table 250"],
        &["ip -6 route flush table 250"],
        &["ip link set lo down", "ip link set lo up"],
    ];
    for (at, commands) in losses.into_iter().enumerate() {
        for command in commands {
            place.run("r", command);
        }
        until(SECOND * 3, commands[0], || {
            gateway.stats()["rules_restored"] == at + 1
        });
        // What stood goes on, and new ones are taken.
        open.iter_mut().for_each(|stood| stood.assert_echo());
        for to in [v4(RELAY), v6(RELAY)] {
            place.greeted(to, SECOND * 3).unwrap().assert_kept();
        }
        let taken = 2 + 2 * (at + 1);
        assert_eq!(gateway.stats()["proxied"], taken, "{commands:?}");
    }
    gateway.stop();
    assert_eq!(place.residue(), before);
}

fn unroutable() {
    let place = Place::new();
    place.serve(&ALL);
    let before = place.residue();
    let mut gateway = place.gateway("");
    place.greeted(v4(RELAY), SECOND * 3).unwrap();
    let foreign = "10.9.0.0/16 via 10.2.0.2 table 250";
    place.run("r", &format!("ip route add {foreign}"));
    place.run("r", "ip rule del pref 200");
    let told = gateway.wait_for("health", SECOND * 3);
    assert!(
        told.contains("routing table 250 already has routes"),
        "{told}"
    );
    // As long as the last beat lasts.
    std::thread::sleep(SECOND);
    let taken = gateway.stats()["proxied"].clone();
    for to in [v4(RELAY), v6(RELAY)] {
        let direct = place.greeted(to, SOON).unwrap();
        direct.assert_kept();
    }
    assert_eq!(gateway.stats()["proxied"], taken);
    place.run("r", &format!("ip route del {foreign}"));
    let told = gateway.wait_for("health", SECOND * 4);
    assert!(told.contains("off: None"), "{told}");
    place.greeted(v4(RELAY), SOON).unwrap().assert_kept();
    assert_ne!(gateway.stats()["proxied"], taken);
    gateway.stop();
    assert_eq!(place.residue(), before);
}

fn without_v6() {
    let place = Place::new();
    place.serve(&ALL);
    let mut gateway = place.gateway("");
    place.run("r", "sysctl -qw net.ipv6.conf.lo.disable_ipv6=1");
    let told = gateway.wait_for("health", SECOND * 3);
    assert!(told.contains("off: None"), "{told}");
    assert!(told.contains("without_v6: true"), "{told}");
    place.greeted(v4(RELAY), SOON).unwrap().assert_kept();
    assert_eq!(gateway.stats()["connections"], 1);
    // Asked about, and passed on: there is no listener for it.
    place.greeted(v6(RELAY), SOON).unwrap().assert_kept();
    assert_eq!(gateway.stats()["connections"], 1);
    gateway.stop();
}

fn unguarded() {
    let place = Place::new();
    place.serve(&ALL);
    let mut gateway = place.gateway("");
    let program = std::env::current_exe().unwrap();
    let aside = program.with_extension("aside");
    std::fs::rename(&program, &aside).unwrap();
    let told = std::panic::catch_unwind(|| {
        kill_process(gateway.guard().unwrap(), Signal::KILL).unwrap();
        gateway.wait_for("health", SECOND * 4)
    });
    std::fs::rename(&aside, &program).unwrap();
    let told = told.unwrap();
    assert!(told.contains("guard process did not start"), "{told}");
    // It is no reason to take nothing.
    place.greeted(v4(RELAY), SOON).unwrap().assert_kept();
    assert_eq!(gateway.stats()["proxied"], 1);
    let told = gateway.wait_for("health", SECOND * 4);
    assert!(told.contains("unguarded: None"), "{told}");
    assert_eq!(gateway.stats()["guard_restarts"], 1);
    gateway.stop();
}

fn guard_killed() {
    let place = Place::new();
    place.serve(&ALL);
    let before = place.residue();
    let mut gateway = place.gateway("");
    kill_process(gateway.guard().unwrap(), Signal::KILL).unwrap();
    until(SECOND * 4, "another guard", || {
        gateway.stats()["guard_restarts"] == 1
    });
    gateway.signal(Signal::KILL);
    until(SECOND * 2, "the new guard tidied up", || {
        place.residue() == before
    });
}

fn coexist() {
    let place = Place::new();
    place.serve(&ALL);
    let before = place.residue();
    let mut first = place.gateway("");
    let refused = place.start_gateway("");
    let error = refused.wait_for("error", SECOND * 10);
    assert!(error.contains("NFQUEUE number 250 is taken"), "{error}");
    let mut second =
        place.gateway("interfaces=lan2 networks=10.1.0.0/16 queue=251 table=251 mark=263192576");
    place.greeted(v4(RELAY), SOON).unwrap().assert_kept();
    // The other way round, through the other gateway.
    assert_eq!(
        (&first.stats()["proxied"], &second.stats()["syns"]),
        (&1.into(), &0.into())
    );
    let back = "10.1.0.2:2080".parse().unwrap();
    let error = place.within("s", || std::net::TcpStream::connect_timeout(&back, SOON));
    drop(error);
    assert_eq!(
        (&first.stats()["syns"], &second.stats()["proxied"]),
        (&1.into(), &1.into())
    );
    second.stop();
    place.greeted(v4(RELAY), SOON).unwrap().assert_kept();
    assert_eq!(first.stats()["proxied"], 2);
    first.stop();
    assert_eq!(place.residue(), before);
}

fn strays() {
    let place = Place::new();
    place.run("r", "sysctl -qw net.ipv6.conf.lo.disable_ipv6=1");
    place.serve(&ALL);
    let mut gateway = place.start_gateway("");
    let ready = gateway.wait_for("ready", SECOND * 10);
    assert!(ready.contains("IPv6 is off"), "{ready}");
    let rules = place.run("r", "nft list chain inet farhaul_250 take");
    let (_, rest) = rules.split_once("to 127.0.0.1:").unwrap();
    let port: u16 = rest.split_whitespace().next().unwrap().parse().unwrap();
    // No IPv6 on loopback, so no IPv6 interception, and no complaint.
    assert!(!rules.contains("[::1]"), "{rules}");
    let mut stray = place.within("r", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap()
    });
    let error = stray.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(gateway.stats()["strays"], 1);
    place.greeted(v4(RELAY), SOON).unwrap();
    place.greeted(v6(DIRECT), SOON).unwrap().assert_kept();
    gateway.stop();
}

fn errors() {
    let place = Place::new();
    let before = place.residue();
    for (options, complaint) in [
        (
            "interfaces=lan1,wan7",
            "no interface `wan7` (intercept.interfaces); there are: lo",
        ),
        ("queue=0", "must not be 0"),
        ("table=254", "routing table 254 already has routes"),
    ] {
        let gateway = place.start_gateway(options);
        let error = gateway.wait_for("error", SECOND * 10);
        assert!(error.contains(complaint), "{error}");
    }
    until(SECOND * 2, "nothing left", || place.residue() == before);
    place.run("r", "sysctl -qw net.ipv4.ip_forward=0");
    let gateway = place.start_gateway("");
    let ready = gateway.wait_for("ready", SECOND * 10);
    assert!(ready.contains("IPv4 forwarding is off"), "{ready}");
    gateway.stop();
}

fn flood() {
    let place = Place::new();
    place.serve(&ALL);
    let mut gateway = place.gateway("");
    place.greeted(v4(RELAY), SOON).unwrap();
    let before_kib = gateway.resident_kib();
    // First as many as may be held, at a pace that has them all asked about,
    // then more than that at once.
    for (count, pause) in [
        (17_000, Duration::from_micros(50)),
        (20_000, Duration::ZERO),
    ] {
        place.flood(v4(UNDECIDED), count, pause);
        // The queue still turns: others get through at once.
        for port in [DIRECT, RELAY] {
            let mut greeted = place.greeted(v4(port), SECOND).unwrap();
            greeted.assert_kept();
            greeted.assert_echo();
        }
    }
    let stats = gateway.stats();
    let grown_kib = gateway.resident_kib().saturating_sub(before_kib);
    println!("flood: {grown_kib} KiB more, {stats}");
    assert!(stats["syns"].as_u64() > Some(15_000), "{stats}");
    assert!(stats["overflow"].as_u64() > Some(500), "{stats}");
    // 16,384 held SYNs and the questions about them.
    assert!(grown_kib < 48 * 1024, "{grown_kib} KiB more");
    gateway.stop();
}
