//! A thousand connections at once, and one client that never reads.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farhaul_lab::Side;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::apps::{Service, assert_echo, content, digest, echo, listen};
use crate::world::{HANG, World, until, v4};

const CLIENTS: usize = 1000;
const EACH_BYTES: usize = 40_000;
/// The flow of a client that does not read may hold this much in the tunnel:
/// its window and a send buffer at each end, generously.
const STUCK_BYTES_MAX: u64 = 64 << 20;
/// A gateway with a thousand flows and one of them stuck.
const RESIDENT_MIB_MAX: u64 = 400;

/// Both ends of all connections live in this process.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, wanted).unwrap();
    let enough = limit.maximum.is_none_or(|most| most >= 4 * CLIENTS as u64);
    assert!(enough, "this needs {} descriptors", 4 * CLIENTS);
}

fn one_thread<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async { tokio::time::timeout(3 * HANG, work).await.unwrap() })
}

/// Echoes `EACH_BYTES` of every connection, in a thread of the server's namespace.
fn serve_crowd(world: &World, port: u16) -> std::thread::JoinHandle<()> {
    let listener = world.server(|| listen("0.0.0.0", port));
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        one_thread(async {
            let listener = TcpListener::from_std(listener).unwrap();
            let mut tasks = JoinSet::new();
            for _ in 0..CLIENTS {
                let (mut stream, _) = listener.accept().await.unwrap();
                tasks.spawn(async move {
                    let mut buffer = vec![0; EACH_BYTES];
                    stream.read_exact(&mut buffer).await.unwrap();
                    stream.write_all(&buffer).await.unwrap();
                    stream.shutdown().await.unwrap();
                });
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        });
    })
}

/// Connects all, then lets all of them exchange at once.
async fn crowd(to: SocketAddr, all_connected: Arc<dyn Fn() + Send + Sync>) -> usize {
    let mut streams = JoinSet::new();
    for number in 0..CLIENTS {
        streams.spawn(async move { (number, TcpStream::connect(to).await.unwrap()) });
    }
    let streams = streams.join_all().await;
    all_connected();
    let mut whole = JoinSet::new();
    for (number, mut stream) in streams {
        whole.spawn(async move {
            let sent = content(number as u64, EACH_BYTES);
            let mut received = Vec::new();
            let (mut from, mut into) = stream.split();
            let (written, read) =
                tokio::join!(into.write_all(&sent), from.read_to_end(&mut received));
            written.unwrap();
            read.unwrap();
            digest(&received) == digest(&sent)
        });
    }
    whole
        .join_all()
        .await
        .into_iter()
        .filter(|same| *same)
        .count()
}

/// Memory that a gateway really has.
pub(crate) fn resident_mib(world: &World, side: Side) -> u64 {
    let role = format!("gateway-{}", side.letter());
    let pid = world.lab.sandbox().process(&role).unwrap().pid;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib: u64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib / 1024
}

#[test]
fn invariant_5_a_thousand_connections_and_a_client_that_never_reads() {
    raise_descriptor_limit();
    let world = World::up("crowd");
    let flood = Service::start(&world.lab.server().unwrap(), 9001, |mut stream, _| {
        let block = content(1, 1 << 20);
        // A gigabyte, if somebody took it.
        for _ in 0..1024 {
            if stream.write_all(&block).is_err() {
                return;
            }
        }
    });
    let stuck = world.connect(v4(9001));
    let own = stuck.local_addr().unwrap();
    let held = || {
        let flow = world.flow_of(Side::B, own).unwrap();
        flow["sent_bytes"].as_u64().unwrap()
    };
    let mut before = 0;
    until("the unread flow to come to a halt", || {
        std::thread::sleep(Duration::from_millis(500));
        std::mem::replace(&mut before, held()) == before && before > 0
    });
    assert!(
        before < STUCK_BYTES_MAX,
        "{before} bytes taken from the server"
    );

    let server = serve_crowd(&world, 9002);
    let socket = world.lab.gateway_socket(Side::A);
    let count: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        until("all of them to be flows", || {
            let words = ["status", "--json", "--socket"];
            let mut command = std::process::Command::new(crate::world::FARHAUL);
            let output = command.args(words).arg(&socket).output().unwrap();
            let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            // With the one that is stuck.
            status["flows"]["optimised"].as_u64().unwrap() == CLIENTS as u64 + 1
        });
    });
    let whole = world.client(|| one_thread(crowd(v4(9002), count)));
    assert_eq!(whole, CLIENTS, "of {CLIENTS} echoes as many were right");
    server.join().unwrap();
    // The stuck one has neither grown nor gone, and the gateways are no larger
    // than their bounds allow.
    assert!(held() < STUCK_BYTES_MAX);
    assert!(world.is_tunnelled(&stuck));
    for side in Side::BOTH {
        let mib = resident_mib(&world, side);
        println!("gateway {}: {mib} MiB resident", side.letter());
        assert!(mib < RESIDENT_MIB_MAX, "gateway {side:?} holds {mib} MiB");
    }
    drop(stuck);
    drop(flood);
    for side in Side::BOTH {
        until("every flow to be gone", || {
            world.status(side)["flows"]["optimised"] == 0
        });
    }
    let _service = Service::start(&world.lab.server().unwrap(), 9003, echo);
    assert_echo(&mut world.connect(v4(9003)), &content(2, 100_000));
}

#[test]
fn invariant_5_beyond_flows_max_connections_go_direct() {
    let world = World::with("flowsmax", "[tunnel]\nflows_max = 3", "");
    let _service = Service::start(&world.lab.server().unwrap(), 9004, echo);
    let mut streams: Vec<_> = (0..6).map(|_| world.connect(v4(9004))).collect();
    let tunnelled = streams
        .iter()
        .filter(|stream| world.is_tunnelled(stream))
        .count();
    assert_eq!(tunnelled, 3);
    for stream in &mut streams {
        assert_echo(stream, &content(3, 50_000));
    }
    world.assert_direct(&streams[5], "overload");
    streams[0].flush().unwrap();
    streams.remove(0);
    until("room for another", || {
        world.is_tunnelled(&world.connect(v4(9004)))
    });
}
