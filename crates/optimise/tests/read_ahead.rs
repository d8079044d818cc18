//! Reading ahead in virtual time: the same bytes, sooner, and never what a direct client could not have seen.
#![allow(clippy::unwrap_used)]

mod model;
mod source;

use farhaul_optimise::smb::smb2::open::OPLOCK_II;
use farhaul_optimise::{Reason, Settings};
use model::client::Step;
use model::hand::{FAR, Hand, NEAR, first_file};
use model::plan::{
    BATCH, LEASE, MS, OC1, Plan, SHARE_ALL, SHARE_READ, T1, Times, assert_who_jumps_is_left_alone,
    compare, in_vain, open, read_ms, run_beside_a_writer, run_with_stream, whole,
};
use model::server::OtherWrite;
use model::server::folder::wide;
use model::world::{Learner, World};
use source::Noise;

/// Reads of the client's that waited for the link.
fn round_trips(world: &World) -> u64 {
    match &world.halves {
        Some(halves) => halves[0].stats().reads_forwarded,
        None => world.client.reads,
    }
}

fn row(name: &str, rate: u64, rtt_ms: u64, file_bytes: usize, client: (u32, usize)) -> String {
    let (block, outstanding) = client;
    let mut plan = Plan::reading(whole(block, outstanding), file_bytes, (rate, rtt_ms * MS));
    plan.manners.asks = if outstanding > 1 {
        2 * outstanding as u16
    } else {
        1
    };
    let (without, with) = (plan.direct(), plan.run());
    assert_eq!(without.client.read_bytes, file_bytes as u64);
    assert_eq!(with.client.read_bytes, file_bytes as u64);
    assert_eq!(with.cut, None);
    let reads = format!("{}/{}", with.server.reads, without.server.reads);
    let took_ms = [read_ms(&without), read_ms(&with)];
    let times = Times::new(name, (rate, rtt_ms), file_bytes, took_ms);
    let trips = [round_trips(&without), round_trips(&with)];
    format!("{}{:>8}{:>8}{reads:>10}\n", times.row, trips[0], trips[1])
}

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
        ("OC-1 10 MB 64 KiB x 1", OC1, 10_000_000, (65_536, 1)),
        ("OC-1 10 MB 60 KiB x 1", OC1, 10_000_000, (61_440, 1)),
        ("OC-1 10 MB 64 KiB x 8", OC1, 10_000_000, (65_536, 8)),
        ("OC-1 10 MB 64 KiB x 32", OC1, 10_000_000, (65_536, 32)),
        ("T1 2 MB 64 KiB x 1", T1, 2_000_000, (65_536, 1)),
        ("OC-1 10 KB 64 KiB x 1", OC1, 10_000, (65_536, 1)),
    ];
    for (name, rate, file_bytes, client) in clients {
        for rtt_ms in [0, 60, 200, 500] {
            table += &row(name, rate, rtt_ms, file_bytes, client);
        }
    }
    compare("read_ahead.txt", &table);
}

/// A tunnel that is told nothing finds its rate by what it carries: whoever waits for it to do so waits long.
#[test]
fn a_tunnel_learns_its_rate_while_a_file_is_read_ahead() {
    for rtt_ms in [60, 200, 500] {
        let link = (OC1, rtt_ms * MS);
        let mut plan = Plan::reading(whole(61_440, 1), 100_000_000, link);
        plan.manners.asks = 8;
        let mut world = plan.world(false);
        world.learner = Some(Learner {
            link,
            rate_bytes_s: OC1 / 8,
            next_ns: 0,
            seen_bytes: 0,
        });
        world.run();
        assert_eq!((world.client.read_bytes, world.cut), (100_000_000, None));
        // It knows an eighth: three round trips of twice and a half as much each at the best.
        let limit_ms = rtt_ms as f64 + 100_000_000.0 * 1e3 / OC1 as f64;
        let lost_ms = read_ms(&world) - limit_ms;
        assert!(lost_ms < 4.0 * rtt_ms as f64, "{rtt_ms}: {lost_ms}");
    }
}

/// Where there is no link to speak of nothing is looked into, and nothing lost.
#[test]
fn a_link_without_delay_is_left_alone_and_said_so() {
    let plan = Plan::reading(whole(65_536, 1), 1_000_000, (OC1, MS / 5));
    let (without, with) = (plan.direct(), plan.run());
    assert_eq!((with.gave_up, with.cut), (Some(Reason::NoGain), None));
    assert_eq!(with.halves.as_ref().unwrap()[1].stats().reads_made, 0);
    assert!(read_ms(&with) <= read_ms(&without) * 1.02);
}

/// Without any oplock a reader sees what a writer beside it has written, however they meet.
#[test]
fn without_oplocks_what_others_write_is_seen_at_once() {
    for (nth, at_ms) in (100..6000).step_by(173).enumerate() {
        let steps = vec![open(SHARE_ALL, 0), whole(65_536, 1).remove(1), Step::Close];
        let mut plan = Plan::reading(steps, 4_000_000, (OC1, 200 * MS));
        plan.terms.grants_oplocks = false;
        let plan = if nth % 2 == 0 { plan } else { plan.in_cifs() };
        let world = run_beside_a_writer(&plan, at_ms);
        assert_eq!(world.halves.unwrap()[1].stats().reads_made, 0);
    }
}

#[test]
fn a_closed_file_is_read_no_further() {
    let ranges = vec![(0, 65_536), (65_536, 65_536)];
    let read = Step::Read {
        ranges,
        outstanding: 1,
    };
    let again = [open(SHARE_ALL, BATCH), read, Step::Close];
    let steps = std::iter::repeat_n(again, 20).flatten().collect();
    let world = Plan::reading(steps, 10_000_000, (OC1, 200 * MS)).run();
    let stats = world.halves.unwrap()[1].stats();
    // Twenty files of which only the beginning is wanted: the first costs one window, the others less and less, down to what is
    // little beside the round trip that each of them saves.
    let window_bytes = OC1 / 5 + 65_536;
    assert!(stats.wasted_bytes < 4 * window_bytes, "{stats:?}");
    assert!(stats.reads_made < 100, "{stats:?}");
    assert!(stats.reads_forwarded < 25, "{stats:?}");
}

/// No answer to CLOSE names a file: whoever opens and closes in one packet leaves nothing behind all the same.
#[test]
fn files_closed_in_the_packet_that_opened_them_leave_room_for_others() {
    let glance = Step::Glance {
        name: "f".to_owned(),
    };
    let mut steps = vec![glance; 4200];
    steps.extend(whole(65_536, 1));
    let mut plan = Plan::reading(steps, 2_000_000, (OC1, 10 * MS));
    plan.manners.asks = 4;
    let world = plan.run();
    assert_eq!(round_trips(&world), 1);
}

#[test]
fn a_client_that_jumps_about_is_left_alone() {
    assert_who_jumps_is_left_alone(Plan::reading);
}

#[test]
fn a_file_that_others_may_change_unnoticed_is_not_read_ahead() {
    // Samba lets a file be opened to be read and emptied by that, whatever its readers share.
    for share in [SHARE_ALL, SHARE_READ] {
        let steps = vec![open(share, 0), whole(65_536, 1).remove(1), Step::Close];
        let mut plan = Plan::reading(steps, 1_000_000, (OC1, 60 * MS));
        plan.terms.grants_oplocks = false;
        let world = plan.run();
        let stats = world.halves.as_ref().unwrap()[1].stats();
        assert_eq!((stats.reads_made, stats.breaks), (0, 0));
        assert_eq!(world.client.read_bytes, 1_000_000);
    }
}

/// A client that asks for no oplock is lent one, and still sees what others write the moment they have written it.
#[test]
fn a_client_without_oplocks_is_lent_one() {
    let steps = || vec![open(SHARE_ALL, 0), whole(65_536, 1).remove(1), Step::Close];
    let world = Plan::reading(steps(), 4_000_000, (OC1, 200 * MS)).run();
    let stats = world.halves.as_ref().unwrap()[0].stats();
    assert_eq!(
        (stats.reads_forwarded, stats.answered_bytes),
        (1, 4_000_000 - 65_536)
    );
    let mut recalled = 0;
    for at_ms in (100..2000).step_by(23) {
        let mut plan = Plan::reading(steps(), 4_000_000, (OC1, 200 * MS));
        // An answer that was announced tells of the loan, too.
        plan.terms.opens_late = at_ms % 2 == 0;
        let world = run_beside_a_writer(&plan, at_ms);
        assert_eq!(world.cut, None);
        recalled += world.halves.unwrap()[1].stats().breaks;
    }
    assert!(recalled > 20, "{recalled}");
}

/// A file is read ahead under a borrowed oplock, and some of it is still on its way when the link is cut.
fn cut_off() -> Hand {
    let mut hand = Hand::new(Settings::of_link(OC1, 200 * MS), vec![1; 4_000_000]);
    hand.open(0);
    hand.carry_all();
    hand.read(first_file(), 0, 65_536);
    hand.carry_all();
    hand.read(first_file(), 65_536, 65_536);
    hand.carry(FAR);
    hand.hearing(false, true);
    hand
}

fn answered(hand: &Hand) -> usize {
    hand.answers.len()
}

#[test]
fn a_read_waits_while_the_link_is_down_for_a_moment() {
    let mut hand = cut_off();
    let before = answered(&hand);
    hand.read(first_file(), 131_072, 65_536);
    assert_eq!(answered(&hand), before);
    hand.hearing(true, true);
    assert!(answered(&hand) > before + 65_536);
}

/// Others get the file when the far half has waited long enough: whatever it had sent before, the near half gives out none
/// of it behind a silence that was as long.
#[test]
fn what_was_read_ahead_is_not_given_out_after_a_long_silence() {
    let mut hand = cut_off();
    let before = answered(&hand);
    hand.read(first_file(), 131_072, 65_536);
    hand.hearing(false, false);
    hand.other_writes(500_000, vec![2; 100]);
    hand.pass(4_999 * MS);
    assert_eq!(hand.cut, None, "it may have been heard later than it was");
    hand.pass(MS);
    assert_eq!(hand.cut, Some(Reason::Halves), "others wait no longer");
    hand.read(first_file(), 196_608, 65_536);
    // The link is back, and what was said before comes before the end of the connection does.
    hand.hearing(true, false);
    hand.carry(NEAR);
    hand.read(first_file(), 262_144, 65_536);
    hand.carry(NEAR);
    assert_eq!(answered(&hand), before);
}

/// A link that is slow, or back in time, has as long as servers give it.
#[test]
fn others_wait_longer_for_who_can_be_heard() {
    for is_lost in [false, true] {
        let mut hand = cut_off();
        hand.hearing(false, !is_lost);
        hand.other_writes(500_000, vec![2; 100]);
        hand.pass(4_000 * MS);
        hand.hearing(true, !is_lost);
        hand.pass(20_999 * MS);
        assert_eq!(hand.cut, None);
        hand.pass(MS);
        assert_eq!(hand.cut, Some(Reason::Halves));
    }
}

/// Nobody wanted the file: the client gets on without what was read ahead, and soon with it again.
#[test]
fn a_client_gets_on_after_a_long_silence() {
    let mut hand = cut_off();
    let before = answered(&hand);
    hand.read(first_file(), 131_072, 65_536);
    hand.hearing(false, false);
    hand.hearing(true, false);
    hand.carry_all();
    assert!(answered(&hand) > before + 65_536);
    hand.hearing(true, true);
    for block in 3..8 {
        hand.read(first_file(), block * 65_536, 65_536);
        hand.carry_all();
    }
    assert!(answered(&hand) > before + 6 * 65_536);
    let far = hand.halves[FAR].stats();
    assert!(far.reads_made > 0 && hand.cut.is_none(), "{far:?}");
    let reads = hand.halves[NEAR].stats().reads_answered;
    assert!(reads > 2, "{reads}");
}

/// Samba takes a stream that was renamed under an oplock for the one that now has its old name.
#[test]
fn no_oplock_is_lent_to_who_opens_a_stream() {
    for (name, is_lent) in [("f", true), ("f:s", false)] {
        let steps = vec![whole(65_536, 1).remove(1), Step::Close];
        let plan = Plan::reading(steps, 1_000_000, (OC1, 200 * MS));
        let (forwarded, made) = run_with_stream(plan, &wide(name));
        assert_eq!((forwarded == 1, made > 0), (is_lent, is_lent), "{name}");
    }
}

#[test]
fn who_shares_with_readers_only_is_lent_an_oplock_as_well() {
    let steps = vec![open(SHARE_READ, 0), whole(65_536, 1).remove(1), Step::Close];
    let world = Plan::reading(steps, 1_000_000, (OC1, 60 * MS)).run();
    let stats = world.halves.as_ref().unwrap()[0].stats();
    assert_eq!(
        (stats.reads_forwarded, stats.answered_bytes),
        (1, 1_000_000 - 65_536)
    );
}

/// Somebody else writes while a file is read under a level II oplock: from the break on the client sees it.
#[test]
fn a_break_ends_what_was_read_ahead() {
    for at_ms in (1000..2000).step_by(37) {
        let plan = Plan::reading(whole(65_536, 1), 4_000_000, (OC1, 200 * MS));
        run_beside_a_writer(&plan, at_ms);
    }
}

/// Bytes that another client has locked: the reads that meet them fail, and no others, as they do directly.
#[test]
fn what_others_have_locked_is_refused() {
    let locked = (0, 1_300_000, 1_300_001);
    for (share, oplock) in [(SHARE_READ, 0), (SHARE_ALL, OPLOCK_II), (SHARE_ALL, 0)] {
        let steps = vec![open(share, oplock), whole(65_536, 1).remove(1), Step::Close];
        let mut plan = Plan::reading(steps, 4_000_000, (OC1, 200 * MS));
        plan.terms.locked = Some(locked);
        // Who has locked it has it open.
        plan.terms.grants_ii = true;
        let mut world = plan.world(false);
        world.run();
        let direct = plan.direct();
        assert_eq!(direct.client.errors.len(), 1);
        assert_eq!(world.client.errors, direct.client.errors);
        assert_eq!(world.client.read_bytes, direct.client.read_bytes);
        assert_eq!(world.cut, None);
    }
}

/// Somebody locks them while the file is read ahead: once the client can know, it is given none of them.
#[test]
fn what_others_lock_meanwhile_is_refused() {
    let mut refused = 0;
    for at_ms in (900..2500).step_by(53) {
        let steps = vec![
            open(SHARE_ALL, OPLOCK_II),
            whole(65_536, 1).remove(1),
            Step::Close,
        ];
        let mut plan = Plan::reading(steps, 4_000_000, (OC1, 200 * MS));
        plan.terms.locked = Some((at_ms * MS, 2_000_000, 3_900_000));
        let mut world = plan.world(false);
        world.run();
        assert_eq!(world.cut, None);
        refused += usize::from(!world.client.errors.is_empty());
    }
    assert!(refused > 5, "{refused}");
}

#[test]
fn what_the_client_writes_it_reads() {
    let mut steps = vec![open(SHARE_ALL, BATCH)];
    for nth in 0..8u64 {
        let ranges = (0..3)
            .map(|block| ((nth + block) * 65_536, 65_536))
            .collect();
        steps.push(Step::Read {
            ranges,
            outstanding: 1,
        });
        let bytes = vec![nth as u8; 70_000];
        let offset = (nth + 3) * 65_536 + 100;
        steps.push(Step::Write { offset, bytes });
    }
    steps.push(Step::ReadAll {
        block: 50_000,
        outstanding: 4,
    });
    let mut plan = Plan::reading(steps, 3_000_000, (OC1, 60 * MS));
    plan.manners.asks = 8;
    let world = plan.run();
    assert_eq!(world.cut, None);
    assert!(world.halves.unwrap()[0].stats().reads_answered > 40);
}

#[test]
fn dialect_202_is_read_ahead_without_large_requests() {
    let mut plan = Plan::reading(whole(65_536, 1), 2_000_000, (OC1, 200 * MS));
    plan.terms.dialect = 0x0202;
    plan.manners.has_large_requests = false;
    let world = plan.run();
    assert_eq!(world.halves.as_ref().unwrap()[0].stats().reads_forwarded, 1);
    assert_eq!(world.gave_up, None);
}

/// Under a server that grants next to nothing the client has what it would have had, and no more is asked.
#[test]
fn credits_that_are_not_granted_are_not_spent() {
    for credits_max in 1..12 {
        let mut plan = Plan::reading(whole(65_536, 4), 2_000_000, (OC1, 60 * MS));
        plan.terms.credits_max = credits_max;
        plan.manners.asks = 4;
        let (without, with) = (plan.direct(), plan.run());
        assert_eq!(with.client.read_bytes, 2_000_000);
        assert!(read_ms(&with) <= read_ms(&without) * 1.1, "{credits_max}");
    }
}

#[test]
fn signed_sessions_pass_as_they_are() {
    let cases: [(u16, u16, u16, u16, Option<Reason>); 8] = [
        (0x0210, 0, 3, 1, Some(Reason::SmbSigned)),
        (0x0210, 0, 1, 3, Some(Reason::SmbSigned)),
        (0x0210, 1, 3, 1, None),
        (0x0300, 0, 1, 1, Some(Reason::SmbSigned)),
        (0x0302, 1, 1, 1, None),
        (0x0302, 2, 1, 1, None),
        (0x0302, 4, 1, 1, Some(Reason::SmbEncrypted)),
        (0x0210, 0, 1, 1, None),
    ];
    for (dialect, session_flags, server_mode, client_mode, expected) in cases {
        let mut plan = Plan::reading(whole(65_536, 1), 1_000_000, (OC1, 60 * MS));
        plan.terms.dialect = dialect;
        plan.terms.session_flags = session_flags;
        plan.terms.security_mode = server_mode;
        plan.manners.security_mode = client_mode;
        let world = plan.run();
        assert_eq!(world.gave_up, expected, "{dialect:#x} {session_flags}");
        assert_eq!(world.client.read_bytes, 1_000_000);
        let made = world.halves.unwrap()[1].stats().reads_made;
        assert_eq!(made == 0, expected.is_some());
    }
}

#[test]
fn nobody_has_no_key_whether_or_not_the_server_says_so() {
    let mut plan = Plan::reading(whole(65_536, 1), 1_000_000, (OC1, 60 * MS));
    plan.terms.dialect = 0x0302;
    plan.terms.signs_setup = false;
    plan.manners.is_anonymous = true;
    let world = plan.run();
    assert_eq!((world.gave_up, world.cut), (None, None));
    assert_eq!(world.halves.unwrap()[0].stats().reads_forwarded, 1);
}

/// As Samba's clients do: all credits the server has are the client's from the beginning, and still are in the end.
#[test]
fn a_client_that_holds_all_credits_lends_some() {
    let mut plan = Plan::reading(whole(65_536, 1), 2_000_000, (OC1, 200 * MS));
    plan.manners.asks = 8192;
    plan.terms.credits_max = 8192;
    let world = plan.run();
    assert_eq!((world.cut, world.client.credits), (None, 8192));
    let stats = world.halves.unwrap()[0].stats();
    assert!(stats.reads_forwarded <= 2, "{stats:?}");
}

/// A client that uses all credits at once, those that it has lent, too, at a server that may grant fewer later.
#[test]
fn what_is_lent_can_be_used() {
    for (nth, later) in [8192, 700, 513, 300, 1].into_iter().enumerate() {
        let read = Step::ReadAll {
            block: 65_536,
            outstanding: 4,
        };
        let place = |nth: u64| (nth * 4099 % 3_000_000, 100);
        let burst = Step::Read {
            ranges: (0..3000).map(place).collect(),
            outstanding: 2000,
        };
        let steps = vec![open(SHARE_ALL, BATCH), read, burst, Step::Close];
        let mut plan = Plan::reading(steps, 3_000_000, (OC1, 60 * MS));
        plan.manners.asks = 8192;
        plan.terms.read_ns = 20 * MS;
        plan.terms.credits_max = 600 + 100 * nth as u64;
        plan.terms.credits_later = Some((nth as u64 * 100 * MS, later));
        let world = plan.run();
        assert_eq!(world.client.read_bytes, 3_300_000, "{later}");
    }
}

#[test]
fn a_signed_tree_connect_ends_optimising() {
    let mut plan = Plan::reading(whole(65_536, 1), 500_000, (OC1, 60 * MS));
    plan.manners.signs_tree = true;
    let world = plan.run();
    assert_eq!((world.gave_up, world.cut), (Some(Reason::SmbSigned), None));
    assert_eq!(world.halves.unwrap()[1].stats().reads_made, 0);
}

fn random_steps(noise: &mut Noise, file_bytes: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..=noise.below(3) {
        let share = [SHARE_ALL, SHARE_READ][noise.below(2) as usize];
        steps.push(open(
            share,
            [0, 1, 8, LEASE, BATCH][noise.below(5) as usize],
        ));
        for _ in 0..noise.below(6) {
            let outstanding = 1 + noise.below(6) as usize;
            let block = [4096, 10_000, 61_440, 65_536][noise.below(4) as usize];
            steps.push(match noise.below(6) {
                0 => Step::Write {
                    offset: noise.below(file_bytes),
                    bytes: vec![noise.next() as u8; 1 + noise.below(100_000) as usize],
                },
                1 => Step::Pause {
                    ns: noise.below(300 * MS),
                },
                2 => Step::ReadAll { block, outstanding },
                3 => {
                    let place = |noise: &mut Noise| (noise.below(file_bytes + 9000), block);
                    Step::Read {
                        ranges: (0..noise.below(9)).map(|_| place(noise)).collect(),
                        outstanding,
                    }
                }
                _ => {
                    let from = noise.below(3) * noise.below(file_bytes);
                    let count = noise.below(20);
                    let place = |nth| (from + nth * u64::from(block), block);
                    Step::Read {
                        ranges: (0..count).map(place).collect(),
                        outstanding,
                    }
                }
            });
        }
        steps.push(Step::Close);
    }
    steps
}

/// A random history of one client.
fn random_plan(noise: &mut Noise) -> Plan {
    let file_bytes = 1 + noise.below(1_500_000);
    let rtt_ns = [10, 60, 200][noise.below(3) as usize] * MS;
    let rate = [T1 * 5, OC1][noise.below(2) as usize];
    let steps = random_steps(noise, file_bytes);
    let mut plan = Plan::reading(steps, file_bytes as usize, (rate, rtt_ns));
    plan.manners.asks = 1 + noise.below(12) as u16;
    plan.terms.credits_max = 1 + noise.below(100);
    plan.terms.grants_oplocks = noise.below(5) > 0;
    plan
}

/// It, with others who write, and a half that may give up.
fn random_world(plan: &Plan, noise: &mut Noise) -> World {
    let mut world = plan.world(false);
    for _ in 0..noise.below(4) {
        let write = OtherWrite {
            name: "f".to_owned(),
            offset: noise.below(plan.content.len() as u64) as usize,
            bytes: vec![noise.next() as u8; 1 + noise.below(80_000) as usize],
        };
        world.others.push_back((noise.below(6000) * MS, write));
    }
    world.others.make_contiguous().sort_by_key(|(at, _)| *at);
    if noise.below(3) == 0 {
        world.gives_up = Some((noise.below(4000) * MS, noise.below(2) as usize));
    }
    world
}

/// Histories of one client, others who write, and a half that gives up at some time: every byte is held against the
/// versions that a direct client could have been shown.
#[test]
fn random_histories() {
    let (mut answered, mut gave_up, mut breaks) = (0, 0, 0);
    for seed in 0..450 {
        let mut noise = Noise::new(seed);
        let plan = random_plan(&mut noise);
        let mut world = random_world(&plan, &mut noise);
        println!("seed {seed}");
        world.run();
        assert_eq!(world.cut, None, "seed {seed}");
        let halves = world.halves.as_ref().unwrap();
        answered += halves[0].stats().reads_answered;
        breaks += halves[1].stats().breaks;
        gave_up += u32::from(world.gave_up.is_some());
    }
    assert!(
        answered > 3000 && breaks > 50 && gave_up > 50,
        "{answered} {breaks} {gave_up}"
    );
}

/// The same with clients that have plenty of credits, use them all at times, and servers that may grant fewer later.
#[test]
fn random_histories_with_plenty_of_credits() {
    let mut answered = 0;
    for seed in 0..100 {
        let mut noise = Noise::new(seed);
        let mut plan = random_plan(&mut noise);
        for _ in 0..=noise.below(2) {
            let place = |noise: &mut Noise| (noise.below(plan.content.len() as u64), 60);
            let burst = Step::Read {
                ranges: (0..1500).map(|_| place(&mut noise)).collect(),
                outstanding: 1500,
            };
            let at = 1 + noise.below(plan.steps.len() as u64) as usize;
            let is_open =
                matches!(plan.steps[..at].last(), Some(step) if !matches!(step, Step::Close));
            if is_open {
                plan.steps.insert(at, burst);
            }
        }
        plan.manners.asks = [40, 8192][noise.below(2) as usize];
        plan.terms.read_ns = noise.below(40) * MS;
        plan.terms.credits_max = 500 + noise.below(700);
        let later = (noise.below(3000) * MS, 1 + noise.below(700));
        plan.terms.credits_later = (noise.below(2) == 0).then_some(later);
        let mut world = random_world(&plan, &mut noise);
        println!("seed {seed}");
        world.run();
        assert_eq!(world.cut, None, "seed {seed}");
        answered += world.halves.as_ref().unwrap()[0].stats().reads_answered;
    }
    assert!(answered > 500, "{answered}");
}

/// Some records of 4 KiB in a row here, some there: in vain at first, and worth it all the same, but little of that. It reads ahead
/// where the client is, and not where it was.
#[test]
fn who_reads_a_few_records_in_a_row_waits_less() {
    const ROWS: [u64; 12] = [1, 1, 4, 1, 8, 1, 1, 3, 1, 1, 1, 6];
    let mut ranges = vec![(0, 4_096)];
    for nth in 1..400_u64 {
        let from = nth * 7_919 % 400 * 16;
        let row = from..from + ROWS[nth as usize % ROWS.len()];
        ranges.extend(row.map(|record| (record * 4_096, 4_096)));
    }
    let mut shares = Vec::new();
    for (rate, rtt_ms) in [(OC1, 60), (OC1, 200), (OC1, 500), (T1, 60), (T1, 200)] {
        for is_cifs in [false, true] {
            let read = Step::Read {
                ranges: ranges.clone(),
                outstanding: 1,
            };
            let steps = vec![open(SHARE_ALL, BATCH), read, Step::Close];
            let plan = Plan::reading(steps, 400 << 16, (rate, rtt_ms * MS));
            let plan = if is_cifs { plan.in_cifs() } else { plan };
            let (without, with) = (plan.direct(), plan.run());
            shares.push(read_ms(&with) / read_ms(&without));
            let extra = in_vain(&with);
            assert!(extra <= 0.1, "{rate} {rtt_ms} ms: {extra} in vain");
            let (with, without) = (with.server.reads, without.server.reads);
            assert!(with <= without + without / 10, "{with} {without}");
        }
    }
    assert!(shares.iter().all(|share| *share < 0.98), "{shares:.3?}");
}

/// Who looks at the head of a file between two blocks of it goes on where it was.
#[test]
fn who_looks_at_the_head_now_and_then_is_read_ahead_all_the_same() {
    let blocks = (1..100).map(|nth| nth * 65_536);
    let ranges = blocks.flat_map(|offset| [(0, 4_096), (offset, 65_536)]);
    let read = Step::Read {
        ranges: ranges.collect(),
        outstanding: 1,
    };
    let steps = vec![open(SHARE_ALL, BATCH), read, Step::Close];
    let plan = Plan::reading(steps, 100 << 16, (OC1, 200 * MS));
    let (without, with) = (plan.direct(), plan.run());
    assert!(read_ms(&with) < 0.6 * read_ms(&without));
}
