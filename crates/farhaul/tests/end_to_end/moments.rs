//! `kill -9` of gateways with disks, at any moment of their work: while they read back what they had, while they reduce, while they
//! write and sync segments and throw old ones away, with a disk that is too small for what passes and with one that is much larger than
//! the memory. No application sees a wrong byte, and the gateways that come after are warm.
//!
//! Each moment is one at which a gateway is at something that was chosen, one thing after the other; or, if it is not at that within
//! some seconds, another one. `FARHAUL_KILLS=n` takes so many moments instead of a few; `make bench-kill` does that and shows where
//! they fell.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use farhaul_lab::Side;
use rustix::process::Signal;
use serde_json::Value;

use crate::apps::{Content, Service, content};
use crate::phases::{Histogram, Phase, figure, wait_for};
use crate::world::{HANG, World, until, v4};

/// What the gateways have, and how often they are killed.
struct Case {
    name: &'static str,
    memory: &'static str,
    disk: &'static str,
    kills: usize,
    /// What passed some kills ago passes again: it has left the memory.
    is_deep: bool,
}

/// So little disk that segments are thrown away all the time.
const SMALL_DISK: Case = Case {
    name: "moments",
    memory: "128 MiB",
    disk: "136 MiB",
    kills: KILLS,
    is_deep: false,
};
/// So little memory that what comes again is read from disk: 12 segments for each direction. The disk is full after some kills.
const SMALL_MEMORY: Case = Case {
    name: "deep",
    memory: "32 MiB",
    disk: "192 MiB",
    kills: KILLS,
    is_deep: true,
};

impl Case {
    fn config(&self, disk: &Path) -> String {
        format!(
            "[store]\nmemory = '{}'\ndisk = {{ path = '{}', size = '{}' }}\n[tunnel]\nresume_max = '5s'",
            self.memory,
            disk.display(),
            self.disk
        )
    }
}

/// A folder for the gateways' disks that is on one. Where labs lie may be memory, and what is written there is durable at once.
struct Disks(PathBuf);

impl Disks {
    fn make(case: &Case) -> Self {
        let name = format!("farhaul-{}-{}", case.name, std::process::id());
        let folder = Path::new("/var/tmp").join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One for each thing a gateway may be at.
const KILLS: usize = Phase::WANTED.len();
/// At most so long after the streams began a moment is waited for.
const LATER_MS_MAX: u64 = 2000;
/// Before the first there must be something.
const FIRST_MS: u64 = 4000;
/// Between two blocks: what crosses is more than the disk keeps, and leaves the processors to others.
const PACE: Duration = Duration::from_millis(2);
const BLOCK_BYTES: usize = 64 << 10;
/// What passes again and again.
const KNOWN_BYTES: usize = 3 << 20;
const PORT_UP: u16 = 5101;
const PORT_DOWN: u16 = 5102;
const PORT_FILE: u16 = 5103;
const PORT_DEEP: u16 = 5104;
/// More than the memory for one direction.
const DEEP_BYTES: usize = 20 << 20;
/// What is in memory is on disk by then.
const SAVED: Duration = Duration::from_secs(1);
/// Streams so many kills ago had other numbers.
const OLD_SEEDS: u64 = 4;

/// Numbers that can be repeated.
struct Dice(Content);

impl Dice {
    fn new(seed: u64) -> Self {
        let mut content = Content::new(seed);
        // The first numbers of similar seeds are similar.
        content.fill(&mut [0; 256]);
        Self(content)
    }

    fn below(&mut self, end: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        (u64::from_le_bytes(bytes) >> 20) % end
    }
}

/// An endless stream, the same for the same seed: one block in three is new, the others begin anywhere in what is known, or one in three
/// is what was new in an older stream.
struct Stream {
    known: Vec<u8>,
    new: Content,
    old: Option<Content>,
    dice: Dice,
}

impl Stream {
    fn new(seed: u64, is_deep: bool) -> Self {
        let old = seed.checked_sub(OLD_SEEDS).filter(|_| is_deep);
        Self {
            known: content(77, KNOWN_BYTES),
            new: Content::new(1000 + seed),
            old: old.map(|seed| Content::new(1000 + seed)),
            dice: Dice::new(seed),
        }
    }

    fn block(&mut self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        match (self.dice.below(3), &mut self.old) {
            (0, _) => self.new.fill(&mut block),
            (1, Some(old)) => old.fill(&mut block),
            _ => {
                let from = self.dice.below((KNOWN_BYTES - BLOCK_BYTES) as u64) as usize;
                block.copy_from_slice(&self.known[from..from + BLOCK_BYTES]);
            }
        }
        block
    }
}

/// Sends until it cannot.
fn feed(mut stream: TcpStream, mut bytes: Stream) {
    while stream.write_all(&bytes.block()).is_ok() {
        sleep(PACE);
    }
}

/// Compares what comes until it ends, which must not be well; how much came.
fn compare(mut stream: TcpStream, mut right: Stream) -> u64 {
    let mut expected = VecDeque::new();
    let (mut part, mut bytes) = (vec![0; BLOCK_BYTES], 0);
    loop {
        let read = match stream.read(&mut part) {
            Ok(0) => panic!("a clean end after {bytes} bytes"),
            Ok(read) => read,
            Err(_) => return bytes,
        };
        while expected.len() < read {
            expected.extend(right.block());
        }
        let same = expected.drain(..read).eq(part[..read].iter().copied());
        assert!(same, "a wrong byte after {bytes} bytes");
        bytes += read as u64;
    }
}

/// One stream each way, until something breaks them.
struct Streams {
    ends: Vec<JoinHandle<u64>>,
    _services: [Service; 2],
}

impl Streams {
    fn start(world: &World, seed: u64, is_deep: bool) -> Self {
        let server = world.lab.server().unwrap();
        let services = [PORT_UP, PORT_DOWN].map(|port| {
            let (accepted, incoming) = mpsc::channel();
            let service = Service::start(&server, port, move |stream, _| {
                let _ = accepted.send(stream);
            });
            (service, incoming, world.connect(v4(port)))
        });
        let [up, down] = services.map(|(service, incoming, client)| {
            let server = incoming.recv_timeout(HANG).unwrap();
            (service, client, server)
        });
        let bytes = |nth| Stream::new(seed + nth, is_deep);
        let [there, back] = [bytes(0), bytes(1)];
        let (sender, receiver) = (up.1, up.2);
        std::thread::spawn(move || feed(sender, there));
        let (sender, receiver_back) = (down.2, down.1);
        std::thread::spawn(move || feed(sender, back));
        let [there, back] = [bytes(0), bytes(1)];
        let ends = vec![
            std::thread::spawn(move || compare(receiver, there)),
            std::thread::spawn(move || compare(receiver_back, back)),
        ];
        Self {
            ends,
            _services: [up.0, down.0],
        }
    }

    /// Bytes that came, all of them right.
    fn broken(self) -> u64 {
        self.ends.into_iter().map(|end| end.join().unwrap()).sum()
    }
}

fn start_again(world: &mut World, sides: &[Side]) {
    for &side in sides {
        until("rules, routes and guard to be gone", || {
            world.residue(side).is_empty()
        });
        world.lab.gateway_start(side).unwrap();
    }
    world.lab.wait_peers_up().unwrap();
    until("connections through the tunnel again", || {
        world.is_tunnelled(&world.connect(v4(PORT_FILE)))
    });
}

/// Both gateways have read back something of what they had.
fn wait_warm(world: &World) {
    until("what is on disk to be read back", || {
        let statuses = Side::BOTH.map(|side| world.status(side));
        let is_warm = |status: &Value| figure(status, "/warmed_bytes") > KNOWN_BYTES as u64;
        statuses.iter().all(is_warm)
    });
}

/// A server that sends the same bytes to everybody.
fn offer(world: &World, port: u16, bytes: Vec<u8>) -> Service {
    let server = world.lab.server().unwrap();
    Service::start(&server, port, move |mut stream, _| {
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
    })
}

/// The bytes come whole; what the far gateway sent on the link for them.
fn fetch_from(world: &World, port: u16, right: &[u8]) -> u64 {
    let sent = || world.status(Side::B)["peers"][0]["wire_sent_bytes"].as_u64();
    let before = sent();
    let mut stream = world.connect(v4(port));
    let mut found = Vec::new();
    stream.read_to_end(&mut found).unwrap();
    assert!(found == right, "a wrong byte");
    sent().unwrap() - before.unwrap()
}

fn fetch(world: &World) -> u64 {
    fetch_from(world, PORT_FILE, &content(77, KNOWN_BYTES))
}

/// Kills gateways at moments of all kinds under load, and shows which, and how many bytes were compared.
fn kill_often(world: &mut World, case: &Case) {
    let kills = std::env::var("FARHAUL_KILLS").map_or(case.kills, |kills| kills.parse().unwrap());
    let mut dice = Dice::new(kills as u64);
    let (mut moments, mut bytes) = (Histogram::default(), 0);
    for nth in 0..kills {
        let wanted = Phase::WANTED[nth % Phase::WANTED.len()];
        // With much memory that is over soon after the start.
        let is_soon = nth > 0 && wanted == Phase::ReadingBack;
        if nth > 0 && !is_soon {
            wait_warm(world);
            fetch(world);
        }
        let killed: &[Side] = match dice.below(5) {
            0 => &Side::BOTH,
            1 | 2 => &[Side::A],
            _ => &[Side::B],
        };
        let streams = Streams::start(world, 2 * nth as u64, case.is_deep);
        let later_ms = match nth {
            0 => FIRST_MS,
            _ if is_soon => 0,
            _ => dice.below(LATER_MS_MAX),
        };
        sleep(Duration::from_millis(later_ms));
        let moment = wait_for(world, killed, wanted);
        let fault = Instant::now();
        for &side in killed {
            world.signal(side, Signal::KILL);
        }
        bytes += streams.broken();
        assert!(fault.elapsed() < Duration::from_secs(20));
        moments.add(killed, wanted, &moment);
        start_again(world, killed);
    }
    wait_warm(world);
    println!(
        "{}: {kills} moments, {bytes} bytes compared\n{moments}",
        case.name
    );
}

/// Kills both when everything is on disk.
fn kill_both(world: &mut World) {
    // Beyond the time after which everything is.
    sleep(Duration::from_secs(6));
    for side in Side::BOTH {
        world.signal(side, Signal::KILL);
    }
    start_again(world, &Side::BOTH);
    wait_warm(world);
}

fn assert_undamaged(world: &World) {
    for side in Side::BOTH {
        let stats = world.told(side, "cache stats");
        assert!(
            stats.contains("0 blocks damaged, 0 operations failed"),
            "{stats}"
        );
    }
}

/// A pair, its disks, and a server of the known bytes.
fn pair(case: &Case) -> (Disks, World, Service) {
    let disks = Disks::make(case);
    let [a, b] = ["a", "b"].map(|side| case.config(&disks.0.join(side)));
    let world = World::with(case.name, &a, &b);
    let known = offer(&world, PORT_FILE, content(77, KNOWN_BYTES));
    (disks, world, known)
}

#[test]
fn invariant_2_gateways_with_disks_killed_at_any_moment_deliver_no_wrong_byte_and_are_warm_again() {
    let (_disks, mut world, _files) = pair(&SMALL_DISK);
    kill_often(&mut world, &SMALL_DISK);
    // What passed last is warm after a kill of both.
    fetch(&world);
    until("the known bytes to cost little", || {
        fetch(&world) < KNOWN_BYTES as u64 / 20
    });
    kill_both(&mut world);
    until("the known bytes to cost little again", || {
        fetch(&world) < KNOWN_BYTES as u64 / 10
    });
    assert_undamaged(&world);
}

#[test]
fn invariant_2_gateways_killed_at_any_moment_find_on_disk_what_left_the_memory() {
    let (_disks, mut world, _files) = pair(&SMALL_MEMORY);
    let first = content(78, DEEP_BYTES);
    let _first = offer(&world, PORT_DEEP, first.clone());
    let second = content(79, DEEP_BYTES);
    let _second = offer(&world, PORT_DEEP + 1, second.clone());
    kill_often(&mut world, &SMALL_MEMORY);
    // Each of them drives the other out of the memory, some of it before it is on disk.
    let fetch_both = |world: &World| {
        let files = [(PORT_DEEP, &first), (PORT_DEEP + 1, &second)];
        let fetched = files.map(|(port, right)| {
            sleep(SAVED);
            fetch_from(world, port, right)
        });
        fetched.iter().sum::<u64>()
    };
    let both_bytes = 2 * DEEP_BYTES as u64;
    until("what left the memory to be found on disk", || {
        fetch_both(&world) < both_bytes / 5
    });
    kill_both(&mut world);
    until("it to be found after a kill of both", || {
        fetch_both(&world) < both_bytes / 5
    });
    assert_undamaged(&world);
}
