//! Folders of small files on a real file server: opened ahead of a real client, and given up for others.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use farhaul_lab::Side;

use crate::apps::content;
use crate::smb::{LINK, SLOW, Site, done};
use crate::world::until;

const FOLDER: &str = "d";
const FILES: usize = 300;
const FILE_BYTES: usize = 10_000;
/// SMB 2.1, without prompting, all of the folder.
const COPY: &str = "recurse; prompt; lcd {fetched}; mget d";

/// A site with a folder, and what is in it.
fn site(link: &str, test: &str) -> (Site, BTreeMap<String, Vec<u8>>) {
    let site = Site::up(link, test, "");
    fs::create_dir(site.folders.offered.join(FOLDER)).unwrap();
    let mut files = BTreeMap::new();
    for nth in 0..FILES {
        let (name, bytes) = (format!("{nth:03}.bin"), content(nth as u64 + 1, FILE_BYTES));
        site.offer(&format!("{FOLDER}/{name}"), &bytes);
        files.insert(name, bytes);
    }
    (site, files)
}

fn target(site: &Site) -> PathBuf {
    site.folders.fetched.join(FOLDER)
}

fn copied(site: &Site) -> usize {
    fs::read_dir(target(site)).map_or(0, Iterator::count)
}

/// Each copy is the file, whole.
fn assert_whole(site: &Site, files: &BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(target(site)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        assert!(fs::read(entry.path()).unwrap() == files[&name], "{name}");
    }
}

#[test]
fn a_folder_of_small_files_is_opened_ahead_of_who_copies_it() {
    let (site, files) = site(LINK, "smbfolder");
    done(&mut site.smbclient("client", &["-N", "-m", "SMB2_10", "-c", COPY]));
    assert_eq!(copied(&site), FILES);
    assert_whole(&site, &files);
    // The first two show the order; whatever waits for the link then is seldom.
    let answered = site.counted(Side::A, "opens_answered") as usize;
    assert!(answered > FILES * 9 / 10, "{answered}");
    assert_eq!(site.counted(Side::B, "opens_wasted"), 0);
}

#[test]
fn who_deletes_what_is_open_ahead_is_not_refused() {
    let (site, files) = site(SLOW, "smbdeleted");
    let words = ["-N", "-m", "SMB2_10", "-c", COPY];
    let mut copying = site.smbclient("client", &words);
    let mut copying = copying
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("a part of the folder", || copied(&site) > 20);
    let script = format!("del {FOLDER}\\*");
    let mut deleting = site.smbclient("server", &["-N", "-c", &script]);
    let said = deleting.stdin(Stdio::null()).output().unwrap();
    copying.wait().unwrap();
    assert!(copied(&site) < FILES, "everything was copied before");
    assert_whole(&site, &files);
    // A file that the client has open at this moment may not be deleted: one at a time, so few.
    let left = fs::read_dir(site.folders.offered.join(FOLDER))
        .unwrap()
        .count();
    assert!(
        left < 10,
        "{left} left: {}",
        String::from_utf8_lossy(&said.stdout)
    );
    assert!(site.counted(Side::B, "breaks") > 0);
    // Nothing is kept open.
    done(&mut site.smbclient("server", &["-N", "-c", "rename d e"]));
}
