//! SMB1 in virtual time, with a client that waits for every block as Windows XP's does: the same bytes, sooner, and never
//! what a direct client could not have seen.
#![allow(clippy::unwrap_used)]

mod model;
mod source;

use std::fmt::Write as _;

use farhaul_optimise::smb::smb2::header::Command;
use farhaul_optimise::{Reason, Settings};
use model::client::{Client, Manners, Step};
use model::server::{OtherWrite, Server, Terms};
use model::world::World;
use source::{Noise, noise};

const MS: u64 = 1_000_000;
/// 51.84 Mbit/s and 1.544 Mbit/s, in bytes.
const OC1: u64 = 6_480_000;
const T1: u64 = 193_000;
/// What XP asks for at once.
const BLOCK: u32 = 61_440;
const EXCLUSIVE: u8 = 8;
const BATCH: u8 = 9;
/// Others may read, write, delete.
const SHARE_ALL: u32 = 7;
const SHARE_READ: u32 = 1;
const DISK_FULL: u32 = 0xc000_007f;

fn open(share: u32, oplock: u8) -> Step {
    Step::Open {
        name: "f".to_owned(),
        share,
        oplock,
    }
}

fn read_all(block: u32, outstanding: usize) -> Step {
    Step::ReadAll { block, outstanding }
}

fn whole(outstanding: usize) -> Vec<Step> {
    vec![
        open(SHARE_ALL, BATCH),
        read_all(BLOCK, outstanding),
        Step::Close,
    ]
}

struct Plan {
    terms: Terms,
    manners: Manners,
    steps: Vec<Step>,
    content: Vec<u8>,
    link: (u64, u64),
}

impl Plan {
    fn new(steps: Vec<Step>, content: Vec<u8>, link: (u64, u64)) -> Self {
        let terms = Terms {
            is_cifs: true,
            ..Terms::default()
        };
        let manners = Manners {
            begins_in_cifs: true,
            ..Manners::default()
        };
        Self {
            terms,
            manners,
            steps,
            content,
            link,
        }
    }

    fn reading(steps: Vec<Step>, file_bytes: usize, link: (u64, u64)) -> Self {
        Self::new(steps, noise(file_bytes as u64, file_bytes), link)
    }

    fn world(&self, is_direct: bool) -> World {
        let mut server = Server::new(self.terms);
        server
            .files
            .insert("f".to_owned(), vec![self.content.clone()]);
        let client = Client::new(self.manners, self.steps.clone());
        let settings = Settings::of_link(self.link.0, self.link.1);
        World::new(client, server, (!is_direct).then_some(settings), self.link)
    }

    fn run(&self) -> World {
        let mut world = self.world(false);
        world.run();
        assert_eq!(world.client.errors, []);
        world
    }

    fn direct(&self) -> World {
        let mut world = self.world(true);
        world.run();
        world
    }
}

/// First request to last answer, milliseconds.
fn took_ms(world: &World) -> f64 {
    let from_ns = world.client.first_read_ns.unwrap();
    (world.client.last_read_ns - from_ns) as f64 / 1e6
}

fn reads_made(world: &World) -> u64 {
    world.halves.as_ref().unwrap()[1].stats().reads_made
}

fn forwarded(world: &World) -> u64 {
    world.halves.as_ref().unwrap()[0].stats().reads_forwarded
}

/// A row of the table, and the share of what the link carries at the best.
fn row(name: &str, rate: u64, rtt_ms: u64, outstanding: usize) -> (String, f64) {
    let file_bytes = 10_000_000;
    let plan = Plan::reading(whole(outstanding), file_bytes, (rate, rtt_ms * MS));
    let (without, with) = (plan.direct(), plan.run());
    for world in [&without, &with] {
        assert_eq!(
            (world.client.read_bytes, world.cut),
            (file_bytes as u64, None)
        );
    }
    let limit_ms = rtt_ms as f64 + file_bytes as f64 * 1e3 / rate as f64;
    let (without_ms, with_ms) = (took_ms(&without), took_ms(&with));
    assert!(
        with_ms < without_ms * 1.02,
        "{name} {rtt_ms}: {with_ms} against {without_ms}"
    );
    let share = limit_ms / with_ms;
    let reads = format!("{}/{}", with.server.reads, without.server.reads);
    let mut line = String::new();
    writeln!(
        line,
        "{name:<28}{rtt_ms:>5}{without_ms:>11.0}{with_ms:>10.0}{limit_ms:>10.0}{share:>8.3}{:>8}{:>8}{reads:>10}",
        without.client.reads,
        forwarded(&with),
    )
    .unwrap();
    (line, share)
}

fn compare(file: &str, table: &str) {
    let path = format!("{}/tests/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("FARHAUL_SNAPSHOT").is_some() {
        std::fs::write(&path, table).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(table == kept, "it was\n{kept}\nit is\n{table}");
}

/// As `times_of_files` of SMB2: `FARHAUL_SNAPSHOT=write` writes it anew.
#[test]
fn times_of_files() {
    let mut table = format!(
        "{:<28}{:>5}{:>11}{:>10}{:>10}{:>8}{:>8}{:>8}{:>10}\n",
        "file and client",
        "RTT",
        "direct ms",
        "ahead ms",
        "limit ms",
        "share",
        "waits",
        "ahead",
        "reads"
    );
    let clients = [
        ("OC-1 10 MB 60 KiB x 1", OC1, 1, 0.95),
        ("T1 10 MB 60 KiB x 1", T1, 1, 0.97),
        ("OC-1 10 MB 60 KiB x 8", OC1, 8, 0.95),
    ];
    for (name, rate, outstanding, target) in clients {
        for rtt_ms in [0, 60, 200, 500] {
            let (line, share) = row(name, rate, rtt_ms, outstanding);
            table += &line;
            assert!(share >= target, "{line}");
        }
    }
    compare("smb1.txt", &table);
}

#[test]
fn only_what_is_protected_is_read_ahead() {
    let with = |share, oplock| {
        let steps = vec![open(share, oplock), read_all(BLOCK, 1), Step::Close];
        Plan::reading(steps, 1_000_000, (OC1, 60 * MS))
    };
    for oplock in [EXCLUSIVE, BATCH] {
        assert_eq!(forwarded(&with(SHARE_ALL, oplock).run()), 1, "{oplock}");
    }
    let mut shared = with(SHARE_ALL, BATCH);
    shared.terms.grants_ii = true;
    assert_eq!(forwarded(&shared.run()), 1, "level II");
    assert_eq!(forwarded(&with(SHARE_READ, 0).run()), 1, "no writers");
    assert_eq!(forwarded(&with(SHARE_ALL, 0).run()), 1, "lent");
    let mut refused = with(SHARE_ALL, 0);
    refused.terms.grants_oplocks = false;
    let world = refused.run();
    assert_eq!((reads_made(&world), forwarded(&world)), (0, 17));
    // In lockstep, and no slower than that.
    assert!(took_ms(&world) <= took_ms(&refused.direct()) * 1.02);
}

/// Clients without long reads may turn to raw ones, whose packets cannot be told apart.
#[test]
fn a_client_without_long_reads_is_left_alone() {
    let mut plan = Plan::reading(whole(1), 500_000, (OC1, 60 * MS));
    plan.manners.capabilities = 0;
    let world = plan.run();
    assert_eq!((reads_made(&world), world.gave_up), (0, None));
}

#[test]
fn signed_sessions_pass_as_they_are() {
    let mut plan = Plan::reading(whole(1), 500_000, (OC1, 60 * MS));
    plan.terms.security_mode = 1 | 8;
    let required = plan.run();
    assert_eq!(required.gave_up, Some(Reason::SmbSigned));
    assert_eq!(reads_made(&required), 0);
    plan.terms.security_mode = 1;
    plan.manners.signs_tree = true;
    let signed = plan.run();
    assert_eq!(
        (signed.gave_up, signed.cut),
        (Some(Reason::SmbSigned), None)
    );
    assert_eq!(reads_made(&signed), 0);
}

#[test]
fn a_client_that_begins_in_smb1_may_go_on_in_smb2() {
    let mut plan = Plan::reading(whole(1), 2_000_000, (OC1, 200 * MS));
    plan.terms.is_cifs = false;
    plan.terms.dialect = 0x0202;
    plan.manners.has_large_requests = false;
    plan.manners.asks = 4;
    let world = plan.run();
    assert_eq!((world.gave_up, world.cut), (None, None));
    assert_eq!(forwarded(&world), 1);
}

/// However few requests the server takes at a time, the client has what it would have had.
#[test]
fn a_server_that_takes_few_requests_is_not_asked_for_more() {
    for requests_max in [1, 2, 3, 10] {
        let mut plan = Plan::reading(whole(1), 2_000_000, (OC1, 60 * MS));
        plan.terms.requests_max = requests_max;
        let world = plan.run();
        assert_eq!((world.client.read_bytes, world.cut), (2_000_000, None));
        assert_eq!(reads_made(&world) > 0, requests_max > 2, "{requests_max}");
    }
}

/// A client that asks for no oplock is lent one, and still sees what others write the moment they have written it.
#[test]
fn a_client_without_oplocks_is_lent_one() {
    let mut recalled = 0;
    for at_ms in (100..2400).step_by(41) {
        let steps = vec![open(SHARE_ALL, 0), read_all(BLOCK, 1), Step::Close];
        let plan = Plan::reading(steps, 4_000_000, (OC1, 200 * MS));
        let mut world = plan.world(false);
        let write = OtherWrite {
            name: "f".to_owned(),
            offset: 500,
            bytes: vec![0xee; 3_999_000],
        };
        world.others.push_back((at_ms * MS, write));
        world.run();
        assert_eq!((world.client.read_bytes, world.cut), (4_000_000, None));
        recalled += world.halves.unwrap()[1].stats().breaks;
    }
    assert!(recalled > 20, "{recalled}");
}

/// Somebody else writes while a file is read: from the break on the client sees it, whatever oplock it had.
#[test]
fn a_break_ends_what_was_read_ahead() {
    let mut breaks = 0;
    for (nth, at_ms) in (700..2400).step_by(41).enumerate() {
        let oplock = [EXCLUSIVE, BATCH][nth % 2];
        let steps = vec![open(SHARE_ALL, oplock), read_all(BLOCK, 1), Step::Close];
        let mut plan = Plan::reading(steps, 4_000_000, (OC1, 200 * MS));
        plan.terms.grants_ii = nth % 3 == 0;
        let mut world = plan.world(false);
        let write = OtherWrite {
            name: "f".to_owned(),
            offset: 500,
            bytes: vec![0xee; 3_999_000],
        };
        world.others.push_back((at_ms * MS, write));
        world.run();
        assert_eq!((world.client.read_bytes, world.cut), (4_000_000, None));
        breaks += world.halves.unwrap()[1].stats().breaks;
    }
    assert!(breaks > 20, "{breaks}");
}

fn random_steps(noise: &mut Noise, file_bytes: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..=noise.below(3) {
        let share = [SHARE_ALL, SHARE_READ][noise.below(2) as usize];
        let oplock = [0, EXCLUSIVE, BATCH, BATCH][noise.below(4) as usize];
        steps.push(open(share, oplock));
        for _ in 0..noise.below(6) {
            let outstanding = 1 + noise.below(6) as usize;
            let block = [4096, 10_000, BLOCK, 65_535, 130_000][noise.below(5) as usize];
            steps.push(match noise.below(6) {
                0 => Step::Write {
                    offset: noise.below(file_bytes),
                    bytes: vec![noise.next() as u8; 1 + noise.below(60_000) as usize],
                },
                1 => Step::Pause {
                    ns: noise.below(300 * MS),
                },
                2 => read_all(block, outstanding),
                kind => {
                    let from = noise.below(3) * noise.below(file_bytes);
                    let jumps = u64::from(kind == 3) * noise.below(200_000);
                    let place = |nth| (from + nth * (u64::from(block) + jumps), block);
                    Step::Read {
                        ranges: (0..noise.below(20)).map(place).collect(),
                        outstanding,
                    }
                }
            });
        }
        steps.push(Step::Close);
    }
    steps
}

/// Histories of one client, others who write, and a half that gives up at some time: every byte is held against the
/// versions that a direct client could have been shown.
#[test]
fn random_histories() {
    let (mut answered, mut gave_up, mut breaks) = (0, 0, 0);
    for seed in 0..300 {
        let mut noise = Noise::new(seed);
        let file_bytes = 1 + noise.below(1_500_000);
        let rtt_ns = [10, 60, 200][noise.below(3) as usize] * MS;
        let rate = [T1 * 5, OC1][noise.below(2) as usize];
        let steps = random_steps(&mut noise, file_bytes);
        let mut plan = Plan::reading(steps, file_bytes as usize, (rate, rtt_ns));
        plan.terms.requests_max = 7 + noise.below(50) as usize;
        plan.terms.grants_oplocks = noise.below(5) > 0;
        plan.terms.grants_ii = noise.below(4) == 0;
        let mut world = plan.world(false);
        for _ in 0..noise.below(4) {
            let write = OtherWrite {
                name: "f".to_owned(),
                offset: noise.below(file_bytes) as usize,
                bytes: vec![noise.next() as u8; 1 + noise.below(80_000) as usize],
            };
            world.others.push_back((noise.below(6000) * MS, write));
        }
        world.others.make_contiguous().sort_by_key(|(at, _)| *at);
        if noise.below(3) == 0 {
            world.gives_up = Some((noise.below(4000) * MS, noise.below(2) as usize));
        }
        println!("seed {seed}");
        world.run();
        assert_eq!(world.cut, None, "seed {seed}");
        let halves = world.halves.as_ref().unwrap();
        answered += halves[0].stats().reads_answered;
        breaks += halves[1].stats().breaks;
        gave_up += u32::from(world.gave_up.is_some());
    }
    assert!(
        answered > 2000 && breaks > 30 && gave_up > 30,
        "{answered} {breaks} {gave_up}"
    );
}

fn upload(bytes: &[u8], block: u32, outstanding: usize, oplock: u8) -> Vec<Step> {
    let write = Step::WriteAll {
        offset: 0,
        bytes: bytes.to_vec(),
        block,
        outstanding,
    };
    vec![open(SHARE_ALL, oplock), write, Step::Close]
}

/// Of a file that is empty, at a server that does what it is asked in any order.
fn writing(steps: Vec<Step>, link: (u64, u64)) -> Plan {
    let mut plan = Plan::new(steps, Vec::new(), link);
    plan.terms.write_ns_max = 3 * MS;
    plan
}

fn content(world: &World) -> &[u8] {
    world.server.files["f"].last().unwrap()
}

fn behind(world: &World) -> u64 {
    world.halves.as_ref().unwrap()[0].stats().writes_answered
}

/// A row of the table, and the share of what the link carries at the best.
fn upload_row(
    name: &str,
    rate: u64,
    rtt_ms: u64,
    bytes: &[u8],
    client: (u32, usize),
) -> (String, f64) {
    let plan = writing(
        upload(bytes, client.0, client.1, BATCH),
        (rate, rtt_ms * MS),
    );
    let (without, with) = (plan.direct(), plan.run());
    for world in [&without, &with] {
        assert_eq!((world.cut, world.client.errors.len()), (None, 0));
        assert!(content(world) == bytes, "other bytes");
    }
    let took_ms = |world: &World| {
        let from_ns = world.client.first_write_ns.unwrap();
        (world.client.closed_ns - from_ns) as f64 / 1e6
    };
    let limit_ms = rtt_ms as f64 + bytes.len() as f64 * 1e3 / rate as f64;
    let (without_ms, with_ms) = (took_ms(&without), took_ms(&with));
    assert!(with_ms < without_ms * 1.02, "{name} {rtt_ms}: {with_ms}");
    let share = limit_ms / with_ms;
    let mut line = String::new();
    writeln!(
        line,
        "{name:<28}{rtt_ms:>5}{without_ms:>11.0}{with_ms:>10.0}{limit_ms:>10.0}{share:>8.3}{:>10}",
        behind(&with),
    )
    .unwrap();
    (line, share)
}

#[test]
fn times_of_uploads() {
    let mut table = format!(
        "{:<28}{:>5}{:>11}{:>10}{:>10}{:>8}{:>10}\n",
        "file and client", "RTT", "direct ms", "behind ms", "limit ms", "share", "answered"
    );
    let (large, small) = (noise(1, 10_000_000), noise(2, 2_000_000));
    let clients = [
        ("OC-1 10 MB 60 KiB x 1", OC1, &large, (BLOCK, 1)),
        ("T1 2 MB 60 KiB x 1", T1, &small, (BLOCK, 1)),
        ("T1 2 MB 4 KiB x 1", T1, &small, (4096, 1)),
    ];
    for (name, rate, bytes, client) in clients {
        for rtt_ms in [4, 60, 200, 500] {
            let (line, share) = upload_row(name, rate, rtt_ms, bytes, client);
            table += &line;
            assert!(share >= 0.9, "{line}");
        }
    }
    compare("smb1_uploads.txt", &table);
}

#[test]
fn only_writes_of_what_is_the_clients_alone_are_answered() {
    let bytes = noise(3, 1_000_000);
    let plan = |oplock| writing(upload(&bytes, BLOCK, 1, oplock), (OC1, 60 * MS));
    assert_eq!(behind(&plan(BATCH).run()), 17);
    assert_eq!(behind(&plan(EXCLUSIVE).run()), 17);
    assert_eq!(behind(&plan(0).run()), 17, "lent");
    let mut shared = plan(BATCH);
    shared.terms.grants_ii = true;
    shared.terms.write_ns_max = 0;
    assert_eq!(behind(&shared.run()), 0, "level II");
    let mut unprotected = plan(BATCH);
    unprotected.terms.grants_oplocks = false;
    assert_eq!(behind(&unprotected.run()), 0, "no oplock");
    let mut through = plan(BATCH);
    through.manners.write_flags = 1;
    assert_eq!(behind(&through.run()), 0, "each write through");
    let mut through = plan(BATCH);
    through.manners.options = 2;
    assert_eq!(behind(&through.run()), 0, "the file through");
    let mut signed = plan(BATCH);
    signed.terms.security_mode = 1 | 8;
    assert_eq!(behind(&signed.run()), 0, "signed");
}

/// A disk that fills up at any place: CLOSE is too late only for who has heard it before.
#[test]
fn a_full_disk_is_told_no_later_than_at_close() {
    let bytes = noise(4, 1_500_000);
    let mut late = 0;
    for file_bytes_max in [0, 1, 61_440, 700_000, 1_499_999] {
        for (block, outstanding) in [(BLOCK, 1), (4096, 3), (65_535, 2)] {
            let steps = upload(&bytes, block, outstanding, BATCH);
            let mut plan = writing(steps, (OC1, 100 * MS));
            plan.terms.file_bytes_max = file_bytes_max;
            let mut world = plan.world(false);
            world.run();
            assert_eq!(world.cut, None);
            assert!(behind(&world) > 0);
            let errors = &world.client.errors;
            assert!(
                !errors.is_empty(),
                "{file_bytes_max} {block}: nobody said so"
            );
            assert!(errors.iter().all(|(_, status)| *status == DISK_FULL));
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
        let oplock = [0, EXCLUSIVE, BATCH][nth % 3];
        let plan = writing(upload(&bytes, BLOCK, 1, oplock), (OC1 / 8, 200 * MS));
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
            let before = world.client.written.iter();
            for (at_ns, offset, part) in before.filter(|(at, ..)| at <= let_go_ns) {
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

fn random_writes(noise: &mut Noise) -> (Vec<Step>, Vec<u8>) {
    let mut steps = Vec::new();
    let mut image: Vec<u8> = Vec::new();
    for _ in 0..=noise.below(2) {
        steps.push(open(
            SHARE_ALL,
            [0, EXCLUSIVE, BATCH][noise.below(3) as usize],
        ));
        for _ in 0..=noise.below(7) {
            let offset = noise.below(image.len() as u64 + 1);
            let block = [3000, 10_000, BLOCK, 65_535][noise.below(4) as usize];
            let outstanding = 1 + noise.below(5) as usize;
            if noise.below(3) == 0 && !image.is_empty() {
                let mut place = || (noise.below(image.len() as u64), 30_000);
                let ranges = (0..4).map(|_| place()).collect();
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
/// order, with a half that may give up: the file is what the client made of it.
#[test]
fn random_histories_of_writes() {
    let (mut answered, mut gave_up) = (0, 0);
    for seed in 0..200 {
        let mut noise = Noise::new(seed);
        let (steps, image) = random_writes(&mut noise);
        let rtt_ns = [10, 60, 200][noise.below(3) as usize] * MS;
        let rate = [T1 * 5, OC1][noise.below(2) as usize];
        let mut plan = writing(steps, (rate, rtt_ns));
        plan.terms.write_ns_max = 1 + noise.below(20) * MS;
        plan.terms.requests_max = 7 + noise.below(50) as usize;
        plan.terms.grants_oplocks = noise.below(6) > 0;
        let mut world = plan.world(false);
        if noise.below(3) == 0 {
            world.gives_up = Some((noise.below(3000) * MS, noise.below(2) as usize));
        }
        println!("seed {seed}");
        world.run();
        assert_eq!((world.cut, world.client.errors.len()), (None, 0));
        assert!(content(&world) == image, "seed {seed}: other bytes");
        answered += behind(&world);
        gave_up += u32::from(world.gave_up.is_some());
    }
    assert!(answered > 1000 && gave_up > 25, "{answered} {gave_up}");
}
