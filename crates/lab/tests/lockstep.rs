//! The client that waits for every block, with a real file server on a plain bridge, in both dialects.
//! Needs root and smbd, and fails without.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use farhaul_lab::demo::files::Offered;
use farhaul_lab::demo::servers::{SHARE, SMB_PORT, start_files};
use farhaul_lab::lockstep::{BLOCK_BYTES, Dialect, LockstepError, Remote, get, put};
use farhaul_lab::topology::SERVER;
use farhaul_lab::{Lab, LabOptions};

/// The old dialect as well, and everybody may write.
const SERVED: &str = "read only = no\nforce user = root\n[global]\nserver min protocol = NT1\n";

fn remote(name: &str) -> Remote {
    Remote {
        server: SocketAddr::from((SERVER, SMB_PORT)),
        share: SHARE.to_owned(),
        name: name.to_owned(),
    }
}

#[test]
fn files_of_every_length_arrive_whole_both_ways_in_both_dialects() {
    let name = format!("t{}-lockstep", std::process::id());
    let mut lab = Lab::up(&LabOptions::new(name, "/nonexistent/farhaul")).unwrap();
    let folders = start_files(&mut lab, SERVED).unwrap();
    let client = lab.client().unwrap();
    let go_on = Arc::new(AtomicBool::new(false));
    let block = BLOCK_BYTES as u64;
    for dialect in [Dialect::Smb1, Dialect::Smb2, Dialect::Smb2Leases] {
        for (number, length) in [0, 1, block, 3 * block + 17].into_iter().enumerate() {
            let name = format!("{dialect:?}-{number}.bin");
            let offered = Offered::new(&folders.offered, &name, length).unwrap();
            let copy = folders.fetched.join(&name);
            let got = client.within(|| get(dialect, &remote(&name), &copy, &go_on));
            assert_eq!(got.unwrap().unwrap(), length, "{name}");
            assert!(offered.is_equal(&copy), "{name}");
            let back = format!("{dialect:?}-{number}.back");
            let sent = client.within(|| put(dialect, &remote(&back), &copy, &go_on));
            assert_eq!(sent.unwrap().unwrap(), length, "{back}");
            assert!(offered.is_equal(&folders.offered.join(&back)), "{back}");
        }
        let nowhere = folders.fetched.join("nowhere");
        let absent = client.within(|| get(dialect, &remote("absent.bin"), &nowhere, &go_on));
        let absent = absent.unwrap();
        // STATUS_OBJECT_NAME_NOT_FOUND.
        let is_refused = matches!(
            absent,
            Err(LockstepError::Refused {
                status: 0xc000_0034,
                ..
            })
        );
        assert!(is_refused, "{absent:?}");
        let stop = Arc::new(AtomicBool::new(true));
        let stopped = client.within(|| get(dialect, &remote("absent.bin"), &nowhere, &stop));
        let stopped = stopped.unwrap();
        assert!(
            matches!(stopped, Err(LockstepError::Stopped)),
            "{stopped:?}"
        );
    }
    lab.down().unwrap();
}
