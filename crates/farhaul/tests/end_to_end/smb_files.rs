//! Files that are unlike others, and clients that end unlike others, at a real file server over a long link.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use farhaul_lab::Side;

use crate::apps::content;
use crate::smb::{BLOCK_BYTES, FILE_BYTES, LINK, SLOW, Site, done};
use crate::smb_writes::{BLOCKS, SLOWER, assert_part, written_bytes};
use crate::smb1::old_site;
use crate::world::until;

/// 32 bits of offset.
const FOUR_GB: u64 = 1 << 32;
/// Of a file: nothing, but for what lies around there.
const AROUND_BYTES: u64 = 1_000_000;

/// A file that is only there around 4 GiB.
fn sparse(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.seek(SeekFrom::Start(FOUR_GB - AROUND_BYTES)).unwrap();
    file.write_all(bytes).unwrap();
}

/// What has been copied of it: nothing but a hole.
fn half(path: &Path) {
    let file = File::create(path).unwrap();
    file.set_len(FOUR_GB - AROUND_BYTES).unwrap();
}

fn around(path: &Path) -> Vec<u8> {
    let mut file = File::open(path).unwrap();
    file.seek(SeekFrom::Start(FOUR_GB - AROUND_BYTES)).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// A file that was fetched up to there is fetched on. (Samba's client cannot go on with one it puts: it begins at offset 0.)
fn fetch_beyond_four_gigabytes(site: &Site, bytes: &[u8]) {
    let (offered, fetched) = (&site.folders.offered, &site.folders.fetched);
    sparse(&offered.join("down.bin"), bytes);
    let into = fetched.join("down.bin");
    // It asks for much at once,
    half(&into);
    let script = "reget down.bin {fetched}/down.bin";
    done(&mut site.smbclient("client", &["-N", "-c", script]));
    assert!(around(&into) == bytes, "not what is there");
    // and this one waits for every block: nearly all is read ahead for it, so also what is beyond.
    half(&into);
    let (_, ahead_bytes) = read_ahead(site, || {
        done(site.smbget_into("down.bin", &into).arg("--resume"));
    });
    assert!(around(&into) == bytes, "not what is there");
    assert!(ahead_bytes > AROUND_BYTES * 3 / 2, "{ahead_bytes}");
}

/// Reads that were answered here, and bytes that were read ahead for that, while a client did something: there were some.
fn read_ahead(site: &Site, work: impl FnOnce()) -> (u64, u64) {
    let counted = || {
        (
            site.counted(Side::A, "reads_answered"),
            site.counted(Side::B, "ahead_bytes"),
        )
    };
    let before = counted();
    work();
    let after = counted();
    let (answered, ahead_bytes) = (after.0 - before.0, after.1 - before.1);
    assert!(answered > 0 && ahead_bytes > 0, "it was not accelerated");
    (answered, ahead_bytes)
}

#[test]
fn sparse_files_are_fetched_beyond_four_gigabytes() {
    let bytes = content(41, 2 * AROUND_BYTES as usize);
    fetch_beyond_four_gigabytes(&Site::with(LINK, "smblarge", "", BLOCKS), &bytes);
    fetch_beyond_four_gigabytes(&old_site(LINK, "smbonelarge", ""), &bytes);
}

/// Names of every script, and a file that another client wants to call something else while it is read.
fn name(site: &Site, bytes: &[u8]) {
    let (folder, file) = ("Größe Ж", "日本語 € 😀.bin");
    fs::write(site.folders.fetched.join("to-send"), bytes).unwrap();
    let script = format!(
        "mkdir \"{folder}\"; cd \"{folder}\"; put {{fetched}}/to-send \"{file}\"; get \"{file}\" {{fetched}}/back.bin"
    );
    done(&mut site.smbclient("client", &["-N", "-c", &script]));
    assert!(site.fetched("back.bin") == bytes, "not what was put");
    let name = format!("{folder}/{file}");
    assert!(site.offered(&name) == bytes, "not there");
    // By a client that waits for every block.
    let into = site.folders.fetched.join("ahead.bin");
    let (answered, _) = read_ahead(site, || {
        done(&mut site.smbget_into(&name, &into));
    });
    assert!(answered as usize > bytes.len() / BLOCK_BYTES / 2);
    assert!(site.fetched("ahead.bin") == bytes, "not the file");
    fs::remove_file(&into).unwrap();

    site.offer("a.bin", bytes);
    let mut reading = site.half_read("a.bin", 3 * BLOCK_BYTES);
    let start = Instant::now();
    let rename = format!("rename a.bin \"{file}\"");
    let output = site.smbclient("server", &["-N", "-c", &rename]).output();
    // The server waits 35 s for an oplock that is not given back.
    assert!(start.elapsed() < Duration::from_secs(20), "it waited");
    // The reader does not share that, which others are to hear.
    assert!(!output.unwrap().status.success(), "renamed under a reader");
    assert!(reading.wait().unwrap().success());
    assert!(site.fetched("a.bin") == bytes, "not the file");
    done(&mut site.smbclient("client", &["-N", "-c", &rename]));
    assert!(site.offered(file) == bytes, "not renamed");
}

#[test]
fn files_of_any_name_are_read_ahead_until_they_are_renamed() {
    let bytes = content(42, FILE_BYTES);
    name(&Site::up(SLOW, "smbname", ""), &bytes);
    name(&old_site(SLOW, "smbonename", ""), &bytes);
}

/// A client dies in the middle of a file's being written: what it was told is there, and nobody has the file open any more.
fn die_in_mid_write(site: &Site, bytes: &[u8]) {
    let mut putting = site.begun("new.bin", bytes);
    let answered = || site.counted(Side::A, "behind_bytes") as usize;
    let written = |name: &str| written_bytes(&site.offered(name), bytes);
    until("writes to be answered", || answered() > 0);
    putting.kill().unwrap();
    putting.wait().unwrap();
    // A name can be taken away only when the file is closed.
    until("the file to be closed", || {
        let script = "rename new.bin free.bin";
        let output = site.smbclient("server", &["-N", "-c", script]).output();
        output.unwrap().status.success()
    });
    assert_part(site, "free.bin", bytes);
    let (written, told) = (written("free.bin"), answered());
    assert!(written >= told, "{written} of {told} bytes");
    assert_eq!(site.counted(Side::B, "writes_failed"), 0);
    assert!(
        site.get("free.bin") == site.offered("free.bin"),
        "not the file"
    );
}

#[test]
fn clients_that_die_in_mid_write_leave_no_open_file() {
    let bytes = content(43, FILE_BYTES);
    die_in_mid_write(&Site::with(SLOWER, "smbdie", "", BLOCKS), &bytes);
    die_in_mid_write(&old_site(SLOWER, "smbonedie", ""), &bytes);
}
