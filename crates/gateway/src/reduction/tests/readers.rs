//! Flows that are read slowly, or not, or by many at once: none is in another's way.

use super::*;

/// What arrived of a flow is read and told of.
fn pump(world: &mut World, id: u64) {
    world.arrive(id);
    world.read(id);
    world.speak();
    world.hear(100);
}

/// Everything of a flow goes through, and nothing of any other.
fn only(world: &mut World, id: u64, input: &[u8]) -> usize {
    let before = world.record_bytes;
    for part in input.chunks(100_000) {
        while world.sending.must_wait(&world.encoder, id) {
            pump(world, id);
        }
        world.write(id, part);
    }
    while world.flows[&id].received.len() < world.flows[&id].sent.len() {
        pump(world, id);
    }
    world.record_bytes - before
}

/// A second of nothing but talk.
fn second(world: &mut World, number: u64) {
    let now_ns = number * 1_000_000_000;
    world.sending.review(&mut world.encoder, now_ns, true);
    world.speak();
    world.hear(100);
}

/// What a flow has under way and nobody reads must not keep others from referring to what was read since.
#[test]
fn a_flow_that_is_read_slowly_is_in_nobodys_way() {
    let mut world = ready();
    let slow = noise(8, 400_000);
    for part in slow.chunks(50_000) {
        world.write(1, part);
    }
    let input = noise(9, 300_000);
    only(&mut world, 2, &input);
    assert!(only(&mut world, 3, &input) < 2000);
    world.arrive(1);
    world.read(1);
    assert!(only(&mut world, 4, &input) < 2000);
    world.settle();
    assert_eq!(world.flows[&1].received, slow);
    assert!(world.send(5, &slow) < 2000, "nor was it forgotten");
    assert_eq!(world.sending.missed, 0);
}

#[test]
fn flows_that_are_not_read_are_set_aside() {
    let mut world = ready();
    let stalled = noise(8, 200_000);
    for id in 10..18 {
        world.write(id, &stalled);
    }
    only(&mut world, 2, &noise(9, 300_000));
    assert!(world.decoder.held.position() < 200_000);
    for number in 0..7 {
        second(&mut world, number);
    }
    assert_eq!(
        world.decoder.held.position(),
        world.encoder.of(world.tunnels).unwrap().position(),
        "all at the same time"
    );
    world.settle();
    assert_eq!(world.flows[&17].received, stalled);
    assert!(world.sending.is_all_read());
}

/// Flows of known content need little of the link, so only this bounds what they have under way.
#[test]
fn flows_that_are_not_read_leave_room_for_others() {
    let mut world = ready();
    let known = noise(8, 2_000_000);
    world.send(1, &known);
    for id in 10..14 {
        for part in known.chunks(50_000).cycle() {
            if world.sending.must_wait(&world.encoder, id) {
                break;
            }
            world.write(id, part);
        }
        for number in 0..7 {
            second(&mut world, number + id * 100);
        }
        let again = only(&mut world, 2 + id * 10, &known);
        assert!(again < 4000, "{again} bytes beside {}", id - 9);
    }
}

/// Nor do they go on when they are set aside: what they had then is all they have.
#[test]
fn flows_that_are_not_read_take_no_more_when_they_are_set_aside() {
    let mut world = ready();
    let known = noise(8, 2_000_000);
    world.send(1, &known);
    for number in 0..30 {
        for id in 10..22 {
            for part in known.chunks(50_000) {
                if world.sending.must_wait(&world.encoder, id) {
                    break;
                }
                world.write(id, part);
            }
        }
        second(&mut world, number);
    }
    let mut under_way = 0;
    for part in noise(9, 3_000_000).chunks(50_000) {
        if world.sending.must_wait(&world.encoder, 30) {
            break;
        }
        world.write(30, part);
        under_way += part.len() as u64;
    }
    // It was 50,000.
    assert!(under_way >= 400_000, "{under_way}");
}

/// The newest place of what one flow refers to is out of the others' reach; they take the one before.
#[test]
fn many_flows_of_the_same_known_content_cost_little() {
    let mut world = ready();
    let known = noise(8, 2_000_000);
    world.send(1, &known);
    let before = world.record_bytes;
    for (nth, part) in known.chunks(16 << 10).enumerate() {
        for id in 10..22 {
            world.write(id, part);
        }
        for id in (10..22).filter(|_| nth % 8 == 7) {
            (0..8).for_each(|_| world.arrive(id));
            pump(&mut world, id);
        }
    }
    let again = world.record_bytes - before;
    assert!(again < 12 * 20_000, "{again}");
    world.settle();
    assert_eq!(world.sending.missed, 0);
    assert!((10..22).all(|id| world.flows[&id].received == known));
}

/// Flows that were cut had the newest places of known content, and those are no more.
#[test]
fn known_content_is_still_known_after_flows_with_it_were_cut() {
    let mut world = ready();
    let known: Vec<u8> = noise(8, 500_000)
        .iter()
        .flat_map(|byte| format!("{byte:02x}").into_bytes())
        .collect();
    world.send(1, &known);
    // In another order: each piece is looked for anew.
    let pieces: Vec<&[u8]> = known.chunks(700).rev().collect();
    for part in pieces.chunks(20) {
        (10..13).for_each(|id| world.write(id, &part.concat()));
    }
    (10..13).for_each(|id| world.cut(id));
    world.settle();
    let again = world.send(20, &pieces.concat());
    assert!(again < 4000, "{again}");
    assert_eq!(world.sending.missed, 0);
}

#[test]
fn what_ends_after_the_peer_has_left_is_not_kept() {
    let mut world = ready();
    world.write(1, &noise(6, 300_000));
    let gone = Message::Gone { flow: 1 };
    world.sending.handle(&mut world.encoder, &gone);
    world.write(1, &noise(7, 30_000));
    world.sending.finish(&mut world.encoder, 1);
    assert!(world.sending.is_all_read());
}

#[test]
fn the_word_of_an_older_tunnel_does_not_take_the_log_from_the_newest() {
    let mut world = ready();
    let late = world.decoder.state();
    let mut older = std::mem::replace(&mut world.sending, Sending::new(world.tunnels + 1));
    world.sending.handle(&mut world.encoder, &late);
    older.handle(&mut world.encoder, &late);
    assert!(world.encoder.of(world.tunnels + 1).is_some());
}

/// Users who give up before the first byte has come: what was sent for them takes place in the log, and nobody has it.
#[test]
fn downloads_that_are_cut_at_once_are_in_nobodys_way() {
    let mut world = ready();
    for id in 1000..1000 + 3 * MEMORY_BYTES / 500_000 {
        world.write(id, &noise(id, 500_000));
        world.cut(id);
        world.settle();
    }
    let input = noise(9, 300_000);
    assert!(only(&mut world, 2, &input) > 300_000);
    assert!(only(&mut world, 3, &input) < 2000);
    assert_eq!(world.sending.missed, 0);
}

/// The peer has lost something that is in every record. Those under way when the first is missed repeat it, too.
#[test]
fn what_the_peer_has_lost_is_missed_once_and_by_what_was_under_way() {
    let mut world = ready();
    let lost = noise(8, 3000);
    world.write(1, &lost);
    let done = Message::Done {
        flow: 1,
        records: 1,
    };
    world.sending.handle(&mut world.encoder, &done);
    world.flows.remove(&1);
    let block = |nth: u64| [noise(500 + nth, 30_000), lost.clone()].concat();
    for nth in 0..40 {
        // Four are under way all the time.
        world.write(2, &block(nth));
        if nth >= 4 {
            pump(&mut world, 2);
        }
    }
    world.settle();
    let missed = world.sending.missed;
    assert!((1..=6).contains(&missed), "{missed}");
    assert!(only(&mut world, 3, &block(39)) < 2000);
}
