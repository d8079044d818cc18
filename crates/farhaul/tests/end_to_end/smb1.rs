//! A real file server and real clients that speak SMB1 over a long link: the same bytes, sooner.

use std::fs;

use farhaul_lab::Side;
use farhaul_lab::lockstep::{self, Dialect};

use crate::apps::content;
use crate::smb::{
    BLOCK_BYTES, FILE_BYTES, LINK, OPAQUE, RESUME, SLOW, Site, done, kill_in_mid_file, overtake,
    peek_often,
};
use crate::smb_writes::{
    SLOWER, Small, cut_for_long_in_mid_write, cut_in_mid_write, fill, kill_before_close,
    kill_in_mid_write, read_in_mid_write,
};

/// Servers and clients of today speak it only when they are told to.
const SERVER: &str = "[global]\nserver min protocol = NT1";
const CLIENT: &str = "client min protocol = NT1\nclient max protocol = NT1\n";

pub fn old_site(link: &str, test: &str, config: &str) -> Site {
    old_site_with(link, test, config, "")
}

/// With more for the end of the server's configuration.
pub fn old_site_with(link: &str, test: &str, config: &str, more: &str) -> Site {
    let site = Site::with(link, test, config, &format!("{SERVER}\n{more}"));
    let path = &site.folders.smb_client_config;
    let config = fs::read_to_string(path).unwrap();
    fs::write(path, config + CLIENT).unwrap();
    site
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
    done(&mut site.putting("new.bin", &new));
    assert!(site.offered("new.bin") == new, "not what was put");
    assert!(site.counted(Side::A, "writes_answered") > 10);
    assert_eq!(site.counted(Side::B, "writes_failed"), 0);
    assert!(site.get("new.bin") == new, "not what is read");
}

#[test]
fn a_rule_leaves_old_clients_as_they_are() {
    let site = old_site(LINK, "smboneopaque", OPAQUE);
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
    overtake(&site, &old, &new);
}

#[test]
fn a_far_gateway_killed_in_mid_file_gives_old_clients_no_wrong_byte() {
    let site = old_site(SLOW, "smbonekill", RESUME);
    kill_in_mid_file(site, &content(26, FILE_BYTES));
}

#[test]
fn invariant_8_a_gateway_killed_in_mid_write_is_an_error_for_old_clients() {
    for (side, test) in [(Side::B, "smboneputkb"), (Side::A, "smboneputka")] {
        let site = old_site(SLOWER, test, RESUME);
        kill_in_mid_write(site, side, &content(27, FILE_BYTES));
    }
}

#[test]
fn a_link_that_is_cut_in_mid_write_loses_old_clients_nothing() {
    let site = old_site(SLOW, "smboneputcut", "");
    cut_in_mid_write(site, &content(28, FILE_BYTES));
}

#[test]
fn invariant_8_a_link_that_stays_cut_in_mid_write_is_an_error_for_old_clients() {
    let site = old_site(SLOWER, "smboneputlong", RESUME);
    cut_for_long_in_mid_write(site, &content(29, FILE_BYTES));
}

#[test]
fn invariant_8_a_gateway_killed_before_close_is_an_error_for_old_clients() {
    let site = old_site(SLOW, "smboneputclose", RESUME);
    let bytes = content(30, 10 * lockstep::BLOCK_BYTES);
    kill_before_close(site, Dialect::Smb1, &bytes);
}

#[test]
fn a_full_disk_reaches_old_clients() {
    let small = Small::new("smbonefull");
    fill(
        &old_site_with(LINK, "smbonefull", "", &small.share()),
        &small,
    );
}

#[test]
fn others_see_what_old_clients_were_answered() {
    let site = old_site(SLOWER, "smboneputread", "");
    read_in_mid_write(&site, "server", &content(31, FILE_BYTES));
}

/// A connection of Samba 4.17 ends at a CLOSE of a file that is being read; what the gateway reads is not the client's.
#[test]
fn old_clients_may_close_what_they_have_not_read() {
    let site = old_site(LINK, "smbonepeek", "");
    peek_often(&site, Dialect::Smb1, &content(32, FILE_BYTES));
}
