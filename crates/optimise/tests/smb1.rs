//! SMB1 in virtual time, with a client that waits for every block as Windows XP's does: the same bytes, sooner, and never
//! what a direct client could not have seen.
#![allow(clippy::unwrap_used)]

mod model;
mod source;

use farhaul_optimise::Reason;
use farhaul_optimise::smb::smb2::header::Command;
use model::client::Step;
use model::plan::{
    BATCH, BLOCK, DISK_FULL, EXCLUSIVE, MS, OC1, Plan, SHARE_ALL, SHARE_READ, T1, Times,
    assert_there_when_let_go, assert_who_jumps_is_left_alone, compare, content, open, read_ms,
    run_beside_a_writer, run_with_stream, upload, upload_head, upload_times, whole, write_over,
    writes_answered,
};
use model::server::OtherWrite;
use model::world::World;
use source::{Noise, noise};

fn read_all(block: u32, outstanding: usize) -> Step {
    Step::ReadAll { block, outstanding }
}

fn reading(steps: Vec<Step>, file_bytes: usize, link: (u64, u64)) -> Plan {
    Plan::reading(steps, file_bytes, link).in_cifs()
}

fn writing(steps: Vec<Step>, link: (u64, u64)) -> Plan {
    Plan::writing(steps, link).in_cifs()
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
    let plan = reading(whole(BLOCK, outstanding), file_bytes, (rate, rtt_ms * MS));
    let (without, with) = (plan.direct(), plan.run());
    for world in [&without, &with] {
        assert_eq!(
            (world.client.read_bytes, world.cut),
            (file_bytes as u64, None)
        );
    }
    let reads = format!("{}/{}", with.server.reads, without.server.reads);
    let took_ms = [read_ms(&without), read_ms(&with)];
    let times = Times::new(name, (rate, rtt_ms), file_bytes, took_ms);
    let trips = [without.client.reads, forwarded(&with)];
    let line = format!("{}{:>8}{:>8}{reads:>10}\n", times.row, trips[0], trips[1]);
    (line, times.share)
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
        // More than are read ahead at a time.
        ("OC-1 10 MB 60 KiB x 30", OC1, 30, 0.95),
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

/// It takes up its files by their names after a lost connection, and does not look at what CLOSE says.
#[test]
fn linux_hears_of_each_write_from_the_server() {
    let bytes = noise(3, 600_000);
    for (name, early) in [
        (&b"Windows 2002 5.1"[..], 10),
        (b"CIFS VFS Client for Linux", 0),
    ] {
        let mut plan = writing(upload(&bytes, BLOCK, 1, BATCH), (OC1, 60 * MS));
        plan.manners.name = name;
        let world = plan.run();
        assert_eq!(writes_answered(&world), early);
        assert!(content(&world) == bytes);
    }
}

#[test]
fn only_what_is_protected_is_read_ahead() {
    let with = |share, oplock| {
        let steps = vec![open(share, oplock), read_all(BLOCK, 1), Step::Close];
        reading(steps, 1_000_000, (OC1, 60 * MS))
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
    assert!(read_ms(&world) <= read_ms(&refused.direct()) * 1.02);
}

#[test]
fn a_client_that_jumps_about_is_left_alone() {
    assert_who_jumps_is_left_alone(reading);
}

/// Clients without long reads may turn to raw ones, whose packets cannot be told apart.
#[test]
fn a_client_without_long_reads_is_left_alone() {
    let mut plan = reading(whole(BLOCK, 1), 500_000, (OC1, 60 * MS));
    plan.manners.capabilities = 0;
    let world = plan.run();
    assert_eq!((reads_made(&world), world.gave_up), (0, None));
}

#[test]
fn signed_sessions_pass_as_they_are() {
    let mut plan = reading(whole(BLOCK, 1), 500_000, (OC1, 60 * MS));
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
    let mut plan = reading(whole(BLOCK, 1), 2_000_000, (OC1, 200 * MS));
    plan.terms.is_cifs = false;
    plan.terms.dialect = 0x0202;
    plan.manners.has_large_requests = false;
    plan.manners.asks = 4;
    let world = plan.run();
    assert_eq!((world.gave_up, world.cut), (None, None));
    assert_eq!(forwarded(&world), 1);
}

/// Servers give less than asked for not only where the file ends.
#[test]
fn a_read_that_is_cut_short_is_not_the_end_of_the_file() {
    for (gives, block) in [(65_535, 130_000), (32_768, 30_000), (20_000, BLOCK)] {
        for is_written in [false, true] {
            let step = u64::from(block).min(gives);
            let places = (0..1_000_000).step_by(step as usize);
            let read = Step::Read {
                ranges: places.map(|offset| (offset, block)).collect(),
                outstanding: 1,
            };
            let mut steps = vec![open(SHARE_ALL, BATCH), read, Step::Close];
            let mut plan = reading(Vec::new(), 1_000_000, (OC1, 60 * MS));
            if is_written {
                // A file that has grown since it was opened.
                let bytes = std::mem::replace(&mut plan.content, vec![1; 500_000]);
                steps.splice(1..1, upload(&bytes, BLOCK, 1, BATCH).drain(1..2));
            }
            plan.steps = steps;
            plan.terms.read_bytes_max = gives as usize;
            let world = plan.run();
            // The near half may give more at once than the server.
            assert!(world.client.read_bytes >= 1_000_000 && world.cut.is_none());
        }
    }
}

/// As smbclient reads, of a server of which one thread in some is held up: what others overtake is waited for, and nothing read in vain.
#[test]
fn a_server_that_answers_in_any_order_is_read_ahead() {
    let mut plan = reading(whole(64_000, 50), 20_000_000, (OC1, 500 * MS));
    let in_order_ms = read_ms(&plan.run());
    for (nth, slow_ms) in [(3, 10), (4, 100), (5, 300), (8, 300), (20, 60)] {
        plan.terms.slow_reads = Some((nth, slow_ms * MS));
        let world = plan.run();
        assert_eq!(world.client.read_bytes, 20_000_000);
        let stats = world.halves.as_ref().unwrap()[1].stats();
        let took_ms = read_ms(&world);
        println!("{nth}: {in_order_ms} ms, {took_ms} ms, {stats:?}");
        assert_eq!(stats.wasted_bytes, 0, "{nth}");
        assert!(took_ms < 1.1 * in_order_ms, "{took_ms} ms, {in_order_ms}");
    }
}

/// However few requests the server takes at a time, the client has what it would have had.
#[test]
fn a_server_that_takes_few_requests_is_not_asked_for_more() {
    for requests_max in [1, 2, 3, 10] {
        let mut plan = reading(whole(BLOCK, 1), 2_000_000, (OC1, 60 * MS));
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
        let plan = reading(steps, 4_000_000, (OC1, 200 * MS));
        let world = run_beside_a_writer(&plan, at_ms);
        assert_eq!(world.cut, None);
        recalled += world.halves.unwrap()[1].stats().breaks;
    }
    assert!(recalled > 20, "{recalled}");
}

/// A stream that is renamed while it is open is taken for another later.
#[test]
fn no_oplock_is_lent_to_who_opens_a_stream() {
    for (name, is_lent) in [("f", true), ("f:s", false)] {
        let steps = vec![read_all(BLOCK, 1), Step::Close];
        let plan = reading(steps, 1_000_000, (OC1, 200 * MS));
        let (_, made) = run_with_stream(plan, name);
        assert_eq!(made > 0, is_lent, "{name}");
    }
}

/// Somebody else writes while a file is read: from the break on the client sees it, whatever oplock it had.
#[test]
fn a_break_ends_what_was_read_ahead() {
    let mut breaks = 0;
    for (nth, at_ms) in (700..2400).step_by(41).enumerate() {
        let oplock = [EXCLUSIVE, BATCH][nth % 2];
        let steps = vec![open(SHARE_ALL, oplock), read_all(BLOCK, 1), Step::Close];
        let mut plan = reading(steps, 4_000_000, (OC1, 200 * MS));
        plan.terms.grants_ii = nth % 3 == 0;
        let world = run_beside_a_writer(&plan, at_ms);
        assert_eq!(world.cut, None);
        breaks += world.halves.unwrap()[1].stats().breaks;
    }
    assert!(breaks > 20, "{breaks}");
}

/// A client never closes a file that it is reading; the server of this model, as Samba, does not bear it.
#[test]
fn no_file_is_closed_while_it_is_read_ahead() {
    for parts in 2..12 {
        let ranges = (0..parts).map(|nth| (nth * u64::from(BLOCK), BLOCK));
        let read = Step::Read {
            ranges: ranges.collect(),
            outstanding: 1,
        };
        let steps = vec![open(SHARE_ALL, BATCH), read, Step::Close];
        let mut plan = reading(steps, 4_000_000, (OC1, 60 * MS));
        plan.terms.read_ns = 40 * MS;
        let world = plan.run();
        assert!(reads_made(&world) > parts, "none ahead");
        // The close waits for what is under way, and nothing more is asked for.
        let closed_ms = (world.client.closed_ns - world.client.last_read_ns) as f64 / 1e6;
        assert!(closed_ms < 60.0 + 2.0 * 40.0, "{closed_ms}");
    }
}

/// One does that stops at the file's end, as Samba's.
#[test]
fn no_file_is_closed_while_the_client_reads_it() {
    for (nth, oplock) in (0..32).zip([0, BATCH].into_iter().cycle()) {
        let from = nth * 50_000;
        let ranges = (0..28).map(|nth| (from + nth * u64::from(BLOCK), BLOCK));
        let desert = Step::Desert {
            ranges: ranges.collect(),
        };
        let steps = vec![open(SHARE_ALL, oplock), desert];
        let mut plan = reading(steps, 1_000_000, (OC1, 60 * MS));
        plan.terms.read_ns = 40 * MS;
        let client = plan.run().client;
        assert!(client.closed_ns > client.last_read_ns, "not closed");
    }
}

/// A disk that does not answer keeps up who waits for it, and not everybody else on the connection.
#[test]
fn a_close_does_not_wait_for_ever_for_a_read() {
    let ranges = vec![(100_000, BLOCK), (500_000, BLOCK)];
    let steps = vec![open(SHARE_ALL, 0), Step::Desert { ranges }];
    let mut plan = reading(steps, 1_000_000, (OC1, 60 * MS));
    plan.terms.read_ns = 20_000 * MS;
    plan.terms.bears_close = true;
    let client = plan.run().client;
    let closed_ms = (client.closed_ns - client.first_read_ns.unwrap()) / MS;
    assert!((5_000..5_500).contains(&closed_ms), "{closed_ms}");
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
        let mut plan = reading(steps, file_bytes as usize, (rate, rtt_ns));
        plan.terms.requests_max = 7 + noise.below(50) as usize;
        plan.terms.grants_oplocks = noise.below(5) > 0;
        plan.terms.grants_ii = noise.below(4) == 0;
        plan.terms.read_ns = seed % 4 * MS;
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

#[test]
fn times_of_uploads() {
    let mut table = upload_head();
    let (large, small) = (noise(1, 10_000_000), noise(2, 2_000_000));
    let clients = [
        ("OC-1 10 MB 60 KiB x 1", OC1, &large, (BLOCK, 1)),
        ("T1 2 MB 60 KiB x 1", T1, &small, (BLOCK, 1)),
        ("T1 2 MB 4 KiB x 1", T1, &small, (4096, 1)),
    ];
    for (name, rate, bytes, client) in clients {
        for rtt_ms in [4, 60, 200, 500] {
            let steps = upload(bytes, client.0, client.1, BATCH);
            let plan = writing(steps, (rate, rtt_ms * MS));
            let times = upload_times(name, &plan, rate, rtt_ms, bytes);
            table += &times.row;
            assert!(times.share >= 0.9, "{}", times.row);
        }
    }
    compare("smb1_uploads.txt", &table);
}

#[test]
fn only_writes_of_what_is_the_clients_alone_are_answered() {
    let bytes = noise(3, 1_000_000);
    let plan = |oplock| writing(upload(&bytes, BLOCK, 1, oplock), (OC1, 60 * MS));
    assert_eq!(writes_answered(&plan(BATCH).run()), 17);
    assert_eq!(writes_answered(&plan(EXCLUSIVE).run()), 17);
    assert_eq!(writes_answered(&plan(0).run()), 17, "lent");
    let mut shared = plan(BATCH);
    shared.terms.grants_ii = true;
    shared.terms.write_ns_max = 0;
    assert_eq!(writes_answered(&shared.run()), 0, "level II");
    let mut unprotected = plan(BATCH);
    unprotected.terms.grants_oplocks = false;
    assert_eq!(writes_answered(&unprotected.run()), 0, "no oplock");
    let mut through = plan(BATCH);
    through.manners.write_flags = 1;
    assert_eq!(writes_answered(&through.run()), 0, "each write through");
    let mut through = plan(BATCH);
    through.manners.options = 2;
    assert_eq!(writes_answered(&through.run()), 0, "the file through");
    let mut signed = plan(BATCH);
    signed.terms.security_mode = 1 | 8;
    assert_eq!(writes_answered(&signed.run()), 0, "signed");
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
            assert!(writes_answered(&world) > 0);
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

#[test]
fn what_failed_is_told_to_who_flushes_all_files() {
    let mut steps = upload(&noise(7, 100_000), BLOCK, 1, BATCH);
    steps.insert(2, Step::FlushAll);
    let mut plan = writing(steps, (OC1, 100 * MS));
    plan.terms.file_bytes_max = 0;
    let mut world = plan.world(false);
    world.run();
    let told = [Command::Flush, Command::Close].map(|command| (command, DISK_FULL));
    assert!(world.client.errors.ends_with(&told));
}

/// Locks are a process's: another one of the client's may not read what is read ahead for the first.
#[test]
fn nothing_is_read_ahead_of_who_locks() {
    for locks in [false, true] {
        let mut steps = whole(BLOCK, 1);
        steps.splice(1..1, locks.then_some(Step::Lock));
        let world = reading(steps, 1_000_000, (OC1, 60 * MS)).run();
        assert_eq!(reads_made(&world) > 0, !locks);
    }
}

/// Both halves count writes, also those that are none.
#[test]
fn a_write_that_is_cut_short_is_counted() {
    let bytes = noise(8, 500_000);
    let mut steps = vec![open(SHARE_ALL, BATCH), Step::Close, Step::Stutter];
    steps.extend(upload(&bytes, BLOCK, 1, BATCH));
    let world = writing(steps, (OC1, 60 * MS)).run();
    assert_eq!(world.cut, None);
    assert!(writes_answered(&world) > 0 && content(&world) == bytes);
}

/// Each must wait for the one before, so that they come faster than they go.
#[test]
fn many_tiny_writes_to_one_place_are_done() {
    let write = |nth: u32| Step::Write {
        offset: 0,
        bytes: nth.to_le_bytes().to_vec(),
    };
    let steps = (0..12_000).map(write);
    let opening = [open(SHARE_ALL, BATCH)];
    let steps = opening.into_iter().chain(steps).chain([Step::Close]);
    let world = writing(steps.collect(), (OC1, 200 * MS)).run();
    assert_eq!(world.cut, None);
    assert_eq!(content(&world), 11_999_u32.to_le_bytes());
    assert!(writes_answered(&world) > 4096);
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
        answered += writes_answered(&world);
        gave_up += u32::from(world.gave_up.is_some());
    }
    assert!(answered > 1000 && gave_up > 25, "{answered} {gave_up}");
}
