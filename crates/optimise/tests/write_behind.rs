//! Writing behind in virtual time: sooner, in order, and no error that the client does not hear of.
#![allow(clippy::unwrap_used)]

mod model;
mod source;

use farhaul_optimise::smb::smb2::header::Command;
use farhaul_optimise::smb::smb2::transfer::FILE_BYTES_MAX;
use farhaul_optimise::{Half, Settings};
use model::client::Step;
use model::hand::{FAR, Hand, NEAR, first_file};
use model::plan::{
    BATCH, BLOCK, DISK_FULL, EXCLUSIVE, LEASE, MS, OC1, Plan, SHARE_ALL, T1,
    assert_there_when_let_go, compare, content, open, upload, upload_head, upload_times,
    write_over, writes_answered,
};
use model::server::OtherWrite;
use source::{Noise, noise};

/// With a client that asks for many credits.
fn writing(steps: Vec<Step>, link: (u64, u64)) -> Plan {
    let mut plan = Plan::writing(steps, link);
    plan.manners.asks = 32;
    plan
}

/// As `times_of_files` for reading: `FARHAUL_SNAPSHOT=write` writes it anew.
#[test]
fn times_of_uploads() {
    let mut table = upload_head();
    let (large, small) = (noise(1, 10_000_000), noise(2, 2_000_000));
    let clients = [
        ("OC-1 10 MB 60 KiB x 1", OC1, &large, (BLOCK, 1)),
        ("OC-1 10 MB 1 MiB x 1", OC1, &large, (1 << 20, 1)),
        ("OC-1 10 MB 64 KiB x 8", OC1, &large, (65_536, 8)),
        ("T1 2 MB 60 KiB x 1", T1, &small, (BLOCK, 1)),
        ("T1 2 MB 4 KiB x 1", T1, &small, (4096, 1)),
    ];
    for (name, rate, bytes, client) in clients {
        for rtt_ms in [4, 60, 200, 500] {
            let steps = upload(bytes, client.0, client.1, 0);
            let plan = writing(steps, (rate, rtt_ms * MS));
            table += &upload_times(name, &plan, rate, rtt_ms, bytes).row;
        }
    }
    compare("write_behind.txt", &table);
}

#[test]
fn only_what_is_the_clients_alone_is_answered() {
    let bytes = noise(3, 1_000_000);
    let plan = |oplock| writing(upload(&bytes, BLOCK, 1, oplock), (OC1, 60 * MS));
    assert_eq!(writes_answered(&plan(0).run()), 17, "lent");
    for own in [BATCH, EXCLUSIVE] {
        assert_eq!(writes_answered(&plan(own).run()), 0, "its own");
        assert_eq!(writes_answered(&plan(own).in_cifs().run()), 17, "SMB1");
    }
    let mut shared = plan(1);
    shared.terms.write_ns_max = 0;
    assert_eq!(writes_answered(&shared.run()), 0, "level II");
    let mut unprotected = plan(0);
    unprotected.terms.grants_oplocks = false;
    assert_eq!(writes_answered(&unprotected.run()), 0, "no oplock");
    let mut through = plan(0);
    through.manners.write_flags = 1;
    assert_eq!(writes_answered(&through.run()), 0, "each write through");
    let mut through = plan(0);
    through.manners.options = 2;
    assert_eq!(writes_answered(&through.run()), 0, "the file through");
    let mut signed = plan(0);
    signed.terms.security_mode = 3;
    assert_eq!(writes_answered(&signed.run()), 0, "signed");
}

/// What no server takes is the server's to refuse: its answer is that to the write, not to CLOSE.
#[test]
fn writes_beyond_every_file_are_not_answered_early() {
    for is_cifs in [false, true] {
        let offset = FILE_BYTES_MAX - 100;
        let bytes = vec![1; 200];
        let steps = vec![
            open(SHARE_ALL, BATCH),
            Step::Write { offset, bytes },
            Step::Close,
        ];
        let mut plan = writing(steps, (OC1, 60 * MS));
        plan.terms.file_bytes_max = 1_000_000;
        let plan = if is_cifs { plan.in_cifs() } else { plan };
        let mut world = plan.world(false);
        world.run();
        assert_eq!(writes_answered(&world), 0);
        assert_eq!(world.client.errors, [(Command::Write, DISK_FULL)]);
    }
}

/// A disk that fills up at any place, under clients of any kind: CLOSE is too late only for who has heard it before.
#[test]
fn a_full_disk_is_told_no_later_than_at_close() {
    let bytes = noise(4, 1_500_000);
    let mut late = 0;
    for file_bytes_max in [0, 1, 61_440, 700_000, 1_499_999] {
        for (block, outstanding) in [(BLOCK, 1), (4096, 3), (300_000, 2)] {
            let mut plan = writing(upload(&bytes, block, outstanding, 0), (OC1, 100 * MS));
            plan.terms.file_bytes_max = file_bytes_max;
            let mut world = plan.world(false);
            world.run();
            assert_eq!(world.cut, None);
            assert!(writes_answered(&world) > 0);
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

/// Quota and permission, in both dialects.
#[test]
fn what_else_a_server_refuses_is_told_no_later_than_at_close() {
    const QUOTA_EXCEEDED: u32 = 0xc000_0044;
    const ACCESS_DENIED: u32 = 0xc000_0022;
    for refusal in [QUOTA_EXCEEDED, ACCESS_DENIED] {
        for is_cifs in [false, true] {
            let steps = upload(&noise(9, 500_000), BLOCK, 1, 0);
            let mut plan = writing(steps, (OC1, 100 * MS));
            plan.terms.file_bytes_max = 400_000;
            plan.terms.refusal = refusal;
            let plan = if is_cifs { plan.in_cifs() } else { plan };
            let mut world = plan.world(false);
            world.run();
            assert!(writes_answered(&world) > 0);
            let told = world.client.errors.last();
            assert_eq!((told, world.cut), (Some(&(Command::Close, refusal)), None));
        }
    }
}

/// What says that it may go better: a client that would write again has forgotten the bytes. One that asks for nothing else
/// before it closes the file closes it again when the server wanted a new session first.
#[test]
fn what_failed_for_now_is_lost_for_good() {
    const SESSION_EXPIRED: u32 = 0xc000_035c;
    const INSUFFICIENT: u32 = 0xc000_0205;
    const BAD_UID: u32 = 0x005b_0002;
    const LOST: u32 = 0xc000_00e9;
    for refusal in [SESSION_EXPIRED, INSUFFICIENT, BAD_UID] {
        for is_cifs in [false, true] {
            let mut steps = upload(&noise(9, 500_000), BLOCK, 1, 0);
            steps.push(Step::Close);
            let mut plan = writing(steps, (OC1, 100 * MS));
            plan.terms.file_bytes_max = 0;
            plan.terms.refusal = refusal;
            plan.terms.refuses_to_close = true;
            let plan = if is_cifs { plan.in_cifs() } else { plan };
            let mut world = plan.world(false);
            world.run();
            assert!(writes_answered(&world) > 0);
            let closed = [(Command::Close, SESSION_EXPIRED), (Command::Close, LOST)];
            let errors = &world.client.errors;
            assert!(errors.ends_with(&closed), "{errors:x?}");
            assert!(errors[..errors.len() - 2].iter().all(|it| it.1 == LOST));
            assert_eq!((world.cut, world.server.open_files()), (None, 0));
        }
    }
}

/// What a client asks next of a file, believing its writes done, is not done behind one that failed: an older length is another's only
/// copy. Alone and in a compound, which closes the file all the same.
#[test]
fn what_failed_is_not_built_on() {
    let bytes = noise(11, 500_000);
    let kept = noise(12, 450_000);
    let chains = [None, Some(Command::Flush), Some(Command::QueryInfo)];
    let cases = chains.map(|behind| (false, behind));
    for (is_cifs, behind) in cases.into_iter().chain([(true, None)]) {
        let run = |file_bytes_max| {
            let mut steps = upload(&bytes, BLOCK, 1, 0);
            steps.pop();
            steps.push(Step::SetEnd { bytes: 9, behind });
            if behind.is_none() {
                let (offset, bytes) = (20, vec![7; 10]);
                steps.extend([Step::Write { offset, bytes }, Step::Close]);
            }
            let mut plan = writing(steps, (OC1, 100 * MS));
            plan.content = kept.clone();
            plan.terms.file_bytes_max = file_bytes_max;
            let plan = if is_cifs { plan.in_cifs() } else { plan };
            let mut world = plan.world(false);
            world.run();
            assert!(writes_answered(&world) > 0);
            assert_eq!((world.cut, world.server.open_files()), (None, 0));
            world
        };
        let failed = run(450_000);
        assert_eq!(
            content(&failed).len(),
            kept.len(),
            "cut behind a failed write"
        );
        let mut told = vec![(Command::SetInfo, DISK_FULL), (Command::Close, DISK_FULL)];
        match behind {
            None => told.insert(1, (Command::Write, DISK_FULL)),
            Some(Command::Flush) => told.insert(0, (Command::Flush, DISK_FULL)),
            Some(_) => (),
        }
        assert_eq!(failed.client.errors, told);
        let done = run(usize::MAX);
        assert_eq!(done.client.errors, []);
        assert_eq!(content(&done).len(), if behind.is_some() { 9 } else { 30 });
    }
}

/// What is printed is no file: it passes as it is.
#[test]
fn a_printer_is_written_to_as_it_is() {
    const PRINTER: u8 = 3;
    let bytes = noise(10, 500_000);
    let mut plan = writing(upload(&bytes, BLOCK, 1, 0), (OC1, 100 * MS));
    plan.terms.share = PRINTER;
    let world = plan.run();
    assert!(content(&world) == bytes);
    let stats = world.halves.as_ref().unwrap()[1].stats();
    assert_eq!((writes_answered(&world), stats.reads_made), (0, 0));
    assert_eq!((world.gave_up, world.server.let_go.len()), (None, 0));
}

/// The share is left with the file open: that is the last that can tell.
#[test]
fn what_failed_is_told_at_the_latest_when_the_share_is_left() {
    for is_cifs in [false, true] {
        let mut steps = upload(&noise(6, 300_000), BLOCK, 1, 0);
        steps.pop();
        steps.push(Step::Leave);
        let mut plan = writing(steps, (OC1, 100 * MS));
        plan.terms.file_bytes_max = 250_000;
        let plan = if is_cifs { plan.in_cifs() } else { plan };
        let mut world = plan.world(false);
        world.run();
        assert_eq!(world.cut, None);
        let told = world.client.errors.last();
        assert_eq!(told, Some(&(Command::TreeDisconnect, DISK_FULL)));
    }
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
        recalled += assert_there_when_let_go(&world);
    }
    assert!(recalled > 15, "{recalled}");
}

/// A share is connected while the word that a file's writes may be answered is on its way: the far half takes it back, and
/// knows that it may not have come.
#[test]
fn what_crossed_the_end_of_early_answers_is_at_the_server_before_others() {
    let mut hand = Hand::new(Settings::of_link(OC1, 200 * MS), vec![1; 100]);
    let file = first_file();
    hand.open(0);
    hand.carry(FAR);
    hand.connect_tree();
    hand.carry(NEAR);
    assert!(hand.write(file, 0, &[2; 10]), "nothing is tested");
    hand.carry(FAR);
    hand.other_writes(50, vec![3; 10]);
    let is_answered = hand.write(file, 10, &[2; 10]);
    let was_kept = hand.server.let_go.is_empty();
    assert!(was_kept || !is_answered, "of an oplock that is gone");
    hand.carry_all();
    let (_, held) = hand.server.let_go.first().unwrap();
    assert_eq!(held[..20], [2; 20]);
    assert!(!hand.write(file, 20, &[2; 10]), "for ever");
    assert_eq!(hand.cut, None);
}

/// A client that is gone: what it was told is owed until the server has it.
#[test]
fn what_was_answered_is_owed_until_it_is_at_the_server() {
    let mut hand = Hand::new(Settings::of_link(OC1, 200 * MS), vec![1; 100]);
    hand.open(0);
    hand.carry(FAR);
    hand.carry(NEAR);
    let owes = |hand: &Hand| hand.halves[NEAR].owes();
    assert!(!owes(&hand));
    assert!(hand.write(first_file(), 0, &[2; 10]), "nothing is tested");
    assert!(owes(&hand));
    assert_eq!(hand.halves[NEAR].owed_bytes(), 10);
    hand.carry(FAR);
    assert!(owes(&hand), "nobody has said here that it is done");
    hand.carry_all();
    assert!(!owes(&hand));
    assert_eq!(hand.halves[NEAR].owed_bytes(), 0);
}

/// Who must not be told before the server has it.
#[test]
fn no_write_is_answered_early_where_that_is_off() {
    let settings = Settings::of_link(OC1, 200 * MS);
    let mut hand = Hand::with(
        Half::near(settings).without_write_behind(),
        settings,
        vec![1; 100],
    );
    hand.open(0);
    hand.carry_all();
    assert!(!hand.write(first_file(), 0, &[2; 10]));
    assert_eq!(hand.halves[NEAR].owed_bytes(), 0);
    hand.carry_all();
    assert_eq!(hand.server.files["f"].last().unwrap()[..10], [2; 10]);
}

/// A client with an answered write, and a server that takes its time for it.
fn told_before_the_server() -> Hand {
    let mut hand = Hand::new(Settings::of_link(OC1, 200 * MS), vec![1; 100]);
    hand.open(0);
    hand.carry(FAR);
    hand.carry(NEAR);
    hand.server.terms.write_ns_max = 3 * MS;
    assert!(hand.write(first_file(), 0, &[2; 10]), "nothing is tested");
    hand
}

/// Servers drop what they have begun for a client that ends.
#[test]
fn the_server_hears_of_the_end_when_it_has_what_was_answered() {
    let mut hand = told_before_the_server();
    hand.end(NEAR);
    hand.carry_all();
    assert!(!hand.has_told_end);
    hand.server_goes_on(3 * MS);
    assert!(hand.has_told_end);
    assert_eq!(hand.cut, None);
}

#[test]
fn the_end_does_not_wait_for_what_was_begun() {
    let mut hand = told_before_the_server();
    let answered = hand.answers.len();
    hand.end_in_write(first_file(), 10, &vec![3; 200_000]);
    hand.carry_all();
    assert!(!hand.has_told_end);
    hand.server_goes_on(3 * MS);
    assert!(hand.has_told_end);
    assert_eq!(hand.answers.len(), answered);
}

#[test]
fn nothing_is_waited_for_of_a_server_that_has_ended() {
    let mut hand = told_before_the_server();
    hand.carry(FAR);
    hand.end(FAR);
    hand.carry_all();
    assert!(!hand.halves[NEAR].owes());
    assert!(!hand.has_told_end);
    hand.end(NEAR);
    hand.carry_all();
    assert!(hand.has_told_end);
    // The same the other way round.
    let mut hand = told_before_the_server();
    hand.end(NEAR);
    hand.carry(FAR);
    assert!(!hand.has_told_end);
    hand.end(FAR);
    assert!(hand.has_told_end);
}

fn random_steps(noise: &mut Noise) -> (Vec<Step>, Vec<u8>) {
    let mut steps = Vec::new();
    let mut image: Vec<u8> = Vec::new();
    for _ in 0..=noise.below(2) {
        steps.push(open(
            SHARE_ALL,
            [0, 0, 0, LEASE, EXCLUSIVE, BATCH][noise.below(6) as usize],
        ));
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
            write_over(&mut image, offset, &bytes);
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
        let mut plan = writing(steps, (rate, rtt_ns));
        plan.manners.asks = 1 + noise.below(40) as u16;
        plan.terms.write_ns_max = 1 + noise.below(20) * MS;
        plan.terms.credits_max = 1 + noise.below(300);
        if seed % 4 == 0 {
            plan.manners.asks = 8192;
            plan.terms.credits_max += 500;
            plan.terms.read_ns = noise.below(20) * MS;
            let later = (noise.below(2000) * MS, 1 + noise.below(300));
            plan.terms.credits_later = (seed % 8 == 0).then_some(later);
        }
        plan.terms.grants_oplocks = noise.below(6) > 0;
        let mut world = plan.world(false);
        if noise.below(3) == 0 {
            world.gives_up = Some((noise.below(3000) * MS, noise.below(2) as usize));
        }
        println!("seed {seed}");
        world.run();
        assert_eq!((world.cut, world.client.errors.len()), (None, 0));
        assert!(content(&world) == image, "seed {seed}: other bytes");
        let owes = world.halves.as_ref().unwrap()[0].owes();
        assert!(!owes || world.gave_up.is_some(), "seed {seed}: for ever");
        behind += writes_answered(&world);
        gave_up += u32::from(world.gave_up.is_some());
    }
    // Half of the files are ones whose writes are answered early.
    assert!(behind > 800 && gave_up > 25, "{behind} {gave_up}");
}
