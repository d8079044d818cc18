//! Two gateways with one private key, as a machine and its clone have, and the peer that they dial: whole gateways over
//! loopback.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farhaul_gateway::admin::Operator;
use farhaul_gateway::config::load;
use farhaul_gateway::event::Event;
use farhaul_gateway::events::Events;
use farhaul_gateway::gateway::{Gateway, GatewayParts};
use farhaul_gateway::keys::PrivateKey;
use farhaul_gateway::metrics::Metrics;
use farhaul_gateway::quic::Endpoint;
use tokio::sync::{broadcast, mpsc};

/// Turns a hang into a failure.
const HANG: Duration = Duration::from_secs(120);
/// So often each of the two must lose its tunnel.
const DOWNS: usize = 10;

struct Running {
    gateway: Arc<Gateway>,
    address: SocketAddr,
    events: broadcast::Receiver<Event>,
}

/// A gateway with one peer.
fn start(name: &str, key: &PrivateKey, peer: &str) -> Running {
    let text = format!(
        "[site]\nname = '{name}'\nkey = 'k'\n[tunnel]\nlisten = '127.0.0.1:1'\n[[peer]]\n{peer}\n"
    );
    let mut config = load::check(&text, Path::new("test.toml"), |_| None)
        .unwrap()
        .config;
    config.tunnel.listen.set_port(0);
    let endpoint = Endpoint::bind(&config.tunnel, key.clone()).unwrap();
    let address = endpoint.local_address().unwrap();
    let events = Events::unlogged(Arc::new(Metrics::new()));
    let seen = events.subscribe();
    let gateway = Gateway::new(GatewayParts {
        config,
        endpoint,
        own_key: key.public(),
        events,
        reloads: mpsc::channel(1).0,
        fitting: 1000,
        handshakes: 64,
    });
    gateway.start();
    Running {
        gateway,
        address,
        events: seen,
    }
}

/// Waits for so many ends of the tunnel; why the latest was.
async fn goes_down(running: &mut Running) -> String {
    let mut latest = String::new();
    for _ in 0..DOWNS {
        latest = loop {
            if let Event::PeerDown { why, .. } = running.events.recv().await.unwrap() {
                break why;
            }
        };
    }
    latest
}

/// What has been said that begins so.
fn said(running: &Running, kind: &str) -> usize {
    let recent = running.gateway.status().recent;
    recent
        .iter()
        .filter(|happened| happened.event["event"] == kind)
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_share_a_key_say_so_and_do_not_fill_the_log() {
    let (hub_key, key) = (
        PrivateKey::generate().unwrap(),
        PrivateKey::generate().unwrap(),
    );
    let waits = format!(
        "name = 'branch'\nkey = '{}'\nnetworks = ['10.1.0.0/16']",
        key.public()
    );
    let hub = start("hub", &hub_key, &waits);
    let dials = format!(
        "name = 'hub'\nkey = '{}'\naddress = '{}'\nnetworks = ['10.2.0.0/16']",
        hub_key.public(),
        hub.address
    );
    let mut both = [start("branch", &key, &dials), start("clone", &key, &dials)];
    for running in &mut both {
        let why = tokio::time::timeout(HANG, goes_down(running))
            .await
            .unwrap();
        assert!(
            why.contains("another process with this gateway's key"),
            "{why}"
        );
        let status = running.gateway.status();
        assert!(status.peers[0].own_key_shared);
        assert!(status.peers[0].key_shared_by.is_empty());
        let next = status.next.unwrap();
        assert!(
            next.contains("another gateway uses this one's private key"),
            "{next}"
        );
        assert_eq!(said(running, "trouble"), 1);
        // More than three only where a loaded machine takes long for all that.
        let downs = said(running, "peer_down");
        assert!(
            (3..=DOWNS / 2).contains(&downs),
            "{downs} of {DOWNS} were said"
        );
        assert!(said(running, "peer_up") <= downs + 1);
    }
    let status = hub.gateway.status();
    assert_eq!(status.peers[0].key_shared_by.len(), 2);
    assert!(!status.peers[0].own_key_shared);
    let next = status.next.unwrap();
    assert!(
        next.contains("two gateways use the key of branch"),
        "{next}"
    );
}
