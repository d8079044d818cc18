//! Two clients behind the same pair of gateways use one file: what one writes the other is shown as without gateways,
//! whatever protects the file, or does not.

use std::io::Write;
use std::process::Stdio;

use farhaul_lab::Side;
use farhaul_lab::demo::servers::SHARE;

use crate::apps::content;
use crate::smb::{LINK, SLOW, Site, overtake_from};
use crate::smb_leases::{got, overtake_once, read_lease_in_mid_write};
use crate::smb_shares::NO_OPLOCKS;
use crate::smb_writes::{BLOCKS, SLOWER, read_in_mid_write};
use crate::smb1::{old_site, old_site_with};
use crate::world::until;

const FILE_BYTES: usize = 1_600_000;
/// Read within a round trip or two.
const SMALL_BYTES: usize = 200_000;

/// One reads, the other writes over the file in the middle of that.
fn overtake(site: &Site, seed: u64) {
    let (old, new) = (content(seed, FILE_BYTES), content(seed + 1, FILE_BYTES));
    site.offer("a.bin", &old);
    overtake_from(site, "client", &old, &new);
}

#[test]
fn what_a_neighbour_writes_is_seen() {
    let site = Site::up(SLOW, "smbbeside", "");
    overtake(&site, 71);
    assert!(site.counted(Side::B, "breaks") > 0);
}

#[test]
fn what_a_neighbour_writes_is_seen_by_old_clients() {
    let site = old_site(SLOW, "smbonebeside", "");
    overtake(&site, 73);
    assert!(site.counted(Side::B, "breaks") > 0);
}

#[test]
fn what_a_neighbour_writes_is_seen_without_oplocks() {
    let old_share = format!("[{SHARE}]\n{NO_OPLOCKS}");
    for (site, seed) in [
        (Site::with(SLOW, "smbbesidebare", "", NO_OPLOCKS), 75),
        (old_site_with(SLOW, "smbonebesidebare", "", &old_share), 77),
    ] {
        overtake(&site, seed);
        for what in ["reads_answered", "writes_answered"] {
            assert_eq!(site.counted(Side::A, what), 0, "{what}");
        }
    }
}

/// It comes to the end of the file where the writer has cut it to nothing, as directly; and to all of the new one when it is there.
#[test]
fn what_a_neighbour_writes_is_seen_by_who_holds_a_lease() {
    let site = Site::up(SLOW, "smbbesidelease", "");
    for seed in [201, 203] {
        // Too large for the reader to be done before the writer begins, on a busy machine, too.
        let [old, new] = [seed, seed + 1].map(|seed| content(seed, 4 * FILE_BYTES));
        overtake_once(&site, "client", &old, &new);
        assert!(got(&site, "a.bin") == new, "not the new file");
    }
    assert!(site.counted(Side::B, "breaks") > 0);
    assert!(site.counted(Side::A, "reads_answered") > 0);
}

/// One writes and is answered early, the other opens the file in the middle of that.
#[test]
fn what_a_neighbour_was_answered_is_seen() {
    let bytes = content(81, FILE_BYTES);
    let site = Site::with(SLOWER, "smbbesideput", "", BLOCKS);
    read_in_mid_write(&site, "client", &bytes);
    let site = old_site(SLOWER, "smbonebesideput", "");
    read_in_mid_write(&site, "client", &bytes);
}

#[test]
fn what_a_neighbour_writes_under_a_lease_is_seen() {
    let site = Site::up(SLOWER, "smbbesidewrite", "");
    read_lease_in_mid_write(&site, "client", 83);
}

/// A client that stays connected fetches a file time after time, and a neighbour writes it anew in between.
fn fetch_again(site: &Site, seed: u64) {
    let mut client = site.smbclient("client", &["-N"]);
    client.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut client = client.spawn().unwrap();
    let mut commands = client.stdin.take().unwrap();
    for nth in 0..5 {
        let bytes = content(seed + nth, SMALL_BYTES + 1_000 * nth as usize);
        site.put_from("client", "a.bin", &bytes);
        let name = format!("{nth}.bin");
        let into = site.folders.fetched.join(&name);
        writeln!(commands, "get a.bin {}", into.display()).unwrap();
        until("as much as there is", || {
            site.fetched(&name).len() >= bytes.len()
        });
        assert!(site.fetched(&name) == bytes, "{nth}");
    }
    drop(commands);
    assert!(client.wait().unwrap().success());
}

#[test]
fn a_file_that_is_opened_again_is_what_a_neighbour_has_made_of_it() {
    fetch_again(&Site::with(LINK, "smbagain", "", BLOCKS), 91);
    fetch_again(&Site::with(LINK, "smbagainbare", "", NO_OPLOCKS), 101);
    fetch_again(&old_site(LINK, "smboneagain", ""), 111);
}
