//! A gateway that dies, stops or comes back, in the middle of transfers.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use farhaul_lab::Side;
use rustix::process::Signal;

use crate::apps::{Service, assert_echo, content, echo, read_all};
use crate::transfer::{Transfer, Way};
use crate::world::{HANG, World, until, v4};

/// How long flows outlive a silent peer here.
const RESUME: &str = "[tunnel]\nresume_max = '5s'";
/// Until both applications must have learnt of it: that, and time for a busy
/// machine to say so.
const LEARNT: Duration = Duration::from_secs(10);
/// A gateway's death may go unnoticed by its peer for this long
/// (architecture: detection within 3 s, then direct within 1 s).
const DETECTED: Duration = Duration::from_secs(4);

fn with_transfers(test: &str, config: &str) -> (World, [Transfer; 2], Service) {
    let world = World::with(test, config, config);
    let service = Service::start(&world.lab.server().unwrap(), 5000, echo);
    // Known to be up: such a destination must not be trusted blindly later.
    assert!(world.is_tunnelled(&world.connect(v4(5000))));
    let transfers =
        [(5001, Way::Down), (5002, Way::Up)].map(|(port, way)| Transfer::start(&world, port, way));
    for transfer in &transfers {
        assert!(world.is_tunnelled(&transfer.stream));
    }
    (world, transfers, service)
}

/// A connection that began a second after `fault` works at once, without a
/// retransmitted SYN, and not through the tunnel.
fn assert_direct_after_a_second(world: &World, fault: Instant) {
    std::thread::sleep(Duration::from_secs(1).saturating_sub(fault.elapsed()));
    let (stream, took) = world.connect_timed(v4(5000));
    let mut stream = stream.unwrap();
    assert!(took < Duration::from_secs(1), "connecting took {took:?}");
    assert!(!world.is_tunnelled(&stream));
    assert_echo(&mut stream, &content(1, 100_000));
}

fn assert_broken(transfers: [Transfer; 2], fault: Instant, patience: Duration) {
    for transfer in transfers {
        transfer.broken(fault, patience);
    }
}

fn assert_tunnelled_again(world: &World) {
    until("connections through the tunnel again", || {
        let mut stream = world.connect(v4(5000));
        assert_echo(&mut stream, b"hello");
        world.is_tunnelled(&stream)
    });
}

#[test]
fn invariant_7_the_near_gateway_is_killed_and_restarted() {
    let (mut world, transfers, _service) = with_transfers("killa", RESUME);
    let killed = Instant::now();
    world.signal(Side::A, Signal::KILL);
    assert_direct_after_a_second(&world, killed);
    assert_broken(transfers, killed, LEARNT);
    until("rules, routes and guard to be gone", || {
        world.residue(Side::A).is_empty()
    });
    world.lab.gateway_start(Side::A).unwrap();
    world.lab.wait_peers_up().unwrap();
    assert_tunnelled_again(&world);
}

#[test]
fn invariant_7_the_far_gateway_is_killed_and_restarted() {
    let (mut world, transfers, _service) = with_transfers("killb", RESUME);
    let killed = Instant::now();
    world.signal(Side::B, Signal::KILL);
    until("the peer to be down", || {
        world.peer_state(Side::A) == "down"
    });
    let mut stream = world.connect(v4(5000));
    let noticed = killed.elapsed();
    assert!(noticed < DETECTED, "direct only after {noticed:?}");
    world.assert_direct(&stream, "peer-down");
    assert_echo(&mut stream, &content(2, 100_000));
    assert_broken(transfers, killed, LEARNT);
    until("rules, routes and guard to be gone", || {
        world.residue(Side::B).is_empty()
    });
    world.lab.gateway_start(Side::B).unwrap();
    world.lab.wait_peers_up().unwrap();
    assert_tunnelled_again(&world);
}

#[test]
fn invariant_7_flows_are_reset_within_5_s_of_learning_that_the_peer_restarted() {
    for (test, killed) in [("bounceb", Side::B), ("bouncea", Side::A)] {
        // With the default `resume_max` nothing but the restart ends them.
        let (mut world, transfers, _service) = with_transfers(test, "");
        let flows = transfers.len() as u64;
        until("the transfers to be all there is", || {
            world.status(killed.other())["peers"][0]["flows"] == flows
        });
        world.signal(killed, Signal::KILL);
        until("rules, routes and guard to be gone", || {
            world.residue(killed).is_empty()
        });
        world.lab.gateway_start(killed).unwrap();
        world.lab.wait_peers_up().unwrap();
        let learnt = Instant::now();
        assert_broken(transfers, learnt, Duration::from_secs(5));
        let status = world.status(killed.other());
        let events = status["recent"].as_array().unwrap();
        let restarted = events
            .iter()
            .find(|happened| happened["event"]["event"] == "peer_restarted");
        let restarted = restarted.unwrap_or_else(|| panic!("it does not say so: {events:?}"));
        assert_eq!(restarted["event"]["flows"], flows, "{restarted}");
        assert_tunnelled_again(&world);
    }
}

#[test]
fn invariant_7_the_near_gateway_hangs_and_goes_on() {
    let (mut world, transfers, _service) = with_transfers("stopa", "");
    world.signal(Side::A, Signal::STOP);
    assert_direct_after_a_second(&world, Instant::now());
    world.signal(Side::A, Signal::CONT);
    world.lab.wait_peers_up().unwrap();
    assert_tunnelled_again(&world);
    for transfer in &transfers {
        transfer.wait_moved(1 << 20);
    }
    transfers.into_iter().for_each(Transfer::finish_whole);
}

#[test]
fn invariant_7_the_far_gateway_hangs_and_goes_on() {
    let (mut world, transfers, _service) = with_transfers("stopb", "");
    let stopped = Instant::now();
    world.signal(Side::B, Signal::STOP);
    until("the peer to be down", || {
        world.peer_state(Side::A) == "down"
    });
    let mut stream = world.connect(v4(5000));
    let noticed = stopped.elapsed();
    assert!(noticed < DETECTED, "direct only after {noticed:?}");
    world.assert_direct(&stream, "peer-down");
    assert_echo(&mut stream, &content(3, 100_000));
    world.signal(Side::B, Signal::CONT);
    world.lab.wait_peers_up().unwrap();
    assert_tunnelled_again(&world);
    for transfer in &transfers {
        transfer.wait_moved(1 << 20);
    }
    transfers.into_iter().for_each(Transfer::finish_whole);
}

/// Sends until it cannot.
fn flood(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_write_timeout(Some(3 * HANG))?;
    let block = content(1, 1 << 20);
    loop {
        stream.write_all(&block)?;
    }
}

/// Waits until nothing more is taken from a flow's sender.
fn wait_full(world: &World, sender: Side, client: &TcpStream) {
    let client = client.local_addr().unwrap();
    let mut before = 0;
    until("the unread flow to come to a halt", || {
        std::thread::sleep(Duration::from_millis(500));
        let flow = world.flow_of(sender, client).unwrap();
        let taken = flow["sent_bytes"].as_u64().unwrap();
        std::mem::replace(&mut before, taken) == taken && taken > 0
    });
}

#[test]
fn invariant_7_a_full_flow_that_nobody_reads_does_not_outlive_a_restart() {
    for (test, killed) in [("fullb", Side::B), ("fulla", Side::A)] {
        let mut world = World::with(test, "", "");
        let (accepted, incoming) = mpsc::channel();
        let _down = Service::start(&world.lab.server().unwrap(), 5010, |stream, _| {
            let _ = flood(stream);
        });
        let _up = Service::start(&world.lab.server().unwrap(), 5011, move |stream, _| {
            let _ = accepted.send(stream);
        });
        let mut unread_client = world.connect(v4(5010));
        let client = world.connect(v4(5011));
        let mut unread_server = incoming.recv_timeout(HANG).unwrap();
        let sender = client.try_clone().unwrap();
        let sender = std::thread::spawn(move || flood(sender));
        wait_full(&world, Side::B, &unread_client);
        wait_full(&world, Side::A, &client);

        world.signal(killed, Signal::KILL);
        until("rules, routes and guard to be gone", || {
            world.residue(killed).is_empty()
        });
        world.lab.gateway_start(killed).unwrap();
        world.lab.wait_peers_up().unwrap();
        for side in Side::BOTH {
            until("both flows to be gone", || {
                world.status(side)["flows"]["optimised"] == 0
            });
        }
        assert!(sender.join().unwrap().is_err());
        for stream in [&mut unread_client, &mut unread_server] {
            let (len, _, result) = read_all(stream);
            let error = result.expect_err("a clean end");
            assert_eq!(
                error.kind(),
                ErrorKind::ConnectionReset,
                "{len} bytes: {error}"
            );
        }
    }
}
