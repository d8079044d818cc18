//! Dialling from the router: what each kind of failure is called.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farhaul_gateway::dial::{DialFailure, Forbidden, Source, dial, own_addresses};
use farhaul_gateway::intercept::disarm_reset;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::place::{Place, SERVER_V4, v4, v6};
use crate::role::RELAY;

pub const TESTS: &[(&str, fn())] = &[
    ("dial_names_what_went_wrong", failures),
    (
        "dial_learns_for_a_client_that_a_host_is_not_there",
        not_there,
    ),
    ("dial_explains_an_asymmetric_return", asymmetric),
    ("dial_refuses_ourselves", ourselves),
    ("only_who_takes_connections_is_warned_of_forwarding", warned),
    ("dial_lets_a_client_use_its_port_again", port_again),
];

/// Nobody listens there.
const CLOSED: u16 = 9;

fn dialled(
    place: &Place,
    to: SocketAddr,
    source: Source,
    limit: Duration,
) -> Result<(), DialFailure> {
    place.within("r", || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(dial(to, source, limit))
            .map(drop)
    })
}

fn failures() {
    let place = Place::new();
    place.serve(&[RELAY]);
    let gateway = place.gateway("interfaces=");
    let limit = Duration::from_secs(4);
    for (to, client) in [(v4(RELAY), "10.1.0.2:4000"), (v6(RELAY), "[fd01::2]:4000")] {
        let client = Source::Client(client.parse().unwrap());
        for source in [client, Source::Gateway] {
            dialled(&place, to, source, limit).unwrap();
            let closed = SocketAddr::new(to.ip(), CLOSED);
            let failure = dialled(&place, closed, source, limit).unwrap_err();
            assert!(matches!(failure, DialFailure::Refused), "{failure:?}");
        }
    }
    // No such neighbour, no route, nobody at home.
    place.run("r", "ip route add unreachable 10.9.0.0/24");
    place.run("s", "ip route add blackhole 10.1.0.0/24");
    for (to, expected) in [
        ("10.2.0.77:80", "HostUnreachable"),
        ("10.9.0.1:80", "HostUnreachable"),
        ("10.77.0.1:80", "NetworkUnreachable"),
    ] {
        let failure = dialled(&place, to.parse().unwrap(), Source::Gateway, limit).unwrap_err();
        assert_eq!(format!("{failure:?}"), expected, "{to}");
    }
    place.run("s", "ip route replace blackhole 10.2.0.1/32");
    let start = Instant::now();
    let client = Source::Client("10.1.0.2:4001".parse().unwrap());
    for source in [Source::Gateway, client] {
        let failure = dialled(&place, v4(RELAY), source, Duration::from_secs(1)).unwrap_err();
        assert!(matches!(failure, DialFailure::TimedOut), "{failure:?}");
    }
    // The kernel alone would try for two minutes.
    assert!(start.elapsed() < Duration::from_secs(20));
    gateway.stop();
}

fn not_there() {
    let place = Place::new();
    let gateway = place.gateway("interfaces=");
    place.run("r", "ip route add unreachable 10.9.0.0/24");
    // Beyond a router of the server's network that knows no way.
    place.run("s", "sysctl -qw net.ipv4.ip_forward=1");
    place.run("s", "ip route add unreachable 10.8.0.0/24");
    place.run("r", "ip route add 10.8.0.0/24 via 10.2.0.2");
    let limit = Duration::from_secs(20);
    let start = Instant::now();
    for (to, client, expected) in [
        ("10.2.0.77:80", "10.1.0.2:4000", "HostUnreachable"),
        ("[fd02::77]:80", "[fd01::2]:4000", "HostUnreachable"),
        ("10.8.0.1:80", "10.1.0.2:4001", "HostUnreachable"),
        ("10.9.0.1:80", "10.1.0.2:4002", "HostUnreachable"),
        ("10.77.0.1:80", "10.1.0.2:4003", "NetworkUnreachable"),
    ] {
        let client = Source::Client(client.parse().unwrap());
        let failure = dialled(&place, to.parse().unwrap(), client, limit).unwrap_err();
        assert_eq!(format!("{failure:?}"), expected, "{to}");
    }
    // Each on its own would have taken the whole limit.
    assert!(start.elapsed() < limit, "{:?}", start.elapsed());
    gateway.stop();
}

fn asymmetric() {
    let place = Place::new();
    place.serve(&[RELAY]);
    let gateway = place.gateway("interfaces=");
    // The server's way back to the client leads elsewhere.
    place.run("s", "ip route add blackhole 10.1.0.0/24");
    let client = Source::Client("10.1.0.2:4000".parse().unwrap());
    let start = Instant::now();
    for to in [v4(RELAY), v4(CLOSED)] {
        let failure = dialled(&place, to, client, Duration::from_secs(20)).unwrap_err();
        assert!(
            matches!(failure, DialFailure::AsymmetricReturn { .. }),
            "{failure:?}"
        );
    }
    assert!(
        start.elapsed() < Duration::from_secs(11),
        "{:?}",
        start.elapsed()
    );
    // From the gateway's own address it works.
    dialled(&place, v4(RELAY), Source::Gateway, Duration::from_secs(2)).unwrap();
    gateway.stop();
}

fn ourselves() {
    let place = Place::new();
    let own = place.within("r", own_addresses);
    for address in [
        "10.1.0.1",
        "10.2.0.1",
        "127.0.0.1",
        "fd01::1",
        "fd02::1",
        "::1",
    ] {
        assert!(
            own.contains(&address.parse().unwrap()),
            "{address} not in {own:?}"
        );
    }
    assert!(!own.contains(&SERVER_V4.parse().unwrap()));
    for address in ["10.1.0.1:80", "[fd02::1]:80", "[::ffff:10.2.0.1]:80"] {
        let failure = dialled(
            &place,
            address.parse().unwrap(),
            Source::Gateway,
            Duration::from_secs(1),
        );
        assert!(
            matches!(failure, Err(DialFailure::Forbidden(Forbidden::OwnAddress))),
            "{address}: {failure:?}"
        );
    }
}

fn warned() {
    let place = Place::new();
    place.run("r", "sysctl -qw net.ipv4.ip_forward=0");
    for (options, is_warned) in [("interfaces=", false), ("interfaces=lan1", true)] {
        let gateway = place.start_gateway(options);
        let ready = gateway.wait_for("ready", Duration::from_secs(10));
        assert_eq!(
            ready.contains("net.ipv4.ip_forward=1"),
            is_warned,
            "{ready}"
        );
        gateway.stop();
    }
}

fn port_again() {
    let place = Place::new();
    // With timestamps the kernel itself can tell old from new; servers
    // without them, Windows' among them, leave it to us.
    place.run("s", "sysctl -qw net.ipv4.tcp_timestamps=0");
    place.serve(&[RELAY]);
    let gateway = place.gateway("interfaces=");
    for (to, client) in [(v4(RELAY), "10.1.0.2:4000"), (v6(RELAY), "[fd01::2]:4000")] {
        let source = Source::Client(client.parse().unwrap());
        let limit = Duration::from_secs(2);
        place.within("r", || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let mut last = None;
                for _ in 0..3 {
                    // The client's side ends first, so TIME_WAIT is here.
                    let mut stream = dial(to, source, limit).await.unwrap();
                    disarm_reset(&stream).unwrap();
                    stream.shutdown().await.unwrap();
                    let mut greeting = String::new();
                    stream.read_to_string(&mut greeting).await.unwrap();
                    assert_eq!(greeting, format!("hello {client}\n"));
                    last = Some(stream);
                }
                drop(last);
                // A connection that has not ended is left alone.
                let mut open = dial(to, source, limit).await.unwrap();
                let failure = dial(to, source, limit).await.unwrap_err();
                assert!(
                    matches!(failure, DialFailure::SourceInUse { .. }),
                    "{failure:?}"
                );
                open.write_all(b"still here").await.unwrap();
                let mut echoed = vec![0; format!("hello {client}\nstill here").len()];
                open.read_exact(&mut echoed).await.unwrap();
                assert!(echoed.ends_with(b"still here"));
                // One whose end is on its way is waited for.
                let ending = async {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    drop(open);
                };
                let (next, ()) = tokio::join!(dial(to, source, limit), ending);
                drop(next.unwrap());
            });
        });
    }
    gateway.stop();
}
