//! Writing behind in virtual time: sooner, in order, and no error that the client does not hear of.
#![allow(clippy::unwrap_used)]

mod model;
mod source;

use std::fmt::Write as _;

use farhaul_optimise::Settings;
use farhaul_optimise::smb::smb2::header::Command;
use model::client::{Client, Manners, Step};
use model::server::{OtherWrite, Server, Terms};
use model::world::World;
use source::{Noise, noise};

const MS: u64 = 1_000_000;
const OC1: u64 = 6_480_000;
const T1: u64 = 193_000;
const BATCH: u8 = 9;
const SHARE_ALL: u32 = 7;
const DISK_FULL: u32 = 0xc000_007f;

fn open(oplock: u8) -> Step {
    Step::Open {
        name: "f".to_owned(),
        share: SHARE_ALL,
        oplock,
    }
}

fn upload(bytes: &[u8], block: u32, outstanding: usize, oplock: u8) -> Vec<Step> {
    let write = Step::WriteAll {
        offset: 0,
        bytes: bytes.to_vec(),
        block,
        outstanding,
    };
    vec![open(oplock), write, Step::Close]
}

struct Plan {
    terms: Terms,
    manners: Manners,
    steps: Vec<Step>,
    before: Vec<u8>,
    link: (u64, u64),
}

impl Plan {
    fn new(steps: Vec<Step>, link: (u64, u64)) -> Self {
        let terms = Terms {
            write_ns_max: 3 * MS,
            ..Terms::default()
        };
        let manners = Manners {
            asks: 32,
            ..Manners::default()
        };
        Self {
            terms,
            manners,
            steps,
            before: Vec::new(),
            link,
        }
    }

    fn world(&self, is_direct: bool) -> World {
        let mut server = Server::new(self.terms);
        server
            .files
            .insert("f".to_owned(), vec![self.before.clone()]);
        let client = Client::new(self.manners, self.steps.clone());
        let settings = Settings::of_link(self.link.0, self.link.1);
        World::new(client, server, (!is_direct).then_some(settings), self.link)
    }

    fn run(&self) -> World {
        let mut world = self.world(false);
        world.run();
        world
    }

    fn direct(&self) -> World {
        let mut world = self.world(true);
        world.run();
        world
    }
}

fn content(world: &World) -> &[u8] {
    world.server.files["f"].last().unwrap()
}

fn answered(world: &World) -> u64 {
    world.halves.as_ref().unwrap()[0].stats().writes_answered
}

/// First write to the answer to CLOSE, milliseconds.
fn took_ms(world: &World) -> f64 {
    (world.client.closed_ns - world.client.first_write_ns.unwrap()) as f64 / 1e6
}

fn row(name: &str, rate: u64, rtt_ms: u64, bytes: &[u8], client: (u32, usize)) -> String {
    let plan = Plan::new(upload(bytes, client.0, client.1, 0), (rate, rtt_ms * MS));
    let (without, with) = (plan.direct(), plan.run());
    for world in [&without, &with] {
        assert_eq!((world.cut, world.client.errors.len()), (None, 0));
        assert!(content(world) == bytes, "other bytes");
    }
    let limit_ms = rtt_ms as f64 + bytes.len() as f64 * 1e3 / rate as f64;
    let (without_ms, with_ms) = (took_ms(&without), took_ms(&with));
    assert!(with_ms < without_ms * 1.02, "{name} {rtt_ms}: {with_ms}");
    let mut line = String::new();
    writeln!(
        line,
        "{name:<28}{rtt_ms:>5}{without_ms:>11.0}{with_ms:>10.0}{limit_ms:>10.0}{:>8.3}{:>10}",
        limit_ms / with_ms,
        answered(&with),
    )
    .unwrap();
    line
}

/// As `times_of_files` for reading: `FARHAUL_SNAPSHOT=write` writes it anew.
#[test]
fn times_of_uploads() {
    let mut table = format!(
        "{:<28}{:>5}{:>11}{:>10}{:>10}{:>8}{:>10}\n",
        "file and client", "RTT", "direct ms", "behind ms", "limit ms", "share", "answered"
    );
    let (large, small) = (noise(1, 10_000_000), noise(2, 2_000_000));
    let clients = [
        ("OC-1 10 MB 60 KiB x 1", OC1, &large, (61_440, 1)),
        ("OC-1 10 MB 1 MiB x 1", OC1, &large, (1 << 20, 1)),
        ("OC-1 10 MB 64 KiB x 8", OC1, &large, (65_536, 8)),
        ("T1 2 MB 60 KiB x 1", T1, &small, (61_440, 1)),
        ("T1 2 MB 4 KiB x 1", T1, &small, (4096, 1)),
    ];
    for (name, rate, bytes, client) in clients {
        for rtt_ms in [4, 60, 200, 500] {
            table += &row(name, rate, rtt_ms, bytes, client);
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/write_behind.txt");
    if std::env::var_os("FARHAUL_SNAPSHOT").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(table == kept, "it was\n{kept}\nit is\n{table}");
}

#[test]
fn only_what_is_the_clients_alone_is_answered() {
    let bytes = noise(3, 1_000_000);
    let plan = |oplock| Plan::new(upload(&bytes, 61_440, 1, oplock), (OC1, 60 * MS));
    assert_eq!(answered(&plan(BATCH).run()), 17);
    assert_eq!(answered(&plan(8).run()), 17);
    assert_eq!(answered(&plan(0).run()), 17, "lent");
    let mut shared = plan(1);
    shared.terms.write_ns_max = 0;
    assert_eq!(answered(&shared.run()), 0, "level II");
    let mut unprotected = plan(BATCH);
    unprotected.terms.grants_oplocks = false;
    assert_eq!(answered(&unprotected.run()), 0, "no oplock");
    let mut through = plan(BATCH);
    through.manners.write_flags = 1;
    assert_eq!(answered(&through.run()), 0, "each write through");
    let mut through = plan(BATCH);
    through.manners.options = 2;
    assert_eq!(answered(&through.run()), 0, "the file through");
    let mut durable = plan(BATCH);
    durable.manners.is_durable = true;
    assert_eq!(answered(&durable.run()), 0, "durable");
    let mut signed = plan(BATCH);
    signed.terms.security_mode = 3;
    assert_eq!(answered(&signed.run()), 0, "signed");
}

/// A disk that fills up at any place, under clients of any kind: CLOSE is too late only for who has heard it before.
#[test]
fn a_full_disk_is_told_no_later_than_at_close() {
    let bytes = noise(4, 1_500_000);
    let mut late = 0;
    for file_bytes_max in [0, 1, 61_440, 700_000, 1_499_999] {
        for (block, outstanding) in [(61_440, 1), (4096, 3), (300_000, 2)] {
            let mut plan = Plan::new(upload(&bytes, block, outstanding, BATCH), (OC1, 100 * MS));
            plan.terms.file_bytes_max = file_bytes_max;
            let world = plan.run();
            assert_eq!(world.cut, None);
            assert!(answered(&world) > 0);
            let errors = &world.client.errors;
            assert!(
                !errors.is_empty(),
                "{file_bytes_max} {block}: nobody said so"
            );
            assert!(errors.iter().all(|(_, status)| *status == DISK_FULL));
            // What was answered by the server itself was told at once.
            let failed = world.halves.as_ref().unwrap()[1].stats().writes_failed;
            let is_last = errors.last() == Some(&(Command::Close, DISK_FULL));
            assert!(failed == 0 || is_last, "{file_bytes_max} {block}");
            late += u32::from(is_last);
        }
    }
    assert!(late > 12, "{late}");
}

/// Somebody else wants the file in the middle: what the client believes written is there when it is let go.
#[test]
fn what_was_answered_is_there_when_others_get_the_file() {
    let bytes = noise(5, 2_400_000);
    let mut recalled = 0;
    for (nth, at_ms) in (800..3500).step_by(61).enumerate() {
        let oplock = [0, 8, BATCH][nth % 3];
        let plan = Plan::new(upload(&bytes, 61_440, 1, oplock), (OC1 / 8, 200 * MS));
        let mut world = plan.world(false);
        let write = OtherWrite {
            name: "f".to_owned(),
            offset: 5_000_000,
            bytes: vec![7; 100],
        };
        world.others.push_back((at_ms * MS, write));
        world.run();
        assert_eq!((world.cut, world.client.errors.len()), (None, 0));
        assert_eq!(content(&world)[..bytes.len()], bytes[..]);
        for (let_go_ns, held) in &world.server.let_go {
            recalled += 1;
            let before = world
                .client
                .written
                .iter()
                .filter(|(at, ..)| at <= let_go_ns);
            for (at_ns, offset, part) in before {
                let there = held.get(*offset as usize..*offset as usize + part.len());
                assert!(
                    there == Some(part),
                    "answered at {at_ns}, let go at {let_go_ns}"
                );
            }
        }
    }
    assert!(recalled > 15, "{recalled}");
}

fn random_steps(noise: &mut Noise) -> (Vec<Step>, Vec<u8>) {
    let mut steps = Vec::new();
    let mut image: Vec<u8> = Vec::new();
    for _ in 0..=noise.below(2) {
        steps.push(open([0, 0, 8, BATCH][noise.below(4) as usize]));
        for _ in 0..=noise.below(7) {
            let offset = noise.below(image.len() as u64 + 1);
            let block = [3000, 10_000, 61_440, 65_536, 300_000][noise.below(5) as usize];
            let outstanding = 1 + noise.below(5) as usize;
            if noise.below(3) == 0 && !image.is_empty() {
                let ranges = (0..noise.below(6)).map(|_| (noise.below(image.len() as u64), 30_000));
                let ranges = ranges.collect();
                steps.push(Step::Read {
                    ranges,
                    outstanding,
                });
                continue;
            }
            let bytes = source::noise(noise.next(), 1 + noise.below(block as u64 * 6) as usize);
            let end = offset as usize + bytes.len();
            image.resize(image.len().max(end), 0);
            image[offset as usize..end].copy_from_slice(&bytes);
            steps.push(Step::WriteAll {
                offset,
                bytes,
                block,
                outstanding,
            });
        }
        steps.push(Step::Close);
    }
    (steps, image)
}

/// One client that writes over what it wrote, reads it, and closes, at a server that does what it is asked in any
/// order and grants few credits or many, with a half that may give up: the file is what the client made of it.
#[test]
fn random_histories() {
    let (mut behind, mut gave_up) = (0, 0);
    for seed in 0..200 {
        let mut noise = Noise::new(seed);
        let (steps, image) = random_steps(&mut noise);
        let rtt_ns = [10, 60, 200][noise.below(3) as usize] * MS;
        let rate = [T1 * 5, OC1][noise.below(2) as usize];
        let mut plan = Plan::new(steps, (rate, rtt_ns));
        plan.manners.asks = 1 + noise.below(40) as u16;
        plan.terms.write_ns_max = 1 + noise.below(20) * MS;
        plan.terms.credits_max = 1 + noise.below(300);
        plan.terms.grants_oplocks = noise.below(6) > 0;
        let mut world = plan.world(false);
        if noise.below(3) == 0 {
            world.gives_up = Some((noise.below(3000) * MS, noise.below(2) as usize));
        }
        println!("seed {seed}");
        world.run();
        assert_eq!((world.cut, world.client.errors.len()), (None, 0));
        assert!(content(&world) == image, "seed {seed}: other bytes");
        behind += answered(&world);
        gave_up += u32::from(world.gave_up.is_some());
    }
    assert!(behind > 1500 && gave_up > 25, "{behind} {gave_up}");
}
