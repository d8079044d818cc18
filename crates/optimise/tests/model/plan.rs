//! What a client does, over which link, and what came of it.

use farhaul_optimise::Settings;

use super::client::{Client, Manners, Step};
use super::server::{OtherWrite, Server, Terms};
use super::world::World;
use crate::source::{Noise, noise};

pub const MS: u64 = 1_000_000;
/// 51.84 Mbit/s and 1.544 Mbit/s, in bytes.
pub const OC1: u64 = 6_480_000;
pub const T1: u64 = 193_000;
/// What Windows XP asks for at once.
pub const BLOCK: u32 = 61_440;
pub const EXCLUSIVE: u8 = 8;
pub const BATCH: u8 = 9;
/// A lease to read, to write and to keep open.
pub const LEASE: u8 = 0xff;
/// Others may read, write, delete.
pub const SHARE_ALL: u32 = 7;
pub const SHARE_READ: u32 = 1;
pub const DISK_FULL: u32 = 0xc000_007f;

pub fn open(share: u32, oplock: u8) -> Step {
    Step::Open {
        name: "f".to_owned(),
        share,
        oplock,
    }
}

pub fn whole(block: u32, outstanding: usize) -> Vec<Step> {
    let read = Step::ReadAll { block, outstanding };
    vec![open(SHARE_ALL, BATCH), read, Step::Close]
}

pub fn upload(bytes: &[u8], block: u32, outstanding: usize, oplock: u8) -> Vec<Step> {
    let write = Step::WriteAll {
        offset: 0,
        bytes: bytes.to_vec(),
        block,
        outstanding,
    };
    vec![open(SHARE_ALL, oplock), write, Step::Close]
}

pub struct Plan {
    pub terms: Terms,
    pub manners: Manners,
    pub steps: Vec<Step>,
    /// Of the file `f` before.
    pub content: Vec<u8>,
    /// Bytes per second, and round trip in ns.
    pub link: (u64, u64),
}

impl Plan {
    pub fn new(steps: Vec<Step>, content: Vec<u8>, link: (u64, u64)) -> Self {
        Self {
            terms: Terms::default(),
            manners: Manners::default(),
            steps,
            content,
            link,
        }
    }

    /// Of a file of so many bytes.
    pub fn reading(steps: Vec<Step>, file_bytes: usize, link: (u64, u64)) -> Self {
        Self::new(steps, noise(file_bytes as u64, file_bytes), link)
    }

    /// Of a file that is empty, at a server that does what it is asked in any order.
    pub fn writing(steps: Vec<Step>, link: (u64, u64)) -> Self {
        let mut plan = Self::new(steps, Vec::new(), link);
        plan.terms.write_ns_max = 3 * MS;
        plan
    }

    /// The same in SMB1.
    pub fn in_cifs(mut self) -> Self {
        self.terms.is_cifs = true;
        self.manners.begins_in_cifs = true;
        self
    }

    pub fn world(&self, is_direct: bool) -> World {
        let mut server = Server::new(self.terms);
        let content = vec![self.content.clone()];
        server.files.insert("f".to_owned(), content);
        let client = Client::new(self.manners, self.steps.clone());
        let settings = Settings::of_link(self.link.0, self.link.1);
        World::new(client, server, (!is_direct).then_some(settings), self.link)
    }

    pub fn run(&self) -> World {
        let mut world = self.world(false);
        world.run();
        assert_eq!(world.client.errors, []);
        world
    }

    pub fn direct(&self) -> World {
        let mut world = self.world(true);
        world.run();
        world
    }
}

/// Reads a stream of a file without an oplock: how many reads were forwarded, and made ahead.
pub fn run_with_stream(mut plan: Plan, name: &str) -> (u64, u64) {
    plan.steps.insert(
        0,
        Step::Open {
            name: name.to_owned(),
            share: SHARE_ALL,
            oplock: 0,
        },
    );
    let mut world = plan.world(false);
    let content = vec![plan.content.clone()];
    world.server.files.insert(name.to_owned(), content);
    world.run();
    assert_eq!(world.client.read_bytes, plan.content.len() as u64);
    let [near, far] = world.halves.unwrap().map(|half| half.stats());
    (near.reads_forwarded, far.reads_made)
}

/// Reads a file of 4 MB while somebody else writes nearly all of it.
pub fn run_beside_a_writer(plan: &Plan, at_ms: u64) -> World {
    let mut world = plan.world(false);
    let write = OtherWrite {
        name: "f".to_owned(),
        offset: 500,
        bytes: vec![0xee; 3_999_000],
    };
    world.others.push_back((at_ms * MS, write));
    world.run();
    assert_eq!(world.client.read_bytes, 4_000_000);
    world
}

/// As programs do with large files of records: the head first, then here and there one, or a few in a row.
fn jumps(file_bytes: u64) -> Vec<(u64, u32)> {
    const RECORD: u64 = 4096;
    let mut noise = Noise::new(7);
    let mut ranges = vec![(0, RECORD as u32)];
    while ranges.len() < 2000 {
        let in_a_row = match noise.below(10) {
            0..7 => 1,
            _ => 2 + noise.below(7),
        };
        let from = noise.below(file_bytes / RECORD - 8);
        ranges.extend((from..from + in_a_row).map(|at| (at * RECORD, RECORD as u32)));
    }
    ranges
}

/// A client that does so waits no longer than directly, and its server has little more to read.
pub fn assert_who_jumps_is_left_alone(planned: impl Fn(Vec<Step>, usize, (u64, u64)) -> Plan) {
    let links = [OC1, T1].map(|rate| [60, 200, 500].map(|rtt_ms| (rate, rtt_ms)));
    for (rate, rtt_ms) in links.into_iter().flatten() {
        let read = Step::Read {
            ranges: jumps(20_480_000),
            outstanding: 1,
        };
        let steps = vec![open(SHARE_ALL, BATCH), read, Step::Close];
        let plan = planned(steps, 20_480_000, (rate, rtt_ms * MS));
        let (without, with) = (plan.direct(), plan.run());
        assert_eq!(with.client.read_bytes, without.client.read_bytes);
        let made = with.halves.as_ref().unwrap()[1].stats().reads_made;
        assert!(made > 0, "some of it looks like reading on");
        let extra = with.server.reads as f64 / without.server.reads as f64 - 1.0;
        assert!(extra <= 0.1, "{rate} {rtt_ms} ms: {extra}");
        let extra = in_vain(&with);
        assert!(extra <= 0.1, "{rate} {rtt_ms} ms: {extra} in vain");
        let slower = read_ms(&with) / read_ms(&without);
        assert!(slower <= 1.02, "{rate} {rtt_ms} ms: {slower}");
    }
}

/// What the server was asked for in vain, as a share of what its client read.
pub fn in_vain(world: &World) -> f64 {
    let wasted_bytes = world.halves.as_ref().unwrap()[1].stats().wasted_bytes;
    wasted_bytes as f64 / world.client.read_bytes as f64
}

/// First request to last answer, milliseconds.
pub fn read_ms(world: &World) -> f64 {
    let from_ns = world.client.first_read_ns.unwrap();
    (world.client.last_read_ns - from_ns) as f64 / 1e6
}

/// First write to the answer to CLOSE, milliseconds.
pub fn write_ms(world: &World) -> f64 {
    (world.client.closed_ns - world.client.first_write_ns.unwrap()) as f64 / 1e6
}

pub fn content(world: &World) -> &[u8] {
    world.server.files["f"].last().unwrap()
}

pub fn writes_answered(world: &World) -> u64 {
    world.halves.as_ref().unwrap()[0].stats().writes_answered
}

/// A client's name, and its table's row of times: without and with gateways, what the link allows, and the share of that.
pub struct Times {
    pub row: String,
    pub share: f64,
}

impl Times {
    pub fn new(name: &str, (rate, rtt_ms): (u64, u64), bytes: usize, took_ms: [f64; 2]) -> Self {
        let [without_ms, with_ms] = took_ms;
        assert!(
            with_ms < without_ms * 1.02,
            "{name} {rtt_ms}: {with_ms} against {without_ms}"
        );
        let limit_ms = rtt_ms as f64 + bytes as f64 * 1e3 / rate as f64;
        let share = limit_ms / with_ms;
        let row = format!(
            "{name:<28}{rtt_ms:>5}{without_ms:>11.0}{with_ms:>10.0}{limit_ms:>10.0}{share:>8.3}"
        );
        Self { row, share }
    }
}

/// What an upload took through gateways and without them, the answered writes behind it.
pub fn upload_times(name: &str, plan: &Plan, rate: u64, rtt_ms: u64, bytes: &[u8]) -> Times {
    let (without, with) = (plan.direct(), plan.run());
    for world in [&without, &with] {
        assert_eq!((world.cut, world.client.errors.len()), (None, 0));
        assert!(content(world) == bytes, "other bytes");
    }
    let took_ms = [write_ms(&without), write_ms(&with)];
    let mut times = Times::new(name, (rate, rtt_ms), bytes.len(), took_ms);
    times.row += &format!("{:>10}\n", writes_answered(&with));
    times
}

pub fn upload_head() -> String {
    format!(
        "{:<28}{:>5}{:>11}{:>10}{:>10}{:>8}{:>10}\n",
        "file and client", "RTT", "direct ms", "behind ms", "limit ms", "share", "answered"
    )
}

/// The table that a change of a twentieth must be seen in: `FARHAUL_SNAPSHOT=write` writes it anew.
pub fn compare(file: &str, table: &str) {
    let path = format!("{}/tests/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("FARHAUL_SNAPSHOT").is_some() {
        std::fs::write(&path, table).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(table == kept, "it was\n{kept}\nit is\n{table}");
}

/// Whenever the file was let go for others, what the client believed written was there; how often that was.
pub fn assert_there_when_let_go(world: &World) -> usize {
    for (let_go_ns, held) in &world.server.let_go {
        let before = world.client.written.iter();
        for (at_ns, offset, part) in before.filter(|(at, ..)| at <= let_go_ns) {
            let there = held.get(*offset as usize..*offset as usize + part.len());
            assert!(
                there == Some(part),
                "answered at {at_ns}, let go at {let_go_ns}"
            );
        }
    }
    world.server.let_go.len()
}

/// A client writes these bytes over what it wrote; `image` is what the file is then.
pub fn write_over(image: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    image.resize(image.len().max(end), 0);
    image[offset as usize..end].copy_from_slice(bytes);
}
