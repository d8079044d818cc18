//! One copy by a cell's client: fresh files, started, watched and compared.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::flat::Flat;
use super::judge::{Ended, Reached};
use super::sockets::Sockets;
use crate::demo::files::Offered;
use crate::demo::progress::Progress;
use crate::demo::servers::{Folders, SHARE, SMB_PORT, make_folder};
use crate::deployment::Lab;
use crate::error::{During, LabError};
use crate::lockstep::{self, BLOCK_BYTES, Dialect, LockstepError, RECORD_BYTES, Remote};
use crate::plan::{Cell, Client, Plan, Work};
use crate::topology::SERVER;

/// How often a client is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How often it is looked how much has moved.
const WATCH: Duration = Duration::from_millis(100);
/// What is compared at once.
const PIECE_BYTES: usize = 1 << 20;

/// Files of one copy. Each has a name and a content of its own.
#[derive(Debug)]
pub(super) struct Files {
    work: Work,
    name: String,
    /// What there is to copy, at its source.
    sources: Vec<Offered>,
    /// Where copies are to be; of a listing, what it says.
    target: PathBuf,
}

impl Files {
    /// Makes them.
    pub(super) fn make(cell: &Cell, folders: &Folders, number: usize) -> Result<Self, LabError> {
        let name = format!("f{number:05}");
        let offered = &folders.offered;
        let fetched = &folders.fetched;
        let bytes = cell.size_bytes;
        let (sources, target) = match cell.work {
            Work::Read | Work::Random => (
                vec![Offered::new(offered, &name, bytes)?],
                fetched.join(&name),
            ),
            Work::Write => (
                vec![Offered::new(fetched, &name, bytes)?],
                offered.join(&name),
            ),
            Work::Document => {
                let saved = offered.join(format!("{name}.doc"));
                (
                    vec![Offered::new(offered, &format!("{name}.doc"), bytes)?],
                    saved,
                )
            }
            Work::Folder | Work::Browse => {
                let source = offered.join(&name);
                let target = fetched.join(&name);
                make_folder(&source)?;
                if cell.work == Work::Folder {
                    make_folder(&target)?;
                }
                let each = bytes / u64::from(cell.files);
                let sources = (0..cell.files)
                    .map(|at| Offered::new(&source, &format!("{at:05}.bin"), each))
                    .collect::<Result<Vec<_>, _>>()?;
                (sources, target)
            }
        };
        Ok(Self {
            work: cell.work,
            name,
            sources,
            target,
        })
    }

    /// How many of them are where they are to be, or listed, with all that is in them.
    pub(super) fn done(&self, is_whole: bool) -> u32 {
        let listed = match self.work {
            Work::Browse => fs::read_to_string(&self.target).unwrap_or_default(),
            _ => String::new(),
        };
        let is_done = |source: &&Offered| match self.work {
            // What was cut short is part of one file.
            Work::Read | Work::Write | Work::Random | Work::Document if !is_whole => false,
            Work::Browse => is_listed(&listed, &source.name, source.size_bytes),
            Work::Random => self.has_records(source, is_whole),
            _ => source.is_equal(&self.copy(source)),
        };
        let done = self.sources.iter().filter(is_done).count();
        u32::try_from(done).unwrap_or(u32::MAX)
    }

    /// Whether what was copied is what there was, as far as it was copied.
    pub(super) fn is_equal(&self, is_whole: bool) -> bool {
        let is_part =
            |source: &Offered| is_beginning(&self.copy(source), &source.path).unwrap_or(false);
        match (self.work, is_whole) {
            (_, true) => self.done(true) as usize == self.sources.len(),
            // Its source is gone: the copy has taken its place.
            (Work::Document | Work::Browse, false) => true,
            (Work::Random, false) => self
                .sources
                .iter()
                .all(|source| self.has_records(source, is_whole)),
            (_, false) => self.sources.iter().all(is_part),
        }
    }

    /// Of a write that is not whole, what is at the server by now.
    fn reached(&self, is_whole: bool) -> Option<Reached> {
        if self.work != Work::Write || is_whole {
            return None;
        }
        let bytes = fs::metadata(&self.target).map_or(0, |file| file.len());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Some(Reached {
            at_ns: since_1970.map_or(0, |time| time.as_nanos() as u64),
            bytes,
        })
    }

    /// Whether what was read here and there is what there is, as far as it was read.
    fn has_records(&self, source: &Offered, is_whole: bool) -> bool {
        are_records(&self.target, &source.path, is_whole).unwrap_or(false)
    }

    fn copy(&self, source: &Offered) -> PathBuf {
        match self.work {
            Work::Folder => self.target.join(&source.name),
            _ => self.target.clone(),
        }
    }

    /// SHA-256 of the first of them, for the record.
    pub(super) fn sha256(&self) -> String {
        let bytes = self.sources.first().map_or([0; 32], |source| source.sha256);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Removes them all.
    pub(super) fn remove(&self, folders: &Folders) {
        for folder in [&folders.offered, &folders.fetched] {
            let Ok(entries) = fs::read_dir(folder) else {
                continue;
            };
            let paths = entries.flatten().map(|entry| entry.path());
            let is_ours = |path: &PathBuf| {
                path.file_stem().and_then(|stem| stem.to_str()) == Some(self.name.as_str())
            };
            for path in paths.filter(is_ours) {
                // What stays takes room and harms nobody: no name is used twice.
                let _ = match path.is_dir() {
                    true => fs::remove_dir_all(&path),
                    false => fs::remove_file(&path),
                };
            }
        }
    }
}

/// Whether a listing of smbclient's has a file of this size: name, attributes, size, time.
fn is_listed(listed: &str, name: &str, size_bytes: u64) -> bool {
    let size = size_bytes.to_string();
    listed.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(name) && words.take(2).any(|word| word == size)
    })
}

/// Whether a file, all of it, is how another begins. One that is not there is.
fn is_beginning(part: &Path, whole: &Path) -> io::Result<bool> {
    let part = match File::open(part) {
        Ok(part) => part,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    };
    let mut part = BufReader::with_capacity(PIECE_BYTES, part);
    let mut whole = BufReader::with_capacity(PIECE_BYTES, File::open(whole)?);
    let mut pieces = [vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]];
    loop {
        let [first, second] = &mut pieces;
        let read = part.read(first)?;
        if read == 0 {
            return Ok(true);
        }
        let (first, second) = (&first[..read], &mut second[..read]);
        match whole.read_exact(second) {
            Ok(()) if first == second => {}
            _ => return Ok(false),
        }
    }
}

/// Whether a file is the records of another one in the order in which they are read, all or the first of them.
fn are_records(part: &Path, whole: &Path, is_whole: bool) -> io::Result<bool> {
    let mut part = BufReader::new(File::open(part)?);
    let whole = File::open(whole)?;
    let mut pieces = [[0; RECORD_BYTES as usize]; 2];
    for place in lockstep::places(whole.metadata()?.len()) {
        let [first, second] = &mut pieces;
        match part.read_exact(first) {
            Ok(()) => whole.read_exact_at(second, place)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(!is_whole),
            Err(error) => return Err(error),
        }
        if first != second {
            return Ok(false);
        }
    }
    Ok(part.bytes().next().is_none())
}

/// A client that runs.
enum Running {
    Program(Child, PathBuf),
    /// None once it has told how it ended.
    Own(Option<OwnClient>, Arc<AtomicBool>),
}

/// Bytes copied; the outer error is that of its namespace.
type OwnClient = JoinHandle<Result<Result<u64, LockstepError>, LabError>>;

/// How a copy ended, and what was seen of it meanwhile.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) ended: Ended,
    pub(super) sockets: Sockets,
    /// Of a write that is not whole, what the server has.
    pub(super) reached: Option<Reached>,
}

/// How a cell's copy is to be run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copying<'a> {
    pub(super) lab: &'a Lab,
    pub(super) folders: &'a Folders,
    pub(super) plan: &'a Plan,
    pub(super) cell: &'a Cell,
    pub(super) files: &'a Files,
    pub(super) stop: &'a AtomicBool,
}

impl Copying<'_> {
    /// Runs the client to its end, or to where it is known how it goes on.
    pub(super) fn run(self, progress: &mut Progress) -> Result<Copied, LabError> {
        let mut sockets = Sockets::of(self.lab);
        let ended = self.watch(progress, &mut sockets)?;
        // At once: what gateways have answered goes on to the server when its client is gone.
        let reached = self.files.reached(ended == Ended::Whole);
        Ok(Copied {
            ended,
            sockets,
            reached,
        })
    }

    fn watch(self, progress: &mut Progress, sockets: &mut Sockets) -> Result<Ended, LabError> {
        let start = Instant::now();
        let mut running = self.start()?;
        let mut flat = self.flat();
        let before = self.moved()?;
        let mut next_watch = start + WATCH;
        loop {
            if let Some(ended) = running.ended()? {
                return match self.stop.load(Ordering::Relaxed) {
                    true => Err(LabError::Interrupted),
                    false => Ok(ended),
                };
            }
            if self.stop.load(Ordering::Relaxed) {
                running.cut()?;
                return Err(LabError::Interrupted);
            }
            if start.elapsed().as_secs() >= self.cell.most_s {
                running.cut()?;
                return Ok(Ended::Late);
            }
            if Instant::now() >= next_watch {
                next_watch += WATCH;
                sockets.look(self.lab);
                let moved = self.moved()?.saturating_sub(before);
                // Nearly 5 % of what moves is headers; the last percent is for the end.
                progress.at((moved as f64 / 1.05 / self.cell.moved_bytes() as f64).min(0.99));
                let at_s = start.elapsed().as_secs_f64();
                if flat
                    .as_mut()
                    .is_some_and(|flat| flat.is_reached(at_s, moved))
                {
                    running.cut()?;
                    return Ok(Ended::Flat);
                }
            }
            sleep(LOOK);
        }
    }

    fn flat(self) -> Option<Flat> {
        let after_s = self.plan.flat_after_s.filter(|_| self.cell.is_steady())?;
        Some(Flat::new(after_s as f64))
    }

    fn start(self) -> Result<Running, LabError> {
        match self.cell.client {
            Client::LockstepSmb1 => self.start_own(Dialect::Smb1),
            Client::LockstepSmb2 => self.start_own(Dialect::Smb2),
            Client::Smbget => self.start_program(self.smbget()?),
            Client::Smbclient => self.start_program(self.smbclient(&[])?),
            Client::SmbclientSmb1 => {
                let only = ["-m", "NT1", "--option=client min protocol=NT1"];
                self.start_program(self.smbclient(&only)?)
            }
        }
    }

    fn start_own(self, dialect: Dialect) -> Result<Running, LabError> {
        let cut = Arc::new(AtomicBool::new(false));
        let remote = Remote {
            server: SocketAddr::from((SERVER, SMB_PORT)),
            share: SHARE.to_owned(),
            name: self.files.name.clone(),
        };
        let (work, flag) = (self.cell.work, Arc::clone(&cut));
        let source = self.files.sources.first().map(|source| source.path.clone());
        let (source, target) = (source.unwrap_or_default(), self.files.target.clone());
        let thread = self.lab.client()?.spawn_within(move || match work {
            Work::Write => lockstep::put(dialect, &remote, &source, &flag),
            Work::Random => lockstep::jump(dialect, &remote, &target, &flag),
            _ => lockstep::get(dialect, &remote, &target, &flag),
        });
        Ok(Running::Own(Some(thread), cut))
    }

    fn start_program(self, mut command: Command) -> Result<Running, LabError> {
        let log = match self.cell.work {
            // What it says is what it was to fetch.
            Work::Browse => self.files.target.clone(),
            _ => self.lab.sandbox().folder().join("client.out"),
        };
        let file = File::create(&log).during(|| format!("writing {}", log.display()))?;
        let errors = file
            .try_clone()
            .during(|| format!("writing {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .during(|| "starting the client".to_owned())?;
        Ok(Running::Program(child, log))
    }

    fn smbget(self) -> Result<Command, LabError> {
        let mut command = self.lab.client()?.command("smbget");
        command.env("SMB_CONF_PATH", &self.folders.smb_client_config);
        let block = BLOCK_BYTES.to_string();
        command.args(["--guest", "--nonprompt", "--quiet", "--blocksize", &block]);
        command.arg("--outputfile").arg(&self.files.target);
        command.arg(format!("smb://{SERVER}/{SHARE}/{}", self.files.name));
        Ok(command)
    }

    fn smbclient(self, words: &[&str]) -> Result<Command, LabError> {
        let mut command = self.lab.client()?.command("smbclient");
        // By default it gives each answer 20 s, and it asks for megabytes at once.
        let timeout = self.cell.most_s.to_string();
        command.arg(format!("//{SERVER}/{SHARE}"));
        command.args(["-N", "-t", &timeout]).args(words).arg("-s");
        command.arg(&self.folders.smb_client_config);
        command.args(["-c", &self.script()]);
        Ok(command)
    }

    fn script(self) -> String {
        let name = &self.files.name;
        let target = self.files.target.display();
        let source = self.files.sources.first();
        let source = source.map(|source| source.path.display().to_string());
        match self.cell.work {
            Work::Read | Work::Random => format!("get {name} {target}"),
            Work::Write => format!("put {} {name}", source.unwrap_or_default()),
            Work::Folder => {
                format!("recurse ON; prompt OFF; cd {name}; lcd {target}; mget *")
            }
            Work::Browse => format!("recurse ON; cd {name}; ls"),
            Work::Document => {
                let opened = self.folders.fetched.join(format!("{name}.doc"));
                let opened = opened.display();
                format!(
                    "get {name}.doc {opened}; put {opened} {name}.tmp; del {name}.doc; rename {name}.tmp {name}.doc"
                )
            }
        }
    }

    /// Bytes that have passed the client's interface, both ways.
    fn moved(self) -> Result<u64, LabError> {
        let read = || fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        Ok(moved_bytes(&self.lab.client()?.within(read)?))
    }
}

/// Received and sent bytes of `eth0` in `/proc/net/dev`: the first and the ninth counter.
fn moved_bytes(shown: &str) -> u64 {
    let mut lines = shown.lines();
    let counters = lines.find_map(|line| line.trim_start().strip_prefix("eth0:"));
    let numbers = counters.into_iter().flat_map(str::split_whitespace);
    let numbers = numbers.step_by(8).take(2);
    numbers
        .filter_map(|number| number.parse::<u64>().ok())
        .sum()
}

impl Running {
    /// How it ended; `None` while it runs.
    fn ended(&mut self) -> Result<Option<Ended>, LabError> {
        match self {
            Self::Program(child, log) => {
                let status = child
                    .try_wait()
                    .during(|| "waiting for the client".to_owned())?;
                Ok(status.map(|status| match status.success() {
                    true => Ended::Whole,
                    false => {
                        Ended::Failed(format!("the client failed ({status}): {}", last_line(log)))
                    }
                }))
            }
            Self::Own(thread, _) => {
                let Some(done) = thread.take_if(|thread| thread.is_finished()) else {
                    return Ok(None);
                };
                let copied = done.join().unwrap_or_else(|_| {
                    Err(LabError::Invalid {
                        what: "the client".to_owned(),
                        why: "it panicked".to_owned(),
                    })
                })?;
                Ok(Some(match copied {
                    Ok(_) => Ended::Whole,
                    Err(error) => Ended::Failed(format!("the client failed: {error}")),
                }))
            }
        }
    }

    /// Ends it early.
    fn cut(self) -> Result<(), LabError> {
        match self {
            Self::Program(mut child, _) => child
                .kill()
                .and_then(|()| child.wait())
                .map(drop)
                .during(|| "ending the client".to_owned()),
            Self::Own(thread, cut) => {
                cut.store(true, Ordering::Relaxed);
                // That it was stopped is what it says.
                let _ = thread.map(JoinHandle::join);
                Ok(())
            }
        }
    }
}

fn last_line(log: &Path) -> String {
    let said = fs::read_to_string(log).unwrap_or_default();
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    last.unwrap_or("it said nothing").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of a lab, and what they are in.
    fn folders(test: &str) -> (PathBuf, Folders) {
        let base = std::env::temp_dir().join(format!("farhaul-{test}-{}", std::process::id()));
        let folders = Folders {
            offered: base.join("offered"),
            fetched: base.join("fetched"),
            smb_client_config: PathBuf::new(),
            smb_server_config: PathBuf::new(),
        };
        fs::create_dir_all(&folders.offered).unwrap();
        fs::create_dir_all(&folders.fetched).unwrap();
        (base, folders)
    }

    #[test]
    fn both_directions_of_the_interface_count() {
        let shown = "Inter-|   Receive\n face |bytes\n    lo:       9 1 0 0 0 0 0 0 9 1\n  \
                     eth0: 1000 8 0 0 0 0 0 0 234 7 0\n";
        assert_eq!(moved_bytes(shown), 1_234);
        assert_eq!(moved_bytes(""), 0);
    }

    #[test]
    fn a_file_is_listed_by_its_name_and_its_size() {
        let listed = "  .                  D        0  Mon Nov 23 23:10:42 2026\n  \
            00001.bin                   N    10000  Mon Nov 23 23:10:42 2026\n\n\t\t9 blocks of size 1024. 3 blocks available\n";
        assert!(is_listed(listed, "00001.bin", 10_000));
        assert!(!is_listed(listed, "00001.bin", 1_000));
        assert!(!is_listed(listed, "00002.bin", 10_000));
    }

    #[test]
    fn of_a_folder_the_files_that_are_whole_are_done() {
        let (base, folders) = folders("done");
        let text = "name = 'x'\n[[cells]]\nrate = ['1mbit']\ndelay = ['0ms']\nclient = ['smbclient']\n\
                    work = ['folder', 'browse', 'read']\nconfig = ['B']\nsize = '3 kB'\nfiles = 3\n";
        let plan = Plan::parse("p", text).unwrap();
        let [folder, browse, read] = plan.cells.as_slice() else {
            panic!("{:?}", plan.cells);
        };
        let files = Files::make(folder, &folders, 1).unwrap();
        let [first, second, _] = files.sources.as_slice() else {
            panic!("{files:?}");
        };
        fs::copy(&first.path, files.copy(first)).unwrap();
        let part = fs::read(&second.path).unwrap();
        fs::write(files.copy(second), &part[..500]).unwrap();
        let found = (
            files.done(false),
            files.is_equal(false),
            files.is_equal(true),
        );
        let listing = Files::make(browse, &folders, 2).unwrap();
        fs::write(&listing.target, "  00002.bin   N   1000  Mon\n").unwrap();
        let listed = (listing.done(true), listing.is_equal(true));
        let file = Files::make(read, &folders, 3).unwrap();
        fs::copy(&file.sources[0].path, &file.target).unwrap();
        let read = (file.done(false), file.done(true));
        fs::remove_dir_all(&base).unwrap();
        assert_eq!(found, (1, true, false));
        assert_eq!(listed, (1, false));
        assert_eq!(read, (0, 1));
    }

    #[test]
    fn what_the_server_has_of_a_write_is_what_is_in_its_file() {
        let (base, folders) = folders("reached");
        let text = "name = 'x'\n[[cells]]\nrate = ['1mbit']\ndelay = ['0ms']\nclient = ['smbclient']\n\
                    work = ['write', 'read']\nconfig = ['A']\nsize = '3 kB'\n";
        let plan = Plan::parse("p", text).unwrap();
        let [write, read] = plan.cells.as_slice() else {
            panic!("{:?}", plan.cells);
        };
        let read = Files::make(read, &folders, 1).unwrap();
        let write = Files::make(write, &folders, 2).unwrap();
        let bytes = |files: &Files| files.reached(false).map(|reached| reached.bytes);
        let before = bytes(&write);
        fs::write(folders.offered.join(&write.name), [7; 500]).unwrap();
        let found = [bytes(&write), bytes(&read)];
        let whole = write.reached(true);
        fs::remove_dir_all(&base).unwrap();
        assert_eq!(before, Some(0));
        assert_eq!((found, whole), ([Some(500), None], None));
    }

    #[test]
    fn records_are_held_against_the_places_they_are_from() {
        let folder = std::env::temp_dir().join(format!("farhaul-records-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let whole = Offered::new(&folder, "whole", 1 << 20).unwrap();
        let content = fs::read(&whole.path).unwrap();
        let places = lockstep::places(1 << 20);
        let at = |place: &u64| &content[*place as usize..][..RECORD_BYTES as usize];
        let mut records: Vec<u8> = places.iter().flat_map(at).copied().collect();
        let path = folder.join("records");
        let found = |records: &[u8]| {
            fs::write(&path, records).unwrap();
            [true, false].map(|is_whole| are_records(&path, &whole.path, is_whole).unwrap())
        };
        assert_eq!(found(&records), [true, true]);
        assert_eq!(found(&records[..9_000]), [false, true], "cut short");
        assert_eq!(found(&[&records, &b"x"[..]].concat()), [false, false]);
        records[5_000] ^= 1;
        assert_eq!(found(&records), [false, false]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_was_cut_short_is_a_beginning_and_nothing_else_is() {
        let folder = std::env::temp_dir().join(format!("farhaul-copy-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = folder.join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let content: Vec<u8> = (0..PIECE_BYTES + 5_000)
            .map(|at| (at % 251) as u8)
            .collect();
        let whole = file("whole", &content);
        let parts = [
            file("empty", b""),
            file("short", &content[..PIECE_BYTES + 7]),
            folder.join("absent"),
            file("other", b"x"),
            file("longer", &[content.as_slice(), b"x"].concat()),
        ];
        let found = parts.map(|part| is_beginning(&part, &whole).unwrap());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [true, true, true, false, false]);
    }
}
