//! What a client's first bytes are waited for, and for how long.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use farhaul_optimise::{Half, Output, Reason, Settings};

const MS: u64 = 1_000_000;

/// What the half wants sent to its peer, and when it wants to be woken.
fn sent(half: &mut Half) -> (Vec<u8>, Option<u64>) {
    let mut peer = Vec::new();
    loop {
        match half.poll_output() {
            Output::Peer(bytes) => peer.extend_from_slice(&bytes),
            Output::Event(_) => (),
            Output::Timeout(at_ns) => return (peer, Some(at_ns)),
            Output::Idle => return (peer, None),
            other => panic!("{other:?}"),
        }
    }
}

/// The beginning of SMB's frame may be anything's; who says no more than that is not kept waiting.
#[test]
fn first_bytes_that_do_not_tell_are_held_back_for_a_moment_only() {
    let settings = Settings::of_link(6_480_000, 60 * MS);
    let wait_ns = settings.detect_ns_max;
    let mut near = Half::near(settings);
    let first_ns = 5 * MS;
    near.handle_local(first_ns, Bytes::from_static(b"\0\0"));
    near.handle_local(first_ns + 150 * MS, Bytes::from_static(b"\0"));
    assert_eq!(sent(&mut near), (Vec::new(), Some(first_ns + wait_ns)));
    near.handle_timeout(first_ns + wait_ns - 1);
    assert_eq!(sent(&mut near), (Vec::new(), Some(first_ns + wait_ns)));
    near.handle_timeout(first_ns + wait_ns);
    let (peer, wake) = sent(&mut near);
    assert_eq!((near.reason(), wake), (Some(Reason::DetectLate), None));
    near.handle_local(first_ns + wait_ns + MS, Bytes::from_static(b"more"));
    let said = [peer, sent(&mut near).0].concat();

    // The other half hands on each byte once.
    let mut far = Half::far(settings);
    far.handle_peer(0, Bytes::from(said));
    let mut heard = Vec::new();
    loop {
        match far.poll_output() {
            Output::Local(bytes) => heard.extend_from_slice(&bytes),
            // That it is opaque in its direction, too.
            Output::Peer(_) | Output::Event(_) => (),
            Output::Idle => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(heard, b"\0\0\0more");
}
