//! A client that asks for leases, at a real file server over a long link: read ahead and answered early as others are, and
//! no byte that a direct client could not have seen.

use std::fs;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farhaul_lab::Side;
use farhaul_lab::error::LabError;
use farhaul_lab::lockstep::{self, BLOCK_BYTES, Dialect, LockstepError};

use crate::apps::content;
use crate::smb::{FILE_BYTES, LINK, SLOW, Site, done, is_overtaken, remote};
use crate::smb_writes::SLOWER;
use crate::world::until;

type Copied = Result<Result<u64, LockstepError>, LabError>;

/// A client that waits for every block fetches a file.
fn getting(site: &Site, name: &str) -> JoinHandle<Copied> {
    let (there, never) = (remote(name), Arc::default());
    let into = site.folders.fetched.join(name);
    let client = site.world.lab.client().unwrap();
    client.spawn_within(move || lockstep::get(Dialect::Smb2Leases, &there, &into, &never))
}

/// Or sends one.
fn putting(site: &Site, name: &str, bytes: &[u8]) -> JoinHandle<Copied> {
    let (there, never) = (remote(name), Arc::default());
    let from = site.folders.fetched.join("to-send");
    fs::write(&from, bytes).unwrap();
    let client = site.world.lab.client().unwrap();
    client.spawn_within(move || lockstep::put(Dialect::Smb2Leases, &there, &from, &never))
}

fn copied(client: JoinHandle<Copied>) -> Result<u64, LockstepError> {
    client.join().unwrap().unwrap()
}

#[test]
fn a_client_with_a_lease_is_read_ahead_and_written_behind() {
    let site = Site::up(LINK, "smblease", "");
    let bytes = content(51, FILE_BYTES);
    site.offer("a.bin", &bytes);
    assert_eq!(copied(getting(&site, "a.bin")).unwrap(), FILE_BYTES as u64);
    assert!(site.fetched("a.bin") == bytes, "not the file");
    let blocks = FILE_BYTES / BLOCK_BYTES;
    assert!(site.counted(Side::A, "reads_answered") as usize > blocks * 8 / 10);
    assert_eq!(site.counted(Side::B, "wasted_bytes"), 0);
    let new = content(52, FILE_BYTES);
    copied(putting(&site, "new.bin", &new)).unwrap();
    assert!(site.offered("new.bin") == new, "not what was put");
    assert!(site.counted(Side::A, "writes_answered") as usize > blocks * 8 / 10);
    assert_eq!(site.counted(Side::B, "writes_failed"), 0);
}

#[test]
fn what_others_write_is_seen_by_who_holds_a_lease() {
    let site = Site::up(SLOW, "smbleasewritten", "");
    let (old, new) = (content(53, FILE_BYTES), content(54, FILE_BYTES));
    site.offer("a.bin", &old);
    let reading = getting(&site, "a.bin");
    until("a part of the file", || {
        site.fetched("a.bin").len() > 3 * BLOCK_BYTES
    });
    let start = Instant::now();
    site.put("a.bin", &new);
    let waited = start.elapsed();
    // The server waits 35 s for a lease that is not given back.
    assert!(waited < Duration::from_secs(20), "{waited:?}");
    // A file that others cut to nothing first may end before the reader comes to its end.
    let _ = copied(reading);
    let read = site.fetched("a.bin");
    assert!(read.len() < FILE_BYTES || read != old, "it was read before");
    assert!(is_overtaken(&read, &old, &new), "neither old nor new bytes");
    assert!(site.counted(Side::B, "breaks") > 0);
}

#[test]
fn what_was_answered_under_a_lease_is_there_for_others() {
    let site = Site::up(SLOWER, "smbleaseread", "");
    let bytes = content(55, FILE_BYTES);
    let writing = putting(&site, "new.bin", &bytes);
    until("a part of the file", || {
        site.offered("new.bin").len() > FILE_BYTES / 8
    });
    let answered = site.counted(Side::A, "writes_answered") as usize;
    assert!(answered > 0);
    let start = Instant::now();
    let script = "get new.bin {fetched}/seen.bin";
    done(&mut site.smbclient("server", &["-N", "-c", script]));
    let waited = start.elapsed();
    assert!(waited < Duration::from_secs(25), "{waited:?}");
    let seen = site.fetched("seen.bin");
    assert!(seen.len() >= answered * BLOCK_BYTES, "{}", seen.len());
    assert!(bytes.starts_with(&seen), "other bytes");
    copied(writing).unwrap();
    assert!(site.offered("new.bin") == bytes, "not the file");
    assert!(site.counted(Side::B, "breaks") > 0);
}
