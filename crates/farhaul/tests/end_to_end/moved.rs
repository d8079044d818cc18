//! The link is cut in mid-transfer, and when it is back a gateway may have another address.
//!
//! `FARHAUL_CUT=whole` does it for as long and with as many transfers as is promised; `make bench-cut`
//! does that.

use std::time::{Duration, Instant};

use farhaul_lab::Side;

use serde_json::Value;

use crate::apps::{Service, assert_echo, content, echo};
use crate::transfer::{Transfer, Way};
use crate::world::{World, until, v4};

/// How many transfers, and how long the link is cut.
struct Plan {
    transfers: u16,
    cut: Duration,
}

/// Longer than it takes to declare a peer down and to back off.
const SHORT: Plan = Plan {
    transfers: 8,
    cut: Duration::from_secs(6),
};
/// What is promised.
const WHOLE: Plan = Plan {
    transfers: 50,
    cut: Duration::from_secs(60),
};

/// Cuts the link under transfers, lets `change` happen and heals it: everything arrives whole, in
/// the tunnel that was there before, and the far side sees its peer where `change` has put it.
fn survives(test: &str, change: impl FnOnce(&World) -> String) {
    let is_whole = std::env::var("FARHAUL_CUT").is_ok_and(|word| word == "whole");
    let plan = if is_whole { WHOLE } else { SHORT };
    let mut world = World::over(Some("rate 50mbit delay 20ms"), test, "", "");
    let _service = Service::start(&world.lab.server().unwrap(), 4100, echo);
    let way = |port| if port % 2 == 0 { Way::Down } else { Way::Up };
    let transfers: Vec<Transfer> = (4101..4101 + plan.transfers)
        .map(|port| Transfer::start(&world, port, way(port)))
        .collect();
    world.lab.set_link("loss 100%").unwrap();
    let cut = Instant::now();
    for side in Side::BOTH {
        world.wait_peer(side, "down");
    }
    let expected = change(&world);
    std::thread::sleep(plan.cut.saturating_sub(cut.elapsed()));
    world.lab.set_link("loss 0%").unwrap();
    for side in Side::BOTH {
        world.wait_peer(side, "up");
    }
    for transfer in &transfers {
        assert!(world.is_tunnelled(&transfer.stream), "not kept");
        transfer.wait_moved(256 << 10);
    }
    until("the peer to be seen at its new address", || {
        seen_at(&world) == expected
    });
    // All at once, or the last would wait for the link behind all that the others still send.
    transfers.iter().for_each(Transfer::stop);
    transfers.into_iter().for_each(Transfer::finish_whole);
    let mut again = world.connect(v4(4100));
    assert!(world.is_tunnelled(&again));
    assert_echo(&mut again, &content(1, 100_000));
}

/// Where the far gateway sees the near one, which has dialled from a port of its own.
fn seen_at(world: &World) -> String {
    match &world.status(Side::B)["peers"][0]["address"] {
        Value::String(address) => address.clone(),
        other => panic!("{other}"),
    }
}

/// Another address of the uplink, as after a new lease.
fn new_address(world: &World) -> String {
    let before = seen_at(world);
    world
        .gateway(Side::A)
        .ip("address del 10.9.0.1/24 dev wan0
             address add 10.9.0.3/24 dev wan0
             neighbour replace 10.9.0.2 lladdr 02:fa:00:00:09:02 dev wan0 nud permanent
             route replace 10.2.0.0/24 via 10.9.0.2 congctl cubic\n")
        .unwrap();
    world
        .gateway(Side::B)
        .ip(
            "neighbour replace 10.9.0.3 lladdr 02:fa:00:00:09:01 dev wan0 nud permanent
             route replace 10.1.0.0/24 via 10.9.0.3 congctl cubic\n",
        )
        .unwrap();
    before.replace("10.9.0.1:", "10.9.0.3:")
}

/// What a translator on the way does that has forgotten its table.
fn new_port(world: &World) -> String {
    let before = seen_at(world);
    let (_, port) = before.split_once(':').unwrap();
    let rules = format!(
        "add table ip translator
        add chain ip translator in {{ type filter hook prerouting priority -300; }}
        add chain ip translator out {{ type filter hook postrouting priority 300; }}
        add rule ip translator in iifname wan0 udp sport {port} udp sport set 1999
        add rule ip translator out oifname wan0 udp dport 1999 udp dport set {port}"
    );
    for rule in rules.lines() {
        world.gateway(Side::B).exec(&["nft", rule.trim()]).unwrap();
    }
    "10.9.0.1:1999".to_owned()
}

#[test]
fn invariant_7_flows_survive_a_cut_of_the_link() {
    survives("cutonly", seen_at);
}

#[test]
fn invariant_7_flows_survive_a_cut_after_which_a_gateway_has_another_address() {
    survives("address", new_address);
}

#[test]
fn invariant_7_flows_survive_a_cut_after_which_a_translator_gives_another_port() {
    survives("translated", new_port);
}

/// What the far gateway sends to see whether the near one is where it seems to be is lost for longer
/// than it waits for an answer.
#[test]
fn a_new_port_whose_proof_is_lost_is_proved_later() {
    let world = World::over(Some("rate 50mbit delay 20ms"), "unproved", "", "");
    let _service = Service::start(&world.lab.server().unwrap(), 4300, echo);
    let mut idle = world.connect(v4(4300));
    assert_echo(&mut idle, &content(1, 1000));
    let down = Transfer::start(&world, 4301, Way::Down);
    let far = world.gateway(Side::B);
    for rule in [
        "add table ip swallow",
        "add chain ip swallow out { type filter hook postrouting priority 200; }",
        "add rule ip swallow out oifname wan0 udp dport 1999 drop",
    ] {
        far.exec(&["nft", rule]).unwrap();
    }
    let expected = new_port(&world);
    until("the peer to be seen at its new address", || {
        seen_at(&world) == expected
    });
    std::thread::sleep(Duration::from_secs(2));
    far.exec(&["nft", "delete table ip swallow"]).unwrap();
    let healed = Instant::now();
    assert_echo(&mut idle, &content(2, 200_000));
    down.wait_moved(256 << 10);
    eprintln!("{:?} after the proof could pass", healed.elapsed());
    down.finish_whole();
    world.wait_peer(Side::B, "up");
    assert_echo(&mut idle, &content(3, 2_000_000));
    eprintln!("{:?} after the proof could pass", healed.elapsed());
}

#[test]
fn what_was_told_of_the_link_holds_for_another_address_too() {
    let told = "[[peer]]\nlink = 'rate 16mbit'";
    let world = World::over(Some("rate 200mbit delay 10ms"), "told", "", told);
    let transfer = Transfer::start(&world, 4200, Way::Down);
    let expected = new_address(&world);
    until("the peer to be seen at its new address", || {
        seen_at(&world) == expected
    });
    std::thread::sleep(Duration::from_secs(2));
    let before = transfer.moved();
    std::thread::sleep(Duration::from_secs(5));
    let moved = transfer.moved() - before;
    let most = 5 * 16_000_000 / 8;
    assert!((1..2 * most).contains(&moved), "{moved} bytes in 5 s");
    transfer.finish_whole();
}
