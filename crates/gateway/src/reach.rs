//! Dialling a peer: which of the addresses of its name, and in which turn.

use std::net::SocketAddr;
use std::sync::Arc;

use farhaul_tunnel::Side;

use crate::gateway::{Gateway, HANDSHAKE_MAX};
use crate::peer::Peer;
use crate::quic::EndpointError;

/// Addresses of one name that are dialled in turn; each may take a handshake's time.
const ADDRESSES_MAX: usize = 8;

impl Gateway {
    /// Dials the addresses of the peer's name until one answers.
    pub(crate) async fn dial(self: &Arc<Self>, peer: &Arc<Peer>) {
        let Some(address) = peer.config().address else {
            return;
        };
        let lookup = tokio::net::lookup_host((address.host.as_str(), address.port)).await;
        let known: Vec<SocketAddr> = lookup.map(Iterator::collect).unwrap_or_default();
        if known.is_empty() {
            return peer.note_error(format!("cannot resolve {} (peer.address)", address.host));
        }
        let own = self.endpoint.local_address();
        let usable = in_turn(known, own, peer.reached());
        if usable.is_empty() {
            let own = own.map(|own| own.to_string()).unwrap_or_default();
            return peer.note_error(format!(
                "no address of {} (peer.address) can be reached from {own} (tunnel.listen)",
                address.host
            ));
        }
        self.dial_any(peer, &usable).await;
    }

    /// Dials these addresses until one answers, or the peer has dialled us.
    async fn dial_any(self: &Arc<Self>, peer: &Arc<Peer>, addresses: &[SocketAddr]) {
        for remote in addresses {
            if self.dial_one(peer, *remote).await {
                return peer.note_reached(*remote);
            }
            if self.is_draining() || !peer.should_dial(self.config().tunnel.dead_after) {
                return;
            }
        }
    }

    async fn dial_one(self: &Arc<Self>, peer: &Arc<Peer>, remote: SocketAddr) -> bool {
        let key = peer.config().key;
        match self.endpoint.dial(remote, key, HANDSHAKE_MAX).await {
            Ok(connection) => return self.greet(peer, connection, Side::Dialer).await,
            // The reason why nobody answers is known.
            Err(EndpointError::Silent(..)) if peer.is_narrow() => {}
            Err(error) => peer.note_error(error.to_string()),
        }
        false
    }
}

/// The addresses that a socket at `own` can send to: what was reached last
/// comes first, the others as the resolver prefers them.
fn in_turn(
    known: Vec<SocketAddr>,
    own: Option<SocketAddr>,
    reached: Option<SocketAddr>,
) -> Vec<SocketAddr> {
    let can_send = |to: &SocketAddr| match own {
        Some(SocketAddr::V4(_)) => to.ip().to_canonical().is_ipv4(),
        // One that is bound to no address serves both families.
        Some(SocketAddr::V6(own)) if !own.ip().is_unspecified() => {
            to.ip().to_canonical().is_ipv4() == own.ip().to_canonical().is_ipv4()
        }
        _ => true,
    };
    let mut usable: Vec<_> = known.into_iter().filter(can_send).collect();
    usable.sort_by_key(|address| Some(*address) != reached);
    usable.truncate(ADDRESSES_MAX);
    usable
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::sync::mpsc;

    use super::*;
    use crate::config::load;
    use crate::events::Events;
    use crate::gateway::GatewayParts;
    use crate::keys::{PrivateKey, PublicKey};
    use crate::metrics::Metrics;
    use crate::quic::Endpoint;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_what_the_socket_can_send_to_is_dialled_and_what_was_reached_first() {
        let both = addresses(&["[2001:db8::1]:4433", "192.0.2.1:4433", "192.0.2.2:4433"]);
        let turn = |own: &str, reached: Option<&str>| {
            let reached = reached.map(|text| text.parse().unwrap());
            in_turn(both.clone(), Some(own.parse().unwrap()), reached)
        };
        let v4 = addresses(&["192.0.2.1:4433", "192.0.2.2:4433"]);
        assert_eq!(turn("[::]:4433", None), both);
        assert_eq!(turn("0.0.0.0:4433", None), v4);
        assert_eq!(turn("[::ffff:192.0.2.9]:4433", None), v4);
        assert_eq!(turn("[2001:db8::9]:4433", None), both[..1]);
        let reached = addresses(&["192.0.2.2:4433", "[2001:db8::1]:4433", "192.0.2.1:4433"]);
        assert_eq!(turn("[::]:4433", Some("192.0.2.2:4433")), reached);
        // It has moved.
        assert_eq!(turn("[::]:4433", Some("192.0.2.7:4433")), both);
    }

    fn gateway(other: PublicKey, key: PrivateKey) -> (Arc<Gateway>, SocketAddr) {
        let text = format!(
            "[site]\nname = 'a'\nkey = 'k'\n[tunnel]\nlisten = '127.0.0.1:1'\n[[peer]]\nname = 'b'\n\
             address = '127.0.0.1:1'\nkey = '{other}'\nnetworks = ['10.1.0.0/16']\n"
        );
        let mut config = load::check(&text, Path::new("test.toml"), |_| None)
            .unwrap()
            .config;
        config.tunnel.listen.set_port(0);
        let own_key = key.public();
        let endpoint = Endpoint::bind(&config.tunnel, key).unwrap();
        let address = endpoint.local_address().unwrap();
        let gateway = Gateway::new(GatewayParts {
            config,
            endpoint,
            own_key,
            events: Events::unlogged(Arc::new(Metrics::new())),
            reloads: mpsc::channel(1).0,
            fitting: 100,
            handshakes: 8,
        });
        (gateway, address)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn where_one_address_does_not_answer_the_next_is_dialled() {
        let keys = [(); 2].map(|()| PrivateKey::generate().unwrap());
        let publics = [keys[0].public(), keys[1].public()];
        let [key_a, key_b] = keys;
        let (a, _) = gateway(publics[1], key_a);
        let (b, address) = gateway(publics[0], key_b);
        // It takes dialers, and dials somewhere else.
        b.start();
        // Bound, and nobody answers there.
        let deaf = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let silent = deaf.local_addr().unwrap();
        let peer = a.peers().remove(0);
        a.dial_any(&peer, &[silent, address]).await;
        assert_eq!(peer.tunnels().len(), 1, "{:?}", peer.last_error());
        assert_eq!(peer.reached(), Some(address));
    }
}
