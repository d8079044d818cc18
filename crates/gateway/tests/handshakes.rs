//! Handshakes that come to nothing, at a whole gateway over loopback: broken
//! off, replayed, too many at once, of another version. Those who have a
//! tunnel notice nothing, those who want one get it afterwards.

#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use farhaul_gateway::admin::Operator;
use farhaul_gateway::config::load;
use farhaul_gateway::event::Event;
use farhaul_gateway::events::Events;
use farhaul_gateway::gateway::{Gateway, GatewayParts};
use farhaul_gateway::keys::{PrivateKey, PublicKey};
use farhaul_gateway::metrics::Metrics;
use farhaul_gateway::quic::Endpoint;
use farhaul_gateway::session::{Session, SessionEnd, SessionParts};
use farhaul_tunnel::{
    Class, Hello, Limits, OpenRequest, PROTOCOL_VERSIONS, Side, Target, VersionRange,
};
use tokio::net::UdpSocket;
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinSet;

/// Turns a hang into a failure.
const HANG: Duration = Duration::from_secs(60);
/// A gateway gives a handshake five seconds; what is counted of them must be
/// seen before the first is given up.
const HANDSHAKE: Duration = Duration::from_millis(4_500);

/// A gateway that waits for dialers with these keys.
struct Waiting {
    gateway: Arc<Gateway>,
    address: SocketAddr,
    key: PublicKey,
    events: broadcast::Receiver<Event>,
}

fn waiting(dialers: &[PublicKey]) -> Waiting {
    waiting_at("127.0.0.1:1", dialers)
}

fn waiting_at(listen: &str, dialers: &[PublicKey]) -> Waiting {
    let mut text = format!("[site]\nname = 'waiting'\nkey = 'k'\n[tunnel]\nlisten = '{listen}'\n");
    for (number, key) in dialers.iter().enumerate() {
        text += &format!(
            "[[peer]]\nname = 'dialer {number}'\nkey = '{key}'\nnetworks = ['10.{number}.0.0/16']\n"
        );
    }
    let mut config = load::check(&text, Path::new("test.toml"), |_| None)
        .unwrap()
        .config;
    config.tunnel.listen.set_port(0);
    let key = PrivateKey::generate().unwrap();
    let own_key = key.public();
    let endpoint = Endpoint::bind(&config.tunnel, key).unwrap();
    let address = endpoint.local_address().unwrap();
    let events = Events::unlogged(Arc::new(Metrics::new()));
    let seen = events.subscribe();
    let gateway = Gateway::new(GatewayParts {
        config,
        endpoint,
        own_key,
        events,
        reloads: mpsc::channel(1).0,
        fitting: 1000,
        handshakes: 64,
    });
    gateway.start();
    Waiting {
        gateway,
        address,
        key: own_key,
        events: seen,
    }
}

/// One who wants a tunnel.
fn dialer() -> (Endpoint, PublicKey) {
    let key = PrivateKey::generate().unwrap();
    let public = key.public();
    (dialer_with(key), public)
}

fn dialer_with(key: PrivateKey) -> Endpoint {
    let mut config = load::check("[site]\nname='d'\nkey='k'\n", Path::new("d.toml"), |_| None)
        .unwrap()
        .config
        .tunnel;
    config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Endpoint::bind(&config, key).unwrap()
}

fn session(connection: noq::Connection, versions: VersionRange) -> Arc<Session> {
    session_of(7, connection, versions)
}

/// The session of a process of this number.
fn session_of(instance: u128, connection: noq::Connection, versions: VersionRange) -> Arc<Session> {
    let parts = SessionParts {
        peer: "waiting".to_owned(),
        connection,
        side: Side::Dialer,
        hello: Hello {
            versions,
            instance,
            site: "dialer".to_owned(),
            features: 0,
        },
        limits: Limits::default(),
        mark: Arc::default(),
        path: farhaul_tunnel::PathSettings::default(),
        keep_alive: Duration::from_millis(700),
        aliases: None,
        nudge: Arc::new(|| {}),
        pauses: Arc::default(),
    };
    Session::start(parts).0
}

/// A tunnel that stands.
async fn tunnel(waiting: &Waiting, dialer: &Endpoint) -> Arc<Session> {
    let connection = dialer.dial(waiting.address, waiting.key, HANG).await;
    let session = session(connection.unwrap(), PROTOCOL_VERSIONS);
    session.greeted().await.unwrap();
    session
}

/// The tunnel is alive: an open is answered, if only with a refusal.
async fn assert_alive(session: &Arc<Session>) {
    let request = OpenRequest {
        client: SocketAddr::from(([10, 0, 0, 2], 40_000)),
        target: Target::Address(SocketAddr::from(([10, 9, 9, 9], 80))),
        keep_client_address: false,
        class: Class::Auto,
        dscp: 0,
        correction: farhaul_tunnel::Correction::Auto,
        items: false,
        payload: farhaul_tunnel::Payload::Plain,
    };
    let flow = session.open(request).unwrap();
    tokio::time::timeout(HANG, flow.opened()).await.unwrap();
    assert!(!session.is_over());
}

/// When a datagram came, and what it says.
type Timed = (Instant, Vec<u8>);

/// What goes between a dialer and a gateway, datagram by datagram.
struct Relay {
    address: SocketAddr,
    /// Datagrams of the dialer, and when each datagram of the gateway came.
    asked: Arc<Mutex<Vec<Vec<u8>>>>,
    answered: Arc<Mutex<Vec<Timed>>>,
}

impl Relay {
    /// Lets the first `asks_max` datagrams pass, and answers if `returns`.
    async fn start(to: SocketAddr, asks_max: usize, returns: bool) -> Relay {
        let near = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let far = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let relay = Relay {
            address: near.local_addr().unwrap(),
            asked: Arc::default(),
            answered: Arc::default(),
        };
        let dialer = Arc::new(Mutex::new(None));
        let (asked, from) = (relay.asked.clone(), dialer.clone());
        let (inside, outside) = (near.clone(), far.clone());
        let passed = AtomicUsize::new(0);
        tokio::spawn(async move {
            let mut buffer = [0; 2048];
            while let Ok((len, source)) = inside.recv_from(&mut buffer).await {
                *from.lock().unwrap() = Some(source);
                asked.lock().unwrap().push(buffer[..len].to_vec());
                if passed.fetch_add(1, Ordering::Relaxed) < asks_max {
                    outside.send_to(&buffer[..len], to).await.unwrap();
                }
            }
        });
        let answered = relay.answered.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 2048];
            while let Ok((len, _)) = far.recv_from(&mut buffer).await {
                let answer = (Instant::now(), buffer[..len].to_vec());
                answered.lock().unwrap().push(answer);
                let source = *dialer.lock().unwrap();
                if let (true, Some(source)) = (returns, source) {
                    near.send_to(&buffer[..len], source).await.unwrap();
                }
            }
        });
        relay
    }
}

/// Source connection ID of a long header (RFC 9000 section 17.2): one for
/// each handshake a gateway has begun.
fn source_id(datagram: &[u8]) -> Option<Vec<u8>> {
    let destination_len = usize::from(*datagram.get(5)?);
    let at = 6 + destination_len;
    let len = usize::from(*datagram.get(at)?);
    let is_long = datagram[0] & 0x80 != 0;
    is_long.then(|| datagram.get(at + 1..at + 1 + len).map(<[u8]>::to_vec))?
}

async fn rejected(events: &mut broadcast::Receiver<Event>) -> String {
    rejection(events).await.1
}

/// Who was turned away, and why.
async fn rejection(events: &mut broadcast::Receiver<Event>) -> (SocketAddr, String) {
    loop {
        if let Event::PeerRejected { address, why } = events.recv().await.unwrap() {
            return (address, why);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_handshake_is_given_up_and_disturbs_nobody() {
    let ((standing, key), (broken, broken_key)) = (dialer(), dialer());
    let mut waiting = waiting(&[key, broken_key]);
    let tunnel = tunnel(&waiting, &standing).await;
    // Its first flight arrives; the gateway's answer and all else is lost.
    let relay = Relay::start(waiting.address, 1, false).await;
    let patience = Duration::from_millis(300);
    let dialled = broken.dial(relay.address, waiting.key, patience).await;
    assert!(dialled.is_err());
    tokio::time::timeout(HANG, async {
        while relay.answered.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    assert_alive(&tunnel).await;
    let why = tokio::time::timeout(HANG, rejected(&mut waiting.events)).await;
    assert!(why.unwrap().contains("did not complete its handshake"));
    assert_alive(&tunnel).await;
    // The same one is welcome as soon as it means it.
    let connection = broken.dial(waiting.address, waiting.key, HANG).await;
    let late = session(connection.unwrap(), PROTOCOL_VERSIONS);
    late.greeted().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_knock_gets_three_times_its_bytes_at_most_and_no_tunnel() {
    let (dialer, key) = dialer();
    let waiting = waiting(&[key]);
    let relay = Relay::start(waiting.address, usize::MAX, true).await;
    let connection = dialer.dial(relay.address, waiting.key, HANG).await.unwrap();
    let tunnel = session(connection, PROTOCOL_VERSIONS);
    tunnel.greeted().await.unwrap();
    let knock = relay.asked.lock().unwrap()[0].clone();
    assert!(knock.len() >= 1200, "a first datagram is padded");
    // Somebody who has seen it sends it from elsewhere, then the same with
    // its cryptographic part spoilt.
    let mut spoilt = knock.clone();
    *spoilt.last_mut().unwrap() ^= 1;
    for (datagram, is_whole) in [(knock, true), (spoilt, false)] {
        let stranger = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (mut sent, mut received) = (0, 0);
        let mut buffer = [0; 2048];
        for _ in 0..10 {
            sent += stranger.send_to(&datagram, waiting.address).await.unwrap();
            let patience = Duration::from_millis(100);
            while let Ok(answer) = tokio::time::timeout(patience, stranger.recv(&mut buffer)).await
            {
                received += answer.unwrap();
            }
            assert!(received <= 3 * sent, "{received} for {sent} bytes");
        }
        assert!(is_whole || received == 0, "a spoilt one was answered");
    }
    assert_alive(&tunnel).await;
    let peers = waiting.gateway.peers();
    assert_eq!(peers[0].tunnels().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_5_no_more_than_64_handshakes_are_under_way() {
    let ((standing, key), (flood, flood_key), (late, late_key)) = (dialer(), dialer(), dialer());
    let waiting = waiting(&[key, flood_key, late_key]);
    let tunnel = tunnel(&waiting, &standing).await;
    let relay = Relay::start(waiting.address, usize::MAX, false).await;
    let flood = Arc::new(flood);
    let mut dialling = JoinSet::new();
    for _ in 0..200 {
        let (flood, to, key) = (flood.clone(), relay.address, waiting.key);
        dialling.spawn(async move { flood.dial(to, key, HANDSHAKE * 2).await.is_err() });
    }
    assert_alive(&tunnel).await;
    assert!(dialling.join_all().await.into_iter().all(|failed| failed));
    let answers = relay.answered.lock().unwrap().clone();
    let begun = answers[0].0;
    let at_once: HashSet<_> = answers
        .iter()
        .filter(|(at, _)| *at < begun + HANDSHAKE)
        .filter_map(|(_, datagram)| source_id(datagram))
        .collect();
    println!("{} handshakes at once", at_once.len());
    assert!((2..=64).contains(&at_once.len()), "{}", at_once.len());
    // They were all given up, and whoever comes now is let in.
    let connection = late.dial(waiting.address, waiting.key, HANG).await;
    let late = session(connection.unwrap(), PROTOCOL_VERSIONS);
    late.greeted().await.unwrap();
    assert_alive(&tunnel).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_of_another_protocol_version_is_told_and_named() {
    let (dialer, key) = dialer();
    let mut waiting = waiting(&[key]);
    let newer = VersionRange {
        min: PROTOCOL_VERSIONS.max + 100,
        max: PROTOCOL_VERSIONS.max + 101,
    };
    let connection = dialer.dial(waiting.address, waiting.key, HANG).await;
    let end = session(connection.unwrap(), newer)
        .greeted()
        .await
        .unwrap_err();
    let both = |text: &str| {
        text.contains(&PROTOCOL_VERSIONS.to_string()) && text.contains(&newer.to_string())
    };
    assert!(
        matches!(&end, SessionEnd::PeerClosed(why) if both(why)),
        "{end:?}"
    );
    let why = tokio::time::timeout(HANG, rejected(&mut waiting.events)).await;
    assert!(both(&why.unwrap()));
    let status = waiting.gateway.status();
    assert!(both(status.peers[0].last_error.as_ref().unwrap()));
    assert!(waiting.gateway.peers()[0].tunnels().is_empty());
    // Upgraded, it is welcome.
    let upgraded = tunnel(&waiting, &dialer).await;
    assert_alive(&upgraded).await;
    assert!(waiting.gateway.status().peers[0].last_error.is_none());
}

/// Tunnels of one peer, each of a process of this number at one of two addresses, one after the other. What the gateway
/// warns of, and what it says is next.
async fn takes_turns(turns: &[(u128, usize)]) -> (Vec<String>, Option<String>, [String; 2]) {
    let key = PrivateKey::generate().unwrap();
    let public = key.public();
    let dialers = [dialer_with(key.clone()), dialer_with(key)];
    let addresses = [0, 1].map(|at: usize| dialers[at].local_address().unwrap());
    let mut waiting = waiting(&[public]);
    let peer = waiting.gateway.peers()[0].clone();
    let mut held = Vec::new();
    for (instance, at) in turns {
        let dialled = dialers[*at].dial(waiting.address, waiting.key, HANG).await;
        let session = session_of(*instance, dialled.unwrap(), PROTOCOL_VERSIONS);
        session.greeted().await.unwrap();
        held.push(session);
        let stands = || {
            let newest = peer.tunnels().pop();
            newest.is_some_and(|(session, negotiated)| {
                negotiated.peer.instance == *instance && session.address() == Some(addresses[*at])
            })
        };
        tokio::time::timeout(HANG, async {
            while !stands() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
    }
    let mut warned = Vec::new();
    while let Ok(event) = waiting.events.try_recv() {
        if let Event::Trouble { what, .. } = event {
            warned.push(what);
        }
    }
    let next = waiting.gateway.status().next;
    (warned, next, addresses.map(|address| address.to_string()))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_with_one_key_are_named() {
    let turns = [(1, 0), (2, 1), (1, 0), (2, 1), (1, 0), (2, 1)];
    let (warned, next, addresses) = takes_turns(&turns).await;
    let [warned] = &warned[..] else {
        panic!("not said once: {warned:?}");
    };
    let tells = |text: &str| {
        text.contains("two gateways use the key of dialer 0")
            && addresses.iter().all(|address| text.contains(address))
    };
    assert!(tells(warned), "{warned}");
    assert!(tells(&next.clone().unwrap()), "{next:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_restarts_or_moves_is_one() {
    let restarts = [(1, 0), (2, 1), (3, 0), (4, 1), (5, 0)];
    let moves = [(1, 0), (1, 1), (1, 0), (1, 1), (1, 0)];
    for turns in [restarts, moves] {
        let (warned, next, _) = takes_turns(&turns).await;
        assert!(warned.is_empty(), "{warned:?}");
        assert_eq!(next, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_with_another_key_than_ours_for_it_is_shown_by_it() {
    let ((_, expected), (dialer, key)) = (dialer(), dialer());
    let mut waiting = waiting_at("[::]:1", &[expected]);
    let port = waiting.address.port();
    let at = SocketAddr::from(([127, 0, 0, 1], port));
    let next = waiting.gateway.status().next.unwrap();
    assert!(next.contains("has not dialled us yet; is"), "{next}");
    // The dialer is done before the gateway looks at its key; then it is told.
    let dialled = dialer.dial(at, waiting.key, HANG).await;
    let event = tokio::time::timeout(HANG, rejection(&mut waiting.events)).await;
    let (from, why) = event.unwrap();
    assert_eq!(
        Some(from),
        dialer.local_address(),
        "an IPv4 address as such"
    );
    assert!(why.contains(&key.to_string()), "{why}");
    drop(dialled);
    let status = waiting.gateway.status();
    assert_eq!(status.strangers.len(), 1);
    assert_eq!(status.strangers[0].key, key.to_string());
    let next = status.next.unwrap();
    let told =
        format!("somebody at {from} has dialled with a key that no [[peer]] here has: {key}");
    assert!(next.contains(&told), "{next}");
}
