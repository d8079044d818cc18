//! Writes that are answered before a real file server has them: all of them are there when the client hears so, and
//! what goes wrong the client hears no later.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farhaul_lab::Side;
use farhaul_lab::demo::servers::SHARE;
use farhaul_lab::lockstep::{self, Dialect, LockstepError};
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Signal;

use crate::apps::content;
use crate::smb::{FILE_BYTES, LINK, RESUME, SLOW, Site, done, remote};
use crate::world::until;

/// The client is to write in blocks.
pub const BLOCKS: &str = "[global]\nsmb2 max write = 65536\n";

/// Slow enough to start another client in the middle of a file, on a busy machine, too.
pub const SLOWER: &str = "rate 3mbit delay 50ms queue 200ms";

impl Site {
    /// A client at the other site writes a file.
    pub fn putting(&self, name: &str, bytes: &[u8]) -> Command {
        let source = self.folders.fetched.join("to-send");
        fs::write(&source, bytes).unwrap();
        let script = format!("put {{fetched}}/to-send {name}");
        let mut command = self.smbclient("client", &["-N", "-c", &script]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// In the middle of that.
    pub fn begun(&self, name: &str, bytes: &[u8]) -> Child {
        let child = self.putting(name, bytes).spawn().unwrap();
        let there = self.folders.offered.join(name);
        let size = || fs::metadata(&there).map_or(0, |file| file.len());
        until("a part of the file", || size() > bytes.len() as u64 / 8);
        assert!(self.counted(Side::A, "writes_answered") > 0);
        child
    }

    pub fn offered(&self, name: &str) -> Vec<u8> {
        fs::read(self.folders.offered.join(name)).unwrap_or_default()
    }
}

fn said(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn invariant_8_what_was_put_is_there() {
    let site = Site::with(LINK, "smbput", "", BLOCKS);
    let bytes = content(11, FILE_BYTES);
    done(&mut site.putting("new.bin", &bytes));
    assert!(site.offered("new.bin") == bytes, "not the file");
    assert!(site.counted(Side::A, "writes_answered") > 20);
    assert!(site.counted(Side::A, "behind_bytes") as usize > FILE_BYTES / 2);
    assert_eq!(site.counted(Side::B, "writes_failed"), 0);
    // Over a longer one.
    let shorter = content(12, FILE_BYTES / 3);
    done(&mut site.putting("new.bin", &shorter));
    assert!(site.offered("new.bin") == shorter, "not the shorter file");
    assert!(site.get("new.bin") == shorter, "not what is read");
}

/// A file system without room.
pub struct Small(PathBuf);

impl Small {
    pub fn new(test: &str) -> Self {
        let name = format!("farhaul-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=1m,mode=0777", "tmpfs"])
            .arg(&folder);
        done(&mut mount);
        Self(folder)
    }

    /// A share of it, for the end of a server's configuration.
    pub fn share(&self) -> String {
        format!(
            "[small]\npath = {}\nguest ok = yes\nread only = no\nforce user = root",
            self.0.display()
        )
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        unmount.arg("--lazy").arg(&self.0);
        // What cannot be unmounted goes with the machine.
        let _ = unmount.output();
        let _ = fs::remove_dir(&self.0);
    }
}

/// A client fills the disk behind the share `small`, and hears so.
pub fn fill(site: &Site, small: &Small) {
    let put = |bytes: &[u8]| {
        fs::write(site.folders.fetched.join("to-send"), bytes).unwrap();
        let script = "put {fetched}/to-send new.bin";
        let mut command = site.smbclient("client", &["-N", "-c", script]);
        // Of the small share.
        let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let share = |word: &std::ffi::OsString| {
            let word = word.to_string_lossy();
            word.replace(&format!("/{SHARE}"), "/small")
        };
        let program = command.get_program().to_owned();
        command = Command::new(program);
        command.args(words.iter().map(share));
        command.stdin(Stdio::null()).output().unwrap()
    };
    let output = put(&content(13, FILE_BYTES));
    let text = said(&output);
    assert!(text.contains("NT_STATUS_DISK_FULL"), "{text}");
    assert!(site.counted(Side::B, "writes_failed") > 0);
    // One that fits.
    fs::remove_file(small.0.join("new.bin")).unwrap();
    let fits = content(14, 300_000);
    let output = put(&fits);
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        fs::read(small.0.join("new.bin")).unwrap() == fits,
        "not the file"
    );
}

#[test]
fn a_full_disk_reaches_the_client() {
    let small = Small::new("smbfull");
    let share = format!("{BLOCKS}{}", small.share());
    fill(&Site::with(LINK, "smbfull", "", &share), &small);
}

/// What is at the server after a client was told of an error: some of the file, and nothing else.
pub fn assert_part(site: &Site, name: &str, bytes: &[u8]) {
    assert_no_other(&site.offered(name), bytes);
}

fn assert_no_other(there: &[u8], bytes: &[u8]) {
    assert!(there.len() <= bytes.len());
    // What was written before what lies in front of it.
    let is_part = |(there, byte): (&u8, &u8)| there == byte || *there == 0;
    assert!(there.iter().zip(bytes).all(is_part), "wrong bytes");
}

/// A gateway is killed in the middle of a file's being written: the client hears of it.
pub fn kill_in_mid_write(mut site: Site, side: Side, bytes: &[u8]) {
    let putting = site.begun("new.bin", bytes);
    site.world.signal(side, Signal::KILL);
    let output = putting.wait_with_output().unwrap();
    assert!(!output.status.success(), "{}", said(&output));
    assert_part(&site, "new.bin", bytes);
}

/// The link is cut in the middle of a file's being written, for less long than flows outlive it.
pub fn cut_in_mid_write(mut site: Site, bytes: &[u8]) {
    let putting = site.begun("new.bin", bytes);
    site.world.lab.set_link("loss 100%").unwrap();
    for side in Side::BOTH {
        site.world.wait_peer(side, "down");
    }
    site.world.lab.set_link("loss 0%").unwrap();
    let output = putting.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(site.offered("new.bin") == bytes, "not the file");
}

/// The link is cut in the middle of a file's being written, for longer than that: the client hears of it, and may write
/// it again when the link is back.
pub fn cut_for_long_in_mid_write(mut site: Site, bytes: &[u8]) {
    let putting = site.begun("new.bin", bytes);
    site.world.lab.set_link("loss 100%").unwrap();
    let output = putting.wait_with_output().unwrap();
    assert!(!output.status.success(), "{}", said(&output));
    assert_part(&site, "new.bin", bytes);
    // What was answered, and has not come, is told.
    let lost = "farhaul_writes_lost_bytes_total{peer=\"gwb\"}";
    assert!(site.world.metric(Side::A, lost) > 0);
    site.world.lab.set_link("loss 0%").unwrap();
    for side in Side::BOTH {
        site.world.wait_peer(side, "up");
    }
    let shorter = &bytes[bytes.len() / 8 * 7..];
    done(&mut site.putting("new.bin", shorter));
    assert!(site.offered("new.bin") == shorter, "not what was put again");
}

#[test]
fn invariant_8_a_gateway_killed_in_mid_write_is_an_error() {
    for (side, test) in [(Side::B, "smbputkb"), (Side::A, "smbputka")] {
        let site = Site::with(SLOWER, test, RESUME, BLOCKS);
        kill_in_mid_write(site, side, &content(15, FILE_BYTES));
    }
}

#[test]
fn a_rule_keeps_writes_for_the_server_to_answer() {
    let rule = "[[rule]]\nmatch = { port = [445] }\nwrite_behind = 'off'";
    let site = Site::with(LINK, "smbputoff", rule, BLOCKS);
    let bytes = content(20, FILE_BYTES / 2);
    done(&mut site.putting("new.bin", &bytes));
    assert!(site.offered("new.bin") == bytes, "not the file");
    assert_eq!(site.counted(Side::A, "writes_answered"), 0);
}

#[test]
fn a_link_that_is_cut_in_mid_write_loses_nothing() {
    let site = Site::with(SLOW, "smbputcut", "", BLOCKS);
    cut_in_mid_write(site, &content(16, FILE_BYTES));
}

#[test]
fn invariant_8_a_link_that_stays_cut_in_mid_write_is_an_error() {
    let site = Site::with(SLOWER, "smbputlong", RESUME, BLOCKS);
    cut_for_long_in_mid_write(site, &content(18, FILE_BYTES));
}

/// A client that waits for every block, as old ones do, has heard that all its blocks are written, and waits for CLOSE,
/// when the link is cut and the gateway next to the server killed. The last block has not arrived: CLOSE must not succeed.
pub fn kill_before_close(mut site: Site, dialect: Dialect, bytes: &[u8]) {
    let source = site.folders.fetched.join("to-send");
    rustix::fs::mknodat(CWD, &source, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let remote = remote("new.bin");
    let (from, never) = (source.clone(), Arc::default());
    let client = site.world.lab.client().unwrap();
    let putting = client.spawn_within(move || lockstep::put(dialect, &remote, &from, &never));
    let mut feeding = File::create(source).unwrap();
    let (first, last) = bytes.split_at(bytes.len() - lockstep::BLOCK_BYTES);
    feeding.write_all(first).unwrap();
    until("all but the last block", || {
        site.offered("new.bin").len() == first.len()
    });
    site.world.lab.set_link("loss 100%").unwrap();
    let before = site.counted(Side::A, "writes_answered");
    feeding.write_all(last).unwrap();
    drop(feeding);
    until("the last block to be answered", || {
        site.counted(Side::A, "writes_answered") > before
    });
    site.world.signal(Side::B, Signal::KILL);
    let put = putting.join().unwrap().unwrap();
    assert!(matches!(put, Err(LockstepError::Io { .. })), "{put:?}");
    assert!(site.offered("new.bin") == first, "other bytes");
}

#[test]
fn invariant_8_a_gateway_killed_before_close_is_an_error() {
    let site = Site::with(SLOW, "smbputclose", RESUME, "");
    let bytes = content(19, 10 * lockstep::BLOCK_BYTES);
    kill_before_close(site, Dialect::Smb2, &bytes);
}

/// How many bytes of a file's first are in its place. Of what is not written yet there are holes.
pub fn written_bytes(there: &[u8], bytes: &[u8]) -> usize {
    there
        .iter()
        .zip(bytes)
        .filter(|(there, byte)| there == byte)
        .count()
}

/// What the writer of a file was told of is there when another client, of either site, opens the file in the middle of that.
pub fn assert_answered_is_seen(site: &Site, role: &str, name: &str, bytes: &[u8]) {
    // By the gateway; the server's own answers are more.
    let answered = site.counted(Side::A, "behind_bytes") as usize;
    assert!(answered > 0, "nothing is tested");
    assert_seen(site, role, (name, bytes), answered);
}

/// So many bytes are there when another client opens the file, which does not wait for what its writer has.
pub fn assert_seen(site: &Site, role: &str, (name, bytes): (&str, &[u8]), told: usize) {
    let start = Instant::now();
    let script = format!("get {name} {{fetched}}/seen.bin");
    done(&mut site.smbclient(role, &["-N", "-c", &script]));
    // The server waits 35 s for an oplock that is not given back.
    let waited = start.elapsed();
    assert!(waited < Duration::from_secs(25), "{waited:?}");
    let seen = site.fetched("seen.bin");
    assert_no_other(&seen, bytes);
    let right = written_bytes(&seen, bytes);
    assert!(right >= told, "{right} of {told} bytes");
}

/// A client of either site opens the file meanwhile: it waits until what was answered is there, not longer.
pub fn read_in_mid_write(site: &Site, role: &str, bytes: &[u8]) {
    let putting = site.begun("new.bin", bytes);
    assert_answered_is_seen(site, role, "new.bin", bytes);
    let output = putting.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(site.offered("new.bin") == bytes, "not the file");
    assert!(site.counted(Side::B, "breaks") > 0);
}

#[test]
fn others_see_what_was_answered() {
    let site = Site::with(SLOWER, "smbputread", "", BLOCKS);
    read_in_mid_write(&site, "server", &content(17, FILE_BYTES));
}
