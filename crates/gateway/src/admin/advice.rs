//! The one thing to fix next, for the last line of `farhaul status`.

use super::status::{PeerState, PeerStatus, Status};
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
    if let Some(advice) =
        status
            .peers
            .iter()
            .find_map(|peer| match (peer.state, &peer.last_error) {
                (PeerState::Down, Some(error)) => Some(format!(
                    "peer {} is down: {error}; `farhaul doctor` looks for the cause",
                    peer.name
                )),
                (PeerState::Down, None) if peer.address.is_empty() => Some(format!(
                    "peer {} has not dialled us yet; is its gateway running, does its [[peer]] \
                     block for this site name the key {}, and may UDP reach {}?{}",
                    peer.name,
                    status.key,
                    status.tunnel_address,
                    turned_away(status.datagrams_turned_away)
                )),
                (PeerState::Down, None) => Some(format!(
                    "peer {} does not answer at {}; `farhaul doctor` looks for the cause",
                    peer.name, peer.address
                )),
                _ => None,
            })
    {
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
        status.peers[0].key_shared_by = vec!["10.0.0.1:5".into(), "10.0.0.2:6".into()];
        let shown = next(&status).unwrap();
        assert!(shown.contains("two gateways use the key of hq and end each other's tunnels, from 10.0.0.1:5 and 10.0.0.2:6"), "{shown}");
        status.intercept.problem = Some("nft failed".into());
        assert!(next(&status).unwrap().contains("nft failed"));
        status.bypass = true;
        assert!(next(&status).unwrap().contains("farhaul bypass off"));
    }
}
