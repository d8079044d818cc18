//! `kill -9` of gateways with disks, at any moment of their work: while they read back what they had, while they reduce, while they
//! write and sync segments and throw old ones away. No application sees a wrong byte, and the gateways that come after are warm.
//!
//! `FARHAUL_KILLS=n` takes so many moments instead of a few; `make bench-kill` does that and shows where they fell.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use farhaul_lab::Side;
use rustix::process::Signal;
use serde_json::Value;

use crate::apps::{Content, Service, content};
use crate::world::{HANG, World, until, v4};

/// So little disk that segments are thrown away all the time.
const CONFIG: &str = "[store]\nmemory = '128 MiB'\ndisk = { path = 'disk-SIDE', size = '136 MiB' }\n\
                      [tunnel]\nresume_max = '5s'";
const KILLS: usize = 5;
/// A moment is at most so long after the gateways are up again.
const MOMENT_MS_MAX: u64 = 2500;
const FIRST_MS: u64 = 4000;
/// What the gateway did in this time before is what it was killed at.
const BEFORE: Duration = Duration::from_millis(60);
/// Between two blocks: what crosses is more than the disk keeps, and leaves the processors to others.
const PACE: Duration = Duration::from_millis(2);
const BLOCK_BYTES: usize = 64 << 10;
/// What passes again and again.
const KNOWN_BYTES: usize = 3 << 20;
const PORT_UP: u16 = 5101;
const PORT_DOWN: u16 = 5102;
const PORT_FILE: u16 = 5103;

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

/// An endless stream, the same for the same seed: one block in three is new, the others begin anywhere in what is known.
struct Stream {
    known: Vec<u8>,
    new: Content,
    dice: Dice,
}

impl Stream {
    fn new(seed: u64) -> Self {
        Self {
            known: content(77, KNOWN_BYTES),
            new: Content::new(1000 + seed),
            dice: Dice::new(seed),
        }
    }

    fn block(&mut self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        if self.dice.below(3) == 0 {
            self.new.fill(&mut block);
        } else {
            let from = self.dice.below((KNOWN_BYTES - BLOCK_BYTES) as u64) as usize;
            block.copy_from_slice(&self.known[from..from + BLOCK_BYTES]);
        }
        block
    }
}

/// Sends until it cannot.
fn feed(mut stream: TcpStream, seed: u64) {
    let mut bytes = Stream::new(seed);
    while stream.write_all(&bytes.block()).is_ok() {
        sleep(PACE);
    }
}

/// Compares what comes until it ends, which must not be well; how much came.
fn compare(mut stream: TcpStream, seed: u64) -> u64 {
    let mut right = Stream::new(seed);
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
    fn start(world: &World, seed: u64) -> Self {
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
        let (sender, receiver) = (up.1, up.2);
        std::thread::spawn(move || feed(sender, seed));
        let (sender, back) = (down.2, down.1);
        std::thread::spawn(move || feed(sender, seed + 1));
        let ends = vec![
            std::thread::spawn(move || compare(receiver, seed)),
            std::thread::spawn(move || compare(back, seed + 1)),
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

fn figure(status: &Value, pointer: &str) -> u64 {
    let figure = status.pointer(&format!("/peers/0/reduction{pointer}"));
    figure.and_then(Value::as_u64).unwrap_or(0)
}

/// What a gateway is doing, by what has changed lately.
fn doing(world: &World, side: Side) -> &'static str {
    let before = world.status(side);
    sleep(BEFORE);
    let now = world.status(side);
    let moved = |pointer| figure(&now, pointer) > figure(&before, pointer);
    match () {
        () if moved("/disk/loaded_segments") => "reading back",
        () if moved("/disk/evicted_segments") => "writing and throwing away",
        () if moved("/disk/saved_bytes") => "writing",
        () if moved("/in_bytes") => "reducing",
        () => "beginning",
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

/// The known bytes come whole; what the far gateway sent on the link for them.
fn fetch(world: &World) -> u64 {
    let sent = || world.status(Side::B)["peers"][0]["wire_sent_bytes"].as_u64();
    let before = sent();
    let mut stream = world.connect(v4(PORT_FILE));
    let mut found = Vec::new();
    stream.read_to_end(&mut found).unwrap();
    assert!(found == content(77, KNOWN_BYTES), "a wrong byte");
    sent().unwrap() - before.unwrap()
}

fn shown(moments: &BTreeMap<(String, &'static str), usize>) -> String {
    let line = |((killed, doing), count): (&(String, &'static str), &usize)| {
        format!(
            "{killed:<5} {doing:<26} {count:>4} {}\n",
            "#".repeat(*count)
        )
    };
    moments.iter().map(line).collect()
}

#[test]
fn invariant_2_gateways_with_disks_killed_at_any_moment_deliver_no_wrong_byte_and_are_warm_again() {
    let kills = std::env::var("FARHAUL_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let sides = ["a", "b"].map(|side| CONFIG.replace("SIDE", side));
    let mut world = World::with("moments", &sides[0], &sides[1]);
    let known = content(77, KNOWN_BYTES);
    let _files = Service::start(
        &world.lab.server().unwrap(),
        PORT_FILE,
        move |mut stream, _| {
            let _ = stream.write_all(&known);
            let _ = stream.shutdown(Shutdown::Write);
        },
    );
    let mut dice = Dice::new(kills as u64);
    let (mut moments, mut bytes) = (BTreeMap::new(), 0);
    for nth in 0..kills {
        fetch(&world);
        let killed: &[Side] = match dice.below(5) {
            0 => &Side::BOTH,
            1 | 2 => &[Side::A],
            _ => &[Side::B],
        };
        let streams = Streams::start(&world, 2 * nth as u64);
        // Every second one is soon, while what was there is read back; before the first there must be something.
        let moment_ms = match nth {
            0 => FIRST_MS,
            _ => dice.below(MOMENT_MS_MAX >> (nth % 2 * 3)),
        };
        sleep(Duration::from_millis(moment_ms));
        let doing = doing(&world, killed[0]);
        let fault = Instant::now();
        for &side in killed {
            world.signal(side, Signal::KILL);
        }
        bytes += streams.broken();
        assert!(fault.elapsed() < Duration::from_secs(20));
        *moments.entry((format!("{killed:?}"), doing)).or_default() += 1;
        start_again(&mut world, killed);
        wait_warm(&world);
    }
    println!(
        "{kills} moments, {bytes} bytes compared\n{}",
        shown(&moments)
    );
    // What passed last is warm after a kill of both.
    fetch(&world);
    until("the known bytes to cost little", || {
        fetch(&world) < KNOWN_BYTES as u64 / 20
    });
    // Beyond the time after which everything is on disk.
    sleep(Duration::from_secs(6));
    for side in Side::BOTH {
        world.signal(side, Signal::KILL);
    }
    start_again(&mut world, &Side::BOTH);
    wait_warm(&world);
    until("the known bytes to cost little again", || {
        fetch(&world) < KNOWN_BYTES as u64 / 10
    });
    for side in Side::BOTH {
        let stats = world.told(side, "cache stats");
        assert!(
            stats.contains("0 blocks damaged, 0 operations failed"),
            "{stats}"
        );
    }
}
