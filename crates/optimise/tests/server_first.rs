//! A server that speaks first: what it says passes as it is, from its first byte on.
#![allow(clippy::unwrap_used)]

mod source;

use bytes::Bytes;
use farhaul_optimise::{Half, Output, Reason, Settings};
use source::noise;

const MS: u64 = 1_000_000;
/// Item OPAQUE, length 1, reason.
const OPAQUE_BYTES: usize = 6;

fn settings() -> Settings {
    Settings::of_link(6_480_000, 60 * MS)
}

/// What a half wants written to its application and to the flow.
fn written(half: &mut Half) -> [Vec<u8>; 2] {
    let [mut local, mut peer] = [Vec::new(), Vec::new()];
    loop {
        match half.poll_output() {
            Output::Local(bytes) => local.extend_from_slice(&bytes),
            Output::Peer(bytes) => peer.extend_from_slice(&bytes),
            Output::Event(_) => (),
            Output::Timeout(_) | Output::Idle => return [local, peer],
            other => panic!("{other:?}"),
        }
    }
}

/// SMB2's header, as much as it takes to be recognised and more (MS-SMB2 2.2.1).
fn smb2_like() -> Vec<u8> {
    let mut packet = vec![0, 0, 0, 100, 0xfe, b'S', b'M', b'B', 64, 0];
    packet.resize(104, 0);
    packet
}

/// The near half knows half a round trip later, and until then nothing it says has arrived.
fn check(client_says: &[u8]) {
    let (mut near, mut far) = (Half::near(settings()), Half::far(settings()));
    let said = noise(1, 3_000_000);
    let mut flow = Vec::new();
    for piece in said.chunks(100_000) {
        far.handle_local(0, Bytes::copy_from_slice(piece));
        let [local, peer] = written(&mut far);
        assert!(local.is_empty());
        flow.extend(peer);
    }
    assert_eq!(flow.len(), OPAQUE_BYTES + said.len());
    assert!(flow.ends_with(&said));
    assert_eq!(far.reason(), Some(Reason::ServerFirst));

    if !client_says.is_empty() {
        near.handle_local(0, Bytes::copy_from_slice(client_says));
    }
    let [_, mut back] = written(&mut near);
    near.handle_peer(30 * MS, Bytes::from(flow));
    let [heard, answered] = written(&mut near);
    assert!(heard == said);
    assert_eq!(near.reason(), Some(Reason::ServerFirst));

    near.handle_local(31 * MS, Bytes::from_static(b"thanks"));
    back.extend(answered);
    back.extend(written(&mut near)[1].clone());
    far.handle_peer(60 * MS, Bytes::from(back));
    let [heard, answered] = written(&mut far);
    assert_eq!(heard, [client_says, b"thanks"].concat());
    assert!(answered.is_empty());
}

#[test]
fn what_it_says_has_nothing_between() {
    check(b"");
}

#[test]
fn a_client_that_has_spoken_meanwhile_is_heard_whole() {
    // Too little to tell, and what is recognised before the server is heard.
    check(b"\0\0");
    check(&smb2_like());
}
