//! A real file server and real clients that speak SMB1 over a long link: the same bytes, sooner.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farhaul_lab::Side;
use rustix::process::Signal;

use crate::apps::content;
use crate::smb::{BLOCK_BYTES, FILE_BYTES, LINK, RESUME, SLOW, Site, done, is_overtaken};
use crate::world::until;

/// Servers and clients of today speak it only when they are told to.
const SERVER: &str = "[global]\nserver min protocol = NT1";
const CLIENT: &str = "client min protocol = NT1\nclient max protocol = NT1\n";

fn old_site(link: &str, test: &str, config: &str) -> Site {
    let site = Site::with(link, test, config, SERVER);
    let path = &site.folders.smb_client_config;
    let config = fs::read_to_string(path).unwrap();
    fs::write(path, config + CLIENT).unwrap();
    site
}

/// A client at the other site writes a file.
fn putting(site: &Site, name: &str, bytes: &[u8]) -> Command {
    fs::write(site.folders.fetched.join("to-send"), bytes).unwrap();
    let script = format!("put {{fetched}}/to-send {name}");
    site.smbclient("client", &["-N", "-c", &script])
}

#[test]
fn files_of_old_clients_are_read_ahead_and_written_behind() {
    let site = old_site(LINK, "smbone", "");
    let bytes = content(21, FILE_BYTES);
    site.offer("a.bin", &bytes);
    done(&mut site.smbget("a.bin"));
    assert!(site.fetched("a.bin") == bytes, "not the file");
    // The client waits for every block; each that is answered here is a round trip of the link less.
    let blocks = FILE_BYTES / BLOCK_BYTES;
    assert!(site.counted(Side::A, "reads_answered") as usize > blocks * 8 / 10);
    assert_eq!(site.counted(Side::B, "wasted_bytes"), 0);
    // One that asks for many blocks at once.
    assert!(site.get("a.bin") == bytes, "not the file");
    let new = content(22, FILE_BYTES);
    done(&mut putting(&site, "new.bin", &new));
    let there = fs::read(site.folders.offered.join("new.bin")).unwrap();
    assert!(there == new, "not what was put");
    assert!(site.counted(Side::A, "writes_answered") > 10);
    assert_eq!(site.counted(Side::B, "writes_failed"), 0);
    assert!(site.get("new.bin") == new, "not what is read");
}

#[test]
fn a_rule_leaves_old_clients_as_they_are() {
    let rule = "[[rule]]\nmatch = { port = [445] }\noptimise = 'opaque'";
    let site = old_site(LINK, "smboneopaque", rule);
    let bytes = content(23, 1_000_000);
    site.offer("a.bin", &bytes);
    assert!(site.get("a.bin") == bytes, "not the file");
    assert_eq!(site.counted(Side::B, "ahead_bytes"), 0);
}

#[test]
fn what_others_write_is_seen_by_old_clients() {
    let site = old_site(SLOW, "smbonewritten", "");
    let (old, new) = (content(24, FILE_BYTES), content(25, FILE_BYTES));
    site.offer("a.bin", &old);
    let mut reading = site.smbget("a.bin").stdin(Stdio::null()).spawn().unwrap();
    until("a part of the file", || {
        site.fetched("a.bin").len() > 3 * BLOCK_BYTES
    });
    let start = Instant::now();
    site.put("a.bin", &new);
    // The server waits 35 s for an oplock that is not given back.
    assert!(
        start.elapsed() < Duration::from_secs(20),
        "{:?}",
        start.elapsed()
    );
    reading.wait().unwrap();
    let read = site.fetched("a.bin");
    assert!(is_overtaken(&read, &old, &new), "neither old nor new bytes");
    assert!(site.counted(Side::B, "breaks") > 0);
    assert!(site.get("a.bin") == new, "not the new file");
}

#[test]
fn a_far_gateway_killed_in_mid_file_gives_old_clients_no_wrong_byte() {
    let mut site = old_site(SLOW, "smbonekill", RESUME);
    let bytes = content(26, FILE_BYTES);
    site.offer("a.bin", &bytes);
    let mut reading = site.smbget("a.bin").stdin(Stdio::null()).spawn().unwrap();
    until("a part of the file", || {
        site.fetched("a.bin").len() > 10 * BLOCK_BYTES
    });
    site.world.signal(Side::B, Signal::KILL);
    reading.wait().unwrap();
    let read = site.fetched("a.bin");
    assert!(bytes.starts_with(&read), "wrong bytes");
}
