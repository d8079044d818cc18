//! Two gateways that dial each other at the same time, over loopback.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farhaul_gateway::config::{load, meaning};
use farhaul_gateway::keys::{PrivateKey, PublicKey};
use farhaul_gateway::peer::Peer;
use farhaul_gateway::quic::Endpoint;
use farhaul_gateway::reduction::Store;
use farhaul_gateway::session::{Session, SessionEnd, SessionParts};
use farhaul_gateway::shares::Share;
use farhaul_tunnel::{Hello, Limits, PROTOCOL_VERSIONS, PathSettings, Side};

const PATIENCE: Duration = Duration::from_secs(10);
const DEAD_AFTER: Duration = Duration::from_millis(2500);

/// One gateway's view of the other.
struct End {
    endpoint: Endpoint,
    instance: u128,
    peer: Peer,
}

impl End {
    fn new(endpoint: Endpoint, instance: u128, other: PublicKey) -> End {
        let text = format!(
            "[site]\nname = 'a'\nkey = 'k'\n[[peer]]\nname = 'b'\nkey = '{other}'\nnetworks = ['10.1.0.0/16']\n"
        );
        let loaded = load::check(&text, Path::new("test.toml"), |_| None).unwrap();
        let config: meaning::Peer = loaded.config.peers[0].clone();
        endpoint.pinned.replace([other]);
        End {
            endpoint,
            instance,
            peer: Peer::new(config, Store::with_disk(0, None), Share::default()),
        }
    }

    fn start(&self, connection: noq::Connection, side: Side) -> Arc<Session> {
        let (session, _) = Session::start(SessionParts {
            peer: "other".to_owned(),
            connection,
            side,
            hello: Hello {
                versions: PROTOCOL_VERSIONS,
                instance: self.instance,
                site: "test".to_owned(),
                features: 0,
            },
            limits: Limits::default(),
            mark: Arc::default(),
            path: PathSettings::default(),
            keep_alive: Duration::from_millis(200),
            aliases: None,
            nudge: self.endpoint.nudge(),
            pauses: self.endpoint.pauses.clone(),
        });
        session
    }

    async fn adopt(&self, session: &Arc<Session>, dialled_by: u128) {
        let negotiated = session.greeted().await.unwrap();
        self.peer
            .adopt(session.clone(), negotiated, dialled_by, DEAD_AFTER);
    }

    fn standing(&self) -> Vec<Arc<Session>> {
        self.peer.tunnels().into_iter().map(|(t, _)| t).collect()
    }
}

fn endpoint() -> (Endpoint, PublicKey) {
    let loaded = load::check("[site]\nname='d'\nkey='k'\n", Path::new("d.toml"), |_| None);
    let mut config = loaded.unwrap().config.tunnel;
    config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let key = PrivateKey::generate().unwrap();
    let public = key.public();
    (Endpoint::bind(&config, key).unwrap(), public)
}

/// Two gateways of these instances.
fn pair(instances: [u128; 2]) -> [End; 2] {
    let ((a, key_a), (b, key_b)) = (endpoint(), endpoint());
    [
        End::new(a, instances[0], key_b),
        End::new(b, instances[1], key_a),
    ]
}

/// A tunnel from one to the other: its dialler's end and the other one.
async fn dial(from: &End, to: &End) -> (Arc<Session>, Arc<Session>) {
    let address = to.endpoint.local_address().unwrap();
    let key = from.peer_key();
    let (dialled, accepted) = tokio::join!(from.endpoint.dial(address, key, PATIENCE), async {
        Endpoint::admit(to.endpoint.accept().await.unwrap(), PATIENCE).await
    });
    let (accepted, _) = accepted.unwrap();
    (
        from.start(dialled.unwrap(), Side::Dialer),
        to.start(accepted, Side::Acceptor),
    )
}

impl End {
    fn peer_key(&self) -> PublicKey {
        self.peer.config().key
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_tunnels_dialled_at_once_both_ends_keep_the_same() {
    for instances in [[1, 2], [2, 1]] {
        let [a, b] = pair(instances);
        let (x_at_a, x_at_b) = dial(&a, &b).await;
        let (y_at_b, y_at_a) = dial(&b, &a).await;
        // Whoever accepts adopts half a round trip before whoever dials.
        a.adopt(&y_at_a, b.instance).await;
        b.adopt(&x_at_b, a.instance).await;
        a.adopt(&x_at_a, a.instance).await;
        b.adopt(&y_at_b, b.instance).await;
        let kept = match a.instance < b.instance {
            true => [&x_at_a, &x_at_b],
            false => [&y_at_a, &y_at_b],
        };
        for (end, kept) in [&a, &b].into_iter().zip(kept) {
            assert!(Arc::ptr_eq(&end.peer.tunnel(DEAD_AFTER).unwrap(), kept));
        }
        // Long enough for the other one to be closed, and for more to end if it did.
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            for end in [&a, &b] {
                end.peer.review(DEAD_AFTER);
            }
        }
        for (end, kept) in [&a, &b].into_iter().zip(kept) {
            let standing = end.standing();
            assert_eq!(standing.len(), 1, "one is kept at {}", end.instance);
            assert!(Arc::ptr_eq(&standing[0], kept));
            assert!(!kept.is_over());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_is_not_closed_for_one_that_is_over() {
    let [a, b] = pair([1, 2]);
    let (older, _older_at_b) = dial(&a, &b).await;
    let (newer, _newer_at_b) = dial(&a, &b).await;
    a.adopt(&older, a.instance).await;
    a.adopt(&newer, a.instance).await;
    tokio::time::sleep(Duration::from_millis(2200)).await;
    newer.close(SessionEnd::Lost);
    a.peer.review(DEAD_AFTER);
    assert!(!older.is_over());
    assert!(Arc::ptr_eq(&a.peer.tunnel(DEAD_AFTER).unwrap(), &older));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_outage_the_newer_tunnel_is_kept() {
    let [a, b] = pair([1, 2]);
    let (older, _older_at_b) = dial(&a, &b).await;
    a.adopt(&older, a.instance).await;
    let (_newer_at_b, newer) = dial(&b, &a).await;
    // Nothing was heard in it for that long.
    let negotiated = newer.greeted().await.unwrap();
    a.peer
        .adopt(newer.clone(), negotiated, b.instance, Duration::ZERO);
    assert!(Arc::ptr_eq(&a.peer.tunnel(DEAD_AFTER).unwrap(), &newer));
    tokio::time::sleep(Duration::from_millis(2200)).await;
    a.peer.review(DEAD_AFTER);
    assert_eq!(a.standing().len(), 1);
    assert!(!newer.is_over());
}
