//! A client that asks for leases, at a real file server over a long link: read ahead as others are, its writes left to the
//! server, and no byte that a direct client could not have seen.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use farhaul_lab::Side;
use farhaul_lab::error::LabError;
use farhaul_lab::lockstep::{self, BLOCK_BYTES, Dialect, LockstepError};

use crate::apps::content;
use crate::smb::{FILE_BYTES, LINK, Overtaken, SLOW, Site, remote};
use crate::smb_writes::{SLOWER, assert_seen};
use crate::world::until;

type Copied = Result<Result<u64, LockstepError>, LabError>;

/// A client that waits for every block fetches a file, until it is told to stop.
fn getting(site: &Site, name: &str) -> (JoinHandle<Copied>, Arc<AtomicBool>) {
    let (there, stop) = (remote(name), Arc::<AtomicBool>::default());
    let into = site.folders.fetched.join(name);
    let client = site.world.lab.client().unwrap();
    let told = stop.clone();
    let client =
        client.spawn_within(move || lockstep::get(Dialect::Smb2Leases, &there, &into, &told));
    (client, stop)
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

/// All of a file.
pub fn got(site: &Site, name: &str) -> Vec<u8> {
    let (reading, _) = getting(site, name);
    copied(reading).unwrap();
    site.fetched(name)
}

#[test]
fn a_client_with_a_lease_is_read_ahead_and_hears_of_writes_from_the_server() {
    let site = Site::up(LINK, "smblease", "");
    let bytes = content(51, FILE_BYTES);
    site.offer("a.bin", &bytes);
    assert!(got(&site, "a.bin") == bytes, "not the file");
    let blocks = FILE_BYTES / BLOCK_BYTES;
    assert!(site.counted(Side::A, "reads_answered") as usize > blocks * 8 / 10);
    assert_eq!(site.counted(Side::B, "wasted_bytes"), 0);
    let new = content(52, FILE_BYTES);
    copied(putting(&site, "new.bin", &new)).unwrap();
    assert!(site.offered("new.bin") == new, "not what was put");
    assert_eq!(site.counted(Side::A, "writes_answered"), 0);
}

/// A client of either site writes over a file that another one reads under a lease; whether the reader got so far that it has
/// seen something of that. The writer cuts the file to nothing first, and the reader may have come to its end there.
pub fn overtake_once(site: &Site, role: &str, old: &[u8], new: &[u8]) -> bool {
    site.offer("a.bin", old);
    let had = || site.fetched("a.bin").len();
    let _ = fs::remove_file(site.folders.fetched.join("a.bin"));
    let (reading, stop) = getting(site, "a.bin");
    until("a part of the file", || had() > 3 * BLOCK_BYTES);
    let began = had();
    site.put_soon(role, "a.bin", new);
    let closed = had() + BLOCK_BYTES;
    until("more of the file, or its end", || {
        had() > closed + 2 * BLOCK_BYTES || reading.is_finished()
    });
    stop.store(true, Ordering::Relaxed);
    let _ = copied(reading);
    let read = site.fetched("a.bin");
    let seen = Overtaken {
        old,
        new,
        began,
        closed,
    };
    seen.assert_could_be_seen(&read);
    read.len() > closed
}

#[test]
fn what_others_write_is_seen_by_who_holds_a_lease() {
    let site = Site::up(SLOW, "smbleasewritten", "");
    // Too large for the reader to be done before the writer is.
    let [old, new] = [53, 54].map(|seed| content(seed, 2 * FILE_BYTES));
    let is_seen = (0..5).any(|_| overtake_once(&site, "server", &old, &new));
    assert!(is_seen, "it came to the end of the file each time");
    assert!(site.counted(Side::B, "breaks") > 0);
}

/// A client of either site reads a file that another one writes under a lease.
pub fn read_lease_in_mid_write(site: &Site, role: &str, seed: u64) {
    let bytes = content(seed, FILE_BYTES);
    let writing = putting(site, "new.bin", &bytes);
    let told = FILE_BYTES / 8;
    until("a part of the file", || {
        site.offered("new.bin").len() > told
    });
    assert_seen(site, role, ("new.bin", &bytes), told);
    copied(writing).unwrap();
    assert!(site.offered("new.bin") == bytes, "not the file");
    assert!(site.counted(Side::B, "breaks") > 0);
}

#[test]
fn what_is_written_under_a_lease_is_there_for_others() {
    read_lease_in_mid_write(&Site::up(SLOWER, "smbleaseread", ""), "server", 55);
}
