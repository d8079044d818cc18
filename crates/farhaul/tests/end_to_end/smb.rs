//! A real file server and real clients over a long link: read ahead, and never a byte that a direct client could not
//! have seen.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use farhaul_lab::Side;
use farhaul_lab::demo::servers::{Folders, SHARE, SMB_PORT, start_files};
use farhaul_lab::lockstep::{self, Dialect, Remote};
use farhaul_lab::topology::SERVER;
use rustix::process::{Pid, Signal, kill_process};

use crate::apps::content;
use crate::world::{HANG, World, until, v4};

pub const LINK: &str = "rate 50mbit delay 50ms queue 100ms";
/// It holds more than a flow keeps unsent.
const LONG: &str = "rate 50mbit delay 150ms queue 300ms";
/// Slow enough for others to do something in the middle of a file.
pub const SLOW: &str = "rate 10mbit delay 50ms queue 100ms";
pub const RESUME: &str = "[tunnel]\nresume_max = '5s'";
/// A rule that leaves SMB alone.
pub const OPAQUE: &str = "[[rule]]\nmatch = { port = [445] }\noptimise = 'opaque'";
/// Everybody may write, as the folder's owner.
const WRITABLE: &str = "read only = no\nforce user = root";
pub const FILE_BYTES: usize = 3_200_000;
/// What smbget asks for at once.
pub const BLOCK_BYTES: usize = 64_000;
/// Nobody waits longer for a file that a gateway keeps open; a server waits 35 s for an oplock that is not given back.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// What a client has asked for last is answered by then, on a busy machine, too.
const ANSWERED: Duration = Duration::from_millis(1500);

pub struct Site {
    pub world: World,
    pub folders: Folders,
}

impl Site {
    pub fn up(link: &str, test: &str, config: &str) -> Self {
        Self::with(link, test, config, "")
    }

    /// With more for the server's configuration.
    pub fn with(link: &str, test: &str, config: &str, more: &str) -> Self {
        let mut world = World::over(Some(link), test, config, config);
        let share = format!("{WRITABLE}\n{more}");
        let folders = start_files(&mut world.lab, &share).unwrap();
        Self { world, folders }
    }

    pub fn offer(&self, name: &str, bytes: &[u8]) {
        fs::write(self.folders.offered.join(name), bytes).unwrap();
    }

    pub fn fetched(&self, name: &str) -> Vec<u8> {
        fs::read(self.folders.fetched.join(name)).unwrap_or_default()
    }

    /// A client that asks for a block, waits, and asks for the next.
    pub fn smbget(&self, name: &str) -> Command {
        let into = self.folders.fetched.join(name);
        // It does not write over a file.
        let _ = fs::remove_file(&into);
        self.smbget_into(name, &into)
    }

    /// It, into a file of another name.
    pub fn smbget_into(&self, name: &str, into: &Path) -> Command {
        let mut command = self.world.lab.client().unwrap().command("smbget");
        command.env("SMB_CONF_PATH", &self.folders.smb_client_config);
        command.args(["--guest", "--nonprompt", "--quiet"]);
        command.args(["--blocksize", &BLOCK_BYTES.to_string(), "--outputfile"]);
        command.arg(into);
        command.arg(format!("smb://{SERVER}/{SHARE}/{name}"));
        command
    }

    /// A client that waits for every block, when it has more than so many bytes.
    pub fn half_read(&self, name: &str, bytes: usize) -> Child {
        let child = self.smbget(name).stdin(Stdio::null()).spawn().unwrap();
        until("a part of the file", || self.fetched(name).len() > bytes);
        child
    }

    /// `words` are smbclient's own, after the share; `{fetched}` in them is the folder to fetch into.
    pub fn smbclient(&self, role: &str, words: &[&str]) -> Command {
        let mut command = self.world.lab.namespace(role).unwrap().command("smbclient");
        command.arg(format!("//{SERVER}/{SHARE}")).arg("-s");
        command.arg(&self.folders.smb_client_config);
        command.args(["-t", &HANG.as_secs().to_string()]);
        let folder = self.folders.fetched.display().to_string();
        command.args(words.iter().map(|word| word.replace("{fetched}", &folder)));
        command
    }

    pub fn get(&self, name: &str) -> Vec<u8> {
        let script = format!("get {name} {{fetched}}/{name}");
        done(&mut self.smbclient("client", &["-N", "-c", &script]));
        self.fetched(name)
    }

    /// The server's processes that have a client.
    fn serving(&self) -> Vec<Pid> {
        let mut command = self.world.lab.server().unwrap().command("ss");
        command.args(["-Htnp", "state", "established", "sport", "=", ":445"]);
        let told = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let numbers = told.split("pid=").skip(1).map(|rest| {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
            Pid::from_raw(digits.parse().unwrap()).unwrap()
        });
        let found: Vec<_> = numbers.collect();
        assert!(!found.is_empty(), "{told}");
        found
    }

    /// A client at the server's site writes.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        self.put_from("server", name, bytes);
    }

    /// A client of either site writes, and closes the file before this returns.
    pub fn put_from(&self, role: &str, name: &str, bytes: &[u8]) {
        let source = self.folders.fetched.join("to-put");
        fs::write(&source, bytes).unwrap();
        let script = format!("put {{fetched}}/to-put {name}");
        done(&mut self.smbclient(role, &["-N", "-c", &script]));
    }

    /// It, and does not wait for others who have the file open.
    pub fn put_soon(&self, role: &str, name: &str, bytes: &[u8]) {
        let start = Instant::now();
        self.put_from(role, name, bytes);
        let took = start.elapsed();
        assert!(took < WAIT_MAX, "{took:?}");
    }

    pub fn counted(&self, side: Side, what: &str) -> u64 {
        let name = format!("farhaul_peer_optimiser_{what}_total");
        self.world.metric(side, &name)
    }
}

/// For clients that wait for every block.
pub fn remote(name: &str) -> Remote {
    Remote {
        server: v4(SMB_PORT),
        share: SHARE.to_owned(),
        name: name.to_owned(),
    }
}

pub fn done(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

#[test]
fn a_file_is_read_ahead_of_a_client_that_waits_for_every_block() {
    let site = Site::up(LINK, "smbahead", "");
    let bytes = content(1, FILE_BYTES);
    site.offer("a.bin", &bytes);
    done(&mut site.smbget("a.bin"));
    assert!(site.fetched("a.bin") == bytes, "not the file");
    let blocks = FILE_BYTES / BLOCK_BYTES;
    // The client waits for every block; each that is answered here is a round trip of the link less.
    assert!(site.counted(Side::A, "reads_answered") as usize > blocks * 8 / 10);
    assert!(site.counted(Side::B, "ahead_bytes") as usize > FILE_BYTES * 8 / 10);
    assert_eq!(site.counted(Side::B, "wasted_bytes"), 0);
    assert_eq!(
        site.world.metric(Side::A, "farhaul_flows_recognised_total"),
        1
    );
    // One that asks for megabytes.
    assert!(site.get("a.bin") == bytes, "not the file");
}

/// Reads the beginning of a file and closes it, time after time.
pub fn peek_often(site: &Site, dialect: Dialect, bytes: &[u8]) {
    site.offer("a.bin", bytes);
    let (there, never) = (remote("a.bin"), Arc::default());
    let client = site.world.lab.client().unwrap();
    let peek = || lockstep::peek(dialect, &there, 3, 10, &never);
    client.within(peek).unwrap().unwrap();
    assert!(site.counted(Side::B, "ahead_bytes") > 0);
}

#[test]
fn clients_may_close_what_they_have_not_read() {
    let site = Site::up(LINK, "smbpeek", "");
    peek_often(&site, Dialect::Smb2, &content(7, FILE_BYTES));
}

#[test]
fn a_rule_leaves_smb_as_it_is() {
    let site = Site::up(LINK, "smbopaque", OPAQUE);
    let bytes = content(2, 1_000_000);
    site.offer("a.bin", &bytes);
    assert!(site.get("a.bin") == bytes, "not the file");
    assert_eq!(
        site.world.metric(Side::A, "farhaul_flows_recognised_total"),
        0
    );
    assert_eq!(site.counted(Side::B, "ahead_bytes"), 0);
}

/// `root` with the password `secret`.
fn add_user(site: &Site) {
    let mut add = Command::new("smbpasswd");
    add.arg("-c")
        .arg(&site.folders.smb_server_config)
        .args(["-s", "-a", "root"]);
    let mut adding = add
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let typed = std::io::Write::write_all(&mut adding.stdin.take().unwrap(), b"secret\nsecret\n");
    typed.unwrap();
    assert!(adding.wait().unwrap().success());
}

/// A user's session, which nobody can look into: the file is whole, and the flow says why it is not optimised.
fn pass_as_it_is(site: &Site, reason: &str) {
    let bytes = content(3, 1_000_000);
    site.offer("a.bin", &bytes);
    add_user(site);
    let script = "get a.bin {fetched}/a.bin";
    done(&mut site.smbclient("client", &["-U", "root%secret", "-c", script]));
    assert!(site.fetched("a.bin") == bytes, "not the file");
    let metrics = site.world.metrics(Side::A);
    let counted =
        format!("farhaul_flows_not_optimised_total{{peer=\"gwb\",reason=\"{reason}\"}} 1");
    assert!(metrics.contains(&counted), "{metrics}");
    assert_eq!(site.counted(Side::B, "ahead_bytes"), 0);
}

#[test]
fn a_session_that_encrypts_passes_as_it_is_and_says_why() {
    let site = Site::with(LINK, "smbencrypt", "", "[global]\nsmb encrypt = required");
    pass_as_it_is(&site, "smb-encrypted");
}

#[test]
fn a_session_that_signs_passes_as_it_is_and_says_why() {
    pass_as_it_is(&Site::up(LINK, "smbsigned", ""), "smb-signed");
}

/// What a reader can have seen beside a writer that writes over all of its file.
pub struct Overtaken<'a> {
    pub old: &'a [u8],
    pub new: &'a [u8],
    /// The reader had so many bytes when the writer was started: they are old.
    pub began: usize,
    /// The reader had, or may have asked for, so many when the writer had closed the file: what is behind them is new.
    pub closed: usize,
}

impl Overtaken<'_> {
    /// Between those two, old bytes end at one place, and behind it are new ones, or holes: a writer has several writes under way.
    pub fn assert_could_be_seen(&self, read: &[u8]) {
        assert!(
            read.get(..self.began) == self.old.get(..self.began),
            "not what was there before the writer"
        );
        let pairs = read.iter().zip(self.old);
        let same = pairs.take_while(|(seen, old)| seen == old).count();
        let mut rest = read.iter().zip(self.new).skip(same);
        assert!(
            rest.all(|(seen, new)| seen == new || *seen == 0),
            "neither old nor new bytes"
        );
        let behind = self.closed.min(read.len());
        assert!(
            read.get(behind..) == self.new.get(behind..read.len()),
            "not what the writer had written when that was asked for"
        );
    }
}

/// Does something while a client is held up that has nothing under way.
pub fn holding<T>(client: &mut Child, work: impl FnOnce(&mut Child) -> T) -> T {
    let process = Pid::from_child(client);
    kill_process(process, Signal::STOP).unwrap();
    sleep(ANSWERED);
    let done = work(client);
    kill_process(process, Signal::CONT).unwrap();
    done
}

/// A client of either site writes over the file `old` while another reads it and goes on.
fn overtake_running(site: &Site, role: &str, old: &[u8], new: &[u8]) {
    let mut reading = site.half_read("a.bin", 3 * BLOCK_BYTES);
    let began = site.fetched("a.bin").len();
    site.put_soon(role, "a.bin", new);
    let closed = site.fetched("a.bin").len() + BLOCK_BYTES;
    // The writer cuts the file to nothing first: the reader may come to its end there.
    reading.wait().unwrap();
    let seen = Overtaken {
        old,
        new,
        began,
        closed,
    };
    seen.assert_could_be_seen(&site.fetched("a.bin"));
}

/// And while the reader is held up: whatever lies ready for it by then is old, and it is shown none of that.
fn overtake_held(site: &Site, role: &str, old: &[u8], new: &[u8]) {
    let mut reading = site.half_read("a.bin", 3 * BLOCK_BYTES);
    let began = holding(&mut reading, |_| {
        let began = site.fetched("a.bin").len();
        site.put_soon(role, "a.bin", new);
        began
    });
    assert!(reading.wait().unwrap().success());
    let read = site.fetched("a.bin");
    let seen = Overtaken {
        old,
        new,
        began,
        // What it had asked for last.
        closed: began + BLOCK_BYTES,
    };
    seen.assert_could_be_seen(&read);
    assert_eq!(read.len(), new.len(), "not whole");
    assert!(seen.closed < read.len(), "nothing is tested");
}

/// A client of either site writes over the file in the middle of its being read, and neither waits long.
pub fn overtake_from(site: &Site, role: &str, old: &[u8], new: &[u8]) {
    overtake_running(site, role, old, new);
    overtake_held(site, role, new, old);
    assert!(site.get("a.bin") == old, "not what was written last");
}

/// A client at the server's site does, and the reader's file is given back for that.
pub fn overtake(site: &Site, old: &[u8], new: &[u8]) {
    overtake_from(site, "server", old, new);
    assert!(site.counted(Side::B, "breaks") > 0);
}

#[test]
fn what_others_write_is_seen() {
    let site = Site::up(SLOW, "smbwritten", "");
    let (old, new) = (content(4, FILE_BYTES), content(5, FILE_BYTES));
    site.offer("a.bin", &old);
    assert!(site.get("a.bin") == old, "not the old file");
    site.put("a.bin", &new);
    assert!(site.get("a.bin") == new, "not the new file");
    // And while it is read.
    site.put("a.bin", &old);
    overtake(&site, &old, &new);
}

/// A client reads a large file, and the link is cut with more on its way than the tunnel takes.
fn cut_in_mid_read(site: &mut Site, bytes: &[u8]) -> Child {
    site.offer("a.bin", bytes);
    let reading = site.half_read("a.bin", 200 * BLOCK_BYTES);
    site.world.lab.set_link("loss 100%").unwrap();
    reading
}

/// Behind what had been read `before` the file was others'.
fn assert_no_old_bytes(read: &[u8], before: usize, old: &[u8], new: &[u8]) {
    assert!(read.get(..before) == old.get(..before), "wrong bytes");
    let (behind, is) = (read.get(before..), new.get(before..read.len()));
    assert!(behind == is, "{} old bytes", read.len() - before);
}

/// The link is cut while a file is read under an oplock that was borrowed, with more on its way than the tunnel takes. Others
/// get the file before the server takes it from us, and nothing is read behind that which was there before it.
#[test]
fn what_others_write_while_the_link_is_cut_is_seen() {
    let mut site = Site::up(LONG, "smbcut", "");
    let (old, new) = (content(8, 40_000_000), content(9, 40_000_000));
    let mut reading = cut_in_mid_read(&mut site, &old);
    let start = Instant::now();
    site.put("a.bin", &new);
    let waited = start.elapsed();
    // Samba waits 32 s and more, clients 20 s; the gateway 10 s to know that the other is silent, 5 s for that to know so, too, and 3 s.
    assert!(waited < Duration::from_secs(25), "{waited:?}");
    let before = site.fetched("a.bin").len();
    site.world.lab.set_link("loss 0%").unwrap();
    reading.wait().unwrap();
    assert_no_old_bytes(&site.fetched("a.bin"), before, &old, &new);
    assert!(site.get("a.bin") == new, "not the new file");
}

/// The server's end of the reader's connection is gone, and its oplock with it, while bytes that were read ahead wait for a
/// link that is cut.
#[test]
fn what_others_write_after_the_server_has_ended_is_seen() {
    let mut site = Site::up(LONG, "smbended", "");
    let (old, new) = (content(38, 40_000_000), content(39, 40_000_000));
    let mut reading = cut_in_mid_read(&mut site, &old);
    for process in site.serving() {
        kill_process(process, Signal::TERM).unwrap();
    }
    // What was on its way before that arrives.
    sleep(Duration::from_secs(1));
    site.put("a.bin", &new);
    let before = site.fetched("a.bin").len();
    site.world.lab.set_link("loss 0%").unwrap();
    reading.wait().unwrap();
    assert_no_old_bytes(&site.fetched("a.bin"), before, &old, &new);
}

/// The gateway next to the server is killed in the middle of a file's being read.
pub fn kill_in_mid_file(mut site: Site, bytes: &[u8]) {
    site.offer("a.bin", bytes);
    let mut reading = site.half_read("a.bin", 10 * BLOCK_BYTES);
    site.world.signal(Side::B, Signal::KILL);
    reading.wait().unwrap();
    let read = site.fetched("a.bin");
    assert!(bytes.starts_with(&read), "wrong bytes");
}

#[test]
fn a_far_gateway_killed_in_mid_file_gives_no_wrong_byte() {
    let site = Site::up(SLOW, "smbkill", RESUME);
    kill_in_mid_file(site, &content(6, FILE_BYTES));
}
