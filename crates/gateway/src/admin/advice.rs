//! The one thing to fix next, for the last line of `farhaul status`.

use std::net::SocketAddr;

use super::status::{DiskStatus, PeerState, PeerStatus, Status, StrangerStatus};
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
    if let Some(what) = &status.intercept.unguarded {
        return Some(what.clone());
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
    store_trouble(status).map(|(what, remedy)| format!("{what}; {remedy}"))
}

/// What is wrong with the disk of the store, all peers together, and what to do about it.
pub(crate) fn store_trouble(status: &Status) -> Option<(String, String)> {
    let reduced = status
        .peers
        .iter()
        .filter_map(|peer| peer.reduction.as_ref());
    // Without a problem it was counted before the store was cleared.
    let troubled = |disk: &&DiskStatus| disk.problem.is_some();
    let disks: Vec<&DiskStatus> = reduced
        .filter_map(|figures| figures.disk.as_ref())
        .filter(troubled)
        .collect();
    let failed: u64 = disks.iter().map(|disk| disk.failed).sum();
    let bad_blocks: u64 = disks.iter().map(|disk| disk.bad_blocks).sum();
    let barred: u64 = disks.iter().map(|disk| disk.barred_files).sum();
    let last = |count: fn(&DiskStatus) -> u64| {
        let of = disks.iter().filter(|disk| count(disk) > 0);
        of.filter_map(|disk| disk.problem.as_deref())
            .next()
            .unwrap_or_default()
    };
    if failed > 0 {
        let last = last(|disk| disk.failed);
        // Some come with what to do.
        let (last, remedy) = last.rsplit_once("; ").unwrap_or((
            last,
            "see that the folder of `store.disk` is there, is the gateway's and has room, then restart the gateway",
        ));
        let often = match failed {
            1 => "once".to_owned(),
            _ => format!("{failed} times"),
        };
        let what = format!("the disk of the store fails, {often} since start, last: {last}");
        return Some((what, remedy.to_owned()));
    }
    if barred > 0 {
        let last = last(|disk| disk.barred_files);
        let what = format!(
            "the store on disk has no room for {barred} of its files, something else is in their place, last: {last}"
        );
        let remedy = "`farhaul cache verify` names what it is; remove it, then restart the gateway";
        return Some((what, remedy.to_owned()));
    }
    if bad_blocks > 0 {
        let last = last(|disk| disk.bad_blocks);
        let what = format!(
            "{bad_blocks} damaged blocks in the store on disk, their content was sent again, last: {last}"
        );
        let remedy = "after a power failure some are normal, otherwise look for the disk's errors (`dmesg`, `smartctl`); \
                      `farhaul cache clear` begins with an empty store";
        return Some((what, remedy.to_owned()));
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
    use super::super::status::ReductionStatus;
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
        status.intercept.unguarded = Some("its rules stay".into());
        assert_eq!(next(&status).unwrap(), "its rules stay");
        status.intercept.problem = Some("nft failed".into());
        assert!(next(&status).unwrap().contains("nft failed"));
        status.bypass = true;
        assert!(next(&status).unwrap().contains("farhaul bypass off"));
    }

    /// A gateway with two peers, of which one has this disk.
    fn with_disk(disk: DiskStatus) -> Status {
        let peer = |disk| PeerStatus {
            state: PeerState::Up,
            reduction: Some(ReductionStatus {
                disk: Some(disk),
                ..Default::default()
            }),
            ..Default::default()
        };
        Status {
            peers: vec![peer(DiskStatus::default()), peer(disk)],
            ..Default::default()
        }
    }

    fn assert_told(disk: DiskStatus, parts: &[&str]) {
        let shown = next(&with_disk(disk)).unwrap();
        for part in parts {
            assert!(shown.contains(part), "{shown}");
        }
    }

    #[test]
    fn a_disk_that_fails_or_is_damaged_is_something_to_fix() {
        let disk = DiskStatus {
            failed: 18,
            bad_blocks: 3,
            problem: Some("cannot write to /store/hq/sent: no such file".into()),
            ..Default::default()
        };
        assert_eq!(next(&with_disk(DiskStatus::default())), None);
        let told = [
            "fails, 18 times",
            "last: cannot write to /store/hq/sent",
            "restart the gateway",
        ];
        assert_told(disk.clone(), &told);
        let damaged = DiskStatus {
            failed: 0,
            problem: Some("/store/hq/sent: 3 blocks of a segment are damaged".into()),
            ..disk.clone()
        };
        let told = [
            "3 damaged blocks",
            "sent again",
            "last: /store/hq/sent",
            "farhaul cache clear",
        ];
        assert_told(damaged, &told);
        let cleared = DiskStatus {
            problem: None,
            ..disk
        };
        assert_eq!(next(&with_disk(cleared)), None);
    }

    #[test]
    fn a_remedy_that_is_known_is_told_once_and_what_is_in_the_way_until_it_is_gone() {
        let with_remedy = DiskStatus {
            failed: 1,
            problem: Some("cannot write: read-only; make the file system writable".into()),
            ..Default::default()
        };
        let shown = next(&with_disk(with_remedy)).unwrap();
        let told =
            "fails, once since start, last: cannot write: read-only; make the file system writable";
        assert!(shown.ends_with(told), "{shown}");
        let barred = DiskStatus {
            barred_files: 6,
            problem: Some("/store/hq/sent/segments-00000000 is in the way".into()),
            ..Default::default()
        };
        let told = [
            "no room for 6 of its files",
            "segments-00000000 is in the way",
            "farhaul cache verify",
        ];
        assert_told(barred, &told);
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
