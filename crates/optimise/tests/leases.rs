//! Clients that ask for leases, as those of SMB 2.1 and later do: read ahead and answered early as under oplocks, and never
//! shown what a direct client could not have seen.
#![allow(clippy::unwrap_used)]

mod model;
mod source;

use farhaul_optimise::Settings;
use farhaul_optimise::smb::smb2::open::{LEASE_READ, LEASE_WRITE, OPLOCK_BATCH, OPLOCK_NONE};
use model::client::Step;
use model::hand::{Hand, first_file, nth_file};
use model::plan::{
    BLOCK, LEASE, MS, OC1, Plan, SHARE_ALL, assert_there_when_let_go, content, open,
    run_beside_a_writer, upload, writes_answered,
};
use model::server::OtherWrite;
use source::noise;

fn reading(file_bytes: usize) -> Plan {
    let read = Step::ReadAll {
        block: 65_536,
        outstanding: 1,
    };
    let steps = vec![open(SHARE_ALL, LEASE), read, Step::Close];
    Plan::reading(steps, file_bytes, (OC1, 200 * MS))
}

fn writing(bytes: &[u8], rate: u64) -> Plan {
    let mut plan = Plan::writing(upload(bytes, BLOCK, 1, LEASE), (rate, 200 * MS));
    plan.manners.asks = 32;
    plan
}

#[test]
fn a_client_with_a_lease_waits_for_one_read() {
    let world = reading(2_000_000).run();
    let stats = world.halves.as_ref().unwrap()[0].stats();
    assert_eq!((stats.reads_forwarded, world.cut), (1, None));
    assert_eq!(world.client.read_bytes, 2_000_000);
    // A lease to read alone is enough for that.
    let mut shared = reading(2_000_000);
    shared.terms.grants_ii = true;
    let world = shared.run();
    assert_eq!(world.halves.unwrap()[0].stats().reads_forwarded, 1);
    // A lease that was asked for and not granted protects nothing.
    let mut refused = reading(2_000_000);
    refused.terms.grants_oplocks = false;
    let world = refused.run();
    assert_eq!(world.halves.unwrap()[1].stats().reads_made, 0);
}

/// Who has a lease and does not mean to keep the file over a lost connection takes it up again by its name.
#[test]
fn no_write_is_answered_early_under_a_lease() {
    let bytes = noise(3, 1_000_000);
    for is_durable in [false, true] {
        let mut plan = writing(&bytes, OC1);
        plan.manners.is_durable = is_durable;
        let world = plan.run();
        assert_eq!(writes_answered(&world), 0);
        assert!(content(&world) == bytes);
    }
}

/// A lease that is broken to one to read, and then to none.
#[test]
fn what_others_write_is_seen_by_who_holds_a_lease() {
    let mut breaks = 0;
    for (nth, at_ms) in (100..2400).step_by(29).enumerate() {
        let mut plan = reading(4_000_000);
        plan.terms.grants_ii = nth % 3 == 0;
        let world = run_beside_a_writer(&plan, at_ms);
        assert_eq!(world.cut, None);
        breaks += world.halves.unwrap()[1].stats().breaks;
    }
    assert!(breaks > 40, "{breaks}");
}

/// Somebody else wants the file in the middle: what the client believes written is there when its lease is given back.
#[test]
fn what_was_answered_is_there_when_a_lease_is_given_back() {
    let bytes = noise(5, 2_400_000);
    let mut recalled = 0;
    for at_ms in (800..3500).step_by(61) {
        let plan = writing(&bytes, OC1 / 8);
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
        recalled += assert_there_when_let_go(&world);
    }
    assert!(recalled > 15, "{recalled}");
}

/// A lease is the client's, whatever it has opened under it: the server breaks nothing when it writes through another open.
#[test]
fn what_is_written_through_another_open_of_a_lease_is_read() {
    const KEY: [u8; 16] = [9; 16];
    for state in [LEASE_READ, LEASE_READ | LEASE_WRITE] {
        let mut hand = Hand::new(Settings::of_link(OC1, 200 * MS), vec![1; 2_000_000]);
        for _ in 0..2 {
            hand.open_leased(KEY, state);
            hand.carry_all();
        }
        hand.read(first_file(), 0, 65_536);
        hand.carry_all();
        let made = hand.halves[1].stats().reads_made;
        assert!(made > 0, "nothing was read ahead");
        hand.write(nth_file(2), 65_536, &[2; 1000]);
        let before = hand.answers.len();
        hand.read(first_file(), 65_536, 1000);
        hand.carry_all();
        let answer = &hand.answers[before..];
        assert!(answer.ends_with(&[2; 1000]), "what was there before");
        assert_eq!((hand.cut, hand.server.let_go.len()), (None, 0));
    }
}

/// A server with several threads may tell of a break before it has answered the CREATE.
#[test]
fn a_break_that_overtakes_the_answer_counts() {
    for kind in 0..3 {
        let mut hand = Hand::new(Settings::of_link(OC1, 200 * MS), noise(5, 400_000));
        hand.server.overtakes = Some(OtherWrite {
            name: "f".to_owned(),
            offset: 0,
            bytes: vec![9; 10],
        });
        match kind {
            0 => hand.open(OPLOCK_NONE),
            1 => hand.open(OPLOCK_BATCH),
            _ => hand.open_leased([7; 16], LEASE_READ | LEASE_WRITE),
        }
        hand.carry_all();
        // What was borrowed is given back, of the client's own it is told.
        assert_eq!(hand.server.let_go.len(), usize::from(kind == 0), "{kind}");
        let file = first_file();
        assert!(!hand.write(file, 50, &[2; 10]), "{kind}: early");
        hand.carry_all();
        for nth in 0..4 {
            hand.read(file, nth * 65_536, 65_536);
            hand.carry_all();
        }
        // What a client is left with still protects what it reads.
        let is_ahead = hand.halves[1].stats().reads_made > 0;
        assert!(!is_ahead || kind != 0, "of an oplock that is gone");
        assert_eq!(hand.cut, None);
        // The next one is as any other.
        hand.open_leased([8; 16], LEASE_READ | LEASE_WRITE);
        hand.carry_all();
    }
}

/// The lease is known, as another file's; the one that is being opened has it no more, either.
#[test]
fn a_break_of_a_known_lease_that_overtakes_an_answer_counts() {
    let mut hand = Hand::new(Settings::of_link(OC1, 200 * MS), noise(5, 400_000));
    hand.open_leased([7; 16], LEASE_READ);
    hand.carry_all();
    hand.server.overtakes = Some(OtherWrite {
        name: "f".to_owned(),
        offset: 0,
        bytes: vec![9; 10],
    });
    hand.open_leased([7; 16], LEASE_READ);
    hand.carry_all();
    for nth in 0..4 {
        hand.read(nth_file(2), nth * 65_536, 65_536);
        hand.carry_all();
    }
    assert_eq!((hand.halves[1].stats().reads_made, hand.cut), (0, None));
}

/// The file stays open, and with it the oplock that was borrowed for it.
#[test]
fn what_was_borrowed_is_given_back_after_a_close_that_was_refused() {
    let mut hand = Hand::new(Settings::of_link(OC1, 200 * MS), noise(5, 400_000));
    hand.open(OPLOCK_NONE);
    hand.carry_all();
    hand.server.terms.refuses_to_close = true;
    hand.close(first_file());
    hand.carry_all();
    let told = hand.answers.len();
    hand.other_writes(0, vec![9; 10]);
    hand.carry_all();
    assert_eq!(hand.server.let_go.len(), 1);
    assert_eq!(hand.answers.len(), told, "the client was told of a break");
}
