//! Folders of small files in virtual time: opened, asked about and read ahead of a client that copies one after the other.
#![allow(clippy::unwrap_used)]

mod model;
mod source;

use farhaul_optimise::Stats;
use model::client::{Manners, Step};
use model::plan::{MS, OC1, Plan, SHARE_READ, T1, compare, open};
use model::server::OtherWrite;
use model::server::folder::wide;
use model::world::World;
use source::noise;

/// Others may read and write, as smbclient lets them.
const SHARE: u32 = 3;
const FOLDER: &str = "d";
const SECOND_NS: u64 = 1_000_000_000;

fn leaf(nth: usize) -> String {
    format!("{nth:04}")
}

fn open_at(nth: usize, share: u32) -> Step {
    let Step::Open { share, oplock, .. } = open(share, 0) else {
        panic!();
    };
    let name = wide(&format!("{FOLDER}\\{}", leaf(nth)));
    Step::Open {
        name,
        share,
        oplock,
    }
}

fn list() -> Vec<Step> {
    let name = wide(FOLDER);
    let opening = Step::Open {
        name,
        share: SHARE,
        oplock: 0,
    };
    vec![opening, Step::List, Step::Close]
}

/// What smbclient does with each file.
fn copy(nth: usize, bytes: u32) -> Vec<Step> {
    let read = Step::Read {
        ranges: vec![(0, bytes)],
        outstanding: 1,
    };
    vec![open_at(nth, SHARE), Step::Ask, read, Step::Close]
}

struct Folder {
    files: usize,
    bytes: usize,
    plan: Plan,
}

impl Folder {
    fn new(steps: Vec<Step>, files: usize, bytes: usize, link: (u64, u64)) -> Self {
        let mut plan = Plan::reading(steps, 0, link);
        plan.manners = Manners {
            access: 0x12_0089,
            options: 0x40,
            asks: 4,
            ..Manners::default()
        };
        Self { files, bytes, plan }
    }

    /// All of its files are copied.
    fn whole(files: usize, bytes: usize, link: (u64, u64)) -> Self {
        let copies = (0..files).flat_map(|nth| copy(nth, bytes as u32));
        let steps = list().into_iter().chain(copies).collect();
        Self::new(steps, files, bytes, link)
    }

    fn world(&self, is_direct: bool) -> World {
        let mut world = self.plan.world(is_direct);
        for nth in 0..self.files {
            let content = noise(nth as u64 + 1, self.bytes);
            world.server.put(FOLDER, &leaf(nth), content);
        }
        world
    }

    fn run(&self, is_direct: bool) -> World {
        let mut world = self.world(is_direct);
        world.run();
        assert_eq!((world.cut, world.client.errors.len()), (None, 0));
        world
    }
}

fn stats(world: &World) -> [Stats; 2] {
    let halves = world.halves.as_ref().unwrap();
    [halves[0].stats(), halves[1].stats()]
}

fn row(name: &str, files: usize, bytes: usize, (rate, rtt_ms): (u64, u64)) -> (String, f64) {
    let folder = Folder::whole(files, bytes, (rate, rtt_ms * MS));
    let (without, with) = (folder.run(true), folder.run(false));
    for world in [&without, &with] {
        assert_eq!(world.client.read_bytes, (files * bytes) as u64);
        assert_eq!(world.client.infos, files as u64);
    }
    let took_ms = [&without, &with].map(|world| world.client.closed_ns as f64 / 1e6);
    let limit_ms = rtt_ms as f64 + (files * bytes) as f64 * 1e3 / rate as f64;
    let factor = took_ms[0] / took_ms[1];
    let [near, far] = stats(&with);
    let row = format!(
        "{name:<28}{rtt_ms:>5}{:>11.0}{:>10.0}{limit_ms:>10.0}{factor:>8.1}{:>8}{:>8}\n",
        took_ms[0], took_ms[1], near.opens_answered, far.opens_wasted
    );
    (row, factor)
}

#[test]
fn times_of_folders() {
    let mut table = format!(
        "{:<28}{:>5}{:>11}{:>10}{:>10}{:>8}{:>8}{:>8}\n",
        "folder", "RTT", "direct ms", "ahead ms", "limit ms", "factor", "ahead", "wasted"
    );
    for rtt_ms in [0, 60, 200, 500] {
        let (row, factor) = row("T1 1,000 of 10 KB", 1000, 10_000, (T1, rtt_ms));
        table += &row;
        assert!(rtt_ms < 500 || factor > 12.0, "{factor}");
    }
    for rtt_ms in [0, 60, 200, 500] {
        table += &row("OC-1 1,000 of 10 KB", 1000, 10_000, (OC1, rtt_ms)).0;
    }
    for rtt_ms in [0, 60, 200, 500] {
        table += &row("OC-1 200 of 100 KB", 200, 100_000, (OC1, rtt_ms)).0;
    }
    table += &row("OC-1 1,000 of 1 byte", 1000, 1, (OC1, 500)).0;
    compare("small_files.txt", &table);
}

#[test]
fn what_nobody_takes_is_closed_within_seconds() {
    let copies = (0..5).flat_map(|nth| copy(nth, 10_000));
    let pause = Step::Pause { ns: 10 * SECOND_NS };
    let steps = list().into_iter().chain(copies).chain([pause]).collect();
    let world = Folder::new(steps, 100, 10_000, (T1, 500 * MS)).run(false);
    let [near, far] = stats(&world);
    assert!(near.opens_answered > 0, "{near:?}");
    assert_eq!(far.opens_made - near.opens_answered, far.opens_wasted);
    assert!(far.opens_wasted > 0 && far.opens_wasted < 64, "{far:?}");
    assert_eq!(world.server.open_files(), 0);
    // Who goes on is served again.
    let mut steps = list();
    for nth in 0..40 {
        steps.extend(copy(nth, 10_000));
        if nth == 10 {
            steps.push(Step::Pause { ns: 10 * SECOND_NS });
        }
    }
    let world = Folder::new(steps, 100, 10_000, (T1, 500 * MS)).run(false);
    let [near, _] = stats(&world);
    assert!(near.opens_answered > 25, "{near:?}");
}

#[test]
fn a_file_asked_for_in_another_way_is_the_servers_to_open() {
    let mut steps = list();
    for nth in 0..30 {
        steps.extend(copy(nth, 10_000));
        if nth == 20 {
            steps.extend([open_at(22, SHARE_READ), Step::Ask, Step::Close]);
        }
    }
    let world = Folder::new(steps, 30, 10_000, (T1, 500 * MS)).run(false);
    assert_eq!(world.client.read_bytes, 300_000);
}

/// Two answers of 6,000 names each in one packet, which is longer than a megabyte: as browsers ask, of a large folder.
#[test]
fn a_large_folder_is_listed_in_one_packet() {
    let name = wide(FOLDER);
    // From the first file on ids are ours.
    let mut steps = copy(0, 1);
    steps.extend([Step::Browse { name }, Step::Close]);
    let mut folder = Folder::new(steps, 12_000, 1, (OC1, 60 * MS));
    folder.plan.terms.names_max = 6_000;
    folder.plan.terms.compounds = true;
    let world = folder.run(false);
    assert_eq!(world.client.names, 12_000);
    assert!(world.server.longest_bytes > 1 << 20, "nothing is tested");
    assert_eq!(world.gave_up, None);
}

/// A share without oplocks, and a server that opens nothing of ours: each is asked a few times, and the copy is the client's.
#[test]
fn what_comes_to_nothing_is_not_tried_for_ever() {
    for (grants_oplocks, refuses_batch, most) in [(false, 0, 24), (true, 1, 40)] {
        let mut folder = Folder::whole(300, 10_000, (T1, 500 * MS));
        folder.plan.terms.grants_oplocks = grants_oplocks;
        folder.plan.terms.refuses_batch = refuses_batch;
        let world = folder.run(false);
        let [near, far] = stats(&world);
        assert_eq!(world.client.read_bytes, 3_000_000);
        assert_eq!((near.opens_answered, world.server.open_files()), (0, 0));
        assert_eq!(far.opens_made, far.opens_wasted);
        assert!((1..=most).contains(&far.opens_made), "{far:?}");
    }
}

/// Somebody else has one file open here and there.
#[test]
fn a_file_that_cannot_be_opened_ahead_keeps_up_no_other() {
    let took = |refuses_batch| {
        let mut folder = Folder::whole(300, 10_000, (T1, 500 * MS));
        folder.plan.terms.refuses_batch = refuses_batch;
        let world = folder.run(false);
        (world.client.closed_ns, stats(&world)[0].opens_answered)
    };
    let ((without_ns, _), (with_ns, answered)) = (took(0), took(30));
    assert!(answered > 280, "{answered}");
    // Four round trips for each of nine.
    assert!(with_ns < without_ns + 9 * 4 * 500 * MS, "{with_ns}");
}

/// Its paths are not those of the share.
#[test]
fn nothing_is_opened_ahead_of_who_says_names_of_dfs() {
    let mut folder = Folder::whole(60, 10_000, (T1, 500 * MS));
    folder.plan.manners.is_dfs = true;
    let [_, far] = stats(&folder.run(false));
    assert_eq!(far.opens_made, 0);
}

/// It opens each file for its attributes before it does to read: what was read of it has crossed the link in vain.
#[test]
fn files_are_left_alone_that_are_wanted_otherwise_first() {
    let files = 300;
    let mut steps = list();
    for nth in 0..files {
        let name = wide(&format!("{FOLDER}\\{}", leaf(nth)));
        steps.extend([Step::Peek { name }, Step::Close]);
        steps.extend(copy(nth, 10_000));
    }
    let world = Folder::new(steps, files, 10_000, (T1, 500 * MS)).run(false);
    let [_, far] = stats(&world);
    assert_eq!(world.client.read_bytes, 3_000_000);
    assert!((1..50).contains(&far.opens_wasted), "{far:?}");
    // Of one only the others stay, and none is opened twice.
    let mut steps = list();
    for nth in 0..100 {
        if nth == 21 {
            let name = wide(&format!("{FOLDER}\\{}", leaf(nth)));
            steps.extend([Step::Peek { name }, Step::Close]);
        }
        steps.extend(copy(nth, 10_000));
    }
    let [near, far] = stats(&Folder::new(steps, 100, 10_000, (T1, 500 * MS)).run(false));
    assert_eq!((near.opens_answered, far.opens_wasted), (97, 1));
    // Who then only reads is served again.
    let mut steps = list();
    for nth in 0..100 {
        if nth < 40 {
            let name = wide(&format!("{FOLDER}\\{}", leaf(nth)));
            steps.extend([Step::Peek { name }, Step::Close]);
        }
        steps.extend(copy(nth, 10_000));
    }
    let [near, _] = stats(&Folder::new(steps, 100, 10_000, (T1, 500 * MS)).run(false));
    assert!(near.opens_answered > 35, "{near:?}");
}

/// Somebody writes into files while they are copied, at any time: each is shown as it was when it was asked for, or later.
#[test]
fn what_others_write_meanwhile_is_seen() {
    for at_ms in (5_000..9_000).step_by(50) {
        let folder = Folder::whole(100, 10_000, (T1, 500 * MS));
        let mut world = folder.world(false);
        for nth in 0..100 {
            let write = OtherWrite {
                name: wide(&format!("{FOLDER}\\{}", leaf(nth))),
                offset: 0,
                bytes: vec![0xee; 10_000],
            };
            world.others.push_back((at_ms * MS, write));
        }
        world.run();
        assert_eq!((world.cut, world.client.errors.len()), (None, 0));
        assert_eq!(world.client.read_bytes, 1_000_000);
        assert_eq!(world.client.infos, 100);
    }
}

/// As smbclient does: it has all credits, and lends those with which files are opened ahead.
#[test]
fn a_client_that_has_all_credits_is_served_and_keeps_them() {
    let mut folder = Folder::whole(100, 10_000, (T1, 500 * MS));
    folder.plan.manners.asks = 8192;
    folder.plan.terms.credits_max = 8192;
    let world = folder.run(false);
    let [near, _] = stats(&world);
    assert!(near.opens_answered > 90, "{near:?}");
    assert_eq!(world.client.credits, 8192);
}

#[test]
fn folders_closed_in_the_packet_that_opened_them_leave_room_for_others() {
    let mut folder = Folder::whole(100, 10_000, (T1, 60 * MS));
    let name = wide(FOLDER);
    folder
        .plan
        .steps
        .splice(..0, vec![Step::Glance { name }; 300]);
    let [near, _] = stats(&folder.run(false));
    assert!(near.opens_answered > 90, "{near:?}");
}

#[test]
fn a_client_that_writes_meanwhile_gets_on() {
    let mut folder = Folder::whole(30, 10_000, (T1, 500 * MS));
    let bytes = vec![1; 100];
    let write = Step::Write { offset: 0, bytes };
    let other = [open(SHARE, 0), write, Step::Close];
    let at = folder.plan.steps.len() - 40;
    folder.plan.steps.splice(at..at, other);
    let world = folder.run(false);
    assert_eq!(world.client.read_bytes, 300_000);
    assert_eq!(world.server.files["f"].last().unwrap(), &vec![1; 100]);
}

/// Who has a file next in the row may be this client itself, whose write to it is to reach the server first.
#[test]
fn a_write_does_not_wait_for_a_file_that_others_have() {
    let mut folder = Folder::whole(30, 10_000, (T1, 500 * MS));
    folder.plan.terms.held_file = Some("d\\0025");
    let bytes = vec![1; 100];
    let write = Step::Write { offset: 0, bytes };
    let other = [open(SHARE, 0), write, Step::Close];
    let at = folder.plan.steps.len() - 24;
    folder.plan.steps.splice(at..at, other);
    let world = folder.run(false);
    assert_eq!(world.client.read_bytes, 300_000);
    assert_eq!(world.server.files["f"].last().unwrap(), &vec![1; 100]);
}

#[test]
fn a_half_that_gives_up_in_mid_folder_leaves_the_copy_whole() {
    for half in [0, 1] {
        for at_ms in (4_000..9_000).step_by(250) {
            let folder = Folder::whole(60, 10_000, (T1, 500 * MS));
            let mut world = folder.world(false);
            world.gives_up = Some((at_ms * MS, half));
            world.run();
            assert_eq!((world.cut, world.client.errors.len()), (None, 0));
            assert_eq!(world.client.read_bytes, 600_000);
        }
    }
}
