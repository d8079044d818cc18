//! What only a long link shows.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use farhaul_lab::Side;

use crate::apps::{Service, assert_echo, content, echo, greet_and_echo, greeting};
use crate::transfer::{Transfer, Way};
use crate::world::{World, until, v4};

/// Of the first test: much longer than a busy machine takes for a connection.
const ROUND_TRIP: Duration = Duration::from_millis(600);

#[test]
fn the_second_connection_to_a_destination_is_accepted_at_once() {
    let world = World::over(Some("rate 10mbit delay 300ms"), "fast", "", "");
    let server = world.lab.server().unwrap();
    let service = Service::start(&server, 9101, greet_and_echo);
    let (first, took) = world.connect_timed(v4(9101));
    let mut first = first.unwrap();
    assert!(
        took >= ROUND_TRIP,
        "accepted after {took:?}, before the server was asked"
    );
    greeting(&mut first).unwrap();
    let (second, took) = world.connect_timed(v4(9101));
    let mut second = second.unwrap();
    assert!(took < ROUND_TRIP / 2, "took {took:?}");
    assert_eq!(greeting(&mut second).unwrap(), second.local_addr().unwrap());
    for stream in [&mut first, &mut second] {
        assert!(world.is_tunnelled(stream));
        assert_echo(stream, &content(1, 20_000));
    }
    // Another port of the same host is another destination.
    let _other = Service::start(&server, 9102, echo);
    let (_, took) = world.connect_timed(v4(9102));
    assert!(
        took >= ROUND_TRIP,
        "accepted after {took:?}, before the server was asked"
    );
    // A server that stops is believed up once more: a reset, never a hang nor
    // a clean end. After that it is refused as it should be.
    drop(service);
    let (stopped, _) = world.connect_timed(v4(9101));
    let mut stopped = stopped.unwrap();
    let _ = stopped.write_all(b"anybody there?");
    let error = stopped.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let error = world.try_connect(v4(9101)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn invariant_7_flows_survive_seconds_of_total_loss() {
    let mut world = World::over(Some("rate 100mbit delay 100ms loss 1%"), "total", "", "");
    let _service = Service::start(&world.lab.server().unwrap(), 9103, echo);
    let transfers =
        [(9104, Way::Down), (9105, Way::Up)].map(|(port, way)| Transfer::start(&world, port, way));
    world.lab.set_link("loss 100%").unwrap();
    for side in Side::BOTH {
        world.wait_peer(side, "down");
    }
    world.lab.set_link("loss 1%").unwrap();
    for side in Side::BOTH {
        world.wait_peer(side, "up");
    }
    for transfer in &transfers {
        transfer.wait_moved(1 << 20);
    }
    transfers.into_iter().for_each(Transfer::finish_whole);
    until("connections through the tunnel again", || {
        world.is_tunnelled(&world.connect(v4(9103)))
    });
}

#[test]
fn invariant_2_what_a_bad_link_does_to_packets_it_does_not_do_to_bytes() {
    let mut world = World::over(Some("rate 50mbit delay 10ms"), "bad", "", "");
    let _service = Service::start(&world.lab.server().unwrap(), 9106, echo);
    let suffer = |world: &mut World, seed: u64, damage: &str| {
        world.lab.set_link(damage).unwrap();
        let mut stream = world.connect(v4(9106));
        assert!(world.is_tunnelled(&stream), "{damage}");
        assert_echo(&mut stream, &content(seed, 400_000));
    };
    // Each on top of those before.
    for (seed, damage) in (0..).zip(["duplicate 1%", "corrupt 1%", "reorder 5%"]) {
        suffer(&mut world, seed, damage);
    }
    // All of it was met with: nothing was taken for the peer's death.
    for side in Side::BOTH {
        assert_eq!(world.metric(side, "farhaul_peer_downs_total"), 0);
    }
    // With both directions full this takes the QUIC stack longer, now and then, than a peer may be silent
    // (docs/design/full-window.md): it may be down for a moment, and the flow goes on.
    suffer(&mut world, 3, "mtu 1280");
}

/// Before anybody needs to know, and once: 40 packets of either side.
#[test]
fn a_tunnel_that_has_come_up_shows_what_a_long_link_carries() {
    let sent = |world: &World| {
        Side::BOTH.map(|side| {
            let status = world.status_now(side);
            status["peers"][0]["wire_sent_bytes"].as_u64().unwrap()
        })
    };
    let world = World::over(Some("rate 50mbit delay 150ms queue 100ms"), "seek", "", "");
    until("a train", || {
        sent(&world).iter().all(|bytes| *bytes > 50_000)
    });
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        sent(&world).iter().all(|bytes| *bytes < 100_000),
        "one is enough"
    );
    // Over a short one there is nothing to gain.
    let near = World::over(Some("rate 50mbit delay 20ms queue 100ms"), "noseek", "", "");
    std::thread::sleep(Duration::from_secs(1));
    assert!(sent(&near).iter().all(|bytes| *bytes < 30_000));
}
