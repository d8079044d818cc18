//! The one thing to fix next, for the last line of `farhaul status`.

use std::net::SocketAddr;

use super::status::{PeerState, PeerStatus, Status, StrangerStatus};
use crate::event::Reason;
use crate::shared_key;

/// What an operator should look at first, from what the status shows; `None`
/// when all is well. The worst comes first: an own switch, then interception,
/// then peers, then the network beyond them.
pub fn next(status: &Status) -> Option<String> {
    if status.draining {
        return Some("the gateway is shutting down; new connections go direct".to_owned());
    }
    if status.bypass {
        return Some("bypass is on: run `farhaul bypass off` to accelerate again".to_owned());
    }
    if let Some(problem) = &status.intercept.problem {
        return Some(format!("interception is off: {problem}"));
    }
    if status.peers.is_empty() {
        return Some(
            "no peer is configured: run `farhaul init` here and `farhaul join` there".to_owned(),
        );
    }
    let shared = |peer: &&PeerStatus| !peer.key_shared_by.is_empty();
    if let Some(peer) = status.peers.iter().find(shared) {
        return Some(shared_key::advice(&peer.name, &peer.key_shared_by));
    }
    if let Some(peer) = status.peers.iter().find(|peer| peer.own_key_shared) {
        return Some(shared_key::own_advice(&peer.name));
    }
    if let Some(advice) = status.peers.iter().find_map(|peer| down(status, peer)) {
        return Some(advice);
    }
    if status.asymmetric_returns > 0 {
        let remedy = Reason::AsymmetricReturn.remedy().unwrap_or_default();
        return Some(format!(
            "{} connections went direct lately because {}: {remedy}",
            status.asymmetric_returns,
            Reason::AsymmetricReturn.meaning()
        ));
    }
    None
}

fn down(status: &Status, peer: &PeerStatus) -> Option<String> {
    if peer.state != PeerState::Down {
        return None;
    }
    let name = &peer.name;
    let search = || "`farhaul doctor` looks for the cause".to_owned();
    let (what, hint) = match &peer.last_error {
        Some(error) => (format!("peer {name} is down: {error}"), search()),
        None if peer.address.is_empty() => (
            format!("peer {name} has not dialled us yet"),
            not_dialled(status),
        ),
        None => (
            format!("peer {name} does not answer at {}", peer.address),
            search(),
        ),
    };
    let hint = stranger(status, peer).unwrap_or(hint);
    Some(format!("{what}; {hint}"))
}

fn not_dialled(status: &Status) -> String {
    format!(
        "is its gateway running, does its [[peer]] block for this site name the key {}, and may UDP reach {}?{}",
        status.key,
        status.tunnel_address,
        turned_away(status.datagrams_turned_away)
    )
}

/// Somebody who may be this peer with another key. Where the peer's address is known it must be that one's; a
/// stranger's key is only claimed, so a person has to compare it.
fn stranger(status: &Status, peer: &PeerStatus) -> Option<String> {
    let ip_of = |text: &str| Some(text.parse::<SocketAddr>().ok()?.ip());
    let may_be_it = |stranger: &&StrangerStatus| {
        peer.address.is_empty() || ip_of(&stranger.address) == ip_of(&peer.address)
    };
    let stranger = status.strangers.iter().find(may_be_it)?;
    let (name, key) = (&peer.name, &stranger.key);
    Some(format!(
        "somebody at {} has dialled with a key that no [[peer]] here has: {key}; if that is {name} (`farhaul status` \
         there shows its key), put `key = \"{key}\"` into its [[peer]] block and run `farhaul reload`",
        stranger.address
    ))
}

/// Those who dial with the wrong key are not answered; this much is seen of them.
fn turned_away(datagrams: u64) -> String {
    match datagrams {
        0 => String::new(),
        count => format!(" {count} datagrams came that did not know the key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first() {
        let mut status = Status {
            peers: vec![PeerStatus {
                name: "hq".into(),
                state: PeerState::Up,
                ..Default::default()
            }],
            ..Default::default()
        };
        assert_eq!(next(&status), None);
        status.asymmetric_returns = 3;
        assert!(next(&status).unwrap().contains("client_address"));
        status.peers[0].state = PeerState::Down;
        assert!(next(&status).unwrap().contains("has not dialled"));
        status.datagrams_turned_away = 7;
        assert!(next(&status).unwrap().contains("7 datagrams came"));
        status.peers[0].address = "192.0.2.1:4433".into();
        assert!(
            next(&status)
                .unwrap()
                .contains("does not answer at 192.0.2.1:4433")
        );
        status.peers[0].last_error = Some("wrong key".into());
        assert!(next(&status).unwrap().contains("wrong key"));
        status.peers[0].own_key_shared = true;
        for state in [PeerState::Down, PeerState::Up] {
            status.peers[0].state = state;
            let shown = next(&status).unwrap();
            assert!(shown.contains("uses this one's private key"), "{shown}");
        }
        status.peers[0].key_shared_by = vec!["10.0.0.1:5".into(), "10.0.0.2:6".into()];
        let shown = next(&status).unwrap();
        assert!(shown.contains("two gateways use the key of hq and end each other's tunnels, from 10.0.0.1:5 and 10.0.0.2:6"), "{shown}");
        status.intercept.problem = Some("nft failed".into());
        assert!(next(&status).unwrap().contains("nft failed"));
        status.bypass = true;
        assert!(next(&status).unwrap().contains("farhaul bypass off"));
    }
    #[test]
    fn a_peer_with_another_key_is_shown_by_it() {
        let peer = PeerStatus {
            name: "hq".into(),
            ..Default::default()
        };
        let stranger = StrangerStatus {
            address: "192.0.2.1:4433".into(),
            key: "other-key".into(),
        };
        let mut status = Status {
            peers: vec![peer],
            strangers: vec![stranger],
            ..Default::default()
        };
        let tells = |status: &Status| {
            let shown = next(status).unwrap();
            shown.contains("somebody at 192.0.2.1:4433 has dialled with a key that no [[peer]] here has: other-key")
                && shown.contains("if that is hq")
        };
        assert!(tells(&status), "{:?}", next(&status));
        status.peers[0].address = "192.0.2.1:5000".into();
        assert!(tells(&status), "{:?}", next(&status));
        status.peers[0].last_error = Some("it does not answer".into());
        assert!(tells(&status), "{:?}", next(&status));
        // Where another one is expected, or a name that we do not look up, it may be anybody.
        for address in ["192.0.2.2:4433", "hq.example.org:4433"] {
            status.peers[0].address = address.into();
            assert!(!tells(&status), "{address}");
        }
    }
}
