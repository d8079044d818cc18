//! Numbers that are given again, and sessions that end in the middle: nothing of what was before is taken for what is now.
#![allow(clippy::unwrap_used)]

mod model;
mod source;

use farhaul_optimise::smb::smb2::header::Command;
use model::client::Step;
use model::plan::{
    BATCH, BLOCK, DISK_FULL, MS, OC1, Plan, SHARE_ALL, content, open, upload, writes_answered,
};
use model::server::OtherWrite;
use model::world::World;
use source::noise;

const FILE_BYTES: usize = 1_500_000;

fn read_all() -> Step {
    Step::ReadAll {
        block: BLOCK,
        outstanding: 1,
    }
}

/// The first so many blocks.
fn beginning(blocks: u64) -> Step {
    let place = |nth| (nth * u64::from(BLOCK), BLOCK);
    Step::Read {
        ranges: (0..blocks).map(place).collect(),
        outstanding: 1,
    }
}

/// With another file, `g`.
fn world(plan: &Plan) -> World {
    let mut world = plan.world(false);
    let other = vec![noise(77, FILE_BYTES)];
    world.server.files.insert("g".to_owned(), other);
    world
}

/// Somebody else writes nearly all of a file.
fn other_write(name: &str, nth: u8) -> OtherWrite {
    OtherWrite {
        name: name.to_owned(),
        offset: 500,
        bytes: vec![nth; FILE_BYTES - 1000],
    }
}

/// In SMB2 as a guest: the answer to a session that is set up later is signed for others, which ends the connection.
fn in_dialect(mut plan: Plan, is_cifs: bool) -> Plan {
    plan.terms.signs_setup = false;
    if is_cifs { plan.in_cifs() } else { plan }
}

/// Others want the first file, whose number is the second's by the time the oplock of the first could be given back: that of the
/// second stays, and what others write into it is seen.
#[test]
fn a_number_that_was_given_to_another_file_keeps_that_ones_oplock() {
    let turn = |name: &str| Step::Turn {
        name: name.to_owned(),
    };
    let mut recalled = 0;
    for at_ms in (600..1400).step_by(19) {
        let steps = vec![
            open(SHARE_ALL, 0),
            beginning(4),
            turn("g"),
            beginning(3),
            Step::Pause { ns: 700 * MS },
            read_all(),
            Step::Close,
        ];
        let mut plan = Plan::reading(steps, FILE_BYTES, (OC1, 200 * MS)).in_cifs();
        plan.terms.reuses_files = true;
        let mut world = world(&plan);
        world.others.push_back((at_ms * MS, other_write("f", 1)));
        for (nth, later_ms) in (2..).zip([1500, 1900, 2100]) {
            let write = other_write("g", nth);
            world.others.push_back((later_ms * MS, write));
        }
        world.run();
        assert_eq!((world.cut, world.client.errors.len()), (None, 0));
        recalled += world.halves.unwrap()[1].stats().breaks;
    }
    assert!(recalled > 40, "{recalled}");
}

#[test]
fn a_number_that_was_given_to_another_file_has_nothing_of_the_one_before() {
    for oplock in [0, BATCH] {
        for is_cifs in [false, true] {
            let mut steps = Vec::new();
            for name in ["f", "g", "f", "g", "g"] {
                steps.push(Step::Open {
                    name: name.to_owned(),
                    share: SHARE_ALL,
                    oplock,
                });
                steps.extend([beginning(5), Step::Close]);
            }
            let plan = Plan::reading(steps, FILE_BYTES, (OC1, 60 * MS));
            let mut plan = in_dialect(plan, is_cifs);
            plan.terms.reuses_files = true;
            let mut world = world(&plan);
            world.run();
            let near = world.halves.unwrap()[0].stats();
            assert!(near.reads_answered > 5, "{oplock} {is_cifs}: {near:?}");
            assert_eq!((world.cut, world.client.errors.len()), (None, 0));
        }
    }
}

/// What failed of a file is no error of the one that has its number later.
#[test]
fn what_failed_of_a_file_is_not_told_of_the_one_that_has_its_number_later() {
    for is_left in [false, true] {
        let full = upload(&noise(6, 300_000), BLOCK, 1, 0);
        let mut steps = full[..2].to_vec();
        steps.push(if is_left { Step::LogOff } else { Step::Close });
        let fits = upload(&noise(7, 100_000), BLOCK, 1, 0);
        steps.extend(fits);
        let mut plan = Plan::writing(steps, (OC1, 100 * MS)).in_cifs();
        plan.terms.reuses_files = true;
        plan.terms.file_bytes_max = 200_000;
        let mut world = world(&plan);
        world.run();
        let told = if is_left {
            Command::Logoff
        } else {
            Command::Close
        };
        assert_eq!(world.client.errors.last(), Some(&(told, DISK_FULL)));
        assert_eq!(content(&world)[..100_000], noise(7, 100_000));
    }
}

#[test]
fn what_failed_is_told_at_the_latest_to_who_logs_off() {
    for is_cifs in [false, true] {
        let mut steps = upload(&noise(6, 300_000), BLOCK, 1, 0);
        steps.pop();
        steps.push(Step::LogOff);
        let mut plan = in_dialect(Plan::writing(steps, (OC1, 100 * MS)), is_cifs);
        plan.manners.asks = 32;
        plan.terms.file_bytes_max = 250_000;
        let mut world = world(&plan);
        world.run();
        let told = world.client.errors.last();
        assert_eq!(
            (told, world.cut),
            (Some(&(Command::Logoff, DISK_FULL)), None)
        );
    }
}

/// The server of this model ends a session only when everything that was asked in it is done.
#[test]
fn what_was_answered_is_there_before_its_session_ends() {
    for is_cifs in [false, true] {
        let bytes = noise(8, FILE_BYTES);
        for oplock in [0, BATCH] {
            let mut steps = upload(&bytes, BLOCK, 1, oplock);
            *steps.last_mut().unwrap() = Step::LogOff;
            steps.extend([open(SHARE_ALL, oplock), read_all(), Step::Close]);
            let mut plan = in_dialect(Plan::writing(steps, (OC1, 100 * MS)), is_cifs);
            plan.manners.asks = 32;
            plan.terms.reuses_files = true;
            let mut world = world(&plan);
            world.run();
            // A client of SMB2 with an oplock of its own hears of each write from the server.
            let is_early = writes_answered(&world) > 20;
            assert_eq!(is_early, is_cifs || oplock == 0);
            assert_eq!((world.cut, world.client.errors.len()), (None, 0));
            assert!(content(&world) == bytes);
            assert_eq!(world.client.read_bytes, FILE_BYTES as u64);
        }
    }
}

/// A session ends while a file is read ahead; others write into it; in another session it is opened again.
#[test]
fn who_logs_off_in_the_middle_of_a_file_and_comes_back_reads_what_is_there() {
    let mut answered = 0;
    for (nth, at_ms) in (600..2600).step_by(67).enumerate() {
        let oplock = [0, BATCH][nth % 2];
        let steps = vec![
            open(SHARE_ALL, oplock),
            beginning(3),
            Step::LogOff,
            open(SHARE_ALL, oplock),
            read_all(),
            Step::Close,
        ];
        let plan = Plan::reading(steps, FILE_BYTES, (OC1 / 4, 200 * MS));
        let mut plan = in_dialect(plan, nth % 4 < 2);
        plan.terms.reuses_files = nth % 3 > 0;
        plan.terms.read_ns = 20 * MS;
        let mut world = world(&plan);
        world.others.push_back((at_ms * MS, other_write("f", 9)));
        world.run();
        assert_eq!((world.cut, world.client.errors.len()), (None, 0));
        answered += world.halves.unwrap()[0].stats().reads_answered;
    }
    assert!(answered > 300, "{answered}");
}
