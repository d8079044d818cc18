//! Two tunnels' ends in one process, over loopback: the real QUIC stack, real
//! keys, real frames.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farhaul_gateway::config::meaning::Tunnel;
use farhaul_gateway::keys::PrivateKey;
use farhaul_gateway::quic::Endpoint;
use farhaul_gateway::session::{
    FlowHandle, Incoming, OpenOutcome, Session, SessionEnd, SessionParts,
};
use farhaul_tunnel::{
    Class, Correction, Hello, Limits, OpenRequest, PROTOCOL_VERSIONS, Refusal, ResetCode, Side,
    Target,
};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(10);

struct End {
    endpoint: Endpoint,
    session: Arc<Session>,
    incoming: mpsc::UnboundedReceiver<Incoming>,
}

fn tunnel_config() -> Tunnel {
    Tunnel {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        resume_max: Duration::from_secs(10),
        keep_alive: Duration::from_millis(200),
        dead_after: Duration::from_secs(1),
        open_timeout: Duration::from_secs(5),
        drain: Duration::from_secs(1),
        flows_max: 1000,
    }
}

fn start(connection: noq::Connection, side: Side, instance: u128, endpoint: Endpoint) -> End {
    let (session, incoming) = Session::start(SessionParts {
        peer: format!("{side:?}"),
        connection,
        side,
        hello: Hello {
            versions: PROTOCOL_VERSIONS,
            instance,
            site: "test".to_owned(),
            features: 0,
        },
        limits: Limits::default(),
        mark: Arc::default(),
        path: farhaul_tunnel::PathSettings::default(),
        keep_alive: tunnel_config().keep_alive,
        aliases: None,
        nudge: endpoint.nudge(),
        pauses: endpoint.pauses.clone(),
    });
    End {
        endpoint,
        session,
        incoming,
    }
}

async fn pair() -> (End, End) {
    let (key_a, key_b) = (
        PrivateKey::generate().unwrap(),
        PrivateKey::generate().unwrap(),
    );
    let (public_a, public_b) = (key_a.public(), key_b.public());
    let a = Endpoint::bind(&tunnel_config(), key_a).unwrap();
    let b = Endpoint::bind(&tunnel_config(), key_b).unwrap();
    b.pinned.replace([public_a]);
    let address = b.local_address().unwrap();
    let (dialled, accepted) = tokio::join!(a.dial(address, public_b, PATIENCE), async {
        Endpoint::admit(b.accept().await.unwrap(), PATIENCE).await
    });
    let (accepted, key) = accepted.unwrap();
    assert_eq!(key, public_a);
    let a = start(dialled.unwrap(), Side::Dialer, 1, a);
    let b = start(accepted, Side::Acceptor, 2, b);
    assert_eq!(a.session.greeted().await.unwrap().peer.instance, 2);
    assert_eq!(b.session.greeted().await.unwrap().peer.instance, 1);
    (a, b)
}

fn request() -> OpenRequest {
    OpenRequest {
        client: SocketAddr::from(([10, 1, 0, 2], 40_000)),
        target: Target::Address(SocketAddr::from(([10, 2, 0, 2], 80))),
        keep_client_address: true,
        class: Class::Auto,
        dscp: 46,
        correction: Correction::Auto,
        items: false,
        payload: farhaul_tunnel::Payload::Plain,
    }
}

async fn open(a: &End, b: &mut End) -> (FlowHandle, FlowHandle) {
    let near = a.session.open(request()).unwrap();
    let incoming = b.incoming.recv().await.unwrap();
    assert_eq!(incoming.request, request());
    let far = incoming.accept(&b.session);
    assert_eq!(near.opened().await, OpenOutcome::Opened);
    (near, far)
}

fn pattern(len: usize, seed: u8) -> Bytes {
    (0..len)
        .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed)
        .collect()
}

async fn drain(flow: &FlowHandle) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = flow.read(64 << 10).await.unwrap() {
        all.extend_from_slice(&bytes);
    }
    all
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("hangs")
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_cross_in_both_directions_and_half_close_holds() {
    within(async {
        let (a, mut b) = pair().await;
        let (near, far) = open(&a, &mut b).await;
        let (there, back) = (pattern(10 << 20, 1), pattern(3 << 20, 2));
        let (_, _, at_far) = tokio::join!(
            async {
                near.write(there.clone()).await.unwrap();
                near.finish();
            },
            async { far.write(back.slice(..1000)).await.unwrap() },
            drain(&far)
        );
        assert!(at_far == there);
        // The other direction lives on after the half-close.
        let (_, at_near) = tokio::join!(
            async {
                far.write(back.slice(1000..)).await.unwrap();
                far.finish();
            },
            drain(&near)
        );
        assert!(at_near == back);
        drop((near, far));
        while a.session.flow_count() + b.session.flow_count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_flow_delivers_its_tail_after_the_handle_is_gone() {
    within(async {
        let (a, mut b) = pair().await;
        for round in 0..50u8 {
            let (near, far) = open(&a, &mut b).await;
            far.finish();
            assert_eq!(near.read(1).await, Ok(None));
            let data = pattern(100_000, round);
            near.write(data.clone()).await.unwrap();
            near.finish();
            drop(near);
            assert!(drain(&far).await == data);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_and_reset_carry_their_reason() {
    within(async {
        let (a, mut b) = pair().await;
        let near = a.session.open(request()).unwrap();
        b.incoming
            .recv()
            .await
            .unwrap()
            .refuse(&b.session, Refusal::HostUnreachable);
        assert_eq!(
            near.opened().await,
            OpenOutcome::Refused(Refusal::HostUnreachable)
        );

        let (near, far) = open(&a, &mut b).await;
        near.reset(ResetCode::Application);
        assert_eq!(far.cut().await, ResetCode::Application);
        assert_eq!(far.read(1).await, Err(ResetCode::Application));

        let (near, far) = open(&a, &mut b).await;
        drop(far);
        assert!(
            near.read(1).await.is_err(),
            "a dropped handle must not look like a clean end"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_reads_stops_only_its_own_flow() {
    within(async {
        let (a, mut b) = pair().await;
        let (stuck, _unread) = open(&a, &mut b).await;
        let flood = tokio::spawn(async move {
            let chunk = Bytes::from(vec![0; 64 << 10]);
            loop {
                stuck.write(chunk.clone()).await.unwrap();
            }
        });
        for round in 0..20u8 {
            let (near, far) = open(&a, &mut b).await;
            let data = pattern(300_000, round);
            let (_, got) = tokio::join!(
                async {
                    near.write(data.clone()).await.unwrap();
                    near.finish();
                },
                drain(&far)
            );
            assert!(got == data);
        }
        assert!(!flood.is_finished());
        flood.abort();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_tunnel_resets_its_flows_on_both_sides() {
    within(async {
        let (a, mut b) = pair().await;
        let (near, far) = open(&a, &mut b).await;
        a.session.close(SessionEnd::Closed);
        assert!(near.read(1).await.is_err());
        assert!(far.read(1).await.is_err());
        assert!(matches!(b.session.ended().await, SessionEnd::PeerClosed(_)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_pinned_keys_complete_a_handshake() {
    within(async {
        let key = || PrivateKey::generate().unwrap();
        let (key_b, key_c) = (key(), key());
        let public_b = key_b.public();
        let server = Endpoint::bind(&tunnel_config(), key_b).unwrap();
        server.pinned.replace([key().public()]);
        let address = server.local_address().unwrap();
        let stranger = Endpoint::bind(&tunnel_config(), key_c).unwrap();
        let (_, admitted) = tokio::join!(
            async {
                // The client learns of the refusal right after its own half.
                if let Ok(connection) = stranger.dial(address, public_b, PATIENCE).await {
                    connection.closed().await;
                }
            },
            async { Endpoint::admit(server.accept().await.unwrap(), PATIENCE).await }
        );
        assert!(admitted.is_err());
        // Who expects another key does not even get an answer.
        let wrong = stranger
            .dial(address, key().public(), Duration::from_millis(500))
            .await;
        assert!(wrong.unwrap_err().to_string().contains("does not answer"));
        assert!(server.turned.count() > 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_get_no_answer() {
    within(async {
        let key = PrivateKey::generate().unwrap();
        let server = Endpoint::bind(&tunnel_config(), key).unwrap();
        let address = server.local_address().unwrap();
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut unknown_version = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8];
        unknown_version.resize(1200, 7);
        let mut short_header = vec![0x41];
        short_header.resize(64, 9);
        let mut initial = vec![0xc0, 0, 0, 0, 1, 8];
        initial.resize(1200, 3);
        let mut repair = vec![0x0c];
        repair.resize(900, 1);
        let nothing = vec![0; 1472];
        let strange = [unknown_version, short_header, initial, repair, nothing];
        for datagram in &strange {
            for _ in 0..20 {
                socket.send_to(datagram, address).await.unwrap();
            }
        }
        let mut buffer = [0; 2048];
        let answer =
            tokio::time::timeout(Duration::from_millis(500), socket.recv_from(&mut buffer));
        assert!(answer.await.is_err(), "a stranger was answered");
        assert_eq!(
            server.turned.count(),
            80,
            "long headers and what is not QUIC are dropped at the door"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_peer_is_noticed_at_once() {
    within(async {
        let (key_a, key_b) = (
            PrivateKey::generate().unwrap(),
            PrivateKey::generate().unwrap(),
        );
        let (public_a, public_b) = (key_a.public(), key_b.public());
        let a = Endpoint::bind(&tunnel_config(), key_a).unwrap();
        // B runs in a runtime of its own so that it can die without good-bye.
        let dying = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        let b = {
            let _inside = dying.enter();
            Endpoint::bind(&tunnel_config(), key_b.clone()).unwrap()
        };
        b.pinned.replace([public_a]);
        let address = b.local_address().unwrap();
        let server = dying.spawn(async move {
            let (connection, _) = Endpoint::admit(b.accept().await.unwrap(), PATIENCE)
                .await
                .unwrap();
            let end = start(connection, Side::Acceptor, 2, b);
            std::future::pending::<()>().await;
            drop(end);
        });
        let connection = a.dial(address, public_b, PATIENCE).await.unwrap();
        let a = start(connection, Side::Dialer, 1, a);
        a.session.greeted().await.unwrap();
        server.abort();
        dying.shutdown_background();
        let mut config = tunnel_config();
        config.listen = address;
        let _reborn = loop {
            match Endpoint::bind(&config, key_b.clone()) {
                Ok(endpoint) => break endpoint,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        assert_eq!(a.session.ended().await, SessionEnd::PeerRestarted);
        drop(a.endpoint);
    })
    .await;
}
